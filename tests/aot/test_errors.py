"""What goes wrong while a graph is traced or run: the error is eager's, says where, and leaves nothing behind."""


import functools

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx
from flambeau.aot import Observers, aot_compile, aot_eager, interpret, make_fx
from flambeau.core import dispatch
from tests.threads import in_threads


def data(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_shape_errors_are_eagers_with_the_line():
    gm = fx.symbolic_trace(lambda x, y: (x * 2) @ y)
    gm.graph.find_nodes(op="call_function")[1].meta["stack"] = (("model.py", 3, "forward", "return (x * 2) @ y"),)
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        aot_eager(gm, [data(3, 4), data(3, 4)])
    assert any('File "model.py", line 3, in forward' in note for note in caught.value.__notes__)
    assert not dispatch.state.modes and not dispatch.state.word and not dispatch.state.fake and dispatch.state.grad_enabled
    assert (data(3) + 1)._data is not None


def test_a_compiler_that_fails_leaves_nothing_behind():
    def fails(gm, inputs):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        aot_compile(fx.symbolic_trace(lambda x: x + 1), [data(3)], forward_compiler=fails)
    assert not dispatch.state.word
    assert aot_eager(fx.symbolic_trace(lambda x: x + 1), [data(3)])(data(3)).shape == (3,)


def test_an_error_in_compiled_code_restores_grad_mode():
    def breaks(gm, inputs):
        def run(arguments):
            raise FloatingPointError("broken")

        return run

    x = data(3).requires_grad_()
    f = aot_compile(fx.symbolic_trace(lambda x: x + 1), [x], forward_compiler=breaks)
    with pytest.raises(FloatingPointError):
        f(x)
    assert dispatch.state.grad_enabled


def test_what_cannot_be_compiled_runs_as_it_was_captured_and_says_so(caplog):
    """Shapes that hang on values, draws from one's own generator, writes to what was captured, another layout of an input."""
    captured = data(3)
    functions = {
        "nonzero": lambda x: (x + 1).nonzero(), "Generator": lambda x: x + torch.rand(3, generator=torch.Generator().manual_seed(5)),
        "captured": lambda x: captured.fill_(2) + x, "shape, strides or storage": lambda x: x.resize_(1),
    }
    for reason, f in functions.items():
        graph = fx.Graph()
        graph.output(graph.call_function(f, (graph.placeholder("x"),)))
        with caplog.at_level("DEBUG", "flambeau.graph_breaks"):
            compiled = aot_eager(fx.GraphModule({}, graph), [data(3)])
        assert reason in caplog.text, reason
        caplog.clear()
        for seed in (0, 1):
            np.testing.assert_array_equal(compiled(data(3, seed=seed)).numpy(), f(data(3, seed=seed)).numpy())


def test_a_compiler_that_has_no_code_for_a_graph_leaves_it_as_it_was_captured():
    def lacks(gm, inputs):
        raise NotImplementedError("no code")

    x = data(3).requires_grad_()
    compiled = aot_compile(fx.symbolic_trace(lambda x: x * x), [x], forward_compiler=lacks)
    compiled(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy())


def test_a_fake_tensor_from_elsewhere_is_refused():
    stray = torch.empty(3, device="meta")
    graph = fx.Graph()
    graph.output(graph.call_function(lambda x: x.to("meta") + stray, (graph.placeholder("x"),)))
    with pytest.raises(RuntimeError, match="made outside of this trace"):
        aot_eager(fx.GraphModule({}, graph), [torch.empty(3, device="meta")])


def test_observers_see_every_stage():
    seen = []
    Observers.listening.append(observer := lambda stage, gm: seen.append((stage, len(gm.graph.nodes))))
    try:
        aot_eager(fx.symbolic_trace(lambda x: torch.sin(x)), [data(3).requires_grad_()])
        aot_eager(fx.symbolic_trace(lambda x: torch.sin(x)), [data(3)])
    finally:
        Observers.listening.remove(observer)
    assert [stage for stage, _ in seen] == ["joint", "forward", "backward", "inference"]


def test_under_another_trace_the_captured_graph_is_seen():
    f = aot_eager(fx.symbolic_trace(lambda x: torch.sin(x) * 2), [data(3)])
    gm = make_fx(lambda x: f(x) + 1)(data(3))
    assert [n.target.name for n in gm.graph.find_nodes(op="call_function")] == ["sin", "mul", "add"]


def test_threads_compile_apart():
    found = {}

    def work(i):
        x = data(4, seed=i).requires_grad_()
        f = aot_eager(fx.symbolic_trace(lambda x: torch.exp(x).sum() * i), [x])
        for _ in range(20):
            x.grad = None
            f(x).backward()
        found[i] = np.allclose(x.grad.numpy(), np.exp(x.detach().numpy()) * i, rtol=1e-5)

    in_threads(*[functools.partial(work, i) for i in range(1, 5)])
    assert found == dict.fromkeys(range(1, 5), True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_dtypes(dtype):
    x = data(3, 4).to(getattr(torch, dtype))
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))

    def f(x):
        return (x * x + 1).sum(0) * 0.5

    got, want = aot_eager(fx.symbolic_trace(f), [mine])(mine), f(theirs)
    assert got.dtype is want.dtype and (got == want).all()
    weights = torch.ones(4).to(got.dtype)
    (got * weights).sum().abs().backward()
    (want * weights).sum().abs().backward()
    np.testing.assert_allclose(
        mine.grad.to(torch.complex64 if "complex" in dtype else torch.float32).numpy(),
        theirs.grad.to(torch.complex64 if "complex" in dtype else torch.float32).numpy(),
        rtol=1e-2 if "16" in dtype else 1e-6,
    )


def test_interpret_is_a_compiler():
    gm = fx.symbolic_trace(lambda x: (x + 1, x * 2))
    made = aot_compile(gm, [data(3)], forward_compiler=interpret)
    assert [t.tolist() for t in made(data(3))] == [(data(3) + 1).tolist(), (data(3) * 2).tolist()]
