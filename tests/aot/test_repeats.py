"""Equal blocks of a deep network are compiled once, and the program means what it meant."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.aot import repeats
from flambeau.inductor import graph as graphs
from flambeau.inductor.graph import config
from flambeau.nn import functional as F

WIDTH, HEADS = 32, 4


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, steps, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.dropout(self.out(mixed))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Residual(nn.Module):
    """A block that writes: to the statistics of its norm, and to a buffer."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        y = F.relu(self.norm(self.conv(x)))
        return (x + F.relu(self.norm(self.conv(y)))).clamp(-3, 3)


class Recurrent(nn.Module):
    """A loop over the elements of a sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], WIDTH)
        seen = []
        for step in x:
            h, c = self.cell(step, (h, c))
            seen.append(h)
        return torch.stack(seen)


class Looped(nn.Module):
    """The same weights again and again, the input written in place on the way: what an earlier block may have saved."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = x * 1
        for _ in range(20):
            x.add_(0.5)
            y = torch.tanh(self.a(y)) + self.b(F.silu(y)) + x
            y[..., 0] = 1
        return y


class Autocast(nn.Sequential):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


class Frozen(nn.Sequential):
    """Gradients are wanted from the middle on."""

    def forward(self, x):
        with torch.no_grad():
            x = self[0](x)
        for block in list(self)[1:]:
            x = block(x)
        return x


def images():
    return torch.randn(2, 4, 6, 6)


def tokens():
    return torch.randn(2, 8, WIDTH)


CASES = {
    "attention": (lambda: nn.Sequential(*[Attention() for _ in range(10)]), tokens, True),
    "input with gradient": (lambda: nn.Sequential(*[Attention() for _ in range(10)]), lambda: tokens().requires_grad_(), True),
    "between others": (lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), *[Attention() for _ in range(10)], nn.LayerNorm(WIDTH)),
                       tokens, True),
    "two stacks": (lambda: nn.Sequential(*[Attention() for _ in range(8)], *[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(),
                   nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH)) for _ in range(14)]), tokens, True),
    "writes to buffers": (lambda: nn.Sequential(*[Residual() for _ in range(14)]), images, True),
    "steps": (Recurrent, lambda: torch.randn(40, 2, WIDTH), True),
    "writes in place": (Looped, tokens, False),
    "autocast inside": (lambda: Autocast(*[Attention() for _ in range(10)]), tokens, False),
    "frozen": (lambda: Frozen(*[Attention() for _ in range(10)]), tokens, True),
    "pointwise": (lambda: nn.Sequential(*[nn.Sequential(nn.Tanh(), nn.SiLU()) for _ in range(80)]), tokens, False),
}


@pytest.fixture(autouse=True)
def _cut_small_ones(monkeypatch):
    """Blocks are worth a call here, however small."""
    monkeypatch.setattr(repeats, "WORK", 0)
    monkeypatch.setattr(repeats, "LEAST_RATIO", min(repeats.LEAST_RATIO, 1))
    monkeypatch.setattr(config, "cache", False)
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def compiled_nodes(monkeypatch):
    """The number of nodes of each graph that is compiled."""
    found: list[int] = []
    monkeypatch.setattr(graphs, "listening", [lambda graph: found.append(len(graph.gm.graph.nodes))])
    return found


@pytest.fixture
def cuts(monkeypatch):
    """The graphs that are cut into blocks."""
    found: list[repeats.Chain] = []

    class Noted(repeats.Chain):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(repeats, "Chain", Noted)
    return found


def _copy(model, make):
    other = make()
    other.load_state_dict(model.state_dict())
    return other


def _results(call, model, x):
    """The result, and the gradients of what asks for some."""
    y = call(x)
    if y.requires_grad:
        y.float().square().mean().backward()
    return [y.detach(), x.detach(), *model.buffers(), *[p.grad for p in model.parameters()], x.grad]


