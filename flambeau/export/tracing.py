"""From a module and example inputs to an `ExportedProgram`."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ..aot.trace import _PACKAGE as PACKAGE
from ..aot.trace import stand_in, user_stack
from ..core.device import device
from ..core.dtypes import dtype
from ..core.expr import free_variables, is_var, to_python
from ..core.memory_format import layout, memory_format
from ..core.symbolic import DataDependentFloat, DataDependentSize, SymInt, is_symbolic
from ..core.tensor import Tensor, fake
from ..dynamo.exceptions import Unsupported, UserError, UserErrorType
from ..dynamo.stance import Exporting
from ..fx import Graph, Node
from ..nn import Module
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ..ops import aten
from ..utils._pytree import TreeSpec, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from .dims import ShapesCollection, Sizes, Wanted, dims_of, named_inputs, walk
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from .inputs import AdditionalInputs
from .program import Arguments, ExportedProgram, InputText, ModuleCallEntry, ModuleCallSignature, Symbol, ValueRange
from .record import Recorder, constant_input
from .strict import captured

_CONSTANTS = (int, float, str, type(None), bool, complex, dtype, device, layout, memory_format)


class Leaf:
    """One of the user's inputs: its value, its path as text and as a name, and what stands for it in the trace."""

    def __init__(self, value: Any, text: str, said: Any) -> None:
        self.value, self.text, self.said = value, text, said
        self.name = re.sub(r"\W+", "_", text.replace("'", "")).strip("_")
        self.stand_in: Any = value


class Inputs:
    """The user's inputs as they were given, flat, with the sizes that vary."""

    def __init__(self, mod: Module, args: tuple, kwargs: dict[str, Any], dynamic_shapes: Any, other: bool = False) -> None:
        try:
            named = named_inputs(mod, args, kwargs)
        except TypeError as error:
            raise TypeError(f"torch.export.export: the inputs do not fit forward{inspect.signature(mod.forward)}: {error}") from None
        kinds = {name: p.kind for name, p in inspect.signature(mod.forward).parameters.items()}
        given = {name: value for name, value in named.items() if kinds[name] is not inspect.Parameter.VAR_KEYWORD}
        rest: dict[str, Any] = next((value for name, value in named.items() if kinds[name] is inspect.Parameter.VAR_KEYWORD), {})
        ordered = {name: kwargs[name] for name in (*given, *rest) if name in kwargs}
        self.args, self.kwargs = args, ordered
        self.arg_names = [*list(given), *rest]
        said = walk(named, dynamic_shapes)
        paths = [name + keystr(path) for name, value in given.items() for path, _ in tree_flatten_with_path(value)[0]]
        paths += [name + keystr(path) for name, value in rest.items() for path, _ in tree_flatten_with_path(value)[0]]
        leaves, self.spec = tree_flatten((args, ordered))
        order = _order(named, kinds)
        self.sizes = Sizes(other)
        self.leaves = [Leaf(value, text, what) for value, text, what in zip(leaves, paths, [said[i] for i in order], strict=True)]
        for leaf in self.leaves:
            self._stand_in(leaf)

    def _stand_in(self, leaf: Leaf) -> None:
        value = leaf.value
        if isinstance(value, Tensor):
            sizes = [self.sizes.size(Wanted(f"{leaf.text}.size()[{d}]", said, int(n)))
                     for d, (n, said) in enumerate(zip(value.shape, dims_of(value, leaf.said), strict=True))]
            leaf.stand_in = _fake_like(value, sizes)
        elif leaf.said is not None:
            leaf.stand_in = self.sizes.size(Wanted(leaf.text, leaf.said, value))
        elif not isinstance(value, _CONSTANTS):
            raise UserError(UserErrorType.INVALID_INPUT, f"Unsupported input type {type(value)} of {leaf.text}. Export only supports "
                            "pytree containers of basic types (Tensor, int, float, ...) as input. To register a custom dataclass, use "
                            "torch.export.register_dataclass. To register a custom container type, use torch.utils._pytree."
                            "register_pytree_node.")

    def tree(self) -> tuple[tuple, dict[str, Any]]:
        """The inputs to trace with."""
        args, kwargs = tree_unflatten([leaf.stand_in for leaf in self.leaves], self.spec)
        return args, kwargs


def _order(named: Mapping[str, Any], kinds: Mapping[str, Any]) -> list[int]:
    """Where among the leaves of `named` those of the inputs are: `**kwargs` come last in a call too, so they are as they stand."""
    return list(range(sum(len(tree_flatten(value)[0]) for value in named.values())))


