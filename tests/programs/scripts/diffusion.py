"""A denoising diffusion toy: sinusoidal time embeddings, a cosine schedule, exponential moving averages, ancestral and DDIM sampling."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm.auto import tqdm

torch.manual_seed(0)
T = 40


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        emb = t[:, None].float() * freqs[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.block1 = nn.Sequential(nn.GroupNorm(2, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding="same"))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(tdim, cout * 2))
        self.norm, self.conv = nn.GroupNorm(2, cout), nn.Conv2d(cout, cout, 3, padding=1, padding_mode="circular")
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.time(t)[:, :, None, None].chunk(2, dim=1)
        h = self.norm(self.block1(x)) * (scale + 1) + shift
        return self.conv(F.silu(h)) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.time = nn.Sequential(SinusoidalEmbedding(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16))
        self.inc = nn.Conv2d(1, c, 3, padding=1)
        self.down, self.pool = ResBlock(c, 2 * c, 16), nn.PixelUnshuffle(2)
        self.squeeze = nn.Conv2d(8 * c, 2 * c, 1)
        self.attn = nn.MultiheadAttention(2 * c, 2, batch_first=True)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.mid, self.outc = ResBlock(4 * c, c, 16), nn.Conv2d(c, 1, 1)

    def forward(self, x, t):
        t = self.time(t)
        d = self.down(self.inc(x), t)
        h = self.squeeze(self.pool(d))
        b, c, hh, ww = h.shape
        flat = h.flatten(2).transpose(1, 2)
        h = h + self.attn(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(b, c, hh, ww)
        return self.outc(self.mid(torch.cat([self.up(h), d], dim=1), t))


def cosine_beta_schedule(timesteps, s=0.008):
    x = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64)
    alphas = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas = alphas / alphas[0]
    return torch.clip(1 - (alphas[1:] / alphas[:-1]), 0, 0.999).float()


betas = cosine_beta_schedule(T)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def extract(a, t, shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(shape) - 1)))


def q_sample(x0, t, noise):
    return extract(alphas_cumprod.sqrt(), t, x0.shape) * x0 + extract((1 - alphas_cumprod).sqrt(), t, x0.shape) * noise


class EMA:
    def __init__(self, model, decay):
        self.decay, self.model = decay, copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.model.state_dict().values(), model.state_dict().values()):
            ours.copy_(self.decay * ours + (1 - self.decay) * theirs)


model = UNet()
ema, optimizer = EMA(model, 0.9), torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=12)
grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij"))
for step in tqdm(range(12), disable=True):
    x0 = torch.sin(3 * grid[0] + torch.randn(8, 1, 1)).unsqueeze(1)
    t, noise = torch.randint(0, T, (8,)).long(), torch.randn(8, 1, 8, 8)
    loss = F.huber_loss(model(q_sample(x0, t, noise), t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    ema.update(model)
    print(step, loss.item(), scheduler.get_last_lr()[0])


@torch.no_grad()
def sample(net):
    img = torch.randn(2, 1, 8, 8)
    for i in reversed(range(0, T, 4)):
        t = torch.full((2,), i, dtype=torch.long)
        eps = net(img, t)
        mean = (img - extract(betas / (1 - alphas_cumprod).sqrt(), t, img.shape) * eps) * extract(alphas.rsqrt(), t, img.shape)
        img = mean if i == 0 else mean + extract(posterior_variance, t, img.shape).sqrt() * torch.randn_like(img)
    return img.clamp(-1, 1)


@torch.inference_mode()
def ddim(net):
    img = torch.randn(2, 1, 8, 8)
    times = torch.linspace(-1, T - 1, steps=6).flip(0).int().tolist()
    for now, nxt in zip(times[:-1], times[1:]):
        eps = net(img, torch.full((2,), now, dtype=torch.long))
        x0 = ((img - (1 - alphas_cumprod[now]).sqrt() * eps) / alphas_cumprod[now].sqrt()).clamp_(-1, 1)
        img = x0 if nxt < 0 else alphas_cumprod[nxt].sqrt() * x0 + (1 - alphas_cumprod[nxt]).sqrt() * eps
    return img


for images in (sample(ema.model), ddim(model)):
    print(images.shape, images.mean().item(), images.std().item())
