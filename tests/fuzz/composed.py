"""Calls that a signature does not tell: factors multiplied together again, blocks of autocast, modules and their states, optimizer steps,
lists of tensors, sparse layouts. Each is a function written as an expression, so that a script of it stands by itself."""

from __future__ import annotations

from collections.abc import Callable

from .draw import Draw
from .special import _float, of_rank

Arguments = Callable[[Draw], tuple[tuple, dict]]


def _floats(low: int, high: int) -> Arguments:
    """A float of so many dimensions, none of them empty."""

    def draw(d: Draw) -> tuple[tuple, dict]:
        shape = [max(1, d.size()) for _ in range(d.int(low, high))]
        fits = lambda t: low <= t.ndim <= high and t.is_floating_point() and t.numel()
        return (d.tensor(fits, lambda: d.fresh(shape, _float(d))),), {}

    return draw


def _pair(d: Draw) -> tuple[tuple, dict]:
    """Two floats of one shape and dtype."""
    first = _floats(1, 3)(d)[0][0]
    d.it = d.value(first)
    return (first, d.like()), {}


def _product(d: Draw) -> tuple[tuple, dict]:
    """Two matrices that can be multiplied."""
    first = of_rank(2, 2, 1)(d)
    d.it = d.value(first)
    return (first, d.fresh((d.it.shape[1], d.int(1, 4)))), {}


def _matrix(d: Draw) -> tuple[tuple, dict]:
    """A matrix, or several, in a dtype that LAPACK has; of moderate numbers."""
    lead = (2,) if d.chance(0.3) else ()
    return (d.fresh((*lead, d.int(1, 4), d.int(1, 4)), d.choice(["float32", "float64", "complex64", "complex128"]), "normal"),), {}


def _image(d: Draw) -> tuple[tuple, dict]:
    return (d.fresh((2, 4, d.int(2, 4), d.int(2, 4)), d.choice(["float32", "float64", "bfloat16"]), "normal"),), {}


def _sequence(d: Draw) -> tuple[tuple, dict]:
    return (d.fresh((d.int(1, 3), d.int(1, 3), 4), "float32", "normal"),), {}


def _stack(d: Draw) -> tuple[tuple, dict]:
    """As `_image`, of float32, some channels last."""
    return (d.fresh((2, 4, d.int(3, 4), d.int(3, 4)), "float32", "normal"),), {}


def _with_numbers(module: str) -> str:
    """A module whose parameters are spread over an interval, called in training and then otherwise, with its state in between."""
    call = CALLED.get(module.partition("(")[0], "m(x)")
    first = f"{call}, " if "Lazy" in module else ""      # which makes its parameters
    spread = "p.data.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape))"
    return f"(lambda x: [[{first}[{spread} for p in m.parameters()][:0], {call}, *[s.clone() for s in m.state_dict().values()], " \
           f"(m.eval(), {call})[1]][{int(bool(first))}:] for m in [torch.nn.{module}]][0])"


def _smooth(d: Draw) -> tuple[tuple, dict]:
    shape = [max(1, d.size()) for _ in range(d.int(1, 2))]
    return (d.fresh(shape, d.choice(["float32", "float64"]), "normal"),), {}


FACTORS = {
    "torch.linalg.qr(x)": "q @ r for q, r in", "torch.linalg.svd(x, full_matrices=False)": "(u * s) @ v for u, s, v in",
    "torch.linalg.eigh(x @ x.mH)": "(v * w) @ v.mH for w, v in", "torch.linalg.lu(x)": "p @ l @ u for p, l, u in",
    "torch.svd(x)": "(u * s) @ v.mH for u, s, v in", "torch.lu_unpack(*torch.linalg.lu_factor(x))": "p @ l @ u for p, l, u in",
}
NARROW = 'torch.autocast("cpu", dtype=torch.{kind})'
PRODUCTS = ("torch.matmul", "torch.mm", "(lambda a, b: torch.nn.functional.linear(a, b.t()))", "(lambda a, b: (a @ b).exp().sum())",
            "(lambda a, b: torch.cat([a, (a @ b)[:, :1]], 1))")
