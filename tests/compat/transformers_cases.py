"""Models of transformers: all that makes them themselves, in small sizes; GPT-2 and BERT in the libraries' own sizes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case

CASES: dict[str, Case] = {}


def _loss(out: Any) -> Any:
    """The model's own, or for a model without one something that all of its output goes into."""
    if out.get("loss") is not None:
        return out["loss"]
    return sum(value.square().mean() for value in out.values() if hasattr(value, "square") and value.is_floating_point())


def _transformers(
    model: str, config: str, inputs: Callable[[np.random.Generator], dict[str, np.ndarray]], *, case: str = "", **settings: Any
) -> None:
    def build() -> Any:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    generates = model.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))
    CASES[case or model] = Case("transformers", build, inputs, _loss, generates)


def _tokens(labels: str | None = "labels", batch: int = 2, length: int = 16, vocabulary: int = 96, pad: bool = False) -> Any:
    def make(rng: np.random.Generator) -> dict[str, np.ndarray]:
        found = {"input_ids": rng.integers(3, vocabulary, (batch, length))}
        if pad:
            mask = np.ones((batch, length), np.int64)
            mask[1, length // 2 :] = 0
            found["attention_mask"] = mask
        if labels:
            found[labels] = rng.integers(3, vocabulary, (batch, length))
        return found

    return make


def _pixels(size: int = 32, batch: int = 2, labels: int = 10) -> Any:
    def make(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "pixel_values": rng.standard_normal((batch, 3, size, size), dtype=np.float32),
            "labels": rng.integers(0, labels, batch),
        }

    return make


def _speech(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"input_features": rng.standard_normal((2, 16, 60), dtype=np.float32), "labels": rng.integers(3, 96, (2, 8))}


# What configurations of one kind have in common.
_TEXT = dict(
    vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64
)
_BERT = dict(_TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
_LLAMA = dict(_TEXT, num_key_value_heads=2)
_DROPLESS = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
_TWO_STACKS = dict(
    vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=64, decoder_ffn_dim=64, **_DROPLESS,
)  # fmt: skip
_SEQ2SEQ = dict(_TWO_STACKS, max_position_embeddings=64, encoder_layerdrop=0.0, decoder_layerdrop=0.0)
_VISION = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=10,
)  # fmt: skip

_transformers(
    "GPT2LMHeadModel",
    "GPT2Config",
    _tokens(),
    vocab_size=96,
    n_embd=32,
    n_layer=2,
    n_head=4,
    n_positions=64,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=1,
    eos_token_id=2,
)
_transformers("BertForMaskedLM", "BertConfig", _tokens(pad=True), **_BERT)
_transformers("RobertaForMaskedLM", "RobertaConfig", _tokens(pad=True), **_BERT)
_transformers("ElectraForMaskedLM", "ElectraConfig", _tokens(), embedding_size=32, **_BERT)
_transformers("AlbertForMaskedLM", "AlbertConfig", _tokens(), embedding_size=16, **_BERT)
_transformers(
    "DistilBertForMaskedLM",
    "DistilBertConfig",
    _tokens(pad=True),
    vocab_size=96,
    dim=32,
    n_layers=2,
    n_heads=4,
    hidden_dim=64,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
)
_transformers("LlamaForCausalLM", "LlamaConfig", _tokens(pad=True), **_LLAMA)
_transformers("MistralForCausalLM", "MistralConfig", _tokens(), sliding_window=8, **_LLAMA)
_transformers("Qwen2ForCausalLM", "Qwen2Config", _tokens(), **_LLAMA)
_transformers("Qwen3ForCausalLM", "Qwen3Config", _tokens(), head_dim=8, **_LLAMA)
_transformers("GemmaForCausalLM", "GemmaConfig", _tokens(), head_dim=8, **_LLAMA)
_transformers("PhiForCausalLM", "PhiConfig", _tokens(), **_LLAMA)
_transformers("GPTNeoXForCausalLM", "GPTNeoXConfig", _tokens(), hidden_dropout=0.0, attention_dropout=0.0, **_TEXT)
_transformers(
    "OPTForCausalLM",
    "OPTConfig",
    _tokens(),
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=64,
    max_position_embeddings=64,
    word_embed_proj_dim=32,
    dropout=0.0,
    attention_dropout=0.0,
)
_transformers(
    "BloomForCausalLM",
    "BloomConfig",
    _tokens(),
    vocab_size=96,
    hidden_size=32,
    n_layer=2,
    n_head=4,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
_transformers(
    "T5ForConditionalGeneration",
    "T5Config",
    _tokens(),
    vocab_size=96,
    d_model=32,
    d_kv=8,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    dropout_rate=0.0,
    decoder_start_token_id=0,
)
_transformers("BartForConditionalGeneration", "BartConfig", _tokens(), max_position_embeddings=64, **_TWO_STACKS)
_transformers("ViTForImageClassification", "ViTConfig", _pixels(), **_VISION)
_transformers(
    "WhisperForConditionalGeneration",
    "WhisperConfig",
    _speech,
    num_mel_bins=16,
    max_source_positions=30,
    max_target_positions=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    suppress_tokens=None,
    begin_suppress_tokens=None,
    **_TWO_STACKS,
)
_transformers("MixtralForCausalLM", "MixtralConfig", _tokens(), num_local_experts=4, num_experts_per_tok=2, **_LLAMA)
_transformers(
    "ConvNextForImageClassification",
    "ConvNextConfig",
    _pixels(),
    hidden_sizes=[8, 16, 16, 32],
    depths=[1, 1, 1, 1],
    num_labels=10,
    image_size=32,
)
_transformers("DebertaV2ForMaskedLM", "DebertaV2Config", _tokens(), **_BERT, relative_attention=True, pos_att_type=["p2c", "c2p"])
_transformers("MambaForCausalLM", "MambaConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=8)

# The libraries' own sizes: GPT-2 of 124M parameters, BERT base.
_transformers("GPT2LMHeadModel", "GPT2Config", _tokens(length=64, vocabulary=50257), case="gpt2-default")
_transformers("BertForMaskedLM", "BertConfig", _tokens(length=64, vocabulary=30522, pad=True), case="bert-default")

_MLA = dict(kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8)
_DEEPSEEK = dict(_LLAMA, num_key_value_heads=4, moe_intermediate_size=16, n_routed_experts=4, n_shared_experts=1,
                 num_experts_per_tok=2, first_k_dense_replace=1, n_group=2, topk_group=1, **_MLA)  # fmt: skip

# Decoders that differ from Llama in their configuration class, mostly.
for _family, _more in {
    "Qwen3Moe": dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    "Qwen2Moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16),
    "Gemma2": dict(head_dim=8, sliding_window=8, query_pre_attn_scalar=8, attn_implementation="eager"),
    "Phi3": dict(pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "StableLm": {},
    "Olmo": {},
    "Olmo2": {},
    "Olmoe": dict(num_experts=4, num_experts_per_tok=2),
    "Cohere": {},
    "Cohere2": dict(sliding_window=8, head_dim=8),
    "Granite": {},
    "GraniteMoe": dict(num_local_experts=4, num_experts_per_tok=2),
    "Starcoder2": dict(sliding_window=8),
    "Persimmon": {},
    "Nemotron": {},
    "Glm": dict(head_dim=8, pad_token_id=0),
    "Ministral": dict(head_dim=8, sliding_window=8),
    "SmolLM3": dict(pad_token_id=0),
    "Helium": dict(head_dim=8),
    "Exaone4": dict(sliding_window=8),
    "Ernie4_5": dict(head_dim=8),
    "HunYuanDenseV1": dict(head_dim=8),
    "Arcee": {},
    "SeedOss": dict(head_dim=8, residual_dropout=0.0, attention_dropout=0.0),
    "Apertus": {},
    "GptOss": dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8),
    "Jamba": dict(num_experts=2, num_experts_per_tok=1, use_mamba_kernels=False, mamba_d_state=4, attn_layer_period=2,
                  attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1),
}.items():  # fmt: skip
    _transformers(f"{_family}ForCausalLM", f"{_family}Config", _tokens(), **{**_LLAMA, **_more})
_transformers("Gemma3ForCausalLM", "Gemma3TextConfig", _tokens(), head_dim=8, sliding_window=8, query_pre_attn_scalar=8, **_LLAMA)
_transformers("Llama4ForCausalLM", "Llama4TextConfig", _tokens(), head_dim=8, num_local_experts=2, intermediate_size_mlp=64,
              attention_chunk_size=8, pad_token_id=0, **_LLAMA)  # fmt: skip
_transformers("DeepseekV2ForCausalLM", "DeepseekV2Config", _tokens(), **_DEEPSEEK)
_transformers("DeepseekV3ForCausalLM", "DeepseekV3Config", _tokens(), **_DEEPSEEK)
_transformers("FalconForCausalLM", "FalconConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0)  # fmt: skip
_transformers("FalconForCausalLM", "FalconConfig", _tokens(), case="falcon-alibi", vocab_size=96, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0, alibi=True, new_decoder_architecture=False)  # fmt: skip
_transformers("FalconMambaForCausalLM", "FalconMambaConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=8)
_transformers("Mamba2ForCausalLM", "Mamba2Config", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=8,
              num_heads=4, head_dim=16, n_groups=2, chunk_size=8)  # fmt: skip
_transformers("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", _tokens(), lru_width=32, attention_window_size=8,
              **{**_LLAMA, "num_hidden_layers": 3})  # fmt: skip
_transformers("RwkvForCausalLM", "RwkvConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32)
_transformers("GPTNeoForCausalLM", "GPTNeoConfig", _tokens(), vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, window_size=8,
              attention_types=[[["global", "local"], 1]], max_position_embeddings=64, intermediate_size=64)  # fmt: skip
_transformers("GPTJForCausalLM", "GPTJConfig", _tokens(), vocab_size=96, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
_transformers("CodeGenForCausalLM", "CodeGenConfig", _tokens(), vocab_size=96, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
_transformers("GPTBigCodeForCausalLM", "GPTBigCodeConfig", _tokens(), vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64,
              attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)  # fmt: skip
_transformers("MptForCausalLM", "MptConfig", _tokens(), vocab_size=96, d_model=32, n_layers=2, n_heads=4, max_seq_len=64)
_transformers("XGLMForCausalLM", "XGLMConfig", _tokens(), vocab_size=96, d_model=32, num_layers=2, attention_heads=4, ffn_dim=64,
              max_position_embeddings=64, **_DROPLESS)  # fmt: skip
_transformers("BioGptForCausalLM", "BioGptConfig", _tokens(), **_BERT)
_transformers("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _tokens(), vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64)
_transformers("CTRLLMHeadModel", "CTRLConfig", _tokens(), vocab_size=96, n_embd=32, n_layer=2, n_head=4, dff=64, n_positions=64)

# Encoders of text.
for _family, _more in {
    "XLMRoberta": {},
    "Camembert": {},
    "Ernie": {},
    "MobileBert": dict(intra_bottleneck_size=16, true_hidden_size=16, embedding_size=16),
    "RoFormer": dict(embedding_size=32),
    "ConvBert": dict(embedding_size=32, conv_kernel_size=3, num_groups=1, head_ratio=2),
    "MPNet": {},
    "SqueezeBert": dict(embedding_size=32),
    "LayoutLM": {},
    "Deberta": dict(relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "MegatronBert": {},
    "Nystromformer": dict(num_landmarks=16, segment_means_seq_len=16, conv_kernel_size=3),
    "Yoso": dict(use_expectation=True),
    "Esm": dict(pad_token_id=0, mask_token_id=1, position_embedding_type="rotary"),
    "Longformer": dict(attention_window=[4, 4], pad_token_id=0),
    "BigBird": dict(attention_type="original_full"),
}.items():
    _transformers(f"{_family}ForMaskedLM", f"{_family}Config", _tokens(pad=True), **{**_BERT, **_more})
_transformers("BigBirdForMaskedLM", "BigBirdConfig", _tokens(length=64), case="bigbird-sparse", block_size=4, num_random_blocks=1,
              attention_type="block_sparse", **_BERT)  # fmt: skip
_transformers("ModernBertForMaskedLM", "ModernBertConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=3,
              num_attention_heads=4, intermediate_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
              sep_token_id=2, local_attention=8)  # fmt: skip
_transformers("XLMWithLMHeadModel", "XLMConfig", _tokens(), vocab_size=96, emb_dim=32, n_layers=2, n_heads=4, dropout=0.0,
              attention_dropout=0.0, max_position_embeddings=64)  # fmt: skip
_transformers("XLNetLMHeadModel", "XLNetConfig", _tokens(), vocab_size=96, d_model=32, n_layer=2, n_head=4, d_inner=64, dropout=0.0)
_transformers("FNetForMaskedLM", "FNetConfig", _tokens(), vocab_size=96, hidden_size=32, num_hidden_layers=2, intermediate_size=64,
              hidden_dropout_prob=0.0, max_position_embeddings=64)  # fmt: skip
_transformers("FunnelForMaskedLM", "FunnelConfig", _tokens(), vocab_size=96, d_model=32, n_head=4, d_head=8, d_inner=64,
              block_sizes=[1, 1], num_decoder_layers=1, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)  # fmt: skip
_transformers("FlaubertWithLMHeadModel", "FlaubertConfig", _tokens(), vocab_size=96, emb_dim=32, n_layers=2, n_heads=4, dropout=0.0,
              attention_dropout=0.0, max_position_embeddings=64)  # fmt: skip
_transformers("CanineModel", "CanineConfig", _tokens(None, length=64), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              intermediate_size=64, max_position_embeddings=64, num_hash_buckets=64, local_transformer_stride=16,
              hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
_transformers("PerceiverForMaskedLM", "PerceiverConfig", _tokens(length=32), vocab_size=96, d_model=32, d_latents=32, num_latents=8,
              num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4, num_cross_attention_heads=4,
              qk_channels=32, v_channels=32, max_position_embeddings=32, attention_probs_dropout_prob=0.0)  # fmt: skip
_transformers("ReformerModelWithLMHead", "ReformerConfig", _tokens(length=16), vocab_size=96, hidden_size=32, num_attention_heads=4,
              attention_head_size=8, feed_forward_size=64, attn_layers=["local", "local"], axial_pos_shape=[4, 4],
              axial_pos_embds_dim=[16, 16], max_position_embeddings=16, local_attn_chunk_length=4, is_decoder=True,
              hidden_dropout_prob=0.0, local_attention_probs_dropout_prob=0.0)  # fmt: skip

# From one text to another.
for _family, _more in {
    "Pegasus": {}, "MBart": {}, "Blenderbot": {}, "BlenderbotSmall": {}, "M2M100": {}, "PLBart": {}, "BigBirdPegasus":
    dict(attention_type="original_full"),
}.items():  # fmt: skip
    _transformers(f"{_family}ForConditionalGeneration", f"{_family}Config", _tokens(), **{**_SEQ2SEQ, **_more})
_transformers("MarianMTModel", "MarianConfig", _tokens(), pad_token_id=0, decoder_start_token_id=0, bad_words_ids=None, **_SEQ2SEQ)
_transformers("MvpForConditionalGeneration", "MvpConfig", _tokens(), **_SEQ2SEQ)
_transformers("LEDForConditionalGeneration", "LEDConfig", _tokens(), attention_window=[4, 4], max_encoder_position_embeddings=64,
              max_decoder_position_embeddings=64, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **_TWO_STACKS)  # fmt: skip
for _family in ("MT5", "UMT5", "LongT5"):
    _transformers(f"{_family}ForConditionalGeneration", f"{_family}Config", _tokens(), vocab_size=96, d_model=32, d_kv=8, d_ff=64,
                  num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)  # fmt: skip
_transformers("ProphetNetForConditionalGeneration", "ProphetNetConfig", _tokens(), vocab_size=96, hidden_size=32, num_encoder_layers=2,
              num_decoder_layers=2, num_encoder_attention_heads=4, num_decoder_attention_heads=4, encoder_ffn_dim=64,
              decoder_ffn_dim=64, max_position_embeddings=64, decoder_start_token_id=0, **_DROPLESS)  # fmt: skip

# Images.
for _family, _more in {
    "DeiT": {}, "ViTMSN": {}, "Dinov2": {}, "Beit": {}, "Data2VecVision": {}, "IJepa": {}, "Dinov2WithRegisters": {},
}.items():  # fmt: skip
    _transformers(f"{_family}ForImageClassification", f"{_family}Config", _pixels(), **{**_VISION, **_more})
for _family, _more in {"Swin": {}, "Swinv2": {}}.items():
    _transformers(f"{_family}ForImageClassification", f"{_family}Config", _pixels(), image_size=32, patch_size=2, embed_dim=16,
                  depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10, drop_path_rate=0.0)  # fmt: skip
_transformers("ConvNextV2ForImageClassification", "ConvNextV2Config", _pixels(), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
              num_labels=10, image_size=32)  # fmt: skip
_transformers("ResNetForImageClassification", "ResNetConfig", _pixels(64), embedding_size=8, hidden_sizes=[8, 16, 32, 64],
              depths=[1, 1, 1, 1], num_labels=10)  # fmt: skip
_transformers("RegNetForImageClassification", "RegNetConfig", _pixels(64), embedding_size=8, hidden_sizes=[8, 16, 32, 64],
              depths=[1, 1, 1, 1], groups_width=8, num_labels=10)  # fmt: skip
_transformers("MobileNetV2ForImageClassification", "MobileNetV2Config", _pixels(64), depth_multiplier=0.35, num_labels=10)
_transformers("EfficientNetForImageClassification", "EfficientNetConfig", _pixels(64), width_coefficient=0.25, depth_coefficient=0.3,
              hidden_dim=320, num_labels=10)  # fmt: skip
_transformers("SegformerForImageClassification", "SegformerConfig", _pixels(64), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
              num_attention_heads=[1, 2, 2, 4], num_labels=10)  # fmt: skip
_transformers("PvtV2ForImageClassification", "PvtV2Config", _pixels(64), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
              num_attention_heads=[1, 2, 2, 4], num_labels=10)  # fmt: skip
_transformers("PoolFormerForImageClassification", "PoolFormerConfig", _pixels(64), hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
              num_labels=10)  # fmt: skip
_transformers("LevitForImageClassification", "LevitConfig", _pixels(64), image_size=64, hidden_sizes=[16, 32, 48],
              num_attention_heads=[2, 2, 3], depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=10)  # fmt: skip
_transformers("MobileViTForImageClassification", "MobileViTConfig", _pixels(64), image_size=64, hidden_sizes=[16, 24, 32],
              neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], num_attention_heads=4, num_labels=10)  # fmt: skip
_transformers("FocalNetForImageClassification", "FocalNetConfig", _pixels(), image_size=32, embed_dim=16, depths=[1, 1],
              focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[16, 32], num_labels=10)  # fmt: skip
_transformers("BitForImageClassification", "BitConfig", _pixels(64),
              embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], num_groups=4, num_labels=10)  # fmt: skip


def _segmentation(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"pixel_values": rng.standard_normal((1, 3, 64, 64), dtype=np.float32), "labels": rng.integers(0, 10, (1, 64, 64))}


def _images_alone(size: int, name: str = "pixel_values") -> Any:
    return lambda rng: {name: rng.standard_normal((1, 3, size, size), dtype=np.float32)}


def _images_and_text(rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {"input_ids": rng.integers(3, 96, (2, 12)), "pixel_values": rng.standard_normal((2, 3, 32, 32), dtype=np.float32)}
    return found | {"attention_mask": np.ones((2, 12), np.int64)}


_transformers("SegformerForSemanticSegmentation", "SegformerConfig", _segmentation, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
              num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, num_labels=10, classifier_dropout_prob=0.0)  # fmt: skip
_RESNET = dict(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], out_features=["stage4"])


def _backbone(**settings: Any) -> Any:
    import transformers

    return transformers.ResNetConfig(**{**_RESNET, **settings})


def _with_backbone(model: str, config: str, inputs: Any, **settings: Any) -> None:
    def build() -> Any:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(backbone_config=_backbone(), **settings))

    CASES[model] = Case("transformers", build, inputs, _loss)


_with_backbone("DetrForObjectDetection", "DetrConfig", _images_alone(64), use_timm_backbone=False, use_pretrained_backbone=False,
               backbone=None, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
               encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=5, num_labels=10, **_DROPLESS)  # fmt: skip
_transformers("YolosForObjectDetection", "YolosConfig", _images_alone(32), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              intermediate_size=64, image_size=[32, 32], patch_size=8, num_detection_tokens=5, num_labels=10)  # fmt: skip
_transformers("DPTForDepthEstimation", "DPTConfig", _images_alone(32), hidden_size=32, num_hidden_layers=4, num_attention_heads=4,
              intermediate_size=64, image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 16, 16, 32],
              fusion_hidden_size=16, is_hybrid=False)  # fmt: skip
_transformers("Swin2SRForImageSuperResolution", "Swin2SRConfig", _images_alone(32), image_size=32, patch_size=1, embed_dim=12,
              depths=[2], num_heads=[2], window_size=4, upscale=2, drop_path_rate=0.0)  # fmt: skip
_TOWERS = dict(
    text_config=dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                     max_position_embeddings=16, eos_token_id=2, bos_token_id=1, pad_token_id=0, hidden_dropout_prob=0.0,
                     attention_probs_dropout_prob=0.0),
    vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8),
)  # fmt: skip
for _family in ("CLIP", "Siglip", "ChineseCLIP", "AltCLIP", "Blip"):
    _transformers(f"{_family}Model", f"{_family}Config", _images_and_text, projection_dim=16, **_TOWERS)


# Sound.
def _sound(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"input_values": rng.standard_normal((2, 800), dtype=np.float32), "labels": rng.integers(1, 30, (2, 4))}


_SOUND = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=[16, 16, 16],
              conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_feat_extract_layers=3, num_conv_pos_embeddings=16,
              num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0,
              final_dropout=0.0, layerdrop=0.0, apply_spec_augment=False, ctc_loss_reduction="mean", pad_token_id=0)  # fmt: skip
for _family, _more in {"Wav2Vec2": {}, "Hubert": {}, "WavLM": {}, "SEW": dict(squeeze_factor=2), "Data2VecAudio": {},
                       "UniSpeech": {}}.items():  # fmt: skip
    _transformers(f"{_family}ForCTC", f"{_family}Config", _sound, **{**_SOUND, **_more})
_transformers("ASTForAudioClassification", "ASTConfig", lambda rng: {
    "input_values": rng.standard_normal((2, 32, 16), dtype=np.float32), "labels": np.arange(2)}, hidden_size=32, num_hidden_layers=2,
    num_attention_heads=4, intermediate_size=64, patch_size=8, frequency_stride=8, time_stride=8, max_length=32, num_mel_bins=16,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
_transformers("Speech2TextForConditionalGeneration", "Speech2TextConfig", lambda rng: {
    "input_features": rng.standard_normal((2, 32, 16), dtype=np.float32), "labels": rng.integers(3, 96, (2, 8))},
    input_feat_per_channel=16, conv_channels=16, num_conv_layers=2, conv_kernel_sizes=[3, 3], max_source_positions=64,
    max_target_positions=64, decoder_start_token_id=2, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **_TWO_STACKS)  # fmt: skip
