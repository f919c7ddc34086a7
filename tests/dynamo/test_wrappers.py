"""Tensors of classes with `__torch_dispatch__` in captured functions: whole graphs over the tensors that they hold."""

from __future__ import annotations

import pytest
from dynamo_harness import Counter

import flambeau as torch
import flambeau.utils._pytree as pytree
from flambeau import dynamo
from flambeau.overrides import DisableTorchFunctionSubclass


class Two(torch.Tensor):
    """Two tensors, to each of which an operator is applied."""

    @staticmethod
    def __new__(cls, a, b, tag="t"):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device,
                                                   requires_grad=a.requires_grad)

    def __init__(self, a, b, tag="t"):
        self.a, self.b, self.tag = a, b, tag

    def __tensor_flatten__(self):
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Two(inner["a"], inner["b"], tag)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        parts = [pytree.tree_map_only(Two, lambda x, n=name: getattr(x, n), (args, kwargs or {})) for name in "ab"]
        first, second = (func(*given, **named) for given, named in parts)
        if isinstance(first, torch.Tensor):
            return Two(first, second)
        return type(first)(map(Two, first, second)) if isinstance(first, (tuple, list)) else first

    def both(self, k=1):
        return self.a * k + self.b

    @property
    def difference(self):
        return self.a - self.b

    @classmethod
    def of(cls, x):
        return cls(x, x + 1, "of")


class Quantized(torch.Tensor):
    """Whole numbers and a scale, computed with as what they stand for."""

    @staticmethod
    def __new__(cls, q, scale):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=scale.dtype)

    def __init__(self, q, scale):
        self.q, self.scale = q, scale

    def __tensor_flatten__(self):
        return ["q", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["q"], inner["scale"])

    def value(self):
        return self.q.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default or func == torch.ops.aten.alias.default:
            return cls(args[0].q, args[0].scale)
        return func(*(a.value() if isinstance(a, cls) else a for a in args), **(kwargs or {}))


class Overriding(Quantized):
    """One that also has linear() in its own way."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            return torch.nn.functional.linear(args[0], args[1].value(), *args[2:], **(kwargs or {})) * 2
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def numbers(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape) * 0.5 - 1


def two(*shape):
    return Two(numbers(*shape), numbers(*shape) * 2)


def plain(value):
    """Results as numbers that can be compared."""
    if isinstance(value, Two):
        return "Two", plain(value.a), plain(value.b), value.tag, tuple(value.shape)
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.tolist()
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def changes(x, y):
    z = x * 1
    z.add_(y)
    z[0] = 5.0
    x.a.add_(1)
    return z, x


def rounds(x, y):
    for i in range(3):
        x = x * (i + 1) + y
    return x if x.tag == "t" else y


PROGRAMS = {
    "operators": lambda x, y: (x * 2 + y).sin(), "reflected": lambda x, y: y - x * y,
    "of several kinds": lambda x, y: (x.relu(), y + 1, x.a * 2, x), "own methods": lambda x, y: (x.both(3), x.difference, x.tag, Two.of(y)),
    "made inside": lambda x, y: (Two(y, y * 2, "q") * Two(y, y), Two(y, y).tag, isinstance(Two.of(y), Two)),
    "views": lambda x, y: (x.view(-1), x[0], x[1:], x.unsqueeze(0), torch.cat([x, x]), x.t().sum(0)),
    "several results": lambda x, y: [*x.chunk(2), *torch.unbind(x)[:1], torch.stack([x, x])],
    "functions": lambda x, y: (x.softmax(-1), torch.nn.functional.layer_norm(x, x.shape[-1:]), torch.nn.functional.gelu(x)),
    "facts": lambda x, y: (x.shape, x.dim(), x.numel(), len(x), x.is_contiguous(), x.requires_grad, x.sum().a), "changes": changes,
    "rounds": rounds,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["counted", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_graphs(name, backend):
    counter, f = Counter(), PROGRAMS[name]
    g = dynamo.compile(f, backend=counter if backend == "counted" else backend, fullgraph=True)
    for rows in (4, 6, 8):
        right, got = plain(f(two(rows, 3), numbers(rows, 3))), plain(g(two(rows, 3), numbers(rows, 3)))
        assert _near(right, got)
    assert len(counter.graphs) <= (3 if name == "several results" else 2)   # unbind() fixes the size


def _near(right, got):
    if isinstance(right, (list, tuple)):
        return len(right) == len(got) and all(map(_near, right, got))
    return right == (pytest.approx(got, rel=1e-5, abs=1e-6) if isinstance(got, float) else got)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("kind", [Quantized, Overriding])
def test_weights_of_a_model(kind, backend):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).requires_grad_(False)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            scale = layer.weight.abs().amax(1, keepdim=True) / 127
            layer.weight = torch.nn.Parameter(kind((layer.weight / scale).round().to(torch.int8), scale), requires_grad=False)
    g = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (2, 3, 5):
        assert torch.allclose(model(numbers(rows, 4)), g(numbers(rows, 4)), atol=1e-5)


def test_between_two_graphs():
    """One that a break hands on is made anew from its parts, each call its own."""
    def f(x, y):
        z = x * 2
        torch._dynamo.graph_break()
        w = z + y
        torch._dynamo.graph_break()
        return w.sin(), z

    for backend in ("eager", "aot_eager"):
        assert plain(dynamo.compile(f, backend=backend)(two(3), numbers(3))) == plain(f(two(3), numbers(3)))


def test_another_context_is_another_version():
    counter = Counter()
    g = dynamo.compile(lambda x: x * 2 if x.tag == "t" else x * 3, backend=counter)
    assert plain(g(two(2))) == plain(two(2) * 2)
    assert plain(g(Two(numbers(2), numbers(2), "other"))) == plain(Two(numbers(2) * 3, numbers(2) * 3))
    assert len(counter.graphs) == 2


def test_gradients_are_the_class_own():
    """Where gradients are recorded, such operators run between graphs: what they record is the class's."""
    def f(w, x):
        return (w * x.sin()).sum()

    for fn in (f, dynamo.compile(f, backend="eager")):
        w = torch.nn.Parameter(two(3))
        fn(w, numbers(3)).backward()
        assert plain(w.grad) == ("Two", *[plain(numbers(3).sin())] * 2, "t", (3,))


