"""Passes as objects, and partitions by what a backend supports."""