SINGLE = ("torch.exp", "(lambda x: x.softmax(-1))", "torch.sum", "torch.norm", "torch.nn.functional.gelu", "torch.prod")
WIDE = ("(lambda x: x.sin())", "(lambda x: x / 2)", "(lambda x: x * 0.5)", "(lambda x: torch.ones(2) + torch.arange(0, 1, 0.5))")
OPTIMIZERS = ("SGD([w], lr=0.1)", "SGD([w], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)", "Adam([w], lr=0.1)",
              "Adam([w], lr=0.1, amsgrad=True, weight_decay=0.1)", "AdamW([w], lr=0.1, maximize=True)",
              "RMSprop([w], momentum=0.5, centered=True)", "Adagrad([w], lr_decay=0.1)",
              "Adadelta([w])", "Adamax([w])", "NAdam([w], weight_decay=0.1)", "RAdam([w], lr=0.1)", "Rprop([w])",
              "ASGD([w], lr=0.1)")
MODULES = ("BatchNorm2d(4, momentum=0.3, dtype=x.dtype)", "BatchNorm2d(4, affine=False, momentum=None, dtype=x.dtype)",
           "InstanceNorm2d(4, affine=True, track_running_stats=True, dtype=x.dtype)", "GroupNorm(2, 4, dtype=x.dtype)",
           "LayerNorm(x.shape[-1], dtype=x.dtype)", "RMSNorm(x.shape[-1], dtype=x.dtype)", "PReLU(4, dtype=x.dtype)", "Softmax2d()",
           "GLU(1)", "Dropout(0.0)", "Sequential(torch.nn.Hardtanh(-0.5, 0.5), torch.nn.AvgPool2d(2), torch.nn.Flatten(2))",
           "ChannelShuffle(2)", "PixelShuffle(2)", "LocalResponseNorm(2)", "AdaptiveAvgPool2d((2, None))", "Unflatten(1, (2, 2))",
           "ZeroPad2d(1)")
# Modules with parameters, all of the same numbers in both libraries, of an input (n, 4, ...) or (n, steps, 4).
OF_IMAGES = ("Conv2d(4, 3, 2, stride=2, padding=1)", "Conv2d(4, 4, 3, padding='same', groups=2, bias=False)",
             "Conv2d(4, 2, 2, padding=1, padding_mode='circular', dilation=2)", "ConvTranspose2d(4, 2, 3, stride=2, output_padding=1)",
             "Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True))",
             "utils.parametrizations.weight_norm(torch.nn.Conv2d(4, 3, 1))", "LazyConv2d(3, 2)")
OF_SEQUENCES = ("Linear(4, 3)", "LSTM(4, 3, num_layers=2, batch_first=True)", "GRU(4, 3, bidirectional=True)", "RNN(4, 2, nonlinearity='relu')",
                "LSTM(4, 3, proj_size=2)", "TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True, norm_first=True)",
                "TransformerEncoderLayer(4, 2, 5, dropout=0.0, activation='gelu')", "BatchNorm1d(4)", "Bilinear(4, 4, 3)",
                "MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)", "AdaptiveLogSoftmaxWithLoss(4, 5, [2])")
CALLED = {"Bilinear": "m(x, x.flip(0))", "MultiheadAttention": "m(x, x, x)", "AdaptiveLogSoftmaxWithLoss": "m.log_prob(x.flatten(0, 1))",
          "BatchNorm1d": "m(x.transpose(1, 2))"}
SMOOTH = "(lambda a: (a.sin() * a).cumsum(0))"
TRANSFORMS = (f"torch.func.jvp({SMOOTH}, (x,), (x,))", f"torch.func.vjp({SMOOTH}, x)[1](x)[0]",
              f"torch.func.grad(lambda a: {SMOOTH}(a).sum())(x)",
              f"torch.func.jacrev({SMOOTH})(x)", f"torch.func.jacfwd({SMOOTH})(x)", "torch.func.vmap(lambda a: a.sort(-1).values, -1, -1)(x)",
              f"torch.func.vmap(torch.func.grad(lambda a: {SMOOTH}(a.flatten()).sum()))(x)",
              f"torch.func.hessian(lambda a: {SMOOTH}(a).sum())(x)",
              f"torch.utils.checkpoint.checkpoint({SMOOTH}, x, use_reentrant=False)",
              "torch.func.functional_call(torch.nn.PReLU(dtype=x.dtype), {'weight': x.flatten()[:1] * 0.5}, (x,))",
              f"torch.autograd.functional.vjp({SMOOTH}, x, x)[1]")
