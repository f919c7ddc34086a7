"""The tape: nodes, edges and what they save.

`record` is autograd's rung of the dispatch ladder. It runs the primitive and hangs a node on the result; the node
holds, for each input that needs a gradient, the rule of the primitive's derivative and the values the rule's parameters name.
"""

from __future__ import annotations

import functools
import itertools
import traceback
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, NamedTuple

from flambeau import _C

from ..core import dispatch
from ..core.locks import cached_property
from ..core.memory_format import contiguous_format, strided
from ..core.symbolic import is_symbolic
from ..core.tensor import AutogradMeta, Tensor, ViewPath, fake, from_array, refuse_inference_write, shape_of, view_tensor
from ..ops import registry
from ..ops.primitives import node_name
from ..ops.registry import General, Linear, Rule
from .handles import RemovableHandle


class Settings:
    """Autograd's switches: anomaly detection."""

    anomaly = False
    check_nan = True

    @classmethod
    def detect(cls, anomaly: bool, check_nan: bool) -> None:
        """Set them. In anomaly mode nodes remember where they were made."""
        cls.anomaly, cls.check_nan = anomaly, check_nan
        _C.trace_nodes(anomaly)


class Edge(NamedTuple):
    """Where a gradient flows: output `nr` of `node`."""

    node: Node
    nr: int


class GradientEdge(NamedTuple):
    """A place in the graph that `grad` and `backward` take instead of a tensor; `ownership_token` tells the tensor's shape and dtype."""

    node: Node
    output_nr: int
    ownership_token: Tensor | None = None


_edge = functools.partial(tuple.__new__, Edge)  # _edge((node, nr)): a third of the time of Edge(node, nr)


class Node:
    """A recorded operation. `next_functions` are its edges towards the leaves."""

    __slots__ = ("__dict__", "__weakref__", "edges", "output_specs", "sequence")

    # Most nodes have none of these; those that do keep them in their __dict__.
    pre_hooks: dict | None = None
    post_hooks: dict | None = None
    trace: Any = None
    wanted: list[bool] | None = None    # in a pass that wants some gradients alone: along which edges

    knows_last = False  # whether it has a slot `last`, which says before `apply` that it is not called again

    def __init__(self, edges: list[Edge | None]):
        self.edges = edges
        self.sequence = _C.next_node()
        self.output_specs: tuple = ()
        if Settings.anomaly:
            self.trace = traceback.extract_stack()[:-3]

    @cached_property
    def metadata(self) -> dict:
        """A place for the user's notes; in anomaly mode it tells where the operation was recorded."""
        return {} if self.trace is None else {"traceback_": traceback.format_list(self.trace)}

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through it: of what is on the tape, always."""
        return True

    @property
    def _input_metadata(self) -> list:
        """Shape, dtype and device of each gradient that the node takes."""
        return list(self.output_specs)

    place = ""  # in names

    def name(self) -> str:
        """The node's name, as torch spells it: `MulBackward0`."""
        return self.place + type(self).__name__

    def call(self, name: str) -> None:
        """Give it the name of a node of the operator that it is the last step of. What isn't a primitive's keeps its own."""

    def _sequence_nr(self) -> int:
        """Its number in the order in which operations were recorded; a leaf's is the largest."""
        return self.sequence

    @property
    def next_functions(self) -> tuple:
        """((node, output number), ...) towards the leaves; (None, 0) where no gradient flows."""
        return tuple((e.node, e.nr) if e is not None else (None, 0) for e in self.edges)

    def apply(self, gs: list) -> list:
        """Gradients for the edges from those of the outputs."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of saved values after a backward pass that does not retain the graph."""

    def is_freed(self) -> bool:
        """Has it let go of what a backward pass needs?"""
        return False

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after the node ran; it may return other grad_inputs."""
        if self.post_hooks is None:
            self.post_hooks = {}
        return RemovableHandle(self.post_hooks, hook)

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(grad_outputs)` before the node runs; it may return other grad_outputs."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return RemovableHandle(self.pre_hooks, hook)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


def node_type(of: Any, base: type[Node], name: str) -> type[Any]:
    """The class, of this name, of the nodes of a primitive or Function. It is kept with whom it is of."""
    key = f"_{base.__name__}_{name}"
    made = vars(of).get(key)
    if made is None:
        made = type(name, (base,), {"__slots__": (), "__module__": __name__})
        setattr(of, key, made)
    return made


def kind_of(prim: Any, args: tuple) -> type[Any]:
    """The class of the node of a primitive's call."""
    return node_type(prim, PrimitiveNode, node_name(prim, args))


