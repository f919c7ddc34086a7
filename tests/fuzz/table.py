"""The table of operators: how each is written and how its arguments are drawn. Most rows are read from the signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import flambeau
from flambeau.ops.registry import is_operator

from . import composed, indexing, library, special
from .draw import Draw
from .inputs import DTYPES
from .layers import LAYERS
from .matrices import MATRICES
from .parameters import PARAMETERS, Skip
from .program import Word

SPECIAL = {**special.SPECIAL, **LAYERS, **MATRICES}

MODULES = ("torch", "torch.nn.functional", "torch.Tensor", "torch.linalg", "torch.special", "torch.fft")
REQUIRED = inspect.Parameter.empty


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Not drawn, and why.
RANDOM = words("""
    bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial normal normal_ poisson rand
    rand_like randint randint_like randn randn_like randperm random_ uniform_ dropout dropout_ native_dropout
    alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout feature_alpha_dropout_ dropout1d
    dropout2d dropout3d rrelu rrelu_ gumbel_softmax fractional_max_pool2d fractional_max_pool3d
""")
UNINITIALISED = words("""
    empty empty_like empty_strided new_empty new_empty_strided resize_ resize_as_ empty_permuted
""")
HOST = words("""
    from_numpy frombuffer from_dlpack set_rng_state asarray as_tensor tensor new_tensor scalar_tensor numpy set_ data
    pin_memory share_memory_ record_stream apply_ map_ map2_ storage untyped_storage data_ptr requires_grad_ retain_grad
    backward register_hook detach_ from_file
""")
# Eigenvectors and the like are fixed up to a factor only, and a tie may go either way: what is left of them is in tests/ops.
UNDETERMINED = words("""
    eig eigvals eigh svd lstsq geqrf lu lu_factor lu_factor_ex ldl_factor ldl_factor_ex linalg_svd
    lu_unpack ldl_solve pca_lowrank svd_lowrank lobpcg histogramdd qr
""")
INTERNAL = words("""
    affine_grid_generator grid_sampler grid_sampler_2d grid_sampler_3d embedding_renorm_ native_group_norm
    native_channel_shuffle native_batch_norm range convolution
""")
# torch reads and writes beyond what it is given where a class is not there, as in programs made small.
UNCHECKED = words("ctc_loss")
# Views that count the writes to them each by itself; here they are split's.
APART = words("unsafe_chunk unsafe_split unsafe_split_with_sizes")
EXCLUDED = RANDOM | UNINITIALISED | HOST | UNDETERMINED | INTERNAL | UNCHECKED | APART

SKIPPED = words("""
    out device layout pin_memory requires_grad generator size_average cudnn_enabled cudnn_enable
    kwargs named keyword params ignored _random_samples sparse_grad
