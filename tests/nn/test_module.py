"""The module protocols: registration, traversal, hooks, state_dict, conversion, copies, printing. Needs no torch."""

import copy
import importlib
import inspect
import io
import pickle

import pytest

import flambeau as fl
from flambeau import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.shared = self.first
        self.register_buffer("offset", fl.ones(2))
        self.register_buffer("scratch", fl.zeros(2), persistent=False)
        self.scale = nn.Parameter(fl.ones(1))

    def forward(self, x, gain=1.0):
        return self.norm(self.first(x)) * self.scale * gain


@pytest.fixture
def net():
    fl.manual_seed(0)
    return Net()


def test_registration_and_traversal(net):
    assert [n for n, _ in net.named_parameters()] == ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias"]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)][-2:] == ["shared.weight", "shared.bias"]
    assert [n for n, _ in net.named_buffers()] == ["offset", "scratch", "norm.running_mean", "norm.running_var",
                                                   "norm.num_batches_tracked"]
    assert [n for n, _ in net.named_children()] == ["first", "norm"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "norm"]
    assert net.get_submodule("first") is net.first and net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("norm.running_mean") is net.norm.running_mean
    with pytest.raises(AttributeError, match="has no attribute `gone`"):
        net.get_submodule("first.gone")
    assert "scale" in dir(net) and "first" in dir(net)


def test_assignment_rules(net):
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'scale'"):
        net.scale = 3
    with pytest.raises(TypeError, match="cannot assign 'int' object to buffer 'offset'"):
        net.offset = 3
    with pytest.raises(TypeError, match="child module 'first'"):
        net.first = 3
    net.scale = None
    assert net.scale is None and "scale" not in dict(net.named_parameters())
    net.first = nn.Identity()
    assert isinstance(net.first, nn.Identity)
    net.offset = fl.zeros(3)
    assert net.get_buffer("offset").shape == (3,)
    net.plain = 5
    net.plain = nn.Parameter(fl.ones(1))
    assert "plain" in net._parameters and "plain" not in net.__dict__
    del net.plain
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'plain'"):
        _ = net.plain
    net.kept = nn.Buffer(fl.ones(1), persistent=False)
    assert "kept" in net._buffers and "kept" not in net.state_dict()


def test_before_init_and_bad_names():
    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Early()
    m = nn.Module()
    with pytest.raises(KeyError, match=r"name can.*t contain"):
        m.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="already exists"):
        m.register_buffer("forward", fl.ones(1))
    with pytest.raises(TypeError, match="is not a Module subclass"):
        m.add_module("x", 3)
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor"):
        w = nn.Parameter(fl.ones(1))
        m.register_parameter("y", (w * 2)._as_subclass(nn.Parameter))
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        m(1)


def test_forward_hooks(net):
    seen = []
    net.eval()
    x = fl.randn(2, 3)
    plain = net(x)
    handles = [
        net.register_forward_pre_hook(lambda m, args: seen.append("pre") or (args[0] * 2,)),
        net.register_forward_pre_hook(lambda m, args, kwargs: (args, {**kwargs, "gain": 3.0}), with_kwargs=True),
        net.register_forward_hook(lambda m, args, out: seen.append("post") or out + 1),
        net.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs["gain"]), with_kwargs=True, prepend=True),
    ]
    out = net(x)
    assert seen == ["pre", 3.0, "post"]
    expected = net.norm(net.first(x * 2)) * net.scale * 3 + 1
    assert fl.allclose(out, expected)
    for handle in handles:
        handle.remove()
    assert fl.equal(net(x), plain)


def test_always_called_hooks_see_failures():
    seen = []
    m = nn.Linear(2, 2)
    m.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(RuntimeError):
        m(fl.ones(1, 3))
    assert seen == [None]


def test_backward_hooks():
    fl.manual_seed(0)
    m, seen = nn.Linear(2, 3), {}
    m.register_full_backward_hook(lambda mod, gin, gout: seen.update(gin=gin, gout=gout) or (gin[0] * 10,))
    m.register_full_backward_pre_hook(lambda mod, gout: seen.update(pre=gout) or (gout[0] * 2,))
    x = fl.randn(4, 2, requires_grad=True)
    m(x).sum().backward()
    assert fl.equal(seen["pre"][0], fl.ones(4, 3)) and fl.equal(seen["gout"][0], fl.full((4, 3), 2.0))
    assert fl.allclose(seen["gin"][0], fl.full((4, 3), 2.0) @ m.weight.detach())
    assert fl.allclose(x.grad, seen["gin"][0] * 10)
    assert fl.allclose(m.bias.grad, fl.full((3,), 8.0))