class AccumulateGrad(Node):
    """The sink of a leaf: adds what arrives to `variable.grad`."""

    __slots__ = ("tensor_hooks", "variable")
    place = "torch::autograd::"
    variable: Tensor    # set where it is made (_C.new_sink)


class Saved:
    """A tensor kept for backward, with the version it had; unpacking checks that nobody wrote to it since."""

    # `tensor`: or what a hook packed it into, and then `edge` is where the tensor is in the graph; `owner`: whose it is, if a program asked
    __slots__ = ("edge", "output", "owner", "tensor", "unpack", "version")
    owner: Callable[[], PrimitiveNode | None]

    def __init__(self, tensor: Tensor, output: int | None = None):
        target = dispatch.state.overwriting
        if target is not None and (target is tensor or target._storage is tensor._storage):
            tensor = _copy_with_history(tensor)
        self.version = version_to_save(tensor)
        self.output = output
        self.unpack: Callable | None = None
        if output is not None:
            tensor = bare(tensor)
        if (hooks := dispatch.state.saved_hooks) is not None:
            self._pack(tensor, *hooks)
        else:
            self.tensor = tensor

    def register_hooks(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
        """Keep `pack(tensor)` instead, of which `unpack` makes the tensor again."""
        owner = getattr(self, "owner", None)
        if owner is not None and (node := owner()) is not None and node.released:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are "
                               "freed when you call .backward() or autograd.grad(); retain_graph=True keeps them.")
        if self.unpack is not None:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is "
                               "allowed at a time.")
        self._pack(self.tensor, pack, unpack)

    def _pack(self, tensor: Tensor, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
        self.edge, self.unpack, writes = edge_of(tensor) if self.output is None else None, unpack, tensor._writes
        with dispatch.grad_enabled(False):
            self.tensor = pack(tensor)
        if tensor._writes != writes:
            raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be "
                               "modified by in-place operations, as autograd keeps them as they are: clone() them first.")

    def get(self, node: Node, always: bool = False) -> Tensor:
        """The tensor; an output comes back attached to `node` where that is recorded (or `always`, as user code may ask it),
        and what hooks unpack to where the tensor was."""
        tensor = self.tensor
        if self.unpack is not None:
            tensor = self.unpack(tensor)
            if not isinstance(tensor, Tensor):
                raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                                f"{type(tensor).__name__}")
        else:
            store = tensor._store
            if store is not None and store.version != self.version:
                raise RuntimeError(_modified(tensor, self.version, node if self.output is not None else None))
        edge = (node, self.output) if self.output is not None else None if self.unpack is None else self.edge
        if edge is None or not (always or dispatch.state.grad_enabled):
            return tensor
        attached = bare(tensor)
        if isinstance(edge[0], AccumulateGrad):
            attached._grad = AutogradMeta(True)
            attached._grad.accumulator = weakref.ref(edge[0])
        else:
            _C.attach(attached, *edge)
        return dispatch.carried(tensor, attached) if dispatch.state.modes else attached


def version_to_save(tensor: Tensor) -> int:
    """The version of a tensor that is kept for backward. RuntimeError for an inference tensor."""
    store = tensor._store
    if store is None:
        return 0
    if store.inference and not dispatch.state.inference:
        raise RuntimeError(
            f"Inference tensors cannot be saved for backward, as this one of shape {list(tensor.shape)}. Use clone() to get a normal tensor, "
            "and that in what autograd records; or torch.no_grad() in place of torch.inference_mode() where it is made."
        )
    return store.version


