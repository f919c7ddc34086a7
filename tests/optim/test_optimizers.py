"""Optimizers against torch's over ten steps, their native loops against their formulas, state_dicts, and bad input."""

import copy

import numpy as np
import pytest

import flambeau as fl
from flambeau import optim
from flambeau.ops.nn import steps as nn_steps

CASES = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True,
                                                                          "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "maximize": True}), ("Adam", {}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "lr": 0.05}), ("AdamW", {"lr": 0.01}), ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01}), ("Adadelta", {"weight_decay": 0.01}),
    ("RMSprop", {"weight_decay": 0.01}),
    ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adamax", {"weight_decay": 0.01}), ("NAdam", {"weight_decay": 0.01}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), ("RAdam", {"lr": 0.05, "weight_decay": 0.01}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), ("Rprop", {}), ("ASGD", {"t0": 3, "weight_decay": 0.01}),
    ("Adafactor", {"lr": 0.05}),
]


def gradients(step, shapes):
    rng = np.random.default_rng(step)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("name,kwargs", CASES, ids=str)
def test_ten_steps_as_torch(name, kwargs):
    torch = pytest.importorskip("torch")
    shapes = [(5, 3), (4,), (2, 3, 2)]
    start = gradients(100, shapes)
    theirs, ours = [torch.tensor(a).requires_grad_() for a in start], [fl.tensor(a).requires_grad_() for a in start]
    a, b = getattr(optim, name)(ours, **kwargs), getattr(torch.optim, name)(theirs, **kwargs)
    assert a.defaults == b.defaults and repr(a) == repr(b)
    for step in range(10):
        for p, q, g in zip(ours, theirs, gradients(step, shapes)):
            p.grad, q.grad = fl.tensor(g), torch.tensor(g)
        a.step()
        b.step()
        for p, q in zip(ours, theirs):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-5, atol=2e-6)
    mine, expected = a.state_dict(), b.state_dict()
    assert mine["param_groups"] == expected["param_groups"]
    for number, fields in expected["state"].items():
        assert list(mine["state"][number]) == list(fields)
        for key, value in fields.items():
            if torch.is_tensor(value):
                np.testing.assert_allclose(mine["state"][number][key].numpy(), value.numpy(), rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("rule", [None, "match_rms_adamw"])
def test_muon_as_torch(rule):
    torch = pytest.importorskip("torch")
    start = gradients(100, [(6, 4), (3, 8)])
    theirs, ours = [torch.tensor(a).requires_grad_() for a in start], [fl.tensor(a).requires_grad_() for a in start]
    a, b = optim.Muon(ours, lr=0.1, adjust_lr_fn=rule), torch.optim.Muon(theirs, lr=0.1, adjust_lr_fn=rule)
    for step in range(3):
        for p, q, g in zip(ours, theirs, gradients(step, [(6, 4), (3, 8)])):
            p.grad, q.grad = fl.tensor(g), torch.tensor(g)
        a.step(), b.step()
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-2, atol=5e-3)  # bfloat16 inside
    with pytest.raises(ValueError, match="only supports 2D parameters"):
        optim.Muon([fl.ones(3, requires_grad=True)])


def test_lbfgs_as_torch():
    torch = pytest.importorskip("torch")
    for search in (None, "strong_wolfe"):
        results = []
        for lib in (fl, torch):
            x = lib.tensor([-1.2, 1.0], dtype=lib.float64, requires_grad=True)
            opt = lib.optim.LBFGS([x], lr=1e-2 if search is None else 1, max_iter=10, line_search_fn=search)

            def closure():
                opt.zero_grad()
                loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
                loss.backward()
                return loss
            for _ in range(3):
                opt.step(closure)
            results.append(x.detach().numpy().copy())
        np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


# -- the native loops against the formulas ------------------------------------------------------------------------
def state(shapes, kind, seed):
    rng = np.random.default_rng(seed)
    return [fl.tensor(rng.standard_normal(s)).to(kind) for s in shapes]


@pytest.mark.parametrize("kind", [fl.float32, fl.float64])
@pytest.mark.parametrize("decoupled,maximize,amsgrad", [(False, False, False), (True, True, False), (True, False, True)])
def test_native_adam_is_the_formula(kind, decoupled, maximize, amsgrad):
    shapes = [(300, 70), (7,), (3, 40, 50), ()]
    params, grads, means = (state(shapes, kind, s) for s in range(3))
    squares, tops = [m * m for m in means], [m * m * 1.1 for m in means] if amsgrad else None
    copies = copy.deepcopy((params, means, squares, tops))
    args = (0.01, 0.9, 0.99, 1e-8, 0.1, decoupled, maximize)
    steps = [fl.tensor(3.0)] * 4
    before = params[0]._version
    nn_steps.adam_step_(params, grads, means, squares, tops, steps, *args)
    assert params[0]._version == before + 1
    for i, p in enumerate(copies[0]):
        nn_steps.adam_formula(p, grads[i], copies[1][i], copies[2][i], copies[3][i] if amsgrad else None, 3, *args)
    for got, expected in zip((params, means, squares), copies):
        for a, b in zip(got, expected):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5 if kind is fl.float32 else 1e-12,
                                       atol=1e-6 if kind is fl.float32 else 1e-13)


