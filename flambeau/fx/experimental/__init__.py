"""Tracing by running, and passes that were never finished elsewhere."""
