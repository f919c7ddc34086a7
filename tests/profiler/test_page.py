"""profile.html, the command that makes it, what it advises, and processes side by side."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl
from flambeau.profiler import Event, profile
from flambeau.profiler.advice import advise
from flambeau.profiler.distributed import rank_of, rank_of_trace, stragglers
from flambeau.profiler.page import write_page
from flambeau.profiler.session import compare_ranks, write_profile

ALL = dict.fromkeys(("record_shapes", "with_stack", "with_modules", "with_flops", "profile_memory"), True)
SCRIPT = """
import sys, torch
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    net(torch.ones(64, 16)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
"""


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1].replace("<\\/", "</"))


def trained(steps: int = 3) -> profile:
    net = fl.nn.Sequential(fl.nn.Linear(16, 32), fl.nn.ReLU(), fl.nn.Linear(32, 1))
    optimizer = fl.optim.SGD(net.parameters(), lr=0.1)
    with profile(**ALL) as taken:
        for _ in range(steps):
            net(fl.ones(64, 16)).mean().backward()
            optimizer.step()
    return taken


def test_what_the_page_holds(tmp_path: Path) -> None:
    taken = trained()
    write_profile(taken, tmp_path / "profile.html", "a </script> title")
    data = data_of(tmp_path / "profile.html")
    events = [e for e in taken.events() if e.name != "[memory]"]
    assert {len(column) for column in data["events"].values()} == {len(events)}
    begins = [data["names"][i] for i in data["events"]["n"]]
    assert begins == [e.name for e in events]
    deepest = max(sum(1 for _ in e.outer()) for e in events) + 1
    assert [lane["depth"] for lane in data["lanes"]] == [deepest]
    title = [name for name, _ in data["columns"]]
    rows = [dict(zip(title, row, strict=True)) for row in data["rows"]]
    linear = next(row for row in rows if row["Name"] == "aten::linear" and row["Module"] == "0")
    assert linear["Calls"] == 3 and linear["FLOP"] == 3 * 2 * 64 * 16 * 32 and linear["Line"].endswith("trained")
    assert abs(sum(row["Share"] for row in rows) - 1) < 0.35 and linear["Self"] <= linear["Total"]
    assert [node["name"] for node in data["modules"]["inner"]] == ["0", "1", "2"]
    assert all(node["backward"] > 0 for node in data["modules"]["inner"])
    assert data["memory"]["bytes"] == max(map(sum, data["memory"]["sizes"])) == sum(row[1] for row in data["memory"]["owners"])
    assert "a &lt;/script&gt; title" in (tmp_path / "profile.html").read_text()


def many_events(count: int) -> list[Event]:
    events, at = [], 0
    for i in range(count):
        event = Event(f"aten::op{i % 40}", at, end=at + 700, module=f"layers.{i % 12}", stack=[f"train.py({i % 30}): step"])
        if i % 5:
            event.set_cpu_parent(events[i - i % 5])
            events[i - i % 5].append_cpu_child(event)
            events[i - i % 5].end = at + 800
        events.append(event)
        at += 1000
    return events


@pytest.fixture
def browser(tmp_path: Path) -> list[str]:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Debian's chromium")
    return [found, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,2200", f"--user-data-dir={tmp_path / 'browser'}"]


def test_a_browser_shows_all_of_it(tmp_path: Path, browser: list[str]) -> None:
    write_profile(trained(), tmp_path / "profile.html", "a page")
    shown = subprocess.run([*browser, "--dump-dom", (tmp_path / "profile.html").as_uri()], capture_output=True, text=True, timeout=120,
                           check=True).stdout
    assert 'data-ready="' in shown and "aten::linear" in shown and "optimizer" in shown
    data = data_of(tmp_path / "profile.html")
    assert shown.count('class="tile"') == len(data["tiles"]) and shown.count("<summary>") == 3
    assert shown.count("<tr>") == 2 + len(data["rows"]) + len(data["memory"]["owners"])
    picture = tmp_path / "shot.png"
    subprocess.run([*browser, f"--screenshot={picture}", (tmp_path / "profile.html").as_uri()], capture_output=True, timeout=120,
                   check=True)
    assert len(picture.read_bytes()) > 20_000     # an empty page of this size takes a few thousand bytes


def test_a_page_of_twenty_thousand_events_opens(tmp_path: Path, browser: list[str]) -> None:
    write_page(tmp_path / "profile.html", many_events(25_000), title="many")
    assert len(data_of(tmp_path / "profile.html")["events"]["t"]) == 20_000
    shown = subprocess.run([*browser, "--dump-dom", (tmp_path / "profile.html").as_uri()], capture_output=True, text=True, timeout=120,
                           check=True).stdout
    assert "first 20,000 of 25,000 events" in shown and 'data-ready="' in shown


def command(tmp_path: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flambeau", "profile", *args], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, **environment, "PYTHONPATH": str(Path(fl.__file__).parent.parent)})


def test_the_command_profiles_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command(tmp_path, "-o", "out.html", "--trace", "trace.json.gz", "train.py", "4")
    assert done.returncode == 0 and done.stdout == "trained\n" and "profile: out.html" in done.stderr, done.stderr
    data = data_of(tmp_path / "out.html")
    assert "Optimizer.step#SGD.step" in data["names"] and (tmp_path / "trace.json.gz").exists()
    assert any(row[-1] == "train.py(6): <module>" for row in data["rows"])


def test_the_command_tells_of_a_script_that_fails_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(3).exp()\nraise SystemExit(7)\n")
    done = command(tmp_path, "train.py", RANK="1")
    assert done.returncode == 7 and "aten::exp" in data_of(tmp_path / "profile.rank1.html")["names"]


# -- advice ------------------------------------------------------------------------------------------------------------------------


def titles(events: list[Event], breaks: Counter[str] | None = None) -> dict[str, tuple[float, str]]:
    return {advice.title: (round(advice.share, 2), advice.where) for advice in advise(events, breaks)}


def at(name: str, start: int, end: int, kind: int = 0, line: str = "train.py(1): step", inside: Event | None = None) -> Event:
    event = Event(name, start, end=end, kind=kind, stack=[line])
    if inside is not None:
        event.set_cpu_parent(inside)
        inside.append_cpu_child(event)
    return event


MS = 1_000_000
DATA = [at("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 40 * MS, 7), at("aten::exp", 40 * MS, 100 * MS)]
STEP = at("Optimizer.step#Adam.step", 0, 50 * MS, 7)
OPTIMIZER = [STEP, *(at("aten::add_", i * MS, (i + 1) * MS, inside=STEP) for i in range(30)), at("aten::exp", 50 * MS, 100 * MS)]
SMALL = [at("aten::add", i * 10_000, i * 10_000 + 9_000) for i in range(200)]
SPARSE = [at("aten::add", i * MS, i * MS + MS // 2) for i in range(200)]
WAITS = [at("aten::exp", 0, 90 * MS), at("aten::item", 90 * MS, 100 * MS, line="train.py(9): log")]
AGAIN = [at("torch.compile f", 0, 10 * MS), at("torch.compile f", 10 * MS, 30 * MS), at("compiled forward", 30 * MS, 100 * MS)]
ONCE = [at("torch.compile f", 0, 10 * MS), at("compiled forward", 10 * MS, 100 * MS)]


@pytest.mark.parametrize("events, title, share, line", [
    (DATA, "Waiting for data", 0.4, 1), (OPTIMIZER, "Unfused optimizer", 0.5, 1), (SMALL, "Many small kernels", 0.9, 1),
    (SPARSE, "Python between operators", 0.5, 1), (WAITS, "Synchronisations", 0.1, 9), (AGAIN, "Recompilations", 0.3, 1),
    (ONCE, "Compilation", 0.1, 1)])
def test_what_stands_out_is_told_with_its_share(events: list[Event], title: str, share: float, line: int) -> None:
    found = titles(events)
    assert abs(found[title][0] - share) <= 0.02 and found[title][1].startswith(f"train.py({line})")
    assert title not in titles([at("aten::exp", 0, 100 * MS)])


def test_waiting_for_data_is_told_once() -> None:
    waits = [at(DATA[0].name, i * MS, i * MS + 700_000, 7) for i in range(200)]
    found = titles([*waits, *(at("aten::exp", i * MS + 700_000, (i + 1) * MS) for i in range(200))])
    assert found["Waiting for data"][0] == 0.7 and "Python between operators" not in found


def test_graph_breaks_and_odd_sizes() -> None:
    breaks = titles([at("aten::exp", 0, 30 * MS), at("compiled forward", 30 * MS, 100 * MS)], Counter({"print": 2}))
    assert breaks["Graph breaks"][0] == 0.3
    odd = at("aten::mm", 0, 100 * MS)
    odd.flops, odd.input_shapes, odd.input_dtypes = 1000, [[64, 65], [65, 8]], ["c10::BFloat16"] * 2
    assert titles([odd])["Odd sizes"][0] == 1
    odd.input_shapes = [[64, 64], [64, 8]]
    assert "Odd sizes" not in titles([odd])


# -- processes ----------------------------------------------------------------------------------------------------------------------


def test_computation_communication_and_overlap() -> None:
    rank = rank_of(3, [("cpu_op", "aten::mm", 0, 10), ("cpu_op", "aten::mm", 5, 12), ("communication", "c10d::allreduce", 8, 20),
                       ("kernel", "ncclDevKernel_AllReduce", 30, 34), ("user_annotation", "step", 0, 90)])
    assert (rank.wall, rank.computation, rank.communication, rank.overlap, rank.exposed) == (34, 12, 16, 4, 12)


def test_processes_side_by_side(tmp_path: Path) -> None:
    for rank, length in enumerate((100, 100, 150)):
        rows = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": length},
                {"ph": "X", "cat": "communication", "name": "c10d::allreduce", "ts": 90, "dur": 80}]
        (tmp_path / f"trace.rank{rank}.json").write_text(json.dumps({"traceEvents": rows}))
    ranks = compare_ranks([str(tmp_path / f"trace.rank{i}.json") for i in range(3)], tmp_path / "page.html")
    assert stragglers(ranks) == [2] and [r.overlap for r in ranks] == [10, 10, 60]
    assert [row[-1] for row in data_of(tmp_path / "page.html")["ranks"]["rows"]] == ["", "", "the others wait for it"]
    with pytest.raises(ValueError, match="no rank in the file's name"):
        rank_of_trace(shutil.copy(tmp_path / "trace.rank0.json", tmp_path / "trace.json"))


def test_a_first_look(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-m", "flambeau.utils.bottleneck", "train.py", "2"], cwd=tmp_path, capture_output=True,
                          text=True, check=True, env={**os.environ, "PYTHONPATH": str(Path(fl.__file__).parent.parent)})
    assert done.stdout.count("trained") == 2 and "Environment Summary" in done.stdout and "tottime" in done.stdout
    assert "Optimizer.step#SGD.step" in done.stdout and "Self CPU time total" in done.stdout
