"""Calls that make no sense raise the exception that torch raises, and calls that do are answered: one row each, walked beside torch."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.registry import OPERATORS

torch = pytest.importorskip("torch")
NAN = float("nan")
CALLS = {
    **{f"index {kind} {name}": lambda t, kind=kind, name=name, more=more: getattr(t.ones(2), name)(
        *(() if name in ("take", "put") else (0,)), t.tensor([0], dtype=getattr(t, kind)), *(m(t) for m in more))
       for kind in ("int32", "float32", "complex64", "bool")
       for name, more in {"take": (), "put": (lambda t: t.ones(1),), "index_copy": (lambda t: t.ones(1),), "index_fill": (lambda t: 1,),
                          "gather": (), "scatter": (lambda t: 1,)}.items()},
    **{f"{name} of a number": lambda t, name=name, args=args: getattr(t, name)(t.tensor(1.0), *args)
       for name, args in {"chunk": (2,), "diff": (), "cholesky_inverse": (), "tensor_split": (2,), "split": (2,), "unbind": (),
                          "renorm": (1, 0, 1), "hsplit": (2,), "vsplit": (2,), "dsplit": (2,), "tril": (), "nonzero": (), "rot90": (),
                          "fliplr": (), "flipud": (), "unfold_copy": (0, 1, 1)}.items()},
    **{f"repeat of {shape} by {times}": lambda t, shape=shape, times=times: t.zeros(shape).repeat(times)
       for shape in ((0,), (2,), (0, 2), (2, 0), ()) for times in ((-9,), (2, -1), (-1, 2), (-1, 0), (0, -3), (-2, -2), (1, 1, -1))},
    **{f"{name} with a weight of {weight!r}": lambda t, name=name, weight=weight: getattr(t.nn.functional, name)(
        t.full((2, 2), 3.0 if name == "binary_cross_entropy" else 0.5), t.full((2, 2), 0.5), weight=weight)
       for name in ("binary_cross_entropy", "mse_loss", "l1_loss") for weight in (None,)},
    **{f"{name} with the margin {margin!r}": lambda t, name=name, margin=margin, args=args: getattr(t.nn.functional, name)(
        *(make(t) for make in args), margin=margin) for margin in (True, False, 2, 0.5, "1") for name, args in {
            "multi_margin_loss": (lambda t: t.ones(2, 3), lambda t: t.tensor([0, 1])),
            "hinge_embedding_loss": (lambda t: t.ones(3), lambda t: -t.ones(3)),
            "margin_ranking_loss": (lambda t: t.ones(3), lambda t: t.zeros(3), lambda t: -t.ones(3)),
            "cosine_embedding_loss": (lambda t: t.ones(2, 3), lambda t: t.ones(2, 3), lambda t: -t.ones(2)),
            "triplet_margin_loss": (lambda t: t.ones(2, 3), lambda t: t.ones(2, 3), lambda t: t.zeros(2, 3))}.items()},
    **{f"tensordot into {name}": lambda t, out=out: t.tensordot(t.ones(2, 3), t.ones(3, 2), 1, out(t))
       for name, out in {"nothing": lambda t: None, "a tensor": lambda t: t.zeros(2, 2)}.items()},
    **{f"unfold of rank {n}": lambda t, n=n: t.nn.functional.unfold(t.ones((3,) * n), (2, 2)) for n in range(6)},
    **{f"fold of rank {n}": lambda t, n=n: t.nn.functional.fold(t.ones((4,) * n), (3, 3), (2, 2)) for n in range(5)},
    **{f"rms_norm of rank {n}": lambda t, n=n: t.nn.functional.rms_norm(t.ones((2,) * n), (1, 2)) for n in range(5)},
    **{f"{name} of {x} and {y}": lambda t, name=name, x=x, y=y: getattr(t.nn.functional, name)(
        t.full(x, 0.5), t.full(y, 0.25), reduction="none")
       for name in ("soft_margin_loss", "smooth_l1_loss", "mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy", "kl_div",
                    "binary_cross_entropy_with_logits", "hinge_embedding_loss", "poisson_nll_loss", "multilabel_soft_margin_loss")
       for x in ((), (1,), (3,), (1, 3), (2, 3), (2, 1), (1, 1, 1)) for y in ((), (1,), (3,), (1, 3), (2, 3), (2, 1), (1, 1, 1))
       if x or "multilabel" not in name},
    **{f"cosine_embedding_loss of {x}, {y} and {z}": lambda t, x=x, y=y, z=z: t.nn.functional.cosine_embedding_loss(
        t.ones(x), t.ones(y), t.ones(z), reduction="none")
       for x, y in (((), ()), ((1,), (3,)), ((3,), (1, 3)), ((2, 3), (2, 1)), ((2, 3), (3,)), ((2, 2, 3), (2, 2, 3)))
       for z in ((), (1,), (2,), (3,), (1, 1), (2, 1))},
    **{f"bilinear of {outs} outputs with {bias}": lambda t, outs=outs, bias=bias: t.nn.functional.bilinear(
        t.ones(2, 3), t.ones(2, 4), t.ones(outs, 3, 4), t.ones(bias)) for outs in (1, 2) for bias in ((1,), (2,), (0,), (2, 2), (1, 2))},
    **{f"group_norm of {shape} in {groups}": lambda t, shape=shape, groups=groups: t.nn.functional.group_norm(t.ones(shape), groups)
       for shape in ((4, 5), (1, 6), (1, 1), (2, 6, 3), (1, 6, 1), (0, 4), (2, 0), (2, 4, 0)) for groups in (1, 2, 4, 6, 7, 12, 17, -1)},
    "a sparse gradient that nothing asks for": lambda t: t.nn.functional.embedding(t.tensor([0, 1]), t.ones(2, 3), sparse=True),
    **{f"{name} of {kinds} in {sizes}": lambda t, name=name, kinds=kinds, sizes=sizes: getattr(t, name)(
        *[t.ones(size, dtype=getattr(t, kind)) for size, kind in zip(sizes, kinds)], **({"indexing": "xy"} if name == "meshgrid" else {}))
       for name in ("meshgrid", "cartesian_prod") for kinds in (("int64", "int64"), ("float32", "int64"), ("int32", "int64"))
       for sizes in (((2,), (3,)), ((2,), ()), ((2,),), ((),), ((2, 2), (2,)), ((1, 2),), ())},
    "cartesian_prod of a list": lambda t: t.cartesian_prod([t.ones(2), t.ones(2)]),
    **{f"logit within {eps}": lambda t, eps=eps: t.logit(t.tensor([-1.0, 0.0, 0.3, 0.5, 0.7, 1.0, 2.0, NAN, float("inf")]), eps)
       for eps in (None, 0.0, 0.2, 0.5, 0.7, 1.0, True, 2.0, -1.0, NAN)},
    **{f"gradient of a logit within {eps}": lambda t, eps=eps: t.autograd.grad(t.logit(
        x := t.tensor([-1.0, 0.0, 0.3, 0.5, 0.7, 1.0, 2.0], requires_grad=True), eps).sum(), x)[0] for eps in (0.1, 0.2, 0.7, 1.0)},
    **{f"cosine_similarity from {eps}": lambda t, eps=eps: t.cosine_similarity(t.ones(2, 3), t.ones(2, 3), eps=eps)
       for eps in (-9, -1e-30, 0, NAN, 1e-8)},
    **{f"cdist {mode}": lambda t, mode=mode: t.cdist(t.ones(2, 2), t.ones(2, 2), 2, mode) for mode in ((1, 2), 7, "x")},
    **{f"{name} of nothing over {dim}": lambda t, name=name, dim=dim: getattr(t.ones(2, 0), name)(dim=dim)
       for name in ("amin", "amax") for dim in ((), None, 0, 1, (0, 1))},
    "both extremes of nothing": lambda t: t.ones(2, 0).aminmax(),
    "less than no variates": lambda t: t.mvlgamma(t.ones(2), -9),
    "cells of negative size": lambda t: t.nn.functional.adaptive_avg_pool2d(t.ones(1, 1, 1, 1), -9),
    "an index in rows": lambda t: t.ones(2, 3).index_fill(0, t.zeros(1, 1, dtype=t.int64), 1),
    "nuclear_norm over one dimension": lambda t: t.nuclear_norm(t.ones(2), 17),
    "repeats in rows": lambda t: t.repeat_interleave(t.tensor([[4]])),
    "repeats in rows, given": lambda t: t.repeat_interleave(t.tensor([1, 2]), t.tensor([[1, 2]])),
    "combinations of less than none": lambda t: t.combinations(t.ones(2), -1),
    "a tensor counts frequencies": lambda t: t.fft.fftfreq(t.tensor(3)),
    **{f"{name} over {dim}": lambda t, name=name, dim=dim: getattr(t.fft, name)(t.ones(()) if dim == 0 else t.ones(2, 2), dim)
       for name in ("fftshift", "ifftshift") for dim in (0, 2, -9, (0, 5))},
    "a tuple for a memory format": lambda t: t.ones(2).is_contiguous(memory_format=(1, 2)),
    "a number for a type": lambda t: t.ones(2).type_as(3),
    "gradient of an embedding of no columns": lambda t: t.autograd.grad(t.nn.functional.embedding(
        t.zeros(2, dtype=t.int64), w := t.ones(3, 0, requires_grad=True)).sum(), w)[0],
    "no pixels": lambda t: t.nn.functional.pixel_shuffle(t.ones(2, 0, 3, 3), 2),
    "rows exchanged of nothing": lambda t: t.vmap(lambda a, b: t.linalg.solve_ex(a, b)[0])(t.ones(2, 0, 0), t.ones(2, 0)),
    "no sizes": lambda t: t.ones(2).unflatten(0, ()),
    "a tuple for a bias": lambda t: t.conv_transpose3d(t.ones(1, 1, 1, 1), t.ones(1, 1, 1, 1, 1), (1, 2)),
    "a tuple for positions": lambda t: t.cumulative_trapezoid(t.ones(2, 2), (1, 2)),
    "a tuple for a dtype": lambda t: t.ones(1).new_full((1,), 1.5, dtype=(1, 2)),
    "erf of complex numbers": lambda t: t.ones(1, dtype=t.complex64).erf(),
    "digamma of complex numbers": lambda t: t.ones(1, dtype=t.complex64).digamma(),
    "lgamma_ of complex numbers": lambda t: t.ones(1, dtype=t.complex128).lgamma_(),
    "no complex numbers in order": lambda t: t.ones(0, 1, dtype=t.complex64).cummax(0),
    "modes of NaN": lambda t: t.mode(t.tensor([[NAN] * 3, [1, 2, 2], [NAN, 1, 1], [1, NAN, NAN]])),
    "means of complex numbers": lambda t:
        t.ones(3, dtype=t.complex64).scatter_reduce(0, t.tensor([0, 0]), t.ones(2, dtype=t.complex64), "mean"),
    "largest of bools": lambda t:
        t.zeros(2, dtype=t.bool).scatter_reduce(0, t.tensor([0]), t.ones(1, dtype=t.bool), "amax", include_self=False),
    "reduced into out": lambda t: t.index_reduce(t.ones(2), 0, t.tensor([0]), t.ones(1), "mean", out=t.empty(2)),
    "none divided by zero": lambda t: t.ones(0, dtype=t.int64) % 0,
    "none floor-divided by zero": lambda t: t.div(t.ones(0, dtype=t.int64), 0, rounding_mode="floor"),
    "some divided by zero": lambda t: t.ones(1, dtype=t.int64) % 0,
    "output padding of dilated windows": lambda t: t.conv_transpose1d(t.ones(2, 4, 6), t.ones(4, 1, 1), output_padding=1, dilation=2),
    **{f"{name} beside None": lambda t, name=name, args=args: getattr(t, name)(*(t.ones(2) if a else None for a in args))
       for name in ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid") for args in ((1, 0), (0, 1))},
    **{f"{name} of None": lambda t, name=name: getattr(t.ones(1), name)(None) for name in ("is_set_to", "resize_as_", "type_as")},
    **{f"permute of rank {n} by {dims}": lambda t, n=n, dims=dims: t.ones((2,) * n).permute(dims)
       for n in (0, 1, 2) for dims in ((), (0,), (17,), (0, 0), (1, 0), (0, 5), (-1, 0))},
    "map_ over None": lambda t: t.ones(1).map_(None, max),
    **{f"{name} that accumulates {flag}": lambda t, name=name, flag=flag: getattr(t.ones(2), name)((t.tensor([0]),), t.ones(1), flag)
       for name in ("index_put", "index_put_") for flag in (None, 1, "x", True)},
    **{f"narrow from {start}, {length}": lambda t, start=start, length=length: t.ones(2).narrow(0, start, length)
       for start in (-3, -2, 2, 3, 17) for length in (-1, 0, 1)},
    **{f"{name} of {kinds}": lambda t, name=name, kinds=kinds: getattr(t, name)(*(t.ones(1, 2, dtype=getattr(t, k)) for k in kinds))
       for name in ("cdist",) for kinds in (("complex64",) * 2, ("int64",) * 2, ("float32", "int64"), ("float32",) * 2)},
    "pdist of complex numbers": lambda t: t.pdist(t.ones(2, 2, dtype=t.complex64)),
    **{f"bilinear of {kinds}": lambda t, kinds=kinds: t.bilinear(*(t.ones(*shape, dtype=getattr(t, k)) for k, shape in zip(
        kinds, ((1, 2), (1, 2), (1, 2, 2), (1,))))) for kinds in (("float32", "float64", "float32"), ("float32",) * 3,
                                                                  ("float32", "float32", "float32", "float64"))},
    **{f"nanmean of {kind} in {to}": lambda t, kind=kind, to=to: t.nanmean(t.ones(2, dtype=getattr(t, kind)), dtype=getattr(t, to))
       for kind, to in (("int64", "float64"), ("int64", "complex128"), ("float32", "float64"))},
    **{f"addr({name}={n}) of {kind}": lambda t, name=name, n=n, kind=kind: t.addr(*(t.ones(s, dtype=getattr(t, kind)) for s in (
        (2, 1), 2, 1)), **{name: n}) for name in ("alpha", "beta") for n in (True, 2) for kind in ("int64", "float32", "bool")},
    **{f"{name} to {ends}": lambda t, name=name, ends=ends: getattr(t, name)(*ends, 3)
       for name in ("linspace", "logspace") for ends in ((0, True), (False, True), (False, 2.0))},
    "a running product past the rank, in another dtype": lambda t: t.ones(1).cumprod_(17, dtype=t.uint8),
    **{f"a value of {value} under a mask beside a number, in {kind}": lambda t, value=value, kind=kind: written(t, value, kind)
       for kind in ("bool", "int64", "float32") for value in ("float32", "int64")},
    **{f"the loss of a score of {x}, target {y}": lambda t, x=x, y=y:
        t.nn.functional.binary_cross_entropy_with_logits(t.tensor([x]), t.tensor([y]))
       for x in (float("inf"), 5.0, -1e30) for y in (0.0, 0.5, 1.0, 2.0)},
    **{f"ldexp({x}, {y})": lambda t, x=x, y=y: t.ldexp(t.tensor([x]), t.tensor([y])) for x in (-float("inf"), 0.0, 1e-30, 1e30)
       for y in (-(1 << 31), -300, 0, 200)},
    **{f"digamma next to {near}": lambda t, near=near: t.digamma(t.tensor([near - d for d in (1.9e-30, 1e-20, -1e-20, 0.25)]))
       for near in (0.0, -1.0)},
    "one value under a mask": lambda t: t.zeros(2, 2).index_put_((t.tensor([[True, False], [True, True]]),), t.tensor(3.0)),
    **{f"conv1d with {name}={value}": lambda t, name=name, value=value: t.conv1d(t.ones(1, 2, 3), t.ones(2, 2, 1), **{name: value})
       for name in ("stride", "dilation", "groups", "padding") for value in (0, -1, 1, "x", ())},
    **{f"conv_transpose2d with {name}={value}": lambda t, name=name, value=value:
        t.conv_transpose2d(t.ones(1, 1, 3, 3), t.ones(1, 1, 1, 1), **{name: value})
       for name in ("stride", "dilation", "groups", "padding", "output_padding") for value in (0, -1, 1, 2)},
    **{f"{name} of groups that don't divide": lambda t, name=name, shape=shape: getattr(t, name)(t.ones(1, shape[0], 3), t.ones(*shape),
        groups=2)
       for name, shape in (("conv1d", (3, 2, 1)), ("conv_transpose1d", (3, 1, 1)))},
    "a bias, and channels that don't fit": lambda t: t.conv1d(t.ones(1, 2, 1), t.ones(2, 1, 1), t.ones(2)),
    **{f"{pool} with {name}={value}": lambda t, pool=pool, name=name, value=value:
        getattr(t.nn.functional, pool)(t.ones(1, 1, 4, 4), **{"kernel_size": 2, name: value})
       for pool, names in {"max_pool2d": ("kernel_size", "stride", "padding", "dilation"), "avg_pool2d": ("kernel_size", "stride",
        "padding"),
                           "unfold": ("kernel_size", "stride", "padding", "dilation")}.items() for name in names
       for value in (0, -1, 2.5, 7)},
    **{f"fold with {name}={value}": lambda t, name=name, value=value:
        t.nn.functional.fold(t.ones(1, 1, 9), **{"output_size": 3, "kernel_size": 1, name: value})
       for name in ("output_size", "kernel_size", "stride", "dilation", "padding") for value in (0, -1)},
    **{f"{name} of images of shape {shape}": lambda t, name=name, shape=shape: getattr(t.nn.functional, name)(t.ones(shape), 1)
       for name in ("max_pool2d", "avg_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool2d", "unfold")
       for shape in ((1, 0, 2, 2), (0, 2, 2, 2), (0, 2, 2), (1, 2, 0, 2))},
    **{f"max_unpool2d of {shape} to {size}": lambda t, shape=shape, size=size: t.nn.functional.max_unpool2d(
        t.ones(1, 1, 1, 1), t.zeros(shape, dtype=t.int64), 2, output_size=size)
       for shape in ((1, 1, 1, 1), (1, 1, 1)) for size in (None, (3, 3), (9, 9))},
    **{f"{name} along dimension {dim} twice": lambda t, name=name, dim=dim, more=more:
        getattr(t, name)(t.ones(2, 2), *more(t), dim1=1, dim2=dim)
       for name, more in {"diagonal": lambda t: (), "diagonal_scatter": lambda t: (t.ones(2),)}.items() for dim in (1, -1)},
    **{f"x[...] = {value} in {kind}": lambda t, value=value, kind=kind: filled(t, value, kind)
       for value in (1e39, 1e30, -1e39, float("inf"), 300, 2.5)
       for kind in ("float32", "float16", "bfloat16", "float64", "complex64", "int8")},
    **{f"x[{index}] = value of another dtype, of shape {shape}": lambda t, index=index, shape=shape: put(t, index, shape)
       for index in ("True", "t.tensor(True)", "t.tensor(False)", "(t.tensor(True), None)", "(True, True)", "t.tensor([True, False])",
                     "(True, 0)") for shape in ((), (1,))},
    **{f"an index of {kind} and rank {rank}": lambda t, kind=kind, rank=rank: t.ones(2, 2)[t.zeros((1,) * rank, dtype=getattr(t, kind))]
       for kind in ("int8", "int16", "int32", "int64", "float32") for rank in (0, 1, 2)},
    **{f"expanded memory {name}": lambda t, write=write: write(t.ones(1).expand(3))
       for name, write in {"= 3": lambda x: x.__setitem__(slice(None), 3), "[None] = 3": lambda x: x.__setitem__(None, 3),
                           "copy_(3)": lambda x: x.copy_(3), "[0] = 3": lambda x: x.__setitem__(0, 3)}.items()},
    **{f"squeeze of rank {n} by {dims}": lambda t, n=n, dims=dims: t.ones((1,) * n).squeeze(*dims)
       for n in (0, 1, 2) for dims in ((0,), (1,), (0, 1), ((0, -1),), ((0, 0),), (17,))},
    **{f"squeeze_ by {dims}": lambda t, dims=dims: t.ones(1, 2, 1).squeeze_(*dims) for dims in ((0, 2), (-9,), (0, True, 2), ())},
    **{f"{name} at {at}": lambda t, name=name, at=at: getattr(t.ones(4, 4, 4), name)(*at)
       for name in ("hsplit", "vsplit", "dsplit") for at in ((2,), (2, 3), (0,), (-1,), ((1, 2),), (3,))},
    **{f"tensor_split by a tensor of {kind} of rank {n}": lambda t, kind=kind, n=n:
        t.ones(4).tensor_split(t.full((1,) * n, 2, dtype=getattr(t, kind))) for kind in ("int64", "int32", "float32") for n in (0, 1, 2)},
    **{f"tensor_split in {n}": lambda t, n=n: t.ones(4).tensor_split(n) for n in (0, -1, 3)},
    **{f"narrow from a tensor of {kind} of rank {n}": lambda t, kind=kind, n=n: t.ones(3).narrow(0, t.ones((1,) * n, dtype=getattr(t,
        kind)), 1)
       for kind in ("int64", "float32", "bool") for n in (0, 1)},
    **{f"flatten of a number from {d}": lambda t, d=d: t.ones(()).flatten(d) for d in (0, -1, 1, 17)},
    **{f"{name} of shape {shape} along {dim}": lambda t, name=name, shape=shape, dim=dim: getattr(t, name)(t.ones(shape), dim=dim)
       for name in ("unique", "unique_consecutive") for shape in ((), (0,), (0, 2), (0, 0), (2, 2)) for dim in (0, -1, 1)},
    **{f"{name} of index {i}, source {s} in {x}": lambda t, name=name, x=x, i=i, s=s, more=more: getattr(t, name)(
        t.ones(x), 0, t.zeros(i, dtype=t.int64), t.ones(s), *more)
       for name, more in {"scatter": (), "scatter_add": (), "scatter_reduce": ("amax",), "index_add": (), "index_copy": (),
                          "index_reduce": ("mean",)}.items()
       for x, i, s in (((), (), (1,)), ((2,), (1,), (1, 1)), ((2,), (0,), (1, 1)), ((2,), (2,), ()), ((), (2,), ()), ((2,), (), ()))},
    **{f"scatter along {dim}, reducing by {how}": lambda t, dim=dim, how=how: t.ones(2).scatter(dim, t.tensor([0]), t.ones(1), reduce=how)
       for dim in (0, 17) for how in ("amax", "add")},
    **{f"repeat_interleave {args} of rank {n}": lambda t, n=n, args=args: t.ones((2,) * n).repeat_interleave(*args)
       for n in (0, 1) for args in ((-1,), (2, 0), (2, -1), (2,))},
    **{f"repeat_interleave to {size}": lambda t, size=size: t.ones(2).repeat_interleave(2, output_size=size) for size in (4, 5, -1)},
    "repeats in a number": lambda t: t.repeat_interleave(t.tensor(3)),
    **{f"{name} with {tolerance} below zero": lambda t, name=name, tolerance=tolerance: getattr(t, name)(t.ones(2), t.ones(2),
        **{tolerance: -1.0})
       for name in ("isclose", "allclose") for tolerance in ("rtol", "atol")},
    **{f"{name}({value})": lambda t, name=name, value=value: getattr(t, name)(value)
       for name in ("is_complex", "is_floating_point", "is_signed", "is_conj", "is_neg", "numel", "get_device") for value in (None, 3)},
    **{f"requires_grad_({value})": lambda t, value=value: t.ones(1).requires_grad_(value) for value in (None, 3, "x", False)},
    **{f"{name}(3)": lambda t, name=name: getattr(t.ones(1), name)(3)
       for name in ("cpu", "float", "double", "contiguous", "is_contiguous")},
    **{f"{name} in no format": lambda t, name=name, more=more: getattr(t, name)(t.ones(2), *more, memory_format=None)
       for name, more in {"clone": (), "zeros_like": (), "ones_like": (), "full_like": (3,)}.items()},
    "contiguous as it is": lambda t: t.ones(2).contiguous(memory_format=t.preserve_format),
    "a dtype for a memory format": lambda t: t.ones(2).is_contiguous(memory_format=t.float32),
    **{f"the nuclear norm over {dim}": lambda t, dim=dim: t.nuclear_norm(t.arange(8.0).reshape(2, 2, 2), dim)
       for dim in (True, 0, 17, (0,), (0, 0), (0, 1), (0, 5))},
    **{f"a matrix norm over {dim}": lambda t, dim=dim: t.linalg.matrix_norm(t.ones(2, 2), dim=dim)
       for dim in ((0,), (0, 0), (0, 1), (0, 5))},
    **{f"a {name} of {kind} in {to}": lambda t, name=name, kind=kind, to=to:
        getattr(t.linalg, name)(t.ones(2, 2, dtype=getattr(t, kind)), dtype=getattr(t, to))
       for name in ("norm", "matrix_norm", "vector_norm") for kind, to in (("float32", "float16"), ("complex64", "float32"),
                                                                          ("float32", "complex64"), ("float32", "float64"))},
    **{f"vecdot of {a} and {b}": lambda t, a=a, b=b: t.linalg.vecdot(t.ones(2, dtype=getattr(t, a)), t.ones(2, dtype=getattr(t, b)))
       for a, b in (("float32", "float64"), ("int64", "int64"), ("bool", "bool"), ("float32", "int64"), ("complex64", "complex64"))},
    **{f"renorm by {args}": lambda t, args=args: t.renorm(t.ones(2, 2), *args) for args in ((0, 0, 1), (-1, 0, 1), (2, 0, -1), (2, 0, 0))},
    **{f"cholesky_solve of {b} by {a}": lambda t, a=a, b=b: t.cholesky_solve(t.ones(b), t.ones(a))
       for b, a in (((2, 1), (2,)), ((2,), (2, 2)), ((2, 1), (2, 3)), ((2, 1), (3, 3)), ((2, 1), (2, 2)))},
    **{f"{name} of the {which} triangle": lambda t, name=name, which=which: getattr(t.linalg, name)(t.ones(1, 1), which)
       for name in ("eigvalsh",) for which in ("L", "u", "x", "", 3)},
    **{f"vander of shape {shape}, {n} columns": lambda t, shape=shape, n=n: t.vander(t.ones(shape), n)
       for shape in ((2,), (2, 2), ()) for n in (None, -1, 0, 2)},
    **{f"tensordot over {n}": lambda t, n=n: t.tensordot(t.ones(2, 2), t.ones(2, 2), n) for n in (-1, 0, 2, 3)},
    **{f"the {name} of shape {shape}": lambda t, name=name, shape=shape: getattr(t, name)(t.ones(shape), 0.5, dim=-1)
       for name in ("quantile", "nanquantile") for shape in ((0,), (0, 2), (2, 0), (2,))},
    **{f"differences of order {n}": lambda t, n=n: t.diff(t.ones(3), n) for n in (-1, 0, 2)},
    **{f"{name} of a complex number": lambda t, name=name, args=args: getattr(t.ones((), dtype=t.complex64), name)(*args)
       for name, args in {"cummax": (0,), "cummin": (0,), "kthvalue": (1,), "erf_": (), "erfc_": (), "erfinv_": ()}.items()},
    "the median of no truths": lambda t: t.ones(0, dtype=t.bool).nanmedian(),
    **{f"a line to {end}": lambda t, end=end: t.linspace(0, t.tensor(end), 3) for end in (1.0, [1.0], [1.0, 2.0])},
    "matrices of more dimensions": lambda t: t.block_diag(t.ones(2), t.ones(2, 2, 2)),
    "combinations of rows": lambda t: t.combinations(t.ones(2, 2)),
    **{f"{name} weighed by {shape}": lambda t, name=name, shape=shape: getattr(t.nn.functional, name)(t.ones(2), t.ones(2),
        weight=t.ones(shape))
       for name in ("mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy") for shape in ((1,), (2,), (3,))},
    "targets that are no probabilities": lambda t: t.nn.functional.binary_cross_entropy(t.ones(2), t.tensor([0.5, 1.5])),
    **{f"multi_margin_loss of {x}, {y}, p={p}": lambda t, x=x, y=y, p=p: t.nn.functional.multi_margin_loss(
        t.ones(x), t.zeros(y, dtype=t.int64), p, weight=None if w is None else t.ones(w))
       for x, y, p, w in (((2, 3), (2,), 1, None), ((2, 3), (2,), 3, None), ((2, 3), (1,), 1, None), ((1, 1, 3), (1, 1), 1, None), ((),
        (), 2, None),
                          ((2, 3), (2,), 1, (2,)), ((2, 3), (2,), 1, (3, 1)), ((3,), (), 1, None))},
    **{f"multilabel_margin_loss of {x}, {y}": lambda t, x=x, y=y: t.nn.functional.multilabel_margin_loss(t.ones(x), t.zeros(y,
        dtype=t.int64))
       for x, y in (((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (2,)), ((3,), (3,)))},
    **{f"cosine_similarity of {a} and {b}": lambda t, a=a, b=b: t.cosine_similarity(t.ones(2, 2, dtype=getattr(t, a)), t.ones(2, 2,
        dtype=getattr(t, b)))
       for a, b in (("float32", "int64"), ("bool", "float32"), ("complex64", "complex64"), ("int64", "int64"))},
    "the distance of integers": lambda t: t.pairwise_distance(t.tensor([[4]]), t.tensor([[2]]), eps=1),
    **{f"group_norm of shape {shape}": lambda t, shape=shape: t.nn.functional.group_norm(t.ones(shape), 2)
       for shape in ((1, 2), (1, 4), (2, 2), (1, 2, 1))},
    "a running mean alone": lambda t: t.nn.functional.instance_norm(t.ones(1, 2, 3), t.ones(2)),
    "a pseudo-inverse by position": lambda t: t.linalg.pinv(t.tensor([[1.0, 0.0], [0.0, 0.1]]), 0.5),
    "shifted along no dimension": lambda t: t.arange(4).reshape(2, 2).roll(1, None),
    "counted over several dimensions": lambda t: t.ones(2, 2).count_nonzero(0, 1),
    "a multiple taken away": lambda t: t.rsub(t.ones(2), 2.0, 2.5),
    **{f"elu_ with {args}": lambda t, args=args: t.nn.functional.elu_(t.tensor([-1.0, 2.0]), *args)
       for args in ((), (2.0,), (2.0, 3.0, 4.0))},
    **{f"the condition of a singular matrix in the norm {p}": lambda t, p=p: t.linalg.cond(t.stack([t.ones(2, 2), t.eye(2)]), p)
       for p in (1, float("inf"), "fro")},
    **{f"solve_triangular of {a}, {b}, left={left}": lambda t, a=a, b=b, left=left:
        t.linalg.solve_triangular(t.ones(a), t.ones(b), upper=False, left=left)
       for a, b in (((1, 1), (2, 1)), ((2, 2), (2, 1)), ((2, 3), (2, 1)), ((2, 2), (2,))) for left in (True, False)},
    **{f"tensorinv of {n}": lambda t, n=n: t.linalg.tensorinv(t.eye(4).reshape(2, 2, 2, 2), n) for n in (-1, 0, 2, 17)},
    **{f"{name} into {kind}": lambda t, name=name, kind=kind: getattr(t, name)(t.ones(2), 0, dtype=kind)
       for name in ("cumsum", "sum", "mean") for kind in (3, (1, 2))},
    **{f"a pinverse with {rcond}": lambda t, rcond=rcond: t.linalg.pinv(t.ones(2, 2), t.tensor(rcond)) for rcond in (0.5,)},
    **{f"batch_norm with eps={eps}, training={training}": lambda t, eps=eps, training=training: t.nn.functional.batch_norm(
        t.arange(4.0).reshape(2, 2), t.ones(2), t.ones(2), training=training, eps=eps)
       for eps in (-9, 0.0, 1e-5) for training in (True, False)},
    **{f"areas over {x} of {y}": lambda t, x=x, y=y: t.trapezoid(t.ones(y), t.ones(x))
       for x, y in (((2,), (3,)), ((1,), (3,)), ((1, 2), (1, 1)), ((1, 1), (1, 3)), ((1, 1), (1, 1)), ((1, 2, 3), (2, 3)), ((2, 3), (3,)))},
    "the sign of a complex number": lambda t: t.sign(t.ones(2, dtype=t.complex64)),
    "the sign of no complex number": lambda t: t.empty(0, dtype=t.complex64).sign(),
    "points below zero": lambda t: t.fft.fftfreq(-1),
    **{f"half of {n} points": lambda t, n=n: t.fft.rfftfreq(n) for n in (-1, -2, -3, -4, -7, 0)},
    **{f"the power {start} in {kind}": lambda t, start=start, kind=kind: t.logspace(start, 2.0, 1, dtype=getattr(t, kind))
       for start in (300, 2.5) for kind in ("uint8", "float32")},
    "more sizes than dimensions": lambda t: t.fft.fftn(t.ones(()), 17),
    "the norm over three dimensions": lambda t: t.norm(t.ones(1, 1, 1), dim=(0, 1, 2)),
    **{f"the inner product of {a} and {b}": lambda t, a=a, b=b: t.inner(t.ones(a), t.ones(b)) for a, b in (((1,), (2,)), ((2,), (3, 2)))},
    "distances of a negative order": lambda t: t.cdist(t.ones(1, 1), t.ones(1, 1), -9),
    "an area of true width": lambda t: t.trapezoid(t.ones(3), dx=True),
    **{f"{name} of no integers, times infinity": lambda t, name=name, shapes=shapes: getattr(t, name)(
        *[t.zeros(s, dtype=t.int64) for s in shapes], alpha=float("inf"))
       for name, shapes in {"addmm": ((0, 2), (0, 1), (1, 2)), "addmv": ((0,), (0, 1), (1,)), "addbmm": ((0, 2), (3, 0, 1), (3, 1, 2)),
                            "baddbmm": ((3, 0, 2), (3, 0, 1), (3, 1, 2)), "addr": ((0, 2), (0,), (2,))}.items()},
    **{f"{name} of {kind} over nothing, by {alpha}": lambda t, name=name, shapes=shapes, kind=kind, alpha=alpha: getattr(t, name)(
        *[t.ones(s, dtype=getattr(t, kind)) for s in shapes], alpha=alpha)
       for name, shapes in {"addmm": ((2, 2), (2, 0), (0, 2)), "addmv": ((2,), (2, 0), (0,)), "addbmm": ((2, 2), (0, 2, 1), (0, 1, 2)),
                            "baddbmm": ((3, 2, 2), (3, 2, 0), (3, 0, 2))}.items()
       for kind in ("int64", "float32") for alpha in (1 - 2j, float("inf"), NAN)},
    "no slices, times NaN": lambda t: t.zeros(1, 3, dtype=t.int64).index_add(
        0, t.zeros(0, dtype=t.int64), t.zeros(0, 3, dtype=t.int64), alpha=NAN),
    **{f"{value} scattered nowhere": lambda t, value=value: t.zeros(1, 1, dtype=t.int64).scatter(
        1, t.zeros(1, 0, dtype=t.int64), value=value) for value in (1 - 2j, 1e30)},
    **{f"{name} of no steps": lambda t, name=name: getattr(t, name)(-1.5, 1e30, 0, dtype=t.uint8) for name in ("linspace", "logspace")},
    **{f"{name} of no complex numbers": lambda t, name=name: getattr(t, name)(t.zeros(0, 1, 1, dtype=t.complex64), dim=-2)
       for name in ("amax", "amin", "max", "argmin")},
    **{f"{name} of no {kind} matrices of {n} rows": lambda t, name=name, kind=kind, n=n: getattr(t.linalg, name)(
        t.zeros((0, 2, 2) if n else (1, 3, 0, 0), dtype=getattr(t, kind)))
       for name in ("det", "eigvalsh", "eigh", "svdvals", "cholesky", "lu_factor", "matrix_norm", "cond", "matrix_exp")
       for kind in ("float16", "bfloat16", "float32", "complex64") for n in (0, 2)},
    **{f"the condition of {shape} in {p}": lambda t, shape=shape, p=p: t.linalg.cond(t.zeros(shape), p)
       for shape in ((0, 0), (0, 1, 0, 0), (2, 0, 3)) for p in (None, 2, -2, 1, -1, float("inf"), "fro", "nuc")},
    **{f"the {p} norm of a narrow matrix": lambda t, p=p: t.linalg.matrix_norm(t.ones(2, 2, dtype=t.bfloat16), p)
       for p in ("fro", "nuc", 2)},
    **{f"{value} copied to {kind}": lambda t, value=value, kind=kind: t.zeros(1, dtype=getattr(t, kind)).copy_(value)
       for value in (-9, 300, 2.5, 1e30, 0.1, True, 1 + 2j) for kind in ("uint8", "int64", "float32", "float64", "complex64", "bool")},
    "too large an integer, copied": lambda t: t.zeros(1, dtype=t.int64).copy_(2 ** 70),
    **{f"a number expanded to {size}": lambda t, size=size: t.tensor(1.0).expand(size) for size in ((-9,), (-1,), (2, -3))},
    **{f"to like {x}": lambda t, x=x: t.tensor([3]).to(x) for x in (True, 2.5, 1j)},
    "a dtype, without waiting, copied": lambda t: (lambda x: x.to(t.float32, False, True) is x)(t.ones(2)),
    "a dtype, without waiting, not copied": lambda t: (lambda x: x.to(t.float32, True, False) is x)(t.ones(2)),
    **{f"a complex window of {n}": lambda t, n=n: t.hann_window(n, dtype=t.complex64) for n in (0, 1)},
    **{f"means over {n}": lambda t, n=n: t.nn.functional.avg_pool2d(t.ones(1, 1, 4, 4), 2, divisor_override=n) for n in (-3, 0, 3)},
    **{f"{weight} of shape {shape} for a loss of {of}": lambda t, weight=weight, shape=shape, of=of:
       t.nn.functional.binary_cross_entropy_with_logits(t.ones(of), t.ones(of), **{weight: t.ones(shape)})
       for weight in ("weight", "pos_weight") for of in ((1,), (2, 3)) for shape in ((1, 1, 1), (2, 3), (3,), (1,), (), (2, 1))},
    "a reduction before shapes": lambda t: t.nn.functional.multi_margin_loss(
        t.ones(1, 1, 1, 1), t.ones(1, 1, 1, dtype=t.int64), reduction=2),
    **{f"attention with dropout {p}": lambda t, p=p: t.nn.functional.scaled_dot_product_attention(
        *[t.ones(1, 1, 1, 1)] * 3, None, p) for p in (17, -1, 1.5)},
    **{f"{name} in steps of {step}": lambda t, name=name, step=step, more=more: getattr(t, name)(t.ones(2), *more(t), step=step)
       for name, more in {"slice_scatter": lambda t: (t.ones(2),), "slice_copy": lambda t: ()}.items() for step in (-9, 0, 1)},
    "a subscript in steps of 0": lambda t: t.ones(2)[::0],
    **{f"trapz of width {dx}": lambda t, dx=dx: t.trapz(t.ones(3), dx=dx) for dx in (True, 2.5, 3)},
    **{f"complex numbers of {shape} by {strides}": lambda t, shape=shape, strides=strides:
       t.view_as_real(t.view_as_complex(t.zeros(20).as_strided(shape, strides)))
       for shape, strides in (((1, 2), (1, 1)), ((1, 2), (3, 1)), ((2, 2), (3, 1)), ((3, 1, 2), (4, 3, 1)), ((0, 2), (3, 1)))},
    **{f"no differences, beside {shape}": lambda t, shape=shape: t.ones(3, 2).diff(n=0, append=t.ones(shape)) for shape in ((3, 2), (3,))},
    **{f"{value} under a mask of integers": lambda t, value=value: held(t, value) for value in (NAN, 1e30, 2.5, 1 + 2j, 1 + 0j)},
    **{f"transposed images of {shape}, padded by {extra}": lambda t, shape=shape, extra=extra: t.conv_transpose2d(
        t.ones(shape), t.ones(shape[1], 2, 1, 1), output_padding=extra) for shape in ((0, 1, 2, 2), (1, 1, 2, 2)) for extra in (0, 1)},
    **{f"index {i} from the end along {n}": lambda t, i=i, n=n: t.arange(float(n)).take_along_dim(t.tensor([-i, 0]), 0)
       for i, n in ((1, 3), (3, 3), (2, 3))},
    **{f"adaptive_{kind}_pool{n}d of {shape} to {count} sizes": lambda t, kind=kind, n=n, shape=shape, count=count: getattr(
        t.nn.functional, f"adaptive_{kind}_pool{n}d")(t.ones(shape), [2] * count)
       for kind in ("avg", "max") for n in (1, 2, 3) for count in (1, 2, 3, 4)
       for shape in ((3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4, 5))},
    **{f"one_hot of {shape} in {classes}": lambda t, shape=shape, classes=classes: t.nn.functional.one_hot(
        t.zeros(shape, dtype=t.int64), classes) for shape in ((0,), (0, 0), (2, 0)) for classes in (-1, 0, 3)},
    **{f"pseudo-inverse of {shape} in {kind}": lambda t, shape=shape, kind=kind: t.linalg.pinv(t.ones(shape, dtype=getattr(t, kind)))
       for shape in ((2, 2), (1, 1, 0), (3,)) for kind in ("float16", "bfloat16", "int64", "bool", "float32")},
    **{f"{name} of a float16 and a large number": lambda t, name=name: getattr(t.special, name)(t.ones(1, dtype=t.float16), 2**40)
       for name in ("xlogy", "xlog1py")},
    "limits of an unsigned number": lambda t: t.nn.functional.hardtanh(t.ones(1, dtype=t.uint8)),
}


def written(lib, value, kind):
    x = lib.ones(4, 2, dtype=getattr(lib, kind))
    x[lib.tensor([True, False, True, True]), lib.tensor(1)] = lib.zeros((), dtype=getattr(lib, value))
    return x


def held(lib, value):
    x = lib.zeros(2, dtype=lib.int64)
    x[lib.tensor([True, False])] = lib.tensor([value])
    return x


def filled(lib, value, kind):
    x = lib.ones(2, dtype=getattr(lib, kind))
    x[:1] = value
    return x


def put(lib, index, shape):
    x = lib.zeros(2)
    x[eval(index, {"t": lib})] = lib.full(shape, 3)
    return x


def outcome(lib, call):
    try:
        return call(lib)
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:Casting complex",      # torch's, once a process
                            "ignore:The reduce argument", "ignore:.*is deprecated")     # both's
@pytest.mark.parametrize("name", CALLS)
def test_as_torch(name):
    got, want = outcome(fl, CALLS[name]), outcome(torch, CALLS[name])
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), (got, want)
        return
    assert not isinstance(got, Exception), got
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
        if isinstance(b, torch.Tensor):
            assert a.shape == b.shape and str(a.dtype) == str(b.dtype)
            assert fl.allclose(a.double() if b.dtype is torch.bfloat16 else a,
                               fl.from_numpy((b.double() if b.dtype is torch.bfloat16 else b).detach().numpy()), equal_nan=True)
        else:
            assert a == b


SHAPES = [(), (0,), (1,), (2,), (0, 1), (1, 0), (0, 0), (2, 0), (0, 2), (1, 1), (2, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("name", ["mul_", "add_", "div_", "pow_", "atan2_", "bitwise_and_", "logical_and_", "copy_", "lerp_", "addcmul_"])
def test_what_is_written_keeps_its_shape(name):
    """An operand that would make the result larger, or smaller, is refused: of no elements too."""
    kind, operands = "int64" if "bit" in name else "float32", 2 if name in ("lerp_", "addcmul_") else 1
    for target in SHAPES:
        for other in SHAPES:
            got, want = (outcome(lib, lambda t: getattr(t.ones(target, dtype=getattr(t, kind)), name)(
                *[t.ones(other, dtype=getattr(t, kind))] * operands)) for lib in (fl, torch))
            if isinstance(want, Exception):
                assert isinstance(got, type(want)), (target, other, got)
            else:
                assert tuple(got.shape) == target == tuple(want.shape)


@pytest.mark.parametrize("size", [3, 300, 70_000])
@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "copy_", "pow_", "maximum", "atan2_", "lerp_"])
def test_operands_may_overlap_what_is_written(name, size):
    """Everything is read before anything is written; torch refuses what it sees to overlap."""
    def write(x, y):
        if name == "maximum":
            return fl.maximum(x, y, out=x)
        return x.lerp_(y, 0.5) if name == "lerp_" else getattr(x, name)(y)

    for views in (lambda m: (m[1:], m[:-1]), lambda m: (m[:-1], m[1:]), lambda m: (m[1:], m[:-1].flip(0)), lambda m: (m[:-1:2], m[1::2])):
        memory = fl.rand(size + 1 - size % 2) + 0.5
        apart = memory.clone()
        write(*views(memory))
        target, operand = views(apart)
        write(target, operand.clone())
        assert fl.equal(memory, apart)


def test_products_of_bools():
    """Whether some pair is true; torch has them for some shapes and strides only."""
    a, b = fl.rand(2, 3, 4) > 0.7, fl.rand(2, 4, 5) > 0.7
    for x, y in ((a, b), (a[0], b[0]), (a[0], b[0, :, 0]), (a[0, 0], b[0, :, 0]), (a[:, :, :0], b[:, :0])):
        assert fl.equal(x @ y, (x.int() @ y.int()) > 0) and fl.equal(fl.compile(fl.matmul)(x, y), x @ y)


def test_one_element_under_a_mask_is_converted():
    for lib in (fl, torch):
        x = lib.zeros(2, 2)
        x[lib.tensor([[True, False], [True, True]])] = lib.tensor([3])
        assert x.tolist() == [[3.0, 0.0], [3.0, 3.0]]


WIDE = {
    "add": lambda x, n: x + n,
    "multiplied by": lambda x, n: n * x,
    "remainder": lambda x, n: x % n,
    "equal": lambda x, n: x == n,
    "less": lambda x, n: x < n,
    "in place": lambda x, n: x.mul_(n),
    "fill": lambda x, n: x.fill_(n),
    "full": lambda x, n: fl.full_like(x, n),
    "masked_fill": lambda x, n: x.masked_fill(x == x, n),
    "where": lambda x, n: fl.where(x == x, x, n),
    "clamp": lambda x, n: x.clamp(max=n),
    "subscript": lambda x, n: x.__setitem__(0, n),
}


@pytest.mark.parametrize("kind", [fl.int8, fl.int64, fl.uint8, fl.float32, fl.complex64])
@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 1 << 400], ids=["2^64", "-2^63-1", "2^400"])
@pytest.mark.parametrize("name", WIDE)
def test_integers_of_more_than_64_bits_are_refused(name, number, kind):
    x = fl.ones(3, dtype=kind)
    with pytest.raises((OverflowError, RuntimeError, NotImplementedError), match=r"64 bits|complex"):  # some take no complex ones
        WIDE[name](x, number)
    assert fl.equal(x, fl.ones(3, dtype=kind))


def test_what_is_no_dtype_is_a_type_error():
    """Every operator that takes a dtype, with its least arguments."""
    x, walked = fl.ones(2, 3), 0
    for name, op in sorted(OPERATORS.items()):
        parameters = inspect.signature(op).parameters.values()
        if name.startswith("_") or all(p.name != "dtype" for p in parameters):
            continue
        count = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        for args in ([x, 0][:count], [x] * count, [2] * count, [(2,)] * count):
            try:
                op(*args)
            except Exception:
                continue
            for bad in (x, 3, "float32"):
                with pytest.raises(TypeError):
                    op(*args, dtype=bad)
            walked += 1
            break
    assert walked > 50


ALIASES = ("out", "axis", "generator", "inplace")   # `inplace` is of the function of that name in nn.functional
AFTER_SIZE = ("dtype", "device", "layout", "requires_grad", "pin_memory")
NOT_ALONE = {"new": AFTER_SIZE, "normal": ("out", "generator", "size", *AFTER_SIZE)}   # after `size`


def _may_be_left_out():
    for name, fn in OPERATORS.items():
        owner = "Tensor" if hasattr(torch.Tensor, name) else "torch" if hasattr(torch, name) else None
        for key, parameter in inspect.signature(fn).parameters.items():
            if owner and parameter.default is not parameter.empty and key not in NOT_ALONE.get(name.split("_")[0], ALIASES):
                yield pytest.param(owner, name, key, id=f"{name} {key}")


@pytest.mark.parametrize(("owner", "name", "key"), list(_may_be_left_out()))
def test_what_may_be_left_out_may_not_be_none(owner, name, key):
    """Where torch takes no None, neither do we; and it is taken where torch takes it."""
    def call(lib):
        x = lib.ones(2, 2)
        return getattr(x, name)(**{key: None}) if owner == "Tensor" else getattr(lib, name)(x, **{key: None})

    got, want = outcome(fl, call), outcome(torch, call)
    if not isinstance(want, Exception):
        assert not isinstance(got, TypeError), got
    elif isinstance(want, TypeError):
        assert isinstance(got, Exception)


IN_FACTORIES = ("requires_grad", "pin_memory", "memory_format", "dtype", "layout", "device")
FACTORIES = [
    ("zeros", (2,)), ("ones", (2,)), ("empty", (2,)), ("full", ((2,), 1.0)), ("rand", (2,)), ("randn", (2,)), ("randint", (3, (2,))),
    ("randperm", (3,)), ("arange", (3,)), ("linspace", (0, 1, 3)), ("logspace", (0, 1, 3)), ("eye", (2,)), ("empty_strided", ((2,), (1,))),
    ("empty_permuted", ((2, 3), (1, 0))), ("scalar_tensor", (1.0,)), ("tril_indices", (2, 2)), ("triu_indices", (2, 2)), ("range", (0, 2)),
    ("normal", (0.0, 1.0, (2,))), ("tensor", (1.0,)), ("asarray", ([1.0],)), ("as_tensor", ([1.0],)), ("fft.fftfreq", (3,)),
    ("fft.rfftfreq", (3,)), ("hann_window", (4,)), ("hamming_window", (4,)), ("bartlett_window", (4,)), ("blackman_window", (4,)),
    ("kaiser_window", (4,)), ("signal.windows.hann", (4,)),
    ("new_zeros", (2,)), ("new_ones", (2,)), ("new_empty", (2,)), ("new_full", ((2,), 1.0)), ("new_tensor", ([1.0],)),
    ("new_empty_strided", ((2,), (1,))),
    *[(f"{what}_like", ()) for what in ("zeros", "ones", "empty", "rand", "randn")],
]  # fmt: skip
FUNCTIONS = [
    ("nn.functional.max_pool1d", ((1, 4), 2), "return_indices"), ("nn.functional.max_pool2d", ((1, 4, 4), 2), "return_indices"),
    ("nn.functional.max_pool3d", ((1, 4, 4, 4), 2), "return_indices"), ("nn.functional.adaptive_max_pool1d", ((1, 4), 2), "return_indices"),
    ("nn.functional.adaptive_max_pool2d", ((1, 4, 4), 2), "return_indices"), ("nn.functional.max_pool2d", ((1, 4, 4), 2), "ceil_mode"),
    ("nn.functional.adaptive_max_pool3d", ((1, 4, 4, 4), 2), "return_indices"),
    ("nn.functional.fractional_max_pool2d", ((1, 4, 4), 2, 2), "return_indices"),
    ("nn.functional.interpolate", ((1, 1, 4, 4), 2), "antialias"), ("lu", ((3, 3),), "get_infos"), ("lu", ((3, 3),), "pivot"),
    ("stft", ((400,), 100, None, None, None), "center"), ("stft", ((400,), 100, None, None, None), "normalized"),
    ("nn.functional.gaussian_nll_loss", ((3,), (3,), (3,)), "full"), ("nn.functional.gaussian_nll_loss", ((3,), (3,), (3,)), "eps"),
]  # fmt: skip


def _taken(lib, call):
    try:
        call(lib)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _found(lib, name):
    for part in name.split("."):
        lib = getattr(lib, part)
    return lib


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", IN_FACTORIES)
@pytest.mark.parametrize(("name", "args"), FACTORIES, ids=[name for name, _ in FACTORIES])
def test_none_in_factories(name, args, key):
    """torch's factories take None for some of what may be left out, others do not; what torch takes we take."""
    def call(lib):
        owner = lib.ones(2) if name.startswith("new_") else lib
        return _found(owner, name)(*((lib.ones(2),) if name.endswith("_like") else ()), *args, **{key: None})

    if _taken(torch, call):
        call(fl)
    elif (key, name) in (("requires_grad", "tensor"), ("pin_memory", "tensor"), ("requires_grad", "new_tensor")):
        assert not _taken(fl, call)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args", "key"), FUNCTIONS, ids=[f"{name} {key}" for name, _, key in FUNCTIONS])
