"""DTensor: a tensor that lies over the processes of a mesh.

To the op table it is a tensor without an array: shape rules, derivatives and bodies of operators run on it as on any other, and where a
kernel would run, `compute` chooses placements by the primitive's axes (rules.py), brings the operands there, and runs the primitive on this
process's parts. An operator with a kernel of its own runs whole on the parts, if its body would communicate nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...autograd.function import Function
from ...core import dispatch
from ...core.size import contiguous_strides
from ...core.storage import Storage
from ...core.symbolic import hint_of
from ...core.tensor import Layout, Tensor, ViewPath, fake
from ...ops.writing import write
from ..device_mesh import DeviceMesh
from . import rules
from .placement_types import Partial, Placement, Replicate, Shard
from .redistribute import bytes_moved, canonical, local_shape, redistributed


class DTensorSpec(NamedTuple):
    """How a tensor lies."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]


class _Parts(Storage):
    """The memory of a DTensor: this process's part of it, and how it lies."""

    __slots__ = ("local", "spec")

    def __init__(self, local: Tensor, spec: DTensorSpec) -> None:
        self.local, self.spec = local, spec
        super().__init__(None, None, local.device)

    @property
    def version(self) -> int:
        """How often this process's part was written in place."""
        return self.local._writes

    @version.setter
    def version(self, count: int) -> None:
        """The part counts."""


class DTensor(Tensor, counted=False):
    """A tensor over the processes of a DeviceMesh. Made by `distribute_tensor`, `DTensor.from_local`, `zeros` and their like."""

    takes_every_call = True
    is_fake = False

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """The operator, whose primitives know what to do. What it makes like its arguments lies as they do."""
        if (other := instead_of(func)) is not None:
            return other(*args, **(kwargs or {}))
        inner = dispatch.state.classes_off
        if "alone" in func._operator.tags and _lie_alike(args):  # type: ignore[attr-defined]
            return func(*_in_parts(args), **(kwargs or {}))
        with dispatch.classes_off():
            out = getattr(func, "_plain", func)(*args, **(kwargs or {}))
        return out if inner else _like(out, args)

    @classmethod
    def __torch_dispatch__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """A step below autograd, for classes derived from this one."""
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _compute(record: Any, args: tuple) -> Any:
        return compute(record, args)

    # -- what it is ----------------------------------------------------------------------------------------------------------
    @property
    def _local_tensor(self) -> Tensor:
        return self._store.local  # type: ignore[union-attr]

    @property
    def _spec(self) -> DTensorSpec:
        return self._store.spec  # type: ignore[union-attr]

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that it lies over."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """For each dimension of the mesh, how it lies."""
        return self._spec.placements

    def __tensor_flatten__(self) -> tuple[list[str], tuple]:
        """The name of this process's part, and how it lies."""
        return ["_local_tensor"], (*self._spec, tuple(self.shape), tuple(self._layout.strides))

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], context: tuple, outer_size: Any = None, outer_stride: Any = None) -> DTensor:
        """The tensor of such a part; gradients reach it."""
        return DTensor._of_part(parts["_local_tensor"], *context)

    def _part(self) -> Tensor:
        with dispatch.grad_enabled(True):   # whatever the program is in the middle of
            return self.to_local()

    @staticmethod
    def _of_part(part: Tensor, mesh: DeviceMesh, placements: tuple, shape: tuple, strides: tuple) -> DTensor:
        with dispatch.grad_enabled(True):
            return _FromLocal.apply(part, mesh, placements, shape, strides)

    # -- in and out ------------------------------------------------------------------------------------------------------------
    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                   run_check: bool = False, shape: Sequence[int] | None = None, stride: Sequence[int] | None = None) -> DTensor:
        """The tensor of which each process gives its part. Parts are of equal sizes, if `shape` does not say that of the whole.
        `run_check`: replicated parts become those of the first process."""
        if (shape is None) != (stride is None):
            raise RuntimeError(f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time.")
        mesh = _mesh(device_mesh)
        where = canonical(placements, mesh, local_tensor.ndim, RuntimeError)
        if shape is None:
            sizes = list(local_tensor.shape)
            for m, p in enumerate(where):
                if isinstance(p, Shard):
                    sizes[p.dim] *= mesh.size(m)
            shape = sizes
        if run_check:
            for m, p in enumerate(where):
                if isinstance(p, Replicate):
                    mesh.get_group(m).broadcast(local_tensor.detach(), 0).wait()
        return _FromLocal.apply(local_tensor, mesh, where, tuple(shape))

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This process's part. Its gradient is taken to lie as the tensor does, or as `grad_placements`."""
        return _ToLocal.apply(self, grad_placements)

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                     async_op: bool = False) -> DTensor:
        """The tensor as `placements`."""
        del async_op    # it is there when this returns
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError(f"redistribute() from {self.device_mesh} to another mesh, {device_mesh}; use full_tensor() and "
                                      "distribute_tensor()")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        where = canonical(placements, self.device_mesh, self.ndim)
        if any(isinstance(new, Partial) and old != new for old, new in zip(self.placements, where)):
            raise RuntimeError(f"Can not redistribute from {self.placements} to {where}, "
                               "redistributing to Partial is for internal use only!")
        return _Redistribute.apply(self, where)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole tensor."""
        return self.redistribute(placements=[Replicate()] * self.device_mesh.ndim).to_local(grad_placements=grad_placements)

    def _whole(self) -> Tensor:
        with dispatch.grad_enabled(False):
            return self.detach().full_tensor()  # type: ignore[attr-defined]

    # -- as a value ------------------------------------------------------------------------------------------------------------
    def item(self) -> Any:
        """The only element as a Python number."""
        return self._whole().item()

    def tolist(self) -> Any:
        """The whole tensor's elements."""
        return self._whole().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The whole tensor as an array."""
        return self._whole().numpy() if force or not self.requires_grad else self._without_grad()

    def _without_grad(self) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")

    def __bool__(self) -> bool:
        return bool(self._whole())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"DTensor(local_tensor={self._local_tensor!r}, device_mesh={self.device_mesh!r}, placements={self.placements!r})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.ndim else repr(self)

    def __deepcopy__(self, memo: dict) -> DTensor:
        if id(self) not in memo:
            copy = dtensor(self._local_tensor.detach().clone(), self.device_mesh, self.placements, tuple(self.shape), self._layout.strides)
            copy.__dict__.update(self.__dict__)
            copy.requires_grad = self.requires_grad
            memo[id(self)] = copy
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """This process's part, and how it lies: for a process at the same place of such a mesh."""
        return _again, (self._local_tensor.detach(), self.device_mesh, self.placements, tuple(self.shape), self._layout.strides,
                        self.requires_grad, dict(self.__dict__))

    def untyped_storage(self) -> Any:
        """The memory of this process's part."""
        return self._local_tensor.untyped_storage()

    def data_ptr(self) -> int:
        """Where this process's part begins."""
        return self._local_tensor.data_ptr()


