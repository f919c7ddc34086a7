"""torch.export: one program, exported, run, saved, loaded and run again, against eager and against PyTorch's own export."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import warnings
import zipfile
from typing import Any

import pytest

import flambeau as fl
from flambeau.export import Dim, export


def block(torch: Any = fl) -> Any:
    """A module of either library: parameters, buffers of both kinds, a constant, writes to buffers, inputs and outputs of all kinds."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(4, 8)
            self.bn = torch.nn.BatchNorm1d(8)
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("hidden", torch.zeros(2), persistent=False)
            self.c = torch.ones(3, 8)[:1]

        def forward(self, x: Any, k: int = 2, *, y: Any = None) -> Any:
            self.count.add_(1)
            h = self.bn(self.lin(x)).relu() + self.c
            h = h[:, 1:5].reshape(x.shape[0] * 2, -1)
            return {"a": h * k, "b": x, "n": k, "z": h.sum(-1).softmax(0) / 2 == 1}, self.hidden

    return Block()


def _exported() -> Any:
    return export(block(), (fl.randn(3, 4),), {"y": None}, dynamic_shapes={"x": {0: Dim("batch", max=100)}, "y": None})


def test_the_graph_is_torchs():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = torch.export.export(block(torch), (torch.randn(3, 4),), {"y": None},
                                   dynamic_shapes={"x": {0: torch.export.Dim("batch", max=100)}, "y": None})
    ours = _exported()
    assert [str(n.target) for n in ours.graph.nodes] == [str(n.target) for n in want.graph.nodes]
    assert [str(s) for s in ours.graph_signature.input_specs] == [str(s) for s in want.graph_signature.input_specs]
    assert [(s.kind.name, s.target) for s in ours.graph_signature.output_specs] == [
        (s.kind.name, s.target) for s in want.graph_signature.output_specs]
    assert [str(r) for r in ours.range_constraints.values()] == [str(r) for r in want.range_constraints.values()]
    assert sorted(ours.state_dict) == sorted(want.state_dict) and sorted(ours.constants) == sorted(want.constants)
    assert [list(n.meta["val"].shape) for n in ours.graph.nodes if isinstance(n.meta.get("val"), fl.Tensor) and not n.meta["val"].ndim] == [
        [] for n in want.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor) and not n.meta["val"].ndim]
    assert all("nn_module_stack" in n.meta and "forward" in n.meta["stack_trace"] for n in ours.graph.nodes
               if n.op == "call_function" and isinstance(n.meta["val"], fl.Tensor))


@pytest.mark.parametrize("batch", [2, 3, 7])
def test_runs_as_eager_after_a_file(batch):
    eager = block()
    program = export(eager, (fl.randn(3, 4),), {"y": None}, dynamic_shapes={"x": {0: Dim("batch", max=100)}, "y": None})
    file = io.BytesIO()
    fl.export.save(program, file)
    loaded = fl.export.load(io.BytesIO(file.getvalue()))
    x = fl.randn(batch, 4)
    module = loaded.module()
    want, got = eager(x), module(x, y=None)
    for a, b in zip(fl.utils._pytree.tree_leaves(want), fl.utils._pytree.tree_leaves(got), strict=True):
        assert fl.equal(a, b) if isinstance(a, fl.Tensor) else a == b
    assert {k: v.tolist() for k, v in module.state_dict().items()} == {k: v.tolist() for k, v in eager.state_dict().items()}
    assert float(module.count) == 1


@pytest.mark.parametrize(("args", "kwargs", "error", "text"), [
    ((fl.zeros(101, 4),), {"y": None}, AssertionError, r"Guard failed: x.size\(\)\[0\] <= 100"),
    ((fl.zeros(5, 5),), {"y": None}, AssertionError, r"Guard failed: x.size\(\)\[1\] == 4"),
    ((fl.zeros(5, 4), 3), {"y": None}, ValueError, "Trying to flatten user inputs with exported input tree spec"),
    ((fl.zeros(5, 4),), {"y": 3}, AssertionError, "Guard failed: y is None"),
    ((fl.zeros(5, 4, dtype=fl.float64),), {"y": None}, AssertionError, "dtype"),
    ((fl.zeros(5, 4, 1),), {"y": None}, AssertionError, "dim"),
    ((None,), {"y": None}, ValueError, "x is a tensor"),
])
def test_calls_are_checked(args, kwargs, error, text):
    with pytest.raises(error, match=text):
        _exported().module()(*args, **kwargs)


