"""Examples of the libraries that `help` shows (flambeau/_help.py), by name: statements, as a user writes them."""

EXAMPLES: dict[str, str] = {
}
