"""Calls of the libraries beside the operators: modules with no parameters or few, distributions, windows, what works on lists of tensors,
optimizers with needs of their own. As in `composed.py`, each is a function written as an expression."""

from __future__ import annotations

from collections.abc import Callable

from .draw import Draw

Arguments = Callable[[Draw], tuple[tuple, dict]]
FLOATS = ("float32", "float32", "float64", "bfloat16")


def _drawn(*lead: int, spatial: int = 0, dtypes: tuple[str, ...] = FLOATS, count: int = 1) -> Arguments:
    """So many tensors of one shape, `lead` and some spatial sizes, and of one dtype, of moderate numbers."""

    def draw(d: Draw) -> tuple[tuple, dict]:
        shape = (*lead, *(d.int(4, 6) for _ in range(spatial)))
        dtype = d.choice(dtypes)
        return tuple(d.fresh(shape, dtype, "normal") for _ in range(count)), {}

    return draw


def _any(count: int = 1, dtypes: tuple[str, ...] = FLOATS) -> Arguments:
    def draw(d: Draw) -> tuple[tuple, dict]:
        return _drawn(*(d.size() for _ in range(d.int(1, 3))), dtypes=dtypes, count=count)(d)

    return draw


def _one_of(*options: object) -> Arguments:
    """An argument that is one of these, and two more lengths."""
    return lambda d: ((d.choice(options), d.size(), d.size()), {})


ELEMENTWISE = (
    "CELU(0.5)", "ELU(1.5)", "GELU()", "GELU('tanh')", "Hardshrink(0.3)", "Hardswish()", "LeakyReLU(0.2)", "LogSigmoid()",
    "Mish()", "ReLU6()", "SELU()", "SiLU()", "Sigmoid()", "Softplus(2,3)", "Softshrink(0.2)", "Softsign()", "Tanh()", "Tanhshrink()",
    "Threshold(0.1,-2)", "Identity()", "Softmax(-1)", "Softmin(0)", "LogSoftmax(-1)", "Flatten(0)", "RReLU().eval()", "AlphaDropout().eval()",
    "Dropout1d().eval()", "Hardtanh(-1,0.5)")