def test_a_program_is_not_called_itself():
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        _exported()(1)
    with pytest.raises(NotImplementedError, match="train"):
        _exported().module().train()


# -- what sizes may be ---------------------------------------------------------------------------------------------------------
class Of(fl.nn.Module):
    """A function as a module."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any, y: Any) -> Any:
        return self.f(x, y)


X, Y = fl.ones(3, 4), fl.ones(4, 4)


def test_all_problems_at_once():
    def f(x, y):
        if x.shape[0] > 10:
            return x
        return x.reshape(12) + y.sum() if y.shape[0] == 4 else x

    with pytest.raises(fl._dynamo.exc.UserError) as caught:
        export(Of(f), (X, Y), dynamic_shapes=({0: Dim("a")}, {0: Dim("b")}))
    text = str(caught.value)
    assert "Constraints violated (a, b)!" in text and "a = Dim('a', max=10)" in text and "b = 4" in text and "a = 3" in text
    assert "test_export.py" in text and "if x.shape[0] > 10:" in text


@pytest.mark.parametrize(("f", "shapes", "fix"), [
    (lambda x, y: x + y[:3], ({0: Dim("a")}, None), "a = 3"),
    (lambda x, y: x + y, ({0: Dim("a")}, {0: Dim("b")}), "b = a"),
    (lambda x, y: x + 1 if x.shape[0] < 10 else x, ({0: Dim("a")}, None), "a = Dim('a', max=9)"),
    (lambda x, y: x + 1 if x.shape[0] > 2 else x, ({0: Dim("a")}, None), "a = Dim('a', min=3)"),
])
def test_fixes(f, shapes, fix):
    x, y = (X, fl.ones(3, 4)) if "b" in fix else (X, Y)
    with pytest.raises(fl._dynamo.exc.UserError, match="Constraints violated") as caught:
        export(Of(f), (x, y), dynamic_shapes=shapes)
    assert f"Suggested fixes:\n  {fix}" in str(caught.value)


@pytest.mark.parametrize(("shapes", "error", "text"), [
    ({"z": None, "y": None}, RuntimeError, r"top-level keys must be the arg names \['x', 'y'\]"),
    (({0: Dim("a")},), RuntimeError, "`inputs` has 2 elements, but `dynamic_shapes` has 1 elements"),
    (({7: Dim("a")}, None), IndexError, "dimension 7"),
    (({0: Dim("a", min=4)}, None), RuntimeError, "3 not in range"),
    (({0: 4}, None), RuntimeError, "said to be 4"),
    (({0: "a"}, None), RuntimeError, "Unexpected dimension 'a'"),
    ((3, None), RuntimeError, "Unexpected dynamic_shape 3"),
    (({0: Dim("a")}, {0: 2 * Dim("a")}), RuntimeError, "a"),
])
def test_shapes_that_do_not_fit(shapes, error, text):
    with pytest.raises(error, match=text):
        export(Of(lambda x, y: x.sum() + y), (X, Y), dynamic_shapes=shapes)


def test_derived_sizes():
    a = Dim("a")
    program = export(Of(lambda x, y: x + y[1:]), (X, Y), dynamic_shapes=({0: a}, {0: a + 1}))
    assert list(map(repr, program.range_constraints.values())) == ["VR[0, int_oo]", "VR[1, int_oo]"]
    module = program.module()
    assert fl.equal(module(fl.ones(6, 4), fl.ones(7, 4)), fl.ones(6, 4) * 2)
    with pytest.raises(AssertionError, match="Guard failed: y"):
        module(fl.ones(6, 4), fl.ones(6, 4))
    only = export(Of(lambda x, y: x.reshape(x.shape[0] // 2, -1) + y), (fl.ones(6, 2), fl.ones(4)), dynamic_shapes=({0: 2 * a}, None))
    assert only.module()(fl.ones(10, 2), fl.ones(4)).shape == (5, 4)
    with pytest.raises(AssertionError, match="Guard failed"):
        only.module()(fl.ones(5, 2), fl.ones(4))


def test_hints():
    program = export(Of(lambda x, y: x.reshape(12) + y.sum()), (X, Y), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.DYNAMIC}))
    assert program.module()(fl.ones(4, 3), fl.ones(9, 4)).shape == (12,)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(fl.ones(4, 4), Y)
    with pytest.raises(RuntimeError, match=r"Dim\.STATIC or Dim\.AUTO"):
        export(Of(lambda x, y: x + y[:3]), (X, Y), dynamic_shapes=({0: Dim.DYNAMIC}, None))


@pytest.mark.parametrize(("make", "error"), [
    (lambda d: d * d, NotImplementedError), (lambda d: 3 - d, NotImplementedError), (lambda d: (d - 1).min, AssertionError),
    (lambda d: Dim("d", min=3, max=2), AssertionError), (lambda d: Dim("1"), AssertionError)])
def test_dims_that_are_none(make, error):
    with pytest.raises(error):
        make(Dim("d"))


# -- files -----------------------------------------------------------------------------------------------------------------------
def test_damaged_files(tmp_path):
    path = tmp_path / "a.pt2"
    fl.export.save(_exported(), path, extra_files={"note": "hello"})
    extra = {"note": ""}
    fl.export.load(path, extra_files=extra)
    assert extra == {"note": "hello"}
    whole = path.read_bytes()
    rng = fl.Generator()
    rng.manual_seed(0)
    for at in fl.randint(0, len(whole), (60,), generator=rng).tolist():
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1:]):
            path.write_bytes(damaged)
            try:
                loaded = fl.export.load(path)
            except fl.export.serialize.ArchiveError as error:
                assert str(path) in str(error)
            else:    # the bit was in what the archive does not use
                assert str(loaded.graph) == str(_exported().graph)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../b", "", "a\\b"])
def test_names_that_lead_elsewhere(tmp_path, name):
    with pytest.raises(ValueError, match="plain relative path"):
        fl.export.save(_exported(), tmp_path / "a.pt2", extra_files={name: "x"})


# -- files that somebody has made: sums are right, contents are not ------------------------------------------------------------------
def _sealed(record: Any, tensors: bytes) -> io.BytesIO:
    """An archive of this program, with a manifest that fits it."""
    members = {"program.json": json.dumps(record).encode(), "tensors.bin": tensors}
    described = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()}
    manifest = {"format": fl.export.serialize.FORMAT, "version": 1, "members": described}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(name, data)
    file.seek(0)
    return file


@pytest.fixture(scope="module")
def taken_apart() -> tuple[Any, bytes]:
    with zipfile.ZipFile(io.BytesIO(fl.export.serialize.to_bytes(_exported()))) as archive:
        return json.loads(archive.read("program.json")), archive.read("tensors.bin")


def _step(record: Any, target: str, *args: Any) -> None:
    step = next(node for node in record["graph"]["nodes"] if node[0] == "call_function")
    step[2:5] = [target, {"tuple": list(args)}, {"dict": []}]


def _renamed(record: Any, kind: str, path: str) -> None:
    old = {"constants": "c", "state_dict": "count"}[kind]
    record[kind][path] = record[kind].pop(old)
    for spec in record["inputs"]:
        spec[2] = path if spec[2] == old else spec[2]


HOSTILE = {
    **{f"calls {target}": lambda r, target=target: _step(r, target, "FILE", False, 2) for target in (
        "operator:from_file", "aten:from_file", "aten:from_file.default", "operator:frombuffer", "operator:tensor", "aten:load",
        "custom:os::system", "os.system", "python:exec", "function:__import__", "")},
    **{f"a size {text[:12]!r}": lambda r, text=text: r.update(checks=[["==", text, "1", "x"]]) for text in (
        "(((", "1//0", "s0%0", "9" * 5000, "-" * 5000 + "1", "(" * 5000, "\0", "max()", "s0.__class__", "f()", "2**9", "a",
        "1 if 1 else 2")},
    **{f"a {kind} at {path!r}": lambda r, kind=kind, path=path: _renamed(r, kind, path)
       for kind in ("constants", "state_dict")
       for path in ("__class__", "forward", "_parameters", "__dict__", "training", "graph", "code", "recompile", "", "a..b", "_modules.x",
                    "forward.__func__.__globals__.x", "lin.weight.data", "lin", "bn.running_mean.x", "lin._buffers")},
    **{f"{what} {spec[:24]}": lambda r, what=what, spec=spec: r.update({what: spec}) for what in ("in_spec", "out_spec") for spec in (
        "3", "[2, 1]", '[1, {"type": null, "context": null, "children_spec": []}]',
        '[1, {"type": "builtins.tuple", "context": "null", "children_spec": []}]')},
    "a name is a keyword": lambda r: r["graph"]["nodes"][0].__setitem__(2, "class"),
    "an input without a tensor": lambda r: r["state_dict"].pop("lin.weight"),
    "a new value of nothing": lambda r: r["outputs"][-1].__setitem__(slice(0, 3, 2), ["BUFFER_MUTATION", "zz"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs(name, taken_apart, tmp_path):
    record, tensors = copy.deepcopy(taken_apart)
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 8)
    HOSTILE[name](record)
    text = json.loads(json.dumps(record).replace("FILE", str(secret)))
    with pytest.raises(fl.export.serialize.ArchiveError, match="holds no valid program"):
        fl.export.load(_sealed(text, tensors))


def test_hostile_edits_end_in_one_error(taken_apart):
    """Parts of a program's record are dropped and exchanged for others: it is refused, or a program."""
    rng = random.Random(0)
    others: list[Any] = [None, -1, 2**63, 1e308, "", "s0//0", "((", "__class__", [], {}, [[]], {"node": "x"}, {"size": "(("}, {"slice": []}]

    def places(value: Any) -> Any:
        for key in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
            yield value, key
            yield from places(value[key])

    for _ in range(150):
        record, tensors = copy.deepcopy(taken_apart)
        owner, key = rng.choice([p for p in places(record) if rng.random() < 0.5] or list(places(record)))
        if rng.random() < 0.2:
            del owner[key]
        else:
            owner[key] = copy.deepcopy(rng.choice(others))
        try:
            assert isinstance(fl.export.load(_sealed(record, tensors)).module(), fl.nn.Module)
        except (fl.export.serialize.ArchiveError, NotImplementedError):
            pass


