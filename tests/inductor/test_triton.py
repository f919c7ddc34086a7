"""The Triton printer without a GPU: kernels compile to cubins for Hopper, and run right under Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.aot.trace import make_fx
from flambeau.backends.cuda import cubins
from flambeau.core import cache
from flambeau.core.dispatch import fake_mode
from flambeau.core.expr import to_triton, var
from flambeau.core.scalar import TABLE
from flambeau.core.symbolic import ShapeEnv
from flambeau.inductor.gpu import cuda
from flambeau.inductor.graph import compile_graph
from flambeau.inductor.loop.scheduler import schedule
from flambeau.inductor.targets import lower
from flambeau.ops.registry import PRIMITIVES

pytest.importorskip("triton", reason="Triton is an optional extra (flambeau[cuda])")

CASES = {
    "pointwise": lambda x, w: (x * 2 + w).gelu() if hasattr(x, "gelu") else fl.nn.functional.gelu(x * 2 + w),
    "transpose": lambda x, w: x.t().contiguous() + 1,
    "softmax": lambda x, w: x.softmax(-1),
    "layer_norm": lambda x, w: fl.nn.functional.layer_norm(x, (w.shape[0],), w, w),
    "column_sum": lambda x, w: (x * w).sum(0),
    "full_sum": lambda x, w: x.sum(),
    "max": lambda x, w: x.amax(1) + x.amin(1),
    "cross_entropy": lambda x, w: fl.nn.functional.cross_entropy(x, fl.zeros(x.shape[0], dtype=fl.int64, device="cuda")),
    "gather": lambda x, w: fl.nn.functional.embedding(fl.zeros(7, dtype=fl.int64, device="cuda"), x),
    "dropout": lambda x, w: fl.nn.functional.dropout(x, 0.3),
    "bfloat16": lambda x, w: (x.bfloat16() * 3).float() + w,
    "any": lambda x, w: (x > 0).any(1),
}


def program_of(fn, rows=48, columns=384):
    """The scheduled program of `fn` on fake CUDA tensors."""
    with fake_mode():
        x, w = fl.empty(rows, columns, device="cuda"), fl.empty(columns, device="cuda")
    program, _ = lower(make_fx(fn)(x, w))
    return program, schedule(program)


def test_no_function_takes_subnormal_numbers_for_zero(tmp_path, monkeypatch):
    """Read in the PTX of all scalar functions: what flushes are first guesses within library functions."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    functions = [PRIMITIVES[row.name] for row in TABLE.values() if row.name in PRIMITIVES and "F" in row.native and row.arity <= 2]
    assert len(functions) > 50

    def everything(x, w):
        total = x * 0
        for f in functions:
            out = f(*(x, x * 0 + w)[: len(f.params)])
            total = total + out.float()
        return total

    program, nodes = program_of(everything)
    for kernel in cuda.print_program(program, nodes).kernels:
        cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel)))
    text = "".join(path.read_text() for path in tmp_path.rglob("*.ptx"))
    flushing = set(re.findall(r"\S+\.ftz\S*", text))
    assert "ex2.approx" in text and all(".approx." in instruction for instruction in flushing), flushing


@pytest.mark.parametrize("name", CASES)
def test_compiles_to_cubin_without_a_gpu(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    program, nodes = program_of(CASES[name])
    unit = cuda.print_program(program, nodes)
    assert unit.kernels
    for kernel in unit.kernels:
        cubin = cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel)))
        assert cubin.code[:4] == b"\x7fELF" and cubin.num_warps == kernel.num_warps
        again = cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel)))
        assert again.code == cubin.code
    compile(unit.code.text(), "wrapper", "exec")


@pytest.mark.parametrize("name", ["pointwise", "softmax", "column_sum", "full_sum", "max"])
@pytest.mark.parametrize("shape", [(2**21 + 8, 1024), (2**10, 2**21 + 8)])
def test_positions_in_large_buffers_are_64_bits_wide(name, shape):
    """A row's number times its length, or the other way round, is more than 32 bits hold."""
    program, nodes = program_of(CASES[name], *shape)
    for kernel in cuda.print_program(program, nodes).kernels:
        if any(program.buffers[buffer].numel >= 2**31 for buffer, _ in kernel.pointers):
            positions = [line for line in kernel.text.splitlines() if "tl.arange" in line]
            assert positions and all("tl.int64" in line for line in positions), kernel.text
            assert cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel))).code[:4] == b"\x7fELF"