def test_global_hooks_count_modules():
    from flambeau.nn.modules.module import register_module_forward_hook
    seen = []
    with register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        nn.Sequential(nn.Linear(1, 1), nn.ReLU())(fl.ones(1))
    assert seen == ["Linear", "ReLU", "Sequential"]
    nn.ReLU()(fl.ones(1))
    assert len(seen) == 3


def test_state_dict_round_trip(net):
    state = net.state_dict()
    assert list(state)[:2] == ["scale", "offset"] and "scratch" not in state and "shared.weight" in state
    assert state._metadata["norm"] == {"version": 2}
    assert not state["scale"].requires_grad and state["scale"].data_ptr() == net.scale.data_ptr()
    other = Net()
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert all(fl.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values()))
    assert other.first.weight.data_ptr() != net.first.weight.data_ptr()
    assigned = Net()
    assigned.load_state_dict(state, assign=True)
    assert assigned.first.weight.data_ptr() == net.first.weight.data_ptr() and assigned.first.weight.requires_grad


def test_load_state_dict_reports_everything(net):
    state = net.state_dict()
    del state["scale"]
    state["extra.key"] = fl.ones(1)
    state["first.bias"] = fl.ones(7)
    with pytest.raises(RuntimeError) as caught:
        Net().load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\t")
    assert 'Missing key(s) in state_dict: "scale".' in text and 'Unexpected key(s) in state_dict: "extra.key".' in text
    assert ("size mismatch for first.bias: copying a param with shape torch.Size([7]) from checkpoint, the shape in "
            "current model is "
            "torch.Size([4]).") in text
    del state["first.bias"]
    keys = Net().load_state_dict(state, strict=False)
    assert keys.missing_keys == ["scale", "first.bias"] and keys.unexpected_keys == ["extra.key"]
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        net.load_state_dict([1])


def test_state_dict_hooks_and_extra_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 3

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    m = nn.Sequential(Counter(), nn.Linear(1, 1))
    m.register_state_dict_post_hook(lambda mod, state, prefix, meta: state.update(note=fl.ones(1)))
    m.register_load_state_dict_pre_hook(lambda mod, state, prefix, *rest: state.pop("note", None))
    seen = []
    m.register_load_state_dict_post_hook(lambda mod, keys: seen.append(keys))
    m[0].count = 8
    state = m.state_dict()
    assert state["0._extra_state"] == {"count": 8} and "note" in state
    m[0].count = 0
    m.load_state_dict(state)
    assert m[0].count == 8 and len(seen) == 1


def test_conversions(net):
    weight = net.first.weight
    weight.grad = fl.ones(4, 3)
    assert net.double() is net and net.first.weight is weight and weight.dtype is fl.float64 and weight.grad.dtype is fl.float64
    assert net.norm.num_batches_tracked.dtype is fl.int64
    net.to(fl.float32).half().bfloat16().float()
    assert weight.dtype is fl.float32 and weight.requires_grad and weight.is_leaf
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(fl.int32)
    meta = Net().to("meta")
    assert meta.first.weight.is_meta
    assert not meta.to_empty(device="cpu").first.weight.is_meta
    assert nn.Linear(2, 2, device="meta").weight.is_meta
    from flambeau.nn.utils import skip_init
    assert skip_init(nn.Linear, 2, 3).weight.shape == (3, 2)


def test_training_flags_gradients_apply(net):
    net.eval()
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net(fl.randn(5, 3)).sum().backward()
    assert net.scale.grad is not None
    net.zero_grad()
    assert net.scale.grad is None
    order = []
    net.apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "BatchNorm1d", "Net"]


def test_copies_and_pickles(net):
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.shared is other.first and other.scale.requires_grad and isinstance(other.scale, nn.Parameter)
        assert all(fl.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values()))
        other.first.weight.data.add_(1)
        assert not fl.equal(other.first.weight, net.first.weight)
    p = nn.Parameter(fl.ones(2), requires_grad=False)
    p.note = "kept"
    q = pickle.loads(pickle.dumps(p))
    assert type(q) is nn.Parameter and not q.requires_grad and q.note == "kept"
    assert repr(p).startswith("Parameter containing:\ntensor([1., 1.])")


def test_printing():
    m = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(inplace=True)), nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]))
    assert repr(m) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Sequential(\n    (0): "
        "ReLU(inplace=True)\n  )\n"
        "  (2): ModuleList(\n    (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n  )\n)")