def _fake_like(value: Tensor, sizes: list[Any]) -> Tensor:
    """A fake tensor with these sizes, dense in the order in which `value` lies."""
    strides = list(value.stride())
    if any(is_symbolic(n) for n in sizes):
        step: Any = 1
        for d in sorted(range(len(sizes)), key=lambda d: (strides[d], value.shape[d])):
            if strides[d]:
                strides[d] = step
                step = step * sizes[d]
    made = fake(tuple(sizes), value.dtype, value.device, tuple(strides))
    if value.requires_grad:
        made.requires_grad = True
    return made


# -- the module's tensors --------------------------------------------------------------------------------------------------
class State:
    """The parameters, buffers and other tensors of a module, and their stand-ins while it is traced."""

    def __init__(self, mod: Module, assigns: bool = False) -> None:
        self.mod = mod
        self.assigns = assigns      # whether the program may give the module other tensors, which are forgotten afterwards
        self.parameters = dict(mod.named_parameters())
        self.buffers = dict(mod.named_buffers())
        self.hidden = {f"{path}.{name}".lstrip(".") for path, m in mod.named_modules() for name in m._non_persistent_buffers_set}
        self.stand_ins: dict[int, Tensor] = {}
        self.names = {id(value): f"{path}.{name}".lstrip(".") for path, m in mod.named_modules() for name, value in vars(m).items()
                      if isinstance(value, Tensor)}
        self.lifted = 0
        self.written: list[tuple[str, Tensor]] = []

    def name_of(self, tensor: Tensor, made_here: bool) -> str:
        """The name of a constant: its path in the module, or a number."""
        known = self.names.get(id(tensor))
        if known is not None and not made_here:
            return known
        self.lifted += 1
        return f"lifted_tensor_{self.lifted - 1}"

    def stand_in(self, value: Tensor) -> Tensor:
        """The fake tensor for a parameter or buffer."""
        made = stand_in(value)
        made = made._as_subclass(type(value)) if type(value) is not Tensor else made
        self.stand_ins[id(value)] = made
        return made

    @contextmanager
    def swapped(self, strict: bool) -> Iterator[None]:
        """The module with stand-ins, but for a strict export, where dynamo sees it as it is; what it assigns to its buffers is noted; other
        tensors that it assigns are forgotten, with a warning."""
        homes: list[tuple[str, Module, Any, dict]] = [
            (path, m, home, dict(home)) for path, m in self.mod.named_modules() for home in (m._parameters, m._buffers)]
        plain = [(path, m, {k: v for k, v in vars(m).items() if not k.startswith("_") or isinstance(v, Tensor)})
                 for path, m in self.mod.named_modules()]
        kept = [(v, v.copy()) for m in self.mod.modules() for k, v in vars(m).items()
                if type(v) in (dict, list) and k not in ("_parameters", "_buffers", "_modules")]    # where programs keep tensors
        try:
            for _, _, home, values in homes:
                if not strict:
                    home.update({name: self.stand_ins.get(id(value), value) for name, value in values.items() if value is not None})
            yield
            for path, _, home, values in homes:
                self._note(path, home, values)
            for path, m, before in plain if not self.assigns else ():
                self._tell_assigned(path, m, before)
        finally:
            for now, before in kept:
                now.clear()
                if isinstance(now, dict):
                    now.update(before)
                else:
                    now.extend(before)
            for _, _, home, values in homes:
                home.clear()
                home.update(values)
            for _, m, before in plain:
                for name in [k for k, v in vars(m).items() if isinstance(v, Tensor) and k not in before]:
                    del m.__dict__[name]
                for name, value in before.items():
                    m.__dict__[name] = value

    def _note(self, path: str, home: dict, values: dict) -> None:
        for name, now in home.items():
            before = values.get(name)
            if isinstance(now, Tensor) and isinstance(before, Tensor) and now is not before \
                    and now is not self.stand_ins.get(id(before)):
                self.written.append((f"{path}.{name}".lstrip("."), now))

    @staticmethod
    def _tell_assigned(path: str, m: Module, before: dict) -> None:
        assigned = [k for k, v in vars(m).items() if isinstance(v, Tensor) and v is not before.get(k)]
        if assigned:
            names = ", ".join(f"self.{path}.{name}".replace("..", ".") for name in assigned)
            several = len(assigned) > 1
            warnings.warn(f"The tensor attribute{'s' if several else ''} {names} {'were' if several else 'was'} assigned during export. "
                          "Such attributes must be registered as buffers using the `register_buffer` API", stacklevel=2)


