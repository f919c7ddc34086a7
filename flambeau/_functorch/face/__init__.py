"""The package `functorch` of old: `flambeau.as_torch` makes it this one."""

from ..._absent import absent_names
from ..._lazy import submodules
from ...func import *  # noqa: F403
from ...func import __all__ as _names
from ..make_fx import make_fx

__getattr__ = submodules(__name__, "compile", otherwise=absent_names("functorch", (
    "FunctionalModule", "FunctionalModuleWithBuffers", "make_functional", "make_functional_with_buffers", "combine_state_for_ensemble"),
    "use torch.func.functional_call and torch.func.stack_module_state"))

__all__ = [*_names, "make_fx"]
