"""Matrix and tensor products over the primitives mm and bmm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.cpu import blas
from ...core.dtypes import FLOAT, INT, bfloat16, bool_, dtype, float16, float32, float64, int32, int64, promote_types, scalar_type
from ...core.size import broadcast_shapes, canonical_dim, known_zero, several
from ...core.symbolic import is_symbolic
from ...core.tensor import Tensor
from ...core.warned import deprecated, warn, warn_once
from .. import prims
from ..batching import all_merged
from ..order import in_rows, like
from ..patterns import triu_indices
from ..pointwise import reflected
from ..primitives import InAten
from ..prims.views import _is_one as _one
from ..promotion import broadcast, cast, category_of_number, expand_to, factor, prepare, result_type
from ..reductions import _differ, _finish, _is_zero, linalg_vector_norm, vector_norm_vjp
from ..registry import COMPOSITES, Pointwise, operator
from ..writing import inplace, store_out, with_out, with_out_in_rows


def _tensor_arguments(name: str, **tensors: Any) -> None:
    for position, (key, value) in enumerate(tensors.items(), 1):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument '{key}' (position {position}) must be Tensor, not {type(value).__name__}")


# -- products ------------------------------------------------------------------------------------------------
@operator(method=True, autocast="narrow")
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """(n, k) x (k, m) -> (n, m)."""
    _tensor_arguments("mm", input=input, mat2=mat2)
    if input.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"{'self' if input.ndim != 2 else 'mat2'} must be a matrix, got shapes {list(input.shape)} and "
                           f"{list(mat2.shape)}")
    return _finish(prims.mm(input, mat2), out)


@operator(method=True, autocast="narrow")
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """(p, n, k) x (p, k, m) -> (p, n, m)."""
    _tensor_arguments("bmm", input=input, mat2=mat2)
    if input.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError(f"batch{1 if input.ndim != 3 else 2} must be a 3D tensor, got shapes {list(input.shape)} and {list(mat2.shape)}")
    return _finish(prims.bmm(input, mat2), out)


@operator
def _grouped_mm(input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
                out_dtype: dtype | None = None) -> Tensor:
    """Products of groups of different sizes, as experts have of tokens: `offs` (int32) tells where each group ends, in the rows of a 2-d
    `input` (mat2 (groups, k, m)), in the columns of a 2-d `mat2` (input (groups, n, k)), or in what is summed over (both 2-d, a matrix for
    each group). Two 3-d ones are multiplied as by bmm. What lies behind the last group is zero."""
    _tensor_arguments("grouped_mm", input=input, mat2=mat2)
    for name, x in (("mat_a", input), ("mat_b", mat2)):
        if x.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d, got {x.ndim}d")
    if input.dtype not in (float32, bfloat16, float16):
        raise RuntimeError(f"Expected mat_a to be Float32, BFloat16 or Float16 matrix, got {scalar_type(input.dtype)}")
    if (offs is None) != (input.ndim == mat2.ndim == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype not in (None, input.dtype):
        raise RuntimeError(f"Grouped gemm output dtype must match `mat_a` dtype, {input.dtype}; got {out_dtype}")
    if offs is None:
        if _differ(input.shape[0], mat2.shape[0]):
            raise RuntimeError(f"batched dimension has to match, got {list(input.shape)} and {list(mat2.shape)}")
        return prims.bmm(input, mat2)
    if offs.ndim != 1:
        raise RuntimeError(f"offs has to be 1D, got {offs.ndim}D")
    if offs.dtype is not int32:
        raise RuntimeError(f"Offsets have to be int32, got {offs.dtype}")
    return prims.grouped_mm(input, mat2, offs)


@operator(method=True, autocast={"cuda": "promote"}, node=True)
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of products of two vectors (nothing is conjugated)."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype is not tensor.dtype:
        raise RuntimeError("dot : expected both vectors to have same dtype, but found "
                           f"{scalar_type(input.dtype)} and {scalar_type(tensor.dtype)}")
    n, m = input.shape[0], tensor.shape[0]
    if _differ(n, m):
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of "
                           f"elements, but got {n} and {m} elements respectively")
    added = prims.any if input.dtype is bool_ else prims.sum
    return _finish(added(prims.mul(input, tensor), (0,)), out)


@operator(method=True, node=True)
@with_out
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """dot of the conjugate of `input` with `other`."""
    return dot(input.conj(), other)


@operator(method=True, autocast="inside")
@with_out
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimensions."""
    if not input.ndim or not other.ndim:
        return input * other
    if _differ(input.shape[-1], other.shape[-1]):
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
                           f"{list(other.shape)}")
    return tensordot(input, other, ([-1], [-1]))


