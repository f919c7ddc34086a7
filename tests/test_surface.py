"""Names, keyword names and small functions that libraries of others ask for, against torch's answers."""

from __future__ import annotations

import os

import numpy as np
import pytest

import flambeau as fl
from flambeau import _nn_c, fx
from flambeau.nn import common_types

torch_itself = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("torch", [torch_itself, fl], ids=["torch", "flambeau"])


@LIBRARIES
def test_keywords_of_each_overload(torch):
    x = torch.arange(6.0).reshape(2, 3)
    assert [t.tolist() for t in x.split(split_size=2, dim=1)] == [[[0, 1], [3, 4]], [[2], [5]]]
    assert [t.shape[1] for t in x.split_with_sizes(split_sizes=[1, 2], dim=1)] == [1, 2]
    assert [t.shape[1] for t in torch.tensor_split(x, sections=2, dim=1)] == [2, 1]
    assert [t.shape[1] for t in x.tensor_split(indices=[1], dim=1)] == [1, 2]
    assert [t.shape[0] for t in torch.vsplit(x, sections=2)] == [1, 1]
    assert [t.shape[1] for t in x.hsplit(indices=[1])] == [1, 2]
    assert x.swapaxes(axis0=0, axis1=1).shape == (3, 2)
    assert x.clone().resize_(size=(3, 1)).shape == (3, 1)
    assert x.clone().resize_as_(the_template=torch.ones(1, 2)).shape == (1, 2)
    assert x.is_set_to(tensor=x)
    assert torch.dropout(x, 0.5, train=False).tolist() == x.tolist()


@LIBRARIES
def test_files_as_memory(torch, tmp_path):
    path = str(tmp_path / "numbers")
    t = torch.from_file(path, shared=True, size=8, dtype=torch.int32)
    t.copy_(torch.arange(8))
    assert os.path.getsize(path) == 32
    private = torch.from_file(path, size=4, dtype=torch.int32)
    private.zero_()
    assert torch.from_file(path, shared=False, size=4, dtype=torch.int32).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match=path):
        torch.from_file(path, size=100)


@LIBRARIES
def test_one_hook_for_several_tensors(torch):
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    told = []
    register = torch.autograd.graph.register_multi_grad_hook
    handle = register((a, b), lambda grads: told.append([None if g is None else g.tolist() for g in grads]))
    (a * b).sum().backward()
    (a * 2).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    assert told == [[[1, 1], [1, 1]], [[2, 2], None]]
    first = []
    register((a, b), lambda grad: first.append(grad.tolist()), mode="any")
    (a * b).sum().backward()
    assert first == [[1, 1]]
    with pytest.raises(ValueError, match="mode"):
        register((a,), print, mode="some")


@LIBRARIES
def test_a_write_that_autograd_is_told_of(torch):
    x = torch.ones(2, requires_grad=True)
    y = (x * x).sum()
    torch.autograd.graph.increment_version(x)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


@LIBRARIES
def test_the_arguments_of_to(torch):
    parse = torch._C._nn._parse_to if torch is torch_itself else _nn_c._parse_to
    cpu = torch.device("cpu")
    assert parse("cpu", torch.float64, True) == (cpu, torch.float64, True, None)
    assert parse(torch.ones(1)) == (cpu, torch.float32, False, None)
    assert parse(device="cpu", non_blocking=True, memory_format=torch.channels_last) == (cpu, None, True, torch.channels_last)


def test_functions_of_the_native_module():
    assert _nn_c.gelu is fl.nn.functional.gelu
    assert _nn_c.log_sigmoid is fl.nn.functional.logsigmoid
    with pytest.raises(AttributeError):
        _nn_c.no_such_function  # noqa: B018


def test_names_of_sizes():
    for name in ("_size_any_t", "_size_1_t", "_size_2_t", "_size_3_t", "_ratio_2_t", "_ratio_any_t", "_size_2_opt_t"):
        assert getattr(common_types, name) == getattr(torch_itself.nn.common_types, name)


@LIBRARIES
def test_modules_take_typed_tensors(torch):
    assert torch.nn.Linear(1, 1).type(torch.DoubleTensor).weight.dtype is torch.float64


def test_operators_meet_proxies_outside_of_a_trace():
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"), tracer=fx.proxy.GraphAppendingTracer(graph))
    found = [fl.relu(x), fl.nn.functional.linear(x, x), fl.broadcast_tensors(x, x)[0].shape[:-1], fl.cat([x, x]), fl.ones(2) + x]
    assert all(isinstance(value, fx.Proxy) for value in found)