@pytest.mark.parametrize("momentum,nesterov", [(0.0, False), (0.9, False), (0.9, True)])
def test_native_sgd_is_the_formula(momentum, nesterov):
    shapes = [(300, 70), (7,)]
    params, grads, buffers = (state(shapes, fl.float32, s) for s in range(3))
    buffers = buffers if momentum else None
    copies = copy.deepcopy((params, buffers))
    args = (0.01, momentum, 0.0, 0.1, nesterov, False)
    nn_steps.sgd_step_(params, grads, buffers, [True, False], *args)
    for i, p in enumerate(copies[0]):
        nn_steps.sgd_formula(p, grads[i], copies[1][i] if momentum else None, i == 0, *args)
    for a, b in zip(params + (buffers or []), copies[0] + (copies[1] or [])):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=1e-6)


def test_steps_of_other_layouts_and_dtypes():
    for make in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t.bfloat16(), lambda t: t.unsqueeze(0).unsqueeze(0)):
        fl.manual_seed(0)
        base = make(fl.randn(6, 8))
        p = base.clone().requires_grad_() if base.dtype is fl.bfloat16 else base.detach().requires_grad_()
        start = p.detach().clone()
        p.grad = fl.ones_like(p)
        optim.SGD([p], lr=0.5).step()
        assert fl.allclose(p.detach().float(), (start - 0.5).float(), atol=0.05)


def test_channels_last_parameters_step_in_their_own_order():
    p = fl.randn(2, 3, 4, 4).to(memory_format=fl.channels_last).requires_grad_()
    start = p.detach().clone()
    p.grad = fl.arange(96.0).reshape(2, 3, 4, 4)
    optim.SGD([p], lr=1.0).step()
    assert fl.allclose(p.detach(), start - p.grad)


# -- norms and clipping ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clip_grad_norm(norm_type):
    from flambeau.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
    params = [fl.zeros(s, requires_grad=True) for s in ((200, 100), (3,))]
    grads = state([(200, 100), (3,)], fl.float32, 5)
    for p, g in zip(params, grads):
        p.grad = g.clone()
    flat = np.concatenate([g.numpy().ravel() for g in grads])
    expected = np.linalg.norm(flat.astype(np.float64), norm_type)
    total = clip_grad_norm_(params, 1.0, norm_type)
    assert total.item() == pytest.approx(expected, rel=1e-5)
    assert get_total_norm([p.grad for p in params], norm_type).item() == pytest.approx(1.0, rel=1e-4)
    clip_grad_value_(params, 1e-3)
    assert max(p.grad.abs().max().item() for p in params) <= 1.0001e-3
    params[1].grad = fl.tensor([float("nan")] * 3)
    with pytest.raises(RuntimeError, match="non-finite, so it cannot be clipped"):
        clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


# -- protocol ---------------------------------------------------------------------------------------------------------
def test_groups_closures_and_zero_grad():
    a, b = fl.ones(2, requires_grad=True), fl.ones(2, requires_grad=True)
    opt = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
    loss = opt.step(lambda: [opt.zero_grad(), (a * 2 + b).sum().backward(), "loss"][-1])
    assert loss == "loss" and a.tolist() == [0, 0] and b.tolist() == [0, 0]
    opt.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0, 0]
    opt.zero_grad()
    assert a.grad is None
    opt.step()
    opt.add_param_group({"params": [fl.ones(1, requires_grad=True)]})
    assert opt.param_groups[2]["lr"] == 0.5