# -- tracing -----------------------------------------------------------------------------------------------------------------
class Calls:
    """How the modules at some paths are called, and what they give."""

    def __init__(self, paths: Sequence[str]):
        self.paths, self.found = paths, dict[str, ModuleCallSignature]()
        self.given: dict[str, list[tuple[list[Any], TreeSpec]]] = {path: [] for path in paths}

    def hooks(self, recorder: Recorder, mod: Module) -> Iterator[Any]:
        """Hooks that find out."""
        for path in self.paths:
            module = mod.get_submodule(path)
            yield module.register_forward_pre_hook(partial(self._enter, recorder, path), with_kwargs=True)
            yield module.register_forward_hook(partial(self._leave, recorder, path))

    def _enter(self, recorder: Recorder, path: str, module: Any, args: tuple, kwargs: dict) -> None:
        leaves, spec = tree_flatten((args, kwargs))
        self.given[path].append(([self._argument(recorder, leaf) for leaf in leaves], spec))

    def _leave(self, recorder: Recorder, path: str, module: Any, args: tuple, out: Any) -> None:
        leaves, spec = tree_flatten(out)
        number = sum(name.partition("@")[0] == path for name in self.found)
        inputs, in_spec = self.given[path].pop()
        self.found[f"{path}@{number}" if number else path] = ModuleCallSignature(
            inputs, [self._argument(recorder, leaf) for leaf in leaves], in_spec, spec)

    @staticmethod
    def _argument(recorder: Recorder, leaf: Any) -> Any:
        node = recorder.argument(leaf) if isinstance(leaf, Tensor) or is_symbolic(leaf) else None
        if not isinstance(node, Node):
            return ConstantArgument("", leaf)
        return TensorArgument(node.name) if isinstance(leaf, Tensor) else SymIntArgument(node.name)


@contextmanager
def _noting_modules(recorder: Recorder, mod: Module, calls: Calls) -> Iterator[None]:
    """The recorder knows which modules' forward is under way, and `calls` what some of them are given and give."""
    paths = {id(m): path for path, m in mod.named_modules()}
    times: Counter[str] = Counter()

    def enter(module: Any, *_: Any) -> None:
        path = paths.get(id(module))
        if path is not None:
            number = f"@{times[path]}" if times[path] else ""
            times[path] += 1
            key = "L__self__" + ("_" + path.replace(".", "_") if path else "") + number
            cls = type(module)
            recorder.modules.append((key, (path, f"{cls.__module__}.{cls.__qualname__}")))

    def leave(module: Any, *_: Any) -> None:
        if id(module) in paths:
            recorder.modules.pop()

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave), *calls.hooks(recorder, mod)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _without(outer: tuple) -> Callable[[], tuple]:
    """The user's frames inside of what is exported."""
    def stack() -> tuple:
        frames = user_stack()
        same = 0
        while same < min(len(frames), len(outer)) and frames[same][:3:2] == outer[same][:3:2]:
            same += 1
        return frames[same:] or frames[-1:]

    return stack


