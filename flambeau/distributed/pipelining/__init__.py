"""torch.distributed.pipelining: a model's stages in several processes, and microbatches on their way through them."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules
from .pipe import Pipe, SplitPoint, build_stage, pipe_split, pipeline
from .schedules import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleLoopedBFS
from .stage import PipelineStage

_absent = absent_names("torch.distributed.pipelining", ("ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV"),
                       "gradients of inputs and of parameters are one pass here; use ScheduleInterleaved1F1B")
__getattr__ = submodules(__name__, "microbatch", "schedules", "stage", otherwise=_absent)

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "SplitPoint",
           "build_stage", "pipe_split", "pipeline"]
