"""aot autograd with compilers of the user's own: `aot_function`, `aot_module`, `aot_module_simplified`.

Compilers are given functional graphs of ATen's overloads, and examples; they return a function of the graph's inputs, or, if it is
marked by `make_boxed_func`, of a list of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..aot import aot_compile
from ..aot.compile import as_module
from ..aot.dialect import to_aten
from ..aot.runtime import Compiled
from ..aot.unknown import in_pieces
from ..core import dispatch
from ..core.tensor import Tensor
from ..func import functional_call
from ..fx import GraphModule
from ..nn import Module
from ..ops.aten import AtenOperator
from ..ops.registry import OPERATORS
from ..utils._pytree import tree_flatten, tree_unflatten

Compiler = Callable[[GraphModule, Sequence[Any]], Any]


def make_boxed_func(f: Callable) -> Callable[[list], Any]:
    """A function of a list of `f`'s arguments."""

    def boxed(args: list) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose functions take their arguments in a list."""

    @functools.wraps(compiler)
    def boxed(gm: GraphModule, inputs: Sequence[Any]) -> Any:
        made = compiler(gm, inputs)
        return made if getattr(made, "_boxed_call", False) else make_boxed_func(made)

    return boxed


def boxed_nop(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
    """A compiler that runs the graph as it is."""
    return make_boxed_func(gm.forward)


def _adapted(compiler: Compiler) -> Callable[[GraphModule, list[Any]], Compiled]:
    """As `aot_compile` takes compilers."""

    def compile_one(gm: GraphModule, examples: list[Any]) -> Compiled:
        made = compiler(to_aten(gm), examples)
        if not callable(made):
            name = getattr(compiler, "__name__", compiler)
            raise TypeError(f"a compiler has to return a callable, {name} returned {type(made).__name__}")
        if getattr(made, "_boxed_call", False):
            return lambda inputs: _as_list(made(inputs))
        return lambda inputs: _as_list(made(*inputs))

    return compile_one


def _operator(op: Any) -> Any:
    """The operator that a handle of `torch.ops.aten` stands for."""
    return OPERATORS.get(op.__name__, op) if isinstance(op, AtenOperator) else op


def _as_list(outputs: Any) -> list:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def aot_module_simplified(mod: Any, args: Sequence[Any], fw_compiler: Compiler, bw_compiler: Compiler | None = None,
                          partition_fn: Callable | None = None, decompositions: Mapping[Any, Callable] | None = None,
                          keep_inference_input_mutations: bool = False, inference_compiler: Compiler | None = None) -> Callable[..., Any]:
    """A function with the signature of `mod` (a captured GraphModule, or a Module of tensors), compiled for inputs like `args`."""
    gm = mod if isinstance(mod, GraphModule) else as_module(mod, len(args))
    compile_whole = in_pieces()(aot_compile)
    return compile_whole(gm, list(args), forward_compiler=_adapted(fw_compiler), backward_compiler=_adapted(bw_compiler or fw_compiler),
                         inference_compiler=_adapted(inference_compiler or fw_compiler), partition_fn=partition_fn,
                         decompositions={_operator(op): fn for op, fn in (decompositions or {}).items()}, aten=True)


def aot_function(fn: Callable, fw_compiler: Compiler, bw_compiler: Compiler | None = None, partition_fn: Callable | None = None,
                 decompositions: Mapping[Any, Callable] | None = None, num_params_buffers: int = 0,
                 keep_inference_input_mutations: bool = False, inference_compiler: Compiler | None = None, *,
                 dynamic: bool = False) -> Callable[..., Any]:
    """`fn` with its tensor operations compiled by these compilers, forward and backward; compiled anew for other shapes, dtypes and
    arguments that are no tensors."""
    if dynamic:
        raise NotImplementedError("aot_function(dynamic=True) is not implemented; torch.compile(dynamic=True, backend=aot_autograd()) is")
    known: dict[Any, tuple[Callable[..., Any], list[Any]]] = {}

    @functools.wraps(fn)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        key = (spec, dispatch.state.grad_enabled, *map(_kind, leaves))
        found = known.get(key)
        if found is None:
            found = known[key] = _compile_flat(leaves, spec, places)
        run, out_spec = found
        return tree_unflatten(run(*[leaves[i] for i in places]), out_spec[0])

    def _compile_flat(leaves: list, spec: Any, places: list[int]) -> tuple[Callable[..., Any], list[Any]]:
        out_spec: list[Any] = [None]

        def flat(*tensors: Tensor) -> tuple:
            given = list(leaves)
            for i, tensor in zip(places, tensors, strict=True):
                given[i] = tensor
            args, kwargs = tree_unflatten(given, spec)
            outs, out_spec[0] = tree_flatten(fn(*args, **kwargs))
            return tuple(outs)

        run = aot_module_simplified(flat, [leaves[i] for i in places], fw_compiler, bw_compiler, partition_fn, decompositions,
                                    inference_compiler=inference_compiler)
        return run, out_spec

    return compiled


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype, leaf.device, leaf.requires_grad) if isinstance(leaf, Tensor) else leaf


class AOTModule(Module):
    """A module whose forward is compiled."""

    def __init__(self, mod: Module, settings: dict[str, Any]) -> None:
        super().__init__()
        self.orig_module = mod
        self._compiled = aot_function(self._functional, **settings)

    def _functional(self, state: dict[str, Tensor], args: tuple, kwargs: dict) -> Any:
        return functional_call(self.orig_module, state, args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward."""
        state = {**dict(self.orig_module.named_parameters()), **dict(self.orig_module.named_buffers())}
        return self._compiled(state, args, kwargs)


def aot_module(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """`mod` with its forward compiled as by `aot_function`; parameters and buffers are inputs."""
    names = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions")
    return AOTModule(mod, {**dict(zip(names, args)), **kwargs})


__all__ = ["AOTModule", "aot_function", "aot_module", "aot_module_simplified", "boxed_nop", "make_boxed_compiler", "make_boxed_func"]
