"""From Python to the text of a program: `unit.py` compiles functions, classes and modules."""
