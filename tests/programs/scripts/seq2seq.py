"""Sequence to sequence with attention: packed GRU encoder, Bahdanau decoder, teacher forcing, padding masks, greedy translation."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

PAD, SOS, EOS = 0, 1, 2
random.seed(1)
torch.manual_seed(1)


def collate(batch):
    batch = sorted(batch, key=len, reverse=True)
    source = pad_sequence([torch.tensor(s) for s in batch], batch_first=True, padding_value=PAD)
    target = pad_sequence([torch.tensor([*s[::-1], EOS]) for s in batch], batch_first=True, padding_value=PAD)
    return source, torch.tensor([len(s) for s in batch]), target


class EncoderRNN(nn.Module):
    def __init__(self, vocab, hidden, dropout_p=0.1):
        super(EncoderRNN, self).__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.join, self.dropout = nn.Linear(2 * hidden, hidden), nn.Dropout(dropout_p)

    def forward(self, input, lengths):
        packed = pack_padded_sequence(self.dropout(self.embedding(input)), lengths, batch_first=True)
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.join(output), torch.tanh(self.join(torch.cat((hidden[0], hidden[1]), dim=1))).unsqueeze(0)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores.masked_fill(mask.unsqueeze(1), -1e9), dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(vocab, hidden), BahdanauAttention(hidden)
        self.gru, self.out, self.dropout = nn.GRU(2 * hidden, hidden, batch_first=True), nn.Linear(hidden, vocab), nn.Dropout(0.1)

    def forward(self, encoder_outputs, hidden, mask, target=None, max_length=8):
        input = torch.empty(encoder_outputs.size(0), 1, dtype=torch.long).fill_(SOS)
        outputs, attentions = [], []
        for i in range(max_length if target is None else target.size(1)):
            embedded = self.dropout(self.embedding(input))
            context, weights = self.attention(hidden.permute(1, 0, 2), encoder_outputs, mask)
            output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
            output = self.out(output)
            outputs.append(output)
            attentions.append(weights)
            if target is not None:
                input = target[:, i].unsqueeze(1)
            else:
                _, topi = output.topk(1)
                input = topi.squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), hidden, torch.cat(attentions, dim=1)


sentences = [[random.randint(3, 9) for _ in range(random.randint(2, 6))] for _ in range(48)]
loader = DataLoader(sentences, batch_size=12, shuffle=True, collate_fn=collate)
encoder, decoder = EncoderRNN(10, 16), AttnDecoderRNN(16, 10)
optimizers = [optim.Adam(encoder.parameters(), lr=0.01), optim.Adagrad(decoder.parameters(), lr=0.1)]
criterion = nn.NLLLoss(ignore_index=PAD)
for epoch in range(4):
    total = 0
    for source, lengths, target in loader:
        for optimizer in optimizers:
            optimizer.zero_grad()
        encoder_outputs, hidden = encoder(source, lengths)
        teacher = target if random.random() < 0.7 else None
        outputs, _, _ = decoder(encoder_outputs, hidden, source == PAD, teacher, target.size(1))
        loss = criterion(outputs.view(-1, outputs.size(-1)), target.view(-1))
        loss.backward()
        for model in (encoder, decoder):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        total += loss.item()
    print("epoch", epoch, "loss", total / len(loader))
encoder.eval(), decoder.eval()
with torch.no_grad():
    source, lengths, target = collate(sentences[:3])
    encoder_outputs, hidden = encoder(source, lengths)
    outputs, _, attention = decoder(encoder_outputs, hidden, source == PAD)
    print(source, target, outputs.argmax(-1).tolist(), attention.sum(-1).mean().item(), attention[0, 0])

model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)
embed, head = nn.Embedding(10, 16, padding_idx=PAD), nn.Linear(16, 10)
optimizer = optim.NAdam([*model.parameters(), *embed.parameters(), *head.parameters()], lr=2e-3)
for step in range(5):
    source, lengths, target = collate(sentences[step * 8 : step * 8 + 8])
    shifted = F.pad(target[:, :-1], (1, 0), value=SOS)
    causal = nn.Transformer.generate_square_subsequent_mask(shifted.size(1)) < 0
    memory_mask = source == PAD
    out = model(embed(source), embed(shifted), tgt_mask=causal, src_key_padding_mask=memory_mask, memory_key_padding_mask=memory_mask)
    loss = F.cross_entropy(head(out).transpose(1, 2), target, ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("transformer", loss.item())
