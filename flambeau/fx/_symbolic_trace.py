"""The place where torch.fx keeps its tracer, for code that imports it from there."""

from flambeau.fx.tracer import PH, Tracer, is_fx_tracing, symbolic_trace, wrap

__all__ = ["PH", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]