def test_containers():
    a, b, c = (nn.Linear(1, i + 1) for i in range(3))
    seq = nn.Sequential(a, b)
    seq.append(c).insert(0, nn.ReLU())
    assert [type(m).__name__ for m in seq] == ["ReLU", "Linear", "Linear", "Linear"] and seq[1:][0] is a and seq[-1] is c
    del seq[0]
    assert seq[0] is a and len(seq + nn.Sequential(c)) == 4
    with pytest.raises(IndexError, match="index 9 is out of range"):
        seq[9]
    modules = nn.ModuleList([a, b])
    modules.extend([c])
    modules.insert(1, nn.ReLU())
    assert len(modules) == 4 and modules.pop(1) is not None and list(modules) == [a, b, c]
    table = nn.ModuleDict({"a": a})
    table["b"] = b
    assert list(table) == ["a", "b"] and "b" in table and table.pop("a") is a
    params = nn.ParameterList([fl.ones(1), nn.Parameter(fl.ones(2))])
    params.append(fl.ones(3))
    assert [n for n, _ in params.named_parameters()] == ["0", "1", "2"] and params[-1].shape == (3,)
    table2 = nn.ParameterDict({"x": fl.ones(1)})
    table2["y"] = fl.ones(2)
    assert sorted(table2.keys()) == ["x", "y"] and table2.pop("x").requires_grad and len(table2) == 1


def test_batch_norm_with_default_momentum_averages():
    m = nn.BatchNorm1d(2, momentum=None)
    x = fl.randn(8, 2)
    m(x)
    m(x + 2)
    assert fl.allclose(m.running_mean, x.mean(0) + 1, atol=1e-6) and m.num_batches_tracked.item() == 2


def test_inplace_after_a_norm_and_a_linear_layer():
    x = fl.randn(4, 3, requires_grad=True)
    for layer in (nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Linear(3, 3), nn.RMSNorm(3)):
        x.grad = None
        nn.functional.relu(layer(x), inplace=True).sum().backward()
        first = x.grad
        x.grad = None
        nn.functional.relu(layer(x)).sum().backward()
        assert fl.allclose(first, x.grad, atol=1e-6)


def test_second_derivatives_of_fused_operators():
    from flambeau.autograd.gradcheck import gradgradcheck
    F = nn.functional
    x = fl.randn(3, 4, dtype=fl.float64, requires_grad=True)
    w = fl.randn(4, dtype=fl.float64, requires_grad=True)
    functions = [
        lambda x, w: F.softmax(x * w, -1), lambda x, w: F.log_softmax(x * w, 0), lambda x, w: F.gelu(x * w),
        lambda x, w: F.gelu(x * w, approximate="tanh"), lambda x, w: F.silu(x * w), lambda x, w: F.layer_norm(x, (4,), w, w),
        lambda x, w: F.rms_norm(x, (4,), w), lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
        lambda x, w: F.cross_entropy(x * w, fl.tensor([1, 0, 3])), lambda x, w: F.linear(x, (w * x)[:2], w[:2]),
        lambda x, w: F.scaled_dot_product_attention(x, x * w, x, is_causal=True),
        lambda x, w: F.avg_pool1d((x * w).unsqueeze(0), 2), lambda x, w: F.max_pool1d((x * w).unsqueeze(0), 2) ** 2,
    ]
    for fn in functions:
        assert gradgradcheck(fn, (x, w))


@pytest.mark.parametrize("make,shape", [
    (lambda: nn.LazyLinear(5), (2, 3)), (lambda: nn.LazyConv2d(4, 3), (1, 2, 5, 5)), (lambda: nn.LazyBatchNorm2d(), (2, 3, 4, 4)),
    (lambda: nn.LazyConvTranspose1d(4, 3), (1, 2, 5)),
])
def test_lazy_modules(make, shape):
    m = make()
    with pytest.raises(RuntimeError, match="uninitialized"):
        assert next(iter(m.parameters())).shape
    m(fl.randn(*shape))
    assert not type(m).__name__.startswith("Lazy") and all(p.numel() > 0 for p in m.parameters())
    copy.deepcopy(m)(fl.randn(*shape))


LAZY = [(nn.LazyLinear, (3,), (2, 4)), (nn.LazyConv1d, (4, 3), (1, 2, 5)), (nn.LazyBatchNorm1d, (), (2, 3)),
        (nn.LazyConvTranspose2d, (4, 3), (1, 2, 5, 5))]


