"""What the inputs and outputs of an exported graph are: `ExportGraphSignature` and the specifications in it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection
from typing import Any


@dataclasses.dataclass
class TensorArgument:
    """A tensor: the name of its node."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """An int that varies."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """What is no tensor and fixed."""

    name: str
    value: Any


class InputKind(enum.Enum):
    """What an input of the graph is."""

    USER_INPUT, PARAMETER, BUFFER, CONSTANT_TENSOR, CUSTOM_OBJ, TOKEN = range(1, 7)


class OutputKind(enum.Enum):
    """What an output of the graph is."""

    USER_OUTPUT, LOSS_OUTPUT, BUFFER_MUTATION, PARAMETER_MUTATION, GRADIENT_TO_PARAMETER, GRADIENT_TO_USER_INPUT, USER_INPUT_MUTATION, \
        TOKEN = range(1, 9)


@dataclasses.dataclass
class InputSpec:
    """An input of the graph; `target` is the path of a parameter, buffer or constant."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    """An output of the graph; `target` is what a mutation's new value belongs to."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        return f"{self.arg.name}: {self.kind.name}" + ("" if self.target is None else f" target='{self.target}'")


@dataclasses.dataclass
class ExportBackwardSignature:
    """What a joint graph's gradients belong to, by the names of its outputs, and which output is the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


def _by_name(kind: InputKind | OutputKind, doc: str) -> property:
    """The node -> target of the specifications of a kind."""
    where = "input_specs" if isinstance(kind, InputKind) else "output_specs"
    return property(lambda self: {s.arg.name: s.target for s in getattr(self, where) if s.kind is kind and s.target is not None}, doc=doc)


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    inputs_to_parameters = _by_name(InputKind.PARAMETER, "Input -> path of the parameter.")
    inputs_to_buffers = _by_name(InputKind.BUFFER, "Input -> path of the buffer.")
    inputs_to_lifted_tensor_constants = _by_name(InputKind.CONSTANT_TENSOR, "Input -> name of the constant.")
    inputs_to_lifted_custom_objs = _by_name(InputKind.CUSTOM_OBJ, "Input -> name of the script object; there are none.")
    buffers_to_mutate = _by_name(OutputKind.BUFFER_MUTATION, "Output -> path of the buffer whose new value it is.")
    parameters_to_mutate = _by_name(OutputKind.PARAMETER_MUTATION, "Output -> path of the parameter whose new value it is.")
    user_inputs_to_mutate = _by_name(OutputKind.USER_INPUT_MUTATION, "Output -> name of the input whose new value it is.")

    parameters = property(lambda self: tuple(self.inputs_to_parameters.values()), doc="Paths of the parameters.")
    buffers = property(lambda self: tuple(self.inputs_to_buffers.values()), doc="Paths of the buffers.")
    lifted_tensor_constants = property(lambda self: tuple(self.inputs_to_lifted_tensor_constants.values()), doc="Names of the constants.")
    lifted_custom_objs = property(lambda self: (), doc="Names of script objects; there are none.")
    backward_signature = property(lambda self: None, doc="Of joint graphs; None.")
    assertion_dep_token = property(lambda self: None, doc="None: assertions stand where they are.")

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """Paths of the buffers that are not in the state dict."""
        return tuple(s.target for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False and s.target is not None)

    @property
    def user_inputs(self) -> Collection[Any]:
        """The user's inputs: names of tensors and of ints that vary, values of constants."""
        return tuple(_user(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> Collection[Any]:
        """What the program gives: names, and values of constants."""
        return tuple(_user(s.arg) for s in self.output_specs if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT))

    def replace_all_uses(self, old: str, new: str) -> None:
        """A node got another name."""
        specs: list[Any] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if spec.arg.name == old:
                spec.arg.name = new

    def __str__(self) -> str:
        return "\n".join(["", "# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""])


def _user(arg: Any) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


__all__ = ["ConstantArgument", "ExportBackwardSignature", "ExportGraphSignature",
           "InputKind", "InputSpec", "OutputKind", "OutputSpec", "SymIntArgument",
           "TensorArgument"]
