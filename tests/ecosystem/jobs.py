"""Small real jobs of libraries that nobody here wrote, under PyTorch or under Flambeau in its place.

    python tests/ecosystem/jobs.py import MODULE...            which of them can be imported (each in a process of its own)
    python tests/ecosystem/jobs.py torch|flambeau LIBRARY [--compile]

A job gives numbers to compare, as JSON on the last line. Weights and inputs come from NumPy, so that both libraries have the same.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Job = Callable[[Any, Callable[[Any], Any]], dict[str, Any]]
JOBS: dict[str, Job] = {}
PACKAGES = {"fabric": "lightning"}
"""By job, the package that it needs, where that has another name."""


def job(library: str) -> Callable[[Job], Job]:
    """Enter a job: a function of torch and of what compiles a function or module, or leaves it as it is."""
    def enter(fn: Job) -> Job:
        JOBS[library] = fn
        return fn
    return enter


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """The same numbers everywhere."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fill(torch: Any, module: Any) -> Any:
    """Parameters from NumPy."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.from_numpy(0.3 * numbers(*p.shape, seed=i + 1)))
    return module


def trained(torch: Any, module: Any, run: Callable[[Any], Any], optimizer: Any = None, steps: int = 3) -> dict[str, Any]:
    """Losses and the parameters' sums after some steps."""
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = run(module)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"losses": losses, "sums": [float(p.detach().sum()) for p in module.parameters()]}


def mlp(torch: Any, n: int = 4, out: int = 3) -> Any:
    """A small network."""
    return fill(torch, torch.nn.Sequential(torch.nn.Linear(n, 8), torch.nn.Tanh(), torch.nn.Linear(8, out)))


@job("einops")
def _einops(torch: Any, made: Any) -> dict[str, Any]:
    from einops import rearrange, reduce
    x = torch.from_numpy(numbers(2, 3, 4, 4)).requires_grad_()
    y = made(lambda t: reduce(rearrange(t, "b c (h p) w -> b (c p) h w", p=2), "b c h w -> b c", "mean"))(x)
    y.square().sum().backward()
    return {"y": y.tolist(), "grad": x.grad.sum((0, 2, 3)).tolist()}


@job("torchmetrics")
def _torchmetrics(torch: Any, made: Any) -> dict[str, Any]:
    import torchmetrics
    scores, labels = torch.from_numpy(numbers(50, 4)), torch.from_numpy(np.arange(50) % 4)
    metrics = {"accuracy": torchmetrics.Accuracy("multiclass", num_classes=4), "auroc": torchmetrics.AUROC("multiclass", num_classes=4),
               "f1": torchmetrics.F1Score("multiclass", num_classes=4, average="macro")}
    return {name: float(metric(scores.softmax(-1), labels)) for name, metric in metrics.items()}


@job("torchdiffeq")
def _torchdiffeq(torch: Any, made: Any) -> dict[str, Any]:
    from torchdiffeq import odeint
    net = mlp(torch, 3, 3)
    f, x, t = made(net), torch.from_numpy(numbers(2, 3)), torch.linspace(0, 1, 4)
    return trained(torch, net, lambda _: odeint(lambda _, y: f(y), x, t, method="rk4").square().mean())


@job("lion_pytorch")
def _lion(torch: Any, made: Any) -> dict[str, Any]:
    from lion_pytorch import Lion
    net, x = mlp(torch), torch.from_numpy(numbers(5, 4))
    f = made(net)
    return trained(torch, net, lambda _: f(x).square().mean(), Lion(net.parameters(), lr=1e-3))


@job("captum")
def _captum(torch: Any, made: Any) -> dict[str, Any]:
    from captum.attr import IntegratedGradients
    net, x = mlp(torch), torch.from_numpy(numbers(5, 4))
    return {"attributions": IntegratedGradients(made(net)).attribute(x, target=1, n_steps=8).tolist()}


@job("kornia")
def _kornia(torch: Any, made: Any) -> dict[str, Any]:
    import kornia
    x = torch.from_numpy(np.abs(numbers(1, 3, 8, 8)).clip(0, 1)).requires_grad_()
    y = made(lambda t: kornia.filters.gaussian_blur2d(kornia.color.rgb_to_grayscale(t), (3, 3), (1.0, 1.0)))(x)
    y.square().sum().backward()
    return {"y": y.tolist(), "grad": x.grad.sum().item()}


@job("zuko")
def _zuko(torch: Any, made: Any) -> dict[str, Any]:
    import zuko
    flow, x = fill(torch, zuko.flows.MAF(2, 0, transforms=2, hidden_features=(8,))), torch.from_numpy(numbers(6, 2))
    return trained(torch, flow, lambda f: -f().log_prob(x).mean())


