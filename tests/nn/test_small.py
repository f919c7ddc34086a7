"""Small promises of containers, bags and norms that torch makes too."""

from __future__ import annotations

import pytest

import flambeau as fl


def test_parameter_dict_keeps_pairs_and_sorts_plain_mappings():
    one = fl.ones(1)
    assert list(fl.nn.ParameterDict({"b": one, "a": one})) == ["a", "b"]
    pairs = fl.nn.ParameterDict([("b", one), ("a", one)])
    assert list(pairs) == list(pairs.copy()) == list(fl.nn.ParameterDict(pairs)) == ["b", "a"]
    assert list(pairs.fromkeys(["y", "x"], one)) == ["y", "x"]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_padding_alone_are_empty(mode):
    weight = (fl.arange(6.0).view(3, 2) - 9).requires_grad_()
    matrix = fl.nn.functional.embedding_bag(fl.tensor([[1, 1], [0, 1]]), weight, mode=mode, padding_idx=1)
    runs = fl.nn.functional.embedding_bag(fl.tensor([1, 1, 0, 1]), weight, fl.tensor([0, 2, 4]), mode=mode, padding_idx=1)
    assert runs.tolist() == [[0, 0], [-9, -8], [0, 0]] and matrix.tolist() == runs[:2].tolist()
    runs.sum().backward()
    assert weight.grad.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_unpooling_keeps_channels_last():
    x = fl.arange(64.0).view(1, 4, 4, 4).contiguous(memory_format=fl.channels_last)
    y, where = fl.nn.functional.max_pool2d(x, 2, return_indices=True)
    back = fl.nn.functional.max_unpool2d(y, where, 2)
    plain = fl.nn.functional.max_unpool2d(y.contiguous(), where.contiguous(), 2)
    assert back.is_contiguous(memory_format=fl.channels_last) and fl.equal(back, plain)


@pytest.mark.parametrize("kind", [fl.bfloat16, fl.float16])
def test_rms_norm_of_narrow_numbers_has_the_epsilon_of_float32(kind):
    x = fl.tensor([1e-2, 2e-2, -1e-2, 3e-2], dtype=kind)
    wide = fl.nn.functional.rms_norm(x.float(), (4,))
    assert fl.allclose(fl.nn.functional.rms_norm(x, (4,)).float(), wide, rtol=1e-2)


def test_gradcheck_is_a_function_and_a_module():
    from flambeau.autograd.gradcheck import gradcheck as of_module
    assert fl.autograd.gradcheck is of_module
    assert fl.autograd.gradcheck(lambda x: x * 2, (fl.ones(2, dtype=fl.float64, requires_grad=True),))
