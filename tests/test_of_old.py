"""Forms of PyTorch's first years that programs still use: Variable, typed tensors, classes around an optimizer, other devices' names."""

from __future__ import annotations

import pytest

import flambeau as fl

torch_itself = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("torch", [torch_itself, fl], ids=["torch", "flambeau"])


@LIBRARIES
@pytest.mark.filterwarnings("ignore:volatile was removed")
def test_variables(torch):
    Variable = torch.autograd.Variable
    x = torch.ones(2)
    v = Variable(x, requires_grad=True)
    assert v.requires_grad
    assert not x.requires_grad
    assert v.is_leaf
    assert v.data_ptr() == x.data_ptr()
    assert not Variable(v).requires_grad
    assert not Variable(v * 2, volatile=True).requires_grad
    assert Variable(v * 2).is_leaf
    assert isinstance(x, Variable)
    assert not isinstance(3, Variable)
    assert Variable().shape == (0,)
    assert type(v) is torch.Tensor
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        Variable(3)


@LIBRARIES
def test_typed_tensors(torch):
    x = torch.tensor([1.5, 2.5])
    for short, kind in {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
                        "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
                        "Bool": torch.bool}.items():
        typed = getattr(torch, f"{short}Tensor")
        for form in (typed, f"torch.{short}Tensor", kind):
            assert x.type(form).dtype is kind
        assert x.type(typed).type() == f"torch.{short}Tensor"
        assert isinstance(x.type(typed), typed)
        assert not isinstance(x.type(typed), getattr(torch.cuda, f"{short}Tensor"))
    assert x.type(torch.FloatTensor) is x
    for wrong in ("torch.FooTensor", "FloatTensor", "float32"):
        with pytest.raises(ValueError, match="invalid type"):
            x.type(wrong)


@LIBRARIES
def test_a_class_around_an_optimizer(torch):
    """It is an Optimizer to schedulers, but calls no __init__ of ours."""
    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        state = property(lambda self: self.inner.state)
        param_groups = property(lambda self: self.inner.param_groups)
        defaults = property(lambda self: self.inner.defaults)

        def step(self, closure=None):
            return self.inner.step(closure)

    p = torch.nn.Parameter(torch.ones(2))
    outer = Around(torch.optim.SGD([p], lr=0.5))
    schedule = torch.optim.lr_scheduler.StepLR(outer, 1, 0.1)
    outer.zero_grad()
    p.sum().backward()
    outer.step()
    schedule.step()
    assert p.tolist() == [0.5, 0.5]
    assert outer.param_groups[0]["lr"] == pytest.approx(0.05)


@LIBRARIES
def test_names_of_other_devices(torch):
    for name in ("mps", "xpu:1", "hpu", "xla", "vulkan"):
        place = torch.device(name)
        assert str(place) == name
        assert place != torch.device("cpu")
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda,"):
        torch.device("toaster")


def test_no_tensor_lies_on_other_devices():
    for make in (lambda: fl.zeros(2, device="mps"), lambda: fl.zeros(2).to("xpu"), lambda: fl.nn.Linear(2, 2).to("hpu")):
        with pytest.raises(NotImplementedError, match="use one of cpu, cuda, meta"):
            make()
    with pytest.raises(NotImplementedError, match="tensors on mps"), fl.device("mps"):
        fl.ones(1)


@LIBRARIES
def test_a_parameter_prints_as_one(torch):
    p = torch.nn.Parameter(torch.zeros(1))
    assert str(p) == repr(p) == "Parameter containing:\ntensor([0.], requires_grad=True)"
