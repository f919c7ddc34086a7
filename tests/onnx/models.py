"""Models of timm, transformers and torchvision in ONNX Runtime beside eager, at the sizes of their examples and at others.

`python models.py CASE ...` prints a line for each: `CASE ok`, or what differs. The cases are those of tests/compat; torchvision's are
`torchvision:NAME`.
"""

from __future__ import annotations

# isort: off
import sys
import warnings
from pathlib import Path
from typing import Any

import flambeau.as_torch  # noqa: F401
import numpy as np
import torch
# isort: on

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parent.parent / "compat"))
from cases import CASES  # noqa: E402

TOLERANCE = 1e-4


def _torchvision(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    import torchvision

    more = {"weights_backbone": None} if "deeplab" in name or "fcn" in name or "lraspp" in name else {}
    more |= {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=10, **more)
    size = 224 if "vit" in name or "swin" in name or "maxvit" in name else 96
    return model, {"x": np.random.default_rng(0).standard_normal((2, 3, size, size), dtype=np.float32)}


def _case(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    if name.startswith("torchvision:"):
        return _torchvision(name.partition(":")[2])
    case = CASES[name]
    inputs = case.inputs(np.random.default_rng(0))
    model = case.build()
    needs = getattr(getattr(model, "config", None), "is_encoder_decoder", False) and "decoder_input_ids" not in inputs
    renamed = {"decoder_input_ids" if k == "labels" and needs else k: v for k, v in inputs.items()}
    return model, {k: v for k, v in renamed.items() if "label" not in k}


def _leaves(out: Any) -> list[Any]:
    return [x for x in torch.utils._pytree.tree_leaves(dict(out) if hasattr(out, "keys") else out) if isinstance(x, torch.Tensor)]


def _other(array: np.ndarray, sizes: list[str]) -> np.ndarray:
    """The same kind of input at another size: one more example, and a shorter sequence where that varies."""
    more = np.concatenate([array, array[:1]])
    return more[:, :-4] if more.ndim == 2 and sizes[1] else more


class Outputs(torch.nn.Module):
    """A model that is called by position and gives tensors."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Any) -> Any:
        more = {"use_cache": False} if hasattr(self.model, "config") and hasattr(self.model.config, "use_cache") else {}
        named = dict(zip(self.names, args))
        return _leaves(self.model(**named, **more) if more or hasattr(self.model, "config") else self.model(*args))


def check(name: str) -> str:
    """What is to be said of a case."""
    torch.manual_seed(0)
    model, arrays = _case(name)
    module = Outputs(model.eval(), list(arrays))
    arrays = {k: np.concatenate([a, a]) if a.shape[0] == 1 else a for k, a in arrays.items()}     # one of a kind would stay one
    args = tuple(torch.from_numpy(a) for a in arrays.values())
    auto = torch.export.Dim.AUTO
    shapes = ([{0: auto, **({1: auto} if a.ndim == 2 else {})} for a in args],)
    with torch.no_grad():
        program = torch.onnx.export(module, args, dynamic_shapes=shapes)
        sizes = [[d.dim_param for d in i.type.tensor_type.shape.dim] for i in program.model_proto.graph.input]
        fixed = "" if all(s[0] for s in sizes) else f" (sizes that vary: {sizes})"
        for given in [args] + ([] if fixed else [tuple(map(torch.from_numpy, map(_other, arrays.values(), sizes)))]):
            for got, want in zip(program(*given), module(*given), strict=True):
                apart = (got.double() - want.double()).abs().max().item()
                if list(got.shape) != list(want.shape) or not apart <= TOLERANCE * max(1.0, want.double().abs().max().item()):
                    return f"differs by {apart} at {[list(g.shape) for g in given]}"
    return f"ok{fixed}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        try:
            said = check(each)
        except Exception as error:
            said = f"{type(error).__name__}: {error}".replace("\n", " ")[:600]
        print(each, said, flush=True)
