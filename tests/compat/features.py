"""What users do with timm and transformers beside calling a model: generation, checkpoints, optimizers, transforms, features.

Run by `test_features.py` with Flambeau as torch; prints "NAME ok" or "NAME failed ERROR". Each function asserts what it did.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np


def gpt2() -> Any:
    import torch
    import transformers
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(config).eval(), torch.arange(3, 11).reshape(1, 8)


def greedy_generation_follows_the_logits() -> None:
    model, ids = gpt2()
    out = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=2)
    for place in range(ids.shape[1], out.shape[1]):
        assert model(out[:, :place]).logits[0, -1].argmax() == out[0, place]


def sampling_beams_and_static_cache() -> None:
    model, ids = gpt2()
    for settings in ({"do_sample": True, "top_k": 5, "top_p": 0.9}, {"num_beams": 3}, {"cache_implementation": "static"}):
        assert tuple(model.generate(ids, max_new_tokens=4, pad_token_id=2, **settings).shape) == (1, 12)


def pretrained_round_trip() -> None:
    model, ids = gpt2()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder).eval()
        assert (again(ids).logits == model(ids).logits).all()


def gradient_checkpointing() -> None:
    model, ids = gpt2()
    for p in model.config.to_dict():
        if p.endswith("pdrop"):
            setattr(model.config, p, 0.0)
    model(ids, labels=ids).loss.backward()
    expected = model.transformer.wte.weight.grad.clone()
    model.zero_grad()
    model.train()
    for module in model.modules():
        if type(module).__name__ == "Dropout":
            module.p = 0.0
    model.gradient_checkpointing_enable()
    model(ids, labels=ids).loss.backward()
    np.testing.assert_allclose(model.transformer.wte.weight.grad.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def schedules() -> None:
    import torch
    import transformers
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, 10)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5]


def embeddings_can_be_resized() -> None:
    model, _ = gpt2()
    model.resize_token_embeddings(100)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert model.lm_head.weight.shape[0] == 100


def safetensors_own_loader() -> None:
    import torch
    from safetensors.torch import load_file, save_file
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, f"{folder}/x.safetensors")
        loaded = load_file(f"{folder}/x.safetensors")
        assert all((loaded[k] == v).all() and loaded[k].dtype == v.dtype for k, v in tensors.items())


def timm_optimizers() -> None:
    import timm.optim
    import torch
    for name in ("sgd", "adamw", "lamb", "lion", "adafactor", "nadamw", "muon", "adopt", "radam"):
        model = torch.nn.Linear(4, 2)
        before = model.weight.detach().clone()
        optimizer = timm.optim.create_optimizer_v2(model, opt=name, lr=1e-2)
        for _ in range(2):  # the first step of ADOPT only looks
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
        assert (model.weight != before).any(), name


def feature_maps() -> None:
    import timm
    import torch
    from torchvision.models.feature_extraction import create_feature_extractor
    model = timm.create_model("resnet18").eval()
    images = torch.randn(1, 3, 64, 64)
    assert create_feature_extractor(model, ["layer2"])(images)["layer2"].shape == (1, 128, 8, 8)
    assert len(timm.create_model("resnet18", features_only=True)(images)) == 5


def image_transforms() -> None:
    import torch
    from PIL import Image
    from timm.data import create_transform
    from torchvision.transforms import v2
    image = Image.fromarray((np.random.default_rng(0).random((80, 90, 3)) * 255).astype("uint8"))
    assert create_transform(64, is_training=True)(image).shape == (3, 64, 64)
    assert create_transform(64)(image).shape == (3, 64, 64)
    chain = v2.Compose([v2.RandomResizedCrop(32), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)])
    assert chain(torch.randint(0, 255, (3, 40, 40), dtype=torch.uint8)).shape == (3, 32, 32)


FEATURES: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (greedy_generation_follows_the_logits, sampling_beams_and_static_cache, pretrained_round_trip, gradient_checkpointing,
              schedules, embeddings_can_be_resized, safetensors_own_loader, timm_optimizers, feature_maps, image_transforms)
}  # fmt: skip


def main() -> None:
    import flambeau.as_torch  # noqa: F401
    for name, feature in FEATURES.items():
        try:
            feature()
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            print(name, "failed", f"{type(error).__name__}: {error}".splitlines()[0], flush=True)
        else:
            print(name, "ok", flush=True)


if __name__ == "__main__":
    main()
