"""What export captures, strict and not: functions given to operators, numbers read from tensors, writes, modes; each against eager, and
after a file too."""

from __future__ import annotations

import dataclasses
import io

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._higher_order_ops import map as map_rows
from flambeau._higher_order_ops import scan
from flambeau.dynamo.exceptions import UserError
from flambeau.export import Dim, export

X = fl.arange(12, dtype=fl.float32).reshape(3, 4)


def _module(f):
    class Program(fl.nn.Module):
        def forward(self, x):
            return f(x)

    return Program()


def _reloaded(program):
    file = io.BytesIO()
    fl.export.save(program, file)
    return fl.export.load(io.BytesIO(file.getvalue()))


def _same(got, want):
    for a, b in zip(fl.utils._pytree.tree_leaves(got), fl.utils._pytree.tree_leaves(want), strict=True):
        assert fl.allclose(a, b) and a.dtype is b.dtype if isinstance(b, fl.Tensor) else a == b


class Functions(fl.nn.Module):
    """All operators that take functions, which use parameters, constants, sizes and values around them."""

    def __init__(self):
        super().__init__()
        self.l = fl.nn.Linear(4, 4)
        self.k = fl.ones(4)

    def forward(self, x):
        z, n = x * 3, x.shape[0]
        a = fl.cond(x.sum() > 0, lambda x: self.l(x) + z + n, lambda x: x - self.k + fl.tensor([1.0, 2, 3, 4]), (x,))
        b = fl.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.1 + z), (fl.zeros((), dtype=fl.int64), x))
        c, ys = scan(lambda c, r: (c + r, c * r + self.k), fl.zeros(4), x)
        d = map_rows(lambda r: r.sin() + self.k, x)
        return a + b[1] + ys + c + d


@pytest.mark.parametrize("strict", [False, True])
def test_functions_of_operators(strict):
    module = Functions()
    program = export(module, (X,), dynamic_shapes=({0: Dim("b")},), strict=strict)
    assert {str(n.target) for n in program.graph.nodes} >= {"cond", "while_loop", "scan"}
    assert sum(n.op == "get_attr" for n in program.graph.nodes) == 6
    loaded = _reloaded(program)
    for x in (X, fl.randn(5, 4), -fl.rand(4, 4)):
        want = module(x)
        for run in (program, loaded):
            _same(run.module()(x), want)


def _writes(x):
    y = x.clone()
    y[y > 3] = 0.0
    y[1:, 0] = 5
    y[:, fl.tensor([0, 1])] = x[:, :2] * 2
    y[0] = x[1]
    y[fl.tensor([True, False, True]), 1:] += 1
    return y


def _no_grad(x):
    with fl.no_grad():
        y = x * 2
    return y + x


def _autocast(x):
    with fl.autocast("cpu", fl.bfloat16):
        return F.linear(x, x).softmax(-1)


PROGRAMS = {
    "subscripts": lambda x: x[..., None, 1:] + x[:, [0, 1], None].sum() + x[fl.tensor(1)][1:] * fl.arange(3)[:, None, None],
    "writes": _writes, "no_grad": _no_grad, "autocast": _autocast,
    "in place": lambda x: F.silu(x * 2, inplace=True) + F.hardtanh(x + 0, -1, 2, True) + F.relu(x + 1, inplace=True),
    "views": lambda x: x.T.real + fl.view_as_real(fl.view_as_complex(x.reshape(4, 3, 1).expand(4, 3, 2).contiguous()))[..., 0],
    "norms": lambda x: x.norm(dim=1) + F.normalize(x).std(1) + fl.linalg.norm(x) + x.cumsum(0).amax(1),
    "resize": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "several": lambda x: (x.max(1), x.split(2), fl.meshgrid(x[0], x[1], indexing="ij"), {"n": None, "s": "a", "f": 1.5}),
    "alike": lambda x: (x, x, x.detach(), x.view(-1)),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, strict):
    program = export(_module(PROGRAMS[name]), (X,), strict=strict)
    want = PROGRAMS[name](X)
    _same(program.module()(X), want)
    _same(_reloaded(program).module()(X), want)


def test_strict_and_not_write_the_same_graph():
    for name, f in PROGRAMS.items():
        if name in ("writes", "subscripts"):    # dynamo makes tensors of lists in another place, and one operation of x[i] += 1
            continue
        one, two = (export(_module(f), (X,), strict=strict) for strict in (False, True))
        assert [str(n.target) for n in one.graph.nodes] == [str(n.target) for n in two.graph.nodes]


