"""report.html: kernels are credited to the module and the call site that they are of, also where layers share their code."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import dynamo, nn
from flambeau.dynamo import debug
from flambeau.dynamo.minifier import AccuracyError


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * 2
        return x


class Balance(HTMLParser):
    """Whether every element that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "br", "hr", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    dynamo.reset()
    debug._folders.clear()
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("depth", [2, 8])
def test_each_layer_has_its_kernels(depth: int, folder: Path) -> None:
    compiled, x = torch.compile(Net(depth)), torch.randn(256, 128, requires_grad=True)
    compiled(x).sum().backward()
    (path,) = folder.glob("run_*/*/report.html")
    text = path.read_text()
    assert "flop/s" not in text
    with torch.profiler.profile():
        compiled(x).sum().backward()
    text = path.read_text()
    balance = Balance()
    balance.feed(text)
    assert not balance.open and len(text) < 3 << 20
    layers = re.findall(r"<details class='m'><summary><b>(\d+)</b> Layer <span class='s'>[^<]* (?:us|ms|s)</span>", text)
    assert layers == [str(i) for i in range(depth)]
    names = re.findall(r"<details class='m'><summary><b>(up|down)</b> Linear", text)
    assert names == ["up", "down"] * depth
    rows = re.findall(r"<tr><td title=.*?</tr>", text, flags=re.S)
    products = [row for row in rows if "= linear(" in row]
    assert len(products) == 2 * depth
    assert all(re.search(r'<a href="#.*?mm.*?33\.6 Mflop.*?flop/s', row, re.DOTALL) for row in products)
    assert all("from test_report.py" in row and "x = layer(x) * 2" in row for row in products)
    assert all("of the machine's peak" in row or "from caches" in row for row in products)
    assert "float32[256, 512]" in text


