"""A variational autoencoder whose samples are written as text."""

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
device = torch.device("cpu")


class VAE(nn.Module):
    def __init__(self, d=49, h=32, z=5):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc21, self.fc22 = nn.Linear(h, z), nn.Linear(h, z)
        self.fc3, self.fc4 = nn.Linear(z, h), nn.Linear(h, d)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 49))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 49), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


centres = torch.bernoulli(torch.full((6, 1, 7, 7), 0.4))
images = centres[torch.randint(6, (192,))] * torch.empty(192, 1, 1, 1).uniform_(0.7, 1.0)
loader = DataLoader(TensorDataset(images), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(3))
model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(1, 9):
    model.train()
    total = 0.0
    for (data,) in loader:
        optimizer.zero_grad(set_to_none=True)
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        total += loss.item()
        optimizer.step()
    print("====> Epoch: {} Average loss: {:.4f}".format(epoch, total / len(loader.dataset)))
model.eval()
with torch.inference_mode():
    sample = model.decode(torch.randn(2, 5)).view(2, 7, 7)
    prior = torch.distributions.Normal(torch.zeros(5), torch.ones(5))
    posterior = torch.distributions.Normal(mu[0], (0.5 * logvar[0]).exp())
    print("KL", torch.distributions.kl_divergence(posterior, prior).sum().item())
    print(sample[0].mean(dim=0))
    print(sample.std().item(), posterior)
