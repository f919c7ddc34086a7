"""Every record of the op table: each facet is there, or absent with a written reason, and the facets agree with each other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fl
from flambeau.core.dtypes import bool_, int64
from flambeau.core.scalar import NumpyScalars, evaluate
from flambeau.core.size import contiguous_strides
from flambeau.core.tensor import Tensor, from_array
from flambeau.ops import primitives, prims, registry
from flambeau.ops.promotion import broadcast
from flambeau.ops.registry import COMPOSITES, OPERATORS, PRIMITIVES, General, Linear, Pointwise

# Their outputs are unique only up to a phase, so that finite differences do not see what the rule means; tests/ops/test_linalg.py
# differentiates functions that do not depend on it.
FREE_PHASES = {"eig"}
# They read one triangle of a hermitian matrix, and their rules answer for the pair of mirrored elements.
HERMITIAN = {"cholesky", "eigh"}
NAMES = list(PRIMITIVES)


def samples(prim):
    """Sample arguments: the record's own, or normal numbers for an elementwise one."""
    rng = np.random.default_rng(7)
    if prim.samples is not None:
        return prim.samples(rng)
    return [tuple(rng.standard_normal((2, 3)) for _ in prim.params)]


def to_tensors(args, requires_grad=False):
    def one(a):
        if isinstance(a, np.ndarray):
            x = fl.tensor(a)
            return x.requires_grad_() if requires_grad and x.dtype.category >= 2 else x
        if isinstance(a, list):
            return [one(item) for item in a]
        return a
    return [one(a) for a in args]


def sampled(condition=lambda p: True):
    found = []
    for name, prim in PRIMITIVES.items():
        if condition(prim) and prim.kind != "inplace" and "samples" not in prim.why_absent:
            found += [pytest.param(prim, i, id=f"{name}-{i}") for i in range(len(samples(prim)))]
    return found


# -- what is in a tensor and is refused -----------------------------------------------------------------------------
def hostile(a):
    """Arrays like `a` of values that something may refuse."""
    if a.dtype.kind in "fc":
        turns = np.arange(a.size).reshape(a.shape) % 2
        limits = np.finfo(a.dtype)
        yield from (np.full_like(a, v) for v in (np.nan, 0, -1, np.inf, limits.tiny / 4, limits.max))
        yield np.where(np.arange(a.size).reshape(a.shape) == 0, np.nan, a)
        for signs in (turns, np.random.default_rng(0).integers(0, 2, a.shape)):
            yield np.where(signs, -np.inf, np.inf).astype(a.dtype)
        yield np.where(turns, a, np.inf).astype(a.dtype)
    elif a.dtype.kind in "iu":
        yield from (np.full_like(a, v) for v in (-100, 100))
    else:
        yield np.zeros_like(a)


def with_hostile_values(a):
    """The argument (a list, or all of them) with another array in one place."""
    if isinstance(a, np.ndarray):
        yield from hostile(a)
    elif isinstance(a, (list, tuple)):
        for k, item in enumerate(a):
            yield from (type(a)((*a[:k], other, *a[k + 1:])) for other in with_hostile_values(item))


def refused(prim, args):
    try:
        prim.run(tuple(to_tensors(args)))
    except (RuntimeError, IndexError) as error:
        if "pip install scipy" in str(error):
            pytest.skip("SciPy computes it")
        return True
    return False


@pytest.mark.parametrize("name", sorted({p.values[0].name for p in sampled()}))
def test_records_that_refuse_values_say_so(name):
    """So that programs that do not read their results raise what they raise in eager mode, when compiled."""
    prim = PRIMITIVES[name]
    found = any(refused(prim, args) for sample in samples(prim) for args in with_hostile_values(tuple(sample)))
    assert found == ("refuses_values" in prim.tags)


def in_kind(a, kind):
    """The argument with floats of another dtype."""
    if isinstance(a, (list, tuple)):
        return type(a)(in_kind(item, kind) for item in a)
    return a.astype(kind) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.complex64])
