# ruff: noqa: E501 - programs of few lines
"""Modules that change between the calls of compiled programs (changes.py)."""

from __future__ import annotations

import functools
import types

from changes import Programs

import flambeau as torch
from flambeau import nn

program = Programs()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.drop, self.act = nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU()
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.act(self.drop(self.linear(x)) * self.scale)


@program
def module_train_and_eval():
    m = Block().eval()
    return (lambda x: m.act(m.linear(x)) if m.training else m(x)), [m.train, m.eval]


@program
def module_parts():
    m = Block().eval()
    return m, [
        lambda: setattr(m, "act", nn.Tanh()), lambda: setattr(m, "linear", nn.Identity()), lambda: setattr(m, "scale", torch.full((3,), 2.0)),
        lambda: m.register_buffer("scale", torch.full((1,), 3.0)), lambda: setattr(m.drop, "p", 0.1), lambda: m.double() and m.float() and None,
    ]  # fmt: skip


@program
def module_hooks():
    m = Block().eval()
    handles: list = []
    return m, [
        lambda: handles.append(m.register_forward_hook(lambda mod, args, out: out * 2)),
        lambda: handles.append(m.linear.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))),
        lambda: handles.pop(0).remove(), lambda: handles.pop(0).remove(),
        lambda: handles.append(nn.modules.module.register_module_forward_hook(lambda mod, args, out: out + 1)),
        lambda: handles.pop(0).remove(),
    ]  # fmt: skip


@program
def module_forward_replaced():
    m = Block().eval()
    old = m.forward
    return (lambda x: m(x)), [
        lambda: setattr(m, "forward", lambda x: old(x) * 2), lambda: delattr(m, "forward"),
        lambda: setattr(m.linear, "forward", types.MethodType(lambda self, x: x * 3, m.linear)), lambda: delattr(m.linear, "forward"),
    ]  # fmt: skip


@program
def module_containers():
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    nn.init.constant_(layers[0].weight, 0.1), nn.init.constant_(layers[1].weight, 0.2)
    for layer in layers:
        nn.init.zeros_(layer.bias)
    return (lambda x: functools.reduce(lambda y, layer: layer(y), layers, x)), [
        lambda: layers.append(nn.ReLU()), lambda: layers.__setitem__(0, nn.Identity()), lambda: layers.pop(2), lambda: layers.insert(0, nn.Tanh()),
    ]  # fmt: skip


@program
def module_requires_grad():
    m = Block().eval()
    return m, [lambda: m.requires_grad_(False) and None, lambda: m.linear.bias.requires_grad_()]


@program
def module_weight_tying():
    m = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    nn.init.constant_(m[0].weight, 0.5), nn.init.constant_(m[1].weight, 0.25)
    return m, [lambda: setattr(m[1], "weight", m[0].weight), lambda: setattr(m[1], "weight", nn.Parameter(torch.eye(3)))]


@program
def module_class_swap():
    class Loud(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 10

    m = Block().eval()
    return m, [lambda: setattr(m.linear, "__class__", Loud), lambda: setattr(m.linear, "__class__", nn.Linear)]


test_changes = program.test()
