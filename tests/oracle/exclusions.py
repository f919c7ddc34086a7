"""What of torch's operator database is not compared, each with its reason."""

_JIT = "CUDA source compiled by torch itself"
_QUANTISED = "quantised products and attention of GPUs, internal to torch"
_MEMORY = "what lies in memory that nobody wrote"
_CHUNKS = "logits computed in chunks, an option that raises here"
_HALF = "complex32 has no arithmetic here"
_INTERNAL = "a step of torch's own kernels, no function that its documentation has"

ENTRIES: dict[str, str] = {
    **dict.fromkeys(["jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref",
                     "jiterator_2inputs_2outputs"], _JIT),
    **dict.fromkeys(["torch._scaled_mm", "torch._scaled_mm_v2", "torch.ops.aten._flash_attention_forward",
                     "torch.ops.aten._efficient_attention_forward"], _QUANTISED),
    **dict.fromkeys(["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"], _MEMORY),
    "chalf": _HALF,
    **dict.fromkeys(["nn.functional.linear_cross_entropy:chunked", "nn.functional.linear_cross_entropy:chunked_none"], _CHUNKS),
    **dict.fromkeys(["_softmax_backward_data", "_native_batch_norm_legit", "_batch_norm_with_update", "_upsample_bilinear2d_aa",
                     "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_chunk_cat", "_segment_reduce", "hash_tensor",
                     "native_dropout_backward", "max_pool2d_with_indices_backward"], _INTERNAL),
}

# calls made wrong, by a part of what is wrong, or functions: such ones are compared only where torch refuses them
WRONG: dict[str, str] = {
    "on meta": "torch takes some tensors that have no values beside others that do, and answers with one of either kind",
    **dict.fromkeys(("cummax", "cummin"), "torch looks at no dimension where there is no element"),
    "out= expanded": "some of torch's kernels write one element several times",
    "out= that needs a gradient": "torch refuses it only where it has a derivative",
}
# (entry, what is wrong) of those that torch reads out of bounds for
CRASHES = {("native_batch_norm", "argument 3 empty"), ("native_batch_norm", "argument 4 empty"),
           ("nn.functional.embedding_bag", "offsets: empty"), ("lu_unpack", "argument 1 empty"),
           ("lu_unpack", "argument 0 one more dimension")}

# of the database of modules
MODULES: dict[str, str] = {}

# readings of single entries, by a part of the reading's name
READINGS: dict[str, dict[str, str]] = {
    "gradient": {"nn.functional.hardsigmoid": "torch's slope in float64 is 1/6 rounded to float32"},
    "backward": {
        **dict.fromkeys(["cholesky_inverse", "cholesky_solve"], "torch gives gradients for the triangle that is not read"),
        **dict.fromkeys(["cholesky", "linalg.cholesky", "linalg.cholesky_ex"],
                        "torch gives the real diagonal of a complex matrix imaginary gradients"),
        "masked.logaddexp": "torch's is NaN where both are masked out",
        "as_strided_scatter": "torch's counts what was replaced"},
    "double backward": {"svd_lowrank": "of singular vectors that hang on the last digits"},
    "vmap": {"argwhere": "how many there are hangs on the values, which differ between examples"},
    "errors": {"__rdiv__": "an AttributeError, by accident of torch's form of it"},
    "float64": dict.fromkeys(["special.airy_ai", "special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1"],
                             "torch's have some eight digits"),
    "float16": {"matrix_exp": "torch's overflows on the way", "complex": _HALF, "view_as_complex": _HALF},
    "bfloat16": {"matrix_exp": "torch's overflows on the way", "native_batch_norm": "torch rounds statistics on the way"},
    "forward mode": {"logcumsumexp": "torch's is off by some millionths",
                     **dict.fromkeys(["cholesky_inverse", "cholesky_solve", "triangular_solve"],
                                     "torch's tangents read the triangle that the value does not"),
                     **dict.fromkeys(["cholesky", "linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh"],
                                     "of tangents that are not symmetric each library reads what it likes"),
                     "masked.logaddexp": "torch's is NaN where both are masked out",
                     "nn.functional.hardsigmoid": "torch's slope in float64 is 1/6 rounded to float32",
                     "native_batch_norm":
                     "the statistics that it used are for its gradient, and have none here"},
    "optimizers, differentiable": {"SGD": "torch's momentum begins as a gradient that is detached"},
    "in-place": {"addbmm": "torch's takes a matrix that it has to broadcast first, which no other in-place form does"},
    "out=": dict.fromkeys(["fft.ihfft2", "fft.ihfftn"], "torch leaves what is given as out= as it was"),
}
READINGS["gradient"] |= READINGS["backward"] | dict.fromkeys(
    ["nn.functional.ctc_loss", "nn.CTCLoss"], "torch's is that of the logits, right only behind log_softmax")

# drawn by another generator in compiled graphs than eagerly, as documented: shapes and dtypes are compared
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like",
          "randn", "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
          "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.multi_head_attention_forward",
          "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention", "native_dropout", "nn.functional.fractional_max_pool2d",
          "nn.functional.fractional_max_pool3d", "svd_lowrank", "pca_lowrank"}

# (values, indices), where the indices are free among equal elements: the values are compared, and the indices' shape and dtype
TIES = {"aminmax", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "msort", "topk"}