@operator(method=True, autocast={"cuda": "narrow"}, node=True)
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """(n, k) x (k,) -> (n,)."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    if _differ(input.shape[1], vec.shape[0]):
        raise RuntimeError(f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), vec ({vec.shape[0]})")
    return _finish(prims.squeeze(prims.mm(input, prims.unsqueeze(vec, 1)), (1,)), out)


@operator(method=True)
@with_out
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """(n,) x (m,) -> (n, m)."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D arguments self and vec2, but got {input.ndim}-D and {vec2.ndim}-D")
    return prims.unsqueeze(input, 1) * prims.unsqueeze(vec2, 0)


@operator(method=("matmul", "__matmul__"), autocast="narrow")
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product with broadcasting leading dimensions; vectors count as a row on the left, a column on the right."""
    _tensor_arguments("matmul", input=input, other=other)
    return _finish(_matmul(input, other), out)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.ndim, y.ndim
    if not a or not b:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D")
    if a == 2 and b == 2:
        return prims.mm(x, y)
    if a == 1:
        if b == 1:
            return dot(x, y)
        return prims.squeeze(_matmul(prims.unsqueeze(x, 0), y), (b - 2,))
    if b == 1:
        if a == 2:
            return mv(x, y)
        return prims.squeeze(_matmul(x, prims.unsqueeze(y, 1)), (a - 1,))
    if b == 2:
        return _folded(x, y)
    return _batched(x, y)


def _folded(x: Tensor, y: Tensor) -> Tensor:
    """(..., n, k) x (k, m) as one product of all rows."""
    shape = x._layout.shape
    rows = x.reshape(math.prod(shape[:-1]), shape[-1])
    return prims.view_(prims.mm(rows, y), (*shape[:-1], y._layout.shape[1]))


def _batched(x: Tensor, y: Tensor) -> Tensor:
    """Leading dimensions broadcast; an operand without any of its own is expanded with stride 0, never copied."""
    s, t = tuple(x._layout.shape), tuple(y._layout.shape)
    if len(t) > 2 and all(map(_one, t[:-2])) and len(t) <= len(s):
        return _folded(x, prims.view_(y, t[-2:])) if y.is_contiguous() else _folded(x, y.reshape(t[-2:]))
    batch = tuple(broadcast_shapes(s[:-2], t[:-2]))
    if s[-1] is not t[-2] and s[-1] != t[-2]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {[*batch, s[-1]]} but got: "
                           f"{[*batch, t[-2]]}. (matmul of {list(s)} and {list(t)})")
    return prims.bmm(expand_to(x, batch + s[-2:]), expand_to(y, batch + t[-2:]))


rmatmul = reflected("rmatmul", matmul, "other @ input.", "narrow")


def _no_elements(x: Tensor) -> bool:
    return any(map(known_zero, x._layout.shape))


def _scaled(x: Tensor, number: Any) -> Tensor:
    """`x` times a number, at which nobody looks where there is nothing to be scaled."""
    return x if (type(number) in (int, float) and number == 1) or _no_elements(x) else x * factor(number, x.dtype)


def _added(input: Tensor, product: Tensor, factor: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * product; with beta 0 the input is not even read, nor is alpha for a product of nothing, nor are they both for
    a product without elements."""
    if input.dtype is not product.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {scalar_type(input.dtype)} and {scalar_type(product.dtype)}")
    product = product if _no_elements(factor) else _scaled(product, alpha)
    shape, wanted = input._layout.shape, product._layout.shape
    lead = len(wanted) - len(shape)
    if lead < 0 or any(not _one(n) and _differ(n, m) for n, m in zip(shape, wanted[lead:])):
        common = range(1, min(len(shape), len(wanted)) + 1)
        bad = next((d for d in common if not _one(shape[-d]) and _differ(shape[-d], wanted[-d])), 1)
        raise RuntimeError(f"The expanded size of the tensor ({wanted[-bad]}) must match the existing size ({shape[-bad]}) at "
                           f"non-singleton dimension {len(wanted) - bad}.  Target sizes: {list(wanted)}.  Tensor sizes: {list(shape)}")
    if (type(beta) in (int, float) and beta == 0) or _no_elements(product):
        return _beside(product, expand_to(input, tuple(wanted))) if input.requires_grad else product
    return in_rows(prims.add(expand_to(_scaled(input, beta), tuple(wanted)), product))


