"""What a Function's context, its node and its hooks tell and refuse: each probe beside torch."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
PROBES = {}


def probe(fn):
    PROBES[fn.__name__] = fn
    return fn


def function(lib, forward, backward=lambda ctx, g: g, **others):
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)} if backward else {"forward": staticmethod(forward)}
    return type("Mine", (lib.autograd.Function,), members | {k: staticmethod(v) if callable(v) else v for k, v in others.items()})


def leaf(lib):
    return lib.tensor([1.0, 2.0], requires_grad=True)


def keep(ctx, x):
    ctx.save_for_backward(x)
    ctx.note = 7
    return x * 2


@probe
def node_has_what_the_context_has(lib):
    y = function(lib, keep, lambda ctx, g: g * ctx.note).apply(leaf(lib))
    node = y.grad_fn
    return (node.note, node.saved_tensors[0].tolist(), node.needs_input_grad, node.dirty_tensors, node.requires_grad,
            node.name(), isinstance(node, type(y.grad_fn)))


@probe
def class_of_the_nodes(lib):
    mine = function(lib, keep)
    return isinstance(mine.apply(leaf(lib)).grad_fn, mine._backward_cls), mine._backward_cls.__name__


@probe
def context_in_backward_is_the_node(lib):
    seen = []
    function(lib, keep, lambda ctx, g: (seen.append((ctx.name(), len(ctx.next_functions))), g)[1]).apply(leaf(lib)).sum().backward()
    return seen


@probe
def saved_after_backward(lib):
    y = function(lib, keep).apply(leaf(lib))
    y.sum().backward()
    return y.grad_fn.saved_tensors


@probe
def vjp_is_backward(lib):
    x = leaf(lib)
    function(lib, keep, None, vjp=lambda ctx, g: g * 5).apply(x).sum().backward()
    return x.grad.tolist()


@probe
def both_are_refused(lib):
    function(lib, keep, vjp=lambda ctx, g: g * 5).apply(leaf(lib)).sum().backward()


@probe
def old_style_call(lib):
    return function(lib, keep)()(leaf(lib))


@probe
def saving_a_number(lib):
    return function(lib, lambda ctx, x: (ctx.save_for_backward(3), x * 2)[1]).apply(leaf(lib))


@probe
def gradient_is_a_number(lib):
    function(lib, keep, lambda ctx, g: 1).apply(leaf(lib)).sum().backward()


@probe
def dirty_is_not_returned(lib):
    return function(lib, lambda ctx, x: (ctx.mark_dirty(x), x * 2)[1]).apply(leaf(lib) * 1)


@probe
def dirty_is_a_number(lib):
    return function(lib, lambda ctx, x: (ctx.mark_dirty(3), x * 2)[1]).apply(leaf(lib) * 1)


@probe
def two_rules_of_vmap(lib):
    mine = function(lib, lambda x: x * 2, generate_vmap_rule=True, setup_context=lambda ctx, inputs, output: None,
                    vmap=lambda info, dims, x: (x, 0))
    return lib.vmap(mine.apply)(lib.ones(2, 2))


@probe
def order_of_hooks(lib):
    seen, y = [], leaf(lib) * 2
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_prehook(lambda gs: seen.append("node"))
    y.register_hook(lambda g: seen.append("tensor again"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("after"))
    y.sum().backward()
    return seen


@probe
def hooks_of_a_sink(lib):
    seen, x = [], leaf(lib)
    sink = (x * 1).grad_fn.next_functions[0][0]
    sink.register_hook(lambda gi, go: seen.append(("after", len(gi), go[0].tolist(), x.grad.tolist())))
    sink.register_prehook(lambda gs: seen.append("before"))
    x.register_hook(lambda g: seen.append("tensor"))
    (x * 2).sum().backward()
    return seen


@probe
def prehook_gives_no_tuple(lib):
    y = leaf(lib) * 2
    y.grad_fn.register_prehook(lambda gs: gs[0])
    y.sum().backward()


@probe
def anomaly_tells_where(lib):
    with lib.autograd.set_detect_anomaly(True):
        y = function(lib, keep, lambda ctx, g: g * float("nan")).apply(leaf(lib)).sum()
    lines = "".join(y.grad_fn.next_functions[0][0].metadata["traceback_"])
    with pytest.warns(UserWarning, match="Error detected in MineBackward.*Traceback of forward call") as told, \
            lib.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError) as error:
        y.backward()
    return "anomaly_tells_where" in lines, "anomaly_tells_where" in str(told[0].message), str(error.value)


@probe
def at_the_end_of_a_pass(lib):
    seen, x = [], leaf(lib)
    engine = lib.autograd.Variable._execution_engine
    x.register_hook(lambda g: (engine.queue_callback(lambda: seen.append("end")), seen.append("hook"))[0])
    (x * 2).sum().backward()
    return seen


@probe
def uncounted_writes(lib):
    x = leaf(lib)
    y = x.exp()
    with lib.autograd._unsafe_preserve_version_counter(y):
        y.data.mul_(1)
        with lib.no_grad():
            y.mul_(2)
    y.sum().backward()
    return x.grad.tolist(), y._version


@probe
def real_gradient_of_a_complex_output(lib):
    x = lib.ones(2, dtype=lib.complex64, requires_grad=True)
    return lib.autograd.grad(x * 2, x, lib.ones(2))


@probe
def complex_gradient_of_a_real_output(lib):
    x = leaf(lib)
    return lib.autograd.grad(x * 2, x, lib.ones(2, dtype=lib.complex64))


@probe
def written_since(lib):
    x = leaf(lib)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    return str(error.value).partition(" Hint")[0]


def outcome(lib, probe):
    try:
        return PROBES[probe](lib)
    except (RuntimeError, TypeError) as error:
        return type(error).__name__, str(error).replace("argument 0", "argument")[:40]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*")
@pytest.mark.parametrize("probe", PROBES)
def test_like_torch(probe):
    assert outcome(fl, probe) == outcome(torch, probe)


def test_checkpoints_warn_of_the_default_and_of_inputs_without_gradients():
    for lib in (fl, torch):
        checkpoint = lib.utils.checkpoint.checkpoint
        with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
            checkpoint(lambda x: x.sin(), leaf(lib))
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
            checkpoint(lambda x: x.sin(), lib.ones(2), use_reentrant=True)


@pytest.mark.parametrize("call", [lambda f, x: f.apply(x=x), lambda f, x: f.apply(x, k=3.0), lambda f, x: f.apply(k=3.0, x=x),
                                  lambda f, x: f.apply(x), lambda f, x: f.apply(x, 2.0, x)])
@pytest.mark.parametrize("compiled", [False, True])
def test_arguments_by_name_are_differentiated(call, compiled):
    def program(lib):
        class Scaled(lib.autograd.Function):
            @staticmethod
            def forward(x, k=2.0, *more):
                return x * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.given, ctx.k = len(inputs), inputs[1]

            @staticmethod
            def backward(ctx, g):
                return g * ctx.k * 7, *(None,) * (ctx.given - 1)

        x = lib.ones(2, requires_grad=True)
        step = lib.compile(lambda x: call(Scaled, x), backend="eager") if compiled and lib is not torch else lambda x: call(Scaled, x)
        step(x).sum().backward()
        return x.grad.tolist()

    assert program(fl) == program(torch)


def test_a_saved_output_requires_a_gradient_in_a_plain_backward():
    for t in (torch, fl):
        seen = []

        class Exp(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y, x)
                return y

            @staticmethod
            def backward(ctx, g):
                y, x = ctx.saved_tensors
                seen.append((y.requires_grad, y.is_leaf, x.requires_grad, t.is_grad_enabled()))
                return g * y

        for create_graph in (False, True):
            x = t.ones(2, requires_grad=True)
            t.autograd.grad(Exp.apply(x).sum(), x, create_graph=create_graph)
        assert seen == [(True, False, True, False), (True, False, True, True)]
