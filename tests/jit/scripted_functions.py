"""Functions for torch.jit.script, after TorchScript's language reference.

`tests/jit/test_script.py` runs this file twice, with `torch` standing for PyTorch and for Flambeau: `@prog(args)` marks a program.
"""
# ruff: noqa

import dataclasses
import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

T=torch.arange(6.).view(2,3)
@prog(T, 3)
def ints(x, n: int):
    return n // 2, n % 2, n / 2, n ** 2, -n, abs(-n), n << 1, n | 4, n & 1, n ^ 7
@prog(2.5)
def floats(a: float):
    return a // 2, a % 2, a / 2, a ** 2, int(a), round(a), math.floor(a), math.ceil(a), math.sqrt(a), float(3), a > 2, a == 2.5
@prog(T)
def reversed_ops(x):
    return 2 - x, 2 / (x + 1), 2 ** x, 2 * x, 2 + x, 2 < x, 2 > x, 2 == x, 7 % (x + 1)
@prog(T)
def index1(x):
    return x[0], x[0, 1], x[:, 1], x[-1], x[..., 0], x[None], x[:, None], x[..., None], x[1:, :2], x[:, ::2], x[0:1, ..., 1:]
@prog(T)
def index2(x):
    i = torch.tensor([1, 0])
    return x[i], x[:, i], x[x > 2], x[i, i], x[0, i], x[i][:, 1:]
@prog(T)
def setitem(x):
    x = x.clone()
    x[0] = 1
    x[1, 2] = 7.5
    x[:, 1] += 3
    x[x > 5] = 0
    x[0, 0] *= 4
    x[torch.tensor([1])] = torch.ones(3)
    return x
@prog([1, 2, 3])
def lists(l: List[int]):
    l.append(4)
    l.extend([5, 6])
    l.insert(0, 9)
    p = l.pop()
    q = l.pop(0)
    l.remove(2)
    l.reverse()
    l.sort()
    c = l.count(3)
    i = l.index(3)
    l2 = l.copy()
    l2.clear()
    l[0] = 10
    l[1] += 5
    del l[0]
    return l, p, q, c, i, l2, len(l), l[-1], l[1:], l[::2], 3 in l, sum(l), min(l), max(l), sorted(l), l * 2, l + [1]
@prog({'a': 1, 'b': 2})
def dicts(d: Dict[str, int]):
    d['c'] = 3
    k = [x for x in d.keys()]
    v = [x for x in d.values()]
    s = 0
    for a, b in d.items():
        s += b
    g = d.get('zz', 5)
    h = d.get('a')
    p = d.pop('b')
    d.update({'q': 4})
    e = d.copy()
    e.clear()
    del d['q']
    r = d.setdefault('n', 8)
    return d, k, v, s, g, h, p, e, 'a' in d, 'zz' not in d, len(d), r
@prog("Hello World")
def strs(s: str):
    return s.upper(), s.lower(), s.split(), s.split("o"), s.replace("l", "L"), s.find("o"), s.startswith("He"), s[0], s[1:4], s + "!", len(s), s.strip("H"), "-".join(["a", "b"]), "x" in s, s.count("l"), s.isdigit(), s.title(), s == "a", s < "Z", s.rfind("o"), s.endswith("d"), s.zfill(15), s.center(20)
@prog(3, 2.5, "q")
def fmt(a: int, b: float, c: str):
    return f"{a} {b} {c}", "{} {}".format(a, b), "%d %s" % (a, c), str(a) + str(b), "{}".format([1, 2])
@prog(T, None)
@prog(T, T)
def opt1(x, y: Optional[Tensor] = None):
    if y is not None:
        return x + y
    return x
@prog(T, None)
@prog(T, 4)
def opt2(x, n: Optional[int]):
    if n is None:
        n = 2
    return x * n
@prog(T, None)
@prog(T, 4)
def opt3(x, n: Optional[int]):
    if n is not None and n > 3:
        x = x + n
    if n is None or n < 2:
        x = x - 1
    else:
        x = x * n
    return x
@prog(T, 3)
def opt4(x, n: Optional[int]):
    assert n is not None, "none"
    return x + n
