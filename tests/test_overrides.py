"""__torch_function__ through functions of one's own, and modes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl
from flambeau import overrides
from flambeau.ops import asked


class Loud:
    """Stands for a tensor and answers every operator with its name."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return f"loud {func.__name__}"


class Silent:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return NotImplemented


def api(x: Any, y: Any = None) -> Any:
    if overrides.has_torch_function((x, y)):
        return overrides.handle_torch_function(api, (x, y), x, y)
    return "plain"


def test_own_functions() -> None:
    assert api(1) == "plain"
    assert api(fl.ones(2)) == "plain"
    assert api(Loud()) == "loud api"
    assert api(Silent(), Loud()) == "loud api"
    with pytest.raises(TypeError, match="no implementation found for"):
        api(Silent())


def test_subclasses_are_asked_first() -> None:
    class Louder(Loud):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            return "louder"

    assert api(Loud(), Louder()) == "louder"


def test_modes_see_operators_and_may_change_them() -> None:
    seen = []

    class Double(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            out = func(*args, **(kwargs or {}))
            return out * 2 if func.__name__ == "sin" else out

    x = fl.tensor([0.5])
    with Double():
        doubled = fl.sin(x)
    assert seen == ["sin"]
    assert doubled.item() == pytest.approx(2 * fl.sin(x).item())
    assert seen == ["sin"]


def test_a_mode_leaves_when_its_block_raises() -> None:
    with pytest.raises(ZeroDivisionError), overrides.BaseTorchFunctionMode():
        _ = 1 / 0
    with overrides.BaseTorchFunctionMode(), overrides.BaseTorchFunctionMode():
        assert (fl.ones(1) + 1).item() == 2


def test_names() -> None:
    assert overrides.resolve_name(fl.sin) == "torch.sin"
    assert overrides.is_tensor_like(Loud())
    assert not overrides.is_tensor_like(3)


def test_custom_operators_ask_classes_too() -> None:
    @fl.library.custom_op("overrides::twice", mutates_args=())
    def twice(x: fl.Tensor) -> fl.Tensor:
        return x * 2

    class Answering(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            return "asked"

    assert twice(fl.ones(2).as_subclass(Answering)) == "asked" and twice(fl.ones(2)).tolist() == [2, 2]


def test_functions_of_pytorch_refuse_these_tensors() -> None:
    """It asks for __torch_function__ too: what is its own has no answer here."""
    torch = pytest.importorskip("torch")
    x = fl.ones(2)
    for call in (torch.lgamma, torch.exp_, torch.Tensor.exp_, torch.nn.functional.relu, lambda y: torch.cat([y, y]), torch.Tensor.t):
        with pytest.raises(TypeError):
            call(x)


def test_classes_with_properties_in_the_place_of_a_tensors_own() -> None:
    class Told(fl.Tensor):
        dtype = property(lambda self: super().dtype)
        device = property(lambda self: super().device)
        shape = property(lambda self: super().shape)
        ndim = property(lambda self: super().ndim)

    plain = fl.arange(6.0).reshape(2, 3)
    for x in (plain.as_subclass(Told), fl.Tensor._make_subclass(Told, plain), Told([[0.0, 1, 2], [3, 4, 5]])):
        assert type(x) is Told and x.dtype is fl.float32 and x.shape == (2, 3) and x.ndim == 2
        assert (x + 1).tolist() == (plain + 1).tolist() and x.sum(0).tolist() == [3, 5, 7]
        assert x[0].as_subclass(fl.Tensor).tolist() == [0, 1, 2]
        x.data = fl.ones(2, dtype=fl.int64)
        assert x.dtype is fl.int64 and x.tolist() == [1, 1]
    lying = type("Lying", (fl.Tensor,), {"dtype": property(lambda self: "mine")})
    assert plain.as_subclass(lying).dtype == "mine" and plain.as_subclass(lying).as_subclass(fl.Tensor).dtype is fl.float32


# the functions of torch.linalg, under their names there; and small ones around another function, or made in a loop
OF_ANOTHER_NAME = {"det", "inverse", "matrix_exp", "matrix_power", "orgqr", "slogdet", "broadcast_to", "cumprod_", "cumsum_", "polygamma",
                   "polygamma_", "put", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "where", "is_distributed",
                   "_nnz"}


def test_methods_are_called_what_they_are():
    """By these names classes and modes tell what was called. Other names of one function (`absolute`) have that function's."""
    torch = pytest.importorskip("torch")
    names = [n for n in dir(torch.Tensor) if not n.startswith("__") and callable(getattr(fl.Tensor, n, None))]
    wrong = {n: found for n in names if (found := getattr(getattr(fl.Tensor, n), "__name__", n)) != n
             and getattr(fl.Tensor, found, None) is not getattr(fl.Tensor, n)}
    assert wrong.keys() <= OF_ANOTHER_NAME


def test_an_object_of_any_class_takes_over() -> None:
    functional = fl.nn.functional
    assert fl.add(Loud(), 1) == fl.add(fl.ones(2), Loud()) == "loud add" and fl.cat([Loud()]) == "loud cat"
    assert functional.linear(fl.ones(2), Loud()) == "loud linear" and functional.relu(Loud()) == "loud relu"
    assert functional.softmax(Loud(), 1) == "loud softmax" and functional.gumbel_softmax(Loud()) == "loud gumbel_softmax"
    assert functional.multi_head_attention_forward(Loud(), *[None] * 12) == "loud multi_head_attention_forward"
    with pytest.raises(TypeError, match="no implementation found for"):
        fl.sin(Silent())


def test_names_are_those_of_the_namespaces() -> None:
    t, F = fl, fl.nn.functional
    known = {"torch.add": t.add, "torch.functional.einsum": t.einsum, "torch.linalg.norm": t.linalg.norm, "torch.fft.fft": t.fft.fft,
             "torch.nn.functional.relu": F.relu, "torch.relu": t.relu, "torch.nn.functional.linear": F.linear,
             "torch.special.entr": t.special.entr, "torch.Tensor.__add__": t.Tensor.__add__, "torch.Tensor.T.__get__": t.Tensor.T.__get__,
             "torch.Tensor.grad.__set__": t.Tensor.grad.__set__, "aten.add": t.ops.aten.add, "aten.add.Tensor": t.ops.aten.add.Tensor}
    assert {name: overrides.resolve_name(fn) for name, fn in known.items()} == {name: name for name in known}
    assert overrides.resolve_name(len) is None
    found = overrides.get_overridable_functions()
    assert F.relu in found[F] and t.add in found[t] and t.einsum in found[t.functional] and t.linalg.norm in found[t.linalg]
    everything = [fn for functions in found.values() for fn in functions]
    assert len(everything) == len(set(map(id, everything))) > 800 and all(map(overrides.resolve_name, everything))


def test_modes_see_functions_written_in_python() -> None:
    seen = []

    class Names(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            seen.append((overrides.resolve_name(func), kwargs))
            return func(*args, **(kwargs or {}))

    with Names():
        fl.nn.functional.relu(fl.nn.ReLU(inplace=True)(fl.ones(2)))
    name = "torch.nn.functional.relu"
    assert [entry for entry in seen if entry[0] == name] == [(name, {"inplace": True}), (name, {"inplace": False})]


ACCESSES: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda x: x.dtype, "shape": lambda x: x.shape, "T": lambda x: x.T, "data": lambda x: x.data, "grad": lambda x: x.grad,
    "grad_fn": lambda x: x.grad_fn, "is_leaf": lambda x: x.is_leaf, "_version": lambda x: x._version,
    "requires_grad": lambda x: x.requires_grad, "set requires_grad": lambda x: setattr(x, "requires_grad", True), "real": lambda x: x.real,
    "set grad": lambda x: setattr(x, "grad", None), "size": lambda x: x.size(), "stride": lambda x: x.stride(0), "len": len, "bool": bool,
    "float": float, "int": int, "dim": lambda x: x.dim(), "numel": lambda x: x.numel(), "item": lambda x: x.item(), "repr": repr, "str": str,
    "tolist": lambda x: x.tolist(), "numpy": lambda x: x.numpy(), "is_contiguous": lambda x: x.is_contiguous(), "in": lambda x: 1 in x,
    "data_ptr": lambda x: x.data_ptr() > 0, "element_size": lambda x: x.element_size(), "requires_grad_": lambda x: x.requires_grad_(),
    "register_hook": lambda x: x.requires_grad_().register_hook(print), "double": lambda x: x.double(), "format": lambda x: f"{x}",
    "reversed": reversed, "type": lambda x: x.type(), "backward": lambda x: (x.requires_grad_() * 1).backward(), "dunder": lambda x: x + x.T,
}


def seen(t: Any, access: Callable[[Any], Any]) -> tuple[list[str], str]:
    """The functions that a class is asked for, and the kind of what comes out."""
    asked: list[str] = []

    class Logged(t.Tensor):  # type: ignore[name-defined, misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    kind = type(access(t.ones(1, 1).as_subclass(Logged))).__name__
    return asked, kind


@pytest.mark.parametrize("name", ACCESSES)
def test_classes_are_asked_for_attributes_and_methods(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    assert seen(fl, ACCESSES[name]) == seen(torch, ACCESSES[name])


def shown(t: Any, access: Callable[[Any], Any]) -> list[str]:
    """The functions that a mode is told of."""
    told: list[str] = []

    class Logged(t.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = t.ones(1, 1)
    with Logged():
        access(x)
    return told


@pytest.mark.parametrize("name", ACCESSES)
def test_modes_are_told_of_attributes_and_methods(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    assert shown(fl, ACCESSES[name]) == shown(torch, ACCESSES[name])


def _in_turn(t: Any, access: Callable[[Any], Any]) -> list[tuple]:
    """Who of two modes and a class is told of what, in which order."""
    told: list[tuple] = []

    class Mode(t.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        def __init__(self, place: str) -> None:
            super().__init__()
            self.place = place

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append((self.place, func.__name__, [kind.__name__ for kind in types if kind is not t.Tensor]))
            return func(*args, **(kwargs or {}))

    class Class(t.Tensor):  # type: ignore[name-defined, misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append(("class", func.__name__))
            return super().__torch_function__(func, types, args, kwargs or {})

    for x in (t.ones(1, 1), t.ones(1, 1).as_subclass(Class)):
        with Mode("outer"), Mode("inner"):
            access(x)
    return told


@pytest.mark.parametrize("name", ACCESSES)
def test_modes_are_told_in_turn_and_then_the_class(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    found, expected = _in_turn(fl, ACCESSES[name]), _in_turn(torch, ACCESSES[name])
    assert found == expected


def test_what_a_mode_is_told_of_is_found_as_the_member() -> None:
    handled = {fl.Tensor.shape.__get__: "shape", fl.Tensor.size: "size", fl.Tensor.requires_grad.__set__: "set"}
    told: list[Any] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append((handled[func], func is fl.Tensor.size, func == fl.Tensor.shape.__get__, overrides.resolve_name(func), types))
            return func(*args, **(kwargs or {}))

    x = fl.ones(2)
    with Mode():
        assert x.shape == (2,) and x.size() == (2,)
        x.requires_grad = True
    kinds = (fl.Tensor,)
    assert told == [("shape", False, True, "torch.Tensor.shape.__get__", kinds), ("size", True, False, "torch.Tensor.size", kinds),
                    ("set", False, False, "torch.Tensor.requires_grad.__set__", kinds)]


def test_an_interrupt_at_the_end_of_a_mode_leaves_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Tensor has follows from the modes that are on, whatever was kept from being done."""
    before, settle = dict(vars(fl.Tensor)), asked.shown.settle

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), overrides.BaseTorchFunctionMode():
        monkeypatch.setattr(asked.shown, "settle", interrupted)
    monkeypatch.setattr(asked.shown, "settle", settle)
    assert fl.ones(3).shape == (3,) and not asked.shown.begun
    assert dict(vars(fl.Tensor)) == before


def test_modes_are_told_of_every_member_and_none_is_changed() -> None:
    told: list[Any] = []

    class Told(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append(func)
            return -1

    before, x = {kind: dict(vars(kind)) for kind in fl.Tensor.__mro__}, fl.ones(2)
    with Told(), Told():
        assert all(getattr(fl.Tensor, name) == member for name, member in asked.members().items())
        for name, member in asked.members().items():
            told.clear()
            found = getattr(x, name)
            if inspect.isdatadescriptor(member):
                assert found == -1 and told == [member.__get__], name
            else:
                assert found() == -1 and told == [member], name
    assert {kind: dict(vars(kind)) for kind in fl.Tensor.__mro__} == before


def test_a_class_that_is_made_under_a_mode_is_asked() -> None:
    asked_for: list[Any] = []

    with overrides.BaseTorchFunctionMode():
        class Told(fl.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                asked_for.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

    assert fl.ones(2).as_subclass(Told).shape == (2,) and asked_for == [fl.Tensor.shape.__get__]


def test_every_member_is_asked() -> None:
    told: list[Any] = []

    class Told(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append(func)
            return -1

    x = fl.ones(2).as_subclass(Told)
    for name, member in asked.members().items():
        told.clear()
        found = getattr(x, name)
        if inspect.isdatadescriptor(member):
            assert found == -1 and told == [member.__get__], name
        else:
            assert found() == -1 and told == [member], name
    overridable = overrides.get_testing_overrides()
    assert all((m.__get__ if inspect.isdatadescriptor(m) else m) in overridable for m in asked.members().values())


def test_a_property_of_the_program_stays() -> None:
    class Mine(fl.Tensor):
        dtype = property(lambda self: "mine")  # type: ignore[assignment]

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert func is not fl.Tensor.dtype.__get__
            return super().__torch_function__(func, types, args, kwargs or {})

    x = fl.ones(2).as_subclass(Mine)
    assert x.dtype == "mine" and (x + 1).dtype == "mine" and x.shape == (2,)


def _seen_by_class(lib, call):
    seen = []

    class Told(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    kinds = {"f": lib.tensor([1.0, 2.0]), "i": lib.tensor([1, 2]), "b": lib.tensor([True, False])}
    given = {name: t.as_subclass(Told) for name, t in kinds.items()}
    seen.clear()
    eval(call, {"operator": operator, "plain": kinds}, given)
    return seen


OPERATIONS = (
    *(f"operator.{name}(f, 2)" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne",
                                            "iadd", "isub", "imul", "itruediv", "ipow")),
    *(f"operator.{name}(2, f)" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")),
    *(f"operator.{name}(plain['f'], f)" for name in ("add", "floordiv", "mod", "eq")),
    *(f"operator.{name}(b, b)" for name in ("and_", "or_", "xor", "iand", "ior", "ixor")),
    *(f"operator.{name}(i, 1)" for name in ("lshift", "rshift", "ilshift", "irshift")),
    *(f"operator.{name}(1, i)" for name in ("lshift", "rshift")),
    *(f"operator.{name}(i)" for name in ("neg", "pos", "abs", "invert")), "f @ f", "f[0]", "operator.setitem(f, 0, 1.0)", "1.0 in f",
)


@pytest.mark.parametrize("call", OPERATIONS)
def test_classes_are_told_of_operators_of_python_as_in_torch(call):
    theirs = pytest.importorskip("torch")
    assert _seen_by_class(fl, call) == _seen_by_class(theirs, call)


def test_what_a_class_is_told_of_is_the_method():
    seen = []

    class Told(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = fl.ones(2).as_subclass(Told)
    assert (x // 2).tolist() == [0, 0] and (2 // x).tolist() == [2, 2] and bool((x == x).all()) and x[0] == 1
    for method in (fl.Tensor.__floordiv__, fl.Tensor.__rfloordiv__, fl.Tensor.__eq__, fl.Tensor.__getitem__):
        assert any(func is method for func in seen)
        assert overrides.resolve_name(method) == f"torch.Tensor.{method.__name__}"
        assert any(fn is method for fn in overrides.get_overridable_functions()[fl.Tensor])


def test_modes_are_told_of_classes():
    seen = []

    class Plain(fl.Tensor):
        pass

    class Told(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, types))
            return func(*args, **(kwargs or {}))

    x = fl.ones(2).as_subclass(Plain)
    with Told():
        x + 1
        fl.ones(1) // 2
    assert seen == [("add", (Plain,)), ("ones", ()), ("__floordiv__", ())]
