"""torch.utils.benchmark: measurements and tables read as torch's, timers time."""

from __future__ import annotations

import time
from typing import Any

import pytest

import flambeau as fl
from flambeau.utils import benchmark as ours

theirs = pytest.importorskip("torch.utils.benchmark")


def measured(home: Any, times: list, n: int = 1, stmt: str = "f(x)", setup: str = "pass", **labels: Any) -> Any:
    return home.Measurement(number_per_run=n, raw_times=times, task_spec=home.TaskSpec(stmt=stmt, setup=setup, **labels))


MEASUREMENTS: list[dict[str, Any]] = [
    {"times": [1e-3, 2e-3, 3e-3], "label": "lab", "sub_label": "sub", "description": "desc", "num_threads": 4},
    {"times": [1e-6], "setup": "x = 1"},
    {"times": [1e-6, 1e-3, 1, 5, 2e-6]},
    {"times": [2.0, 2.1], "n": 10, "stmt": "a\nb", "setup": "import x\nfoo"},
    {"times": [1e-6, 1.1e-6, 1.2e-6, 1.0e-6, 1.05e-6], "env": "e1"},
    {"times": [1.0, 1.1, 1.2, 1.3], "label": "only"},
    {"times": [1.0, 1.001, 1.002, 1.0005]},
    {"times": [3e-10] * 7, "description": "short"},
]


@pytest.mark.parametrize("case", MEASUREMENTS)
def test_measurements(case: dict[str, Any]) -> None:
    a, b = measured(ours, **case), measured(theirs, **case)
    for name in ("mean", "median", "iqr", "times"):
        assert getattr(a, name) == pytest.approx(getattr(b, name))
    for name in ("significant_figures", "has_warnings", "title", "as_row_name", "env", "number_per_run", "raw_times"):
        assert getattr(a, name) == getattr(b, name)
    assert a.meets_confidence() == b.meets_confidence()
    assert repr(a).splitlines()[1:] == repr(b).splitlines()[1:]
    [merged], [expected] = ours.Measurement.merge([a, a]), theirs.Measurement.merge([b, b])
    assert repr(merged).splitlines()[1:] == repr(expected).splitlines()[1:]


def _results(home: Any, number: int) -> list:
    kinds = [(s, d, n) for s in ("s1", "s2 longer") for d in ("add", "mul") for n in (1, 4)]
    if number == 0:
        return [measured(home, [1e-3 * i, 1.1e-3 * i], label="lab", sub_label=s, description=d, num_threads=n)
                for i, (s, d, n) in enumerate(kinds, 1)] + [measured(home, [5e-6], label="lab", sub_label="s1", description="third")]
    if number == 1:
        return [measured(home, [7e-6], description="x"), measured(home, [7e-3], description="y", stmt="g(x)")]
    if number == 2:
        return [measured(home, [k * 1e-3, 1.1e-3 * k, k * 2e-3], label="lab", sub_label=s, description=d, env=e)
                for k, s in enumerate(("s1", "s2"), 1) for d in ("add", "mul") for e in ("a", "b")]
    return [measured(home, [1e-3], label=label, sub_label="s", description="d") for label in "AB"]


@pytest.mark.parametrize("number", range(4))
def test_tables(number: int) -> None:
    def table(home: Any, *settings: str) -> str:
        compare = home.Compare(_results(home, number))
        for name in settings:
            getattr(compare, name)()
        return str(compare)

    for settings in ((), ("trim_significant_figures",), ("trim_significant_figures", "highlight_warnings"), ("colorize",)):
        if not (settings == ("colorize",) and number == 0):
            assert table(ours, *settings) == table(theirs, *settings)


def test_timer() -> None:
    made = ours.Timer("time.sleep(0.002) or x.add(y)", setup="x = torch.ones(2)", globals={"y": 1, "time": time}, label="L",
                      description="D")
    once = made.timeit(5)
    assert once.number_per_run == 5 and len(once.raw_times) == 1 and 0.002 < once.median < 0.1
    assert repr(once).splitlines()[1:4] == ["L", "D", "setup: x = torch.ones(2)"]
    calls: list = []
    many = made.blocked_autorange(lambda number, seconds: calls.append((number, seconds)), min_run_time=0.02)
    assert calls == [(many.number_per_run, t) for t in many.raw_times] and sum(many.raw_times) >= 0.02
    assert ours.Timer("pass").adaptive_autorange(threshold=0.5).meets_confidence(0.5)


def test_threads() -> None:
    before, seen = fl.get_num_threads(), []
    ours.Timer("seen.append(torch.get_num_threads())", globals={"seen": seen}, num_threads=2).timeit(1)
    assert set(seen) == {2} and fl.get_num_threads() == before


def test_errors() -> None:
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        ours.Compare([3])  # type: ignore[list-item]
    with pytest.raises(NotImplementedError, match="Python only"):
        ours.Timer("1", language="c++")
    with pytest.raises(ValueError, match="C\\+\\+ only"):
        ours.Timer("1", global_setup="x")
    with pytest.raises(NotImplementedError, match="valgrind"):
        ours.Timer("1").collect_callgrind()