@operator(name="_beside", vjp=Pointwise(result=1, _unread=0))
def _beside(result: Tensor, _unread: Tensor) -> Tensor:
    """`result`, for which another tensor was given and not read: its gradient is zeros."""
    return result.clone()     # no view, of whose base a captured graph would ask the gradient


def _wide_product_vjp(g: Tensor, x: Tensor, y: Tensor, needs: tuple) -> tuple:
    narrow = cast(g, x.dtype)
    return (prims.bmm(narrow, y.transpose(1, 2)) if needs[0] else None, prims.bmm(x.transpose(1, 2), narrow) if needs[1] else None)


@operator(name="_wide_product", vjp=_wide_product_vjp, batch=all_merged, flops=lambda out, x, y: 2 * math.prod(x) * y[2])
def wide_product(x: Tensor, y: Tensor) -> Tensor:
    """x (n, L, E) times y (n, E, S), narrow floats, in float32: what they were accumulated in is not rounded."""
    return prims.bmm(cast(x, float32), cast(y, float32))


COMPOSITES["_wide_product"].has_kernel("cpu", blas.wide_bmm, stays_whole=lambda args: True)


def _added_wide(input: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Tensor | None:
    """beta * input + alpha * a @ b of batches of matrices of narrow floats, rounded once; None where it is another case: also
    beta and alpha of 1, a sum that libraries make within the product."""
    kind = input.dtype
    if (beta == 1 and alpha == 1) or kind.category != FLOAT or kind.itemsize >= 4:
        return None
    if not (a.dtype is b.dtype is kind) or a.ndim != 3 or b.ndim != 3 or _differ(a.shape[0], b.shape[0]) or _differ(a.shape[2], b.shape[1]):
        return None
    return _added(cast(input, float32), wide_product(a, b), a, beta, alpha)


@operator(method=True, autocast="narrow", node=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    wide = _added_wide(input, mat1[None], mat2[None], beta, alpha) if mat1.ndim == mat2.ndim == 2 and input.ndim < 3 else None
    if wide is not None:
        return _finish(cast(wide[0], input.dtype), out)
    return _finish(_added(input, mm(mat1, mat2), mat1, beta, alpha), out)


@operator(method=True, autocast="narrow", node=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2)."""
    wide = _added_wide(input, batch1, batch2, beta, alpha)
    if wide is not None:
        return _finish(cast(wide, input.dtype), out)
    return _finish(_added(input, bmm(batch1, batch2), batch1, beta, alpha), out)


@operator(method=True, autocast="narrow", node=True)
@with_out
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the sum over the batch of bmm(batch1, batch2)."""
    return _added(input, prims.sum(bmm(batch1, batch2), (0,)), batch1, beta, alpha)


@operator(method=True, autocast={"cuda": "narrow"}, node=True)
@with_out
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return _added(input, mv(mat, vec), mat, beta, alpha)


@operator(method=True, autocast={"cuda": "narrow"}, node=True)
@with_out
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    kind = result_type(input, vec1, vec2)
    if kind.category <= INT and any(category_of_number(n) >= FLOAT for n in (beta, alpha)):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number. "
                           f"addr got alpha={alpha}, beta={beta} for {kind}")
    for name, n in (("beta", beta), ("alpha", alpha)):
        if isinstance(n, bool) and kind is not bool_:
            raise RuntimeError(f"Boolean {name} only supported for Boolean results. addr got {name}={n} for {kind}")
    if kind is bool_:
        wide, beta, alpha = int64, int(bool(beta)), int(bool(alpha))
    else:
        wide = kind
    out = cast(_added(cast(input, wide), outer(_scaled(cast(vec1, wide), alpha), cast(vec2, wide)), vec1, beta, 1), kind)
    return like(out, expand_to(input, tuple(out.shape)))


for _fn in (addmm, baddbmm, addbmm, addmv, addr):
    inplace(_fn, _fn.__name__ + "_")


# -- einsum ----------------------------------------------------------------------------------------------------
def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand's dimensions and of the output's; an ellipsis becomes the labels ...0, ...1 (from the right)."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        more = "more" if len(operands) > len(terms) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation ({len(operands)} for {equation!r})")
    labels = [_labels(term, i, operands[i].ndim) for i, term in enumerate(terms)]
    widest = max((sum(name.startswith("...") for name in mine) for mine in labels), default=0)
    dots = [f"...{i}" for i in range(widest - 1, -1, -1)]
    if arrow:
        output = _split_term(right, dots)
        seen = {name for mine in labels for name in mine}
        for name in output:
            if name not in seen:
                raise RuntimeError(f"einsum(): output subscript {name} does not appear in the equation for any input operand")
            if output.count(name) > 1:
                raise RuntimeError(f"einsum(): output subscript {name} appears more than once in the output")
    else:
        letters = [name for mine in labels for name in mine if not name.startswith("...")]
        output = dots + sorted(name for name in set(letters) if letters.count(name) == 1)
    return labels, output