class saved_tensors_hooks(_C.HooksScope):
    """Within the block `pack(tensor)` is kept in the tensor's place, and `unpack(packed)` gives it back for backward.
    A matter of the thread, as in torch."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.hooks = pack_hook, unpack_hook


class disable_saved_tensors_hooks(_C.HooksScope, ContextDecorator):
    """Within the block nobody may hang hooks on saved tensors, nor may there be any: RuntimeError with this message."""

    def __init__(self, error_message: str):
        self.hooks = error_message


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """What is saved for backward in the block may be written to afterwards: backward works with copies, made when it is saved."""

    def __init__(self) -> None:
        super().__init__(lambda tensor: tensor.clone(), lambda kept: kept)

    def clear(self) -> None:
        """Nothing is kept beside the graph."""


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in host memory, those of a GPU in pinned memory where that is asked for."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(t: Tensor) -> tuple[Any, Tensor]:
            return t.device, t.cpu().pin_memory() if pin_memory and t.is_cuda else t.cpu()

        super().__init__(pack, lambda packed: packed[1].to(packed[0]))


def _copy_with_history(tensor: Tensor) -> Tensor:
    """What an in-place operation is about to overwrite but its own gradient needs."""
    with dispatch.grad_enabled(False):
        copy = bare(tensor).clone()
    if tensor._grad is not None:
        copy._grad = AutogradMeta(False, tensor._grad.grad_fn, tensor._grad.output_nr)
    return dispatch.carried(tensor, copy) if dispatch.state.modes else copy


def operation_name(node: Node) -> str:
    """What the node's operation is called in messages: Mul."""
    return node.name().partition("Backward")[0]


def _modified(tensor: Tensor, expected: int, node: Node | None) -> str:
    meta = tensor._grad
    node, nr = (meta.grad_fn, meta.output_nr) if node is None and meta is not None else (node, 0)
    source = "" if node is None else f", which is output {nr} of {operation_name(node)},"
    return (
        f"one of the variables needed for gradient computation has been modified by an inplace operation: [{tensor.type()} "
        f"{list(tensor.shape)}]{source} is at version {tensor._writes}; expected version {expected} instead. Hint: enable anomaly "
        "detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
        "check_nan=False); clone() the tensor before writing to it."
    )


def bare(tensor: Tensor) -> Tensor:
    """The same memory as a new tensor object that knows nothing of autograd (shares the version counter)."""
    if dispatch.wrapping and dispatch.answers(tensor):
        return registry.PRIMITIVES["alias"].run((tensor,))
    return _C.tensor_alias(tensor)


class Output(NamedTuple):
    """What the engine must know of an output to fill in a missing gradient."""

    shape: tuple
    dtype: Any
    device: Any


_output = functools.partial(tuple.__new__, Output)


def _spec(t: Tensor) -> Output:
    return _output((shape_of(t), t.dtype, t.device))


class TapePlan:
    """What recording a primitive comes to when certain of its arguments need a gradient.

    `saves` are (name, which of `KEPT`, its index) for each value that the rules name; `rules` are
    (which of the tensor parameters, rule, whether its answer is the gradient itself and not a factor of it), or `vjp` is the one
    rule; `kind` is the class of the nodes, None where the arguments have a say in its name.
    """

    __slots__ = ("derivative", "kind", "rules", "saves", "vjp")

    def __init__(self, prim: Any, needs: tuple[int, ...]):
        derivative = self.derivative = prim.derivative
        self.rules: list[tuple[int, Rule, bool]] = []
        self.vjp: Rule | None = None
        if isinstance(derivative, General):
            self.vjp = derivative.vjp
            names = set(derivative.vjp.names)
        else:
            for i in needs:
                rule = derivative.rules.get(prim.params[i])
                if rule is not None:
                    self.rules.append((prim.tensor_positions.index(i), rule, isinstance(derivative, Linear) or "g" in rule.names))
            names = {name for _, rule, _ in self.rules for name in rule.names}
        self.saves = [(name, *_source(prim, name)) for name in names - {"g", "gs", "needs"}]
        aten = prim.aten
        self.kind = kind_of(prim, ()) if isinstance(aten.node or aten.name, str) else None

    @staticmethod
    def of(prim: Any, needs: tuple[int, ...]) -> TapePlan:
        """The plan, made once."""
        plans = prim.__dict__.setdefault("plans", {})
        plan = plans.get(needs)
        if plan is None or plan.derivative is not prim.derivative:
            plan = plans[needs] = TapePlan(prim, needs)
        return plan

    def keep(self, prim: Any, args: tuple, outs: tuple) -> dict[str, Any]:
        """What a node of `prim` keeps, by name."""
        return {name: keep(how, prim, args, outs, index) for name, how, index in self.saves}


