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
    "mha kv": ["[4, 1, 10]", "[5, 1, 10]"],
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
