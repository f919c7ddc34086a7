"""Unmodified programs of libraries that drive several processes: losses of two processes are those of one, and torch's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.processes import needs_mpi

DATA = """
import os, sys, torch, warnings
warnings.simplefilter("ignore")
from torch.utils.data import DataLoader, TensorDataset
x = torch.linspace(-1, 1, 256).reshape(64, 4)
data = TensorDataset(x, (x.sum(1, keepdim=True) * 3).sin())

def net():
    made = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_(torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape) * (i + 1))
    return made
"""
ACCELERATE = DATA + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = net()
model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01),
                                               DataLoader(data, batch_size=16 // accelerator.num_processes))
for epoch in range(3):
    for a, b in loader:
        optimizer.zero_grad()
        loss = ((model(a) - b) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print("losses", accelerator.gather(loss.detach().reshape(1)).mean().item())
accelerator.print("losses", *(float(v.sum()) for v in accelerator.get_state_dict(model).values()))
"""
TRAINER = DATA + """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
with torch.no_grad():
    for i, p in enumerate(model.parameters()):
        p.copy_(torch.sin(torch.arange(p.numel()) * (i + 1.0) + i).reshape(p.shape) * 0.1)
rows = [(torch.arange(16) * (k + 1)) % 32 for k in range(32)]
args = TrainingArguments(output_dir=sys.argv[1], per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", 1)), num_train_epochs=2,
                         logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, learning_rate=1e-2, disable_tqdm=True,
                         train_sampling_strategy="sequential")
trainer = Trainer(model=model, args=args, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
trainer.train()
if int(os.environ.get("RANK", 0)) == 0:
    print("losses", *(entry["loss"] for entry in trainer.state.log_history if "loss" in entry))
"""
LIGHTNING = DATA + """
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.seen = net(), []

    def training_step(self, batch, number):
        loss = ((self.net(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss

    def on_train_epoch_end(self):
        self.seen.append(float(self.trainer.callback_metrics["loss"]))
        if sys.argv[2:] == ["ddp_spawn"] and len(self.seen) == 3 and self.global_rank == 0:
            print("losses", True, *self.seen)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def configure_model(self):
        if sys.argv[2:] == ["fully_shard"]:
            from torch.distributed.fsdp import fully_shard
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

def strategy(name):
    from lightning.pytorch import strategies
    if name == "fully_shard":
        return strategies.ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    class OnCPU(strategies.FSDPStrategy):      # Lightning lets its own one run on GPUs alone
        pass
    return OnCPU(process_group_backend="gloo", auto_wrap_policy={torch.nn.Linear}) if name == "fsdp" else name

if __name__ == "__main__":
    name = sys.argv[2] if len(sys.argv) > 2 else "ddp"
    model = Model()
    trainer = lightning.Trainer(max_epochs=3, enable_progress_bar=False, enable_checkpointing=False, logger=False, accelerator="cpu",
                                enable_model_summary=False, devices=2, strategy=strategy(name))
    trainer.fit(model, DataLoader(data, batch_size=8))
    if trainer.global_rank == 0 and name != "ddp_spawn":      # which runs in processes of its own
        print("losses", type(trainer.strategy).__name__ == "DDPStrategy", *model.seen)
"""
SHARDED = """
import os, torch, torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
alone, rank, rows = "RANK" not in os.environ, int(os.environ.get("RANK", 0)), 16

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())

for way in ("shards", "tensors"):
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), Block(8), Block(8), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape) * (1 + i / 10))
    mine = slice(0, rows)
    if not alone:
        mesh = init_device_mesh("cpu", (2,))
        for block in net[1:3]:
            fully_shard(block, mesh=mesh) if way == "shards" else parallelize_module(
                block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if way == "shards":
            fully_shard(net, mesh=mesh)
            mine = slice(rank * rows // 2, (rank + 1) * rows // 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 256).reshape(64, 4)
    target, seen = (x.sum(1, keepdim=True) * 3).sin(), []
    for step in range(8):
        part = slice(step % 4 * rows, (step % 4 + 1) * rows)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x[part][mine]), target[part][mine])
        loss.backward()
        if way == "shards":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        if not alone:
            dist.all_reduce(mean)
            mean /= 2
        seen.append(mean.item())
    whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        print("losses", *seen, *(float(whole[name].sum()) for name in sorted(whole)))
"""
TORCHRUN = ("-m", "{library}.distributed.run", "--standalone", "--nproc-per-node=2")
LAUNCH = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no")
RUN = {"flambeau": ("-m", "flambeau", "run"), "torch": ()}


