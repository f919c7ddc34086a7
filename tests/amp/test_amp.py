"""Autocast and gradient scaling."""

import copy
import pickle
import warnings

import pytest

import flambeau as fl
from flambeau import amp, nn
from flambeau.ops.registry import OPERATORS
from tests.ops.calls import CALLS, arrays, evaluate


def test_products_are_narrow_and_losses_wide():
    x, w = fl.randn(4, 8), fl.randn(8, 8, requires_grad=True)
    with fl.autocast("cpu", dtype=fl.bfloat16):
        y = x @ w
        assert y.dtype is fl.bfloat16 and fl.is_autocast_enabled("cpu")
        assert (x + x).dtype is fl.float32 and nn.functional.softmax(y, -1).dtype is fl.bfloat16
        assert fl.cat([x, y]).dtype is fl.float32
        with fl.autocast("cpu", enabled=False):
            assert (x @ w).dtype is fl.float32
        loss = nn.functional.mse_loss(y, fl.zeros(4, 8))
        assert loss.dtype is fl.float32
    assert (x @ w).dtype is fl.float32 and not fl.is_autocast_enabled("cpu")
    loss.backward()
    assert w.grad.dtype is fl.float32
    expected = fl.autograd.grad(((x @ w) ** 2).mean(), w)[0]
    assert fl.allclose(w.grad, expected, rtol=0.05, atol=0.02)


def test_a_model_as_torch():
    torch = pytest.importorskip("torch")
    fl.manual_seed(0)
    ours = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3))
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    x, t = fl.randn(5, 6), fl.tensor([0, 1, 2, 0, 1])
    with fl.autocast("cpu"):
        a = ours(x)
        la = nn.functional.cross_entropy(a, t)
    with torch.autocast("cpu"):
        b = theirs(torch.tensor(x.numpy()))
        lb = torch.nn.functional.cross_entropy(b, torch.tensor(t.numpy()))
    assert str(a.dtype) == str(b.dtype) and str(la.dtype) == str(lb.dtype)
    assert la.item() == pytest.approx(lb.item(), rel=0.02)
    la.backward()
    lb.backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert fl.allclose(p.grad, fl.tensor(q.grad.numpy()), rtol=0.1, atol=0.02)


def test_weights_are_cast_once_in_a_block():
    w = fl.randn(4, 4, requires_grad=True)
    x = fl.ones(2, 4)
    with amp.autocast("cpu"):
        nn.functional.linear(x, w), nn.functional.linear(x, w)
        assert len(fl.core.dispatch.state.autocast[1]) == 1
    assert fl.core.dispatch.state.autocast is None


def test_decorator_and_bad_arguments():
    @fl.autocast("cpu", dtype=fl.bfloat16)
    def product(x):
        return x @ x
    assert product(fl.ones(2, 2)).dtype is fl.bfloat16
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        fl.autocast("tpu")
    with pytest.warns(UserWarning, match="Disabling autocast"):
        fl.autocast("cpu", dtype=fl.float64)


def test_scaler_scales_skips_and_adapts():
    p = fl.ones(2, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for _ in range(2):
        opt.zero_grad()
        scaler.scale((p * 0.25).sum()).backward()
        assert p.grad.tolist() == [0.25 * scaler.get_scale()] * 2
        scaler.step(opt)
        scaler.update()
    assert p.tolist() == [0.5, 0.5] and scaler.get_scale() == 16.0
    opt.zero_grad()
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.unscale_(opt)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and scaler.get_scale() == 8.0
    other = amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0
    assert amp.GradScaler("cpu", enabled=False).scale(p) is p


def test_each_operator_computes_in_the_dtype_that_torch_gives_it():
    torch = pytest.importorskip("torch")
    different = ("F.affine_grid(", "F.pad(")     # padding is one operator here
    wrong = []
    for call in CALLS:
        if call.startswith(different) or ".half()" in call:
            continue
        for source in ("float32", "bfloat16", "float64"):
            found = []
            for lib in (fl, torch):
                tensors = {name: lib.tensor(v) for name, v in arrays().items()}
                tensors = {name: x.to(getattr(lib, source)) if x.dtype.is_floating_point else x for name, x in tensors.items()}
                try:
                    with warnings.catch_warnings(), lib.autocast("cpu", dtype=lib.bfloat16):
                        warnings.simplefilter("ignore")
                        out = evaluate(lib, call, tensors)
                    found.append([str(o.dtype) for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, lib.Tensor)])
                except (RuntimeError, TypeError, ValueError, AttributeError) as error:
                    found.append(error)
            if not any(isinstance(f, Exception) for f in found) and found[0] != found[1]:
                wrong.append(f"{call} of {source}: {found[0]}, in torch {found[1]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore:torch.* is deprecated in favor of")
