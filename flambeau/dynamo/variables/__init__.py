"""One class for each kind of Python value that capture understands."""