@pytest.mark.parametrize("method", ["add", "clone", "detach", "zero_", "numel", "size", "sum", "mul_", "reshape", "view", "t"])
@pytest.mark.parametrize("kind", [nn.UninitializedParameter, nn.UninitializedBuffer])
def test_nothing_is_computed_of_what_has_no_shape(kind, method):
    with pytest.raises(ValueError, match=f"uninitialized parameter in .*{method.strip('_')}|uninitialized parameter in fill_"):
        getattr(kind(), method)(*{"add": (1,), "mul_": (2,), "reshape": (1,), "view": (1,)}.get(method, ()))
    assert repr(kind()) == str(kind()) == f"<{kind.__name__}>"


@pytest.mark.parametrize(("make", "given", "shape"), LAZY)
def test_states_and_files_of_lazy_modules(make, given, shape):
    """Before they have a shape: from one to another, to a file of either form and back, converted; afterwards into one that has none."""
    fl.manual_seed(0)
    first = make(*given)
    assert not any(make(*given).load_state_dict(first.state_dict()))
    for new in (True, False):
        file = io.BytesIO()
        fl.save(first, file, _use_new_zipfile_serialization=new)
        file.seek(0)
        again = fl.load(file, weights_only=False)
        assert again.has_uninitialized_params() and again(fl.ones(shape)).shape[0] == shape[0]
    assert make(*given).double()(fl.ones(shape, dtype=fl.float64)).dtype == fl.float64
    again, lazy = make(*given), make(*given)
    expected = again(fl.randn(shape))
    assert not any(lazy.load_state_dict(again.state_dict())) and expected.shape == lazy(fl.ones(shape)).shape
    if again.state_dict():
        with pytest.raises(RuntimeError, match="uninitialized"):
            again.load_state_dict(first.state_dict())


def test_what_is_missing_says_so():
    with pytest.raises(NotImplementedError, match="one process for each device"):
        nn.DataParallel(nn.Linear(1, 1), device_ids=[0, 1])
    assert nn.DataParallel(nn.Linear(1, 1))(fl.ones(1)).shape == (1,)


def test_a_module_of_a_function_has_its_signature():
    class Scaled(nn.modules.applied.FunctionModule, function=nn.functional.celu):
        """celu, of negative alphas too."""

        def _keep(self, alpha, inplace):
            super()._keep(alpha=abs(alpha), inplace=inplace)

    class Louder(Scaled):
        def forward(self, input):
            return 2 * super().forward(input)

    assert str(inspect.signature(Scaled)) == "(alpha: 'float' = 1.0, inplace: 'bool | None' = False)"
    assert repr(Scaled(-2)) == "Scaled(alpha=2)" and repr(Louder(inplace=True)) == "Louder(alpha=1.0, inplace=True)"
    x = fl.tensor([-1.0, 2.0])
    assert fl.equal(Louder(-2)(x), 2 * nn.functional.celu(x, 2.0))
    with pytest.raises(TypeError, match="unexpected keyword argument 'beta'"):
        Scaled(beta=1)
    with pytest.raises(AssertionError, match="max_val must be larger"):
        nn.Hardtanh(1.0, -1.0)


@pytest.mark.parametrize("make,shape", [
    (lambda: nn.BatchNorm1d(5), (0, 5, 3)), (lambda: nn.BatchNorm2d(5), (1, 5, 0, 2)), (lambda: nn.BatchNorm1d(5), (0, 5)),
    (lambda: nn.InstanceNorm1d(5, track_running_stats=True, affine=True), (1, 5, 0))])
def test_norms_learn_nothing_of_nothing(make, shape):
    m = make()
    x = fl.rand(*shape, requires_grad=True)
    m(x).sum().backward()
    assert x.grad.shape == shape and not m.weight.grad.any()
    assert m.running_mean.tolist() == [0.0] * 5 and m.running_var.tolist() == [1.0] * 5


