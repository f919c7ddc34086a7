"""`python -m tools.site [FOLDER]` builds the site: the pages of docs/, and one a namespace of what `help` says of each of its names."""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NAMESPACES = ("", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "linalg", "fft", "special", "autograd",
              "func", "amp", "utils.data", "distributions", "distributed", "export", "library", "compiler",
              "profiler", "sparse", "nested", "signal.windows", "cuda")
TUTORIALS = ("first_training", "compile", "distributed", "cpp", "backend", "operator")
HOUSE = ("architecture", "interfaces", "ops", "autograd", "nn", "dynamo", "aot", "inductor", "onednn", "cuda", "distributed",
         "export", "aoti", "onnx", "jit", "fx", "sparse", "nested", "random", "memory", "mobile", "native", "profiler", "compat", "coverage",
         "testing", "releasing")


def documented(module: Any) -> Iterator[tuple[str, Any]]:
    """The public classes and functions of a namespace, in alphabetical order."""
    for name in dir(module):
        value = None if name.startswith("_") else getattr(module, name)
        if callable(value) and str(getattr(value, "__module__", "")).startswith("flambeau") and inspect.getdoc(value):
            yield name, value


def api_page(namespace: str) -> str:
    """One namespace as Markdown."""
    module = importlib.import_module(f"flambeau.{namespace}".rstrip("."))
    title = f"torch.{namespace}".rstrip(".")
    parts = [f"# {title}", inspect.getdoc(module) or ""]
    for name, value in documented(module):
        written, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
        parts += [f"## {name}", written] + ([f"```text\n{rest}\n```"] if rest else [])
    return "\n\n".join(parts) + "\n"


def configuration(pages: Path, out: Path) -> dict[str, Any]:
    """What mkdocs is told (its file may be JSON, which is YAML too)."""
    return {
        "site_name": "Flambeau", "docs_dir": str(pages), "site_dir": str(out), "use_directory_urls": False, "strict": True,
        "theme": {"name": "material", "font": False,
                  "features": ["navigation.tabs", "navigation.top", "search.suggest", "content.code.copy"],
                  "palette": [{"scheme": "default", "primary": "deep orange", "accent": "deep orange"}]},
        "plugins": ["search", "offline"],    # offline: searchable as files, without a server
        "markdown_extensions": ["tables", {"toc": {"permalink": True, "toc_depth": 2}}, "pymdownx.highlight", "pymdownx.superfences"],
        "validation": {"links": {"not_found": "ignore", "anchors": "ignore", "unrecognized_links": "ignore"},
                       "nav": {"omitted_files": "ignore"}},
        "nav": [{"Home": "index.md"}, {"Tutorials": [f"tutorials/{name}.md" for name in TUTORIALS]},
                {"API": [{f"torch.{name}".rstrip("."): f"api/{name or 'torch'}.md"} for name in NAMESPACES]},
                {"The house": [f"{name}.md" for name in HOUSE]}],
    }


def build(out: Path) -> None:
    """The site in a folder; ModuleNotFoundError or CalledProcessError where mkdocs isn't there or refuses a page."""
    pages = out.parent / f"{out.name}_pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    (pages / "api").mkdir()
    for namespace in NAMESPACES:
        (pages / "api" / f"{namespace or 'torch'}.md").write_text(api_page(namespace))
    settings = pages.with_suffix(".yml")
    settings.write_text(json.dumps(configuration(pages, out), indent=1))
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(settings)], check=True)
    print(out / "index.html")


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "out" / "site")
