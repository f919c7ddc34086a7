"""Examples of the libraries that `help` shows (flambeau/_help.py), by namespace and name: statements, as a user writes them. `~` is the
full name itself. Those of operators and modules that need one stand in ops/examples.py."""

from __future__ import annotations

_V, _M = "torch.tensor([0.5, 1.0, 2.0])", "torch.tensor([[2.0, 1.0], [1.0, 3.0]])"
_CSR = f"{_M}.to_sparse_csr()"
_LAYER, _LINEAR, _BATCH = "layer = torch.nn.Linear(3, 2)\n", "torch.nn.Linear(3, 2)", "torch.nn.BatchNorm1d(2)"
_X = "x = torch.tensor([1.0, 2.0], requires_grad=True)\n"
_SGD = "torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)"
_CUBE = "lambda x: (x ** 3).sum()"
_CELL = "torch.ones(1, 3), torch.ones(1, 2), torch.ones(2, 3), torch.ones(2, 2)"
_LSTM = "torch.ones(1, 3), (torch.ones(1, 2), torch.ones(1, 2)), torch.ones(8, 3), torch.ones(8, 2)"
_GRU = "torch.ones(1, 3), torch.ones(1, 2), torch.ones(6, 3), torch.ones(6, 2)"
_GROUP = 'torch.distributed.init_process_group("fake", rank=0, world_size=2)\n'
_MESH = _GROUP + 'mesh = torch.distributed.init_device_mesh("cpu", (2,))\n'
_INDICES = "torch.tensor([[0, 1], [1, 0]]), torch.tensor([3.0, 4.0]), (2, 2)"
_OP = ('double = torch.library.custom_op("help::NAME", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")\n')
_STEP = "def step(x):\n    return x * 2\n"
_SCRIPT = "def f(x):\n    return x + 1\n"
_PIPE = "class Twice(torch.utils.data.IterDataPipe):\n"
_TASK = 'torch.utils.benchmark.TaskSpec("x + x", "x = 1")'
_COUNTS = "torch.utils.benchmark.FunctionCounts((torch.utils.benchmark.FunctionCount(3, 'f'),), inclusive=True)"
_EXPORTED = f"torch.export.export({_LINEAR}, (torch.ones(1, 3),))"
_FLOAT8 = "a = b = torch.ones(16, 32).to(torch.float8_e4m3fn)\n"
_OVERRIDES = ("class Mine:\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
              "        return f'my {func.__name__}'\n")


def _op(name: str) -> str:
    return _OP.replace("NAME", name)


