"""Named entities by a bidirectional LSTM and a linear-chain conditional random field, sentences of several lengths, Viterbi decoding."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

START, STOP = "<start>", "<stop>"
SENTENCES = [("the journal reported today that apple corporation made money", "B I O O O B I O O"),
             ("georgia tech is a university in georgia", "B I O O O O B"),
             ("paris hosts apple", "B O B"), ("money made the university", "O O O O")]


class Tagger(nn.Module):
    def __init__(self, words, tags, embedding=8, hidden=12):
        super().__init__()
        self.tags = tags
        self.embed = nn.Embedding(words + 1, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden // 2, num_layers=1, bidirectional=True, batch_first=True)
        self.out = nn.Linear(hidden, len(tags))
        self.transitions = nn.Parameter(torch.randn(len(tags), len(tags)))
        self.transitions.data[tags[START], :] = -10000
        self.transitions.data[:, tags[STOP]] = -10000

    def features(self, batch, lengths):
        packed = pack_padded_sequence(self.embed(batch), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(states)

    def normaliser(self, feats, mask):
        alpha = torch.full((feats.shape[0], len(self.tags)), -10000.0)
        alpha[:, self.tags[START]] = 0.0
        for t in range(feats.shape[1]):
            step = torch.logsumexp(alpha.unsqueeze(1) + self.transitions + feats[:, t].unsqueeze(2), dim=2)
            alpha = torch.where(mask[:, t].unsqueeze(1), step, alpha)
        return torch.logsumexp(alpha + self.transitions[self.tags[STOP]], dim=1)

    def score(self, feats, tags, mask, lengths):
        start = tags.new_full((tags.shape[0], 1), self.tags[START])
        path = torch.cat([start, tags], 1)
        emitted = feats.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = self.transitions[path[:, 1:], path[:, :-1]]
        last = path.gather(1, lengths.unsqueeze(1)).squeeze(1)
        return ((emitted + moved) * mask).sum(1) + self.transitions[self.tags[STOP], last]

    def loss(self, batch, tags, lengths):
        mask = torch.arange(batch.shape[1])[None, :] < lengths[:, None]
        feats = self.features(batch, lengths)
        return (self.normaliser(feats, mask) - self.score(feats, tags, mask, lengths)).mean()

    @torch.no_grad()
    def decode(self, sentence):
        feats = self.features(sentence[None], torch.tensor([len(sentence)]))[0]
        best = torch.full((len(self.tags),), -10000.0)
        best[self.tags[START]] = 0.0
        back = []
        for feat in feats:
            scores, come = (best + self.transitions).max(1)
            best = scores + feat
            back.append(come.tolist())
        best = best + self.transitions[self.tags[STOP]]
        value, at = best.max(0)
        path = [at.item()]
        for come in reversed(back):
            path.append(come[path[-1]])
        assert path.pop() == self.tags[START]
        return value.item(), path[::-1]


torch.manual_seed(1)
words = {}
for text, _ in SENTENCES:
    for w in text.split():
        words.setdefault(w, len(words) + 1)
tags = {t: i for i, t in enumerate(["O", "B", "I", START, STOP])}
model = Tagger(len(words), tags)
optimizer = optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4, momentum=0.5, nesterov=True)
inputs = [torch.tensor([words[w] for w in text.split()], dtype=torch.long) for text, _ in SENTENCES]
targets = [torch.tensor([tags[t] for t in marks.split()], dtype=torch.long) for _, marks in SENTENCES]
lengths = torch.tensor([len(x) for x in inputs])
for epoch in range(30):
    model.zero_grad()
    loss = model.loss(pad_sequence(inputs, batch_first=True), pad_sequence(targets, batch_first=True), lengths)
    loss.backward()
    optimizer.step()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1} loss {loss.item():.4f}")
for x in inputs:
    score, path = model.decode(x)
    print(f"{score:.3f}", path)