class Trace:
    """One export: the recorder, the inputs and the state, and what comes of them."""

    def __init__(self, mod: Module, inputs: Inputs, assigns: bool = False, preserved: Sequence[str] = ()) -> None:
        self.mod, self.inputs, self.calls = mod, inputs, Calls(preserved)
        self.state = State(mod, assigns)
        self.recorder = Recorder(self.state.name_of, inputs.sizes.env)
        self.recorder.stack_of = _without(user_stack())
        self.placed: list[tuple[Node, InputSpec]] = []
        self._place_state()
        self._place_inputs()

    def _place(self, kind: InputKind, prefix: str, path: str, value: Any, persistent: bool | None = None) -> Node:
        node = self.recorder.input(prefix + re.sub(r"\W", "_", path), value)
        target = path if kind is not InputKind.USER_INPUT else None
        self.placed.append((node, InputSpec(kind, TensorArgument(node.name), target, persistent)))
        return node

    def _place_state(self) -> None:
        for path, value in self.state.parameters.items():
            self._place(InputKind.PARAMETER, "p_", path, self.state.stand_in(value))
        for path, buffer in self.state.buffers.items():
            self._place(InputKind.BUFFER, "b_", path, self.state.stand_in(buffer), path not in self.state.hidden)

    def _place_inputs(self) -> None:
        for leaf in self.inputs.leaves:
            node = self._place(InputKind.USER_INPUT, "", leaf.name, leaf.stand_in)
            spec = self.placed[-1][1]
            if isinstance(leaf.stand_in, SymInt):
                spec.arg = SymIntArgument(node.name)
            elif not isinstance(leaf.stand_in, Tensor):
                spec.arg = ConstantArgument(node.name, leaf.stand_in)
            self.recorder.first = self.recorder.first or node
        self._read_sizes()

    def _read_sizes(self) -> None:
        """A node for each symbol, which is an input or read off one."""
        recorder = self.recorder
        users = [node for node, spec in self.placed if spec.kind is InputKind.USER_INPUT]
        for node in users:
            value = node.meta["val"]
            if isinstance(value, SymInt) and is_var(value.expr):
                recorder.symbols.setdefault(to_python(value.expr), node)
        for bare in (True, False):
            for node in users:
                if isinstance(node.meta["val"], Tensor):
                    for dim, size in enumerate(node.meta["val"]._layout.shape):
                        if isinstance(size, SymInt) and is_var(size.expr) == bare:
                            self._read_size(node, dim, size)

    def _read_size(self, node: Node, dim: int, size: SymInt) -> None:
        names = free_variables(size.expr) - self.recorder.symbols.keys()
        if not names:
            return
        read = self.recorder.graph.call_function(aten.sym_size.int, (node, dim))
        read.meta["val"] = size
        name, = names
        if is_var(size.expr):
            self.recorder.symbols[name] = read
            return
        derived = next(d for leaf in self.inputs.leaves if isinstance(leaf.value, Tensor) and leaf.name == node.target
                       for i, d in enumerate(dims_of(leaf.value, leaf.said)) if i == dim)
        make = self.recorder.sizes._call
        less = make(_sub, read, derived.offset) if derived.offset else read
        self.recorder.symbols[name] = make(_floordiv, less, derived.scale) if derived.scale != 1 else less

    def run(self, strict: bool) -> tuple[list[Any], Any]:
        """Trace; the leaves and the structure of what comes out."""
        args, kwargs = self.inputs.tree()
        call: Callable[..., Any] = self.mod
        if strict:
            call = captured(self, self.mod)
            self._know_what_is_real()
        with ExitStack() as stack:
            stack.enter_context(self.state.swapped(strict))
            stack.enter_context(Exporting.a_module())
            if not strict:
                stack.enter_context(_noting_modules(self.recorder, self.mod, self.calls))
                stack.enter_context(self.recorder.recording())
            try:
                answer = call(*args, **kwargs)
            except (DataDependentSize, DataDependentFloat) as error:
                raise self._data_dependent(error) from error
            leaves, spec = tree_flatten(answer)
            out = [self._output(leaf) for leaf in leaves]
        for path, value in self.state.written:
            target = next(node for node, s in self.placed if s.target == path)
            self.recorder.graph.call_function(aten.copy_.default, (target, self.recorder.node_of(value))).meta = {"val": target.meta["val"]}
        return out, spec

    def _know_what_is_real(self) -> None:
        """The nodes of the module's tensors and of the inputs."""
        nodes = {spec.target or str(node.target): node for node, spec in self.placed}
        for path, value in (*self.state.parameters.items(), *self.state.buffers.items()):
            self.recorder.know(value, nodes[path])
        for leaf in self.inputs.leaves:
            if isinstance(leaf.value, Tensor):
                self.recorder.know(leaf.value, self.recorder.node_of(leaf.stand_in))

    def _data_dependent(self, error: Exception) -> UserError:
        """A branch on what only a run knows."""
        frames = [(f.filename, f.lineno, f.name, f.line) for f in traceback.extract_tb(error.__traceback__)
                  if not f.filename.startswith(PACKAGE)]
        return UserError(UserErrorType.DYNAMIC_CONTROL_FLOW, _told_of_data(error, frames[-1:]))

    def _output(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor) or is_symbolic(leaf):
            return self.recorder.argument(leaf)
        if isinstance(leaf, (int, float, str, bool, complex, type(None))):
            return leaf
        raise UserError(UserErrorType.INVALID_OUTPUT, f"Unsupported output type {type(leaf)}. Export only supports pytree containers of "
                        "tensors, numbers, strings and None as output")

    def program(self, out: list[Any], out_spec: Any) -> ExportedProgram:
        """What all of it is."""
        checks = self.inputs.sizes.finish()
        graph = self.recorder.graph
        graph.output(tuple(out))
        _drop_unused_sizes(graph)
        signature = self._signature(out)
        state_dict = {path: value for path, value in self.mod.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
        constants = dict(self.recorder.constants) | {path: self.state.buffers[path] for path in self.state.hidden
                                                     if path in self.state.buffers}
        entries = [ModuleCallEntry("", ModuleCallSignature([], [], self.inputs.spec, out_spec, self.inputs.arg_names))]
        entries += [ModuleCallEntry(path, self.calls.found.get(path)) for path, _ in self.mod.named_modules() if path]
        entries += [ModuleCallEntry(name, found) for name, found in self.calls.found.items() if "@" in name]
        texts = [InputText(leaf.text, leaf.stand_in) for leaf in self.inputs.leaves]
        return ExportedProgram(self.recorder.functions, graph, signature, state_dict, self._ranges(), entries,
                               (self.inputs.args, self.inputs.kwargs), constants, user_inputs=texts, checks=checks + self._range_checks())

    def _signature(self, out: list[Any]) -> ExportGraphSignature:
        known = dict(self.placed)
        specs = []
        for node in self.recorder.graph.nodes:
            if node.op == "placeholder":
                path = next((name for name in self.recorder.constants if constant_input(name) == node.target), node.name)
                specs.append(known.get(node) or InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), path))
        outs = []
        for value in out:
            arg: Any = ConstantArgument("", value)
            if isinstance(value, Node):
                arg = TensorArgument(value.name) if isinstance(value.meta["val"], Tensor) else SymIntArgument(value.name)
            outs.append(OutputSpec(OutputKind.USER_OUTPUT, arg, None))
        return ExportGraphSignature(specs, outs)

    def _ranges(self) -> dict[Symbol, ValueRange]:
        """How far each size may vary: as was promised, or as it was found to."""
        sizes, found = self.inputs.sizes, {}
        for leaf in self.inputs.leaves:
            shape = leaf.stand_in._layout.shape if isinstance(leaf.stand_in, Tensor) else (leaf.stand_in,)
            for size, said in zip(shape, dims_of(leaf.value, leaf.said) if isinstance(leaf.value, Tensor) else [leaf.said]):
                if isinstance(size, SymInt):
                    named = hasattr(said, "__name__")
                    lo, hi = (said.min, said.max) if named else sizes.env._ranges[to_python(size.expr)]
                    found[Symbol(to_python(size.expr))] = ValueRange(lo, hi)
        return found

    def _range_checks(self) -> list[Any]:
        return self.inputs.sizes.range_checks()


