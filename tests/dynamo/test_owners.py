"""Many models in one process: whose versions count against the limits, and what is kept."""

from __future__ import annotations

import functools
import gc
import warnings

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import _C, dynamo, nn


def wrapped(forward):
    @functools.wraps(forward)
    def inner(self, *args, **kwargs):
        return forward(self, *args, **kwargs) * 2

    return inner


def model_class(number):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4 + number)

        @wrapped
        def forward(self, x):
            return self.lin(x) + number

    return Model


def wrapper_code():
    return model_class(0).forward.__code__


def test_one_wrapper_serves_many_classes() -> None:
    x, counter = torch.ones(2, 4), Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(12):
            model = model_class(number)()
            assert same(dynamo.compile(model, backend=counter)(x), model(x))
    assert len(counter.graphs) == 12
    assert counter.calls == 12


def test_instances_of_one_class_count_by_themselves() -> None:
    class Tagged(nn.Module):
        def __init__(self, tag):
            super().__init__()
            self.tag = tag

        def forward(self, x):
            return x + len(self.tag)

    counter = Counter()
    models = [Tagged("a" * (i + 1)) for i in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in models:
            dynamo.compile(model, backend=counter)(torch.ones(3))
    assert len(counter.graphs) == 12


def test_one_instance_still_has_a_limit() -> None:
    class Tagged(nn.Module):
        tag = ""

        def forward(self, x):
            return x + len(self.tag)

    counter, model = Counter(), Tagged()
    compiled = dynamo.compile(model, backend=counter)
    with pytest.warns(UserWarning, match="config.recompile_limit"):
        for i in range(dynamo.config.recompile_limit + 2):
            model.tag = "a" * (i + 1)
            assert same(compiled(torch.ones(3)), torch.ones(3) + i + 1)
    assert len(counter.graphs) == dynamo.config.recompile_limit


def test_functions_behind_one_wrapper_count_by_themselves() -> None:
    def twice(fn):
        return lambda x: fn(x) * 2

    makers = [eval(f"lambda x: x + {i}.5") for i in range(12)]
    counter = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fn in makers:
            assert same(dynamo.compile(twice(fn), backend=counter)(torch.ones(3)), twice(fn)(torch.ones(3)))
    assert len(counter.graphs) == 12


def test_total_limit(monkeypatch) -> None:
    monkeypatch.setattr(dynamo.config, "accumulated_recompile_limit", 4)
    models, counter = [model_class(i)() for i in range(6)], Counter()
    with pytest.warns(UserWarning, match="config.accumulated_recompile_limit"):
        for model in models:
            assert same(dynamo.compile(model, backend=counter)(torch.ones(2, 4)), model(torch.ones(2, 4)))
    assert len(_C.cache_entries(type(models[0]).forward.__code__)) == 4


def test_versions_of_models_that_are_gone_make_room(monkeypatch) -> None:
    monkeypatch.setattr(dynamo.config, "accumulated_recompile_limit", 4)
    counter = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(12):
            model = model_class(number)()
            dynamo.compile(model, backend=counter)(torch.ones(2, 4))
            del model
            gc.collect()
    assert len(counter.graphs) == 12
    assert len(_C.cache_entries(wrapper_code())) <= 4


def test_failures_of_one_model_do_not_stop_the_others() -> None:
    counter = Counter()
    hopeless = [type("Empty", (nn.Module,), {"forward": wrapped(lambda self, x: 1)})() for _ in range(5)]
    for model in hopeless:
        assert dynamo.compile(model, backend=counter)(torch.ones(2, 4)) == 2
    model = model_class(1)()
    assert same(dynamo.compile(model, backend=counter)(torch.ones(2, 4)), model(torch.ones(2, 4)))
    assert len(counter.graphs) == 1


def test_models_of_other_widths_are_compiled_for_their_width() -> None:
    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.lin = nn.Linear(width, width)

        def forward(self, x):
            return self.lin(x).relu()

    counter = Counter()
    for width in (4, 8, 16):
        dynamo.compile(Model(width), backend=counter)(torch.ones(2, width))
    assert len(counter.graphs) == 3
    for gm in counter.graphs:
        assert all(type(size) is int for node in gm.graph.nodes if "val" in node.meta for size in node.meta["val"].shape)


def test_a_varying_size_stays_varying_beside_a_fixed_one() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            return self.lin(x).relu()

    model, counter = Model(), Counter()
    compiled = dynamo.compile(model, backend=counter)
    for rows in (2, 3, 5, 7, 11):
        assert same(compiled(torch.ones(rows, 8)), model(torch.ones(rows, 8)))
    assert len(counter.graphs) == 2
