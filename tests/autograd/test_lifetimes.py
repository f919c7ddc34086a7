"""What a graph holds, and for how long; what hooks and Functions may answer; leaves that want no gradient any more."""

import gc
import weakref

import pytest

import flambeau as fl


class Twice(fl.autograd.Function):
    """Keeps its input and its output."""

    @staticmethod
    def forward(ctx, x):
        out = x * 2
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return g * out / x


class Thrice(Twice):
    """The same, with its context filled afterwards."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)


def in_vmap(x):
    return fl.func.vmap(lambda t: (t * t).sin())(x)


MAKERS = {
    "primitive": lambda x: x.exp(), "list": lambda x: fl.stack([x, x.exp()]), "several": lambda x: x.topk(2)[0], "view": lambda x: x.exp()[1:],
    "written": lambda x: (x + 1).mul_(x), "Function": Twice.apply, "set up": Thrice.apply, "vmap": in_vmap,
    "tree": lambda x: fl.utils._pytree.tree_map(lambda t: t * t, {"a": [x]})["a"][0],
    "paths": lambda x: fl.utils._pytree.tree_map_with_path(lambda path, t: t * t, {"a": [x]})["a"][0],
    "chain": lambda x: fl.linalg.multi_dot([x[None], x[:, None], x[None], x[:, None]]), "einsum": lambda x: fl.einsum("i,j,i->ij", x, x, x),
    "transform": lambda x: fl.func.vjp(fl.sin, x)[0], "between": lambda x: Twice.apply(x.exp()).exp(),
}


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_that_is_dropped_is_freed_at_once(name, without_collector):
    x = fl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    kept = x * 1
    y = MAKERS[name](kept)
    nodes, memory = weakref.ref(y.grad_fn), weakref.ref(kept)
    del y, kept
    assert nodes() is None and memory() is None


@pytest.mark.parametrize("name", MAKERS)
def test_backward_lets_go_of_what_was_kept(name, without_collector):
    x = fl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    kept = x * 1
    y = MAKERS[name](kept)
    memory = weakref.ref(kept)
    del kept
    y.sum().backward()
    assert memory() is None
    assert x.grad is not None
    if name not in ("list", "several", "view"):
        with pytest.raises(RuntimeError, match="second time"):
            y.sum().backward()


def test_a_context_outlives_its_node_without_what_was_kept():
    found = []

    class Noting(Twice):
        @staticmethod
        def forward(ctx, x):
            found.append(ctx)
            return Twice.forward(ctx, x)

    y = Noting.apply(fl.ones(2, requires_grad=True))
    assert len(found[0].saved_tensors) == 2 and found[0].name() == "NotingBackward"
    del y
    with pytest.raises(RuntimeError, match="second time"):
        found[0].saved_tensors  # noqa: B018


def test_a_function_that_keeps_nothing_runs_again():
    class Plain(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = fl.ones(2, requires_grad=True)
    y = Plain.apply(x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_a_number_gets_no_gradient():
    class Scaled(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(RuntimeError, match="gradient different than None at position 2"):
        Scaled.apply(fl.ones(2, requires_grad=True), 3.0).sum().backward()


@pytest.mark.parametrize("answer", [(), (None,), (None, None, None)])
def test_a_hook_answers_for_every_gradient(answer):
    x = fl.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.register_hook(lambda made, taken: answer)
    with pytest.raises(RuntimeError, match=f"incorrect number of values .got {len(answer)}, but expected 2"):
        y.sum().backward()


@pytest.mark.parametrize("made", [5, None, "x"])
def test_what_unpacks_a_saved_tensor_makes_a_tensor(made):
    x = fl.ones(2, requires_grad=True)
    with fl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: made):
        y = fl.stack([x * x, x.exp()]).prod()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type " + type(made).__name__):
        y.backward()


@pytest.mark.parametrize("before", [None, 1.0])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_leaf_that_wants_no_gradient_any_more_gets_none(before, hooked):
    x, w, told = fl.ones(2, requires_grad=True), fl.ones(2, requires_grad=True), []
    if hooked:
        x.register_post_accumulate_grad_hook(told.append)
    x.grad = None if before is None else fl.full((2,), before)
    y = (x * w).sum()
    x.requires_grad_(False)
    y.backward()
    assert w.grad.tolist() == [1.0, 1.0] and not told
    assert x.grad is None if before is None else x.grad.tolist() == [before] * 2


@pytest.mark.parametrize("transform", ["vmap of grad", "grad of vmap", "vmap of detach", "vmap of vmap"])
def test_results_of_transforms_may_be_written_and_hold_no_graph(transform):
    x = fl.ones(3, 2)
    grad, vmap = fl.func.grad, fl.func.vmap
    result = {
        "vmap of grad": lambda: vmap(grad(lambda a: (a.flatten().sin() * a).sum()))(x),
        "grad of vmap": lambda: grad(lambda a: vmap(lambda r: r.sin())(a).sum())(x),
        "vmap of detach": lambda: vmap(lambda a: a.detach())((x * 1).requires_grad_() * 2),
        "vmap of vmap": lambda: vmap(vmap(grad(lambda a: a.sin())))(x),
    }[transform]()
    assert not result.requires_grad and (result._base is None or not result._base.requires_grad)
    result.mul_(2)[0] = 3.0
    assert result[0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16, fl.float32, fl.int64, fl.bool, fl.complex128])
@pytest.mark.parametrize("turn", [lambda x: x.conj(), lambda x: x.conj().imag, lambda x: fl.adjoint(x[None, None])[0, 0]])
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_a_conjugate_of_no_dimensions_is_converted(dtype, turn):
    x = turn(fl.tensor(1.5 - 2j))
    assert x.to(dtype).tolist() == x.resolve_conj().resolve_neg().clone().to(dtype).tolist()
