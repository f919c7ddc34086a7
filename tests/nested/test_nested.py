"""Nested tensors by themselves: making, parts, shapes, gradients, files, layers; and what is refused, with which words."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.nn import functional as F

LAYOUTS = pytest.mark.parametrize("layout", [fl.jagged, fl.strided], ids=str)


def rows(*lengths: int, width: int = 4, dtype: Any = None) -> list[Any]:
    """Tensors of these lengths, with elements that are all different."""
    total = 0
    found = []
    for length in lengths:
        found.append((fl.arange(length * width, dtype=dtype or fl.float32).reshape(length, width) + total) / 7)
        total += length * width
    return found


def nested(*lengths: int, layout: Any = fl.jagged, **kwargs: Any) -> Any:
    return fl.nested.nested_tensor(rows(*lengths), layout=layout, **kwargs)


def holed() -> Any:
    """A jagged tensor between whose rows lie values of none."""
    return fl.nested.nested_tensor_from_jagged(fl.arange(28.0).reshape(7, 4), fl.tensor([0, 3, 5, 7]), fl.tensor([2, 1, 2]))


def same(found: Any, wanted: Any) -> None:
    if not isinstance(wanted, fl.Tensor):
        found = list(found.unbind()) if isinstance(found, fl.Tensor) else found
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            same(a, b)
        return
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


# -- making and facts ------------------------------------------------------------------------------------------------------------
@LAYOUTS
def test_of_a_list(layout: Any) -> None:
    x = nested(2, 3, 1, layout=layout)
    assert x.is_nested and isinstance(x, fl.Tensor) and x.layout is layout
    assert (x.dim(), x.size(0), x.size(2), x.numel(), x.dtype, x.is_contiguous()) == (3, 3, 4, 24, fl.float32, True)
    same(x, rows(2, 3, 1))
    same(x[1], rows(2, 3, 1)[1])
    assert not fl.ones(2).is_nested


def test_the_ragged_size_tells_the_same_rows() -> None:
    x, other = nested(2, 3), nested(2, 3)
    ragged = x.shape[1]
    assert isinstance(ragged, fl.SymInt) and not isinstance(ragged, int)
    assert (x * 2).shape == x.shape and x.shape != other.shape and hash(ragged) == hash((x + 1).shape[1])
    assert ragged >= 2 and not ragged < 2 and ragged != 3 and ragged * 2 == 2 * ragged and 2 * ragged > ragged
    with pytest.raises(ValueError, match="indeterminate"):
        bool(ragged < 5)
    with pytest.raises(NotImplementedError, match="ragged dimension"):
        int(ragged)
    offsets = fl.tensor([0, 2, 5])
    a, b = (fl.nested.nested_tensor_from_jagged(fl.ones(5, 2), offsets) for _ in range(2))
    same(a + b, [fl.full((2, 2), 2.0), fl.full((3, 2), 2.0)])
    with pytest.raises(RuntimeError, match="same offsets"):
        x + other


def test_from_jagged_is_a_view() -> None:
    values = fl.arange(10.0).reshape(5, 2)
    x = fl.nested.nested_tensor_from_jagged(values, fl.tensor([0, 2, 5]))
    x.mul_(2)
    x[0][0, 0] = 7.0
    assert values[0, 0] == 7 and values[4, 1] == 18
    assert x.values().data_ptr() == values.data_ptr() and x.lengths() is None and x.offsets().tolist() == [0, 2, 5]
    same(fl.nested.nested_tensor_from_jagged(values, lengths=fl.tensor([1, 4])), [values[:1], values[1:]])
    turned = fl.nested.nested_tensor_from_jagged(values.t(), fl.tensor([0, 2, 5]), jagged_dim=2)
    same(turned, [values[:2].t(), values[2:].t()])
    same(holed(), [fl.arange(28.0).reshape(7, 4)[a:b] for a, b in ((0, 2), (3, 4), (5, 7))])


def test_narrow_and_masked_select() -> None:
    dense = fl.arange(12.0).reshape(2, 6)
    x = fl.nested.narrow(dense, 1, fl.tensor([0, 1]), fl.tensor([2, 3]), layout=fl.jagged)
    same(x, [dense[0, :2], dense[1, 1:4]])
    assert not x.is_contiguous() and x.contiguous().is_contiguous()
    same(fl.nested.narrow(dense, 1, 1, 3, layout=fl.jagged), [dense[0, 1:4], dense[1, 1:4]])
    same(fl.nested.narrow(dense, 0, 1, 1), [dense[1]])
    mask = dense % 3 == 0
    same(fl.nested.masked_select(dense, mask), [dense[0][mask[0]], dense[1][mask[1]]])


def test_ragged_in_another_dimension() -> None:
    x = fl.nested.nested_tensor([fl.ones(2, 3), fl.ones(2, 5)], layout=fl.jagged)
    assert x._ragged_idx == 2 and x.shape[:2] == (2, 2)
    same(x.transpose(1, 2).contiguous(), [fl.ones(3, 2), fl.ones(5, 2)])


@LAYOUTS
def test_printing(layout: Any) -> None:
    x = fl.nested.nested_tensor([fl.tensor([1.0]), fl.tensor([2.0, 3.0])], layout=layout)
    text = repr(x)
    if layout is fl.strided:
        assert text == "nested_tensor([\n  tensor([1.]),\n  tensor([2., 3.])\n])"
    else:
        assert text == f"NestedTensor(size=(2, {x.shape[1]}), offsets=tensor([0, 1, 3]), contiguous=True)"
    assert repr(x.requires_grad_()).endswith(", requires_grad=True)") and "grad_fn=" in repr(x * 2) and f"{x}" == repr(x)


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: fl.nested.nested_tensor(3), TypeError, "Only lists"),
    (lambda: fl.nested.nested_tensor([], layout=fl.jagged), RuntimeError, "empty tensor list"),
    (lambda: fl.nested.nested_tensor([fl.tensor(1.0)], layout=fl.jagged), RuntimeError, "zero-dim"),
    (lambda: fl.nested.nested_tensor([fl.ones(2), fl.ones(2, 2)]), RuntimeError, "same dimension. Found dimension 2 for Tensor at index 1"),
    (lambda: fl.nested.nested_tensor([fl.ones(2, 3), fl.ones(4, 4)], layout=fl.jagged), RuntimeError, "single ragged dimension"),
    (lambda: fl.nested.nested_tensor([fl.ones(2)], layout=fl.sparse_coo), RuntimeError, "unsupported for nested tensors"),
    (lambda: fl.nested.as_nested_tensor(3), TypeError, "tensor or a list"),
    (lambda: fl.nested.as_nested_tensor(fl.ones(2)), RuntimeError, "dim"),
    (lambda: fl.nested.as_nested_tensor(nested(2, 3), layout=fl.strided), RuntimeError, "Converting between"),
    (lambda: fl.nested.nested_tensor_from_jagged(fl.ones(5, 2)), RuntimeError, "At least one of offsets or lengths"),
    (lambda: fl.nested.nested_tensor_from_jagged(fl.ones(5, 2), fl.tensor([0, 5]), jagged_dim=0), ValueError, "jagged_dim"),
    (lambda: fl.nested.nested_tensor_from_jagged(fl.ones(5, 2), fl.tensor([[0, 5]])), AssertionError, "1D"),
    (lambda: fl.nested.nested_tensor_from_jagged(fl.ones(5, 2), fl.tensor([0, 5]), fl.tensor([1, 2, 3])), AssertionError, "must match"),
    (lambda: fl.nested.narrow(fl.ones(2, 3), 0, 0, 1, layout=fl.jagged), RuntimeError, "dim=1"),
    (lambda: fl.nested.to_padded_tensor(fl.ones(2), 0.0), NotImplementedError, "no rows to pad"),
    (lambda: nested(2, 3).sum(0), RuntimeError, "batch dimension but not the ragged"),
    (lambda: nested(2, 3).sum((1, 2)), RuntimeError, "ragged and non-batch"),
    (lambda: holed().sum(1), RuntimeError, "with holes"),
    (lambda: holed().to_padded_tensor(0.0), RuntimeError, "with holes"),
    (lambda: nested(2, 3).softmax(0), RuntimeError, "dim=0"),
    (lambda: nested(2, 3).transpose(0, 1), ValueError, "dim=0"),
    (lambda: nested(2, 3).select(1, 0), RuntimeError, "ragged dim"),
    (lambda: nested(2, 3).split(1, 1), RuntimeError, "ragged dim"),
    (lambda: fl.cat([nested(2, 3)] * 2, 1), RuntimeError, "ragged dim"),
    (lambda: nested(2, 3).unbind(1), RuntimeError, "dim=0"),
    (lambda: nested(2, 3)[5], IndexError, "out of bounds"),
    (lambda: nested(2, 3).size(7), IndexError, "out of range"),
    (lambda: nested(2, 3).view(-1, 4), RuntimeError, "cannot view shape"),
    (lambda: nested(2, 3).triu(), NotImplementedError, "not of single elements"),
    (lambda: nested(2, 3).tolist(), RuntimeError, "tolist"),
    (lambda: nested(2, 3).item(), RuntimeError, "20 elements"),
    (lambda: bool(nested(2, 3)), RuntimeError, "ambiguous"),
    (lambda: nested(2, 3) + fl.ones(2, 2, 4), RuntimeError, "must match the existing size"),
    (lambda: nested(2, 3) + fl.ones(5, 4), RuntimeError, "inputs of shapes"),
    (lambda: nested(2, 3) + nested(2, 3, layout=fl.strided), RuntimeError, "different layouts"),
    (lambda: nested(2, 3, layout=fl.strided) + fl.ones(4), RuntimeError, "Expected both self and other to be nested"),
    (lambda: nested(2, 3, layout=fl.strided) + nested(3, 2, layout=fl.strided), RuntimeError, "does not support broadcasting"),
    (lambda: nested(2, 3, layout=fl.strided).shape, RuntimeError, "doesn't support sizes"),
    (lambda: nested(2, 3, layout=fl.strided).size(1), RuntimeError, "irregular"),
    (lambda: nested(2, 3, layout=fl.strided).stride(), RuntimeError, "doesn't support strides"),
    (lambda: nested(2, 3, layout=fl.strided).to_padded_tensor(0.0, (2, 2, 4)), RuntimeError, "Truncation"),
    (lambda: nested(2, 3) @ nested(2, 3).transpose(1, 2), RuntimeError, "not supported between"),
    (lambda: F.linear(nested(2, 3).transpose(1, 2), fl.ones(3, 3)), ValueError, "ragged"),
    (lambda: F.scaled_dot_product_attention(nested(2, 3), fl.ones(2, 3, 4), fl.ones(2, 3, 4)), ValueError, "to be nested tensors"),
    (lambda: nested(2, 3, requires_grad=True).mul_(2), RuntimeError, "leaf Variable"),
    (lambda: nested(2, 3).copy_(fl.ones(3)), ValueError, "nested"),
    (lambda: nested(2, 3).copy_(nested(2, 3, layout=fl.strided)), ValueError, "layout"),
    (lambda: F.mse_loss(*[holed()] * 2), NotImplementedError, "not of single elements"),
    (lambda: fl._nested_view_from_buffer(fl.ones(5), fl.tensor([[3, 2]]), fl.tensor([[2, 1]]), fl.tensor([0])), RuntimeError, "out of bounds"),
    (lambda: fl._nested_view_from_buffer(fl.ones(5), fl.tensor([[2, 2]]), fl.tensor([[2, 1]]), fl.tensor([])), RuntimeError, "of each"),
    (lambda: fl._nested_from_padded(fl.ones(1, 2, 2), fl.tensor([[3, 2]])), RuntimeError, "larger than"),
    (lambda: fl._nested_tensor_from_mask(fl.ones(1, 2, 2), fl.tensor([[False, True]])), RuntimeError, "left-aligned"),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_refused(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


# -- computing -------------------------------------------------------------------------------------------------------------------
def test_dense_tensors_are_broadcast_to_jagged_ones() -> None:
    x, (a, b) = nested(2, 3), rows(2, 3)
    each, padded = fl.tensor([[[2.0]], [[3.0]]]), fl.arange(24.0).reshape(2, 3, 4)
    same(x * fl.arange(4.0), [a * fl.arange(4.0), b * fl.arange(4.0)])
    same(each * x, [a * 2, b * 3])
    same(x + padded, [a + padded[0, :2], b + padded[1]])
    same(x.transpose(1, 2) * each, [a.t() * 2, b.t() * 3])
    same(holed() * fl.tensor([[[1.0]], [[2.0]], [[3.0]]]), [row * n for row, n in zip(holed(), (1, 2, 3))])
    with pytest.raises(NotImplementedError, match="unsqueeze"):
        x + fl.ones(1, 1, 1, 4)


@LAYOUTS
def test_padding(layout: Any) -> None:
    x, (a, b) = nested(2, 3, layout=layout), rows(2, 3)
    found = x.to_padded_tensor(-1.0)
    same(found, fl.stack([fl.cat([a, -fl.ones(1, 4)]), b]))
    assert x.to_padded_tensor(0.0, (2, 5, 4)).shape == (2, 5, 4)
    same(fl.nested.to_padded_tensor(x, 2.0)[0, 2], fl.full((4,), 2.0))


def test_padding_where_the_ragged_dimension_is_another() -> None:
    x = nested(2, 3).transpose(1, 2)
    same(x.to_padded_tensor(0.0), nested(2, 3).to_padded_tensor(0.0).transpose(1, 2))


@LAYOUTS
def test_layers(layout: Any) -> None:
    x, parts = nested(2, 3, layout=layout), rows(2, 3)
    weight, bias = fl.arange(12.0).reshape(3, 4) / 5, fl.arange(3.0)
    for layer in (lambda t: F.linear(t, weight, bias), lambda t: F.layer_norm(t, (4,), fl.arange(4.0), fl.ones(4)),
                  lambda t: F.rms_norm(t, (4,)), lambda t: t @ weight.t(), lambda t: F.dropout(t, 0.5, False), lambda t: F.gelu(t),
                  lambda t: F.softmax(t, -1), lambda t: F.softmax(t, 1 if t.is_nested else 0)):
        same(layer(x), [layer(row) for row in parts])
    table = fl.arange(10.0).reshape(5, 2)
    index = [fl.tensor([1, 4]), fl.tensor([0])]
    same(F.embedding(fl.nested.nested_tensor(index, layout=layout), table), [table[i] for i in index])


@LAYOUTS
def test_losses(layout: Any) -> None:
    x, parts = nested(2, 3, layout=layout), fl.cat(rows(2, 3))
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss):
        same(loss(x, x * 2), loss(parts, parts * 2))


def test_private_names_of_torch() -> None:
    parts = rows(2, 3)
    padded, mask = nested(2, 3).to_padded_tensor(0.0), fl.tensor([[True, True, False], [True, True, True]])
    same(fl._nested_tensor_from_mask(padded, mask), parts)
    assert fl._nested_tensor_from_mask_left_aligned(padded, mask) and not fl._nested_tensor_from_mask_left_aligned(padded, mask.flip(1))
    same(fl._nested_from_padded(padded, fl.tensor([[2, 4], [3, 4]])), parts)
    same(fl._nested_tensor_from_tensor_list(parts), parts)
    buffer = fl.arange(6.0)
    same(fl._nested_view_from_buffer(buffer, fl.tensor([[2, 2], [1, 2]]), fl.tensor([[1, 2], [2, 1]]), fl.tensor([0, 4])),
         [buffer[:4].reshape(2, 2).t(), buffer[4:].reshape(1, 2)])
    inside = fl.nested._internal.nested_tensor
    same(inside.nested_from_padded(padded, fl.tensor([0, 2, 5])), parts)
    x, offsets = inside.jagged_from_list(parts, None)
    assert isinstance(x, inside.NestedTensor) and offsets.tolist() == [0, 2, 5]
    same(inside.buffer_from_jagged(x), fl.cat(parts))
    same(inside.nested_view_from_values_offsets_lengths(fl.cat(parts), offsets, fl.tensor([1, 2])), [parts[0][:1], parts[1][:2]])


def test_products() -> None:
    x, (a, b), weights = nested(2, 3), rows(2, 3), fl.arange(40.0).reshape(2, 4, 5) / 9
    same(fl.bmm(x, weights), [a @ weights[0], b @ weights[1]])
    same(weights.mT @ x.transpose(1, 2), [weights[0].t() @ a.t(), weights[1].t() @ b.t()])
    same(x.transpose(1, 2) @ x, fl.stack([a.t() @ a, b.t() @ b]))
    n = nested(2, 3, layout=fl.strided)
    same(n @ n.transpose(1, 2), [a @ a.t(), b @ b.t()])
    bags = F.embedding_bag(fl.nested.nested_tensor([fl.tensor([1, 2]), fl.tensor([0])], layout=fl.jagged), fl.arange(6.0).reshape(3, 2))
    same(bags, fl.tensor([[3.0, 4.0], [0.0, 1.0]]))


@LAYOUTS
def test_attention_of_each_row(layout: Any) -> None:
    x = nested(2, 3, layout=layout).unflatten(-1, (2, 2)).transpose(1, 2)
    for causal in (False, True):
        wanted = [F.scaled_dot_product_attention(*[row.unflatten(-1, (2, 2)).transpose(0, 1)] * 3, is_causal=causal) for row in rows(2, 3)]
        same(F.scaled_dot_product_attention(x, x, x, is_causal=causal), wanted)
    keys = fl.nested.nested_tensor([fl.ones(2, 5, 2), fl.ones(2, 1, 2)], layout=layout)
    same(F.scaled_dot_product_attention(x, keys, keys), [fl.ones(2, 2, 2), fl.ones(2, 3, 2)])


@LAYOUTS
def test_attention_module_and_encoder(layout: Any) -> None:
    fl.manual_seed(0)
    layer = fl.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    x, parts = nested(2, 3, layout=layout), rows(2, 3)
    same(layer(x), [layer(row) for row in parts])
    same(layer.self_attn(x, x, x, need_weights=False)[0], [layer.self_attn(row, row, row)[0] for row in parts])
    with pytest.raises(AssertionError, match="a mask was given"):
        layer(x, src_mask=fl.zeros(3, 3))
    if layout is fl.strided:
        weights = layer.self_attn(x, x, x)[1]
        same(weights[0, :2, :2], layer.self_attn(*[parts[0]] * 3)[1])
        assert weights.shape == (2, 3, 3) and not weights[0, 2].any()


def test_encoders_give_padding_as_zeros_in_inference() -> None:
    fl.manual_seed(0)
    encoder = fl.nn.TransformerEncoder(fl.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 2).eval()
    dense, mask = nested(2, 3).to_padded_tensor(0.0), fl.tensor([[False, False, True], [False, False, False]])
    assert encoder.use_nested_tensor
    with fl.no_grad():
        found = encoder(dense, src_key_padding_mask=mask)
        same(found, encoder(nested(2, 3, layout=fl.strided)).to_padded_tensor(0.0))
        same(encoder(dense, src_key_padding_mask=mask.float()), found)
        assert encoder(dense, src_key_padding_mask=mask.flip(1)).all(-1).all()      # padding before what counts stays as it comes
        assert encoder.train()(dense, src_key_padding_mask=mask).all(-1).all()
    assert encoder.eval()(dense, src_key_padding_mask=mask).all(-1).all()       # where gradients flow as well
    with pytest.raises(RuntimeError, match="2D"), fl.no_grad():
        encoder(dense, src_key_padding_mask=mask[0])


# -- shapes and parts ------------------------------------------------------------------------------------------------------------
@LAYOUTS
def test_views_share_memory(layout: Any) -> None:
    views: list[tuple[Callable, Callable]] = [
        (lambda x: x.transpose(1, 2), lambda r: r.t()), (lambda x: x.unsqueeze(-1), lambda r: r.unsqueeze(-1)),
        (lambda x: x.unflatten(-1, (2, 2)), lambda r: r.unflatten(-1, (2, 2))), (lambda x: x.select(-1, 1), lambda r: r.select(-1, 1)),
        (lambda x: x.narrow(-1, 1, 2), lambda r: r.narrow(-1, 1, 2)), (lambda x: x.chunk(2, -1)[1], lambda r: r.chunk(2, -1)[1]),
        (lambda x: x[..., 1:], lambda r: r[..., 1:]), (lambda x: x.permute(0, 2, 1), lambda r: r.t()),
        (lambda x: x.view(2, -1, 2, 2), lambda r: r.view(-1, 2, 2)), (lambda x: x.detach(), lambda r: r)]
    for of_nested, of_row in views:
        x = nested(2, 3, layout=layout)
        view = of_nested(x)
        same(view, [of_row(row) for row in rows(2, 3)])
        view.zero_()
        wanted = rows(2, 3)
        for row in wanted:
            of_row(row).zero_()
        same(x, wanted)


def test_rows_by_subscripts() -> None:
    x, parts = nested(2, 3, 1), rows(2, 3, 1)
    same(x[-1], parts[2])
    same(x[1, 2], parts[1][2])
    same(x[0:2], parts[:2])
    same(x[fl.tensor([2, 0])], [parts[2], parts[0]])
    same(x[[True, False, True]], [parts[0], parts[2]])
    same(x[:, 0:1], [row[0:1] for row in parts])
    same(x[..., None], [row[..., None] for row in parts])
    same(x.chunk(2)[0], parts[:2])
    x[1] = 0.0
    x[0, 1] = fl.ones(4)
    x[..., 0] = 9.0
    parts[1].zero_()
    parts[0][1] = 1.0
    for row in parts:
        row[:, 0] = 9.0
    same(x, parts)
    x[x > 5] = 0.0
    assert (x <= 5).all()


@LAYOUTS
def test_joining_and_writing(layout: Any) -> None:
    x, parts = nested(2, 3, layout=layout), rows(2, 3)
    same(fl.cat([x, x], -1), [fl.cat([row, row], -1) for row in parts])
    x.fill_(2.0).add_(x).mul_(3)
    same(x, [fl.full((2, 4), 12.0), fl.full((3, 4), 12.0)])
    x.copy_(nested(2, 3, layout=layout))
    same(x, parts)
    same(fl.zeros_like(x), [fl.zeros(2, 4), fl.zeros(3, 4)])
    assert fl.rand_like(x).is_nested and fl.equal(x, x.clone()) and fl.allclose(x, x) and x.is_same_size(x)
    if layout is fl.strided:
        same(fl.cat([x, x], 0), parts * 2)


# -- gradients -------------------------------------------------------------------------------------------------------------------
FUNCTIONS: list[Callable] = [
    lambda x: (x * x).sin(), lambda x: x.transpose(1, 2) * 2, lambda x: x.softmax(-1), lambda x: x.softmax(1), lambda x: x.chunk(2, -1)[1],
    lambda x: F.layer_norm(x, (4,)), lambda x: F.linear(x, fl.arange(8.0, dtype=fl.float64).reshape(2, 4)), lambda x: x[1],
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x.to_padded_tensor(1.0), lambda x: fl.cat([x, x * 2], -1), lambda x: x.unsqueeze(-1), lambda x: x.contiguous(),
    lambda x: fl.where(x > 1.1, x, x * 3), lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: (x * 1).mul_(x), lambda x: x.clone(),
    lambda x: x.values().pow(2), lambda x: x.select(-1, 0), lambda x: x @ fl.arange(8.0, dtype=fl.float64).reshape(4, 2)]
OF_JAGGED: list[Callable] = [
    lambda x: x.sum(1), lambda x: x.mean(1), lambda x: x.amax(1), lambda x: x.sum(), lambda x: x.mean((0, 1)), lambda x: x.prod(-1),
    lambda x: x * fl.arange(2.0, dtype=fl.float64).reshape(2, 1, 1), lambda x: x + fl.ones(2, 3, 4, dtype=fl.float64), lambda x: x[0:1],
    lambda x: x.transpose(1, 2) @ x, lambda x: x.flip(1), lambda x: x.transpose(1, 2).contiguous()]


def dense(value: Any) -> Any:
    return fl.cat([row.reshape(-1) for row in value.unbind()]) if value.is_nested else value


@pytest.mark.parametrize(("function", "layout"), [
    *((function, fl.jagged) for function in FUNCTIONS + OF_JAGGED), *((function, fl.strided) for function in FUNCTIONS)])
def test_gradients_to_components(function: Callable, layout: Any) -> None:
    parts = [row.requires_grad_() for row in rows(2, 3, dtype=fl.float64)]

    def of_parts(*given: Any) -> Any:
        return dense(function(fl.nested.as_nested_tensor(list(given), layout=layout)))

    assert fl.autograd.gradcheck(of_parts, parts)
    assert fl.autograd.gradgradcheck(of_parts, parts)


@LAYOUTS
def test_gradients_of_leaves(layout: Any) -> None:
    x = nested(2, 3, layout=layout, requires_grad=True)
    assert x.is_leaf and x.requires_grad and x.grad is None
    for _ in range(2):
        dense(x * x).sum().backward()
    assert x.grad.layout is layout
    same(x.grad, [row * 4 for row in rows(2, 3)])
    y = x * 3
    found, = fl.autograd.grad(y, x, fl.ones_like(y))
    same(found, [fl.full((2, 4), 3.0), fl.full((3, 4), 3.0)])
    with pytest.raises(RuntimeError, match="scalar outputs"):
        y.backward()
    x.grad = fl.zeros_like(x)
    seen = []
    x.register_hook(lambda g: seen.append(g.is_nested))
    dense(x).sum().backward()
    assert seen == [True]


def test_gradients_with_holes() -> None:
    values = fl.ones(7, 4, requires_grad=True)
    x = fl.nested.nested_tensor_from_jagged(values, fl.tensor([0, 3, 5, 7]), fl.tensor([2, 1, 2]))
    dense(x * 2).sum().backward()
    assert values.grad[:, 0].tolist() == [2, 2, 0, 2, 0, 2, 2]


@LAYOUTS
def test_training_a_model(layout: Any) -> None:
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(4, 8), fl.nn.ReLU(), fl.nn.Linear(8, 1))
    rest = copy.deepcopy(model)
    dense(model(nested(2, 3, layout=layout))).pow(2).sum().backward()
    rest(fl.cat(rows(2, 3))).pow(2).sum().backward()
    for mine, other in zip(model.parameters(), rest.parameters()):
        same(mine.grad, other.grad)


# -- copies and files ------------------------------------------------------------------------------------------------------------
@LAYOUTS
def test_copies(layout: Any) -> None:
    x = nested(2, 3, layout=layout, requires_grad=True)
    file = io.BytesIO()
    fl.save({"x": x, "views": x.detach().transpose(1, 2)}, file)
    file.seek(0)
    loaded = fl.load(file)
    for found in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), loaded["x"]):
        same(found, rows(2, 3))
        assert found.layout is layout
    same(loaded["views"], [row.t() for row in rows(2, 3)])
    assert copy.deepcopy(x).requires_grad
    same(x.double(), [row.double() for row in rows(2, 3)])
    assert x.float() is x and x.to("meta").device.type == "meta" and x.half().dtype is fl.float16
    same(copy.copy(x), rows(2, 3))


def test_files_that_lie() -> None:
    x = holed()
    for rebuilt in (fl.nested.tensor.rebuilt(x.values(), fl.tensor([0, 3, 99]), None, 1),
                    fl.nested.tensor.rebuilt(x.values(), fl.tensor([0, 3, 5, 7]), fl.tensor([2, 1, 9]), 1),
                    fl.nested.tensor.rebuilt_strided(fl.ones(4), [(3, 2)], [(2, 1)], [0])):
        with pytest.raises((RuntimeError, IndexError)):
            rebuilt.unbind()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@LAYOUTS
def test_compiled(backend: str, layout: Any) -> None:
    x = nested(2, 3, layout=layout)
    same(fl.compile(lambda t: (t * 2).sin() + 1, backend=backend)(x), [(row * 2).sin() + 1 for row in rows(2, 3)])

    def inside(values: Any, offsets: Any) -> Any:
        y = fl.nested.nested_tensor_from_jagged(values * 2, offsets)
        return y.cos().sum(1) + values.sum()

    values, offsets = fl.cat(rows(2, 3)), fl.tensor([0, 2, 5])
    same(fl.compile(inside, backend=backend)(values, offsets), inside(values, offsets))


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nested.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", f"import flambeau.as_torch\n{program}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("[torch.Size([3, 8]), torch.Size([2, 8])] torch.Size([2, 8]) torch.Size([2, 3, 8])")
