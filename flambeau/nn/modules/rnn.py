"""Recurrent networks: RNN, LSTM, GRU and their cells. The inputs of all steps are projected at once; the steps are a loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from ...ops import aten
from ...ops.nn.recurrent import Weights, recurrent_layers, recurrent_step
from .. import functional as F
from .. import init
from ..packing import PackedSequence, pack_padded_sequence, pad_packed_sequence
from ..parameter import Parameter
from .module import Module
from .utils import add_parameters, chosen

State = tuple[Tensor, ...]


_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """Layers and directions of a recurrent network; `mode` names the step."""

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        for name, value, kind in (("input_size", input_size, int), ("hidden_size", hidden_size, int), ("bias", bias, bool),
                                  ("batch_first", batch_first, bool)):
            if not isinstance(value, kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if size <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if proj_size < 0 or proj_size >= hidden_size:
            raise ValueError("proj_size should be a positive integer or zero to disable projections" if proj_size < 0 else
                             "proj_size has to be smaller than hidden_size")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                          f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}", stacklevel=3)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._all_weights: list[list[str]] = []
        self._make_weights(device, dtype)
        self.reset_parameters()

    def _make_weights(self, device: Any, dtype: Any) -> None:
        gates = _GATES[self.mode] * self.hidden_size
        width = self.proj_size or self.hidden_size
        directions = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            for direction in range(directions):
                suffix = f"_l{layer}{'_reverse' if direction else ''}"
                inputs = self.input_size if layer == 0 else width * directions
                shapes: dict[str, tuple] = {f"weight_ih{suffix}": (gates, inputs), f"weight_hh{suffix}": (gates, width)}
                if self.bias:
                    shapes |= {f"bias_ih{suffix}": (gates,), f"bias_hh{suffix}": (gates,)}
                if self.proj_size:
                    shapes[f"weight_hr{suffix}"] = (self.proj_size, self.hidden_size)
                add_parameters(self, device, dtype, **shapes)
                self._all_weights.append(list(shapes))

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name, None) for name in self._flat_weights_names]     # type: ignore[misc]

    def __getstate__(self) -> dict:
        """PyTorch keeps the weights in a list as well, and looks for it when it loads."""
        return {**super().__getstate__(), "_flat_weights_names": self._flat_weights_names, "_flat_weights": self._flat_weights}

    def __setstate__(self, fields: dict) -> None:
        super().__setstate__({name: value for name, value in fields.items() if not name.startswith("_flat_weights")})

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: weights are used where they are."""

    # -- running ---------------------------------------------------------------------------------------
    def _run(self, x: Tensor, states: State, mask: Tensor | None) -> tuple[Tensor, State]:
        if mask is None and aten.whole_layers():
            given = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, False)
            out, *after = getattr(aten, self.mode.lower()).input(x, list(states) if self.mode == "LSTM" else states[0], *given)
            return out, tuple(after)
        weights = []
        for names in self._all_weights:
            by_kind = {name.rsplit("_l", 1)[0]: getattr(self, name) for name in names}
            weights.append(Weights(*map(by_kind.get, _KINDS)))      # type: ignore[arg-type]
        return recurrent_layers(self.mode, x, states, weights, 2 if self.bidirectional else 1, self.dropout, self.training, mask)

    def _zeros(self, like: Tensor, batch: int) -> State:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        h = like.new_zeros((layers, batch, self.proj_size or self.hidden_size))
        if self.mode != "LSTM":
            return (h,)
        return h, like.new_zeros((layers, batch, self.hidden_size))

    def _check_state(self, states: State, batch: int) -> None:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)
        for s, width, name in zip(states, widths, ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)):
            if tuple(s.shape) != (layers, batch, width):
                raise RuntimeError(f"Expected {name} size {(layers, batch, width)}, got {list(s.shape)}")

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output, final state) of (time, batch, features), (batch, time, features) with batch_first, (time, features),
        or packed."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}")
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype is not weight.dtype and not (dispatch.state.autocast and dispatch.state.autocast[0].on):
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                             f"input.to({weight.dtype}), or convert model: model.to({input.dtype})")
        single = input.ndim == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        states = self._zeros(x, x.shape[1]) if hx is None else tuple(hx) if self.mode == "LSTM" else (hx,)
        if hx is not None and single:
            states = tuple(s.unsqueeze(1) for s in states)
        self._check_state(states, x.shape[1])
        out, finals = self._run(x, states, None)
        if single:
            out, finals = out.squeeze(1), tuple(f.squeeze(1) for f in finals)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, finals if self.mode == "LSTM" else finals[0]

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> Any:
        padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        steps = padded.new_arange(padded.shape[0])
        mask = (steps.unsqueeze(1) < lengths.to(steps.device).unsqueeze(0)).to(padded.dtype).unsqueeze(2)
        if hx is None:
            states = self._zeros(padded, padded.shape[1])
        else:
            states = tuple(hx) if self.mode == "LSTM" else (hx,)
            if packed.sorted_indices is not None:
                states = tuple(s.index_select(1, packed.sorted_indices) for s in states)
        self._check_state(states, padded.shape[1])
        out, finals = self._run(padded, states, mask)
        data = pack_padded_sequence(out, lengths)
        if packed.unsorted_indices is not None:
            finals = tuple(f.index_select(1, packed.unsorted_indices) for f in finals)
        result = PackedSequence(data.data, data.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return result, finals if self.mode == "LSTM" else finals[0]

    def extra_repr(self) -> str:
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *chosen(
            self, proj_size=0, num_layers=1, bias=True, batch_first=False, dropout=0, bidirectional=False)])


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **kwargs: Any) -> None:
        if len(args) > 3:     # input_size, hidden_size, num_layers, nonlinearity, ...
            nonlinearity, args = args[3], args[:3] + args[4:]
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