@prog(T, None)
def opt5(x, n: Optional[int]):
    m = n if n is not None else 7
    return x + m
@prog(5)
@prog(0)
def early(n: int):
    if n > 3:
        return "big"
    elif n > 1:
        return "mid"
    return "small"
@prog(10)
def loops(n: int):
    s = 0
    for i in range(n):
        if i == 2:
            continue
        if i > 6:
            break
        s += i
    while s > 5:
        s -= 3
    for j in range(2, n, 3):
        for k in range(j):
            if k == 3:
                break
            s += k
    for i in range(n, 0, -4):
        s = s * 2 + i
    return s
@prog([3, 4], [T, T + 1])
def zips(a: List[int], b: List[Tensor]):
    out = []
    for x, y in zip(a, b):
        out.append(y * x)
    for i, z in enumerate(b):
        out.append(z + i)
    for i, (x, y) in enumerate(zip(a, b)):
        out.append(y * x + i)
    for i, q in enumerate(a, 5):
        out.append(torch.tensor(i * q))
    return out
@prog(T)
def tensoriter(x):
    s = 0
    for row in x:
        s += int(row.sum())
    return s
@prog((1, T))
def tuples(t: Tuple[int, Tensor]):
    a, b = t
    c, d = d2(a)
    e = (a, c)
    (f, g), h = (e, d)
    return a, b, c, d, e[0], e + (1, 2), len(t), f, g, h, t[1], (a, b) == (a, b) if False else e == (1, 2)
def d2(n: int) -> Tuple[int, int]:
    return n, n + 1
@prog(T)
def comps(x):
    a = [i * 2 for i in range(4)]
    b = {str(i): i for i in a}
    c = [t.sum() for t in [x, x + 1]]
    d = [k for k in b]
    e = [[i, i + 1] for i in range(2)]
    return a, b, c, d, e
@prog(T, True)
def ternary(x, f: bool):
    return x if f else x * 2, 1 if not f else 2, "a" if f and 1 > 2 else "b"
@prog(3)
def boolops(n: int):
    return n > 1 and n < 5, n > 5 or n == 3, not n, 1 < n < 5, 1 < n <= 2 , n != 3, bool(n), n is None
@prog(T)
def raises(x):
    if x.dim() == 2:
        raise ValueError("bad {}".format(x.dim()))
    return x
@prog(T)
def asserts(x):
    assert x.dim() == 3, f"dims {x.dim()}"
    return x
@prog(T)
def attrs(x):
    return x.shape, x.dtype, x.device, x.ndim, x.requires_grad, x.is_cuda, x.size(), x.size(1), x.numel(), x.T, x.shape[0], x.size()[1], x.dim(), x.layout, x.is_floating_point()
@prog(T)
def methods(x):
    return x.view(3, 2), x.view([6]), x.view(-1), x.reshape(3, -1), x.permute(1, 0), x.transpose(0, 1), x.sum(), x.sum(1), x.sum(dim=0, keepdim=True), x.mean(-1), x.max(), x.argmax(1), x.float(), x.long(), x.to(torch.float64), x.type_as(x), x.expand(2, 2, 3), x.unsqueeze(0).squeeze(), x.repeat(2, 1), x.contiguous(), x.clamp(min=1), x.clamp(1, 3), x.t(), x.norm(), x.std(), x.any(), x.all(), x.new_zeros(2, 3), x.new_ones([2]), x.flatten(), x.chunk(2), x.split(1), x.unbind(0), x.item() if x.numel() == 1 else 3
@prog(T)
def multi(x):
    v, i = x.max(1)
    m = x.max(dim=1)
    s = torch.sort(x, descending=True)
    tk = x.topk(2, 1)
    return v, i, m.values, m.indices, m[0], s[0], s.values, tk.values, torch.std_mean(x)[0]
@prog(T)
def creators(x):
    return torch.zeros(2, 3), torch.ones([2]), torch.full((2,), 3.0), torch.arange(3), torch.arange(1, 4), torch.tensor([1, 2]), torch.tensor(3.5), torch.zeros_like(x), torch.empty(0), torch.eye(2), torch.linspace(0, 1, 3), torch.zeros(2, dtype=torch.int64), torch.ones((2, 2), dtype=torch.float64, device=x.device), torch.tensor([[1.0, 2.0]], dtype=torch.float32)
