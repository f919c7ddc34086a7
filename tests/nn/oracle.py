"""Comparing a Flambeau module with torch's module of the same name, arguments and weights."""

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def to_ours(t):
    """A torch tensor (or a container of them) as Flambeau tensors with their own memory."""
    if isinstance(t, torch.Tensor):
        made = flambeau.from_numpy(t.detach().numpy().copy())
        return made.requires_grad_() if t.requires_grad else made
    if isinstance(t, (tuple, list)):
        return type(t)(to_ours(v) for v in t)
    if isinstance(t, dict):
        return {k: to_ours(v) for k, v in t.items()}
    if isinstance(t, torch.dtype):
        return getattr(flambeau, str(t).removeprefix("torch."))
    return t


def tensors_in(value):
    """The tensors in nested tuples and lists, in order."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors_in(v)]
    return [value] if hasattr(value, "detach") else []


def assert_close(ours, theirs, rtol=1e-4, atol=1e-5, what=""):
    """Same shape, dtype and, within tolerance, the same numbers."""
    expected = theirs.detach().numpy()
    got = ours.detach().numpy()
    assert got.shape == expected.shape, f"{what}: {got.shape} != {expected.shape}"
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} != {expected.dtype}"
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=what)


def load_same(ours, theirs):
    """Give our module torch's weights, by the same keys."""
    state = {k: to_ours(v) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    missing = ours.load_state_dict(state)
    assert missing.missing_keys == [] and missing.unexpected_keys == []


def compare_call(our_fn, their_fn, inputs, kwargs=None, our_params=(), their_params=(), rtol=1e-4, atol=1e-5):
    """Outputs, and gradients of inputs and parameters under a random projection of the outputs."""
    kwargs = kwargs or {}
    converted = {id(v): to_ours(v) for v in inputs}     # one given twice is one of ours, twice
    ours_in = [converted[id(v)] for v in inputs]
    out, expected = our_fn(*ours_in, **{k: to_ours(v) for k, v in kwargs.items()}), their_fn(*inputs, **kwargs)
    got, wanted = tensors_in(out), tensors_in(expected)
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted)):
        assert_close(a, b, rtol, atol, f"output {i}")
    pairs = [(a, b) for a, b in zip(got, wanted) if b.requires_grad]
    assert all(a.requires_grad for a, _ in pairs)
    if not pairs:
        return
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(b.shape, generator=generator, dtype=b.dtype) for _, b in pairs]
    sum((b * w).sum() for (_, b), w in zip(pairs, weights)).backward()
    sum((a * to_ours(w)).sum() for (a, _), w in zip(pairs, weights)).backward()
    their_leaves = [t for t in tensors_in(list(inputs)) if t.requires_grad]
    our_leaves = [t for t in tensors_in(ours_in) if t.requires_grad]
    for i, (a, b) in enumerate(zip(our_leaves, their_leaves)):
        assert_close(a.grad, b.grad, rtol, atol, f"gradient of input {i}")
    for (name, a), (_, b) in zip(our_params, their_params):
        assert (a.grad is None) == (b.grad is None), name
        if b.grad is not None:
            assert_close(a.grad, b.grad, rtol, atol * 10, f"gradient of {name}")


def compare_module(name, args, kwargs, inputs, call_kwargs=None, train=True, rtol=1e-4, atol=1e-5):
    """Build both modules, share the weights, compare output, gradients and buffers."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*[torch_part(a) for a in args], **kwargs)
    ours = getattr(flambeau.nn, name)(*args, **kwargs)
    load_same(ours, theirs)
    ours.train(train)
    theirs.train(train)
    assert repr(ours) == repr(theirs)
    compare_call(ours, theirs, inputs, call_kwargs, list(ours.named_parameters()), list(theirs.named_parameters()), rtol, atol)
    for (key, a), (_, b) in zip(ours.named_buffers(), theirs.named_buffers()):
        assert_close(a, b, rtol, atol, f"buffer {key}")


def torch_part(value):
    """Arguments are numbers, strings and tuples, the same for both; tensors are given as torch's."""
    return value


def randn(*shape, grad=True, seed=0, dtype=None):
    """A torch tensor of normal numbers."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return made.requires_grad_(grad)
