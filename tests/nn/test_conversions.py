"""How modules convert and load parameters: in place, overwriting them, or swapping (torch.__future__)."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

WAYS = ("in place", "overwrite", "swap")
CHANGES = {
    "double": lambda lib, m: m.double(),
    "to": lambda lib, m: m.to(lib.bfloat16),
    "meta": lambda lib, m: m.to("meta"),
    "to_empty": lambda lib, m: m.to("meta").to_empty(device="cpu"),
    "load": lambda lib, m: m.load_state_dict({"weight": lib.ones(3, 2), "bias": lib.zeros(3)}),
    "load and assign": lambda lib, m: m.load_state_dict({"weight": lib.ones(3, 2).double(), "bias": lib.zeros(3)}, assign=True),
    "load a parameter": lambda lib, m: m.load_state_dict({"weight": lib.nn.Parameter(lib.ones(3, 2)), "bias": lib.zeros(3)}),
    "load another shape": lambda lib, m: m.load_state_dict({"weight": lib.ones(2, 2), "bias": lib.zeros(3)}),
}


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    for lib in (fl, torch):
        lib.__future__.set_overwrite_module_params_on_conversion(False)
        lib.__future__.set_swap_module_params_on_conversion(False)


def outcome(lib, way, change, grad):
    lib.__future__.set_overwrite_module_params_on_conversion(way == "overwrite")
    lib.__future__.set_swap_module_params_on_conversion(way == "swap")
    layer = lib.nn.Linear(2, 3)
    if grad:
        layer(lib.ones(1, 2)).sum().backward()
    before = layer.weight
    before.note = 1
    try:
        CHANGES[change](lib, layer)
    except RuntimeError as error:
        return "size mismatch" in str(error)
    after = layer.weight
    return (after is before, before.dtype.itemsize, after.dtype.itemsize, str(after.device), after.requires_grad, type(after).__name__,
            hasattr(after, "note"), after.grad is None or (after.grad.dtype.itemsize, str(after.grad.device)))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_what_becomes_of_a_parameter(way, change, grad):
    assert outcome(fl, way, change, grad) == outcome(torch, way, change, grad)


def test_the_ways_are_off():
    for lib in (fl, torch):
        assert not lib.__future__.get_overwrite_module_params_on_conversion() and not lib.__future__.get_swap_module_params_on_conversion()


def test_modules_without_data_do_not_move():
    with pytest.raises(NotImplementedError, match="to_empty"):
        fl.nn.Linear(1, 1).to("meta").to("cpu")


def test_a_class_says_how_it_is_loaded():
    class Doubling(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func.__name__ == "module_load":
                return args[1].detach() * 2
            return super().__torch_function__(func, types, args, kwargs or {})

    layer = fl.nn.Linear(1, 1)
    layer.weight = fl.nn.Parameter(fl.ones(1, 1).as_subclass(Doubling))
    fl.__future__.set_swap_module_params_on_conversion(True)
    layer.load_state_dict({"weight": fl.ones(1, 1), "bias": fl.ones(1)})
    assert layer.weight.tolist() == [[2.0]]
