"""timm's and transformers' models, unmodified, with Flambeau in PyTorch's place: outputs, losses, gradients and one AdamW step.

Both sides run `worker.py` in processes of their own, because a process can have one `torch` only. Weights are drawn by PyTorch.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.compare import differences

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TOLERANCE = 1e-3

EAGER = {
    "timm": ["resnet18", "vit_small_patch16_224", "mobilenetv3_small_100", "regnetx_002", "edgenext_xx_small", "mobilevit_xxs"],
    "transformers": [
        "GPT2LMHeadModel", "BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "LlamaForCausalLM",
        "MistralForCausalLM", "Qwen2ForCausalLM", "OPTForCausalLM", "T5ForConditionalGeneration", "BartForConditionalGeneration",
        "ViTForImageClassification", "WhisperForConditionalGeneration", "MixtralForCausalLM", "DebertaV2ForMaskedLM",
        "GPTNeoForCausalLM", "GptOssForCausalLM", "LongformerForMaskedLM", "WavLMForCTC", "Mamba2ForCausalLM"],
    "transformers, own sizes": ["gpt2-default", "bert-default"],
}  # fmt: skip
COMPILED = {
    "timm": ["resnet18", "vit_small_patch16_224"],
    "transformers": ["GPT2LMHeadModel", "BertForMaskedLM", "LlamaForCausalLM"],
    "transformers, own sizes": ["gpt2-default", "bert-default"],
}

needs = {
    library: pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in names), reason=f"needs {' and '.join(names)}"
    )
    for library, names in {"timm": ("torch", "torchvision", "timm"), "transformers": ("torch", "transformers")}.items()
}
pytestmark = pytest.mark.timeout(900)


def worker(library: str, folder: Path, cases: list[str], *options: str) -> dict[str, str]:
    """What `worker.py` says of each case: "ok" or its error."""
    done = subprocess.run(
        [sys.executable, str(HERE / "worker.py"), library, str(folder), *cases, *options],
        capture_output=True, text=True, cwd=ROOT, check=False)  # fmt: skip
    said = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        if name in cases:
            said[name] = "ok" if rest.startswith("ok") else rest
    if done.returncode or set(said) != set(cases):
        raise RuntimeError(f"worker {library} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-4000:]}")
    return said


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """`answers(guest library, mode)`: the folder and what the worker said; each process runs once. They leave some GB behind."""
    found: dict[tuple[str, str], tuple[Path, dict[str, str]]] = {}
    folders: dict[str, Path] = {}

    def get(guest: str, mode: str) -> tuple[Path, dict[str, str]]:
        if guest not in folders:
            folders[guest] = tmp_path_factory.mktemp(guest.partition(",")[0])
            said = worker("torch", folders[guest], EAGER[guest])
            assert set(said.values()) == {"ok"}, said
        if (guest, mode) not in found:
            compiled = ["--compile", mode] if mode != "eager" else []
            cases = EAGER[guest] if mode == "eager" else COMPILED[guest]
            found[guest, mode] = folders[guest], worker("flambeau", folders[guest], cases, *compiled)
        return found[guest, mode]

    yield get
    for folder in folders.values():
        shutil.rmtree(folder)


def check(answers: Callable, guest: str, case: str, mode: str) -> None:
    folder, said = answers(guest, mode)
    assert said[case] == "ok"
    suffix = "" if mode == "eager" else f".{mode}"
    made = folder / f"{case}.flambeau{suffix}.npz"
    worst = differences(made, folder / f"{case}.torch.npz")
    made.unlink()
    assert {"eval", "loss", "grad", "stepped"} <= set(worst)
    assert not {kind: found for kind, found in worst.items() if found[0] > TOLERANCE}


@needs["timm"]
@pytest.mark.parametrize("case", EAGER["timm"])
def test_timm_eager(answers: Callable, case: str) -> None:
    check(answers, "timm", case, "eager")


@needs["timm"]
@pytest.mark.parametrize("case", COMPILED["timm"])
def test_timm_compiled_as_one_graph(answers: Callable, case: str) -> None:
    check(answers, "timm", case, "inductor")


@needs["transformers"]
@pytest.mark.parametrize("case", EAGER["transformers"])
def test_transformers_eager(answers: Callable, case: str) -> None:
    check(answers, "transformers", case, "eager")


@needs["transformers"]
@pytest.mark.parametrize("case", COMPILED["transformers"])
def test_transformers_compiled_as_one_graph(answers: Callable, case: str) -> None:
    check(answers, "transformers", case, "inductor")


@needs["transformers"]
@pytest.mark.parametrize("mode", ["eager", "inductor"])
@pytest.mark.parametrize("case", EAGER["transformers, own sizes"])
def test_transformers_in_their_own_sizes(answers: Callable, case: str, mode: str) -> None:
    check(answers, "transformers, own sizes", case, mode)