class PrimitiveNode(Node):
    """A recorded primitive (or operator with a gradient of its own)."""

    __slots__ = ("list_sizes", "needs", "plan", "prim", "released", "saved")

    def __init__(self, prim: Any, edges: list, needs: tuple[int, ...], list_sizes: dict | None, plan: TapePlan):
        super().__init__(edges)
        self.prim, self.needs, self.list_sizes, self.plan = prim, needs, list_sizes, plan
        self.saved: dict[str, Any] = {}
        self.released = False

    def call(self, name: str) -> None:
        kind = type(self)
        if name != kind.__name__:
            self.__class__ = node_type(self.prim, kind.__base__, name)  # type: ignore[arg-type]

    def values(self, names: tuple[str, ...], gs: list) -> list:
        """Arguments for a rule, by its parameter names."""
        return [gs[0] if name == "g" else self._value(name, gs) for name in names]

    def _value(self, name: str, gs: list) -> Any:
        if name not in self.saved:
            return tuple(gs) if name == "gs" else tuple([p in self.needs and self.wants(i) for i, p in enumerate(self.prim.tensor_positions)])
        value = self.saved[name]
        if type(value) is Saved:
            return value.get(self)
        if type(value) is list:
            return [v.get(self) if type(v) is Saved else v for v in value]
        if value is _RELEASED:  # by another thread, since `apply` began
            raise RuntimeError(SECOND_TIME)
        return value

    def wants(self, i: int) -> bool:
        """Whether anyone asks for the gradient of the i-th tensor parameter."""
        return self.wanted is None or self.list_sizes is not None or self.wanted[i]

    def can_do_parts(self) -> bool:
        """Whether it can be run twice, for some gradients each time, as if it were once."""
        return self.list_sizes is None and not self.post_hooks

    def is_freed(self) -> bool:
        return self.released and any(map(_holds_tensor, self.saved.values()))

    def apply(self, gs: list) -> list:
        if self.is_freed():
            raise RuntimeError(SECOND_TIME)
        if dispatch.override_classes and not dispatch.state.classes_off:    # gradients are plain tensors
            with dispatch.classes_off():
                return self._gradients(gs)
        return self._gradients(gs)

    def _gradients(self, gs: list) -> list:
        answers: list = [None] * len(self.prim.tensor_positions)
        if self.plan.vjp is not None:
            answer = self.plan.vjp.fn(*self.values(self.plan.vjp.names, gs))
            answers[:] = answer if isinstance(answer, tuple) else (answer,)
        else:
            for i, rule, whole in self.plan.rules:
                if self.wanted is not None and not self.wants(i):
                    continue
                answer = rule.fn(*self.values(rule.names, gs))
                answers[i] = answer if whole else times(gs[0], answer)
        sizes = self.list_sizes
        if sizes is None:
            return answers
        grads: list = []
        for i, got in itertools.zip_longest(self.prim.tensor_positions, answers):
            if i in sizes:
                grads.extend(got if got is not None else [None] * sizes[i])
            else:
                grads.append(got)
        return grads

    def release(self) -> None:
        self.released = True
        for name, value in self.saved.items():
            if _holds_tensor(value):
                self.saved[name] = _RELEASED

    def _shown(self) -> dict[str, str]:
        """What is saved, by the names that torch gives it: `self` and `other` are the first tensors, `result` is the output."""
        tensors = [self.prim.params[i] for i in self.prim.tensor_positions]
        spelt = {"out": "result", **dict(zip(tensors, ("self", "other")))}
        return {spelt.get(name, name): name for name in self.saved}

    def _raw(self, name: str) -> Any:
        value = self.saved[name]
        if type(value) is Saved:
            value.owner = weakref.ref(self)
        return value

    def __dir__(self) -> list[str]:
        raw = [f"_raw_saved_{shown}" for shown, name in self._shown().items() if type(self.saved[name]) is Saved]
        return [*super().__dir__(), *(f"_saved_{shown}" for shown in self._shown()), *raw]

    def __getattr__(self, name: str) -> Any:
        for prefix, read in (("_saved_", lambda name: self._value(name, [])), ("_raw_saved_", self._raw)):
            shown = name.removeprefix(prefix)
            if shown != name and (kept := self._shown().get(shown, shown)) in self.saved:
                return read(kept)
        raise AttributeError(f"{self.name()} has no attribute {name!r}")


