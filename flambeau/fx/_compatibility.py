"""torch.fx's decorator that states how stable a name is, for code that uses it."""

from collections.abc import Callable


def compatibility(is_backward_compatible: bool) -> Callable:
    """Return the decorated thing as it is."""
    return lambda thing: thing