BEHIND_AUTOGRAD = ("(x.transpose(0, -1).mul_(2), x)[1]", "(x[..., :1].add_(1), x * 1)[1]", "(x.diagonal().zero_(), x.sum())[1]",
                   "(x.unfold(-1, 1, 1).neg_(), x + x)[1]")
MIXED = ("x * 2 + 1.5 + True", "(x + 1) / torch.tensor(3) * 0.5 ** 2", "torch.tensor(2.5, dtype=torch.float64) * x - torch.tensor(1)",
         "(x > 0) * 3 + x.sum().long()", "torch.where(x > 0, 1, 2.5) + torch.tensor(True)", "x.mean() * torch.arange(3) + 1j",
         "torch.stack([x.sum(), x.max()]).to(torch.float16) * torch.tensor(3.0)", "2 ** torch.arange(3) - x.amin()",
         "(torch.tensor([1, 2], dtype=torch.int8) + 300 * 0) * x.prod()", "torch.add(x.int(), 2.5) % torch.tensor(2)",
         "torch.cat([x.flatten(), torch.tensor([1, 2])]).cumsum(0) // 2", "x.clamp(torch.tensor(-1.0, dtype=torch.float64), 1)")
SPARSE = {
    "(lambda x: (x.to_sparse() * 2).to_dense())": _floats(1, 3),
    "(lambda x: torch.sparse.sum(x.to_sparse(), 0).to_dense())": _floats(2, 3),
    "(lambda x: torch.sparse.softmax(x.to_sparse(), -1).to_dense())": _floats(2, 3),
    "(lambda x, y: (x.to_sparse() + y.to_sparse()).to_dense())": _pair,
    "(lambda x, y: torch.sparse.mm(x.to_sparse(), y))": _product, "(lambda x, y: x.to_sparse_csr() @ y)": _product,
    "(lambda x: x.to_sparse().coalesce().values().neg())": _floats(1, 3), "(lambda x: x.to_sparse().t().to_dense())": _floats(2, 2),
    "(lambda x: x.to_sparse().indices())": _floats(1, 3), "(lambda x, y: (x.to_sparse() * y.to_sparse()).to_dense())": _pair,
}


def calls() -> dict[str, Arguments]:
    """What is called, and how its arguments are drawn."""
    made: dict[str, Arguments] = {}
    for kind in ("bfloat16", "float16"):
        made |= {f"{NARROW.format(kind=kind)}({name})": _product for name in PRODUCTS}
        made |= {f"{NARROW.format(kind=kind)}({name})": _floats(1, 3) for name in SINGLE}
    double, single = (f"torch.set_default_dtype(torch.{kind})" for kind in ("float64", "float32"))
    made |= {f"(lambda x: ({double}, {name}(x), {single})[1])": lambda d: ((d.tensor(),), {}) for name in WIDE}
    made |= {f"(lambda x: [[m(x), *[s.clone() for s in m.state_dict().values()], m.eval()(x)] for m in [torch.nn.{name}]][0])": _image
             for name in MODULES}
    made |= {_with_numbers(module): draw for names, draw in ((OF_IMAGES, _stack), (OF_SEQUENCES, _sequence)) for module in names}
    made |= {f"(lambda x: {text})": _smooth for text in TRANSFORMS}
    made |= {f"(lambda x: {text})": _floats(1, 3) for text in MIXED}
    made |= {f"torch.no_grad()(lambda x: {text})": _floats(2, 3) for text in BEHIND_AUTOGRAD}
    return made


def eager_calls() -> dict[str, Arguments]:
    """As `calls`, not to be compiled or differentiated: a compiled optimizer counts its steps in float32; to torch all of a list requires
    grad; gradients of factors are those of what they make, and of what is sparse none are drawn."""
    made: dict[str, Arguments] = {f"(lambda x: [{product} [{factors}]][0])": _matrix for factors, product in FACTORS.items()}
    made |= {f'(lambda x, g: [(setattr(w, "grad", g.clone()), o.step(), o.step(), w.detach())[-1] for w in '
             f"[torch.nn.Parameter(x.detach().clone())] for o in [torch.optim.{name}]][0])": _pair for name in OPTIMIZERS}
    return made | SPARSE