def test_none_for_flags_of_functions(name, args, key):
    def call(lib):
        more = {"return_complex": True} if name == "stft" else {}
        at = 1 if "loss" not in name else 3
        return _found(lib, name)(*[lib.rand(a) for a in args[:at]], *args[at:], **{key: None}, **more)

    if _taken(torch, call):
        call(fl)


def test_none_stands_for_no_sizes():
    for shapes in ((None,), ((2,), None, (3, 2)), (2, None), ((),), (2.0,)):
        assert _taken(fl, lambda lib, s=shapes: lib.broadcast_shapes(*s)) is _taken(torch, lambda lib, s=shapes: lib.broadcast_shapes(*s))
        if _taken(torch, lambda lib, s=shapes: lib.broadcast_shapes(*s)):
            assert tuple(fl.broadcast_shapes(*shapes)) == tuple(torch.broadcast_shapes(*shapes))


OF_BITS = ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
IN_ORDER = ("sign", "maximum", "minimum", "fmax", "fmin", "relu", "lt", "le", "gt", "ge", "floor", "ceil", "trunc")
OF_FRACTIONS = ("hypot", "logaddexp", "logaddexp2", "nextafter")
REFUSED = [*((name, kind) for name in OF_FRACTIONS for kind in ("bool", "uint8", "int32", "int64")),
           *((name, kind) for name in OF_BITS for kind in ("float16", "bfloat16", "float32", "float64", "complex64")),
           *((name, "complex64") for name in IN_ORDER), ("abs", "bool")]


