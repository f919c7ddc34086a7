"""torch.backends.python_native: other libraries' kernels in Python, which would stand in for operators; there are none."""

all_dsls: list[str] = []
available_dsls: list[str] = []


def get_dsl_operations(dsl_name: str) -> list[str]:
    """The operators that a library's kernels stand in for: ValueError, as none is known."""
    raise ValueError(f"unknown library {dsl_name!r}; known are {all_dsls}")
