"""Small tools that libraries take from torch.utils, torch._utils and their kin."""

from __future__ import annotations

import datetime
import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import _utils, library, monitor
from flambeau.distributions import constraints, utils
from flambeau.utils import data
from flambeau.utils._contextlib import _DecoratorContextManager
from flambeau.utils._ordered_set import OrderedSet
from flambeau.utils.data import dataloader
from flambeau.utils.data.collate import collate, default_collate_fn_map
from flambeau.utils.data.datapipes.iter import IterableWrapper
from flambeau.utils.data.worker import _generate_state
from flambeau.utils.weak import WeakIdKeyDictionary


def test_weak_dictionaries_forget_with_their_keys() -> None:
    a, b = fl.ones(2), fl.ones(2)
    home = WeakIdKeyDictionary({a: 1, b: 2})
    assert home[a] == 1 and home[b] == 2 and len(home) == 2 and a in home and 3 not in home
    del a
    gc.collect()
    assert list(home.values()) == [2]


def test_ordered_sets() -> None:
    found = OrderedSet([3, 1, 3])
    found.update([2], [1])
    assert list(found) == [3, 1, 2] and found == {1, 2, 3} and list(found | {7}) == [3, 1, 2, 7]


def test_scopes_that_decorate_functions_and_generators() -> None:
    depth: list[int] = [0]

    class Inside(_DecoratorContextManager):
        def __enter__(self) -> None:
            depth[0] += 1

        def __exit__(self, *error: object) -> None:
            depth[0] -= 1

    @Inside()
    def plain() -> int:
        return depth[0]

    @Inside()
    def steps() -> Iterator[Any]:
        got = yield depth[0]
        yield (depth[0], got)

    run: Any = steps()
    assert plain() == 1 and next(run) == 1 and depth == [0] and run.send("x") == (1, "x") and depth == [0]


@pytest.mark.parametrize("scope", [fl.no_grad, fl.inference_mode, lambda: fl.set_grad_enabled(False)])
def test_decorated_generators_are_told_of_errors_and_of_their_end(scope: Any) -> None:
    told: list[Any] = []

    @scope()
    def steps() -> Iterator[Any]:
        try:
            try:
                yield fl.is_grad_enabled()
            except KeyError as error:
                told.append((error.args, fl.is_grad_enabled()))
            yield
        finally:
            told.append(fl.is_grad_enabled())

    run: Any = steps()
    assert next(run) is False and fl.is_grad_enabled()
    run.throw(KeyError("wrong"))
    run.close()
    assert told == [(("wrong",), False), False] and fl.is_grad_enabled()


def test_flat_gradients() -> None:
    parts = [fl.arange(6).view(2, 3), fl.arange(3)]
    flat = _utils._flatten_dense_tensors(parts)
    back = _utils._unflatten_dense_tensors(flat, parts)
    assert flat.shape == (9,) and all(bool((a == b).all()) for a, b in zip(parts, back))
    assert [len(group) for group in _utils._take_tensors(parts, 24)] == [1, 1]


def test_errors_travel() -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        wrapped = _utils.ExceptionWrapper(where="in worker 3")
    with pytest.raises(KeyError, match="Caught KeyError in worker 3"):
        wrapped.reraise()


def test_events_reach_handlers() -> None:
    seen: list[str] = []
    handle = monitor.register_event_handler(lambda event: seen.append(event.name))
    monitor.log_event(monitor.Event("a", datetime.datetime.now(datetime.UTC), {}))
    monitor.unregister_event_handler(handle)
    monitor.log_event(monitor.Event("b", datetime.datetime.now(datetime.UTC), {}))
    assert seen == ["a"]


def test_lazy_properties_are_computed_once() -> None:
    class Has:
        calls = 0

        @utils.lazy_property
        def value(self) -> int:
            self.calls += 1
            return 7

    has = Has()
    assert has.value == has.value == 7 and has.calls == 1 and isinstance(Has.value, property)


def test_probabilities_and_triangles_are_torch_s() -> None:
    torch = pytest.importorskip("torch")
    import torch.distributions.utils as theirs
    logits = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    for binary in (False, True):
        probs = utils.logits_to_probs(fl.from_numpy(logits), binary)
        np.testing.assert_allclose(probs.numpy(), theirs.logits_to_probs(torch.from_numpy(logits), binary).numpy(), rtol=1e-6)
        np.testing.assert_allclose(utils.probs_to_logits(probs, binary).numpy(),
                                   theirs.probs_to_logits(torch.from_numpy(probs.numpy()), binary).numpy(), rtol=1e-5)
    for diag in (-1, 0, 1):
        matrix = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
        vector = utils.tril_matrix_to_vec(fl.from_numpy(matrix), diag)
        np.testing.assert_array_equal(vector.numpy(), theirs.tril_matrix_to_vec(torch.from_numpy(matrix), diag).numpy())
        np.testing.assert_array_equal(utils.vec_to_tril_matrix(vector, diag).numpy(),
                                      theirs.vec_to_tril_matrix(torch.from_numpy(vector.numpy()), diag).numpy())


