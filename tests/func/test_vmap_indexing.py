"""Forms of indexing under vmap, with indices that differ between examples and such that don't, against a loop over the examples;
tensors made like an example; operators with nothing to do."""

from __future__ import annotations

import math
import random

import pytest

import flambeau as torch

SIZE = 3
BASIC = {"slice": slice(1, None), "full": slice(None), "number": 0, "last": -1}
SHAPES = {"t0": (), "t1": (2,), "t2": (2, 1)}        # of index tensors


def draw(rng: random.Random) -> tuple[torch.Tensor, list, bool]:
    """A tensor, the items of an index (tensors with whether they have the batch in front), and whether the tensor has it."""
    shape = [rng.randint(2, 5) for _ in range(rng.randint(1, 4))]
    kinds = rng.choices([*BASIC, *SHAPES], k=rng.randint(1, len(shape)))
    items = []
    for kind, size in zip(kinds, shape):
        if kind in BASIC:
            items.append(BASIC[kind])
            continue
        each = rng.random() < 0.5
        at = (SIZE, *SHAPES[kind]) if each else SHAPES[kind]
        items.append((torch.tensor([rng.randrange(-size, size) for _ in range(math.prod(at))]).reshape(at), each))
    for _ in range(rng.choice((0, 0, 1, 2))):
        items.insert(rng.randint(0, len(items)), None)
    if rng.random() < 0.3 and len(kinds) == len(shape):     # where an ellipsis stands for nothing
        items.insert(rng.randint(0, len(items)), Ellipsis)
    of_batch = rng.random() < 0.7
    return torch.randn(*[SIZE][:of_batch], *shape), items, of_batch


def read(x, index):
    return x[index]


def write(x, index):
    x, like = x.clone(), x[index]
    x[index] = torch.arange(float(like.numel())).reshape(like.shape)
    return x


@pytest.mark.parametrize("work", [read, write])
@pytest.mark.parametrize("seed", range(8))
def test_forms_of_indexing(work, seed):
    rng, done = random.Random(seed), 0
    while done < 60:
        x, items, of_batch = draw(rng)
        tensors = [item for item in items if type(item) is tuple]
        if not of_batch and (work is write or not any(each for _, each in tensors)):
            continue    # the same for all examples

        def call(x, *given, items=items):
            mine = iter(given)
            return work(x, tuple(next(mine) if type(item) is tuple else item for item in items))
        want = torch.stack([call(x[i] if of_batch else x, *[t[i] if each else t for t, each in tensors]) for i in range(SIZE)])
        dims = (0 if of_batch else None, *[0 if each else None for _, each in tensors])
        got = torch.vmap(call, in_dims=dims)(x, *[t for t, _ in tensors])
        assert got.shape == want.shape and torch.equal(got, want), (x.shape, of_batch, items)
        done += 1


LIKE = {
    **{name: lambda x, name=name: getattr(torch, name)(x) for name in ("zeros_like", "ones_like", "empty_like")},
    "full_like": lambda x: torch.full_like(x, 2.0),
    **{name: lambda x, name=name: getattr(x, name)(tuple(x.shape)) for name in ("new_zeros", "new_ones", "new_empty")},
    "new_full": lambda x: x.new_full(tuple(x.shape), 2.0),
    "new_empty_strided": lambda x: x.new_empty_strided(tuple(x.shape), x.stride()),
    "fill": lambda x: torch.fill(x, 2.0),
}


@pytest.mark.parametrize("name", LIKE)
def test_what_is_made_like_an_example_is_each_examples_own(name):
    def one(x, y):
        made = LIKE[name](x)
        made[:2] = 1.0
        made[2:] = y
        return made.mul_(x[0])
    x, y = torch.randn(SIZE, 4), torch.randn(SIZE)
    assert torch.equal(torch.vmap(one)(x, y), torch.stack([one(*pair) for pair in zip(x, y)]))
    x, y = torch.randn(2, SIZE, 4), torch.randn(2, SIZE)
    nested = torch.stack([torch.stack([one(*pair) for pair in zip(*row)]) for row in zip(x, y)])
    assert torch.equal(torch.vmap(torch.vmap(one))(x, y), nested)


@pytest.mark.parametrize("work", [
    lambda x: torch.channel_shuffle(x, 1), lambda x: torch.nn.functional.pixel_unshuffle(x, 1), lambda x: x.roll(0, 0),
    lambda x: torch.nn.functional.pixel_shuffle(x, 1), lambda x: x.diff(n=0)])
def test_operators_with_nothing_to_do_answer_with_memory_of_their_own(work):
    def one(x):
        made = work(x)
        x.zero_()
        return made
    x = torch.randn(SIZE, 1, 2, 3, 3)
    assert torch.equal(torch.vmap(one)(x.clone()), x)
