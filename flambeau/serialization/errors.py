"""The one type of error that a damaged, hostile or foreign file raises."""

from __future__ import annotations

import pickle


class LoadError(RuntimeError, pickle.UnpicklingError):
    """A file cannot be loaded: damaged, truncated, of another format, or holding more than it may.

    PyTorch raises RuntimeError for some of these and pickle.UnpicklingError for others; this is both.
    """


class EmptyFileError(LoadError, EOFError):
    """There is nothing in the file."""


class PlacingError(Exception):
    """What a `map_location` of the caller's raised, on its way to the caller: the file is not at fault."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
