"""What is saved between forward and backward, and what is computed again."""

import numpy as np

import flambeau as torch
from flambeau import fx
from flambeau.aot.joint import LEAF, trace
from flambeau.aot.partition import partition, value_bytes
from flambeau.aot.passes import CLEAN_UP


def data(*shape, grad=True):
    tensor = torch.from_numpy(np.ones(shape, np.float32))
    return tensor.requires_grad_() if grad else tensor


def split(f, *inputs):
    program = trace(fx.symbolic_trace(f), inputs, (), [LEAF if t.requires_grad else 0 for t in inputs])
    fx.PassManager(CLEAN_UP, check=True)(program.module())
    made = partition(program.graph, program.interface.results, program.tangents, [program.inputs[i] for i in program.interface.written])
    made.forward.lint()
    made.backward.lint()
    return made


def called(graph):
    return [n.target.name for n in graph.nodes if n.op == "call_function"]


def saved_bytes(made):
    return sum(value_bytes(n.meta["val"]) for n in made.saved)


def test_a_chain_of_cheap_steps_is_computed_again():
    made = split(lambda x: torch.sin(torch.exp(torch.sin(x * 2))).sum(), data(1000))
    assert [n.name for n in made.saved] == ["primals_1"] and made.saved_primals == [0] and not made.saved_results
    assert called(made.backward).count("exp") == 1


def test_nothing_is_saved_that_need_not_be():
    made = split(lambda x: x.sum() * 2, data(1000))
    assert saved_bytes(made) == 0


def test_a_reduced_value_is_saved_and_what_it_is_made_of_is_not():
    def f(x, w):
        mean = (x * w).mean(0, keepdim=True)
        return (mean * mean).sum()

    made = split(f, data(1000, 8, grad=False), data(1, 8))
    assert [value_bytes(n.meta["val"]) for n in made.saved if n.op != "placeholder"] == [32]


def test_masks_are_saved_rather_than_floats():
    def f(x, y):
        keep = torch.rand_like(x) > 0.5
        return torch.where(keep, x * 2, y).sum()

    made = split(f, data(1000), data(1000))
    assert saved_bytes(made) == 1000
    assert not any("philox" in name for name in called(made.backward))


def test_residuals_between_products_are_saved_not_added_up_again():
    def f(x, a, b, c):
        y = x + torch.sin(x) @ a
        z = y + torch.sin(y) @ b
        return (z + torch.sin(z) @ c).sum()

    made = split(f, data(64, 64), *(data(64, 64) for _ in range(3)))
    residuals = [n.name for n in made.forward.nodes if n.op == "call_function" and n.target.name == "add"]
    kept = {n.name for n in made.saved}
    assert set(residuals[:-1]) <= kept and residuals[-1] not in kept


def test_what_a_product_in_backward_reads_is_not_computed_again():
    made = split(lambda x, w: (torch.tanh(x) @ w).sum(), data(64, 64), data(64, 64))
    assert "tanh" not in called(made.backward) and any(n.target.name == "tanh" for n in made.saved if n.op == "call_function")


def test_results_are_saved_once():
    def f(x):
        y = torch.exp(x.sum(0))
        return y, y * 2

    made = split(f, data(3, 4))
    assert len(made.forward.output_node().args[0]) == 2 + len(made.saved) - len(made.saved_primals) - len(made.saved_results)


def test_overwritten_inputs_are_saved_as_copies():
    def f(x, w):
        y = torch.sin(x * 1) * w
        x.add_(1)
        return y

    made = split(f, data(3, grad=False), data(3))
    assert 0 not in made.saved_primals


def test_work_for_backward_alone_is_done_in_backward():
    made = split(lambda x: torch.sin(x), data(10))
    assert called(made.forward) == ["sin"] and "cos" in called(made.backward)


def test_gradients_that_depend_on_nothing():
    made = split(lambda x, y: x + y, data(3), data(3))
    assert saved_bytes(made) == 0 and called(made.backward) == []


def test_a_product_is_saved_with_its_bias():
    made = split(lambda x, w, b: torch.sin(x @ w + b).sum(), data(64, 64), data(64, 64), data(64))
    assert [n.target.name for n in made.saved if n.op == "call_function"] == ["add"]


def test_much_work_is_not_done_twice():
    made = split(lambda x: (torch.lgamma(x) * torch.lgamma(x)).sum(), data(1000))
    assert called(made.forward).count("lgamma") == 1 and "lgamma" not in called(made.backward)
    made = split(lambda x: (torch.exp(x) * torch.exp(x)).sum(), data(1000))
    assert "exp" in called(made.backward)
