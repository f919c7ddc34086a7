"""torch.func on a GPU gives what it gives on the CPU, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as fl
from flambeau.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

F = fl.nn.functional


def _samples(device: str) -> tuple:
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Conv2d(1, 3, 3), fl.nn.ReLU(), fl.nn.Flatten(), fl.nn.LayerNorm(48), fl.nn.Linear(48, 4)).to(device)
    params = {name: p.detach() for name, p in model.named_parameters()}
    return model, params, fl.randn(5, 1, 6, 6).to(device), fl.tensor([0, 1, 2, 3, 0], device=device)


def _per_sample(device: str, wrap: Callable) -> tuple:
    model, params, images, labels = _samples(device)

    def loss(params: dict, image: fl.Tensor, label: fl.Tensor) -> fl.Tensor:
        return F.cross_entropy(functional_call(model, params, (image.unsqueeze(0),)), label.unsqueeze(0))

    return tuple(wrap(lambda *args: vmap(grad(loss), in_dims=(None, 0, 0))(*args))(params, images, labels).values())


def _derivatives(device: str, wrap: Callable) -> tuple:
    fl.manual_seed(1)
    w, x = fl.randn(5, 4).to(device), fl.randn(4).to(device)
    f = lambda a: (w @ a).sin()
    products = vmap(vmap(fl.outer, (None, 0)), (0, None))
    return wrap(lambda a: (jacrev(f)(a), jacfwd(f)(a), hessian(lambda b: f(b).sum())(a), products(w, w)))(x)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: fl.compile(f, fullgraph=True)], ids=["eager", "compiled"])
@pytest.mark.parametrize("program", [_per_sample, _derivatives])
def test_transforms(program: Callable, wrap: Callable) -> None:
    for got, want in zip(program("cuda", wrap), program("cpu", lambda f: f), strict=True):
        assert fl.allclose(got.cpu(), want, rtol=1e-3, atol=1e-4)