@job("gpytorch")
def _gpytorch(torch: Any, made: Any) -> dict[str, Any]:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 10)
    y, likelihood = torch.sin(6 * x), gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return trained(torch, model, lambda m: -objective(m(x), y))


@job("pyro")
def _pyro(torch: Any, made: Any) -> dict[str, Any]:
    import pyro
    import pyro.distributions as dist
    data = torch.from_numpy(numbers(20) + 1)

    def model() -> None:
        loc = pyro.param("loc", torch.tensor(0.0))
        with pyro.plate("data", 20):
            pyro.sample("x", dist.Normal(loc, 1.0), obs=data)

    svi = pyro.infer.SVI(model, lambda: None, pyro.optim.Adam({"lr": 0.1}), pyro.infer.Trace_ELBO())
    return {"losses": [float(svi.step()) for _ in range(4)], "loc": float(pyro.param("loc").detach())}


@job("torch_geometric")
def _geometric(torch: Any, made: Any) -> dict[str, Any]:
    from torch_geometric.nn import GCNConv
    conv, x = fill(torch, GCNConv(4, 3)), torch.from_numpy(numbers(5, 4))
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    return trained(torch, conv, lambda c: c(x, edges).square().mean())


@job("e3nn")
def _e3nn(torch: Any, made: Any) -> dict[str, Any]:
    from e3nn import o3
    x = torch.from_numpy(numbers(5, 3))
    return {"y": o3.spherical_harmonics([0, 1, 2], x, normalize=True).tolist()}


@job("ignite")
def _ignite(torch: Any, made: Any) -> dict[str, Any]:
    from ignite.engine import create_supervised_trainer
    net = mlp(torch)
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), torch.nn.functional.mse_loss)
    trainer.run([(torch.from_numpy(numbers(5, 4, seed=i)), torch.zeros(5, 3)) for i in range(3)], max_epochs=2)
    return {"sums": [float(p.detach().sum()) for p in net.parameters()]}


@job("lightning")
def _lightning(torch: Any, made: Any) -> dict[str, Any]:
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(torch)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    net = Net()
    loader = torch.utils.data.DataLoader(torch.from_numpy(numbers(12, 4)), batch_size=4)
    lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(net, loader)
    return {"sums": [float(p.detach().sum()) for p in net.parameters()]}


@job("accelerate")
def _accelerate(torch: Any, made: Any) -> dict[str, Any]:
    from accelerate import Accelerator
    accelerator, net = Accelerator(cpu=True, gradient_accumulation_steps=2), mlp(torch)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    batches = torch.utils.data.DataLoader(torch.from_numpy(numbers(16, 4)), batch_size=4)
    net, optimizer, batches = accelerator.prepare(net, optimizer, batches)
    losses = []
    for x in batches:
        with accelerator.accumulate(net):
            loss = net(x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    return {"losses": losses, "sums": [float(p.detach().sum()) for p in net.parameters()]}


@job("botorch")
def _botorch(torch: Any, made: Any) -> dict[str, Any]:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood
    x = torch.from_numpy(numbers(8, 2)).double().sigmoid()
    y = -(x - 0.5).square().sum(-1, keepdim=True)
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    points = torch.from_numpy(numbers(3, 1, 2, seed=1)).double().sigmoid()
    return {"improvement": LogExpectedImprovement(model, y.max())(points).tolist()}


@job("opacus")
def _opacus(torch: Any, made: Any) -> dict[str, Any]:
    from opacus import PrivacyEngine
    net, x = mlp(torch), torch.from_numpy(numbers(12, 4))
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.arange(12) % 3), 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer, batches = PrivacyEngine().make_private(module=net, optimizer=optimizer, data_loader=batches, noise_multiplier=1.0,
                                                           max_grad_norm=1.0)
    for data, labels in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(data), labels).backward()
        optimizer.step()
    return {"sums": [float(p.detach().sum()) for p in net.parameters()]}


@job("peft")
def _peft(torch: Any, made: Any) -> dict[str, Any]:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                         vocab_size=64)
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian"))
    ids = torch.arange(24).reshape(2, 12) % 64
    losses = trained(torch, model, lambda m: m(input_ids=ids, labels=ids).loss)["losses"]
    return {"losses": losses, "merged": float(model.merge_and_unload()(input_ids=ids).logits.detach().square().mean())}


@job("diffusers")
def _diffusers(torch: Any, made: Any) -> dict[str, Any]:
    from diffusers import DDPMScheduler, UNet2DModel
    net = UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4, attention_head_dim=8,
                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    noise, x, times = torch.randn(2, 3, 8, 8), torch.from_numpy(numbers(2, 3, 8, 8)), torch.tensor([1, 7])
    noisy = DDPMScheduler(num_train_timesteps=10).add_noise(x, noise, times)
    return {"losses": trained(torch, net, lambda m: (m(noisy, times).sample - noise).square().mean())["losses"]}


