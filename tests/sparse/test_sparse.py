"""Sparse tensors beside torch's: expressions.txt lists what both compute, gradients.txt what both differentiate."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.core.sparse import FORMS
from flambeau.ops.registry import is_operator
from flambeau.sparse.elementwise import KEEPS_ZERO

HERE = Path(__file__).parent
EXPRESSIONS = (HERE / "expressions.txt").read_text().splitlines()
GRADIENTS = (HERE / "gradients.txt").read_text().splitlines()
INDICES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, -5.0, 0.5]
DENSE = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
SQUARE = np.where(np.random.default_rng(1).random((4, 4)) < 0.4, np.arange(16.0).reshape(4, 4) - 7, 0).astype("float32")
quiet = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

PARTS = {"torch.sparse_coo": ("_indices", "_values"), "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
         "torch.sparse_csc": ("ccol_indices", "row_indices", "values"), "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
         "torch.sparse_bsc": ("ccol_indices", "row_indices", "values")}


def described(value: Any) -> Any:
    """A value as data that both libraries come to alike."""
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if not hasattr(value, "layout"):
        return value
    facts = [str(value.layout), tuple(value.shape), str(value.dtype), value.requires_grad]
    if str(value.layout) == "torch.strided":
        return [*facts, value.detach().numpy()]
    if value.layout is not None and str(value.layout) == "torch.sparse_coo":
        facts.append(value.is_coalesced())
    detached = value.detach()
    return [*facts, *(getattr(detached, name)().numpy() for name in PARTS[str(value.layout)])]


def same(a: Any, b: Any) -> None:
    """AssertionError where two descriptions differ; floats may by a few last places."""
    assert type(a) is type(b), f"{a} and {b}"
    if isinstance(a, list):
        assert len(a) == len(b), f"{a} and {b}"
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    else:
        assert a == b or (a != a and b != b), f"{a} and {b}"


def names(t: Any) -> dict[str, Any]:
    i, v = t.tensor(INDICES), t.tensor(VALUES)
    s = t.sparse_coo_tensor(i, v, (2, 3))
    h = t.sparse_coo_tensor(i[:1], t.arange(8.0).reshape(4, 2) - 3, (3, 2))
    square = t.tensor(SQUARE)
    batch = t.stack((square, square.flip(0)))
    return {"torch": t, "i": i, "v": v, "s": s, "c": s.coalesce(), "d": t.tensor(DENSE), "h": h, "r": s.to_sparse_csr(),
            "k": s.to_sparse_csc(), "x": square, "y": batch, "b": square.to_sparse_bsr((2, 1)), "e": square.to_sparse_bsc((2, 4)),
            "q": batch.to_sparse_csr(), "m": batch.to_sparse_csc()}


def evaluated(t: Any, expression: str) -> Any:
    try:
        return described(eval(expression, names(t)))
    except Exception as error:
        return type(error)


@quiet
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_torch(expression: str) -> None:
    torch = pytest.importorskip("torch")
    same(evaluated(fl, expression), evaluated(torch, expression))


@quiet
@pytest.mark.parametrize("expression", ["s+c", "c+c.t().t()", "s*s", "s*c", "s.sum(0,keepdim=True)", "k.to_sparse()", "s.add_(c)"])
def test_as_torch_when_coalesced(expression: str) -> None:
    """The entries' order, or whether entries of one place were added up, is not torch's."""
    torch = pytest.importorskip("torch")
    same(*(described(eval(expression, names(t)).coalesce()) for t in (fl, torch)))


def gradients(t: Any, expression: str) -> Any:
    known = names(t)
    w = t.tensor(VALUES, requires_grad=True)
    d, s, r = t.tensor(DENSE, requires_grad=True), known["s"].detach().requires_grad_(), known["r"].detach().requires_grad_()
    eval(expression, {**known, "w": w, "d": d, "s": s, "r": r}).backward()
    return [None if x.grad is None else x.grad.detach() for x in (w, d, s, r)]


@quiet
@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients(expression: str) -> None:
    """Where torch has one. That of a sparse operand has the operand's pattern, where torch's is dense for some operators."""
    torch = pytest.importorskip("torch")
    try:
        expected = gradients(torch, expression)
    except NotImplementedError:
        expected = None
    except RuntimeError as error:
        with pytest.raises(type(error)):
            gradients(fl, expression)
        return
    found = gradients(fl, expression)
    if expected is None:
        return
    for mine, its in zip(found, expected):
        if mine is None or its is None:
            assert mine is its is None
        elif mine.layout is fl.strided or its.layout is not torch.strided:
            same(described(mine.to_dense()), described(its.to_dense()))
        else:
            there = np.zeros((2, 3), bool)
            there[tuple(np.array(INDICES))] = True
            same(mine.to_dense().numpy(), its.numpy() * there)


@pytest.mark.parametrize("expression", [e for e in GRADIENTS if "torch.nn" not in e and "d.to_sparse" not in e])
def test_gradients_by_differences(expression: str) -> None:
    """In float64, of the dense matrix."""
    def f(d: Any) -> Any:
        known = {k: x.double() if isinstance(x, fl.Tensor) and x.is_floating_point() else x for k, x in names(fl).items()}
        return eval(expression, {**known, "w": fl.tensor(VALUES).double(), "d": d})
    d = fl.tensor(DENSE).double().requires_grad_()
    if f(d).requires_grad:
        assert fl.autograd.gradcheck(f, (d,))


def test_second_derivatives() -> None:
    v, d = fl.tensor(VALUES, dtype=fl.float64, requires_grad=True), fl.tensor(DENSE).double().requires_grad_()

    def f(v: Any, d: Any) -> Any:
        return (fl.sparse_coo_tensor(INDICES, v, (2, 3)) @ d).sin()
    assert fl.autograd.gradcheck(f, (v, d))
    assert fl.autograd.gradgradcheck(f, (v, d))


# -- the mechanism ------------------------------------------------------------------------------------------------------------
def test_forms_are_of_operators() -> None:
    assert len(FORMS) > 90
    assert all(is_operator(operator) for operator in FORMS)


@pytest.mark.parametrize("operator", KEEPS_ZERO, ids=lambda operator: operator.__name__)
def test_functions_that_keep_zero(operator: Any) -> None:
    assert not operator(fl.zeros(1)).any()


@quiet
def test_every_other_operator_refuses_or_is_made_of_forms() -> None:
    """A dense operator that meets a sparse operand never computes nonsense."""
    for operator in fl.ops.OPERATORS.values():
        if operator in FORMS or "from_data" in operator._operator.tags:
            continue
        s = names(fl)["s"]
        try:
            found = operator(s)
        except (TypeError, IndexError, ValueError, NotImplementedError):
            continue
        expected = operator(s.to_dense())
        same(described(found.to_dense() if isinstance(found, fl.Tensor) else found), described(expected))
    with fl.overrides.DisableTorchFunctionSubclass(), pytest.raises(NotImplementedError, match="SparseCPU"):
        s.exp()


@pytest.mark.parametrize("call", [
    lambda s: fl.as_tensor(s).exp(), lambda s: np.asarray(s), lambda s: s.data_ptr(),
    lambda s: s.untyped_storage(), lambda s: s.tolist(), lambda s: s.to_sparse_csr().stride(), lambda s: s.share_memory_(),
    lambda s: s.fill_diagonal_(1),
])
def test_what_needs_an_array_says_so(call: Any) -> None:
    with pytest.raises((NotImplementedError, RuntimeError, TypeError), match=r"to_dense|stride|values"):
        call(names(fl)["s"])


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fl.sparse_coo_tensor([[5], [0]], [1.0], (2, 3)), RuntimeError, "for dim 0, size is 2 but found index 5"),
    (lambda: fl.sparse_coo_tensor([[0], [-1]], [1.0], (2, 3)), RuntimeError, "negative index -1 for dim 1"),
    (lambda: fl.sparse_csr_tensor([0, 1, 4], [0, 1], [1.0, 2.0], (2, 3)), RuntimeError, "== nnz"),
    (lambda: fl.sparse_csr_tensor([0, 1, 2], [0, 7], [1.0, 2.0], (2, 3)), RuntimeError, "col_indices < ncols"),
    (lambda: fl.sparse_bsr_tensor([0], [0], [1.0]), RuntimeError, "dimensionality"),
    (lambda: fl.eye(2).to_sparse_bsr((1, 3)), RuntimeError, "divisible"),
    (lambda: fl.stack((fl.eye(2), fl.ones(2, 2))).to_sparse_csr(), RuntimeError, "same number of specified elements per batch"),
    (lambda: fl.eye(3).to_sparse() @ fl.ones(2, 2), RuntimeError, r"3x3 and 2x2"),
    (lambda: fl.eye(3).to_sparse() @ fl.ones(3, 2).double(), RuntimeError, "same dtype"),
    (lambda: fl.eye(3).to_sparse() + fl.ones(3, 3), RuntimeError, "add\\(dense, sparse\\)"),
    (lambda: fl.eye(3).to_sparse()[:2], NotImplementedError, "narrow_copy"),
    (lambda: fl.eye(3).to_sparse().__setitem__(0, 1), TypeError, "Cannot assign"),
    (lambda: fl.eye(3).to_sparse().requires_grad_().mul_(2), RuntimeError, "leaf"),
])
def test_bad_input(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_indices_are_checked_unless_told() -> None:
    with fl.sparse.check_sparse_tensor_invariants(False):
        assert not fl.sparse.check_sparse_tensor_invariants.is_enabled()
        bad = fl.sparse_coo_tensor([[5], [0]], [1.0], (2, 3))
    assert fl.sparse.check_sparse_tensor_invariants.is_enabled()
    with pytest.raises((IndexError, RuntimeError)):
        bad @ fl.ones(3, 2)


# -- gradients that are sparse ---------------------------------------------------------------------------------------------------
OPTIMIZERS = [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
              ("SGD", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1}), ("SparseAdam", {"lr": 0.1}),
              ("SparseAdam", {"lr": 0.1, "maximize": True}), ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
              ("Adagrad", {"weight_decay": 0.1}), *((name, {}) for name in ("Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam"))]


def trained(t: Any, name: str, options: dict) -> Any:
    table = t.nn.Embedding(5, 3, sparse=True)
    with t.no_grad():
        table.weight.copy_(t.arange(15.0).reshape(5, 3) / 10)
    optimizer = getattr(t.optim, name)(table.parameters(), **options)
    for k in range(3):
        optimizer.zero_grad()
        table(t.tensor([[k, 1], [4, 1]])).pow(2).sum().backward()
        assert table.weight.grad.is_sparse and table.weight.grad._nnz() == 4
        optimizer.step()
    return table.weight.detach().numpy()


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name: str, options: dict) -> None:
    torch = pytest.importorskip("torch")
    try:
        expected = trained(torch, name, options)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="sparse gradients"):
            trained(fl, name, options)
        return
    np.testing.assert_allclose(trained(fl, name, options), expected, rtol=1e-4, atol=1e-5)


def test_a_step_writes_only_its_rows() -> None:
    table = nn.Embedding(1000, 4, sparse=True)
    before = table.weight.detach().clone()
    table(fl.tensor([3, 7])).sum().backward()
    fl.optim.SparseAdam(table.parameters()).step()
    changed = (table.weight.detach() != before).any(1)
    assert changed.nonzero().reshape(-1).tolist() == [3, 7]


def test_gradients_add_up() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    for _ in range(2):
        table(fl.tensor([1, 3])).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad.to_dense().sum() == 8
    table.weight.pow(2).sum().backward()                       # a dense one joins: the sum is dense
    assert table.weight.grad.layout is fl.strided
    table(fl.tensor([0])).sum().backward()
    assert table.weight.grad.layout is fl.strided
    table.zero_grad()
    bag = nn.EmbeddingBag.from_pretrained(fl.ones(4, 2), freeze=False, sparse=True)
    bag(fl.tensor([[0, 1], [1, 3]])).sum().backward()
    assert bag.weight.grad.is_sparse
    fl.optim.SparseAdam(bag.parameters()).zero_grad(set_to_none=False)
    assert bag.weight.grad._nnz() == 0


# -- copies, files, modules, compilation ----------------------------------------------------------------------------------------
def kinds(t: Any) -> list:
    s = names(t)["s"]
    return [s, s.coalesce(), s.to_sparse_csr(), s.to_sparse_csc(), names(t)["h"], t.sparse_coo_tensor(size=(2, 3))]


@quiet
@pytest.mark.parametrize("which", range(6))
def test_files(which: int) -> None:
    torch = pytest.importorskip("torch")
    for writer, reader in ((fl, torch), (torch, fl), (fl, fl)):
        file = io.BytesIO()
        writer.save({"x": kinds(writer)[which], "layout": writer.sparse_csr}, file)
        for weights_only in (True, False):
            file.seek(0)
            found = reader.load(file, weights_only=weights_only)
            same(described(found["x"]), described(kinds(writer)[which]))
            assert found["layout"] is reader.sparse_csr


def test_a_file_that_lies() -> None:
    file = io.BytesIO()
    with fl.sparse.check_sparse_tensor_invariants(False):
        fl.save(fl.sparse_coo_tensor([[9], [9]], [1.0], (2, 2)), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="found index 9"):
        fl.load(file)


@pytest.mark.parametrize("which", range(6))
def test_copies(which: int) -> None:
    x = kinds(fl)[which].requires_grad_()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert repr(y) == repr(x) and y.requires_grad


def test_a_sparse_parameter() -> None:
    weight = nn.Parameter(fl.eye(3).to_sparse())
    assert isinstance(weight, nn.Parameter) and weight.is_leaf and weight.requires_grad
    fl.sparse.mm(weight, fl.ones(3, 2)).sum().backward()
    fl.optim.SGD([weight], lr=0.25).step()
    assert fl.equal(weight.detach().to_dense(), fl.eye(3) / 2)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("graph", fl.eye(3).to_sparse())
        self.map = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return fl.sparse.mm(self.graph, self.map(x)).relu()


def test_buffers_of_modules() -> None:
    model, other = Convolution(), Convolution()
    other.load_state_dict(model.state_dict())
    x = fl.randn(3, 4)
    assert fl.equal(model(x), other(x))
    assert model.double().graph.dtype is fl.float64 and model(x.double()).dtype is fl.float64


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled(backend: str) -> None:
    def build(i: Any, v: Any, d: Any) -> Any:
        s = fl.sparse_coo_tensor(i, v, (2, 3))
        return (s @ (d + 1)).relu() * 2, s.coalesce().values() + 1, s.t().to_dense()

    def take(s: Any, d: Any) -> Any:
        return s @ d + 1, s.is_sparse, s.shape

    def rows(table: Any, x: Any) -> Any:
        return (table(x) * 2).sum()

    known = names(fl)
    for function, args in ((build, (known["i"], known["v"], known["d"])), (take, (known["s"], known["d"])),
                           (take, (known["r"], known["d"])),
                           (lambda d: (d * 2).to_sparse() @ d.t(), (known["d"],)),
                           (Convolution().requires_grad_(False), (fl.ones(3, 4),))):
        compiled = fl.compile(function, backend=backend)
        for _ in range(2):
            same(described(compiled(*args)), described(function(*args)))
    table = nn.Embedding(5, 3, sparse=True)
    fl.compile(rows, backend=backend)(table, fl.tensor([1, 4])).backward()
    assert table.weight.grad.is_sparse and table.weight.grad.to_dense().sum() == 12


def test_large_shapes() -> None:
    """Places of the elements are counted in int64, past 2**31."""
    s = fl.sparse_coo_tensor([[2**20, 0, 2**20], [2**20 - 1, 3, 2**20 - 1]], [1.0, 2.0, 3.0], (2**21, 2**20))
    assert s.coalesce().indices().tolist() == [[0, 2**20], [3, 2**20 - 1]] and s.coalesce().values().tolist() == [2.0, 4.0]
    assert (s @ fl.ones(2**20, 1))[2**20] == 4


def test_it_prints_as_torch() -> None:
    torch = pytest.importorskip("torch")
    for mine, its in zip(kinds(fl), kinds(torch)):
        assert repr(mine) == repr(its)


@pytest.mark.parametrize("rows", [[], [0, 0, 2, 3], [4, 4]])
def test_indices_of_rows_and_where_rows_begin(rows: list[int]) -> None:
    index, columns = fl.tensor(rows, dtype=fl.int64), fl.arange(len(rows))
    starts = fl._convert_indices_from_coo_to_csr(index, 5)
    assert starts.tolist() == [sum(r < k for r in rows) for k in range(6)]
    assert fl._convert_indices_from_coo_to_csr(index, 5, out_int32=True).dtype is fl.int32
    assert fl._convert_indices_from_csr_to_coo(starts, columns).tolist() == [rows, columns.tolist()]
    assert fl._convert_indices_from_csr_to_coo(starts, columns, transpose=True).tolist() == [columns.tolist(), rows]


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("other", [9, 2.5, None, "x", (1, 2), True])
def test_a_product_is_of_tensors(layout, other):
    x = getattr(fl.eye(3), layout)()
    for product in (lambda: x @ other, lambda: other @ x):
        with pytest.raises(TypeError):
            product()


def layouts_gradients(t: Any, expression: str) -> Any:
    x = t.tensor(SQUARE, requires_grad=True)
    w = t.arange(4.0) + 1
    eval(expression, {"x": x, "w": w, "torch": t, "y": t.stack((x, x.flip(0)))}).backward()
    return x.grad.detach()


@quiet
@pytest.mark.parametrize("expression", [
    "(x.to_sparse_bsr((2, 1)).values().sum((1, 2)) ** 2).sum()", "(x.to_sparse_bsc((2, 4)).to_dense() @ w).sum()",
    "(y.to_sparse_csr().values() ** 2).sum()", "(y.to_sparse_csc().values() ** 2).sum()",
    "(x.to_sparse_bsr((1, 2)).t().to_dense() @ w).sum()", "(x.to_sparse_csr().to_dense() * w).sum()",
    "(x.to_sparse().to_dense(masked_grad=False) @ w).sum()", "(x.to_sparse_csr().to_dense(masked_grad=False) @ w).sum()"])
def test_gradients_of_blocks_and_batches(expression: str) -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(layouts_gradients(fl, expression).numpy(), layouts_gradients(torch, expression).numpy())


@quiet
@pytest.mark.parametrize("name", ["b", "e", "q", "m"])
def test_blocks_and_batches_are_saved(name: str) -> None:
    torch = pytest.importorskip("torch")
    for writer, reader in ((fl, fl), (fl, torch), (torch, fl)):
        buffer = io.BytesIO()
        writer.save(names(writer)[name], buffer)
        buffer.seek(0)
        same(described(reader.load(buffer)), described(names(reader)[name]))
    same(described(pickle.loads(pickle.dumps(names(fl)[name]))), described(names(fl)[name]))
    same(described(copy.deepcopy(names(fl)[name])), described(names(fl)[name]))


@quiet
@pytest.mark.parametrize("name", ["b", "e", "q", "m"])
def test_blocks_and_batches_print_as_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert repr(names(fl)[name]) == repr(names(torch)[name])


@pytest.mark.parametrize("dim, index", [(0, [[0, 1, 2], [2, 2, 0]]), (1, [[0, 2], [1, 1]]), (-1, [[3]])])
def test_gradients_of_gathering_are_what_was_gathered(dim: int, index: list) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t in (fl, torch):
        x = t.tensor(DENSE, requires_grad=True)
        (t.gather(x, dim, t.tensor(index), sparse_grad=True) ** 2).sum().backward()
        found.append(described(x.grad))
    same(*found)


@quiet
@pytest.mark.parametrize("expression", ["s", "c", "h", "r", "k", "b", "e", "q"])
def test_without_data(expression: str) -> None:
    """On the meta device a sparse tensor has no entries."""
    torch = pytest.importorskip("torch")
    found = []
    for t in (fl, torch):
        x = eval(expression, names(t)).to("meta")
        parts = [getattr(x, name)() for name in PARTS[str(x.layout)]]
        found.append([str(x.layout), x.device.type, tuple(x.shape), str(x.dtype), x.sparse_dim(), x.dense_dim(), repr(x),
                      [(tuple(part.shape), part.device.type) for part in parts]])
    assert found[0] == found[1]
