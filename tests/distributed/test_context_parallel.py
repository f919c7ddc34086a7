"""Context parallel in real processes: attention of parts of a sequence, and its gradients, are those of the whole."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed.tensor.experimental import _attention, context_parallel
from flambeau.nn.functional import scaled_dot_product_attention
from tests.distributed.processes import needs_mpi, run


def ring(torch: Any, rank: int, world: int) -> dict:
    """By how much results and gradients differ from those of one process; parts of buffers."""
    dist.init_process_group("gloo")
    mesh, found = dist.init_device_mesh("cpu", (world,)), {}
    draw = fl.Generator().manual_seed(0)
    for balance in (True, False):
        _attention._cp_options.enable_load_balance = balance
        for name, heads, options in (("plain", 3, {}), ("causal", 3, {"is_causal": True}), ("scaled", 3, {"is_causal": True, "scale": 0.7}),
                                     ("groups", 1, {"enable_gqa": True, "is_causal": True}), ("double", 3, {"is_causal": True})):
            kind = fl.float64 if name == "double" else fl.float32
            whole = [fl.randn(2, h, 24, 4, generator=draw).to(kind) for h in (3, heads, heads, 3)]
            plain = [t.clone().requires_grad_() for t in whole[:3]]
            want = scaled_dot_product_attention(*plain, **options)
            want.backward(whole[3])
            parts = [t.clone() for t in whole]
            with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
                leaves = [t.clone().requires_grad_() for t in parts[:3]]
                out = scaled_dot_product_attention(*leaves, **options)
                out.backward(parts[3])
                assert out.shape[2] == 24 // world
            assert all(fl.equal(p, w) for p, w in zip(parts, whole))
            got = _attention.context_parallel_unshard(mesh, [out, *(t.grad for t in leaves)], [2] * 4)
            found[name, balance] = max((a - b).abs().max().item() for a, b in zip(got, [want.detach(), *(t.grad for t in plain)]))
    _attention._cp_options.enable_load_balance = True
    ids, kept = fl.arange(8).reshape(1, 8), fl.arange(8)
    with context_parallel(mesh, buffers=[ids, kept], buffer_seq_dims=[1, 0], no_restore_buffers={kept}):
        found["ids"] = ids.tolist()
    found["after"] = ids.tolist(), kept.tolist()
    return found


@needs_mpi
def test_parts_are_the_whole() -> None:
    for rank, found in enumerate(run(ring, 2)):
        mine = [[0, 1, 6, 7], [2, 3, 4, 5]][rank]
        assert found.pop("ids") == [mine] and found.pop("after") == ([list(range(8))], mine)
        assert len(found) == 10 and all(gap < (1e-12 if name == "double" else 1e-5) for (name, _), gap in found.items()), found


def test_what_is_refused() -> None:
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        mesh = dist.init_device_mesh("cpu", (4,))
        x = fl.ones(1, 12, 2)
        with pytest.raises(ValueError, match="8 equal pieces"), context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            pass
        with pytest.raises(ValueError, match="same number"), context_parallel(mesh, buffers=[x], buffer_seq_dims=[]):
            pass
        with pytest.raises(ValueError, match="subset"), context_parallel(mesh, buffers=[], buffer_seq_dims=[], no_restore_buffers={x}):
            pass
        q = fl.ones(1, 2, 4, 2)
        with context_parallel(mesh):
            for options in ({"attn_mask": fl.ones(4, 4)}, {"dropout_p": 0.5}):
                with pytest.raises(NotImplementedError, match="is_causal"):
                    scaled_dot_product_attention(q, q, q, **options)
            with pytest.raises(ValueError, match="one sequence"):
                scaled_dot_product_attention(q[:, :, :2], q, value=q, is_causal=True)
        with pytest.raises(NotImplementedError, match="allgather"):
            _attention.set_rotate_method("ring")
    finally:
        dist.destroy_process_group()
