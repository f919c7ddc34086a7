"""The registry of backends."""

from ...dynamo.backends import Backend, list_backends, lookup_backend, register_backend, register_debug_backend, register_experimental_backend

CompilerFn = CompiledFn = Backend

__all__ = ["CompiledFn", "CompilerFn", "list_backends", "lookup_backend", "register_backend", "register_debug_backend",
           "register_experimental_backend"]
