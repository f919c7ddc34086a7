"""Knowledge distillation: soft targets, hidden states by hooks, frozen layers, weight averaging, pruning, two schedules in a row."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, SequentialLR
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

torch.manual_seed(42)


class Deep(nn.Module):
    def __init__(self, width, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.Hardswish(), nn.MaxPool2d(2, 2),
            nn.Conv2d(width, width, 3, padding=1, groups=width), nn.ELU(), nn.AdaptiveMaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(4 * width, 24), nn.ReLU6(), nn.AlphaDropout(0.1), nn.Linear(24, classes))

    def forward(self, x):
        return self.classifier(self.features(x))


labels = torch.arange(80) % 5
images = torch.randn(80, 3, 8, 8) * 0.7 + (labels.float() - 2).view(-1, 1, 1, 1)
whole = TensorDataset(images, labels)
train_set = ConcatDataset([Subset(whole, range(40)), Subset(whole, range(40, 64))])
train_loader, test_loader = DataLoader(train_set, batch_size=16, shuffle=True), DataLoader(Subset(whole, range(64, 80)), batch_size=8)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(-1) == y).sum().item() for x, y in test_loader) / 16


def train(model, epochs, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    warm = LambdaLR(optimizer, lambda epoch: (epoch + 1) / 2)
    scheduler = SequentialLR(optimizer, [warm, CosineAnnealingLR(optimizer, T_max=4)], milestones=[2])
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, weight=torch.tensor([1.0, 1, 1, 1, 2]))
            loss.backward()
            optimizer.step()
            running += loss.item()
        scheduler.step()
        print(f"Epoch {epoch + 1}/{epochs}, Loss: {running / len(train_loader):.5f}, lr {optimizer.param_groups[0]['lr']:.5f}")


teacher, student = Deep(12), Deep(4)
train(teacher, 4, 0.01)
print("teacher", evaluate(teacher))
hidden = {}
handles = [
    net.features.register_forward_hook(lambda module, args, output, name=name: hidden.__setitem__(name, output))
    for name, net in (("teacher", teacher), ("student", student))
]
regressor = nn.Conv2d(4, 12, 1)
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam([{"params": student.parameters()}, {"params": regressor.parameters(), "lr": 5e-3}], lr=1e-2)
swa, swa_scheduler, temperature = AveragedModel(student), SWALR(optimizer, swa_lr=5e-3, anneal_epochs=2), 2.0
for epoch in range(4):
    student.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        with torch.no_grad():
            teacher_logits = teacher(x)
        student_logits = student(x)
        soft = F.kl_div(
            F.log_softmax(student_logits / temperature, -1), F.log_softmax(teacher_logits / temperature, -1), None, None, "batchmean", True
        )
        loss = 0.25 * temperature**2 * soft + F.mse_loss(regressor(hidden["student"]), hidden["teacher"])
        loss += 0.75 * nn.CrossEntropyLoss()(student_logits, y)
        loss.backward()
        optimizer.step()
    if epoch >= 2:
        swa.update_parameters(student)
    swa_scheduler.step()
    print("distil", epoch, loss.item(), soft.item(), [round(g["lr"], 5) for g in optimizer.param_groups])
for handle in handles:
    handle.remove()
update_bn(train_loader, swa)
print("student", evaluate(student), "averaged", evaluate(swa), swa.n_averaged)
prune.l1_unstructured(student.classifier[1], name="weight", amount=0.5)
prune.ln_structured(student.features[0], name="weight", amount=0.25, n=2, dim=0)
print("zeros", (student.classifier[1].weight == 0).float().mean().item(), evaluate(student), list(dict(student.named_buffers()))[-1])
prune.remove(student.classifier[1], "weight")
half = student.to(torch.bfloat16)
print(half(images[:2].bfloat16()).dtype, next(half.parameters()).dtype)
