"""Sequences of different lengths: padded, or packed step by step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..core.dtypes import dtype, float16, float32, float64, int8, int16, int32, int64, uint8
from ..core.tensor import Tensor
from ..ops.nn.recurrent import indices, packed, padded, unpacked


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """The elements of sequences, step after step, longest sequence first; `batch_sizes[t]` sequences have a step t."""

    __slots__ = ()

    def __new__(cls, data: Any, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        if batch_sizes is None:
            data, batch_sizes = data
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With the data moved or converted, and the orders of the sequences beside it; itself where nothing changes."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else PackedSequence(data, self.batch_sizes, *[
            order if order is None else order.to(data.device) for order in (self.sorted_indices, self.unsorted_indices)])

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a GPU."""
        return self.to(self.data.cuda(*args, **kwargs).device)

    def cpu(self) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu")

    def pin_memory(self) -> PackedSequence:
        """With the data in memory that a GPU reads by itself."""
        return self._replace(data=self.data.pin_memory())

    def is_pinned(self) -> bool:
        """Whether the data lies in such memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


def _converter(name: str, kind: dtype) -> None:
    def convert(self: PackedSequence) -> PackedSequence:
        return self.to(kind)
    convert.__name__, convert.__doc__ = name, f"to({kind})."
    setattr(PackedSequence, name, convert)


for _name, _kind in {"double": float64, "float": float32, "half": float16, "long": int64, "int": int32, "short": int16, "char": int8,
                     "byte": uint8}.items():
    _converter(_name, _kind)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`."""
    return None if permutation is None else permutation.argsort()


def _numbers(lengths: Any) -> list[int]:
    return lengths.tolist() if isinstance(lengths, Tensor) else [int(n) for n in lengths]


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack (time, batch, ...) (or (batch, time, ...)) with these lengths; unsorted ones need enforce_sorted=False."""
    sizes = _numbers(lengths)
    x = input.transpose(0, 1) if batch_first else input
    if len(sizes) != x.shape[1]:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={x.shape[1]})")
    if any(n <= 0 for n in sizes):
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    order = None
    if not enforce_sorted:
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        sizes = [sizes[i] for i in order]
        x = x.index_select(1, indices(order, x.device))
    elif sizes != sorted(sizes, reverse=True):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
                           "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
                           "requirement if you do not need ONNX exportability.")
    data, batch_sizes = packed(x, sizes)
    return PackedSequence(data, batch_sizes, None if order is None else indices(order, x.device))


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """(padded, lengths) of a packed sequence, in the original order."""
    counts = sequence.batch_sizes.tolist()
    if total_length is not None and total_length < len(counts):
        raise ValueError(f"Expected total_length to be at least the length of the longest sequence in input, but got "
                         f"total_length={total_length} and max sequence length being {len(counts)}")
    out, lengths = unpacked(sequence.data, counts, total_length or len(counts), padding_value)
    if sequence.unsorted_indices is not None:
        out, lengths = out.index_select(1, sequence.unsorted_indices), lengths.index_select(0, sequence.unsorted_indices.cpu())
    return (out.transpose(0, 1) if batch_first else out), lengths


def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Tensors (length, ...) of different lengths as one (longest, batch, ...) tensor."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    return padded(list(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, cut to their lengths."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(_numbers(lengths))]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, ...)."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors of a packed sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
