"""`torch.jit.freeze`: a module's parameters, buffers and attributes become constants of its program.

Each module gets a class of its own, in whose methods every attribute that nothing assigns is written out: tensors as CONSTANTS, numbers
and texts as they are. Modules are followed through `self.a.b`, `getattr(self, "0")` and local names of these.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from .module import RecursiveScriptModule
from .printer import literal
from .program import ScriptProgram
from .types import dotted
from .values import Class, ScriptObject

_KEPT = object()


class _Method(ast.NodeTransformer):
    """One method with attributes written out; `names` are the local names of modules."""

    def __init__(self, freezer: _Freezer, owner: RecursiveScriptModule, tree: ast.FunctionDef) -> None:
        self.freezer = freezer
        self.names: dict[str, RecursiveScriptModule] = {tree.args.args[0].arg: owner}
        stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.once = {name for name in stored if stored.count(name) == 1}

    def module(self, node: ast.AST) -> RecursiveScriptModule | None:
        """The module that an expression is."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        of, name = _attribute(node)
        owner = self.module(of) if of is not None else None
        return owner._modules.get(name) if owner is not None else None  # type: ignore[return-value]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in self.once and (found := self.module(node.value)) is not None:
            self.names[target.id] = found
        node.value = self.visit(node.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._read(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        hook, owner = dotted(node.func) or "", self.module(node.args[0]) if node.args else None
        if owner is not None and hook in self.freezer.program.functions:
            node.func = ast.parse(self.freezer.hook(owner, hook.rpartition(".")[2]), mode="eval").body
        return self._read(node) if _attribute(node)[0] is not None else self.generic_visit(node)

    def _read(self, node: Any) -> ast.AST:
        of, name = _attribute(node)
        owner = self.module(of) if of is not None else None
        if owner is None or name in owner._modules or name in owner._class.methods:
            return self.generic_visit(node)
        value = self.freezer.frozen(owner, name)
        return node if value is _KEPT else value


def _attribute(node: ast.AST) -> tuple[ast.expr | None, str]:
    """What `x.name` or `getattr(x, "name")` reads: (x, name); (None, "") of anything else."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
        return node.args[0], str(node.args[1].value)
    return None, ""


class _Freezer:
    """Freezes one module."""

    def __init__(self, root: RecursiveScriptModule, preserved: Sequence[str], keeps_parameters: bool) -> None:
        self.root, self.preserved, self.keeps_parameters = root, set(preserved), keeps_parameters
        self.program = root._program
        self.constants = list(self.program.constants)
        self.places: dict[int, int] = {}
        self.texts: dict[str, str] = {}     # of the new classes, by full name
        self.classes: dict[int, str] = {}   # by module
        self.assigned = {target.attr for made_of in self.program.classes.values() for function in made_of.methods.values()
                         for target in ast.walk(ast.parse(function.source))
                         if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)}

    def is_kept(self, owner: RecursiveScriptModule, name: str) -> bool:
        """Whether an attribute stays one."""
        return (name in self.assigned or (owner is self.root and name in self.preserved) or name == "_is_full_backward_hook"
                or (self.keeps_parameters and name in owner._parameters))

    def frozen(self, owner: RecursiveScriptModule, name: str) -> Any:
        """The value of an attribute as an expression, or _KEPT."""
        if self.is_kept(owner, name):
            return _KEPT
        try:
            return ast.parse(self._written(owner.script_read(name)), mode="eval").body
        except NotImplementedError:     # an object
            return _KEPT

    def _written(self, value: Any) -> str:
        if isinstance(value, Tensor):
            at = self.places.get(id(value))
            if at is None:
                at = self.places[id(value)] = len(self.constants)
                self.constants.append(value.detach())
            return f"CONSTANTS.c{at}"
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return f"({''.join(f'{self._written(v)}, ' for v in value)})"
        if isinstance(value, list) and value:
            return f"[{', '.join(map(self._written, value))}]"
        return literal(value)

    # -- classes -------------------------------------------------------------------------------------------------------
    def define(self, module: RecursiveScriptModule) -> None:
        """The new class of a module, and of what is in it."""
        if id(module) in self.classes:
            return
        made_of = module._class
        home, _, short = made_of.name.rpartition(".")
        count = len(self.texts)
        while (name := f"{home}.___torch_mangle_{count}.{short}") in self.program.classes or name in self.texts:
            count += 1
        self.classes[id(module)], self.texts[name] = name, ""
        for sub in module._modules.values():
            self.define(sub)    # type: ignore[arg-type]
        methods = [self._method(module, method, name) for method in made_of.methods]
        kept = self._attributes(module)
        lines = [f"__parameters__ = [{''.join(f'{_quoted(n)}, ' for n in kept if n in module._parameters)}]",
                 f"__buffers__ = [{''.join(f'{_quoted(n)}, ' for n in kept if n in module._buffers)}]",
                 *(f"__{what}__ = [{''.join(f'{_quoted(n)}, ' for n in names)}]" for what in ("forward_pre_hooks", "forward_hooks")
                   if (names := getattr(made_of, what))),
                 *(f"{n} : {kind}" if n.isidentifier() else f"__annotations__[{_quoted(n)}] = {kind}" for n, kind in kept.items()),
                     *methods]
        body = "\n".join(f"  {line}" for text in lines for line in text.splitlines())
        self.texts[name] = f"class {short}(Module):\n{body}\n"

    def hook(self, module: RecursiveScriptModule, short: str) -> str:
        """The function that a module's hook is beside the module's new class."""
        name = f"{self.classes[id(module)]}.{short}"
        self.texts[name] = self._method(module, short, self.classes[id(module)]) + "\n"
        return name

    def _attributes(self, module: RecursiveScriptModule) -> dict[str, str]:
        found = {}
        for name, kind in module._class.attributes.items():
            sub = module._modules.get(name)
            made_of: Class | None = self.program.classes.get(kind.name)
            if sub is not None:
                interface = made_of is not None and made_of.kind == "ModuleInterface"
                found[name] = str(kind) if interface else self.classes[id(sub)]
            elif name == "training" or self.frozen(module, name) is _KEPT:
                found[name] = str(kind)
        return found

    def _method(self, module: RecursiveScriptModule, method: str, name: str) -> str:
        tree: Any = ast.parse(module._class.methods[method].source).body[0]
        made = _Method(self, module, tree).visit(tree)
        made.args.args[0].annotation = ast.parse(name, mode="eval").body
        return ast.unparse(ast.fix_missing_locations(made))

    def sources(self) -> dict[str, str]:
        """The whole text: functions and classes that are no modules as they were, and the new classes."""
        found: dict[str, str] = {}
        old = {**{n: f.source for n, f in self.program.functions.items() if n.rpartition(".")[0] not in self.program.classes},
               **{n: c.source for n, c in self.program.classes.items() if c.kind != "Module"}}
        for name, text in {**old, **self.texts}.items():
            home = name.rpartition(".")[0]
            found[home] = found.get(home, "") + text
        return found

    def instance(self, module: RecursiveScriptModule, program: ScriptProgram, made: dict[int, Any]) -> RecursiveScriptModule:
        """The frozen module."""
        if id(module) in made:
            return made[id(module)]
        one = made[id(module)] = RecursiveScriptModule(program.classes[self.classes[id(module)]], program)
        one.training = module.training
        for name in one._class.attributes:
            home = next((h for h in ("_parameters", "_buffers", "_modules") if name in module.__dict__[h]), "_values")
            if home == "_modules":
                one._modules[name] = self.instance(module._modules[name], program, made)  # type: ignore[arg-type]
            elif name != "training":
                one.__dict__[home][name] = None if name == "_is_full_backward_hook" else self.moved(
                    module.script_read(name), program, made)
        return one

    def moved(self, value: Any, program: ScriptProgram, made: dict[int, Any]) -> Any:
        """A value with the new program's classes in the places of the old one's."""
        if isinstance(value, list):
            return [self.moved(v, program, made) for v in value]
        if isinstance(value, dict):
            return {k: self.moved(v, program, made) for k, v in value.items()}
        if isinstance(value, ScriptObject):
            if id(value) not in made:
                one = made[id(value)] = ScriptObject(program.classes[value._class.name])
                one._fields.update({name: self.moved(v, program, made) for name, v in value._fields.items()})
            return made[id(value)]
        old = next((c for c in self.program.classes.values() if c.python is type(value)), None)
        if isinstance(value, tuple):
            parts = [self.moved(v, program, made) for v in value]
            return tuple(parts) if old is None else program.classes[old.name].python(*parts)
        return value if old is None else program.classes[old.name].python(value.value)


def _quoted(name: str) -> str:
    return f'"{name}"'


def freeze(mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True,
           preserve_parameters: bool = False) -> RecursiveScriptModule:
    """A module in evaluation mode that computes what `mod` does, its parameters and attributes being constants of its program.

    `preserved_attrs` stay attributes, and so does what methods assign; with `preserve_parameters` parameters do. Nothing is computed anew,
    whatever `optimize_numerics` says: `optimize_for_inference` does that.
    """
    if not isinstance(mod, RecursiveScriptModule):
        raise RuntimeError("Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your "
                           "'nn.Module'.")
    if mod.training:
        raise RuntimeError("Freezing module in training mode is not yet supported. Please call .eval() on your module before freezing.")
    unknown = [name for name in preserved_attrs or () if not hasattr(mod, name)]
    if unknown:
        raise RuntimeError(f"Attribute of name '{unknown[0]}' does not exist in '{mod.original_name}'")
    freezer = _Freezer(mod, preserved_attrs or (), preserve_parameters)
    freezer.define(mod)
    return freezer.instance(mod, ScriptProgram(freezer.sources(), freezer.constants), {})


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> RecursiveScriptModule:
    """`mod`, frozen if it is not yet, for calls without gradients that are compiled at once for the shapes of each.

    What follows from its constants alone is computed when it is compiled: batch norms and other scales of channels are folded into the
    convolutions before them, whose weights lie as oneDNN wants them; pointwise operators are part of the kernels before them. `other_methods`
    stay too. The archive of what comes out is that of the frozen module.
    """
    if not isinstance(mod, RecursiveScriptModule):
        raise ValueError("optimize_for_inference expects ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script "
                         "your 'nn.Module'.")
    is_frozen = "training" in mod._class.attributes and not any(True for _ in mod.parameters())
    made = mod if is_frozen else freeze(mod.eval(), other_methods)
    made.__dict__.update(_frozen=True, _wholes={})
    return made
