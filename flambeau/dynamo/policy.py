"""What is captured, what is inlined, what is left alone: decided by module and by name, in one place."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from typing import Any

from ..core.homes import is_own, own_name
from ..ops.registry import Primitive

PACKAGE = __name__.split(".")[0]

INLINED = (f"{PACKAGE}.compiler.captured", f"{PACKAGE}.nn", f"{PACKAGE}.ops.nn.recurrent", f"{PACKAGE}.ops.telling",
           f"{PACKAGE}.optim", f"{PACKAGE}.utils", f"{PACKAGE}.distributions", f"{PACKAGE}.autograd.handles",
           f"{PACKAGE}._higher_order_ops", f"{PACKAGE}._torch_c", f"{PACKAGE}.func", f"{PACKAGE}.signal", f"{PACKAGE}.backends._flags",
           f"{PACKAGE}.core.device", f"{PACKAGE}.distributed._functional_collectives", f"{PACKAGE}.distributed.captured",
           f"{PACKAGE}.distributed.tensor.loss", f"{PACKAGE}.distributed.tensor.parallel",
           f"{PACKAGE}.distributed.nn.batch_norm", f"{PACKAGE}.distributed.nn.functional")  # fmt: skip
"""Libraries of Flambeau written against operators: captured like a user's code."""

WHOLE = (f"{PACKAGE}.func.transforms", f"{PACKAGE}.func.vmap")
"""Modules whose frames are captured whole or not at all: what is recorded must not be spread over graphs."""

CAPTURED = (f"{PACKAGE}.compiler.captured", f"{PACKAGE}.nn.modules", f"{PACKAGE}.nn.functional", f"{PACKAGE}.optim", *WHOLE)
"""Of these, the ones whose frames are captured by themselves when they are called from plain Python ..."""

MACHINERY = tuple(f"{PACKAGE}.nn.modules.{name}" for name in ("module", "hooks", "state", "lazy", "utils", "applied"))
"""... but not these, save for a call with hooks, which are captured with their module."""

DECIDING = (f"{PACKAGE}.optim.lbfgs",)
"""Libraries that read numbers at each step to decide by: they run as they are written; what they call of the program's is captured."""

GRAPH = (f"{PACKAGE}.ops", f"{PACKAGE}.special", f"{PACKAGE}.linalg", f"{PACKAGE}.fft", f"{PACKAGE}.func.tape",
         f"{PACKAGE}.distributed.tensor.api", f"{PACKAGE}.distributed.tensor.dtensor")
"""Functions here go into the graph whole."""

CONSTANT = {
    "is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype", "promote_types",
    "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg", "is_distributed", "get_device", "numel",
    "can_cast", "default_dtype", "finfo", "iinfo", "result_type", "broadcast_shapes",
    "is_autocast_enabled", "get_default_device", "default_device", "is_tracing", "get_autocast_dtype",
    "is_autocast_available", "is_autocast_cpu_enabled", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled", "is_scripting", "is_exporting", "is_available",
    "own_name", "is_current_stream_capturing", "is_bf16_supported", "device_count", "is_initialized", "is_built",
    "facts_of_group", "place_in_group", "name_of_reduction",
}  # fmt: skip
"""Functions of Flambeau that answer with facts known during capture."""

