"""Programs that torch scripts and traces, for tests that read what it saved. torch.jit.script reads this file's source, and wants plain annotations."""
# ruff: noqa

import enum
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    value: Tensor
    count: int


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class AddOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class ByInterface(nn.Module):
    layer: Layer

    def __init__(self):
        super().__init__()
        self.layer = AddOne()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x) * 2


@torch.jit.script
class Stack:
    def __init__(self, count: int):
        self.count = count
        self.items = torch.jit.annotate(List[Tensor], [])

    def push(self, x: Tensor) -> int:
        self.items.append(x)
        self.count += 1
        return self.count


class Objects(nn.Module):
    color: Color
    names: Dict[str, int]
    sizes: List[int]
    maybe: Optional[Tensor]

    def __init__(self):
        super().__init__()
        self.color, self.names, self.sizes, self.maybe = Color.BLUE, {"a": 1, "b": 2}, [3, 4], None
        self.pair = (2, 0.5)
        self.tensors = [torch.ones(3), torch.zeros(2)]

    def forward(self, x: Tensor, given: Dict[str, Tensor], other: Optional[Tensor] = None, t: Tuple[int, float] = (1, 2.5)) -> Pair:
        stack = Stack(3)
        count = stack.push(x) + stack.push(x * 2)
        if self.color == Color.RED:
            x = x * 2
        elif self.color == Color.BLUE:
            x = x * 3
        if other is not None:
            x = x + other
        maybe = self.maybe
        if maybe is not None:
            x = x + maybe
        for key, value in given.items():
            x = x + value.sum() * self.names.get(key, 7)
        return Pair(x + stack.items[1] * t[1] + self.tensors[0].sum() + self.pair[1], count + self.sizes[-1] + t[0])


class Containers(nn.Module):
    def forward(self, x: Tensor, n: int, texts: List[str]) -> Tuple[Tensor, List[int], Dict[str, int], str, List[Tensor]]:
        squares = [i * i for i in range(n)]
        squares.insert(0, 100)
        squares.extend([7, 8])
        last = squares.pop()
        squares.remove(100)
        squares.reverse()
        ordered = sorted(squares)
        found = {text: len(text) for text in texts}
        found["n"] = n
        if "zz" in found:
            n = 0
        total = sum(ordered) + min(ordered) + max(1, last) + ordered.index(1)
        line = "{}-{}".format(n, texts[0].upper()) + "|".join(texts) + "%d %s" % (total, "q")
        parts = [x, x + 1]
        parts.append(x.neg())
        for i, (part, text) in enumerate(zip(parts, texts)):
            x = x + part * i * len(text)
        del ordered[0]
        return x[:, 1:], ordered[::2] + [total], found, line[1:].replace("|", "/"), parts + [x]


class Numbers(nn.Module):
    def forward(self, a: int, b: int, x: float) -> Tuple[int, int, float, float, int, bool, float, int, int, float, float, List[int]]:
        return (a // b, a % b, a / b, float(a) ** 0.5, a << 3, a > b or x < 1.0, x * float("inf"), int(x), a ^ b, round(x), abs(-x),
                [a * 9223372036854775807, -a, a & 3, a | 8, ~0 if False else 5])