@job("monai")
def _monai(torch: Any, made: Any) -> dict[str, Any]:
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet
    net, x = UNet(2, 1, 2, (4, 8), (2,), num_res_units=1), torch.from_numpy(numbers(2, 1, 16, 16))
    wanted, objective = (x > 0).long(), DiceCELoss(to_onehot_y=True, softmax=True)
    return {"losses": trained(torch, net, lambda m: objective(m(x), wanted))["losses"]}


@job("fabric")
def _fabric(torch: Any, made: Any) -> dict[str, Any]:
    from lightning.fabric import Fabric
    fabric = Fabric(accelerator="cpu", devices=1)
    net = mlp(torch)
    net, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), 0.01))
    losses = []
    for x in fabric.setup_dataloaders(torch.utils.data.DataLoader(torch.from_numpy(numbers(16, 4)), 4)):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        fabric.backward(loss)
        fabric.clip_gradients(net, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"losses": losses}


@job("transformers")
def _trainer(torch: Any, made: Any) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                         vocab_size=64)
    data = [{name: torch.arange(i, i + 12) % 64 for name in ("input_ids", "labels")} for i in range(24)]

    def losses(folder: str, resume: str | None, **options: Any) -> list[float]:
        torch.manual_seed(0)
        arguments = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=6, save_steps=3, logging_steps=1, report_to=[],
                                      use_cpu=True, disable_tqdm=True, learning_rate=1e-2, seed=3, **options)
        trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=data)
        trainer.train(resume_from_checkpoint=resume)
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = losses(folder, None), losses(folder, f"{folder}/checkpoint-3")
    with tempfile.TemporaryDirectory() as folder:
        checkpointed = losses(folder, None, gradient_checkpointing=True)
    return {"whole": whole, "resumed": resumed, "checkpointed": checkpointed}


@job("torchvision")
def _torchvision(torch: Any, made: Any) -> dict[str, Any]:
    from torchvision import ops, tv_tensors
    from torchvision.models import resnet18
    from torchvision.transforms import v2
    x = torch.from_numpy(numbers(2, 6, 12, 14)).requires_grad_()
    regions = torch.tensor([[0, 1.3, 2.2, 9.7, 8.1], [1, -3, -2.5, 4.6, 5.2], [1, 0.4, 0.4, 13, 12.2]])
    pooled = [ops.roi_align(x, regions, (3, 2), 0.5, 2), ops.roi_pool(x, regions, (3, 2)), ops.ps_roi_align(x, regions, (3, 2), 0.5),
              ops.ps_roi_pool(x, regions, (3, 2), 0.5)]
    offset, weight = torch.from_numpy(numbers(2, 18, 10, 12)), torch.from_numpy(numbers(3, 6, 3, 3))
    moved = ops.deform_conv2d(x, offset, weight)
    sum(y.square().sum() for y in (*pooled, moved)).backward()
    boxes = torch.from_numpy(np.abs(numbers(40, 4)).cumsum(1))
    image = tv_tensors.Image(torch.from_numpy((np.abs(numbers(3, 20, 24)) * 60).astype(np.uint8)))
    box = tv_tensors.BoundingBoxes([[2, 2, 12, 15]], format="XYXY", canvas_size=(20, 24))
    seen, placed = v2.Compose([v2.Resize(16), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])(image, box)
    net = made(fill(torch, resnet18(num_classes=3)).eval())
    return {"pooled": [y.detach().sum().item() for y in pooled], "moved": moved.detach().sum((0, 2, 3)).tolist(),
            "gradient": x.grad.sum((0, 2, 3)).tolist(), "kept": ops.nms(boxes, torch.from_numpy(numbers(40)), 0.4).tolist(),
            "seen": float(seen.sum()), "placed": placed.tolist(), "logits": net(torch.from_numpy(numbers(2, 3, 32, 32))).tolist()}


@job("torchaudio")
def _torchaudio(torch: Any, made: Any) -> dict[str, Any]:
    from torchaudio import functional as F
    from torchaudio import transforms
    wave = torch.from_numpy(0.1 * numbers(2, 1600)).requires_grad_()
    mel = made(transforms.MelSpectrogram(16000, n_fft=256, n_mels=20))(F.lowpass_biquad(wave, 16000, 3000.0))
    mel.sum().backward()
    path, _ = F.forced_align(torch.from_numpy(numbers(1, 30, 8)).log_softmax(-1), torch.tensor([[1, 2, 2, 3, 5]]), blank=0)
    logits = torch.from_numpy(numbers(1, 7, 5, 6)).requires_grad_()
    lengths = [torch.tensor(v, dtype=torch.int32) for v in ([[1, 2, 3, 4]], [7], [4])]
    loss = F.rnnt_loss(logits, *lengths, blank=-1)
    loss.backward()
    return {"mel": mel.detach().sum((0, 2)).tolist(), "gradient": float(wave.grad.square().sum()), "path": path.tolist(),
            "loss": float(loss.detach()), "slope": logits.grad.sum((0, 1, 2)).tolist()}


