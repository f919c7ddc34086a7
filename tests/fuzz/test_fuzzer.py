"""The fuzzer itself: programs repeat, print as scripts, and a planted fault is found and made small."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import flambeau
from tests.fuzz import compare, modes, workers
from tests.fuzz.hunt import Hunt
from tests.fuzz.program import Input, Program, Ref, Step, Word

theirs = pytest.importorskip("torch")

SUMS = Program(
    (Input("x0", "float32", (2, 3), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (".permute((1, 0))",)), Input("x1", "int64", (), (1,))),
    (
        Step("v0", "method", "sum", (Ref("x0"), 0), {"keepdim": True, "dtype": Word("torch.float64")}),
        Step("v1", "getitem", "", (Ref("x0"), (slice(None, None, 2), None, Ref("x1"), Ellipsis))),
        Step("v2", "setitem", "", (Ref("v1"), 0, 2.5)),
        Step("v3", "infix", "**", (2, Ref("v0"))),
    ),
)


@pytest.fixture(scope="module")
def hunting():
    return Hunt("eager", theirs)


def test_a_program_prints_as_a_script():
    for lib, name in ((theirs, "torch"), (flambeau, "flambeau as torch")):
        space: dict = {}
        exec(SUMS.script(epilogue=" ").replace("import torch  # or: import flambeau as torch", f"import {name}"), space)
        assert space["torch"] is lib
        assert space["v0"].tolist() == [[6.0, 15.0]] and space["v3"].tolist() == [[64.0, 32768.0]]
        assert space["v1"].tolist() == [[2.5], [6.0]] and space["x0"].tolist() == [[1.0, 2.5], [2.0, 5.0], [3.0, 6.0]]


def test_a_seed_is_a_program(hunting):
    assert hunting.generator.program(7) == hunting.generator.program(7) != hunting.generator.program(8)


def test_most_operators_are_drawn(hunting):
    for seed in range(60):
        hunting.generator.program(seed)
    assert len(hunting.generator.table) > 1000 and len(hunting.generator.uses) > 200


def test_a_planted_fault_is_found_and_made_small(hunting, monkeypatch):
    right = flambeau.Tensor.sum
    monkeypatch.setattr(flambeau.Tensor, "sum", lambda self, *args, **kwargs: right(self, *args, **kwargs) + 1)
    found = modes.MODES["eager"].run([SUMS], theirs)[0]
    assert found is not None and found.signature == ("Tensor.sum", "value (float64)")
    hunting.add(0, SUMS, found)
    small = hunting.finds[("eager", *found.signature)].program
    assert len(small.steps) == 1 and small.steps[0].kwargs.keys() <= {"dtype"} and len(small.inputs) == 1
    assert small.inputs[0].shape == (1, 1) and small.inputs[0].views == ()


def test_no_number_is_near_infinity():
    inf = np.inf
    for ours, right in ((3.0, inf), (inf, 3.0), (-inf, inf), (1e38, inf), (np.nan, inf), (inf, np.nan), (0.0, np.nan)):
        assert compare.unlike(np.float32([ours, 1]), np.float32([right, 1]), "float32"), (ours, right)
        assert not compare.unlike(np.float32([ours, 1]), np.float32([right, 1]), "float32", np.array([inf, 0]))
    assert not compare.unlike(np.float32([inf, -inf, np.nan]), np.float32([inf, -inf, np.nan]), "float32")


class Silent:
    """A process that never says anything."""

    exitcode = pid = None

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        self.exitcode = -9


@pytest.mark.parametrize("clock, used, hangs", [(0.5, 0.5, False), (5, 0.5, False), (5, 1.5, True), (15, 0, True)])
def test_a_program_that_hangs_is_a_find(monkeypatch, clock, used, hangs):
    """It has a processor for too long, or waits for ever; that others have the processor is not its fault."""
    worker = workers.Worker(None, "eager", 0, 1.0, at=("running", [8]))
    worker.process = Silent()
    monkeypatch.setattr(worker, "times", lambda: (1000 + clock * workers.PATIENCE, 20 + used * workers.PATIENCE))
    worker.since = (1000.0, 20.0)
    worker.watch()
    assert worker.hung == hangs
    if hangs:
        worker.crashed()
        assert worker.done == 1 and ("eager", "crash", "hangs") in worker.finds


def test_the_time_of_a_process_is_what_it_had_of_a_processor():
    worker = workers.Worker(None, "eager", 0, 1.0)
    worker.process = Silent()
    worker.process.pid = os.getpid()
    before, own = worker.times(), time.process_time()
    time.sleep(0.3)
    while time.process_time() < own + 0.3:
        pass
    clock, used = (now - then for now, then in zip(worker.times(), before))
    assert clock >= 0.6 and 0.25 < used < clock - 0.2


def test_an_excused_layout_is_not_met_later():
    """A step after one whose layout is excused starts from the same on both sides."""
    program = Program(
        (Input("x0", "complex64", (2, 3), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),),
        (Step("v0", "call", "torch.adjoint", (Ref("x0"),)), Step("v1", "method", "mul_", (Ref("x0"), 2)),
         Step("v2", "method", "exp", (Ref("v0"),))),
    )
    assert modes.MODES["eager"].run([program], theirs) == [None]


# Where only rounding tells two libraries apart: what cancels, what is nearly nothing, what overflows in narrow floats alone.
ROUNDED = {
    "a product of hardly anything": (Step("v0", "call", "torch.prod", (Ref("x0"),)), "float16", (4,), (0.003, 0.02, -0.3, 0.17)),
    "a scalar product of hardly anything": (Step("v0", "method", "dot", (Ref("x0"), Ref("x0"))), "float16", (2,), (0.0013, 0.00097)),
    "the least number": (Step("v0", "call", "torch.special.i1e", (Ref("x0"),)), "float32", (1,), (-1e-45,)),
    "a window's ends": (Step("v0", "call", "torch.blackman_window", (5,), {"periodic": False}), "float32", (), ()),
    "equal rows": (Step("v0", "call", "torch.nn.functional.layer_norm", (Ref("x0"), (3,))), "float32", (3,), (1.4142e-6,) * 3),
    "the distance of what is parallel": (Step("v0", "call", "torch.nn.functional.cosine_embedding_loss", (
        Ref("x0"), Ref("x0"), Ref("x0"))), "float32", (3, 1), (0.941, 1.0, 0.133)),
    "integers that cancel": (Step("v0", "call", "torch.sum", (Ref("x0"),), {"dtype": Word("torch.float64")}), "int64", (6,),
                             (2**63 - 1, -(2**63), 2**63 - 1, -(2**63), 4, 8)),
    "a mean of what cancels": (Step("v0", "method", "mean", (Ref("x0"),)), "float64", (5,), (1e30, -0.5, 0.3, -1e30, 3.0)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_no_find(name):
    step, kind, shape, values = ROUNDED[name]
    inputs = (Input("x0", kind, shape, values),) if step.refs() else ()
    assert modes.MODES["eager"].run([Program(inputs, (step,))], theirs) == [None]


@pytest.mark.parametrize("kind, amount", [("float32", 1e-3), ("float64", 1e-6), ("float16", 0.05), ("bfloat16", 0.3)])
@pytest.mark.parametrize("op", ["sum", "prod", "std", "var", "dot", "mean", "logsumexp", "norm", "exp", "cumsum", "softmax", "cov"])
def test_a_small_fault_is_found(op, kind, amount, monkeypatch):
    """What excuses rounding excuses nothing else."""
    right = getattr(flambeau.Tensor, op)
    monkeypatch.setattr(flambeau.Tensor, op, lambda self, *args: right(self, *args) * (1 + amount))
    given = {"dot": (Ref("x0"),), "logsumexp": (0,), "cumsum": (0,), "softmax": (0,)}.get(op, ())
    values = (0.3, 1.5, -2.25, 0.7, 1.1, -0.4, 2.0)
    program = Program((Input("x0", kind, (7,), values),), (Step("v0", "method", op, (Ref("x0"), *given)),))
    found = modes.MODES["eager"].run([program], theirs)[0]
    assert found is not None and found.kind == f"value ({kind})"


@pytest.mark.parametrize("kind", compare.TOLERANCE)
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3.0])
def test_what_is_not_finite_is_near_to_nothing(kind, value):
    """A number in place of an infinity or of NaN, and the other way round."""
    dtype = {"bfloat16": "float32"}.get(kind, kind)
    for other in (0.0, 1.0, 1e4, float("inf"), -float("inf"), float("nan")):
        a, b = np.array([1.0, value], dtype), np.array([1.0, other], dtype)
        alike = value == other or (not np.isfinite([value, other]).any() and ((value != value and other != other) or "complex" in kind))
        assert (compare.unlike(a, b, kind) is None) == alike, other


@pytest.mark.parametrize("recorded", [True, False])
def test_values_that_recording_changes_are_found(recorded, monkeypatch):
    """Rounding that adds up to anything is no find where gradients are compared; a value that only a recorded run has is one."""
    program = Program(
        (Input("x0", "float32", (3,), (0.1, 0.2, 0.3), grad=True),),
        (Step("v0", "method", "sum", (Ref("x0"),)), Step("v1", "method", "sign", (Ref("v0"),)),
         Step("v2", "infix", "*", (Ref("x0"), Ref("v1")))),
    )
    right = flambeau.Tensor.sign
    monkeypatch.setattr(flambeau.Tensor, "sign", lambda self: right(self) + (1 if self.requires_grad or not recorded else 0))
    found = modes.MODES["grad"].run([program], theirs)[0]
    assert (found is not None and found.kind == "value (float32)") == recorded


# What torch says at NaN, of strides that say nothing, of memory behind an expanded tensor; and the same faults elsewhere.
AT_NAN = Step("v0", "call", "torch.nn.functional.hardshrink", (Ref("x0"),))


@pytest.mark.parametrize("values, excused", [((0.3, float("nan"), 2.0), True), ((0.3, 1.5, 2.0), False)])
def test_a_gradient_is_excused_only_where_its_reason_holds(values, excused, monkeypatch):
    right = flambeau.nn.functional.hardshrink
    monkeypatch.setattr(flambeau.nn.functional, "hardshrink", lambda x: right(x) + x - x.detach())
    found = modes.MODES["grad"].run([Program((Input("x0", "float32", (3,), values, grad=True),), (AT_NAN,))], theirs)[0]
    assert (found is None) == excused


def test_strides_of_one_element_say_nothing():
    """Read where sizes vary they are a contiguous tensor's."""
    program = Program((Input("x0", "float32", (1, 2, 2), (1.0, 2.0, 3.0, 4.0), ("[:, 1:3]",)),),
                      (Step("v0", "method", "stride", (Ref("x0"),)), Step("v1", "method", "exp", (Ref("x0"),))))
    assert modes.MODES["captured"].run([program], theirs) == [None] == modes.MODES["eager"].run([program], theirs)