def _equal(got, expected, atol=2e-5):
    for one, other in zip(got, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=atol, rtol=1e-3)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_deep_program_is_what_it_is_eagerly(name, dynamic, cuts):
    make, given, cut = CASES[name]
    model = make()
    reference, x = _copy(model, make), given()
    compiled = torch.compile(model, dynamic=dynamic, fullgraph=True)
    for _ in range(2):
        other = x.detach().clone().requires_grad_(x.requires_grad)
        mine = x.detach().clone().requires_grad_(x.requires_grad)
        _equal(_results(compiled, model, mine), _results(reference, reference, other), 2e-2 if "autocast" in name else 2e-5)
    if not dynamic:
        assert bool(cuts) == cut


@pytest.mark.parametrize("training", [False, True])
def test_nodes_that_are_compiled_do_not_grow_with_depth(training, compiled_nodes):
    counts = []
    for depth in (8, 32):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *[Attention() for _ in range(depth)], nn.LayerNorm(WIDTH)).train(training)
        torch._dynamo.reset()
        compiled_nodes.clear()
        with torch.set_grad_enabled(training):
            torch.compile(model)(tokens())
        counts.append(sum(compiled_nodes))
    assert counts[0] == counts[1]


class Two(nn.Module):
    """A block with a result that has a history only where its input has one."""

    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(depth)])

    def forward(self, x):
        noted = []
        for layer in self.layers:
            noted.append(x.sin())
            x = layer(x)
        return x, noted


def test_the_first_block_is_served_by_the_others_variant(compiled_nodes):
    """What the first block is given needs no gradient: it is one program all the same, unless that can be told from its results."""
    model = nn.Sequential(*[Attention() for _ in range(12)])
    reference, x = _copy(model, lambda: nn.Sequential(*[Attention() for _ in range(12)])), tokens().detach()
    compiled = torch.compile(model)
    for _ in range(2):
        got, expected = (_results(call, owner, x) for call, owner in ((compiled, model), (reference, reference)))
        assert got[-1] is None
        _equal(got, expected, 1e-3)
    assert len(compiled_nodes) == 2     # a forward and a backward graph

    model = Two(12)
    y, noted = torch.compile(model)(x)
    assert [t.requires_grad for t in (y, *noted)] == [True, False] + [True] * 11


class Regions(nn.Module):
    """One function that is called for each layer, marked as a region."""

    def __init__(self, depth, mark):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(depth)])
        self.region = mark(lambda layer, x: layer(x) * layer.norms[0].weight.mean())

    def forward(self, x):
        for layer in self.layers:
            x = self.region(layer, x)
        return x


def test_a_region_is_compiled_once_as_equal_blocks_are(compiled_nodes):
    """torch.compiler.nested_compile_region promises what is done without it: guards and gradients are those of the function."""
    counts = []
    for depth in (10, 24):
        model = Regions(depth, torch.compiler.nested_compile_region)
        plain = Regions(depth, lambda region: region)
        plain.load_state_dict(model.state_dict())
        torch._dynamo.reset()
        compiled_nodes.clear()
        x = tokens()
        _equal(_results(torch.compile(model, fullgraph=True), model, x), _results(plain, plain, x), 1e-3)
        counts.append(sum(compiled_nodes))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("training", [False, True])
