"""Modules for torch.jit.script: attributes, submodules, containers, marks on methods, our layers.

`tests/jit/test_script.py` runs this file twice, with `torch` standing for PyTorch and for Flambeau: `@prog(args)` marks a program.
"""
# ruff: noqa

import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

X = torch.arange(6.0).view(2, 3) / 3 - 1
class M1(nn.Module):
    def __init__(self):
        super().__init__(); self.l=nn.Linear(3,4); self.n=3; self.s=[1,2]; self.t=(1,2.5); self.name="abc"; self.none=None
    def forward(self,x):
        if self.none is not None: x = x + self.none
        if self.training: x = x * 2
        return self.l(x)*self.n+self.s[0]+self.t[1], self.name, len(self.s)
class M2(nn.Module):
    __constants__=['k']
    f: torch.jit.Final[float]
    def __init__(self):
        super().__init__(); self.k=4; self.f=0.5
        self.ls=nn.ModuleList([nn.Linear(3,3) for _ in range(3)]); self.seq=nn.Sequential(nn.ReLU(),nn.Linear(3,2)); self.d=nn.ModuleDict({'a':nn.Linear(3,3),'b':nn.ReLU()})
        self.p=nn.ParameterList([nn.Parameter(torch.ones(3)*i) for i in range(2)])
    def forward(self,x):
        for l in self.ls: x=l(x)
        for i,l in enumerate(self.ls): x=l(x)+i
        for k,m in self.d.items(): x=m(x)
        for k in self.d.keys():
            x = x + len(k)
        for m in self.d.values(): x = m(x)
        for q in self.p: x=x+q
        for l, q in zip(self.ls, (1, 2, 3)): x = l(x) * q
        x = self.ls[0](x) + self.d['a'](x)
        for l in self.ls[1:]: x = l(x)
        return self.seq(x)*self.k*self.f+len(self.ls)
