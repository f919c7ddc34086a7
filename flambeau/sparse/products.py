"""Products of sparse matrices with dense ones and with each other."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..core.dtypes import int64
from ..core.memory_format import sparse_coo, sparse_csr
from ..core.sparse import Pattern, SparseTensor, become, refuse
from ..core.tensor import Tensor
from ..ops.promotion import of_one_dtype, only_tensors
from ..ops.registry import method
from .bridge import assembled, coalesced, coordinates, entries, fact, form, starts_of, step, summed_rows
from .convert import compressed
from .shapes import runs


# -- sparse @ dense --------------------------------------------------------------------------------------------------------------
def _by_entries(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool) -> Tensor:
    """Each entry times the row of `dense` that it meets, added up by row of the result: for any device and dtype."""
    to, of = coordinates(pattern)
    if transposed:
        to, of = of, to
    return summed_rows(values.unsqueeze(1) * dense.index_select(0, of), to, pattern.shape[1 if transposed else 0])


def _product_vjp(g: Tensor, values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool, needs: tuple) -> tuple:
    to, of = coordinates(pattern)
    if transposed:
        to, of = of, to
    of_values = (g.index_select(0, to) * dense.conj().index_select(0, of)).sum(1) if needs[0] else None
    return of_values, _product(values.conj(), g, pattern, not transposed) if needs[1] else None


@step("sparse_product", _product_vjp)
def _product(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool) -> Tensor:
    return _by_entries(values, dense, pattern, transposed)


def _expect_matrices(name: str, a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"{name}: expected matrices, got shapes {list(a.shape)} and {list(b.shape)}")
    for t in (a, b):
        if isinstance(t, SparseTensor) and t._pattern.sparse_dims != 2:
            raise RuntimeError(f"{name}: expected 2 sparse dimensions, got {t._pattern.sparse_dims} of a tensor of shape "
                               f"{list(t.shape)}; to_dense() it")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if a.device != b.device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {a.device} and {b.device}")


@form(ops.mm)
def matrix_product(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, one of which is sparse: dense where one is dense."""
    _expect_matrices("mm", input, mat2)
    if isinstance(input, SparseTensor):
        if isinstance(mat2, SparseTensor):
            return _of_sparse(input, mat2)
        return _product(entries(input), mat2, input._pattern, False)
    other: Any = mat2
    return _product(entries(other), input.t(), other._pattern, True).t().contiguous()


@fact
def _rows_begin(pattern: Pattern) -> Tensor:
    """Where each row begins among the entries of a pattern that is sorted by rows."""
    return pattern.indices[0].long() if pattern.layout is sparse_csr else starts_of(coordinates(pattern)[0], pattern.shape[0])


def _of_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """Each entry of `a` times the row of `b` that it meets, entries of one place added up. CSR where the first is."""
    first, second = coalesced(a), coalesced(b)
    index, other = coordinates(first._pattern), coordinates(second._pattern)
    which, place = runs(_rows_begin(second._pattern), index[1])
    values = entries(first).index_select(0, which) * entries(second).index_select(0, place)
    made = ops.stack((index[0].index_select(0, which), other[1].index_select(0, place)))
    found = coalesced(assembled(values, Pattern(sparse_coo, (made,), (a.shape[0], b.shape[1]))))
    return found if a.layout is sparse_coo else compressed(found, a.layout, a._pattern.blocks)


@form(ops.mv)
def _mv(input: Tensor, vec: Tensor) -> Tensor:
    if vec.ndim != 1 or isinstance(vec, SparseTensor):
        refuse("mv", (input, vec), {}) if isinstance(vec, SparseTensor) else _expect_matrices("mv", input, vec)
    return matrix_product(input, vec.unsqueeze(1)).squeeze(1)


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    if input.ndim == 2 and other.ndim == 1:
        return _mv(input, other)
    if input.ndim == 1 and other.ndim == 2 and not isinstance(input, SparseTensor):
        return matrix_product(input.unsqueeze(0), other).squeeze(0)
    if input.ndim == other.ndim == 3:
        return _bmm(input, other)
    if input.ndim != 2 or other.ndim != 2:
        raise RuntimeError(f"expand is unsupported for Sparse tensors: matmul of shapes {list(input.shape)} and {list(other.shape)} "
                           "with a sparse tensor takes matrices, or batches of the same number")
    return matrix_product(input, other)


def _at(input: Any, other: Any) -> Tensor:
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise TypeError(f"unsupported operand type(s) for @: '{type(input).__name__}' and '{type(other).__name__}'")
    return _matmul(input, other)


form(ops.matmul)(_at)
form(ops.rmatmul)(lambda input, other: _at(other, input))


@form(ops.bmm)
def _bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """One product of a block-diagonal matrix."""
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor) or input._pattern.sparse_dims != 3:
        refuse("bmm", (input, mat2), {})
    if mat2.ndim != 3 or input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm: batches of matrices do not fit: {list(input.shape)} and {list(mat2.shape)}")
    count, rows, columns = input._pattern.shape
    batch, row, column = coordinates(input._pattern)
    blocks = Pattern(sparse_coo, (ops.stack((batch * rows + row, batch * columns + column)),), (count * rows, count * columns),
                     input._pattern.coalesced)
    flat = _product(entries(input), mat2.reshape(count * columns, mat2.shape[2]), blocks, False)
    return flat.reshape(count, rows, mat2.shape[2])


@form(ops.addmm)
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if not isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        refuse("addmm", (input, mat1, mat2), {})
    product = matrix_product(mat1, mat2)
    if isinstance(input, SparseTensor) and not isinstance(product, SparseTensor):
        raise RuntimeError(f"addmm_sparse_dense: expected strided result tensor, got tensor with layout {input.layout}")
    scaled = product if alpha == 1 else product * alpha
    return scaled if beta == 0 else (input if beta == 1 else input * beta) + scaled