@pytest.mark.parametrize("call,kind,words", [
    (lambda: nn.HuberLoss(delta=1 + 0j), TypeError, "delta must be a float or int"),
    (lambda: nn.CrossEntropyLoss(ignore_index=1)(fl.rand(2, 3), fl.rand(2, 3)), RuntimeError, "not supported for floating point target"),
    (lambda: nn.NLLLoss(fl.ones(3, dtype=fl.float16))(fl.rand(2, 3), fl.tensor([0, 1])), RuntimeError, "float32, but found torch.float16"),
    *((lambda c=c: c(3, 4)(fl.rand(2, 3), fl.rand(1, 2, 4)), ValueError, "Expected hidden to be 1D or 2D, got 3D")
      for c in (nn.RNNCell, nn.GRUCell)),
    (lambda: nn.LSTMCell(3, 4)(fl.rand(2, 3), (fl.rand(2, 4), fl.rand(1, 2, 4))), ValueError, r"Expected hx\[1\] to be 1D or 2D, got 3D"),
    *((lambda c=c: c(3, 4)(fl.rand(2, 2, 3).double()), ValueError, r"RNN input dtype \(torch.float64\) does not match weight dtype")
      for c in (nn.RNN, nn.GRU, nn.LSTM)),
    *((lambda c=c: c(3, 4, bias=0), TypeError, "bias should be of type bool, got: int") for c in (nn.RNN, nn.GRU, nn.LSTM)),
    *((lambda n=n: getattr(nn, f"CircularPad{n}d")(1)(fl.rand((4,) * n)), ValueError, f"expected {n + 1}D or {n + 2}D input")
      for n in (1, 2, 3))])
def test_what_modules_refuse(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_linear_cross_entropy_is_a_linear_layer_and_cross_entropy():
    m = nn.LinearCrossEntropyLoss(5, 4, out_features=(2, 3), bias=True, weight=fl.tensor([1.0, 2.0, 3.0, 4.0]), label_smoothing=0.1)
    assert {k: tuple(v.shape) for k, v in m.state_dict().items()} == {"weight": (4,), "linear.weight": (24, 5), "linear.bias": (24,)}
    x, target = fl.rand(7, 5, requires_grad=True), fl.randint(4, (7, 2, 3))
    expected = nn.functional.cross_entropy(m.linear(x).reshape(7, 4, 2, 3), target, m.weight, label_smoothing=0.1)
    fl.testing.assert_close(m(x, target), expected)
    m(x, target).backward()
    assert x.grad is not None and m.linear.weight.grad is not None


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16])
@pytest.mark.parametrize("function", ["module", "native"])
def test_narrow_running_statistics_are_rounded_once(dtype, function):
    x = fl.tensor([[0.75], [-0.5]]).to(dtype)
    mean, var = fl.tensor([0.1]).to(dtype), fl.tensor([0.3]).to(dtype)
    expected = [(0.3 * m.float() + 0.7 * s).to(dtype) for m, s in ((mean, x.float().mean()), (var, x.float().var()))]
    if function == "native":
        fl.native_batch_norm(x, None, None, mean, var, True, 0.7, 1e-5)
    else:
        nn.functional.batch_norm(x, mean, var, training=True, momentum=0.7)
    assert [mean.item(), var.item()] == [e.item() for e in expected]


def test_the_hooks_of_all_modules_have_torchs_names() -> None:
    module = importlib.import_module("flambeau.nn.modules.module")
    names = ["forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks", "parameter_registration_hooks",
             "buffer_registration_hooks", "module_registration_hooks", "forward_hooks_with_kwargs", "forward_hooks_always_called"]
    before = {name: len(getattr(module, f"_global_{name}")) for name in names}
    handles = [nn.modules.module.register_module_parameter_registration_hook(lambda m, name, p: None),
               nn.modules.module.register_module_buffer_registration_hook(lambda m, name, b: None),
               nn.modules.module.register_module_module_registration_hook(lambda m, name, s: None),
               nn.modules.module.register_module_forward_pre_hook(lambda m, args: None),
               nn.modules.module.register_module_full_backward_pre_hook(lambda m, g: None),
               nn.modules.module.register_module_full_backward_hook(lambda m, gi, go: None),
               nn.modules.module.register_module_forward_hook(lambda m, args, kwargs, out: None, with_kwargs=True, always_call=True)]
    assert all(len(getattr(module, f"_global_{name}")) == before[name] + 1 for name in names)
    for handle in handles:
        handle.remove()
    assert all(len(getattr(module, f"_global_{name}")) == before[name] for name in names)


def test_removed_hooks_of_all_modules_leave_no_trace() -> None:
    """Calls are as fast as before, and compiled ones hang on no hooks."""
    every = nn.modules.hooks.GlobalHooks
    seen: list[str] = []
    before = every.any
    first = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append("forward"))
    second = nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append("before"))
    assert every.any
    first.remove()
    nn.Identity()(fl.ones(1))
    assert every.any and seen == ["before"]
    second.remove()
    nn.Identity()(fl.ones(1))
    assert every.any is before and seen == ["before"]