class M3(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer('b',torch.zeros(1)); self.count=0; self.hist: List[int]=[]; self.opt: Optional[Tensor]=None
    hist: List[int]
    opt: Optional[Tensor]
    def forward(self,x):
        self.count += 1; self.b += x.sum(); self.hist.append(self.count)
        o = self.opt
        if o is None: self.opt = x
        else: x = x + o
        return x*self.count, self.b, self.hist
    @torch.jit.export
    def reset(self, n: int = 0):
        self.count = n
class M4(nn.Module):
    def __init__(self): super().__init__(); self.l=nn.Linear(3,3)
    def helper(self,x,k: int): return self.l(x)*k
    @staticmethod
    def st(x, k: int): return x+k
    @property
    def prop(self) -> int: return 7
    @torch.jit.unused
    def unus(self,x: Tensor)->Tensor: return x.numpy()
    @torch.jit.ignore
    def ign(self,x: Tensor)->Tensor: return x+100
    def forward(self,x, flag: bool=False):
        if flag: return self.unus(x)
        return self.st(self.helper(x,2),1)+self.prop+self.ign(x)
@torch.jit.interface
class Iface(nn.Module):
    def forward(self, x: Tensor) -> Tensor: pass
class Imp(nn.Module):
    def forward(self,x: Tensor)->Tensor: return x*3
class M5(nn.Module):
    impl: Iface
    def __init__(self): super().__init__(); self.impl=Imp()
    def forward(self,x): 
        i = self.impl
        return self.impl.forward(x)
@torch.jit.script
class Counter:
    def __init__(self, n: int, t: Tensor):
        self.n=n; self.t=t; self.l: List[int]=[]
    def inc(self, k: int = 1) -> int:
        self.n += k; self.l.append(self.n)
        return self.n
    def get(self): return self.t*self.n
    def __add__(self, o: int) -> int: return self.n+o
    def __len__(self) -> int: return len(self.l)
    def __getitem__(self, i: int) -> int: return self.l[i]
    def __lt__(self, o: int) -> bool: return self.n < o
def usecls(x):
    c=Counter(1,x); c.inc(); c.inc(5); d = c + 3
    c.n = 9
    return c.get(), c.n, d, len(c), c[0], c < d
class Base(nn.Module):
    def __init__(self): super().__init__(); self.l=nn.Linear(3,3)
    def forward(self,x): return self.l(x)
    def extra(self, x): return x + 1
class Derived(Base):
    def forward(self,x): return self.l(x)*2+self.extra(x)
class Shared(nn.Module):
    def __init__(self):
        super().__init__(); self.a=nn.Linear(3,3); self.b=self.a; self.act=F.relu; self.g=torch.tanh
    def forward(self,x): return self.g(self.act(self.b(self.a(x))))
class HasAttr(nn.Module):
    def __init__(self): super().__init__(); self.y=1
    def forward(self,x):
        if hasattr(self,'y'): x=x+self.y
        if hasattr(self,'zz'): x=x+self.zz
        return x + getattr(self, 'y') 
class Over(nn.Module):
    @torch.jit._overload_method
    def h(self, x: Tensor) -> Tensor: pass
    @torch.jit._overload_method
    def h(self, x: int) -> int: pass
    def h(self, x): return x + 1
    def forward(self,x): return self.h(x), self.h(3)
class EnumM(nn.Module):
    def forward(self, x, n: int):
        out=[]
        for i in range(n):
            if i % 2 == 0: out.append(x*i)
        return torch.stack(out)
class Rnn(nn.Module):
    def __init__(self): super().__init__(); self.r=nn.LSTM(3,4,2,batch_first=True); self.g=nn.GRU(3,4,bidirectional=True); self.c=nn.LSTMCell(3,4); self.gc=nn.GRUCell(3,4); self.n=nn.RNN(3,4)
    def forward(self,x):
        o,(h,c)=self.r(x); g,_=self.g(x); a,b=self.c(x[0]); e=self.gc(x[0]); n,_=self.n(x)
        o2,_=self.r(x,(h,c))
        return o,h,c,g,a,b,e,n,o2
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.m=nn.ModuleList([nn.Conv2d(4,4,3,padding=1),nn.BatchNorm2d(4),nn.ReLU6(),nn.Hardswish(),nn.SiLU(),nn.GELU(),nn.Dropout(0.0),nn.MaxPool2d(3,1,1),nn.AvgPool2d(1),nn.GroupNorm(2,4),nn.Conv2d(4,4,3,padding='same',groups=2),nn.ConvTranspose2d(4,4,3,padding=1),nn.LeakyReLU(),nn.PReLU(),nn.Identity(),nn.Sigmoid(),nn.Tanh(),nn.Softplus(),nn.ELU(),nn.InstanceNorm2d(4,affine=True),nn.Upsample(scale_factor=2.0),nn.AdaptiveAvgPool2d((4,4)),nn.ReflectionPad2d(1),nn.ZeroPad2d(1),nn.Softmax(dim=1),nn.LogSoftmax(dim=1),nn.Hardsigmoid(),nn.Mish(),nn.CELU(),nn.AdaptiveMaxPool2d(4),nn.LayerNorm([4,4,4]),nn.Dropout2d(0.0),nn.AdaptiveAvgPool2d(1),nn.Flatten(),nn.Linear(4,4),nn.LayerNorm(4),nn.BatchNorm1d(4),nn.Softmax(-1),nn.Unflatten(1,(2,2)),nn.Flatten(0)])
        for p in self.parameters(): p.data.copy_(torch.linspace(-1,1,p.numel()).view(p.shape))
    def forward(self,x):
        for l in self.m: x=l(x)
        return x
class Emb(nn.Module):
    def __init__(self):
        super().__init__(); self.e=nn.Embedding(5,4,padding_idx=0); self.b=nn.EmbeddingBag(5,4); self.bi=nn.Bilinear(4,4,2); self.cs=nn.CosineSimilarity(); self.ce=nn.CrossEntropyLoss(); self.mse=nn.MSELoss(); self.bce=nn.BCEWithLogitsLoss()
        for p in self.parameters(): p.data.copy_(torch.linspace(-1,1,p.numel()).view(p.shape))
    def forward(self,i):
        e=self.e(i); return e,self.b(i),self.bi(e,e),self.cs(e,e+1),self.ce(e.view(-1,4),i.view(-1).clamp(max=3)),self.mse(e,e*2),self.bce(e,torch.sigmoid(e))
class Att(nn.Module):
    def __init__(self):
        super().__init__(); self.a=nn.MultiheadAttention(4,2,batch_first=True); self.t=nn.TransformerEncoder(nn.TransformerEncoderLayer(4,2,8,0.0,batch_first=True),2); self.d=nn.TransformerDecoderLayer(4,2,8,0.0,batch_first=True)
        for p in self.parameters(): p.data.copy_(torch.linspace(-1,1,p.numel()).view(p.shape))
    def forward(self,x, m: Optional[Tensor]=None):
        a,w=self.a(x,x,x,attn_mask=m); return a,w,self.t(x),self.d(x,x)
class Lam(nn.Module):
    def forward(self,x): return (lambda y: y)(x)
class NoAttr(nn.Module):
    def forward(self,x): return self.nothing(x)
class EmptyList(nn.Module):
    def __init__(self): super().__init__(); self.l=[]
    def forward(self,x): return len(self.l)
class SetNew(nn.Module):
    def forward(self,x):
        self.q = x
        return x
class DictAttr(nn.Module):
    def __init__(self): super().__init__(); self.d={'a':1}; self.e={'x':torch.ones(2)}; self.tt=[torch.ones(1)]
    def forward(self,x): return self.d['a'], self.e['x'], self.tt[0]
class Tup(nn.Module):
    def __init__(self): super().__init__(); self.strides=(1,2,3); self.mixed=[('a',1),('b',2)]
    def forward(self,x):
        s=0
        for k in self.strides: s+=k
        for n,v in self.mixed: s+=v
        return s, self.strides[0], self.mixed[1][0]

for cls,*a in ((M1,X),(M2,X),(M3,X),(M4,X),(M5,X),(Derived,X),(Shared,X),(HasAttr,X),(Over,X),(EnumM,X,4),(Layers,torch.arange(64.).view(1,4,4,4)/64),(Emb,torch.tensor([[1,2],[0,3]])),(Att,torch.linspace(-1,1,24).view(2,3,4)),(Rnn,torch.linspace(-1,1,18).view(2,3,3)),(Lam,X),(NoAttr,X),(EmptyList,X),(SetNew,X),(DictAttr,X),(Tup,X)):
    m=cls()
    with torch.no_grad():
        for p in m.parameters(): p.copy_(torch.linspace(-1,1,p.numel()).view(p.shape))
    if cls is not M1: m.eval()
    prog(*a)(m)
prog(X)(usecls)


class Cut(nn.Module):
    """What a graph prints in ways of its own: slices, attributes by number, what it names and forgets."""

    def __init__(self, form: str):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.weight, self.form = nn.Parameter(torch.linspace(0, 1, 3)), form

    def forward(self, x):
        both = torch.cat([self.layers(x), x.view(-1, 3)], dim=1)
        left, right = both.chunk(2, 1)
        return left * self.weight + right[:, 1:2], F.gelu(right, approximate=self.form)[..., 0], right[1:].transpose(0, 1)[None].size()


GRAPHS = [torch.fx.symbolic_trace(m) for m in (Cut("tanh"), Cut("none"), nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh()))]
for graph in GRAPHS:
    with torch.no_grad():
        for p in graph.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape))
    prog(X)(graph)