OF_SPACE = {
    1: """AvgPool1d(2,padding=1) MaxPool1d(2,stride=1,dilation=2) LPPool1d(2,2) AdaptiveAvgPool1d(3) AdaptiveMaxPool1d(2) CircularPad1d(1)
        ConstantPad1d((1,-1),0.5) ReflectionPad1d(2) ReplicationPad1d((0,3)) ZeroPad1d(1) InstanceNorm1d(4,dtype=x.dtype)
        BatchNorm1d(4,dtype=x.dtype) Upsample(scale_factor=2,mode='linear') MaxPool1d(2,return_indices=True,ceil_mode=True)""",
    2: """AvgPool2d(2,ceil_mode=True,count_include_pad=False) MaxPool2d(3,1,1,return_indices=True) LPPool2d(1,2,ceil_mode=True)
        AdaptiveAvgPool2d((None,2)) AdaptiveMaxPool2d(3,return_indices=True) CircularPad2d((1,0,2,1)) ConstantPad2d(-1,2) ReflectionPad2d(1)
        ReplicationPad2d(2) Upsample(size=(3,7)) UpsamplingNearest2d(scale_factor=2) UpsamplingBilinear2d(size=5) PixelUnshuffle(1)
        Unfold(2,dilation=2,padding=1,stride=2) Softmax2d() Upsample(scale_factor=(0.5,2),mode='bicubic',align_corners=True)""",
    3: """AvgPool3d(2,1,divisor_override=3) MaxPool3d(2,stride=1) LPPool3d(2,2) AdaptiveAvgPool3d((2,None,1)) AdaptiveMaxPool3d(2)
        CircularPad3d(1) ConstantPad3d(1,0.1) ReflectionPad3d(1) ReplicationPad3d(1) ZeroPad3d((1,0,0,1,0,0)) BatchNorm3d(4,dtype=x.dtype)
        InstanceNorm3d(4,affine=True,dtype=x.dtype) Upsample(scale_factor=2,mode='trilinear')""",
}
# module -> the target that it is called with, of x and y of one shape
LOSSES = {
    **dict.fromkeys(("L1Loss()", "MSELoss(reduction='sum')", "SmoothL1Loss(beta=0.5)", "HuberLoss('sum', 0.7)", "KLDivLoss('batchmean')",
                     "KLDivLoss('sum', log_target=True)", "PoissonNLLLoss(full=True)", "CosineSimilarity(0)", "PairwiseDistance(1)"), "y"),
    **dict.fromkeys(("BCEWithLogitsLoss()", "PoissonNLLLoss(log_input=False, reduction='none')"), "y.sigmoid()"),
    **dict.fromkeys(("HingeEmbeddingLoss(0.5)", "SoftMarginLoss()"), "y.sign()"),
    "GaussianNLLLoss(full=True)": "y, (x * y).exp()", "MarginRankingLoss(0.3)": "y, y.sign()",
    "MultiLabelSoftMarginLoss()": "(y > 0).to(x.dtype)",
}
OF_ROWS = {
    **dict.fromkeys(("CrossEntropyLoss(label_smoothing=0.1)", "NLLLoss(reduction='sum')", "MultiMarginLoss(p=2)"), "y.argmax(-1)"),
    "CrossEntropyLoss(ignore_index=1)": "y.argmax(-1)", "CrossEntropyLoss(reduction='none')": "y.softmax(-1)",
    "MultiLabelMarginLoss()": "y.argsort(-1)", "CosineEmbeddingLoss(0.2)": "y, y[:, 0].sign()", "TripletMarginLoss(swap=True)": "y, x + y",
    "TripletMarginWithDistanceLoss(distance_function=torch.nn.PairwiseDistance(1))": "y, y * 2", "PairwiseDistance(3, keepdim=True)": "y",
}
CELLS = ("GRUCell(4, 3)", "LSTMCell(4, 2)", "RNNCell(4, 4)", "LazyLinear(3)", "Embedding(5, 4, max_norm=1.0)", "EmbeddingBag(5, 2, mode='max')",
         "TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True)", "TransformerEncoder(torch.nn.TransformerEncoderLayer("
         "4, 1, 3, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False)")
CALLED = {"Embedding": "m(x.argsort(-1))", "EmbeddingBag": "m(x[0].argsort(-1))", "GRUCell": "m(x[0])", "LSTMCell": "m(x[0])",
          "RNNCell": "m(x[0])", "TransformerDecoderLayer": "m(x, x.flip(1))"}

