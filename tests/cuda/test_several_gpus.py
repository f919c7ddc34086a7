"""Programs on a GPU that isn't the current one, and on two GPUs at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import flambeau as fl

pytestmark = pytest.mark.skipif(fl.cuda.device_count() < 2, reason="needs two GPUs")
nn, F = fl.nn, fl.nn.functional
OTHER = fl.device("cuda:1")


def _net(where: fl.device | str) -> nn.Module:
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)).to(where)


def _batches() -> list[tuple[fl.Tensor, fl.Tensor]]:
    make = fl.Generator().manual_seed(1)
    return [(fl.randn(32, 16, generator=make), fl.randint(4, (32,), generator=make)) for _ in range(3)]


def _losses(net: Callable, where: fl.device | str, optimizer: fl.optim.Optimizer) -> list[float]:
    losses = []
    for x, y in _batches():
        loss = F.cross_entropy(net(x.to(where)), y.to(where))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def _in_place(tensors: list[fl.Tensor]) -> bool:
    return all(t.device == OTHER and t._data.data.device_id == 1 for t in tensors)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("optimizer", [fl.optim.SGD, fl.optim.Adam, fl.optim.AdamW, fl.optim.RMSprop, fl.optim.Adagrad])
def test_training_elsewhere(optimizer: type, how: str) -> None:
    found = []
    for where in ("cpu", OTHER):
        net = _net(where)
        steps = optimizer(net.parameters(), 0.01)
        found.append(_losses(fl.compile(net) if how == "compiled" else net, where, steps))
    assert _in_place([*net.parameters(), *[p.grad for p in net.parameters()]])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert fl.cuda.current_device() == 0


def test_a_model_in_two_parts() -> None:
    class Parts(nn.Module):
        def __init__(self, first: str | fl.device, second: str | fl.device) -> None:
            super().__init__()
            whole = _net("cpu")
            self.a, self.b, self.second = whole[:2].to(first), whole[2:].to(second), second

        def forward(self, x: fl.Tensor) -> fl.Tensor:
            return self.b(self.a(x).to(self.second))

    found = []
    for first, second in (("cpu", "cpu"), ("cuda:0", OTHER)):
        net = Parts(first, second)
        loss = net(_batches()[0][0].to(first)).square().mean()
        loss.backward()
        found.append([loss.item(), *[p.grad.cpu() for p in net.parameters()]])
    for got, want in zip(found[1], found[0]):
        fl.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    compiled = fl.compile(Parts("cuda:0", OTHER))(_batches()[0][0].cuda())
    assert compiled.device == OTHER


def test_in_a_block_and_in_another_thread() -> None:
    with fl.cuda.device(1):
        made = [fl.zeros(4, device="cuda"), fl.ones(4).cuda(), nn.Linear(2, 2).cuda().weight, fl.rand(3, device="cuda") + 1]
    assert _in_place(made)
    found: list[fl.Tensor] = []
    thread = threading.Thread(target=lambda: found.append((made[0] + made[1]).exp() @ made[1]))
    thread.start()
    thread.join()
    assert _in_place(found) and found[0].item() == pytest.approx(4 * 2.718281828)


def test_random_numbers_and_writes() -> None:
    x = fl.empty(1000, device=OTHER).normal_()
    x[::2] = 0
    x[1] = fl.tensor(3.0)
    x.mul_(2).clamp_(max=1)
    mask = x > 0.5
    assert _in_place([x, mask, x[mask], fl.dropout(x, 0.5, True), fl.cat([x, x]), fl.stack([x, x])[:, ::2].contiguous()])
    assert x[1].item() == 1 and not x[::2].any()


def test_gpus_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        fl.ones(3, device="cuda:0") + fl.ones(3, device=OTHER)
    assert fl.equal(fl.arange(6, device="cuda:0").view(2, 3).T.to(OTHER).cpu(), fl.arange(6).view(2, 3).T)