def test_state_dict_moves_between_optimizers():
    def run(opt, p, steps):
        for i in range(steps):
            p.grad = fl.full((3,), float(i + 1))
            opt.step()
    p = fl.ones(3, requires_grad=True)
    first = optim.AdamW([p], lr=0.1)
    run(first, p, 3)
    saved = copy.deepcopy(first.state_dict())
    q = p.detach().clone().requires_grad_()
    second = optim.AdamW([q], lr=0.7)
    second.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == 0.1 and second.state[q]["step"].item() == 3
    run(first, p, 2)
    run(second, q, 2)
    assert fl.equal(p, q)
    wide = optim.AdamW([fl.ones(3, dtype=fl.float64, requires_grad=True)])
    wide.load_state_dict(saved)
    fields = next(iter(wide.state.values()))
    assert fields["exp_avg"].dtype is fl.float64 and fields["step"].dtype is fl.float32
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.SGD([{"params": [p]}, {"params": [q]}]).load_state_dict(saved)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optim.AdamW([p, q]).load_state_dict(saved)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop",
                                  "SparseAdam", "LBFGS", "Adafactor", "Muon"])
def test_groups_have_torchs_options_in_torchs_order(name):
    torch = pytest.importorskip("torch")

    def group(lib):
        return list(getattr(lib.optim, name)([lib.nn.Parameter(lib.ones(2, 2))]).state_dict()["param_groups"][0].items())

    assert group(fl) == group(torch)


def test_states_load_from_torch_and_back(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = torch.ones(3, requires_grad=True)
    opt = torch.optim.Adam([theirs], lr=0.1)
    theirs.grad = torch.ones(3)
    opt.step()
    torch.save(opt.state_dict(), tmp_path / "opt.pt")
    p = fl.tensor(theirs.detach().numpy().copy(), requires_grad=True)
    ours = optim.Adam([p])
    ours.load_state_dict(fl.load(tmp_path / "opt.pt"))
    fl.save(ours.state_dict(), tmp_path / "back.pt")
    opt.load_state_dict(torch.load(tmp_path / "back.pt"))
    for q, o, lib in ((p, ours, fl), (theirs, opt, torch)):
        q.grad = lib.full((3,), 2.0)
        o.step()
    np.testing.assert_allclose(p.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


def test_step_hooks_and_named_parameters():
    from flambeau.optim.optimizer import register_optimizer_step_post_hook
    m, seen = fl.nn.Linear(2, 1), []
    opt = optim.SGD(m.named_parameters(), lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["weight", "bias"]
    opt.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
    opt.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))
    with register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("global")):
        opt.step()
    assert seen == ["pre", "post", "global"]


def test_optimizers_of_users_see_their_closure():
    class Twice(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1.0})

        @fl.no_grad()
        def step(self, closure=None):
            with fl.enable_grad():
                return closure() + closure()

    p = fl.ones(1, requires_grad=True)
    assert Twice([p]).step(lambda: 2) == 4


def test_bad_arguments():
    p = fl.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(p)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([1])
    with pytest.raises(ValueError, match=r"can.t optimize a non-leaf Tensor"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}])
    with pytest.raises(ValueError, match=r"Invalid learning rate: -1"):
        optim.Adam([p], lr=-1)
    with pytest.raises(ValueError, match="Nesterov momentum requires"):
        optim.SGD([p], nesterov=True)
    with pytest.raises(ValueError, match=r"Invalid beta parameter at index 1: 1.5"):
        optim.AdamW([p], betas=(0.9, 1.5))


@pytest.mark.parametrize(("name", "options"), [
    ("SGD", {"momentum": -1}), ("SGD", {"weight_decay": -1}), ("Adam", {"eps": -1}), ("AdamW", {"weight_decay": -1}),
    ("Adagrad", {"lr_decay": -1}), ("Adagrad", {"initial_accumulator_value": -1}), ("Adadelta", {"rho": 2}), ("RMSprop", {"alpha": -1}),
    ("RMSprop", {"momentum": -1}), ("Adamax", {"betas": (2, 0.5)}), ("NAdam", {"momentum_decay": -1}), ("RAdam", {"lr": -1}),
    ("Rprop", {"etas": (2, 0.5)}), ("Adafactor", {"d": 0.5}), ("Adafactor", {"beta2_decay": 1}),
])
def test_options_out_of_bounds_are_refused_in_torchs_words(name, options):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError) as theirs:
        getattr(torch.optim, name)([torch.ones(1, requires_grad=True)], **options)
    with pytest.raises(ValueError) as mine:
        getattr(optim, name)([fl.ones(1, requires_grad=True)], **options)
    assert str(mine.value) == str(theirs.value)


def test_a_step_of_fake_tensors_takes_the_formula():
    """Under capture there are no values: the formulas run on tensors, step counts included."""
    from flambeau.core.tensor import fake
    p, g, m, v, s = (fake((3,), fl.float32) for _ in range(4)), None, None, None, fake((), fl.float32)
    params, grads, means, squares = ([t] for t in p)
    nn_steps.adam_step_(params, grads, means, squares, None, [s], 0.1, 0.9, 0.999, 1e-8, 0.1, True, False)
    assert params[0].is_fake and params[0]._version > 0
    del g, m, v