# distribution of a and b -> the values that it is asked of
DISTRIBUTIONS = {
    **dict.fromkeys(("Normal(a, b.exp())", "Laplace(a, b.exp())", "Cauchy(a, b.exp())", "Gumbel(a, b.exp())", "StudentT(b.exp() + 2, a)",
                     "Independent(Normal(a, b.exp()), 1)",
                     "MultivariateNormal(a, scale_tril=torch.eye(3, dtype=a.dtype) * 2)", "LowRankMultivariateNormal(a, a[..., None], b.exp())",
                     "TransformedDistribution(Normal(a, b.exp()), [AffineTransform(1, 2)])"), "v"),
    **dict.fromkeys(("LogNormal(a, b.exp())", "HalfNormal(b.exp())", "HalfCauchy(b.exp())", "Exponential(b.exp())", "Chi2(b.exp())",
                     "Gamma(a.exp(), b.exp())", "InverseGamma(a.exp() + 2, b.exp())", "FisherSnedecor(a.exp(), b.exp() + 4)",
                     "Weibull(a.exp(), b.exp())", "TransformedDistribution(Normal(a, b.exp()), [ExpTransform()])"), "v.exp()"),
    **dict.fromkeys(("Beta(a.exp(), b.exp())", "Kumaraswamy(a.exp(), b.exp())", "ContinuousBernoulli(logits=a)",
                     "RelaxedBernoulli(torch.tensor(0.5), logits=a)", "TransformedDistribution(Normal(a, b.exp()), [SigmoidTransform()])"),
                    "v.sigmoid()"),
    **dict.fromkeys(("Poisson(a.exp())", "Geometric(logits=a)", "NegativeBinomial(3, logits=a)"), "v.abs().floor()"),
    "Binomial(4, logits=a)": "v.abs().floor().clamp(max=4)", "Bernoulli(logits=a)": "(v > 0).to(v.dtype)",
    "Categorical(logits=a)": "v.argmax(-1)",
    "OneHotCategorical(logits=a)": "torch.nn.functional.one_hot(v.argmax(-1), 3).to(v.dtype)", "Dirichlet(a.exp())": "v.softmax(-1)",
    "Uniform(a, a + b.exp())": "a + b.exp() * v.sigmoid()", "Pareto(a.exp(), b.exp())": "a.exp() + v.exp()",
    "Multinomial(2, logits=a)": "torch.nn.functional.one_hot(v.argmax(-1), 3).to(v.dtype) * 2",
    "MixtureSameFamily(Categorical(logits=a), Normal(a, b.exp()))": "v[..., 0]",
}
# what a distribution is asked beside, and which have no answer
ANSWERS = ("d.mean", "d.variance", "d.entropy()", "d.cdf({})")
# where a variance is infinite its gradient is nobody's, and near a half a continuous Bernoulli's has few digits
_NO_MOMENTS = ("TransformedDistribution", "RelaxedBernoulli", "Pareto", "ContinuousBernoulli")
_NO_ENTROPY = (*_NO_MOMENTS, "FisherSnedecor", "Binomial", "NegativeBinomial", "Poisson", "Multinomial", "MixtureSameFamily")
LACKING = dict(zip(ANSWERS, (_NO_MOMENTS, _NO_MOMENTS, _NO_ENTROPY, (
    *_NO_ENTROPY, "StudentT", "Independent", "MultivariateNormal", "LowRankMultivariateNormal", "Chi2", "Gamma", "InverseGamma", "Beta",
    "Geometric", "Bernoulli", "Categorical", "OneHotCategorical", "Dirichlet"))))
DIVERGENCES = ("Normal({}, {}.exp())", "Laplace({}, {}.exp())", "Gamma({}.exp(), {}.exp())", "Beta({}.exp(), {}.exp())", "Gumbel({}, {}.exp())",
               "Exponential({}.exp() + {}.exp())", "Bernoulli(logits={} + {})", "Categorical(logits={} - {})", "Dirichlet(({} + {}).exp())",
               "Poisson({}.exp() * {}.exp())", "Geometric(logits={} * {})")
TRANSFORMS = ("ExpTransform()", "SigmoidTransform()", "TanhTransform()", "SoftplusTransform()", "AffineTransform(0.5, -2.0)", "AbsTransform()",
              "SoftmaxTransform()", "StickBreakingTransform()", "CumulativeDistributionTransform(torch.distributions.Normal(0.0, 2.0))",
              "ComposeTransform([torch.distributions.AffineTransform(1, 2), torch.distributions.TanhTransform()])")

WINDOWS = ("bartlett(n)", "blackman(n, sym=False)", "cosine(n)", "exponential(n, tau=2.5)", "gaussian(n, std=0.7, sym=False)",
           "general_cosine(n, a=[0.5, 0.3, 0.2])", "general_hamming(n, alpha=0.6)", "hamming(n)", "hann(n, sym=False)", "kaiser(n, beta=7.5)",
           "nuttall(n, dtype=torch.float64)")
KINDS = (
    "torch.float16", "torch.bfloat16", "torch.float64", "torch.complex64", "torch.uint8", "torch.int8", "torch.int32", "torch.bool",
    "torch.uint16")
OF_DTYPES = {
    **{f"(lambda x: [torch.result_type(x, other) for other in (1, 2.5, 1j, True, torch.tensor(1.0), torch.ones(2, dtype={kind}))])": _any(
        dtypes=("float32", "int64", "uint8", "bool", "complex64")) for kind in KINDS},
    **{f"(lambda x: [(torch.promote_types(x.dtype, {kind}), torch.can_cast(x.dtype, {kind}), torch.can_cast({kind}, x.dtype))])": _any(
        dtypes=("float32", "int64", "uint8", "bool", "complex64")) for kind in KINDS},
    "(lambda k, m, n: list(torch.broadcast_shapes((k, m, n), (m, 1), (), (n,))))": _one_of(1, 2, 3),
}

