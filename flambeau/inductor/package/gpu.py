"""Packages for NVIDIA GPUs: the kernels' cubins lie among the weights, and the call is steps of flambeau/include/package_cuda.h.

The program is traced on the CPU, wherever it was exported; its graph is then lowered as a GPU's. So packages for GPUs are made without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau.core.device import device
from flambeau.core.expr import Index, to_cpp
from flambeau.core.size import contiguous_strides
from flambeau.core.tensor import Tensor, fake
from flambeau.fx import GraphModule, map_aggregate
from flambeau.inductor.call import ByArrays, Clear, Drop, Launch, Look, Make, Step, Take
from flambeau.inductor.gpu import cuda
from flambeau.inductor.gpu.triton import TritonKernel
from flambeau.inductor.graph import GPU_PASSES, CompiledGraph, _run_passes
from flambeau.inductor.library import LIBRARY, family_of
from flambeau.inductor.loop.ir import Assumed, Extern
from flambeau.inductor.loop.scheduler import GPU, schedule
from flambeau.inductor.package.written import Input, PackagePlan, State, Weights, Writer, Written, elements_text, numbers
from flambeau.inductor.targets import lower

PRODUCT_KINDS = {"float32": (0, 68), "float64": (1, 70), "float16": (2, 68), "bfloat16": (14, 68)}     # CUDA's numbers for them, and to add in


def print_gpu_graph(gm: GraphModule, example_inputs: Sequence[Any] = ()) -> CompiledGraph:
    """`inductor.graph.print_graph` for a GPU, of a graph that was traced on the CPU."""
    where = device("cuda", 0)
    for node in gm.graph.nodes:
        node.meta["val"] = map_aggregate(node.meta.get("val"), lambda v: fake(v._layout.shape, v.dtype, where, v._layout.strides)
                                         if isinstance(v, Tensor) else v)
    program, fallbacks = lower(gm)
    program.assumed = Assumed(frozen=True)
    _run_passes(program, GPU_PASSES)
    graph = CompiledGraph(gm, program, fallbacks, schedule(program, GPU))
    graph.cuda = cuda.print_program(program, graph.nodes, calling=_Calling)
    graph.code = graph.cuda.code
    return graph


class _Calling(cuda._Calling):
    """Products through arrays, whose layouts are looked at when the package runs."""

    def _step(self, k: int, step: TritonKernel | Extern) -> Step:
        if isinstance(step, Extern) and _is_product(step):
            return ByArrays("product", tuple(map(self.look, (*step.inputs, *step.outputs))))
        return super()._step(k, step)


def _is_product(step: Extern) -> bool:
    return family_of(step) is LIBRARY["product"]


def without_kernel(graph: CompiledGraph) -> list[Extern]:
    """The steps that neither a kernel nor cuBLAS does."""
    return [node for _, node in graph.cuda.steps if isinstance(node, Extern)
            and (not _is_product(node) or node.outputs[0].dtype.name not in PRODUCT_KINDS)]


class GpuWriter(Writer):
    """Writes a plan down whose steps run on a GPU of this compute capability. Inputs lie in the host's memory or on the GPU; results, and
    what the program writes to, in the host's."""

    def __init__(self, plan: PackagePlan, weights: Weights, graph: CompiledGraph, capability: int):
        super().__init__(plan, weights)
        kernels = graph.cuda.kernels
        cubins = cuda.compile_all(kernels, capability, [cuda.aligned_parameters(graph.program, k) for k in kernels])
        self.capability, self.rows = capability, list[str]()
        self.kernels = {kernel.name: (k, cubin.kinds) for k, (kernel, cubin) in enumerate(zip(kernels, cubins, strict=True))}
        for kernel, cubin in zip(kernels, cubins, strict=True):
            weights.add(f"cubin_{kernel.name}", cubin.code, cubin.code)
            place = weights.places[f"cubin_{kernel.name}"][0]
            self.rows.append(f'{{{place}L, "{cubin.name}", "{cubin.kinds}", {cubin.num_warps * 32}, {cubin.shared}}}')

    def text(self) -> str:
        """As the writer of host code."""
        table = f"static const flambeau_cuda::Kernel kernels[] = {{{', '.join(self.rows) or '{}'}}};\n"
        return table + super().text()

    def _define_sizes(self) -> None:
        super()._define_sizes()
        self.lines.append(f"if (!flambeau_cuda::gpu().begin(f->model, f->weights, kernels, {len(self.rows)}, {self.capability})) "
                          'return f->runtime->fail(f->runtime, "%s", flambeau_cuda::gpu().failure.c_str());')
        self.lines.append("flambeau_cuda::Run gpu(f);")

    def _take(self, step: Take) -> None:
        if step.position is None:
            return self._memory(step.buffer, f"flambeau_cuda::gpu().weights + {self.weights.places[step.buffer][0]}L")
        source = self.plan.sources[step.position]
        if isinstance(source, State):
            place = self.weights.places[self.plan.states[source.number]][1]
            return self._memory(step.buffer, f"gpu.sent(f->states[{source.number}], {place})", checked=True)
        assert isinstance(source, Input) and step.strides is not None
        strides = [s // step.dtype.itemsize for s in step.strides]
        return self._memory(step.buffer, f"gpu.input({source.number}, {numbers(strides)}, {step.dtype.itemsize})", checked=True)

    def _make(self, step: Make) -> None:
        strides = contiguous_strides(step.shape) if step.strides is None else [s // step.dtype.itemsize for s in step.strides]
        self._memory(step.buffer, f"gpu.make({elements_text(step.shape, strides, step.dtype.itemsize)})", checked=True)
        self.blocks.add(step.buffer)

    def _drop(self, step: Drop) -> None:
        self.lines += [f"gpu.drop({name});" for name in step.buffers if name in self.blocks]

    def _launch(self, step: Launch) -> None:
        number, kinds = self.kernels[step.kernel]
        words = [f"(int64_t)((char*){name} + {to_cpp(offset)})" for name, offset in step.pointers]
        words += ["(int64_t)gpu.noted()"] if step.indexing else []
        words += [f"(int64_t)({symbol})" for symbol in step.symbols]
        assert len(words) == len(kinds), (words, kinds)
        self.lines.append(f"{{ int64_t words[] = {{{', '.join(words) or '0'}}}; "
                          f"if (gpu.launch(kernels[{number}], {number}, {to_cpp(step.grid)}, words)) return 1; }}")

    def _product(self, step: ByArrays) -> None:
        a, b, out = (look for look in step.arguments if isinstance(look, Look))
        kind, computed = PRODUCT_KINDS[out.dtype.name]
        wide = "true" if out.dtype.name == "float64" else "false"
        matrices = ", ".join(map(self._matrix, (a, b, out)))
        self.lines.append(f"if (gpu.product({matrices}, {kind}, {computed}, {wide})) return 1;")

    def _matrix(self, look: Look) -> str:
        shape, strides = list(look.shape), self._strides(look)
        if len(shape) == 2:
            shape, strides = [1, *shape], [0, *strides]
        return f"{{(char*){look.buffer} + {to_cpp(look.offset)}, {', '.join(map(to_cpp, (*shape, *strides)))}}}"

    def _clear(self, step: Clear) -> None:
        """The caller keeps its inputs."""

    # -- results -------------------------------------------------------------------------------------------------------
    def _fetched(self, name: str, result: Look) -> str:
        strides = self._strides(result)
        return (f"void* const {name} = gpu.fetched((char*){result.buffer} + {to_cpp(result.offset)}, {len(result.shape)}, "
                f"{numbers(result.shape)}, {numbers(strides)}, {result.dtype.itemsize}); if ({name} == nullptr) return 1;")

    def _give(self, k: int, result: Look | Index | None) -> None:
        if not isinstance(result, Look):
            return super()._give(k, result)
        self.lines.append(f"{{ {self._fetched('host', result)} if (flambeau_give(f, {k}, host, host, {numbers(result.shape)}, "
                          f"{numbers(self._strides(result))})) return 1; }}")

    def _write_back(self, written: Written) -> None:
        result, to = self.call.results[written.result], written.to
        assert isinstance(result, Look)
        if isinstance(to, Input):
            raise NotImplementedError(f"aoti_compile_and_package: the program writes to its input {self.plan.inputs[to.number].name}, which "
                                      "packages for GPUs do not; let it return the new value")
        name = f"host_{len(self.lines)}"
        self.lines.append(self._fetched(name, result))
        self._copy_back(written, name)

    def _finish(self) -> None:
        self.lines.append("if (gpu.checked()) return 1;")

    WRITE: Mapping[type[Step], Callable[[Any, Any], None]] = {
        Take: _take, Make: _make, Clear: _clear, Drop: _drop, Launch: _launch, ByArrays: _product,
    }


def source_of(writer: GpuWriter) -> str:
    """The whole C++ text."""
    return f'#include "runtime.h"\n#include "package.h"\n#include "package_cuda.h"\n{writer.text()}'