def _told_of_data(error: Exception, frames: Sequence[tuple]) -> str:
    where = "".join(f"\n  at {file}:{line}, in {name}: {source}" for file, line, name, source in frames)
    said = f"the number {error} is known only when the program runs" if isinstance(error, DataDependentFloat) else str(error)
    return (f"Could not guard on data-dependent expression: {said}{where}\n  way out: where a tensor decides, use torch.cond, where or "
            "while_loop; keep a number that is read from a tensor in a tensor; or compute the value outside, and pass it in")


class _Guesses:
    """Answers what data would decide, once in each way at each line, so that a trace comes to further problems; and keeps them."""

    most = 50       # at one line: a loop that no answer ends

    def __init__(self) -> None:
        self.problems: dict[str, None] = {}
        self.asked: Counter[tuple] = Counter()

    def __call__(self, error: Exception) -> bool:
        frame = user_stack()[-1]
        self.problems[_told_of_data(error, [frame])] = None
        self.asked[frame] += 1
        if self.asked[frame] > self.most:
            raise error
        return self.asked[frame] % 2 == 1


def _further(mod: Module, inputs: Inputs) -> tuple[dict[str, None], str]:
    """What keeps a program from being exported, told while what data decides is guessed; and of these what is said of sizes."""
    guesses = inputs.sizes.env.guess = _Guesses()
    try:
        Trace(mod, inputs).run(False)
    except (UserError, NotImplementedError) as further:
        guesses.problems[str(further)] = None
    except Exception:       # what a guess led to
        pass
    try:
        inputs.sizes.finish()
    except UserError as of_sizes:
        guesses.problems[str(of_sizes)] = None
        return guesses.problems, str(of_sizes)
    return guesses.problems, ""