def _a_kernel():
    program, nodes = program_of(CASES["softmax"])
    (kernel,) = cuda.print_program(program, nodes).kernels
    return kernel, frozenset(cuda.aligned_parameters(program, kernel))


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:-9], lambda c: c[:99] + b"?" + c[100:]])
def test_a_damaged_cubin_is_compiled_anew(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    kernel, aligned = _a_kernel()
    code = cuda.compile_cubin(kernel, 90, aligned).code
    (entry,) = [p for p in (tmp_path / "cubin").rglob("*") if p.is_file()]
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert cuda.compile_cubin(kernel, 90, aligned).code == code and entry.read_bytes() == whole


def test_cubins_without_a_directory_to_keep_them(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    for name in [name for name in sys.modules if name.startswith("flambeau_kernels_")]:
        monkeypatch.delitem(sys.modules, name)
    cache._unusable.clear()
    with pytest.warns(UserWarning, match="cannot be used"):
        assert cuda.compile_cubin(*_a_kernel()[:1], 90, frozenset()).code[:4] == b"\x7fELF"


def test_indices_are_divided_downwards():
    """Triton divides integers towards zero: the size of a convolution over a kernel of unknown size is (9 - s) // 2 + 1."""
    size, loop = var("s0", lo=1), var("x1", size=640)
    assert to_triton((9 - size) // 2 + 1 + size // 2) == "(s0 // 2) + quotient(-s0 + 1, 2) + 5"
    assert to_triton(loop // 4 + loop % 8) == "(x1 % 8) + (x1 // 4)" and to_triton((loop - size) % 3) == "rest(-s0 + x1, 3)"
    with fake_mode():
        env = ShapeEnv()
        k = env.create_symint(7, "k", True)
        x, w = fl.empty(2, 8, 16, 16, device="cuda"), fl.empty(4, 8, k, k, device="cuda")
        program, _ = lower(make_fx(lambda x, w: fl.nn.functional.conv2d(x, w, None, 2, 1).relu())(x, w))
    unit = cuda.print_program(program, schedule(program))
    assert any("quotient(" in kernel.text.split("tl.load")[0] for kernel in unit.kernels)
    for kernel in unit.kernels:
        assert cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel))).code[:4] == b"\x7fELF"


def test_without_cupy_the_error_says_what_to_install():
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("CuPy is installed")
    with fake_mode():
        x = fl.empty(8, 8, device="cuda")
    with pytest.raises(cuda.NoTriton, match="pip install"):
        compile_graph(make_fx(lambda x: x.softmax(-1))(x))


@pytest.mark.parametrize("case", ["products", "ended_products", "long_rows", "long_sums",
                                  "eager_pointwise", "to_integers", "eager_moves", "small_folds", "eager_operators",
                                  "eager_reductions", "graphs", "programs", "saved",
                                  "tables", "lifetimes", "stray_indices", "empty_indices"])
def test_kernels_compute_the_right_numbers_under_the_interpreter(case, tmp_path):
    script = Path(__file__).parent / "triton_interpreter.py"
    found = subprocess.run([sys.executable, str(script), case], capture_output=True, text=True, timeout=110,
                           env=os.environ | {"TRITON_INTERPRET": "1", "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert found.returncode == 0 and f"{case} is right" in found.stdout, found.stderr[-3000:]


PACKED = """
.version 8.4
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 out)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 	%rd1, [out];
	ld.global.b32 	%r1, [%rd1];
	mov.b32 	%r2, -65527;
	add.s16x2 	%r3, %r1, %r2;
	st.global.b32 	[%rd1], %r3;
	ret;
}
"""


def test_packed_sums_are_taken_apart_before_ptxas():
    """ptxas loses the constant of a packed sum where one half is also used alone (see `cubins.unpacked`)."""
    ptx = cubins.unpacked(PACKED)
    assert ptx.count("add.s16 ") == 2 and "16x2" not in ptx
    assert cubins._assembled(ptx)[:4] == b"\x7fELF"
    with pytest.raises(RuntimeError, match="ptxas refuses"):
        cubins._assembled(ptx.replace("%low0", "%lost"))


LETTERS = {"bool": "B", "int64": "I", "int8": "I", "uint8": "I", "float32": "F", "float64": "F"}


@pytest.mark.parametrize("kind", LETTERS)
def test_every_elementwise_primitive_has_a_kernel(kind):
    """One graph of each: a function that the prologue lacks, or that Triton has for other types, is seen here."""
    said = {name for name, row in TABLE.items() if LETTERS[kind] in row.native}
    names = [name for name, prim in PRIMITIVES.items() if prim.kind == "pointwise" and set(prim.params) <= {"x", "y", "z"}
             and (name in said or (name not in TABLE and LETTERS[kind] == "F"))]
    assert len(names) > 5
    with fake_mode():
        x, y, z = (fl.empty(64, device="cuda", dtype=getattr(fl, kind)) for _ in range(3))
        for name in names:
            prim = PRIMITIVES[name]
            program, _ = lower(make_fx(lambda *v, prim=prim: prim(*v))(*(x, y, z)[:len(prim.params)]))
            for kernel in cuda.print_program(program, schedule(program)).kernels:
                code = cuda.compile_cubin(kernel, 90, frozenset(cuda.aligned_parameters(program, kernel))).code
                assert code[:4] == b"\x7fELF", name