def _split_term(term: str, dots: list[str]) -> list[str]:
    before, ellipsis, after = term.partition("...")
    for letter in before + after:
        if not letter.isalpha():
            raise RuntimeError(f"einsum(): invalid subscript given, subscripts must be in [a-zA-Z], got {letter!r}")
    return [*before, *(dots if ellipsis else []), *after]


def _labels(term: str, position: int, rank: int) -> list[str]:
    named = len(term.replace("...", ""))
    extra = rank - named
    if extra < 0 or (extra and "..." not in term):
        raise RuntimeError(f"einsum(): the number of subscripts in the equation ({named}) "
                           f"{'is more than' if '...' in term else 'does not match'} the number of dimensions ({rank}) for operand "
                           f"{position}" + ("" if "..." in term else " and no ellipsis was given"))
    return _split_term(term, [f"...{i}" for i in range(extra - 1, -1, -1)])


def _sizes(labels: list[list[str]], operands: Sequence[Tensor]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for i, (mine, x) in enumerate(zip(labels, operands)):
        for name, n in zip(mine, x.shape):
            have = sizes.get(name, 1)
            if _one(have):
                sizes[name] = n
            elif not _one(n) and _differ(n, have):
                raise RuntimeError(f"einsum(): subscript {name} has size {n} for operand {i} which does not broadcast with "
                                   f"previously seen size {have}")
    return sizes


def _without_repeats(x: Tensor, names: list[str]) -> tuple[Tensor, list[str]]:
    """The diagonal over each label that stands twice."""
    names = list(names)
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            x = prims.diagonal(x, 0, first, second)
            del names[second], names[first]
            names.append(name)
    return x, names


def _sum_out(x: Tensor, names: list[str], keep: set[str]) -> tuple[Tensor, list[str]]:
    gone = tuple(d for d, name in enumerate(names) if name not in keep)
    if not gone:
        return x, names
    return x.sum(gone), [name for name in names if name in keep]


def _contract(x: Tensor, a: list[str], y: Tensor, b: list[str], keep: set[str], sizes: dict) -> tuple[Tensor, list[str]]:
    """One product of two operands: shared labels are batch dimensions if kept, summed by the matrix product if not."""
    shared = [name for name in a if name in b]
    # a label that one operand broadcasts (size 1) is not a contraction of equal sizes: drop it there
    thin_x = [name for name in shared if _one(x.shape[a.index(name)]) and not _one(sizes[name])]
    thin_y = [name for name in shared if _one(y.shape[b.index(name)]) and not _one(sizes[name])]
    x, a = _drop(x, a, thin_x)
    y, b = _drop(y, b, thin_y)
    x, a = _sum_out(x, a, keep | set(b))
    y, b = _sum_out(y, b, keep | set(a))
    batch = [name for name in a if name in b and name in keep]
    summed = [name for name in a if name in b and name not in keep]
    rows, columns = [n for n in a if n not in b], [n for n in b if n not in a]
    if not summed:
        return _multiplied(x, a, y, b, batch, rows, columns)
    if x.dtype is not y.dtype and x.dtype.category < FLOAT and y.dtype.category < FLOAT:     # one of them is a sum
        x, y = (cast(t, promote_types(x.dtype, y.dtype)) for t in (x, y))
    left = _grouped(x, a, (batch, rows, summed))
    right = _grouped(y, b, (batch, summed, columns))
    product = bmm(left, right) if batch else mm(prims.squeeze(left, (0,)), prims.squeeze(right, (0,)))
    names = batch + rows + columns
    return product.reshape([sizes[n] for n in names]), names


def _drop(x: Tensor, names: list[str], gone: list[str]) -> tuple[Tensor, list[str]]:
    if not gone:
        return x, names
    return prims.squeeze(x, tuple(d for d, n in enumerate(names) if n in gone)), [n for n in names if n not in gone]


def _multiplied(x: Tensor, a: list[str], y: Tensor, b: list[str], batch: list[str], rows: list[str],
                columns: list[str]) -> tuple[Tensor, list[str]]:
    names = batch + rows + columns
    return _spread(x, a, names) * _spread(y, b, names), names


def _spread(x: Tensor, names: list[str], wanted: list[str]) -> Tensor:
    """`x` with its dimensions in the order of `wanted`, size 1 where it has none."""
    x = prims.permute(x, tuple(names.index(n) for n in wanted if n in names))
    for d, n in enumerate(wanted):
        if n not in names:
            x = prims.unsqueeze(x, d)
    return x


def _grouped(x: Tensor, names: list[str], groups: Sequence[list[str]]) -> Tensor:
    """`x` as three dimensions, each the product of one group of labels."""
    x = prims.permute(x, tuple(names.index(n) for group in groups for n in group))
    ends = iter(x.shape)
    return x.reshape([math.prod(next(ends) for _ in group) for group in groups])


def _from_sublists(args: Sequence) -> tuple[str, list[Tensor]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]): labels as numbers."""
    operands = list(args[0:len(args) - len(args) % 2:2])
    lists = list(args[1:len(args) - len(args) % 2:2])
    text = ",".join(_letters(item) for item in lists)
    return text + ("->" + _letters(args[-1]) if len(args) % 2 else ""), operands


def _letters(numbers: Sequence) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join("..." if n is Ellipsis else alphabet[n] for n in numbers)


@operator(autocast="inside", tags=("spread",))
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products by subscripts ('bij,bjk->bik', '...ii->...i'); operands are contracted from left to right."""
    if not isinstance(equation, str):
        equation, named = _from_sublists((equation, *operands))
        operands = tuple(named)
    given = list(operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands)
    if not given:
        raise RuntimeError("einsum(): must provide at least one operand")
    labels, output = _parse(equation, given)
    sizes = _sizes(labels, given)
    terms = [_without_repeats(x, names) for x, names in zip(given, labels)]
    x, names = terms[0]
    for i, (y, theirs) in enumerate(terms[1:], 1):
        later = {n for _, rest in terms[i + 1:] for n in rest} | set(output)
        x, names = _contract(x, names, y, theirs, later, sizes)
    x, names = _sum_out(x, names, set(output))
    return prims.permute(x, tuple(names.index(n) for n in output))


