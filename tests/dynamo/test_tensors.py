"""Tensor operations inside of captured functions: methods, properties, indexing, creation, several results, in-place."""

from __future__ import annotations

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo, nn


def x24():
    return torch.arange(24).reshape(2, 3, 4) * 0.25 - 2


def t_views(x):
    return x.view(6, 4), x.reshape(-1), x.transpose(0, 1), x.permute(2, 0, 1), x.unsqueeze(0).squeeze(0), x.flatten(1)


def t_properties(x):
    return x[0].T, x.mT, x.is_floating_point(), x.requires_grad, x.device.type, x.dtype == torch.float32, x.is_contiguous()


def t_indexing(x):
    return x[0], x[:, 1], x[..., -1], x[None], x[:, :, ::2], x[0, 1:, 2], x[torch.tensor([1, 0])], x[:, [0, 2]]


def t_setitem(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] = x[:, 0]
    y[..., 2] += 1
    return y


def t_iteration(x):
    a, b = x
    return [row.sum() for row in x], a - b, [r + i for i, r in enumerate(x)]


def t_star_shape(x):
    b, *rest = x.shape
    return x.reshape(b, -1), torch.zeros(*x.shape), rest, x.size(), x.size(-1), x.shape[1:], list(x.shape)


def t_several_results(x):
    values, indices = x.max(dim=1)
    m = x.min(dim=2)
    top = torch.topk(x, 2)
    return values, indices, m.values, m[1], top.indices, x.split(2, dim=2), x.chunk(3, dim=1), torch.std_mean(x, dim=0)


def t_joining(x):
    return torch.cat([x, x], dim=1), torch.stack([x, x + 1]), torch.cat((x, x[:, :1]), 1)


def t_creation(x):
    n = x.shape[2]
    return (
        torch.arange(n), torch.ones(n, n).tril(), torch.zeros_like(x), x.new_zeros(2), torch.full((2,), 7.0), torch.eye(3),
        torch.tensor([1.0, 2.0]), torch.tensor(3), torch.linspace(0, 1, 3), torch.empty(0),
    )  # fmt: skip


def t_dtypes(x):
    return x.long(), x.to(torch.float64), x.float(), x.int() + 1, x.to(x.dtype), (x > 0).float(), x.type_as(x.double()), x.bool()


def t_reductions(x):
    return x.sum(), x.mean(-1), x.sum((0, 1), keepdim=True), x.argmax(-1), x.var(dim=1), x.norm(), (x > 0).any(), (x > 0).all(dim=1)


def t_where_and_masks(x):
    mask = x > 0
    return torch.where(mask, x, -x), x.masked_fill(mask, 0.0), x * mask, ~mask, mask & (x < 1), mask.sum()


def t_matmul(x):
    w = x[0].T
    return x @ w, torch.matmul(x, w), torch.einsum("bij,jk->bik", x, w), torch.bmm(x, x.transpose(1, 2))


def t_inplace(x):
    y = x * 1
    y.add_(1).mul_(2)
    y.relu_()
    z = y
    z -= 1
    return y, z is y


def t_functional(x):
    f = nn.functional
    return f.relu(x), f.gelu(x), f.softmax(x, dim=-1), f.layer_norm(x, (4,)), f.silu(x), f.pad(x, (1, 1)), f.log_softmax(x, -1)


def t_clamp_and_math(x):
    return x.clamp(-1, 1), x.abs().sqrt(), torch.exp(x).log(), x.sin() ** 2, torch.minimum(x, x.mean()), x.round(), x // 2, x % 3


def t_keyword_arguments(x):
    return torch.sum(x, dim=1, keepdim=True), x.sum(dim=0), torch.add(x, x, alpha=2), x.softmax(dim=1)


def t_sequence_arguments(x):
    return x.permute((2, 1, 0)), x.view((4, 6)), x.sum([0, 2]), x.repeat(1, 2, 1), torch.zeros((2, 3)), x.flip(0)


def t_python_numbers(x):
    scale = x.shape[-1] ** -0.5
    return x * scale, x + True, 3 // 2 * x, x / float(x.shape[0]), x - int(2.7)


def t_dtype_tables(x):
    table = {torch.float32: 1.0, torch.float64: 2.0}
    return x * table[x.dtype], torch.finfo(x.dtype).max > 1, x.dtype in (torch.float32,), x.dtype.is_floating_point


def t_detach(x):
    return x.detach() + 1, x.data * 2, x.clone()


def t_chained_methods_in_loop(x):
    for name in ("abs", "neg", "exp"):
        x = getattr(x, name)()
    return x, getattr(torch, NAME)(x)


def t_outer_tensor(x):
    return x + OUTER, OUTER.shape


def t_cumulative(x):
    return x.cumsum(1), x.sort(dim=-1).values, x.argsort(-1), x.gather(1, torch.zeros(2, 1, 4, dtype=torch.int64))


OUTER = torch.ones(4)
NAME = "relu"
FUNCTIONS = [value for name, value in sorted(globals().items()) if name.startswith("t_")]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_one_graph(fn) -> None:
    check(fn, x24(), graphs=1, breaks=0)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_dynamic(fn) -> None:
    check(fn, x24(), graphs=None, breaks=None, dynamic=True)


@pytest.mark.parametrize("name", ["tolist", "bool", "int"])
def test_data_dependent_operations_break(name) -> None:
    functions = {
        "tolist": lambda x: x * x.tolist()[0][0][0],
        "bool": lambda x: x * 2 if bool((x > 100).any()) else x,
        "int": lambda x: x + int(x[0, 0, 0]),
    }
    seen = check(functions[name], x24(), graphs=None, breaks=None)
    assert seen.breaks