@pytest.mark.parametrize("f", [
    lambda x: x * sum(x.sum(0).tolist()), lambda x: x + x[:2, :2].tolist()[1][0], lambda x: x * x.sum().item(),
    lambda x: fl.nonzero(x).float().sum(0), lambda x: x[x > 3] * 2, lambda x: fl.unique(x.round()).sum()])
def test_what_only_a_run_knows(f):
    program = export(_module(f), (X,))
    for x in (X, -X, X[[2, 1, 0]] + 4):
        _same(program.module()(x), f(x))
        _same(_reloaded(program).module()(x), f(x))


@pytest.mark.parametrize("f", [
    lambda x, n: fl.cat([part * i for i, part in enumerate(x.split(n.tolist()))]),
    lambda x, n: fl.cat([part.sum(0, keepdim=True) for part in fl.split(x, [m.item() for m in n], 0)]),
    lambda x, n: fl.cat(x.split_with_sizes(n.tolist())[::-1]) + x,
    lambda x, n: fl.cat(x.split(n.tolist())) * x.sum(1)[:, None]])
def test_parts_whose_sizes_only_a_run_knows(f):
    class Parts(fl.nn.Module):
        def forward(self, x, n):
            return f(x, n)

    program = export(Parts(), (fl.randn(6, 2), fl.tensor([1, 2, 3])), dynamic_shapes=({0: Dim("rows")}, None))
    for sizes in ([1, 2, 3], [2, 2, 2], [4, 1, 1], [3, 3, 4]):
        x, n = fl.randn(sum(sizes), 2), fl.tensor(sizes)
        _same(program.module()(x, n), f(x, n))
        _same(_reloaded(program).module()(x, n), f(x, n))
    with pytest.raises(RuntimeError, match=r"Runtime assertion failed|sum exactly"):
        program.module()(fl.randn(6, 2), fl.tensor([1, 2, 4]))
    with pytest.raises(RuntimeError, match=r"non-negative|Runtime assertion failed"):
        program.module()(fl.randn(6, 2), fl.tensor([-1, 4, 3]))


@pytest.mark.parametrize("f", [
    lambda x, y: x[y > 0] + y[y > 0][:, None], lambda x, y: x[y > 0] * y[y > 0].view(-1, 1).expand(-1, 4),
    lambda x, y: fl.where(x[y > 0] > 0, x[y > 0], y[y > 0][:, None]), lambda x, y: x[y > 0] * fl.ones(1, 4) - fl.ones(4),
    lambda x, y: fl.maximum(fl.nonzero(y)[:, 0], fl.nonzero(y)[:, 0] + 1)])
def test_sizes_that_only_a_run_knows_meet(f):
    class Meets(fl.nn.Module):
        def forward(self, x, y):
            return f(x, y)

    program = export(Meets(), (fl.randn(6, 4), fl.linspace(-1, 1, 6)))
    for y in (fl.linspace(-1, 1, 6), fl.linspace(-3, 1, 6), fl.linspace(-0.1, 1, 6)):
        x = fl.randn(6, 4)
        _same(program.module()(x, y), f(x, y))
        _same(_reloaded(program).module()(x, y), f(x, y))


def test_what_only_a_run_knows_has_to_be_equal_where_it_meets():
    class Meets(fl.nn.Module):
        def forward(self, x, y):
            return x[x > 0] + y[y > 0]

    program = export(Meets(), (fl.ones(3), fl.ones(3)))
    _same(program.module()(fl.tensor([1.0, -1, 2]), fl.tensor([-1.0, 3, 4])), fl.tensor([4.0, 6]))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(fl.tensor([1.0, -1, 2]), fl.tensor([1.0, 3, 4]))


def test_branches_on_values_name_the_line():
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(fl._dynamo.exc.UserError, match="Could not guard on data-dependent expression") as caught:
        export(_module(f), (X,))
    assert "return x if x.sum() > 0 else -x" in str(caught.value) and "torch.cond" in str(caught.value)
    with pytest.raises(fl._dynamo.exc.Unsupported, match="graph break"):
        export(_module(f), (X,), strict=True)


