"""Tracing, shapes and graph modules of real nn modules; names that libraries import; PyTorch's torch.fx as the oracle."""

import copy
import importlib.util
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flambeau
from flambeau import fx, nn
from flambeau.core.tensor import fake


def make_net(torch):
    """The same module on either library."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU())
            self.scale = torch.nn.Parameter(torch.ones(5))
            self.register_buffer("shift", torch.zeros(5))

        def forward(self, x, flag=True):
            y = self.conv(x).mean((2, 3))
            y = self.layers(y) * self.scale + self.shift
            a, b = y.split(2, dim=1)[0], y[:, 2:]
            y = torch.cat([a, b], dim=1)
            y += 1
            return {"y": y.view(y.shape[0], -1), "s": (torch.relu(y).sum(), -y)}

    return Net()


def test_modules_are_leaves_and_parameters_get_attr():
    net = make_net(flambeau)
    gm = fx.symbolic_trace(net)
    gm.graph.lint()
    assert [n.target for n in gm.graph.find_nodes(op="call_module")] == ["conv", "layers.0", "layers.1"]
    assert {n.target for n in gm.graph.find_nodes(op="get_attr")} == {"scale", "shift"}
    x = flambeau.randn(2, 3, 5, 5)
    got, want = gm(x), net(x)
    assert (got["y"] == want["y"]).all() and (got["s"][1] == want["s"][1]).all()
    assert isinstance(gm, nn.Module) and gm.conv is net.conv
    assert set(gm.state_dict()) == set(net.state_dict())


def test_copies_and_pickles_of_traced_modules():
    gm = fx.symbolic_trace(make_net(flambeau)).eval()
    x = flambeau.randn(2, 3, 5, 5)
    want = gm(x)["y"]
    for new in (copy.deepcopy(gm), pickle.loads(pickle.dumps(gm))):
        assert (new(x)["y"] == want).all() and new.conv is not gm.conv and not new.training
        new.scale.data.fill_(0)
    assert (gm(x)["y"] == want).all()


def test_shape_propagation():
    gm = fx.symbolic_trace(make_net(flambeau))
    fx.ShapeProp(gm).propagate(flambeau.randn(2, 3, 5, 5))
    facts = {n.name: n.meta["tensor_meta"] for n in gm.graph.nodes if "tensor_meta" in n.meta and n.op != "output"}
    assert facts["conv"].shape == (2, 4, 3, 3) and facts["mean"].shape == (2, 4) and facts["mean"].requires_grad
    assert len(facts["split"]) == 3 and facts["split"][2].shape == (2, 1)


def test_fake_examples_annotate_the_code():
    gm = fx.symbolic_trace(lambda x: (x @ x).sum(0))
    fx.ShapeProp(gm).propagate(fake((4, 4), flambeau.float32))
    assert 'matmul: "f32[4, 4]" = x @ x' in gm.code and 'sum_1: "f32[4]" = matmul.sum(0)' in gm.code


def test_tensors_on_the_way_become_attributes():
    table = flambeau.ones(3)
    gm = fx.symbolic_trace(lambda x: x + table)
    assert gm._tensor_constant0 is table and gm(flambeau.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("what", ["graph", "code"])
def test_torch_fx_records_the_same(what):
    torch = pytest.importorskip("torch")
    mine = fx.symbolic_trace(make_net(flambeau)).graph
    theirs = torch.fx.symbolic_trace(make_net(torch)).graph
    if what == "graph":
        assert [(n.op, n.name) for n in mine.nodes] == [(n.op, n.name) for n in theirs.nodes]
        assert [[i.name for i in n.all_input_nodes] for n in mine.nodes] == [
            [i.name for i in n.all_input_nodes] for n in theirs.nodes
        ]
    else:
        strip = lambda graph: [line.split(";")[0].strip() for line in graph.python_code("self").src.splitlines() if "=" in line]
        assert [line for line in strip(mine) if line.startswith(("conv", "mean", "mul", "view"))] == [
            line for line in strip(theirs) if line.startswith(("conv", "mean", "mul", "view"))
        ]


def test_names_where_libraries_look_for_them():
    for module, names in {
        "graph_module": "GraphModule _copy_attr _CodeOnlyModule _USER_PRESERVED_ATTRIBUTES_KEY",
        "_symbolic_trace": "Tracer symbolic_trace is_fx_tracing",
        "subgraph_rewriter": "replace_pattern",
        "_compatibility": "compatibility",
        "passes.shape_prop": "ShapeProp",
        "proxy": "Proxy ParameterProxy",
        "node": "Node Target map_arg",
    }.items():
        found = __import__(f"flambeau.fx.{module}", fromlist=["x"])
        assert all(hasattr(found, name) for name in names.split())


@pytest.mark.skipif(
    not (importlib.util.find_spec("torchvision") and importlib.util.find_spec("timm")), reason="needs torchvision, timm"
)
def test_feature_extractors_of_torchvision_and_timm():
    program = """
        import flambeau.as_torch, torch
        from worker import declare_torchvision_operators
        declare_torchvision_operators(torch)
        import torchvision, timm
        from timm.models import FeatureGraphNet
        from torchvision.models.feature_extraction import create_feature_extractor

        model = torchvision.models.resnet18()
        extractor = create_feature_extractor(model, {"layer1": "a", "layer3.1.relu_1": "b"}).eval()
        seen = {}
        model.eval().layer1.register_forward_hook(lambda module, inputs, out: seen.update(a=out))
        x = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            found = extractor(x)
            model(x)
        assert (found["a"] == seen["a"]).all() and found["b"].shape == (1, 256, 4, 4)
        vit = timm.create_model("vit_small_patch16_224", img_size=64)
        (features,) = FeatureGraphNet(vit, out_indices=(0,), out_map=["blocks.3"])(x)
        assert features.shape == (1, 17, 384)
        """
    folder = str(Path(__file__).parents[1] / "compat")
    code = f"import sys; sys.path.insert(0, {folder!r})\n{textwrap.dedent(program)}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=100)


def test_a_graph_that_raises_leaves_the_recording_of_gradients_as_it_was():
    def broken(x):
        raise ValueError("no")

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(flambeau.set_grad_enabled, (False,))
    graph.output(graph.call_function(broken, (x,)))
    with pytest.raises(ValueError, match="no"):
        fx.GraphModule(nn.Module(), graph)(flambeau.ones(3))
    assert flambeau.is_grad_enabled()