@prog(T)
def funcs(x):
    return torch.cat([x, x], 0), torch.stack([x, x], dim=1), torch.where(x > 2, x, torch.zeros_like(x)), torch.matmul(x, x.t()), x @ x.t(), torch.relu(x), F.relu(x), F.softmax(x, dim=1), F.softmax(x, -1), F.log_softmax(x, 1), F.gelu(x), F.silu(x), F.sigmoid(x), torch.sigmoid(x), F.pad(x, (1, 1)), F.pad(x, [0, 1, 1, 0], "constant", 2.0), F.one_hot(x.long()), F.normalize(x, dim=1), F.layer_norm(x, (3,)), F.leaky_relu(x, 0.1), F.elu(x), F.hardtanh(x), F.softplus(x), F.dropout(x, 0.5, False), torch.einsum("ij,kj->ik", x, x), torch.einsum("ij->j", [x])
@prog(T)
def losses(x):
    t = torch.tensor([0, 2])
    return F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="sum"), F.mse_loss(x, x + 1), F.l1_loss(x, x * 2, reduction="none"), F.nll_loss(x, t), F.binary_cross_entropy_with_logits(x, x * 0.1), F.smooth_l1_loss(x, x + 2), F.kl_div(x, x + 1, reduction="batchmean")
@prog(torch.arange(32.).view(1, 2, 4, 4))
def images(x):
    return F.interpolate(x, scale_factor=2.0), F.interpolate(x, size=(2, 2), mode="bilinear", align_corners=False), F.interpolate(x, size=8), F.max_pool2d(x, 2), F.avg_pool2d(x, 2, stride=1), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (2, 1)), F.adaptive_max_pool2d(x, 2), F.conv2d(x, torch.ones(3, 2, 3, 3), padding=1), F.conv2d(x, torch.ones(3, 2, 3, 3), None, stride=2), F.batch_norm(x, torch.zeros(2), torch.ones(2)), F.max_pool2d(x, 3, 2, 1), F.unfold(x, 2), F.pixel_shuffle(torch.cat([x, x], 1), 2), F.instance_norm(x), F.group_norm(x, 2), F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False), F.interpolate(x, scale_factor=(2.0, 1.0), mode="nearest")
@prog(torch.arange(32.).view(1, 2, 4, 4), 2)
def pools(x, n: int):
    a, at = F.max_pool2d(x, 2, return_indices=True); b, to = F.adaptive_max_pool2d(x, [n, 2], True); y = x * 1
    return a, at, b, to, F.avg_pool2d(x, (2, 2), (2, 2), 0, True), F.avg_pool1d(x[0], 2), F.max_pool1d(x[0], 2), F.max_pool3d(x, [1, 2, 2]), F.avg_pool3d(x, 2), F.adaptive_avg_pool2d(x, [n, n]), F.adaptive_avg_pool2d(x, x.shape[2:]), F.adaptive_avg_pool1d(x[0], 2), F.adaptive_avg_pool3d(x, 1), F.relu(x, inplace=n > 9), F.relu(y, True), F.threshold(x, 0.1, 20.0), F.rrelu(x, 0.2, 0.2), F.dropout(x, 0.5, n > 9), F.alpha_dropout(x, training=n > 9), F.layer_norm(x, x.shape[-1:], eps=1e-4), F.embedding(torch.arange(2), x[0, 0], padding_idx=1), F.pad(x, (1, 1), value=2.0), F.batch_norm(x, None, None, training=n > 0), F.instance_norm(x, momentum=0.2), F.tanh(x)
@prog(T)
def withs(x):
    with torch.no_grad():
        y = x * 2
    return y, torch.is_grad_enabled()
@prog(T)
def forks(x):
    a = torch.jit.fork(doubled, x)
    b = torch.jit.fork(doubled, x + 1)
    return torch.jit.wait(a) + torch.jit.wait(b), a.wait()
def doubled(x):
    return x * 2