def dtensor(local: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: tuple, strides: tuple | None = None) -> DTensor:
    """The tensor of which this process has `local`; knows nothing of autograd."""
    dispatch.count_override(DTensor)
    made: DTensor = object.__new__(DTensor)
    made._data = made._grad = made._view = None
    made._lay = Layout(tuple(shape), contiguous_strides(shape) if strides is None else tuple(strides), 0)
    made._store = _Parts(local, DTensorSpec(mesh, placements))
    made.dtype, made.device = local.dtype, local.device
    return made


def instead_of(func: Callable) -> Callable | None:
    """What is called with DTensors in the place of an operator; `loss.py` stands here."""
    del func
    return None


def _again(local: Tensor, mesh: DeviceMesh, placements: tuple, shape: tuple, strides: tuple, requires_grad: bool, extra: dict) -> DTensor:
    """The DTensor that a pickle describes."""
    if not isinstance(mesh, DeviceMesh) or type(local) is not Tensor or local_shape(shape, mesh, placements) != tuple(local.shape):
        raise ValueError(f"a part of {getattr(local, 'shape', local)} is not this process's of a tensor of {shape} over {mesh}, "
                         f"{placements}")
    made = dtensor(local, mesh, tuple(placements), tuple(shape), tuple(strides))
    made.requires_grad = requires_grad
    made.__dict__.update(extra)
    return made


def _mesh(mesh: DeviceMesh | None) -> DeviceMesh:
    if mesh is None:
        raise RuntimeError("No device mesh is given: device_mesh=init_device_mesh(...)")
    return mesh


def _is_spread(value: Any) -> bool:
    return isinstance(value, Tensor) and type(value._store) is _Parts