""")

# Callables that the registry does not call operators, or whose own signature says nothing, or draws random numbers where an argument is
# left out: theirs. What ends in ? may be left out; what begins with = is given by its name.
EXTRA = {
    "torch.Tensor": """
        permute(self,dims) reshape(self,shape) type_as(self,other) t_(self) transpose_(self,dim0,dim1)
        squeeze_(self,dim) unsqueeze_(self,dim) swapaxes_(self,axis0,axis1) swapdims_(self,dim0,dim1) where(self,condition,other)
        bool(self) float(self) double(self) half(self) bfloat16(self) int(self) long(self) short(self) byte(self) char(self)
        cfloat(self) cdouble(self) resolve_conj(self) item(self) tolist(self) is_contiguous(self) numel(self) stride(self) size(self)
        dim(self) is_floating_point(self) storage_offset(self) is_complex(self) element_size(self) polygamma(self,n)
        view(self,shape) is_signed(self) sum_to_size(self,normalized_shape) type(self,dtype) dim_order(self) nelement(self)
        ndimension(self) is_inference(self) get_device(self) index_copy(self,dim,index,source)
        narrow_copy(self,dim,start,length) histogram(self,bins,=range?,=weight?,=density?)
        to_dense(self) cpu(self) __len__(self) __bool__(self) __float__(self) __int__(self)
        __complex__(self) __index__(self) __contains__(self,value) __reversed__(self) new_tensor(self,data)
    """,
    "torch.nn.functional": """
        softmax(input,dim) log_softmax(input,dim) softmin(input,dim) relu(input) tanh(input) sigmoid(input)
        normalize(input,p?,dim?,eps?) dropout(input,=training,=p,=inplace?) alpha_dropout(input,=training,=p,=inplace?)
        feature_alpha_dropout(input,=training,=p) rrelu(input,lower?,upper?) grouped_mm(mat_a,mat_b,=offs)
        triplet_margin_with_distance_loss(anchor,positive,negative,=margin?,=swap?,=reduction?)
        embedding_bag(input,weight,offsets,mode?,per_sample_weights?,include_last_offset?,padding_idx?)
        upsample(input,size,scale_factor,mode?)
    """,
    "torch": """
        as_strided_(input,size,stride) is_floating_point(input) is_complex(input) numel(input) broadcast_to(input,size)
        where(condition,input,other) softmax(input,dim) log_softmax(input,dim) relu(input) tanh(input) sigmoid(input)
        celu(input) selu(input)
        bartlett_window(window_length,periodic?) blackman_window(window_length,periodic?) hann_window(window_length,periodic?)
        hamming_window(window_length,periodic?) kaiser_window(window_length,periodic?)
        index_copy(input,dim,index,source) narrow_copy(input,dim,start,length) alias_copy(input) detach_copy(input)
        as_strided_copy(input,size,stride) diagonal_copy(input) expand_copy(input,size) permute_copy(input,dims)
        select_copy(input,dim,index) split_copy(tensor,split_size_or_sections) split_with_sizes_copy(tensor,split_size_or_sections)
        squeeze_copy(input) t_copy(input) transpose_copy(input,dim0,dim1) unbind_copy(input) unfold_copy(input,dimension,size,step)
        unsqueeze_copy(input,dim) view_as_complex_copy(input) view_as_real_copy(input) view_copy(input,shape)
        slice_copy(input,dim?) is_tensor(input) is_signed(input)
        lstm_cell(input,hx,w_ih,w_hh,b_ih?,b_hh?) gru_cell(input,hx,w_ih,w_hh,b_ih?,b_hh?)
        rnn_tanh_cell(input,hx,w_ih,w_hh,b_ih?,b_hh?) rnn_relu_cell(input,hx,w_ih,w_hh,b_ih?,b_hh?)
        cholesky_ex(input) istft(input,n_fft,hop_length?,window?,onesided?,length?) einsum(equation,*operands)
        stft(input,n_fft,hop_length?,win_length?,window?,center?,pad_mode?,normalized?,onesided?,return_complex)
        histogram(input,bins,=range?,=weight?,=density?) as_tensor(input) asarray(input) scalar_tensor(value)
    """,
}
ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag", "shape", "dtype", "ndim", "is_leaf", "itemsize", "nbytes")
INFIX = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=")
AUGMENTED = ("+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>=")
PREFIX = ("-", "~", "abs", "+", "list", "sum", "repr", "len")
# other names of the same keyword
KEYWORDS = {"dim": "axis", "keepdim": "keepdims"}
SEVERAL = ("tensors", "operands", "matrices")


@dataclass(frozen=True)
class Row:
    """One way to write an operator, and the drawer of its arguments: draw -> (args, kwargs). `eager`: drawn in that mode alone."""

    form: str
    op: str
    draw: Callable[[Draw], tuple[tuple, dict]]
    weight: float = 1.0
    eager: bool = False

    @property
    def name(self) -> str:
        return {"method": "Tensor.", "attribute": "Tensor."}.get(self.form, "") + self.op


@dataclass(frozen=True)
class Parameter:
    name: str
    default: Any
    kind: Any
    annotation: str


def _drawer(op: str, parameter: Parameter, first: bool) -> Callable[[Draw], Any] | None:
    """The drawer of a parameter: of the operator, of the parameter's name, or of its type; None where there is none."""
    bare = op.rstrip("_")
    names = (op, bare.removeprefix("linalg_"), bare, bare.removesuffix("_copy"))
    own = next((SPECIAL[name] for name in names if name in SPECIAL), {})
    if parameter.name in own:
        return own[parameter.name]
    if (first and parameter.annotation == "int") or parameter.name == "window_length":
        return PARAMETERS[parameter.name]
    if first and parameter.name not in ("tensors", "A"):
        return lambda d: d.tensor()
    if parameter.annotation == "Dims" or (parameter.name == "dim" and parameter.annotation == "Any"):
        return lambda d: d.dims()
    if parameter.name in PARAMETERS:
        return PARAMETERS[parameter.name]
    if parameter.annotation == "Tensor":
        return lambda d: d.beside()
    return None