def untyped(a, b):
    # type: (int, Tensor) -> Tensor
    return a * b

@prog(T)
def annot(x):
    a = torch.jit.annotate(List[int], [])
    b = torch.jit.annotate(Dict[str, Tensor], {})
    b["x"] = x
    c: Optional[Tensor] = None
    d: List[Tensor] = []
    e: Tuple[int, float] = (1, 2.0)
    if c is None:
        c = x
    a.append(1)
    return a, b, c, d, e
class Pt(NamedTuple):
    x: Tensor
    n: int
@prog(T)
def ntuple(x):
    p = Pt(x, 3)
    q = Pt(x=x, n=4)
    a, b = p
    return p.x, p.n + q.n, p[1], a, b
class Col(enum.Enum):
    RED = 1
    BLUE = 2
@prog(1)
def enums(n: int):
    c = Col.RED
    if n == 2:
        c = Col.BLUE
    return c == Col.RED, c.value, c.name
@prog(3)
@prog("q")
@prog([1, 2])
def unions(x: Union[int, str, List[int]]):
    if isinstance(x, int):
        return x + 1
    elif isinstance(x, str):
        return len(x)
    else:
        return x[0]
@prog(T)
def anys(x: Any):
    if isinstance(x, Tensor):
        return x + 1
    return torch.zeros(1)
@prog(T)
def jitinst(x: Any):
    if torch.jit.isinstance(x, List[int]):
        return 1
    return 2
@prog(3)
def scripting(n: int):
    if torch.jit.is_scripting():
        return n
    else:
        return n
@prog(T)
def augment(x):
    y = x.clone()
    y += 1
    y *= 2
    y -= x
    y /= 3
    n = 3
    n += 2
    n *= 2
    f = 1.5
    f /= 2
    s = "a"
    s += "b"
    l = [1]
    l += [2]
    return y, n, f, s, l
@prog(4)
def mathf(n: int):
    return math.pi, math.sqrt(n), math.exp(1.0), math.log(2.0), math.log(8, 2), math.pow(2, 3), math.floor(2.5), math.ceil(2.1), math.sin(1.0), math.atan2(1.0, 2.0), math.gcd(12, 8), math.fabs(-2.0), math.fmod(5.0, 3.0), math.factorial(4), math.degrees(1.0), math.isnan(1.0), math.inf, math.copysign(1.0, -2.0)
@prog(T)
def casts(x):
    return int(x.sum()), float(x[0, 1]), bool(x[0, 1] > 0), int(2.7), float(3), int("12"), float("1.5"), str(3), bool(0), int(True), x.sum().item()
@prog(3, 4)
def minmax(a: int, b: int):
    return min(a, b), max(a, b), min(1.5, 2.5), max([1, 2, 3]), abs(-2.5), round(2.567, 2), divmod(7, 2), pow(2, 3), sum([1, 2]), any([True, False]), all([True]), chr(97), ord('a'), hex(255), min(a, 2.5)
@prog(T)
def nested(x):
    a: Dict[str, List[Tensor]] = {"k": [x]}
    a["k"].append(x + 1)
    b: List[Tuple[int, str]] = [(1, "a"), (2, "b")]
    s = 0
    for n, t in b:
        s += n + len(t)
    c: List[List[int]] = [[1], [2, 3]]
    c[1].append(4)
    return a["k"][1], s, c[1][2], b[0][1]
@prog(T)
def shapes(x):
    b, c = x.shape
    n = x.shape[0] * x.shape[1]
    return b, c, n, x.view(c, b), x.shape[-1], list(x.shape), x.shape[:1], len(x.shape), tuple(x.size()) if False else 1
@prog(T, 2)
def whileloop(x, n: int):
    while n > 0 and bool(x.sum() < 1000):
        x = x * 2
        n -= 1
    return x
@prog([1.5, 2.5])
def floatlist(l: List[float]):
    s = 0.0
    for x in l:
        s += x
    return s, [x * 2 for x in l], sum(l), max(l)
@prog(T)
def swap(x):
    a, b = 1, 2
    a, b = b, a
    c = d = 5
    return a, b, c, d