def _lie_alike(args: tuple) -> bool:
    """Whether the tensors at each place of the lists among arguments lie over the processes in the same way, and are no sums."""
    for column in zip(*(a for a in args if type(a) is list)):
        specs = {getattr(t._store, "spec", None) for t in column if isinstance(t, Tensor) and (t.ndim or _is_spread(t))}
        if len(specs) > 1 or any(isinstance(p, Partial) for spec in specs if spec is not None for p in spec.placements):
            return False
    return not any(_is_spread(a) for a in args)


def _in_parts(args: tuple) -> list:
    return [[t._store.local if _is_spread(t) else t for t in a] if type(a) is list else a for a in args]


def _like(out: Any, args: tuple) -> Any:
    """Results that the operator made of nothing: they lie as an argument of their shape does, or are replicated."""
    if isinstance(out, Tensor):
        if _is_spread(out):
            return out if isinstance(out, DTensor) else out._as_subclass(DTensor)
        source = next((a for a in rules.operands(args) if _is_spread(a)), None)
        if source is None:
            return out
        mesh, placements = source._store.spec  # type: ignore[union-attr]
        same = tuple(source.shape) == tuple(out.shape) and not any(isinstance(p, Partial) for p in placements)
        where = placements if same else (Replicate(),) * mesh.ndim
        local = redistributed(out.detach(), mesh, (Replicate(),) * mesh.ndim, where, out.shape)
        made = dtensor(local, mesh, where, tuple(out.shape))
        made.requires_grad = out.requires_grad
        return made
    if isinstance(out, tuple) and hasattr(out, "_make"):
        return out._make(_like(o, args) for o in out)
    return type(out)(_like(o, args) for o in out) if type(out) in (tuple, list) else out


# -- the functions of the tape -------------------------------------------------------------------------------------------------
def _without_partial(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """How the gradient of what lies so is to lie."""
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


def _moved(x: Tensor, where: tuple[Placement, ...]) -> DTensor:
    mesh, old = x._store.spec  # type: ignore[union-attr]
    local = redistributed(x._store.local, mesh, old, where, x.shape)  # type: ignore[union-attr]
    return dtensor(local.detach(), mesh, where, tuple(x.shape), x._layout.strides)


class _Redistribute(Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, where: tuple[Placement, ...]) -> DTensor:
        ctx.where = _without_partial(x.placements)
        return _moved(x, where)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return (_Redistribute.apply(g, ctx.where) if _is_spread(g) else g), None


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, mesh: DeviceMesh, where: tuple[Placement, ...], shape: tuple,
                strides: tuple | None = None) -> DTensor:
        ctx.where = _without_partial(where)
        return dtensor(local.detach(), mesh, where, shape, strides)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _Redistribute.apply(g, ctx.where).to_local(), None, None, None, None


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, grad_placements: Sequence[Placement] | None) -> Tensor:
        ctx.spec, ctx.shape = x._spec, tuple(x.shape)
        ctx.where = _without_partial(x.placements) if grad_placements is None else tuple(grad_placements)
        return x._local_tensor.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _FromLocal.apply(g.contiguous(), ctx.spec.mesh, ctx.where, ctx.shape), None


# -- computing -----------------------------------------------------------------------------------------------------------------
class _Arrangement(NamedTuple):
    """How the operands are to lie for one dimension of the mesh, and how the results do then."""

    needs: tuple[Placement, ...]
    gives: Placement


class _Asked:
    """Whether an operator's body is asked what it would communicate."""

    depth = 0


_SIZES = ("shape", "size", "x_shape", "w_shape")
_whole: dict[Any, Any] = {}


