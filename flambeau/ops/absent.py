"""Operators of torch's own other namespaces: programs name them in tables, to match graphs and tell calls apart; nothing calls them.
Rooms that are imported later may define some."""

from __future__ import annotations

from typing import Any, Final, NoReturn

_FUNCTIONS: Final = "use the functions of torch.distributed"
_FLOATS: Final = "run the model in float32 or bfloat16"

NAMES: Final[dict[str, tuple[str, str]]] = {
    # namespace: (what to use instead, the names)
    "_c10d_functional": (_FUNCTIONS, "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out all_reduce "
                                     "all_reduce_ all_reduce_coalesced all_reduce_coalesced_ all_to_all_single broadcast broadcast_ "
                                     "reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out wait_tensor "
                                     "_wrap_tensor_autograd"),
    "_c10d_functional_autograd": (_FUNCTIONS, "all_gather_into_tensor all_to_all_single reduce_scatter_tensor"),
    "c10d_functional": (_FUNCTIONS, "all_gather_into_tensor all_gather_into_tensor_coalesced all_reduce all_reduce_coalesced "
                                    "all_to_all_single broadcast reduce_scatter_tensor reduce_scatter_tensor_coalesced wait_tensor "
                                    "_wrap_tensor_autograd"),
    "c10d": (_FUNCTIONS, "_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_ "
                         "allreduce_ allreduce_coalesced_ alltoall_ alltoall_base_ barrier broadcast_ gather_ monitored_barrier_ recv_ "
                         "recv_any_source_ reduce_ reduce_scatter_ reduce_scatter_tensor_coalesced_ scatter_ send"),
    "symm_mem": (_FUNCTIONS, "multimem_all_gather_out multimem_all_reduce_ multimem_one_shot_all_reduce one_shot_all_reduce "
                             "one_shot_all_reduce_out two_shot_all_reduce_ stream_write_value32_ memset32_"),
    "profiler": ("use torch.profiler.record_function", "_record_function_enter _record_function_enter_new _record_function_exit"),
    "prim": ("ask the tensor", "device dtype layout"),
    "onednn": ("torch.compile fuses by itself", "qlinear_pointwise qlinear_prepack qconv_pointwise qconv_prepack linear_dynamic_fp16"),
    "quantized_decomposed": (_FLOATS, "choose_qparams choose_qparams_symmetric choose_qparams_per_token quantize_per_tensor "
                                      "dequantize_per_tensor quantize_per_channel dequantize_per_channel quantize_per_token "
                                      "dequantize_per_token quantize_per_channel_group dequantize_per_channel_group "
                                      "convert_element_type fake_quant_per_channel"),
}


class AbsentOperator:
    """An operator that has a name only; each overload is one, always the same. Calling it raises NotImplementedError."""

    def __init__(self, name: str, instead: str) -> None:
        self._qualified, self._instead = name, instead
        self.__name__ = name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"<operator {self._qualified}, which is not implemented>"

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        made = vars(self)[overload] = AbsentOperator(f"{self._qualified}.{overload}", self._instead)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torch.ops.{self._qualified} is not implemented; {self._instead}")


def absent_operator(namespace: str, name: str) -> AbsentOperator | None:
    """The operator of a namespace of the table; None where it has no such name."""
    instead, names = NAMES.get(namespace, ("", ""))
    return AbsentOperator(f"{namespace}.{name}", instead) if name in names.split() else None
