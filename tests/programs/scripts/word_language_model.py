"""A language model of words, LSTM or transformer: a corpus, truncated backpropagation through time, clipping, annealing, sampling."""

import math
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="enable_nested_tensor")


class Dictionary(object):
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


TEXT = "the cat sat on the mat and the dog ran to the cat while a bird sang over the old mat <eos> " * 30


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.5, tie_weights=False):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        self.rnn_type, self.nhid, self.nlayers, self.ntoken = rnn_type, nhid, nlayers, ntoken

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        zeros = weight.new_zeros(self.nlayers, bsz, self.nhid)
        return (zeros, zeros.clone()) if self.rnn_type == "LSTM" else zeros


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=64):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0), :])


class TransformerModel(nn.Transformer):
    def __init__(self, ntoken, ninp, nhead, nhid, nlayers, dropout=0.2):
        super().__init__(d_model=ninp, nhead=nhead, dim_feedforward=nhid, num_encoder_layers=nlayers, dropout=dropout)
        self.src_mask = None
        self.pos_encoder = PositionalEncoding(ninp, dropout)
        self.input_emb = nn.Embedding(ntoken, ninp)
        self.ninp, self.ntoken = ninp, ntoken
        self.decoder = nn.Linear(ninp, ntoken)
        nn.init.uniform_(self.input_emb.weight, -0.1, 0.1)

    def forward(self, src, hidden=None):
        if self.src_mask is None or self.src_mask.size(0) != len(src):
            self.src_mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
        src = self.pos_encoder(self.input_emb(src) * math.sqrt(self.ninp))
        output = self.encoder(src, mask=self.src_mask)
        return F.log_softmax(self.decoder(output), dim=-1).view(-1, self.ntoken), hidden

    def init_hidden(self, bsz):
        return None


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def repackage_hidden(h):
    if h is None or isinstance(h, torch.Tensor):
        return h if h is None else h.detach()
    return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i, bptt=9):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def main(kind):
    torch.manual_seed(1111)
    corpus = Dictionary()
    ids = torch.tensor([corpus.add_word(word) for word in TEXT.split()]).type(torch.int64)
    train, val = batchify(ids, 8), batchify(ids[:120], 4)
    n = len(corpus)
    model = TransformerModel(n, 16, 2, 32, 2) if kind == "Transformer" else RNNModel(kind, n, 16, 16, 2, 0.2, True)
    criterion, lr, best = nn.NLLLoss(), 5.0, None
    if kind == "Transformer":
        lr = 0.5
    for epoch in range(1, 4):
        model.train()
        hidden, total = model.init_hidden(8), 0.0
        for batch, i in enumerate(range(0, train.size(0) - 1, 9)):
            data, targets = get_batch(train, i)
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-lr)
            total += loss.item()
            if batch % 4 == 3:
                print(f"| {kind} | epoch {epoch} | {batch:3d} | lr {lr:.2f} | loss {total / 4:5.4f} | norm {norm:.4f}")
                total = 0
        model.eval()
        with torch.no_grad():
            data, targets = get_batch(val, 0, 20)
            val_loss = criterion(model(data, model.init_hidden(4))[0], targets).item()
        print(f"| valid loss {val_loss:.4f} | ppl {math.exp(val_loss):.3f}")
        if not best or val_loss < best:
            best = val_loss
        else:
            lr /= 4.0
    word, words, hidden = torch.randint(n, (1, 1), dtype=torch.long), [], model.init_hidden(1)
    with torch.no_grad():
        for _ in range(12):
            output, hidden = model(word, hidden)
            weights = output[-1].div(1.0).exp().cpu()
            word.fill_(torch.multinomial(weights, 1)[0])
            words.append(corpus.idx2word[word])
    print(" ".join(words))


for kind in ("LSTM", "GRU", "RNN_TANH", "Transformer"):
    if kind == "RNN_TANH":
        torch.manual_seed(4)
        rnn = nn.RNN(4, 6, nonlinearity="tanh", bidirectional=True, batch_first=True)
        out, h = rnn(torch.randn(2, 3, 4))
        print(out.shape, h.shape, out.sum().item())
    else:
        main(kind)