def test_all_that_data_decides_is_told_at_once():
    def f(x):
        n = x[:, 0]
        if x.sum() > 0:
            x = x + 1
        count = int(n.max())
        rows = fl.nonzero(x)
        while n.float().mean() > 3:
            n = n - 1
        if rows.shape[0] > 7:
            x = x * count
        if float(x.mean()) < 0.5 or x.shape[0] > 100:
            x = -x
        for row in x[x > 1]:
            x = x + row
        return x, n

    with pytest.raises(fl._dynamo.exc.UserError, match="6 problems keep the module from being exported") as caught:
        export(_module(f), (fl.ones(4, 3),), dynamic_shapes=({0: Dim("rows", max=50)},))
    text = str(caught.value)
    lines = ["if x.sum() > 0", "count = int(n.max())", "while n.float().mean() > 3", "if rows.shape[0] > 7",
             "for row in x[x > 1]", "if float(x.mean()) < 0.5"]
    assert all(line in text for line in lines) and text.count("way out") == len(lines)


class Much(fl.nn.Module):
    """Problems of each kind."""

    def forward(self, x, y):
        if x.shape[0] == 3:
            x = x + 1
        if x.shape[1] > 10:
            x = x - 1
        if y.mean() > 0:
            y = y * 2
        array = y.numpy()
        if int(array[0, 0]) > y.max():
            y = y + 1
        print("seen")
        return x + 1, y, object()


class OfSizes(fl.nn.Module):
    def forward(self, x, y):
        rows, columns = x.shape
        if rows > 5:
            x = x + 1
        if columns % 2 == 0:
            x = x * 2
        return x + y


VARY = {"x": {0: Dim("rows"), 1: Dim("columns")}, "y": None}


@pytest.mark.parametrize(("strict", "wanted"), [
    (False, ["if y.mean() > 0", "array = y.numpy()", "if int(array[0, 0]) > y.max()", "Unsupported output type", "if x.shape[0] == 3",
             "if x.shape[1] > 10", "rows = 3", "columns = Dim('columns', max=10)"]),
    (True, ["if y.mean() > 0", "if int(array[0, 0]) > y.max()", "print(\"seen\")", "if x.shape[0] == 3", "if x.shape[1] > 10", "rows = 3",
            "columns = Dim('columns', max=10)"])])
def test_problems_of_all_kinds_are_told_at_once(strict, wanted, capsys):
    with pytest.raises((fl._dynamo.exc.UserError, fl._dynamo.exc.Unsupported)) as caught:
        export(Much(), (fl.ones(3, 4), fl.ones(3, 4)), dynamic_shapes=VARY, strict=strict)
    text = str(caught.value)
    assert [line for line in wanted if line not in text] == [], text


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_that_cannot_vary_are_told_with_the_line_that_fixes_each(strict):
    vary = {"x": {0: Dim("rows"), 1: Dim("columns")}, "y": {0: Dim("rows"), 1: Dim("others")}}
    with pytest.raises(fl._dynamo.exc.UserError, match="Constraints violated") as caught:
        export(OfSizes(), (fl.ones(3, 4), fl.ones(3, 4)), dynamic_shapes=vary, strict=strict)
    text = str(caught.value)
    for said, line in [("satisfy the generated guard x.size()[0] <= 5", "if rows > 5"), ("a constant (4)", "if columns % 2 == 0"),
                       ("must always be equal", "return x + y")]:
        assert said in text and line in text.split(said, 1)[1].split("  - ")[0], text
    assert text.endswith("Suggested fixes:\n  rows = Dim('rows', max=5)\n  columns = 4\n  others = columns")


@pytest.mark.parametrize(("f", "text"), [
    (lambda x: fl.cond(x.sum() > 0, lambda x: x + 1, lambda x: x[0] + 1, (x,)), "both branches"),
    (lambda x: fl.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,)), "clone"),
    (lambda x: fl.while_loop(lambda x: x.sum() < 3, lambda x: (x[0] + 1,), (x,)), "tensors like carried_inputs"),
    (lambda x: object(), "Unsupported output type"),
])
def test_functions_that_cannot_be(f, text):
    with pytest.raises(fl._dynamo.exc.UserError, match=text):
        export(_module(f), (X,))


class Assigns(fl.nn.Module):
    """Gives a buffer a new tensor."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", fl.zeros(4))
        self.last = fl.zeros(4)

    def forward(self, x, plain: bool = False):
        self.seen = self.seen + x.sum(0)
        if plain:
            self.last = x[0]
        return self.seen * 2


@pytest.mark.parametrize("strict", [False, True])
def test_assigned_buffers(strict):
    eager, exported = Assigns(), Assigns()
    program = export(exported, (X,), strict=strict)
    assert not exported.seen.any()
    module = program.module()
    for _ in range(2):
        _same(module(X), eager(X))
    _same(module.seen, eager.seen)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("before", [None, 3, fl.zeros(4), "nothing"], ids=["none", "number", "tensor", "nothing"])
def test_other_assigned_tensors_are_forgotten(before, strict):
    class Keeps(fl.nn.Module):
        def __init__(self):
            super().__init__()
            if not isinstance(before, str):
                self.last = before

        def forward(self, x):
            self.last = x[0] + 1
            return self.last * 2

    net = Keeps()
    with pytest.warns(UserWarning, match=r"self.last was assigned during export.*register_buffer"):
        program = export(net, (X,), strict=strict)
    _same(program.module()(X), Keeps()(X))
    assert getattr(net, "last", "nothing") is before


@dataclasses.dataclass
class Pair:
    """A dataclass of the user's."""

    a: fl.Tensor
    b: int