def test_a_parameter_lets_other_classes_be_asked():
    class Named(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return fl.nn.Parameter.__torch_function__(func, types, args, kwargs).as_subclass(cls)

    class Asked(fl.nn.Parameter):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs)

    assert type(fl.nn.functional.linear(fl.ones(1, 2).as_subclass(Named), fl.nn.Parameter(fl.ones(2, 2)))) is Named
    assert type(Asked(fl.ones(2)) * 2) is fl.Tensor
    assert Asked.calls >= 1


def test_what_is_left_out_says_so():
    for call in (fl.xpu.current_device, fl.mps.synchronize, fl.jit.export_opnames):
        with pytest.raises(NotImplementedError, match="is not implemented; "):
            call()
    assert fl.Tag.pointwise in list(fl.Tag)


@LIBRARIES
def test_loaders_are_generic(torch):
    class Mine(torch.utils.data.DataLoader[int]):
        pass

    assert [batch.tolist() for batch in Mine(torch.arange(4), batch_size=2)] == [[0, 1], [2, 3]]


@LIBRARIES
def test_orders_of_dimensions_that_are_not_the_only_one(torch):
    x = torch.ones(2, 3, 4, 5)
    formats = [torch.contiguous_format, torch.channels_last]
    assert x.dim_order(ambiguity_check=True) == x.dim_order(ambiguity_check=formats) == (0, 1, 2, 3)
    for y, check, error in ((torch.ones(1, 3), True, RuntimeError), (torch.ones(2, 1, 4, 5), formats, RuntimeError),
                            (torch.ones(1).expand(3, 2), True, RuntimeError), (x, 3, TypeError), (x, [3], TypeError)):
        with pytest.raises(error):
            y.dim_order(ambiguity_check=check)
    assert torch.ones(1, 3).dim_order() == (0, 1)


@LIBRARIES
def test_exchanges_that_copy(torch):
    given = np.arange(3.0)
    copied, shared = torch.from_dlpack(given, copy=True), torch.from_dlpack(given, device="cpu", copy=False)
    given[0] = 9
    assert (copied.tolist(), shared.tolist()) == ([0, 1, 2], [9, 1, 2])


def test_frames_that_begin_with_their_window():
    for align in (None, False, True):
        theirs, ours = (t.stft(t.arange(8.0), 4, 2, 2, window=t.ones(2), center=False, return_complex=True, align_to_window=align).numpy()
                        for t in (torch_itself, fl))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    with pytest.raises(RuntimeError, match="center"):
        fl.stft(fl.arange(8.0), 4, window=fl.ones(4), return_complex=True, align_to_window=True)


@pytest.mark.filterwarnings("ignore")  # torch warns of what is old, and of what is new
@LIBRARIES
def test_small_facts(torch):
    x = torch.ones(2)
    assert not x.volatile and x.storage_type() is torch.FloatStorage
    assert torch.wait(torch.fork(lambda a: a + 1, 3)) == 4
    assert torch.thread_safe_generator() is None
    assert torch.init_num_threads() is None
    assert torch.bit is torch.uint1 and torch.bits16.itemsize == 2
    assert torch.SUM is torch.AggregationType.SUM and issubclass(torch.AcceleratorError, RuntimeError)
    for kind in ("xpu", "mtia"):
        with pytest.raises(AssertionError):
            getattr(x, kind)()
    for name in ("int_repr", "q_scale"):
        with pytest.raises(NotImplementedError):
            getattr(x, name)()


@pytest.mark.filterwarnings("ignore")  # torch warns of what is old, and of what is new
@LIBRARIES
def test_parts_of_sparse_tensors_copied(torch):
    rows = torch.tensor([[0, 1.0], [2, 0]]).to_sparse_csr()
    for name in ("crow_indices", "col_indices", "values"):
        copied, own = getattr(torch, f"{name}_copy")(rows), getattr(rows, name)()
        assert copied.tolist() == own.tolist() and copied.data_ptr() != own.data_ptr()
    with pytest.raises(RuntimeError):
        torch.indices_copy(rows)


@pytest.mark.filterwarnings("ignore")  # torch warns of what is old, and of what is new
@LIBRARIES
def test_sums_of_sparse_products(torch):
    s = torch.tensor([[0, 1.0], [2, 0]]).to_sparse()
    dense = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    expected = (2 * s.to_dense() + 3 * (s.to_dense() @ dense)).tolist()
    assert torch.sspaddmm(s, s, dense, beta=2, alpha=3).to_dense().tolist() == expected
    assert s.sspaddmm(s, dense, beta=2, alpha=3).to_dense().tolist() == expected
    assert s.smm(dense).to_dense().tolist() == (s.to_dense() @ dense).tolist()
    with pytest.raises(RuntimeError):
        torch.sspaddmm(dense, s, dense)