OF_LISTS = (
    "add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow", "copy_", "add_", "sub_", "mul_", "div_", "maximum_",
    "minimum_", "clamp_min_", "clamp_max_", "pow_")
OF_A_LIST = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p",
    "log2", "max", "neg", "norm", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "clone")
NUMBERED = tuple(f"{name}(x, {number})" for name in ("add", "sub", "mul", "div", "clamp_min", "maximum", "pow", "add_", "mul_")
                 for number in (2, 0.5, "[1.5] * len(x)"))
OF_THREE = ("addcmul(x, y, x, 0.5)", "addcdiv(x, y, y, [2.0] * len(x))", "lerp(x, y, 0.25)", "lerp(x, y, x)",
            "addcmul_(x, y, y)", "lerp_(x, y, 0.7)",
            "norm(x, 1)", "norm(y, float('inf'))", "zero_(x)", "add(x, y, alpha=2)", "sub_(x, y, alpha=0.5)")
OPTIMIZERS = ("Adafactor([w], lr=0.1)", "Muon([w], lr=0.1)", "SGD([w], lr=0.5, momentum=0.5, dampening=0.2, maximize=True)",
              "Adam([{'params': [w], 'lr': 0.3, 'betas': (0.5, 0.9)}])", "RMSprop([w], maximize=True)", "AdamW([w], amsgrad=True)")
SCHEDULES = ("StepLR(o, 1, 0.5)", "MultiStepLR(o, [1, 3])", "ExponentialLR(o, 0.9)", "CosineAnnealingLR(o, 3)", "LinearLR(o, total_iters=2)",
             "OneCycleLR(o, 0.4, total_steps=5)", "CyclicLR(o, 0.1, 0.4, 2, cycle_momentum=False)", "PolynomialLR(o, 4, 2)",
             "ConstantLR(o, 0.2, 2)", "CosineAnnealingWarmRestarts(o, 2)", "LambdaLR(o, lambda n: 0.8 ** n)")
ON_GRADIENTS = ("clip_grad_norm_([w], 0.5)", "clip_grad_value_([w], 0.3)", "clip_grad_norm_([w], 1.0, norm_type=float('inf'))",
                "get_total_norm([w.grad], 1)")


SEGMENTS = {"lengths=torch.tensor([len(x) // 2, 0, len(x) - len(x) // 2])": ("sum", "mean", "max", "min", "prod"),
            "offsets=torch.tensor([0, 1, 1, len(x)]), initial=1.5": ("sum", "max", "prod"),
            "lengths=torch.tensor([1, 1]), unsafe=True": ("mean",),
            "lengths=torch.tensor([[1, x.shape[1] - 1]] * len(x)), axis=1": ("sum", "min")}


def _in_full(text: str) -> str:
    """A distribution with its names written in full, that takes what it is given."""
    for name in ("Normal(", "Categorical(", "AffineTransform(", "ExpTransform(", "SigmoidTransform("):
        text = text.replace(f"({name}", f"(torch.distributions.{name}").replace(f" {name}", f" torch.distributions.{name}").replace(
            f"[{name}", f"[torch.distributions.{name}")
    return f"torch.distributions.{text[:-1]}, validate_args=False)"