PAIRS = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "LBFGS"]


def bowl(p):
    return (p.abs() ** 2 + p.abs() ** 4).sum()


@pytest.mark.parametrize("name", PAIRS)
def test_a_complex_parameter_is_a_pair_of_real_ones(name):
    """A step of complex numbers is one of their parts apart; the state is complex."""
    start = np.random.default_rng(1).standard_normal((3, 2))
    pair, number = fl.tensor(start).requires_grad_(), fl.view_as_complex(fl.tensor(start)).requires_grad_()
    ours = [getattr(optim, name)([p], lr=0.05) for p in (pair, number)]
    for _ in range(3):
        for p, optimizer in zip((pair, number), ours):
            def closure(p=p, optimizer=optimizer):
                optimizer.zero_grad()
                loss = bowl(fl.view_as_complex(p) if p is pair else p)
                loss.backward()
                return loss
            optimizer.step(closure)
    np.testing.assert_allclose(fl.view_as_real(number.detach()).numpy(), pair.detach().numpy(), rtol=1e-10)
    states = [optimizer.state_dict()["state"].get(0, {}) for optimizer in ours]
    assert list(states[0]) == list(states[1])
    for field, value in states[1].items():
        if name != "LBFGS" and isinstance(value, fl.Tensor) and value.ndim:
            assert value.dtype is fl.complex128, field
            np.testing.assert_allclose(fl.view_as_real(value).numpy(), states[0][field].numpy(), rtol=1e-10, err_msg=field)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_steps_without_a_meaning_for_complex_numbers_say_so(name):
    p = fl.ones(2, 2, dtype=fl.complex64, requires_grad=True)
    p.grad = fl.ones_like(p)
    with pytest.raises(RuntimeError, match="does not support complex parameters"):
        getattr(optim, name)([p]).step()


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "LBFGS"])
def test_steps_are_differentiable(name):
    """By finite differences: the parameters after two steps, by where they began and by the gradients stepped along."""
    rng = np.random.default_rng(2)
    values = [rng.uniform(0.5, 1, 3), rng.uniform(0.5, 1, 3)]

    def after(first, along):
        p = first.clone()
        optimizer = getattr(optim, name)([p], differentiable=True)
        for _ in range(2):
            p.grad = along
            optimizer.step()
        return p

    assert fl.autograd.gradcheck(after, [fl.tensor(v).requires_grad_() for v in values], atol=1e-4)


def test_parameters_twice_in_a_group_are_warned_of():
    p = fl.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p], lr=0.1)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_one_implementation_is_asked_for(name):
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        getattr(optim, name)([fl.ones(2, requires_grad=True)], lr=0.1, foreach=True, fused=True)


@pytest.mark.parametrize("name", [*PAIRS, "Adafactor", "Muon", "SparseAdam"])
def test_a_learning_rate_is_one_number(name):
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        getattr(optim, name)([fl.ones(2, 2, requires_grad=True)], lr=fl.tensor([0.1, 0.2]))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] != "Adafactor"], ids=str)
def test_what_is_not_finite_stays_its_own_matter(name, options, kind) -> None:
    """Each element of weights and gradients meets each: an infinite weight is no NaN of a decay of nothing, nor a gradient of a first 0."""
    torch = pytest.importorskip("torch")
    wild = [1.0, -2.0, 0.0, np.nan, np.inf, -np.inf, 1e5]
    weight, grad = np.meshgrid(np.array(wild, kind), np.array([1.0, -3.0, 0.0, np.nan, np.inf, -np.inf, 1e5], kind))
    results = []
    for lib in (torch, fl):
        w = lib.nn.Parameter(lib.tensor(weight.tolist(), dtype=getattr(lib, kind)))
        w.grad = lib.tensor(grad.tolist(), dtype=getattr(lib, kind))
        optimizer = getattr(lib.optim, name)([w], **options)
        optimizer.step(), optimizer.step()
        results.append(np.array(w.detach().tolist()))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5 if kind == "float32" else 1e-12)


def test_lbfgs_tells_its_step() -> None:
    t = fl
    p = t.nn.Parameter(t.ones(2))
    with pytest.raises(ValueError, match="learning rate"):
        t.optim.LBFGS([p], lr=-1.0)
    optimizer = t.optim.LBFGS([p])
    p.grad = t.zeros(2) + 1e-12
    optimizer.step(lambda: t.tensor(1.0))
    p.grad = t.full((2,), 1e-6)
    optimizer.step(lambda: t.tensor(1.0))
    assert "t" in optimizer.state_dict()["state"][0]
