"""Matrix products by Triton that end in a pointwise kernel: bias, activation, residual are applied to the tile of the result.

A `Product` stands for a call of cuBLAS and the kernel that alone reads its result. The kernel's loops are brought over rows
and columns of the result, and its bodies are printed as ever, with the tile in place of the loads of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flambeau.core.expr import Index, substitute
from flambeau.core.scalar import compute_dtype
from flambeau.inductor.gpu.triton import TritonKernel, TritonPrinter, power_of_two
from flambeau.inductor.loop.ir import Extern, Program, Value, View
from flambeau.inductor.loop.scheduler import Kernel, Member, Node, kernel_var, refine


class Tile(NamedTuple):
    """How a product is cut up: rows and columns of the result for a program, the length of a step of the sum."""

    rows: int
    columns: int
    inner: int
    num_warps: int
    num_stages: int


TILES = (
    Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 8, 4), Tile(128, 128, 64, 4, 4), Tile(64, 128, 64, 4, 4), Tile(128, 64, 64, 4, 4),
    Tile(64, 64, 64, 4, 5), Tile(64, 64, 128, 4, 4), Tile(32, 64, 128, 4, 4), Tile(64, 32, 128, 4, 4), Tile(32, 32, 128, 4, 5),
    Tile(16, 64, 128, 4, 5), Tile(16, 32, 256, 4, 3),
)
DTYPES = ("float16", "bfloat16")
GROUP = 8       # rows of tiles that are done together, so that what they read stays in the cache


@dataclass(eq=False)
class Product:
    """A product and the pointwise kernel that reads it, over rows and columns of the result."""

    call: Extern
    kernel: Kernel
    tile: Tile

    @property
    def members(self) -> list[Member]:
        """The steps of the kernel."""
        return self.kernel.members

    @property
    def reads(self) -> set[str]:
        """The buffers that are read."""
        return (self.kernel.reads - set(self.call.writes)) | self.call.reads

    @property
    def writes(self) -> set[str]:
        """The buffers that are written."""
        return self.kernel.writes


def tiles_for(rows: int, columns: int, inner: int) -> list[Tile]:
    """The tiles that are worth trying for a product of these sizes."""
    return [t for t in TILES if t.rows <= max(16, power_of_two(rows)) and t.columns <= power_of_two(columns)
            and t.inner <= max(64, power_of_two(inner))]


def find_products(program: Program, nodes: Sequence[Node]) -> list[tuple[Extern, Kernel, Product]]:
    """The products whose result one pointwise kernel alone reads: (the call, the kernel, both as one)."""
    wanted = {v.buffer for v in program.outputs if isinstance(v, View)}
    found, taken = [], set()
    for call in nodes:
        if not isinstance(call, Extern) or call.op != "mm" or not _is_plain(program, call):
            continue
        out = call.outputs[0]
        readers = [n for n in nodes if out.buffer in n.reads]
        if len(readers) != 1 or out.buffer in wanted or not isinstance(readers[0], Kernel) or id(readers[0]) in taken:
            continue
        kernel = over_matrix(readers[0], out)
        if kernel is not None:
            taken.add(id(readers[0]))
            found.append((call, readers[0], Product(call, kernel, TILES[0])))
    return found


def _is_plain(program: Program, call: Extern) -> bool:
    """Whether all sizes are known, the dtype is one for tensor cores, and 32 bits count the elements."""
    views = (*call.inputs, *call.outputs)
    numbers = [n for v in views for n in (*v.shape, *v.strides, v.offset, program.buffers[v.buffer].numel)]
    known = all(isinstance(n, int) and n < 1 << 31 for n in numbers) and all(len(v.shape) == 2 for v in views)
    return known and views[0].dtype.name in DTYPES and all(isinstance(n, int) and n >= 16 for v in views for n in v.shape)


def over_matrix(kernel: Kernel, out: View) -> Kernel | None:
    """The pointwise kernel with loops over the rows of `out` and loops over its columns; None where it has others."""
    if kernel.style != "rows" or kernel.split is not None or any(m.step.kind != "pointwise" or not m.full for m in kernel.members):
        return None
    found = refine(kernel.sizes, out.shape)
    if found is None:
        return None
    sizes, mine, theirs = found
    subs = _grouped([f"x{k}" for k in range(len(kernel.sizes))], sizes, mine)
    members = [replace(m, subs={name: substitute(x, subs) for name, x in m.subs.items()}) for m in kernel.members]
    at = _grouped(["row", "column"], sizes, theirs)
    place = at["row"] * out.strides[0] + at["column"] * out.strides[1] + out.offset
    for m in members:
        for access in m.step.loads:
            if access.buffer == out.buffer:
                index = substitute(access.index, m.subs)
                if access.names or access.masked or not (index is place or index == place):
                    return None
    split = sum(1 for k in theirs if k == 0)
    return Kernel("rows", sizes, split, members) if 0 < split < len(sizes) else None


def _grouped(names: Sequence[str], sizes: Sequence[Index], owner: Sequence[int]) -> dict[str, Index]:
    """Loop variables over the refined sizes, where `owner` says which of them each piece is in."""
    subs: dict[str, Index] = dict.fromkeys(names, 0)
    for k, (size, mine) in enumerate(zip(sizes, owner, strict=True)):
        subs[names[mine]] = subs[names[mine]] * size + kernel_var(k, size)
    return subs


class ProductPrinter(TritonPrinter):
    """Prints a product: x are rows of the result, r its columns."""

    def __init__(self, node: Product, program: Program, stored: set[str]):
        super().__init__(node.kernel, program, stored)
        self.call, self.cut = node.call, node.tile

    def given(self) -> dict[str, Value]:
        """The tile of the result, rounded as if it had been stored."""
        out = self.call.outputs[0]
        self.result = self.tracer.make("held", (), compute_dtype(out.dtype), out.buffer)
        return {out.buffer: self.as_stored(self.result, out.dtype)}

    def print(self) -> TritonKernel:
        """The whole kernel."""
        self.masks = []
        self.prepare()
        self.connect()
        self.x_loops, self.r_loops = self.outer, self.inner
        self.x_size, self.r_size = self._numel(self.x_loops), self._numel(self.r_loops)
        self.persistent, self.num_warps = True, self.cut.num_warps
        self.x_tile, self.r_tile = self.cut.rows, self.cut.columns
        self._multiply()
        for k in range(len(self.kernel.members)):
            self._define_below(k)
            self._store(k)
        made = self._finish()
        (n, m), tile = self.call.outputs[0].shape, self.cut
        made.rows, made.tile = -(-n // tile.rows) * -(-m // tile.columns), 1
        made.num_stages = tile.num_stages
        return made

    def _multiply(self) -> None:
        a, b = self.call.inputs
        n, m, inner, tile, emit = int(self.x_size), int(self.r_size), int(a.shape[1]), self.cut, self.emit  # type: ignore[arg-type]
        down, across = -(-n // tile.rows), -(-m // tile.columns)
        emit("program = tl.program_id(0)")
        emit(f"first = program // {GROUP * across} * {GROUP}")
        emit(f"height = tl.minimum({down} - first, {GROUP})")
        emit(f"row = (first + program % {GROUP * across} % height) * XBLOCK + tl.arange(0, XBLOCK)")
        emit(f"column = program % {GROUP * across} // height * RBLOCK + tl.arange(0, RBLOCK)")
        emit(f"inner = tl.arange(0, {tile.inner})")
        inside_a, inside_b = ("row", "column") if n % tile.rows == 0 and m % tile.columns == 0 else (f"row % {n}", f"column % {m}")
        emit(f"a = {self.pointer(a.buffer)} + {a.offset} + ({inside_a})[:, None] * {a.strides[0]} + inner[None, :] * {a.strides[1]}")
        emit(f"b = {self.pointer(b.buffer)} + {b.offset} + inner[:, None] * {b.strides[0]} + ({inside_b})[None, :] * {b.strides[1]}")
        emit("total = tl.zeros([XBLOCK, RBLOCK], tl.float32)")
        emit(f"for done in range(0, {inner}, {tile.inner}):")
        whole = inner % tile.inner == 0
        of_a, of_b = ("", "") if whole else (f", inner[None, :] < {inner} - done, other=0", f", inner[:, None] < {inner} - done, other=0")
        emit(f"    total = tl.dot(tl.load(a{of_a}), tl.load(b{of_b}), total)")
        emit(f"    a += {tile.inner * int(a.strides[1])}")      # type: ignore[arg-type]
        emit(f"    b += {tile.inner * int(b.strides[0])}")      # type: ignore[arg-type]
        for name, position, size, loops in (("x", "row[:, None]", n, self.x_loops), ("r", "column[None, :]", m, self.r_loops)):
            emit(f"{name} = {position}")
            emit(f"{name}mask = {name} < {size}")
            self._split(name, loops)
        self.bind(self.result, "total")


def print_product(node: Product, program: Program, stored: set[str]) -> TritonKernel:
    """A product and what follows it as one Triton function."""
    return ProductPrinter(node, program, stored).print()
