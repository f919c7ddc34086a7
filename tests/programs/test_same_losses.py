"""Small programs of well-known kinds, with seeds of their own: each prints torch's losses line by line."""

from __future__ import annotations

import pytest

import flambeau as fl

torch_itself = pytest.importorskip("torch", reason="losses are compared with torch's")


def mnist(torch):
    """A convolutional network with dropout, shuffled batches and Adadelta."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(1)
    X = torch.randn(256, 1, 12, 12)
    Y = torch.randint(0, 10, (256,))
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(200, 32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    )
    o = torch.optim.Adadelta(net.parameters(), lr=1.0)
    dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=32, shuffle=True)
    for _e in range(3):
        for x, y in dl:
            o.zero_grad()
            l = F.cross_entropy(net(x), y)
            l.backward()
            o.step()
            yield l.item()


def vae(torch):
    """A variational autoencoder."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(2)
    X = torch.rand(128, 20)
    e = nn.Linear(20, 16)
    m = nn.Linear(16, 4)
    v = nn.Linear(16, 4)
    d = nn.Linear(4, 20)
    ps = [p for k in (e, m, v, d) for p in k.parameters()]
    o = torch.optim.Adam(ps, lr=1e-2)
    for _i in range(30):
        h = F.relu(e(X))
        mu, lv = m(h), v(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        r = torch.sigmoid(d(z))
        l = F.binary_cross_entropy(r, X, reduction="sum") - 0.5 * torch.sum(1 + lv - mu**2 - lv.exp())
        o.zero_grad()
        l.backward()
        o.step()
        yield l.item()


def wordlm(torch):
    """A language model of words: embedding, LSTM with dropout, clipped gradients."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(3)
    D = torch.randint(0, 30, (40, 8))
    emb = nn.Embedding(30, 16)
    rnn = nn.LSTM(16, 16, 2, dropout=0.2)
    dec = nn.Linear(16, 30)
    dr = nn.Dropout(0.2)
    ps = [p for k in (emb, rnn, dec) for p in k.parameters()]
    nn.init.uniform_(emb.weight, -0.1, 0.1)
    for _i in range(20):
        out, _ = rnn(dr(emb(D[:-1])))
        l = F.cross_entropy(dec(dr(out)).view(-1, 30), D[1:].view(-1))
        l.backward()
        torch.nn.utils.clip_grad_norm_(ps, 0.25)
        with torch.no_grad():
            for p in ps:
                p.add_(p.grad, alpha=-1.0)
                p.grad = None
        yield l.item()


def gpt(torch):
    """A small transformer with dropout in its attention, and tokens sampled from it."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(4)

    class B(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = nn.Linear(32, 96)
            s.p = nn.Linear(32, 32)
            s.l1 = nn.LayerNorm(32)
            s.l2 = nn.LayerNorm(32)
            s.m = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1))

        def forward(s, x):
            b, t, c = x.shape
            q, k, v = s.a(s.l1(x)).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
            y = (
                F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
                if DROP
                else F.scaled_dot_product_attention(q, k, v, is_causal=True)
            )
            x = x + s.p(y.transpose(1, 2).reshape(b, t, c))
            return x + s.m(s.l2(x))

    DROP = True
    te, pe = nn.Embedding(40, 32), nn.Embedding(16, 32)
    bl = nn.Sequential(B(), B())
    hd = nn.Linear(32, 40, bias=False)
    ms = nn.ModuleList([te, pe, bl, hd])
    for p in ms.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, 0, 0.02)
    D = torch.randint(40, (1000,))
    o = torch.optim.AdamW(ms.parameters(), lr=1e-2)
    for _i in range(20):
        ix = torch.randint(len(D) - 17, (8,))
        x = torch.stack([D[j : j + 16] for j in ix])
        y = torch.stack([D[j + 1 : j + 17] for j in ix])
        l = F.cross_entropy(hd(bl(te(x) + pe(torch.arange(16)))).view(-1, 40), y.reshape(-1))
        o.zero_grad()
        l.backward()
        o.step()
        yield l.item()
    ms.eval()
    idx = torch.zeros(1, 1, dtype=torch.long)
    for _i in range(10):
        lg = hd(bl(te(idx) + pe(torch.arange(idx.shape[1]))))[:, -1]
        idx = torch.cat([idx, torch.multinomial(F.softmax(lg, -1), 1)], 1)
    yield from idx[0].float().tolist()