@job("tensordict")
def _tensordict(torch: Any, made: Any) -> dict[str, Any]:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    net = TensorDictModule(mlp(torch), ["a"], ["out"])
    data = TensorDict({"a": torch.from_numpy(numbers(3, 4)), "b": {"c": torch.from_numpy(numbers(3, 2))}}, batch_size=[3])
    stacked = torch.stack([data, data + 1])
    return {"out": net(data.clone())["out"].tolist(), "stacked": stacked["b", "c"].sum(-1).tolist(), "shape": list(stacked.shape)}


@job("fastai")
def _fastai(torch: Any, made: Any) -> dict[str, Any]:
    import fastai.callback.progress  # noqa: F401 - gives learners no_bar
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner
    batches = DataLoader(list(zip(torch.from_numpy(numbers(32, 4)), torch.from_numpy(numbers(32, 3, seed=1)))), bs=8)
    learner = Learner(DataLoaders(batches, batches), mlp(torch), loss_func=torch.nn.functional.mse_loss)
    with learner.no_bar(), learner.no_logging():
        learner.fit(2, 1e-2)
    return {"losses": [[float(v) for v in row] for row in learner.recorder.values]}


@job("sbi")
def _sbi(torch: Any, made: Any) -> dict[str, Any]:
    from sbi.inference import NPE
    from sbi.utils import BoxUniform
    prior = BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
    theta = prior.sample((100,))
    inference = NPE(prior=prior, density_estimator="maf", show_progress_bars=False)
    inference.append_simulations(theta, theta + 0.1 * torch.randn(100, 2)).train(max_num_epochs=2, training_batch_size=25)
    return {"losses": inference.summary["training_loss"]}


@job("higher")
def _higher(torch: Any, made: Any) -> dict[str, Any]:
    import higher
    net, x = mlp(torch), torch.from_numpy(numbers(6, 4))
    with higher.innerloop_ctx(net, torch.optim.SGD(net.parameters(), 0.1), copy_initial_weights=False) as (inner, steps):
        for _ in range(3):
            steps.step(inner(x).square().mean())
        loss = made(lambda y: y.square().mean())(inner(x + 1))
    loss.backward()
    return {"loss": loss.item(), "grads": [float(p.grad.sum()) for p in net.parameters()]}


@job("nflows")
def _nflows(torch: Any, made: Any) -> dict[str, Any]:
    from nflows import distributions, flows, transforms
    layers = [transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8), transforms.LULinear(4)]
    flow, x = flows.Flow(transforms.CompositeTransform(layers), distributions.StandardNormal([4])), torch.from_numpy(numbers(16, 4))
    f = made(flow.log_prob)
    return trained(torch, fill(torch, flow), lambda _: -f(x).mean())


@job("vit_pytorch")
def _vit(torch: Any, made: Any) -> dict[str, Any]:
    from vit_pytorch import ViT
    net = fill(torch, ViT(image_size=16, patch_size=8, num_classes=3, dim=16, depth=2, heads=2, mlp_dim=16))
    f, x = made(net), torch.from_numpy(numbers(2, 3, 16, 16))
    return trained(torch, net, lambda _: f(x).square().mean())


@job("pytorch_metric_learning")
def _metric_learning(torch: Any, made: Any) -> dict[str, Any]:
    from pytorch_metric_learning import losses, miners
    net, x, labels = mlp(torch), torch.from_numpy(numbers(24, 4)), torch.from_numpy(np.arange(24) % 4)
    f, miner, loss = made(net), miners.MultiSimilarityMiner(), losses.TripletMarginLoss()
    return trained(torch, net, lambda _: losses.SupConLoss()(f(x), labels) + loss(f(x), labels, miner(f(x), labels)))


@job("skorch")
def _skorch(torch: Any, made: Any) -> dict[str, Any]:
    from skorch import NeuralNetRegressor
    net = NeuralNetRegressor(made(mlp(torch)), max_epochs=3, lr=0.05, verbose=0, train_split=None)
    net.fit(numbers(40, 4), numbers(40, 3, seed=1))
    return {"losses": net.history[:, "train_loss"], "out": net.predict(numbers(3, 4)).tolist()}