class Loops(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tuple[Tensor, int]:
        steps = 0
        while bool(x.sum() < 100):
            x = x * 2
            steps += 1
            if steps > n:
                break
        for i in range(10, 0, -3):
            if i == 4:
                continue
            x = x + i
        for row in x:
            steps += int(row.max() > 0)
        return x, steps


class Indexing(nn.Module):
    def forward(self, x: Tensor, at: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        y = x.clone()
        y[0] = 3.0
        y[:, 1] += 1
        y[y > 2.5] = 0.5
        return x[0:2, ..., None, -1], x[at], x[:, at, 1:], y


class Errors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("two dimensions wanted, got {}".format(x.dim()))
        assert x.shape[0] > 1, "too few rows"
        return x


class Scopes(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, bool]:
        with torch.no_grad():
            y = x * self.w
        return x * self.w, y, torch.is_grad_enabled()


def doubled(x: Tensor) -> Tensor:
    return x * 2


class Forks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = torch.jit.fork(doubled, x)
        b = torch.jit.fork(doubled, x + 1)
        return torch.jit.wait(a) - torch.jit.wait(b) * 3


class Methods(nn.Module):
    steps: torch.jit.Final[int]

    def __init__(self):
        super().__init__()
        self.steps = 3
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.by_name = nn.ModuleDict({"u": nn.Linear(3, 3)})
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for name, layer in self.by_name.items():
            x = layer(x)
        self.seen += 1
        for _ in range(self.steps):
            x = x * 1.5
        return self.norm(x)

    @torch.jit.export
    def other(self, n: int, scale: float = 2.0):
        return self.helper(n) * scale

    def helper(self, n: int):
        return n + self.seen


class Kinds(nn.Module):
    def forward(self, x: Tensor, what: Union[int, str, List[int]]) -> Tuple[int, int, Tensor, Tensor]:
        kind = 0
        if isinstance(what, int):
            kind = what + 1
        elif isinstance(what, str):
            kind = len(what)
        y = torch.zeros(x.shape, dtype=x.dtype, device=x.device) + torch.tensor([1.0, 2.0, 3.0])
        z = x.to(torch.float64).to(torch.int64)
        anything: Any = kind
        if isinstance(anything, int):
            kind += anything
        return kind, len(x.shape), y + torch.ones_like(x), z + torch.arange(3)


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.lstm = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 3)
        self.rnn = nn.RNN(3, 3, nonlinearity="relu")
        self.cell = nn.LSTMCell(3, 3)
        self.gru_cell = nn.GRUCell(3, 3)

    def forward(self, x):
        y, (h, c) = self.lstm(self.embed(x))
        y, _ = self.gru(y)
        y, _ = self.rnn(y)
        a, b = self.cell(y[0])
        return y, h, c, a, b, self.gru_cell(y[0])


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, bidirectional=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, (h, c) = self.lstm(packed)
        out, counts = nn.utils.rnn.pad_packed_sequence(y)
        return out.to("cpu").to(torch.float64), counts, h, c


class Attention(nn.Module):
    def __init__(self, norm_first: bool = False):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu", norm_first=norm_first)

    def forward(self, x):
        y, w = self.attention(x, x, x)
        return self.layer(y), w


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")
        self.norms = nn.Sequential(nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(8), nn.InstanceNorm2d(2))
        self.up = nn.Sequential(nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.Dropout(0.5), nn.ConvTranspose2d(2, 3, 2, stride=2))

    def forward(self, x):
        y = self.up(self.norms(self.conv(x)))
        return F.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False), F.adaptive_avg_pool2d(y, 1).flatten(1)


def plain_function(x: Tensor, n: int = 2, flag: bool = True, text: str = "hi") -> Tuple[Tensor, str]:
    if flag and n > 1:
        return x, text
    return x.sum(), text + "x"


def indexed(x):
    y = x[1:, None, ..., 0].clone()
    y[0] = 2
    return y * x.shape[0], {"a": y, "b": x.mean()}


def image():
    return torch.randn(2, 1, 8, 8)


SCRIPTED = {
    "interface": (ByInterface, lambda: (torch.randn(2, 3),)),
    "objects": (Objects, lambda: (torch.randn(2, 3), {"a": torch.randn(2, 3), "c": torch.randn(2)}, torch.randn(2, 3), (2, 1.5))),
    "objects by default": (Objects, lambda: (torch.randn(2, 3), {})),
    "containers": (Containers, lambda: (torch.randn(2, 3), 5, ["a", "bcd", "ef"])),
    "numbers": (Numbers, lambda: (-7, 3, 2.5)),
    "loops": (Loops, lambda: (torch.ones(2, 3), 20)),
    "loops that break": (Loops, lambda: (torch.ones(2, 3), 1)),
    "indexing": (Indexing, lambda: (torch.randn(3, 4, 2), torch.tensor([1, 0]))),
    "scopes": (Scopes, lambda: (torch.randn(3),)),
    "forks": (Forks, lambda: (torch.randn(3),)),
    "methods": (Methods, lambda: (torch.randn(4, 3),)),
    "an int": (Kinds, lambda: (torch.randn(2, 3), 4)),
    "a text": (Kinds, lambda: (torch.randn(2, 3), "four")),
    "sequences": (Sequences, lambda: (torch.randint(10, (2, 3)),)),
    "packed": (Packed, lambda: (torch.randn(5, 3, 3), torch.tensor([3, 5, 1]))),
    "attention": (Attention, lambda: (torch.randn(2, 3, 4),)),
    "attention, evaluated": (lambda: Attention(True).eval(), lambda: (torch.randn(2, 3, 4),)),
    "images": (lambda: Images().eval(), lambda: (image(),)),
    "function": (lambda: plain_function, lambda: (torch.randn(2), 1, True, "t")),
}
TRACED = {
    "methods": (Methods, lambda: (torch.randn(4, 3),)),
    "sequences": (Sequences, lambda: (torch.randint(10, (2, 3)),)),
    "attention, evaluated": (lambda: Attention().eval(), lambda: (torch.randn(2, 3, 4),)),
    "images": (lambda: Images().eval(), lambda: (image(),)),
    "function": (lambda: indexed, lambda: (torch.randn(3, 4, 5),)),
}
