"""Exceptions of torch.onnx."""

from __future__ import annotations


class OnnxExporterWarning(UserWarning):
    """What the exporter warns with."""


class OnnxExporterError(RuntimeError):
    """An error of the exporter: the base of the others."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator that has no form in ONNX."""

    def __init__(self, name: str, version: int, supported_version: int | None) -> None:
        since = "" if supported_version is None else f" Support for this operator was added in version {supported_version}."
        super().__init__(f"Exporting the operator {name!r} to ONNX opset version {version} is not supported.{since}")


class SymbolicValueError(OnnxExporterError):
    """A value that the exporter did not expect."""

    def __init__(self, msg: str, value: object = None) -> None:
        super().__init__(msg if value is None else f"{msg}  [Caused by the value {value!r}]")


__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]
