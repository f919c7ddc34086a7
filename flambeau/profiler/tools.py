"""The smaller tools of torch.autograd.profiler: steps counted for several parties, records by time, keys seen once."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ..core.watching import USER
from .events import Event


class EnforceUnique:
    """`see(...)` the same key twice and it raises RuntimeError."""

    def __init__(self) -> None:
        self.seen: set[tuple] = set()

    def see(self, *key: Any) -> None:
        """Note a key."""
        if key in self.seen:
            raise RuntimeError(f"duplicate key: {key}")
        self.seen.add(key)


class KinetoStepTracker:
    """The number of the step that a program is in, where several parties (profilers, optimizers) each count theirs: the largest."""

    _current_step = 0
    _step_dict: dict[str, int] = defaultdict(int)

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """A party begins, at the step that it is now."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """A party leaves; whether it was there."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """A party goes on to its next step; the number of the program's."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """The number of the program's step."""
        return cls._current_step


class MemRecordsAcc:
    """Records of memory, each `(record, what belongs to it)` with `record.start_ns()`, by when they were made."""

    def __init__(self, mem_records: Sequence[Any]) -> None:
        self._records = sorted(mem_records, key=lambda r: r[0].start_ns())
        self._starts = [r[0].start_ns() for r in self._records]

    def in_interval(self, start_us: float, end_us: float) -> Iterator[Any]:
        """Those of between two times in microseconds, in order."""
        first = bisect.bisect_left(self._starts, start_us * 1e3)
        yield from self._records[first:bisect.bisect_right(self._starts, end_us * 1e3)]


_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("overload_name", "fwd_thread", "input_shapes", "stack", "use_device", "device_type", "device_resource_id", "flops",
                     "trace_name", "concrete_inputs", "kwinputs", "activity_type", "metadata_json", "flow_id", "flow_type", "flow_start",
                     "extra_meta", "structured_input_shapes", "structured_input_strides", "input_dtypes")),
    **dict.fromkeys(("scope", "cpu_memory_usage", "device_memory_usage", "device_index", "external_id", "linked_correlation_id"), 0),
    **dict.fromkeys(("is_async", "is_remote", "is_legacy", "is_user_annotation", "is_python_function"), False),
    **dict.fromkeys(("sequence_nr", "node_id", "python_id", "python_parent_id", "python_module_id"), -1)}
"""What an event may be told of itself, and what goes without."""


class _AnyEvent(type):
    """isinstance(event, FunctionEvent) holds of what a profile recorded."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Event)


class FunctionEvent(Event, metaclass=_AnyEvent):
    """An event by torch's fields, times in microseconds; profiles hold `Event`, which isinstance takes for one."""

    def __init__(self, id: int, name: str, thread: int, start_us: float, end_us: float, **fields: Any) -> None:
        unknown = [field for field in fields if field not in _FIELDS]
        if unknown:
            raise TypeError(f"FunctionEvent() got unexpected fields {unknown}; it has {', '.join(_FIELDS)}")
        given = {**_FIELDS, **fields, "id": id}
        super().__init__(name, round(start_us * 1e3), given.pop("input_shapes") or (), given.pop("stack") or (), round(end_us * 1e3))
        self.thread = thread
        self.kind = USER if given.pop("is_user_annotation") else given.pop("scope")
        self.__dict__.update(given)
