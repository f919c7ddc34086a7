"""The table of ONNX's forms (export/forms.py): for each operator of ATen that it has one of, the function that writes it.

Primitives that are one scalar operation, or some of them, are written by their loop bodies (elementwise.py). So a row is needed for other
primitives, and worth it for what ONNX has whole.
"""

from __future__ import annotations

from ..export.forms import Forms

FORMS = Forms()
form, short, find, primitives_without = FORMS.form, FORMS.short, FORMS.find, FORMS.primitives_without