def test_names_that_a_program_has_itself():
    """torch's exported modules cannot have them either; here it is said why."""
    class Net(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = fl.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.graph(x)

    with pytest.raises(ValueError, match=r"'graph\.(weight|bias)' cannot be an attribute .* 'graph' of its own"):
        export(Net(), (fl.ones(2),)).module()


def test_names_that_are_no_identifiers():
    net = fl.nn.ModuleDict({"a b": fl.nn.Linear(2, 2), "class": fl.nn.Linear(2, 2), "0": fl.nn.Linear(2, 2)})

    class Net(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net["a b"](self.net["class"](self.net["0"](x)))

    program = export(Net(), (fl.ones(2),))
    loaded = fl.export.load(io.BytesIO(fl.export.serialize.to_bytes(program)))
    assert fl.equal(loaded.module()(fl.ones(2)), Net()(fl.ones(2))) and set(loaded.state_dict) == set(program.state_dict)


def test_tied_tensors_keep_both_names():
    """A state dict of the module that was exported fits what the program runs as, and what is tied stays so."""
    class Tied(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = fl.nn.ModuleDict({"e": fl.nn.Embedding(5, 4), "o": fl.nn.Linear(4, 5, bias=False), "unused": fl.nn.Linear(2, 2)})
            self.m["o"].weight = self.m["e"].weight

        def forward(self, i: Any) -> Any:
            return self.m["o"](self.m["e"](i))

    tied, i = Tied(), fl.tensor([1, 2])
    program = export(tied, (i,))
    for run in (program.module(), fl.export.load(io.BytesIO(fl.export.serialize.to_bytes(program))).module()):
        assert set(run.state_dict()) == set(tied.state_dict()) and len(list(run.parameters())) == 3
        run.load_state_dict({name: fl.ones_like(value) for name, value in tied.state_dict().items()})
        assert (run(i) == 4).all()


def test_inputs_are_called_as_in_the_program() -> None:
    """Those that Python has functions of, too."""
    class Program(fl.nn.Module):
        def forward(self, input: fl.Tensor, max: fl.Tensor, x: fl.Tensor) -> fl.Tensor:
            return input * 2 + max.max() - x

    args = (fl.ones(2), fl.ones(3), fl.ones(2))
    program = export(Program(), args)
    stored = io.BytesIO()
    fl.export.save(program, stored)
    stored.seek(0)
    for one in (program, program.run_decompositions(), fl.export.load(stored)):
        assert [n.name for n in one.graph.nodes if n.op == "placeholder"] == ["input", "max", "x"] == list(one.graph_signature.user_inputs)
        assert fl.equal(one.module()(*args), Program()(*args))


def test_copies_are_programs_too() -> None:
    class Program(fl.nn.Module):
        def forward(self, input: fl.Tensor) -> fl.Tensor:
            return input * 2

    program = copy.deepcopy(export(Program(), (fl.ones(2),)))
    assert [n.name for n in program.graph.nodes if n.op == "placeholder"] == ["input"]
    assert fl.equal(program.module()(fl.ones(2)), fl.full((2,), 2.0))


@pytest.mark.parametrize("strict", (False, True))
def test_a_tensor_that_is_given_twice_is_two_inputs(strict: bool) -> None:
    class Program(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", fl.ones(3, 2))

        def forward(self, x: fl.Tensor, d: Any, *, k: fl.Tensor) -> fl.Tensor:
            return x + 10 * d["a"] + 100 * d["b"][0] + 1000 * k + 10000 * self.b

    module, x = Program(), fl.ones(3, 2)
    rows = {0: Dim("rows")}
    for shapes in (None, {"x": rows, "d": {"a": rows, "b": [rows]}, "k": rows}):
        if shapes is not None:
            module.b = fl.ones(1, 2)
        for k in (x, module.b):
            if shapes is None or k is x:
                run = export(module, (x, {"a": x, "b": [x]}), {"k": k}, strict=strict, dynamic_shapes=shapes).module()
                got = run(x, {"a": 2 * x, "b": [3 * x]}, k=4 * x)
                assert fl.equal(got, module(x, {"a": 2 * x, "b": [3 * x]}, k=4 * x)) and got[0, 0] == 14321


def test_shapes_by_tensor_are_those_of_the_inputs() -> None:
    module, x, rows = fl.nn.Linear(4, 2), fl.ones(3, 4), Dim("rows", max=9)
    shapes = fl.export.ShapesCollection()
    shapes[x] = {0: rows}
    program = export(module, (x,), dynamic_shapes=shapes)
    assert [str(v) for v in program.range_constraints.values()] == ["VR[0, 9]"] and program.module()(fl.ones(5, 4)).shape == (5, 2)
    with pytest.raises(AssertionError, match="already"):
        shapes[x] = {1: rows}
    with pytest.raises(ValueError, match="not among the inputs"):
        export(module, (fl.ones(3, 4),), dynamic_shapes=shapes)


FIXES: list[tuple[Any, Any, dict]] = [     # a program, its shapes, and the bounds of them when its error's fixes are taken
    (lambda x, y: x + 1 if x.shape[0] <= 5 else x, {"x": {0: Dim("a")}, "y": None}, {"a": (0, 5)}),
    (lambda x, y: x + 1 if x.shape[0] > 2 else x, {"x": {0: Dim("a", max=9)}, "y": None}, {"a": (3, 9)}),
    (lambda x, y: x + fl.ones(3, 4), {"x": {0: Dim("a")}, "y": None}, {}),
    (lambda x, y: x + y, ({0: Dim("a")}, {0: Dim("b")}), {"a": (0, float("inf"))}),
]


@pytest.mark.parametrize("function, shapes, bounds", FIXES)
def test_suggested_fixes_can_be_taken(function: Any, shapes: Any, bounds: dict) -> None:
    from flambeau.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes as refined

    class Program(fl.nn.Module):
        def forward(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
            return function(x, y)

    x = fl.ones(3, 4)
    with pytest.raises(fl._dynamo.exc.UserError) as caught:
        export(Program(), (x, 2 * x), dynamic_shapes=shapes)
    better = refined(str(caught.value), shapes)
    export(Program(), (x, 2 * x), dynamic_shapes=better)
    found = {d.__name__: (d.min, d.max) for d in fl.utils._pytree.tree_leaves(better) if isinstance(d, Dim)}
    assert found == bounds
    with pytest.raises(ValueError, match="has no 'Suggested fixes:'"):
        refined("nothing", shapes)
    with pytest.raises(ValueError, match="no fix of a size"):
        refined("Suggested fixes:\n  a = __import__('os')", ({0: Dim("a")}, None))


def test_dims_that_hang_on_one_that_is_refined() -> None:
    from flambeau.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes as refined

    a = Dim("a")
    shapes = refined("...\nSuggested fixes:\n  a = Dim('a', min=2, max=7)\n", {"x": {0: a}, "y": {0: 2 * a + 1}})
    assert (shapes["y"][0].min, shapes["y"][0].max, str(shapes["y"][0])) == (5, 15, "2*a + 1")
    shapes = refined("Suggested fixes:\n  a = 2*_a\n", [{0: a}])
    assert shapes[0][0].__name__ == "2*_a" and repr(a - 1) == "a - 1"
    with pytest.raises(AssertionError, match="Expected derived min value"):
        _ = (a - 1).min
