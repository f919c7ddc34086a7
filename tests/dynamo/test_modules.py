"""nn.Module under torch.compile: state, hooks, training flag, containers, state_dict, pickle, deepcopy."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo, nn


class Block(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.scale = 2.0
        self.calls = 0
        self.register_buffer("offset", torch.ones(width))

    def forward(self, x):
        self.calls += 1
        return self.lin(x) * self.scale + self.offset


class Net(nn.Module):
    def __init__(self, depth: int = 3):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def forward(self, x, head="a"):
        for i, block in enumerate(self.blocks):
            x = block(x) + i
        x = self.seq(x) * self.weights[0]
        return self.heads[head](x)


def inputs():
    return torch.arange(8).reshape(2, 4) * 0.1


def test_one_graph() -> None:
    model = Net()
    result, seen, counter = run(model, inputs())
    assert not seen.breaks, seen.breaks
    assert len(counter.graphs) == 1
    assert same(result, model(inputs()))


def test_attribute_counts() -> None:
    model = Block()
    compiled = dynamo.compile(model, backend="eager")
    for _ in range(3):
        compiled(inputs())
    assert model.calls == 3


def test_gradients_flow() -> None:
    model = Net()
    twin = copy.deepcopy(model)
    dynamo.compile(model, backend="eager")(inputs()).sum().backward()
    twin(inputs()).sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None) and (a.grad is None or same(a.grad, b.grad))


def test_state_is_shared() -> None:
    model = Block()
    compiled = dynamo.compile(model, backend="eager")
    assert isinstance(compiled, Block) and isinstance(compiled, dynamo.OptimizedModule)
    assert compiled.lin is model.lin and compiled._orig_mod is model
    compiled.eval()
    assert not model.training
    other = Block()
    compiled.load_state_dict(other.state_dict())
    assert same(model.lin.weight, other.lin.weight)
    assert same(compiled(inputs()), other(inputs()))


def test_dynamo_ctx_compiles_functions_as_the_module_is_compiled() -> None:
    counter = Counter()
    compiled = dynamo.compile(Block(), backend=counter)
    step = compiled.dynamo_ctx(lambda x: compiled._orig_mod(x).sum())
    assert same(step(inputs()), compiled._orig_mod(inputs()).sum())
    assert len(counter.graphs) == 1


def test_deepcopy_and_pickle() -> None:
    compiled = dynamo.compile(Block(), backend="eager")
    before = compiled(inputs())
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(twin, dynamo.OptimizedModule) and isinstance(twin, Block)
        assert twin.lin is not compiled.lin
        assert same(twin(inputs()), before)


def test_training_flag_recompiles() -> None:
    class M(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x - 1

    counter = Counter()
    model = M()
    compiled = dynamo.compile(model, backend=counter)
    assert same(compiled(inputs()), inputs() + 1)
    model.eval()
    assert same(compiled(inputs()), inputs() - 1)
    model.train()
    compiled(inputs())
    assert len(counter.graphs) == 2


def test_hooks_run() -> None:
    model = Net(1)
    events = []

    def hook(module, args, output):
        events.append(type(module).__name__)
        return output * 2

    model.blocks[0].register_forward_hook(hook)
    model.blocks[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    expected = model(inputs())
    assert events == ["Block"]
    result, seen, _ = run(model, inputs())
    assert same(result, expected) and events == ["Block", "Block"] and not seen.breaks


def test_hook_added_later() -> None:
    model = Net(1)
    compiled = dynamo.compile(model, backend="eager")
    before = compiled(inputs())
    handle = model.seq.register_forward_hook(lambda m, a, out: out * 0)
    assert not same(compiled(inputs()), before)
    handle.remove()
    assert same(compiled(inputs()), before)


def test_buffer_update() -> None:
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return x - self.mean

    check(lambda model, x: model(x), Running(), inputs())


def test_replaced_parameter_and_submodule() -> None:
    model = Block()
    compiled = dynamo.compile(model, backend="eager")
    compiled(inputs())
    model.lin.weight = nn.Parameter(torch.zeros(4, 4))
    assert same(compiled(inputs()), model(inputs()))
    model.lin = nn.Linear(4, 4, bias=False)
    assert same(compiled(inputs()), model(inputs()))


def test_module_as_argument_and_in_containers() -> None:
    def f(x, m, more):
        return m(x) + more["k"][0](x)

    check(f, inputs(), Block(), {"k": [Block()]})


def test_method_of_a_module() -> None:
    class M(Block):
        def encode(self, x):
            return self.lin(x) + 1

    model = M()
    compiled = dynamo.compile(model.encode, backend=(counter := Counter()))
    assert same(compiled(inputs()), model.encode(inputs())) and len(counter.graphs) == 1


def test_getattr_fallbacks() -> None:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.maybe = None

        def forward(self, x):
            if hasattr(self, "later"):
                return x * 3
            if self.maybe is not None or getattr(self, "bias", None) is not None:
                return x * 2
            return x + 1

    model = M()
    compiled = dynamo.compile(model, backend="eager")
    assert same(compiled(inputs()), inputs() + 1)
    model.later = 1
    assert same(compiled(inputs()), inputs() * 3)


def test_graph_break_inside_a_submodule() -> None:
    class Chatty(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            x = self.lin(x)
            dynamo.graph_break()
            return x + 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Chatty(), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x * 2)) * 3

    model = Outer()
    result, seen, counter = run(model, inputs())
    assert same(result, model(inputs()))
    assert len(counter.graphs) == 4 and len(seen.breaks) == 2


def test_parameters_and_named_children_iterate() -> None:
    def f(x, m):
        total = x
        for p in m.parameters():
            total = total + p.sum()
        names = [name for name, _ in m.named_children()]
        return total, names

    check(f, inputs(), Block(), graphs=None, breaks=None)


def test_weight_tying() -> None:
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    result, _, counter = run(model, inputs())
    assert same(result, model(inputs()))
    placeholders = [n for n in counter.graphs[0].graph.nodes if n.op == "placeholder"]
    assert len(placeholders) == 4


def test_module_compile_in_place() -> None:
    model = Block()
    before = model(inputs())
    model.compile(backend="eager")
    assert same(model(inputs()), before)


def test_save_and_load_of_a_compiled_module() -> None:
    compiled = dynamo.compile(Block(), backend="eager")
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    fresh = dynamo.compile(Block(), backend="eager")
    fresh.load_state_dict(torch.load(buffer))
    assert same(fresh(inputs()), compiled(inputs()))


def test_nested_compile() -> None:
    inner = dynamo.compile(Block(), backend="eager")

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + 1

    model = Outer()
    result, _, counter = run(model, inputs())
    assert same(result, model(inputs())) and len(counter.graphs) == 1


@pytest.mark.parametrize("bad", [3, "text", None.__class__])
def test_bad_argument(bad) -> None:
    if callable(bad):
        return
    with pytest.raises(TypeError, match="needs a callable"):
        dynamo.compile(bad)


def test_module_made_inside() -> None:
    def f(x, y):
        return nn.CrossEntropyLoss()(x, y) + nn.Linear(4, 2, bias=False).in_features

    seen = check(lambda x: nn.MSELoss()(x, x + 1), inputs())
    assert not seen.breaks
    run(f, inputs(), torch.tensor([0, 1]))


def test_an_average_over_all_batches_is_one_graph() -> None:
    """BatchNorm without a momentum divides by its count of batches, which stays a tensor."""
    norms = [torch.nn.BatchNorm1d(3, momentum=None) for _ in range(2)]
    compiled = torch.compile(norms[0], backend="aot_eager", fullgraph=True)
    for k in range(4):
        x = torch.arange(12.0).reshape(4, 3) * (k + 1) ** 2
        torch.testing.assert_close(compiled(x), norms[1](x))
    torch.testing.assert_close(norms[0].state_dict(), norms[1].state_dict())


def test_a_transposed_convolution_of_a_given_size_is_one_graph() -> None:
    m, x = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), torch.randn(1, 2, 5, 5)
    compiled = torch.compile(lambda x: m(x, output_size=(10, 10)), backend="aot_eager", fullgraph=True)
    same(compiled(x), m(x, output_size=(10, 10)))


PARAMETERS_TAKEN = {
    "clip_grad_norm_": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5),
    "clip_grad_value_": lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.5),
    "get_total_norm": lambda m: nn.utils.get_total_norm(p.grad for p in m.parameters()),
    "clip_grads_with_norm_": lambda m: nn.utils.clip_grads_with_norm_(m.parameters(), 0.5, torch.tensor(3.0)),
    "parameters_to_vector": lambda m: nn.utils.parameters_to_vector(m.parameters()),
    "vector_to_parameters": lambda m: nn.utils.vector_to_parameters(torch.ones(6), m.parameters()),
}


@pytest.mark.parametrize("name", PARAMETERS_TAKEN)
def test_what_takes_parameters_takes_their_generator_in_one_graph(name: str) -> None:
    take, results = PARAMETERS_TAKEN[name], []
    for compiled in (False, True):
        m = nn.Linear(2, 2)
        for i, p in enumerate(m.parameters()):
            p.data.fill_(i + 1)
            p.grad = torch.full_like(p, i + 2.0)
        made = (torch.compile(take, backend="eager", fullgraph=True) if compiled else take)(m)
        results.append([made, [(p.detach(), p.grad) for p in m.parameters()]])
    assert same(*results)