class _Released:
    """Stands where a saved tensor was."""


_RELEASED = _Released()
SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)


def _holds_tensor(value: Any) -> bool:
    return type(value) is Saved or value is _RELEASED or (type(value) is list and any(type(v) is Saved for v in value))


def times(g: Tensor, partial: Any) -> Any:
    """g * conj(partial); 1 and -1 cost nothing, 0 gives zeros, a mask selects."""
    if is_symbolic(partial):    # which of these it is, is not worth a guard
        return g * partial
    if not isinstance(partial, Tensor):
        if partial == 1:
            return g
        if partial == -1:
            return -g
        return _zeros_like(g) if partial == 0 else g * (partial.conjugate() if isinstance(partial, complex) else partial)
    if partial.dtype.category == 0:
        return g.where(partial, 0)
    return g * (partial.conj() if partial.dtype.is_complex else partial)


def edge_of(tensor: Any) -> Edge | None:
    """The edge that leads into `tensor`'s history; None if it needs no gradient."""
    if not isinstance(tensor, Tensor):
        return _edge(tensor[:2]) if isinstance(tensor, GradientEdge) else None
    if tensor._view is not None:
        refresh_view(tensor)
    meta = tensor._grad
    if meta is None:
        return None
    if meta.grad_fn is not None:
        return _edge((meta.grad_fn, meta.output_nr))
    return _edge((accumulator(tensor), 0)) if meta.requires_grad else None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where `tensor` is in the graph, without its data."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(edge.node, edge.nr, fake(tuple(tensor.shape), tensor.dtype, tensor.device))


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The AccumulateGrad node of a leaf, made on first use."""
    meta = leaf._grad
    node = meta.accumulator() if meta.accumulator is not None else None  # type: ignore[union-attr]
    if node is None:
        node = _C.new_sink(leaf)
        if "_grad_dtype" in leaf.__dict__:
            kind = leaf.__dict__["_grad_dtype"]
            node.output_specs = (None if kind is None else node.output_specs[0]._replace(dtype=kind),)
    return node


def record(prim: Any, args: tuple) -> Any:
    """Run `prim` and put it on the tape."""
    state = dispatch.state
    saved_mode = state.grad_enabled
    out = dispatch.run(prim, args) if state.word else prim.run(args)
    if saved_mode:
        _C.hang(prim, args, out)
    return out


def _trace(node: Node) -> None:
    node.trace = traceback.extract_stack()[:-1]


def _is_tensor_list(value: Any) -> bool:
    return any(isinstance(v, Tensor) for v in value)


def _source(prim: Any, name: str) -> tuple[int, int]:
    """Where the value of this name comes from: which of `KEPT`, and the argument's or output's number."""
    if name == "outs":
        return OUTPUTS, 0
    if name == "out" or (name.startswith("out") and name[3:].isdecimal()):
        return OUTPUT, int(name[3:] or 0)
    if name == "context":
        return CONTEXT, 0
    if name in prim.params:
        return INPUT, prim.params.index(name)
    for how, suffix in _SUFFIXES.items():
        if name.endswith(suffix) and name[: -len(suffix)] in prim.params:
            return how, prim.params.index(name[: -len(suffix)])
    raise TypeError(
        f"the derivative of {prim.name} names {name!r}, which is neither a parameter nor an output (parameters: {prim.params})"
    )


def named(prim: Any, name: str, args: tuple, outs: tuple) -> Any:
    """The value that a rule's parameter of this name stands for, where it is wanted at once."""
    if name in prim.params:
        return args[prim.params.index(name)]
    if name == "outs":
        return list(outs)
    if name == "context":
        return [v.tensor if type(v) is Saved else v for v in _kept_by(prim.setup_context(args, outs), outs)]
    how, index = _source(prim, name)
    return outs[index] if how == OUTPUT else KEPT[how](prim, args, outs, index)