def calls() -> dict[str, Arguments]:
    """What is called, and how its arguments are drawn."""
    made: dict[str, Arguments] = {f"(lambda x: torch.nn.{name}(x))": _any() for name in ELEMENTWISE}
    made["(lambda x: torch.nn.GLU(0)(x))"] = _drawn(4, 3)
    for spatial, names in OF_SPACE.items():
        made |= {f"(lambda x: torch.nn.{name}(x))": _drawn(2, 4, spatial=spatial) for name in names.split()}
    made |= {f"(lambda x, y: torch.nn.{name}(x, {target}))": draw for table, draw in (
        (LOSSES, _drawn(3, 2, count=2)), (OF_ROWS, _drawn(3, 4, count=2, dtypes=("float32", "float64")))) for name, target in table.items()}
    for name in CELLS:
        call = CALLED.get(name.partition("(")[0], "m(x)")
        made[f"(lambda x: [{call} for m in [torch.nn.{name}] for _ in [{call if 'Lazy' in name else 0}, [p.data.copy_(torch.linspace(-1, 1, "
             "p.numel()).reshape(p.shape)) for p in m.parameters()]]][-1])"] = _drawn(2, 3, 4, dtypes=("float32",))
    for text, value in DISTRIBUTIONS.items():
        name = text.partition("(")[0]
        answers = f"d.log_prob({value}), " + ", ".join(a.format(value) for a in ANSWERS if name not in LACKING[a])
        made[f"(lambda a, b, v: [({answers}) for d in [{_in_full(text)}]][0])"] = _drawn(2, 3, dtypes=("float32", "float64"), count=3)
    made |= {f"(lambda a, b, c: torch.distributions.kl_divergence({_in_full(text.format('a', 'b'))}, {_in_full(text.format('b', 'c'))}))":
             _drawn(2, 3, dtypes=("float32", "float64"), count=3) for text in DIVERGENCES}
    made |= {f"(lambda x: [(t(x), t.inv(t(x)), t.log_abs_det_jacobian(x, t(x)) if t.bijective else 0) for t in "
             f"[torch.distributions.{text}]][0])": _drawn(2, 3, dtypes=("float32", "float64")) for text in TRANSFORMS}
    made |= {f"(lambda x: torch.segment_reduce(x, '{mode}', {cuts}))": _drawn(3, 2, spatial=1) for cuts, modes in SEGMENTS.items()
             for mode in modes}
    made |= {f"(lambda n: torch.signal.windows.{text})": lambda d: ((d.int(1, 9),), {}) for text in WINDOWS}
    return made


def _some(count: int) -> Arguments:
    """So many lists of tensors, of one shape by their places."""
    def draw(d: Draw) -> tuple[tuple, dict]:
        lists = list(zip(*(_any(count, ("float32", "float64", "bfloat16"))(d)[0] for _ in range(d.int(1, 3)))))
        return tuple(list(items) for items in lists), {}
    return draw


def eager_calls() -> dict[str, Arguments]:
    """As `calls`, not to be compiled or differentiated."""
    made: dict[str, Arguments] = {**OF_DTYPES, **{f"torch._foreach_{name}": _some(2) for name in OF_LISTS}}
    made |= {f"torch._foreach_{name}": _some(1) for name in OF_A_LIST}
    made |= {f"(lambda x: (torch._foreach_{text}, x))": _some(1) for text in NUMBERED} | {
        f"(lambda x, y: (torch._foreach_{text}, x))": _some(2) for text in OF_THREE}
    matrices = _drawn(3, 4, dtypes=("float32",), count=2)
    made |= {f'(lambda x, g: [(setattr(w, "grad", g.clone()), o.step(), o.step(), w.detach())[-1] for w in '
             f"[torch.nn.Parameter(x.detach().clone())] for o in [torch.optim.{text}]][0])": matrices for text in OPTIMIZERS}
    made |= {f"(lambda x: [[(o.step(), s.step(), s.get_last_lr()[0])[-1] for _ in range(4)] for o in [torch.optim.SGD([torch.nn.Parameter("
             f"x.detach())], lr=0.5)] for s in [torch.optim.lr_scheduler.{text}]][0])": _drawn(2) for text in SCHEDULES}
    made |= {f'(lambda x, g: [(setattr(w, "grad", g.clone()), torch.nn.utils.{text}, w.grad)[1:] for w in '
             f"[torch.nn.Parameter(x.detach().clone())]][0])": matrices for text in ON_GRADIENTS}
    made["(lambda x, y: [[torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(both) * 2, both), both] for both in "
         "[[x.clone(), y.clone()]]][0])"] = matrices
    made["(lambda x, g: [(o.step(lambda: [o.zero_grad(), [(l.backward(), l)[1] for l in [((w - g) ** 2).sum()]][0]][1]), w.detach())[1] for w "
         "in [torch.nn.Parameter(x.detach().clone())] for o in [torch.optim.LBFGS([w], lr=0.5, max_iter=3)]][0])"] = matrices
    return made
