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


def _lists(d: Draw) -> tuple[tuple, dict]:
    """Two lists of tensors, by pairs of one shape."""
    pairs = [_pair(d)[0] for _ in range(d.int(1, 3))]
    return ([a for a, _ in pairs], [b for _, b in pairs]), {}


def _list(d: Draw) -> tuple[tuple, dict]:
    return (_lists(d)[0][0],), {}


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
LISTS = ("add", "sub", "mul", "div", "maximum", "clamp_min", "pow")
OF_A_LIST = ("sqrt", "neg", "exp", "abs", "norm", "sigmoid", "reciprocal", "sign", "frac")
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
    return made


def eager_calls() -> dict[str, Arguments]:
    """As `calls`, not to be compiled or differentiated: a compiled optimizer counts its steps in float32; to torch all of a list requires
    grad; gradients of factors are those of what they make, and of what is sparse none are drawn."""
    made: dict[str, Arguments] = {f"(lambda x: [{product} [{factors}]][0])": _matrix for factors, product in FACTORS.items()}
    made |= {f'(lambda x, g: [(setattr(w, "grad", g.clone()), o.step(), o.step(), w.detach())[-1] for w in '
             f"[torch.nn.Parameter(x.detach().clone())] for o in [torch.optim.{name}]][0])": _pair for name in OPTIMIZERS}
    made |= {f"torch._foreach_{name}": _lists for name in LISTS} | {f"torch._foreach_{name}": _list for name in OF_A_LIST}
    return made | SPARSE
