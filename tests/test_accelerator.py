"""torch.accelerator: torch's errors without a GPU, torch.cuda with one."""

from __future__ import annotations

import pytest

from flambeau import accelerator, cuda

NAMES = ["synchronize", "current_device_index", "current_stream", "empty_cache", "empty_host_cache", "get_memory_info", "memory_allocated",
         "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
         "reset_accumulated_memory_stats", "get_device_capability"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_without_an_accelerator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"Cannot access accelerator device when none is available\."):
        getattr(accelerator, name)()
    torch = pytest.importorskip("torch")
    if not torch.accelerator.is_available():
        with pytest.raises(RuntimeError, match=r"Cannot access accelerator device when none is available\."):
            getattr(torch.accelerator, name)()


def test_device_index_of_nothing() -> None:
    with accelerator.device_index(None):
        pass


def test_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "current_device", lambda: now[0])
    monkeypatch.setattr(cuda, "set_device", lambda index: now.__setitem__(0, index))
    monkeypatch.setattr(cuda, "mem_get_info", lambda index: (index, 10))
    assert str(accelerator.current_accelerator()) == "cuda" and accelerator.device_count() == 2
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == 1  # type: ignore[attr-defined]
    assert now == [0] and accelerator.get_memory_info(1) == (1, 10)  # type: ignore[attr-defined]
    accelerator.empty_host_cache()
