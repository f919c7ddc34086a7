"""What is compiled together: the functions and classes that a scripted function or module reaches, as the text of one program."""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from ...nn.modules.module import Module
from .. import language
from ..module import ScriptFunction
from ..printer import RESERVED, literal
from ..program import ScriptProgram
from ..values import Class, Function, Parameter
from .annotations import Unknown, evaluated, type_from
from .errors import FrontendError, NotSupportedError, SourceText, failure, source_of
from .matching import Misfit, literal_value
from .modules import ModuleInfo
from .naming import is_library, unique_name
from .records import is_made, with_text
from .scopes import Variable
from .statements import Statements, default_of
from .static import NONE, NOTHING, TENSOR, Inlined, Known, Type, Value

UNKNOWN = Type("?")
_PLACE = "\1{}\1"


def _not_yet(frame: dict) -> Any:
    raise RuntimeError("a function is being compiled")


def names_around(fn: Callable) -> Mapping[str, Any]:
    """The names that a function's body may mention, and what they are."""
    closure = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            closure[name] = cell.cell_contents
        except ValueError:      # not yet set
            continue
    return ChainMap(closure, fn.__globals__, vars(builtins))


class Unit:
    """Compiles functions, classes and modules as they are reached."""

    def __init__(self, forms: Mapping[Any, Callable], method_forms: Mapping[tuple[type, str], Callable],
                 language_names: Mapping[str, Callable]) -> None:
        self.forms, self.method_forms, self.language = forms, method_forms, language_names
        self.classes: dict[str, Class] = {}
        self.functions: dict[str, Function] = {}
        self.texts: dict[str, str] = {}         # of functions, by full name
        self.compiled: dict[Any, tuple[Function, str]] = {}
        self.of_class: dict[type, Class] = {}
        self.python: dict[str, type] = {}
        self.python_calls: dict[str, Callable] = {}
        self.infos: dict[int, ModuleInfo] = {}
        self.module_classes: dict[tuple, ModuleInfo] = {}
        self.module_interfaces: set[str] = set()
        self.instantiated: dict[Any, Any] = {}
        self.constants: list[Any] = []
        self.kept: list[Any] = []
        self.argument_types: dict[Any, dict[str, Type]] = {}     # of functions, by an overload's declaration
        self.seen: dict[CodeType, dict[str, Type]] = {}     # of functions' parameters, in examples

    # -- what a thing of Python's is ---------------------------------------------------------------------------------------------
    @staticmethod
    def original(obj: Any) -> Any:
        """The function behind what torch.jit.script and script_if_tracing made of it."""
        while True:
            inner = getattr(obj, "_script_original", None) if not isinstance(obj, Module) else None
            if inner is None:
                return obj
            obj = inner

    @staticmethod
    def is_isinstance(obj: Any) -> bool:
        """Whether this is isinstance, Python's or torch.jit's."""
        return obj is builtins.isinstance or obj is language.isinstance

    @staticmethod
    def is_scripted(obj: Any) -> bool:
        """Whether a class of Python's is one of the language: scripted, an interface, a tuple with names or an enum."""
        return (isinstance(obj, type) and ("_script_class" in obj.__dict__ or "_script_interface" in obj.__dict__
                                          or hasattr(obj, "_fields") or issubclass(obj, enum.Enum))) or isinstance(obj, ScriptFunction)

    def form(self, obj: Any) -> Callable | None:
        """TorchScript's own form of a function of ours."""
        try:
            return self.forms.get(obj)
        except TypeError:
            return None

    @staticmethod
    def text_of_parameter(name: str) -> str:
        """What the text calls a parameter."""
        while name in RESERVED:
            name += "_"
        return name

    # -- types -------------------------------------------------------------------------------------------------------------------
    def type_of_class(self, cls: Any) -> Type | None:
        """The type that a class of Python's is; it is compiled when it is first seen."""
        if cls in self.of_class:
            return Type(self.of_class[cls].name)
        if not isinstance(cls, type):
            return None
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._named_tuple(cls)
        if "_script_interface" in cls.__dict__:
            return self._interface(cls)
        if "_script_class" in cls.__dict__ or cls in self.forms.values() or self._is_plain(cls):
            return self._class(cls)
        return None

    @staticmethod
    def _is_plain(cls: type) -> bool:
        """Whether this is a class of the user's without bases, which is compiled as if it were marked."""
        return cls.__mro__ == (cls, object) and inspect.isfunction(cls.__dict__.get("__init__")) and not is_library(cls)

    def type_of_held(self, cls: Any) -> Type | None:
        """The type of an object that a module holds; None where its class is none of the language."""
        try:
            return self.type_of_class(cls)
        except (RuntimeError, FrontendError, OSError):
            return None

    def _register(self, cls: type, kind: str) -> Class:
        made = Class(unique_name(cls.__module__, cls.__name__, self.classes), kind)
        self.classes[made.name] = self.of_class[cls] = made
        self.python[made.name] = cls
        return made

    def annotations_of(self, cls: type) -> dict[str, Any]:
        """The annotations of a class and those above it, as objects where that is possible."""
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            names = {**vars(builtins), **vars(inspect.getmodule(base) or builtins)}
            for name, annotation in inspect.get_annotations(base).items():
                try:
                    found[name] = evaluated(annotation, names)
                except Unknown:
                    found[name] = annotation
        return found

    def type_or_none(self, annotation: Any) -> Type | None:
        """The type of an annotation; None where it is none."""
        try:
            return type_from(annotation, self.type_of_class)
        except Unknown:
            return None

    def _named_tuple(self, cls: Any) -> Type:
        made = self._register(cls, "NamedTuple")
        annotations = self.annotations_of(cls)
        for name in cls._fields:
            made.attributes[name] = self.type_or_none(annotations[name]) or TENSOR if name in annotations else TENSOR
        return Type(made.name)

    def _enum(self, cls: Any) -> Type:
        made = self._register(cls, "Enum")
        for member in cls:
            made.constants[member.name] = member.value
        if len({type(v) for v in made.constants.values()}) > 1:
            raise RuntimeError(f"Enum class {cls.__name__} must have values of the same type, got "
                               f"{', '.join(sorted({type(v).__name__ for v in made.constants.values()}))}")
        return Type(made.name)

    def _interface(self, cls: type) -> Type:
        made = self._register(cls, "ModuleInterface" if issubclass(cls, Module) else "Interface")
        if issubclass(cls, Module):
            self.module_interfaces.add(made.name)
        for name, fn in cls.__dict__.items():
            if inspect.isfunction(fn):
                source = source_of(fn)
                made.methods[name] = self.signature(fn, source, f"{made.short}.{name}")
                if made.methods[name].returns == UNKNOWN:
                    made.methods[name].returns = NONE
        return Type(made.name)

    # -- classes that are scripted -----------------------------------------------------------------------------------------------
    def _class(self, cls: type) -> Type:
        if issubclass(cls, Module):
            return self._register_nothing(cls)
        if len(cls.__mro__) > 2:
            raise RuntimeError(f"Type '{cls.__name__}' has base classes: TorchScript classes don't inherit")
        made = self._register(cls, "class")
        for name, annotation in inspect.get_annotations(cls).items():
            kind = self.type_or_none(evaluated(annotation, {**vars(builtins), **vars(inspect.getmodule(cls) or builtins)}))
            if kind is not None:
                made.attributes[name] = kind
        try:
            if "__init__" in cls.__dict__:
                self.method(made, "__init__")
            for name, fn in list(cls.__dict__.items()):
                if inspect.isfunction(fn) and getattr(fn, language.MARK, None) in (None, "export") and not is_made(cls, fn):
                    self.method(made, name)     # what a dataclass was given is compiled when it is called
        except BaseException:
            del self.classes[made.name], self.of_class[cls], self.python[made.name]
            raise
        return Type(made.name)

    def _register_nothing(self, cls: type) -> Any:
        raise RuntimeError(f"class {cls.__name__} is a module: script an instance of it")

    def member(self, made_of: Class, name: str) -> Any:
        """A method (compiled, or as Python has it), property or constant of a class; None if it has none of this name."""
        if name in made_of.methods:
            return made_of.methods[name]
        cls = self.python.get(made_of.name)
        found = inspect.getattr_static(cls, name, None) if cls is not None and made_of.kind in ("class", "NamedTuple", "Enum") else None
        if inspect.isfunction(found):
            if cls is not None and name in cls.__dict__:
                return self.method(made_of, name)
            return None
        if isinstance(found, property):
            return found if made_of.kind == "class" else None
        if isinstance(found, staticmethod):
            return found.__func__
        return found if isinstance(found, (int, float, str, bool)) else None

    def method(self, made_of: Class, name: str) -> Function | None:
        """A method of a class, compiled."""
        if name in made_of.methods:
            return made_of.methods[name]
        cls = self.python.get(made_of.name)
        fn = cls.__dict__.get(name) if cls is not None else None
        if not inspect.isfunction(fn) or made_of.kind != "class":
            return None
        value = Value(Type(made_of.name), "self", True)
        fn = with_text(cls, fn) if is_made(cls, fn) else fn    # type: ignore[arg-type]
        return self.compile_method(made_of, fn, name, value, f"{made_of.short}.{name}", opens=name == "__init__")

    def getter(self, made_of: Class, name: str) -> str:
        """The method that reads a property."""
        text = f"_get_{name}"
        if text not in made_of.methods:
            fn = inspect.getattr_static(self.python[made_of.name], name).fget
            self.compile_method(made_of, fn, text, Value(Type(made_of.name), "self", True), f"{made_of.short}.{name}")
        return text

    def compile_method(self, made_of: Class, fn: Callable, name: str, owner: Value, where: str, opens: bool = False) -> Function:
        """Compile a method; within itself it is known by what it declares."""
        source = source_of(fn)
        signature = self.signature(fn, source, f"{made_of.short}.{name}")
        if name == "__init__" and signature.returns == UNKNOWN:
            signature.returns = NONE
        made_of.methods[name] = signature
        body = Statements(self, source, ChainMap(dict(self.names_of_owner(where)), *names_around(fn).maps), where)  # type: ignore[attr-defined]
        if opens:
            self.kept.append(made_of.name)
        try:
            signature.source = body.function(signature, owner, source.tree)
        except BaseException:
            del made_of.methods[name]
            raise
        finally:
            if opens:
                self.kept.remove(made_of.name)
        return signature

    def attribute_to_set(self, body: Statements, made_of: Class, target: ast.Attribute, value: Value) -> Type:
        """The type of an attribute that is assigned; `__init__` makes new ones."""
        kind = made_of.attributes.get(target.attr)
        if kind is None and made_of.name in self.kept:
            kind = made_of.attributes[target.attr] = value.type
        if kind is None:
            raise body.error(target, f"Tried to set nonexistent attribute: {target.attr}. Did you forget to initialize it in __init__()?")
        return kind

    # -- functions ---------------------------------------------------------------------------------------------------------------
    def signature(self, fn: Callable, source: SourceText, name: str) -> Function:
        """A function's parameters and what it declares to return, `?` where it says nothing."""
        if not isinstance(source.tree, ast.FunctionDef):
            raise failure(f"{type(source.tree).__name__} is no function that can be compiled; lambdas aren't", source, source.tree,
                          NotSupportedError)
        node = source.tree
        a = node.args
        defaulted = next((p for p, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None), None)
        if a.vararg or a.kwarg or defaulted:
            raise failure("Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
                          source, a.vararg or a.kwarg or defaulted, NotSupportedError)  # type: ignore[arg-type]
        names = names_around(fn)
        names = ChainMap(dict(self.names_of_owner(name)), *names.maps)   # type: ignore[attr-defined]
        told = self._comment(node, names, source)
        given, seen = self.argument_types.get(fn, {}), self.seen.get(fn.__code__, {})
        parameters = []
        listed = [*a.posonlyargs, *a.args, *a.kwonlyargs]
        defaults = inspect.signature(fn).parameters
        for at, p in enumerate(listed):
            annotation = fn.__annotations__.get(p.arg, inspect.Parameter.empty)
            if p.type_comment is not None:
                annotation = p.type_comment
            kind = given.get(p.arg) or (seen.get(p.arg) if annotation is inspect.Parameter.empty else None) \
                or self._typed(annotation, names, source, p)
            skipped = len(listed) - len(told[0]) if told is not None else 0
            if told is not None and at >= skipped:
                kind = told[0][at - skipped]
            default = defaults[p.arg].default if p.arg in defaults else inspect.Parameter.empty
            parameters.append(Parameter(p.arg, kind, self._default(default, kind, source, p)))
        returns = told[1] if told is not None else UNKNOWN
        if "return" in fn.__annotations__:
            returns = self._typed(fn.__annotations__["return"], names, source, node)
        return Function(name, parameters, returns, _not_yet, "")

    def names_of_owner(self, name: str) -> Mapping[str, Any]:
        """The class of a method by its name, which Python may not know yet."""
        short = name.partition(".")[0]
        return {made_of.short: cls for cls, made_of in self.of_class.items() if made_of.short == short and made_of.kind == "class"}

    def _typed(self, annotation: Any, names: Mapping[str, Any], source: SourceText, node: ast.AST) -> Type:
        try:
            return type_from(evaluated(annotation, dict(names) if isinstance(annotation, str) else {}), self.type_of_class)
        except Unknown as unknown:
            raise failure(str(unknown), source, node) from None

    def _comment(self, node: ast.FunctionDef, names: Mapping[str, Any], source: SourceText) -> tuple[list[Type], Type] | None:
        """The types of `# type: (int, Tensor) -> Tensor`."""
        text = node.type_comment
        if text is None:
            first = node.body[0].lineno if node.body else node.lineno
            found = [m for line in source.lines[node.lineno - 1:first] if (m := re.search(r"#\s*type:\s*(\(.*\)\s*->.*)", line))]
            text = found[0][1] if found else None
        if text is None or "..." in text.partition("->")[0]:
            return None
        tree: Any = ast.parse(text, mode="func_type")
        return ([self._typed(ast.unparse(t), names, source, node) for t in tree.argtypes],
                self._typed(ast.unparse(tree.returns), names, source, node))

    def _default(self, value: Any, kind: Type, source: SourceText, node: ast.AST) -> Any:
        if value is inspect.Parameter.empty:
            return None
        body = Statements(self, source, {}, "")
        if isinstance(value, (list, dict)):
            raise failure("Mutable default parameters are not supported because Python binds them to the function and they persist across "
                          f"calls. Make the default None, and the {type(value).__name__} within the function", source, node)
        try:
            is_float = kind.name == "float" or (kind.name == "Optional" and kind.args[0].name == "float")
            made = body.known_value(float(value) if is_float and type(value) is int else value, node)
            made = body.converter.converted(made, kind, False) if kind != TENSOR else made
        except Misfit as misfit:
            raise failure(f"default of a parameter: {misfit}", source, node) from None
        text = f"annotate({kind}, [])" if made.text.startswith("annotate") else made.text
        return default_of(text, value)

    def function(self, body: Statements, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.AST) -> tuple[Function, str]:
        """A function of the user's and its full name in the text."""
        if isinstance(fn, ScriptFunction):
            return self.absorbed_function(fn)
        form = self.form(fn)
        if fn in self.forms.values() or form is not None:
            return self.instance(body, form or fn, args, kwargs, node)
        overloads = language.OVERLOADS.get(f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', '')}")
        declared = self._chosen(body, overloads, args, kwargs, node) if overloads else None
        mark = getattr(fn, language.MARK, None)
        if mark in ("ignore", "unused", "drop"):
            return self.ignored(fn, mark, body)
        return self.compile_function(fn, declared)

    def _chosen(self, body: Statements, overloads: Sequence[Callable], args: Sequence[Any], kwargs: Mapping[str, Any],
                node: ast.AST) -> Function:
        """The declaration that takes the arguments."""
        for declaration in overloads:
            signature = self.signature(declaration, source_of(declaration), declaration.__name__)
            drop = 1 if signature.parameters[:1] and signature.parameters[0].name == "self" else 0
            plain = Function(signature.name, signature.parameters[drop:], signature.returns, _not_yet, "")
            try:
                body.call_function(plain, "", [], args, kwargs, node)
            except RuntimeError:
                continue
            return signature
        raise body.error(node, f"no overload of {overloads[0].__name__} takes these arguments")

    def compile_function(self, fn: Callable, declared: Function | None = None) -> tuple[Function, str]:
        """Compile a function, once for each declaration."""
        fn = inspect.unwrap(fn)
        key = (fn, id(declared) if declared is None else tuple(str(p.type) for p in declared.parameters))
        if key in self.compiled:
            function, name = self.compiled[key]
            if function.returns == UNKNOWN:
                raise RuntimeError(f"function '{fn.__name__}' is called recursively. Recursive calls are not supported without a declared "
                                   "type of what it returns")
            return function, name
        source = source_of(fn)
        signature = self.signature(fn, source, fn.__name__)
        if declared is not None:
            for mine, theirs in zip(signature.parameters, declared.parameters):
                mine.type, mine.default = theirs.type, mine.default or theirs.default
            signature.returns = declared.returns
        name = unique_name(fn.__module__ or "", fn.__name__, self.texts.keys() | self.classes.keys())
        signature.name = name
        self.compiled[key] = signature, name
        self.texts[name] = ""
        try:
            text = Statements(self, source, names_around(fn), fn.__name__).function(signature, None, source.tree)
        except BaseException:
            del self.compiled[key], self.texts[name]
            raise
        del self.texts[name]        # what it calls comes before it
        self.texts[name] = text
        return signature, name

    # -- forms: functions of the library, compiled for the types and constants that they are given -------------------------------
    def instance(self, body: Statements, form: Callable, args: Sequence[Any], kwargs: Mapping[str, Any],
                 node: ast.AST) -> tuple[Function, str]:
        """A form for these arguments. What is one expression is written in the place of the call."""
        if isinstance(form, type):
            raise body.error(node, f"{form.__name__} is a class")
        signature = inspect.signature(form)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise body.error(node, f"{form.__name__}(): {error}") from None
        given: dict[str, Any] = {}
        for p in signature.parameters.values():
            found = bound.arguments.get(p.name, NOTHING)
            value = literal_value(p.default) if found is NOTHING else found if isinstance(found, Known) and callable(
                found.obj) else body.first_class(found, node)
            if isinstance(value, Value) and p.annotation is not p.empty:
                kind = self._typed(p.annotation, names_around(form), source_of(form), node)
                value = body.converted(value, kind, node, f"{form.__name__}() Expected a value of type '{{kind}}' for argument '{p.name}' "
                                       "but instead found type '{found}'")
            given[p.name] = value
        key = (form, tuple((v.obj,) if isinstance(v, Known) else (str(v.type), repr(v.constant) if v.constant is not NOTHING else None)
                           for v in given.values()))
        if key not in self.instantiated:
            self.instantiated[key] = self._instantiate(form, given)
        lines, returns, places = self.instantiated[key]
        values = [given[name] for name in places]
        once = len(lines) == 1 and lines[0].startswith("return ")
        if once:
            text = lines[0].removeprefix("return ")
            for at, value in enumerate(values):
                place = _PLACE.format(at)
                text = text.replace(place, (value if text.count(place) < 2 else body.kept(value)).text)
            return Function(form.__name__, [], returns, _not_yet, ""), Inlined(text)
        name = self._form_function(form, lines, returns, places, given, key)
        call = f"{name}({', '.join(v.text for v in values)})"
        return Function(form.__name__, [], returns, _not_yet, ""), Inlined(call)

    def _instantiate(self, form: Callable, given: Mapping[str, Any]) -> tuple[list[str], Type, list[str]]:
        source = source_of(form)
        sub = Statements(self, source, names_around(form), form.__name__)
        places: list[str] = []
        for name, value in given.items():
            if isinstance(value, Known) or value.constant is not NOTHING:
                sub.scope.names[name] = value
                continue
            sub.texts[name] = _PLACE.format(len(places))
            sub.scope.names[name] = Variable(sub.texts[name], value.type, value.type)
            places.append(name)
        function = Function(form.__name__, [], UNKNOWN, _not_yet, "")
        text = sub.function(function, None, source.tree)
        return [line.removeprefix("  ") for line in text.splitlines()[1:]], function.returns, places

    def _form_function(self, form: Callable, lines: list[str], returns: Type, places: list[str], given: Mapping[str, Any], key: Any) -> str:
        if ("function", key) in self.instantiated:
            return self.instantiated["function", key]
        name = unique_name("torch.nn.functional", form.__name__, self.texts.keys() | self.classes.keys())
        names = [self.text_of_parameter(p) for p in places]
        text = "\n".join([f"def {form.__name__}({', '.join(f'{n}: {given[p].type}' for n, p in zip(names, places))}) -> {returns}:",
                          *(f"  {line}" for line in lines)]) + "\n"
        for at, n in enumerate(names):
            text = text.replace(_PLACE.format(at), n)
        self.texts[name] = text
        self.instantiated["function", key] = name
        return name

    # -- what stays Python -------------------------------------------------------------------------------------------------------
    def ignored(self, fn: Callable, mark: str, body: Statements) -> tuple[Function, str]:
        """A function that is called as Python, or that raises when it is called."""
        signature = self.signature(fn, source_of(fn), fn.__name__)
        if signature.returns == UNKNOWN:
            signature.returns = TENSOR
        if mark != "ignore":
            name = body.fresh()
            body.out.append('ops.prim.RaiseException("This Python function is annotated to be ignored and cannot be run")')
            body.out.append(f"{name} = {'None' if signature.returns == NONE else f'uninitialized({signature.returns})'}")
            return Function(fn.__name__, [], signature.returns, _not_yet, ""), Inlined(name)
        name = fn.__name__
        while self.python_calls.get(name, fn) is not fn:
            name += "_"
        self.python_calls[name] = fn
        return signature, f"ops.__python__.{name}"

    # -- modules -----------------------------------------------------------------------------------------------------------------
    def info(self, module: Module) -> ModuleInfo:
        """What the program knows of a module; modules of the same kind of attributes share a class."""
        found = self.infos.get(id(module))
        if found is None:
            made = ModuleInfo(self, module)
            found = self.module_classes.setdefault(made.key, made)
            if found is made:
                made.name_it(unique_name(type(module).__module__, type(module).__name__, self.classes))
            self.infos[id(module)] = found
            self.kept.append(module)
        return found

    def module_form(self, cls: type, name: str) -> Callable | None:
        """The form of a method of one of our modules."""
        for base in cls.__mro__:
            if (base, name) in self.method_forms:
                return self.method_forms[base, name]
            if name in base.__dict__:
                return None
        return None

    # -- programs that are there -------------------------------------------------------------------------------------------------
    def absorbed_function(self, fn: ScriptFunction) -> tuple[Function, str]:
        """A function that was traced or loaded, as one of this program."""
        key = ("absorbed", id(fn))
        if key not in self.compiled:
            self.kept.append(fn)
            rename = self.absorb(fn._program)
            mine = fn._function
            text = rename(mine.source)
            parameters = mine.parameters
            name = unique_name("", fn.name, self.texts.keys() | self.classes.keys())
            if fn._owner:
                first = text.index("(")
                text = text[:first + 1] + re.sub(r"^\s*self[^,)]*,?\s*", "", text[first + 1:])
                parameters = parameters[1:]
            self.texts[name] = re.sub(r"^def \w+", f"def {fn.name}", text)
            self.compiled[key] = Function(fn.name, [Parameter(p.name, p.type, default_of("None", None) if p.default else None)
                                                    for p in parameters], mine.returns, _not_yet, ""), name
        return self.compiled[key]

    def absorb(self, program: ScriptProgram) -> Callable[[str], str]:
        """Take in another program's classes and functions; the answer changes a text of that program into one of this."""
        names: dict[str, str] = {}
        key = ("program", id(program))
        if key in self.instantiated:
            return self.instantiated[key]
        first = len(self.constants)
        self.constants += program.constants
        for old in (*program.classes, *program.functions):
            home, _, short = old.removeprefix("__torch__.").rpartition(".") if old.count(".") > 1 else ("", "", old.rpartition(".")[2])
            names[old] = unique_name(home, short, self.texts.keys() | self.classes.keys() | set(names.values()))

        def rename(text: str) -> str:
            text = re.sub(r"CONSTANTS\.c(\d+)", lambda m: f"CONSTANTS.c{int(m[1]) + first}", text)
            return re.sub(r"__torch__(?:\.\w+)+", lambda m: _renamed(m[0], names), text)

        self.instantiated[key] = rename
        self.kept.append(program)
        for old, made_of in program.classes.items():
            self.classes[names[old]] = _renamed_class(made_of, names[old], rename)
        for old, function in program.functions.items():
            self.texts[names[old]] = rename(function.source)
        return rename

    # -- the whole ---------------------------------------------------------------------------------------------------------------
    def program(self) -> ScriptProgram:
        """The program of all that was compiled."""
        sources: dict[str, str] = {}
        for name, made_of in self.classes.items():
            home = name.rpartition(".")[0]
            sources[home] = sources.get(home, "") + class_text(made_of)
        for name, text in self.texts.items():
            home = name.rpartition(".")[0]
            sources[home] = sources.get(home, "") + text
        return ScriptProgram(sources, self.constants, python=self.python, python_calls=self.python_calls)


def _renamed(name: str, names: Mapping[str, str]) -> str:
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        head = ".".join(parts[:end])
        if head in names:
            return ".".join([names[head], *parts[end:]])
    return name


def _renamed_class(old: Class, name: str, rename: Callable[[str], str]) -> Class:
    def kind(t: Type) -> Type:
        return Type(rename(t.name), tuple(map(kind, t.args)))

    made = Class(name, old.kind, "", {n: kind(t) for n, t in old.attributes.items()}, old.constants, old.parameters, old.buffers,
                 forward_pre_hooks=old.forward_pre_hooks, forward_hooks=old.forward_hooks)
    for key, f in old.methods.items():
        made.methods[key] = Function(f.name, [Parameter(p.name, kind(p.type), p.default) for p in f.parameters], kind(f.returns), _not_yet,
                                     rename(f.source))
    return made


def class_text(made_of: Class) -> str:
    """The text of a class."""
    lines = []
    if made_of.kind == "Module":
        lines = [f"__{what}__ = [{''.join(f'{_quoted(n)}, ' for n in getattr(made_of, what))}]" for what in ("parameters", "buffers")]
        lines += [f"__{what}__ = [{''.join(f'{_quoted(n)}, ' for n in names)}]"
                  for what in ("forward_pre_hooks", "forward_hooks") if (names := getattr(made_of, what))]
    for name, kind in made_of.attributes.items():
        lines.append(f"{name} : {kind}" if name.isidentifier() else f"__annotations__[{_quoted(name)}] = {kind}")
    for name, value in made_of.constants.items():
        written = _written(value)
        if made_of.kind == "Enum":
            lines.append(f"{name} = {written}")
        elif written is not None:
            lines.append(f"{name} : Final[{literal_value(value).type}] = {written}")
    for method in made_of.methods.values():
        lines += method.source.splitlines()
        if made_of.kind in ("Interface", "ModuleInterface"):
            parts = [f"{p.name}: {p.type}" for p in method.parameters[1:]]
            lines += [f"def {method.name.rpartition('.')[2]}({', '.join(['self', *parts])}) -> {method.returns}:", "  pass"]
    base = "" if made_of.kind == "class" else f"({made_of.kind})"
    return "\n".join([f"class {made_of.short}{base}:", *(f"  {line}" for line in lines or ["pass"])]) + "\n"


def _written(value: Any) -> str | None:
    """A constant as it is written; None of what the text of a class can't hold."""
    try:
        if isinstance(value, (tuple, list)):
            parts = [_written(v) for v in value]
            if None in parts or not parts:
                return None
            inner = ", ".join(str(p) for p in parts)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(parts) == 1 else ''})"
        return literal(value) if value is not None else None
    except NotImplementedError:
        return None


def _quoted(name: str) -> str:
    return f'"{name}"'
