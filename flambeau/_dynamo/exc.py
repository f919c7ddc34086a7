"""The exceptions of graph capture."""

from ..dynamo.exceptions import BackendCompilerFailed, RecompileLimitExceeded, UncapturedHigherOrderOpError, Unsupported

__all__ = ["BackendCompilerFailed", "RecompileLimitExceeded", "UncapturedHigherOrderOpError", "Unsupported"]