@form(ops.addmv)
def _addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = _mv(mat, vec) * alpha
    return product if beta == 0 else input * beta + product


@form(ops.linear)
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if isinstance(weight, SparseTensor) and not isinstance(input, SparseTensor):
        flat = input.reshape(-1, input.shape[-1])
        out = matrix_product(weight, flat.t()).t().contiguous().reshape(*input.shape[:-1], weight.shape[0])
    else:
        out = matrix_product(input, weight.t())
    return out if bias is None else out + bias


# -- torch.sparse's own names ------------------------------------------------------------------------------------------------------
REDUCTIONS = ("sum", "mean", "amax", "amin")


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """The product of two matrices of which one at least is sparse. `reduce`: how the products of a row come together, of a CSR matrix
    with a dense one: "sum", "mean", "amax" or "amin" over the entries there are."""
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"torch.sparse.mm: reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if reduce == "sum":
        return ops.mm(mat1, mat2)
    _expect_matrices("mm", mat1, mat2)
    if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor) or mat1.layout is not sparse_csr:
        raise NotImplementedError(f"torch.sparse.mm(reduce={reduce!r}) takes a torch.sparse_csr matrix and a dense one, got "
                                  f"{mat1.layout} and {mat2.layout}; use to_sparse_csr() or to_dense()")
    if reduce == "mean":
        starts = mat1._pattern.indices[0]
        counts = (starts[1:] - starts[:-1]).clamp(min=1).unsqueeze(1)
        return ops.mm(mat1, mat2) / counts.to(mat2.dtype)
    rows, columns = coordinates(mat1._pattern)
    products = entries(mat1).unsqueeze(1) * mat2.index_select(0, columns)
    shape, where = (mat1.shape[0], mat2.shape[1]), rows.unsqueeze(1).expand(tuple(products.shape))
    fixed, count = products.detach(), products.shape[0]
    out = fixed.new_zeros(shape).scatter_reduce(0, where, fixed, reduce, include_self=False)
    if not count or not products.requires_grad:
        return out
    numbers = ops.arange(count, device=rows.device).unsqueeze(1).expand(tuple(products.shape))
    best = ops.where(fixed == out.index_select(0, rows), numbers, count)    # the first of equal ones has the gradient
    first = ops.full(shape, count, dtype=int64, device=rows.device).scatter_reduce(0, where, best, "amin")
    return ops.where(first < count, products.gather(0, first.clamp(max=count - 1)), out)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2) for a sparse `mat1`; gradients flow to all three."""
    return ops.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2) at the entries of the CSR matrix `input`: only these products are computed."""
    if not isinstance(input, SparseTensor) or input.layout is not sparse_csr:
        raise NotImplementedError(f"sampled_addmm: expected a torch.sparse_csr matrix, but got {input.layout}; use to_sparse_csr()")
    only_tensors("sampled_addmm", input=input, mat1=mat1, mat2=mat2)
    of_one_dtype(input, mat1, mat2)
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0] or (mat1.shape[0], mat2.shape[1]) != tuple(input.shape):
        raise RuntimeError(f"sampled_addmm: shapes do not fit: {list(input.shape)}, {list(mat1.shape)} and {list(mat2.shape)}")
    rows, columns = coordinates(input._pattern)
    dots = (mat1.index_select(0, rows) * mat2.t().index_select(0, columns)).sum(1)
    return assembled(entries(input) * beta + dots * alpha, input._pattern)


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """mm, by its old name."""
    return ops.mm(input, mat2)


dsmm = spmm


@method("smm")
def smm(input: Tensor, mat: Tensor) -> SparseTensor:
    """The product of a sparse matrix with a dense one, as a COO tensor of its nonempty rows' elements."""
    return _unordered(ops.mm(input, mat).to_sparse())


def _unordered(x: SparseTensor) -> SparseTensor:
    """The COO tensor, of which nothing is known of its indices' order."""
    return assembled(entries(x), Pattern(sparse_coo, x._pattern.indices, x._pattern.shape))


def hspmm(mat1: Tensor, mat2: Tensor) -> SparseTensor:
    """The product of a sparse matrix with a dense one, as a COO tensor with one sparse and one dense dimension."""
    return _unordered(ops.mm(mat1, mat2).to_sparse(1))


def saddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """addmm of sparse matrices, by its old name; sspaddmm of sparse ones and a dense one."""
    if isinstance(input, SparseTensor) and not isinstance(mat2, SparseTensor):
        return sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return ops.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


@method("sspaddmm")
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2) of sparse `input` and `mat1` and a dense `mat2`, as a COO tensor."""
    for name, given in (("input", input), ("mat1", mat1)):
        if not isinstance(given, SparseTensor):
            raise RuntimeError(f"sspaddmm(): {name} must be a sparse tensor, got {given.layout} of shape {list(given.shape)}; addmm takes "
                               "dense ones")
    if isinstance(mat2, SparseTensor):
        raise RuntimeError(f"sspaddmm(): mat2 must be a dense matrix, got {mat2.layout}")
    shape = (mat1.shape[0], mat2.shape[1])
    if tuple(input.shape) != shape:
        raise RuntimeError(f"sspaddmm(): input of shape {list(input.shape)} does not fit the product's shape {list(shape)}")
    found = input * beta + smm(mat1, mat2) * alpha
    if out is None:
        return found
    if not isinstance(out, SparseTensor):
        raise RuntimeError(f"sspaddmm(): out must be a sparse tensor, got {out.layout}")
    return become(out, found)