def _reader(op: str, parameters: list[Parameter], method: bool) -> Callable[[Draw], tuple[tuple, dict]]:
    """A drawer of arguments that fit a signature."""
    plan = [(p, _drawer(op, p, i == 0)) for i, p in enumerate(parameters)]

    def draw(d: Draw) -> tuple[tuple, dict]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        d.args, d.it = {}, None
        positional = True
        for i, (p, drawer) in enumerate(plan):
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                args += _listed(d, p.name, drawer(d)) if drawer else []
                positional = False
                continue
            needed = p.default is REQUIRED
            if not needed and not d.chance(0.3):
                positional = False
                continue
            if drawer is None:
                if needed:
                    raise Skip(f"{op}: no drawer for {p.name}: {p.annotation}")
                positional = False
                continue
            d.args[p.name] = value = drawer(d)
            if i == 0:
                d.it = d.value(value) if hasattr(value, "root") else d.it
            if p.name == "input" and method and hasattr(value, "root"):
                d.it = d.value(value)
            if positional and p.kind is not inspect.Parameter.KEYWORD_ONLY and not (i and d.chance(0.08 if needed else 0.4)):
                args.append(value)
            else:
                positional = False
                kwargs[KEYWORDS.get(p.name, p.name) if d.chance(0.15) else p.name] = value
        return tuple(args), kwargs

    return draw


def _listed(d: Draw, name: str, value: Any) -> list:
    """What `*name` takes: several tensors, or sizes one by one or all as one."""
    one_by_one = (name in SEVERAL and isinstance(value, list)) or (isinstance(value, tuple) and d.chance(0.5))
    return list(value) if one_by_one else [value]


def _parameters(function: Callable) -> list[Parameter]:
    found = [
        Parameter(p.name, p.default, p.kind, str(p.annotation).strip("'")) for p in inspect.signature(function).parameters.values()
    ]
    # the losses' old `reduce` is a switch; scatter's is the name of a reduction
    return [
        p
        for p in found
        if p.name not in SKIPPED and not (p.name == "reduce" and "bool" in p.annotation) and p.kind is not p.kind.VAR_KEYWORD
    ]


def _declared(text: str) -> tuple[str, list[Parameter]]:
    name, _, rest = text.rstrip(")").partition("(")
    kinds = {"*": inspect.Parameter.VAR_POSITIONAL, "=": inspect.Parameter.KEYWORD_ONLY}
    return name, [Parameter(p.strip("*=?"), None if p.endswith("?") else REQUIRED,
                            kinds.get(p[0], inspect.Parameter.POSITIONAL_OR_KEYWORD), "") for p in rest.split(",")]


def _resolve(module: str, lib: Any) -> Any:
    for part in module.split(".")[1:]:
        lib = getattr(lib, part)
    return lib