@operator(autocast={"cpu": "inside", "cuda": "promote"})
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums of products over the last `dims` dimensions of a and the first of b, or over the pairs of dimensions given."""
    result = _summed_products(a, b, dims)
    return result if out is None else store_out(out, result)


def _summed_products(a: Tensor, b: Tensor, dims: Any) -> Tensor:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (int, np.integer)):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} for {a.ndim} and {b.ndim} dimensions")
        first, second = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    elif isinstance(dims, (tuple, list)) and len(dims) == 2:
        first, second = (list(several(d)) for d in dims)
    else:
        raise RuntimeError("tensordot expects dims to be an int, or the dimensions of a and those of b, as two lists of ints; got "
                           f"dims={dims}")
    first, second = [canonical_dim(d, a.ndim) for d in first], [canonical_dim(d, b.ndim) for d in second]
    if len(first) != len(second):
        raise RuntimeError(f"both dimension lists should have same length, got {first} and {second}")
    for d, e in zip(first, second):
        if _one(a.shape[d]) and not _one(b.shape[e]):      # what is 1 repeats
            b = b.sum(e, True, dtype=b.dtype)
        elif _one(b.shape[e]) and not _one(a.shape[d]):
            a = a.sum(d, True, dtype=a.dtype)
        if _differ(a.shape[d], b.shape[e]):
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a.shape[d]} in dim {d} and second "
                               f"has size {b.shape[e]} in dim {e}")
    rows, columns = [d for d in range(a.ndim) if d not in first], [d for d in range(b.ndim) if d not in second]
    n, k, m = (math.prod(t.shape[d] for d in dims) for t, dims in ((a, rows), (a, first), (b, columns)))
    left = prims.permute(a, (*rows, *first)).reshape(n, k)
    right = prims.permute(b, (*second, *columns)).reshape(k, m)
    product = prims.mm if type(n) is int and n == 1 and type(m) is int and m == 1 else mm    # one sum is no product to autocast
    return product(left, right).reshape([a.shape[d] for d in rows] + [b.shape[d] for d in columns])


# -- other products ----------------------------------------------------------------------------------------------
@operator(method=True)
@with_out_in_rows
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product, of any number of dimensions."""
    rank = max(input.ndim, other.ndim)
    s, t = ((1,) * (rank - x.ndim) + tuple(x.shape) for x in (input, other))
    x = input.reshape([n for size in s for n in (size, 1)])
    y = other.reshape([n for size in t for n in (1, size)])
    return (x * y).reshape([n * m for n, m in zip(s, t)])


