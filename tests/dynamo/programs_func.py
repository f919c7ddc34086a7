"""Small programs that take derivatives of functions and map them over batches: each is one graph."""

from __future__ import annotations

from collections import namedtuple

from programs import program, v

Pair = namedtuple("Pair", "a b")


def w(T, n=4):
    return (v(T, n) / 3).requires_grad_()


@program
def grad_of_a_function(T):
    return (lambda x: T.func.grad(lambda a: (a.sin() * a).sum())(x)), (v(T),)


@program
def grad_made_outside(T):
    g = T.func.grad(lambda a, b: (a.sin() * b).sum(), argnums=(1, 0))
    return (lambda x, y: g(x + 1, b=y) if False else g(x + 1, y)), (v(T), v(T) * 2)


@program
def grad_of_tree_with_aux(T):
    def loss(params, x, *, scale):
        y = params["w"] * x + params["b"][0]
        return (y**2).sum() * scale, {"y": y, "n": y.sum()}

    def f(params, x):
        gradients, aux = T.func.grad(loss, has_aux=True)(params, x, scale=0.5)
        return {k: gradients[k] for k in sorted(gradients)}, aux

    return f, ({"w": v(T), "b": [v(T) * 2]}, v(T))


@program
def grad_and_value_of_two(T):
    def f(x, y):
        gradients, (value, aux) = T.func.grad_and_value(lambda a, b: ((a * b).sum(), a + b), argnums=(0, 1), has_aux=True)(x, y)
        return gradients, value, aux

    return f, (v(T), v(T) + 3)


@program
def grad_closes_over_a_tensor(T):
    def f(x, weight):
        y = x * 2
        return T.func.grad(lambda a: ((a * weight).cos() * y).sum())(x) * weight

    return f, (v(T), w(T))


@program
def grad_of_an_input_that_has_one(T):
    return (lambda x: T.func.grad(lambda a: (a**3).sum())(x) * x), (w(T),)


@program
def grad_without_grad(T):
    def f(x):
        with T.no_grad():
            g = T.func.grad(lambda a: (a**3).sum())(x)
        return g, g * x

    return f, (w(T),)


@program
def no_grad_inside_of_grad(T):
    def f(x):
        def inner(a):
            with T.no_grad():
                b = a * 2
            return (a * b).sum() + (a.detach() * a).sum()

        return T.func.grad(inner)(x)

    return f, (v(T),)


@program
def grad_of_grad_of_grad(T):
    grad = T.func.grad
    return (lambda x: grad(grad(grad(lambda a: a**4 + a.sin())))(x[1])), (v(T),)


@program
def grad_of_a_function_that_writes(T):
    def f(x):
        def inner(a):
            b = a.clone()
            b.mul_(a)
            b[0] = 5
            return (b * b).sum()

        return T.func.grad(inner)(x)

    return f, (v(T),)


@program
def grads_in_a_loop(T):
    def f(x):
        for i in range(3):
            x = x - 0.1 * T.func.grad(lambda a, i=i: ((a - i) ** 2).sum())(x)
        return x

    return f, (v(T),)


@program
def grad_as_a_decorator(T):
    @T.func.grad
    def slope(a):
        return (a**2).sum()

    return (lambda x: slope(x) + slope.__name__.count("o")), (v(T),)


@program
def grad_of_a_method(T):
    class Energy:
        def __init__(self):
            self.k = 3.0

        def value(self, a):
            return (self.k * a**2).sum()

        def force(self, a):
            return -T.func.grad(self.value)(a)

    return (lambda e, x: e.force(x)), (Energy(), v(T))