def compute(record: Any, args: tuple) -> Any:
    """What a primitive gives for arguments of which some are DTensors; NotImplemented where none is, and for an operator whose body is
    to run."""
    tensors = rules.operands(args)
    first = next((t for t in tensors if _is_spread(t)), None)
    if first is None:
        return NotImplemented
    if record.name == "_local_scalar_dense":
        return first.item()
    if record.name.startswith("new_") and not hasattr(record, "kind"):
        return _made_like(record.prim, first, args[1:])
    mesh: DeviceMesh = first._store.spec.mesh  # type: ignore[union-attr]
    if any(_is_spread(t) and t._store.spec.mesh != mesh for t in tensors):  # type: ignore[union-attr]
        raise RuntimeError(f"{record.name}: the DTensors lie over different meshes: "
                           f"{[t._store.spec.mesh for t in tensors if _is_spread(t)]}")  # type: ignore[union-attr]
    if record.kind == "operator":
        return _at_once(record, args, tensors, mesh)
    if record.kind == "inplace":
        return _written(args[0], args[1], mesh)
    now = [_placements(t, mesh) for t in tensors]
    plans = [_plan(record, args, tensors, [p[m] for p in now], mesh, m) for m in range(mesh.ndim)]
    needs = [tuple(plan.needs[i] for plan in plans) for i in range(len(tensors))]
    if _Asked.depth and (any(a != b for a, b in zip(now, needs)) or any(isinstance(plan.gives, Partial) for plan in plans)):
        raise _Communicates
    locals_ = iter([_local(t, mesh, n) for t, n in zip(tensors, needs)])
    specs = record.specs(args)
    gives = tuple(plan.gives for plan in plans)
    given = _replaced(args, locals_)
    shape = local_shape(specs.shape, mesh, gives) if type(specs) is not tuple else None
    given = tuple(shape if name in _SIZES and type(a) is tuple and shape is not None and tuple(a) == tuple(specs.shape) else a
                  for name, a in zip(record.params, given, strict=True))
    with dispatch.grad_enabled(False):
        out = record(*given)
    if type(specs) is tuple:
        return tuple(dtensor(o, mesh, gives, s.shape, s.strides) for o, s in zip(out, specs, strict=True))
    made = dtensor(out, mesh, gives, specs.shape, specs.strides)
    if record.kind == "view" and now[0] == needs[0]:
        root, chain, _, origin = first._view or ViewPath(first, ())
        made._view = ViewPath(root, (*chain, (record, args[1:])), 0 if root._grad is None else root._grad.generation, origin)
        out._view = None
    return made


def _made_like(prim: Any, source: Tensor, args: tuple) -> Tensor:
    """What a factory makes beside a DTensor: where it has its shape and all elements are alike, each process its part alone."""
    spec, local = source._store.spec, source._store.local  # type: ignore[union-attr]
    specs = prim.specs(args)
    alike = prim.name in ("full", "empty") and tuple(specs.shape) == tuple(source.shape)
    where = _without_partial(spec.placements) if alike else (Replicate(),) * spec.mesh.ndim
    shape = local_shape(specs.shape, spec.mesh, where)
    with dispatch.fake_mode() if local.is_fake else contextlib.nullcontext():
        made = prim(shape, *args[1:]) if alike else prim(*args)
    return dtensor(made, spec.mesh, where, specs.shape)


def _replaced(args: tuple, locals_: Iterator[Tensor]) -> tuple:
    return tuple(next(locals_) if isinstance(a, Tensor) else [next(locals_) if isinstance(i, Tensor) else i for i in a]
                 if type(a) in (list, tuple) and rules.operands([a]) else a for a in args)


