"""What a tensor tells of itself, where it comes from and how it lies, is told by compiled functions too, of each tensor anew."""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import check

import flambeau as torch
from flambeau import Tensor, nn


def _leaf() -> Tensor:
    return torch.ones(2, 3, requires_grad=True)


def _retained() -> Tensor:
    y = _leaf() * 2
    y.retain_grad()
    return y


def _hooked() -> Tensor:
    x = _leaf()
    x.register_hook(lambda g: g)
    return x


def _of_inference() -> Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


KINDS: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.ones(2, 3), "a view": lambda: torch.ones(6).view(2, 3), "an offset": lambda: torch.ones(8)[2:].view(2, 3),
    "turned": lambda: torch.ones(3, 2).t(), "a leaf": _leaf, "a result": lambda: _leaf() * 2,
    "a view of a result": lambda: (_leaf() * 2)[:],
    "a result that keeps its gradient": _retained, "a leaf with a hook": _hooked, "written to": lambda: torch.ones(2, 3).add_(1),
    "of inference mode": _of_inference, "a parameter": lambda: nn.Parameter(torch.ones(2, 3)), "detached": lambda: (_leaf() * 2).detach(),
}
ADDRESSES = {"data_ptr", "const_data_ptr", "_version", "_lay"}


def _told(answer: Any) -> Any:
    """Numbers, texts and None as they are; of tensors and other objects, that they are some."""
    if isinstance(answer, (tuple, list)):
        return [_told(each) for each in answer]
    return answer if isinstance(answer, (bool, int, float, str, type(None))) else type(answer).__name__


def _asked(f: Callable, x: Tensor) -> Any:
    try:
        return _told(f(x))
    except Exception as error:
        return type(error).__name__


def _facts() -> dict[str, Callable]:
    """The properties, and methods without arguments, that tell something else than tensors."""
    found: dict[str, Callable] = {}
    for name in dir(Tensor):
        if name.startswith("__") or name in ADDRESSES:
            continue
        f = eval(f"lambda x: x.{name}{'()' if callable(getattr(Tensor, name)) else ''}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if any(_asked(f, make()) not in ("Tensor", "TypeError", "NotImplementedError") for make in (KINDS["plain"], KINDS["a result"])):
                found[name] = f
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backwards", [False, True])
def test_each_kind_of_tensor_anew(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2 * len(KINDS))
    facts = _facts()
    assert {"is_leaf", "_base", "_is_view", "grad_fn", "storage_offset", "retains_grad", "is_inference", "untyped_storage"} <= facts.keys()
    kinds = list(KINDS)[::-1] if backwards else list(KINDS)
    for name, f in facts.items():
        compiled = torch.compile(f, backend="eager")
        for kind in kinds:
            assert _asked(compiled, KINDS[kind]()) == _asked(f, KINDS[kind]()), (name, kind)


@pytest.mark.parametrize("kind", ["plain", "a leaf", "of inference mode"])
def test_what_is_known_in_one_graph(kind: str) -> None:
    def f(x):
        y = x.view(-1)
        z = y * 2
        return (x.is_leaf, x.grad_fn is None, x._is_view(), x._base, x.is_inference(), y._is_view(), y._base is x, z._is_view(),
                z._base if x._is_view() else None, z + 1)

    check(f, KINDS[kind]())


def test_after_a_break() -> None:
    def f(x):
        y = x.view(-1)
        torch._dynamo.graph_break()
        return y._is_view(), y._base is x, y * 2

    check(f, torch.ones(2, 3), breaks=None, graphs=None)


def test_a_storage_is_no_value_of_the_graph() -> None:
    def f(x):
        y = x * 2
        return y, y.untyped_storage().nbytes()

    check(f, torch.ones(2), breaks=None, graphs=None)


ASKED: dict[str, Callable[[Tensor], Any]] = {
    "result_type": lambda x: (torch.result_type(x, 1.5), torch.result_type(x.int(), x.sum()), torch.result_type(1, x)),
    "kinds of dtypes": lambda x: (torch.is_floating_point(x), torch.is_complex(x), torch.is_signed(x), torch.is_conj(x)),
    "numel": lambda x: torch.numel(x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_functions_that_tell_facts(name: str, dynamic: bool) -> None:
    check(lambda x: (x + 1, ASKED[name](x)), torch.ones(3), dynamic=dynamic)


class Kinds:
    def method(self):
        return self

    @property
    def prop(self):
        return 1


def _generator():
    yield 1


async def _coroutine():
    pass


OBJECTS = [Kinds, Kinds().method, Kinds.prop, Kinds(), _generator, _coroutine, abs, torch.sin, nn.Linear, inspect, 3,
           functools.partial(_generator)]


@pytest.mark.parametrize("name", [name for name in dir(inspect) if name.startswith("is")])
def test_what_inspect_says_of_objects(name: str) -> None:
    predicate = getattr(inspect, name)
    check(lambda x: (x + 1, [predicate(each) for each in OBJECTS]), torch.ones(2))


class Slotted:
    __slots__ = ("place",)
    read = property(operator.attrgetter("place"))


def test_what_methods_and_descriptors_written_in_c_have() -> None:
    """Objects of theirs have no `__dict__`: what the type has is all."""
    def f(x: torch.Tensor) -> tuple:
        methods = [[].append, {}.get, "".join, object().__init__, vars(Slotted)["place"], vars(Slotted)["read"]]
        return x + 1, [[hasattr(m, name) for name in ("__self__", "__doc__", "__get__", "anything")] for m in methods]

    check(f, torch.ones(2))