@job("torchopt")
def _torchopt(torch: Any, made: Any) -> dict[str, Any]:
    import functorch
    import torchopt
    net, x, weights = mlp(torch), torch.from_numpy(numbers(6, 4)), torch.ones(6, 1, requires_grad=True)
    function, params = functorch.make_functional(net)
    f, optimizer = made(lambda params, x: function(params, x).square().mean()), torchopt.adam(0.01)
    state = optimizer.init(params)
    for _ in range(2):
        grads = torch.autograd.grad(f(params, x), params)
        updates, state = optimizer.update(grads, state, inplace=False)
        params = torchopt.apply_updates(params, updates, inplace=False)
    outer = torchopt.MetaSGD(net, lr=0.1)   # second derivatives: not of what is compiled
    for _ in range(2):
        outer.step((weights * net(x)).square().mean())
    grad = torch.autograd.grad(net(x).square().mean(), weights)[0]
    return {"params": [float(p.sum()) for p in params], "grad": grad.flatten().tolist()}


@job("geoopt")
def _geoopt(torch: Any, made: Any) -> dict[str, Any]:
    import geoopt
    found: dict[str, Any] = {}
    for kind in (geoopt.PoincareBall, geoopt.Sphere, geoopt.Stiefel):
        manifold = kind()
        p = geoopt.ManifoldParameter(manifold.projx(0.3 * torch.from_numpy(numbers(4, 4))), manifold=manifold)
        optimizer = geoopt.optim.RiemannianAdam([p], lr=0.05)
        f = made(lambda p: (p - 0.5).square().sum())
        for _ in range(3):
            optimizer.zero_grad()
            f(p).backward()
            optimizer.step()
        found[kind.__name__] = p.tolist()
    ball, x = geoopt.PoincareBall(), 0.1 * torch.from_numpy(numbers(3, 2))
    return {**found, "distances": ball.dist(x, -2 * x).tolist(), "moved": ball.mobius_matvec(torch.ones(2, 2), x).tolist()}


@job("foolbox")
def _foolbox(torch: Any, made: Any) -> dict[str, Any]:
    import foolbox
    net, x, labels = mlp(torch), torch.from_numpy(numbers(6, 4)), torch.from_numpy(np.arange(6) % 3)
    attacked = foolbox.PyTorchModel(made(net.eval()), bounds=(-3, 3))
    return {type(attack).__name__: attack(attacked, x, labels, epsilons=[0.1])[1][0].tolist()
            for attack in (foolbox.attacks.FGSM(), foolbox.attacks.L2DeepFoolAttack(), foolbox.attacks.L2CarliniWagnerAttack(steps=5))}


@job("lightly")
def _lightly(torch: Any, made: Any) -> dict[str, Any]:
    from lightly.loss import BarlowTwinsLoss, NTXentLoss, VICRegLoss
    x, y, found = torch.from_numpy(numbers(8, 4)), torch.from_numpy(numbers(8, 4, seed=1)), {}
    for loss in (NTXentLoss(), BarlowTwinsLoss(), VICRegLoss()):
        net = mlp(torch)
        f = made(net)
        found[type(loss).__name__] = trained(torch, net, lambda _, f=f, loss=loss: loss(f(x), f(y)))["losses"]
    return found


@job("torchani")
def _torchani(torch: Any, made: Any) -> dict[str, Any]:
    from torchani.aev import AEVComputer
    computer, places = made(AEVComputer.like_2x()), torch.from_numpy(numbers(1, 5, 3)).requires_grad_()
    aevs = computer(torch.tensor([[0, 1, 2, 0, 0]]), places)
    aevs.sum().backward()
    return {"aevs": aevs.sum(-1).tolist(), "grad": places.grad.tolist()}


@job("laplace")
def _laplace(torch: Any, made: Any) -> dict[str, Any]:
    from laplace import Laplace
    data = torch.utils.data.TensorDataset(torch.from_numpy(numbers(40, 4)), torch.from_numpy(np.arange(40) % 3))
    model = Laplace(made(mlp(torch)), "classification", subset_of_weights="all", hessian_structure="full")
    model.fit(torch.utils.data.DataLoader(data, 20))
    return {"evidence": float(model.log_marginal_likelihood()), "out": model(data.tensors[0][:4]).flatten().tolist()}


@job("pytorch_lamb")
def _lamb(torch: Any, made: Any) -> dict[str, Any]:
    from pytorch_lamb import Lamb  # which has factors before the tensors, add_(2, x)
    net, x = mlp(torch), torch.from_numpy(numbers(5, 4))
    f = made(net)
    warnings.simplefilter("ignore")
    return trained(torch, net, lambda _: f(x).square().mean(), Lamb(net.parameters(), lr=1e-2))


