"""as_strided counts in the whole memory: of what was written, it sees what lies around the view that it is taken of."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import dynamo

VIEWS = {
    "every other": lambda x: x[::2], "later ones": lambda x: x[2:], "columns": lambda x: x.view(2, -1)[:, 1:],
    "a row": lambda x: x.view(2, -1)[1],
    "transposed": lambda x: x.view(2, -1).t()[1:], "diagonal": lambda x: x.view(2, -1)[:, :2].diagonal(),
    "expanded": lambda x: x[:1].expand(3),
    "a view of a view": lambda x: x[1:][::3], "strided": lambda x: x.as_strided((2,), (3,), 1), "bytes": lambda x: x.view(torch.int32)[::2],
}  # fmt: skip


def read(x, b):
    return b.as_strided((3,), (1,), 1) * 1


def read_after_a_write(x, b):
    x.mul_(2)
    return b.as_strided((3,), (1,), 1) * 1, b * 1


def read_after_a_write_to_the_view(x, b):
    b[:1] *= 3
    return b.as_strided((3,), (1,), 1) * 1, x * 1


def write(x, b):
    b.as_strided((3,), (1,), 1).mul_(2)
    return b * 1, x * 1, b.as_strided((2,), (2,), 0) * 1


def write_twice(x, b):
    b.as_strided((2,), (2,), 0).add_(5)
    b.as_strided((4,), (1,), 0)[1:].mul_(2)
    return b * 1, x + 1


def outcome(f, recording):
    w = torch.arange(1.0, 9).requires_grad_(recording)
    out = f(w)
    results = out if isinstance(out, tuple) else (out,)
    if results[0].requires_grad:
        sum((r * r).sum() for r in results if r.requires_grad).backward()
    return [r.tolist() for r in results], None if w.grad is None else w.grad.tolist()


READS, WRITES = [read, read_after_a_write, read_after_a_write_to_the_view], [write, write_twice]
CASES = [(program, view, recording) for program in READS for view in VIEWS for recording in (False, True)]
CASES = [case for case in CASES if case[1:] != ("bytes", True)]      # integers have no gradient
CASES += [(program, view, recording) for program in WRITES for view in VIEWS if view != "bytes" for recording in (False, True)]


@pytest.mark.parametrize(("program", "view", "recording"), CASES)
def test_what_lies_around_a_view(program, view, recording):
    def f(w):
        x = w * 1
        return program(x, VIEWS[view](x))

    dynamo.reset()
    assert outcome(dynamo.compile(f, backend="aot_eager"), recording) == outcome(f, recording)


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("program", [*READS, *WRITES])
def test_what_lies_around_every_view_natively(program, recording):
    """In one graph, which is compiled once."""
    views = [view for what, view, how in CASES if (what, how) == (program, recording)]

    def f(w):
        found = ()
        for view in views:
            x = w * 1
            out = program(x, VIEWS[view](x))
            found += out if isinstance(out, tuple) else (out,)
        return found

    dynamo.reset()
    assert outcome(dynamo.compile(f, backend="inductor", fullgraph=True), recording) == outcome(f, recording)


GIVEN = {
    "rows": lambda: torch.arange(12.0).reshape(3, 4), "the middle": lambda: torch.arange(24.0)[6:18].reshape(3, 4),
    "columns": lambda: torch.arange(12.0).reshape(4, 3).t(), "selected": lambda: torch.arange(24.0).reshape(2, 3, 4).select(0, 0),
    "a number": lambda: torch.arange(3.0)[1], "with gaps": lambda: torch.arange(24.0).reshape(3, 8)[:, ::2],
    "expanded": lambda: torch.arange(4.0)[1:2].expand(3), "nothing": lambda: torch.arange(8.0)[2:2],
}  # fmt: skip
LAYOUTS = [((2, 2), (2, 1), 1), ((3,), (1,), 0), ((1, 1), (2, 1), 1), ((), (), 2), ((2,), (1,), 9), ((0,), (1,), 1)]


def refused_or_given(program, x, layout):
    try:
        return [t.tolist() for t in (*program(x, layout), x)]
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("given", GIVEN)
def test_around_what_a_program_is_given(given, writes):
    """Of a view that is an input: what lies around it is there, or refused, as in eager mode."""
    def program(x, layout):
        if writes:
            x.mul_(3)
        return torch.as_strided_scatter(x, torch.full(layout[0], -1.0), *layout), x.as_strided(*layout) * 2

    for layout in LAYOUTS:
        if given == "expanded" and writes:
            continue    # which refuses writes
        dynamo.reset()
        compiled = dynamo.compile(program, backend="aot_eager")
        assert refused_or_given(compiled, GIVEN[given](), layout) == refused_or_given(program, GIVEN[given](), layout)


def test_a_view_is_written_with_a_gradient_after_the_graph():
    """No input of the graph has one: what the view is of may get one later, unless it was made without gradients on purpose."""
    def first(x):
        return x.transpose(0, 1)

    def apart(x):
        with torch.no_grad():
            return x.transpose(0, 1)

    x, w = torch.ones(2, 3), torch.ones(3, 2, requires_grad=True)
    torch.compile(first)(x).mul_(w)
    x.sum().backward()
    assert w.grad.tolist() == [[1, 1]] * 3
    with torch.no_grad():
        before = torch.compile(first)(torch.ones(2, 3))
    for view in (before, torch.compile(apart)(torch.ones(2, 3))):
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            view.mul_(w)


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64], ids=str)
def test_views_that_a_number_in_a_tensor_chooses(kind):
    """Where they lie is known when they are run: what hangs on it is not captured."""
    x = torch.arange(6).to(kind).reshape(3, 2, 1)
    for program in (lambda x, i: x[i].as_strided((1, 2), (2, 1)) * 1, lambda x, i: (x[i] * 1, x[i].storage_offset()),
                    lambda x, i: x[i].as_strided((1, 2), (2, 1), 2) * 1, lambda x, i: x[i] + 1):
        for number in (0, 2, -1):
            got, want = (run(x, torch.tensor(number)) for run in (torch.compile(program), program))
            assert repr(got) == repr(want)


def test_copies_that_are_given_out_may_be_written():
    """What the backward graph needs is not a copy that a user has, though the two are equal."""
    def program(x):
        state = x.detach() * 2
        return (x * state.clone().rsqrt()).sum(), state.clone()

    for run in (program, torch.compile(program), torch.compile(program, backend="aot_eager")):
        x = torch.tensor([2.0, 8.0], requires_grad=True)
        out, copy = run(x)
        copy.zero_()
        out.backward()
        assert x.grad.tolist() == [0.5, 0.25]