@pytest.mark.parametrize("name", sorted({p.values[0].name for p in sampled()}))
def test_no_record_warns_of_values(name, kind):
    """As NumPy would, of what overflows or is none."""
    prim = PRIMITIVES[name]
    for sample in samples(prim):
        for args in with_hostile_values(in_kind(tuple(sample), kind)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", RuntimeWarning)
                warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
                try:
                    prim.run(tuple(to_tensors(args)))
                except (RuntimeError, IndexError, TypeError):
                    pass    # what it refuses, and dtypes that it doesn't take


# -- completeness -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_every_facet_or_a_reason(name):
    prim = PRIMITIVES[name]
    missing = []
    if prim.kind not in ("view", "inplace") and "cpu" not in prim.kernels and type(prim).run is registry.Primitive.run \
            and "run" not in vars(prim):
        missing.append("kernel")
    if prim.loop is None and not prim.library and "loop" not in prim.why_absent:
        missing.append("loop")
    if prim.derivative is None and "derivative" not in prim.why_absent:
        missing.append("derivative")
    if prim.samples is None and prim.kind not in ("pointwise", "inplace") and "samples" not in prim.why_absent:
        missing.append("samples")
    where = primitives._WHERE.get(f"primitive {name}", prim.__module__)
    assert not missing, f"{name} has no {', '.join(missing)} and does not say why (registered at {where})"
    assert all(len(reason) > 10 for reason in prim.why_absent.values())
    assert prim.__doc__ or prim.kind == "pointwise", f"{name} has no documentation"


def test_the_set_of_primitives_stays_closed():
    assert len(PRIMITIVES) <= 250


@pytest.mark.parametrize("name", NAMES)
def test_derivative_rules_name_what_exists(name):
    prim = PRIMITIVES[name]
    if prim.derivative is None:
        return
    known = {"g", "gs", "out", "outs", "needs", *(f"out{n}" for n in range(4)), *prim.params}
    known |= {p + suffix for p in prim.params for suffix in ("_shape", "_dtype", "_spec", "_device")}
    for rule in prim.derivative.rules.values():
        assert set(rule.names) <= known
    if isinstance(prim.derivative, (Pointwise, Linear)):
        assert set(prim.derivative.rules) <= set(prim.params)


@pytest.mark.parametrize("name", [n for n in OPERATORS if not n.startswith("_")])
def test_operators_are_documented_and_known(name):
    fn = OPERATORS[name]
    assert registry.is_operator(fn)
    assert (fn.__doc__ or "").strip(), f"operator {name} has no documentation"     # what help composes around it is tests/test_help.py's


def test_registering_a_name_twice_names_both_places():
    with pytest.raises(ValueError, match=r"primitive add is registered twice: at .*pointwise.py:\d+ and at .*test_registry.py:\d+"):
        registry.pointwise("add", lambda o, x, y: o.add(x, y))
    with pytest.raises(ValueError, match="operator matmul is registered twice"):
        registry.operator(lambda x: x, name="matmul")


def test_records_pickle_by_name():
    import copy
    import pickle
    for table in (PRIMITIVES, COMPOSITES):
        for record in table.values():
            assert pickle.loads(pickle.dumps(record)) is record
    assert copy.deepcopy(prims.add) is prims.add


# -- one shape rule --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: "data_dependent" not in p.tags))
def test_the_shape_rule_describes_what_the_kernel_makes(prim, i):
    args = to_tensors(samples(prim)[i])
    outs = prim(*args)
    specs = prim.specs(tuple(args))
    outs, specs = (outs, specs) if isinstance(specs, tuple) and not isinstance(specs, registry.Spec) else ((outs,), (specs,))
    for out, spec in zip(outs, specs, strict=True):
        assert tuple(out.shape) == tuple(spec.shape)
        assert out.dtype is spec.dtype
        assert out._data.dtype == spec.dtype.numpy
        assert out._data.shape == tuple(spec.shape)


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: p.tensors and "data_dependent" not in p.tags))
def test_fake_tensors_get_the_same_shapes(prim, i):
    args = to_tensors(samples(prim)[i])
    real = prim(*args)
    with fl.no_grad():
        fake = prim(*[[_meta(t) for t in a] if isinstance(a, list) else _meta(a) for a in args])
    for a, b in zip(real if isinstance(real, tuple) else (real,), fake if isinstance(fake, tuple) else (fake,), strict=True):
        assert a.shape == b.shape
        assert a.dtype is b.dtype
        assert b.is_fake


def _meta(a):
    return fl.empty(a.shape, dtype=a.dtype, device="meta") if isinstance(a, Tensor) else a


# -- one definition ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: p.kind == "pointwise"))
def test_pointwise_kernels_are_their_loops(prim, i):
    arrays = samples(prim)[i]
    out = to_tensors(arrays)
    kernel = prim.kernels["cpu"](*arrays)
    loop = evaluate(prim.loop, *arrays, out=prim(*out).dtype)
    np.testing.assert_allclose(kernel, loop, rtol=1e-14)


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: p.kind == "pointwise"))
def test_pointwise_kernels_keep_the_memory_order_that_the_shape_rule_says(prim, i):
    args = [a.t() if isinstance(a, Tensor) else a for a in to_tensors([
        np.ascontiguousarray(a.T) if isinstance(a, np.ndarray) else a for a in samples(prim)[i]])]
    spec = prim.specs(tuple(args))
    assert prim(*args).stride() == spec.strides == (1, 2)


