"""Wrong calls of torch.autograd, beside torch: the same exception, and the same fact in its message."""

import warnings

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")


def leaf(lib, *shape):
    return lib.ones(*(shape or (2,)), requires_grad=True)


def saved_twice(lib):
    y = leaf(lib) * leaf(lib)
    kept = y.grad_fn._raw_saved_self    # of a node that lives
    kept.register_hooks(lambda t: t, lambda t: t)
    kept.register_hooks(lambda t: t, lambda t: t)


def saved_and_freed(lib):
    y = leaf(lib) * leaf(lib)
    kept = y.grad_fn._raw_saved_self
    y.sum().backward()
    kept.register_hooks(lambda t: t, lambda t: t)


def written_while_packed(lib):
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        x = leaf(lib) * 1
        x * x


def hooked(lib, register, hook):
    y = leaf(lib) * 2
    getattr(y.grad_fn, register)(hook)
    y.sum().backward()


def written_in_inference_mode(lib, use):
    with lib.inference_mode():
        y = lib.ones(2)
    use(y)


# (the call, the words of torch's message that both have)
CALLS = {
    "backward and grad": (
        (lambda l: (leaf(l) * 2).sum().backward(inputs=[]), "`inputs` argument to `backward()` cannot be empty."),
        (lambda l: (leaf(l) * 2).backward("a"), "gradients can be either Tensors or None, but got str"),
        (lambda l: l.autograd.grad(leaf(l).sum(), [leaf(l)]), "The differentiated Tensor at index 0 appears to not have been used in the"),
        (lambda l: l.autograd.grad(leaf(l) * 2, leaf(l), l.ones(2, 3), is_grads_batched=True), "If `is_grads_batched=True`, we interpret"),
        (lambda l: l.autograd.Variable._execution_engine.queue_callback(lambda: 0), "Final callbacks can only be installed during backward"),
    ),
    "attributes": (
        (lambda l: setattr(leaf(l), "grad", l.ones(3)), "attempting to assign a gradient of size '[3]' to a tensor of size '[2]'."),
        (lambda l: setattr(leaf(l), "grad", l.ones(2).double()), "The gradient must match the tensor's grad_dtype"),
        (lambda l: setattr(leaf(l) * 2, "requires_grad", True), "you can only change requires_grad flags of leaf variables."),
        (lambda l: setattr(leaf(l), "requires_grad", 1), "requires_grad must be a bool"),
        (lambda l: setattr(leaf(l), "data", 3), "Variable data has to be a tensor, but got int"),
        (lambda l: l.set_grad_enabled("x"), "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not str"),
    ),
    "hooks": (
        (saved_twice, "Calling register_hooks on a saved tensor whose hooks have already been set."),
        (saved_and_freed, "Calling register_hooks on a saved tensor after it has been freed."),
        (written_while_packed, "A saved tensor pack hook is modifying its input in place."),
        (lambda l: hooked(l, "register_hook", lambda gi, go: 3), "expected tuple, but hook returned 'int'"),
        (lambda l: hooked(l, "register_prehook", lambda go: 3), "expected tuple, but hook returned 'int'"),
    ),
    "inference": (
        (lambda l: written_in_inference_mode(l, lambda y: y._version), "Inference tensors do not track version counter"),
        (lambda l: written_in_inference_mode(l, lambda y: leaf(l) * y), "Inference tensors cannot be saved for backward"),
        (lambda l: written_in_inference_mode(l, lambda y: y.add_(1)), "Inplace update to inference tensor outside InferenceMode is not"),
    ),
    "functional": (
        (lambda l: l.autograd.functional.jacobian(lambda x: 3, leaf(l)), "given to jacobian must be either a Tensor or a tuple of Tensors"),
        (lambda l: l.autograd.functional.jacobian(lambda x: x, [leaf(l)]), "must be either a Tensor or a tuple of Tensors but the given"),
        (lambda l: l.autograd.functional.vjp(lambda x: x, leaf(l)), "The vector v can only be None if"),
        (lambda l: l.autograd.functional.vjp(lambda x: x, leaf(l), l.ones(3)), "v has invalid size: should be torch.Size([2]) but got"),
        (lambda l: l.autograd.functional.vjp(lambda x: x, leaf(l), (l.ones(2),) * 2), "The given v should contain a single Tensor"),
        (lambda l: l.autograd.gradcheck(lambda x: x.detach(), (leaf(l).double(),), raise_exception=True), "expected to be zero"),
        (lambda l: l.autograd.gradcheck(lambda x: x, leaf(l), check_backward_ad=False, check_forward_ad=True, check_batched_grad=True),
         "Setting check_batched_grad=True requires check_backward_ad to be True"),
    ),
    "checkpoint": (
        (lambda l: l.autograd.grad(l.utils.checkpoint.checkpoint(l.sin, x := leaf(l), use_reentrant=True).sum(), x),
         "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad()"),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("theme", CALLS)
def test_says_what_torch_says(theme):
    for call, words in CALLS[theme]:
        refusals = []
        for lib in (torch, fl):
            with pytest.raises((RuntimeError, ValueError, TypeError, AssertionError)) as refused:
                call(lib)
            refusals.append((type(refused.value).__name__, words in str(refused.value)))
        assert refusals[0] == refusals[1] == (refusals[0][0], True), (words, refusals, str(refused.value))


def test_what_hooks_unpack_has_its_place_in_the_graph():
    """So that gradients of gradients are right, though the hooks keep nothing of the graph themselves; checkpoints are such hooks."""
    def second(lib, run):
        x = lib.tensor([0.3, 0.7], requires_grad=True)
        inner = x * 1.5
        y = run(lib, lambda v: (v.sin() * v).exp(), inner)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        return [t.tolist() for t in lib.autograd.grad((g * g).sum(), [inner, x])]

    def plain(lib, f, x):
        return f(x)

    def detaching(lib, f, x):
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            return f(x)

    def on_cpu(lib, f, x):
        with lib.autograd.graph.save_on_cpu():
            return f(x)

    def checkpointed(lib, f, x):
        return lib.utils.checkpoint.checkpoint(f, x, use_reentrant=False)

    want = second(torch, plain)
    for run in (plain, detaching, on_cpu, checkpointed):
        for lib in (torch, fl):
            for got, expected in zip(second(lib, run), want):
                assert got == pytest.approx(expected, rel=1e-5), (run, lib)


def test_backward_fills_the_gradients_of_results_that_it_is_asked_for():
    for lib in (torch, fl):
        x = leaf(lib)
        y = x * 2
        y.sum().backward(inputs=(y,), retain_graph=True)
        y.sum().backward(inputs=(y,))
        assert x.grad is None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of the gradient of what is no leaf
            assert y.grad.tolist() == [2, 2]


def test_functions_within_vmap_say_how():
    class Plain(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Apart(fl.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        fl.vmap(Plain.apply)(fl.ones(3))
    with pytest.raises(RuntimeError, match="does not have vmap support"):
        fl.vmap(Apart.apply)(fl.ones(3))
    Apart.generate_vmap_rule = True
    assert fl.vmap(Apart.apply)(fl.ones(3)).tolist() == [2, 2, 2]
