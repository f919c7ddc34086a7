"""Models of timm and transformers, small enough for a test: how to build each, its inputs and its loss.

Written against `torch`, which is PyTorch or Flambeau: `worker.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F


class Case(NamedTuple):
    """One model. `build()`, `inputs(rng)` gives keyword arguments as arrays, `loss(outputs, inputs)` a scalar tensor."""

    library: str
    build: Callable[[], Any]
    inputs: Callable[[np.random.Generator], dict[str, np.ndarray]]
    loss: Callable[[Any], Any]


CASES: dict[str, Case] = {}


# -- timm ------------------------------------------------------------------------------------------------
def _timm(name: str, size: int = 224, batch: int = 2, **options: Any) -> None:
    def build() -> Any:
        import timm

        return timm.create_model(name, num_classes=10, **options)

    def images(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((batch, 3, size, size), dtype=np.float32)}

    CASES[name] = Case("timm", build, images, lambda out: F.cross_entropy(out, torch.arange(batch) % 10))


_timm("resnet18")
_timm("vit_small_patch16_224")
_timm("mobilenetv3_small_100", 96)
_timm("efficientnet_b0", 96)
_timm("convnext_tiny", 64)
_timm("deit_tiny_patch16_224")
_timm("mixer_s16_224")
_timm("swin_tiny_patch4_window7_224", batch=1)
_timm("regnetx_002", 96)
_timm("densenet121", 64)
_timm("vgg11_bn", 64)
_timm("resnext50_32x4d", 64)
_timm("mobilevit_xxs", 64)
_timm("eva02_tiny_patch14_224", 224, batch=1)
_timm("beit_base_patch16_224", 224, batch=1, depth=2)
_timm("edgenext_xx_small", 64)
_timm("maxvit_pico_rw_256", 256, batch=1)
_timm("coatnet_pico_rw_224", 224, batch=1)
_timm("ghostnet_100", 64)
_timm("hrnet_w18_small", 64)
_timm("inception_v3", 96)
_timm("nfnet_l0", 64)
_timm("poolformer_s12", 64)
_timm("repvgg_a0", 64)
_timm("xcit_nano_12_p16_224", 224)  # PyTorch 2.13's own batch norm is wrong in backward for one image with these strides
_timm("levit_128s", 224)
_timm("pit_ti_224", 224, batch=1)
_timm("cait_xxs24_224", 224, batch=1)
_timm("volo_d1_224", 224, batch=1)
_timm("gmlp_s16_224", 224, batch=1)
_timm("tf_efficientnetv2_b0", 96)
_timm("res2net50_26w_4s", 64)
_timm("convmixer_768_32", 64)
_timm("vit_tiny_patch16_224", 224)


# -- transformers ------------------------------------------------------------------------------------------
def _transformers(model: str, config: str, inputs: Callable[[np.random.Generator], dict[str, np.ndarray]], **settings: Any) -> None:
    def build() -> Any:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    CASES[model] = Case("transformers", build, inputs, lambda out: out.loss)


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


_BERT = dict(
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_LLAMA = dict(
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
)

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
_transformers(
    "GPTNeoXForCausalLM",
    "GPTNeoXConfig",
    _tokens(),
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
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
_transformers(
    "BartForConditionalGeneration",
    "BartConfig",
    _tokens(),
    vocab_size=96,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
)
_transformers(
    "ViTForImageClassification",
    "ViTConfig",
    _pixels(),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=10,
)
_transformers(
    "WhisperForConditionalGeneration",
    "WhisperConfig",
    _speech,
    vocab_size=96,
    num_mel_bins=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    d_model=32,
    max_source_positions=30,
    max_target_positions=32,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    suppress_tokens=None,
    begin_suppress_tokens=None,
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