class Metered(torch.Tensor):
    """A class without `__torch_dispatch__`, made in the function, with attributes of the program's."""

    @staticmethod
    def __new__(cls, data, unit):
        made = torch.Tensor._make_subclass(cls, data)
        made._unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Metered):
            out._unit = "*".join(a._unit for a in args if isinstance(a, Metered))
        return out


def test_a_class_that_is_made_inside():
    def f(x, y):
        made = Metered(x, "m") * Metered(y, "s")
        return made._unit, made.as_subclass(torch.Tensor), type(made).__name__, made

    counter = Counter()
    got, right = dynamo.compile(f, backend=counter, fullgraph=True)(numbers(3), numbers(3)), f(numbers(3), numbers(3))
    assert plain(got) == plain(right) and got[3]._unit == right[3]._unit
    assert len(counter.graphs) == 1


def asking(x, y):
    return Two(x, y).requires_grad_()


WITHOUT_RECORDING = {
    "computes": lambda t, w: (t * 2).sin() + t, "with a leaf": lambda t, w: t * w, "facts": lambda t, w: (t.requires_grad, t.shape, t * 2),
    "detached": lambda t, w: t.detach() * 2, "parts": lambda t, w: t.a + t.b * w,
}
AUTOGRAD_TELLS = {
    "grad": lambda t, w: (t.grad is None, t * 2), "history": lambda t, w: (t.grad_fn is None, t.is_leaf, t * 2),
    "asks": lambda t, w: (t * 2).requires_grad_(), "version": lambda t, w: (t * 2)._version,
}


@pytest.mark.parametrize("name", [*WITHOUT_RECORDING, *AUTOGRAD_TELLS])
@pytest.mark.parametrize("recording", [False, True])
def test_tensors_that_need_a_gradient(name, recording):
    """Nothing stands in the way of one graph where no history is recorded; where it is, and where autograd is asked, eager code runs."""
    function = {**WITHOUT_RECORDING, **AUTOGRAD_TELLS}[name]
    counter = Counter()
    compiled = dynamo.compile(function, backend=counter)
    for start in (1.0, 2.0):
        given = lambda start=start: (asking(numbers(3) + start, numbers(3)), (numbers(3) * start).requires_grad_())
        with torch.set_grad_enabled(recording):
            got, want = compiled(*given()), function(*given())
        found = [[(plain(v), getattr(v, "requires_grad", None)) for v in (r if isinstance(r, tuple) else (r,))] for r in (got, want)]
        assert found[0] == found[1]
    if not recording and name in WITHOUT_RECORDING:
        assert len(counter.graphs) == 1


def test_what_is_compiled_without_recording_is_not_used_with_it():
    compiled = dynamo.compile(lambda t: (t * 3).sin(), backend="eager")
    for recording in (False, True, False, True):
        t = asking(numbers(3), numbers(3))
        with torch.set_grad_enabled(recording):
            y = compiled(t)
        assert y.requires_grad is recording and plain(y)[:3] == plain((Two(numbers(3), numbers(3)) * 3).sin())[:3]
        if recording:
            y.sum().backward()
            assert plain(t.grad)[1] == plain((numbers(3) * 3).cos() * 3)
