"""Where tests find and write files."""

from __future__ import annotations

import os
import tempfile


def get_file_path(*path_components: str) -> str:
    """A path below the folder that the package lies in."""
    return os.path.join(os.path.dirname(__file__), *path_components)


def get_file_path_2(*path_components: str) -> str:
    """A path of these parts."""
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """`path` if it can be written to, else a new folder for a while."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


__all__: list[str] = []
