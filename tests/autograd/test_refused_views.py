"""Views that no history can be given: each maker of a view, each way to it, and each use of it, beside torch."""

import itertools

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

MAKERS = {
    **{name: lambda x, name=name: getattr(x, name)(1) for name in ("split", "unsafe_split")},
    **{name: lambda x, name=name: getattr(x, name)(2) for name in ("chunk", "tensor_split", "hsplit", "vsplit", "unsafe_chunk")},
    **{name: lambda x, name=name: getattr(x, name)([1, 1]) for name in ("split_with_sizes", "unsafe_split_with_sizes")},
    "unbind": lambda x: x.unbind(), "iteration": tuple, "unbind of a view": lambda x: x.t().unbind(1),
    "view of a piece": lambda x: [p.view(-1)[:1] for p in x.split(1)],
    "slices": lambda x: (x[:1], x[1:]), "view": lambda x: (x.view(4), x.view(4)), "detached": lambda x: [p.detach() for p in x.split(1)],
    "expand": lambda x: (x.expand(2, 2), x.expand_as(x)), "flatten": lambda x: (x.flatten(), x.reshape(-1)),
    "contiguous": lambda x: (x.contiguous(), x.contiguous()),
}
WAYS = ("grad", "no_grad", "of plain")
USES = {
    "write": lambda lib, x, p, q: p.add_(1),
    "write of a number": lambda lib, x, p, q: p.zero_(),
    "write with history": lambda lib, x, p, q: q.mul_(lib.ones(1, requires_grad=True)),
    "write in no_grad": lambda lib, x, p, q: written_quietly(lib, p),
    "item": lambda lib, x, p, q: p.__setitem__(0, 3.0),
    "use": lambda lib, x, p, q: p + 1,
    "use after writing the base": lambda lib, x, p, q: x.mul_(2) is x and p + 1,
    "flag after writing the base": lambda lib, x, p, q: x.mul_(2) is x and p.requires_grad,
}


def written_quietly(lib, p):
    with lib.no_grad():
        return p.add_(1)


def outcome(lib, maker, way, use):
    x = lib.arange(4.0).view(2, 2).clone()
    if way != "of plain":
        x = x.requires_grad_() * 1
    with lib.set_grad_enabled(way != "no_grad"):
        p, q = MAKERS[maker](x)
    try:
        made = USES[use](lib, x, p, q)
    except RuntimeError as error:
        return next(word for word in ("no_grad", "multiple views", "leaf", "") if word in str(error))
    if way == "no_grad":     # torch says of such a view that it requires grad where its base does, and accumulates into its `grad`
        return None
    return made.requires_grad if isinstance(made, (fl.Tensor, torch.Tensor)) else made


@pytest.mark.parametrize("maker, way, use", list(itertools.product(MAKERS, WAYS, USES)))
def test_what_is_refused(maker, way, use):
    assert outcome(fl, maker, way, use) == outcome(torch, maker, way, use)


def functions(lib):
    class View(lib.autograd.Function):
        forward = staticmethod(lambda ctx, x: x.view_as(x))
        backward = staticmethod(lambda ctx, g: g * 2)

    class AsItIs(lib.autograd.Function):
        forward = staticmethod(lambda ctx, x: x)
        backward = staticmethod(lambda ctx, g: g * 2)

    class New(lib.autograd.Function):
        forward = staticmethod(lambda ctx, x: x * 1)
        backward = staticmethod(lambda ctx, g: g * 2)

    return {"view": View, "as it is": AsItIs, "new": New}


@pytest.mark.parametrize("name", ["view", "as it is", "new"])
@pytest.mark.parametrize("of_view", [False, True])
def test_results_of_functions(name, of_view):
    def outcome(lib):
        x = lib.ones(2, 2, requires_grad=True)
        y = functions(lib)[name].apply(x.t() if of_view else x)
        try:
            y.add_(1)
        except RuntimeError as error:
            return "custom Function" in str(error)
        y.sum().backward()
        return x.grad.tolist()

    assert outcome(fl) == outcome(torch)


def test_unsafe_pieces_are_written_one_by_one():
    """Each of them has a version of its own: what is kept of one is not spoilt by writing another."""
    def gradient(lib):
        x = lib.arange(8.0).requires_grad_()
        pieces = (x * 0.1).unsafe_chunk(2)
        made = [piece.sigmoid_() for piece in pieces]
        (made[0] * made[1]).sum().backward()
        return x.grad.tolist()

    assert gradient(fl) == pytest.approx(gradient(torch))


WRITES_TO_A_LEAF = {
    "a row": lambda x: x[0].mul_(2), "a subscript": lambda x: x.__setitem__(0, 1.0), "an element": lambda x: x.__setitem__((0, 1), 2),
    "transposed": lambda x: x.t().zero_(), "a view of a view": lambda x: x.t()[0].fill_(1), "all": lambda x: x.fill_(2),
    "a mask": lambda x: x.__setitem__(x > 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("make", [lambda lib: lib.arange(6.0).reshape(2, 3), lambda lib: lib.arange(12.0)[3:9].view(2, 3),
                                  lambda lib: lib.ones(2, 3)])
@pytest.mark.parametrize("name", WRITES_TO_A_LEAF)
def test_views_of_a_leaf_that_is_a_view_itself(name, make):
    """A leaf may be a view of memory that needs no gradient: it is refused all the same, but where nothing is recorded."""
    for lib in (fl, torch):
        x = make(lib).requires_grad_()
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
            WRITES_TO_A_LEAF[name](x)
        with lib.no_grad():
            WRITES_TO_A_LEAF[name](x)
        assert x.is_leaf and x.requires_grad