@job("mixture_of_experts")
def _experts(torch: Any, made: Any) -> dict[str, Any]:
    from mixture_of_experts import MoE  # which takes sizes out of tensors
    net = fill(torch, MoE(dim=8, num_experts=4, hidden_dim=16, second_policy_train="all"))
    x = torch.from_numpy(numbers(2, 8, 8))

    def loss(net: Any) -> Any:
        out, balance = net(x)
        return out.square().mean() + balance

    return trained(torch, net, loss)


@job("ptflops")
def _ptflops(torch: Any, made: Any) -> dict[str, Any]:
    from ptflops import get_model_complexity_info  # which replaces functions of nn.functional, or sees ATen's steps
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3))
    return {backend: list(get_model_complexity_info(net, (3, 8, 8), as_strings=False, print_per_layer_stat=False, backend=backend))
            for backend in ("pytorch", "aten")}


@job("adan_pytorch")
def _adan(torch: Any, made: Any) -> dict[str, Any]:
    from adan_pytorch import Adan
    net, x = mlp(torch), torch.from_numpy(numbers(5, 4))
    f = made(net)
    return trained(torch, net, lambda _: f(x).square().mean(), Adan(net.parameters(), lr=1e-2, betas=(0.02, 0.08, 0.01)), 4)


@job("pytorch_ranger")
def _ranger(torch: Any, made: Any) -> dict[str, Any]:
    from pytorch_ranger import Ranger
    net, x = mlp(torch), torch.from_numpy(numbers(5, 4))
    f = made(net)
    warnings.simplefilter("ignore")     # of the forms of add_ and addcmul_ that it uses
    return trained(torch, net, lambda _: f(x).square().mean(), Ranger(net.parameters(), lr=1e-2), 8)


@job("mup")
def _mup(torch: Any, made: Any) -> dict[str, Any]:
    from mup import MuAdam, MuReadout, set_base_shapes
    from torch import nn
    net, base, delta = (nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), MuReadout(n, 3)) for n in (32, 8, 16))
    fill(torch, set_base_shapes(net, base, delta=delta))
    x = torch.from_numpy(numbers(8, 4))
    return trained(torch, net, lambda net: net(x).square().mean(), MuAdam(net.parameters(), lr=1e-2))


@job("geotorch")
def _geotorch(torch: Any, made: Any) -> dict[str, Any]:
    import geotorch
    losses, x = {}, torch.from_numpy(numbers(3, 6))
    for name, options in (("orthogonal", {}), ("symmetric", {}), ("skew", {}), ("positive_definite", {}), ("sphere", {}), ("invertible", {})):
        net = fill(torch, torch.nn.Linear(6, 6))
        getattr(geotorch, name)(net, "weight", **options)
        losses[name] = trained(torch, net, lambda net: net(x).square().mean(), torch.optim.SGD(net.parameters(), lr=0.05))["losses"]
    return losses


@job("brevitas")
def _brevitas(torch: Any, made: Any) -> dict[str, Any]:
    import brevitas.nn as qnn  # whose scripted quantizers run, too
    from torch import nn
    net = nn.Sequential(qnn.QuantConv2d(3, 8, 3, weight_bit_width=4), qnn.QuantReLU(bit_width=4), nn.Flatten(),
                        qnn.QuantLinear(8 * 36, 3, bias=True, weight_bit_width=4))
    x = torch.from_numpy(numbers(4, 3, 8, 8))
    return {"losses": trained(torch, net, lambda net: net(x).square().mean())["losses"]}


@job("curated_transformers")
def _curated(torch: Any, made: Any) -> dict[str, Any]:
    from curated_transformers.layers import AttentionMask
    from curated_transformers.models.bert import BERTConfig, BERTEncoder
    net = fill(torch, BERTEncoder(BERTConfig(embedding_width=32, hidden_width=32, intermediate_width=64, n_attention_heads=4, n_hidden_layers=2,
                                             n_pieces=50))).eval()
    ids, mask = torch.from_numpy(np.arange(18).reshape(2, 9)), AttentionMask(torch.ones(2, 9, dtype=torch.bool))
    return {"out": net(ids, mask).last_hidden_layer_state.sum(-1).tolist()}


@job("pytorch_tcn")
def _tcn(torch: Any, made: Any) -> dict[str, Any]:
    from pytorch_tcn import TCN
    net = TCN(4, [8, 6], kernel_size=3, dropout=0.0, use_skip_connections=True, use_norm="weight_norm")
    fill(torch, net)
    f, x = made(net), torch.from_numpy(numbers(2, 4, 20))
    losses = trained(torch, net, lambda _: f(x).square().mean())["losses"]
    return {"losses": losses, "stream": net.eval().inference(x[:1, :, :5]).tolist()}


