"""Calls of `torch.ops.aten` in a compiled function: ATen's own arguments, one graph, eager's values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dynamo_harness import check

import flambeau as torch

aten = torch.ops.aten

CALLS: dict[str, Callable] = {
    "the handle of all overloads": lambda x: aten.mul(x, 2),
    "an argument that is not the operator's": lambda x: (aten._softmax.default(x, -1, False), aten._log_softmax.default(x, 1, False)),
    "a reduction by number": lambda x: aten.mse_loss.default(x, x + 1, 2),
    "several results": lambda x: (aten.native_layer_norm.default(x, [3], None, None, 1e-5), aten.topk.default(x, 2),
                                  aten.max_pool2d_with_indices.default(x[None], [2, 2])),
    "by name": lambda x: (aten.gelu.default(x, approximate="tanh"), aten.var.correction(x, [1], correction=0),
                          aten.add.Tensor(x, x, alpha=2), aten._to_copy.default(x, dtype=torch.float64)),
    "lists": lambda x: (aten.cat.default([x, x], 1), aten.expand.default(x[:, :1], [2, 3]), aten.sum.dim_IntList(x, [0]),
                        aten.index.Tensor(x, [None, torch.tensor([0, 2])]), aten.split_with_sizes.default(x, [1, 2], 1)),
    "views": lambda x: (aten.slice.Tensor(x, 1, 0, 2), aten.select.int(x, 1, 0), aten._unsafe_view.default(x, [3, 2]), aten.t.default(x)),
    "in place": lambda x: (aten.add_.Tensor(x.clone(), 1), aten.copy_.default(x.clone(), x + 1), aten.mul_.Tensor(x, 2), x),
    "factories": lambda x: (aten.full.default([2, 2], 1.5) + x[:, :2], aten.arange.start(0, 4)),
    "products": lambda x: (aten.addmm.default(x[0], x, torch.ones(3, 3)), aten.bmm.default(x[None], x.t()[None]),
                           aten.convolution.default(x[None, None], torch.ones(1, 1, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    "a number": lambda x: (aten.item.default(x.sum()), aten._local_scalar_dense.default(x.sum())),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_one_graph(name: str, dynamic: bool) -> None:
    check(CALLS[name], torch.arange(6.0).reshape(2, 3), dynamic=dynamic)


def test_a_refused_call_raises_as_eager() -> None:
    with pytest.raises(RuntimeError, match="'other'"):
        torch.compile(lambda x: aten.add.Tensor(x), backend="eager")(torch.ones(2))


def test_what_is_only_a_name_raises_as_eager() -> None:
    with pytest.raises(NotImplementedError, match="only a name"):
        torch.compile(lambda x: aten.miopen_batch_norm(x), backend="eager")(torch.ones(2))
