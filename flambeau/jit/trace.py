"""`torch.jit.trace`: run a module once, write down the operators that it calls, and print them as TorchScript.

The run is an ordinary one on real tensors. Inputs, and what operators make of them, are of a class whose sizes are integers that know where
they come from, so that a trace of one size runs with others; Python's own control flow is gone, with a warning where a tensor decided it.
"""

from __future__ import annotations

import copy
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..core import dispatch
from ..core.size import Size
from ..core.symbolic import ShapeEnv
from ..core.tensor import Tensor
from ..export.record import Recorder, _Operators, _Primitives
from ..fx import Node
from ..nn.modules.module import Module
from ..ops import aten
from ..ops.aten import overload_target
from ..ops.aten_schemas import behind
from ..ops.generators import default_generator
from ..ops.registry import OPERATORS, without_top_mode
from ..utils._pytree import tree_leaves, tree_map
from .frontend.naming import unique_name
from .module import TRACED, RecursiveScriptModule, ScriptFunction, TopLevelTracedModule
from .printer import Printer, member
from .program import ScriptProgram
from .traced_graph import TracedGraph

_CONVERTS = "Converting a tensor to a Python {} might cause the trace to be incorrect. We can't record the data flow of Python values, " \
            "so this value will be treated as a constant in the future. This means that the trace might not generalize to other inputs!"


class TracerWarning(Warning):
    """What torch.jit.trace warns with."""


class TracingCheckError(Exception):
    """A trace that does not compute what the function does."""


# -- sizes that know where they come from ------------------------------------------------------------------------------------------
class TracedInt(int):
    """An int of which a trace can make a node."""

    make: Callable[[], Node]

    def __new__(cls, value: int, make: Callable[[], Node]) -> TracedInt:
        """`make` writes the node, when it is first needed."""
        made = super().__new__(cls, value)
        made.make = make
        return made

    def node(self) -> Node:
        """The node that computes it."""
        found = self.__dict__.get("_node")
        if found is None:
            found = self.__dict__["_node"] = self.make()
        return found

    def __deepcopy__(self, memo: dict) -> TracedInt:
        return self


def _arithmetic(name: str, compute: Callable[[int, int], int], swapped: bool) -> Callable[[TracedInt, Any], Any]:
    def method(self: TracedInt, other: Any) -> Any:
        recorder = tracing()
        if not isinstance(other, int) or recorder is None:
            return getattr(int, name)(self, other)
        pair = (other, self) if swapped else (self, other)
        return TracedInt(compute(int(pair[0]), int(pair[1])), lambda: recorder.computed(compute, pair))

    return method


