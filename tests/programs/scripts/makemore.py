"""Names of characters: bigram counts, an MLP with batch norm by hand, broadcasting tricks, sampling with a generator."""

import random

import torch
import torch.nn.functional as F

words = "emma olivia ava isabella sophia charlotte mia amelia harper evelyn abigail emily ella luna liam noah james leo".split()
chars = sorted(list(set("".join(words))))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}
V = len(itos)

N = torch.zeros((V, V), dtype=torch.int32)
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        N[stoi[ch1], stoi[ch2]] += 1
P = (N + 1).float()
P /= P.sum(1, keepdim=True)
g = torch.Generator().manual_seed(2147483647)
for _ in range(3):
    out, ix = [], 0
    while True:
        ix = torch.multinomial(P[ix], num_samples=1, replacement=True, generator=g).item()
        out.append(itos[ix])
        if ix == 0 or len(out) > 30:
            break
    print("".join(out))
print("nll", -sum(torch.log(P[stoi[a], stoi[b]]) for w in words for a, b in zip("." + w, w + ".")) / 100)

xs = torch.tensor([stoi[c] for w in words for c in "." + w])
ys = torch.tensor([stoi[c] for w in words for c in w + "."])
W = torch.randn((V, V), generator=g, requires_grad=True)
for k in range(5):
    xenc = F.one_hot(xs, num_classes=V).float()
    counts = (xenc @ W).exp()
    probs = counts / counts.sum(1, keepdims=True)
    loss = -probs[torch.arange(len(ys)), ys].log().mean() + 0.01 * (W**2).mean()
    print(loss.item())
    W.grad = None
    loss.backward()
    W.data += -50 * W.grad

block_size = 3


def build_dataset(words):
    X, Y = [], []
    for w in words:
        context = [0] * block_size
        for ch in w + ".":
            X.append(context)
            Y.append(stoi[ch])
            context = context[1:] + [stoi[ch]]
    return torch.tensor(X), torch.tensor(Y)


random.seed(42)
random.shuffle(words)
Xtr, Ytr = build_dataset(words[:14])
Xdev, Ydev = build_dataset(words[14:])
print(Xtr.shape, Ytr.shape, Xtr.dtype)
n_embd, n_hidden = 6, 24
C = torch.randn((V, n_embd), generator=g)
W1 = torch.randn((n_embd * block_size, n_hidden), generator=g) * (5 / 3) / ((n_embd * block_size) ** 0.5)
W2 = torch.randn((n_hidden, V), generator=g) * 0.01
b2 = torch.randn(V, generator=g) * 0
bngain, bnbias = torch.ones((1, n_hidden)), torch.zeros((1, n_hidden))
bnmean_running, bnstd_running = torch.zeros((1, n_hidden)), torch.ones((1, n_hidden))
parameters = [C, W1, W2, b2, bngain, bnbias]
print(sum(p.nelement() for p in parameters))
for p in parameters:
    p.requires_grad = True
lri = 10 ** torch.linspace(-3, 0, 40)
for i in range(40):
    ix = torch.randint(0, Xtr.shape[0], (16,), generator=g)
    emb = C[Xtr[ix]]
    hpreact = emb.view(emb.shape[0], -1) @ W1
    bnmeani, bnstdi = hpreact.mean(0, keepdim=True), hpreact.std(0, keepdim=True)
    hpreact = bngain * (hpreact - bnmeani) / bnstdi + bnbias
    with torch.no_grad():
        bnmean_running = 0.9 * bnmean_running + 0.1 * bnmeani
        bnstd_running = 0.9 * bnstd_running + 0.1 * bnstdi
    h = torch.tanh(hpreact)
    h.retain_grad()
    loss = F.cross_entropy(h @ W2 + b2, Ytr[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -lri[i] * p.grad
    if i % 5 == 0:
        print(f"{i:7d}: {loss.item():.4f} {h.grad.abs().mean().item():.3e} {(h.abs() > 0.99).float().mean().item():.4f}")


@torch.no_grad()
def split_loss(split):
    x, y = {"train": (Xtr, Ytr), "val": (Xdev, Ydev)}[split]
    hpreact = C[x].view(x.shape[0], -1) @ W1
    h = torch.tanh(bngain * (hpreact - bnmean_running) / bnstd_running + bnbias)
    print(split, F.cross_entropy(h @ W2 + b2, y).item())


split_loss("train")
split_loss("val")
print(torch.cat(torch.unbind(C[Xtr[:4]], 1), 1).shape, C.data_ptr() == C.view(-1).data_ptr(), C.untyped_storage().nbytes())
