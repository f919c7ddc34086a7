"""Learning-rate schedules against torch's, their state_dicts, and averaging of weights."""

import copy
import math

import pytest

import flambeau as fl
from flambeau import optim

CASES = [
    ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}), ("MultiplicativeLR", {"lr_lambda": lambda e: 0.95}),
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.3}), ("ConstantLR", {"factor": 0.3, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 6}), ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}), ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 4}), ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2,
                                                                                     "step_size_up": 2,
                                                                                   "step_size_down": 3, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "mode": "exp_range", "gamma": 0.9, "step_size_up": 3}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 25}), ("OneCycleLR", {"max_lr": 0.3, "total_steps": 25, "three_phase": True,
                                                                        "anneal_strategy": "linear"}),
]


def make(lib, name, kwargs):
    p = lib.ones(2, requires_grad=True)
    opt = lib.optim.SGD([{"params": [p]}, {"params": [lib.ones(1, requires_grad=True)], "lr": 0.02}], lr=0.1, momentum=0.9)
    return opt, getattr(lib.optim.lr_scheduler, name)(opt, **kwargs)


def walk(opt, schedule, steps):
    rates = []
    for _ in range(steps):
        rates.append([(g["lr"], g["momentum"]) for g in opt.param_groups])
        opt.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("name,kwargs", CASES)
def test_as_torch(name, kwargs):
    torch = pytest.importorskip("torch")
    ours, theirs = walk(*make(fl, name, kwargs), 20), walk(*make(torch, name, kwargs), 20)
    for a, b in zip(ours, theirs):
        for (lr, momentum), (expected_lr, expected_momentum) in zip(a, b):
            assert lr == pytest.approx(expected_lr, rel=1e-12,
                                       abs=1e-15) and momentum == pytest.approx(expected_momentum, rel=1e-12)


@pytest.mark.parametrize("name,kwargs", CASES)
def test_a_state_dict_resumes(name, kwargs):
    opt, schedule = make(fl, name, kwargs)
    walk(opt, schedule, 7)
    saved, saved_opt = copy.deepcopy(schedule.state_dict()), copy.deepcopy(opt.state_dict())
    rest = walk(opt, schedule, 8)
    opt2, schedule2 = make(fl, name, kwargs)
    opt2.load_state_dict(saved_opt)
    schedule2.load_state_dict(saved)
    opt2.step()
    assert walk(opt2, schedule2, 8) == rest and schedule2.get_last_lr() == schedule.get_last_lr()


def test_sequences_and_chains_as_torch():
    torch = pytest.importorskip("torch")
    results = []
    for lib in (fl, torch):
        s = lib.optim.lr_scheduler
        opt = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
        warm, cosine = s.LinearLR(opt, 0.1, total_iters=4), s.CosineAnnealingLR(opt, T_max=6)
        one = walk(opt, s.SequentialLR(opt, [warm, cosine], milestones=[4]), 12)
        opt = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
        two = walk(opt, s.ChainedScheduler([s.ConstantLR(opt, 0.5, 3), s.ExponentialLR(opt, 0.9)]), 8)
        results.append([x[0][0] for x in one + two])
    assert results[0] == pytest.approx(results[1], rel=1e-12)


def test_plateau_as_torch():
    torch = pytest.importorskip("torch")
    losses = [5, 4, 4.1, 4.2, 4.3, 3, 3.1, 3.1, 3.1, 3.1, 3.1, 2, 2.5, 2.5, 2.5, 2.5]
    results = []
    for lib in (fl, torch):
        opt = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=0.1)
        schedule = lib.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2, cooldown=1, min_lr=0.02)
        rates = []
        for loss in losses:
            schedule.step(loss)
            rates.append(opt.param_groups[0]["lr"])
        results.append(rates)
    assert results[0] == results[1] and results[0][-1] < 0.1


def test_warnings_and_bad_arguments():
    opt = optim.SGD([fl.ones(1, requires_grad=True)], lr=0.1)
    schedule = optim.lr_scheduler.StepLR(opt, 1)
    with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)` before `optimizer.step\(\)"):
        schedule.step()
    with pytest.raises(TypeError, match="is not an Optimizer"):
        optim.lr_scheduler.StepLR(3, 1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        optim.lr_scheduler.ConstantLR(opt, 1.5)
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optim.SGD([fl.ones(1, requires_grad=True)]), 1, last_epoch=3)
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        optim.lr_scheduler.LambdaLR(opt, [min, max])
    one = optim.lr_scheduler.OneCycleLR(optim.SGD([fl.ones(1, requires_grad=True)], momentum=0.9), 0.1, total_steps=1)
    one.optimizer.step()
    one.step()
    with pytest.raises(ValueError, match="The total number of steps is 1"):
        one.step()


def test_rates_in_tensors_are_written_in_place():
    rate = fl.tensor(0.1)
    opt = optim.Adam([fl.ones(1, requires_grad=True)], lr=rate)
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] is rate and rate.item() == pytest.approx(0.05)


def test_averaged_models():
    from flambeau.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(2, 3), fl.nn.BatchNorm1d(3))
    plain, moving = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    seen = []
    for i in range(3):
        with fl.no_grad():
            model[0].weight.fill_(float(i))
        seen.append(float(i))
        plain.update_parameters(model)
        moving.update_parameters(model)
    assert fl.allclose(plain.module[0].weight, fl.full((3, 2), sum(seen) / 3))
    ema = seen[0]
    for value in seen[1:]:
        ema = 0.9 * ema + 0.1 * value
    assert fl.allclose(moving.module[0].weight, fl.full((3, 2), ema)) and plain.n_averaged.item() == 3
    data = [fl.randn(16, 2) for _ in range(4)]
    update_bn(data, plain.module)
    expected = plain.module[0](fl.cat(data)).mean(0)
    assert fl.allclose(plain.module[1].running_mean, expected, atol=1e-6) and plain.module[1].momentum == 0.1
    opt = optim.SGD(model.parameters(), lr=1.0)
    schedule = SWALR(opt, 0.1, anneal_epochs=4)
    for _ in range(6):
        opt.step()
        schedule.step()
    assert math.isclose(opt.param_groups[0]["lr"], 0.1)
