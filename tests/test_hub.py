"""Programs of repositories: hubconf.py, as torch reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau.hub

torch = pytest.importorskip("torch", reason="torch is the oracle")
HUBS = pytest.mark.parametrize("hub", [torch.hub, flambeau.hub], ids=["torch", "flambeau"])


@HUBS
def test_local_repositories(hub: Any, tmp_path: Path) -> None:
    (tmp_path / "parts_of_it.py").write_text("SCALE = 3\n")
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\nfrom parts_of_it import SCALE\n\ndef net(n, more=0):\n    'A net.'\n    return n * SCALE + more\n")
    before = list(sys.path)
    assert hub.load(str(tmp_path), "net", 2, source="local", more=1) == 7
    assert sys.path == before
    with pytest.raises(RuntimeError, match="other"):
        hub.load(str(tmp_path), "other", source="local")
    with pytest.raises(ValueError, match="nowhere"):
        hub.load(str(tmp_path), "net", source="nowhere")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package_here']\n")
    with pytest.raises(RuntimeError, match="no_such_package_here"):
        hub.load(str(tmp_path), "net", source="local")
    sys.modules.pop("parts_of_it", None)


def test_untrusted_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flambeau.hub, "_hub_dir", str(tmp_path))
    with pytest.raises(Exception, match="not trusted"):
        flambeau.hub.load("owner/name", "net", trust_repo=False)
