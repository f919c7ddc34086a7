"""Modules of torch's that need no file here: places where torch keeps names that live elsewhere, and places of what is left out.

A row of `KEPT` names the module in which each name really lives; a row of `LEFT_OUT` says what to use instead. `Homes` makes such
a module when it is first imported, if no file has its name.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from ._absent import absent_name

ROOM: Final = __name__.rpartition(".")[0]

KEPT: Final[dict[str, tuple[str, str]]] = {
    # module: (where its names live, the names; "name=other" where they have another one there; "*": it is that module)
    "_custom_ops": ("library", "custom_op get_ctx"),
    "_dynamo.backends.cudagraphs": ("dynamo.backends", "cudagraphs"),
    "_dynamo.backends.inductor": ("dynamo.backends", "inductor"),
    "_dynamo.backends.registry": ("dynamo.backends", "CompilerFn=Backend CompiledFn=Backend list_backends lookup_backend register_backend "
                                                     "register_debug_backend register_experimental_backend"),
    "_dynamo.config": ("dynamo.config", "*"),
    "_inductor.config": ("inductor.config", "*"),
    "_refs.linalg": ("linalg", "*"),
    "_refs.nn.functional": ("nn.functional", "*"),
    "_refs.special": ("special", "*"),
    "autograd.profiler": ("profiler.by_autograd", "*"),
    "distributed._composable.fsdp": ("distributed.fsdp", "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard"),
    "fx._symbolic_trace": ("fx.tracer", "PH Tracer is_fx_tracing symbolic_trace wrap"),
    "fx.immutable_collections": ("fx.node", "immutable_dict immutable_list"),
    "fx.subgraph_rewriter": ("fx.rewrite", "Match ReplacedPatterns replace_pattern replace_pattern_with_filters"),
    "functional": ("", "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul "
                       "einsum istft lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index F=nn.functional"),
    "_tensor": ("", "Tensor _rebuild_from_type_v2=serialization.names._rebuild_from_type_v2"),
    "_C._onnx": ("onnx", "OperatorExportTypes TensorProtoDataType TrainingMode"),
    "_vmap_internals": ("func", "_vmap=vmap"),
    "_C._functorch": ("func.vmap", "is_batchedtensor _add_batch_dim=add_batch_dim _remove_batch_dim=remove_batch_dim"),
    "_library.infer_schema": ("library", "infer_schema"),
    "_library.custom_ops": ("library", "CustomOpDef custom_op"),
    "autograd.profiler_util": ("profiler.by_autograd", "EnforceUnique EventList FunctionEvent Interval MemRecordsAcc"),
    "fx._pytree": ("utils._pytree", "tree_flatten tree_unflatten"),
    "distributed.elastic.agent.server.api": ("distributed.elastic.agent.server", "*"),
    "distributed.elastic.events.api": ("distributed.elastic.events", "*"),
    "distributed.elastic.metrics.api": ("distributed.elastic.metrics", "*"),
    "distributed.elastic.multiprocessing.api": ("distributed.elastic.multiprocessing", "*"),
    "distributed.elastic.rendezvous.api": ("distributed.elastic.rendezvous", "*"),
    "distributed.elastic.timer.api": ("distributed.elastic.timer", "*"),
    "distributed.elastic.timer.local_timer": ("distributed.elastic.timer", "LocalTimerClient LocalTimerServer MultiprocessingRequestQueue"),
    "distributed.elastic.utils.api": ("distributed.elastic.utils", "get_env_variable_or_raise get_socket_with_port macros"),
    "distributed.elastic.utils.distributed": ("distributed.elastic.utils", "create_c10d_store get_free_port get_socket_with_port"),
    "distributed.elastic.utils.logging": ("distributed.elastic.utils", "get_logger"),
    "distributed.elastic.utils.store": ("distributed.elastic.utils", "barrier get_all store_timeout synchronize"),
    "distributed.launcher.api": ("distributed.launcher", "*"),
    "distributed.constants": ("distributed", "default_pg_timeout"),
    "distributed._tensor": ("distributed.tensor", "DTensor DeviceMesh Shard Replicate Partial Placement distribute_tensor "
                                                    "distribute_module"),
    "distributed._tensor.device_mesh": ("distributed.device_mesh", "DeviceMesh init_device_mesh"),
    "distributed._tensor.experimental": ("distributed.tensor.experimental", "context_parallel local_map implicit_replication"),
    "distributed._composable_state": ("distributed.fsdp.fully_shard", "_get_module_state"),
    "distributed.fsdp.api": ("distributed.fsdp", "FullOptimStateDictConfig LocalOptimStateDictConfig LocalStateDictConfig "
                                                 "OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig "
                                                 "StateDictConfig StateDictSettings BackwardPrefetch "
                                                 "CPUOffload FullStateDictConfig MixedPrecision ShardingStrategy StateDictType"),
    "distributed.fsdp.fully_sharded_data_parallel": ("distributed.fsdp", "FullOptimStateDictConfig LocalOptimStateDictConfig "
                                                     "LocalStateDictConfig OptimStateDictConfig ShardedOptimStateDictConfig "
                                                     "ShardedStateDictConfig StateDictConfig StateDictSettings BackwardPrefetch CPUOffload "
                                                     "FullStateDictConfig "
                                                     "FullyShardedDataParallel MixedPrecision ShardingStrategy StateDictType"),
    "distributed.rpc.constants": ("distributed.rpc.options", "DEFAULT_RPC_TIMEOUT_SEC DEFAULT_INIT_METHOD DEFAULT_NUM_WORKER_THREADS "
                                                             "UNSET_RPC_TIMEOUT"),
    "distributed.rpc.backend_registry": ("distributed.rpc.options", "BackendType"),
    "_C._distributed_rpc": ("distributed.rpc", "PyRRef WorkerInfo"),
    "_tensor_str": ("ops.printing", "set_printoptions get_printoptions printoptions PRINT_OPTS _Formatter _add_suffixes "
                                      "_str=_repr _str_intern=_repr _tensor_str=elements_text"),
    "_vendor.packaging.version": ("torch_version", "Version=TorchVersion parse=TorchVersion"),
    "_C._autograd": ("profiler", "DeviceType"),
    "_C._profiler": ("", "ProfilerActivity=profiler.ProfilerActivity _ExperimentalConfig=profiler._ExperimentalConfig "
                         "gather_traceback=utils._traceback.gather_traceback symbolize_tracebacks=utils._traceback.symbolize_tracebacks"),
    "_export.wrappers": ("_homes", "mark_subclass_constructor_exportable_experimental=same"),
    "utils.serialization.config": ("serialization.options", "load=loading save=saving patch"),
    "masked.maskedtensor.core": ("masked.maskedtensor", "MaskedTensor is_masked_tensor"),
    "masked.maskedtensor.creation": ("masked.maskedtensor", "as_masked_tensor masked_tensor"),
    "jit._logging": ("jit", ""),
    "jit.quantized": ("jit", ""),
    "testing._internal.common_utils": ("testing._case", "TestCase run_tests make_tensor"),
    "_dispatch.python": ("_homes", "enable_python_dispatcher=nothing"),
    "jit._state": ("_homes", "_enabled=jit_enabled"),
    "distributed.checkpoint.utils": ("distributed.checkpoint", "CheckpointException"),
    "_functorch.face.experimental": ("_functorch.make_fx", ""),
    "_functorch.face.experimental.control_flow": ("_higher_order_ops", "cond map"),
    "_VF": ("", "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell split stft meshgrid norm cdist"),
    "_jit_internal": ("jit", "Attribute BroadcastingList1=annotations.BroadcastingList1 "
                             "BroadcastingList2=annotations.BroadcastingList2 BroadcastingList3=annotations.BroadcastingList3 Final "
                             "_copy_to_script_wrapper _disable_emit_hooks=language._disable_emit_hooks "
                             "_overload _overload_method boolean_dispatch export ignore is_scripting unused"),
    "package.package_exporter": ("package", "EmptyMatchError PackageExporter PackagingError"),
    "package.package_importer": ("package", "PackageImporter"),
    "package.importer": ("package", "Importer ObjMismatchError ObjNotFoundError OrderedImporter sys_importer"),
    "package.glob_group": ("package.globs", "GlobGroup GlobPattern"),
    "export.decomp_utils": ("export", "CustomDecompTable"),
    "onnx.operators": ("_private", "shape_as_tensor"),
    "onnx._internal.exporter": ("onnx", "ONNXProgram"),
    "backends._nnapi.prepare": ("nnapi", "ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER ANEURALNETWORKS_PREFER_LOW_POWER "
                                         "ANEURALNETWORKS_PREFER_SUSTAINED_SPEED NnapiModule convert_model_to_nnapi process_for_nnapi"),
    "backends._nnapi.serializer": ("nnapi", "NNAPI_FuseCode=Fuse NNAPI_OperandCode=Type NNAPI_OperationCode=Operation"),
    "autograd.profiler_legacy": ("profiler.by_autograd", "profile"),
    "profiler.profiler": ("profiler", "ExecutionTraceObserver ProfilerAction ProfilerActivity _default_schedule_fn profile schedule "
                                      "supported_activities tensorboard_trace_handler"),
    "mtia": ("_homes", "is_available=no"),
    "quantization": ("ao.quantization", "QuantStub DeQuantStub QConfig QuantWrapper convert prepare prepare_qat fuse_modules quantize "
                                        "quantize_dynamic quantize_qat default_qconfig get_default_qconfig get_default_qat_qconfig "
                                        "FakeQuantize FakeQuantizeBase ObserverBase default_observer default_weight_observer"),
    "fx.experimental.optimization": ("nn.utils.fx_passes", "extract_subgraph fuse remove_dropout"),
    "fx.experimental.merge_matmul": ("nn.utils.merge_matmul", "are_nodes_independent may_depend_on merge_matmul split_result_tensors"),
    "fx.passes.dialect.common.cse_pass": ("_functorch.cse", "CSEPass"),
    "fx.experimental.proxy_tensor": ("_functorch.make_fx", "disable_proxy_modes_tracing get_proxy_mode make_fx"),
    "ao.nn.qat.modules": ("nn", ""),
    "ao.nn.quantizable.modules": ("nn", ""),
    "ao.nn.quantized": ("nn", "MaxPool2d"),
    "ao.nn.quantized.modules": ("nn", "MaxPool2d"),
    "autograd.variable": ("autograd", "Variable"),
    "cuda.amp.common": ("cuda.amp", "amp_definitely_not_available"),
    "cuda.amp.autocast_mode": ("cuda.amp", "autocast custom_fwd custom_bwd"),
    "cuda.graphs": ("cuda", "CUDAGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables"),
    "cuda.green_contexts": ("cuda", "GreenContext"),
    "cuda.nccl": ("_homes", "is_available=no"),
    "cuda.tunable": ("_homes", "is_enabled=no tuning_is_enabled=no record_untuned_is_enabled=no"),
    "cuda.amp.grad_scaler": ("cuda.amp", "GradScaler"),
    "nn.parallel.data_parallel": ("nn.parallel", "DataParallel"),
    "nn.quantized": ("nn", ""),
    "nested._internal.nested_tensor": ("nested.construct", "NestedTensor buffer_from_jagged jagged_from_list nested_from_padded "
                                                           "nested_view_from_values_offsets nested_view_from_values_offsets_lengths"),
    "nested._internal.nested_int": ("nested.tensor", "NestedIntNode=NestedInt"),
    "optim.adadelta": ("optim", "Adadelta"),
    "optim.adafactor": ("optim", "Adafactor=Adafactor"),
    "optim.adagrad": ("optim", "Adagrad"),
    "optim.adamax": ("optim", "Adamax"),
    "optim.asgd": ("optim", "ASGD"),
    "optim.nadam": ("optim", "NAdam"),
    "optim.radam": ("optim", "RAdam"),
    "optim.rmsprop": ("optim", "RMSprop"),
    "optim.rprop": ("optim", "Rprop"),
    "utils.data._utils.collate": ("utils.data.collate", "default_collate default_convert collate default_collate_fn_map collate_tensor_fn "
                                                        "collate_numpy_array_fn collate_numpy_scalar_fn collate_float_fn "
                                                        "collate_int_fn collate_str_fn np_str_obj_array_pattern "
                                                        "default_collate_err_msg_format"),
    "utils.data._utils.fetch": ("utils.data.dataloader", "_MapDatasetFetcher _IterableDatasetFetcher"),
    "utils.data._utils.pin_memory": ("utils.data.collate", "pin_memory=pinned"),
    "utils.data._utils.worker": ("utils.data.worker", "WorkerInfo get_worker_info _generate_state"),
    "utils.data.graph": ("utils.data.datapipes.datapipe", "traverse=traverse_dps traverse_dps"),
    "utils.data.graph_settings": ("utils.data.datapipes.datapipe", "apply_sharding apply_random_seed apply_shuffle_settings"),
    "utils.data._utils": ("utils.data.collate", "HAS_NUMPY MP_STATUS_CHECK_INTERVAL"),
    "ao.quantization.stubs": ("ao.quantization", "QuantStub DeQuantStub QuantWrapper"),
    "_prims_common.wrappers": ("_prims_common", "_maybe_convert_to_dtype"),
    "_functorch.vmap": ("", "vmap=func.vmap Tensor tree_flatten=utils._pytree.tree_flatten tree_unflatten=utils._pytree.tree_unflatten"),
    "_functorch.apis": ("func", "vmap grad grad_and_value"),
    "export.exported_program": ("export", "ExportedProgram ModuleCallEntry ModuleCallSignature default_decompositions"),
    "_higher_order_ops.map": ("_higher_order_ops.scan", "map"),
    "_export": ("_inductor.package", "aot_compile=aot_compile_exported aot_load"),
    "_functorch.eager_transforms": ("func", "grad grad_and_value hessian jacfwd jacrev jvp linearize vjp"),
    "_functorch.functional_call": ("func", "functional_call stack_module_state"),
}

_DENSE: Final = "use dense tensors, or scipy.sparse on tensor.numpy()"
_FLOATS: Final = "run the model in float32 or bfloat16"
_PROCESSES: Final = "one process drives one device here; torch.distributed.is_available() tells whether there may be more"
_EXPORT: Final = "compile with torch.compile, and keep weights with torch.save(model.state_dict())"
_COMPILER: Final = "give torch.compile a backend of your own, which gets the graph"
_PIPES: Final = "write an IterableDataset"
_ONNX: Final = ("save the weights with torch.save and run torch.onnx in PyTorch", "dropout masked_fill select softmax squeeze unsqueeze")
_UNIFIES: Final = "graphs are matched by fx.replace_pattern; terms by the package logical-unification"

LEFT_OUT: Final[dict[str, tuple[str, str]]] = {
    # module: (what to use instead, the names)
    "_C._functorch": ("use torch.func", "_vmap_increment_nesting _vmap_decrement_nesting get_unwrapped "
                                        "maybe_get_bdim maybe_get_level current_level TransformType CInterpreter"),
    "distributed.fsdp._common_utils": ("use distributed.fsdp.FSDPModule", "_FSDPState"),
    "_C._distributed_c10d": (_PROCESSES, "ProcessGroup Store ReduceOp Work"),
    "_export.error": (_EXPORT, "InternalError"),
    "_export.utils": (_EXPORT, "_disable_aten_to_metadata_assertions"),
    "_functorch.vmap": ("use torch.func.vmap", "_add_batch_dim _maybe_remove_batch_dim _broadcast_to_and_flatten _get_name "
                                               "_remove_batch_dim _create_batched_inputs _unwrap_batched _process_batched_inputs"),
    "_higher_order_ops.inline_asm_elementwise": ("write a Triton kernel", "inline_asm_elementwise"),
    "_higher_order_ops.out_dtype": ("cast the operands", "out_dtype"),
    "_inductor.codegen.cpp_template": (_COMPILER, "CppTemplate"),
    "_inductor.codegen.cpp_template_kernel": (_COMPILER, "CppTemplateKernel"),
    "_inductor.constant_folding": (_COMPILER, "ConstantFolder constant_fold"),
    "_inductor.freezing_utils": (_COMPILER, "maybe_set_is_frozen_param"),
    "_inductor.fx_passes.freezing_patterns": (_COMPILER, "register_freezing_graph_pattern freezing_passes"),
    "_inductor.graph": (_COMPILER, "GraphLowering"),
    "_inductor.ir": (_COMPILER, "TensorBox FixedLayout FlexibleLayout Buffer IRNode ChoiceCaller CppTemplateBuffer Layout Pointwise "
                                "get_fill_order"),
    "_inductor.select_algorithm": (_COMPILER, "TritonTemplate ExternKernelChoice autotune_select_algorithm realize_inputs "
                                              "DataProcessorTemplateWrapper"),
    "_inductor.virtualized": (_COMPILER, "V ops"),
    "_subclasses.functional_tensor": (_COMPILER, "FunctionalTensor FunctionalTensorMode mb_unwrap_functional_tensor"),
    "_subclasses.meta_utils": ("use FakeTensorMode", "MetaConverter"),
    "ao.nn.intrinsic": (_FLOATS, "ConvBn2d ConvReLU2d LinearReLU"),
    "ao.nn.qat": (_FLOATS, "Conv2d Linear Embedding"),
    "ao.nn.quantizable": (_FLOATS, "LSTM MultiheadAttention"),
    "ao.nn.quantized": (_FLOATS, "Conv1d Conv2d Conv3d Linear Embedding EmbeddingBag FloatFunctional QFunctional BatchNorm2d"),
    "ao.nn.quantized.dynamic": (_FLOATS, "Linear LSTM GRU"),
    "ao.nn.sparse": (_FLOATS, ""),
    "ao.ns.fx.utils": (_FLOATS, "compute_sqnr compute_normalized_l2_error compute_cosine_similarity"),
    "ao.pruning": ("torch.nn.utils.prune masks weights", "BaseSparsifier WeightNormSparsifier get_arg_info_from_tensor_fqn FakeSparsity"),
    "ao.quantization.backend_config": (_FLOATS, "BackendConfig BackendPatternConfig DTypeConfig ObservationType DTypeWithConstraints "
                                                "get_native_backend_config"),
    "ao.quantization.backend_config.utils": (_FLOATS, "get_fusion_pattern_to_root_node_getter get_module_to_qat_module "
                                                      "get_fused_module_classes get_pattern_to_dtype_configs get_qat_module_classes "
                                                      "get_root_module_to_quantized_reference_module"),
    "ao.quantization.fake_quantize": (_FLOATS, "FakeQuantize FakeQuantizeBase FusedMovingAvgObsFakeQuantize default_fake_quant"),
    "ao.quantization.fuse_modules": (_FLOATS, "fuse_known_modules"),
    "ao.quantization.fx": (_FLOATS, "prepare convert fuse"),
    "ao.quantization.fx._decomposed": (_FLOATS, "quantized_decomposed_lib _per_token_quant_qparam_dim_check quantize_per_channel_group"),
    "ao.quantization.fx._equalize": (_FLOATS, "CUSTOM_MODULE_SUPP_LIST convert_eq_obs update_obs_for_equalization"),
    "ao.quantization.fx.custom_config": (_FLOATS, "PrepareCustomConfig ConvertCustomConfig FuseCustomConfig"),
    "ao.quantization.fx.graph_module": (_FLOATS, "ObservedGraphModule FusedGraphModule _is_observed_module _is_observed_standalone_module"),
    "ao.quantization.fx.lower_to_fbgemm": (_FLOATS, "lower_to_fbgemm"),
    "ao.quantization.fx.prepare": (_FLOATS, "prepare _insert_obs_or_fq _save_state _is_activation_post_process_node"),
    "ao.quantization.fx.qconfig_mapping_utils": (_FLOATS, "_generate_node_name_to_qconfig _compare_prepare_convert_qconfig_mappings "
                                                          "_is_qconfig_supported_by_dtype_configs _update_qconfig_for_fusion "
                                                          "_update_qconfig_for_qat"),
    "ao.quantization.fx.utils": (_FLOATS, "get_new_attr_name_with_prefix _get_module graph_module_from_producer_nodes node_arg_is_weight"),
    "ao.quantization.observer": (_FLOATS, "ObserverBase UniformQuantizationObserverBase MinMaxObserver MovingAverageMinMaxObserver "
                                          "PerChannelMinMaxObserver HistogramObserver PlaceholderObserver AffineQuantizedObserverBase"),
    "ao.quantization.qconfig": (_FLOATS, "QConfig QConfigAny QConfigDynamic default_qconfig get_default_qconfig qconfig_equals"),
    "ao.quantization.qconfig_mapping": (_FLOATS, "QConfigMapping get_default_qconfig_mapping get_default_qat_qconfig_mapping"),
    "ao.quantization.quantize": (_FLOATS, "convert prepare quantize _remove_qconfig"),
    "ao.quantization.quantize_fx": (_FLOATS, "prepare_fx prepare_qat_fx convert_fx fuse_fx convert_to_reference_fx"),
    "ao.quantization.quantizer": (_FLOATS, "Quantizer QuantizationAnnotation QuantizationSpec"),
    "ao.quantization.utils": (_FLOATS, "get_new_attr_name_with_prefix calculate_qmin_qmax check_min_max_valid MatchAllNode _parent_name "
                                       "get_qparam_dict is_per_channel to_underlying_dtype weight_is_quantized"),
    "backends.nnpack": ("oneDNN computes", "set_flags flags"),
    "cuda.nccl": (_PROCESSES, "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id version"),
    "cuda.tunable": ("cuBLASLt is asked for the best algorithm of each product as it is", "enable tuning_enable record_untuned_enable "
                     "set_max_tuning_duration get_max_tuning_duration set_max_tuning_iterations get_max_tuning_iterations set_filename "
                     "get_filename get_results get_validators read_file tune_gemm_in_file mgpu_tune_gemm_in_file set_rotating_buffer_size "
                     "get_rotating_buffer_size set_numerical_check_tolerances"),
    "cuda.profiler": ("use torch.profiler", "profile start stop init"),
    "cuda.sparse": ("use torch.sparse", ""),
    "xpu.streams": ("there is no such device; use the CPU or an NVIDIA GPU", "Event Stream"),
    "mtia": ("there is no such device", "synchronize current_device set_device"),
    "numa.binding": ("use numactl", "AffinityMode NumaOptions"),
    "classes": ("TorchScript's classes are C++'s; write Python", "load_library"),
    "cuda.comm": (_PROCESSES, "broadcast broadcast_coalesced reduce_add reduce_add_coalesced scatter gather"),
    "distributed._shard.sharded_tensor": (_PROCESSES, "ShardedTensor Shard"),
    "distributed._symmetric_memory": (_PROCESSES, "empty rendezvous get_symm_mem_workspace"),
    "distributed.checkpoint.optimizer": ("use get_optimizer_state_dict and dcp.load", "load_sharded_optimizer_state_dict"),
    "distributed.utils": (_PROCESSES, "_verify_param_shape_across_processes _sync_module_states"),
    "fx.experimental.unification": (_UNIFIES, "Var isvar reify unifiable unify var variables vars"),
    "fx.experimental.unification.core": (_UNIFIES, "reify unify"),
    "fx.experimental.unification.variable": (_UNIFIES, "Var isvar var variables vars"),
    "fx.passes.utils.matcher_with_name_node_map_utils": ("use fx.replace_pattern", "SubgraphMatcherWithNameNodeMap InternalMatch"),
    "fx.passes.utils.source_matcher_utils": ("look at node.target", "get_source_partitions SourcePartition check_subgraphs_connected"),
    "fx.traceback": ("node.meta['stack'] has the user's lines", "NodeSource NodeSourceAction"),
    "nested._internal.ops": ("torch.nested computes by its own rules", "extract_kwargs"),
    "nn.attention.experimental": ("use scaled_dot_product_attention", ""),
    "nn.attention.experimental._scaled_dot_product_attention_quantized": ("use scaled_dot_product_attention", "_scaled_dot_product_attent "
                                                                                                              "ion_quantized"),
    "nn.intrinsic": (_FLOATS, "ConvBn2d ConvReLU2d LinearReLU"),
    "nn.qat": (_FLOATS, "Conv2d Linear"),
    "nn.quantizable": (_FLOATS, "LSTM MultiheadAttention"),
    "nn.quantized": (_FLOATS, "BatchNorm2d Conv1d Conv2d Conv3d Embedding EmbeddingBag FloatFunctional Linear QFunctional"),
    "nn.quantized.dynamic": (_FLOATS, "Linear LSTM"),
    "nn.parallel.comm": (_PROCESSES, "broadcast broadcast_coalesced reduce_add reduce_add_coalesced scatter gather"),
    "nn.parallel.parallel_apply": (_PROCESSES, "parallel_apply"),
    "nn.parallel.replicate": (_PROCESSES, "replicate"),
    "nn.parallel.scatter_gather": (_PROCESSES, "scatter scatter_kwargs gather is_namedtuple"),
    "onnx.ops": ("operators of ONNX have no form here: write torch's", "rotary_embedding attention symbolic symbolic_multi_out"),
    **dict.fromkeys(("onnx.symbolic_opset9", "onnx.symbolic_opset11", "onnx.symbolic_opset12"), _ONNX),
    "sparse._triton_ops": (_DENSE, "broadcast_batch_dims bsr_dense_addmm bsr_dense_mm"),
    "sparse._triton_ops_meta": (_DENSE, "get_meta minimize update"),
    "utils.bundled_inputs": (_EXPORT, "bundle_inputs augment_model_with_bundled_inputs"),
    "utils.data._utils.worker": ("write a DataLoader's worker_init_fn", "ManagerWatchdog _IterableDatasetStopIteration _ResumeIteration "
                                                                        "_worker_loop"),
    "utils.data._utils.signal_handling": ("the loader looks after its workers itself", "_set_worker_signal_handlers _set_worker_pids "
                                          "_remove_worker_pids _set_SIGCHLD_handler"),
    "_subclasses.schema_check_mode": ("torch.library.opcheck looks at what an operator does beside its schema", "SchemaCheckMode"),
    "testing._internal.composite_compliance": ("look at the operator's schema", "is_inplace is_inplace_view_fn is_view_fn"),
    "testing._internal.common_utils": ("write unittest or pytest", "parametrize subtest instantiate_parametrized_tests "
                                                                   "skipIfTorchDynamo IS_WINDOWS"),
    "testing._internal.common_distributed": ("write unittest or pytest", "MultiProcessTestCase MultiThreadedTestCase skip_if_lt_x_gpu "
                                                                         "requires_nccl"),
}


LEFT_OUT.update({f"quantization.{place}": LEFT_OUT[f"ao.quantization.{place}"]      # the older place
                 for place in ("fake_quantize", "fuse_modules", "observer", "qconfig", "quantize", "quantize_fx", "utils")})


def no(*_: object) -> bool:
    """False: it is not there."""
    return False


nothing: Final = contextlib.nullcontext
jit_enabled: Final = SimpleNamespace(enabled=True)


def same(fn: Any) -> Any:
    """A function as it is: what some decorators do."""
    return fn


def _parents(names: Sequence[str]) -> frozenset[str]:
    """The packages above these modules that are no rows themselves."""
    return frozenset(name.rsplit(".", n)[0] for name in names for n in range(1, name.count(".") + 1))


_PACKAGES: Final = _parents([*KEPT, *LEFT_OUT])
_ALL: Final = _PACKAGES | KEPT.keys() | LEFT_OUT.keys()


def knows(module: str) -> bool:
    """Whether a module of this name, `flambeau.` before it, can be made here if there is no file."""
    return module.startswith(f"{ROOM}.") and module.removeprefix(f"{ROOM}.") in _ALL


def inside(package: str) -> list[str]:
    """The modules that can be made right inside of a package."""
    below = package.removeprefix(ROOM).lstrip(".")
    return [row.rpartition(".")[2] for row in _ALL if row.rpartition(".")[0] == below]


def _lookup(row: str) -> Callable[[str], Any]:
    """The `__getattr__` of the module of a row."""
    source, kept = KEPT.get(row, ("", ""))
    homes = dict((name.partition("=")[::2] if "=" in name else (name, name)) for name in kept.split())
    instead, left_out = LEFT_OUT.get(row, ("", ""))
    absent = frozenset(left_out.split())
    here = f"{ROOM}.{row}"

    def lookup(name: str) -> Any:
        if name in homes:
            value = operator.attrgetter(homes[name])(importlib.import_module(f"{ROOM}.{source}".rstrip(".")))
        elif name in absent:
            value = absent_name(f"torch.{row}.{name}", instead)
        elif knows(f"{here}.{name}"):
            return importlib.import_module(f"{here}.{name}")
        else:
            raise AttributeError(f"module {here!r} has no attribute {name!r}")
        vars(sys.modules[here])[name] = value
        return value

    return lookup


class _Loader(Loader):
    """Fills a module of a row."""

    def exec_module(self, module: ModuleType) -> None:
        row = module.__name__.removeprefix(f"{ROOM}.")
        source, kept = KEPT.get(row, ("", ""))
        if kept == "*":
            sys.modules[module.__name__] = importlib.import_module(f"{ROOM}.{source}")
            return
        instead, left_out = LEFT_OUT.get(row, ("", ""))
        facts = [f"its names live in {ROOM}.{source}".rstrip(".") if kept else "", f"not implemented; {instead}" if left_out else ""]
        module.__doc__ = f"torch.{row}: {'; '.join(filter(None, facts)) or 'a package of such modules'}."
        names = [name.partition("=")[0] for name in kept.split()] + left_out.split()
        module.__all__ = [name for name in names if not name.startswith("_")]     # type: ignore[attr-defined]
        module.__getattr__ = _lookup(row)     # type: ignore[method-assign]
        shown = [*(name.partition("=")[0] for name in kept.split()), *inside(module.__name__)]
        module.__dir__ = lambda: sorted({*vars(module), *shown})    # type: ignore[method-assign]


class Homes(MetaPathFinder):
    """Answers imports of the modules of the tables that no file answers: it stands behind the other finders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not knows(fullname):
            return None
        return ModuleSpec(fullname, _Loader(), is_package=fullname.removeprefix(f"{ROOM}.") in _PACKAGES)


def install() -> None:
    """Ask the tables from here on. Again is harmless."""
    if not any(isinstance(finder, Homes) for finder in sys.meta_path):
        sys.meta_path.append(Homes())
    native: Any = importlib.import_module(f"{ROOM}._C")
    native.__path__ = []  # torch's is a package to importers: `torch._C._functorch`
