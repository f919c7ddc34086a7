"""torch.export.unflatten: the tree of modules is the exported one's, computes as it does, and its modules may be exchanged."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.export import Dim, FlatArgsAdapter, UnflattenedModule, export, unflatten


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
        self.register_buffer("shift", torch.ones(1))

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, more: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = layer(self.norm(x)).relu() * scale
        return {"out": x + self.shift, "more": x if more is None else more + 1}


class Net(torch.nn.Module):
    """A block called twice in different ways, one layer called twice in the same, and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.layer = Block(), torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 4, bias=False)
        self.head.weight = self.layer.weight

    def forward(self, x: torch.Tensor, extra: tuple[torch.Tensor, ...] = ()) -> torch.Tensor:
        first = self.block(self.layer(self.layer(x)), 2.0)
        second = self.block(first["out"], more=first["more"])
        return self.head(second["out"] + second["more"]) + sum(e.sum() for e in extra)


class Branch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x.shape[0]) * 2


class Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) * n


def same(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    batch = Dim("batch", min=2)
    program = export(module, args, kwargs, dynamic_shapes=({0: batch}, *[None for _ in args[1:]]))
    for made in (unflatten(program), unflatten(program.run_decompositions())):
        torch.testing.assert_close(made(*args, **kwargs), module(*args, **kwargs))
        assert {name for name, _ in made.named_parameters()} == {name for name, _ in module.named_parameters()}
        longer = torch.cat([args[0], args[0]])
        torch.testing.assert_close(made(longer, *args[1:]), module(longer, *args[1:]))


@pytest.mark.parametrize("make", [lambda: Net().eval(), Branch], ids=["calls", "cond"])
def test_as_the_module(make: Callable[[], torch.nn.Module]) -> None:
    torch.manual_seed(0)
    same(make(), torch.randn(3, 4))


def test_the_tree() -> None:
    made = unflatten(export(Net().eval(), (torch.randn(3, 4),)))
    assert isinstance(made, UnflattenedModule)
    names = {name for name, _ in made.named_modules()}
    assert {"block", "block.layers", "block.layers.0", "block.norm", "layer", "head", "block@1"} <= names
    assert "layer@1" not in names     # does what `layer` does
    assert set(made.state_dict()) >= {"block.norm.running_mean", "block.shift", "layer.weight", "block.layers.1.bias"}
    assert str(made.block).startswith("InterpreterModule(\n")


def test_buffers_are_written(strict: bool = False) -> None:
    module = Net()
    made = unflatten(export(module, (torch.randn(3, 4),), strict=strict))
    before = made.block.norm.running_mean.clone()
    made(torch.randn(3, 4))
    assert not torch.equal(made.block.norm.running_mean, before)


def test_strict() -> None:
    test_buffers_are_written(strict=True)


def test_parameters_learn() -> None:
    made = unflatten(export(Net().eval(), (torch.randn(3, 4),)))
    made(torch.randn(3, 4)).sum().backward()
    assert all(p.grad is not None for p in made.parameters())


class Other(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 1.0, *, more: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"out": x * 0, "more": x * scale if more is None else more}


@pytest.mark.parametrize("saved", [False, True])
def test_a_module_is_exchanged(saved: bool) -> None:
    module, x = Net().eval(), torch.randn(3, 4)
    program = export(module, (x,), preserve_module_call_signature=("block",))
    if saved:
        file = io.BytesIO()
        torch.export.save(program, file)
        program = torch.export.load(io.BytesIO(file.getvalue()))
    assert {e.fqn for e in program.module_call_graph if e.signature is not None} == {"", "block", "block@1"}
    made = unflatten(program)
    torch.testing.assert_close(made(x), module(x))
    made.block = module.block = Other()
    setattr(made, "block@1", Other())
    torch.testing.assert_close(made(x), module(x))


def test_an_adapter() -> None:
    class Flat(FlatArgsAdapter):
        def adapt(self, target_spec: Any, input_spec: Any, input_args: list, metadata: Any = None, obj: Any = None) -> list:
            return input_args[:target_spec.num_leaves]

    x = torch.randn(3, 4)
    made = unflatten(export(Net().eval(), (x, (x,))), Flat())
    torch.testing.assert_close(made(x, x, x), made(x, (x,)))
    with pytest.raises(TypeError, match="adapter of flat arguments gave 1, and the program takes 2"):
        made(x)


def test_what_does_not_fit() -> None:
    x = torch.randn(3, 4)
    made = unflatten(export(Net().eval(), (x,)))
    with pytest.raises(AssertionError, match="Guard failed"):
        made(torch.randn(4, 4))
    with pytest.raises(ValueError, match="no submodule 'none'"):
        export(Net().eval(), (x,), preserve_module_call_signature=("none",))
    with pytest.raises(NotImplementedError, match="strict=True"):
        export(Net().eval(), (x,), strict=True, preserve_module_call_signature=("block",))


def test_a_program_that_is_not_the_examples_is_refused() -> None:
    """What holds for other sizes alone is no program for the one it was exported with."""
    class Three(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.shape[0] == 3 else x

    with pytest.raises(torch._dynamo.exc.UserError, match=r"Constraints violated \(batch\)"):
        export(Three(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("batch")},))
