"""What a compiled program depends on, as text: the captured graph and everything else that tracing it may look at.

Equal texts mean equal programs, so nothing is left out: a graph that holds something whose meaning cannot be spelled out
(the user's own functions, live tensors) is `Uncacheable`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.autograd.graph import Settings
from flambeau.core import dispatch, settings
from flambeau.core.device import device
from flambeau.core.dtypes import dtype
from flambeau.core.homes import is_own
from flambeau.core.memory_format import layout, memory_format
from flambeau.core.symbolic import ShapeEnv, SymFloat, SymInt, to_python
from flambeau.core.tensor import Tensor
from flambeau.fx import GraphModule, Node
from flambeau.ops.registry import OPERATORS, PRIMITIVES

PACKAGE = __name__.split(".", maxsplit=1)[0]
_LIBRARIES = ("_operator", "builtins", "math")  # their functions mean what they are called


class Uncacheable(Exception):
    """This cannot be kept between processes; the message says why."""


def describe(gm: GraphModule, examples: Sequence[Any], attributes: Sequence[Tensor], needs: tuple | None) -> str:
    """The program: its graph, its inputs, their sizes. Uncacheable, with the reason."""
    lines = [f"needs {needs}"]
    lines += [f"input {_value(example)}" for example in examples]
    lines += [f"attribute {_value(attribute)}" for attribute in attributes]
    env = env_of(examples)
    if env is not None:
        lines.append(f"sizes {_env(env)}")
    return "\n".join(lines + _Nodes(gm, attributes).lines)


def env_of(examples: Sequence[Any]) -> ShapeEnv | None:
    """The environment of the symbolic sizes among the examples; Uncacheable if there are several."""
    found = {}
    for example in examples:
        sizes = (*example._layout.shape, *example._layout.strides) if isinstance(example, Tensor) else (example,)
        found.update({id(size.env): size.env for size in sizes if isinstance(size, (SymInt, SymFloat))})
    if len(found) > 1:
        raise Uncacheable("its sizes are of several captures")
    return next(iter(found.values()), None)


def surroundings() -> str:
    """The state of the process that tracing looks at. Uncacheable, with the reason."""
    state = dispatch.state
    if state.function_modes:
        raise Uncacheable(f"the function mode {type(state.function_modes[-1]).__name__} is active")
    own = f"{state.recording} {state.overrides} {Settings.anomaly}"
    return f"{own}\n{settings.fingerprint()}"


def _env(env: ShapeEnv) -> str:
    guards = [guard.relation.text() for guard in env.guards]
    equal = {name: to_python(value) for name, value in env.replacements.items()}
    floats = {text: answer for text, (*_, answer) in env.float_guards.items()}
    return f"{env.hints} {guards} {equal} {env.balances} {env._ranges} {env.frozen} {floats}"


class _Nodes:
    """The graph, its nodes by number: what they are called makes no difference."""

    def __init__(self, gm: GraphModule, attributes: Sequence[Tensor]) -> None:
        self.gm = gm
        self.attributes = {id(t): i for i, t in enumerate(attributes)}
        self.number = {node: i for i, node in enumerate(gm.graph.nodes)}
        self.lines = [f"{node.op} {self._target(node)} {self.value(node.args)} {self.value(node.kwargs)}" for node in self.number]

    def _target(self, node: Node) -> str:
        target: Any = node.target
        match node.op:
            case "placeholder" | "output":
                return ""
            case "call_function":
                return name_of(target)
            case "call_method":
                return f"{target} {name_of(getattr(Tensor, target, None))}"
            case "get_attr":
                found = _find(self.gm, target)
                if id(found) in self.attributes:
                    return str(self.attributes[id(found)])
                if isinstance(found, GraphModule):     # the function of an operator that takes one
                    return f"({'; '.join(_Nodes(found, ()).lines)})"
                raise Uncacheable(f"it refers to {target}, a live {type(found).__name__}")
        raise Uncacheable(f"it calls the module {target}")

    def value(self, a: Any) -> str:
        """An argument."""
        if isinstance(a, Tensor):
            raise Uncacheable(f"it holds a live tensor of shape {list(a.shape)}")
        return f"%{self.number[a]}" if isinstance(a, Node) else _value(a, self.value)


def name_of(target: Any) -> str:
    """The name under which a function of Flambeau's own or of Python's is found; Uncacheable for others."""
    if type(target) in _RECORDS and "custom" not in target.tags:
        prim: Any = PRIMITIVES.get(target.name)
        if prim is target:
            return f"prims.{prim.name}"
    record = getattr(target, "_operator", None)
    home, name = str(getattr(target, "__module__", "")), str(getattr(target, "__qualname__", ""))
    if home in _LIBRARIES or home.startswith(f"{PACKAGE}."):
        if record is not None and OPERATORS.get(getattr(record, "name", "")) is target:
            return f"ops.{record.name}"
        if _find(sys.modules.get(home), name) is target:
            return f"{home}.{name}"
    raise Uncacheable(f"it calls {name or target} of {home or 'unknown origin'}, whose code is not Flambeau's")


def _find(home: Any, path: str) -> Any:
    """The attribute of a dotted name; None if there is none."""
    for part in path.split("."):
        home = getattr(home, part, None)
    return home


_RECORDS: frozenset[Any] = frozenset({type(prim) for prim in PRIMITIVES.values()})


# -- values ------------------------------------------------------------------------------------------------------------


def _value(a: Any, inner: Callable[[Any], str] | None = None) -> str:
    """A value, with its type wherever equal values of two types differ; `inner` describes what containers hold."""
    inner = inner or _value
    kind = type(a)
    if a is None or a is Ellipsis or kind in _PLAIN:
        return repr(a)
    if kind is float:
        return a.hex()
    if kind is complex:
        return f"complex({a.real.hex()}, {a.imag.hex()})"
    if isinstance(a, (tuple, list)):
        if kind not in (tuple, list) and not is_own(kind.__module__):
            raise Uncacheable(f"it holds a {kind.__name__}, a class that is not Flambeau's")
        name = "" if kind is tuple else kind.__name__
        return f"{name}({', '.join(map(inner, a))})"
    if isinstance(a, dict):
        return f"{{{', '.join(f'{inner(key)}: {inner(item)}' for key, item in a.items())}}}"
    if kind is slice:
        return f"slice({inner(a.start)}, {inner(a.stop)}, {inner(a.step)})"
    if kind is SymInt:
        return f"size({to_python(a.expr)})"
    if kind is SymFloat:
        return f"number({a!r})"
    if kind in _NAMED:
        return f"{kind.__name__}({a!r})"
    if isinstance(a, Tensor):
        return _tensor(a)
    if isinstance(a, type) and a.__module__ == "builtins":
        return f"type {a.__name__}"
    raise Uncacheable(f"it holds a {kind.__module__}.{kind.__qualname__}")


_PLAIN = frozenset({bool, int, str, bytes, range})
_NAMED = frozenset({dtype, device, memory_format, layout})


def _tensor(t: Tensor) -> str:
    """A tensor that is an input: what is known of it before it is there."""
    if not is_own(type(t).__module__):
        raise Uncacheable(f"an input is a {type(t).__name__}, a class that is not Flambeau's")
    shape, strides, offset = t._layout
    sizes = f"{_value(tuple(shape))} {_value(tuple(strides))} {_value(offset)}"
    return f"{type(t).__module__}.{type(t).__name__} {sizes} {t.dtype!r} {t.device!r} {t.requires_grad} {t.is_leaf}"
