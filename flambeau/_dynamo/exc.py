"""The exceptions of graph capture."""

from ..dynamo.exceptions import BackendCompilerFailed, RecompileLimitExceeded, Unsupported

__all__ = ["BackendCompilerFailed", "RecompileLimitExceeded", "Unsupported"]
