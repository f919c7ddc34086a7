"""Custom differentiable functions: subclass `Function`, define `forward` and `backward`, call `apply`."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..core import dispatch
from ..core.homes import is_own
from ..core.tensor import AutogradMeta, Tensor, ViewPath, bump_version
from ..ops import prims
from ..ops.primitives import PRIMITIVES
from . import forward_ad
from .batched import OnExamples, attach_all, by_program, levels, on_tape, stripped, wrapped
from .graph import SECOND_TIME, Edge, Node, Saved, _spec, bare, check_inplace, edge_of, node_type, rebase


class FunctionCtx:
    """What `forward` and `backward` share: saved tensors, flags, and whatever the user hangs on it."""

    def __init__(self) -> None:
        self._to_save: tuple = ()
        self._for_forward: tuple | None = None
        self._dirty: tuple = ()
        self._non_differentiable: tuple = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self._node: Callable[[], BackwardCFunction | None] | None = None    # weak: the node holds its context

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs or outputs for backward (with a version check)."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep inputs or outputs for `jvp`, where `saved_tensors` are these."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say that `forward` wrote to these inputs in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these outputs need no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing output gradients reach `backward` as zeros (default) or None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` kept; within `jvp`, what `save_for_forward` did."""
        if self._for_forward is not None:
            return self._for_forward
        if self._node is None:
            return self._to_save
        node = self._node()
        if node is None or node.saved is None:
            raise RuntimeError(SECOND_TIME)
        return tuple(s.get(node, always=True) if isinstance(s, Saved) else s for s in node.saved)

    def maybe_clear_saved_tensors(self) -> None:
        """Let go of what is kept for backward, as a backward pass does at its end."""
        if self._node is not None and (node := self._node()) is not None:
            node.release()

    @property
    def _raw_saved_tensors(self) -> tuple:
        """What is kept, as autograd keeps it: `register_hooks` packs it."""
        node = None if self._node is None else self._node()
        if node is None or node.saved is None:
            raise RuntimeError(SECOND_TIME)
        return tuple(s for s in node.saved if isinstance(s, Saved))

    @property
    def saved_variables(self) -> tuple:
        """The old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    to_save = property(lambda self: self._to_save or None)
    dirty_tensors = property(lambda self: self._dirty or None)
    non_differentiable = property(lambda self: self._non_differentiable or None)

    def __getattr__(self, name: str) -> Any:
        """It is the node of the tape as well: its name, hooks, notes and what it leads to."""
        known = self.__dict__.get("_node")
        node = known and known()
        if node is None or name.startswith("_") or not hasattr(type(node), name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(node, name)


class BackwardCFunction(Node):
    """The tape's node of one `Function.apply`. What its context has, it has."""

    __slots__ = ("arity", "ctx", "function", "positions", "saved")

    def __init__(self, function: type[Function], ctx: FunctionCtx, edges: list[Edge | None], positions: list[int], arity: int):
        super().__init__(edges)
        self.function, self.ctx, self.positions, self.arity = function, ctx, positions, arity
        self.saved: list | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "ctx":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.ctx, name)

    @classmethod
    def of(cls, function: type[Function], *fields: Any) -> Any:
        """A node of the function's own class, which is named after it."""
        return node_type(function, cls, f"{function.__name__}Backward")(function, *fields)

    def apply(self, gs: list) -> list:
        if self.is_freed():
            raise RuntimeError(SECOND_TIME)
        if self.ctx._materialize:
            gs = [self._zeros(i) if g is None else g for i, g in enumerate(gs)]
        answer = self.function._gradient()(self.ctx, *gs)
        answer = answer if isinstance(answer, tuple) else (answer,)
        for g in answer:
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
        if len(answer) < self.arity or any(g is not None for g in answer[self.arity :]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {self.arity}, got {len(answer)})"
            )
        for place, g in enumerate(answer[: self.arity]):
            if g is not None and place not in self.positions:
                raise RuntimeError(f"function {self.name()} returned a gradient different than None at position {place + 1}, but the "
                                   "corresponding forward input was not a Variable")
        return [answer[p] for p in self.positions]

    def _zeros(self, i: int) -> Any:
        spec = self.output_specs[i]
        return None if spec is None else prims.full(tuple(spec.shape), 0, spec.dtype, spec.device)

    def release(self) -> None:
        self.saved = self.saved and None    # one that keeps nothing may run again

    def is_freed(self) -> bool:
        return self.saved is None


class _OfExamples(OnExamples, BackwardCFunction):
    """The same within vmap: `backward` sees examples, as `forward` did."""

    def _zeros(self, i: int) -> Any:
        zeros = super()._zeros(i)
        return None if zeros is None else wrapped(zeros, self.of_outputs[i])


