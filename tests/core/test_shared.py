"""Shared memory: what moves into it, who follows, and that it is released."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

import flambeau as fl
from flambeau.core import shared
from flambeau.core.dtypes import DTYPES
from flambeau.core.storage import Storage


def files() -> int:
    links = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
    return sum("memfd:flambeau" in os.readlink(link) for link in links if os.path.islink(link))


def in_a_child(work: Any) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    t = fl.arange(6).to(DTYPES[dtype]).reshape(2, 3)
    values = t.tolist()
    assert not t.is_shared() and t.share_memory_() is t and t.is_shared()
    assert t.tolist() == values and t.shape == (2, 3) and t.is_contiguous()
    in_a_child(lambda: t.fill_(1))
    assert (t == 1).all()


LAYOUTS = {
    "contiguous": lambda b: b, "transposed": lambda b: b.t(), "slice": lambda b: b[1:, ::2], "expanded": lambda b: b[:, :1].expand(4, 7),
    "0-dim": lambda b: b[2, 3], "empty": lambda b: b[:0], "diagonal": lambda b: b.diagonal(), "other dtype": lambda b: b.view(fl.int32),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("moved", ["base", "view"])
def test_all_tensors_over_the_memory_follow(name: str, moved: str) -> None:
    base = fl.arange(24.0).reshape(4, 6)
    view, alias = LAYOUTS[name](base), base.detach()
    layout = view.stride(), view.storage_offset(), view.shape, view.tolist()
    (base if moved == "base" else view).share_memory_()
    assert base.is_shared() and view.is_shared() and alias.is_shared()
    assert (view.stride(), view.storage_offset(), view.shape, view.tolist()) == layout
    base.add_(1)
    assert view.tolist() == LAYOUTS[name](base).tolist() and alias.tolist() == base.tolist()
    in_a_child(lambda: alias.mul_(2))
    assert base[0].tolist() == [2, 4, 6, 8, 10, 12] and view.tolist() == LAYOUTS[name](base).tolist()


def test_no_memory_at_all() -> None:
    assert fl.empty(0).share_memory_().is_shared()
    with pytest.raises(RuntimeError, match="only available on CPU"):
        fl.empty(3, device="meta").share_memory_()
    assert not fl.empty(3, device="meta").is_shared()
    with pytest.raises(RuntimeError, match="without elements"):
        shared.share(Storage(None, 12))


def test_gradients_flow_into_shared_parameters() -> None:
    model = fl.nn.Sequential(fl.nn.Linear(3, 4), fl.nn.BatchNorm1d(4), fl.nn.Linear(4, 1))
    model[2].tied = model[0].bias
    model(fl.ones(2, 3)).sum().backward()
    assert model.share_memory() is model
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())))
    assert model[2].tied is model[0].bias and isinstance(model[0].bias, fl.nn.Parameter)
    opt = fl.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].weight.tolist()
    model(fl.rand(5, 3)).sum().backward()

    def step() -> None:
        opt.step()
    in_a_child(step)
    assert model[0].weight.tolist() != before


def test_compiled_code_sees_what_others_write() -> None:
    model = fl.nn.Linear(64, 64).eval()
    fast, x = fl.compile(model), fl.ones(8, 64)
    with fl.inference_mode():
        for _ in range(3):
            fast(x)
    model.share_memory()
    with fl.inference_mode(), fl.no_grad():
        for _ in range(3):
            fast(x)

        def change() -> None:
            with fl.no_grad():
                model.weight.zero_()
                model.bias.fill_(3)
        in_a_child(change)
        assert (fast(x) == 3).all()


def test_storages() -> None:
    t = fl.arange(4.0)
    storage = t.untyped_storage()
    assert not storage.is_shared() and storage.share_memory_() is storage and storage.is_shared() and t.is_shared()
    in_a_child(lambda: t.zero_())
    assert storage.tolist() == [0] * 16
    for resize in (lambda: storage.resize_(99), lambda: t.resize_(99)):
        with pytest.raises(RuntimeError, match="not resizable"):
            resize()
    assert t.resize_(2).shape == (2,)
    fresh = fl.UntypedStorage._new_shared(8)
    assert fresh.is_shared() and fresh.nbytes() == 8


def test_memory_is_released_with_the_last_tensor() -> None:
    gc.collect()
    before = files()
    held = [fl.ones(1000).share_memory_() for _ in range(20)]
    views = [t[:10] for t in held]
    assert files() == before + 20
    del held
    assert files() == before + 20
    del views
    assert files() == before


MANY = """
import resource
import flambeau as fl
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024))
held = [fl.ones(3).share_memory_() for _ in range(300)]
assert all(t.is_shared() for t in held)
try:
    held += [fl.ones(3).share_memory_() for _ in range(1000)]
    raise SystemExit("no limit")
except RuntimeError as error:
    assert "ulimit" in str(error), error
t = fl.ones(5)
try:
    t.share_memory_()
except RuntimeError:
    assert not t.is_shared() and t.tolist() == [1] * 5
"""


def test_more_storages_than_open_files_are_allowed() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", MANY], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_copies_are_not_shared() -> None:
    t = fl.ones(3).share_memory_()
    assert not t.clone().is_shared() and not (t + 1).is_shared() and t.view(3, 1).is_shared() and t.numpy().tolist() == [1, 1, 1]
