"""What is read of the environment stands in the table of settings."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import flambeau
from flambeau.core.settings import ENVIRONMENT, told

PACKAGE = Path(flambeau.__path__[0])
# Files that pass the environment on or write to it, and what else they look at.
OTHERS = {"core/settings.py": "the table", "distributed/engines/mpi.py": "what MPI's launchers set", "distributed/run.py": "a child's",
          "distributed/elastic/multiprocessing/__init__.py": "a child's", "distributed/elastic/utils/__init__.py": "what is asked for",
          "inductor/backend.py": "oneDNN's variables", "inductor/cpu/compile.py": "a child's", "dynamo/builder.py": "the program's own",
          "dynamo/variables/builtins.py": "the program's own", "_inductor/utils.py": "a mock of it", "__main__.py": "a child's"}


def _reads(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb") for node in ast.walk(tree))


def test_nothing_else_reads_the_environment():
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if _reads(ast.parse(path.read_text()))}
    assert found == OTHERS.keys()


def test_what_is_asked_for_is_in_the_table(monkeypatch):
    asked = {node.args[0].value for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "told" and isinstance(node.args[0], ast.Constant)}
    by_name = ENVIRONMENT.keys() - asked       # which rendezvous looks up by torch's names
    assert asked <= ENVIRONMENT.keys()
    assert by_name <= {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LAUNCH_NODE_IPADDR"}
    with pytest.raises(KeyError, match="FLAMBEAU_NO_SUCH"):
        told("FLAMBEAU_NO_SUCH")
    monkeypatch.setenv("TORCH_LOGS_OUT", "x")
    monkeypatch.setenv("TORCH_HOME", "")
    assert told("TORCH_LOGS_OUT") == "x" and told("TORCH_HOME", "y") == "y"
