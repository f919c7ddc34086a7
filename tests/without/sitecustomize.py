"""`./dev test --without NAME` puts this folder on PYTHONPATH: NAME is hidden from the tests and from the processes that they start."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARY = "libdnnl.so.3"


class Without:
    """A finder of modules that does not see one package."""

    def __init__(self, finder: Any, package: str) -> None:
        self.finder, self.package = finder, package

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, *rest: Any) -> Any:
        return None if name.partition(".")[0] == self.package else self.finder.find_spec(name, *rest)


def hide_package(package: str) -> None:
    sys.meta_path[:] = [Without(finder, package) for finder in sys.meta_path]


def hide_onednn() -> None:
    """As where its wheel was not installed."""
    exists, files = Path.exists, metadata.files

    def files_of_others(name: str) -> Any:
        if name == "onednn-cpu-gomp":
            raise metadata.PackageNotFoundError(name)
        return files(name)

    Path.exists = lambda path, **options: path.name != LIBRARY and exists(path, **options)  # type: ignore[method-assign]
    metadata.files = files_of_others


def hide_compilers() -> None:
    which = shutil.which
    shutil.which = lambda name, *rest, **options: None if name in ("g++", "c++", "clang++") else which(name, *rest, **options)


if hidden := os.environ.get("FLAMBEAU_WITHOUT"):
    {"onednn": hide_onednn, "g++": hide_compilers}.get(hidden, lambda: hide_package(hidden))()
