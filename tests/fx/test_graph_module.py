"""GraphModule: attributes, code, copies, and the exchange of its base class."""

import copy
import operator
import pickle
import subprocess
import sys
import textwrap
import traceback

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.graph_module import module_base


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.add_module("0", Scale(3))
        getattr(self.inner, "0").part = Scale(4)
        self.unused = Scale(9)
        self.bias = 5


def build(root):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_module("inner.0", (x,))
    graph.output(graph.call_function(operator.add, (y, graph.get_attr("bias"))))
    return fx.GraphModule(root, graph, "Made")


def test_attributes_are_taken_and_shared():
    root = Root()
    gm = build(root)
    assert gm(2) == 11 and gm.bias == 5 and not hasattr(gm, "unused")
    assert getattr(gm.inner, "0") is getattr(root.inner, "0")
    assert 'getattr(self.inner, "0")(x)' in gm.code.replace("'", '"')
    assert build({"inner.0": Scale(2), "bias": 1})(2) == 5
    assert build({"inner": root.inner, "bias": 1})(2) == 7
    assert gm.graph.owning_module is gm
    with pytest.raises(RuntimeError, match=r"refers to 'bias', but the attributes given are inner\.0"):
        build({"inner.0": Scale(2)})
    with pytest.raises(AttributeError, match="no 'bias'"):
        root = Root()
        del root.bias
        build(root)


def test_recompile_after_a_change():
    gm = build(Root())
    assert gm(1) == 8
    node = gm.graph.find_nodes(op="call_function", target=operator.add)[0]
    node.target = operator.sub
    assert gm(1) == 8
    assert "-" in gm.recompile().src and gm(1) == -2
    node.target = operator.mul
    gm.graph = gm.graph
    assert gm(1) == 15


def test_deepcopy_copies_attributes_and_keeps_meta():
    gm = build(Root())
    gm.graph.output_node().meta["k"] = 1
    new = copy.deepcopy(gm)
    getattr(new.inner, "0").factor = 100
    assert new(1) == 105 and gm(1) == 8
    assert new.graph.owning_module is new and new.graph.output_node().meta == {"k": 1}
    shallow = copy.copy(gm)
    assert shallow.inner is gm.inner and shallow.graph is not gm.graph


def test_pickle():
    gm = build({"inner.0": Scale(2), "bias": 1})
    new = pickle.loads(pickle.dumps(gm))
    assert new(3) == 7 and new.code == gm.code and new._class_name == "Made"


def test_submodules_added_and_removed():
    gm = build(Root())
    assert gm.add_submodule("extra.deep", Scale(4))
    assert gm.extra.deep(1) == 4 and "extra.deep" in dict(gm.named_modules())
    assert not gm.add_submodule("bias.deep", Scale(4))
    gm.delete_all_unused_submodules()
    assert [name for name, _ in gm.named_modules()] == ["", "inner", "inner.0", "inner.0.part"]


def test_printed_code_shows_in_tracebacks():
    graph = fx.Graph()
    graph.output(graph.call_function(operator.truediv, (graph.placeholder("x"), 0)))
    with pytest.raises(ZeroDivisionError) as caught:
        fx.GraphModule({}, graph)(1)
    assert "truediv = x / 0" in "".join(traceback.format_exception(caught.value))


def test_readable_says_what_passes_made_it(capsys):
    gm = build(Root())

    def double(graph):
        graph.find_nodes(op="call_function")[0].target = operator.mul

    manager = fx.PassManager([double], check=True)
    assert manager(gm)(2) == 30
    text = gm.print_readable()
    assert "# made by pass double in" in text and "(5 -> 5 nodes)" in text and "class Made(" in text
    assert capsys.readouterr().out.strip() == text.strip()


def test_pass_manager_names_the_pass_that_broke_the_graph():
    gm = build(Root())

    def good(graph):
        pass

    def breaks(graph):
        first, second, *_ = graph.nodes
        second.append(first)

    with pytest.raises(fx.GraphLintError) as caught:
        fx.PassManager([good, breaks], check=True)(gm)
    assert caught.value.__notes__ == ["in pass breaks, after good"]


def test_module_base_is_exchanged():
    program = """
        import copy, operator, pickle
        from flambeau import fx, nn

        class Module:
            def __init__(self):
                self.__dict__.update(_parameters={}, _buffers={}, _modules={}, training=True, hooks=[])
            def __setattr__(self, name, value):
                object.__setattr__(self, name, value)
            def __call__(self, *args):
                self.hooks.append(args)
                return self.forward(*args)

        def build():
            graph = fx.Graph()
            graph.output(graph.call_function(operator.add, (graph.placeholder("x"), 1)))
            return fx.GraphModule({}, graph)

        root = fx.graph_module.PlainModule()
        root.part = fx.graph_module.PlainModule()
        root.part.number = 5
        assert [name for name, _ in root.named_modules()] == ["", "part"] and root.part.number == 5
        early = build()
        assert early(1) == 2 and not issubclass(fx.GraphModule, Module)
        fx.set_module_base(Module)
        late = build()
        for gm in early, late, copy.deepcopy(late), pickle.loads(pickle.dumps(late)):
            assert isinstance(gm, Module) and gm(1) == 2
            gm.graph.find_nodes(op="call_function")[0].target = operator.sub
            gm.graph = gm.graph
            assert gm(1) == 0
        assert early.hooks == [(1,), (1,)]
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_module_base_is_known():
    assert issubclass(fx.GraphModule, module_base())


def test_a_graph_is_printed_as_torch_prints_it() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.sin, (x,))
    graph.output((graph.call_method("add", (y, 1)), y))
    assert str(graph) == """graph():
    %x : [num_users=1] = placeholder[target=x]
    %sin : [num_users=2] = call_function[target=torch.sin](args = (%x,), kwargs = {})
    %add : [num_users=1] = call_method[target=add](args = (%sin, 1), kwargs = {})
    return (add, sin)"""


def test_delete_submodule() -> None:
    module = fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    assert module.add_submodule("q.r", torch.nn.Tanh()) and module.delete_submodule("q.r")
    assert not module.delete_submodule("q.r") and not module.delete_submodule("no.such")
    assert [name for name, _ in module.named_modules()] == ["", "0", "q"]
