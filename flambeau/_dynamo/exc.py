"""The exceptions of graph capture."""

from ..dynamo.exceptions import (
    BackendCompilerFailed,
    InvalidBackend,
    RecompileError,
    RecompileLimitExceeded,
    UncapturedHigherOrderOpError,
    Unsupported,
    UserError,
    UserErrorType,
)

TorchDynamoException = RuntimeError


class TensorifyScalarRestartAnalysis(RuntimeError):
    """PyTorch's way to begin a capture anew; nothing here raises it."""


FailOnRecompileLimitHit = RecompileLimitExceeded

__all__ = ["BackendCompilerFailed", "FailOnRecompileLimitHit", "InvalidBackend", "RecompileError", "RecompileLimitExceeded",
           "TorchDynamoException", "UncapturedHigherOrderOpError", "Unsupported", "UserError", "UserErrorType"]
