"""Where compiled code is kept between processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """$FLAMBEAU_CACHE_DIR, or ~/.cache/flambeau."""
    given = os.environ.get("FLAMBEAU_CACHE_DIR")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flambeau"


def write_file(path: Path, data: bytes) -> None:
    """Write aside, then rename: two processes may fill the cache at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(aside, path)
