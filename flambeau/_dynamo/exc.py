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


class InternalTorchDynamoError(RuntimeError):
    """A fault of capture itself; here the function runs eagerly, with a warning."""


class TensorifyScalarRestartAnalysis(RuntimeError):
    """PyTorch's way to begin a capture anew; nothing here raises it."""


FailOnRecompileLimitHit = RecompileLimitExceeded

__all__ = ["BackendCompilerFailed", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "InvalidBackend", "RecompileError",
           "RecompileLimitExceeded", "TorchDynamoException", "UncapturedHigherOrderOpError", "Unsupported", "UserError", "UserErrorType"]