def _kept_by(ctx: Any, outs: tuple) -> list:
    """The context of a custom operator and, with their versions, the tensors that it asked to keep."""
    numbers = {id(o): nr for nr, o in enumerate(outs)}
    kept = [Saved(t, numbers.get(id(t))) if isinstance(t, Tensor) else t for t in ctx._to_save]
    ctx._to_save = ()
    return [ctx, *kept]


def _saved_input(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Saved(value)
    if type(value) in (list, tuple) and _is_tensor_list(value):
        return [Saved(v) if isinstance(v, Tensor) else v for v in value]
    return value


def _property(of: Callable[[Tensor], Any], value: Any, absent: Any = None) -> Any:
    if type(value) in (list, tuple):
        return tuple([of(v) if isinstance(v, Tensor) else absent for v in value])
    return of(value) if isinstance(value, Tensor) else absent


def _spec_of(tensor: Tensor) -> registry.Spec:
    lay = tensor._layout
    return registry.Spec(lay.shape, tensor.dtype, lay.strides, lay.offset)


INPUT, OUTPUT, SHAPE, DTYPE, DEVICE, SPEC, OUTPUTS, CONTEXT = range(8)    # the first four are native code's too
_SUFFIXES = {SHAPE: "_shape", DTYPE: "_dtype", SPEC: "_spec", DEVICE: "_device"}
KEPT: tuple[Callable[[Any, tuple, tuple, int], Any], ...] = (
    lambda prim, args, outs, i: _saved_input(args[i]),
    lambda prim, args, outs, i: Saved(outs[i], i),
    lambda prim, args, outs, i: _property(lambda tensor: tensor.shape, args[i], ()),
    lambda prim, args, outs, i: _property(lambda tensor: tensor.dtype, args[i]),
    lambda prim, args, outs, i: _property(lambda tensor: tensor.device, args[i]),
    lambda prim, args, outs, i: _property(_spec_of, args[i]),
    lambda prim, args, outs, i: [Saved(o, nr) for nr, o in enumerate(outs)],
    lambda prim, args, outs, i: _kept_by(prim.setup_context(args, outs), outs),
)
"""How a value is kept that a rule names: a function of the primitive, its arguments and outputs, and an index."""


def keep(how: int, prim: Any, args: tuple, outs: tuple, index: int) -> Any:
    """A value as it is kept, where that is not plain: hooks on what is saved, other classes' tensors, custom operators' contexts."""
    return KEPT[how](prim, args, outs, index)


# -- views and in-place writes ------------------------------------------------------------------------
def replay(base: Tensor, chain: tuple) -> Tensor:
    """The view that `chain` leads to from `base`."""
    for prim, attrs in chain:
        base = prim(base, *attrs)
    return base


def _settled(tensor: Tensor) -> ViewPath:
    """How a view looks into its base. A base that was laid out anew in place (`unsqueeze_`) is a view itself now, of what it was."""
    view = tensor._view
    assert view is not None
    base = view.base
    if base._view is None:
        return view
    while base._view is not None:
        base = base._view.base
    tensor._view = view._replace(base=base, version=-1)
    return tensor._view


def _seen_in_memory(tensor: Tensor) -> ViewPath:
    """The same for a tensor that is being written. Where a step names places in memory, those before it don't matter: what is
    written around them is the base's too."""
    view = _settled(tensor)
    last = max((i for i, (prim, _) in enumerate(view.chain) if "in_memory" in prim.tags), default=0)
    if last and replay(bare(view.base), view.chain[:last]).dtype is view.base.dtype:
        view = tensor._view = view._replace(chain=view.chain[last:], version=-1)
    return view


def refresh_view(tensor: Tensor) -> None:
    """Bring the grad_fn of a view up to date after its base was written to through another alias. RuntimeError where there is none."""
    base, chain, version, origin = (_seen_in_memory if dispatch.state.overwriting is tensor else _settled)(tensor)
    now = 0 if base._grad is None else base._grad.generation  # of its history: how often a write through a view rebased it
    if version == now:
        return
    if origin is not None and dispatch.state.grad_enabled and base.requires_grad:
        raise RuntimeError(_lost(tensor, origin, "its base or another view of its base has been modified inplace"))
    tensor._view = ViewPath(base, chain, now, origin)
    with dispatch.grad_enabled(True):
        again = replay(base, chain)
    old, tensor._grad = tensor._grad, again._grad
    _follow(tensor, old)


_ORIGINS = {
    "no_grad": "A view was created in no_grad mode and {0} with grad mode enabled. Take the view and write both inside of no_grad, or both "
               "outside of it.",
    "many": "{1}is a view and {0}. This view is the output of a function that returns multiple views, which do not allow it. Use the "
            "operation that is not inplace.",
    "function": "{1}is a view and {0}. This view was created inside a custom Function (or because an input was returned as-is), whose "
                "backward would not hold after that. Return a clone, or use the operation that is not inplace.",
}
"""Why a view may not be written to, nor used after its base was written to: there would be no history to give it."""


def _lost(tensor: Tensor, origin: str, what: str) -> str:
    meta = tensor._grad
    of = "This tensor " if meta is None or meta.grad_fn is None else f"Output {meta.output_nr} of {operation_name(meta.grad_fn)} "
    return _ORIGINS[origin].format(what, of)


class CopyBackwards(Node):
    """History of a tensor that was overwritten: zeros for what it was before, the gradient for what was written."""

    __slots__ = ()
    place = "torch::autograd::"

    def __init__(self, before: Edge, source: Edge | None, target: Tensor):
        super().__init__([before, source])
        self.output_specs = (_spec(target),)

    def apply(self, gs: list) -> list:
        return [_zeros_like(gs[0]), gs[0] if self.edges[1] is not None else None]


def _zeros_like(g: Tensor) -> Tensor:
    return g.new_zeros(tuple(g.shape))


class CopySlices(Node):
    """History of a base after a write to one of its views: the rest of the base, and what was written."""

    __slots__ = ("chain", "layout")
    place = "torch::autograd::"

    def __init__(self, base_edge: Edge | None, source_edge: Edge | None, chain: tuple, base: Tensor):
        super().__init__([base_edge, source_edge])
        self.chain = chain
        self.layout = base._layout if any("in_memory" in prim.tags for prim, _ in chain) else None
        self.output_specs = (_spec(base),)

    def apply(self, gs: list) -> list:
        g = gs[0] if self.layout is None else registry.OPERATORS["_lay_out"](gs[0], self.layout)
        part = replay(g, self.chain)
        rest = registry.OPERATORS["view_scatter"](g, self.chain, _zeros_like(part)) if self.edges[0] is not None else None
        return [rest, part.clone() if self.edges[1] is not None else None]


def check_inplace(target: Tensor, value: Any = None) -> None:
    """Refuse a recorded in-place write, of `value` if that is known, to a leaf that requires grad, to a view of one, or to a view that no
    history can be given; and any to an inference tensor."""
    refuse_inference_write(target)
    if not dispatch.state.grad_enabled:
        return
    if target._view is not None:
        base = _settled(target).base
        origin = target._view.origin
        if origin is not None and (base.requires_grad or target.requires_grad or (isinstance(value, Tensor) and value.requires_grad)):
            raise RuntimeError(_lost(target, origin, "is being modified inplace"))
        if target._grad is not None and target._grad.requires_grad and target._grad.grad_fn is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if (base.requires_grad and base.grad_fn is None) or (target.requires_grad and not base.requires_grad):  # a view on the way is one
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    elif target._grad is not None and target._grad.requires_grad and target._grad.grad_fn is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def rebase(target: Tensor, source: Any, anew: bool = False) -> None:
    """After `target` was overwritten with `source` (of its shape and dtype): give it source's history.

    `anew`: source was made without target. What target was before still counts as used, with a gradient of zeros.
    """
    if not dispatch.state.grad_enabled:
        return
    edge = edge_of(source)
    if target._view is None:
        if edge is None and target._grad is None:
            return
        before = edge_of(target) if anew or edge is None else None
        if before is not None:
            _keep_identity(target, AutogradMeta(False, CopyBackwards(before, edge, target), 0))
            return
        fresh = AutogradMeta(False, None if edge is None else edge.node, 0 if edge is None else edge.nr)
        if edge is not None and isinstance(edge.node, AccumulateGrad):
            identity = source.view_as(source)
            fresh.grad_fn, fresh.output_nr = identity._grad.grad_fn, identity._grad.output_nr
        elif edge is not None and not anew and source is not target:
            _save_instead(edge, source, target)
        _keep_identity(target, fresh)
        return
    base, chain, *_ = _settled(target)
    base_edge = edge_of(base)
    if edge is None and base_edge is None:
        return
    node = CopySlices(base_edge, edge, chain, base)
    _keep_identity(base, AutogradMeta(False, node, 0))
    if target._grad is not None and target._grad.retains_grad:
        refresh_view(target)


def _save_instead(edge: Edge, source: Tensor, target: Tensor) -> None:
    """Let the operation that made `source` save `target`, which has the same elements now: nobody else keeps the source."""
    if not isinstance(edge.node, PrimitiveNode) or source._data is None:
        return
    for value in edge.node.saved.values():
        if type(value) is Saved and value.output == edge.nr and value.unpack is None and value.tensor._data is source._data:
            value.tensor, value.version = bare(target), target._version


def _keep_identity(target: Tensor, fresh: AutogradMeta) -> None:
    """Swap in a new history; views notice by the generation that theirs is out of date."""
    old = target._grad
    fresh.generation = 1
    if old is not None:
        fresh.generation = old.generation + 1
    target._grad = fresh
    _follow(target, old)


def _follow(tensor: Tensor, old: AutogradMeta | None) -> None:
    """A tensor with a new history keeps its gradient, and if it retains that, backward is to leave the new one's."""
    fresh = tensor._grad
    if old is None or fresh is None:
        return
    fresh.grad = old.grad
    if old.retains_grad:
        old.retains_grad.remove()
        if fresh.grad_fn is not None:
            retain(tensor)


def retain(tensor: Tensor) -> None:
    """Let backward leave the gradient of a tensor with a history in its `.grad`."""
    meta, of = tensor._grad, weakref.ref(tensor)
    assert meta is not None

    def keep(grad: Tensor) -> None:
        now = None if (tensor := of()) is None else tensor._grad
        if now is not None:
            # a copy: others hold the memory too (what backward was given, the gradients of neighbours), and users write to `.grad`
            own = {"memory_format": contiguous_format} if grad.layout is strided else {}
            now.grad = grad.clone(**own) if now.grad is None else now.grad + grad

    keep._output_nr, keep._retains = meta.output_nr, True  # type: ignore[attr-defined]
    node = meta.grad_fn
    if node.pre_hooks is None:
        node.pre_hooks = {}
    meta.retains_grad = RemovableHandle(node.pre_hooks, keep)


def detached(tensor: Tensor) -> Tensor:
    """The same memory without history."""
    if tensor._data is None:
        with dispatch.grad_enabled(False):
            alias = registry.PRIMITIVES["alias"](tensor)
        alias._view = None
        return alias
    return bare(tensor)


dispatch.record = record
Tensor._refresh_view = staticmethod(refresh_view)
__all__ = [
    "Node", "Edge", "GradientEdge", "get_gradient_edge", "AccumulateGrad", "PrimitiveNode", "Saved", "record", "edge_of", "accumulator",
    "rebase", "check_inplace", "detached", "from_array", "view_tensor",
]
