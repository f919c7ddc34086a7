"""Pipes beside torch's: what each step gives, in which order, and what is refused."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


def inc(x: int) -> int:
    return x + 1


def even(x: int) -> bool:
    return x % 2 == 0


EXPRESSIONS = [
    "W(range(5)).map(inc)", "W([(1, 2), (3, 4)]).map(inc, input_col=0)", "W([(1, 2), (3, 4)]).map(inc, input_col=0, output_col=-1)",
    "W([(1, 2)]).map(max, input_col=[0, 1])", "W([(1, 2)]).map(max, input_col=[0, 1], output_col=1)", "W([(1, 2)]).map(inc, output_col=0)",
    "W(range(5)).filter(even)", "W([(1, 2), (2, 3)]).filter(even, input_col=0)", "W(range(5)).filter(inc)", "W(range(7)).batch(3)",
    "W(range(7)).batch(3, drop_last=True)", "W(range(7)).batch(0)", "[type(b).__name__ for b in W(range(4)).batch(2)]",
    "W([[1, 2], [3]]).unbatch()", "W([[[1], [2]], [[3]]]).unbatch(-1)", "W([[[1], [2]], [[3]]]).unbatch(2)", "W([[1]]).unbatch(-2)",
    "W([1, 2]).unbatch()", "W(range(8)).shuffle()", "W(range(8)).shuffle().set_seed(5)", "W(range(8)).shuffle(buffer_size=2).set_seed(5)",
    "W(range(8)).shuffle().set_shuffle(False)", "W(range(8)).shuffle(buffer_size=0)", "[list(x) for x in W(range(4)).fork(2)]",
    "list(zip(*W(range(4)).fork(2)))", "list(W(range(4)).fork(2, buffer_size=1)[0])", "W(range(4)).fork(0)", "W(range(4)).fork(1)",
    "[list(x) for x in W(range(5)).demux(2, even)]", "list(W(range(5)).demux(2, inc)[0])", "W(range(5)).demux(0, even)",
    "[list(x) for x in W(range(5)).demux(2, lambda v: None if v == 2 else v % 2, drop_none=True)]", "W(range(3)).zip(W('abc'))",
    "W(range(3)).zip([1])", "W(range(3)).mux(W('ab'))", "len(W(range(3)).mux(W('a')))", "W(range(3)) + W('a')", "I.Concater()",
    "W(range(10)).groupby(even)", "W(range(10)).groupby(even, group_size=2)", "W(range(10)).groupby(even, keep_key=True, group_size=3)",
    "W(range(10)).groupby(lambda v: v % 3, buffer_size=3, group_size=2)", "W(range(10)).groupby(lambda v: v % 3, buffer_size=4)",
    "W(range(10)).sharding_filter()", "share(W(range(10)).sharding_filter(), 3, 1)", "len(share(W(range(10)).sharding_filter(), 3, 2))",
    "I.Sampler(range(4))", "I.StreamReader(W([('n', io.StringIO('abc'))]), chunk=2)", "W([('n', io.StringIO('abc'))]).read_from_stream()",
    "I.FileOpener(W(['x']), mode='x')", "S(range(4)).map(inc)", "S(range(5)).batch(2)", "S(range(5)).batch(2)[3]",
    "S(range(3)).zip(S('abc'))", "S(range(3)).zip(S('ab'))[2]", "S(range(3)).concat(S('ab'))[3]", "S(range(3)).concat(S('ab'))[9]",
    "S(range(3)) + S('ab')", "S(range(6)).shuffle()", "S(range(6)).shuffle().set_seed(4)",
    "S(range(6)).shuffle(indices=[5, 4, 3, 2, 1, 0]).set_shuffle(False)", "repr(W([1]).map(inc))", "repr(S([1]).shuffle())", "W([1]).nosuch",
    "len(traverse(W([1]).map(inc)))"]


def share(pipe: Any, count: int, number: int) -> Any:
    pipe.apply_sharding(count, number)
    return pipe


def value(library: Any, expression: str) -> Any:
    pipes = library.utils.data.datapipes
    library.manual_seed(3)
    names = {"I": pipes.iter, "W": pipes.iter.IterableWrapper, "S": pipes.map.SequenceWrapper, "inc": inc, "even": even, "io": io,
             "share": share, "traverse": library.utils.data.graph.traverse_dps}
    try:
        found = eval(expression, names)
        return found if isinstance(found, (str, int)) else list(found)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_torch(expression: str) -> None:
    assert value(fl, expression) == value(torch, expression)


def test_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.py", "sub/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for masks, recursive in (("", False), ("*.txt", False), (["*.py", "a*"], True), ("*.txt", True)):
        listed = [sorted(t.utils.data.datapipes.iter.FileLister(str(tmp_path), masks, recursive=recursive)) for t in (fl, torch)]
        assert listed[0] == listed[1] and listed[0]
    opened = fl.utils.data.datapipes.iter.FileLister(str(tmp_path), "a*").open_files(mode="rb")
    assert [file.read() for _, file in opened] == [b"a.txt"]
    for _, file in opened:
        file.close()


def test_pipes_in_loaders() -> None:
    data = fl.utils.data
    wrapped = data.datapipes.iter.IterableWrapper
    assert sorted(data.DataLoader(wrapped(range(6)).sharding_filter(), num_workers=2, batch_size=None)) == [0, 1, 2, 3, 4, 5]
    shuffled = wrapped(range(20)).shuffle().sharding_filter()
    assert sorted(data.DataLoader(shuffled, num_workers=2, batch_size=None)) == list(range(20))
    assert list(data.DataLoader(shuffled, batch_size=None, shuffle=False)) == list(range(20))
    assert list(data.DataLoader(shuffled, batch_size=None, shuffle=True)) != list(range(20))
    assert list(pickle.loads(pickle.dumps(wrapped(range(3)).map(inc)))) == [1, 2, 3]