prog(X)(nn.Sequential(*GRAPHS[2:]))


# -- hooks: a part of the program, compiled by what they declare ------------------------------------------------------------------------
class Block(nn.Module):
    """What takes two arguments, one with a default, and keeps its state."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(3, 3), 0

    def forward(self, x, scale: float = 2.0):
        return self.linear(x) * scale


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.plain = Block(), Block()

    def forward(self, x):
        return self.block(x, 1.0) + self.block(x, 3.0) - self.plain(x), self.block.forward(x)


class Lined(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x)


def pre_both(self, input: Tuple[Tensor, float]) -> Tuple[Tensor, float]:
    self.calls += 1
    return input[0] + 1, input[1] * 2
def pre_nothing(self, input: Tuple[Tensor, float]) -> None:
    assert input[1] > 0
def after(self, input: Tuple[Tensor, float], output: Tensor):
    return output * input[1] + input[0]
def after_pair(self, input: Tuple[Tensor], output: Tuple[Tensor, Tensor]):
    return output[0] - output[1], len(input)
def after_sees(self, input: Tuple[Tensor, float], output: Tensor) -> None:
    self.calls += 10
def after_layer(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return output + input[0]
def pre_layer(self, input: Tuple[Tensor]) -> Tensor:
    return input[0] * 3
def untyped_after(self, input, output): return output
def wrong_inside(self, input: Tuple[int], output: Tensor): return output
def wrong_output(self, input: Tuple[Tensor], output: int): return output
def no_answer(self, input: Tuple[Tensor]): return input
def too_many(self, input: Tuple[Tensor], kwargs: Dict[str, Tensor]) -> None: pass


def hooked(net, before=(), behind=()):
    for hook in before:
        net.register_forward_pre_hook(hook)
    for hook in behind:
        net.register_forward_hook(hook)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape))
    return net


around = Around()
hooked(around.block, [pre_both, pre_nothing, pre_both], [after, after_sees, after])
prog(X)(hooked(around, [], [after_pair]))
prog(X)(hooked(Lined(nn.Sequential(hooked(nn.Linear(3, 3), [pre_layer]), hooked(nn.ReLU(), [pre_layer], [after_layer]), nn.ReLU()))))
for net, before, behind in ((nn.ReLU(), [], [untyped_after]), (nn.ReLU(), [], [wrong_inside]), (nn.ReLU(), [], [wrong_output]),
                            (nn.ReLU(), [no_answer], []), (nn.ReLU(), [too_many], []), (nn.ReLU(), [], [lambda self, i, o: o])):
    prog(X)(hooked(net, before, behind))


# -- modules of an interface, chosen while the program runs; members of an enum ---------------------------------------------------------
@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor: pass


class Adds(nn.Module):
    def forward(self, x: Tensor) -> Tensor: return x + 1


class Scales(nn.Module):
    def forward(self, x: Tensor) -> Tensor: return x * 5


class Chooses(nn.Module):
    first: Step

    def __init__(self):
        super().__init__()
        self.first, self.steps, self.named = Scales(), nn.ModuleList([Adds(), Scales(), Adds()]), nn.ModuleDict({"a": Adds(), "b": Scales()})

    def forward(self, x, n: int, key: str):
        for i in range(n):
            step: Step = self.steps[i]
            x = step.forward(x)
        other: Step = self.named[key]
        return other.forward(x) - self.first.forward(x)


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


class Counts(nn.Module):
    def forward(self, x):
        total, names = 0, ""
        for kind in Kind:
            total += kind.value
            names += kind.name
        return x * total, names


prog(X, 2, "a")(Chooses())
prog(X, 3, "b")(Chooses())
prog(X, 4, "b")(Chooses())
prog(X)(Counts())
