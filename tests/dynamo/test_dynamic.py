"""Varying sizes and ints: static first, a variable on the second size, few compilations, right answers for all."""

from __future__ import annotations

import math
import warnings

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError
from flambeau.inductor import compile_fx


def compiled(fn, **settings):
    counter = Counter()
    return dynamo.compile(fn, backend=counter, **settings), counter


def test_second_size_goes_dynamic() -> None:
    def f(x):
        return x * x.shape[0] + 1

    g, counter = compiled(f)
    for n in (3, 4, 5, 6, 17):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 2


def test_only_the_changed_dimension_varies() -> None:
    def f(x):
        return x.sum(0) * x.shape[1]

    g, counter = compiled(f)
    for n in (3, 4, 5):
        g(torch.ones(n, 2))
    assert len(counter.graphs) == 2
    g(torch.ones(5, 7))
    assert len(counter.graphs) == 3
    g(torch.ones(6, 9))
    assert len(counter.graphs) == 3


def test_sizes_zero_and_one_are_special() -> None:
    def f(x):
        return x + x.shape[0]

    g, counter = compiled(f, dynamic=True)
    for n in (5, 6, 1, 0, 7):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 3


def test_dynamic_false_compiles_each_size() -> None:
    def f(x):
        return x + 1

    g, counter = compiled(f, dynamic=False)
    for n in (3, 4, 5):
        g(torch.ones(n))
    assert len(counter.graphs) == 3


def test_dynamic_true_compiles_once() -> None:
    def f(x, y):
        return x + y * x.shape[0]

    g, counter = compiled(f, dynamic=True)
    for n in (3, 4, 5):
        assert same(g(torch.ones(n, n + 1), torch.ones(n, n + 1)), f(torch.ones(n, n + 1), torch.ones(n, n + 1)))
    assert len(counter.graphs) == 1


def test_mark_dynamic() -> None:
    def f(x):
        return x * 2

    g, counter = compiled(f)
    for n in (3, 4, 5):
        x = torch.ones(n, 2)
        dynamo.mark_dynamic(x, 0)
        g(x)
    assert len(counter.graphs) == 1
    with pytest.raises(IndexError, match="out of range"):
        dynamo.mark_dynamic(torch.ones(2), 3)


def test_branch_on_a_size_guards() -> None:
    def f(x):
        if x.shape[0] > 10:
            return x + 1
        return x - 1

    g, counter = compiled(f, dynamic=True)
    for n in (3, 4, 12, 20, 9, 11):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 2


def test_int_argument_varies() -> None:
    def f(x, n):
        return x * n + (n + 1) * 2

    g, counter = compiled(f)
    for n in (3, 4, 5, 60):
        assert same(g(torch.ones(2), n), f(torch.ones(2), n))
    assert len(counter.graphs) == 2


def test_float_and_bool_arguments_are_constants() -> None:
    def f(x, a, flag):
        return x * a if flag else x

    g, counter = compiled(f)
    for a, flag in ((0.5, True), (0.7, True), (0.5, False)):
        assert same(g(torch.ones(2), a, flag), f(torch.ones(2), a, flag))
    assert len(counter.graphs) == 2  # flag=False has no operation


