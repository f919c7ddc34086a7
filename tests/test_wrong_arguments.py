"""Arguments that no function takes: wherever PyTorch answers with TypeError, so do all operators of the same name."""

import warnings

import pytest

import flambeau as fl
from flambeau.ops.registry import is_operator

torch = pytest.importorskip("torch")

WRONG = {
    "an object": lambda lib, f: f(object()), "None": lambda lib, f: f(None), "a string": lambda lib, f: f("a"),
    "an unknown keyword": lambda lib, f: f(lib.ones(2, 2), no_such_argument=1),
    "out as a string": lambda lib, f: f(lib.ones(2, 2), out="a"),
}
SPACES = ("", "nn.functional", "linalg", "fft", "special")
OTHERWISE = {
    ("linalg", "multi_dot", "a string"): "a string is a sequence of one, of which there is no product",
    **{("", "embedding_bag", kind): "ATen's form is refused as a whole, and says what to use instead" for kind in WRONG},
}


def members(lib, space):
    for part in filter(None, space.split(".")):
        lib = getattr(lib, part)
    return lib


def error_of(lib, f, kind):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            WRONG[kind](lib, f)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("space", SPACES)
def test_is_a_type_error(space, kind):
    ours, theirs = members(fl, space), members(torch, space)
    names = [n for n in dir(theirs) if not n.startswith("_") and is_operator(getattr(ours, n, None)) and callable(getattr(theirs, n))]
    differ = [n for n in names if (space, n, kind) not in OTHERWISE and error_of(torch, getattr(theirs, n), kind) is TypeError
              and error_of(fl, getattr(ours, n), kind) is not TypeError]
    assert names and not differ