def test_the_memory_of_each_stage_is_drawn(folder: Path) -> None:
    compiled, x = torch.compile(Net(3)), torch.randn(256, 128, requires_grad=True)
    compiled(x).sum().backward()
    (path,) = folder.glob("run_*/*/report.html")
    text = path.read_text()
    stages = re.findall(r"<summary>inductor_\d: at most ([\d.]+) MB alive, arena of ([\d.]+ [kM]?)B", text)
    assert len(stages) == 2
    forward, backward = debug._folders[0].memory
    assert forward.arena == 0 and 0 < max(temporaries for temporaries, _ in backward.alive) <= backward.arena
    titles = re.findall(r"<title>([^<]*)</title><rect", text)
    assert len(titles) == sum(len(memory.alive) for memory in debug._folders[0].memory)
    assert any("B of temporaries" in title for title in titles) and any("B of results" in title for title in titles)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_a_browser_shows_all_of_it(folder: Path) -> None:
    compiled, x = torch.compile(Net(2)), torch.randn(256, 128, requires_grad=True)
    compiled(x).sum().backward()
    (path,) = folder.glob("run_*/*/report.html")
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}", "--dump-dom"]
    shown = subprocess.run([*browser, path.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
    text = path.read_text()
    for tag in ("table", "summary", "rect", "pre", "tr"):
        assert shown.count(f"<{tag}") == text.count(f"<{tag}"), tag


def test_a_break_is_told_once() -> None:
    @dynamo.disable
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    told = dynamo.explain(lambda x: plain(x) * plain(x))(torch.ones(3))
    assert told.graph_break_count == 2 and str(told).count("\nbreak ") == 1 and "break 1 (met 2 times): " in str(told)


def test_a_recompilation_names_what_the_program_wrote() -> None:
    net = Net(2)
    compiled = torch.compile(lambda x: net.layers[1].up(x) + net.layers[1].size, backend="eager")
    net.layers[1].size = "a"
    with torch._dynamo.config.patch(error_on_recompile=True):
        net.layers[1].size = 1.0
        compiled(torch.ones(2, 128))
        net.layers[1].size = True
        with pytest.raises(torch._dynamo.exc.RecompileError, match=r"net.*\.size"):
            compiled(torch.ones(2, 128))


# -- the smallest program -----------------------------------------------------------------------------------------------------


def broken(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.relu(x @ w) + 1
    return torch.cos(torch.sin(h) * 2).sum()


def test_a_crash_is_reduced_to_the_step_that_causes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))

    def backend(gm: Any, inputs: Any) -> Any:
        if any(node.target is torch.sin for node in gm.graph.nodes):
            raise ZeroDivisionError("sin is too hard")
        return gm.forward

    with torch._dynamo.config.patch(repro_after="dynamo", repro_level=2), pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(broken, backend=backend)(torch.randn(4, 4), torch.randn(4, 4))
    assert "smallest program" in caught.value.__notes__[0] and "1 operation(s)" in caught.value.__notes__[0]
    (path,) = tmp_path.glob("minifier/*.py")
    text = path.read_text()
    assert "sin is too hard" in text and "torch.sin(" in text and "relu" not in text and "cos" not in text


def test_a_program_that_is_written_has_a_step_and_no_other_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that goes by names is not fooled by an input that is called like the step in whose place it stands."""
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))

    def backend(gm: Any, inputs: Any) -> Any:
        if any("sin" in str(node.target) for node in gm.graph.nodes):
            raise ZeroDivisionError("sin is too hard")
        return gm.forward

    with torch._dynamo.config.patch(repro_after="dynamo", repro_level=2), pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(broken, backend=backend)(torch.randn(4, 4), torch.randn(4, 4))
    assert "1 operation(s)" in caught.value.__notes__[0]
    (path,) = tmp_path.glob("minifier/*.py")
    assert "torch.sin(" in path.read_text() and "import torch" not in path.read_text()


def test_wrong_results_are_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))

    def backend(gm: Any, inputs: Any) -> Any:
        for node in gm.graph.nodes:
            if node.target is torch.sin:
                node.target = torch.tan
        gm.recompile()
        return gm.forward

    def right(gm: Any, inputs: Any) -> Any:
        return gm.forward

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with torch._dynamo.config.patch(repro_after="aot", repro_level=4):
        torch.testing.assert_close(torch.compile(broken, backend=right)(x, w), broken(x, w))
        torch.testing.assert_close(torch.compile(broken)(x, w), broken(x, w))
        assert not list(tmp_path.glob("minifier/*"))
        with pytest.raises(AccuracyError, match=r"result 0 differs.*\n.*1 operation"):
            torch.compile(broken, backend=backend)(x, w)
    (path,) = tmp_path.glob("minifier/*.py")
    assert "torch.sin(" in path.read_text()


@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DEBUG_DIR", "FLAMBEAU_REPORT"])
def test_what_cannot_be_written_down_is_told_once(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file" / "below"))
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", str(int(variable != "FLAMBEAU_REPORT")))
    monkeypatch.setattr("flambeau.dynamo.debug._told", set())
    x = torch.randn(4)
    with pytest.warns(UserWarning, match="is not, '.*below.*: ") as seen:
        torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1)(x), x.sin() + 1)
        torch.testing.assert_close(torch.compile(lambda x: x.cos() + 1)(x), x.cos() + 1)
    assert len([w for w in seen if "below" in str(w.message)]) == 1


def test_every_step_is_told_its_module() -> None:
    """Parts of what an operator gives, sizes, numbers that are read and switches of modes too."""
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = x.split(2, -1)
            with torch.no_grad():
                count = second.sum().item()
            with torch.autocast("cpu"):
                return (first @ second.mT).float() * count

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    graphs: list[Any] = []
    torch.compile(Around(), backend=lambda gm, inputs: graphs.append(gm) or gm)(torch.randn(3, 4))
    steps = [node for gm in graphs for node in gm.graph.nodes if node.op.startswith("call")]
    assert len(steps) >= 10
    for node in steps:
        path, kind = list(node.meta["nn_module_stack"].values())[-1]
        assert (path, kind.__name__) == ("layer", "Layer"), node
