"""Models of timm, on images as small as each allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from case import Case

CASES: dict[str, Case] = {}


def _timm(name: str, size: int = 224, batch: int = 2, **options: Any) -> None:
    def build() -> Any:
        import timm

        return timm.create_model(name, num_classes=10, drop_rate=0.0, **options)

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

for _name in (  # fully convolutional: any size will do
    "resnet50", "resnetv2_50d_gn", "resnet50d", "ecaresnet26t", "resnetaa50", "seresnext26ts", "gcresnet33ts", "wide_resnet50_2",
    "regnety_002", "regnetz_b16", "mobilenetv2_100", "mobilenetv4_conv_small", "mnasnet_small", "efficientnet_lite0", "mixnet_s",
    "tinynet_e", "fbnetv3_b", "lcnet_050", "convnextv2_atto", "convnext_atto_rms", "dpn68", "vgg16", "ghostnetv2_100",
    "dm_nfnet_f0", "nf_resnet50", "res2net50_14w_8s", "res2next50", "rexnet_100", "skresnet18", "tresnet_m", "resnest14d", "repvit_m0_9",
    "fastvit_t8", "mobileone_s0", "hardcorenas_a", "hgnetv2_b0", "dla34", "cspdarknet53", "selecsls42b", "legacy_seresnet18",
    "legacy_xception", "xception41", "vovnet39a", "ese_vovnet19b_dw", "inception_next_atto", "focalnet_tiny_srf",
    "efficientvit_b0", "pvt_v2_b0", "poolformerv2_s12", "caformer_s18", "convformer_s18", "starnet_s1", "fasternet_t0", "mambaout_femto",
    "resnet50_gn", "test_efficientnet_evos", "csatv2", "nextvit_small", "rdnet_tiny", "repghostnet_050", "shvit_s1", "iformer_t",
    "lambda_resnet26t", "eca_botnext26ts_256", "halonet26t", "mobilevitv2_050", "edgenext_small", "sequencer2d_s",
):  # fmt: skip
    _timm(_name, 256 if "botnext" in _name or "halo" in _name or "lambda" in _name else 64)
for _name, _size in {  # attention over a fixed grid
    "swinv2_tiny_window8_256": 64, "swinv2_cr_tiny_224": 64, "swin_s3_tiny_224": 224, "maxvit_tiny_tf_224": 224, "coatnet_0_224": 224,
    "mvitv2_tiny": 64, "twins_svt_small": 64, "twins_pcpvt_small": 64, "convit_tiny": 64, "coat_tiny": 64,
    "crossvit_9_240": 240, "vit_small_patch14_reg4_dinov2": 56, "vit_tiny_patch16_384": 64, "deit3_small_patch16_224": 64,
    "vit_relpos_small_patch16_224": 64, "vit_srelpos_small_patch16_224": 64, "eva02_tiny_patch14_224": 56, "hiera_tiny_224": 64,
    "gcvit_xxtiny": 64,
    "nest_tiny": 64, "tnt_s_patch16_224": 64, "swiftformer_xs": 224, "resmlp_12_224": 64, "gmixer_12_224": 64,
    "vit_small_resnet26d_224": 64, "vit_xsmall_patch16_clip_224": 64, "vitamin_small_224": 64,
    "vit_medium_patch16_rope_reg1_gap_256": 64, "naflexvit_base_patch16_gap": 64,
}.items():  # fmt: skip
    takes_size = _size == 224 or _name.startswith(("naflex", "crossvit"))
    _timm(_name, _size, 1, **({} if takes_size else {"img_size": _size}))
_timm("xcit_tiny_12_p8_224", 64, img_size=64)  # two images: for one, PyTorch's batch norm is wrong in backward with these strides
for _name, _size in {
    "efficientformer_l1": 224, "inception_v4": 96,
    "visformer_tiny": 224, "davit_tiny": 64, "tiny_vit_5m_224": 224, "efficientformerv2_s0": 224,
    "efficientvit_m0": 224, "levit_conv_128s": 224, "sam2_hiera_tiny": 64,
}.items():  # fmt: skip
    _timm(_name, _size)