STATE = {"manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "set_default_dtype", "set_default_device"}
"""Functions of Flambeau that read or change the process's state: called between graphs."""

NUMPY_NUMBERS = frozenset(
    {"sqrt", "cbrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh", "floor", "ceil", "trunc", "rint",
     "power", "float_power", "square", "absolute", "fabs", "sign", "maximum", "minimum", "add", "subtract", "multiply", "divide",
     "true_divide", "floor_divide", "remainder", "mod", "isnan", "isinf", "isfinite", "prod", "sum", "mean", "max", "min", "amax", "amin",
     "round", "around", "all", "any", "argmax", "argmin", "gcd", "lcm", "isclose", "clip", "median", "std", "var", "deg2rad", "rad2deg",
     "hypot", "arctan2", "arctan", "arcsin", "arccos", "sinh", "cosh", "exp2", "reciprocal", "fmod", "fmax", "fmin", "copysign",
     "degrees", "radians", "logaddexp", "signbit"}
)  # fmt: skip
"""Functions of NumPy that are computed during capture when they take known numbers and give one."""


def is_numpy_function(function: Any) -> bool:
    return _root(getattr(function, "__module__", None) or "numpy") == "numpy" and function.__name__ in NUMPY_NUMBERS


_STDLIB = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_SITE = tuple(folder + name + os.sep for folder in _STDLIB for name in ("site-packages", "dist-packages"))
_SKIPPED_PACKAGES = frozenset({"numpy", "scipy", "sympy", "ml_dtypes", "cupy", "cupyx", "triton", "mpi4py", "pytest", "_pytest", "pluggy",
                               "tqdm"})
_SKIPPED_MODULES = frozenset(
    {"random", "logging", "warnings", "threading", "subprocess", "time", "traceback", "inspect", "importlib", "unittest",
     "multiprocessing", "pdb", "bdb", "pickle", "json", "re", "os", "tokenize", "linecache", "gc",
     "ast", "dis", "tempfile", "shutil", "asyncio", "concurrent",
     "socket", "ctypes", "sysconfig", "site", "runpy", "codeop", "code", "cProfile", "profile", "timeit", "doctest"}
)  # fmt: skip


def _root(name: str | None) -> str:
    return (name or "").split(".")[0]


def _of_stdlib(filename: str) -> bool:
    return filename.startswith(("<frozen", *_STDLIB)) and not filename.startswith(_SITE)


def _skips(module: str | None, filename: str) -> bool:
    """Is it a module that is never captured? A program may have a module of its own called `code` or `profile`."""
    root = _root(module)
    return root in _SKIPPED_PACKAGES or (root in _SKIPPED_MODULES and _of_stdlib(filename))


def home_of(function: types.FunctionType) -> str:
    """The module that a function is written in. Its `__module__` tells another where functools.wraps has copied that."""
    home = function.__globals__.get("__name__") or ""
    return own_name(function.__module__ or "") if is_own(home) else home


def is_homemade(entry: Any) -> bool:
    """Is an entry of a class of ours what we have put there? A program may have put a function of its own in its place."""
    entry = getattr(entry, "__func__", getattr(entry, "fget", entry))
    if isinstance(entry, types.FunctionType):
        return is_own(home_of(entry))
    return not callable(entry) or _root(type(entry).__module__) in ("builtins", PACKAGE)


def runs_user_code(target: Any) -> bool:
    """Is a target of the graph the program's own operator or autograd function?"""
    if isinstance(target, types.FunctionType):
        return not is_own(home_of(target))
    return not isinstance(target, (str, types.BuiltinFunctionType, Primitive))


def is_trusted(name: str | None) -> bool:
    """Modules whose globals seldom change, Flambeau's and the standard library's: what is found there is noted in the surroundings."""
    return is_own(name) or (_root(name) in sys.stdlib_module_names and name != "__main__")


IMPLICIT = frozenset(
    {"__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__get__", "__set__", "__hash__", "__eq__", "__repr__",
     "__str__", "__del__", "__iter__", "__len__", "__contains__", "__bool__", "__dir__", "__format__", "__instancecheck__",
     "__subclasscheck__", "__init_subclass__", "__set_name__", "__class_getitem__",
     "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__",
     "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__copy__", "__prepare__", "__missing__",
     "find_spec", "create_module", "exec_module"}
)  # fmt: skip
"""Special methods, and those of importers, that run behind the program's back; reading their own sources would call them again."""


COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def skips_frames_of(name: str, filename: str, module: str | None) -> bool:
    """Is a frame never captured by itself? (It may still be inlined into another.)"""
    if name in IMPLICIT or name in COMPREHENSIONS:
        return True
    if filename == "<string>" and (name.startswith("__") or (module or "").startswith("namedtuple_")):
        return True  # what dataclasses and named tuples generate
    if is_own(module):
        own = own_name(module or "")
        return not own.startswith(CAPTURED) or own.startswith(DECIDING) or (own.startswith(MACHINERY) and name != "_call_with_hooks")
    return _root(module) in _SKIPPED_PACKAGES or _of_stdlib(filename)


def _narrowest(module: str, rooms: tuple[str, ...]) -> int:
    """How much of a module's name the narrowest of these rooms has: 0 where it is in none."""
    return max((len(room) for room in rooms if module.startswith(room)), default=0)


def treatment(function: types.FunctionType) -> str:
    """How a call is captured: "inline", "graph", "constant", "compiling", "checkpoint", "apply", "higher order",
    "dispatch", "overriding", "begin", "skip" or "autograd"."""
    module = home_of(function)
    if is_own(module):
        return _own_treatment(function, module)
    if _skips(module, function.__code__.co_filename) and not (
            module == "inspect" and function.__name__.startswith(("is", "_has_", "_signature_is_"))):    # which ask what something is
        return "skip"
    return "dispatch" if module == "functools" and function.__qualname__ == "singledispatch.<locals>.dispatch" else "inline"


def _own_treatment(function: types.FunctionType, module: str) -> str:
    if function.__name__ in ("is_compiling", "is_dynamo_compiling"):
        return "compiling"
    if function.__name__ in CONSTANT:
        return "constant"
    if function.__name__ in ("has_torch_function", "handle_torch_function"):
        return "overriding"
    if module == PACKAGE and function.__name__ in ("is_tensor", "is_storage"):
        return "inline"     # an isinstance
    if (function.__name__ in ("cond", "while_loop") and module.startswith(f"{PACKAGE}._higher_order_ops")) or (
            function.__name__ == "map_examples" and module == f"{PACKAGE}.func.vmap") or (
            function.__name__ == "scan_rows" and module == f"{PACKAGE}.func.higher_order"):  # fmt: skip
        return "higher order"
    if function.__name__ == "checkpoint" and module.startswith(f"{PACKAGE}.autograd"):
        return "checkpoint"
    if function.__name__ in ("check", "_check", "_check_is_size") and module == f"{PACKAGE}._settings":
        return "check"
    if function.__name__.startswith(("_assert", "_check", "_fail")) and module == f"{PACKAGE}._settings":
        return "inline"
    if module == f"{PACKAGE}.dynamo.autograd_functions":
        return "inline"
    if function.__qualname__ == "GroupOptimizer._begin":
        return "begin"
    if function.__qualname__.startswith("record_function.__call__."):
        return "inline"
    if function.__qualname__ == "Function.apply":
        return "apply"
    if _narrowest(module, GRAPH) > _narrowest(module, INLINED):
        return "graph"
    if module.startswith(DECIDING):
        return "skip"
    if module.startswith(INLINED) and not module.startswith(f"{PACKAGE}.utils.data"):
        return "inline"
    if module.startswith(f"{PACKAGE}.autograd"):
        return "autograd"
    return "skip"


def is_state(function: types.FunctionType) -> bool:
    return function.__name__ in STATE and is_own(home_of(function))


def is_fact_class(cls: type) -> bool:
    """Classes of Flambeau whose instances are facts known during capture."""
    return is_own(cls.__module__) and cls.__name__ in CONSTANT


_UNSEEN = {"record_function": "profiler", "profile": "profiler", "error_on_graph_break": "dynamo"}


def is_profiler_scope(cls: type) -> bool:
    """`record_function`, profiles and the like, which have nothing to see in a graph."""
    return is_own(cls.__module__) and _UNSEEN.get(cls.__name__, "no module") in cls.__module__


_module_base: type | None = None


def _nn_module() -> type | None:
    """nn.Module, once nn is loaded: before that nothing can be an instance."""
    global _module_base
    if _module_base is None:
        loaded = sys.modules.get(f"{PACKAGE}.nn")
        _module_base = getattr(loaded, "Module", None)
    return _module_base


def is_nn_module(value: Any) -> bool:
    base = _nn_module()
    return base is not None and isinstance(value, base)


def is_nn_module_class(cls: type) -> bool:
    base = _nn_module()
    return base is not None and issubclass(cls, base)


def global_hooks() -> Any:
    """The class whose `any` tells whether hooks on all modules exist, or None while nn isn't loaded."""
    base = _nn_module()
    home = sys.modules.get(base.__module__) if base is not None else None
    return getattr(home, "GlobalHooks", None)