@pytest.mark.parametrize("size", [0, 1, 3, 300, 17000])
def test_a_dtype_is_refused_at_every_size_and_by_everybody(size):
    """Whether native loops, programs, generated kernels, NumPy or a capture would have it: the record refuses, as torch does."""
    for name, kind in REFUSED:
        if size == 0 and name in IN_ORDER:
            continue        # torch computes nothing of nothing, and so asks for no order
        fl._dynamo.reset()
        x = fl.ones(size, dtype=getattr(fl, kind))
        fn, count = getattr(fl, name), 1 if name in ("bitwise_not", "sign", "relu", "floor", "ceil", "trunc", "abs") else 2
        for args in ((x,) * count, (x[:1].expand(size),) * count, (x.to("meta"),) * count):
            with pytest.raises(NotImplementedError):
                fn(*args)
        if size in (3, 17000):
            with pytest.raises(NotImplementedError):
                fl.compile(lambda *a, fn=fn: fn(*a))(*(x,) * count)


@pytest.mark.parametrize(("call", "error"), [
    (lambda t: t.tensor([1.0, 2.0]).__delitem__(0), TypeError), (lambda t: t.zeros(2).split(0), RuntimeError),
    (lambda t: t.searchsorted(t.tensor([1, 3]), t.tensor([1]), side="left", right=True), RuntimeError),
    (lambda t: t.stft(t.arange(20.0), 8, hop_length=0, return_complex=True), RuntimeError),
    (lambda t: t.stft(t.arange(20.0), 8, win_length=0, return_complex=True), RuntimeError),
    (lambda t: t.Generator().manual_seed("a"), RuntimeError), (lambda t: t.Generator().manual_seed(3.5), RuntimeError)])
