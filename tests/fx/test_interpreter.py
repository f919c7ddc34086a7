"""Interpreter, Transformer, replace_pattern, and symbolic tracing, on plain Python values."""

import gc
import math
import operator
import weakref

import pytest

from flambeau import fx, nn


def test_interpreter_agrees_with_the_printed_code():
    def f(a, b=2, *rest, **options):
        return {"s": [a + b, rest[0]], "o": options}, (a, slice(b, None))

    gm = fx.symbolic_trace(f)
    assert gm(1, 5, 7) == ({"s": [6, 7], "o": {}}, (1, slice(5, None)))
    assert fx.Interpreter(gm).run(1, 5, 7) == ({"s": [6, 7], "o": {}}, (1, slice(5, None)))


def test_interpreter_defaults_and_missing_arguments():
    gm = fx.symbolic_trace(lambda a, b=3: a - b)
    assert fx.Interpreter(gm).run(10) == 7
    with pytest.raises(RuntimeError, match="none is left for parameter 'a'"):
        fx.Interpreter(gm).run()


def test_interpreter_initial_env_and_hook():
    gm = fx.symbolic_trace(lambda a: (a + 1) * 2)
    seen = []

    class Watch(fx.Interpreter):
        def run_node(self, n):
            value = super().run_node(n)
            seen.append((n.name, value))
            return value

    assert Watch(gm).run(3) == 8
    assert seen == [("a", 3), ("add", 4), ("mul", 8), ("output", 8)]
    add = gm.graph.find_nodes(op="call_function", target=operator.add)[0]
    assert fx.Interpreter(gm).run(3, initial_env={add: 50}) == 100


def test_interpreter_frees_values_early():
    class Thing:
        pass

    alive = []

    def make(x):
        thing = Thing()
        alive.append(weakref.ref(thing))
        return thing

    def count(thing):
        gc.collect()
        return sum(ref() is not None for ref in alive)

    graph = fx.Graph()
    x = graph.placeholder("x")
    things = [graph.call_function(make, (x,))]
    counts = []
    for _ in range(3):
        counts.append(graph.call_function(count, (things[-1],)))
        things.append(graph.call_function(make, (x,)))
    counts.append(graph.call_function(count, (things[-1],)))
    graph.output(counts)
    assert fx.Interpreter(fx.GraphModule({}, graph)).run(1) == [1, 1, 1, 1]
    alive.clear()
    assert fx.GraphModule({}, graph)(1) == [1, 1, 1, 1]


def test_boxed_run_empties_the_list():
    args = [1, 2]
    assert fx.Interpreter(fx.symbolic_trace(lambda a, b: a - b)).boxed_run(args) == -1
    assert args == []


def test_errors_name_the_node_and_the_line():
    gm = fx.symbolic_trace(lambda a, b: a / b)
    gm.graph.find_nodes(op="call_function")[0].meta["stack"] = (("model.py", 7, "forward", "return a / b"),)
    with pytest.raises(ZeroDivisionError) as caught:
        fx.Interpreter(gm).run(1, 0)
    (note,) = caught.value.__notes__
    assert "While executing %truediv" in note and 'File "model.py", line 7, in forward' in note


