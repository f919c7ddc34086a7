"""Digits with a convolutional network: argparse, a Dataset of one's own, StepLR, a checkpoint read back."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, random_split


class Digits(Dataset):
    def __init__(self, n, transform=None):
        self.labels = torch.arange(n) % 10
        stripes = torch.sin(torch.linspace(0, 6, 14)[None, :] * (self.labels[:, None] + 1))
        self.images = ((stripes[:, None, :] * stripes[:, :, None] + 1) * 127).to(torch.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        return (self.transform(image) if self.transform else image), int(self.labels[i])


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout2d(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(16 * 5 * 5, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            done = 100.0 * batch_idx / len(loader)
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)} ({done:.0f}%)]\tLoss: {loss.item():.6f}")


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    print("Test: average loss {:.4f}, accuracy {}/{}".format(test_loss / len(loader.dataset), correct, len(loader.dataset)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args([])
    torch.manual_seed(1)
    device = torch.device("cuda" if not args.no_cuda and torch.cuda.is_available() else "cpu")
    data = Digits(240, transform=lambda image: (image.float().div(255) - 0.13).div(0.31).unsqueeze(0))
    train_set, test_set = random_split(data, [200, 40])
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=40)
    model = Net().to(device)
    print(sum(p.numel() for p in model.parameters() if p.requires_grad), "parameters")
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
        print("lr", scheduler.get_last_lr())
    path = os.path.join(tempfile.mkdtemp(), "mnist_cnn.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    again = Net()
    print(again.load_state_dict(torch.load(path, map_location=device)["model"]))
    test(again, device, test_loader)
    print(model)


if __name__ == "__main__":
    main()
