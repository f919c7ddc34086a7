"""Packages of code and data: written and read by both libraries, with the same answers."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of its own storages


def _package(t: Any) -> Any:
    return importlib.import_module(f"{t.__name__}.package")


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of modules of the program's own."""
    folder = tmp_path / "modules" / "packed_own"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import b\n")
    (folder / "b.py").write_text("import json\nfrom .c import two\n\nclass B:\n    def __init__(self, x):\n        self.x = x\n\n"
                                 "    def f(self):\n        return self.x * two\n")
    (folder / "c.py").write_text("two = 2\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    yield importlib.import_module("packed_own")
    for name in [name for name in sys.modules if name.startswith("packed_own")]:
        del sys.modules[name]


@LIBRARIES
def test_patterns(t: Any) -> None:
    glob = _package(t).GlobGroup
    found = glob(["a.**", "b.*", "**.c"], exclude=["a.x.**"])
    assert {name: found.matches(name) for name in ("a", "a.b", "a.x", "b.q", "b.q.r", "z.y.c", "c")} == {
        "a": True, "a.b": True, "a.x": False, "b.q": True, "b.q.r": False, "z.y.c": True, "c": True}
    assert glob("foo*.bar").matches("foox.bar")
    with pytest.raises(ValueError, match="segment"):
        glob("a.b**")


@LIBRARIES
def test_files_sources_and_pickles(t: Any, tmp_path: Path) -> None:
    p = _package(t)
    path = str(tmp_path / "x.pt")
    with p.PackageExporter(path) as e:
        e.save_text("data", "t.txt", "hi")
        e.save_binary("data", "b", b"xx")
        e.extern("numpy.**")
        e.save_source_string("my.mod", "import numpy\nX = 3\n\nclass A:\n    pass\n")
        x = t.ones(2, 3)
        e.save_pickle("data", "p", {"a": x, "b": x[0]})
        assert "numpy" in e.externed_modules() and e.interned_modules() == ["my.mod"]
    loaded = p.PackageImporter(path)
    module = loaded.import_module("my.mod")
    assert module.__name__.endswith(">.my.mod") and module.numpy.ones(2).tolist() == [1, 1]
    assert [p.is_from_package(v) for v in (module, module.A, module.A())] == [True, False, True]
    assert loaded.load_text("data", "t.txt") == "hi" and loaded.load_binary("data", "b") == b"xx"
    data = loaded.load_pickle("data", "p")
    data["a"][0, 0] = 5
    assert data["b"].tolist() == [5, 1, 1]
    assert loaded.file_structure().has_file("my/mod.py") and not loaded.file_structure(exclude="my/**").has_file("my/mod.py")
    assert "X = 3" in loaded.get_source("my.mod") and loaded.python_version().startswith("3.")
    with pytest.raises(ModuleNotFoundError, match="self-contained"):
        loaded.import_module("not_there")
    with pytest.raises(ImportError, match="numpy"):
        p.PackageImporter(path, lambda name: name != "numpy")


def test_both_read_what_each_writes(tmp_path: Path) -> None:
    write = ("import sys, warnings\nwarnings.simplefilter('ignore')\nimport {t} as torch\nfrom {t}.package import PackageExporter\n"
             "with PackageExporter(sys.argv[1]) as e:\n    e.save_source_string('my.mod', 'X = 3')\n"
             "    e.save_pickle('d', 'p', {{'a': torch.arange(3.), 'n': [1, 'x']}})\n")
    for t, other in ((torch, fl), (fl, torch)):
        path = tmp_path / f"{t.__name__}.pt"
        subprocess.run([sys.executable, "-c", write.format(t=t.__name__), str(path)], check=True)
        loaded = _package(other).PackageImporter(str(path))
        found = loaded.load_pickle("d", "p")
        assert found["a"].tolist() == [0, 1, 2] and found["n"] == [1, "x"] and loaded.import_module("my.mod").X == 3


@LIBRARIES
def test_modules_that_nothing_is_said_of(t: Any) -> None:
    p = _package(t)
    with pytest.raises(p.PackagingError, match="numpy"), p.PackageExporter(io.BytesIO()) as e:
        e.save_source_string("my.mod", "import numpy\n")
    with pytest.raises(p.PackagingError, match="denied"), p.PackageExporter(io.BytesIO()) as e:
        e.deny("numpy")
        e.save_source_string("my.mod", "import numpy\n")
    with pytest.raises(p.EmptyMatchError, match="foo"), p.PackageExporter(io.BytesIO()) as e:
        e.extern("foo", allow_empty=False)
        e.save_text("a", "b", "c")


@LIBRARIES
def test_stand_ins(t: Any) -> None:
    p, out, seen = _package(t), io.BytesIO(), []
    with p.PackageExporter(out) as e:
        e.register_mock_hook(lambda exporter, name: seen.append(name))
        e.mock("numpy.**")
        e.save_source_string("my.mod", "import numpy\nf = lambda: numpy.ones(2)\n")
        assert e.mocked_modules() == ["numpy"]
    assert seen == ["numpy"]
    out.seek(0)
    module = p.PackageImporter(out).import_module("my.mod")
    with pytest.raises(NotImplementedError, match="mocked out"):
        module.f()


@LIBRARIES
def test_classes_of_the_programs_own(t: Any, own_modules: Any) -> None:
    p, out = _package(t), io.BytesIO()
    with p.PackageExporter(out) as e:
        e.intern("packed_own.**")
        e.save_pickle("m", "m.pkl", own_modules.b.B(t.ones(2)))
        assert set(e.interned_modules()) >= {"packed_own.b", "packed_own.c"} and "<m.m.pkl>" in e.get_rdeps("packed_own.b")
        assert '"packed_own.b" -> "packed_own.c"' in e.dependency_graph_string().replace(";", "")
    out.seek(0)
    loaded = p.PackageImporter(out)
    made = loaded.load_pickle("m", "m.pkl")
    assert made.f().tolist() == [2, 2] and type(made) is not own_modules.b.B
    again = io.BytesIO()
    with p.PackageExporter(again, importer=(loaded, p.sys_importer)) as e:
        e.intern("packed_own.**")
        e.save_pickle("m", "m.pkl", made)
    again.seek(0)
    assert p.PackageImporter(again).load_pickle("m", "m.pkl").f().tolist() == [2, 2]


def test_objects_of_another_importer_are_told_apart(own_modules: Any) -> None:
    p, out = fl.package, io.BytesIO()
    with p.PackageExporter(out) as e:
        e.intern("packed_own.**")
        e.save_pickle("m", "m.pkl", own_modules.b.B(1))
    out.seek(0)
    loaded = p.PackageImporter(out)
    made = loaded.load_pickle("m", "m.pkl")
    with pytest.raises(p.ObjMismatchError, match="another importer"):
        p.sys_importer.get_name(type(made))
    with pytest.raises(p.ObjNotFoundError):
        p.OrderedImporter(p.sys_importer).get_name(type(made))
    assert p.OrderedImporter(loaded, p.sys_importer).get_name(type(made)) == ("packed_own.b", "B")
    assert p.sys_importer.get_name(own_modules.b.B) == ("packed_own.b", "B")


def test_folders_of_sources(own_modules: Any) -> None:
    p, out = fl.package, io.BytesIO()
    with p.PackageExporter(out) as e:
        e.save_source_file("renamed", str(Path(own_modules.__file__).parent))
        e.save_text("renamed", "notes.txt", "x")
    out.seek(0)
    loaded = p.PackageImporter(out)
    assert loaded.import_module("renamed.b").B(3).f() == 6 and loaded.import_module(".c", "renamed").two == 2
    reader = loaded.get_resource_reader("renamed")
    assert reader.is_resource("notes.txt") and list(reader.contents()) == ["__init__.py", "b.py", "c.py", "notes.txt"]
    assert reader.open_resource("notes.txt").read() == b"x"


def test_code_in_packages_uses_flambeau() -> None:
    p, out = fl.package, io.BytesIO()
    with p.PackageExporter(out) as e:
        e.save_source_string("net", "import flambeau as torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
                                    "        super().__init__()\n        self.a = torch.nn.Linear(2, 1)\n\n    def forward(self, x):\n"
                                    "        return self.a(x)\n")
    out.seek(0)
    net = p.PackageImporter(out).import_module("net").Net()
    assert net(fl.ones(3, 2)).shape == (3, 1)
