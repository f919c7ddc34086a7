"""Ahead-of-time autograd: captured graphs become functional graphs of primitives, forward and backward."""

from flambeau.aot.compile import Observers, aot_compile
from flambeau.aot.interpret import aot_eager, interpret
from flambeau.aot.keys import Uncacheable
from flambeau.aot.trace import make_fx

__all__ = ["Observers", "Uncacheable", "aot_compile", "aot_eager", "interpret", "make_fx"]
