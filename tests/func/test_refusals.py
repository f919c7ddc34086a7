"""Wrong calls of torch.func, beside torch: the same exception, and the same fact in its message."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")   # of torch's own forward mode

# (the call, the words of torch's message that both have)
CALLS = {
    "vmap": (
        (lambda l, x, y: l.vmap(lambda a: a, in_dims="a")(x), "expected `in_dims` to be int or a (potentially nested) tuple matching"),
        (lambda l, x, y: l.vmap(lambda a, b: a, in_dims=(0,))(x, y), "in_dims is not compatible with the structure of `inputs`"),
        (lambda l, x, y: l.vmap(lambda a: a, in_dims=5)(x), "Got in_dim=5 for some input, but that input is a Tensor of dimensionality 2"),
        (lambda l, x, y: l.vmap(lambda a: a)(y.sum()), "that input is a Tensor of dimensionality 0 so expected in_dim to satisfy"),
        (lambda l, x, y: l.vmap(lambda a, b: a)(x, 2), "Got in_dim=0 for an input but the input is of type <class 'int'>."),
        (lambda l, x, y: l.vmap(lambda a: a, in_dims=(None,))(x), "Expected at least one Tensor to vmap over"),
        (lambda l, x, y: l.vmap(lambda: x)(), "got no inputs. Maybe you forgot to add inputs"),
        (lambda l, x, y: l.vmap(lambda a, b: a)(x, x[:2]), "Expected all tensors to have the same size in the mapped dimension"),
        (lambda l, x, y: l.vmap(lambda a: 3)(x), "`<lambda>` must only return Tensors, got type <class 'int'>"),
        (lambda l, x, y: l.vmap(lambda a: a, out_dims="a")(x), "`out_dims` must be an int, None or a python collection of ints"),
        (lambda l, x, y: l.vmap(lambda a: a, out_dims=5)(x), "Dimension out of range (expected to be in range of [-2, 1], but got 5)"),
        (lambda l, x, y: l.vmap(lambda a: a, out_dims=None)(x), "can not return a BatchedTensor when out_dim is None"),
        (lambda l, x, y: l.vmap(lambda a: (a, a), out_dims=(0, 0, 0))(x), "out_dims is not compatible with the structure of `outputs`"),
        (lambda l, x, y: l.vmap(lambda a: a, randomness="z")(x), "Only allowed values for randomness are 'error', 'different', or 'same'"),
        (lambda l, x, y: l.vmap(lambda a: l.rand(2))(x), "called random operation while in randomness error mode. Please either use the"),
        (lambda l, x, y: l.vmap(lambda a: a, chunk_size=0)(x), "vmap: chunk_size should be None or greater than 0. (got 0)"),
        (lambda l, x, y: l.vmap(lambda a: a.sum().item())(x), "It looks like you're calling .item() on a Tensor"),
        (lambda l, x, y: l.vmap(lambda a: a if a.sum() > 0 else -a)(x), "attempting to use a Tensor in some data-dependent control flow"),
        (lambda l, x, y: l.vmap(lambda a: a.nonzero())(x), "We do not support batching operators that can output dynamic shape"),
        (lambda l, x, y: l.vmap(lambda a: y.mul_(a))(x), "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists"),
        (lambda l, x, y: l.vmap(lambda a: a.requires_grad_())(x), "You are attempting to call Tensor.requires_grad_()"),
    ),
    "grad": (
        (lambda l, x, y: l.func.grad(lambda a: a)(x), "Expected f(*args) to return a scalar Tensor, got tensor with 2 dims."),
        (lambda l, x, y: l.func.grad(lambda a: 3.0)(x), "Expected f(*args) to return a Tensor, got <class 'float'>"),
        (lambda l, x, y: l.func.grad(lambda a: a)(3.0), "Thing passed to transform API must be Tensor, got <class 'float'>"),
        (lambda l, x, y: l.func.grad(lambda a: a.sum(), argnums="a")(x), "argnums must be int or Tuple[int, ...], got: <class 'str'>"),
        (lambda l, x, y: l.func.grad(lambda a: a.sum(), argnums=())(x), "argnums must be non-empty"),
        (lambda l, x, y: l.func.grad(lambda a, b: a.sum(), argnums=(0, 0))(x, x), "argnums elements must be unique, got (0, 0)"),
        (lambda l, x, y: l.func.grad(lambda a: a.sum(), has_aux=True)(x), "output of function f should be a tuple: (output, aux) if has_aux"),
        (lambda l, x, y: l.func.grad(lambda a: (a.sum(), 3), has_aux=True)(x), "Expected tensors, got unsupported type <class 'int'>"),
    ),
    "vjp and jvp": (
        (lambda l, x, y: l.func.vjp(lambda a: 3, x), "expected f(*primals) to return only tensors, got unsupported type <class 'int'>"),
        (lambda l, x, y: l.func.vjp(lambda a: (a, a), x)[1](x), "Expected pytree structure of cotangents to be the same as pytree structure"),
        (lambda l, x, y: l.func.jvp(lambda a: a, x, x), "jvp(f, primals, tangents): Expected primals to be a tuple."),
        (lambda l, x, y: l.func.jvp(lambda a: a, (x,), (x, x)), "Expected primals and tangents to have the same python structure."),
        (lambda l, x, y: l.func.jvp(lambda: x, (), ()), "jvp(f, primals, tangents): Expected primals to contain at least one Tensor."),
        (lambda l, x, y: l.func.jvp(lambda a: a, (3.0,), (3.0,)), "Expected primals to only contain Tensors, got <class 'float'>"),
        (lambda l, x, y: l.func.jvp(lambda a: a, (x,), (y,)), "Trying to set a forward gradient that has a different size than that of the"),
        (lambda l, x, y: l.func.jvp(lambda a: a, (x.long(),), (x.long(),)), "Expected primal to be floating point or complex, but got:"),
        (lambda l, x, y: l.func.linearize(lambda a: a, x)[1](y), "in flattened pytree doesn't match the shape"),
        (lambda l, x, y: l.func.linearize(lambda a: a, x)[1](x.double()), "in flattened pytree doesn't match the dtype"),
        (lambda l, x, y: l.func.jacrev(lambda a: a, chunk_size=0)(x), "jacrev: `chunk_size` should be greater than 0."),
    ),
    "functional_call": (
        (lambda l, x, y: l.func.functional_call(l.nn.Linear(2, 1), [1], (x,)), "Expected all elements of parameter_and_buffer_dicts to be"),
        (lambda l, x, y: l.func.functional_call(l.nn.Linear(2, 1), 3, (x,)), "Expected parameter_and_buffer_dicts to be a dict, or a list"),
        (lambda l, x, y: l.func.functional_call(l.nn.Linear(2, 1), {"weight": 3}, (x,)), "3 is not an instance of torch.Tensor"),
        (lambda l, x, y: l.func.stack_module_state([l.nn.ReLU(), l.nn.ReLU().eval()]), "Expected all models to have the same training/eval"),
    ),
}


@pytest.mark.parametrize("theme", CALLS)
def test_says_what_torch_says(theme):
    for call, words in CALLS[theme]:
        refusals = []
        for lib in (torch, fl):
            x = lib.arange(6.0).reshape(3, 2)
            with pytest.raises((RuntimeError, ValueError, TypeError, IndexError)) as refused:
                call(lib, x, x[0])
            refusals.append((type(refused.value), words in str(refused.value).replace("scalar tensor", "scalar Tensor")))
        assert refusals[0] == refusals[1] == (refusals[0][0], True), (words, refusals, str(refused.value))


def test_keywords_are_the_same_for_all_examples():
    for lib in (torch, fl):
        assert lib.vmap(lambda a, b=None: a * b)(lib.ones(3), b=lib.ones(4)).shape == (3, 4)


def test_forward_jacobians_take_and_give_trees():
    def of(lib):
        found = lib.func.jacfwd(lambda d, x: {"o": d["a"] * d["b"] * x}, argnums=(0, 1))({"a": lib.arange(2.0), "b": lib.ones(2)}, lib.ones(2))
        by_dict, by_x = found["o"]
        return by_dict["a"].tolist(), by_dict["b"].tolist(), by_x.tolist()

    assert of(fl) == of(torch)


def test_what_comes_beside_a_forward_jacobian_has_no_graph():
    assert not fl.func.jacfwd(lambda x: (x**2, x), has_aux=True)(fl.ones(2))[1].requires_grad
