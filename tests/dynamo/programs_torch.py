
"""Small programs about tensors and modules.

`PROGRAMS[name](T)` gives a function and its arguments for the torch or Flambeau module `T`; what the function does to its
arguments is compared as well.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict

import numpy as np
from programs import program, v

from flambeau import _torch_c


# -- tensors ---------------------------------------------------------------------------------------------------------------------
@program
def in_place_on_elements(T):
    def f(xs, table):
        xs[0] += 1
        xs[1].mul_(2)
        table["a"][0] = 5
        table["b"][1:] += 1
        xs[0].add_(xs[1])
        return xs[0] * table["a"]

    return f, ([v(T), v(T)], {"a": v(T), "b": v(T)})


@program
def views_and_mutation(T):
    def f(x):
        y = x.view(2, 2)
        y[0] = 9
        z = x[1:]
        z += 1
        w = x.clone()
        w.t_() if w.ndim == 2 else w.zero_()
        return x * 2, y, z

    return f, (v(T),)


@program(breaks=True)
def data_dependent_branch(T):
    def f(x):
        if x.sum() > 3:
            x = x + 1
        return x * 2

    return f, (v(T),)


@program
def where_and_masks(T):
    def f(x):
        y = T.where(x > 2, x, -x)
        y = y.masked_fill(x == 1, 7.0)
        return y, (x > 2).sum(), x.clamp(max=2), T.maximum(x, y)

    return f, (v(T),)


@program(breaks=True)
def item_and_tolist(T):
    def f(x):
        n = x.max().item()
        values = x.tolist()
        return x * n + len(values) + values[0], int(x[0]), float(x[1])

    return f, (v(T),)


@program
def numpy_inside(T):
    def f(x):
        a = x.numpy() * 2
        b = np.maximum(a, 3)
        return T.from_numpy(b) + x

    return f, (v(T),)


@program
def numpy_functions(T):
    def f(x, n):
        a = np.sqrt(n)
        b = np.arange(4).sum()
        return x * float(a) + int(b)

    return f, (v(T), 16)


@program
def nonzero(T):
    return (lambda x: x[x > 2] * 2), (v(T),)


@program
def tensor_attributes(T):
    def f(x):
        y = x * 2
        y.tag = "mine"
        x.note = 5
        return y, y.tag, x.note

    return f, (v(T),)


@program
def shapes_and_dtypes(T):
    def f(x):
        b, *rest = x.reshape(2, 2).shape
        return (x.to(T.float64) * b, x.size(0), x.numel(), x.dtype is T.float32, x.device.type, x.is_floating_point(), rest, x.new_zeros(2),
                T.zeros_like(x), x.type_as(x), T.float32.itemsize, len(x), x.stride(), T.finfo(x.dtype).max > 1)  # fmt: skip

    return f, (v(T),)


@program
def functions_of_tensors(T):
    fns = [T.sin, lambda t: t + 1]

    def f(x):
        for fn in fns:
            x = fn(x)
        table = {"relu": T.relu, "sum": T.sum}
        act = T.nn.functional.gelu
        return table["relu"](x), act(x), T.stack([x, x]).mean(0), T.cat(list(x.split(2))), sum(x.unbind())

    return f, (v(T),)


@program
def iteration_over_tensors(T):
    def f(x):
        total = 0
        for i, row in enumerate(x.reshape(2, 2)):
            a, b = row
            total = total + a * b + i
        return total, [r + 1 for r in x], list(zip(x, [1, 2, 3, 4], strict=True))[1]

    return f, (v(T),)


# -- modules ---------------------------------------------------------------------------------------------------------------------
@program
def buffers(T):
    class Model(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", T.zeros(()))
            self.register_buffer("cache", None, persistent=False)
            self.steps = 0

        def forward(self, x):
            self.count += 1
            self.steps += 1
            self.cache = x * 2
            return x * self.count + self.steps

    model = Model()
    return (lambda x: (model(x) + model(x), model.count, model.cache, model.steps, [name for name, _ in model.named_buffers()])), (v(T),)


@program
def module_hooks(T):
    class Model(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = T.nn.Linear(4, 4)
            with T.no_grad():
                self.lin.weight.fill_(0.5), self.lin.bias.fill_(1)

        def forward(self, x):
            return self.lin(x) * 2

    model = Model()
    model.lin.register_forward_hook(lambda module, args, out: out + 1)
    model.lin.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    return (lambda x: model(x)), (v(T),)


@program
def parametrization(T):
    class Sym(T.nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).T

    lin = T.nn.Linear(4, 4)
    with T.no_grad():
        lin.weight.copy_(T.arange(16).reshape(4, 4)), lin.bias.zero_()
    T.nn.utils.parametrize.register_parametrization(lin, "weight", Sym())
    return (lambda x: lin(x)), (v(T),)


@program
def module_containers(T):
    def lin(n):
        made = T.nn.Linear(4, 4)
        with T.no_grad():
            made.weight.fill_(n), made.bias.fill_(1)
        return made

    class Model(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = T.nn.ModuleList([lin(1), lin(0.5)])
            self.heads = T.nn.ModuleDict({"a": lin(0.1), "b": T.nn.Identity()})
            self.seq = T.nn.Sequential(OrderedDict(one=lin(0.2), two=T.nn.ReLU()))
            self.params = T.nn.ParameterList([T.nn.Parameter(T.ones(4))])

        def forward(self, x, head="a"):
            for i, block in enumerate(self.blocks):
                x = block(x) + i
            names = [name for name, _ in self.named_children()]
            return self.heads[head](self.seq(x)) * self.params[0], names, len(self.blocks), self.training, len(list(self.parameters()))

    model = Model()
    return (lambda x: model(x, head="b")), (v(T),)


@program
def module_modes(T):
    model = T.nn.Sequential(T.nn.Dropout(0.5), T.nn.BatchNorm1d(4)).eval()

    def f(x):
        with T.no_grad():
            y = model(x[None])
        return y, model.training, T.is_grad_enabled()

    return f, (v(T),)


@program
def autograd_scopes(T):
    w = (v(T) * 2).requires_grad_()

    @T.no_grad()
    def frozen(x):
        return x * w

    def f(x):
        a = frozen(x)
        with T.enable_grad():
            b = x * w
        with T.set_grad_enabled(False):
            c = x * w
        return a, b, c, (x * w).detach(), b.requires_grad, c.requires_grad

    return f, (v(T),)


@program(breaks=True)
def backward_inside(T):
    w = v(T).requires_grad_()

    def f(x):
        loss = (x * w).sum()
        loss.backward()
        grad = w.grad.clone()
        w.grad = None
        return grad

    return f, (v(T),)


# -- what torch has in one graph -------------------------------------------------------------------------------------------------
@program
def aten_operators(T):
    table = [T.ops.aten.sin, T.ops.aten.cos.default]

    def f(x):
        for operator in table:
            x = operator(x)
        return T.ops.aten.add.Tensor(x, x, alpha=2), T.ops.aten.sum.dim_IntList(x, [0])

    return f, (v(T),)


@program
def record_function(T):
    @T.profiler.record_function("decorated")
    def twice(x):
        return x * 2

    given = T.profiler.record_function("given")

    def f(x):
        with T.profiler.record_function("block"), given:
            y = twice(x)
        return y + 1, given.name

    return f, (v(T),)


@program
def profile_block(T):
    def f(x):
        with T.profiler.profile(activities=[T.profiler.ProfilerActivity.CPU]):
            y = x * 2
        return y + 1

    return f, (v(T),)


@program(breaks=True)
def record_function_around_a_break(T):
    def f(x):
        with T.profiler.record_function("block") as block:
            y = x * 2
            print("in it")
            y = y + 1
        return y, block.name

    return f, (v(T),)


@program
def mark_dirty(T):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def f(x):
        y = x * 1
        z = Double.apply(y)
        Double.apply(y)
        return z.sin(), y, z is y

    return f, (v(T).requires_grad_(),)


@program
def lazy_modules(T):
    T.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = T.nn.Sequential(T.nn.LazyLinear(3), T.nn.ReLU(), T.nn.LazyLinear(2))

    def f(x):
        return model(x).shape, type(model[0]) is T.nn.Linear

    return f, (T.ones(2, 4),)


@program
def class_of_results(T):
    class Marked(T.Tensor):
        def twice(self):
            return self * 2

    def f(x, y):
        made = y.as_subclass(Marked) + 1
        return [type(t).__name__ for t in (x * 2, x.twice(), made, x + y)], isinstance(made, Marked), x.twice(), made

    return f, (v(T).as_subclass(Marked), v(T))


@program
def flags_of_leaves(T):
    T.manual_seed(0)
    model = T.nn.Sequential(T.nn.Linear(4, 3), T.nn.Linear(3, 2))

    def f(x):
        model[0].requires_grad_(False)
        for name, parameter in model[1].named_parameters():
            parameter.requires_grad = name == "bias"
        x.requires_grad_().requires_grad_(False)
        y = model(x)
        return y, [p.requires_grad for p in model.parameters()], x.is_leaf, T.autograd.grad(y.sum(), model[1].bias)

    return f, (v(T),)


@program(breaks=True)
def flags_of_leaves_that_were_used(T):
    weight = v(T).requires_grad_()

    def f(x):
        y = weight * x
        weight.requires_grad_(False)
        return y, weight * x, weight.requires_grad

    return f, (v(T),)


@program
def grad_mode_by_its_private_name(T):
    w = v(T).requires_grad_()

    def f(x):
        before = T.is_grad_enabled()
        _torch_c._set_grad_enabled(False)
        y = x * w
        _torch_c._set_grad_enabled(before)
        return y, x * w, y.requires_grad, T.is_grad_enabled()

    return f, (v(T),)