def layouts():
    return {
        "contiguous": fl.ones(2, 3, 4, 5), "reversed": fl.ones(5, 4, 3, 2).permute(3, 2, 1, 0),
        "channels last": fl.ones(2, 3, 4, 5).to(memory_format=fl.channels_last), "expanded": fl.ones(3, 1, 1).expand(2, 3, 4, 5),
        "broadcast": fl.ones(2, 3, 1, 5), "sliced": fl.ones(2, 3, 4, 10)[..., ::2],
        "transposed": fl.ones(3, 2, 4, 5).transpose(0, 1), "number": fl.ones(()),
    }


@pytest.mark.parametrize("a", layouts())
@pytest.mark.parametrize("b", layouts())
def test_results_of_mixed_layouts_are_laid_out_by_the_rule(a, b):
    x, y = broadcast(layouts()[a], layouts()[b])
    for prim in (prims.add, prims.lt, prims.maximum, prims.complex):
        spec = prim.specs((x, y))
        assert prim(x, y).stride() == (spec.strides or contiguous_strides(spec.shape))


class IndexMaps(NumpyScalars):
    """The reading of index-map bodies by NumPy: loop variables are integer arrays."""

    @staticmethod
    def index(expr, kind=int64):
        return np.asarray(expr, kind.numpy)

    @staticmethod
    def index_eq(x, y):
        return np.equal(x, y)

    @staticmethod
    def index_lt(x, y):
        return np.less(x, y)

    @staticmethod
    def index_le(x, y):
        return np.less_equal(x, y)

    @staticmethod
    def indirect(value, size, wraps=False):
        return np.where(value < 0, value + size, value)

    @staticmethod
    def masked(mask, value, fill):
        return np.where(mask, value(), fill)


