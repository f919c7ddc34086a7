# ruff: noqa: UP031, E501 - these are the ways of writing that are tested
"""Programs with weak references, counters, hooks that are removed, sets of objects, and classes that derive from int, str and the like."""

from __future__ import annotations

import collections
import itertools
import weakref

from programs import program, v


class Node:
    def __init__(self, value=0, parent=None):
        self.value = value
        self.parent = weakref.ref(parent) if parent is not None else None
        self.children = []

    def add(self, value):
        self.children.append(Node(value, self))
        return self.children[-1]

    def depth(self):
        return 0 if self.parent is None else 1 + self.parent().depth()

    def double(self, x):
        return x * 2


def net(T):
    T.manual_seed(0)
    return T.nn.Sequential(T.nn.Linear(4, 5), T.nn.ReLU(), T.nn.Linear(5, 2))


# -- weak references ---------------------------------------------------------------------------------------------------------------
@program
def weak_references(T):
    def f(x, node):
        made, again = weakref.ref(node), weakref.ref(node)
        return x * made().value, made == again, made != again, len({made, again}), {made: 1}[again], bool(made), type(made) is weakref.ref

    return f, (v(T), Node(3))


@program
def weak_reference_of_a_tensor(T):
    def f(x):
        y = x + 1
        made = weakref.ref(y)
        return made() * 2, made() is y

    return f, (v(T),)


@program(breaks=True)
def weak_reference_of_what_is_gone(T):
    def f(x):
        made = weakref.ref(Node(3))
        return x if made() is None else x * 2

    return f, (v(T),)


@program
def existing_weak_references(T):
    kept, gone = Node(3), weakref.ref(Node())
    alive, called = weakref.ref(kept), weakref.WeakMethod(kept.double)

    def f(x):
        return x * alive().value, gone() is None, called()(x), alive == weakref.ref(kept), kept.value

    return f, (v(T),)


@program
def trees_with_parents(T):
    def f(x):
        root = Node(x)
        leaf = root.add(x + 1).add(x * 2)
        return leaf.value + leaf.depth() * leaf.parent().value

    return f, (v(T),)


@program
def proxies(T):
    kept = Node(2)
    kept.items = {"a": 3}
    proxy = weakref.proxy(kept)

    def f(x):
        proxy.seen = 5
        return x * proxy.value, proxy.items["a"], proxy.depth(), hasattr(proxy, "absent"), kept.seen

    return f, (v(T),)


@program
def weak_dictionaries(T):
    keys = [Node(1), Node(2)]
    by_key, by_name = weakref.WeakKeyDictionary({keys[0]: 5}), weakref.WeakValueDictionary(a=keys[0])

    def f(x):
        by_key[keys[1]] = 7
        return x * by_key[keys[0]], keys[1] in by_key, len(by_key), by_name["a"].value, by_name.get("b"), len(by_name)

    return f, (v(T),)


@program
def weak_sets(T):
    keys = [Node(1), Node(2)]
    known = weakref.WeakSet(keys[:1])

    def f(x):
        known.add(keys[1])
        known.discard(keys[0])
        return x + len(known), keys[0] in known, keys[1] in known

    return f, (v(T),)


@program
def observers_in_a_weak_set(T):
    node = Node(3)
    observers = weakref.WeakSet([node])

    def f(x):
        return [each.double(x) for each in observers], node.value

    return f, (v(T),)


@program
def sets_of_objects(T):
    model = net(T)
    frozen, skipped = {model[0].weight, model[0].bias}, {model[1]}

    def f(x):
        count = sum(p.numel() for p in model.parameters() if p not in frozen)
        for layer in model:
            x = x if layer in skipped else layer(x)
        return x * count, len(frozen), sum(p.numel() for p in frozen)

    return f, (v(T),)


# -- counters ----------------------------------------------------------------------------------------------------------------------
@program
def counters_that_exist(T):
    ids = itertools.count(5, 2)

    class Numbered:
        def __init__(self, value):
            self.id, self.value = next(ids), value

    def f(x, registry):
        first, second = Numbered(x), Numbered(x + 1)
        held = {each.id: each.value for each in (first, second)}
        registry[first.id] = "first"
        return held[second.id] - held[first.id], first.id, second.id + 1, first.id in registry, 3 in held, first.id < second.id, x * first.id

    return f, (v(T), {3: "three"})


# -- hooks of modules --------------------------------------------------------------------------------------------------------------
@program
def module_hooks_that_are_removed(T):
    model = net(T)

    def f(x):
        seen = []
        handles = [model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
                   model[0].register_forward_hook(lambda module, args, kwargs, out: out + 1, with_kwargs=True),
                   model[2].register_forward_hook(lambda module, args, out: seen.append(out.sum()), prepend=True)]
        try:
            hooked = model(x)
        finally:
            for handle in handles:
                handle.remove()
        with model[1].register_forward_hook(lambda module, args, out: out * 3):
            inside = model(x)
        return hooked, inside, model(x), seen, len(model[0]._forward_hooks)

    return f, (v(T),)


