"""What this process compiled, as bytes that another one starts from: `save_cache_artifacts`, `load_cache_artifacts`."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass, field

from ..core import cache


@dataclass
class CacheInfo:
    """The names of the files of the disk cache that were saved or loaded, by kind."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def inductor_artifacts(self) -> list[str]:
        """Compiled programs."""
        return self.artifacts.get("programs", [])

    aot_autograd_artifacts = inductor_artifacts

    def empty(self) -> bool:
        """Whether there is nothing."""
        return not self.artifacts


def _kind(name: str) -> str | None:
    kind, _, rest = name.partition("/")
    return kind if kind in cache.KINDS and cache.KINDS[kind][1].fullmatch(rest) else None


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """All entries of the disk cache that this process has made or used; None if there is none."""
    home, info, out = cache.cache_directory(), CacheInfo(), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(cache.used):
            name = os.path.relpath(path, home).replace(os.sep, "/")
            kind, content = _kind(name), cache.read(path)
            if kind is not None and content is not None:
                archive.writestr(name, content)
                info.artifacts.setdefault(kind, []).append(name)
    return None if info.empty() else (out.getvalue(), info)


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into the disk cache. Only for bytes that you trust: they hold native code. None, with nothing
    changed, if they are damaged."""
    home, info = cache.cache_directory(), CacheInfo()
    try:
        with zipfile.ZipFile(io.BytesIO(serialized_artifacts)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, EOFError):
        return None
    for name, content in files.items():
        kind = _kind(name)
        if kind is None:
            continue
        path = home / name
        if not path.exists():
            cache.make_folder(path.parent)
            cache.write_file(path, content)
        info.artifacts.setdefault(kind, []).append(name)
    return info
