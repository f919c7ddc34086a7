"""Compiled code is used only while everything around it is as it was when it was captured: settings of the process, and what names
in modules and classes are bound to."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import amp, backends, dynamo  # noqa: F401 - amp has settings of its own
from flambeau.core import dispatch
from flambeau.core.settings import TABLE, add_setting, get_setting, set_setting

KEYS = [(name, key) for name, setting in TABLE.items() for key in setting.keys]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {(name, key): get_setting(TABLE[name].owner, key) for name, key in KEYS}
    yield
    dispatch.state.autocast = None
    for (name, key), value in before.items():
        set_setting(TABLE[name].owner, key, value)


def other(value: Any) -> Any:
    """Another value of its type."""
    return {
        bool: lambda: not value, int: lambda: value + 1, str: lambda: value + "?", tuple: lambda: (*value, torch.device("cpu")),
        torch.dtype: lambda: torch.float64, type(None): lambda: (torch.device("meta"),),
    }[type(value)]()  # fmt: skip


@pytest.mark.parametrize(("name", "key"), KEYS, ids=lambda part: str(part))
def test_each_setting_is_guarded(name: str, key: Any) -> None:
    """Another value is another version; the value of before is the version of before."""
    owner = TABLE[name].owner
    counter = Counter()
    compiled = dynamo.compile(lambda x: x + 1, backend=counter)
    x = torch.ones(3)
    before = get_setting(owner, key)
    for value, graphs in ((before, 1), (other(before), 2), (before, 2), (other(before), 2)):
        set_setting(owner, key, value)
        assert compiled(x).tolist() == [2.0, 2.0, 2.0]
        assert len(counter.graphs) == graphs


def test_a_setting_is_entered_once() -> None:
    with pytest.raises(ValueError, match="already"):
        add_setting("default dtype", {}, "kind")


WITHOUT_EFFECT = {
    "torch.backends.fp32_precision", "torch.backends.opt_einsum.enabled", "torch.backends.opt_einsum.strategy",
    "torch.backends.quantized.engine", "torch.backends.xnnpack.enabled",
}  # fmt: skip
"""Nothing reads them."""


def test_the_table_has_all_flags_of_backends() -> None:
    known = {id(setting.owner): setting.keys for setting in TABLE.values()}
    modules = [backends, *(m for m in vars(backends).values() if isinstance(m, types.ModuleType) and m.__name__.startswith("flambeau"))]
    for module in modules:
        for name, value in vars(module).items():
            if name[0] != "_" and isinstance(value, (bool, int, str)):
                full = f"torch.{module.__name__.removeprefix('flambeau.')}.{name}"
                assert full in WITHOUT_EFFECT or name in known[id(vars(module))], full


def _scoped_device(x: Any) -> Any:
    with torch.device("meta"):
        y = torch.zeros(3)
        with torch.device("cpu"):
            z = torch.ones(2) + x
        w = torch.empty(1)
    return y.device, z, w.device, torch.zeros(1)


def _set_device(x: Any) -> Any:
    torch.set_default_device("meta")
    y = torch.zeros(3)
    torch.set_default_device(None)
    return y.device, torch.zeros(2) + x


def _broken_in_the_block(x: Any) -> Any:
    with torch.device("meta"):
        y = torch.zeros(2)
        print(end="")
        z = torch.zeros(2)
    return y.device, z.device, (torch.zeros(2) + x)


def _raised_in_the_block(x: Any) -> Any:
    try:
        with torch.device("meta"):
            y = torch.zeros(2)
            raise ValueError("inside")
    except ValueError:
        return y.device, torch.zeros(2) + x


def _given_device(x: Any) -> Any:
    with x.device:
        return torch.zeros(2) + x


def _factories(x: Any) -> Any:
    made = torch.zeros(2), torch.tensor(1.5), torch.full((2,), 1.5), torch.arange(3), torch.linspace(0, 1, 2)
    return tuple((y.device, y.dtype) for y in made)


def _promoted(x: Any) -> Any:
    whole = x.to(torch.int64)
    return whole / 2, whole + 1.5, whole.sqrt(), torch.get_default_dtype(), torch.get_default_device()


def _dtype_inside(x: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    y = torch.ones(2)
    torch.set_default_dtype(torch.float32)
    return y + x


def _flag_inside(x: Any) -> Any:
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    y = (x + 1, torch.backends.cudnn.enabled)
    torch.backends.cudnn.enabled = before
    return y, torch.backends.cudnn.enabled


def _flags_inside(x: Any) -> Any:
    with torch.backends.cudnn.flags(enabled=False):
        y = x * 2, torch.backends.cudnn.enabled
    return y, torch.backends.cudnn.enabled


def _class_flag_inside(x: Any) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True
    y = x * 2, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    return y


def _autocast_asked(x: Any) -> Any:
    return x + 1, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


PROGRAMS = [_scoped_device, _set_device, _broken_in_the_block, _raised_in_the_block, _given_device, _factories, _promoted,
            _dtype_inside, _flag_inside, _flags_inside, _class_flag_inside, _autocast_asked]  # fmt: skip

AMBIENT: dict[str, Callable[[], Any]] = {
    "plain": lambda: None,
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "meta": lambda: torch.set_default_device("meta"),
    "autocast dtype": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "no cudnn": lambda: setattr(torch.backends.cudnn, "enabled", False),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "plain again": lambda: None,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_programs_under_settings(program: Callable[..., Any], backend: str) -> None:
    """Eager and compiled agree under each setting, one after the other, and leave the settings alike."""
    before = {(name, key): get_setting(TABLE[name].owner, key) for name, key in KEYS}
    compiled = dynamo.compile(program, backend=backend)
    x = torch.ones(2)
    for name, change in AMBIENT.items():
        results = []
        for function in (program, compiled):
            for (place, key), value in before.items():
                set_setting(TABLE[place].owner, key, value)
            dispatch.state.autocast = None
            change()
            try:
                answer = function(x)
            except RuntimeError as error:
                answer = str(error)
            results.append((answer, [get_setting(TABLE[place].owner, key) for place, key in KEYS]))
        assert _alike(results[0][0], results[1][0]), (name, results)
        assert results[0][1] == results[1][1], name


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.device == b.device and (a.device.type == "meta" or same(a, b)) and a.dtype is b.dtype
    return len(a) == len(b) and all(map(_alike, a, b)) if isinstance(a, tuple) else a == b


def test_a_graph_that_fails_puts_settings_back() -> None:
    def program(x: Any, i: Any) -> Any:
        with torch.device("meta"):
            y = torch.zeros(2)
            z = x[i]
        return y.device, z

    compiled = dynamo.compile(program, backend="eager")
    x = torch.ones(2)
    compiled(x, torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert torch.get_default_device() == torch.device("cpu")
