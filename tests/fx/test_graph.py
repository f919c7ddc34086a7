"""Graph and Node: building, editing, liveness, lint, dead code, printing."""

import copy
import math
import operator
import pickle
from collections import namedtuple

import pytest

import flambeau as torch
from flambeau import fx
from flambeau.fx.lint import GraphLintError
from flambeau.fx.node import last_uses, map_aggregate

Point = namedtuple("Point", "x y")


def names(graph):
    return [node.name for node in graph.nodes]


@pytest.fixture
def chain():
    """x -> a = x + 1 -> b = a * 2 -> output."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.add, (x, 1))
    b = graph.call_function(operator.mul, (a, 2))
    graph.output(b)
    return graph, x, a, b


def run(graph, *args):
    return fx.GraphModule({}, graph)(*args)


def test_users_and_inputs_follow_the_arguments(chain):
    _graph, x, a, b = chain
    assert list(x.users) == [a] and a.all_input_nodes == [x]
    b.args = (x, a)
    assert list(x.users) == [a, b] and b.all_input_nodes == [x, a]
    b.kwargs = {"k": [a, {"deep": slice(x, None)}]}
    assert b.all_input_nodes == [x, a]
    b.args, b.kwargs = (), {}
    assert list(x.users) == [a] and not a.users


def test_nested_arguments_are_seen_and_cannot_be_written(chain):
    graph, x, a, b = chain
    node = graph.call_function(max, ([x, (a, {"k": b})], Point(x, 1)))
    assert node.all_input_nodes == [x, a, b]
    assert isinstance(node.args[1], Point) and node.args[1].x is x
    with pytest.raises(TypeError, match=r"assign node\.args"):
        node.args[0].append(1)
    with pytest.raises(TypeError):
        node.args[0][1][1]["k"] = 1
    assert hash(node.args[0]) == hash(node.args[0])


def test_map_aggregate_keeps_containers():
    value = (1, [2, {"k": 3}], Point(4, 5), slice(6, None, 7))
    mapped = map_aggregate(value, lambda leaf: leaf if leaf is None else leaf * 10)
    assert mapped == (10, [20, {"k": 30}], Point(40, 50), slice(60, None, 70))
    assert isinstance(mapped[2], Point)


def test_replace_all_uses_with(chain):
    graph, _x, a, b = chain
    with graph.inserting_after(a):
        c = graph.call_function(operator.neg, (a,))
    assert a.replace_all_uses_with(c) == [b]
    assert b.args == (c, 2) and c.args == (a,) and list(a.users) == [c]
    graph.lint()
    assert run(graph, 3) == -8
    assert c.replace_all_uses_with(a, lambda user: False) == []


def test_replace_all_uses_with_propagates_meta(chain):
    graph, x, a, _b = chain
    a.meta["val"] = 1
    with graph.inserting_after(a):
        c = graph.call_function(operator.neg, (x,))
    a.replace_all_uses_with(c, propagate_meta=True)
    assert c.meta == {"val": 1}
    with pytest.raises(ValueError, match="already has meta"):
        a.replace_all_uses_with(c, propagate_meta=True)


def test_replace_input_with_and_arg_helpers(chain):
    _graph, x, a, b = chain
    b.replace_input_with(a, x)
    assert b.args == (x, 2) and not a.users
    b.update_arg(1, a)
    assert b.args == (x, a)
    b.insert_arg(0, 7)
    assert b.args == (7, x, a)
    b.update_kwarg("k", a)
    assert b.kwargs == {"k": a}


def test_moving_and_insert_points(chain):
    graph, x, a, b = chain
    with graph.inserting_before(b):
        graph.call_function(abs, (a,), name="first")
        graph.call_function(abs, (a,), name="second")
    with graph.inserting_after(x):
        graph.call_function(abs, (x,), name="third")
        graph.call_function(abs, (x,), name="fourth")
    assert names(graph) == ["x", "third", "fourth", "add", "first", "second", "mul", "output"]
    first = next(n for n in graph.nodes if n.name == "first")
    x.append(first)
    b.append(b.prev)
    assert names(graph) == ["x", "first", "third", "fourth", "add", "mul", "second", "output"]
    assert b.next.name == "second" and x.next is first and len(graph.nodes) == 8
    with pytest.raises(AssertionError, match="different Graph"):
        b.prepend(fx.Graph().placeholder("y"))
    with pytest.raises(ValueError, match="different graph"):
        graph.inserting_before(fx.Graph().placeholder("y"))


def test_insert_point_survives_erasing_its_node(chain):
    graph, _x, a, b = chain
    with graph.inserting_before(b):
        b.replace_all_uses_with(a)
        graph.erase_node(b)
        graph.call_function(abs, (a,))
    assert names(graph) == ["x", "add", "abs_1", "output"]


def test_erase_node_refuses_while_used(chain):
    graph, _x, a, _b = chain
    with pytest.raises(RuntimeError, match=r"%add, but 1 node\(s\) still use it: %mul"):
        graph.erase_node(a)


def test_iteration_while_editing(chain):
    graph, _x, a, _b = chain
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node is a:
            with graph.inserting_after(a):
                graph.call_function(abs, (a,))
        if node.name == "abs_1":
            graph.erase_node(node)
    assert seen == ["x", "add", "abs_1", "mul", "output"]
    assert [n.name for n in reversed(graph.nodes)] == ["output", "mul", "add", "x"]


def test_names_are_readable_and_unique():
    graph = fx.Graph()
    made = [graph.placeholder(wish).name for wish in ("x", "x", "x_1", "*args", "1a", "for", "a.b", "self")]
    assert made == ["x", "x_1", "x_2", "args", "_1a", "for_1", "a_b", "self_1"]
    assert graph.call_module("layers.0").name == "layers_0"
    assert graph.call_method("__add__").name == "__add__"


def test_create_node_checks_its_target():
    graph = fx.Graph()
    with pytest.raises(AssertionError, match="op must be one of"):
        graph.create_node("call", "f")
    with pytest.raises(ValueError, match="must be callable"):
        graph.call_function("f")
    with pytest.raises(ValueError, match="must be a str"):
        graph.call_method(abs)


def test_find_nodes_and_output_node(chain):
    graph, x, _a, b = chain
    assert graph.find_nodes(op="call_function", target=operator.mul) == [b]
    assert graph.find_nodes(op="placeholder") == [x]
    assert graph.output_node().args == (b,)
    with pytest.raises(RuntimeError, match="no output"):
        fx.Graph().output_node()


def test_last_uses(chain):
    graph, x, a, b = chain
    frees = last_uses(graph)
    assert frees[a] == [x] and frees[b] == [a] and frees[graph.output_node()] == [b]


# -- dead code ---------------------------------------------------------------------------------------------------------


def test_dead_code_goes_and_effects_stay(chain):
    graph, x, _a, b = chain

    @fx.mark_impure
    def log(value):
        return value

    with graph.inserting_before(b):
        graph.call_function(abs, (graph.call_function(abs, (x,)),))
        graph.call_function(log, (x,))
        graph.call_method("add_", (x, 1))
        graph.call_method("__setitem__", (x, 0, 1))
        graph.call_function(operator.setitem, (x, 0, 1))
        graph.call_function(operator.iadd, (x, 1))
        graph.call_method("add", (x, 1))
    assert graph.eliminate_dead_code()
    assert names(graph) == ["x", "add", "log", "add_", "__setitem__", "setitem", "iadd", "mul", "output"]
    assert not graph.eliminate_dead_code()
    assert graph.eliminate_dead_code(lambda node: False)
    assert names(graph) == ["x", "add", "mul", "output"]


# -- lint --------------------------------------------------------------------------------------------------------------


def test_lint_accepts(chain):
    chain[0].lint()


def test_lint_use_before_definition_shows_the_neighbourhood(chain):
    graph, x, a, b = chain
    for i in range(10):
        graph.inserting_before(b)
        graph.call_function(abs, (x,), name=f"pad{i}")
    b.append(a)
    with pytest.raises(GraphLintError) as caught:
        graph.lint()
    text = str(caught.value)
    assert "%mul uses %add before it is defined" in text and caught.value.node is b
    assert "--> %mul" in text and "    %pad9" in text and "pad0 " not in text and "... 7 above" in text


def test_lint_faults(chain):
    graph, x, a, b = chain
    a.name = "x"
    with pytest.raises(GraphLintError, match="two nodes are named 'x'"):
        graph.lint()
    a.name = "add"
    x.users.pop(a)
    with pytest.raises(GraphLintError, match="not among its users"):
        graph.lint()
    x.users[a] = None
    x.users[b] = None
    with pytest.raises(GraphLintError, match="listed as a user"):
        graph.lint()
    x.users.pop(b)
    graph.output_node().append(b)
    with pytest.raises(GraphLintError):
        graph.lint()


def test_lint_foreign_node_and_missing_attribute(chain):
    graph, _x, a, b = chain
    other = fx.Graph().placeholder("y")
    b.args = (other, 2)
    with pytest.raises(GraphLintError, match="belongs to a different graph"):
        graph.lint()
    b.args = (a, 2)
    gm = fx.GraphModule({}, graph)
    graph.inserting_before(b)
    graph.get_attr("weights.w")
    with pytest.raises(GraphLintError, match="'GraphModule' has no 'weights'"):
        gm.graph.lint()


# -- printing ----------------------------------------------------------------------------------------------------------


class Stand:
    """Something with a dtype and a shape."""

    def __init__(self, dtype, *shape):
        self.dtype, self.shape = dtype, shape


def test_code_runs_and_frees(chain):
    graph, _x, a, b = chain
    a.meta["val"] = Stand("torch.float32", 8, 128)
    b.meta["val"] = (Stand("torch.bfloat16", 2), Stand("torch.int64"))
    code = graph.python_code().src
    assert 'add: "f32[8, 128]" = x + 1;  x = None' in code
    assert 'mul: "(bf16[2], i64[])" = add * 2;  add = None' in code
    assert run(graph, 3) == 8


def test_code_verbose_names_the_users_line(chain):
    graph, _x, a, b = chain
    a.meta["stack"] = (("train.py", 1, "<module>", "main()"), ("model.py", 12, "forward", "h = x + 1"))
    b.meta["stack"] = a.meta["stack"]
    text = fx.GraphModule({}, graph).readable()
    assert text.count("# model.py:12 in forward: h = x + 1") == 1
    assert 'File "model.py", line 12, in forward' in a.stack_trace


def test_code_constants():
    graph = fx.Graph()
    x = graph.placeholder("x")
    thing = object()
    graph.output((x, (1,), [2.5, float("inf"), -1], {"k": "v"}, slice(0, 2), None, ..., thing, Point(x, 1), math.floor, int, 1j))
    result = run(graph, 5)
    assert result[0] == 5 and result[2] == [2.5, math.inf, -1] and result[7] is thing
    assert result[8] == Point(5, 1) and result[9] is math.floor and result[10] is int and result[11] == 1j
    assert "math.floor" in graph.python_code().src


def test_code_operators_and_odd_targets():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=2)
    values = [
        graph.call_function(operator.pow, (-2, 2)),
        graph.call_function(operator.neg, (x,)),
        graph.call_function(operator.getitem, ([x, y], 1)),
        graph.call_function(getattr, (x, "real")),
        graph.call_method("bit_length", (5,)),
        graph.call_function(operator.iadd, (x, y)),
        graph.call_function(dict, (), {"class": x, "b": y}),
        graph.call_function(lambda v: v + 100, (x,)),
    ]
    graph.output(tuple(values))
    assert run(graph, 7) == (4, -7, 2, 7, 3, 9, {"class": 7, "b": 2}, 107)


def test_code_keeps_parameter_names_and_variadics():
    graph = fx.Graph()
    graph.call_function(abs, (1,), name="input")
    x = graph.placeholder("input")
    rest = graph.placeholder("*rest")
    options = graph.placeholder("**options")
    graph.output((x, rest, options))
    gm = fx.GraphModule({}, graph)
    assert gm(7, 2, 3, k=4) == (7, (2, 3), {"k": 4})
    assert gm(input=7) == (7, (), {})


def test_empty_graph_runs():
    assert run(fx.Graph()) is None


# -- copies ------------------------------------------------------------------------------------------------------------


def test_deepcopy_is_apart(chain):
    graph, _x, a, _b = chain
    a.meta["k"] = 1
    new = copy.deepcopy(graph)
    new.lint()
    assert names(new) == names(graph) and str(new) == str(graph)
    next(iter(new.nodes)).next.meta["k"] = 2
    assert a.meta["k"] == 1


def test_graph_copy_into_another(chain):
    graph, x, _a, _b = chain
    outer = fx.Graph()
    y = outer.placeholder("y")
    first = outer.graph_copy(graph, {x: y})
    second = outer.graph_copy(graph, {x: first})
    outer.output(second)
    outer.lint()
    assert run(outer, 1) == 10


def test_pickle_of_a_long_graph():
    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(3000):
        value = graph.call_function(operator.add, (value, 1))
    graph.output({"y": [value, slice(value, None)]})
    new = pickle.loads(pickle.dumps(graph))
    new.lint()
    assert str(new) == str(graph) and run(new, 1)["y"][0] == 3001


@pytest.mark.parametrize("together", [list, tuple])
def test_operands_given_in_one_list_are_recorded_one_by_one(together):
    traced = fx.symbolic_trace(lambda a, b: torch.einsum("ij,jk->ik", together((a, b))))
    node = next(node for node in traced.graph.nodes if node.op == "call_function")
    assert node.target is torch.einsum and [getattr(a, "name", a) for a in node.args] == ["ij,jk->ik", "a", "b"]
    assert traced(torch.ones(2, 3), torch.ones(3, 2)).tolist() == [[3, 3], [3, 3]]