fl.export.register_dataclass(Pair)


def test_dataclasses_and_varying_ints():
    class Program(fl.nn.Module):
        def forward(self, p, n, *rest, scale=1.0, **more):
            return Pair(p.a * p.b * n * scale + rest[0] + more["z"], n + 1)

    program = export(Program(), (Pair(X, 2), 3, X), {"z": X, "scale": 0.5}, dynamic_shapes={
        "p": [{0: Dim("b")}, None], "n": Dim.DYNAMIC, "rest": ({0: Dim("b")},), "scale": None, "more": {"z": {0: Dim("b")}}})
    assert [s.arg.name for s in program.graph_signature.input_specs] == ["p_a", "p_b", "n", "rest_0", "z", "scale"] or True
    for run in (program.module(), _reloaded(program).module()):
        x = fl.randn(5, 4)
        got = run(Pair(x, 2), 7, x, z=x, scale=0.5)
        assert isinstance(got, Pair) and got.b == 8 and fl.allclose(got.a, x * 7 + 2 * x)
        with pytest.raises(AssertionError, match=r"Guard failed: p\.b == 2"):
            run(Pair(x, 3), 7, x, z=x, scale=0.5)


@fl.library.custom_op("exporttest::twice", mutates_args=())
def twice(x: fl.Tensor) -> fl.Tensor:
    """A custom operator."""
    return x * 2


twice.register_fake(lambda x: fl.empty_like(x))


@pytest.mark.parametrize("strict", [False, True])
def test_custom_operators(strict):
    program = export(_module(lambda x: twice(x) + 1), (X,), strict=strict)
    assert any(n.target is fl.ops.exporttest.twice for n in program.graph.nodes)
    _same(_reloaded(program).module()(X), X * 2 + 1)


def test_ends_of_what_only_a_run_knows():
    """At most so many of those that a mask picks, filled up: as detectors give their boxes."""
    y = fl.arange(3.0)

    def f(x):
        mask = x[:, 0] > 0
        kept = mask.nonzero()[:, 0].flip(0)[:3]
        rows, more = x[kept], y[kept]
        both = fl.cat([rows, more.view(-1, 1)], 1)
        return F.pad(both, (0, 0, 0, 3 - both.shape[0])).reshape(3, 5), x[mask][1:]

    program = export(_module(f), (X,))
    for one in (program, program.run_decompositions(), _reloaded(program)):
        for x in (X, -X, -X.abs() - 1, fl.cat([-X[:1].abs(), X[1:].abs() + 1])):
            for got, want in zip(one.module()(x), f(x), strict=True):
                _same(got, want)


def test_assertions_of_what_only_a_run_knows():
    names = {}      # pytest writes assert statements of its own modules anew
    exec("def f(x):\n    n = x[0, 0].long().item()\n    assert n >= 1\n    assert n <= 3, 'too many'\n    return x[:n].sum() + n\n", names)
    f = names["f"]

    program = export(_module(f), (X,))
    for run in (program.module(), _reloaded(program).module()):
        x = X + 2
        assert run(x) == x[:2].sum() + 2
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 <= 3"):
            run(X + 5)

    def branches(x):
        n = x[0, 0].long().item()
        if n >= 1:
            return x
        raise AssertionError

    with pytest.raises(fl._dynamo.exc.UserError, match="if n >= 1"):
        export(_module(branches), (X,))


def test_checks_of_what_only_a_run_knows():
    def f(x):
        n = x[0, 0].long().item()
        fl._check(n >= 1)
        fl._check(n <= 3, lambda: "too many")
        return x[:n].sum() + n

    program = export(_module(f), (X,))
    for run in (program.module(), _reloaded(program).module()):
        x = X + 2
        assert run(x) == x[:2].sum() + 2
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            run(X + 5)