def recur(n: int) -> int:
    return n
@prog(3)
def deflt(n: int, m: int = 4, f: float = 0.5, s: str = "x", l: List[int] = [1, 2], t: Optional[int] = None):
    return n + m, f, s, l, t
@prog(T)
def kwcall(x):
    return helper(x, b=3), helper(x, 2, c=4), helper(a=x)
def helper(a, b: int = 1, c: int = 2):
    return a * b + c


@prog(3)
def chain_cmp(n: int): return 0 < n < 5, 0 < n < 2, n == 3 != 4
@prog(T)
def starargs(x):
    s = [3, 2]
    t = (x, x)
    return x.view(s), torch.cat([*t], 0), x.permute(*(1, 0))
@prog(T)
def slices(x):
    l = [1, 2, 3, 4, 5]
    n = 2
    return l[n:], l[:n], l[-2:], l[1:4:2], x[n - 1:, :n], x[:, -1:], l[::-1] if False else l, "abcdef"[1:n + 2], (1, 2, 3)[1:], (1, 2, 3)[-1]
@prog(T)
def inplace(x):
    y = x.clone()
    y.add_(1).mul_(2)
    y.zero_()
    y.fill_(3)
    y[0].copy_(torch.ones(3))
    return y
@prog(5)
def fib(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
@prog([3, 1, 2])
def bubble(l: List[int]):
    n = len(l)
    for i in range(n):
        for j in range(0, n - i - 1):
            if l[j] > l[j + 1]:
                l[j], l[j + 1] = l[j + 1], l[j]
    return l
@prog("hello world hello")
def count(s: str):
    d: Dict[str, int] = {}
    for w in s.split(" "):
        if w in d:
            d[w] += 1
        else:
            d[w] = 1
    return d
@prog(7)
def prime(n: int):
    i = 2
    while True:
        if i * i > n:
            return True
        if n % i == 0:
            return False
        i += 1
    return False
@prog(T)
def nested_if(x):
    if x.size(0) > 1:
        if x.size(1) > 2:
            y = x.sum()
        else:
            y = x.mean()
    else:
        y = x.max()
    return y
@prog(3)
def nested_early(n: int):
    for i in range(5):
        for j in range(5):
            if i * j == n:
                return i, j
    return -1, -1
@prog([1, 2, 3])
def reversed_range(l: List[int]):
    out: List[int] = []
    for i in range(len(l) - 1, -1, -1):
        out.append(l[i])
    return out
@prog(T)
def optional_ret(x) -> Optional[Tensor]:
    if x.size(0) > 5:
        return x
    return None
@prog(T)
def optional_chain(x):
    y: Optional[Tensor] = None
    for i in range(3):
        if y is None:
            y = x
        else:
            y = y + x
    return y
@prog(T, None)
def opt_bool(x, f: Optional[bool] = None):
    if f is None:
        f = True
    return x if f else -x
@prog(3)
def cond_type(n: int):
    if n > 2:
        x = 1.0
    else:
        x = 2.0
    return x * n
@prog(T)
def complexes(x):
    c = complex(1.0, 2.0)
    return c, c * 2, c + 1.5, abs(c) if False else 1, 3j * c
@prog(T)
def dtypes(x):
    d = torch.float64
    return x.to(d), x.dtype == torch.float32, torch.zeros(2, dtype=x.dtype), x.to(dtype=torch.int32), x.half().dtype, x.to("cpu"), x.to(torch.device("cpu"), torch.float64), torch.zeros(1, device="cpu")
@prog(T)
def tolists(x):
    l: List[List[float]] = x.tolist()
    v: List[int] = torch.tensor([1, 2]).tolist()
    return l, v
@prog(2)
def strmul(n: int): return "ab" * n if False else "ab", [0] * n, [1, 2] * n
@prog([T, T])
def stack_list(xs: List[Tensor]):
    s = torch.stack(xs)
    return s, torch.cat(xs, dim=-1), [x + 1 for x in xs], len(xs), xs[0].size(0)
@prog({'a': T})
def dict_tensor(d: Dict[str, Tensor]):
    for k in d.keys():
        d[k] = d[k] + 1
    out = [v for v in d.values()]
    return d, out, list(d.keys()), list(d.items())[0][0]

@prog(3)
def enum_tuple(n: int):
    s = 0
    for i, v in enumerate((1, 2, 3)):
        s += i * v
    for v in (1, 2, 3):
        s += v
    for v in [1.5, 2.5]:
        s += int(v)
    return s
@prog("abc")
def str_iter(s: str):
    out: List[str] = []
    for c in s:
        out.append(c.upper())
    return out, [c for c in s], ord(s[0])
@prog(3)
def assertmsg(n: int):
    assert n == 3, "n must be {}".format(3)
    assert n > 0
    return n
class Node(NamedTuple):
    a: int
    b: List[int]
    c: Optional[int]
@prog(3)
def nt(n: int) -> Node:
    x = Node(n, [n], None)
    return Node(x.a + 1, x.b + [4], c=5)
class Color(enum.Enum):
    RED = "r"
    GREEN = "g"
@prog(1)
def enum2(n: int):
    c = Color.RED if n > 0 else Color.GREEN
    d = [Color.RED, Color.GREEN]
    return c.value, c.name, len(d), c == Color.RED, c != Color.GREEN
@torch.jit.script
class Pair:
    def __init__(self, a: int, b: int):
        self.a = a
        self.b = b
    def sum(self) -> int:
        return self.a + self.b
    def scale(self, k: int):
        self.a *= k
        self.b *= k
    @staticmethod
    def make(n: int):
        return n * 2
    @property
    def diff(self) -> int:
        return self.a - self.b
    def __eq__(self, o: int) -> bool:
        return self.a == o
    def __contains__(self, o: int) -> bool:
        return self.a == o or self.b == o
    def __str__(self) -> str:
        return "Pair"
    def __call__(self, x: int) -> int:
        return self.a + x
@prog(3)
def objs(n: int):
    p = Pair(n, n + 1)
    p.scale(2)
    q: List[Pair] = [p, Pair(1, 2)]
    q[0].a = 100
    t: Optional[Pair] = None
    if n > 2:
        t = p
    r = 0
    if t is not None:
        r = t.sum()
    return p.sum(), p.a, q[1].b, r, p.diff, p == 100, 7 in p, p(5)
@prog(T)
def ctrl(x):
    i = 0
    total = torch.zeros(1)
    while i < 10:
        i += 1
        if i % 2 == 0:
            continue
        if i > 7:
            break
        total += i
    return total, i
@prog(T)
def math_consts(x): return math.pi * 2, math.e, -math.inf, float("inf"), float("nan") != float("nan"), 1e-5, 10 ** 2, 2 ** -1, 7 // -2, -7 % 3, -7 // 2
@prog(True, False)
def bools(a: bool, b: bool): return a and b, a or b, not a, a == b, a != b, int(a), a & b, a | b, a ^ b, str(a)
@prog(T)
def ops3(x):
    return torch.where(x > 2, 1.0, 0.0), x.masked_fill(x > 2, 0.0), torch.clamp(x, 1, 3), x.clamp(max=2.0), torch.topk(x, 2)[0], x.gather(1, torch.zeros(2, 1, dtype=torch.long)), torch.cumsum(x, 1), x.index_select(0, torch.tensor([1])), torch.nonzero(x > 3), x.roll(1, 0), torch.flip(x, [0]), x.cumsum(0), x.prod(), torch.meshgrid([torch.arange(2), torch.arange(2)])[0], x.var(unbiased=False), torch.outer(x[0], x[1]), x.softmax(-1), torch.bmm(x[None], x.t()[None]), x.amax(1), x.logsumexp(0)
@prog(T)
def tuple_ret(x) -> Tuple[Tensor, Tuple[int, List[str]]]:
    return x, (1, ["a"])
@prog(3)
def early_in_while(n: int):
    while n < 100:
        n = n * 2
        if n > 50:
            return n
    return -n
@prog(4)
def bitops(n: int): return n & 6, n | 1, n ^ 2, n << 2, n >> 1, ~n
@prog(T)
def call_script(x): return scripted_helper(x, 2)
@torch.jit.script
def scripted_helper(x, n: int = 1): return x * n
@prog(T)
def call_traced(x): return traced_helper(x)
def _tr(x): return x * 2 + 1
traced_helper = torch.jit.trace(_tr, torch.ones(2))
@torch.jit.script_if_tracing
def sit(x): return x + 5
@prog(T)
def call_sit(x): return sit(x)
class SMsub(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.n = 2
    @torch.jit.script_method
    def forward(self, x):
        return x * self.w + self.n
prog(T)(SMsub())


@prog(T)
def random_bounds(x):
    lo = torch.tensor([-2.0, -1.0])
    a = torch.zeros(3).uniform_(5.0, 6.0)
    b = torch.zeros(3).uniform_(lo[0], lo[1])
    c = torch.zeros(3).normal_(100.0, 0.001)
    return bool((a >= 5).all()), bool((b <= -1).all()), bool((c > 90).all())


@prog(T)
def implied(x, size: Union[int, List[int]] = 3):
    n: Tuple[int, float] = (x.sum().item(), x.sum().item())
    if isinstance(size, int):
        size = [size, size]
    w = [1, 2]
    if len(w) == 2:
        w = (w[0], 5)
    f = float(x[0, 0]) if len(w) > 5 else 1
    return n, size, w, float(f)


@prog(T)
def implied_return(x) -> Tuple[int, float]:
    return x.sum().item(), x.sum().item()


@prog(T, 2)
def written_slices(x, n: int):
    listed = [1, 2, 3]
    y = x.clone()
    y[slice(None, 1), slice(0, n)] = 7.0
    y[slice(1)] += 1
    return x[slice(None, None, None), slice(0, n)], x[slice(n)], x[..., slice(None, None, 2)], listed[slice(1, None)], (1, "a", 2.0)[slice(0, 2)], \
        "abcd"[slice(1, 3)], y
@prog([torch.arange(3.0), torch.arange(2.0), torch.ones(1)])
def f_pad_sequence(xs: List[Tensor]):
    return (nn.utils.rnn.pad_sequence(xs), nn.utils.rnn.pad_sequence(xs, True, 2.0),
            nn.utils.rnn.pad_sequence([x[:, None] for x in xs], padding_value=-1.0, padding_side="left"))


@torch.jit.script
@dataclasses.dataclass
class Weighed:
    values: torch.Tensor
    times: int = 3
    weight: Optional[torch.Tensor] = None

    def __post_init__(self):
        self.times = self.times + 1

    def total(self):
        found = self.values.sum() * self.times
        weight = self.weight
        return found if weight is None else found + weight.sum()


@torch.jit.script
@dataclasses.dataclass(order=True)
class Version:
    major: int
    minor: float = 1.5


@torch.jit.script
@dataclasses.dataclass(init=False)
class Opened:
    n: int

    def __init__(self, n: int):
        self.n = n + 1


@prog(T)
def dataclass_made(x):
    return Weighed(x).total(), Weighed(x, 5).total(), Weighed(x, weight=x, times=1).total(), Opened(3).n
@prog(1, 2)
def dataclass_ordered(a: int, b: int):
    one, two, more = Version(a), Version(b), Version(a, 2.0)
    return one < two, one <= one, one > two, two >= one, one == one, one == more, one < more, more <= one


@prog(T)
def results_in_out(x):
    y, z = torch.zeros(2, 3), torch.zeros(2)
    given = torch.addcmul(x, x, x, value=0.5, out=y)
    torch.sum(x, -1, out=z)
    torch.lt(x, 2.0, out=torch.zeros(2, 3, dtype=torch.bool))
    return y, z, torch.div(x, z[:, None], out=y), given
@prog(T, 0, [[0], [0]])
def tensordots(x, d: int, both: List[List[int]]):
    return (torch.tensordot(x, x), torch.tensordot(x, x, 2), torch.tensordot(x, x, ([d], [d])), torch.tensordot(x, x, dims=[[0], [0]]),
            torch.tensordot(x, x, both), torch.tensordot(x, x, torch.tensor([[0], [0]])))
@prog(T, 1)
def norms(x, d: int):
    return (torch.norm(x), torch.norm(x, dim=1), torch.norm(x, 2, -1, keepdim=True), torch.norm(x, p=1, dim=[0, 1]), torch.norm(x, 3.0),
            torch.norm(x, p="fro", dim=(0, 1)), torch.norm(x, 2.0, d, True), torch.norm(x, "nuc"), torch.norm(x, float("inf"), 0))
@prog(T)
def windows(x):
    w = torch.ones(4)
    s = torch.stft(x.flatten(), 4, window=w, return_complex=True)
    return torch.view_as_real(s), torch.istft(s, 4, window=w), torch.view_as_real(torch.stft(x, 2, 1, center=False, window=w[:2],
                                                                                          return_complex=True))
@prog(T)
def lu_factors(x):
    return torch.lu(x[:, :2]), torch.lu(x[:, :2], get_infos=True)


class Named(NamedTuple):
    a: int
    b: float
class Shade(enum.Enum):
    LIGHT = 1
@prog([1e10, 1e17, 0.1, -3.0, 0.5, 1e22, 5e-5, 2.0**60, float("inf"), -float("inf"), 123456789.123])
def float_texts(l: List[float]):
    return str(l), [f"{v}" for v in l], ["%s" % v for v in l], ["{}".format(v) for v in l], str({"k": l}), str((l[0], 1))
@prog(["a", "b"], {"k": (1, "v")}, 2)
def container_texts(l: List[str], d: Dict[str, Tuple[int, str]], n: int):
    return (str(l), str(d), f"{l} {d} {n}", "{}".format((n,)), str((None, True, 1.5, [1.0])), str(Named(1, 2.0)), f"{Shade.LIGHT} {[Shade.LIGHT]}",
            str(torch.device("cpu")), str([torch.device("cpu")]), str(complex(1.0, 2.0)), str(complex(1.5, -2.0)))
@prog("a\tb", 3)
def text_widths(s: str, n: int):
    return s.expandtabs(), s.expandtabs(4), s.center(7), s.zfill(6), "%d %i %f %e" % (n, n, 2.5, 2.5), "%s%%" % n, "100%%"
@prog(3)
def no_such_specifier(n: int): return "%x" % n
@prog(3)
def too_few_values(n: int): return "%s %s" % (n,)
@prog(2)
def union_takes_exact(n: Union[float, int]):
    if isinstance(n, int):
        return 1
    return 2
@prog([1, 2, 3])
def assigned_slice(l: List[int]):
    l[1:2] = [9]
    return l
@prog(torch.tensor([[1.0, 0, 2], [0, 3, 0]]))
def sparse_parts(x):
    rows, columns, s = x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse()
    return (rows.crow_indices(), rows.col_indices(), rows.values(), rows._nnz(), columns.ccol_indices(), columns.row_indices(), s.indices(),
            s._indices(), s._values(), s.values(), s._nnz(), s.sparse_dim(), s.sparse_mask(s).to_dense())
@prog(torch.tensor([[0, 1], [2, 0]]), torch.tensor([1.0, 2.0]), 4)
def sparse_made(i, v, n: int):
    at, one = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    return (torch.sparse_coo_tensor(i, v).to_dense(), torch.sparse_coo_tensor(i, v, [n, 3]).to_dense(),
            torch.sparse_coo_tensor(i, v, torch.Size([n, 3])).to_dense(), torch.sparse_csr_tensor(at, one, v, [2, 2]).to_dense(),
            torch.sparse_csc_tensor(at, one, v).to_dense())
@prog(torch.tensor([1.0, 2.0]))
def gradients_inside(x):
    x = x.clone().requires_grad_()
    slope = torch.autograd.grad([(x * x * x).sum()], [x], create_graph=True)[0]
    assert slope is not None
    weights: List[Optional[torch.Tensor]] = [torch.ones(2)]
    return slope.detach(), torch.autograd.grad([slope], [x], weights)[0]
@prog(3, [2, 2])
def sizes_of_their_class(n: int, l: List[int]):
    s, t = torch.Size([n, 2]), torch.Size(l)
    return torch.zeros(s), len(t), s[0]
