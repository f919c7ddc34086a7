"""Fine-tune a language model of Hugging Face's `transformers` with its `Trainer`: which passages of "Alice" are spoken, and which told?

    python -m flambeau run examples/hf_trainer.py                    on Flambeau; `python examples/hf_trainer.py` on PyTorch
    ... --model FOLDER                                               from a GPT-2 of yours, as `save_pretrained` wrote it

Without `--model` nothing is downloaded: a small GPT-2 first learns the book's letters, and is saved as a pretrained model is. Leaves
`loss.svg` and the models in `--out`. Needs transformers and accelerate.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from show import write_loss_plot
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedModel, Trainer, TrainingArguments

TEXT = Path(__file__).with_name("alice.txt")
LENGTH = 48  # letters in a passage
LETTERS = 128  # the model's vocabulary: ASCII
Example = dict[str, torch.Tensor]


class Examples(Dataset):
    """Examples in memory, as `Trainer` wants them."""

    def __init__(self, examples: list[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, i: int) -> Example:
        return self.examples[i]


def letters(text: str) -> torch.Tensor:
    """The numbers of a text's letters; capitals and what is not ASCII would give too much away."""
    return torch.tensor(list(text.lower().encode("ascii", "replace")))


def to_continue(text: str) -> Examples:
    """Passages of the book, of which each letter is to be told from those before."""
    ids = letters(text)
    return Examples([{"input_ids": part, "labels": part} for part in ids.split(LENGTH) if len(part) == LENGTH])


def to_classify(text: str) -> tuple[Examples, Examples]:
    """Passages without their quotation marks, labelled 1 where somebody speaks: for training, and every fifth for evaluation."""
    examples = []
    for line in text.splitlines():
        for i, part in enumerate(line.split('"')):
            passage = letters(part.strip())
            examples += [{"input_ids": piece, "labels": torch.tensor(i % 2)} for piece in passage.split(LENGTH) if len(piece) == LENGTH]
    random.Random(0).shuffle(examples)
    return Examples([e for i, e in enumerate(examples) if i % 5]), Examples(examples[::5])


def small_gpt2(args: argparse.Namespace) -> GPT2Config:
    """The shape of the model that is made here. Letters have no number 0, so it fills."""
    return GPT2Config(vocab_size=LETTERS, n_positions=LENGTH, n_embd=args.width, n_layer=args.layers, n_head=4, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, pad_token_id=0, num_labels=2)  # fmt: skip


def right(prediction: tuple) -> dict[str, float]:
    """The fraction of passages that are classified rightly."""
    logits, labels = prediction
    return {"right": float((logits.argmax(-1) == labels).mean())}


def train(
    model: PreTrainedModel, folder: Path, data: Examples, steps: int, args: argparse.Namespace, test: Examples | None = None
) -> Trainer:
    """`model` trained for `steps` steps, behind the Trainer's own progress bar, and saved in `folder`."""
    arguments = TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=args.batch, per_device_eval_batch_size=64, learning_rate=args.lr,
        warmup_steps=steps // 10, lr_scheduler_type="cosine", weight_decay=0.01, logging_steps=max(1, steps // 40), save_strategy="no",
        report_to=[], use_cpu=True, seed=args.seed, torch_compile=args.compile,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=test, compute_metrics=right)
    trainer.train()
    trainer.save_model(str(folder))
    return trainer


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder with a pretrained GPT-2 whose vocabulary is letters")
    parser.add_argument("--pretraining", type=int, default=400, help="steps of it, where no model is given")
    parser.add_argument("--steps", type=int, default=200, help="of fine-tuning")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="TrainingArguments(torch_compile=True)")
    parser.add_argument("--out", type=Path, default=Path("out/hf_trainer"))
    parser.add_argument("--smoke", action="store_true", help="a tiny model for a few steps: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(pretraining=4, steps=4, batch=4, width=16, layers=1)
    return args


def main() -> None:
    args = parse_args()
    text = TEXT.read_text(encoding="utf-8")
    torch.manual_seed(args.seed)
    pretrained = args.model or str(args.out / "pretrained")
    if not args.model:
        train(GPT2LMHeadModel(small_gpt2(args)), Path(pretrained), to_continue(text), args.pretraining, args)
    data, test = to_classify(text)
    torch.manual_seed(args.seed)
    model = GPT2ForSequenceClassification.from_pretrained(pretrained, num_labels=2, pad_token_id=0)
    trainer = train(model, args.out / "fine-tuned", data, args.steps, args, test)
    curve = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    across = f"{max(1, args.steps // 40)} steps"
    write_loss_plot(args.out / "loss.svg", {"training": curve}, "GPT-2: is this passage spoken?", across)
    result = trainer.evaluate()
    print(f"{torch.__package__}: loss {result['eval_loss']:.4f}, {result['eval_right']:.2%} of {len(test)} passages right")
    print(f"wrote {args.out / 'loss.svg'} and the models beside it")


if __name__ == "__main__":
    main()
