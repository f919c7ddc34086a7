"""The package `functorch` of old: `flambeau.as_torch` makes it this one."""

from ..._lazy import submodules
from ...func import *  # noqa: F403
from ...func import __all__ as _names
from ..functional_modules import *  # noqa: F403
from ..functional_modules import __all__ as _older
from ..make_fx import make_fx

__getattr__ = submodules(__name__, "compile")

__all__ = [*_names, *_older, "make_fx"]