# -- cells: torch's functions of one step, and modules ---------------------------------------------------------------------
def _cell(name: str, mode: str, doc: str) -> Callable:
    def cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
        return recurrent_step(mode, F.linear(input, w_ih, b_ih), (hx,), w_hh, b_hh)[0]

    cell.__name__, cell.__doc__ = name, doc
    return cell


rnn_tanh_cell = _cell("rnn_tanh_cell", "RNN_TANH", "The next state: tanh(w_ih x + b_ih + w_hh h + b_hh).")
rnn_relu_cell = _cell("rnn_relu_cell", "RNN_RELU", "The next state: relu(w_ih x + b_ih + w_hh h + b_hh).")
gru_cell = _cell("gru_cell", "GRU", "The next state of a GRU; rows of the weights are the reset, update and new gates.")


def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
              b_hh: Tensor | None = None) -> State:
    """The next (h, c) of an LSTM; rows of the weights are the input, forget, cell and output gates."""
    h, c = hx
    return recurrent_step("LSTM", F.linear(input, w_ih, b_ih), (h, c), w_hh, b_hh)


class RNNCellBase(Module):
    """One step of a recurrent network."""

    mode, nonlinearity = "RNN_TANH", "tanh"

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        add_parameters(self, device, dtype, weight_ih=(gates, input_size), weight_hh=(gates, hidden_size),
                       bias_ih=gates if bias else None, bias_hh=gates if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Tensor, states: State | None, count: int) -> State:
        if input.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for i, s in enumerate(states or ()):
            if s.ndim not in (1, 2):
                what = f"hx[{i}]" if count > 1 else "hidden"
                raise ValueError(f"{type(self).__name__}: Expected {what} to be 1D or 2D, got {s.ndim}D instead")
        single = input.ndim == 1
        x = input.unsqueeze(0) if single else input
        if states is None:
            states = (x.new_zeros((x.shape[0], self.hidden_size)),) * count
        elif single:
            states = tuple(s.unsqueeze(0) for s in states)
        if aten.whole_layers():
            cell, hx = getattr(aten, f"{self.mode.lower()}_cell").default, list(states) if self.mode == "LSTM" else states[0]
            found = cell(x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
            out = found if self.mode == "LSTM" else (found,)
        else:
            out = recurrent_step(self.mode, F.linear(x, self.weight_ih, self.bias_ih), states, self.weight_hh, self.bias_hh)
        return tuple(o.squeeze(0) for o in out) if single else out

    def extra_repr(self) -> str:
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *chosen(self, bias=True, nonlinearity="tanh")])


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity, self.mode = nonlinearity, f"RNN_{nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: (h, c)."""

    mode = "LSTM"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> State:
        return self._step(input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    mode = "GRU"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,), 1)[0]