class Loader:
    """Reads an array at index expressions; outside of it (under a mask) anything will do."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.dtype = from_array(array).dtype

    def __call__(self, idx):
        return self.array[tuple(np.clip(i, 0, n - 1) for i, n in zip(idx, self.shape, strict=True))]


def read_index_map(prim, args, shape):
    def load(a):
        if isinstance(a, np.ndarray):
            return Loader(a)
        return [load(item) for item in a] if isinstance(a, list) else a
    idx = [np.broadcast_to(i, shape) for i in np.indices(shape, sparse=True)] if shape else []
    with np.errstate(all="ignore"):
        return np.broadcast_to(prim.loop(IndexMaps(), idx, *(load(a) for a in args)), shape)


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: callable(p.loop) and p.kind != "pointwise"
                                                and p.name not in ("empty", "empty_strided")))
def test_index_maps_say_what_the_kernel_does(prim, i):
    args = samples(prim)[i]
    out = prim(*to_tensors(args))
    np.testing.assert_allclose(read_index_map(prim, args, tuple(out.shape)), out.resolve_conj().resolve_neg().numpy(), rtol=3e-6)


REDUCE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all, "argmax": np.argmax,
          "argmin": np.argmin}


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: p.loop in REDUCE))
def test_reductions_do_what_their_loop_is_called(prim, i):
    x, dims = samples(prim)[i]
    np.testing.assert_allclose(prim(*to_tensors((x, dims))).numpy(), REDUCE[prim.loop](x, axis=dims))


# -- one derivative ------------------------------------------------------------------------------------------------------
def differentiable(prim):
    """Has it a derivative, not only a rule that says that there is none?"""
    rules = prim.derivative.rules.values() if prim.derivative is not None else ()
    return any(not rule.refuses for rule in rules) and prim.name not in FREE_PHASES


def _differentiable_inputs(prim, args):
    """The floating inputs for which the record has a rule."""
    rules = set(prim.params) if isinstance(prim.derivative, General) else {
        name for name, rule in prim.derivative.rules.items() if not rule.refuses}
    found = []
    for name, a in zip(prim.params, args):
        tensors = [t for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
        found += [t.requires_grad_() for t in tensors if t.dtype.category >= 2 and name in rules]
    return found


@pytest.mark.parametrize(("prim", "i"), sampled(differentiable))
def test_derivatives_by_finite_differences(prim, i):
    args = to_tensors(samples(prim)[i])
    inputs = _differentiable_inputs(prim, args)

    def fn(*given):
        if prim.name in HERMITIAN:
            given = tuple((x + x.mT) / 2 for x in given)
        outs = prim(*_replaced(args, inputs, given))
        outs = outs if isinstance(outs, tuple) else (outs,)
        return tuple(o for o in outs if o.dtype.category >= 2) or (given[0].sum() * 0,)

    assert fl.autograd.gradcheck(fn, tuple(inputs))


# Order, rounding and truth have no complex form; the outputs of the others are unique up to a phase.
NOT_COMPLEX = {"view_as_complex", "sign", "maximum", "minimum", "fmax", "fmin", "relu_backward", "relu", "convert", "view_dtype",
               "trigamma", "complex"}


def with_imaginary_parts(args):
    rng = np.random.default_rng(11)

    def one(a):
        if isinstance(a, list):
            return [one(item) for item in a]
        return np.asarray(a + 0.6j * rng.standard_normal(a.shape)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
    return [one(a) for a in args]


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: differentiable(p) and p.name not in
                                                NOT_COMPLEX | FREE_PHASES | HERMITIAN | {"svd"}))
def test_complex_derivatives_by_finite_differences(prim, i):
    args = to_tensors(with_imaginary_parts(samples(prim)[i]))
    inputs = _differentiable_inputs(prim, args)

    def fn(*given):
        outs = prim(*_replaced(args, inputs, given))
        outs = outs if isinstance(outs, tuple) else (outs,)
        return tuple(o for o in outs if o.dtype.category >= 2) or (given[0].sum() * 0,)

    try:
        with fl.no_grad():
            prim(*args)
    except (NotImplementedError, TypeError, RuntimeError):
        pytest.skip("not for complex numbers")
    assert fl.autograd.gradcheck(fn, tuple(inputs))


@pytest.mark.parametrize("number", [1.2 - 0.7j, 2, 0.5])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "where"])
def test_derivatives_beside_a_number(name, number):
    """A complex number in the place of either operand: what a rule conjugates of a tensor it conjugates of a number."""
    prim = PRIMITIVES[name]
    x = fl.tensor([0.3 + 0.4j, -0.6 + 1.1j, 1.5 - 0.2j], dtype=fl.complex128, requires_grad=True)
    condition = [fl.tensor([True, False, True])] if name == "where" else []
    for operands in ((x, number), (number, x)):
        assert fl.autograd.gradcheck(lambda x: prim(*condition, *(x if type(a) is Tensor else a for a in operands)), (x,))


def _replaced(args, inputs, given):
    """The arguments with `given` in the places of `inputs`."""
    swap = {id(x): y for x, y in zip(inputs, given)}
    return [[swap.get(id(t), t) for t in a] if isinstance(a, list) else swap.get(id(a), a) for a in args]


@pytest.mark.parametrize(("prim", "i"), sampled(lambda p: isinstance(p.derivative, Linear)))
def test_linear_records_are_linear(prim, i):
    args = to_tensors(samples(prim)[i])
    for position, name in enumerate(prim.params):
        if name not in prim.derivative.rules or not isinstance(args[position], Tensor) or args[position].dtype.category < 2:
            continue
        x = args[position]
        y = x.flip(0) if x.ndim else x + 1
        with_y, both = list(args), list(args)
        others = [p for p in prim.derivative.rules if p != name]
        if prim.name in ("index_add", "scatter") and others:
            continue  # affine in each: linear in the pair
        with_y[position], both[position] = y, x + 2 * y
        if prim.kind == "view" and prim.name in ("as_strided", "view_dtype"):
            continue
        assert fl.allclose(prim(*both), prim(*args) + 2 * prim(*with_y))


@pytest.mark.parametrize("name", ["exp", "mul", "truediv", "pow", "tanh", "sum", "mm", "index_select", "cumsum", "amax", "log",
                                  "sqrt", "inv", "prod", "convolution"])
def test_second_derivatives(name):
    prim = PRIMITIVES[name]
    args = to_tensors(samples(prim)[0])
    inputs = _differentiable_inputs(prim, args)
    assert fl.autograd.gradgradcheck(lambda *given: prim(*_replaced(args, inputs, given)), tuple(inputs))


# -- what the table promises of dtypes ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", [n for n, p in PRIMITIVES.items() if p.kind == "pointwise" and p.derivative is not None
                                  and n not in ("convert", "conj", "real", "imag", "complex", "where")])
def test_pointwise_keeps_the_dtype(name, kind):
    prim = PRIMITIVES[name]
    args = [fl.tensor(a).to(getattr(fl, kind)) for a in samples(prim)[0]]
    out = prim(*args)
    assert out.dtype is getattr(fl, kind) or out.dtype is bool_
    assert out._data.dtype == out.dtype.numpy
