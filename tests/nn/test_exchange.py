"""Whole modules and optimizers as pickles, to torch and back; memory formats."""

import copy
import io
import pickle

import pytest

import flambeau as fl
from flambeau import nn, optim


@pytest.fixture
def model():
    fl.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, 2)).eval()


def test_a_whole_model_goes_to_torch_and_back(model):
    torch = pytest.importorskip("torch")
    x = fl.randn(2, 3, 12, 12)
    expected = model(x).detach()
    file = io.BytesIO()
    fl.save(model, file)
    file.seek(0)
    assert fl.equal(fl.load(file, weights_only=False)(x), expected)
    file.seek(0)
    theirs = torch.load(file, weights_only=False)
    assert fl.allclose(fl.tensor(theirs(torch.tensor(x.numpy())).detach().numpy()), expected, atol=1e-5)
    file = io.BytesIO()
    torch.save(theirs, file)
    file.seek(0)
    assert fl.allclose(fl.load(file, weights_only=False)(x), expected, atol=1e-5)


def test_channels_last_models_give_channels_last_outputs(model):
    x = fl.randn(2, 3, 12, 12)
    other = copy.deepcopy(model).to(memory_format=fl.channels_last)
    assert other[0].weight.stride() == (27, 1, 9, 3)
    assert other[0](x.to(memory_format=fl.channels_last)).is_contiguous(memory_format=fl.channels_last)
    assert fl.allclose(other(x.to(memory_format=fl.channels_last)), model(x), atol=1e-5)
    again = nn.utils.convert_conv2d_weight_memory_format(copy.deepcopy(model), fl.channels_last)
    assert again[4].weight.is_contiguous(memory_format=fl.channels_last)


def test_optimizers_copy_and_pickle(model):
    model.train()
    opt = optim.AdamW(model.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    for _ in range(2):
        opt.zero_grad()
        model(fl.randn(2, 3, 12, 12)).sum().backward()
        opt.step()
        schedule.step()
    for other in (pickle.loads(pickle.dumps(opt)), copy.deepcopy(opt)):
        assert other.param_groups[0]["lr"] == opt.param_groups[0]["lr"] and len(other.state) == len(opt.state)
        param = other.param_groups[0]["params"][0]
        before = param.detach().clone()
        param.grad = fl.ones_like(param)
        other.step()
        assert other.state[param]["step"].item() == 3 and not fl.equal(param, before)