class FunctionMeta(type):
    """The class of Functions, which knows of each what class its nodes have."""

    @property
    def _backward_cls(cls) -> type:
        return node_type(cls, BackwardCFunction, f"{cls.__name__}Backward")


class Function(metaclass=FunctionMeta):
    """Base of custom functions. `forward(ctx, ...)` (or `forward(...)` with `setup_context(ctx, inputs, output)`) computes,
    `backward(ctx, *grads)` gives a gradient (or None) per argument of forward."""

    generate_vmap_rule = False  # whether vmap of what has no `vmap` goes through `forward`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on "
                      "the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
                      DeprecationWarning, stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function "
                           f"with static forward method: {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of the inputs from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @classmethod
    def _gradient(cls) -> Callable:
        """`backward`, or `vjp`, which is its other name."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
                               "of them.")
        return cls.vjp

    @classmethod
    def _check_vmap(cls) -> None:
        """RuntimeError for a program's function that says nothing, or too much, of how it is to be called within vmap."""
        own = cls.vmap is not Function.vmap
        if is_own(cls.__module__):
            return
        if cls.setup_context is Function.setup_context:
            raise RuntimeError("In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                               f"must override the setup_context staticmethod, and {cls.__name__} does not")
        if own and cls.generate_vmap_rule:
            raise RuntimeError(f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap "
                               "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid "
                               "ambiguity.")
        if not own and not cls.generate_vmap_rule:
            raise RuntimeError(f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the "
                               "vmap staticmethod or set generate_vmap_rule=True.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run the function and record it. A `forward` that does not take the context is given all its arguments by place, defaults too."""
        if cls.setup_context is not Function.setup_context and (kwargs or len(args) < _most(cls.forward)):
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if dispatch.batched is not None and levels():
            cls._check_vmap()
        if dispatch.batched is not None and cls.vmap is not Function.vmap:
            out = by_program(cls.vmap, args)
            if out is not NotImplemented:
                return out
        tangents = forward_ad.tangents_of(args) if dispatch.state.modes else None
        ctx: Any = FunctionCtx()
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        behind = args if dispatch.batched is None else [stripped(a)[0] for a in args]
        edges = [edge_of(behind[i]) for i in positions]
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in behind)
        recording = dispatch.state.grad_enabled and any(e is not None for e in edges)
        with dispatch.grad_enabled(False), forward_ad.seen(tangents is None):
            if cls.setup_context is not Function.setup_context:
                out = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, out)
            else:
                out = cls.forward(ctx, *args, **kwargs)
        _check_marked(ctx, out if isinstance(out, tuple) else (out,))
        if tangents is not None:
            made = BackwardCFunction.of(cls, ctx, edges, positions, len(args)) if recording else None
            return _forwards(cls, ctx, args, out, tangents, made)
        ctx._for_forward = None
        if not recording:
            return out
        if dispatch.batched is not None and levels():
            return _attach_examples(_OfExamples.of(cls, ctx, edges, positions, len(args)), ctx, args, out)
        node = BackwardCFunction.of(cls, ctx, edges, positions, len(args))
        return _attach(node, ctx, args, out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> Any:
        """Fill `ctx` after a `forward` that does not take it."""
        raise NotImplementedError

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> Any:
        """Compute a whole batch: `in_dims` says for each argument which dimension runs over the `info.batch_size` examples (None: it
        is the same for all). Answers with the outputs and such dimensions of theirs. Without it `forward` sees one example."""
        raise NotImplementedError("define vmap as a staticmethod of the Function to call it")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the outputs from those of the inputs (None for an input that has none)."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")


@functools.lru_cache(256)
def _most(forward: Callable) -> int:
    """How many arguments a function takes by place, `*args` aside."""
    kinds = [p.kind for p in inspect.signature(forward).parameters.values()]
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _nested_map(condition: Callable[[Any], bool], fn: Callable[[Any], Any], condition_msg: str | None = None) -> Callable[[Any], Any]:
    """A function that makes `fn(x)` of each x in nested lists, tuples and dicts that meets the condition; None stays."""
    def apply(x: Any) -> Any:
        if condition(x):
            return fn(x)
        if x is None:
            return None
        if isinstance(x, dict):
            return {key: apply(value) for key, value in x.items()}
        if isinstance(x, (list, tuple)):
            parts = [apply(item) for item in x]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        raise ValueError(f"unsupported type {type(x).__name__}{f' ({condition_msg})' if condition_msg else ''}: only None, lists, tuples and "
                         "dicts hold others")

    return apply


def _check_marked(ctx: FunctionCtx, outs: tuple) -> None:
    """What is marked as dirty is a tensor, and among the results."""
    for t in ctx._dirty:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"mark_dirty can only accept variables, but argument is of type {type(t).__name__}")
        if not any(o is t for o in outs):
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
                               "modified inplace must all be outputs of the Function.")


def _check_saved(tensors: tuple) -> None:
    for i, t in enumerate(tensors):
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}")


