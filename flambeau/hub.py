"""torch.hub: fetching weights by address, into a cache directory. Running code from repositories is left out."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ._absent import absent
from .core.settings import told
from .serialization import load as _load_file

try:
    from tqdm import tqdm
except ModuleNotFoundError:
    tqdm = absent("tqdm", "install the package tqdm for progress bars")

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHUNK = 1 << 17
_hub_dir: str | None = None


def _get_torch_home() -> str:
    """$TORCH_HOME, else `torch` in $XDG_CACHE_HOME or ~/.cache."""
    return os.path.expanduser(told("TORCH_HOME", os.path.join(told("XDG_CACHE_HOME", "~/.cache"), "torch")))


def get_dir() -> str:
    """The directory of downloads: what `set_dir` set, else $TORCH_HOME/hub."""
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike) -> None:
    """Download into `d` from here on."""
    global _hub_dir
    _hub_dir = os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str | os.PathLike, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetch `url` into the file `dst`; it appears there only when it is complete.

    Raises RuntimeError when the file's SHA-256 does not start with `hash_prefix`.
    """
    target = Path(dst).expanduser()
    request = urllib.request.Request(url, headers={"User-Agent": "flambeau.hub"})
    digest = hashlib.sha256()
    handle, partial = tempfile.mkstemp(prefix=target.name + ".", suffix=".partial", dir=target.parent)
    try:
        with urllib.request.urlopen(request) as answer, os.fdopen(handle, "wb") as out:
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress and sys.stderr.isatty():
                    share = f"{done / total:6.1%}" if total else f"{done >> 20} MiB"
                    print(f"\r{target.name}: {share}", end="" if done < total else "\n", file=sys.stderr)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}") for {url}')
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """The checkpoint at `url`, downloaded once into `model_dir` (default: `get_dir()/checkpoints`) and loaded.

    `check_hash`: the file's name holds a hash (`resnet-5c106cde.pth`) that its contents must match.
    """
    directory = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    cached = directory / name
    if not cached.exists():
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, cached, found.group(1) if found else None, progress)
    return _load_file(cached, map_location=map_location, weights_only=weights_only)


_INSTEAD = "import the model's package instead; torch.hub.load_state_dict_from_url fetches weights"
load = absent("torch.hub.load", _INSTEAD)
list = absent("torch.hub.list", _INSTEAD)
help = absent("torch.hub.help", _INSTEAD)