def test_random_numbers_draw_anew() -> None:
    def f(x):
        return x + torch.rand(3)

    result, seen, counter = run(f, torch.zeros(3))
    assert len(counter.graphs) == 1 and not seen.breaks
    assert not same(result, torch.zeros(3))


def test_grad_attribute() -> None:
    w = torch.ones(3)
    w.requires_grad = True
    (w * 2).sum().backward()

    def f(w, x):
        g = w.grad * x
        w.grad = None
        return g

    result, _, _ = run(f, w, torch.ones(3))
    assert same(result, torch.ones(3) * 2) and w.grad is None


def test_autograd_inside_runs_between_graphs() -> None:
    def f(w):
        loss = (w * w).sum()
        loss.backward()
        return w.grad + 1

    w = torch.ones(3)
    w.requires_grad = True
    result, seen, _ = run(f, w)
    assert same(result, torch.ones(3) * 3)
    assert seen.breaks[0].kind == "autograd inside a compiled function"


def test_custom_function() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    def f(x):
        return Double.apply(x + 1).sum()

    x = torch.ones(3)
    x.requires_grad = True
    result, seen, counter = run(f, x)
    result.backward()
    assert same(x.grad, torch.ones(3) * 3)
    assert not seen.breaks and len(counter.graphs) == 1
    with torch.no_grad():
        check(f, torch.ones(3))
    for backend in ("aot_eager", "inductor"):
        x.grad = None
        torch.compile(f, backend=backend, fullgraph=True)(x).backward()
        assert same(x.grad, torch.ones(3) * 3)


def test_custom_function_with_effects_breaks() -> None:
    log = []

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            log.append(1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.ones(3)
    x.requires_grad = True
    _, seen, _ = run(lambda x: Noisy.apply(x + 1).sum(), x)
    assert log == [1] and seen.breaks


def test_checkpoint() -> None:
    from flambeau.utils.checkpoint import checkpoint

    def f(x):
        return checkpoint(lambda y: (y * 2).relu(), x, use_reentrant=False).sum()

    x = torch.ones(3)
    x.requires_grad = True
    result, _, _ = run(f, x)
    result.backward()
    assert same(x.grad, torch.ones(3) * 2)


@pytest.mark.parametrize("name", ["relu", "hardswish", "silu", "hardtanh", "leaky_relu", "mish"])
def test_inplace_by_argument_is_kept(name) -> None:
    activation = getattr(nn.functional, name)

    def f(x):
        y = x * 1
        activation(y, inplace=True)
        return y + 1

    check(f, x24())


def test_out_argument() -> None:
    def f(x):
        y = torch.zeros(2, 3, 4)
        torch.add(x, 1, out=y)
        return y * 2

    check(f, x24(), graphs=None, breaks=None)


def test_inplace_on_a_tensor_made_from_numbers() -> None:
    def f(x):
        step = torch.tensor(1.0)
        step += 1
        table = torch.tensor([1.0, 2.0])
        table[0] = 5
        return x * step, table

    check(f, x24())
    for backend in ("aot_eager", "inductor"):
        result = torch.compile(f, backend=backend)(x24())
        assert same(result, f(x24()))


def test_optimizer_step() -> None:
    import copy

    a = nn.Linear(3, 3)
    b = copy.deepcopy(a)
    first, second = torch.optim.AdamW(a.parameters(), lr=0.1), torch.optim.AdamW(b.parameters(), lr=0.1)
    step = torch.compile(second.step, backend="eager")
    for i in range(3):
        for module in (a, b):
            module.zero_grad()
            module(torch.ones(2, 3) * (i + 1)).square().sum().backward()
        first.step()
        step()
    assert same(a.weight, b.weight) and same(a.bias, b.bias)


def test_custom_operator_is_one_node() -> None:
    @torch.library.custom_op("flambeau_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x.clone() * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    _, seen, counter = run(lambda x: torch.ops.flambeau_tests.twice(x) + 1, x24())
    assert not seen.breaks and len(counter.graphs) == 1 and counter.ops == 2


def test_simple_namespace() -> None:
    import types

    def f(x, n):
        made = types.SimpleNamespace(a=x, b=2)
        made.c = n.k * 2
        n.last = made.b
        return made.a * made.b + made.c, made

    check(f, x24(), types.SimpleNamespace(k=3))


def test_custom_function_of_a_float_that_changes() -> None:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, mode="up"):
            ctx.scale, ctx.mode = 1 / scale, mode
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(False)
            above = x > 0
            ctx.mark_non_differentiable(above)
            return torch.round(x * scale) * ctx.scale, above

        @staticmethod
        def backward(ctx, g, _):
            (x,) = ctx.saved_tensors
            return g * (x.abs() < 1) * ctx.scale, None, None

    def f(x, scale):
        rounded, above = Round.apply(x, scale)
        return (rounded * above).sum()

    compiled = dynamo.compile(f, backend=(counter := Counter()), fullgraph=True)
    for scale in (2.0, 4.0, 8.0, 16.0):
        x, y = (torch.tensor([0.3, -0.7, 1.6], requires_grad=True) for _ in range(2))
        expected, found = f(x, scale), compiled(y, scale)
        expected.backward()
        found.backward()
        assert found.item() == expected.item() and y.grad.tolist() == x.grad.tolist()
    assert len(counter.graphs) == 2
