"""Mistakes of beginners raise PyTorch's exception types, and say what was called, with which shapes and dtypes, and what would work."""

from __future__ import annotations

import importlib
import warnings

import pytest

import flambeau as fl
from tests.beginners import MISTAKES, attempt

# Where the types differ, and why.
DIFFERENT = {
    "lstm hidden tensor": "PyTorch stumbles over a missing index",
    "compile str": "a TypeError instead of a failed assertion",
    "param list": "PyTorch stumbles over a missing attribute",
}

# What the text must name: what was called, what was seen, what would work.
SAID = {
    "conv kernel large": ["[4, 4]", "[7, 7]"],
    "linear feat": ["[32, 28, 28]", "[10, 784]"],
    "ce swap": ["torch.int64 [4]", "torch.float32 [4, 3]"],
    "ce float target": ["torch.float32", ".long()"],
    "bce long": ["torch.int64", "torch.float32", ".to("],
    "mse reduction": ["avg", "mean"],
    "matmul": ["3x4", "in matmul(float32[3, 4], float32[3, 4])"],
    "add shapes": ["[3, 4]", "[3]"],
    "add list": ["add()", "'other'", "position 2", "list"],
    "arange str": ["arange()", "str"],
    "dim range": ["in sum(float32[2, 3], 2)"],
    "cat shape": ["[2, 4]", "in cat([float32[2, 3], float32[2, 4]])"],
    "wrong kw": ["'axes'", "sum(input: Tensor, dim: Dims = None"],
    "wrong kw2": ["'dims'", "softmax(input: Tensor, dim: int"],
    "softmax nodim": ["softmax()", "'dim'"],
    "where": ["where()", "'other'"],
    "view tuple mix": ["(2, 2)"],
    "no super": ["super().__init__()"],
    "no super int": ["super().__init__()"],
    "misspelt forward": ["'foward'"],
    "misspelt fn": ["'matmul'"],
    "seq class": ["ReLU()"],
    "seq list": ["one by one"],
    "seq fn": ["relu is a function"],
    "optim module": ["Linear.parameters()"],
    "optim method": ["()"],
    "clip grad": ["Linear.parameters()"],
    "mha kv": ["(4, 1)", "(5, 1)"],
    "interp": ["2D", "nearest"],
    "dtype str": ["zeros()", "float32"],
    "lstm dtype": ["torch.float64", "input.to(torch.float32)"],
    "softmax long": ["torch.int64", ".float()"],
}


def refusal(name: str, library: str) -> Exception | None:
    torch = importlib.import_module(library)
    importlib.import_module(f"{library}.utils.data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attempt(MISTAKES[name], torch)


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in DIFFERENT])
def test_type_is_torchs(name: str) -> None:
    pytest.importorskip("torch")
    mine, theirs = refusal(name, "flambeau"), refusal(name, "torch")
    assert mine is not None, f"accepted; PyTorch raises {theirs!r}"
    assert type(mine).__name__ == type(theirs).__name__, f"{mine!r} where PyTorch raises {theirs!r}"


@pytest.mark.parametrize("name", SAID)
def test_text_says_what_would_work(name: str) -> None:
    error = refusal(name, "flambeau")
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    assert not [word for word in SAID[name] if word not in said], said


def test_the_call_that_is_named_is_the_outermost() -> None:
    for attempted, named in (
            (lambda: fl.nn.functional.cosine_similarity(fl.ones(2, 3), fl.ones(4, 5)), "cosine_similarity(float32[2, 3], "),
            (lambda: fl.ones(2, 3).float().matmul(fl.ones(2)), "matmul(float32[2, 3], float32[2])")):
        with pytest.raises(RuntimeError) as caught:
            attempted()
        (note,) = caught.value.__notes__
        assert note.startswith(f"in {named}"), note


def test_constructors_are_named_after_the_class_that_is_made() -> None:
    internal = [f"{space.__name__}.{name}" for space in (fl.nn, fl.optim, fl.optim.lr_scheduler, fl.distributions, fl.utils.data)
                for name, value in vars(space).items() if isinstance(value, type) and not name.startswith("_")
                and value.__module__.startswith("flambeau") and getattr(value.__init__, "__qualname__", "").startswith("_")]
    assert not internal
    with pytest.raises(TypeError, match=r"^Conv2d\.__init__\(\) missing 1 required positional argument: 'kernel_size'"):
        fl.nn.Conv2d(3, 8)


@pytest.mark.parametrize(("call", "named"), [
    ("torch.nn.Embedding(10, 3)([1, 2])", "embedding(): argument 'input'"), ("torch.ones(2, 3)[2]", "in getitem(float32[2, 3], 2)"),
    ("torch.nn.BatchNorm2d(8)(torch.ones(2, 3, 4, 4))", "in batch_norm(float32[2, 3, 4, 4]"),
    ("torch.nn.GRU(3, 4)(torch.ones(5, 2, 3), torch.ones(1, 3, 4))", "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    ("torch.ones(2).to('float32')", "a dtype is torch.float32"),
])
def test_names_are_those_that_users_know(call: str, named: str) -> None:
    with pytest.raises((TypeError, RuntimeError, IndexError)) as raised:
        eval(call, {"torch": fl})
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert named in said and "functional_" not in said and "getitem_" not in said


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize(("size", "classes"), [((3,), (1,)), ((3,), (2,)), ((3,), (1, 1)), ((1, 3), ()), ((2, 3), ()), ((3,), (0,)), ((3,), ()),
                                               ((1, 3, 1), (1,)), ((1, 3, 2), ())])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_classes_of_one_example_or_of_the_wrong_size(loss: str, size: tuple[int, ...], classes: tuple[int, ...], reduction: str) -> None:
    def tried(t):
        try:
            return tuple(getattr(t.nn.functional, loss)(t.zeros(size), t.zeros(classes, dtype=t.int64), reduction=reduction).shape)
        except (ValueError, RuntimeError) as error:
            return type(error).__name__

    assert tried(fl) == tried(pytest.importorskip("torch"))