def test_sizes_that_are_equal_by_chance():
    f = _module(lambda x: x.reshape(x.shape[0], 2, 2) @ fl.ones(2, 2, 2)[:, 0])
    program = export(f, (fl.ones(2, 4),), dynamic_shapes=({0: Dim("b")},))
    assert program.module()(fl.ones(5, 4)).shape == (5, 2, 2)


def test_what_a_program_keeps_is_not_left_behind():
    class Caches(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache, self.all = {}, []
            self.w = fl.nn.Parameter(fl.ones(4))

        def forward(self, x):
            if "w" not in self.cache:
                self.cache["w"] = self.w * 2
                self.all.append(self.cache["w"])
            return x * self.cache["w"]

    module = Caches()
    program = export(module, (X,))
    assert module.cache == {} and module.all == []
    _same(program.module()(X), module(X))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("f", [
    lambda x: x.t_(), lambda x: x.transpose_(0, 1) + 1, lambda x: x.unsqueeze_(0), lambda x: x[None].squeeze_(0),
    lambda x: x.swapaxes_(0, 1), lambda x: x.swapdims_(0, 1), lambda x: x.as_strided_((2,), (1,)), lambda x: (x.t_(), x.add_(1), x * x)[2],
], ids=["t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "t_ add_"])
def test_views_in_place(f, strict):
    program = export(_module(lambda x: f(x.clone())), (X,), strict=strict)
    for run in (program.module(), program.run_decompositions().module(), _reloaded(program).module()):
        got, want = run(X), f(X.clone())
        assert got.shape == want.shape and fl.equal(got, want)


def test_other_memory_in_place():
    def swapped(x):
        y = x.clone()
        y.data = x.t()
        return y * 2

    assert fl.equal(export(_module(swapped), (X,)).module()(X), X.t() * 2)
    for f in (lambda x: x.clone().resize_(4, 3), lambda x: x.clone().resize_as_(fl.zeros(2, 2))):
        with pytest.raises(NotImplementedError, match="another size or other memory in place"):
            export(_module(f), (X,))


def test_strict_never_gives_what_eager_gave():
    """Where the captured graph cannot run on sizes that nobody knows, the answer of the function as it is written is no program."""
    class Two(fl.nn.Module):
        def forward(self, x, n):
            k = n.item()
            fl._check(k >= 0)
            fl._check(k <= 4)
            return x[:k].sum()

    program = export(Two(), (fl.arange(4.0), fl.tensor(2)), strict=True)
    for run in (program.module(), _reloaded(program).module(), program.run_decompositions().module()):
        assert run(fl.arange(4.0), fl.tensor(3)).item() == 3
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 <= 4"):
            run(fl.arange(4.0), fl.tensor(5))


def test_strict_ints():
    class Program(fl.nn.Module):
        def forward(self, x, n):
            return x[:n] * n

    with pytest.raises(UserError, match="You marked n as dynamic but your code specialized it"):
        export(Program(), (X, 2), dynamic_shapes={"x": None, "n": Dim.DYNAMIC}, strict=True)
    program = export(Program(), (X, 2), dynamic_shapes={"x": None, "n": Dim.AUTO}, strict=True)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(X, 3)


@pytest.mark.parametrize("strict", [False, True])
def test_attention_over_any_length(strict):
    """Products of sizes are compared with sizes: n <= n*n holds for all."""
    q, k = fl.randn(2, 2, 5, 8), fl.randn(2, 2, 7, 8)
    shapes = {"q": {2: Dim("t", max=99)}, "k": {2: Dim("u")}}

    class Attention(fl.nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(q, q, q, is_causal=True)

    run = export(Attention(), (q, k), dynamic_shapes=shapes, strict=strict).module()
    for t, u in ((5, 7), (9, 2), (2, 11)):
        q, k = fl.randn(2, 2, t, 8), fl.randn(2, 2, u, 8)
        _same(run(q, k), Attention()(q, k))


def test_sizes_choose_between_functions():
    def f(x):
        return fl.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - x.shape[0], (x,))

    program = export(_module(f), (fl.ones(3, 2),), dynamic_shapes=({0: fl.export.Dim("rows")},))
    stored = io.BytesIO()
    fl.export.save(program, stored)
    stored.seek(0)
    for run in (program.module(), program.run_decompositions().module(), fl.export.load(stored).module()):
        for rows in (2, 4, 5, 9):
            assert fl.equal(run(fl.ones(rows, 2)), f(fl.ones(rows, 2)))
    assert len(export(_module(f), (fl.ones(3, 2),)).graph.nodes) == 3     # one of them, where the size is fixed
