"""Subclasses of Tensor: results of operators are of the operands' class."""

from __future__ import annotations

import pytest

import flambeau as torch


class Marked(torch.Tensor):
    pass


class Deeper(Marked):
    pass


class Other(torch.Tensor):
    pass


def test_results_keep_the_class() -> None:
    t, plain = torch.ones(4).as_subclass(Marked), torch.ones(4)
    results = [t + 1, 1 + t, plain + t, t * plain, t @ t, t.sum(), t.exp(), torch.add(t, t), torch.cat([t, plain]),
               torch.stack([t, t]), t[0], t.view(2, 2), t == 1, t.clone(), torch.nn.functional.relu(t),
               t.to(torch.float64), -t, torch.zeros_like(t), t.add_(1),
               *t.max(0), *t.split(2), *t.topk(2), t.sort().values, torch.nn.Linear(4, 2)(t)]
    assert [type(r) for r in results] == [Marked] * len(results)
    assert type(plain + plain) is torch.Tensor


def test_the_more_derived_class_decides() -> None:
    t, u = torch.ones(2).as_subclass(Marked), torch.ones(2).as_subclass(Deeper)
    assert type(t + u) is type(u + t) is Deeper


def test_classes_that_do_not_know_each_other_are_refused() -> None:
    with pytest.raises(TypeError, match="Marked"):
        torch.add(torch.ones(2).as_subclass(Marked), torch.ones(2).as_subclass(Other))


def test_gradients_flow_through_a_subclass() -> None:
    leaf = torch.ones(3, requires_grad=True)
    (leaf.as_subclass(Marked) * 2).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("written", ["the tensor", "the subclass", "a view of it"])
def test_what_is_written_to_one_is_written_to_both(written: str) -> None:
    leaf = torch.ones(3, requires_grad=True)
    plain = leaf * 1
    marked = plain.as_subclass(Marked)
    {"the tensor": plain, "the subclass": marked, "a view of it": marked[:]}[written].mul_(2)
    assert torch.autograd.grad(plain.sum() + marked.sum(), leaf)[0].tolist() == [4, 4, 4]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.as_subclass(Marked).mul_(2)


@pytest.mark.parametrize("leaf", [False, True])
def test_a_view_of_the_tensor(leaf: bool) -> None:
    plain = torch.ones(3, requires_grad=leaf)
    with torch.no_grad():
        marked = plain.as_subclass(Marked)
    back = marked[1:].as_subclass(torch.Tensor)
    assert marked._base is plain and back._base is plain and type(back) is torch.Tensor and type(marked[1:]) is Marked
    assert marked.requires_grad is leaf and marked.data_ptr() == plain.data_ptr()


def test_parameters_stay_out() -> None:
    class Mine(torch.nn.Parameter):
        pass

    assert type(torch.nn.Parameter(torch.ones(2)) + 1) is torch.Tensor and type(Mine(torch.ones(2)).sum()) is torch.Tensor
