"""Graphs printed as Python: one line a node, shapes as annotations, values freed after their last use."""

from __future__ import annotations

import builtins
import keyword
import math
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.fx.node import PUBLIC, Argument, Node, function_name, importable_path, is_path, last_uses

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph


class PythonCode(NamedTuple):
    """`src` defines a function `forward`, `globals` are the names it needs, `lines` maps node names to line numbers."""

    src: str
    globals: dict[str, Any]
    lines: dict[str, int]


# -- shapes and dtypes as text -----------------------------------------------------------------------------------------

_SHORT_DTYPES = {
    "bool": "b8", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def short_dtype(dtype: Any) -> str:
    """`float32` as `f32`."""
    name = str(dtype).rpartition(".")[2]
    return _SHORT_DTYPES.get(name, name)


def describe_value(value: Any) -> str | None:
    """A stand-in as text: `f32[8, 128]`, `Sym(s0)`, `(f32[2], i64[])`; None for what has no shape to tell."""
    if value is None or isinstance(value, (bool, str)):
        return None
    if isinstance(value, (tuple, list)):
        return f"({', '.join(describe_value(item) or type(item).__name__ for item in value)})" if value else None
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{short_dtype(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (int, float, complex)):
        return type(value).__name__
    return f"Sym({value})" if hasattr(type(value), "hint") or hasattr(value, "node") else None


# -- expressions -------------------------------------------------------------------------------------------------------

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_": "is", "is_not": "is not",
}  # fmt: skip
_PREFIX = {"neg": "-", "pos": "+", "invert": "~", "not_": "not "}
_AUGMENTED = {
    "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ifloordiv": "//=", "imod": "%=", "ipow": "**=",
    "imatmul": "@=", "ilshift": "<<=", "irshift": ">>=", "iand": "&=", "ior": "|=", "ixor": "^=",
}  # fmt: skip

class _Globals:
    """The names that printed code needs, each bound to one object."""

    def __init__(self, taken: set[str]) -> None:
        self.bound: dict[str, Any] = {}
        self.taken = taken

    def name_of(self, wish: str, value: Any) -> str:
        """A global name for `value`: `wish` unless that name means something else."""
        name, number = wish, 0
        while name in self.taken or (name in self.bound and self.bound[name] is not value):
            number += 1
            name = f"{wish}_{number}"
        self.bound[name] = value
        return name

    def module_path(self, module: str, wish: str | None = None) -> str:
        """An importable module as an expression: its package is bound, or the module itself under a wished-for name."""
        if wish is not None:
            return self.name_of(wish, sys.modules[module])
        root, _, rest = module.partition(".")
        return self.name_of(root, sys.modules[root]) + (f".{rest}" if rest else "")

    def member(self, space: str, name: str, value: Any) -> str:
        """`space.name` for an object printed as a member of something that is not a module, such as a table."""
        if space == "torch" and getattr(sys.modules["flambeau"], name, None) is value:
            return f"{self.module_path('flambeau', 'torch')}.{name}"
        root, number = space, 0
        while root in self.taken or not self._fits(root, name, value):
            number += 1
            root = f"{space}_{number}"
        setattr(self.bound.setdefault(root, SimpleNamespace()), name, value)
        return f"{root}.{name}"

    def _fits(self, root: str, name: str, value: Any) -> bool:
        held = self.bound.get(root)
        return held is None or (isinstance(held, SimpleNamespace) and getattr(held, name, value) is value)


def callable_expression(fn: Any, names: _Globals) -> str:
    """Text that names a callable: `torch.relu`, `prims.exp`, `math.floor`, or else a bound global."""
    if (public := getattr(fn, "public_name", None)) is not None:    # an operator of torch.ops
        return f"{names.module_path('flambeau', 'torch')}.{public}"
    name = function_name(fn)
    if not is_path(name):
        return names.name_of(_identifier(name or type(fn).__name__), fn)
    if getattr(builtins, name, None) is fn:
        return name if name not in names.taken else names.name_of(name, fn)
    if (found := importable_path(fn)) and found[0] in PUBLIC:
        return f"{names.module_path('flambeau', 'torch')}{found[0].removeprefix('flambeau')}.{name}"
    if dotted := _dotted_repr(fn):
        return names.member(*dotted, fn)
    return f"{names.module_path(found[0])}.{found[1]}" if found else names.name_of(_identifier(name), fn)


def _dotted_repr(a: Any) -> tuple[str, str] | None:
    """(`prims`, `exp`) for an object whose repr is `prims.exp`."""
    if isinstance(a, (type, FunctionType, BuiltinFunctionType)):
        return None
    root, dot, member = repr(a).rpartition(".")
    return (root, member) if dot and root.isidentifier() and member.isidentifier() else None


def _identifier(text: str) -> str:
    cleaned = "".join(c if c.isalnum() or c == "_" else "_" for c in text)
    return cleaned if cleaned and not cleaned[0].isdigit() and not keyword.iskeyword(cleaned) else f"_{cleaned}"


def attribute_expression(root: str, target: str) -> str:
    """`self.a.b`, with `getattr` for parts that are not identifiers (`layers.0`)."""
    text = root
    for atom in target.split("."):
        plain = atom.isidentifier() and not keyword.iskeyword(atom)
        text = f"{text}.{atom}" if plain else f'getattr({text}, "{atom}")'
    return text


def argument_expression(a: Argument, names: _Globals) -> str:
    """An argument as source text; constants that have no literal become bound globals."""
    if isinstance(a, Node):
        return a.name
    kind = type(a)
    if a is None or kind in (bool, int, str, bytes) or a is Ellipsis:
        return "..." if a is Ellipsis else repr(a)
    if kind is float:
        return repr(a) if math.isfinite(a) else f"float({str(a)!r})"
    if isinstance(a, tuple):
        items = [argument_expression(item, names) for item in a]
        if hasattr(a, "_fields"):
            return f"{callable_expression(kind, names)}({', '.join(items)})"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(a, list):
        return f"[{', '.join(argument_expression(item, names) for item in a)}]"
    if isinstance(a, dict):
        pairs = (f"{argument_expression(k, names)}: {argument_expression(v, names)}" for k, v in a.items())
        return f"{{{', '.join(pairs)}}}"
    if kind is slice:
        return f"slice({', '.join(argument_expression(part, names) for part in (a.start, a.stop, a.step))})"
    return _object_expression(a, names)


def _object_expression(a: Any, names: _Globals) -> str:
    """A constant object: by the path that its own repr gives where that is a way to it, else as a bound global."""
    if isinstance(a, type) or (callable(a) and hasattr(a, "__qualname__")):
        return callable_expression(a, names)
    if dotted := _dotted_repr(a):
        root, member = dotted
        if root == type(a).__name__ and getattr(type(a), member, None) is a:  # a member of an enumeration
            return f"{callable_expression(type(a), names)}.{member}"
        return names.member(root, member, a)
    kind = type(a)
    if _rebuilds(a, kind):
        names.name_of(kind.__name__, kind)
        return repr(a)
    return names.name_of(_identifier(f"_{kind.__name__}"), a)


def _rebuilds(a: Any, kind: type) -> bool:
    """Whether the repr of a constant, such as `device(type='cpu')`, is a way to make it again."""
    text = repr(a)
    if not text.startswith(f"{kind.__name__}(") or hasattr(a, "shape"):
        return False
    try:
        return bool(eval(text, {kind.__name__: kind}) == a)
    except Exception:  # any text can follow the bracket; then the object itself is bound
        return False


# -- the function ------------------------------------------------------------------------------------------------------


class CodeGen:
    """Prints a graph as `def forward(self, ...)`. Subclass and override what is below for another calling convention."""

    _body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str = "") -> str:
        """The `def` line for parameters such as `x`, `y = 2`, `*rest`."""
        own = [] if free_vars[:1] == ["self"] else ["self"]
        return f"def forward({', '.join([*own, *free_vars])}){maybe_return_annotation}:"

    def generate_output(self, output_args: str) -> str:
        """The last line."""
        return f"return {output_args}"

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of a call as the graph's placeholders get them."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the graph's output node gives as a call returns it."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Further names that the code needs, with their values."""
        return []

    def generate(self, graph: Graph, root: str = "self", *, verbose: bool = False) -> PythonCode:
        """The whole function as `PythonCode`; `verbose` adds the user's lines as comments."""
        frees = last_uses(graph)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        parameters = [(n.name, str(n.target).lstrip("*")) for n in placeholders]
        names = _Globals({node.name for node in graph.nodes}.union(target for _, target in parameters))
        # first, before another node can take a parameter's name
        body = [f"    {name} = {parameter}" for name, parameter in parameters if name != parameter]
        lines: dict[str, int] = {}
        shown: str | None = None
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if verbose and (origin := _origin(node)) != shown:
                shown = origin
                if origin:
                    body.append(f"    # {origin}")
            text = self.statement(node, root, names)
            if node.op != "output" and (dead := [n.name for n in frees[node]]):
                text += f";  {' = '.join(dead)} = None"
            lines[node.name] = len(body) + 2
            body.append(f"    {text}")
        returned = next((_annotation(node.type, names, " -> ") for node in reversed(graph.nodes) if node.op == "output"), "")
        signature = self.gen_fn_def([_parameter(node, names) for node in placeholders], returned)
        if self._body_transformer is not None:
            body = _indented(self._body_transformer([f"{line[4:]}\n" for line in body]))
        source = "\n".join([*signature.split("\n"), *(body or ["    pass"])]) + "\n"
        return PythonCode(source, names.bound | dict(self.additional_globals()), lines)

    def statement(self, node: Node, root: str, names: _Globals) -> str:
        """One node as one statement."""
        if node.op == "output":
            return self.generate_output(argument_expression(node.args[0] if node.args else None, names))
        if _is_augmented(node):
            target, value = (argument_expression(a, names) for a in node.args)
            return f"{node.name} = {target}; {node.name} {_AUGMENTED[_function_name(node)]} {value}"
        described = describe_value(node.meta.get("val"))
        annotation = f': "{described}"' if described else _annotation(node.type, names)
        return f"{node.name}{annotation} = {_expression(node, root, names)}"


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in "".join(lines).splitlines()]


