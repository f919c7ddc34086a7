"""Two towers with shared weights: contrastive, triplet and cosine losses, a Sampler of one's own, EarlyStopping by a plateau."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import BatchSampler, DataLoader, Dataset, WeightedRandomSampler

random.seed(0)
torch.manual_seed(0)


class Pairs(Dataset):
    def __init__(self, n=64):
        self.y = torch.arange(n) % 4
        self.x = F.one_hot(self.y, 4).float().repeat_interleave(16, 1).view(n, 1, 8, 8) + 0.3 * torch.randn(n, 1, 8, 8)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        same = random.randint(0, 1)
        candidates = torch.nonzero((self.y == self.y[i]) == bool(same)).flatten()
        j = candidates[random.randrange(len(candidates))]
        return {"a": self.x[i], "b": self.x[j], "same": torch.tensor(same, dtype=torch.float32)}


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(1, 4, 3), nn.PReLU(), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten()
        )
        self.fc = nn.Bilinear(64, 64, 1)
        self.embed = nn.Linear(64, 8)
        self.features.apply(self.init_weights)

    @staticmethod
    def init_weights(m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            m.bias.data.fill_(0.01)

    def forward(self, a, b):
        fa, fb = self.features(a), self.features(b)
        return self.embed(fa), self.embed(fb), self.fc(fa, fb).squeeze(-1)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = F.pairwise_distance(a, b)
        return torch.mean(same * d.pow(2) + (1 - same) * torch.clamp(self.margin - d, min=0.0).pow(2))


data, model, contrastive = Pairs(), Siamese(), ContrastiveLoss()
sampler = WeightedRandomSampler(torch.where(data.y == 0, 2.0, 1.0), num_samples=48)
loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 16, False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
scheduler = ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=1, threshold=0.3)
triplet = nn.TripletMarginLoss(margin=1.0, p=2)
cosine = nn.CosineEmbeddingLoss(margin=0.2)
for epoch in range(5):
    losses = []
    for batch in loader:
        a, b, logit = model(batch["a"], batch["b"])
        same = batch["same"]
        loss = contrastive(a, b, same) + F.binary_cross_entropy_with_logits(logit, same)
        loss = loss + 0.1 * cosine(a, b, 2 * same - 1) + 0.1 * triplet(a, b, a.roll(1, 0).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    scheduler.step(mean)
    print(epoch, mean.item(), optimizer.param_groups[0]["lr"])
model.eval()
with torch.no_grad():
    e = F.normalize(model.embed(model.features(data.x)), dim=1)
    scores = (e @ e.T).fill_diagonal_(-1)
    print("nearest is of the same class:", (data.y[scores.argmax(1)] == data.y).float().mean().item())
    print(torch.cdist(e[:3], e[:3]), F.cosine_similarity(e[:3], e[3:6]))