def test_arguments_that_are_nothing(call, error):
    oracle = pytest.importorskip("torch")
    for library in (fl, oracle):
        with pytest.raises(error):
            call(library)


def test_empty_tensors_split_into_nothing():
    assert [tuple(part.shape) for part in fl.zeros(2, 0).split(0, 1)] == [(2, 0)]
    assert fl.manual_seed(3.7).initial_seed() == 3     # the function takes what int() takes


INTEGERS = [(name, place, key) for name, fn in OPERATORS.items() if ".nn." not in fn.__module__
            for place, (key, p) in enumerate(inspect.signature(fn).parameters.items()) if p.annotation in ("int", "int | None")]


@pytest.mark.parametrize("wrong", [1.5, "a", True, [1], 2j, object()], ids=lambda wrong: type(wrong).__name__)
def test_where_an_integer_stands_nothing_else_does(wrong) -> None:
    assert len(INTEGERS) > 100
    plain = {"int": 1, "int | None": 1, "bool": False, "str": "", "str | None": ""}
    for name, place, key in INTEGERS:
        before = list(inspect.signature(OPERATORS[name]).parameters.values())[:place]
        args = [plain.get(p.annotation, fl.ones(2, 2)) for p in before if p.kind is p.POSITIONAL_OR_KEYWORD]
        with pytest.raises(TypeError, match=f"argument '{key}'.* must be int"):
            OPERATORS[name](*args, **{key: wrong})


@pytest.mark.parametrize("whole", [1, fl.tensor(1), np.int64(1)], ids=str)
def test_where_an_integer_stands_so_does_a_tensor_of_one_and_numpys(whole) -> None:
    assert fl.tril(fl.ones(2, 2), whole).tolist() == [[1, 1], [1, 1]]
    assert fl.kthvalue(fl.tensor([3, 1]), whole)[0] == 1
