"""torch._prims_common beside torch's."""

from __future__ import annotations

import itertools

import pytest

import flambeau as fl
import flambeau._prims_common as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch._prims_common")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64")
QUESTIONS = ("is_boolean_dtype", "is_integer_dtype", "is_float_dtype", "is_complex_dtype", "is_grad_dtype", "is_low_precision_dtype",
             "get_computation_dtype", "dtype_to_type")
BOTH = ((fl, ours), (torch, theirs))


@pytest.mark.parametrize("name", QUESTIONS)
def test_facts_of_dtypes(name):
    for dtype in DTYPES:
        a, b = (getattr(home, name)(getattr(m, dtype)) for m, home in BOTH)
        assert str(a) == str(b)


@pytest.mark.parametrize("kind", [k.name for k in ours.ELEMENTWISE_TYPE_PROMOTION_KIND])
def test_dtypes_of_elementwise_operators(kind):
    values = [lambda m, d=d: m.ones(2, dtype=getattr(m, d)) for d in DTYPES] + [lambda m, v=v: v for v in (True, 2, 2.5)]
    for make, other in itertools.product(values[: len(DTYPES)], values):
        found = [home.elementwise_dtypes(make(m), other(m), type_promotion_kind=home.ELEMENTWISE_TYPE_PROMOTION_KIND[kind])
                 for m, home in BOTH]
        assert str(found[0]) == str(found[1])


CALLS = {
    "canonicalize_dim": [(3, -1), (0, 0), (2, 5), (0, 0, False)],
    "canonicalize_dims": [(3, (-1, 0)), (3, 1)],
    "reduction_dims": [((2, 3), None), ((2, 3), (-1,)), ((2, 3), (1, -1))],
    "compute_reduction_output_shape": [((2, 3, 4), (1,))],
    "make_contiguous_strides_for": [((2, 3, 4),), ((2, 0, 4),), ((),), ((2, 3, 4), False)],
    "make_channels_last_2d_strides_for": [((2, 3, 4, 5),)],
    "is_same_shape": [((2,), (2,)), ((2,), (3,))],
    "is_expandable_to": [((1, 3), (2, 3)), ((2,), (3,)), ((), (2,))],
    "infer_size": [((2, -1), 6), ((2, 3), 6), ((4, -1), 6)],
    "is_valid_permutation": [(2, (1, 0)), (2, (0, 0))],
    "invert_perm": [((2, 0, 1),)],
    "apply_perm": [((5, 6, 7), (2, 0, 1))],
    "extract_shape_from_varargs": [((2, 3),), (((2, 3),),), ((2, -1),)],
    "type_to_dtype": [(bool,), (int,), (float,), (complex,), (str,)],
    "check": [(True, str), (False, lambda: "no")],
}


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")     # torch's, of check
@pytest.mark.parametrize(("name", "args"), [(name, args) for name, calls in CALLS.items() for args in calls])
def test_shapes_and_checks(name, args):
    found = []
    for _, home in BOTH:
        try:
            answer = getattr(home, name)(*args)
            found.append(str(tuple(answer) if isinstance(answer, (list, tuple)) else answer))
        except Exception as error:
            found.append(type(error))
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore")
def test_checks_of_tensors():
    for m, home in BOTH:
        a, b, number = m.ones(2), m.ones(3, dtype=m.float64), m.ones(())
        home.check_same_shape(a, a, number, allow_cpu_scalar_tensors=True)
        with pytest.raises(RuntimeError):
            home.check_same_shape(a, b, allow_cpu_scalar_tensors=False)
        with pytest.raises(RuntimeError):
            home.check_same_dtype(a, b)
        home.check_same_device(a, b, allow_cpu_scalar_tensors=False)
        with pytest.raises(RuntimeError, match="Expected a floating point or complex"):
            home.check_fp_or_complex(m.int32, "f")
        assert home.suggest_memory_format(m.ones(2, 3, 4, 5).to(memory_format=m.channels_last)) is m.channels_last
        assert home.suggest_memory_format(a) is m.contiguous_format
        assert home.is_cpu_scalar_tensor(number)
        assert str(home.get_higher_dtype(a, b)) == "torch.float64"