def _placements(t: Tensor, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """Plain tensors beside DTensors are the same in all processes."""
    return t._store.spec.placements if _is_spread(t) else (Replicate(),) * mesh.ndim  # type: ignore[union-attr]


def _local(t: Tensor, mesh: DeviceMesh, where: tuple[Placement, ...]) -> Tensor:
    local = t._store.local if _is_spread(t) else t  # type: ignore[union-attr]
    return redistributed(local, mesh, _placements(t, mesh), where, t.shape)


def _plan(record: Any, args: tuple, tensors: Sequence[Tensor], now: Sequence[Placement], mesh: DeviceMesh, m: int) -> _Arrangement:
    """The cheapest way to compute along one dimension of the mesh: split along an axis along which some operand is, as sums, or whole."""
    whole = _Arrangement((Replicate(),) * len(now), Replicate())
    if all(isinstance(p, Replicate) for p in now):
        return whole
    options: list[_Arrangement] = []
    specs = record.specs(args)
    sizes = (specs[0] if type(specs) is tuple else specs).shape
    if any(isinstance(p, Shard) for p in now):
        for axis in rules.axes(record, args):
            split = any(isinstance(p, Shard) and p.dim == d for p, d in zip(now, axis.ins))
            if split and _even(axis, tensors, sizes, mesh, m):
                needs = tuple(Shard(d) if d is not None else Partial() if i in axis.adds else Replicate() for i, d in enumerate(axis.ins))
                options.append(_Arrangement(needs, Shard(axis.out) if axis.out is not None else Partial(axis.reduce or "sum")))
    sums = frozenset(i for i, p in enumerate(now) if isinstance(p, Partial) and (p.reduce_op in ("sum", "avg") or record.kind == "view"))
    counts = [hint_of(t.numel()) for t in tensors]      # of sizes that vary: whatever is chosen is right
    if sums and hint_of(math.prod(sizes)) <= max(counts):    # what is to be repeated is added up before
        kinds = {p.reduce_op for p in now if isinstance(p, Partial)}
        for which in {sums, *[frozenset({i}) for i in sums]} if len(kinds) == 1 else ():
            if record.kind == "view" or rules.adds_up(record, args, which):
                kind = Partial(next(iter(kinds)))
                options.append(_Arrangement(tuple(kind if i in which else Replicate() for i in range(len(now))), kind))
    costs = [(sum(bytes_moved(a, b, n * t.dtype.itemsize, mesh.size(m)) for a, b, n, t in zip(now, plan.needs, counts, tensors)), k)
             for k, plan in enumerate([*options, whole])]
    return [*options, whole][min(costs)[1]]


def _even(axis: rules.Axis, tensors: Sequence[Tensor], out: Sequence[int], mesh: DeviceMesh, m: int) -> bool:
    """Whether the parts of all dimensions of an axis correspond."""
    sizes = [t.shape[d] for t, d in zip(tensors, axis.ins) if d is not None] + ([out[axis.out]] if axis.out is not None else [])
    return all(n == sizes[0] for n in sizes) or all(n % (mesh.size() if mesh.ndim > 1 else mesh.size(m)) == 0 for n in sizes)


def _written(target: Tensor, value: Any, mesh: DeviceMesh) -> Tensor:
    """`copy_into`: each process writes into its part."""
    if not _is_spread(target):
        write(target, redistributed(value._store.local, mesh, _placements(value, mesh), (Replicate(),) * mesh.ndim, value.shape))
        return target
    where = _placements(target, mesh)
    write(target._store.local, _local(value, mesh, where) if isinstance(value, Tensor) else value)  # type: ignore[union-attr]
    return target


# -- operators with kernels of their own ---------------------------------------------------------------------------------------
def _at_once(record: Any, args: tuple, tensors: list[Tensor], mesh: DeviceMesh) -> Any:
    """The operator on this process's parts, if its body would communicate nothing; else NotImplemented: the body is to run."""
    if _Asked.depth or record.answers_views:
        return NotImplemented
    try:
        key = (record.name, mesh, tuple(_described(a, mesh) for a in args))
        hash(key)
    except TypeError:
        return NotImplemented
    known = _whole.get(key, _whole)
    if known is _whole:
        known = _whole[key] = _asked(record, args, tensors, mesh)
    if known is None:
        return NotImplemented
    locals_ = iter([t._store.local if _is_spread(t) else t for t in tensors])  # type: ignore[union-attr]
    with dispatch.grad_enabled(False):
        out = record(*_replaced(args, locals_))
    several = type(out) is tuple
    made = tuple(dtensor(o, mesh, *gives) if gives is not None else o for o, gives in zip(out if several else (out,), known, strict=True))
    return made if several else made[0]


def _described(a: Any, mesh: DeviceMesh) -> Any:
    if isinstance(a, Tensor):
        return (tuple(a.shape), a._layout.strides, a.dtype, _placements(a, mesh))
    return tuple(_described(i, mesh) for i in a) if type(a) in (list, tuple) else (type(a), a)


def _asked(record: Any, args: tuple, tensors: list[Tensor], mesh: DeviceMesh) -> tuple | None:
    """How the results lie (placements, shape, strides), found by running the body on tensors without elements; None if it communicates."""
    def hollow(t: Tensor) -> Tensor:
        local = t._store.local if _is_spread(t) else t  # type: ignore[union-attr]
        empty = fake(local._layout.shape, local.dtype, local.device, local._layout.strides)
        return dtensor(empty, mesh, _placements(t, mesh), tuple(t.shape), t._layout.strides)
    with _asking(), dispatch.grad_enabled(False):
        try:
            out = record.fn(*_replaced(args, iter([hollow(t) for t in tensors])))
        except (_Communicates, NotImplementedError, RuntimeError):
            return None
    outs = out if type(out) is tuple else (out,)
    if not all(_is_spread(o) for o in outs):
        return None
    return tuple((o._store.spec.placements, tuple(o.shape), o._layout.strides) for o in outs)


class _Communicates(Exception):
    """An operator's body would communicate."""


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    _Asked.depth += 1
    try:
        yield
    finally:
        _Asked.depth -= 1