@program
def a_hook_that_existed(T):
    model = net(T)
    handle = model[0].register_forward_hook(lambda module, args, out: out * 2)

    def f(x):
        before = model(x)
        handle.remove()
        handle.remove()
        return before, model(x)

    return f, (v(T),)


@program
def a_hook_that_stays(T):
    model = net(T)

    def f(x):
        model[0].register_forward_hook(lambda module, args, out: out * 2)
        return model(x), len(model[0]._forward_hooks)

    return f, (v(T),)


# -- dictionaries with attributes -----------------------------------------------------------------------------------------------------
@program
def dictionaries_with_attributes(T):
    existing = collections.OrderedDict(a=1)
    existing.note = "old"

    def f(x):
        made, counted = collections.OrderedDict(b=x), collections.Counter("aab")
        made.note, counted.total_of = {"version": 1}, 3
        existing.other = existing.note + "er"
        del counted.total_of
        refused = None
        try:
            {}.note = 1
        except AttributeError as error:
            refused = str(error)
        return made, made.note, vars(made), hasattr(counted, "total_of"), existing.other, refused, made.copy().__dict__

    return f, (v(T),)


@program
def state_dicts(T):
    model, other = net(T), net(T)

    def f(x):
        state = model.state_dict(prefix="m.")
        total = sum(value.sum() for value in state.values())
        doubled = {name: value * 2 for name, value in model.state_dict().items()}
        return total, list(state), len(model.state_dict(keep_vars=True)), T.func.functional_call(other, doubled, (x,))

    return f, (v(T),)


@program
def blocks_without_saved_hooks(T):
    def f(x):
        with T.autograd.graph.disable_saved_tensors_hooks("none here"):
            y = x.sin() * x
        return y

    return f, (v(T).requires_grad_(),)


# -- classes that derive from plain values -----------------------------------------------------------------------------------------
class Count(int):
    def double(self):
        return self * 2

    def __str__(self):
        return f"{int(self)} pieces"


class Money(int):
    def __new__(cls, value, unit="cent"):
        made = super().__new__(cls, value * 100)
        made.unit = unit
        return made

    def __add__(self, other):
        return Money((int(self) + int(other)) // 100, self.unit)

    def __radd__(self, other):
        return "added from the right"


class Name(str):
    def loud(self):
        return self.upper() + "!"


class Loose(str):
    def __eq__(self, other):
        return self.lower() == other.lower()

    def __hash__(self):
        return hash(self.lower())


class Ratio(float):
    def half(self):
        return self / 2


class Raw(bytes):
    pass


class Wave(complex):
    pass


@program
def integers_of_a_class(T):
    def f(x, n):
        return (x * n, n.double(), n + 1, 1 + n, n < 3, n == 2, -n, abs(n), n // 2, [1, 2, 3][n - 1], int(n), float(n), f"{n} {n:>3}", str(n), hash(n),
                {2: "two"}[n], type(n).__name__, isinstance(n, int), n.bit_length(), list(range(n)), max(n, 1), bool(n), x.shape[0] * n, n.real)

    return f, (v(T), Count(2))


@program
def integers_of_a_class_made(T):
    def f(x):
        two, three = Money(2), Money(3, unit="yen")
        total = two + three
        return x * total, total, total.unit, 1 + two, type(total - 1).__name__, Count("12").double()

    return f, (v(T),)


@program
def text_of_a_class(T):
    def f(x, name):
        held = {name: x}
        return held["ab"] * 2, name.loud(), name + "c", len(name), name[0], list(name), "b" in name, name.split("b"), f"{name:>4}", "%s" % name, ",".join([name])

    return f, (v(T), Name("ab"))


@program
def text_with_an_equality_of_its_own(T):
    def f(x):
        return x, Loose("AB") == "ab", {Loose("AB"): 1}[Loose("ab")], Loose("a") in (Loose("A"),)

    return f, (v(T),)


@program
def floats_and_others_of_a_class(T):
    def f(x, ratio):
        raw, wave = Raw(b"ab"), Wave(1, 2)
        return x * ratio, ratio.half(), ratio.is_integer(), round(ratio), raw, raw[0], raw + b"c", wave, wave.real, Ratio("0.5"), abs(wave) > 2

    return f, (v(T), Ratio(2.5))


@program
def weak_values_that_are_made(T):
    node = Node(3)

    def f(x):
        made = weakref.WeakValueDictionary()
        made["a"] = node
        made["b"] = other = Node(4)
        return x * made["a"].value + made["b"].value, len(made), "c" in made, other.value, made

    return (lambda x: f(x)[:-1]), (v(T),)


@program(breaks=True)
def a_weak_value_that_dies(T):
    def f(x):
        made, node = weakref.WeakValueDictionary(), Node(3)
        made["a"] = node
        del node
        return x + 1, "a" in made

    return f, (v(T),)