def _parameter(node: Node, names: _Globals) -> str:
    target = str(node.target)
    stars = len(target) - len(target.lstrip("*"))
    described = describe_value(node.meta.get("val"))
    annotation = f': "{described}"' if described and not stars else _annotation(node.type, names)
    default = f" = {argument_expression(node.args[0], names)}" if node.args else ""
    return f"{target}{annotation}{default}"


def _annotation(kind: Any, names: _Globals, before: str = " : ") -> str:
    """What is annotated, if it is; annotations that are text may mean anything, and are left out."""
    return "" if kind is None or isinstance(kind, str) else f"{before}{_type_expression(kind, names)}"


def _type_expression(kind: Any, names: _Globals) -> str:
    """A class or a generic of `typing` as source text: `typing_List[torch.Tensor]`."""
    if kind is type(None):
        return names.name_of("NoneType", kind)
    origin = typing.get_origin(kind)
    if origin is None:
        return callable_expression(kind, names) if isinstance(kind, type) else names.name_of(_identifier(str(kind).replace(".", "_")), kind)
    parts = typing.get_args(kind)
    if not parts or not all(isinstance(part, type) or typing.get_origin(part) is not None for part in parts):
        return names.name_of(_identifier(f"_{type(kind).__name__}"), kind)
    name = getattr(kind, "_name", None) or "Union"
    base = names.name_of(f"typing_{name}", getattr(typing, name)) if type(kind).__module__ == "typing" else callable_expression(origin, names)
    if name == "Optional":
        base = names.name_of("typing_Union", typing.Union)
    return f"{base}[{','.join(_type_expression(part, names) for part in parts)}]"