@program
def grad_of_a_module(T):
    class Potential(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = T.nn.Linear(4, 3)
            T.nn.init.constant_(self.inner.weight, 0.3)
            T.nn.init.constant_(self.inner.bias, 0.1)

        def forward(self, x):
            return T.func.grad(lambda a: self.inner(a).tanh().sum())(x)

    return (lambda m, x: m(x)), (Potential(), v(T))


@program
def vjp_with_aux(T):
    def f(x, y):
        out, pullback, aux = T.func.vjp(lambda a, b: ((a * b, {"e": a.exp()}), a - b), x, y, has_aux=True)
        return out, pullback((y, {"e": x})), pullback((x, {"e": x})), aux

    return f, (v(T), v(T) / 2)


@program
def jvp_with_aux(T):
    def f(x, y):
        return T.func.jvp(lambda a, b: (a * b, a.sum()), (x, y), (y, x)), T.func.jvp(lambda a: (a.sin(), a), (x,), (y,), has_aux=True)

    return f, (v(T), v(T) / 2)


@program
def linearized(T):
    def f(x, y):
        value, along = T.func.linearize(lambda a: a.sin() * 2, x)
        return value, along(y)

    return f, (v(T), v(T) / 2)


@program
def jacobians(T):
    def f(x, y):
        rows = T.func.jacrev(lambda a, b: (a * b, a.sum() * b), argnums=(0, 1))(x, y)
        columns = T.func.jacfwd(lambda a, b: (a.sin() * b, a), argnums=1, has_aux=True)(x, y)
        return rows, columns

    return f, (v(T, 2), v(T, 2) / 2)


@program
def hessians(T):
    def f(x):
        energy = lambda a: (a**3).sum() * a[0]
        return T.func.hessian(energy)(x), T.func.jacfwd(T.func.jacrev(energy))(x)

    return f, (v(T, 3),)


@program
def vmap_of_pairs(T):
    def f(x, y):
        def one(a, pair, k):
            return a @ pair.a * k, {"s": pair.b + a.sum()}

        return T.vmap(one, in_dims=(0, Pair(1, None), None), out_dims=(0, {"s": 1}))(x, Pair(x.T, y), 2)

    return f, (v(T, 6).reshape(3, 2), v(T, 2))


@program
def vmap_nested_with_chunks(T):
    def f(x, y):
        return T.func.vmap(T.func.vmap(lambda a, b: a * b, (0, None)), (0, 0), chunk_size=2)(x, y)

    return f, (v(T, 6).reshape(3, 2), v(T, 3))


@program
def gradients_of_each_sample(T):
    def f(params, xs, ys):
        def loss(params, x, y):
            return ((params["w"] @ x + params["b"] - y) ** 2).sum()

        return T.func.vmap(T.func.grad(loss), in_dims=(None, 0, 0))(params, xs, ys)

    return f, ({"w": v(T, 6).reshape(2, 3), "b": v(T, 2)}, v(T, 9).reshape(3, 3) / 9, v(T, 6).reshape(3, 2))


@program
def vmap_with_random_numbers(T):
    def f(x):
        return T.vmap(lambda a: T.nn.functional.dropout(a, 0.0) + T.rand(2).ge(2), randomness="different")(x)

    return f, (v(T, 6).reshape(3, 2),)


@program
def called_functionally(T):
    def f(m, x, y):
        params = dict(m.named_parameters())

        def loss(params):
            return ((T.func.functional_call(m, params, (x,)) - y) ** 2).mean()

        gradients = T.func.grad(loss)(params)
        other = {name: p * 2 for name, p in params.items()}
        return gradients, T.func.functional_call(m, other, x), m(x)

    m = T.nn.Sequential(T.nn.Linear(4, 3), T.nn.Tanh(), T.nn.Linear(3, 2))
    for i, p in enumerate(m.parameters()):
        T.nn.init.constant_(p, 0.1 * (i + 1))
    return f, (m, v(T, 8).reshape(2, 4), v(T, 4).reshape(2, 2))


@program
def an_ensemble(T):
    def f(base, params, buffers, x):
        return T.vmap(lambda p, b, x: T.func.functional_call(base, (p, b), (x,)), (0, 0, None))(params, buffers, x)

    models = [T.nn.Linear(4, 2) for _ in range(3)]
    for i, p in enumerate(p for m in models for p in m.parameters()):
        T.nn.init.constant_(p, 0.1 * (i + 1))
    return f, (models[0], *T.func.stack_module_state(models), v(T, 8).reshape(2, 4))


@program
def errors_of_transforms(T):
    def f(x):
        texts = []
        for call in (lambda: T.func.grad(lambda a: a)(x), lambda: T.func.grad(lambda a: 1.0)(x), lambda: T.func.jvp(abs, x, x),
                     lambda: T.vmap(lambda a, b: a)(x, x[:2]), lambda: T.vmap(lambda a: a, in_dims=3)(x)):
            try:
                call()
            except (RuntimeError, ValueError) as error:
                texts.append(str(error))
        return x * len(texts), texts

    return f, (v(T),)


@program
def vmap_with_the_same_random_numbers(T):
    def f(x):
        y = x + 1
        return T.vmap(lambda a: a + T.rand(2).ge(2), randomness="same")(y) * 2

    return f, (v(T, 6).reshape(3, 2),)


@program
def vmap_of_what_it_is_given(T):
    def f(x, y):
        return T.vmap(lambda a, b: (a, b, (a, a.sum()), y * 2), in_dims=(1, None), out_dims=(0, None, (1, 0), None))(x, y)

    return f, (v(T, 6).reshape(3, 2), v(T, 2))


@program(breaks=True)
def vmap_whose_example_leaves(T):
    def f(x):
        kept = []
        y = T.vmap(lambda a: (kept.append(a), a * 2)[1])(x)
        return y, (kept[0] * 2).ndim

    return f, (v(T, 6).reshape(3, 2),)


@program(breaks=True)
def vmap_that_may_not_draw(T):
    def f(x):
        try:
            return T.vmap(lambda a: a + T.rand(2))(x)
        except RuntimeError as error:
            return str(error)[:40]

    return f, (v(T, 6).reshape(3, 2),)


# -- cond and while_loop ---------------------------------------------------------------------------------------------------------
def both(T, f):
    """A program that takes both branches of its cond."""
    return (lambda x, weight: [f(p, x + 1, weight) for p in (x.sum() > 0, x.sum() < 0)]), (v(T) / 4, w(T))


@program
def cond_closes_over(T):
    def f(p, x, weight):
        y = x * 2
        return T.cond(p, lambda a: (a * weight * y).sin(), lambda a: a @ weight + y, (x,)) * 3

    return both(T, f)


@program
def cond_of_trees(T):
    def f(p, x, weight):
        def taken(d, k=2):
            made = []
            for i in range(k):
                made.insert(0, d["a"] * weight * i)
            return Pair({"k": sum(made)}, [d["b"][0] > 0, 3])

        return T.cond(p, taken, lambda d: Pair({"k": d["b"][0] * weight}, [d["a"] < 0, 3]), operands=({"a": x, "b": [x + 1]},))

    return both(T, f)


@program
def cond_in_cond(T):
    def f(p, x, weight):
        def inner(a):
            return T.cond(a.sum() > weight.sum(), lambda b: b * weight, lambda b: b - 1, (a,))

        return T.cond(p, inner, lambda a: a.cos(), (x,)) + T.cond(p.logical_not(), inner, inner, (x,))

    return both(T, f)


@program
def cond_in_grad(T):
    def f(p, x, weight):
        outer = T.func.grad(lambda a: T.cond(p, lambda b: (b * weight).sin(), lambda b: b**3, (a,)).sum())(x)
        return outer + T.cond(p, lambda a: T.func.grad(lambda b: (b**3 * weight).sum())(a), lambda a: a * weight, (x,))

    return both(T, f)


@program
def cond_without_grad(T):
    def f(p, x, weight):
        with T.no_grad():
            y = T.cond(p, lambda a: a * weight, lambda a: a + 1, (x,))
        return y * x

    return both(T, f)


@program
def cond_in_vmap(T):
    def f(p, x, weight):
        def one(a):
            return T.cond(p, lambda b: b * weight * a.sum(), lambda b: (a - b).sum() * weight, (a * 2,))

        square = x.reshape(2, 2)
        return T.vmap(one)(square.T @ square + T.eye(2))

    return both(T, lambda p, x, weight: f(p, x, weight[:2]))


@program(breaks=True)
def while_loop_in_vmap(T):
    return (lambda x: T.vmap(lambda a: T.while_loop(lambda b: x.sum() > 100, lambda b: (b * 2,), (a * 1,))[0])(x)), (v(T, 6).reshape(3, 2),)


@program
def cond_in_autocast(T):
    def f(p, x, weight):
        with T.autocast("cpu", dtype=T.bfloat16):
            return T.cond(p, lambda a: a @ weight, lambda a: (weight * 2) @ a, (x,)).float()

    return both(T, f)


@program
def derivatives_in_inference_mode(T):
    def f(x):
        def cube(a):
            return (a**3).sum()

        with T.inference_mode():
            return T.func.grad(cube)(x), T.func.hessian(cube)(x * 2), T.cond(x.sum() > 0, T.sin, T.cos, (x,))

    return f, (v(T),)


@program
def cond_of_python_values(T):
    def f(x, flag):
        x = T.cond(flag, lambda a: a, lambda a: a[0], (x,))
        return T.cond(x.shape[0] > 2, lambda a: (a, 1), lambda a: a + 1, (x,))

    return f, (v(T), True)


@program
def cond_refuses(T):
    def f(x):
        texts = []
        for args in (("a", abs, abs), (True, 1, abs), (True, abs, abs, 3)):
            try:
                T.cond(*args)
            except RuntimeError as error:
                texts.append(str(error)[:30])
        return x * len(texts), texts

    return f, (v(T),)


@program
def while_loop_of_tensors(T):
    def f(x, weight):
        limit = weight.sum() + 10
        steps, y, same = T.while_loop(lambda i, y, z: (i < 5) & (y.sum() < limit), lambda i, y, z: [i + 1, y * weight + z, x * 2],
                                      (T.zeros((), dtype=T.int64), x * 1, x))  # fmt: skip
        return steps, y * same

    return f, (v(T), w(T))


@program
def while_loop_that_never_runs(T):
    def f(x, weight):
        return T.while_loop(lambda y: y.sum() < 0, lambda y: (y * weight,), (x.cos().abs(),))[0] * weight

    return f, (v(T), w(T))


@program
def while_loop_of_ints(T):
    return (lambda x: T.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x))), (v(T),)