def test_other_names_of_an_operator_are_in_its_class():
    tensors = {name: fl.tensor(v).to(fl.bfloat16) for name, v in arrays().items()}
    wide = "t.svd(x)[0]", "t.qr(x)[0]", "t.cholesky(S)", "t.pinverse(x)", "t.triangular_solve(A, S)[0]", "t.inverse(S)"
    with fl.autocast("cpu", dtype=fl.bfloat16):
        assert [call for call in wide if evaluate(fl, call, tensors).dtype is not fl.float32] == []
    tensors = {name: fl.tensor(v).float() for name, v in arrays().items()}
    narrow = "x.__rmatmul__(A[:, :3])", "A[:, :3] @ x", "F.conv_tbc(X, X.mT, w[:3])", "t.matmul(A, A)"
    with fl.autocast("cpu", dtype=fl.bfloat16):
        assert [call for call in narrow if evaluate(fl, call, tensors).dtype is not fl.bfloat16] == []


def test_the_classes_of_cuda_are_those_of_the_documentation():
    def classes(names):
        return {OPERATORS[name]._operator.autocast.get("cuda") for name in names.split()}

    assert classes("linear addmv prelu conv2d") == {"narrow"}
    assert classes("layer_norm softmax exp pow sum norm cumsum mse_loss") == {"wide"}
    assert classes("addcmul bilinear dot cat scatter_add grid_sample") == {"promote"}
    assert classes("add relu conv_transpose1d max_pool3d") == {None, "narrow"}


def test_what_is_given_as_out_is_written():
    a, out = fl.randn(3, 3), fl.zeros(3, 3)
    with fl.autocast("cpu", dtype=fl.bfloat16):
        assert fl.mm(a, a, out=out) is out
    assert fl.equal(out, a @ a)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("where", ["eager", "inside", "outside"])
def test_checkpoint_recomputes_under_the_autocast_of_its_forward(reentrant, where):
    """Backward runs outside of the block, as usual."""
    fl.manual_seed(0)
    w = nn.Linear(8, 8)

    def part(x):
        return w(x).sin()

    inner = fl.compile(part) if where == "inside" else part

    def whole(x):
        return fl.utils.checkpoint.checkpoint(inner, x, use_reentrant=reentrant)

    grads = []
    for f in (part, fl.compile(whole) if where == "outside" else whole):
        x = fl.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        with amp.autocast("cpu"):
            y = f(x)
        assert y.dtype is fl.bfloat16
        w.zero_grad()
        y.float().sum().backward()
        grads.append([x.grad, w.weight.grad])
    assert all(fl.allclose(a, b, rtol=2e-2, atol=1e-2) for a, b in zip(*grads))
    if where == "eager":
        assert all(fl.equal(a, b) for a, b in zip(*grads))


def test_a_function_with_cast_inputs_goes_back_without_autocast():
    seen = []

    class Double(fl.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=fl.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(fl.is_autocast_enabled("cpu"))
            return g * 2

    with amp.autocast("cpu"):
        Double.apply(fl.ones(2, requires_grad=True)).sum().backward()
    assert seen == [False]


def test_autocast_and_modes_can_be_copied():
    block = amp.autocast("cpu", dtype=fl.float16, enabled=False)
    for copied in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert (copied.device, copied.fast_dtype, copied._enabled) == ("cpu", fl.float16, False)
    mode = fl.overrides.BaseTorchFunctionMode()
    mode.name = "one"
    with mode:
        assert copy.deepcopy(mode).name == "one"
    assert not fl.core.dispatch.state.function_modes


def test_cpu_autocast_to_float32_is_turned_off():
    with pytest.warns(UserWarning, match="not supported"), amp.autocast("cpu", dtype=fl.float32):
        assert not fl.is_autocast_enabled("cpu")
