"""The backend `cudagraphs`: what inductor compiles, recorded as CUDA graphs on a GPU."""

from ...dynamo.backends import cudagraphs

__all__ = ["cudagraphs"]
