"""The site: pages of namespaces say what `help` says, every page of docs/ is in the navigation, and mkdocs builds it, searchable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import site

ROOT = Path(__file__).parent.parent


def test_every_page_is_in_the_navigation() -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages == set(site.HOUSE)
    assert {page.stem for page in (ROOT / "docs" / "tutorials").glob("*.md")} == set(site.TUTORIALS)


def test_the_page_of_a_namespace() -> None:
    page = site.api_page("special")
    assert page.startswith("# torch.special\n") and "## airy_ai\n" in page and ">>> torch.special.airy_ai(" in page


@pytest.mark.timeout(600)
def test_mkdocs_builds_it(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-W", "ignore", "-m", "tools.site", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    found = {entry["location"] for entry in json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())["docs"]}
    assert {"api/torch.html#softmax", "api/nn.html#Linear".lower(), "tutorials/first_training.html"} <= {place.lower() for place in found}
    assert "<svg" in (tmp_path / "site" / "images" / "two_ways.svg").read_text()
