"""How tensors print, and how they behave as Python objects: length, iteration, membership, copying, pickling."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.dtypes import bool_, dtype, int64
from ..core.storage import Storage, view_of
from ..core.tensor import AutogradMeta, Layout, Tensor, fake, is_example
from ..core.unresolved import seen, waits
from .joining import flip
from .promotion import default_dtype, is_number
from .registry import method
from .views import unbind


@dataclass(frozen=True)
class PrintOptions:
    """What set_printoptions sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {"default": PrintOptions(), "short": PrintOptions(precision=2, edgeitems=2), "full": PrintOptions(threshold=math.inf)}
_options = [PrintOptions()]


class _Current:
    """The options as they are now, by attribute."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_options[0], name)

    def __repr__(self) -> str:
        return repr(_options[0])


PRINT_OPTS = _Current()


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Digits after the point, elements before summarising, items at each edge, characters a line, profile, scientific notation."""
    options = _options[0]
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"unknown print profile {profile!r}; it is one of {', '.join(_PROFILES)}")
        options = _PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options = replace(options, **{k: v for k, v in given.items() if v is not None}, sci_mode=sci_mode)  # type: ignore[arg-type]
    _options[0] = options


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions(**options)` for a block."""
    before = _options[0]
    set_printoptions(**options)
    try:
        yield
    finally:
        _options[0] = before


def get_printoptions() -> dict[str, Any]:
    """The current options by name."""
    return dict(vars(_options[0]))


# -- one number ----------------------------------------------------------------------------------------------------
class _Style:
    """How the numbers of one tensor are written: all alike, so that their points stand under each other."""

    def __init__(self, values: np.ndarray, options: PrintOptions):
        self.precision = options.precision
        self.width = 1
        self.floating = values.dtype.kind == "f"
        self.whole, self.scientific = True, False
        if not self.floating:
            self.width = max((len(str(v)) for v in values.tolist()), default=1)
            return
        shown = np.abs(values[np.isfinite(values) & (values != 0)]).astype(np.float64)
        if not shown.size:
            return
        low, high = float(shown.min()), float(shown.max())
        self.whole = bool((shown == np.ceil(shown)).all())
        self.scientific = high / low > 1000 or high > 1e8 or (not self.whole and low < 1e-4)
        if options.sci_mode is not None:
            self.scientific = options.sci_mode
        finite = values[np.isfinite(values) & (values != 0)]
        self.width = max(len(self._bare(float(v))) for v in finite)

    def _bare(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{self.precision}f}"

    def text(self, value: Any) -> str:
        """The number, padded to the common width."""
        return (self._bare(value) if self.floating else str(value)).rjust(self.width)


class _ComplexStyle:
    """Real and imaginary part, each in the style of its kind."""

    def __init__(self, values: np.ndarray, options: PrintOptions):
        self.real, self.imag = _Style(values.real, options), _Style(values.imag, options)
        self.width = self.real.width + self.imag.width + 1

    def text(self, value: complex) -> str:
        """`a+bj`, the real part padded."""
        imag = self.imag.text(value.imag).lstrip()
        sign = "" if imag.startswith("-") else "+"
        return f"{self.real.text(value.real)}{sign}{imag}j"


# -- nested brackets ---------------------------------------------------------------------------------------------------
def _edges(array: np.ndarray, options: PrintOptions) -> np.ndarray:
    """The elements that a summary shows."""
    n = options.edgeitems
    for d, size in enumerate(array.shape):
        if size > 2 * n:
            array = np.concatenate([array.take(range(n), d), array.take(range(size - n, size), d)], d)
    return array


def _split(size: int, summarise: bool, options: PrintOptions) -> tuple[Sequence[int], Sequence[int]]:
    """Indices before and after the dots."""
    n = options.edgeitems
    if summarise and size > 2 * n:
        return range(n), range(size - n, size)
    return range(size), ()


def _row(array: np.ndarray, style: Any, indent: int, summarise: bool, options: PrintOptions) -> str:
    head, tail = _split(len(array), summarise, options)
    texts = [style.text(array[i].item()) for i in head]
    if tail:
        texts += [" ...", *(style.text(array[i].item()) for i in tail)]
    per_line = max(1, (options.linewidth - indent) // (style.width + 2))
    lines = [", ".join(texts[i:i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(array: np.ndarray, style: Any, indent: int, summarise: bool, options: PrintOptions) -> str:
    if array.ndim == 0:
        return style.text(array.item())
    if array.ndim == 1:
        return _row(array, style, indent, summarise, options)
    head, tail = _split(len(array), summarise, options)
    parts = [_nested(array[i], style, indent + 1, summarise, options) for i in head]
    if tail:
        parts += ["...", *(_nested(array[i], style, indent + 1, summarise, options) for i in tail)]
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(parts) + "]"


def _values(x: Tensor) -> np.ndarray:
    array = x.detach().cpu()._data
    return array.astype(np.float32) if array.dtype.kind in "V" or (array.dtype.itemsize < 4 and array.dtype.kind == "f") else array


def elements_text(x: Tensor, indent: int) -> str:
    options = _options[0]
    array = _values(x)
    summarise = array.size > options.threshold
    style = _style_of(_edges(array, options) if summarise else array, options)
    return _nested(array, style, indent, summarise, options)


def _style_of(array: np.ndarray, options: PrintOptions) -> _Style | _ComplexStyle:
    return (_ComplexStyle if array.dtype.kind == "c" else _Style)(array.reshape(-1), options)


class _Formatter:
    """How the numbers of a tensor are written, for libraries that print some of them on their own."""

    def __init__(self, tensor: Tensor) -> None:
        self._style = _style_of(_values(tensor), _options[0])

    def width(self) -> int:
        """The length of the longest."""
        return self._style.width

    def format(self, value: Any) -> str:
        """A number as text of this width."""
        return self._style.text(value)


# -- the whole -----------------------------------------------------------------------------------------------------------
def _shows_dtype(x: Tensor) -> bool:
    if x.numel() == 0 and not x.is_fake:
        return x.dtype is not default_dtype()
    return x.dtype not in (default_dtype(), default_dtype().to_complex(), int64, bool_)


def _suffixes(x: Tensor) -> list[str]:
    found = []
    if x.device.type != "cpu":
        found.append(f"device='{x.device}'")
    no_elements = x._data is None
    if no_elements or (x.numel() == 0 and x.ndim != 1):
        found.append(f"size={tuple(x.shape)}")
    if (_shows_dtype(x) if not no_elements else x.dtype is not default_dtype()):
        found.append(f"dtype={x.dtype}")
    if x.grad_fn is not None:
        name = x.grad_fn.name().rpartition("::")[2]
        found.append(f"grad_fn=<{name}>")
    elif x.requires_grad:
        found.append("requires_grad=True")
    if dispatch.state.modes and (tangent := dispatch.tangent_of(x)) is not None:
        found.append(f"tangent={tangent}")
    return found


def tensor_text(x: Tensor, prefix: str = "tensor(", contents: str | None = None) -> str:
    """`tensor(...)` as torch prints it, with its elements or other `contents`."""
    if contents is not None:
        body = contents
    elif x._data is None:
        body = "..."
    elif x.numel() == 0:
        body = "[]"
    else:
        body = elements_text(x, len(prefix))
    return _add_suffixes(prefix + body, _suffixes(x), len(prefix))


def _add_suffixes(tensor_str: str, suffixes: Sequence[str], indent: int, force_newline: bool = False) -> str:
    """What is printed, its suffixes and a parenthesis, in lines of the width that is set."""
    text = tensor_str
    last = len(text) - text.rfind("\n") + 1     # two more than the line has, as torch counts it
    for suffix in suffixes:
        if force_newline or last + len(suffix) + 2 > _options[0].linewidth:
            text += ",\n" + " " * indent + suffix
            last, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text + ")"


@method("__repr__")
def _repr(self: Tensor, *, tensor_contents: Any = None) -> str:
    if type(self) is not Tensor and getattr(type(self), "_repr_name", None) is None:
        return tensor_text(self, f"{type(self).__name__}(", tensor_contents)
    without = "BatchedTensor(" if is_example(self) else "FakeTensor("
    return tensor_text(self, without if self.is_fake and self.device.type != "meta" else "tensor(",
                       tensor_contents)


@method("__format__")
def _format(self: Tensor, spec: str) -> str:
    if not self.ndim and type(self) is Tensor and self._data is not None:
        return format(self.item(), spec)
    return object.__format__(self, spec)


# -- as a Python sequence ---------------------------------------------------------------------------------------------------
@method("__len__")
def _len(self: Tensor) -> int:
    if not self.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self._layout.shape[0] if self._data is None else self._data.shape[0]


@method("__iter__")
def _iter(self: Tensor) -> Iterator[Tensor]:
    if not self.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(self, 0))


@method("__reversed__")
def _reversed(self: Tensor) -> Tensor:
    return flip(self, 0) if self.ndim else self


@method("__contains__")
def _contains(self: Tensor, element: Any) -> bool:
    if not (isinstance(element, Tensor) or is_number(element)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


# -- copies and pickles ---------------------------------------------------------------------------------------------------------
def _make(cls: type, storage: Storage, kind: dtype, lay: Layout, requires_grad: bool, extra: dict,
          waiting: tuple[bool, bool] = (False, False)) -> Tensor:
    """A tensor of class `cls` over `storage`; `waiting`: its elements are conjugated, or negated."""
    if storage.buffer is None:
        made = fake(lay.shape, kind, storage.device, lay.strides, lay.offset, storage)
    else:
        made = object.__new__(Tensor)
        array = view_of(storage.buffer, kind.numpy, lay.shape, lay.strides, lay.offset)
        made._data = seen(array, *waiting) if any(waiting) else array
        made._lay, made._store, made.dtype, made.device = lay, storage, kind, storage.device
        made._grad = made._view = None
    return _dressed(made, cls, requires_grad, extra)


def _dressed(made: Tensor, cls: type, requires_grad: bool, extra: dict) -> Tensor:
    made = made if cls is Tensor else made._as_subclass(cls)
    if requires_grad:
        made._grad = AutogradMeta(True)
    made.__dict__.update(extra)
    return made


def _copied_storage(source: Storage, memo: dict) -> Storage:
    key = ("storage", id(source))
    if key not in memo:
        buffer = None if source.buffer is None else source.buffer.copy()
        memo[key] = Storage(buffer, source.nbytes, source.device)
        memo[id(memo[key])] = source  # keeps the source alive while its id is a key
    return memo[key]


@method("__deepcopy__")
def _deepcopy(self: Tensor, memo: dict) -> Tensor:
    """A copy with memory of its own; tensors that shared memory share it again, gradients come along."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                           "moment.  If you were attempting to deepcopy a module, this may be because of a "
                           "torch.nn.utils.weight_norm usage")
    made = _make(type(self), _copied_storage(self._storage.memory, memo), self.dtype, self._layout, self.requires_grad, {},
                 waits(self._data))
    memo[id(self)] = made
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


@method("__copy__")
def _copy(self: Tensor) -> Tensor:
    return _make(type(self), self._storage, self.dtype, self._layout, self.requires_grad, dict(self.__dict__), waits(self._data))


@method("__reduce_ex__")
def _reduce_ex(self: Tensor, protocol: int) -> tuple[Callable, tuple]:
    """Pickled as its storage and layout: tensors that share memory do so again when loaded from one pickle."""
    if self.device.type == "cuda":
        return _from_host, (type(self), self.detach().cpu(), str(self.device), self.requires_grad, dict(self.__dict__))
    return _make, (type(self), self._storage.memory, self.dtype, Layout(*self._layout), self.requires_grad, dict(self.__dict__),
                   waits(self._data))


def _from_host(cls: type, host: Tensor, where: str, requires_grad: bool, extra: dict) -> Tensor:
    return _dressed(host.to(where), cls, requires_grad, extra)