@job("pytorch_wavelets")
def _wavelets(torch: Any, made: Any) -> dict[str, Any]:
    from pytorch_wavelets import DTCWTForward, DWTForward, DWTInverse
    x = torch.from_numpy(numbers(1, 2, 16, 16)).requires_grad_()
    low, high = DWTForward(J=2, wave="db2", mode="symmetric")(x)
    back = DWTInverse(wave="db2", mode="symmetric")((low, high))
    back.square().sum().backward()
    complex_low, _ = DTCWTForward(J=2)(x.detach())
    return {"low": low.tolist(), "back": float((back - x).abs().max()), "gradient": x.grad.sum().item(), "complex": complex_low.tolist()}


@job("roma")
def _roma(torch: Any, made: Any) -> dict[str, Any]:
    import roma
    rotations = roma.rotvec_to_rotmat(torch.from_numpy(numbers(3, 3)))
    square = torch.from_numpy(numbers(2, 3, 3)).requires_grad_()
    nearest = roma.special_procrustes(square)
    (nearest * torch.from_numpy(numbers(2, 3, 3, seed=1))).sum().backward()
    return {"quaternions": roma.rotmat_to_unitquat(rotations).tolist(), "angles": roma.rotmat_to_euler("xyz", rotations).tolist(),
            "nearest": nearest.tolist(), "gradient": square.grad.tolist()}


@job("smplx")
def _smplx(torch: Any, made: Any) -> dict[str, Any]:
    from smplx.lbs import lbs
    shapes, template, directions = (torch.from_numpy(numbers(*shape)) for shape in ((2, 3), (10, 3), (10, 3, 3)))
    bends, regressor, weights = (torch.from_numpy(0.1 * numbers(*shape)) for shape in ((27, 30), (4, 10), (10, 4)))
    pose = torch.from_numpy(0.2 * numbers(2, 12)).requires_grad_()
    vertices, joints = lbs(shapes, pose, template, directions, bends, regressor.softmax(1), torch.tensor([-1, 0, 1, 1]), weights.softmax(1))
    vertices.square().sum().backward()
    return {"vertices": vertices.sum(1).tolist(), "joints": joints.tolist(), "gradient": pose.grad.tolist()}


@job("torchkbnufft")
def _nufft(torch: Any, made: Any) -> dict[str, Any]:
    import torchkbnufft
    x = torch.complex(*(torch.from_numpy(numbers(1, 1, 8, 8, seed=seed)) for seed in (0, 1))).requires_grad_()
    trajectory = torch.from_numpy(numbers(2, 30).clip(-3, 3))
    y = torchkbnufft.KbNufft(im_size=(8, 8))(x, trajectory)
    back = torchkbnufft.KbNufftAdjoint(im_size=(8, 8))(y, trajectory)
    back.abs().square().sum().backward()
    return {name: torch.view_as_real(value).sum((0, 1)).tolist() for name, value in (("y", y), ("back", back), ("gradient", x.grad))}


@job("mpc")
def _mpc(torch: Any, made: Any) -> dict[str, Any]:
    from mpc import mpc
    linear = torch.from_numpy(numbers(4, 2, 5)).requires_grad_()
    step = torch.from_numpy(np.concatenate([np.eye(3, dtype=np.float32) + 0.1 * numbers(3, 3), numbers(3, 2)], 1)).repeat(4, 2, 1, 1)
    bound = 0.5 * torch.ones(4, 2, 2)
    states, controls, costs = mpc.MPC(3, 2, 4, u_lower=-bound, u_upper=bound, lqr_iter=10, verbose=-1, exit_unconverged=False)(
        torch.from_numpy(numbers(2, 3)), mpc.QuadCost(torch.eye(5).repeat(4, 2, 1, 1), linear), mpc.LinDx(step))
    controls.sum().backward()
    return {"states": states.tolist(), "controls": controls.tolist(), "costs": costs.tolist(), "gradient": linear.grad.tolist()}


@job("pfhedge")
def _pfhedge(torch: Any, made: Any) -> dict[str, Any]:
    from pfhedge.instruments import BrownianStock, EuropeanOption, HestonStock
    from pfhedge.nn import BlackScholes, Hedger, MultiLayerPerceptron
    option, heston = EuropeanOption(BrownianStock(cost=1e-4)), HestonStock()
    hedger = Hedger(MultiLayerPerceptron(n_units=8, n_layers=2), inputs=["log_moneyness", "expiry_time", "volatility", "prev_hedge"])
    losses = hedger.fit(option, n_paths=50, n_epochs=3, verbose=False)
    heston.simulate(n_paths=3)
    at = [torch.tensor([v]) for v in (0.1, 0.2, 0.2)]
    return {"losses": losses, "price": hedger.price(option, n_paths=50).item(), "gamma": BlackScholes(option).gamma(*at).item(),
            "spot": heston.spot.tolist()}


