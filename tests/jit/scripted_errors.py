"""Functions that torch.jit.script refuses, or that fail when they run.

`tests/jit/test_script.py` runs this file twice, with `torch` standing for PyTorch and for Flambeau: `@prog(args)` marks a program.
"""
# ruff: noqa

import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

T=torch.arange(6.).view(2,3)
@prog(T)
def e_undefined(x): return foo(x)
@prog(T)
def e_addstr(x): return x + "a"
@prog(3)
def e_retype(x: int):
    y = x
    if x > 3:
        y = "a"
    return y
@prog(3)
def e_optadd(x: Optional[int]): return x + 1
@prog(T)
def e_varargs(*args): return args[0]
@prog(T)
def e_kwargs(**kw): return kw
@prog(T)
def e_try(x):
    try:
        return x
    except Exception:
        return x
@prog(T)
def e_lambda(x):
    f = lambda z: z
    return f(x)
@prog(3)
def e_return(x: int) -> str: return x
@prog(3)
def e_compif(x: int): return [z for z in range(3) if z > 1]
@prog(3)
def e_onebranch(x: int):
    if x > 2:
        y = 1
    return y
@prog(3)
def e_loopdef(x: int):
    for i in range(x):
        y = i
    return y
@prog(T)
def e_noattr(x): return x.foo
@prog(T)
def e_nomethod(x): return x.foo()
@prog(3)
def e_intstr(x: int): return x + "a"
@prog(3)
def e_callarg(x: int): return g_tensor(x)
def g_tensor(t: Tensor) -> Tensor: return t
@prog(3)
def e_missing(x: int): return g_two(x)
def g_two(a: int, b: int): return a + b
@prog(3)
def e_toomany(x: int): return g_two(x, 1, 2)
@prog(3)
def e_kw(x: int): return g_two(x, c=2)
@prog(3)
def e_mixlist(x: int): return [x, "a"]
@prog(3)
def e_mixret(x: int):
    if x > 2:
        return 1
    return "a"
@prog(3)
def e_fall(x: int) -> int:
    if x > 2:
        return 1
@prog(3)
def e_dictkey(x: int):
    d = {"a": 1}
    return d[x]
@prog(3)
def e_append(x: int):
    l = [1]
    l.append("a")
    return l
@prog(3)
def e_yield(x: int):
    yield x
@prog(3)
def e_global(x: int):
    global PROGS
    return x
@prog(3)
def e_import(x: int):
    import os
    return x
@prog(3)
def e_nested(x: int):
    def f(y: int): return y
    return f(x)
@prog(3)
def e_set(x: int): return {1, 2}
@prog(3)
def e_recursive(x: int):
    return e_recursive(x - 1)

@prog((1, 2))
def e_tupleindex(t: Tuple[int, str], ): return t[5]
@prog((1, 'a'), 1)
def e_dynindex(t: Tuple[int, str], i: int): return t[i]
@prog(3)
def e_notcallable(x: int): return x(3)
@prog(3)
def e_notiter(x: int):
    for i in x:
        pass
    return x
@prog("a")
def e_unknownann(x: "Foo"): return x
@prog(3)
def e_fspec(x: int): return f"{x:3d}"
@prog(3)
def e_with(x: int):
    with x:
        return 1

@prog(T, "a")
def e_runtype(x, n: int): return x + n
@prog(T, 3, 4)
def e_runmany(x, n: int): return x
@prog()
def e_runfew(x): return x
@prog([1, 2])
def e_index(l: List[int]): return l[5]
@prog({'a': 1})
def e_key(d: Dict[str, int]): return d['b']
@prog(0)
def e_zero(n: int): return 5 // n
@prog(T)
def e_shape(x): return x @ x
@prog([1])
def e_pop(l: List[int]):
    l.pop()
    return l.pop()
@prog("x")
def e_int(s: str): return int(s)
@prog(T)
def e_raise2(x):
    raise RuntimeError("boom")
@prog(T)
def e_unwrap(x):
    y: Optional[int] = None
    assert y is not None
    return y
@prog([1, 2, 3])
def e_unpack(l: List[int]):
    a, b = l
    return a
@prog((1, 2))
def e_unpack2(t: Tuple[int, int]):
    a, b, c = t
    return a
