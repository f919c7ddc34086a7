"""Models in ONNX Runtime beside eager, with batches and sequences that vary. `models.py` runs any of tests/compat's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="flambeau[onnx] is not installed")
HERE = Path(__file__).parent

MODELS = {
    "timm": "resnet18 vit_small_patch16_224 mobilenetv3_small_100 efficientnet_b0 swin_tiny_patch4_window7_224 nfnet_l0 ghostnet_100",
    "transformers": "GPT2LMHeadModel BertForMaskedLM LlamaForCausalLM MistralForCausalLM T5ForConditionalGeneration "
                    "BartForConditionalGeneration WhisperForConditionalGeneration ViTForImageClassification MambaForCausalLM "
                    "DebertaV2ForMaskedLM SegformerForSemanticSegmentation GPTNeoXForCausalLM Gemma3ForCausalLM",
    "torchvision": "torchvision:mobilenet_v2 torchvision:shufflenet_v2_x0_5 torchvision:lraspp_mobilenet_v3_large "
                   "torchvision:deeplabv3_mobilenet_v3_large",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", list(MODELS))
def test_models(library: str) -> None:
    if importlib.util.find_spec(library) is None or importlib.util.find_spec("torchvision") is None:
        pytest.skip(f"needs {library} and torchvision")
    names = MODELS[library].split()
    done = subprocess.run([sys.executable, str(HERE / "models.py"), *names], capture_output=True, text=True, check=False,
                          cwd=HERE.parent.parent)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.split(" ", 1)[0] in names)
    assert said == dict.fromkeys(names, "ok"), done.stderr[-3000:]