def makemore(torch):
    """A network of characters by hand, with a generator of its own."""
    _nn, F = torch.nn, torch.nn.functional
    g = torch.Generator().manual_seed(2147483647)
    C = torch.randn((27, 10), generator=g)
    W1 = torch.randn((30, 64), generator=g) * (5 / 3) / 30**0.5
    W2 = torch.randn((64, 27), generator=g) * 0.1
    ps = [C, W1, W2]
    for p in ps:
        p.requires_grad = True
    X = torch.randint(0, 27, (500, 3), generator=g)
    Y = torch.randint(0, 27, (500,), generator=g)
    for _i in range(40):
        ix = torch.randint(0, 500, (32,), generator=g)
        l = F.cross_entropy(torch.tanh(C[X[ix]].view(32, -1) @ W1) @ W2, Y[ix])
        for p in ps:
            p.grad = None
        l.backward()
        for p in ps:
            p.data += -0.1 * p.grad
        yield l.item()


def dcgan(torch):
    """Two convolutional networks against each other."""
    nn, _F = torch.nn, torch.nn.functional
    torch.manual_seed(5)
    G = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    D = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, bias=False), nn.Sigmoid()
    )

    def w(m):
        if "Conv" in m.__class__.__name__:
            nn.init.normal_(m.weight.data, 0, 0.02)
        elif "BatchNorm" in m.__class__.__name__:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    G.apply(w)
    D.apply(w)
    og = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
    od = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    bce = nn.BCELoss()
    for _i in range(15):
        real = torch.rand(16, 1, 8, 8)
        z = torch.randn(16, 8, 1, 1)
        f = G(z)
        D.zero_grad()
        ld = bce(D(real).view(-1), torch.ones(16)) + bce(D(f.detach()).view(-1), torch.zeros(16))
        ld.backward()
        od.step()
        G.zero_grad()
        lg = bce(D(f).view(-1), torch.ones(16))
        lg.backward()
        og.step()
        yield ld.item()
        yield lg.item()


def ppo(torch):
    """Proximal policy optimisation: orthogonal weights, sampled actions, shuffled minibatches."""
    nn, _F = torch.nn, torch.nn.functional
    torch.manual_seed(6)

    def li(l, s=2**0.5):
        torch.nn.init.orthogonal_(l.weight, s)
        torch.nn.init.constant_(l.bias, 0.0)
        return l

    A = nn.Sequential(li(nn.Linear(4, 32)), nn.Tanh(), li(nn.Linear(32, 3), 0.01))
    C = nn.Sequential(li(nn.Linear(4, 32)), nn.Tanh(), li(nn.Linear(32, 1), 1.0))
    ps = list(A.parameters()) + list(C.parameters())
    o = torch.optim.Adam(ps, lr=2.5e-3, eps=1e-5)
    Cat = torch.distributions.Categorical
    for _it in range(8):
        s = torch.randn(64, 4)
        with torch.no_grad():
            d = Cat(logits=A(s))
            a = d.sample()
            lp0 = d.log_prob(a)
        r = (a.float() - 1) * s[:, 0]
        adv = r - C(s).detach().view(-1)
        b = torch.randperm(64)
        for mb in b.split(16):
            d = Cat(logits=A(s[mb]))
            ra = (d.log_prob(a[mb]) - lp0[mb]).exp()
            ad = adv[mb]
            ad = (ad - ad.mean()) / (ad.std() + 1e-8)
            l = (
                torch.max(-ad * ra, -ad * torch.clamp(ra, 0.8, 1.2)).mean()
                - 0.01 * d.entropy().mean()
                + 0.5 * ((C(s[mb]).view(-1) - r[mb]) ** 2).mean()
            )
            o.zero_grad()
            l.backward()
            nn.utils.clip_grad_norm_(ps, 0.5)
            o.step()
            yield l.item()


PROGRAMS = [mnist, vae, wordlm, gpt, makemore, dcgan, ppo]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_seed_gives_the_same_losses(program):
    mine, theirs = list(program(fl)), list(program(torch_itself))
    assert len(mine) == len(theirs) and mine == pytest.approx(theirs, rel=1e-3, abs=1e-3)
