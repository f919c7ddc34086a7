"""Export the cases' models with batches (and sequences) that vary, and run them at other sizes: `python exported.py [NAME ...]`.

Without names, 40 models of timm and 40 of transformers, in small sizes. One line a model: "ok", or what went wrong. `--package` compiles
each ahead of time, too, and runs that.
"""

from __future__ import annotations

import flambeau.as_torch  # noqa: F401

# isort: split
import argparse
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from cases import CASES
from torch.export import Dim, export

TIMM = (
    "resnet18", "mobilenetv3_small_100", "efficientnet_b0", "convnext_tiny", "regnetx_002", "densenet121", "vgg11_bn", "resnext50_32x4d",
    "ghostnet_100", "repvgg_a0", "tf_efficientnetv2_b0", "res2net50_26w_4s", "convmixer_768_32", "resnetv2_50d_gn", "resnet50d",
    "ecaresnet26t", "seresnext26ts", "regnety_002", "mobilenetv2_100", "mobilenetv4_conv_small", "mnasnet_small", "efficientnet_lite0",
    "mixnet_s", "tinynet_e", "lcnet_050", "convnextv2_atto", "dpn68", "rexnet_100", "skresnet18", "repvit_m0_9", "mobileone_s0", "dla34",
    "selecsls42b", "ese_vovnet19b_dw", "efficientvit_b0", "poolformerv2_s12", "starnet_s1", "fasternet_t0",
    "vit_tiny_patch16_384", "deit3_small_patch16_224",
)
TRANSFORMERS = 40
UNROLLED = ("MambaForCausalLM",)    # loops over the sequence in Python: its length is a constant


def inputs_of(name: str, batch: int, length: int | None, decodes: bool) -> dict[str, Any]:
    """A case's inputs with other sizes, without labels; what decodes is given them as what it has decoded."""
    arrays = CASES[name].inputs(np.random.default_rng(batch))
    made = {}
    for key, array in arrays.items():
        if "label" in key and not (decodes and array.ndim == 2):
            continue
        key = "decoder_input_ids" if "label" in key else key
        rows = np.concatenate([array] * -(-batch // len(array)))[:batch]
        made[key] = torch.from_numpy(rows[:, :length] if length and _is_text(key, array) else rows)
    return made


def _is_text(key: str, array: Any) -> bool:
    return array.ndim == 2 and array.dtype == np.int64 and key in ("input_ids", "attention_mask", "decoder_input_ids", "token_type_ids")


def tried(name: str, package: bool) -> str:
    """What comes of one model."""
    torch.manual_seed(0)
    model = CASES[name].build().eval()
    for module in model.modules():
        if hasattr(module, "config") and hasattr(module.config, "use_cache"):
            module.config.use_cache = False     # what is remembered is no tensor
    decodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    args = inputs_of(name, 2, None, decodes)
    longest = max((value.shape[1] for key, value in args.items() if _is_text(key, value.numpy())), default=0)
    batch, length = Dim("batch", min=2, max=64), Dim("length", min=2, max=max(32, longest))
    said = {key: {0: batch, 1: length} if _is_text(key, value.numpy()) else {0: batch} for key, value in args.items()}
    positional = CASES[name].library == "timm"
    program = export(model, tuple(args.values()) if positional else (), None if positional else args,
                     dynamic_shapes=tuple(said.values()) if positional else said)
    runs = [program.module()]
    if package:
        with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
            torch._inductor.aoti_compile_and_package(program, package_path=file.name)
            runs.append(torch._inductor.aoti_load_package(file.name))
    worst = 0.0
    for sizes in ((2, None), (3, 12)):
        given = inputs_of(name, *sizes, decodes)
        with torch.no_grad():
            expected = model(*given.values()) if positional else model(**given)
            for run in runs:
                worst = max(worst, _apart(run(*given.values()) if positional else run(**given), expected))
    return "ok" if worst < 1e-3 else f"differs by {worst:.2g}"


def _apart(got: Any, expected: Any) -> float:
    pairs = zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), strict=True)
    return max((float((a - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in pairs if torch.is_tensor(b) and b.is_floating_point()),
               default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--package", action="store_true")
    args = parser.parse_args()
    language = [name for name, case in CASES.items() if case.library == "transformers" and name not in UNROLLED][:TRANSFORMERS]
    right = 0
    names = args.names or [*TIMM, *language]
    for name in names:
        start = time.perf_counter()
        try:
            said = tried(name, args.package)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:600]}"
        right += said == "ok"
        print(f"{name} ({time.perf_counter() - start:.1f} s): {said}", flush=True)
    print(f"{right} of {len(names)}")
    sys.exit(right < len(names))


if __name__ == "__main__":
    main()
