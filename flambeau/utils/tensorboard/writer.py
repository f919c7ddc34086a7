"""`SummaryWriter`: what a program logs, in event files that TensorBoard reads."""

from __future__ import annotations

import io
import itertools
import os
import socket
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..._absent import absent
from . import summary as summaries
from .events import event, record

_numbers = itertools.count()


class FileWriter:
    """One event file. Events are on disk after `flush`, `close`, or `flush_secs` later at the next one."""

    def __init__(self, log_dir: str | os.PathLike, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        folder = Path(log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}{filename_suffix}"
        self.path = folder / name
        self.max_queue, self.flush_secs = max_queue, flush_secs
        self._file: Any = self.path.open("ab")
        self._lock = threading.Lock()
        self._waiting, self._flushed = 0, time.monotonic()
        self._write(event(time.time(), version="brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.path.parent)

    def _write(self, data: bytes) -> None:
        with self._lock:
            if self._file is None:     # closed: go on where it ended
                self._file = self.path.open("ab")
            self._file.write(record(data))
            self._waiting += 1
            due = self._waiting >= self.max_queue or time.monotonic() - self._flushed >= self.flush_secs
        if due:
            self.flush()

    def add_event(self, event: bytes, step: int | None = None, walltime: float | None = None) -> None:
        """An event as its message, which tells its own step and time."""
        if step is not None or walltime is not None:
            raise NotImplementedError("add_event with a step or walltime is not implemented; use add_summary")
        self._write(event)

    def add_summary(self, summary: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        """A summary at a step."""
        step = None if global_step is None else int(global_step)
        self._write(event(time.time() if walltime is None else walltime, step, summary=summary))

    def flush(self) -> None:
        """Write everything to disk."""
        with self._lock:
            if self._file is not None:
                self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        """End. Writing again opens the file anew."""
        self.flush()
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    reopen = flush


class SummaryWriter:
    """Logs to `log_dir` (runs/TIME_HOST + comment). Steps before `purge_step` count; see the add_ methods for what can be logged."""

    def __init__(self, log_dir: str | os.PathLike | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
                 flush_secs: float = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            log_dir = os.path.join("runs", f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}{comment}")
        if purge_step is not None:
            raise NotImplementedError("purge_step is not implemented; log to a new folder")
        self.log_dir = os.fspath(log_dir)
        self._settings = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._settings)
            self.all_writers = {self.log_dir: self.file_writer}
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, summary: bytes, global_step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """A number."""
        self._add(summaries.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
                    walltime: float | None = None) -> None:
        """Numbers in one chart: a folder each, of the same tag."""
        self._get_file_writer()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._settings)
            self.all_writers[folder].add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow", walltime: float | None = None,
                      max_bins: int | None = None) -> None:
        """How values are distributed."""
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any,
                          bucket_counts: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A histogram whose bins are counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summaries.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                  dataformats: str = "CHW") -> None:
        """A picture."""
        self._add(summaries.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                   dataformats: str = "NCHW") -> None:
        """Pictures side by side."""
        self._add(summaries.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib's, or several."""
        drawn = []
        for each in figure if isinstance(figure, (list, tuple)) else [figure]:
            file = io.BytesIO()
            each.savefig(file, format="rgba", dpi=each.dpi)
            width, height = (int(n) for n in each.bbox.size)
            drawn.append(np.frombuffer(file.getvalue(), np.uint8).reshape(height, width, 4)[..., :3])
            if close:
                each.clear()
        self._add(summaries.image(tag, np.stack(drawn), dataformats="NHWC"), global_step, walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
                  walltime: float | None = None) -> None:
        """Sound in one channel, from -1 to 1."""
        self._add(summaries.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127,
                     weights: Any = None, walltime: float | None = None) -> None:
        """Precision and recall."""
        self._add(summaries.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
                    hparam_domain_discrete: Mapping[str, list] | None = None, run_name: str | None = None,
                    global_step: int | None = None) -> None:
        """Hyperparameters and what they led to, in a folder of their own."""
        made = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as writer:
            for part in made:
                writer._add(part, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    add_graph, add_embedding, add_video, add_mesh, add_custom_scalars, add_onnx_graph, add_image_with_boxes = (
        absent(f"SummaryWriter.{name}", "log scalars, histograms, images, text or sound")
        for name in ("add_graph", "add_embedding", "add_video", "add_mesh", "add_custom_scalars", "add_onnx_graph", "add_image_with_boxes"))

    def flush(self) -> None:
        """Write everything to disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """End all files."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
