"""Sine waves continued by two LSTM cells in double precision, fitted by L-BFGS through a closure."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 11)
        self.lstm2 = nn.LSTMCell(11, 11)
        self.linear = nn.Linear(11, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 11, dtype=torch.double)
        c_t, h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(h_t), torch.zeros_like(h_t)
        output = None
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


np.random.seed(2)
torch.manual_seed(0)
x = np.array(range(16)) + np.random.randint(-16, 16, 6).reshape(6, 1)
data = np.sin(x / 1.0 / 4).astype("float64")
input, target = torch.from_numpy(data[2:, :-1]), torch.from_numpy(data[2:, 1:])
test_input, test_target = torch.from_numpy(data[:2, :-1]), torch.from_numpy(data[:2, 1:])
seq = Sequence()
seq.double()
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=6)
for i in range(3):
    print("STEP: ", i)

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(input), target)
        print("loss:", loss.item())
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        pred = seq(test_input, future=4)
        print("test loss:", criterion(pred[:, :-4], test_target).item())
        print(pred.detach().numpy()[:, -4:].round(3))
strong = optim.LBFGS(seq.parameters(), history_size=5, max_iter=4, line_search_fn="strong_wolfe")
print(strong.step(closure).item())
