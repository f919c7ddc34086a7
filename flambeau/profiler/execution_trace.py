"""torch.profiler.ExecutionTraceObserver: what ran, inside of what and on which arguments, as a graph in a file (Chakra's schema)."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..utils.weak import WeakIdKeyDictionary

SCHEMA = "1.1.1-chakra.0.0.4"
_FIRST = 2      # 1 is the process, whose node comes last


class _Nodes:
    """A watcher that writes down a node for each call: its number, its caller's, and what it was given."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.open: list[int] = [_FIRST]
        self.tensors: Any = WeakIdKeyDictionary()
        self.count, self.seen = _FIRST, 0

    def begin(self, name: str, args: Sequence[Any] = (), kind: int = 0, sequence: int = -1) -> int:
        """Something starts."""
        self.count += 1
        inputs = [self._described(a) for a in args]
        self.nodes.append({
            "id": self.count, "name": name, "ctrl_deps": self.open[-1],
            "inputs": dict(zip(("values", "shapes", "types", "strides"), map(list, zip(*inputs)) if inputs else ([], [], [], []))),
            "outputs": {"values": [], "shapes": [], "types": [], "strides": []},
            "attrs": [{"name": "rf_id", "type": "uint64", "value": self.count - _FIRST},
                      {"name": "seq_id", "type": "int64", "value": sequence}, {"name": "scope", "type": "uint64", "value": kind},
                      {"name": "tid", "type": "uint64", "value": threading.get_ident()}]})
        self.open.append(self.count)
        return self.count

    def end(self, event: int) -> None:
        """It is over."""
        self.open.remove(event)

    def ran(self, what: tuple[Any, int], start: int, laps: bytes) -> None:
        """A compiled library ran: a node for each of its kernels, with when it began."""
        code, first = what
        for (name, _), end in zip(code.kernels[first:], memoryview(laps).cast("q")):
            self.end(self.begin(name))
            self.nodes[-1]["attrs"].append({"name": "start_ns", "type": "uint64", "value": start})
            start = end

    def _number(self, tensor: Tensor) -> int:
        """Of a tensor, the same while it lives."""
        if tensor not in self.tensors:
            self.tensors[tensor] = self.seen = self.seen + 1
        return self.tensors[tensor]

    def _described(self, value: Any) -> tuple[Any, Any, str, Any]:
        """(value, shape, type, strides) of an argument."""
        if isinstance(value, Tensor):
            number = self._number(value)
            facts = [number, 0, 0, value.numel(), value.element_size(), str(value.device)]
            return facts, list(value.shape), f"Tensor({value.dtype})".replace("torch.", ""), list(value.stride())
        if isinstance(value, (list, tuple)):
            parts = [self._described(v) for v in value]
            return [p[0] for p in parts], [p[1] for p in parts], f"GenericList[{','.join(p[2] for p in parts)}]", [p[3] for p in parts]
        plain = value if isinstance(value, (bool, int, float, str)) else "<None>" if value is None else str(value)
        return plain, [], {"bool": "Bool", "int": "Int", "float": "Double", "NoneType": "None"}.get(type(value).__name__,
                                                                                                  type(value).__name__), []


class ExecutionTraceObserver:
    """`register_callback(path)`, then `start()` and `stop()` around what is to be seen; `unregister_callback()` writes the file.

    Each node names its caller (`ctrl_deps`) and has the values, shapes, dtypes and strides of its arguments; results are not written
    down. One thread is seen: that which starts it.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._watcher: _Nodes | None = None
        self._running = False
        self._began = 0

    @property
    def is_registered(self) -> bool:
        """Whether a file has been named."""
        return self._path is not None

    def is_running(self) -> bool:
        """Whether calls are being written down."""
        return self._running

    def get_output_file_path(self) -> str | None:
        """The file; None where none has been named."""
        return self._path

    output_file_path = property(get_output_file_path)

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Name the file. Again changes nothing until `unregister_callback`."""
        if self._path is None:
            self._path, self._watcher, self._began = os.fspath(output_file_path), _Nodes(), time.monotonic_ns() // 1000
        return self

    def start(self) -> None:
        """Begin, if a file has been named."""
        if self._path is not None and not self._running:
            self._running = True
            dispatch.state.watchers = (*dispatch.state.watchers, self._watcher)

    def stop(self) -> None:
        """Pause."""
        if self._running:
            self._running = False
            dispatch.state.watchers = tuple([w for w in dispatch.state.watchers if w is not self._watcher])

    def unregister_callback(self) -> None:
        """Stop, and write the file."""
        if self._path is None or self._watcher is None:
            return
        self.stop()
        nothing: dict[str, list] = {"values": [], "shapes": [], "types": [], "strides": []}
        thread = {"id": _FIRST, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 1, "inputs": nothing, "outputs": nothing,
                  "attrs": []}
        process = {**thread, "id": 1, "name": "[pytorch|profiler|execution_trace|process]"}
        with open(self._path, "w", encoding="utf-8") as out:
            json.dump({"schema": SCHEMA, "pid": os.getpid(), "time": time.strftime("%Y-%m-%d %H:%M:%S"), "start_ts": self._began,
                       "nodes": [thread, *self._watcher.nodes, process], "finish_ts": time.monotonic_ns() // 1000}, out)
        self._path = self._watcher = None

    cleanup = unregister_callback

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver:
        """An observer that writes to a fresh file of the folder for temporary ones."""
        handle, path = tempfile.mkstemp(".et.json")
        os.close(handle)
        return ExecutionTraceObserver().register_callback(path)