@job("pomegranate")
def _pomegranate(torch: Any, made: Any) -> dict[str, Any]:
    from pomegranate.distributions import Normal
    from pomegranate.gmm import GeneralMixtureModel
    from pomegranate.hmm import DenseHMM
    x = torch.from_numpy(np.concatenate([numbers(30, 2), numbers(30, 2, seed=1) + 3]))

    def two(apart: float) -> list[Any]:
        return [Normal([at, at], [1.0, 1.0], covariance_type="diag") for at in (0.0, apart)]

    mixture = GeneralMixtureModel(two(2.0), max_iter=5).fit(x)
    chain = DenseHMM(two(3.0), edges=[[0.8, 0.2], [0.3, 0.7]], starts=[0.5, 0.5], max_iter=2)
    chain.fit(x.reshape(6, 10, 2))
    return {"mixture": mixture.log_probability(x).tolist(), "chain": chain.log_probability(x.reshape(6, 10, 2)).tolist()}


@job("pycox")
def _pycox(torch: Any, made: Any) -> dict[str, Any]:
    import torchtuples
    from pycox.models import CoxPH, LogisticHazard
    x, ends = numbers(64, 4), (np.abs(numbers(64, seed=1)), (numbers(64, seed=2) > -0.5).astype(np.float32))
    risks = CoxPH(mlp(torch, 4, 1), torchtuples.optim.Adam(1e-2)).fit(x, ends, batch_size=16, epochs=2, verbose=False)
    cut = LogisticHazard.label_transform(5)
    labels = cut.fit_transform(*ends)
    hazards = LogisticHazard(mlp(torch, 4, cut.out_features), torchtuples.optim.Adam(1e-2), duration_index=cut.cuts)
    hazards.fit(x, labels, 16, 2, verbose=False)
    return {"risks": risks.to_pandas().values.tolist(), "survival": hazards.predict_surv(x)[:3].tolist()}


@job("evotorch")
def _evotorch(torch: Any, made: Any) -> dict[str, Any]:
    from evotorch import Problem
    from evotorch.algorithms import CEM, CMAES, PGPE, SNES, XNES
    found = {}
    for search, options in ((SNES, {"stdev_init": 5.0}), (CMAES, {"stdev_init": 1.0}), (XNES, {"stdev_init": 2.0}),
                            (PGPE, {"popsize": 20, "center_learning_rate": 0.1, "stdev_learning_rate": 0.1, "stdev_init": 1.0}),
                            (CEM, {"popsize": 20, "parenthood_ratio": 0.5, "stdev_init": 2.0})):
        problem = Problem("min", lambda x: x.square().sum(-1), solution_length=5, initial_bounds=(-1, 1), vectorized=True, seed=1)
        searcher = search(problem, **options)
        searcher.run(4)
        found[search.__name__] = float(searcher.status["best_eval"])
    return found


@job("torcheval")
def _torcheval(torch: Any, made: Any) -> dict[str, Any]:
    from torcheval import metrics  # with a scripted confusion matrix in a sparse tensor
    scores, labels = torch.from_numpy(numbers(40, 4)).softmax(-1), torch.from_numpy(np.arange(40) % 4)
    found = {}
    for name, options in (("MulticlassAccuracy", {"average": "macro"}), ("MulticlassAUROC", {}), ("MulticlassConfusionMatrix", {})):
        metric = getattr(metrics, name)(num_classes=4, **options)
        metric.update(scores, labels)
        found[name] = metric.compute().tolist()
    return found


@job("torchmin")
def _torchmin(torch: Any, made: Any) -> dict[str, Any]:
    from torchmin import minimize
    from torchmin.benchmarks import rosen
    start = torch.tensor([1.0, 1.5, 0.8], dtype=torch.float64)
    return {method: minimize(rosen, start, method=method, max_iter=6).x.tolist()
            for method in ("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact", "trust-ncg", "trust-exact")}


def imports(name: str) -> str:
    """What importing a module under Flambeau says, in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            importlib.import_module(name)
            said = "ok"
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        os.write(writer, said.encode()[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said or "died"


def main() -> None:
    """Run one job and print its numbers, or say what can be imported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("by", choices=("torch", "flambeau", "import"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if options.by != "torch":
        importlib.import_module("flambeau.as_torch")
    torch = importlib.import_module("torch")
    for name in options.names:
        if options.by == "import":
            print(f"{name:<30} {imports(name)}", flush=True)
        else:
            torch.manual_seed(0)
            print(json.dumps(JOBS[name](torch, torch.compile if options.compile else lambda f: f)))


if __name__ == "__main__":
    sys.exit(main())