def _from_registry(theirs: ModuleType) -> list[Row]:
    rows = []
    for module in MODULES:
        ours, there = _resolve(module, flambeau), _resolve(module, theirs)
        method = module == "torch.Tensor"
        listed = {
            n: _parameters(getattr(ours, n))
            for n in dir(ours)
            if not n.startswith("_") and hasattr(there, n) and is_operator(getattr(ours, n))
        }
        declared = dict(_declared(text) for text in EXTRA.get(module, "").split())
        for name, parameters in sorted({**listed, **declared}.items()):
            if not hasattr(there, name) or (name not in declared and not EXCLUDED.isdisjoint({name, name.removeprefix("linalg_")})):
                continue
            layers = theirs.nn.functional
            if module == "torch" and name not in declared and getattr(layers, name, None) not in (None, getattr(there, name)):
                continue  # documented in torch.nn.functional alone: torch's has other arguments
            op = name if method else f"{module}.{name}"
            # in place, and as a view, more often: what they do to other tensors is what is hard
            weight = (
                2.0 if name.endswith("_") and method else 0.5 if module in ("torch.fft", "torch.special", "torch.linalg") else 1.0
            )
            rows.append(Row("method" if method else "call", op, _reader(name, parameters, method), weight))
    return rows


def _beside(numbers: float) -> Callable[[Draw], tuple[tuple, dict]]:
    def draw(d: Draw) -> tuple[tuple, dict]:
        first = d.tensor()
        d.it = d.value(first)
        second: Any = d.number() if d.chance(numbers) else d.beside()
        return ((second, first) if numbers and not isinstance(second, Word) and d.chance(0.15) else (first, second)), {}

    return draw


def _product(d: Draw) -> tuple[tuple, dict]:
    first = SPECIAL["matmul"]["input"](d)
    d.it = d.value(first)
    return (first, SPECIAL["matmul"]["other"](d)), {}


def _in_place(d: Draw) -> tuple[tuple, dict]:
    first = d.tensor()
    d.it = d.value(first)
    return (first, d.number() if d.chance(0.4) else d.beside()), {}


def _one(d: Draw) -> tuple[tuple, dict]:
    return (d.tensor(),), {}


def _created(*drawers: Callable[[Draw], Any]) -> Callable[[Draw], tuple[tuple, dict]]:
    def draw(d: Draw) -> tuple[tuple, dict]:
        d.it = None
        kwargs = {"dtype": Word("torch." + d.choice(DTYPES))} if d.chance(0.5) else {}
        return tuple(drawer(d) for drawer in drawers), kwargs

    return draw


def _shape(d: Draw) -> tuple[int, ...]:
    return d.shape()


CREATION = {
    "torch.zeros": _created(_shape),
    "torch.ones": _created(_shape),
    "torch.full": _created(_shape, lambda d: d.number()),
    "torch.eye": _created(lambda d: d.size(), lambda d: d.size()),
    "torch.arange": _created(lambda d: d.choice([0, 1, -2, 0.5]), lambda d: d.int(2, 9)),
    "torch.linspace": _created(lambda d: d.choice([0, -1.5]), lambda d: d.choice([1, 4.0]), lambda d: d.int(0, 9)),
    "torch.logspace": _created(lambda d: d.choice([0, -1.5]), lambda d: d.choice([1, 2.0]), lambda d: d.int(0, 9)),
}


def rows(theirs: ModuleType) -> list[Row]:
    """Every row, for a torch that has the same names."""
    table = [row for row in _from_registry(theirs) if row.op not in CREATION]
    table += [Row("call", name, draw, 2.0) for name, draw in CREATION.items()]
    table += [Row("infix", op, _product if op == "@" else _beside(0.4), 2.0) for op in INFIX]
    table += [Row("augmented", op, _in_place, 3.0) for op in AUGMENTED]
    table += [Row("prefix", op, _one) for op in PREFIX]
    table += [Row("attribute", name, _one) for name in ATTRIBUTES]
    table += [Row("call", text, draw, weight) for made, weight in ((composed, 0.6), (library, 0.3)) for text, draw in made.calls().items()]
    table += [Row("call", text, draw, weight, True) for made, weight in ((composed, 0.6), (library, 0.3))
              for text, draw in made.eager_calls().items()]
    table += [Row("getitem", "", indexing.reading, 40.0), Row("setitem", "", indexing.writing, 30.0)]
    return table
