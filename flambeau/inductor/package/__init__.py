"""Compiled graphs that run without Python: a library with the call and all that it needs, and weights, in one file (docs/aoti.md)."""
