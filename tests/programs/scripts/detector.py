"""A detector of squares in one pass over a grid: anchors, boxes decoded by sigmoids, suppression, a warm-up schedule."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ANCHORS = torch.tensor([[5.0, 5.0], [9.0, 9.0]])


class Squares(Dataset):
    def __init__(self, n, size=32):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image, boxes = 0.1 * torch.rand(3, self.size, self.size, generator=g), []
        for _ in range(1 + i % 2):
            w = int(torch.randint(4, 11, (1,), generator=g))
            x, y = torch.randint(0, self.size - w, (2,), generator=g).tolist()
            kind = int(torch.randint(0, 2, (), generator=g))
            image[kind, y:y + w, x:x + w] += 0.8
            boxes.append([kind, x + w / 2, y + w / 2, w, w])
        return image, torch.tensor(boxes)


def collate(batch):
    images, boxes = zip(*batch)
    rows = [F.pad(b, (1, 0), value=float(i)) for i, b in enumerate(boxes)]
    return torch.stack(images), torch.cat(rows)


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o, eps=1e-3, momentum=0.03), nn.SiLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = conv(c, c // 2), conv(c // 2, c)

    def forward(self, x):
        return x + self.b(self.a(x))


class Detector(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.body = nn.Sequential(conv(3, 8), conv(8, 16, 2), Residual(16), conv(16, 24, 2), Residual(24))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.join = conv(48, 24, 2)
        self.deep = conv(24, 24, 2)
        self.head = nn.Conv2d(24, len(ANCHORS) * (5 + classes), 1)
        with torch.no_grad():
            self.head.bias.view(len(ANCHORS), -1)[:, 4].fill_(-math.log(20))

    def forward(self, x):
        x = self.body(x)
        x = self.join(self.up(torch.cat([x, self.up(self.deep(x))], 1)))
        p = self.head(x)
        b, _, h, w = p.shape
        return p.view(b, len(ANCHORS), -1, h, w).permute(0, 1, 3, 4, 2).contiguous()


def corners(b):
    return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)


def iou(a, b):
    a, b = corners(a), corners(b)
    inside = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    areas = [(x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b)]
    return inside / (areas[0] + areas[1] - inside + 1e-7)


def decode(p, stride=4):
    h, w = p.shape[2:4]
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    xy = (p[..., :2].sigmoid() * 2 - 0.5 + torch.stack([gx, gy], -1)) * stride
    wh = (p[..., 2:4].sigmoid() * 2) ** 2 * ANCHORS[None, :, None, None]
    return torch.cat([xy, wh], -1)


def loss_of(p, targets):
    boxes, stride = decode(p), 4
    ratio = targets[:, None, 4:] / ANCHORS[None]
    fits = torch.max(ratio, 1 / ratio).amax(2) < 2.5
    row, anchor = fits.nonzero(as_tuple=True)
    t = targets[row]
    image, kind = t[:, 0].long(), t[:, 1].long()
    gx, gy = ((t[:, i] / stride).long().clamp_(0, p.shape[2] - 1) for i in (2, 3))
    overlap = iou(boxes[image, anchor, gy, gx], t[:, 2:])
    wanted = torch.zeros(p.shape[:4])
    wanted[image, anchor, gy, gx] = overlap.detach().clamp(0).to(wanted.dtype)
    onehot = F.one_hot(kind, 2).float()
    return ((1 - overlap).mean(), F.binary_cross_entropy_with_logits(p[..., 4], wanted),
            F.binary_cross_entropy_with_logits(p[image, anchor, gy, gx][:, 5:], onehot))


def suppressed(boxes, scores, limit=0.45):
    order, keep = scores.argsort(descending=True), []
    while order.numel():
        keep.append(order[0].item())
        order = order[1:][iou(boxes[order[0]][None], boxes[order[1:]]) <= limit]
    return keep


def main():
    torch.manual_seed(11)
    model = Detector()
    plain = [p for n, p in model.named_parameters() if p.ndim < 2]
    decayed = [p for n, p in model.named_parameters() if p.ndim >= 2]
    optimizer = torch.optim.SGD(plain, lr=0.02, momentum=0.9, nesterov=True)
    optimizer.add_param_group({"params": decayed, "weight_decay": 5e-4})
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: min(1, (e + 1) / 3) * (1 + math.cos(e * math.pi / 6)) / 2)
    loader = DataLoader(Squares(24), batch_size=8, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(2))
    for epoch in range(5):
        total = torch.zeros(3)
        for images, targets in loader:
            parts = loss_of(model(images), targets)
            loss = 0.5 * parts[0] + parts[1] + 0.3 * parts[2]
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            optimizer.step()
            total += torch.stack(parts).detach()
        schedule.step()
        print(f"epoch {epoch} box {total[0]:.4f} object {total[1]:.4f} kind {total[2]:.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
    model.eval()
    with torch.no_grad():
        p = model(Squares(24)[3][0][None])
    boxes, scores = decode(p).view(-1, 4), (p[..., 4:5].sigmoid() * p[..., 5:].sigmoid()).view(-1, 2).amax(1)
    best = scores.topk(20).indices
    kept = suppressed(boxes[best], scores[best])
    print("kept", len(kept), [round(v, 4) for v in scores[best][kept[:3]].tolist()])


if __name__ == "__main__":
    main()