def test_small_regions_are_compiled_once_and_called(training, cuts):
    """Wherever they stand, between whatever else; what is not equal to another (a shape, a setting) is a piece of its own."""
    @torch.compiler.nested_compile_region
    def gate(x, w, k=1):
        y = torch.sigmoid(x * w)
        return x * y + k, y

    def program(x, w, v):
        x, y = gate(x, w)
        x = (x @ x.T).relu()
        x, z = gate(x, v)
        u, _ = gate(x, v, k=3)
        t, _ = gate(u[:2], w[:2])
        s, _ = gate(u.tanh(), w)
        return x, y + z.sum(), u, t, s

    given = [torch.randn(3, 3) for _ in range(3)]
    mine, plain = ([t.clone().requires_grad_(training) for t in given] for _ in range(2))
    got, expected = torch.compile(program, fullgraph=True)(*mine), program(*plain)
    if training:
        for results in (got, expected):
            sum(t.square().sum() for t in results).backward()
    _equal([*got, *[t.grad for t in mine]], [*expected, *[t.grad for t in plain]])
    (chain,) = cuts
    kinds = [step.piece for step in reversed(chain.steps)]
    named = dict(zip(dict.fromkeys(kinds), "abcdefg"))
    assert "".join(named[kind] for kind in kinds) == "abacdefag"     # the products, views and sums between are b, d, f and g


def test_a_region_may_be_any_callable():
    layer = nn.Linear(3, 3)
    region = torch.compiler.nested_compile_region(layer)
    marked = torch.compiler.nested_compile_region(max_reuse_entries=2)(lambda x: x.sin())
    x = torch.randn(2, 3)
    torch.testing.assert_close(torch.compile(lambda x: marked(region(region(x))), fullgraph=True)(x), layer(layer(x)).sin())
    torch.testing.assert_close(region(x), layer(x))


def test_a_seed_fixes_what_dropout_draws(cuts):
    model = nn.Sequential(*[Attention(dropout=0.5) for _ in range(10)])
    compiled, x = torch.compile(model), tokens()
    compiled(x)
    torch.manual_seed(7)
    got = _results(compiled, model, x)
    for p in model.parameters():
        p.grad = None
    torch.manual_seed(7)
    _equal(_results(compiled, model, x)[:2], got[:2])
    assert not torch.equal(compiled(x), compiled(x))
    assert cuts


def test_blocks_of_different_width_stay_apart(compiled_nodes):
    """A run ends where the shapes change, though the operators are the same."""
    widths = [8] * 25 + [16] * 25
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh(), nn.LayerNorm(b), nn.SiLU(), nn.Linear(b, b), nn.ReLU())
              for a, b in zip([8, *widths], widths)]
    model, x = nn.Sequential(*layers), torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(model)(x), model(x), atol=1e-5, rtol=1e-4)
    assert len(compiled_nodes) >= 6


def test_parameters_that_change_hands_and_stop_asking_for_gradients():
    model = nn.Sequential(*[Attention() for _ in range(10)])
    reference = _copy(model, lambda: nn.Sequential(*[Attention() for _ in range(10)]))
    compiled, x = torch.compile(model), tokens()
    compiled(x)
    for net in (model, reference):
        for block in list(net)[3:6]:
            block.requires_grad_(False)
        with torch.no_grad():
            net[4].up.weight.mul_(2)
    _equal(_results(compiled, model, x), _results(reference, reference, x))


def test_what_is_handed_on_is_freed():
    """No value outlives its last reader."""
    import weakref

    kept: list = []

    class Noted(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return torch.tanh(self.lin(torch.tanh(self.lin(x))))

    model = nn.Sequential(*[Noted() for _ in range(40)])
    run = repeats.Chain.__call__
    compiled = torch.compile(model)
    with torch.no_grad():
        compiled(tokens())

    def watched(self, *args):
        pieces = self.pieces
        self.pieces = [lambda *a, piece=piece: (kept.append(sum(ref() is not None for ref in refs)),
                                                refs.extend(map(weakref.ref, out := piece(*a))), out)[2] for piece in pieces]
        refs: list = []
        try:
            return run(self, *args)
        finally:
            self.pieces = pieces

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(repeats.Chain, "__call__", watched)
        compiled(tokens())
    assert len(kept) >= 20 and max(kept) <= 2


def test_the_setting_keeps_a_graph_whole(compiled_nodes):
    model = nn.Sequential(*[Attention() for _ in range(10)])
    with torch.no_grad():
        torch.compile(model, options={"repeats": False})(tokens())
    assert len(compiled_nodes) == 1