def _forwards(cls: type[Function], ctx: FunctionCtx, args: tuple, out: Any, tangents: list, node: BackwardCFunction | None) -> Any:
    """The results with the tangents that `jvp` gives, and on the tape where there is a node."""
    given = cls.jvp(ctx, *tangents)
    ctx._for_forward = None
    outs = out if isinstance(out, tuple) else (out,)
    made = tuple([bare(o) if isinstance(o, Tensor) and any(o is a for a in args) and not any(o is d for d in ctx._dirty) else o
                  for o in outs])
    out = made if isinstance(out, tuple) else made[0]
    if node is not None:
        out = _attach(node, ctx, args, out)
    forward_ad.give(cls.__name__, out if isinstance(out, tuple) else (out,), given)
    return out


def _attach(node: BackwardCFunction, ctx: FunctionCtx, args: tuple, out: Any) -> Any:
    """Hang the node on the outputs: inputs returned as they are become aliases, dirty ones are rebased."""
    outs = out if isinstance(out, tuple) else (out,)
    _check_saved(ctx._to_save)
    made: list = []
    for o in outs:
        if isinstance(o, Tensor) and any(o is a for a in args) and not any(o is d for d in ctx._dirty):
            o = bare(o)
        made.append(o)
    node.output_specs = tuple(_spec(o) if isinstance(o, Tensor) else None for o in made)
    node.saved, ctx._to_save = [_keep(t, outs) for t in ctx._to_save], ()
    for nr, o in enumerate(made):
        if not isinstance(o, Tensor) or any(outs[nr] is t for t in ctx._non_differentiable) or o.dtype.category < 2:
            continue
        if any(o is d for d in ctx._dirty):
            check_inplace(o)
            bump_version(o)
            source = bare(o)
            source._grad = AutogradMeta(False, node, nr)
            rebase(o, source)
        else:
            o._view = _of_input(o, outs[nr], args)
            o._grad = AutogradMeta(False, node, nr)
    ctx._node = weakref.ref(node)
    return tuple(made) if isinstance(out, tuple) else made[0]


def _of_input(made: Tensor, out: Tensor, args: tuple) -> ViewPath | None:
    """What autograd knows of a result that looks into an input, or is one: a write to either would pass the Function's backward by."""
    root, chain, *_ = out._view or ViewPath(out, ())
    if not any(a is out or a is root or (isinstance(a, Tensor) and a._view is not None and a._view.base is root) for a in args):
        return None
    return ViewPath(root, chain or ((PRIMITIVES["alias"], ()),), 0 if root._grad is None else root._grad.generation, "function")


def _attach_examples(node: _OfExamples, ctx: FunctionCtx, args: tuple, out: Any) -> Any:
    """The same within vmap, where the history belongs to the batches."""
    if ctx._dirty:
        raise NotImplementedError(f"{node.name()}: a Function that marks its inputs as dirty cannot be recorded within vmap; return new "
                                  "tensors in their place")
    outs = out if isinstance(out, tuple) else (out,)
    _check_saved(ctx._to_save)
    made = [on_tape(o) if isinstance(o, Tensor) else o for o in outs]
    numbers = {id(o): nr for nr, o in enumerate(outs)}
    node.levels, node.of_inputs = levels(), [stripped(args[i])[1] for i in node.positions]
    attach_all(node, made, [numbers[id(t)] for t in ctx._non_differentiable if id(t) in numbers])
    node.saved = [_keep(made[numbers[id(t)]] if id(t) in numbers else t, tuple(made)) for t in ctx._to_save]
    ctx._to_save, ctx._node = (), weakref.ref(node)
    return tuple(made) if isinstance(out, tuple) else made[0]


def _keep(t: Any, outs: tuple) -> Any:
    if not isinstance(t, Tensor):
        return t
    return Saved(t, next((nr for nr, o in enumerate(outs) if o is t), None))


class InplaceFunction(Function):
    """A function that may write to its argument; `inplace` says so."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def once_differentiable(fn: Callable) -> Callable:
    """Mark a backward as not differentiable itself: a second derivative through it raises."""

    @functools.wraps(fn)
    def wrapped(ctx: Any, *args: Any) -> Any:
        tracking = dispatch.state.grad_enabled and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        with dispatch.grad_enabled(False):
            answer = fn(ctx, *args)
        if not tracking:
            return answer
        outs = answer if isinstance(answer, tuple) else (answer,)
        failing = tuple(
            _Refuse.apply(o, fn.__qualname__, *[a for a in args if isinstance(a, Tensor)]) if isinstance(o, Tensor) else o for o in outs
        )
        return failing if isinstance(answer, tuple) else failing[0]

    return wrapped


class _Refuse(Function):
    """An identity whose gradient raises."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, name: str, *inputs: Tensor) -> Tensor:
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
