"""Every Python block of docs/tutorials runs, page by page, in a process of its own; links between pages of docs lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted((DOCS / "tutorials").glob("*.md"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    if page.stem == "cpp" and not (DOCS.parent / "flambeau" / "lib" / "libflambeau_package.a").is_file():
        pytest.skip("the archive that packages are linked with is not built")
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    script = tmp_path / f"tutorial_{page.stem}.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(DOCS.parent), "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"(?<=[^`])\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    assert not [link for link in links if "*" not in link and not (page.parent / link).exists()]
