"""Calls that are wrong, written once for PyTorch and Flambeau; `test_bad_input.py` compares how the two refuse them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


def calls(t: Any) -> dict[str, Callable[[], Any]]:
    """Every call by its name. `t` is the library, `z` its zeros, `leaf` ones that require grad."""
    F = t.nn.functional
    z = t.zeros
    leaf = lambda *s: t.ones(*s, requires_grad=True)

    def stale():
        x = leaf(3)
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    def stale2():
        h = leaf(3, 3) @ leaf(3, 3)
        squares = h * h
        h.mul_(2)
        squares.sum().backward()

    def twice():
        x = leaf(3)
        y = (x * x).sum()
        y.backward()
        y.backward()

    def inplace_view_leaf():
        x = leaf(3)
        x[0] = 1.0

    def no_graph():
        t.ones(3).sum().backward()

    def grad_unused():
        x, y = leaf(3), leaf(3)
        t.autograd.grad((x * 2).sum(), [y])

    def bad_grad_shape():
        x = leaf(3)
        (x * 2).backward(z(4))

    def state(strict=True, **k):
        m = t.nn.Linear(2, 3)
        m.load_state_dict(k, strict=strict)

    def opt_state():
        a = t.optim.SGD(t.nn.Linear(2, 2).parameters(), lr=0.1)
        b = t.optim.SGD([leaf(2)], lr=0.1)
        b.load_state_dict(a.state_dict())

    def set_grad():
        x = leaf(3)
        x.grad = z(4)

    def set_grad_dtype():
        x = leaf(3)
        x.grad = z(3, dtype=t.float64)

    def inplace_broadcast():
        z(3).add_(z(2, 3))

    def inplace_type():
        z(3, dtype=t.int64).add_(t.ones(3) * 0.5)

    def overlap():
        x = t.zeros(1).expand(3)
        x.add_(1)

    def split_inplace():
        x = leaf(4) * 1
        a = x.chunk(2)[0]
        a.mul_(2)

    def unbind_inplace():
        x = leaf(4) * 1
        a = x.unbind()[0]
        a.mul_(2)

    def nograd_view():
        x = leaf(4)
        with t.no_grad():
            v = x[:2]
        v.mul_(2)

    def inference():
        with t.inference_mode():
            x = t.ones(3)
        y = leaf(3) * x
        y.sum().backward()

    def inference_inplace():
        with t.inference_mode():
            x = t.ones(3)
        x.add_(1)

    def fn_wrong_count():
        class Fn(t.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                return a * b

            @staticmethod
            def backward(ctx, g):
                return g

        a, b = leaf(2), leaf(2)
        Fn.apply(a, b).sum().backward()

    def fn_wrong_shape():
        class Fn(t.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a * 2

            @staticmethod
            def backward(ctx, g):
                return z(5)

        a = leaf(2)
        Fn.apply(a).sum().backward()

    calls = {
        "add shapes": lambda: z(2, 3) + z(2, 4),
        "add strings": lambda: z(2) + "a",
        "matmul shapes": lambda: z(2, 3) @ z(4, 5),
        "matmul dtypes": lambda: z(2, 3) @ z(3, 4, dtype=t.float64),
        "matmul scalars": lambda: t.tensor(1.0) @ t.tensor(2.0),
        "mm dims": lambda: t.mm(z(2, 3), z(3)),
        "mm shapes": lambda: t.mm(z(2, 3), z(2, 3)),
        "bmm shapes": lambda: t.bmm(z(2, 3, 4), z(2, 3, 4)),
        "bmm batch": lambda: t.bmm(z(2, 3, 4), z(3, 4, 5)),
        "bmm dims": lambda: t.bmm(z(3, 4), z(2, 4, 5)),
        "mv": lambda: t.mv(z(2, 3), z(2)),
        "dot": lambda: t.dot(z(2), z(3)),
        "dot dims": lambda: t.dot(z(2, 2), z(2, 2)),
        "addmm": lambda: t.addmm(z(5), z(2, 3), z(3, 4)),
        "baddbmm": lambda: t.baddbmm(z(1, 1, 9), z(2, 3, 4), z(2, 4, 5)),
        "einsum size": lambda: t.einsum("ij,jk->ik", z(2, 3), z(4, 5)),
        "einsum letters": lambda: t.einsum("ij,jk->iz", z(2, 3), z(3, 5)),
        "einsum operands": lambda: t.einsum("ij,jk->ik", z(2, 3)),
        "einsum rank": lambda: t.einsum("ijk->ik", z(2, 3)),
        "view size": lambda: z(2, 3).view(4),
        "view stride": lambda: z(2, 3).t().view(6),
        "view two -1": lambda: z(2, 3).view(-1, -1),
        "view -1 ambiguous": lambda: z(0, 3).view(-1, 0),
        "view negative": lambda: z(6).view(-2, 3),
        "view dtype": lambda: z(3, dtype=t.int8).view(t.float32),
        "reshape": lambda: z(2, 3).reshape(7),
        "expand": lambda: z(2, 3).expand(4, 3),
        "expand rank": lambda: z(2, 3).expand(3),
        "expand -1": lambda: z(2).expand(-1, 2),
        "broadcast_to": lambda: t.broadcast_to(z(3), (2, 4)),
        "permute": lambda: z(2, 3).permute(0, 2),
        "permute count": lambda: z(2, 3).permute(0),
        "permute twice": lambda: z(2, 3).permute(0, 0),
        "transpose": lambda: z(2, 3).transpose(0, 2),
        "t": lambda: z(2, 3, 4).t(),
        "squeeze": lambda: z(2, 3).squeeze(2),
        "unsqueeze": lambda: z(2, 3).unsqueeze(4),
        "flatten": lambda: z(2, 3, 4).flatten(2, 1),
        "unflatten": lambda: z(2, 6).unflatten(1, (4, 2)),
        "cat shapes": lambda: t.cat([z(2, 3), z(2, 4)], 0),
        "cat ranks": lambda: t.cat([z(2, 3), z(3)], 0),
        "cat empty": lambda: t.cat([]),
        "cat dim": lambda: t.cat([z(2), z(2)], 1),
        "cat tensor": lambda: t.cat(z(2)),
        "stack": lambda: t.stack([z(2), z(3)]),
        "stack empty": lambda: t.stack([]),
        "split": lambda: z(5).split([2, 2]),
        "split negative": lambda: z(5).split(-1),
        "chunk": lambda: z(5).chunk(0),
        "narrow": lambda: z(5).narrow(0, 3, 4),
        "narrow neg": lambda: z(5).narrow(0, 0, -1),
        "select": lambda: z(5).select(0, 5),
        "index int": lambda: z(5)[5],
        "index neg": lambda: z(5)[-6],
        "index too many": lambda: z(5)[0, 0],
        "index 0-dim": lambda: t.tensor(1.0)[0],
        "index tensor": lambda: z(5)[t.tensor([0, 5])],
        "index float": lambda: z(5)[t.tensor([0.0, 1.0])],
        "index float num": lambda: z(5)[1.5],
        "index str": lambda: z(5)["a"],
        "index mask": lambda: z(5)[t.ones(4, dtype=t.bool)],
        "index shapes": lambda: z(5, 5)[t.tensor([0, 1]), t.tensor([0, 1, 2])],
        "index step": lambda: z(5)[::-1],
        "setitem shape": lambda: z(5).__setitem__(slice(0, 2), z(3)),
        "setitem range": lambda: z(5).__setitem__(7, 1.0),
        "setitem tensor": lambda: z(5).__setitem__(t.tensor([0, 9]), 1.0),
        "iter 0-dim": lambda: list(t.tensor(1.0)),
        "len 0-dim": lambda: len(t.tensor(1.0)),
        "bool": lambda: bool(z(2)),
        "bool empty": lambda: bool(z(0)),
        "item": lambda: z(2).item(),
        "float": lambda: float(z(2)),
        "int index": lambda: [1, 2][t.tensor([1, 2])],
        "gather index": lambda: t.gather(z(2, 3), 1, t.tensor([[0, 3]])),
        "gather rank": lambda: t.gather(z(2, 3), 1, t.tensor([0])),
        "gather dtype": lambda: t.gather(z(2, 3), 1, z(2, 1)),
        "gather shape": lambda: t.gather(z(2, 3), 1, t.zeros(4, 1, dtype=t.int64)),
        "scatter index": lambda: z(2, 3).scatter(1, t.tensor([[0, 3]]), 1.0),
        "scatter dtype": lambda: z(2, 3).scatter(1, t.tensor([[0]]), z(1, 1, dtype=t.float64)),
        "scatter shape": lambda: z(2, 3).scatter(1, t.zeros(2, 3, dtype=t.int64), z(1, 1)),
        "scatter_add": lambda: z(2, 3).scatter_add(1, t.zeros(3, 1, dtype=t.int64), z(3, 1)),
        "scatter reduce": lambda: z(2, 3).scatter_reduce(1, t.zeros(1, 1, dtype=t.int64), z(1, 1), "nope"),
        "index_select": lambda: z(2, 3).index_select(1, t.tensor([3])),
        "index_select dtype": lambda: z(2, 3).index_select(1, z(1)),
        "index_select rank": lambda: z(2, 3).index_select(1, t.zeros(1, 1, dtype=t.int64)),
        "index_add": lambda: z(2, 3).index_add(0, t.tensor([0]), z(2, 3)),
        "index_add range": lambda: z(2, 3).index_add(0, t.tensor([2]), z(1, 3)),
        "index_copy": lambda: z(2, 3).index_copy(0, t.tensor([2]), z(1, 3)),
        "index_put": lambda: z(5).index_put_((t.tensor([7]),), t.tensor(1.0)),
        "index_put dtype": lambda: z(5).index_put_((t.tensor([1]),), t.tensor(1.0, dtype=t.float64)),
        "index_put shape": lambda: z(5).index_put_((t.tensor([1, 2]),), t.ones(3)),
        "index_fill": lambda: z(5).index_fill(0, t.tensor([9]), 1.0),
        "masked_fill shape": lambda: z(5).masked_fill(t.ones(4, dtype=t.bool), 1.0),
        "masked_fill dtype": lambda: z(5).masked_fill(z(5), 1.0),
        "masked_select": lambda: z(5).masked_select(z(5)),
        "take": lambda: t.take(z(5), t.tensor([7])),
        "where shapes": lambda: t.where(t.ones(2, dtype=t.bool), z(3), z(3)),
        "where cond": lambda: t.where(z(3), z(3), z(3)),
        "sum dim": lambda: z(2).sum(1),
        "sum dim twice": lambda: z(2, 3).sum((0, 0)),
        "mean int": lambda: t.zeros(3, dtype=t.int64).mean(),
        "max empty": lambda: z(0).max(),
        "max dim empty": lambda: z(2, 0).max(1),
        "argmax empty": lambda: z(0).argmax(),
        "softmax dim": lambda: z(2).softmax(1),
        "softmax int": lambda: t.zeros(2, dtype=t.int64).softmax(0),
        "std int": lambda: t.zeros(3, dtype=t.int64).std(),
        "topk": lambda: z(3).topk(4),
        "kthvalue": lambda: z(3).kthvalue(4),
        "sort dim": lambda: z(3).sort(1),
        "cumsum dim": lambda: z(3).cumsum(1),
        "median empty": lambda: z(3, 0).median(1),
        "quantile": lambda: z(3).quantile(1.5),
        "quantile dtype": lambda: t.zeros(3, dtype=t.int64).quantile(0.5),
        "clamp none": lambda: z(3).clamp(),
        "int sqrt_": lambda: t.zeros(3, dtype=t.int64).sqrt_(),
        "bitwise float": lambda: z(3) & z(3),
        "neg bool": lambda: -t.ones(3, dtype=t.bool),
        "sub bool": lambda: t.ones(3, dtype=t.bool) - t.ones(3, dtype=t.bool),
        "int div zero": lambda: t.ones(3, dtype=t.int64) // 0,
        "int pow": lambda: t.ones(3, dtype=t.int64) ** -1,
        "inverse singular": lambda: t.linalg.inv(z(2, 2)),
        "inverse shape": lambda: t.linalg.inv(z(2, 3)),
        "cholesky": lambda: t.linalg.cholesky(-t.eye(2)),
        "solve": lambda: t.linalg.solve(t.eye(2), z(3, 1)),
        "det": lambda: t.linalg.det(z(2, 3)),
        "svd": lambda: t.linalg.svd(z(3)),
        "eigh": lambda: t.linalg.eigh(z(2, 3)),
        "cross": lambda: t.linalg.cross(z(2), z(2)),
        "repeat": lambda: z(2, 3).repeat(2),
        "repeat_interleave": lambda: z(3).repeat_interleave(t.tensor([1, 2])),
        "tile": lambda: t.tile(z(3), (-1,)),
        "roll": lambda: t.roll(z(3), (1, 2), (0,)),
        "flip": lambda: t.flip(z(3), (1,)),
        "diag": lambda: t.diag(z(2, 2, 2)),
        "tril": lambda: t.tril(z(2)),
        "unfold": lambda: z(3).unfold(0, 4, 1),
        "as_strided": lambda: z(3).as_strided((4,), (1,)),
        "arange": lambda: t.arange(0, 5, -1),
        "arange step": lambda: t.arange(0, 5, 0),
        "linspace": lambda: t.linspace(0, 1, -1),
        "zeros neg": lambda: t.zeros(-1),
        "zeros float": lambda: t.zeros(1.5),
        "tensor ragged": lambda: t.tensor([[1, 2], [3]]),
        "tensor str": lambda: t.tensor(["a"]),
        "tensor none": lambda: t.tensor(None),
        "tensor object": lambda: t.tensor([object()]),
        "from_numpy": lambda: t.from_numpy([1, 2]),
        "randint": lambda: t.randint(3, 3, (2,)),
        "multinomial": lambda: t.multinomial(t.tensor([0.5, 0.5]), 3),
        "multinomial neg": lambda: t.multinomial(t.tensor([-0.5, 0.5]), 1),
        "bernoulli": lambda: t.bernoulli(t.tensor([2.0])),
        "normal std": lambda: t.normal(0.0, -1.0, (2,)),
        "uniform": lambda: z(2).uniform_(2, 1),
        "random int range": lambda: z(2, dtype=t.int64).random_(5, 5),
        "device bad": lambda: t.device("nonsense"),
        "device cuda": lambda: z(2).to("nonsense"),
        "meta cpu": lambda: z(2) + t.zeros(2, device="meta"),
        "meta item": lambda: t.zeros(1, device="meta").item(),
        "linear shape": lambda: F.linear(z(2, 3), z(4, 5)),
        "linear bias": lambda: F.linear(z(2, 3), z(4, 3), z(5)),
        "linear dtype": lambda: F.linear(z(2, 3), z(4, 3, dtype=t.float64)),
        "Linear module": lambda: t.nn.Linear(3, 4)(z(2, 5)),
        "Linear int": lambda: t.nn.Linear(3, 4)(t.zeros(2, 3, dtype=t.int64)),
        "conv channels": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 5, 3, 3)),
        "conv rank": lambda: F.conv2d(z(3, 8), z(4, 3, 3, 3)),
        "conv kernel": lambda: F.conv2d(z(1, 3, 2, 2), z(4, 3, 3, 3)),
        "conv dtype": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3, dtype=t.float64)),
        "conv groups": lambda: F.conv2d(z(1, 4, 8, 8), z(6, 2, 3, 3), groups=4),
        "conv bias": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), z(5)),
        "conv stride": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), stride=0),
        "conv padding": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), padding=-1),
        "conv same stride": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), padding="same", stride=2),
        "conv stride tuple": lambda: F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), stride=(1, 1, 1)),
        "Conv groups": lambda: t.nn.Conv2d(3, 4, 3, groups=2),
        "Conv padding_mode": lambda: t.nn.Conv2d(3, 4, 3, padding_mode="nope"),
        "conv_transpose": lambda: F.conv_transpose2d(z(1, 3, 4, 4), z(5, 3, 3, 3)),
        "conv_transpose out": lambda: F.conv_transpose2d(z(1, 3, 4, 4), z(3, 3, 3, 3), output_padding=1),
        "max_pool": lambda: F.max_pool2d(z(1, 1, 2, 2), 3),
        "max_pool pad": lambda: F.max_pool2d(z(1, 1, 8, 8), 2, padding=2),
        "avg_pool rank": lambda: F.avg_pool2d(z(2, 2), 2),
        "adaptive": lambda: F.adaptive_avg_pool2d(z(2, 2), 2),
        "interpolate": lambda: F.interpolate(z(1, 1, 4, 4)),
        "interpolate mode": lambda: F.interpolate(z(1, 1, 4, 4), 2, mode="nope"),
        "interpolate both": lambda: F.interpolate(z(1, 1, 4, 4), 2, 2.0),
        "interpolate rank": lambda: F.interpolate(z(1, 4, 4), (2, 2), mode="bilinear"),
        "pad": lambda: F.pad(z(2), (1, 1, 1, 1)),
        "pad reflect": lambda: F.pad(z(1, 1, 2), (3, 3), mode="reflect"),
        "pad odd": lambda: F.pad(z(2), (1,)),
        "grid_sample": lambda: F.grid_sample(z(1, 1, 4, 4), z(1, 4, 4, 3)),
        "pixel_shuffle": lambda: F.pixel_shuffle(z(1, 3, 4, 4), 2),
        "batch_norm stats": lambda: F.batch_norm(z(2, 3), z(4), z(4)),
        "batch_norm one": lambda: F.batch_norm(z(1, 3), z(3), z(3), training=True),
        "BatchNorm rank": lambda: t.nn.BatchNorm2d(3)(z(2, 3)),
        "BatchNorm channels": lambda: t.nn.BatchNorm2d(3)(z(2, 4, 5, 5)),
        "layer_norm": lambda: F.layer_norm(z(2, 3), (4,)),
        "layer_norm weight": lambda: F.layer_norm(z(2, 3), (3,), z(4)),
        "group_norm": lambda: F.group_norm(z(2, 3, 4), 2),
        "instance_norm": lambda: t.nn.InstanceNorm2d(3)(z(2, 3)),
        "rms_norm": lambda: F.rms_norm(z(2, 3), (4,)),
        "embedding range": lambda: F.embedding(t.tensor([5]), z(5, 2)),
        "embedding neg": lambda: F.embedding(t.tensor([-1]), z(5, 2)),
        "embedding dtype": lambda: F.embedding(z(2), z(5, 2)),
        "embedding rank": lambda: F.embedding(t.tensor([1]), z(5)),
        "Embedding padding": lambda: t.nn.Embedding(3, 2, padding_idx=5),
        "embedding_bag": lambda: F.embedding_bag(t.tensor([9]), z(5, 2), t.tensor([0])),
        "one_hot": lambda: F.one_hot(t.tensor([5]), 3),
        "one_hot neg": lambda: F.one_hot(t.tensor([-1])),
        "ce batch": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1])),
        "ce range": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1, 5])),
        "ce neg": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1, -1])),
        "ce dtype": lambda: F.cross_entropy(z(3, 5), z(3)),
        "ce int32": lambda: F.cross_entropy(z(3, 5), t.zeros(3, dtype=t.int32)),
        "ce weight": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1, 2]), z(4)),
        "ce smoothing": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1, 2]), label_smoothing=2.0),
        "ce reduction": lambda: F.cross_entropy(z(3, 5), t.tensor([0, 1, 2]), reduction="nope"),
        "ce spatial": lambda: F.cross_entropy(z(1, 5, 4, 4), t.zeros(1, 3, 3, dtype=t.int64)),
        "nll rank": lambda: F.nll_loss(z(3, 5), t.zeros(3, 5, dtype=t.int64)),
        "nll dtype": lambda: F.nll_loss(z(3, 5), z(3)),
        "mse shape": lambda: F.mse_loss(z(3, 2), z(4, 2)),
        "bce shape": lambda: F.binary_cross_entropy(z(3), z(4)),
        "bce range": lambda: F.binary_cross_entropy(t.tensor([2.0]), z(1)),
        "bce logits": lambda: F.binary_cross_entropy_with_logits(z(3), z(4)),
        "kl reduction": lambda: F.kl_div(z(3), z(3), reduction="nope"),
        "ctc": lambda: F.ctc_loss(z(5, 1, 3), t.tensor([[1, 2]]), t.tensor([9]), t.tensor([2])),
        "sdpa": lambda: F.scaled_dot_product_attention(z(1, 2, 3, 4), z(1, 2, 3, 5), z(1, 2, 3, 4)),
        "sdpa mask": lambda: F.scaled_dot_product_attention(z(1, 2, 3, 4), z(1, 2, 3, 4), z(1, 2, 3, 4), attn_mask=z(2, 2)),
        "sdpa both": lambda: F.scaled_dot_product_attention(z(1, 2, 3, 4), z(1, 2, 3, 4), z(1, 2, 3, 4), attn_mask=z(3, 3), is_causal=True),
        "sdpa dtype": lambda: F.scaled_dot_product_attention(z(1, 2, 3, 4), z(1, 2, 3, 4, dtype=t.float64), z(1, 2, 3, 4)),
        "mha dims": lambda: t.nn.MultiheadAttention(5, 2),
        "mha input": lambda: t.nn.MultiheadAttention(4, 2)(z(3, 1, 5), z(3, 1, 5), z(3, 1, 5)),
        "LSTM input": lambda: t.nn.LSTM(3, 4)(z(2, 1, 5)),
        "LSTM rank": lambda: t.nn.LSTM(3, 4)(z(3)),
        "LSTM state": lambda: t.nn.LSTM(3, 4)(z(2, 1, 3), (z(1, 1, 5), z(1, 1, 4))),
        "GRU state": lambda: t.nn.GRU(3, 4)(z(2, 1, 3), z(2, 1, 4)),
        "LSTMCell": lambda: t.nn.LSTMCell(3, 4)(z(2, 5)),
        "dropout p": lambda: F.dropout(z(3), 1.5),
        "Dropout p": lambda: t.nn.Dropout(-0.1),
        "glu": lambda: F.glu(z(3)),
        "prelu": lambda: F.prelu(z(2, 3), z(2)),
        "normalize": lambda: F.normalize(z(3), dim=2),
        "cosine": lambda: F.cosine_similarity(z(2, 3), z(2, 4)),
        "fold": lambda: F.fold(z(1, 9, 5), (4, 4), 3),
        "backward twice": twice,
        "backward vector": lambda: (leaf(3) * 2).backward(),
        "backward none": no_graph,
        "backward shape": bad_grad_shape,
        "stale": stale,
        "stale2": stale2,
        "leaf inplace": lambda: leaf(3).add_(1),
        "leaf setitem": inplace_view_leaf,
        "leaf zero_": lambda: leaf(3).zero_(),
        "leaf view": lambda: leaf(3)[:2].mul_(2),
        "split view inplace": split_inplace,
        "unbind inplace": unbind_inplace,
        "no_grad view inplace": nograd_view,
        "inference": inference,
        "inference inplace": inference_inplace,
        "fn count": fn_wrong_count,
        "fn shape": fn_wrong_shape,
        "grad unused": grad_unused,
        "grad int": lambda: t.zeros(3, dtype=t.int64, requires_grad=True),
        "requires_grad_ int": lambda: t.zeros(3, dtype=t.int64).requires_grad_(),
        "requires_grad off": lambda: (leaf(3) * 2).requires_grad_(False),
        "set grad": set_grad,
        "set grad dtype": set_grad_dtype,
        "numpy of grad": lambda: leaf(3).numpy(),
        "deepcopy": lambda: copy.deepcopy(leaf(3) * 2),
        "hook on no grad": lambda: z(3).register_hook(lambda g: g),
        "retain_grad": lambda: z(3).retain_grad(),
        "inplace broadcast": inplace_broadcast,
        "inplace type": inplace_type,
        "overlap": overlap,
        "out dtype": lambda: t.add(z(3), z(3), out=t.zeros(3, dtype=t.int64)),
        "out grad": lambda: t.add(leaf(3), z(3), out=leaf(3)),
        "copy_": lambda: z(3).copy_(z(4)),
        "resize data": lambda: z(3).set_(z(4, dtype=t.int64)),
        "state missing": lambda: state(weight=z(3, 2)),
        "state unexpected": lambda: state(weight=z(3, 2), bias=z(3), more=z(1)),
        "state shape": lambda: state(False, weight=z(3, 3), bias=z(3)),
        "state type": lambda: t.nn.Linear(2, 3).load_state_dict([1]),
        "state value": lambda: state(weight=1, bias=z(3)),
        "opt state": opt_state,
        "opt empty": lambda: t.optim.SGD([], lr=0.1),
        "opt lr": lambda: t.optim.SGD([leaf(2)], lr=-1.0),
        "opt tensor": lambda: t.optim.SGD(leaf(2), lr=0.1),
        "opt nonleaf": lambda: t.optim.SGD([leaf(2) * 2], lr=0.1),
        "opt str": lambda: t.optim.SGD(["a"], lr=0.1),
        "opt betas": lambda: t.optim.Adam([leaf(2)], betas=(1.0, 0.9)),
        "module attr": lambda: t.nn.Linear(2, 3).nope,
        "module param": lambda: setattr(t.nn.Linear(2, 3), "weight", z(3, 2)),
        "register": lambda: t.nn.Linear(2, 3).register_parameter("weight.a", None),
        "register dup": lambda: t.nn.Linear(2, 3).register_buffer("weight", z(1)),
        "module call": lambda: t.nn.Module()(z(1)),
        "no super": lambda: setattr(type("M", (t.nn.Module,), {"__init__": lambda self: None})(), "a", t.nn.Linear(1, 1)),
        "sequential": lambda: t.nn.Sequential(1),
        "get_submodule": lambda: t.nn.Linear(2, 3).get_submodule("a"),
        "Module.to int": lambda: t.nn.Linear(2, 3).to(t.int64),
        "clip_grad": lambda: t.nn.utils.clip_grad_norm_([_nan(t)], 1.0, error_if_nonfinite=True),
        "DataLoader": lambda: t.utils.data.DataLoader([1], batch_size=0),
        "DataLoader both": lambda: t.utils.data.DataLoader([1], shuffle=True, sampler=[0]),
        "collate": lambda: t.utils.data.default_collate([z(2), z(3)]),
        "TensorDataset": lambda: t.utils.data.TensorDataset(z(2), z(3)),
        "random_split": lambda: t.utils.data.random_split([1, 2, 3], [1, 1]),
        "load": lambda: t.load("/nonexistent/x.pt"),
        "generator": lambda: t.manual_seed("a"),
        "set_default_dtype": lambda: t.set_default_dtype(t.int64),
        "promote": lambda: t.promote_types(1, 2),
        "func arg": lambda: t.sum("a"),
        "missing arg": lambda: t.add(z(1)),
        "extra arg": lambda: t.relu(z(1), z(1), z(1)),
        "kw arg": lambda: t.sum(z(1), nope=1),
        "compile": lambda: t.compile(3),
        "compile backend": lambda: t.compile(lambda x: x, backend="nope")(z(1)),
        "compile mode": lambda: t.compile(lambda x: x, mode="nope"),
        "vmap": lambda: t.func.vmap(lambda x: x)(3),
        "vmap size": lambda: t.func.vmap(lambda a, b: a + b)(z(2), z(3)),
        "func.grad": lambda: t.func.grad(lambda x: x)(z(3)),
        "pickle tensor type": lambda: t.tensor([1]).type("nope"),
        "complex": lambda: t.complex(z(2), z(2, dtype=t.float64)),
        "lerp": lambda: t.lerp(z(2), z(2, dtype=t.float64), 0.5),
        "searchsorted": lambda: t.searchsorted(z(2, 3), z(3, 2)),
        "bucketize": lambda: t.bucketize(z(2), z(2, 2)),
        "bincount": lambda: t.bincount(t.tensor([-1])),
        "histc": lambda: t.histc(z(3), bins=0),
        "cdist": lambda: t.cdist(z(2, 3), z(2, 4)),
        "tensordot": lambda: t.tensordot(z(2, 3), z(4, 5), 1),
        "kron str": lambda: t.kron(z(2), "a"),
        "fft": lambda: t.fft.fft(z(3), n=0),
        "stft": lambda: t.stft(z(3), 9, return_complex=True),
        "meshgrid": lambda: t.meshgrid(z(2, 2), z(2), indexing="ij"),
        "movedim": lambda: z(2, 3).movedim((0, 1), (0,)),
        "logsumexp": lambda: z(2).logsumexp(3),
        "norm": lambda: t.linalg.norm(z(2, 2, 2), ord="fro"),
        "nan_to_num str": lambda: t.nan_to_num("a"),
        "lr scheduler": lambda: t.optim.lr_scheduler.StepLR(3, 1),
        "pow bools": lambda: t.tensor([True]) ** t.tensor([True]),
        "frac ints": lambda: t.tensor([1]).frac(),
        "frac complex": lambda: t.tensor([1j]).frac(),
        "isposinf": lambda: t.tensor([1j]).isposinf(),
        "isneginf": lambda: t.tensor([1j]).isneginf(),
        "histc ints": lambda: t.histc(t.tensor([1, 2])),
        "round ints": lambda: t.tensor([15]).round(decimals=-1),
        "round bools": lambda: t.tensor([True]).round(),
        "polar ints": lambda: t.polar(t.tensor([1]), t.tensor([1])),
        "polar dtypes": lambda: t.polar(z(2), z(2, dtype=t.float64)),
        "device index": lambda: t.device("cpu", -1),
        "device zeros": lambda: t.device("cuda:01"),
        "copy_ str": lambda: z(2).copy_("a"),
        "copy_ list": lambda: z(2).copy_([1, 2]),
        "scatter_add number": lambda: z(2).scatter_add(0, t.tensor([0]), 1.0),
        "FloatTensor of ints": lambda: t.FloatTensor(t.tensor([1])),
        "LongTensor of floats": lambda: t.LongTensor(z(2)),
        "init fan": lambda: t.nn.init.xavier_uniform_(z(3)),
    }
    return calls


def _nan(t):
    p = t.ones(2, requires_grad=True)
    (p * float("nan")).sum().backward()
    return p
