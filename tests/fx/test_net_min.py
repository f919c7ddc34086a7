"""The minimizer of networks finds the nodes that differ, as torch's does."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.fx.passes import net_min_base
from flambeau.fx.passes.net_min_base import _MinimizerBase, _MinimizerSettingBase


def network(x):
    a = x + 1
    b = torch.relu(a.sin())
    return b * 2 + a


class Minimizer(_MinimizerBase):
    wrong: tuple[str, ...] = ()

    def run_a(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
        return mod(*inputs)

    def run_b(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
        if "crash" in self.wrong:
            raise ValueError("no such backend")
        off = any(node.op.startswith("call") and node.name in self.wrong for node in mod.graph.nodes)
        result = mod(*inputs)
        return [r + off for r in result] if isinstance(result, (tuple, list)) else result + off


def compared(a: Any, b: Any, names: Any) -> tuple[float, bool]:
    pairs = zip(a, b, strict=True) if isinstance(a, (tuple, list)) else [(a, b)]
    worst = max(float((x - y).abs().max()) for x, y in pairs)
    return worst, worst < 1e-6


def minimizer(*wrong: str, **settings: Any) -> Minimizer:
    made = Minimizer(torch.fx.symbolic_trace(network), (torch.ones(3),), compared, _MinimizerSettingBase(**settings))
    made.wrong = wrong
    return made


@pytest.mark.parametrize("method", ["sequential", "binary", "accumulate"])
@pytest.mark.parametrize("return_intermediate", [False, True])
def test_culprits(method: str, return_intermediate: bool) -> None:
    settings = {"traverse_method": method, "return_intermediate": return_intermediate}
    names = lambda found: {node.name for node in found}
    assert names(minimizer("sin", "mul", **settings).minimize()) == {"sin"}
    assert names(minimizer("sin", "mul", **settings, find_all=True).minimize()) == {"sin", "mul"}
    assert names(minimizer("sin", "mul", **settings).minimize(start="relu")) == {"mul"}
    assert names(minimizer("sin", "mul", **settings).minimize(end="add")) == set()
    assert minimizer(**settings).minimize() == set()


def test_nodes_that_are_skipped_and_what_is_reported(capsys) -> None:
    made = minimizer("sin", "mul")
    assert {node.name for node in made.minimize(skip_nodes=["sin"])} == {"mul"}
    made.print_reports()
    assert "different at mul" in capsys.readouterr().out and made.results["mul",] == pytest.approx(1)


def test_errors() -> None:
    with pytest.raises(RuntimeError, match="Unknown traverse method"):
        minimizer(traverse_method="diagonal")
    with pytest.raises(NotImplementedError, match="accumulate_error"):
        minimizer(accumulate_error=True)
    with pytest.raises(net_min_base.FxNetMinimizerBadModuleError, match="no node cos"):
        minimizer().minimize(start="cos")
    with pytest.raises(net_min_base.FxNetMinimizerRunFuncError, match="no such backend"):
        minimizer("crash").minimize()
    with pytest.raises(net_min_base.FxNetMinimizerResultMismatchError):
        minimizer("sin").run_nodes()
    minimizer("sin").run_nodes("relu", "mul")