def _cross(x: Tensor, y: Tensor, d: int) -> Tensor:
    for t in (x, y):
        if _differ(t.shape[d], 3):
            raise RuntimeError(f"linalg.cross: inputs dimension {d} must have length 3. Got {x.shape[d]} and {y.shape[d]}")
    x, y = broadcast(*prepare(x, y))
    (a, b, c), (u, v, w) = ([t.narrow(d, i, 1) for i in range(3)] for t in (x, y))
    return prims.cat([b * w - c * v, c * u - a * w, a * v - b * u], d)


@operator(method=True, autocast={"cuda": "promote"}, node="linalg_cross")
@with_out
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along `dim`, of size 3 (the first such dimension if None)."""
    if dim is None:
        warn_once("Using torch.cross without specifying the dim arg is deprecated: pass the dim, or call torch.linalg.cross, whose dim "
                  "will be the default one's in a future release.")
        dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input, whose shape is {list(input.shape)}")
    return _cross(input, other, canonical_dim(dim, input.ndim))


@operator(autocast={"cuda": "promote"}, node=True)
@with_out
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product along `dim`, of size 3."""
    return _cross(input, other, canonical_dim(dim, input.ndim))


@operator(autocast="narrow")
@with_out
def linalg_multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order of multiplication that costs least."""
    parts = list(tensors)
    if len(parts) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(parts)}")
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = prims.unsqueeze(parts[0], 0)
    if last:
        parts[-1] = prims.unsqueeze(parts[-1], 1)
    result = _in_best_order(parts)
    gone = ((0,) if first else ()) + ((1,) if last else ())
    return prims.squeeze(result, gone) if gone else result


def _in_best_order(parts: list[Tensor]) -> Tensor:
    """Matrix-chain multiplication by dynamic programming (Cormen et al., Introduction to Algorithms, 15.2)."""
    n = len(parts)
    sizes = [p.shape[0] for p in parts] + [parts[-1].shape[1]]
    cost = {(i, i): 0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            ways = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            # Of equal ones torch takes the left product of three first, and of more the right one: of infinities the order tells.
            cost[i, j], split[i, j] = min(ways, key=lambda way: (way[0], -way[1] if n == 3 else way[1]))

    return _product(parts, split, 0, n - 1)


def _product(parts: Sequence[Tensor], split: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    """Of the parts from i to j, `split` where it says."""
    middle = split.get((i, j), i)
    return parts[i] if i == j else prims.mm(_product(parts, split, i, middle), _product(parts, split, middle + 1, j))


@operator(autocast="narrow")
@with_out
def chain_matmul(*matrices: Tensor) -> Tensor:
    """multi_dot of the matrices."""
    deprecated("chain_matmul", "linalg.multi_dot")
    return linalg_multi_dot(matrices) if len(matrices) > 1 else matrices[0].clone()


@operator(method=True, autocast={"cpu": "wide"}, node=True)
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return prims.diagonal(input, 0, 0, 1).sum()


@operator
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector as columns: x^(N-1) ... x^0, or the other way round."""
    if x.ndim != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor. vander got shape {list(x.shape)}")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError(f"N must be non-negative. vander got {n}")
    powers = x.new_arange(n) if increasing else n - 1 - x.new_arange(n)
    kind = int64 if x.dtype.category <= INT else x.dtype
    return prims.unsqueeze(cast(x, kind), 1) ** cast(powers, kind)


