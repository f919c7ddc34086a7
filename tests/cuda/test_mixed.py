"""Packed sequences, and the CPU's 0-dim tensors and indices among tensors of a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

RNN = {"lstm": fl.nn.LSTM, "gru": fl.nn.GRU, "rnn": fl.nn.RNN}


@pytest.mark.parametrize("enforce", [True, False])
@pytest.mark.parametrize("kind", RNN)
def test_packed_sequences_are_the_cpus(kind, enforce):
    fl.manual_seed(0)
    layer = RNN[kind](5, 7, num_layers=2, bidirectional=True, batch_first=True)
    x, lengths = fl.randn(4, 6, 5), [6, 4, 4, 1] if enforce else [4, 6, 1, 4]
    results = []
    for where in ("cpu", "cuda"):
        mine, given = layer.to(where), x.detach().to(where).requires_grad_()
        layer.zero_grad()
        packed = pack_padded_sequence(given, fl.tensor(lengths), batch_first=True, enforce_sorted=enforce)
        assert packed.data.device.type == where and packed.batch_sizes.device.type == "cpu" and packed.is_cuda == (where == "cuda")
        out, state = mine(packed)
        padded, found = pad_packed_sequence(out, batch_first=True, total_length=8)
        assert found.tolist() == lengths
        padded.square().sum().backward()
        hidden = state[0] if isinstance(state, tuple) else state
        results.append([t.detach().cpu().numpy() for t in (padded, hidden, given.grad, *[p.grad for p in layer.parameters()])])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_packed_sequences_move():
    packed = pack_sequence([fl.ones(3, 2), fl.ones(2, 2)])
    moved = packed.cuda()
    assert moved.data.is_cuda and moved.batch_sizes.device.type == "cpu"
    assert [t.shape for t in fl.nn.utils.rnn.unpack_sequence(moved)] == [(3, 2), (2, 2)]
    assert fl.equal(moved.cpu().data, packed.data)


def test_the_cpus_numbers_and_indices_join():
    x, z, i = fl.randn(3, 3), fl.tensor(0.5), fl.tensor([2, 0])
    for work in (lambda x: fl.where(x > 0, x, z), lambda x: fl.where(x > 0, z, x), lambda x: x[i], lambda x: x.clamp(z), lambda x: x * z,
                 lambda x: x.masked_fill(x > 0, z), lambda x: fl.addcmul(x, z, x), lambda x: x.index_put((i,), z), lambda x: z - x,
                 lambda x: x[fl.tensor([True, False, True])], lambda x: fl.lerp(x, x + 1, z)):
        assert fl.equal(work(x.cuda()).cpu(), work(x))
        assert fl.equal(fl.compile(work)(x.cuda()).cpu(), work(x))