def test_transformer_rewrites():
    class Double(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is operator.add:
                return super().call_function(operator.mul, args, kwargs) + 1000
            return super().call_function(target, args, kwargs)

    gm = fx.symbolic_trace(lambda a, b=4: {"r": (a + b).bit_length()})
    add = gm.graph.find_nodes(op="call_function")[0]
    add.meta["stack"] = (("f.py", 1, "f", "a + b"),)
    new = Double(gm).transform()
    new.graph.lint()
    assert new(5) == {"r": (1020).bit_length()} and gm(5) == {"r": 4}
    assert all("stack" in n.meta for n in new.graph.find_nodes(op="call_function"))
    assert fx.Transformer(gm).transform().code == gm.code


# -- symbolic tracing --------------------------------------------------------------------------------------------------


def test_all_operators_are_recorded():
    def f(a, b):
        return (
            a + b, a - b, a * b, a // b, a % b, a**b, a / b, a << b, a >> b, a & b, a | b, a ^ b, -a, +a, ~a, abs(a),
            a == b, a != b, a < b, a <= b, a > b, a >= b, 1 + a, 100 - a, 2 * a, 100 / a, 100 // a, 100 % a, 2**a,
            1 << a, 1000 >> a, 7 & a, 8 | a, 9 ^ a, divmod(a, b), round(a),
        )  # fmt: skip

    gm = fx.symbolic_trace(f)
    assert gm(7, 3) == f(7, 3)
    assert len(gm.graph.find_nodes(op="call_function")) == len(f(7, 3))


def test_attributes_methods_and_items():
    def f(x):
        x["k"] = x["k"] + 1
        return x["k"].real, x.get("missing", 5)

    gm = fx.symbolic_trace(f)
    assert gm({"k": 1}) == (2, 5)
    assert [n.op for n in gm.graph.nodes].count("call_method") == 1


@pytest.mark.parametrize(
    "f, error, message",
    [
        (lambda x: 1 if x else 2, fx.TraceError, "symbolically traced variables cannot be used as inputs to control flow: 'x'"),
        (lambda x: [v for v in x], fx.TraceError, "Proxy object cannot be iterated: 'x'"),  # noqa: C416
        (lambda x: 1 in x, fx.TraceError, "Proxy object cannot be iterated: 'x'"),
        (lambda x: len(x), RuntimeError, "'len' is not supported in symbolic tracing by default: 'x'"),
        (lambda x: range(x), TypeError, "cannot be interpreted as an integer"),
        (lambda x: float(x), TypeError, "must be a string or a real number"),
    ],
)
def test_questions_only_a_value_can_answer(f, error, message):
    with pytest.raises(error, match=message) as caught:
        fx.symbolic_trace(f)
    assert "concrete_args" in str(caught.value) or error is not fx.TraceError


def test_unpacking():
    def f(x):
        a, b = x
        (c, d), e = a, b
        return c - d + e

    gm = fx.symbolic_trace(f)
    assert gm(((5, 3), 10)) == 12


def test_concrete_args():
    def f(x, flag, n=2):
        return x + n if flag else x - n

    gm = fx.symbolic_trace(f, concrete_args={"flag": False})
    assert gm(5, False) == 3 and gm(5, False, 1) == 4 and gm(5) == 3
    with pytest.raises(AssertionError, match="flag has been specialized to have value False but got another value: True"):
        gm(5, True)
    with pytest.raises(TypeError, match=r"concrete_args names \['flags'\]"):
        fx.symbolic_trace(f, concrete_args={"flags": 1})


def test_keyword_only_and_closure():
    k = 10

    def f(a, *rest, scale, **options):
        return a * scale + rest[0] + options["o"] + k

    gm = fx.symbolic_trace(f)
    assert gm(2, 3, scale=4, o=5) == f(2, 3, scale=4, o=5)


def test_math_functions_and_wrapped_ones():
    assert fx.symbolic_trace(lambda x: math.floor(x) + math.sqrt(x))(4.0) == 6.0
    gm = fx.symbolic_trace(lambda x: helper(x) + sum(x))
    assert gm([1, 2, 3]) == 12
    assert [n.target for n in gm.graph.find_nodes(op="call_function")][:2] == [helper, sum]
    assert helper([1, 2]) == 3 and "sum" not in globals()
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("len")


@fx.wrap
def helper(x):
    return x[0] + sum(v for v in x[1:])


fx.wrap("sum")


class Leaf(nn.Module):
    def forward(self, x):
        return x * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Module()
        self.block.leaf = Leaf()
        self.leaf = Leaf()

    def forward(self, x):
        return self.leaf(self.block.leaf(x)) + 1


class LeafTracer(fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, Leaf)


def test_modules_are_followed_or_kept_whole():
    model = Model()
    gm = fx.symbolic_trace(model)
    assert gm(3) == 13 and not gm.graph.find_nodes(op="call_module")
    graph = LeafTracer().trace(model)
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["block.leaf", "leaf"]
    assert fx.GraphModule(model, graph)(3) == 13
    assert model(3) == 13


def test_a_module_outside_the_tree_is_refused():
    stray = Leaf()
    with pytest.raises(NameError, match="Leaf was called but is not a submodule"):
        LeafTracer().trace(lambda x: stray(x))


def test_patches_are_undone_after_an_error():
    before = nn.Module.__call__, math.floor
    with pytest.raises(fx.TraceError):
        fx.symbolic_trace(lambda x: bool(math.floor(x)))
    assert (nn.Module.__call__, math.floor) == before


# -- patterns ----------------------------------------------------------------------------------------------------------


def test_replace_pattern():
    gm = fx.symbolic_trace(lambda x, y: abs(x * y + 1) + abs(y * x + 1))
    matches = fx.replace_pattern(gm, lambda a, b: abs(a * b + 1), lambda a, b: (a - b) * 10)
    assert len(matches) == 2 and gm(5, 3) == 20 - 20
    assert matches[0].anchor.target is operator.abs


def test_replace_pattern_chain_uses_new_values():
    gm = fx.symbolic_trace(lambda x: ~(~(~(~x))))
    assert len(fx.replace_pattern(gm, lambda a: ~(~a), lambda a: a + 0)) == 2
    assert gm(3) == 3 and not gm.graph.find_nodes(op="call_function", target=operator.invert)


def test_replace_pattern_leaves_what_is_used_outside():
    def f(x):
        inner = x * 2
        return abs(inner) + inner

    gm = fx.symbolic_trace(f)
    assert fx.replace_pattern(gm, lambda a: abs(a * 2), lambda a: a) == []
    assert gm(3) == 12


def test_replace_pattern_filters_and_constants():
    gm = fx.symbolic_trace(lambda x: (x + 1) * (x + 2))
    assert fx.replace_pattern(gm, lambda a: a + 3, lambda a: a) == []
    only_two = lambda match, graph, pattern: match.anchor.args[1] == 2
    assert len(fx.replace_pattern(gm, lambda a, b: a + b, lambda a, b: a - b, (only_two,))) == 1
    assert gm(5) == 6 * 3
    with pytest.raises(ValueError, match="takes 1 arguments and the replacement 2"):
        fx.replace_pattern(gm, lambda a: a + 1, lambda a, b: a)