@operator(name="linalg_vander")
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers of the last dimension's elements along a new one: x^0 ... x^(N-1)."""
    n = (x.shape[-1] if x.ndim else 1) if N is None else N
    if n <= 1:
        raise RuntimeError(f"N must be greater than 1: linalg.vander got {n}")
    if x.dtype in (bool_, float16, bfloat16):
        raise RuntimeError(f"linalg.vander supports floating point, complex, and integer tensors, but got {scalar_type(x.dtype)}")
    kind = int64 if x.dtype.category < FLOAT else x.dtype
    x = x if x.ndim else prims.unsqueeze(x, 0)
    return prims.unsqueeze(cast(x, kind), x.ndim) ** cast(x.new_arange(n), kind)


_DISTANCE_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")



@operator(autocast="wide")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """p-norm distances between rows: (..., n, d) and (..., m, d) -> (..., n, m)."""
    if compute_mode not in _DISTANCE_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode: it is one of {', '.join(_DISTANCE_MODES)}")
    if x1.ndim < 2 or x2.ndim < 2 or _differ(x1.shape[-1], x2.shape[-1]):
        raise RuntimeError("cdist: X1 and X2 must have at least two dimensions and the same number of columns. X1: "
                           f"{list(x1.shape)} X2: {list(x2.shape)}")
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dtype.category != FLOAT:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {scalar_type(x.dtype)}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got {p}")
    lead = broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    x1, x2 = (expand_to(cast(x, promote_types(x1.dtype, x2.dtype)), (*lead, *x.shape[-2:])) for x in (x1, x2))
    many = compute_mode == "use_mm_for_euclid_dist" or (
        compute_mode == "use_mm_for_euclid_dist_if_necessary" and (x1.shape[-2] > 25 or x2.shape[-2] > 25))
    return _euclidean(x1, x2) if p == 2 and many and x1.dtype in (float32, float64) else distances(x1, x2, float(p))


def _euclidean_vjp(g: Tensor, x1: Tensor, x2: Tensor, out: Tensor) -> tuple:
    w = (g / out).masked_fill(out == 0, 0)
    return x1 * w.sum(-1, keepdim=True) - w @ x2, x2 * w.sum(-2).unsqueeze(-1) - w.mT @ x1


@operator(name="_euclidean", vjp=_euclidean_vjp)
def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """Distances by one product: (-2 x, |x|^2, 1) (y, 1, |y|^2)."""
    ones1, ones2 = (prims.full((*x.shape[:-1], 1), 1, x.dtype, x.device) for x in (x1, x2))
    left = prims.cat([x1 * -2, (x1 * x1).sum(-1, keepdim=True), ones1], x1.ndim - 1)
    right = prims.cat([x2, ones2, (x2 * x2).sum(-1, keepdim=True)], x2.ndim - 1)
    return (left @ right.mT).clamp_min(0).sqrt()


def _between(x1: Tensor, x2: Tensor) -> Tensor:
    """x1[..., i, :] - x2[..., j, :] for all i and j."""
    return prims.unsqueeze(x1, x1.ndim - 1) - prims.unsqueeze(x2, x2.ndim - 2)