def test_constraints_are_classes_to_build_on() -> None:
    class Mine(type(constraints.positive)):     # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(lower_bound=0.0)

    assert bool(Mine().check(fl.ones(()))) and isinstance(Mine(), constraints.greater_than)
    assert type(constraints.lower_cholesky)().event_dim == 2 and repr(constraints.positive) == "GreaterThan(lower_bound=0.0)"
    assert all(hasattr(constraints, name) for name in constraints.__all__)


def test_collating_by_a_table_that_grows() -> None:
    class Own:
        def __init__(self, n: int) -> None:
            self.n = n

    table = {**default_collate_fn_map, Own: lambda batch, *, collate_fn_map: sum(x.n for x in batch)}
    assert collate([{"a": Own(1)}, {"a": Own(2)}], collate_fn_map=table) == {"a": 3}
    with pytest.raises(TypeError, match="found"):
        data.default_collate([Own(1)])


def test_pipes() -> None:
    pipe = IterableWrapper(range(7)).map(lambda x: 2 * x).filter(lambda x: x != 4).batch(4)
    assert list(pipe) == [[0, 2, 6, 8], [10, 12]]
    assert sorted(IterableWrapper(range(5)).shuffle(buffer_size=2)) == [0, 1, 2, 3, 4]
    assert isinstance(pipe, data.IterableDataset) and [len(b) for b in data.DataLoader(pipe, batch_size=None)] == [4, 2]
    with pytest.raises(AttributeError, match="no_step"):
        _ = pipe.no_step


def test_workers_seed_numpy_as_torch_s_do() -> None:
    assert _generate_state(12345, 3) == [388367306, 2732186161, 3264781304, 1215154576]


def test_iterators_of_loaders_have_a_class() -> None:
    loader = data.DataLoader([1, 2, 3], batch_size=2)
    assert isinstance(iter(loader), dataloader._SingleProcessDataLoaderIter) and isinstance(iter(loader), dataloader._BaseDataLoaderIter)


def test_low_rank() -> None:
    fl.manual_seed(0)
    a = fl.randn(20, 3) @ fl.randn(3, 12)
    u, s, v = fl.svd_lowrank(a, q=4)
    np.testing.assert_allclose((u * s @ v.mH).numpy(), a.numpy(), atol=1e-4)
    _, s, _ = fl.pca_lowrank(a, q=4)
    np.testing.assert_allclose(s[:3].numpy(), np.linalg.svd(a.numpy() - a.numpy().mean(0), compute_uv=False)[:3], rtol=1e-4)


def test_sobol_points_are_torch_s() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("scipy")
    mine, theirs = fl.quasirandom.SobolEngine(5), torch.quasirandom.SobolEngine(5)
    for n in (3, 1, 12):
        np.testing.assert_array_equal(mine.draw(n).numpy(), theirs.draw(n).numpy())
    np.testing.assert_array_equal(mine.reset().fast_forward(4).draw(2).numpy(), theirs.reset().fast_forward(4).draw(2).numpy())
    scrambled = fl.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(64)
    assert abs(float(scrambled.mean()) - 0.5) < 0.02 and bool((fl.quasirandom.SobolEngine(2, True, 1).draw(64) == scrambled).all())


def test_operators_are_given_functions_by_their_library() -> None:
    lib = library.Library("small_tools", "FRAGMENT")
    lib.define("twice(Tensor x) -> Tensor")

    @library.impl(lib, "twice", "CPU")
    def twice(x: Any) -> Any:
        return x * 2

    assert float(fl.ops.small_tools.twice(fl.ones(()))) == 2


def test_is_tensor_is_known_while_capturing() -> None:
    compiled = fl.compile(lambda x, y: x + 1 if fl.is_tensor(x) and not fl.is_tensor(y) else x, fullgraph=True, backend="eager")
    assert float(compiled(fl.ones(()), 3)) == 2


def test_annotations_of_torchscript_are_a_module() -> None:
    code = "import flambeau.as_torch, torch\nassert torch.jit.annotations.List and torch._jit_internal.BroadcastingList2[int]"
    subprocess.run([sys.executable, "-c", code], check=True)
