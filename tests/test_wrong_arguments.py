"""Arguments that no function takes: wherever PyTorch answers with TypeError, so do all operators of the same name."""

import inspect
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


DIMENSIONS = {"a truth value": (True, TypeError), "more than 64 bits": (1 << 70, ValueError), "a float": (1.5, TypeError),
              "a string": ("x", TypeError)}
FLAGS_TOO = {".embedding_bag", ".repeat_interleave", *(f".{name}" for name in ("nuclear_norm", "std", "std_mean", "var", "var_mean"))}
"""Where the second argument may be another one of the function's, which is a flag."""


@pytest.mark.parametrize("kind", DIMENSIONS)
def test_dimensions_are_ints(kind):
    """Wherever PyTorch refuses a `dim` of this kind, so do all functions of the same name that take one."""
    value, refusal = DIMENSIONS[kind]

    def refused(lib, space, name):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(members(lib, space), name)(lib.ones(2, 2), dim=value)
        except Exception as error:
            return type(error)
        return None

    tried, differ = 0, []
    for space in SPACES:
        ours = members(fl, space)
        for name in dir(members(torch, space)):
            if not name.startswith("_") and is_operator(getattr(ours, name, None)) and refused(torch, space, name) is refusal:
                tried += 1
                if refused(fl, space, name) is not refusal:
                    differ.append(f"{space}.{name}")
    assert tried > 40 and not set(differ) - FLAGS_TOO


def test_overloads_of_aten_refuse_as_pytorch_does():
    """A call that no overload fits is a RuntimeError at `torch.ops`."""
    for lib in (torch, fl):
        aten = lib.ops.aten
        for call in (lambda: aten.add.Tensor("x", 1), lambda: aten.relu.default(None), lambda: aten._softmax_backward_data("x", "y", 0, None)):
            with pytest.raises(RuntimeError):
                call()


@pytest.mark.parametrize("lib", [torch, fl], ids=["torch", "flambeau"])
def test_sizes_and_modes_of_images(lib):
    F, x = lib.nn.functional, lib.ones(1, 1, 4, 4)
    for size in ("x", 2.5, True, (2, "x"), lib.ones(3), 1 << 70):
        with pytest.raises(TypeError):
            F.interpolate(x, size)
    with pytest.raises(NotImplementedError):
        F.interpolate(x, 2, mode=3)
    with pytest.raises(TypeError):
        F.interpolate(x, 2, mode="bilinear", align_corners="yes")
    for pad in (lib.ones(2), 1, (1.5, 1), "ab"):
        with pytest.raises(TypeError):
            F.pad(x, pad)
    with pytest.raises(TypeError):
        F.pad(x, (1, 1), mode=2)
    for size in (None, True, 1.5, "x"):
        with pytest.raises(TypeError):
            F.adaptive_avg_pool2d(x, size)
    assert F.adaptive_avg_pool2d(x, (0, 2)).shape == (1, 1, 0, 2)
    for shapes, error in (((dict(), (1,)), RuntimeError), ((-100, (1,)), ValueError), ((lib.ones(2), (1,)), RuntimeError)):
        with pytest.raises(error):
            lib.broadcast_shapes(*shapes)
    with pytest.raises(TypeError):
        lib.arange(lib.ones(3))


@pytest.mark.parametrize("value", [1, 0.5, "x", (True,)], ids=repr)
def test_flags_are_truth_values(value):
    """Wherever PyTorch takes no such value for a flag, no function of the same name does; and wherever it takes it, all do."""
    def answer(lib, space, name, flag):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(members(lib, space), name)(lib.eye(2), **{flag: value})
        except Exception as error:
            return type(error)
        return None

    tried, differ = 0, []
    for space in SPACES:
        ours = members(fl, space)
        for name in dir(members(torch, space)):
            fn = getattr(ours, name, None)
            if name.startswith("_") or not is_operator(fn) or not callable(fn):
                continue
            for flag in (key for key, p in inspect.signature(fn).parameters.items() if p.annotation == "bool"):
                theirs = answer(torch, space, name, flag)
                if theirs is TypeError or theirs is None:
                    tried += 1
                    if (answer(fl, space, name, flag) is TypeError) is not (theirs is TypeError):
                        differ.append(f"{space}.{name} {flag}")
    assert tried > 50 and differ == []


def test_names_of_modes_are_strings():
    x = fl.ones(2, 2)
    for call in (lambda: fl.div(x, x, rounding_mode=True), lambda: fl.meshgrid(x[0], indexing=3), lambda: x.scatter_reduce(0, x.long(), x, 1)):
        with pytest.raises(TypeError, match="must be str, not"):
            call()
