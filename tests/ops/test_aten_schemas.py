"""The signatures of ATen's overloads are torch's, and calls of operators are recognised as the overloads that torch's own capture shows."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.ops import aten
from flambeau.ops.aten import overload_target
from flambeau.ops.aten_schemas import behind, schemas
from flambeau.ops.registry import OPERATORS, PRIMITIVES


def test_signatures_are_torchs():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    theirs = {re.sub(r"\(([a-z0-9!|*]|( -> ))+\)(?=[ ?\[,)]|$)", "", str(s)).rpartition(" -> ")[0] for s in torch._C._jit_get_all_schemas()}
    wrong = [s.text for several in schemas().values() for s in several if s.text not in theirs]
    assert not wrong


@pytest.mark.parametrize(("call", "target"), [
    (lambda x: x + 1, "aten.add.Tensor"), (lambda x: x == 1, "aten.eq.Scalar"), (lambda x: 1 - x, "aten.rsub.Scalar"),
    (lambda x: x / 2, "aten.div.Tensor"), (lambda x: x ** 2, "aten.pow.Tensor_Scalar"), (lambda x: x % 2, "aten.remainder.Scalar"),
    (lambda x: x.sum(), "aten.sum.default"), (lambda x: x.sum(-1), "aten.sum.dim_IntList"), (lambda x: x.mean(1), "aten.mean.dim"),
    (lambda x: x.max(1), "aten.max.dim"), (lambda x: x.view(2, 6), "aten.view.default"), (lambda x: x.float(), "aten.to.dtype"),
    (lambda x: x.to(fl.float64), "aten.to.dtype"), (lambda x: x.softmax(-1), "aten.softmax.int"),
    (lambda x: F.linear(x, x), "aten.linear.default"), (lambda x: F.dropout(x, 0.0), "aten.dropout.default"),
    (lambda x: F.layer_norm(x, (4,)), "aten.layer_norm.default"), (lambda x: fl.cat([x, x], 1), "aten.cat.default"),
    (lambda x: fl.arange(3), "aten.arange.default"), (lambda x: x.split(2), "aten.split.Tensor"),
    (lambda x: x.clamp(min=0), "aten.clamp.default"),
    (lambda x: fl.where(x > 0, x, x), "aten.where.self"), (lambda x: F.gelu(x, approximate="tanh"), "aten.gelu.default"),
    (lambda x: F.embedding(fl.tensor([0]), x), "aten.embedding.default"), (lambda x: x.masked_fill(x > 0, 1), "aten.masked_fill.Scalar"),
    (lambda x: F.batch_norm(x, None, None, training=True), "aten.batch_norm.default"), (lambda x: x.expand(2, 3, 4), "aten.expand.default"),
    (lambda x: F.cross_entropy(x, fl.zeros(3, dtype=fl.int64), reduction="sum"), "aten.cross_entropy_loss.default"),
])
def test_calls_are_recognised_and_mean_the_same(call, target):
    seen = []

    class Mode(fl.overrides.TorchFunctionMode):
        operators_only = True

        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            found = overload_target(func, args, kwargs or {})
            if found is not None:
                overload, given, named = found
                seen.append(repr(overload))
                again = overload(*given, **named)
                for a, b in zip(out if isinstance(out, tuple) else (out,), again if isinstance(again, tuple) else (again,), strict=True):
                    assert fl.equal(a, b)
            return out

    x = fl.arange(12, dtype=fl.float32).reshape(3, 4)
    with Mode():
        call(x)
    assert seen[-1] == target


def test_names_that_are_only_names_belong_to_nothing():
    assert not aten._NAMED & (OPERATORS.keys() | PRIMITIVES.keys() | aten.FORMS.keys() | schemas().keys())


def test_overloads_are_objects():
    add = fl.ops.aten.add
    assert add.Tensor is fl.ops.aten.add.Tensor and add.Tensor == add and add.Tensor != fl.ops.aten.add_.Tensor
    assert fl.ops.aten.sum.default != fl.ops.aten.sum.dim_IntList and len({add.Tensor, add}) == 1
    assert str(add.Tensor) == "aten.add.Tensor" and add.Tensor.name() == "aten::add.Tensor" and add.Tensor.overloadpacket is add
    assert [a.name for a in add.Tensor._schema.arguments] == ["self", "other", "alpha"]
    assert pickle.loads(pickle.dumps(add.Tensor)) is add.Tensor and copy.deepcopy(add.Tensor) is add.Tensor
    with pytest.raises(TypeError, match="missing other"):
        fl.ops.aten.mul.Tensor(fl.ones(2))


def test_operators_behind_names():
    assert behind("add") is fl.add and behind("cross_entropy_loss") is F.cross_entropy