def _all_problems(mod: Module, inputs: Inputs, first: UserError) -> UserError:
    """What keeps a program from being exported whose first problem is not one of sizes: that, what comes after it, and the sizes that
    cannot vary as was said."""
    problems, _ = _further(mod, inputs)
    if len(problems) < 2:
        return first
    told = "\n".join(f"  - {text}".replace("\n", "\n  ") for text in problems)
    return UserError(UserErrorType.DYNAMIC_CONTROL_FLOW, f"{len(problems)} problems keep the module from being exported:\n{told}")


def _sub(a: Any, b: int) -> Any:
    return a - b


def _floordiv(a: Any, b: int) -> Any:
    return a // b


def _drop_unused_sizes(graph: Graph) -> None:
    """Sizes that were read, and computed, for nothing."""
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_function" and is_symbolic(node.meta.get("val")):
            graph.erase_node(node)


def _with_other_numbers(mod: Module, inputs: Inputs, preserved: Sequence[str]) -> ExportedProgram | None:
    """The program, where a size that varies was equal to a fixed one only in the example; None where it is more than that, or the
    program is not the example's."""
    trace = Trace(mod, inputs, preserved=preserved)
    try:
        program = trace.program(*trace.run(False))
        Arguments(program._user_inputs, program._checks).check([leaf.value for leaf in inputs.leaves])
        return program
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError):
        return None


def export(mod: Module, args: tuple, kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
           preserve_module_call_signature: tuple[str, ...] = (),
           prefer_deferred_runtime_asserts_over_guards: bool = False) -> ExportedProgram:
    """The program that `mod` is for inputs like these, whole and without Python: an ExportedProgram.

    `dynamic_shapes` says which sizes vary: for each input, by name or in order, a dict from dimension to a `Dim`, Dim.AUTO or Dim.DYNAMIC;
    all others are fixed, as are numbers and strings. `strict`: capture with dynamo, which understands the program's Python, instead of
    running it on tensors without data. UserError tells all sizes that cannot vary as was said, with the lines that fix them.
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(UserErrorType.INVALID_INPUT, f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature and strict:
        raise NotImplementedError("torch.export.export(preserve_module_call_signature=, strict=True) is not implemented; strict=False "
                                  "sees how modules are called")
    known = dict(mod.named_modules())
    if unknown := [path for path in preserve_module_call_signature if not path or path not in known]:
        raise ValueError(f"preserve_module_call_signature: the module has no submodule {unknown[0]!r}; it has {list(known)[1:9]}")
    if prefer_deferred_runtime_asserts_over_guards:
        raise NotImplementedError("torch.export.export(prefer_deferred_runtime_asserts_over_guards=True) is not implemented; what sizes "
                                  "have to keep to is checked when the program is called")
    return traced(mod, args, kwargs, dynamic_shapes, strict, preserve_module_call_signature=preserve_module_call_signature)


def traced(mod: Module, args: tuple, kwargs: dict[str, Any] | None, dynamic_shapes: Any, strict: bool = False,
           assigns: bool = False, preserve_module_call_signature: tuple[str, ...] = ()) -> ExportedProgram:
    """`export`; `assigns`: the module's attributes may become other tensors while it runs, which are forgotten afterwards."""
    if isinstance(dynamic_shapes, AdditionalInputs):
        dynamic_shapes, further = dynamic_shapes.dynamic_shapes(mod, args, kwargs), dynamic_shapes
        program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict,
                         preserve_module_call_signature=preserve_module_call_signature)
        further.verify(program)
        return program
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    inputs = Inputs(mod, args, kwargs or {}, dynamic_shapes)
    if inputs.sizes.problems:
        inputs.sizes.finish()
    try:
        trace = Trace(mod, inputs, assigns, preserve_module_call_signature)
        return trace.program(*trace.run(strict))
    except UserError as error:
        if error.error_type in (UserErrorType.DYNAMIC_CONTROL_FLOW, UserErrorType.INVALID_OUTPUT) and not strict:
            raise _all_problems(mod, Inputs(mod, args, kwargs or {}, dynamic_shapes), error) from error
        if strict or error.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        found = _with_other_numbers(mod, Inputs(mod, args, kwargs or {}, dynamic_shapes, True), preserve_module_call_signature)
        if found is None:
            raise
        return found
    except Unsupported as error:
        _, of_sizes = _further(mod, Inputs(mod, args, kwargs or {}, dynamic_shapes))
        if of_sizes:
            raise type(error)(f"{error}\n{of_sizes}") from error
        raise
