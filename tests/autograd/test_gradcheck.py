"""gradcheck and gradgradcheck find each fault that they are asked to look for."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau.autograd import Function, GradcheckError, gradcheck, gradgradcheck


def x64(*shape: int, requires_grad: bool = True) -> fl.Tensor:
    return fl.randn(*shape, dtype=fl.float64, generator=fl.Generator().manual_seed(3)).requires_grad_(requires_grad)


def function(backward: Any, forward: Any = lambda x: x * x) -> Any:
    class Made(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *gs: Any) -> Any:
            return backward(ctx.saved_tensors[0], *gs)

    return Made.apply


def test_a_wrong_gradient_is_found() -> None:
    assert gradcheck(function(lambda x, g: 2 * g * x), x64(3))
    wrong = function(lambda x, g: 2.1 * g * x)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0, output element 0"):
        gradcheck(wrong, x64(3))
    assert not gradcheck(wrong, x64(3), raise_exception=False)


def test_a_gradient_that_changes_from_run_to_run_is_found() -> None:
    noisy = function(lambda x, g: 2 * g * x * (1 + 1e-7 * fl.rand((), dtype=fl.float64)))
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(noisy, x64(3))
    assert gradcheck(noisy, x64(3), nondet_tol=1e-4)


def test_a_missing_gradient_counts_as_zeros() -> None:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, careful: bool) -> Any:
            ctx.set_materialize_grads(False)
            ctx.careful = careful
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            if g is None:
                return h * 3, None
            if h is None:
                return (g * 2 if ctx.careful else g * 2 + 1), None
            return g * 2 + h * 3, None

    def first_and_both(careful: bool) -> Any:
        def call(x: Any) -> Any:
            a, b = Two.apply(x, careful)
            return a + 0 * b, b + 0 * a     # each output alone brings a gradient to both
        return call
    assert gradcheck(first_and_both(True), x64(3))
    assert gradcheck(lambda x: Two.apply(x, True), x64(3))
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: Two.apply(x, False), x64(3))


def test_gradients_one_by_one_and_in_a_batch() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 3, in_dims[0]

    apart = function(lambda x, g: Doubled.apply(g) * x)
    assert gradcheck(apart, x64(3))
    with pytest.raises(GradcheckError, match="batched gradient of output 0 with respect to input 0"):
        gradcheck(apart, x64(3), check_batched_grad=True)
    assert gradcheck(lambda x: x.sin() * 2, x64(4), check_batched_grad=True)
    assert gradgradcheck(lambda x: x**3, x64(4), check_batched_grad=True)


def test_dtypes_of_gradients() -> None:
    assert gradcheck(lambda x: x * 2, x64(3), check_grad_dtypes=True)


def test_forward_mode_is_checked_and_one_direction_is_wanted() -> None:
    assert gradcheck(lambda x: x * x.exp(), x64(3), check_forward_ad=True)
    assert gradcheck(lambda x: x * x.exp(), x64(3), check_forward_ad=True, check_backward_ad=False)
    assert gradgradcheck(lambda x: x * x.exp(), x64(3), check_fwd_over_rev=True)
    assert gradgradcheck(lambda x: x * x.exp(), x64(3), check_fwd_over_rev=True, check_rev_over_rev=False)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
        gradcheck(lambda x: x * x, x64(3), check_backward_ad=False)
    with pytest.raises(AssertionError, match="at least one of check_fwd_over_rev or check_rev_over_rev"):
        gradgradcheck(lambda x: x * x, x64(3), check_rev_over_rev=False)


def test_inputs_that_cannot_be_checked() -> None:
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        gradcheck(lambda x: x * 2, x64(3).detach().float().requires_grad_(), atol=1e-1)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda x: x * 2, x64(1).detach().expand(3).requires_grad_())
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x * 2, x64(3, requires_grad=False))


def test_inputs_and_gradients_that_lie_apart() -> None:
    x = x64(4, 3).detach().t().requires_grad_()
    assert gradcheck(lambda v: v.sin().sum(0), x)
    assert gradgradcheck(lambda v: (v**3).sum(0), x, gen_non_contig_grad_outputs=True)


def test_second_derivatives() -> None:
    assert gradgradcheck(lambda x: x**3, x64(3))
    with pytest.raises(GradcheckError):
        gradgradcheck(function(lambda x, g: (2 * g * x).detach() + 0 * g * x), x64(3))