EXAMPLES: dict[str, dict[str, str]] = {
    "": {
        "Event": "start = torch.cpu.Event()\nstart.record()\nstart.query()", "Stream": "torch.cpu.current_stream() == torch.cpu.Stream()",
        "ScriptFunction": _SCRIPT + "isinstance(torch.jit.script(f), ~)", "ScriptModule": "isinstance(torch.jit.script(torch.nn.ReLU()), ~)",
        "set_default_tensor_type": "torch.set_default_dtype(torch.float32)", "set_num_interop_threads": "~(1)",
        **dict.fromkeys(("sparse_bsc_tensor", "sparse_bsr_tensor"),
                        "torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()"),
        "view_scatter": f"torch.select_scatter({_M}, torch.zeros(2), 0, 1)", "setitem_": f"x = {_V}\nx[1:] = 0\nx",
        "scale_all_": f"x = {_V}\n~([x], 2.0)\nx", "recurrent_steps": "torch.nn.GRU(3, 2)(torch.ones(5, 1, 3))[0].shape",
        "sgd_step_": f"x = {_V}\n~([x], [torch.ones(3)], None, [False], 0.5, 0.0, 0.0, 0.0, False, False)\nx",
        "adam_step_":
            f"x, mean, square, step = {_V}, torch.zeros(3), torch.zeros(3), torch.ones(())\n"
            "~([x], [torch.ones(3)], [mean], [square], None, [step], 0.1, 0.9, 0.999, 1e-8, 0.0, False, False)\nx",
        "lstm_gates_backward": "~(torch.ones(1, 2), torch.zeros(1, 2), torch.ones(1, 8), torch.ones(1, 8), torch.zeros(1, 2))[1].shape",
        "cross_entropy_rows_backward": f"x = {_M}\ntop = x.amax(1)\n~(torch.ones(2), x, torch.tensor([0, 1]), top, x.logsumexp(1) - top)",
        "glu_backward": "~(torch.ones(1), torch.zeros(2), 0)",
        "avg_pool_backward": "~(torch.ones(1, 1, 2), (1, 1, 4), (2,), (2,), (0,), False, True, None)",
        "embedding_backward": f"~({_M}, torch.tensor([0, 2]), 3, None, False)",
        "flash_attention": "q = torch.ones(1, 1, 2, 4)\n~(q, q, q, False, 0.5)[0].shape",
        "flash_attention_backward":
            "q = torch.ones(1, 1, 2, 4)\nout, lse = torch.flash_attention(q, q, q, False, 0.5)\n~(out, q, q, q, out, lse, False, 0.5)[2].shape",
        "GradScaler": '~("cpu").get_scale()',
        "compiled_with_cxx11_abi": "~()", "alpha_dropout_": "torch.nn.functional.alpha_dropout(torch.ones(2), 0.5)",
        "block_diag": f"~({_M}, torch.ones(1, 1))", "cartesian_prod": "~(torch.tensor([1, 2]), torch.tensor([3, 4]))",
        "chain_matmul": "torch.linalg.multi_dot([torch.eye(2), torch.eye(2)])", "dot": f"~({_V}, {_V})",
        "fake_quantize_per_channel_affine": f"~({_M}, torch.ones(2), torch.zeros(2, dtype=torch.int32), 0, 0, 255)",
        "feature_alpha_dropout_": f"~({_M}, 0.5, True).shape", "feature_dropout_": f"~({_M}, 0.5, True).shape", "get_default_device": "~()",
        "split": f"~({_V}, 2)", "split_copy": f"~({_V}, 2)", "unsafe_split": f"~({_V}, 2)", "unsafe_split_with_sizes": f"~({_V}, [1, 2])",
        "unsqueeze_copy": f"~({_V}, 0)", "spmm": f"~({_M}.to_sparse(), torch.eye(2))",
        "fractional_max_pool3d": "~(torch.ones(1, 1, 4, 4, 4), 2, output_size=2).shape",
        "max_unpool3d": "~(*torch.nn.functional.max_pool3d(torch.ones(1, 1, 2, 2, 2), 2, return_indices=True), 2).shape",
        "one_hot": "~(torch.tensor([0, 2]), 3)", "geometric_": "torch.zeros(2).geometric_(0.5)",
        "put_": f"{_V}.put_(torch.tensor([0]), torch.tensor([9.0]))", "saddmm": f"~(torch.ones(2, 2), {_M}.to_sparse(), torch.eye(2))",
        "Generator": "torch.rand(2, generator=~().manual_seed(0))", "Size": "~([2, 3]).numel()", "Tensor": "~(2, 3).shape",
        "SymInt": "isinstance(3, ~)", "SymFloat": "isinstance(3.0, ~)", "SymBool": "isinstance(True, ~)",
        "TypedStorage": "torch.ones(2)._typed_storage().dtype",
        "UntypedStorage": "~(8).nbytes()", "dtype": "isinstance(torch.float32, ~)", "layout": "isinstance(torch.strided, ~)",
        "memory_format": "isinstance(torch.channels_last, ~)", "qscheme": "isinstance(torch.per_tensor_affine, ~)",
        "device": '~("cuda", 1).index',
        "affine_grid_generator": "~(torch.eye(2, 3).unsqueeze(0), (1, 1, 2, 2), True).shape", "as_strided_": f"~({_V}, (2,), (2,))",
        "as_strided_copy": f"~({_V}, (2,), (2,))", "detach_copy": f"~({_V})", "permute_copy": f"~({_M}, (1, 0))",
        "select_copy": f"~({_M}, 0, 1)",
        "t_copy": f"~({_M})", "transpose_copy": f"~({_M}, 0, 1)", "unfold_copy": f"~({_V}, 0, 2, 1)",
        "view_as_complex_copy": "~(torch.ones(2, 2))",
        "view_as_real_copy": "~(torch.tensor([1 + 2j]))", "dequantize": f"~({_V})", "detach_": f"~({_V})",
        "resize_as_": f"~({_V}, torch.ones(2))",
        "resize_as_sparse_": "~(torch.eye(2).to_sparse(), torch.zeros(2, 3).to_sparse())",
        "are_deterministic_algorithms_enabled": "~()", "broadcast_shapes": "~((2, 1), (3,))", "can_cast": "~(torch.float64, torch.int64)",
        "autocast": 'with ~("cpu", torch.bfloat16):\n    y = torch.ones(2, 2) @ torch.ones(2, 2)\ny.dtype', "clear_autocast_cache": "~()",
        "addmv_": "~(torch.zeros(2), torch.ones(2, 3), torch.ones(3))", "clamp_": f"~({_V}, max=1.0)",
        "compile": f"f = ~({_CUBE})\nf({_V})", "cond": f"~(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, ({_V},))",
        "conv_tbc": "~(torch.ones(4, 1, 2), torch.ones(3, 2, 5), torch.zeros(5)).shape",
        "convolution": "~(torch.ones(1, 1, 4), torch.ones(1, 1, 3), None, [1], [0], [1], False, [0], 1)",
        "enable_grad": "with torch.no_grad(), ~():\n    enabled = torch.is_grad_enabled()\nenabled", "finfo": "~(torch.float16).max",
        "iinfo": "~(torch.int8).min", "fork": f"torch.jit.wait(~(torch.sin, {_V}))", "wait": f"~(torch.jit.fork(torch.sin, {_V}))",
        "from_file": 'import tempfile\n~(tempfile.mktemp(), shared=True, size=2).shape',
        "get_autocast_dtype": '~("cpu")', "get_device": f"~({_V})", "get_device_module": '~("cpu").__name__',
        "grid_sampler": "~(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 1, 2), 0, 0, True)", "rnn_relu_cell": f"~({_CELL})",
        "rnn_tanh_cell": f"~({_CELL})",
        "gru_cell": f"~({_GRU})", "lstm_cell": f"~({_LSTM})[0]", "inference_mode": f"with ~():\n    y = {_V} * 2\ny.is_inference()",
        "init_num_threads": "~()", "initial_seed": "~()", "is_complex": f"~({_V})", "is_conj": f"~({_V})", "is_distributed": f"~({_V})",
        "is_floating_point": f"~({_V})", "is_inference": f"~({_V})", "is_neg": f"~({_V})", "is_signed": f"~({_V})", "numel": f"~({_M})",
        "is_storage": f"~({_V}.untyped_storage())", "is_tensor": "~([1, 2])", "istft":
        "w = torch.ones(4)\n~(torch.stft(torch.ones(8), 4, window=w, return_complex=True), 4, window=w).shape",
        "load": "import io\nfile = io.BytesIO()\ntorch.save(torch.ones(2), file)\nfile.seek(0)\n~(file)",
        "save": "import io\nfile = io.BytesIO()\n~({'weight': torch.ones(2)}, file)",
        "lobpcg": "~(torch.diag(torch.arange(1.0, 10.0)), k=1)[0].shape",
        "manual_seed": "~(0)\ntorch.rand(2)", "seed": "~()", "set_rng_state": "~(torch.get_rng_state())",
        "native_batch_norm": "~(torch.ones(2, 2), None, None, torch.zeros(2), torch.ones(2), False, 0.1, 1e-5)[0]",
        "native_group_norm": "~(torch.ones(1, 2, 3), None, None, 1, 2, 3, 1, 1e-5)[0]",
        "no_grad": f"{_X}with ~():\n    y = x * 2\ny.requires_grad",
        "nonzero_static": "~(torch.tensor([0, 3, 4]), size=3)", "ormqr": "~(*torch.geqrf(torch.eye(2)), torch.eye(2))",
        "parse_schema": '~("f(Tensor x) -> Tensor").name', "pca_lowrank": "~(torch.ones(4, 3), q=1)[1].shape",
        "svd_lowrank": "~(torch.ones(4, 3), q=1)[1].shape",
        "promote_types": "~(torch.int32, torch.float16)", "result_type": f"~({_V}, 2)", "range": "torch.arange(1, 3)",
        "rrelu": f"~({_V})", "rrelu_": f"~({_V})",
        "smm": f"~({_M}.to_sparse(), torch.eye(2)).to_dense()", "sspaddmm": f"~({_M}.to_sparse(), {_M}.to_sparse(), torch.eye(2)).to_dense()",
        "hspmm": f"~({_M}.to_sparse(), torch.eye(2)).to_dense()",
        "set_anomaly_enabled": "~(False)", "set_autocast_cache_enabled": "~(True)", "set_autocast_dtype": '~("cpu", torch.bfloat16)',
        "set_autocast_enabled": '~("cpu", False)', "set_default_device": '~("cpu")', "set_default_dtype": "~(torch.float32)",
        "set_deterministic_debug_mode": '~("default")', "set_flush_denormal": "~(False)",
        "set_float32_matmul_precision": '~("highest")',
        "set_grad_enabled": "with ~(False):\n    y = torch.ones(2, requires_grad=True) * 2\ny.requires_grad",
        "set_num_threads": "~(torch.get_num_threads())", "set_printoptions": "~(precision=4)", "set_warn_always": "~(False)",
        "sparse_compressed_tensor": "~([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2), layout=torch.sparse_csr).to_dense()",
        "sparse_coo_tensor": f"~({_INDICES}).to_dense()", "sparse_csr_tensor": "~([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()",
        "sparse_csc_tensor": "~([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()",

        "sym_float": "~(3)", "sym_int": "~(3.5)", "sym_ite": "~(True, 1, 2)", "sym_max": "~(3, 4)", "sym_min": "~(3, 4)", "sym_not": "~(False)",
        "sym_sqrt": "~(4)", "sym_sum": "~([1, 2, 3])", "thread_safe_generator": "~()", "to_dlpack": f"torch.from_dlpack(~({_V}))",
        "typename": f"~({_V})", "use_deterministic_algorithms": "~(False)", "vmap": f"~(lambda row: row.sum())({_M})",
        "while_loop": "~(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))", "values_copy": f"~({_CSR})",
        "row_indices_copy": f"~({_M}.to_sparse_csc())",
        "ccol_indices_copy": f"~({_M}.to_sparse_csc())", "col_indices_copy": f"~({_CSR})", "crow_indices_copy": f"~({_CSR})",
        "indices_copy": f"~({_M}.to_sparse().coalesce())", "max_pool1d_with_indices": "~(torch.ones(1, 1, 4), 2)[0]",
        "Future": "f = torch.futures.Future()\nf.set_result(3)\nf.wait()",
    },
    "Tensor": {
        "cuda": "torch.ones(2).cuda()  # or device='cuda'", "pin_memory": "torch.ones(2).pin_memory().to('cuda')",
        "record_stream": "torch.ones(2, device='cuda').record_stream(torch.cuda.Stream())",
        "addr_": f"torch.zeros(2, 3).addr_(torch.ones(2), {_V})", "apply_": f"{_V}.apply_(lambda x: 2 * x)",
        "as_subclass": f"type({_V}.as_subclass(torch.nn.Parameter)).__name__",
        "backward": f"{_X}(x * x).sum().backward()\nx.grad",
        "baddbmm_": "torch.zeros(1, 2, 2).baddbmm_(torch.ones(1, 2, 3), torch.ones(1, 3, 2))",
        "broadcast_to": f"{_V}.broadcast_to(2, 3)", "ccol_indices": f"{_M}.to_sparse_csc().ccol_indices()",
        "row_indices": f"{_M}.to_sparse_csc().row_indices()",
        "coalesce": f"torch.sparse_coo_tensor({_INDICES}).coalesce().values()", "col_indices": f"{_CSR}.col_indices()",
        "crow_indices": f"{_CSR}.crow_indices()",
        "cumprod_": f"{_V}.cumprod_(0)", "cumsum_": f"{_V}.cumsum_(0)", "indices": f"{_M}.to_sparse().coalesce().indices()",
        "is_coalesced": f"{_M}.to_sparse().is_coalesced()", "is_distributed": f"{_V}.is_distributed()",
        "map2_": f"{_V}.map2_(torch.ones(3), torch.ones(3), lambda a, b, c: a + b + c)",
        "map_": f"{_V}.map_(torch.ones(3), lambda a, b: a + b)", "polygamma": f"{_V}.polygamma(1)", "polygamma_": f"{_V}.polygamma_(1)",
        "register_hook": f"{_X}x.register_hook(lambda g: 2 * g)\nx.sum().backward()\nx.grad",
        "register_post_accumulate_grad_hook": f"{_X}handle = x.register_post_accumulate_grad_hook(lambda p: print(p.grad))\nhandle.remove()",
        "retain_grad": f"{_X}y = x * 2\ny.retain_grad()\ny.sum().backward()\ny.grad",
        "sparse_mask": f"{_M}.sparse_mask(torch.eye(2).to_sparse().coalesce()).to_dense()",
        "sparse_resize_": "torch.sparse_coo_tensor(size=(2, 2)).sparse_resize_((3, 3), 2, 0).shape", "values": f"{_CSR}.values()",
        "sparse_resize_and_clear_": "torch.sparse_coo_tensor(size=(2, 2)).sparse_resize_and_clear_((3, 3), 2, 0).shape",
        "sspaddmm": f"{_M}.to_sparse().sspaddmm({_M}.to_sparse(), torch.eye(2)).to_dense()",
        "swapaxes_": "torch.ones(2, 3).swapaxes_(0, 1).shape",
        "swapdims_": "torch.ones(2, 3).swapdims_(0, 1).shape", "transpose_": "torch.ones(2, 3).transpose_(0, 1).shape",
        "unsqueeze_": f"{_V}.unsqueeze_(0)",

        "where": f"{_V}.where({_V} > 0.75, torch.zeros(3))",
    },
    "nn.functional": {
        "handle_torch_function": _OVERRIDES + "torch.overrides.handle_torch_function(torch.sin, (Mine(),), Mine())",
        "scaled_mm":
            _FLOAT8 + "kind = torch.nn.functional.ScalingType.TensorWise\n"
            "~(a, b.t(), torch.tensor(2.0), kind, torch.tensor(0.5), kind, output_dtype=torch.float32).shape",
        "scaled_grouped_mm":
            _FLOAT8 + "kind, ends = torch.nn.functional.ScalingType.RowWise, torch.tensor([10, 16], dtype=torch.int32)\n"
            "b = b.expand(2, 16, 32).transpose(1, 2)\n"
            "~(a, b, torch.ones(16), kind, torch.ones(2, 16), kind, offs=ends, output_dtype=torch.float32).shape",
        **{f"adaptive_max_pool{n}d_with_indices": f"~(torch.ones(1, 1, {', '.join('4' * n)}), 2)[0].shape" for n in (1, 2, 3)},
        **{f"max_pool{n}d_with_indices": f"~(torch.ones(1, 1, {', '.join('4' * n)}), 2)[0].shape" for n in (2, 3)},
        **{f"fractional_max_pool{n}d_with_indices": f"~(torch.ones(1, 1, {', '.join('4' * n)}), 2, output_size=2)[0].shape" for n in (2, 3)},
        "assert_int_or_pair": '~(2, "kernel_size", "kernel_size is one number or two")',
        "boolean_dispatch": '~("twice", 1, False, lambda x, twice: 2 * x, lambda x, twice: x, "mine", "scaled")(3, True)',
        "log_softmax": f"~({_V}, dim=0)", "softmax": f"~({_V}, dim=0)", "softmin": f"~({_V}, dim=0)",

        "multi_head_attention_forward":
            "q = torch.ones(3, 1, 2)\n~(q, q, q, 2, 1, torch.ones(6, 2), None, None, None, False, 0.0, torch.eye(2), None)[0].shape",
        "upsample": "torch.nn.functional.interpolate(torch.ones(1, 1, 2), scale_factor=2)",
        "upsample_bilinear": 'torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2, mode="bilinear").shape',
        "upsample_nearest": 'torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2, mode="nearest").shape',
    },
    "nn": {
        "AdaptiveLogSoftmaxWithLoss": "~(4, 10, cutoffs=[5])(torch.ones(2, 4), torch.tensor([1, 7]))[0].shape", "Buffer": "~(torch.ones(2))",
        "Parameter": "~(torch.ones(2))", "Container": "torch.nn.Sequential(torch.nn.ReLU())(torch.tensor([-1.0, 2.0]))",
        "DataParallel": f"~({_LINEAR})(torch.ones(4, 3)).shape", "FractionalMaxPool3d": "~(2, output_size=2)(torch.ones(1, 1, 4, 4, 4)).shape",
        **{f"LazyInstanceNorm{n}d": f"~(affine=True)(torch.ones(1, 2, {', '.join('4' * n)})).shape" for n in (1, 2, 3)},
        "LinearCrossEntropyOptions": "~()",
        "MaxUnpool3d": "~(2)(*torch.nn.MaxPool3d(2, return_indices=True)(torch.ones(1, 1, 2, 2, 2))).shape",
        "UninitializedParameter": "p = ~()\nisinstance(p, torch.nn.Parameter)",
        "UninitializedBuffer": "b = ~()\nisinstance(b, torch.Tensor)",
        "Module": "class Double(~):\n    def forward(self, x):\n        return 2 * x\nDouble()(torch.ones(2))",
        "RNNBase": '~("GRU", 3, 2)(torch.ones(4, 3))[0].shape',
        "RNNCellBase": "isinstance(torch.nn.GRUCell(3, 2), ~)", "factory_kwargs": '~({"dtype": torch.float64})',
        "NLLLoss2d": "torch.nn.NLLLoss()(torch.zeros(1, 2, 1), torch.tensor([[1]]))",
    },
    "optim": {
        "swap_in_optimizer_params_and_state":
            f"sgd, other = {_SGD}, torch.zeros(2, requires_grad=True)\nwith ~(sgd, {{'0': other}}, sgd.state_dict()):\n    pass",
        "Muon": "~([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1).param_groups[0]['lr']", "Optimizer": f"isinstance({_SGD}, ~)",
    },
    "optim.lr_scheduler": {
        "ChainedScheduler": f"optimizer = {_SGD}\nhalves = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)\n~([halves]).get_last_lr()",
        "LRScheduler": f"isinstance(torch.optim.lr_scheduler.StepLR({_SGD}, 1), ~)",
        "LambdaLR": f"~({_SGD}, lambda step: 0.5 ** step).get_last_lr()",
        "MultiplicativeLR": f"~({_SGD}, lambda step: 0.5).get_last_lr()",
        "OneCycleLR": f"~({_SGD}, max_lr=1.0, total_steps=10, cycle_momentum=False).get_last_lr()",
        "SequentialLR":
            f"optimizer = {_SGD}\nfirst, then = (torch.optim.lr_scheduler.ExponentialLR(optimizer, g) for g in (0.5, 0.9))\n"
            "~(optimizer, [first, then], milestones=[2]).get_last_lr()",
    },
    "optim.swa_utils": {
        "AveragedModel": f"average = ~({_LINEAR})\naverage.n_averaged", "update_bn": "~([torch.ones(2, 2)], torch.nn.BatchNorm1d(2))",
        "get_ema_avg_fn": "~(0.5)(torch.zeros(1), torch.ones(1), 1)", "get_swa_avg_fn": "~()(torch.zeros(1), torch.ones(1), 1)",
        "get_ema_multi_avg_fn": "~(0.5)([torch.zeros(1)], [torch.ones(1)], 1)",
        "get_swa_multi_avg_fn": "~()([torch.zeros(1)], [torch.ones(1)], 1)",
    },
    "nn.init": {"calculate_gain": '~("relu")', "dirac_": "~(torch.empty(1, 1, 3))",
                **{old: f"torch.nn.init.{old}_(torch.empty({shape}){more})" for old, shape, more in (
                    ("constant", 2, ", 3.0"), ("dirac", "1, 1, 3", ""), ("eye", "2, 2", ""),
                    ("kaiming_normal", "2, 3", ""), ("kaiming_uniform", "2, 3", ""),
                    ("orthogonal", "2, 2", ""), ("sparse", "2, 2", ", 0.5"), ("uniform", 2, ""), ("normal", 2, ""),
                    ("xavier_normal", "2, 3", ""), ("xavier_uniform", "2, 3", ""))}},
    "nn.utils": {
        "remove_weight_norm":
            f'torch.nn.utils.parametrize.remove_parametrizations(torch.nn.utils.parametrizations.weight_norm({_LINEAR}), "weight")',
        "clip_grad_norm": f"torch.nn.utils.clip_grad_norm_({_LINEAR}.parameters(), 1.0)", "clip_grad_norm_": f"~({_LINEAR}.parameters(), 1.0)",
        "clip_grad_value_": f"~({_LINEAR}.parameters(), 0.5)", "clip_grads_with_norm_": f"~({_LINEAR}.parameters(), 1.0, torch.tensor(2.0))",
        "convert_conv2d_weight_memory_format": "~(torch.nn.Conv2d(2, 3, 3), torch.channels_last)",
        "convert_conv3d_weight_memory_format": "~(torch.nn.Conv3d(2, 3, 3), torch.channels_last_3d)",
        "fuse_conv_bn_eval": "~(torch.nn.Conv2d(1, 2, 3).eval(), torch.nn.BatchNorm2d(2).eval())",
        "fuse_linear_bn_eval": f"~({_LINEAR}.eval(), {_BATCH}.eval())",
        "fuse_conv_bn_weights": "~(torch.ones(2, 1, 3, 3), None, torch.zeros(2), torch.ones(2), 1e-5, None, None)[1]",
        "fuse_linear_bn_weights": "~(torch.ones(2, 3), None, torch.zeros(2), torch.ones(2), 1e-5, torch.ones(2), torch.zeros(2))[1]",
        "get_total_norm": f"~([{_V}, torch.ones(2)])", "parameters_to_vector": f"~({_LINEAR}.parameters()).shape",
        "vector_to_parameters": f"{_LAYER}~(torch.zeros(8), layer.parameters())\nlayer.bias", "skip_init": "~(torch.nn.Linear, 3, 2)",
        "spectral_norm": f"~({_LINEAR})", "weight_norm": f"torch.nn.utils.parametrizations.weight_norm({_LINEAR})",
        "remove_spectral_norm": f"~(torch.nn.utils.spectral_norm({_LINEAR}))",
    },
    "nn.utils.rnn": {
        "PackedSequence": "~(torch.tensor([1, 2, 3]), torch.tensor([2, 1]))", "invert_permutation": "~(torch.tensor([2, 0, 1]))",
        "pack_padded_sequence": "~(torch.ones(3, 2, 1), [3, 1]).batch_sizes", "pack_sequence": "~([torch.ones(3), torch.ones(1)]).batch_sizes",
        "pad_packed_sequence": "~(torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(1)]))[0]",
        "pad_sequence": "~([torch.ones(3), torch.ones(1)], batch_first=True)",
        "unpack_sequence": "~(torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(1)]))",
        "unpad_sequence": "~(torch.ones(3, 2), torch.tensor([3, 1]))",
    },
    "nn.utils.parametrizations": dict.fromkeys(("orthogonal", "spectral_norm", "weight_norm"), f"~({_LINEAR})(torch.ones(1, 3)).shape"),
    "nn.utils.parametrize": {
        "ParametrizationList": f"type(torch.nn.utils.parametrizations.weight_norm({_LINEAR}).parametrizations.weight).__name__",
        "cached": "with ~():\n    pass",
        "is_parametrized": f"~({_LINEAR})", "register_parametrization": f'~({_LINEAR}, "weight", torch.nn.ReLU())(torch.ones(1, 3)).shape',
        "remove_parametrizations": f'~(torch.nn.utils.parametrizations.weight_norm({_LINEAR}), "weight")',
        "type_before_parametrizations": f"~({_LINEAR})",
        "transfer_parametrizations_and_params": f"~(torch.nn.utils.parametrizations.weight_norm({_LINEAR}), {_LINEAR})",
    },
    "nn.utils.prune": {
        "BasePruningMethod": "issubclass(torch.nn.utils.prune.L1Unstructured, ~)", "CustomFromMask": f"~(torch.tensor([1, 0, 1])).prune({_V})",
        "Identity": f"~().prune({_V})",
        "L1Unstructured": f"~(1).prune({_V})", "LnStructured": f"~(1, n=2, dim=0).prune({_M})",
        "RandomStructured": f"~(1, dim=0).prune({_M}).shape",
        "RandomUnstructured": f"~(1).prune({_V}).shape", "PruningContainer": "len(~())",
        "custom_from_mask": f'~({_LINEAR}, "bias", torch.tensor([1, 0])).bias_mask',
        "global_unstructured": f'{_LAYER}~([(layer, "weight")], torch.nn.utils.prune.L1Unstructured, amount=3)\nlayer.weight_mask.sum()',
        "identity": f'~({_LINEAR}, "bias").bias_mask',
        "is_pruned": f"~({_LINEAR})", "l1_unstructured": f'~({_LINEAR}, "weight", 3).weight_mask.sum()',
        "ln_structured": f'~({_LINEAR}, "weight", 1, n=2, dim=0).weight_mask.sum()',
        "random_structured": f'~({_LINEAR}, "weight", 1, dim=0).weight_mask.sum()',
        "random_unstructured": f'~({_LINEAR}, "weight", 3).weight_mask.sum()',
        "remove": f'~(torch.nn.utils.prune.identity({_LINEAR}, "bias"), "bias")',
    },
    "nn.attention": {
        "activate_flash_attention_impl":
            'torch.nn.attention.register_flash_attention_impl("none", register_fn=lambda: torch.utils.hooks.RemovableHandle({}))\n~("none")\n'
            "torch.nn.attention.restore_flash_attention_impl()",
        "register_flash_attention_impl": '~("mine", register_fn=lambda: None)\n"mine" in torch.nn.attention.list_flash_attention_impls()',
        "current_flash_attention_impl": "~()", "list_flash_attention_impls": "~()",
        "restore_flash_attention_impl": "~()",
        "sdpa_kernel":
            "q = torch.ones(1, 1, 2, 4)\nwith ~(torch.nn.attention.SDPBackend.MATH):\n"
            "    out = torch.nn.functional.scaled_dot_product_attention(q, q, q)\nout.shape",
    },
    "nn.attention.flex_attention": {
        "FlexKernelOptions": "~(BLOCK_M=64)",
        "AuxOutput": "~(lse=torch.zeros(1))", "AuxRequest": "~(lse=True)",
        "and_masks": "f = ~(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2)\nf(0, 0, torch.tensor(3), torch.tensor(2))",
        "BlockMask": "isinstance(torch.nn.attention.flex_attention.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128), ~)",
        "create_block_mask": "~(lambda b, h, q, k: q >= k, 1, 1, 128, 128).shape", "create_mask": "~(lambda b, h, q, k: q >= k, 1, 1, 2, 2)",
        "flex_attention": "q = torch.ones(1, 1, 2, 4)\n~(q, q, q, lambda score, b, h, i, j: score * 2).shape",
        "noop_mask": "~(*torch.zeros(4, dtype=torch.int64))",
        "or_masks": "f = ~(lambda b, h, q, k: q >= k, lambda b, h, q, k: k == 0)\nf(0, 0, torch.tensor(1), torch.tensor(2))",
    },
    "autograd": {
        "detect_anomaly": "import warnings\nwith warnings.catch_warnings(action='ignore'), ~():\n    y = torch.ones(2).sin()",
        "enforce_grad_layout_policy": "with ~(True):\n    pass",
        "save_on_cpu": f"{_X}with ~():\n    y = (x * x).sum()\ny.backward()\nx.grad",
        "saved_tensors_hooks": f"{_X}with ~(lambda t: t.numpy(), torch.from_numpy):\n    y = (x * 2).sum()\ny",
        "Function":
            "class Square(~):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x\n"
            "\n    @staticmethod\n    def backward(ctx, g):\n        return 2 * ctx.saved_tensors[0] * g\n"
            f"{_X}Square.apply(x).sum().backward()\nx.grad",
        "Variable": "~(torch.ones(2))", "backward": f"{_X}~((x * x).sum())\nx.grad",
        "grad": f"{_X}~((x * x).sum(), x)", "gradcheck": "~(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True))",
        "gradgradcheck": "~(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True))", "has_torch_function": f"~(({_V},))",
        "set_detect_anomaly": "with ~(False):\n    pass", "set_multithreading_enabled": "with ~(False):\n    pass",
    },
    "autograd.functional": {
        "hessian": f"~({_CUBE}, torch.tensor([1.0, 2.0]))", "jacobian": f"~(torch.sin, {_V})", "hvp": f"~({_CUBE}, {_V}, torch.ones(3))[1]",
        "jvp": f"~(torch.sin, {_V}, torch.ones(3))[1]", "vjp": f"~(torch.sin, {_V}, torch.ones(3))[1]",
        "vhp": f"~({_CUBE}, {_V}, torch.ones(3))[1]",
    },
    "autograd.forward_ad": {
        "UnpackedDualTensor": "~(torch.ones(1), None).primal",
        "dual_level":
            f"with ~():\n    dual = torch.autograd.forward_ad.make_dual({_V}, torch.ones(3))\n"
            "    slope = torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent\nslope",
        "enter_dual_level": "level = ~()\ntorch.autograd.forward_ad.exit_dual_level(level=level)",
        "exit_dual_level": "torch.autograd.forward_ad.enter_dual_level()\n~()",
        "make_dual":
            "with torch.autograd.forward_ad.dual_level():\n"
            f"    slope = torch.autograd.forward_ad.unpack_dual(~({_V}, torch.ones(3)) * 2).tangent\nslope",
        "unpack_dual":
            f"with torch.autograd.forward_ad.dual_level():\n    parts = ~(torch.autograd.forward_ad.make_dual({_V}, torch.ones(3)))\n"
            "parts.tangent",
    },
    "autograd.graph": {
        "region_activation_memory_budget": f"torch.utils.checkpoint.checkpoint(torch.sin, {_V}, use_reentrant=False)",
        "set_override_stale_capture_stream": "~(False)", "set_warn_on_accumulate_grad_stream_mismatch": "~(False)",
        "GradientEdge": f"{_X}isinstance(torch.autograd.graph.get_gradient_edge(x), ~)", "Node": f"{_X}isinstance((x * 2).grad_fn, ~)",
        "RemovableHandle": f"{_X}x.register_hook(lambda g: g).remove()",
        "allow_mutation_on_saved_tensors":
            f"with ~():\n    {_X}    y = x.clone()\n    z = (y * y).sum()\n    y.mul_(2)\n    z.backward()\nx.grad",
        "increment_version": f"x = {_V}\n~(x)\nx._version",
        "disable_saved_tensors_hooks": 'with ~("no hooks here"):\n    pass', "get_gradient_edge": f"{_X}~(x * 2).output_nr",
        "register_multi_grad_hook": f"{_X}~([x], print).remove()",

    },
    "autograd.profiler": {
        "FunctionEvent": '~(0, "aten::sin", 0, 1.0, 3.5).cpu_time_total',
        "KinetoStepTracker": '~.init_step_count("mine")\n~.increment_step("mine")',
        "MemRecordsAcc":
            "class Record:\n    def start_ns(self):\n        return 5000\nlen(list(~([(Record(), 64)]).in_interval(0, 10)))",
        "emit_nvtx": "with ~():\n    y = torch.ones(2, device='cuda').sin()",
        "emit_itt": "with ~(enabled=False):  # True needs ittapi\n    y = torch.ones(2).sin()",
        "EnforceUnique": "~().see('key')", "EventList": "len(~([]))",
        "kineto_available": "~()", "profile": f"with ~() as taken:\n    {_V}.sin()\nlen(taken.function_events) > 0",
        "record_function":
            f'with torch.autograd.profiler.profile() as taken, ~("mine"):\n    {_V}.sin()\n'
            'any(e.name == "mine" for e in taken.function_events)',
    },
    "func": {
        "debug_unwrap": f"~({_V})", "functional_call": f'~({_LINEAR}, {{"bias": torch.zeros(2)}}, (torch.ones(1, 3),)).shape',
        "functionalize": f"~(lambda x: x.add_(1))({_V})",
        "grad": f"~({_CUBE})({_V})", "grad_and_value": f"~({_CUBE})({_V})", "hessian": f"~({_CUBE})(torch.tensor([1.0, 2.0]))",
        "jacfwd": f"~(torch.sin)({_V})", "jacrev": f"~(torch.sin)({_V})",
        "jvp": f"~(torch.sin, ({_V},), (torch.ones(3),))", "linearize": f"value, f = ~(torch.sin, {_V})\nf(torch.ones(3))",
        "rearrange": '~(torch.ones(2, 3), "a b -> b a").shape',
        "replace_all_batch_norm_modules_": "~(torch.nn.BatchNorm1d(2)).running_mean",
        "stack_module_state": f"~([{_LINEAR}, {_LINEAR}])[0]['bias'].shape", "vjp": f"value, f = ~(torch.sin, {_V})\nf(torch.ones(3))",
        "vmap": f"~(lambda row: row.sum())({_M})",
    },
    "amp": {
        "custom_bwd": 'backward = ~(lambda ctx, g: g, device_type="cuda")', "custom_fwd": 'forward = ~(lambda ctx, x: x, device_type="cuda")',
        "is_autocast_available": '~("cpu")', "GradScaler": '~("cpu").get_scale()',
    },
    "signal.windows": {"general_cosine": "~(4, a=[0.5, 0.5])"},
    "nested": {
        "nested_tensor": "~([torch.arange(2), torch.arange(3)])", "as_nested_tensor": "~([torch.ones(1), torch.zeros(2)])",
        "nested_tensor_from_jagged": "~(torch.arange(5), torch.tensor([0, 2, 5])).unbind()",
        "to_padded_tensor": "~(torch.nested.nested_tensor([[1, 2], [3]]), 0)",
        "narrow": "~(torch.eye(3), 1, 0, torch.tensor([1, 2, 3]), layout=torch.jagged).unbind()",
        "masked_select": f"~({_M}, {_M} > 1).unbind()",
    },
    "sparse": {
        "addmm": f"~(torch.zeros(2, 2), {_M}.to_sparse(), torch.eye(2))", "mm": f"~({_M}.to_sparse(), torch.eye(2))",
        "as_sparse_gradcheck": "~(torch.autograd.gradcheck)",
        "check_sparse_tensor_invariants": "with ~():\n    x = torch.eye(2).to_sparse()\nx.shape",
        "sampled_addmm": f"~({_CSR}, torch.eye(2), torch.eye(2)).to_dense()",
        "spdiags": "~(torch.ones(1, 2), torch.tensor([0]), (2, 2)).to_dense()",
        "log_softmax": f"~({_M}.to_sparse(), 1).to_dense()", "softmax": f"~({_M}.to_sparse(), 1).to_dense()", "sum": f"~({_M}.to_sparse())",
    },
        "random": {"fork_rng": "with ~():\n    torch.manual_seed(1)\n    x = torch.rand(1)\nx.shape"},
    "masked": dict.fromkeys(("MaskedTensor", "masked_tensor", "as_masked_tensor"), "~(torch.ones(2), torch.tensor([True, False])).sum()"),
    "quasirandom": {"SobolEngine": "~(2).draw(2)"},
    "distributions": {
        "register_kl":
            "class Mine(torch.distributions.Normal):\n    pass\n\n@~(Mine, Mine)\ndef kl(p, q):\n    return p.loc - q.loc\n"
            "torch.distributions.kl_divergence(Mine(2.0, 1.0), Mine(0.5, 1.0))",
        **{name: f"~({given}).sample()" for name, given in {
            "Bernoulli": "torch.tensor(0.5)", "Binomial": "10, torch.tensor(0.5)", "Categorical": "torch.tensor([0.5, 0.5])",
            "ContinuousBernoulli": "torch.tensor(0.25)",
            "Geometric": "torch.tensor(0.5)", "Multinomial": "3, torch.tensor([0.5, 0.5])", "NegativeBinomial": "3, torch.tensor(0.5)",
            "OneHotCategorical": "torch.tensor([0.5, 0.5])",
            "OneHotCategoricalStraightThrough": "torch.tensor([0.5, 0.5])", "RelaxedBernoulli": "torch.tensor(1.0), torch.tensor(0.5)",
            "RelaxedOneHotCategorical": "torch.tensor(1.0), torch.tensor([0.5, 0.5])", "MultivariateNormal": "torch.zeros(2), torch.eye(2)",
            "LowRankMultivariateNormal": "torch.zeros(2), torch.ones(2, 1), torch.ones(2)", "Wishart": "torch.tensor(3.0), torch.eye(2)",
            "Independent": "torch.distributions.Normal(torch.zeros(2), 1.0), 1",
            "TransformedDistribution": "torch.distributions.Normal(0.0, 1.0), torch.distributions.ExpTransform()",
            "MixtureSameFamily":
                "torch.distributions.Categorical(torch.ones(2)), torch.distributions.Normal(torch.zeros(2), torch.ones(2))"}.items()},
        "CatTransform": "~([torch.distributions.ExpTransform()])(torch.zeros(1))",
        "ComposeTransform": f"~([torch.distributions.ExpTransform()])({_V})", "CorrCholeskyTransform": "~()(torch.ones(1))",
        "CumulativeDistributionTransform": f"~(torch.distributions.Normal(0.0, 1.0))({_V})",
        "Distribution": "issubclass(torch.distributions.Normal, ~)", "ExponentialFamily": "issubclass(torch.distributions.Normal, ~)",
        "IndependentTransform": f"~(torch.distributions.ExpTransform(), 1)({_V})", "LowerCholeskyTransform": f"~()({_M})",
        "PositiveDefiniteTransform": f"~()({_M})",
        "ReshapeTransform": "~((2, 2), (4,))(torch.ones(2, 2))", "StackTransform": "~([torch.distributions.ExpTransform()])(torch.zeros(1))",
        "Transform": "issubclass(torch.distributions.ExpTransform, ~)",
        "identity_transform": f"~({_V})", "kl_divergence": "~(torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(1.0, 1.0))",
        "biject_to": f"~(torch.distributions.constraints.positive)({_V})", "transform_to": f"~(torch.distributions.constraints.positive)({_V})",
    },
    "distributions.constraints": {
        "dependent_property":
            "class Mine:\n    @~(is_discrete=False)\n    def support(self):\n        return torch.distributions.constraints.positive\n"
            "Mine().support.check(torch.ones(1))",
        "Constraint": "isinstance(torch.distributions.constraints.positive, ~)",
        "MixtureSameFamilyConstraint": "~(torch.distributions.constraints.positive).check(torch.ones(2))",
        "cat": "~([torch.distributions.constraints.positive]).check(torch.ones(1))",
        "stack": "~([torch.distributions.constraints.positive]).check(torch.ones(1))",
        "greater_than": f"~(0.75).check({_V})", "greater_than_eq": f"~(1.0).check({_V})", "half_open_interval": f"~(0.5, 2.0).check({_V})",
        "integer_interval": f"~(1, 2).check({_V})", "interval": f"~(0.5, 1.0).check({_V})",
        "independent": f"~(torch.distributions.constraints.positive, 1).check({_V})",
        "is_dependent": "~(torch.distributions.constraints.positive)", "less_than": f"~(1.5).check({_V})",
        "multinomial": "~(3).check(torch.tensor([1, 2]))",
    },
    "utils": {
        "set_module": "def f():\n    pass\n~(f, 'mine')\nf.__module__",
        "swap_tensors": "a, b = torch.zeros(1), torch.ones(1)\n~(a, b)\na"},
    "utils.data": {
        "argument_validation":
            _PIPE + "    @~\n    def __init__(self, source: torch.utils.data.IterDataPipe[int]):\n        self.source = source",
        "functional_datapipe":
            "@~('doubled')\n" + _PIPE + "    def __init__(self, source):\n        self.source = source\n\n    def __iter__(self):\n"
            "        return (2 * x for x in self.source)\npipe = torch.utils.data.datapipes.iter.IterableWrapper([1, 2]).doubled()\n"
            "del torch.utils.data.IterDataPipe.functions['doubled']  # take the name back\nlist(pipe)",
        "guaranteed_datapipes_determinism": "with ~():\n    pass", "runtime_validation_disabled": "with ~():\n    pass",
        "non_deterministic": "@~(lambda source, shuffle=True: shuffle)\n" + _PIPE + "    def __init__(self, source, shuffle=True):\n"
                             "        self.source = source",
        "runtime_validation":
            "from collections.abc import Iterator\n" + _PIPE.replace("DataPipe)", "DataPipe[int])") +
            "    @~\n    def __iter__(self) -> Iterator[int]:\n        return iter([1, 2])\nlist(Twice())",
        "BatchSampler": "list(~(range(5), 2, False))", "ChainDataset": "isinstance(~([]), torch.utils.data.IterableDataset)",
        "ConcatDataset": "len(~([range(2), range(3)]))", "DFIterDataPipe": "issubclass(~, torch.utils.data.IterDataPipe)",
        "DataChunk": "~([1, 2])", "DataLoader": "list(~(range(4), batch_size=2))", "Dataset": "issubclass(torch.utils.data.TensorDataset, ~)",
        "DistributedSampler": "list(~(range(4), num_replicas=2, rank=0, shuffle=False))",
        "IterDataPipe": "issubclass(~, torch.utils.data.IterableDataset)",
        "IterableDataset":
            "class Count(~):\n    def __iter__(self):\n        return iter(range(3))\n"
            "list(torch.utils.data.DataLoader(Count(), batch_size=3))",
        "MapDataPipe": "issubclass(~, torch.utils.data.Dataset)", "RandomSampler": "sorted(~(range(3)))",
        "Sampler": "issubclass(torch.utils.data.RandomSampler, ~)", "SequentialSampler": "list(~(range(3)))",
        "StackDataset": "~(range(2), range(2, 4))[0]", "Subset": "list(~(range(5), [1, 3]))", "SubsetRandomSampler": "sorted(~([1, 3]))",
        "TensorDataset": "~(torch.arange(3), torch.ones(3))[2]",
        "WeightedRandomSampler": "list(~([0.0, 1.0], 3))", "default_collate": "~([(1, 2.0), (3, 4.0)])", "default_convert": "~([1.5])",
        "get_worker_info": "~()",
        "random_split": "[len(part) for part in ~(range(5), [3, 2])]",
    },
    "utils.checkpoint": {
        "CheckpointFunction": f"{_X}~.apply(lambda x: (x.sin(),), True, x)[0].sum().backward()\nx.grad",
        "GraphExecGroup": "with ~():\n    pass", "SelectiveCheckpointContext": "~(is_recompute=False).is_recompute",
        "DefaultDeviceType": "~.get_device_type()", "check_backward_validity": f"{_X}~([x])", "detach_variable": f"{_X}~((x,))",
        "checkpoint": f"{_X}~(torch.sin, x, use_reentrant=False).sum().backward()\nx.grad",
        "checkpoint_sequential": f"{_X}~([torch.sin, torch.cos], 2, x, use_reentrant=False).sum().backward()\nx.grad",
        "create_selective_checkpoint_contexts": "contexts = ~([torch.ops.aten.mm.default])", "get_device_states": f"~({_V})",
        "noop_context_fn": "~()", "set_checkpoint_debug_enabled": "with ~(None):\n    pass",
        "set_checkpoint_early_stop": "with ~(True):\n    pass", "set_device_states": "~([], [])",
    },
    "utils.benchmark": {
        "TaskSpec": '~("x + x", setup="x = 1").title', "Measurement": f"~(2, [0.5, 1.0], {_TASK}).median",
        "FunctionCount": '~(3, "f").count', "FunctionCounts": f"{_COUNTS}.sum()",
        "CallgrindStats": f"counts = {_COUNTS}\n~({_TASK}, 1, True, counts, counts, counts, counts, None).counts()",
        "CopyIfCallgrind": "~(3).value", "FuzzedParameter": '~("n", minval=1, maxval=8, distribution="uniform").name',
        "FuzzedTensor": '~("x", size=("n", 2)).name', "ParameterAlias": '~("n").alias_to',
        "Fuzzer":
            'n = torch.utils.benchmark.FuzzedParameter("n", minval=3, maxval=3, distribution="uniform")\n'
            'fuzzer = ~([n], [torch.utils.benchmark.FuzzedTensor("x", size=("n", 2))], seed=0)\n'
            "[tensors['x'].shape for tensors, facts, parameters in fuzzer.take(1)]",
        "Compare": 'print(~([torch.utils.benchmark.Timer("1 + 1").timeit(10)]))',
        "Timer": 'm = ~("x + x", globals={"x": torch.ones(2)}).timeit(10)\nm.number_per_run', "select_unit": "~(2e-6)",
        "set_torch_threads": "with ~(1):\n    pass", "timer": "before = ~()", "trim_sigfig": "~(3.14159, 3)", "unit_to_english": '~("us")',
    },
    "testing": {
        "assert_close": "~(torch.tensor(0.1) + 0.2, torch.tensor(0.3))",
        "assert_allclose": "torch.testing.assert_close(torch.ones(2), torch.ones(2))",
        "FileCheck": '~().check("mul").check_not("add").run("mul, sub")',
        "make_tensor": '~(2, 3, dtype=torch.float32, device="cpu").shape',
    },
    "hub": {
        "download_url_to_file": '~("https://example.org/weights.pt", "weights.pt")', "get_dir": "~()", "set_dir": '~("models")',
        "help": '~("owner/repository", "resnet18")', "list": '~("owner/repository")',
        "load": '~("folder", "my_model", source="local")', "load_state_dict_from_url": '~("https://example.org/weights.pt")',
    },
    "serialization": {
        "StorageType": '~("FloatStorage").dtype', "clear_safe_globals": "~()",
        "set_default_mmap_options": "import mmap\nwith ~(mmap.MAP_PRIVATE):\n    pass",
        "register_package": "~(50, lambda storage: None, lambda storage, location: None)",
        "skip_data": "import io\nwith ~():\n    torch.save(torch.ones(2), io.BytesIO())", "validate_hpu_device": 'torch.device("hpu:0")',
        "add_safe_globals": "~([set])\ntorch.serialization.clear_safe_globals()", "safe_globals": "with ~([set]):\n    pass",
        "check_module_version_greater_or_equal": "import numpy\n~(numpy, (1, 0))",
        "default_restore_location": '~(torch.ones(2).untyped_storage(), "cpu").nbytes()',
        "get_unsafe_globals_in_checkpoint": "import io\nfile = io.BytesIO()\ntorch.save([1], file)\nfile.seek(0)\n~(file)",
        "location_tag": "~(torch.ones(2).untyped_storage())",
        "normalize_storage_type": "~(torch.FloatStorage)", "set_crc32_options": "~(torch.serialization.get_crc32_options())",
        "storage_to_tensor_type": "~(torch.ones(2)._typed_storage())",
        "set_default_load_endianness": "~(torch.serialization.get_default_load_endianness())", "validate_cuda_device": '~("cuda:0")',

    },
    "overrides": {
        "redispatch_function":
            "class Said(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
            "        return func.__name__, ~(func, types, args, kwargs)\ntorch.neg(torch.ones(1).as_subclass(Said))[0]",
        "BaseTorchFunctionMode": "with ~():\n    x = torch.ones(2) + 1\nx",
        "TorchFunctionMode":
            "class Counted(~):\n    calls = 0\n\n    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
            "        Counted.calls += 1\n        return func(*args, **(kwargs or {}))\nwith Counted():\n    torch.ones(2) + 1\n"
            "Counted.calls > 0",
        "enable_reentrant_dispatch": "with ~():\n    pass", "is_tensor_like": f"~({_V})", "is_tensor_method_or_property": "~(torch.Tensor.add)",
        "resolve_name": "~(torch.Tensor.add)",
        "wrap_torch_function": "~(lambda x: (x,))(lambda x: x + 1)(1)", "get_default_nowrap_functions": "len(~()) > 0",
        "get_ignored_functions": "torch.is_tensor in ~()", "get_overridable_functions": "torch in ~()",
        "get_testing_overrides": "torch.add in ~()",
    },
    "library": {
        "fallthrough_kernel":
            'mine = torch.library.Library("help_falls", "DEF")\nmine.define("f(Tensor x) -> Tensor")\nmine.impl("f", ~, "Meta")',
        "impl_abstract": _op("abstract") + "torch.library.register_fake(double, torch.empty_like)",
        "triton_op":
            "@~('help::tripled', mutates_args=())\ndef tripled(x: torch.Tensor) -> torch.Tensor:\n    return x * 3\ntripled(torch.ones(2))",
        "wrap_triton":
            "# within a triton_op, a kernel of the triton package on a grid of 8 programs\n~(kernel)[(8,)](x, out, x.numel(), BLOCK=128)",
        "CustomOpDef": _op("made") + "isinstance(double, ~)",
        "Library": 'mine = ~("help_of_library", "DEF")\nmine.define("f(Tensor x) -> Tensor")',
        "custom_op": _op("double").replace("torch.library.custom_op", "~") + "double(torch.ones(2))",
        "define": '~("help::defined", "(Tensor x) -> Tensor")',
        "get_kernel": _op("kernel") + 'double.register_kernel("cpu", lambda x: x + x)\n~("help::kernel", "CPU")',
        "impl": '~("help::defined2", "cpu", lambda x: x * 2)',
        "infer_schema": "def f(x: torch.Tensor, n: int) -> torch.Tensor:\n    return x * n\n~(f, mutates_args=())",
        "opcheck": _op("checked") + "double.register_fake(torch.empty_like)\n~(double, (torch.ones(2),))",
        "register_autocast": _op("cast") + '~(double, "cpu", torch.bfloat16)',
        "register_autograd": _op("graded") + "~(double, lambda ctx, g: g * 2)",
        "register_fake": _op("faked") + "~(double, lambda x: torch.empty_like(x))",
        "register_kernel": _op("kernels") + '~(double, "cpu", lambda x: x + x)',
        "register_vmap": _op("batched") + "~(double, lambda info, dims, x: (x * 2, dims[0]))",
    },
    "futures": {
        "Future": "f = ~()\nf.set_result(3)\nf.wait()", "collect_all": "f = torch.futures.Future()\nf.set_result(3)\n~([f]).wait()[0].value()",
        "wait_all": "f = torch.futures.Future()\nf.set_result(3)\n~([f])",
    },
    "package": {
        "Directory": '~("folder", True)', "GlobGroup": '~("torch.*").matches("torch.nn")',
        "Importer": "issubclass(torch.package.OrderedImporter, ~)", "OrderedImporter": "~(torch.package.sys_importer)",
        "is_from_package": "~(torch.ones(2))",
        "PackageExporter": 'import io\nwith ~(io.BytesIO()) as package:\n    package.save_pickle("data", "list.pkl", [1, 2])',
        "PackageImporter":
            'import io\nfile = io.BytesIO()\nwith torch.package.PackageExporter(file) as package:\n'
            '    package.save_pickle("data", "list.pkl", [1, 2])\nfile.seek(0)\n~(file).load_pickle("data", "list.pkl")',
    },
    "onnx": {
        "ExportableModule": "class Mine(~):\n    def example_arguments(self):\n        return (torch.ones(1, 3),), None",
        "ONNXProgram": f"isinstance(torch.onnx.export({_LINEAR}, (torch.ones(1, 3),)), ~)",
        "register_custom_op_symbolic": '~("mine::scaled", lambda g, x: g.op("mine::Scaled", x), 18)',
        "unregister_custom_op_symbolic":
            'torch.onnx.register_custom_op_symbolic("mine::scaled", lambda g, x: g.op("mine::Scaled", x), 18)\n~("mine::scaled", 18)',
        "export": f'~({_LINEAR}, (torch.ones(1, 3),), "layer.onnx")', "is_in_onnx_export": "~()"},
    "profiler": {
        "ExecutionTraceObserver": '~().register_callback("graph.json")',
        "profile": f"with ~() as taken:\n    {_V}.sin()\nlen(taken.key_averages()) > 0", "schedule": "~(wait=1, warmup=1, active=2)(0)",
        "supported_activities": "~()",
        "tensorboard_trace_handler": '~("traces")',
    },
    "compiler": {
        "CacheInfo": "~().artifacts",
        "load_cache_artifacts":
            "saved = torch.compiler.save_cache_artifacts()\nif saved is not None:\n    ~(saved[0])",
        "set_enable_guard_collectives": "~(False)",
        **{f"{name}_unsafe": _STEP + "torch.compile(step)(torch.ones(2))  # with all its guards: a check takes microseconds" for name in (
            "keep_portable_guards", "keep_tensor_guards", "skip_all_guards", "skip_guard_on_all_nn_modules", "skip_guard_on_globals",
            "skip_guard_on_inbuilt_nn_modules")},
        "substitute_in_graph":
            "import zlib\n\n@~(zlib.adler32)\ndef adler32(data, value=1, /):\n    return len(data)\n"
            "torch.compile(lambda x: x + zlib.adler32(b'ab'))(torch.ones(2))",
        "allow_in_graph": _STEP + "~(step)", "assume_constant_result": "~(lambda: 3)", "compile": f"~(torch.sin)({_V})",
        "cudagraph_mark_step_begin": "~()", "disable": f"~(torch.sin)({_V})", "get_default_backend": "~()", "is_compiling": "~()",
        "is_dynamo_compiling": "~()", "is_exporting": "~()", "list_backends": "~()", "nested_compile_region": _STEP + "~(step)(torch.ones(2))",
        "reset": "~()", "save_cache_artifacts": "~()", "set_default_backend": '~("inductor")',
        "set_stance": 'with ~("force_eager"):\n    pass', "wrap_numpy": "import numpy\n~(numpy.sin)(torch.ones(2))",
    },
    "export": {
        "AdditionalInputs":
            f"more = ~()\nmore.add((torch.ones(5, 3),))\nprogram = torch.export.export({_LINEAR}, (torch.ones(2, 3),), dynamic_shapes=more)\n"
            "program.module()(torch.ones(7, 3)).shape",
        "CustomDecompTable": "table = ~()\ndel table[torch.ops.aten.linear.default]\ntorch.ops.aten.linear.default in table",
        "ExportBackwardSignature": '~({"weight_grad": "weight"}, {}, "loss").loss_output',
        "ExportGraphSignature": f"signature = {_EXPORTED}.graph_signature\nisinstance(signature, ~), signature.parameters",
        "FlatArgsAdapter":
            "class First(~):\n    def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):\n"
            "        return input_args[:1]\n"
            f"torch.export.unflatten({_EXPORTED}, First())(torch.ones(1, 3), 'more').shape",
        "ModuleCallEntry": f"isinstance({_EXPORTED}.module_call_graph[0], ~)",
        "ModuleCallSignature": f"isinstance({_EXPORTED}.module_call_graph[0].signature, ~)",
        "UnflattenedModule": f"isinstance(torch.export.unflatten({_EXPORTED}), ~)",
        "register_dataclass":
            "import dataclasses\n\n@dataclasses.dataclass\nclass Pair:\n    x: torch.Tensor\n    y: torch.Tensor\n"
            "~(Pair, serialized_type_name='help.Pair')",
        "Dim": '~("batch", min=2, max=64)', "dims": '~("height", "width")',
        "ExportedProgram": f"torch.export.export({_LINEAR}, (torch.ones(1, 3),)).module()(torch.ones(1, 3)).shape", "ShapesCollection": "~()",
        "default_decompositions": "len(~()) > 0", "draft_export": f"~({_LINEAR}, (torch.ones(1, 3),)).module()(torch.ones(1, 3)).shape",
        "export": f"~({_LINEAR}, (torch.ones(1, 3),)).module()(torch.ones(1, 3)).shape",
        "save": f'~(torch.export.export({_LINEAR}, (torch.ones(1, 3),)), "layer.pt2")', "load": '~("layer.pt2")',
        "unflatten": f"~(torch.export.export({_LINEAR}, (torch.ones(1, 3),)))(torch.ones(1, 3)).shape",
    },
    "fx": {
        "CodeGen": "print(torch.fx.symbolic_trace(lambda x: x + 1).graph.python_code('self').src)\nisinstance(torch.fx.Graph()._codegen, ~)",
        "Proxy": "kinds = []\ngm = torch.fx.symbolic_trace(lambda x: kinds.append(isinstance(x, ~)) or x)\nkinds",
        **dict.fromkeys(("has_side_effect", "mark_impure"), "def logged(x):\n    return None\n~(logged) is logged"),
        "wrap": "from math import floor\n~('floor')  # at module level, before functions that call it are traced",
        "Graph": "graph = ~()\ngraph.output(graph.call_function(torch.sin, (graph.placeholder('x'),)))",
        "GraphModule": "graph = torch.fx.symbolic_trace(torch.nn.ReLU()).graph\n~(torch.nn.Module(), graph)(torch.ones(2))",
        "Interpreter": "~(torch.fx.symbolic_trace(torch.nn.ReLU())).run(torch.ones(2))",
        "Node": "next(iter(torch.fx.symbolic_trace(torch.nn.ReLU()).graph.nodes)).op", "Tracer": "len(~().trace(torch.nn.ReLU()).nodes)",
        "Transformer": "~(torch.fx.symbolic_trace(torch.nn.ReLU())).transform()(torch.ones(2))",
        "map_arg": "~((1, [2]), lambda node: node)",
        "replace_pattern": "gm = torch.fx.symbolic_trace(lambda x: torch.sin(x))\nlen(~(gm, lambda x: torch.sin(x), lambda x: torch.cos(x)))",
        "symbolic_trace": "print(~(lambda x: x + 1).code)",
    },
    "jit": {
        "Attribute": "~([], list[str]).type", "CompilationUnit": '~("def f(x):\\n    return x + 1").f(torch.ones(2))',
        "RecursiveScriptModule": "isinstance(torch.jit.script(torch.nn.ReLU()), ~)",
        "ScriptFunction": _SCRIPT + "isinstance(torch.jit.script(f), ~)", "ScriptModule": "isinstance(torch.jit.script(torch.nn.ReLU()), ~)",
        "TopLevelTracedModule": "isinstance(torch.jit.trace(torch.nn.ReLU(), torch.ones(2)), ~)",
        "export":
            "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n"
            "    @~\n    def double(self, x):\n        return 2 * x",
        "fuser": "with ~('fuser2'):\n    pass", "strict_fusion": "with ~():\n    pass",
        "ignore": "@~\ndef shown(x: torch.Tensor) -> None:\n    print(x.shape)\n\n" + _SCRIPT.replace("return", "shown(x)\n    return") +
                  "torch.jit.script(f)(torch.ones(2))",
        "interface": "@~\nclass Layer(torch.nn.Module):\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        pass",
        "script_if_tracing":
            "@~\ndef signed(x):\n    if x.sum() > 0:\n        return x\n    return -x\n"
            "torch.jit.trace(lambda x: signed(x) + 1, torch.ones(2), check_trace=False)(-torch.ones(2))",
        "script_method": "class Net(torch.jit.ScriptModule):\n    @~\n    def forward(self, x):\n        return 2 * x",
        "unused": "@~\ndef left_out(x):\n    return open(x)\nleft_out.__name__",
        "annotate": "~(int, 3)", "enable_onednn_fusion": "~(False)", "onednn_fusion_enabled": "~()",
        "freeze": f"~(torch.jit.script({_LINEAR}.eval()))(torch.ones(1, 3)).shape", "is_scripting": "~()", "is_tracing": "~()",
        "isinstance": "~([1], list[int])",
        "load": "import io\nfile = io.BytesIO()\ntorch.jit.save(torch.jit.script(torch.nn.ReLU()), file)\nfile.seek(0)\n~(file)(torch.ones(2))",
        "optimize_for_inference": f"~(torch.jit.script({_LINEAR}.eval()))(torch.ones(1, 3)).shape",
        "optimized_execution": "with ~(True):\n    pass",
        "save": "import io\n~(torch.jit.script(torch.nn.ReLU()), io.BytesIO())", "script": "~(torch.nn.ReLU())(torch.ones(2))",
        "set_fusion_strategy": '~([("STATIC", 2)])', "trace": "~(torch.nn.ReLU(), torch.ones(2))(torch.ones(2))",
        "trace_module": '~(torch.nn.ReLU(), {"forward": torch.ones(2)})(torch.ones(2))',
    },
    "accelerator": {
        "set_device_index": "~(0)",
        "Graph": "~()", "device_index": "with ~(0):\n    pass", "set_device_idx": "~(0)", "set_stream": "~(torch.accelerator.current_stream())",
        "current_accelerator": "~()", "device_count": "~()", "is_available": "~()",
    },
    "cpu": {
        "Event": "event = ~()\nevent.record()\nevent.query()", "Stream": "~() == torch.cpu.current_stream()",
        "StreamContext": "with ~(torch.cpu.Stream()):\n    pass", "current_stream": "~()", "get_capabilities": "~()", "set_device": '~("cpu")',
        "stream": "with ~(torch.cpu.Stream()):\n    pass", "synchronize": "~()", "current_device": "~()", "device_count": "~()",
        "is_available": "~()",
    },
    "cuda": {
        "GreenContext": "with torch.cuda.stream(torch.cuda.Stream(priority=-1)):\n    x = torch.ones(2, device='cuda')",
        "caching_allocator_alloc": "block = torch.empty(1024, dtype=torch.uint8, device='cuda')",
        "caching_allocator_delete": "torch.cuda.empty_cache()",
        "cudaStatus": "~.SUCCESS", "cudart": "torch.cuda.synchronize()",
        **{name: f"import subprocess\nsubprocess.run(['nvidia-smi', '--query-{what}', '--format=csv'])  # of all GPUs, cuda or not"
           for name, what in (
            ("clock_rate", "gpu=clocks.sm"), ("list_gpu_processes", "compute-apps=pid,used_memory"), ("memory_usage", "gpu=utilization.memory"),
            ("power_draw", "gpu=power.draw"), ("temperature", "gpu=temperature.gpu"), ("utilization", "gpu=utilization.gpu"))},
        "mem_get_info": "~()", "device_count": "~()", "caching_allocator_enable": "~(True)",
        "caching_allocator_disabled": "with ~():\n    pass",
        "CUDAGraph": "graph = ~()\nwith torch.cuda.graph(graph):\n    y = torch.ones(2, device='cuda') * 2\ngraph.replay()",
        "CUDAPluggableAllocator": '~("allocator.so", "take", "give")', "Event": "start = ~(enable_timing=True)\nstart.record()",
        "ExternalStream": "~(torch.cuda.current_stream().cuda_stream)",
        "MemPool": "with torch.cuda.use_mem_pool(~()):\n    x = torch.ones(2, device='cuda')",
        "Stream": "with torch.cuda.stream(~()):\n    x = torch.ones(2, device='cuda')",
        "StreamContext": "with ~(torch.cuda.Stream()):\n    pass", "can_device_access_peer": "~(0, 1)",
        "change_current_allocator": '~(torch.cuda.CUDAPluggableAllocator("allocator.so", "take", "give"))', "check_error": "~(0)",
        "device": "with ~(0):\n    pass",
        "device_of": "with ~(torch.ones(2, device='cuda')):\n    pass",
        "get_stream_from_external": "~(torch.cuda.current_stream().cuda_stream)",
        "graph": "g = torch.cuda.CUDAGraph()\nwith ~(g):\n    y = torch.ones(2, device='cuda') * 2\ng.replay()",
        "make_graphed_callables": "f = ~(torch.nn.Linear(3, 2).cuda(), (torch.ones(1, 3, device='cuda'),))", "manual_seed": "~(0)",
        "manual_seed_all": "~(0)", "set_device": "~(0)", "set_per_process_memory_fraction": "~(0.5)",
        "set_rng_state": "~(torch.cuda.get_rng_state())", "set_rng_state_all": "~(torch.cuda.get_rng_state_all())",
        "set_stream": "~(torch.cuda.Stream())", "set_sync_debug_mode": '~("warn")',
        "use_mem_pool": "with ~(torch.cuda.MemPool()):\n    x = torch.ones(2, device='cuda')",
        "stream": "with ~(torch.cuda.Stream()):\n    pass",
    },
    "multiprocessing": {
        **dict.fromkeys(("ProcessContext", "SpawnContext"),
                        "started = torch.multiprocessing.spawn(print, nprocs=2, join=False)\nstarted.join()"),
        "get_all_sharing_strategies": "~()", "get_sharing_strategy": "~()",
    "set_sharing_strategy": "~(torch.multiprocessing.get_sharing_strategy())", "spawn": "~(print, nprocs=2)",
    "start_processes": '~(print, nprocs=2, start_method="fork")'},
    "distributed": {
        "Backend": '~("GLOO")', "BackendConfig": 'print(~("gloo"))',
        "GradBucket":
            "def hook(state, bucket):\n    future = torch.futures.Future()\n    future.set_result(bucket.buffer())\n    return future\n"
            f"{_GROUP}torch.nn.parallel.DistributedDataParallel({_LINEAR}).register_comm_hook(None, hook)",
        "GroupMember": _GROUP + "~.WORLD is torch.distributed.group.WORLD", "group": _GROUP + "~.WORLD.size()",
        "ProcessGroup": _GROUP + "isinstance(torch.distributed.group.WORLD, ~)", "Store": "isinstance(torch.distributed.HashStore(), ~)",
        "Work": _GROUP + "isinstance(torch.distributed.all_reduce(torch.ones(2), async_op=True), ~)",
        "breakpoint": "~(rank=0)", "record_comm": _GROUP + "with ~('loss'):\n    torch.distributed.all_reduce(torch.ones(2))",
        "register_rendezvous_handler": "~('alone', lambda url, **_: iter([(torch.distributed.HashStore(), 0, 1)]))\n"
                                       "next(torch.distributed.rendezvous('alone://'))[1:]",
        "rendezvous": "import tempfile\nnext(~('file://' + tempfile.mktemp(), rank=0, world_size=1))[1:]",
        "shrink_group": _GROUP + "~([1]).size()",
        **{name: _GROUP + f"~({given})" for name, given in {
            "all_gather": "[torch.zeros(2), torch.zeros(2)], torch.ones(2)", "all_gather_into_tensor": "torch.zeros(4), torch.ones(2)",
            "all_gather_object": "[None, None], 'mine'", "all_reduce": "torch.ones(2)",
            "all_to_all": "[torch.zeros(1), torch.zeros(1)], [torch.ones(1), torch.ones(1)]",
            "all_to_all_single": "torch.zeros(2), torch.ones(2)", "barrier": "", "broadcast": "torch.ones(2), src=0",
            "broadcast_object_list": "['said'], src=0",
            "destroy_process_group": "", "gather": "torch.ones(2), [torch.zeros(2), torch.zeros(2)]", "gather_object": "'mine', [None, None]",
            "get_backend": "", "get_backend_config": "", "get_rank": "", "get_world_size": "", "irecv": "torch.zeros(2), src=1",
            "isend": "torch.ones(2), dst=1", "recv": "torch.zeros(2), src=1", "send": "torch.ones(2), dst=1", "new_group": "[0]",
            "new_subgroups": "1", "reduce": "torch.ones(2), dst=0", "reduce_scatter": "torch.zeros(2), [torch.ones(2), torch.ones(2)]",
            "reduce_scatter_tensor": "torch.zeros(2), torch.ones(4)", "reduce_scatter_single": "torch.zeros(2), torch.ones(4)",
            "scatter": "torch.zeros(2), [torch.ones(2), torch.ones(2)]", "scatter_object_list": "[None], ['one', 'two']",
            "get_process_group_ranks": "torch.distributed.group.WORLD", "get_global_rank": "torch.distributed.group.WORLD, 0",
            "get_group_rank": "torch.distributed.group.WORLD, 0", "monitored_barrier": "", "all_reduce_coalesced": "[torch.ones(2)]",
            "all_gather_coalesced": "[[torch.zeros(2)], [torch.zeros(2)]], [torch.ones(2)]", "send_object_list": "['said'], dst=1",
            "recv_object_list": "[None], src=1", "new_subgroups_by_enumeration": "[[0], [1]]", "split_group": "split_ranks=[[0], [1]]",
            "get_pg_count": "", "supports_complex": "torch.distributed.ReduceOp.SUM"}.items()},
        "DeviceMesh": _GROUP + '~("cpu", [0, 1])', "FileStore": '~("/tmp/store", 1)', "HashStore": '~().set("key", "value")',
        "PrefixStore": '~("mine", torch.distributed.HashStore())', "TCPStore": '~("localhost", 29500, is_master=True)', "ReduceOp": "~.SUM",
        "P2POp": _GROUP + "~(torch.distributed.isend, torch.ones(2), 1)",
        "batch_isend_irecv": _GROUP + "~([torch.distributed.P2POp(torch.distributed.isend, torch.ones(2), 1)])",
        "init_device_mesh": _GROUP + '~("cpu", (2,))',
        "init_process_group": '~("gloo")', "get_default_backend_for_device": '~("cpu")', "is_backend_available": '~("gloo")',
        "get_node_local_rank": "~(0)", "set_debug_level": "~(torch.distributed.DebugLevel.OFF)", "set_debug_level_from_env": "~()",
    },
    "distributed.fsdp": {
        "DataParallelMeshDims": '~(shard="fsdp", replicate="dp")', "OffloadPolicy": "~()", "StateDictSettings": "~()",
        "FSDPModule": _GROUP + f"isinstance(torch.distributed.fsdp.fully_shard({_LINEAR}), ~)",
        "UnshardHandle": _GROUP + f"torch.distributed.fsdp.fully_shard({_LINEAR}).unshard(async_op=True).wait()",
        "register_fsdp_forward_method": _GROUP + f"{_LAYER}torch.distributed.fsdp.fully_shard(layer)\n~(layer, 'extra_repr')",
        "share_comm_ctx": _GROUP + f"~([torch.distributed.fsdp.fully_shard({_LINEAR})])",
        **dict.fromkeys(("CPUOffload", "CPUOffloadPolicy", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
                         "LocalStateDictConfig", "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
                         "StateDictConfig"), "~()"),
        "MixedPrecision": "~(param_dtype=torch.bfloat16)", "MixedPrecisionPolicy": "~(param_dtype=torch.bfloat16)",
        "FullyShardedDataParallel": _GROUP + f"~({_LINEAR})(torch.ones(1, 3)).shape",
        "fully_shard": _GROUP + f"~({_LINEAR})(torch.ones(1, 3)).shape",
    },
    "distributed.tensor": {
        **{name: _MESH + f"~({given}device_mesh=mesh, placements=[torch.distributed.tensor.Shard(0)])" for name, given in (
            ("empty", "4, "), ("full", "(4,), 1.0, "), ("ones", "4, "), ("rand", "4, "), ("randn", "4, "),
            ("zeros", "4, "), ("distribute_tensor", "torch.ones(4), "))},
        "DTensor": _MESH + "~.from_local(torch.ones(2), mesh, [torch.distributed.tensor.Replicate()])",
        "distribute_module": _MESH + f"~({_LINEAR}, mesh)", "Partial": "~()", "Placement": "issubclass(torch.distributed.tensor.Shard, ~)",
        "Replicate": "~()", "Shard": "~(0)",
    },
    "nn.parallel": {
        "DataParallel": f"~({_LINEAR})(torch.ones(4, 3)).shape", "DistributedDataParallel": _GROUP + f"~({_LINEAR})(torch.ones(1, 3)).shape",
    },
    "utils.tensorboard": {"SummaryWriter": '~("runs").add_scalar("loss", 0.5, 1)', "FileWriter": '~("runs")'},
}