def _function_name(node: Node) -> str:
    return getattr(node.target, "__name__", "")


def _is_operator_call(node: Node, table: dict[str, str], arity: int) -> bool:
    if node.op != "call_function" or getattr(node.target, "__module__", None) != "_operator":
        return False
    return _function_name(node) in table and len(node.args) == arity and not node.kwargs


def _is_augmented(node: Node) -> bool:
    return _is_operator_call(node, _AUGMENTED, 2)


def _expression(node: Node, root: str, names: _Globals) -> str:
    """The right-hand side of a node's statement."""
    if node.op == "get_attr":
        return attribute_expression(root, str(node.target))
    args = [argument_expression(a, names) for a in node.args]
    if _is_operator_call(node, _INFIX, 2):
        return f"{_operand(args[0])} {_INFIX[_function_name(node)]} {_operand(args[1])}"
    if _is_operator_call(node, _PREFIX, 1):
        return f"{_PREFIX[_function_name(node)]}{_operand(args[0])}"
    if _is_operator_call(node, {"getitem": ""}, 2):
        return f"{args[0]}[{args[1]}]"
    if node.op == "call_function" and node.target is getattr and len(args) == 2:
        name = node.args[1]
        if isinstance(name, str) and name.isidentifier() and isinstance(node.args[0], Node):
            return f"{args[0]}.{name}"
    keywords = [
        f"{key} = {argument_expression(value, names)}" if key.isidentifier() and not keyword.iskeyword(key)
        else f"**{{{key!r}: {argument_expression(value, names)}}}"
        for key, value in node.kwargs.items()
    ]  # fmt: skip
    if node.op == "call_method":
        receiver, *args = args
        callee = f"{_receiver(receiver)}.{node.target}"
    elif node.op == "call_module":
        callee = attribute_expression(root, str(node.target))
    else:
        callee = callable_expression(node.target, names)
    return f"{callee}({', '.join([*args, *keywords])})"


def _operand(text: str) -> str:
    """A negative literal in brackets, so that `-2 ** 2` cannot be misread."""
    return f"({text})" if text.startswith("-") else text


def _receiver(text: str) -> str:
    """A number in brackets, so that `5.real` is not read as a fraction."""
    return f"({text})" if text[:1] in "-0123456789" else text


_LIBRARY = str(Path(__file__).resolve().parents[1])


def _origin(node: Node) -> str | None:
    """The user's line, the innermost outside of the library, as `file:line in function: source`."""
    stack: tuple | None = node.meta.get("stack")
    if not stack:
        return None
    file, line, function, source = next((frame for frame in reversed(stack) if not frame[0].startswith(_LIBRARY)), stack[-1])
    return f"{file}:{line} in {function}: {source}"


def compile_function(code: PythonCode, filename: str) -> Callable:
    """The function `forward` that printed code defines."""
    namespace = dict(code.globals)
    exec(compile(code.src, filename, "exec"), namespace)
    return namespace["forward"]