_BRANCHES = {
    "appends": lambda T, a, found, bump: (found.append(1), a * 2)[1],
    "counts": lambda T, a, found, bump: a * bump(),
    "gives_what_it_takes": lambda T, a, found, bump: a,
    "gives_a_view": lambda T, a, found, bump: a[:],
    "gives_one_tensor_twice": lambda T, a, found, bump: (lambda b: (b, b))(a * 2),
    "writes": lambda T, a, found, bump: a.add_(1) * 2,
    "gives_another_shape": lambda T, a, found, bump: a[:2] * 2,
    "gives_another_dtype": lambda T, a, found, bump: a.double(),
    "gives_other_strides": lambda T, a, found, bump: a.sum().expand(4),
    "gives_another_structure": lambda T, a, found, bump: {"a": a * 2},
    "gives_a_number": lambda T, a, found, bump: 3,
    "prints": lambda T, a, found, bump: (print("taken"), a * 2)[1],
    "reads": lambda T, a, found, bump: a * a.sum().item(),
    "draws": lambda T, a, found, bump: a + T.rand(4).ge(2),
    "raises": lambda T, a, found, bump: int("x"),
}


def _breaking(branch):
    """A program that can't have `branch` in its graph."""

    def made(T):
        def f(x, found):
            y = x * 2
            count = 0
            numbers = iter((2, 3))

            def bump():
                nonlocal count
                count += 1
                return next(numbers)

            try:
                out = T.cond(y.sum() > 0, lambda a: branch(T, a, found, bump), lambda a: a + 1, (y,))
            except ValueError as error:
                out = str(error)
            return out, y, count, next(numbers)

        return f, (v(T), [])

    return made


for name, branch in _BRANCHES.items():
    made = _breaking(branch)
    made.__name__ = f"branch_that_{name}"
    program(made, breaks=True)
