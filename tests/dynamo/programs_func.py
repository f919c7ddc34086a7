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
        return (y**2).sum() * scale, {"y": y, "n": len(params)}

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


@program(breaks=True)
def vmap_with_the_same_random_numbers(T):
    def f(x):
        y = x + 1
        return T.vmap(lambda a: a + T.rand(2).ge(2), randomness="same")(y) * 2

    return f, (v(T, 6).reshape(3, 2),)
