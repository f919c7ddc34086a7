"""torch.hub: fetching weights by address, into a cache directory, and running what repositories offer in their hubconf.py."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
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


# -- programs of repositories -------------------------------------------------------------------------------------
def _repository(repo_or_dir: str, source: str, force_reload: bool, verbose: bool) -> Path:
    """The folder of a repository: itself if `source` is "local", else downloaded from GitHub once. `owner/name[:branch]`."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return Path(repo_or_dir).expanduser()
    name, _, branch = repo_or_dir.partition(":")
    if name.count("/") != 1:
        raise ValueError(f"expected owner/name or owner/name:branch of a repository, got {repo_or_dir!r}")
    branches = [branch] if branch else ["main", "master"]
    for wanted in branches:
        target = Path(get_dir()) / f"{name.replace('/', '_')}_{wanted.replace('/', '_')}"
        if target.exists() and not force_reload:
            return target
    Path(get_dir()).mkdir(parents=True, exist_ok=True)
    for wanted in branches:
        try:
            return _downloaded(name, wanted, verbose)
        except urllib.error.HTTPError as error:
            if error.code != 404 or wanted == branches[-1]:
                raise
    raise ValueError(f"{repo_or_dir} was not found")


def _downloaded(name: str, branch: str, verbose: bool) -> Path:
    target = Path(get_dir()) / f"{name.replace('/', '_')}_{branch.replace('/', '_')}"
    with tempfile.TemporaryDirectory(dir=get_dir()) as aside:
        archive = Path(aside) / "archive.zip"
        download_url_to_file(f"https://github.com/{name}/zipball/{branch}", archive, progress=verbose)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(Path(aside) / "files")
        shutil.rmtree(target, ignore_errors=True)
        next((Path(aside) / "files").iterdir()).replace(target)
    return target


def _trusted(repo_or_dir: str, trust_repo: Any) -> None:
    """Ask, or refuse, to run what was downloaded, unless it was trusted before."""
    owner = repo_or_dir.partition(":")[0].replace("/", "_")
    book = Path(get_dir()) / "trusted_list"
    known = book.read_text().split() if book.exists() else []
    if owner in known or trust_repo is True:
        pass
    elif trust_repo == "check" or trust_repo is None:
        if input(f"The repository {owner} does not belong to the list of trusted repositories: do you trust it to run code here? "
                 "(y/N)").strip().lower() not in ("y", "yes"):
            raise Exception("Untrusted repository.")
    else:
        raise Exception(f"The repository {repo_or_dir} is not trusted: give trust_repo=True to run its code.")
    if owner not in known:
        Path(get_dir()).mkdir(parents=True, exist_ok=True)
        book.write_text("".join(f"{name}\n" for name in (*known, owner)))


@contextmanager
def _entries(repo_or_dir: str, source: str, trust_repo: Any, force_reload: bool, verbose: bool = False) -> Iterator[ModuleType]:
    """The module hubconf.py of a repository, whose folder is on the path meanwhile."""
    if source == "github":
        _trusted(repo_or_dir, trust_repo)
    folder = _repository(repo_or_dir, source, force_reload, verbose)
    sys.path.insert(0, str(folder))
    try:
        spec: Any = importlib.util.spec_from_file_location("hubconf.py", folder / "hubconf.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        yield module
    finally:
        sys.path.remove(str(folder))


def _entry(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = None, force_reload: bool = False,
         verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> Any:
    """What the function `model` of a repository's hubconf.py gives for these arguments. `source="local"`: `repo_or_dir` is a folder."""
    del skip_validation  # nothing asks GitHub whether a branch is the repository's own
    with _entries(repo_or_dir, source, trust_repo, force_reload, verbose) as module:
        return _entry(module, model)(*args, **kwargs)


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None, verbose: bool = True) -> Any:
    """The names of the functions that a repository offers."""
    del skip_validation
    with _entries(github, "github", trust_repo, force_reload, verbose) as module:
        return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None) -> str | None:
    """What such a function says of itself."""
    del skip_validation
    with _entries(github, "github", trust_repo, force_reload) as module:
        return _entry(module, model).__doc__
