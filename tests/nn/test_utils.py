"""nn.utils and nn.init: parametrizations, weight and spectral norm, fusion, functional_call, initial values."""

import copy
import math

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import init
from flambeau.nn.utils import parametrizations, parametrize

torch = pytest.importorskip("torch")


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).t()

    def right_inverse(self, a):
        return a.triu()


def test_parametrizations_register_and_come_off():
    layer = nn.Linear(3, 3)
    original = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert fl.equal(layer.weight, layer.weight.t()) and layer.parametrizations.weight.original is original
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(fl.randn(2, 3)).sum().backward()
    assert original.grad is not None and fl.equal(original.grad.tril(-1), fl.zeros(3, 3))
    wanted = fl.ones(3, 3) + fl.eye(3)
    layer.weight = wanted
    assert fl.equal(layer.weight, wanted)
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    twin = copy.deepcopy(layer)
    assert fl.equal(twin.weight, wanted)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter) and fl.equal(layer.weight.detach(), wanted)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "gone", Symmetric())
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0))


def test_weight_norm_both_forms_as_torch():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 5))
    ours = parametrizations.weight_norm(nn.Linear(3, 5))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: fl.tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    np.testing.assert_allclose(ours(fl.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.warns(FutureWarning, match="deprecated"):
        old = nn.utils.weight_norm(nn.Conv1d(2, 3, 2))
    assert list(old.state_dict()) == ["bias", "weight_g", "weight_v"] and old.weight_g.shape == (3, 1, 1)
    before = old(fl.ones(1, 2, 4))
    nn.utils.remove_weight_norm(old)
    assert list(old.state_dict()) == ["bias", "weight"] and fl.allclose(old(fl.ones(1, 2, 4)), before, atol=1e-6)


def test_spectral_norm_bounds_the_largest_singular_value():
    fl.manual_seed(0)
    for layer in (parametrizations.spectral_norm(nn.Linear(6, 5), n_power_iterations=5),
                  nn.utils.spectral_norm(nn.Linear(6, 5), n_power_iterations=5)):
        for _ in range(20):
            layer(fl.randn(2, 6))
        assert np.linalg.svd(layer.weight.detach().numpy())[1][0] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("kind", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_orthogonal_parametrization(shape, kind, trivial):
    def made(lib):
        lib.manual_seed(0)
        layer = lib.nn.utils.parametrizations.orthogonal(lib.nn.Linear(*shape[::-1]), orthogonal_map=kind, use_trivialization=trivial)
        state = {name: value.tolist() for name, value in layer.state_dict().items()}
        with lib.no_grad():
            layer.parametrizations.weight.original += lib.arange(layer.weight.numel()).view(shape).tril(-1) / 9
        x = layer.weight
        (x * lib.arange(x.numel()).view(shape)).sum().backward()
        return state, x.tolist(), layer.parametrizations.weight.original.grad.tolist()

    (state, weight, grad), (wanted, *others) = made(fl), made(torch)
    small = np.array(weight) if shape[0] <= shape[1] else np.array(weight).T
    np.testing.assert_allclose(small @ small.T, np.eye(min(shape)), atol=1e-5)
    assert state.keys() == wanted.keys()
    for got, want in (*((state[name], wanted[name]) for name in state), *zip((weight, grad), others)):
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_setting_an_orthogonal_weight():
    layer = parametrizations.orthogonal(nn.Linear(3, 3))
    layer.weight = fl.eye(3)[[1, 0, 2]]
    assert fl.allclose(layer.weight, fl.eye(3)[[1, 0, 2]])
    with pytest.raises(NotImplementedError, match="use_trivialization=False"):
        parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False).weight = fl.eye(3)
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="exp")


def test_fusing_batch_norm():
    fl.manual_seed(0)
    conv, bn = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
    x = fl.randn(8, 2, 6, 6)
    bn(conv(x))
    conv.eval(), bn.eval()
    fused = nn.utils.fuse_conv_bn_eval(conv, bn)
    assert fl.allclose(fused(x), bn(conv(x)), atol=1e-5) and conv.weight is not fused.weight
    linear, bn1 = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    bn1.running_mean.uniform_()
    y = fl.randn(5, 3)
    assert fl.allclose(nn.utils.fuse_linear_bn_eval(linear, bn1)(y), bn1(linear(y)), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*stateless.functional_call:FutureWarning")
def test_functional_call_swaps_and_restores():
    from flambeau.nn.utils.stateless import functional_call
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    new = {"0.weight": fl.zeros(2, 2), "0.bias": fl.ones(2), "1.bias": fl.full((2,), 5.0)}
    before = m[0].weight
    assert functional_call(m, new, (fl.ones(2),)).tolist() == [5, 5]
    assert m[0].weight is before and m[1].weight is before
    with pytest.raises(RuntimeError, match="Unexpected key"):
        functional_call(m, {"gone": fl.ones(1)}, (fl.ones(2),), strict=True)


def test_functional_call_says_which_names_do_not_fit():
    """As PyTorch: tied names count as given, and others are passed over unless `strict`."""
    torch = pytest.importorskip("torch")
    for t in (fl, torch):
        m = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Linear(2, 2))
        m[1].weight = m[0].weight
        given = {name: t.ones_like(p) for name, p in m.named_parameters()}
        call = t.func.functional_call
        assert call(m, given, t.ones(2), strict=True).tolist() == call(m, given | {"gone": t.ones(1)}, t.ones(2)).tolist() == [7, 7]
        with pytest.raises(RuntimeError, match=r"(?s)reparametrizing for Sequential:\n\tUnexpected key.*'gone'.*Missing key.*'1.bias'"):
            call(m, {"0.weight": t.ones(2, 2), "0.bias": t.ones(2), "gone": t.ones(1)}, t.ones(2), strict=True)
        with pytest.raises(TypeError, match=r"is not an instance of torch\.Tensor"):
            call(m, {"0": t.ones(2)}, t.ones(2))


def test_vectors_of_parameters():
    from flambeau.nn.utils import parameters_to_vector, vector_to_parameters
    m = nn.Linear(2, 3)
    flat = parameters_to_vector(m.parameters())
    vector_to_parameters(flat.detach() * 2, m.parameters())
    assert fl.equal(parameters_to_vector(m.parameters()), flat * 2)


@pytest.mark.parametrize("fill,check", [
    (lambda t, g: init.uniform_(t, -1, 3, generator=g), lambda a: abs(a.mean() - 1) < 0.05 and a.min() >= -1 and a.max() < 3),
    (lambda t, g: init.normal_(t, 2, 0.5, generator=g), lambda a: abs(a.mean() - 2) < 0.02 and abs(a.std() - 0.5) < 0.02),
    (lambda t, g: init.trunc_normal_(t, 0, 1, -0.5, 1, generator=g), lambda a: a.min() >= -0.5 and a.max() <= 1 and a.std() > 0.3),
    (lambda t, g: init.xavier_uniform_(t, generator=g), lambda a: abs(a.max() - math.sqrt(6 / 300)) < 1e-3),
    (lambda t, g: init.xavier_normal_(t, generator=g), lambda a: abs(a.std() - math.sqrt(2 / 300)) < 2e-3),
    (lambda t, g: init.kaiming_uniform_(t, nonlinearity="relu", generator=g), lambda a: abs(a.max() - math.sqrt(6 / 100)) < 1e-3),
    (lambda t, g: init.kaiming_normal_(t, mode="fan_out", generator=g), lambda a: abs(a.std() - math.sqrt(2 / 200)) < 2e-3),
    (lambda t, g: init.orthogonal_(t, generator=g), lambda a: np.allclose(a.T @ a, np.eye(100), atol=1e-4)),
    (lambda t, g: init.sparse_(t, 0.1, generator=g), lambda a: ((a == 0).sum(0) == 20).all()),
    (lambda t, g: init.eye_(t), lambda a: np.array_equal(a, np.eye(200, 100))),
    (lambda t, g: init.constant_(t, 3), lambda a: (a == 3).all()),
])
def test_init(fill, check):
    t = fl.empty(200, 100, requires_grad=True)
    g = fl.manual_seed(1)       # sparse_ takes its places from the default generator, as torch's does
    assert fill(t, g) is t and t.is_leaf and t.grad_fn is None
    assert check(t.detach().numpy())
    first = t.detach().clone()
    fill(t, fl.manual_seed(1))
    assert fl.equal(first, t.detach())


def test_dirac_passes_through():
    w = init.dirac_(fl.empty(4, 4, 3))
    x = fl.randn(1, 4, 6)
    assert fl.allclose(nn.functional.conv1d(x, w, padding=1), x)


def test_bad_initialisations():
    with pytest.raises(ValueError, match="Fan in and fan out"):
        init.xavier_uniform_(fl.empty(3))
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        init.calculate_gain("softmax2")
    with pytest.raises(ValueError, match="Mode fan not supported"):
        init.kaiming_normal_(fl.empty(2, 2), mode="fan")