def test_reshape_with_symbolic_sizes() -> None:
    def f(x):
        b, t, c = x.shape
        return x.reshape(b * t, c).reshape(b, t, c // 2, 2).sum(-1), x.view(-1), b * t + 1, x.shape

    g, counter = compiled(f, dynamic=True)
    for b, t, c in ((2, 3, 4), (3, 5, 6), (4, 7, 8)):
        x = torch.ones(b, t, c)
        assert same(g(x), f(x))
    assert len(counter.graphs) == 1


def test_loop_over_a_size_specialises() -> None:
    def f(x):
        for i in range(x.shape[0]):
            x = x + i
        return x

    g, counter = compiled(f, dynamic=True)
    for n in (3, 4):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 2


def test_size_in_a_returned_structure() -> None:
    def f(x):
        n = x.shape[0]
        return {"n": n, "double": n * 2, "half": n / 2, "big": n > 4, "y": x + n // 2}

    g, counter = compiled(f, dynamic=True)
    for n in (5, 6, 9):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_limit_of_recompilations_warns_once_and_names_the_reason(fullgraph: bool) -> None:
    def f(x, name):
        return x + len(name)

    g, counter = compiled(f, fullgraph=fullgraph)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(12):
            assert same(g(torch.ones(2), "a" * i), torch.ones(2) + i)
    assert len(counter.graphs) == dynamo.config.recompile_limit
    assert len(caught) == 1
    assert "recompile_limit" in str(caught[0].message) and "name" in str(caught[0].message)


def test_the_limit_is_an_error_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo.config, "fail_on_recompile_limit_hit", True)
    g, _ = compiled(lambda x, name: x + len(name))
    with pytest.raises(dynamo.RecompileLimitExceeded, match="recompile_limit"):
        for i in range(12):
            g(torch.ones(2), "a" * i)


def test_old_versions_are_found_again() -> None:
    def f(x, flag):
        return x + 1 if flag else x - 1

    g, counter = compiled(f)
    for flag in (True, False, True, False):
        g(torch.ones(2), flag)
    assert len(counter.graphs) == 2


def test_dtype_strides_and_requires_grad_are_guarded() -> None:
    def f(x):
        return x * 2

    g, counter = compiled(f)
    g(torch.ones(2, 3))
    g(torch.ones(2, 3, dtype=torch.float64))
    g(torch.ones(3, 2).t())
    x = torch.ones(2, 3)
    x.requires_grad = True
    assert g(x).requires_grad
    with torch.no_grad():
        assert not g(x).requires_grad
    assert len(counter.graphs) == 5


def test_transposed_dynamic() -> None:
    def f(x):
        return x + x.shape[1]

    g, counter = compiled(f, dynamic=True)
    for n in (3, 4, 5):
        assert same(g(torch.ones(n, 2 * n).t()), f(torch.ones(n, 2 * n).t()))
    assert len(counter.graphs) == 1


def test_sizes_across_a_graph_break() -> None:
    def f(x):
        n = x.shape[0] * 2
        y = x + n
        dynamo.graph_break()
        return y * n

    g, counter = compiled(f, dynamic=True)
    for n in (3, 4, 5):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    # the int arrives in the resume function as a constant first, then as a variable
    assert len(counter.graphs) <= 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("f", [
    lambda x: x.diff(2, dim=1).sin().sum(),
    lambda x: x.narrow_copy(2, 1, 2).exp().sum(),
    lambda x: (x.narrow_copy(1, 1, 3) * x.diff(dim=1)[:, :3]).tanh().sum(),
], ids=["diff", "narrow_copy", "both"])  # fmt: skip
def test_backward_graphs_know_their_sizes(f, backend) -> None:
    compiled = dynamo.compile(f, backend=backend, dynamic=True)
    for size in (5, 6, 9):
        x = torch.randn(3, size, 7, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        f(x).backward()
        compiled(y).backward()
        assert torch.allclose(x.grad, y.grad, atol=1e-5)


@pytest.mark.parametrize("f", [
    lambda x: x[:math.floor(x.shape[0] * 0.5)],
    lambda x: x[:math.ceil(x.shape[0] / 3)],
    lambda x: x[:int(x.shape[0] * 0.75 + 1)],
    lambda x: x / math.sqrt(x.shape[0]) + x.shape[0] ** 1.5,
    lambda x: x / float(x.shape[0]) + math.trunc(x.shape[0] / 2),
    lambda x: x * (x.shape[0] / 3 // 1.5) - x.shape[0] / 3 % 1.5,
    lambda x: x.new_zeros(max(x.shape[0], 2 * x.shape[1])).cos() * min(x.shape[0], 10),
], ids=range(7))
def test_numbers_made_of_sizes_stay_symbolic(f) -> None:
    """In generated code as well; `max` between sizes is decided when the program runs."""
    graphs = []
    g = dynamo.compile(f, backend=lambda gm, examples: graphs.append(gm) or compile_fx(gm, examples), dynamic=True)
    for n in (8, 11, 13):
        x, y = (torch.arange(n * 6.0).reshape(n, 6).requires_grad_() for _ in range(2))
        want, got = f(x), g(y)
        assert got.shape == want.shape and torch.allclose(got, want)
        if want.requires_grad:
            want.sum().backward(), got.sum().backward()
            assert torch.allclose(x.grad, y.grad)
    assert len(graphs) == 1


def test_whole_parts_of_what_doubles_round_are_computed_before_the_graph() -> None:
    def f(x):
        return x[:math.floor(x.shape[0] * 0.3)]    # floor(10 * 0.3) is 3, though 0.3 is less than three tenths

    g, counter = compiled(f, dynamic=True)
    for n in (10, 20, 30, 7, 99):
        assert same(g(torch.ones(n)), f(torch.ones(n)))
    assert len(counter.graphs) == 1


def test_what_a_backend_asks_of_sizes_is_guarded() -> None:
    def backend(gm, examples):
        large = bool(next(e for e in examples if isinstance(e, torch.Tensor)).shape[0] > 10)
        return lambda *inputs: tuple([out * 0 + large for out in gm(*inputs)])

    g = dynamo.compile(lambda x: x + 1, backend=backend, dynamic=True)
    assert [g(torch.ones(n)).max().item() for n in (8, 9, 11, 10)] == [0, 0, 1, 0]


def test_negative_ints_vary_too(monkeypatch) -> None:
    monkeypatch.setattr(dynamo.config, "recompile_limit", 40)

    def f(x, n, k):
        n = n + k
        if n > 5:
            return x + 1, n
        return x * n, n // 3, n % 4, abs(n)

    g, counter = compiled(f)
    for n in range(-40, 12, 3):
        for k in (-7, 3, 11):
            assert same(g(torch.ones(3), n, k), f(torch.ones(3), n, k)), (n, k)
    assert len(counter.graphs) <= 4  # of 54 calls: the branch asks for one bit


BOTH_SIGNS = {
    # name: (a function of 20 numbers and an int of either sign, the most graphs of it)
    "a factor": (lambda x, n: x * n, 2),
    "an absolute value": (lambda x, n: x + abs(n), 2),
    "a part of a size that is never negative": (lambda x, n: x[: abs(n) % 12 + 1] * 2, 2),
    "a rest": (lambda x, n: x[n % 7:] * n, 2),
    "a quotient": (lambda x, n: x * (n // 3), 2),
    "the larger one": (lambda x, n: x[: max(n, 0)].sum() + n, 2),
    "a rotation": (lambda x, n: x.roll(n), 2),
    "a branch": (lambda x, n: x * (n if n >= 0 else -n), 3),
    "an index": (lambda x, n: x[n], 3),
    "the end": (lambda x, n: x[n:] * 2, 4),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", BOTH_SIGNS)
def test_an_int_of_either_sign_is_one_number(name, backend) -> None:
    """Its sign is in a guard only where the program, or an operator, asks for it."""
    f, most = BOTH_SIGNS[name]
    g, counter = compiled(f) if backend == "eager" else (dynamo.compile(f, backend=backend), None)
    for n in (3, 5, -4, 7, -9, 12, 14, -15, 19, -20, 0, 1, -1):
        assert same(g(torch.arange(20.0), n), f(torch.arange(20.0), n)), n
    assert counter is None or len(counter.graphs) <= most


def test_a_version_whose_guards_refuse_its_own_call_is_not_used(monkeypatch) -> None:
    from flambeau.dynamo import convert

    written = convert._Conversion._write_guard
    monkeypatch.setattr(convert._Conversion, "_write_guard", lambda self: (written(self)[0], lambda *values: False))
    with pytest.warns(UserWarning, match="guards don't hold for the call that they were made for"):
        assert same(dynamo.compile(lambda x: x + 1, backend="eager")(torch.ones(3)), torch.ones(3) + 1)


def test_sums_of_floats_are_not_recompiled() -> None:
    """A loss that is read and summed up: the float is no part of any guard, and the sum is computed by Python."""
    def epoch(xs, log):
        total, best = 0.0, float("inf")
        for i, x in enumerate(xs):
            loss = (x * x).sum().item()
            total += loss * len(x)
            if loss < best:
                best = loss
            log.append((i, total))
        return total / len(xs), best, f"{total:.2f}"

    xs = [torch.arange(4.0) * 0.3 * k for k in (3, 5, 2, 7, 1, 9, 4, 8, 6, 2, 5, 3)]
    log: list = []
    want = epoch(xs, log)
    counter, seen = Counter(), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no limit is reached
        assert same(dynamo.compile(epoch, backend=counter)(xs, seen), want) and seen == log
    assert len(counter.graphs) == 1  # for all rounds


def test_a_float_that_tensors_meet_is_guarded() -> None:
    def f(x, scale, offset):
        rate = scale * 2 + offset
        return x * rate, rate - 1

    compiled = dynamo.compile(f, backend="eager")
    for scale in (0.5, 0.25, -0.0, 3.0, float("inf")):
        assert same(compiled(torch.ones(2), scale, 1), f(torch.ones(2), scale, 1))


def test_nan_that_changes_is_unequal_to_itself() -> None:
    def f(x, a):
        return x + 1, a != a, [a].count(a), a + 1.5

    compiled = dynamo.compile(f, backend="eager")
    for a in (1.0, 2.0, float("nan"), 3.0):
        assert same(compiled(torch.ones(2), a)[:3], f(torch.ones(2), a)[:3])


@pytest.mark.parametrize("part", [lambda x: x[:-2:2], lambda x: x[:x.shape[0] % 4], lambda x: x[:x.shape[0] // 5], lambda x: x[1::4],
                                  lambda x: x[-1:], lambda x: x[:x.shape[0] - 4], lambda x: x.unfold(0, 5, 2)[:, 0]],
                         ids=["steps", "rest", "quotient", "from", "last", "difference", "windows"])
def test_a_part_that_happens_to_be_one_element_is_repeated(part):
    """Its size is an expression, 1 in this call alone; what broadcasts it must not read beyond its end."""
    def f(x):
        return x * part(x), torch.where(part(x) > 0, x, -x), torch.addcmul(part(x), x, part(x)), part(x).expand(x.shape)

    for n in (5, 3, 5):
        x = torch.arange(1.0, n + 1)
        try:
            want = f(x)
        except RuntimeError:
            continue
        for got, right in zip(torch.compile(f, dynamic=True)(x), want):
            assert torch.equal(got, right)


WHERE = {  # what depends on where in its memory a tensor begins
    "storage_offset": lambda x: x + x[1:].storage_offset(), "from where it begins": lambda x: x.as_strided((2,), (1,)),
    "from a place": lambda x: x.as_strided((2,), (1,), 1), "of a part": lambda x: x[1:].as_strided((2,), (1,)),
    "a copy": lambda x: torch.as_strided_copy(x, (2,), (1,)), "a write": lambda x: torch.as_strided_scatter(x, x[:2] * 3, (2,), (1,)),
}


@pytest.mark.parametrize(("name", "backend"), [*[(name, "aot_eager") for name in WHERE], ("a copy", "inductor"), ("of a part", "inductor")])
def test_where_a_tensor_begins_is_guarded_if_it_matters(name, backend):
    for dynamic in (None, True):
        torch._dynamo.reset()
        g = torch.compile(WHERE[name], backend=backend, dynamic=dynamic)
        memory = torch.arange(20.0)
        for x in (memory[2:6], memory[4:8], memory[6:12], memory[1:9]):
            assert torch.equal(g(x), WHERE[name](x)), (dynamic, x._layout)


def test_where_a_tensor_begins_is_no_guard_elsewhere():
    g, counter = compiled(lambda x: x[1:].unfold(0, 2, 1).sum(-1) + x[0])
    memory = torch.arange(20.0)
    for start in (0, 3, 5):
        g(memory[start:start + 6])
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("call", [
    lambda x: torch.nn.functional.conv_transpose2d(x, torch.ones(2, 2, 1, 2), padding=(2, 1)),
    lambda x: torch.nn.functional.max_pool2d(x, 3), lambda x: torch.nn.functional.avg_pool2d(x, 3),
    lambda x: torch.nn.functional.unfold(x, 3)], ids=["conv_transpose2d", "max_pool2d", "avg_pool2d", "unfold"])  # fmt: skip
def test_an_image_that_comes_to_nothing_is_refused(call):
    """Also where sizes are variables."""
    g = torch.compile(call, backend="aot_eager", dynamic=True)
    assert torch.equal(g(torch.ones(1, 2, 8, 9)), call(torch.ones(1, 2, 8, 9)))
    with pytest.raises(RuntimeError, match="Output size is too small"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g(torch.ones(1, 2, 4, 1))


def test_strides_of_nothing_and_of_a_transform():
    """Those of eager, though they hang on sizes that are variables."""
    def f(x, y):
        return x.stride(), torch.fft.fft(y, 3)

    x, y = torch.empty(2, 0).mT, torch.arange(12).reshape(2, 3, 2).permute(2, 0, 1)
    got, right = torch.compile(f, backend="aot_eager", dynamic=True)(x, y), f(x, y)
    assert got[0] == right[0] and got[1].stride() == right[1].stride()


def _numbers(*shape):
    return torch.arange(math.prod(shape)).reshape(shape) % 7 * 1.0


SLICES = {
    "a length of a sequence": lambda n: _numbers(3, 11, 4)[:, :n],
    "of sequences that are longer each time": lambda n: _numbers(n, n + 2, 4)[:, :n],
    "the first of a sequence": lambda n: _numbers(3, n, 4)[:, 0],
    "a column": lambda n: _numbers(3, n)[:, 1],
    "each second": lambda n: _numbers(3, 2 * n)[:, ::2],
    "expanded": lambda n: _numbers(1, n).expand(n + 1, n),
    "turned": lambda n: _numbers(4, 9, 3).transpose(0, 1)[:n, 1:],
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", SLICES)
def test_a_view_with_gaps_whose_sizes_or_strides_vary(name, backend):
    """Two graphs for all: strides that no size tells are numbers, or inputs where they change. Gradients too."""
    weight = torch.ones(1, requires_grad=True)
    graphs = []

    def f(x):
        y = x.sin() * weight
        return y, y.sum(-1), y.reshape(-1), y.contiguous().stride(), x.stride()

    def counted(gm, examples):
        graphs.append(gm)
        return gm.forward if backend == "eager" else compile_fx(gm, examples)

    g = dynamo.compile(f, backend=counted, fullgraph=True)
    for n in (3, 4, 5, 6, 7):
        x = SLICES[name](n)
        right, got = f(x), g(x)
        assert all(torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(right, got, strict=True))
        first, second = (torch.autograd.grad(each[1].sum(), weight)[0] for each in (right, got))
        assert torch.allclose(first, second, atol=1e-4)
    assert len(graphs) == 2


def test_a_marked_size_that_the_program_fixes_is_an_error() -> None:
    def f(x):
        return x * 2 if x.shape[0] == 3 else x

    x = torch.ones(3)
    dynamo.mark_dynamic(x, 0)
    for fullgraph in (False, True):
        with pytest.raises(ConstraintViolationError, match=r"x.shape\[0\] was marked"):
            dynamo.compile(f, backend="eager", fullgraph=fullgraph)(x)
    weakly = torch.ones(3)
    torch._dynamo.maybe_mark_dynamic(weakly, 0)
    assert dynamo.compile(f, backend="eager", fullgraph=True)(weakly).tolist() == [2.0] * 3


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("extreme", [max, min])
def test_extremes_of_several_sizes(extreme, backend) -> None:
    def f(*seqs):
        longest = max(map(len, seqs))
        return torch.stack([torch.nn.functional.pad(s, (0, longest - len(s))) for s in seqs])[:, :extreme(map(len, seqs))]

    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 5), (4, 2, 7), (9, 3, 3)):
        seqs = [torch.arange(float(n)) for n in sizes]
        assert torch.equal(compiled(*seqs), f(*seqs))


SHORTENED = {
    "rest": lambda o, b: o[1:], "rows": lambda o, b: b[o[1:], 0], "of a column": lambda o, b: b[:, 0][o[1:]],
    "with one": lambda o, b: torch.maximum(b[o[0], 0], b[o[1:], 0]),
    "quotient": lambda o, b: b[o[1:], 0] / (b[o[0], 0] + b[o[1:], 1] - b[o[1:], 2]),
    "bounds": lambda o, b: b[o[1:], 0].clamp(min=0) * b[o[1:], 1], "mask": lambda o, b: o[1:][b[o[1:], 0] <= 0.3],
    "where": lambda o, b: torch.where(o[1:] > 2, b[o[0], 0], b[o[1:], 1]), "joined": lambda o, b: torch.cat([o[1:], o[:1]]),
}


@pytest.mark.parametrize("name", SHORTENED)
def test_a_shortened_size_may_become_one(name) -> None:
    """Nothing is asked of what is left of a size, as a loop that takes one element away in each round leaves it."""
    g, counter = compiled(SHORTENED[name])
    torch.manual_seed(0)
    b = torch.rand(9, 4)
    for n in (7, 5, 3, 2):
        o = torch.randperm(n)
        assert same(g(o, b), SHORTENED[name](o, b))
    assert len(counter.graphs) == 2


def test_packed_sequences_of_other_lengths_need_no_other_graphs() -> None:
    """Steps that a sequence hasn't are masked, in the one loop over all steps."""
    net = torch.nn.GRU(2, 3)

    def f(x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, last = net(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(out)[0].sum() + last.sum()

    g, counter = compiled(f)
    counts = []
    for lengths in ([4, 2], [3, 3], [2, 5], [6, 4], [3, 7], [8, 8]):
        x = torch.arange(4.0 * max(lengths)).reshape(-1, 2, 2) / 20
        assert torch.allclose(g(x, torch.tensor(lengths)), f(x, torch.tensor(lengths)))
        counts.append(len(counter.graphs))
    assert counts[2] == counts[-1]
