"""Wrong calls are refused as PyTorch refuses them: its exception type, what was seen, and nothing left half-changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from tests.bad_calls import calls

CALLS = calls(fl)

# Where the types differ, and why.
DIFFERENT = {
    "index_select": "PyTorch raises IndexError for one dimension and RuntimeError for two; here it is an IndexError",
    "index_add range": "PyTorch raises IndexError for one dimension and RuntimeError for two; here it is an IndexError",
    "embedding_bag": "an IndexError as from embedding",
    "avg_pool rank": "PyTorch stumbles over a missing dimension",
    "sdpa both": "documented as an error, which PyTorch's CPU kernel does not raise",
    "compile": "a TypeError instead of a failed assertion",
    "compile backend": "torch._dynamo's InvalidBackend is a ValueError here",
}

# What the message must name: the shapes, dtypes and numbers that were seen.
MENTIONED = {
    "add shapes": ["[2, 3]", "[2, 4]"],
    "matmul shapes": ["2x3", "4x5"],
    "matmul dtypes": ["torch.float32", "torch.float64"],
    "mm dims": ["[2, 3]", "[3]"],
    "bmm shapes": ["[2, 3, 4]"],
    "bmm batch": ["[2, 3, 4]", "[3, 4, 5]"],
    "addmm": ["[2, 4]", "[5]"],
    "einsum size": ["j", "4", "3", "operand 1"],
    "view size": ["[4]", "6"],
    "view stride": ["[3, 2]", "[1, 3]", "reshape"],
    "expand": ["[4, 3]", "[2, 3]"],
    "permute": ["[-2, 1]", "2"],
    "cat shapes": ["[2, 4]", "dimension 0"],
    "cat ranks": ["2 and 1"],
    "stack": ["[2]", "[3]", "entry 1"],
    "split": ["5", "[2, 2]"],
    "narrow": ["3", "4", "5"],
    "index int": ["index 5", "size 5"],
    "index mask": ["[4]", "[5]"],
    "index shapes": ["[2], [3]"],
    "setitem shape": ["[2]", "[3]"],
    "gather index": ["index 3", "size 3"],
    "gather rank": ["[1]", "[2, 3]"],
    "gather shape": ["[4, 1]", "[2, 3]"],
    "scatter index": ["index 3", "size 3"],
    "scatter dtype": ["torch.float32", "torch.float64"],
    "scatter shape": ["[2, 3]", "[1, 1]"],
    "index_add": ["[1, 3]", "[2, 3]"],
    "index_put": ["index 7", "size 5"],
    "index_put shape": ["[3]", "[2]"],
    "masked_fill dtype": ["torch.float32"],
    "where cond": ["boolean", "torch.float32"],
    "topk": ["k = 4", "[3]"],
    "quantile": ["[0, 1]", "1.5"],
    "solve": ["2x2", "3x1"],
    "repeat": ["[2]", "[2, 3]"],
    "as_strided": ["[4]", "3"],
    "linear shape": ["[2, 3]", "[4, 5]"],
    "linear bias": ["[5]", "[4, 3]"],
    "linear dtype": ["torch.float32", "torch.float64"],
    "conv channels": ["[4, 5, 3, 3]", "[1, 3, 8, 8]", "5 channels"],
    "conv rank": ["[3, 8]", "4D"],
    "conv kernel": ["[2, 2]", "[3, 3]"],
    "conv dtype": ["torch.float32", "torch.float64"],
    "conv bias": ["[4, 3, 3, 3]", "[5]"],
    "max_pool": ["[1, 2, 2]"],
    "layer_norm": ["[4]", "[2, 3]"],
    "group_norm": ["[2, 3, 4]", "num_groups=2"],
    "batch_norm one": ["[1, 3]"],
    "embedding range": ["index 5", "size 5"],
    "embedding dtype": ["torch.float32", "Long"],
    "ce batch": ["(3)", "(2)"],
    "ce range": ["Target 5"],
    "ce dtype": ["torch.float32", "Long"],
    "ce weight": ["5 classes", "[4]"],
    "ce spatial": ["[1, 4, 4]", "[1, 3, 3]"],
    "mse shape": ["[3, 2]", "[4, 2]"],
    "ctc": ["5", "9", "[5, 1, 3]"],
    "sdpa": ["[1, 2, 3, 4]", "[1, 2, 3, 5]"],
    "sdpa mask": ["[2, 2]", "3 by 3"],
    "LSTM input": ["3", "5"],
    "LSTM state": ["(1, 1, 4)", "[1, 1, 5]"],
    "backward twice": ["second time", "retain_graph=True"],
    "backward vector": ["scalar", "[3]"],
    "backward shape": ["[4]", "[3]"],
    "stale": ["[3]", "version 1", "version 0"],
    "leaf inplace": ["leaf"],
    "fn count": ["expected 2, got 1"],
    "fn shape": ["[5]", "[2]"],
    "grad int": ["torch.int64"],
    "set grad": ["[3]", "[4]"],
    "inplace broadcast": ["[3]", "[2, 3]"],
    "inplace type": ["torch.float32", "torch.int64"],
    "state missing": ["bias"],
    "state unexpected": ["more"],
    "state shape": ["weight", "[3, 3]", "[3, 2]"],
    "meta cpu": ["cpu", "meta"],
    "zeros neg": ["-1"],
    "func arg": ["sum", "input", "Tensor", "str"],
    "missing arg": ["add()", "other"],
    "extra arg": ["relu()"],
    "kw arg": ["sum()", "nope"],
}


def refusal(call: Callable[[], Any]) -> BaseException | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return error
    return None


@pytest.fixture(scope="module")
def pytorch() -> dict[str, Callable[[], Any]]:
    return calls(pytest.importorskip("torch"))


@pytest.mark.parametrize("name", [name for name in CALLS if name not in DIFFERENT])
def test_type_is_torchs(pytorch: dict[str, Callable[[], Any]], name: str) -> None:
    mine, theirs = refusal(CALLS[name]), refusal(pytorch[name])
    assert mine is not None, f"accepted; PyTorch raises {theirs!r}"
    assert type(mine).__name__ == type(theirs).__name__, f"{mine!r} where PyTorch raises {theirs!r}"
    assert str(mine), "an error without a message"


@pytest.mark.parametrize("name", MENTIONED)
def test_message_names_what_was_seen(name: str) -> None:
    message = str(refusal(CALLS[name]))
    assert not [word for word in MENTIONED[name] if word not in message], message


# -- nothing half-changed --------------------------------------------------------------------------------------
IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "add_": lambda x: x.add_(fl.ones(5)),
    "add_ dtype": lambda x: x.long().add_(0.5),
    "mul_": lambda x: x.mul_(fl.ones(2, 3, 4)),
    "copy_": lambda x: x.copy_(fl.ones(7)),
    "index_put_": lambda x: x.index_put_((fl.tensor([0, 9]),), fl.tensor(5.0)),
    "index_add_": lambda x: x.index_add_(0, fl.tensor([0, 9]), fl.ones(2, 4)),
    "index_copy_": lambda x: x.index_copy_(0, fl.tensor([0, 9]), fl.ones(2, 4)),
    "index_fill_": lambda x: x.index_fill_(0, fl.tensor([0, 9]), 5.0),
    "scatter_": lambda x: x.scatter_(0, fl.tensor([[0], [9]]), 5.0),
    "scatter_add_": lambda x: x.scatter_add_(0, fl.tensor([[0], [9]]), fl.ones(2, 1)),
    "masked_fill_": lambda x: x.masked_fill_(fl.ones(5, dtype=fl.bool), 5.0),
    "masked_scatter_": lambda x: x.masked_scatter_(fl.ones(3, 4, dtype=fl.bool), fl.ones(2)),
    "x[...] =": lambda x: x.__setitem__((slice(None), fl.tensor([0, 9])), 5.0),
    "x[:] =": lambda x: x.__setitem__(slice(0, 2), fl.ones(3)),
    "put_": lambda x: x.put_(fl.tensor([0, 99]), fl.ones(2)),
    "addmm_": lambda x: x.addmm_(fl.ones(3, 2), fl.ones(3, 4)),
    "uniform_": lambda x: x.uniform_(2.0, 1.0),
    "clamp_": lambda x: x.clamp_(),
    "out=": lambda x: fl.mm(fl.ones(3, 2), fl.ones(3, 4), out=x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_write_that_fails_writes_nothing(name: str) -> None:
    x = fl.arange(12.0).reshape(3, 4)
    before, version = x.numpy().copy(), x._version
    assert refusal(lambda: IN_PLACE[name](x)) is not None
    np.testing.assert_array_equal(x.numpy(), before)
    assert tuple(x.shape) == (3, 4) and x._version == version and x.grad_fn is None


def test_a_write_to_a_leaf_that_fails_writes_nothing() -> None:
    x = fl.ones(3, requires_grad=True)
    for write in (lambda: x.add_(1), lambda: x.zero_(), lambda: x[:2].mul_(3), lambda: x.__setitem__(0, 5.0)):
        with pytest.raises(RuntimeError, match="leaf"):
            write()
    assert x.tolist() == [1.0, 1.0, 1.0] and x._version == 0 and x.is_leaf


def test_a_module_survives_a_state_dict_that_does_not_fit() -> None:
    model = fl.nn.Sequential(fl.nn.Linear(2, 3), fl.nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for wrong in ({"0.weight": fl.ones(3, 3)}, {**before, "0.weight": fl.ones(3, 3), "extra": fl.ones(1)}, {"0.weight": 3}):
        with pytest.raises(RuntimeError, match="Error"):
            model.load_state_dict(wrong)
        assert tuple(model[0].weight.shape) == (3, 2) and model[0].weight.requires_grad
    model.load_state_dict(before)
    model(fl.ones(4, 2)).sum().backward()


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adagrad", "RMSprop"])
def test_an_optimizer_survives_a_state_dict_that_does_not_fit(kind: str) -> None:
    def step(optimizer: Any, p: Any) -> None:
        p.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    p = fl.ones(3, requires_grad=True)
    optimizer = getattr(fl.optim, kind)([p], lr=0.1)
    step(optimizer, p)
    saved = optimizer.state_dict()
    groups = [{**saved["param_groups"][0], "params": [0, 1]}]
    for wrong in ({"state": {}, "param_groups": []}, {"state": {}, "param_groups": groups}, {"state": {}}):
        with pytest.raises((ValueError, KeyError)):
            optimizer.load_state_dict(wrong)
        assert len(optimizer.param_groups) == 1 and optimizer.param_groups[0]["params"][0] is p
    step(optimizer, p)
    optimizer.load_state_dict(saved)
    step(optimizer, p)


def test_a_backward_that_fails_leaves_the_graph_and_the_gradients() -> None:
    x = fl.ones(3, requires_grad=True)
    y = x * 2
    with pytest.raises(RuntimeError, match="scalar"):
        y.backward()
    assert x.grad is None
    y.backward(fl.ones(3))
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 3).backward(fl.ones(4))
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