@operator(name="_distances_backward", fused=True)
def _distances_backward(g: Tensor, x1: Tensor, x2: Tensor, out: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The slope of the norm in each difference, added up over the rows of the other set."""
    slope, = vector_norm_vjp(g, _between(x1, x2), out, p, -1, False)
    return slope.sum(-2), -slope.sum(-3)


@operator(name="_distances", aten=InAten(node="cdist"), fused=True, vjp=lambda g, x1, x2, out, p: _distances_backward(g, x1, x2, out, p))
def distances(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """The p-norms of all differences of rows, difference by difference."""
    return _lengths(_between(x1, x2), p)


def _lengths(apart: Tensor, p: float) -> Tensor:
    """The p-norms of rows; p = 0 counts what is not 0, and NaN is none."""
    if _is_zero(apart.shape[-1]):
        return apart.sum(-1)    # also of the largest there is none
    return linalg_vector_norm(apart, p, -1) if p else prims.minimum(prims.ceil(prims.abs(apart)), 1.0).sum(-1)


@operator(autocast={"cuda": "wide"}, node=True)
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """p-norm distances between all pairs of rows of a matrix, those of the first row first."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if input.dtype.category != FLOAT:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    rows = input.shape[0]
    first, second = triu_indices(rows, rows, 1, device=input.device).unbind()
    return _lengths(prims.index_select(input, 0, first) - prims.index_select(input, 0, second), float(p))


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(1, True)


@operator(method=True, autocast="inside")
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariances of the rows of a matrix, whose columns are observations: `fweights` says how often each was made, `aweights` how much
    it counts."""
    if input.ndim > 2 or input.dtype is bool_:
        raise RuntimeError(f"cov(): expected a matrix of numbers, but got an input with {input.ndim} dimensions of dtype {input.dtype}")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    w = _weights(x, fweights, aweights)
    x = x if x.dtype.category >= FLOAT else x.to(result_type(x, 1.0))
    if w is None:
        _check_freedom(x.shape[1] - correction)
        x = _centred(x)
        return (mm(x, x.mH) / max(x.shape[1] - correction, 0)).squeeze()    # one variable: its variance
    total = w.sum()
    if w._data is not None and not bool(total):
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    share = cast(w / total, result_type(x, w))      # first, so that a single observation is its own mean, to the last place
    x = x - (x * share).sum(1, keepdim=True)
    if correction and aweights is not None:
        total = total - correction * (w * aweights).sum() / total
    elif correction:
        total = total - correction
    if total._data is not None:
        _check_freedom(total.detach())
    return (mm(*_alike(x, (x * w).mH)) / total.clamp(min=0)).squeeze()


def _check_freedom(degrees: Any) -> None:
    if not is_symbolic(degrees) and bool(degrees <= 0):
        warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.")


def _alike(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    kind = result_type(x, y)
    return cast(x, kind), cast(y, kind)


def _weights(x: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    """The product of both kinds of weights of x's columns, checked; None where none is given."""
    for name, w, kind, word in (("fweights", fweights, INT, "integral"), ("aweights", aweights, FLOAT, "floating point")):
        if w is None:
            continue
        if w.ndim > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.ndim} dimensions")
        if w.dtype.category != kind:
            raise RuntimeError(f"cov(): expected {name} to have {word} dtype but got {name} with {scalar_type(w.dtype)} dtype")
        if w.numel() != x.shape[1]:
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                               f"{w.numel()} != {x.shape[1]}")
        if w._data is not None and bool((w < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    given = [w for w in (fweights, aweights) if w is not None]
    return None if not given else given[0] if len(given) == 1 else given[0] * given[1]


@operator(method=True, autocast="inside")
def corrcoef(input: Tensor) -> Tensor:
    """Correlation coefficients of the rows of a matrix, which rounding takes nowhere beyond [-1, 1] (nor their imaginary parts)."""
    c = cov(input)
    if not c.ndim:
        return c / c
    scale = prims.diagonal(c, 0, 0, 1).real.sqrt()
    c = c / prims.unsqueeze(scale, 1) / prims.unsqueeze(scale, 0)
    return prims.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1)) if c.dtype.is_complex else c.clamp(-1, 1)