def losses(script: Path, *command: str, arguments: Sequence[str] = ()) -> list[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([sys.executable, *command, str(script), str(script.parent / "out"), *arguments], env=env, capture_output=True,
                          text=True, timeout=240, cwd=script.parent)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    return [word for line in re.findall(r"^losses (.*)$", done.stdout, re.M) for word in line.split()]


def compare(found: Sequence[str], expected: Sequence[str]) -> None:
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected):
        np.testing.assert_allclose(*(float(v == "True") if v.isalpha() else float(v) for v in (a, b)), rtol=1e-5, atol=1e-5)


@needs_mpi
@pytest.mark.timeout(500)
@pytest.mark.parametrize(("package", "program"), [
    pytest.param(None, SHARDED, id="sharded"), ("accelerate", ACCELERATE), ("transformers", TRAINER), ("lightning", LIGHTNING)])
def test_losses(package: str | None, program: str, tmp_path: Path) -> None:
    if package is not None and not (find_spec(package) and find_spec("accelerate")):
        pytest.skip(f"needs {package} and accelerate")
    script = tmp_path / "program.py"
    script.write_text(program)
    starts_itself = package == "lightning"      # by the script's own command, once more
    found = losses(script, *(RUN["flambeau"] if starts_itself else (part.format(library="flambeau") for part in TORCHRUN)))
    if not starts_itself:
        compare(found, losses(script, *RUN["flambeau"]))
    if package == "accelerate":
        compare(found, losses(script, *RUN["flambeau"], *LAUNCH))
    if find_spec("torch") is not None:
        try:
            expected = losses(script, *(RUN["torch"] if starts_itself else (part.format(library="torch") for part in TORCHRUN)))
        except AssertionError as error:
            if "torchvision" not in str(error):     # of another release of torch, which it then ends
                raise
        else:
            compare(found, expected)


@needs_mpi
@pytest.mark.timeout(500)
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
def test_strategies_of_lightning(tmp_path: Path) -> None:
    """Two processes learn the same in each of its ways."""
    script = tmp_path / "program.py"
    script.write_text(LIGHTNING)
    _, *expected = losses(script, *RUN["flambeau"])
    for name in ("ddp_spawn", "fsdp", "fully_shard"):
        _, *found = losses(script, *RUN["flambeau"], arguments=[name])
        compare(found, expected)


def test_processes_of_a_program_have_the_same_torch(tmp_path: Path) -> None:
    """Whatever starts them, Python's processes under `flambeau run` import Flambeau as torch, and read the program's sitecustomize."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.own_site = True\n")
    script = tmp_path / "parent.py"
    script.write_text("""
import subprocess, sys
child = '''import importlib.metadata, torch, flambeau
print("losses", torch is flambeau, own_site, importlib.metadata.version("torch") == torch.__version__)'''
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout)
""")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script)], env=env, capture_output=True, text=True, timeout=120)
    assert "losses True True True" in done.stdout, done.stdout + done.stderr


ALONE_BEFORE = """
from mpi4py import MPI      # which begins MPI, as libraries do that ask it whether there is an mpirun
import os
assert MPI.COMM_WORLD.size == 1
import torch
import torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo")
    x = torch.full((5000,), dist.get_rank() + 1.0)
    work = dist.all_reduce(x, async_op=True)
    dist.all_reduce(torch.ones(2), group=dist.new_group([dist.get_rank()], use_local_synchronization=True))
    work.wait()
    objects = [None] * 2
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    if dist.get_rank() == 0:
        print("losses", x.sum().item(), *(o["rank"] for o in objects), flush=True)
    dist.destroy_process_group()
"""


@needs_mpi
def test_a_library_may_have_begun_mpi(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ALONE_BEFORE)
    assert losses(script, *(part.format(library="flambeau") for part in TORCHRUN)) == ["15000.0", "0", "1"] * 2
