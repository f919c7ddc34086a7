"""The docstring of a function or class: one line that is written by hand, to which the rest is composed when somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Final

ROOM: Final = __name__.partition(".")[0]
SPACES: Final = (
    "", "nn.functional", "linalg", "fft", "special", "nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "nn.init", "nn.utils",
    "nn.utils.rnn", "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.parallel", "nn.attention",
    "nn.attention.flex_attention", "autograd", "autograd.functional", "autograd.forward_ad", "autograd.graph", "autograd.profiler",
    "func", "amp", "signal.windows", "sparse", "masked", "nested", "random", "quasirandom", "distributions", "distributions.constraints",
    "distributions.transforms", "utils",
    "utils.data", "utils.data.distributed", "utils.checkpoint", "utils.benchmark", "utils.dlpack", "utils.tensorboard", "testing", "hub",
    "serialization", "overrides", "library", "futures", "package", "onnx", "profiler", "profiler.by_autograd",
    "compiler", "export", "fx", "jit", "accelerator", "cpu", "cuda", "multiprocessing", "distributed", "distributed.fsdp", "distributed.tensor")
"""The namespaces that users know, as they are searched for a name."""


class Help(str):
    """A docstring whose text is the written line, and which the tools that show docstrings (`help`, IPython's `?`, Sphinx) find whole:
    `inspect.cleandoc` begins with `expandtabs`."""

    __slots__ = ("of",)

    compose: ClassVar[Callable[[Any, str], str]] = staticmethod(lambda of, written: written)
    """Slot that the package fills: the whole text of a function or class, of the line that is written."""

    of: Any

    def expandtabs(self, tabsize: Any = 8) -> str:
        return str(Help.compose(self.of, str(self))).expandtabs(tabsize)


def composed(of: Any) -> Any:
    """Let the docstring of a function or class be completed when it is shown; gives the function or class."""
    if isinstance(of, (type, FunctionType)) and type(of.__doc__) is str:
        said = Help(of.__doc__)
        said.of = of
        of.__doc__ = said
    return of


def complete(names: dict[str, Any]) -> None:
    """The same of all functions and classes of a namespace that were written here."""
    for name, value in names.items():
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith(ROOM):
            composed(value)
            if isinstance(value, type):
                own_constructor(value)


def own_constructor(of: type) -> None:
    """Let errors of a public class's constructor name that class, not an internal one from which it comes."""
    made = of.__init__      # type: ignore[misc]
    if isinstance(made, FunctionType) and made.__qualname__.startswith("_"):
        own = FunctionType(made.__code__, made.__globals__, made.__name__, made.__defaults__, made.__closure__)
        vars(own).update(vars(made))
        own.__kwdefaults__, own.__annotations__, own.__doc__ = made.__kwdefaults__, made.__annotations__, made.__doc__
        own.__qualname__ = f"{of.__name__}.{made.__name__}"
        of.__init__ = own   # type: ignore[misc]


class _Completing(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        complete(vars(module))


class Completes(MetaPathFinder):
    """Finds the namespaces of `SPACES`, and completes what help says of their names when they are loaded."""

    spaces = frozenset(f"{ROOM}.{space}" for space in SPACES if space)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in self.spaces else None
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _Completing(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Once: complete the namespaces that are loaded, and let others be when they load."""
    for space in SPACES:
        if (module := sys.modules.get(f"{ROOM}.{space}".rstrip("."))) is not None:
            complete(vars(module))
    if not any(isinstance(finder, Completes) for finder in sys.meta_path):
        sys.meta_path.insert(0, Completes())