for _name, _compute in (("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("floordiv", operator.floordiv),
                        ("mod", operator.mod)):
    for _prefix in ("", "r"):
        setattr(TracedInt, f"__{_prefix}{_name}__", _arithmetic(f"__{_prefix}{_name}__", _compute, bool(_prefix)))


class TracedTensor(Tensor):
    """A tensor of a trace: the inputs, and what is made of them."""

    @property
    def shape(self) -> Size:
        """The sizes, which a trace can make nodes of."""
        plain = super().shape
        recorder = tracing()
        return plain if recorder is None else Size([recorder.size(self, dim, n) for dim, n in enumerate(plain)])

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or one."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Any:
        """The number of elements."""
        count: Any = 1
        for n in self.shape:
            count = n * count
        return count


def _with_warning(name: str, text: str) -> Callable[..., Any]:
    plain = getattr(Tensor, name)

    def method(self: TracedTensor, *args: Any, **kwargs: Any) -> Any:
        if tracing() is None:
            return plain(self, *args, **kwargs)
        warnings.warn(text, TracerWarning, stacklevel=2)
        with without_top_mode():
            return plain(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name, _kind in (("__bool__", "boolean"), ("__int__", "integer"), ("__float__", "float"), ("__index__", "index"), ("item", "number"),
                     ("tolist", "list"), ("numpy", "array"), ("__complex__", "complex")):
    setattr(TracedTensor, _name, _with_warning(_name, _CONVERTS.format(_kind)))


# -- recording -----------------------------------------------------------------------------------------------------------------------
class _Tracing(_Operators):
    """The mode of a trace."""

    recorder: Tracer
    whole_layers = True


def tracing() -> Tracer | None:
    """Who writes down what the program does now; None where nobody does, as within an operator."""
    modes = dispatch.state.function_modes
    return modes[-1].recorder if modes and isinstance(modes[-1], _Operators) and isinstance(modes[-1].recorder, Tracer) else None


class Tracer(Recorder):
    """Records a run on real tensors."""

    def __init__(self) -> None:
        super().__init__(lambda tensor, made_here: f"c{len(self.constants)}", ShapeEnv())
        self.made: list[Tensor] = []
        self.programs: dict[int, ScriptProgram] = {}      # of scripted functions that are called
        self.scopes: list[str] = []

    def push_scope(self, name: str) -> None:
        """Nodes are within a scope of this name from now on."""
        self.scopes.append(name)

    def pop_scope(self) -> None:
        """The last scope that was pushed ends."""
        self.scopes.pop()

    def origin(self) -> dict[str, Any]:
        """Where a node comes from, with the scopes under way."""
        return super().origin() | {"scope": "/".join(self.scopes)}

    def know(self, tensor: Tensor, node: Node) -> None:
        """From now on `node` computes `tensor`, where it lies now."""
        tensor._storage     # noqa: B018 - places are compared, and must be fixed
        super().know(tensor, node)

    def argument(self, value: Any) -> Any:
        """An operator's argument as a node's."""
        if isinstance(value, TracedInt):
            return value.node()
        if isinstance(value, (tuple, list)):
            return [self.argument(v) for v in value]
        return super().argument(value)

    def size(self, tensor: Tensor, dim: int, n: int) -> int:
        """A size of a tensor of the trace."""
        if self._found(tensor) is None:
            return n

        def make() -> Node:
            node = self.graph.call_function(aten.sym_size.int, (self.node_of(tensor), dim))
            node.meta = self.origin() | {"val": n}
            return node

        return TracedInt(n, make)

    def computed(self, compute: Callable, operands: tuple) -> Node:
        """The node for an int that is made of others."""
        node = self.graph.call_function(compute, tuple(map(self.argument, operands)))
        node.meta = self.origin() | {"val": None}
        return node

    def _fake(self, value: Any) -> Any:
        """Operators are given the tensors themselves."""
        return int(value) if isinstance(value, TracedInt) else value

    def _set_grad(self, wanted: bool) -> None:
        """Whether gradients are wanted is for who runs a trace to say."""

    def write(self, target: Callable, args: tuple, kwargs: dict, out: Any) -> Any:
        """The node of a call whose result is `out`, which becomes a tensor of the trace."""
        made = super().write(target, args, kwargs, out)
        tree_map(self.adopt, made)
        return made

    def adopt(self, value: Any) -> Any:
        """Make a tensor one of the trace, until it ends."""
        if type(value) is Tensor:
            value.__class__ = TracedTensor
            self.made.append(value)
        return value

    def _named_as(self, prim: Any, args: tuple) -> tuple[Any, tuple, dict]:
        """The overload that a primitive is: also one of the same name that gives the same, as this run shows."""
        found = super()._named_as(prim, args)
        fn = behind(prim.name)
        if found[0] is not prim or fn is None or "random" in prim.tags or "inplace" in prim.tags:
            return found
        plain = tree_map(self._fake, args)
        self.quiet += 1
        try:
            mine, theirs = dispatch.run(prim, plain), fn(*plain)
            same = isinstance(mine, Tensor) and mine.dtype is theirs.dtype and bool(OPERATORS["equal"](mine, theirs))
            overload = overload_target(fn, args, {}) if same else None
        except (TypeError, RuntimeError, ValueError, IndexError, AttributeError):
            return found
        finally:
            self.quiet -= 1
        return found if overload is None else (overload[0], tuple(overload[1]), overload[2])

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the block does."""
        scope = dispatch.scope((*dispatch.state.modes, _Primitives(self)), 1, False, False)
        try:
            with scope, _Tracing(self):
                yield
        finally:
            for tensor in self.made:
                tensor.__class__ = Tensor


def called(fn: ScriptFunction, call: Callable, args: tuple, kwargs: dict) -> Any:
    """`call(*args, **kwargs)`; in a trace it is a call there too, with the control flow that the function has."""
    recorder = tracing()
    if recorder is None or fn.owner is not None or fn._program.constants or not _tensors_alone(fn):
        return call(*args, **kwargs)
    recorder.quiet += 1
    try:
        with without_top_mode(), dispatch.scope(dispatch.state.modes, 0, dispatch.state.fake, False):
            out = call(*tree_map(_plain_value, args), **tree_map(_plain_value, kwargs))
    finally:
        recorder.quiet -= 1
    recorder.programs[id(fn._program)] = fn._program
    given = tuple(map(recorder.argument, args)), {key: recorder.argument(value) for key, value in kwargs.items()}
    return recorder.write(fn, *given, out)


def _tensors_alone(fn: ScriptFunction) -> bool:
    """Whether a function gives tensors, and nothing else that a trace would lose."""
    kind = fn._function.returns
    return kind.name == "Tensor" or (kind.name == "Tuple" and all(part.name == "Tensor" for part in kind.args))


def _plain_value(value: Any) -> Any:
    return int(value) if isinstance(value, TracedInt) else value


TRACED.append(called)


# -- one function ---------------------------------------------------------------------------------------------------------------------
class Traced(NamedTuple):
    """A function of a trace: its text, without the line that names it, and what it holds."""

    signature: str
    body: list[str]
    constants: list[Tensor]
    programs: list[ScriptProgram]


def _type_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return "Tensor"
    if isinstance(value, tuple):
        return f"Tuple[{', '.join(map(_type_of, value)) or '()'}]"
    if isinstance(value, list) and value and len(set(map(_type_of, value))) == 1:
        return f"List[{_type_of(value[0])}]"
    if isinstance(value, dict) and value and len({(type(k), _type_of(v)) for k, v in value.items()}) == 1:
        return f"Dict[{type(next(iter(value))).__name__}, {_type_of(next(iter(value.values())))}]"
    raise RuntimeError(f"Type '{type(value).__name__}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of "
                       "Tensors can be traced")


class _Inputs:
    """The inputs of a trace: placeholders for the parts of each."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer, self.names, self.parameters = tracer, {}, []     # type: tuple[Tracer, dict[Node, str], list[str]]

    def add(self, name: str, value: Any) -> Any:
        """A parameter of the function, and what the module is called with."""
        self.parameters.append(f"{name}: {_type_of(value)}")
        return self._part(name, value)

    def _part(self, text: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._part(f"{text}[{key!r}]".replace("'", '"'), v) for key, v in value.items()}
        if isinstance(value, (tuple, list)):
            parts = [self._part(f"{text}[{at}]", v) for at, v in enumerate(value)]
            return parts if isinstance(value, list) else type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        given = value.detach()
        given.__class__ = TracedTensor
        self.tracer.made.append(given)
        node = self.tracer.graph.placeholder(f"in{len(self.names)}")
        node.meta["val"], node.meta["given"] = None, value.detach()
        self.tracer.know(given, node)
        self.names[node] = text
        return given


def _state_of(module: Module) -> dict[str, Tensor]:
    """Parameters and buffers by path; one that has several, by the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for path, value in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]:
        found.setdefault(id(value), (path, value))
    return dict(found.values())


def _path(path: str) -> str:
    text = "self"
    for part in path.split("."):
        text = member(text, part)
    return text


def _names_of(function: Callable, args: tuple) -> list[str]:
    """The parameters that positional arguments go to."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [f"argument_{at + 1}" for at in range(len(args))]
    plain = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return [plain[at] if at < len(plain) and plain[at] != "self" else f"argument_{at + 1}" for at in range(len(args))]


def _prepared(module: Module | None) -> tuple[Tracer, _Inputs, dict[Node, str]]:
    """What a trace of a module begins with: placeholders for its parameters and buffers, and how the text reads them."""
    tracer = Tracer()
    inputs = _Inputs(tracer)
    nodes = {}
    for path, value in (_state_of(module) if module is not None else {}).items():
        node = tracer.graph.placeholder("state")
        node.meta["val"] = None
        tracer.know(value, node)
        node.meta["given"] = value
        nodes[node] = _path(path)
    return tracer, inputs, nodes


def _get_trace_graph(f: Any, args: Any = (), kwargs: dict[str, Any] | None = None, strict: bool = True, _force_outplace: bool = False,
                     return_inputs: bool = False, _return_inputs_states: bool = False) -> tuple:
    """(the graph of a run of `f`, its result): nodes are calls of ATen's operators, with the sizes of what they are given and give."""
    args = args if isinstance(args, tuple) else (args,)
    module = f if isinstance(f, Module) else None
    tracer, inputs, nodes = _prepared(module)
    given = [inputs.add(name, value) for name, value in zip(_names_of(f.forward if module is not None else f, args), args)]
    named = {name: inputs.add(name, value) for name, value in (kwargs or {}).items()}
    with tracer.recording():
        out = f(*given, **named)
    given_back = [tracer._found(leaf) for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
    graph = TracedGraph(tracer.graph, {**nodes, **inputs.names}, given_back)
    return (graph, out, (args, kwargs or {})) if return_inputs or _return_inputs_states else (graph, out)


def _trace_function(function: Callable, module: Module | None, args: tuple, kwargs: dict[str, Any], strict: bool, first_constant: int,
                    names_of: Callable) -> Traced:
    """Run `function` once, and print what it did."""
    tracer, inputs, nodes = _prepared(module)
    given = [inputs.add(name, value) for name, value in zip(_names_of(names_of, args), args)]
    named = {name: inputs.add(name, value) for name, value in kwargs.items()}
    with tracer.recording():
        out = function(*given, **named)
        with without_top_mode():
            printer = Printer({})
            result = _Output(tracer, strict)
            structure = result.part(out)
    constants = list(tracer.constants.values())
    names = {**nodes, **inputs.names}
    for node in tracer.graph.nodes:
        if node.op == "placeholder" and node not in names:
            names[node] = f"CONSTANTS.c{first_constant + [f'c_{key}' for key in tracer.constants].index(str(node.target))}"
    printer = Printer(names)
    body = printer.graph(tracer.graph)
    body.append(f"return {structure.text(printer)}")
    return Traced(f"({', '.join(['self: SELF', *inputs.parameters])}) -> {structure.type}", body, [c.detach() for c in constants],
                  list(tracer.programs.values()))


class _Structure(NamedTuple):
    """An output: its type, and what prints it."""

    type: str
    text: Callable[[Printer], str]


class _Output:
    """What a traced function gives, as tensors in tuples, lists and dicts."""

    def __init__(self, tracer: Tracer, strict: bool) -> None:
        self.tracer, self.strict = tracer, strict

    def part(self, value: Any) -> _Structure:
        """One of the parts, or all."""
        if isinstance(value, Tensor):
            node = self.tracer.node_of(value)
            return _Structure("Tensor", lambda printer: printer.value(node))
        if isinstance(value, TracedInt):
            number = value.node()
            return _Structure("Tensor", lambda printer: f"ops.prim.NumToTensor({printer.value(number)})")
        if isinstance(value, (list, dict)) and self.strict:
            raise RuntimeError(f"Encountering a {type(value).__name__} at the output of the tracer might cause the trace to be incorrect, "
                               "this is only valid if the container structure does not change based on the module's inputs. Consider using "
                               "a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` "
                               "instead). If you absolutely need this and know the side effects, pass strict=False to trace() to allow "
                               "this behavior.")
        if isinstance(value, tuple):
            parts = [self.part(v) for v in value]
            return _Structure(f"Tuple[{', '.join(p.type for p in parts) or '()'}]",
                              lambda printer: f"({', '.join(p.text(printer) for p in parts)}{',' if len(parts) == 1 else ''})")
        if isinstance(value, list) and value:
            parts = [self.part(v) for v in value]
            return _Structure(f"List[{self._one(parts)}]", lambda printer: f"[{', '.join(p.text(printer) for p in parts)}]")
        if isinstance(value, dict) and value and all(isinstance(k, (str, int)) for k in value):
            keys, parts = [repr(k).replace("'", '"') for k in value], [self.part(v) for v in value.values()]
            return _Structure(f"Dict[{type(next(iter(value))).__name__}, {self._one(parts)}]", lambda printer: "{" + ", ".join(
                f"{k}: {p.text(printer)}" for k, p in zip(keys, parts)) + "}")
        raise RuntimeError("Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions; got a "
                           f"{type(value).__name__}")

    @staticmethod
    def _one(parts: list[_Structure]) -> str:
        kinds = {p.type for p in parts}
        if len(kinds) > 1:
            raise RuntimeError(f"a list or dict at the output of a traced function has parts of several types: {', '.join(sorted(kinds))}")
        return kinds.pop()


# -- modules ----------------------------------------------------------------------------------------------------------------------------
class _Classes:
    """The text of classes for modules and what is in them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}     # by full name
        self.same: dict[tuple, str] = {}

    def name(self, kind: type) -> str:
        """A full name for a class, which no other has."""
        return unique_name(kind.__module__, kind.__name__, self.texts)

    def define(self, module: Module, methods: list[tuple[str, Traced]], memo: dict[int, str]) -> str:
        """The class of a module, which may be shared with modules of the same kinds of attributes."""
        if id(module) in memo:
            return memo[id(module)]
        parts = {name: self.define(sub, [], memo) for name, sub in module._modules.items() if sub is not None}
        lines = [f"__parameters__ = [{''.join(f'{_quoted(n)}, ' for n, p in module._parameters.items() if p is not None)}]",
                 f"__buffers__ = [{''.join(f'{_quoted(n)}, ' for n, b in module._buffers.items() if b is not None)}]"]
        held = {**module._parameters, **module._buffers}
        kinds = {n: "NoneType" if v is None else "Tensor" for n, v in held.items()} | {"training": "bool"} | parts
        lines += [f"{n} : {kind}" if n.isidentifier() else f"__annotations__[{_quoted(n)}] = {kind}" for n, kind in kinds.items()]
        key = (type(module), tuple(lines))
        if not methods and key in self.same:
            memo[id(module)] = self.same[key]
            return self.same[key]
        name = memo[id(module)] = self.name(type(module))
        for method, traced in methods:
            lines.append(f"def {method}{traced.signature.replace('SELF', name)}:")
            lines += [f"  {line}" for line in traced.body]
        self.texts[name] = "\n".join([f"class {name.rpartition('.')[2]}(Module):", *(f"  {line}" for line in lines)]) + "\n"
        if not methods:
            self.same[key] = name
        return name

    def sources(self) -> dict[str, str]:
        """The texts by module of Python's."""
        found: dict[str, str] = {}
        for name, text in self.texts.items():
            home = name.rpartition(".")[0]
            found[home] = found.get(home, "") + text
        return found


def _quoted(name: str) -> str:
    return f'"{name}"'


def _instance(module: Module, program: ScriptProgram, names: dict[int, str], made: dict[int, RecursiveScriptModule],
              kind: type[RecursiveScriptModule]) -> RecursiveScriptModule:
    """The ScriptModule for a module, which holds the same parameters and buffers."""
    if id(module) in made:
        return made[id(module)]
    one = made[id(module)] = kind(program.classes[names[id(module)]], program)
    one.training = module.training
    for name, p in module._parameters.items():
        (one._parameters if p is not None else one._values)[name] = p
    for name, b in module._buffers.items():
        (one._buffers if b is not None else one._values)[name] = b
    for name, sub in module._modules.items():
        if sub is not None:
            one._modules[name] = _instance(sub, program, names, made, RecursiveScriptModule)
    return one


def _traced_module(module: Module, methods: list[tuple[str, Traced]]) -> RecursiveScriptModule:
    classes, names = _Classes(), {}     # type: tuple[_Classes, dict[int, str]]
    classes.define(module, methods, names)
    sources, seen = classes.sources(), set(classes.texts)
    for called_program in (program for _, traced in methods for program in traced.programs):
        texts = {n: c.source for n, c in called_program.classes.items()} | {n: f.source for n, f in called_program.functions.items()}
        for name in [n for n in texts if n not in seen]:
            home = name.rpartition(".")[0]
            sources[home] = sources.get(home, "") + texts[name]
        seen |= texts.keys()
    program = ScriptProgram(sources, [c for _, traced in methods for c in traced.constants])
    return _instance(module, program, names, {}, TopLevelTracedModule)


# -- checking ------------------------------------------------------------------------------------------------------------------------------
def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        return _leaves(list(value.values()))
    return [t for v in value for t in _leaves(v)] if isinstance(value, (list, tuple)) else [value] if isinstance(value, Tensor) else []


@contextmanager
def _as_before(module: Module | None) -> Iterator[None]:
    """The buffers and the random numbers are afterwards as they were."""
    state = {path: t.detach().clone() for path, t in _state_of(module).items()} if module is not None else {}
    numbers = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(numbers)
        with dispatch.scope(dispatch.state.modes, 0, dispatch.state.fake, False):
            for path, t in (_state_of(module) if module is not None else {}).items():
                if not bool(OPERATORS["equal"](t, state[path])):
                    t.copy_(state[path])


def _check(function: Callable, traced: Callable, module: Module | None, args: tuple, kwargs: dict, tolerance: float) -> None:
    """Warn where a trace does not compute what the function does."""
    results = []
    for call in (function, traced):
        with _as_before(module), dispatch.scope(dispatch.state.modes, 0, dispatch.state.fake, False):
            results.append(_leaves(call(*tree_map(_copied, args), **tree_map(_copied, kwargs))))
    for at, (expected, found) in enumerate(zip(*results)):
        if expected.shape != found.shape or expected.dtype is not found.dtype or not bool(
                OPERATORS["isclose"](found.to(expected.dtype), expected, tolerance, tolerance, True).all()):
            warnings.warn(f"Output nr {at + 1}. of the traced function does not match the corresponding output of the Python function: "
                          f"shapes {list(found.shape)} and {list(expected.shape)}", TracerWarning, stacklevel=4)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _as_args(inputs: Any) -> tuple:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def trace(func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
          check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
          _compilation_unit: Any = None, example_kwarg_inputs: dict[str, Any] | None = None, _store_inputs: bool = True) -> Any:
    """What `func`, a module or a function of tensors, does with `example_inputs`, as a ScriptModule or a ScriptFunction.

    The module's parameters and buffers are those of the ScriptModule. `check_trace` runs both again, with `check_inputs` too,
        and warns where
    results differ by more than `check_tolerance`. `strict` refuses lists and dicts at the output. What Python decides by a tensor's value
    is decided for good: TracerWarning says so.
    """
    if isinstance(func, (RecursiveScriptModule, ScriptFunction)):
        return func
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict, or example_inputs should be given")
    args, kwargs = () if example_inputs is None else _as_args(example_inputs), example_kwarg_inputs or {}
    module = func if isinstance(func, Module) else None
    forward = module.forward if module is not None else func
    traced = _trace_function(func, module, args, kwargs, strict, 0, forward)
    holder = module if module is not None else _placeholder()
    made: Any = _traced_module(holder, [("forward", traced)])
    if module is None:
        made = as_function(made, getattr(func, "__name__", "traced"))
    if check_trace:
        for given in [args, *map(_as_args, check_inputs or ())]:
            _check(func, made, module, given, kwargs, check_tolerance)
    return made


class PlaceholderModule(Module):
    """What holds a traced function."""


def _placeholder() -> Module:
    return PlaceholderModule()


def as_function(module: RecursiveScriptModule, name: str) -> ScriptFunction:
    """The forward of a module without parameters, as a function."""
    function = copy.copy(module._class.methods["forward"])
    function.name = name
    return ScriptFunction(function, module._program, (module,))


def trace_module(mod: Module, inputs: dict[str, Any], optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
                 check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
                 _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True) -> Any:
    """`trace` of several methods: `inputs` has the example inputs of each, by its name."""
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    methods: list[tuple[str, Traced]] = []
    count = 0
    for name, given in inputs.items():
        function = mod if name == "forward" else getattr(mod, name)
        args, kwargs = ((), given) if example_inputs_is_kwarg else (_as_args(given), {})
        methods.append((name, _trace_function(function, mod, args, kwargs, strict, count, getattr(mod, name))))
        count += len(methods[-1][1].constants)
    made = _traced_module(mod, methods)
    for name, given in inputs.items() if check_trace else ():
        args, kwargs = ((), given) if example_inputs_is_kwarg else (_as_args(given), {})
        for again in [args, *(_as_args(more[name]) for more in check_inputs or ())]:
            _check(mod if name == "forward" else getattr(mod, name), getattr(made, name), mod, again, kwargs, check_tolerance)
    return made
