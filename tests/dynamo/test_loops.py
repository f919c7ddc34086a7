"""Graph breaks inside loops: the loop runs as a Python loop, its rounds are compiled."""

from __future__ import annotations

import sys
import traceback

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo, nn

LOG: list = []


@dynamo.disable
def note(*args):
    LOG.append(args)


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


def x3():
    return torch.arange(3) * 1.0 + 1


def pieces(f, *args, **settings):
    """Eager and compiled agree about results, arguments and log; returns what was captured. Loops were taken apart."""
    LOG.clear()
    seen = check(f, *args, graphs=None, breaks=None, **settings)
    half = len(LOG) // 2
    assert [same(a, b) for a, b in zip(LOG[:half], LOG[half:], strict=True)] == [True] * half, LOG
    kinds = [info.kind for info in seen.breaks]
    assert "break inside a loop" not in kinds and "iterator escapes" not in kinds, "\n".join(map(str, seen.breaks))
    return seen


def test_a_call_in_the_body() -> None:
    def f(x):
        y = x * 2
        for i in range(5):
            y = y + i
            note(i)
            y = y * 2
        return y + x

    seen = pieces(f, x3())
    assert seen.breaks[0].kind == "loop with a graph break" and "note" in seen.breaks[0].context
    assert seen.op_count >= 4


def test_rounds_share_one_version() -> None:
    counter = Counter()

    def f(x, n):
        for i in range(n):
            x = x + i
            note(1)
        return x * 2

    compiled = dynamo.compile(f, backend=counter)
    for n in (3, 7, 20, 400):
        assert same(compiled(x3(), n), f(x3(), n))
    assert len(counter.graphs) <= 8


@pytest.mark.parametrize("make", [
    lambda x: [x, x + 1, x * 2],
    lambda x: (x, x + 1),
    lambda x: x,
    lambda x: {"a": x, "b": x * 2}.values(),
    lambda x: reversed([x, x * 3]),
    lambda x: [],
], ids=["list", "tuple", "tensor", "values", "reversed", "empty"])  # fmt: skip
def test_iterables(make) -> None:
    def f(x):
        total = x
        for item in make(x):
            note(1)
            total = total + item
        return total * 2

    pieces(f, x3())


def test_enumerate_zip_items_map_generators() -> None:
    def gen(x, n):
        for i in range(n):
            yield x + i

    def f(x):
        out = []
        for i, item in enumerate([x, x * 2], 3):
            note(i)
            out.append(item * i)
        for a, b in zip(out, [1, 2], strict=True):
            note(b)
            x = x + a * b
        for key, value in {"p": x, "q": x * 2}.items():
            note(key)
            x = x * value
        for item in map(torch.neg, out):
            note(2)
            x = x - item
        for item in gen(x, 3):
            note(3)
            x = x / item
        for item in (v * 2 for v in out):
            note(4)
            x = x + item
        return x, out

    pieces(f, x3())


def test_module_list() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).relu()
                note(1)
            return x * 2

    model = Model()
    counter = Counter()
    assert same(dynamo.compile(model, backend=counter)(x3()), model(x3()))
    assert len(LOG) == 8 and counter.calls >= 4


def test_gradients_flow_through_rounds() -> None:
    def f(x, w):
        for _ in range(3):
            x = (x * w).sin()
            note(1)
        return x.sum()

    w, v = x3().requires_grad_(), x3().requires_grad_()
    f(x3(), w).backward()
    dynamo.compile(f, backend="aot_eager")(x3(), v).backward()
    assert torch.allclose(w.grad, v.grad)


def test_break_continue_else_return() -> None:
    def f(x, stop):
        for i in range(6):
            note(i)
            if i == 1:
                continue
            if i == stop:
                break
            if i > 4:
                return x * 100, i
            x = x + i
        else:
            x = x - 1
        return x * 2

    for stop in (3, 0, 9):
        dynamo.reset()
        pieces(f, x3(), stop)

    def all_rounds(x):
        for i in range(3):
            note(i)
            x = x + 1
        else:
            x = x * 10
        return x

    pieces(all_rounds, x3())


def test_while_loops() -> None:
    def f(x):
        n = 0
        while x.sum() < 1000:
            x = x * 2
            n += 1
        return x, n

    pieces(f, x3())

    def g(x):
        i = 3
        while True:
            x = x + i
            note(i)
            i -= 1
            if i < 0:
                break
        return x

    pieces(g, x3())

    def h(x, n):
        while n:
            note(n)
            x = x * n
            n -= 1
        return x, n

    pieces(h, x3(), 4)


def test_nested_loops() -> None:
    def f(x):
        for i in range(3):
            for j in range(i + 1):
                x = x + i * j
                note(i, j)
                if j == 1:
                    break
            else:
                x = x * 2
            x = x - 1
        return x

    pieces(f, x3())


def test_a_loop_after_a_loop_and_a_break_between() -> None:
    def f(x):
        for i in range(2):
            note(i)
            x = x + i
        note("between")
        for _ in range(2):
            x = x * 2
        for item in [x, x + 1]:
            x = x + item.sum().item()
        return x

    pieces(f, x3())


def test_a_local_that_is_not_bound_at_first() -> None:
    def f(x):
        for i in range(4):
            if i:
                x = x + y  # noqa: F821 - bound by the round before
            y = x * i
            note(i)
            del i
        return x, y

    pieces(f, x3())

    def never(x):
        for _ in []:
            y = x
            note(1)
        return y

    for fn in (never, dynamo.compile(never, backend="eager")):
        with pytest.raises(NameError):
            fn(x3())


def test_closures_in_the_body() -> None:
    def f(x):
        made = []
        k = 0
        for i in range(3):
            k += i
            note(k)
            made.append(lambda v, i=i: v * i + k)
        return [fn(x) for fn in made]

    pieces(f, x3())


def test_containers_are_changed_in_place() -> None:
    def f(x, out, table):
        for i in range(3):
            out.append(x + i)
            note(len(out))
            table[i] = out[-1] * 2
            table["last"] = i
        return len(out)

    pieces(f, x3(), [], {"last": None})


def test_try_inside_the_loop() -> None:
    @dynamo.disable
    def risky(i):
        if i == 1:
            raise ValueError("one")
        return i

    def f(x):
        for i in range(4):
            try:
                x = x + risky(i)
            except ValueError as error:
                x = x * len(str(error))
                continue
            finally:
                note(i)
            x = x + 1
        return x

    seen = check(f, x3(), graphs=None, breaks=None)
    assert seen.breaks[0].kind == "loop with a graph break"
    assert LOG == [(0,), (1,), (2,), (3,)] * 2


def test_loop_inside_try_and_with() -> None:
    @dynamo.disable
    def risky(i):
        if i == 2:
            raise ValueError("two")

    class Broken:
        def __iter__(self):
            return self

        count = 0

        def __next__(self):
            note("next")
            self.count += 1
            if self.count == 3:
                raise KeyError("third")
            return self.count

    def f(x):
        try:
            for i in range(5):
                x = x + i
                risky(i)
        except ValueError:
            x = x * 10
        try:
            for i in Broken():
                x = x + i
        except KeyError as error:
            x = x * len(error.args[0])
        finally:
            note("end")
        with torch.no_grad():
            for i in range(2):
                note(torch.is_grad_enabled())
                x = x + i
        note(torch.is_grad_enabled())
        return x

    pieces(f, x3())


def test_with_inside_the_loop() -> None:
    def f(x, w):
        for i in range(3):
            with torch.no_grad():
                y = x * w
                note(torch.is_grad_enabled())
                x = y + i
            x = x * w
            note(torch.is_grad_enabled(), x.requires_grad)
        return x

    pieces(f, x3(), x3().requires_grad_())


def test_exceptions_keep_the_users_lines() -> None:
    def f(x):
        for i in range(3):
            note(i)
            x = x + [1, 2][i]  # the line
        return x

    with pytest.raises(IndexError) as caught:
        run(f, x3())
    assert "# the line" in "".join(traceback.format_exception(caught.value))


def test_data_loader() -> None:
    from flambeau.utils.data import DataLoader, TensorDataset

    model = nn.Linear(3, 1)
    data = TensorDataset(torch.arange(24).reshape(8, 3) * 1.0, torch.ones(8, 1))

    def evaluate(loader):
        total = 0.0
        for inputs, wanted in loader:
            total += (model(inputs) - wanted).square().mean().item()
        return total

    loader = DataLoader(data, batch_size=2)
    counter = Counter()
    assert dynamo.compile(evaluate, backend=counter)(loader) == pytest.approx(evaluate(loader))
    assert counter.calls >= 4


def test_training_loop() -> None:
    def train(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.manual_seed(0)
    first = nn.Linear(3, 2)
    second = nn.Linear(3, 2)
    second.load_state_dict(first.state_dict())
    batches = [torch.randn(4, 3) for _ in range(5)]
    counter = Counter()
    assert dynamo.compile(train, backend=counter)(first, batches) == pytest.approx(train(second, batches), rel=1e-5)
    assert counter.calls >= 5


def test_long_loops_do_not_nest() -> None:
    def f(x, n):
        for _ in range(n):
            x = x + 1
            note()
        return x

    compiled = dynamo.compile(f, backend="eager")
    assert same(compiled(x3(), 3000), x3() + 3000)


def test_recursion_inside_a_loop() -> None:
    def f(x, depth):
        for i in range(2):
            note(depth, i)
            x = f(x, depth - 1) if depth else x + i
        return x

    pieces(f, x3(), 3)


def test_methods_with_super() -> None:
    class Base:
        def go(self, x):
            return x + 1

    class Child(Base):
        def go(self, x):
            for i in range(3):
                x = super().go(x) * i
                note(i)
            return super().go(x)

    pieces(Child().go, x3())


def test_explain_tells_what_becomes_of_the_loop() -> None:
    def f(x):
        for _ in range(2):
            print("round")
            x = x + 1
        return x

    shown = str(dynamo.explain(f)(x3()))
    assert "loop with a graph break" in shown and "runs as a Python loop" in shown and 'print("round")' in shown
    with pytest.raises(dynamo.Unsupported, match="loop with a graph break"):
        dynamo.compile(f, backend="eager", fullgraph=True)(x3())


def test_loops_without_tensors_stay_plain() -> None:
    import unicodedata

    def f(words):
        total = 0
        for word in words:
            total += unicodedata.decimal(word)
        return total

    _, seen, counter = run(f, ["1", "2"])
    assert not counter.graphs and seen.breaks[0].kind == "break inside a loop"


def test_a_loop_in_an_except_block() -> None:
    def f(x, fails, wrong=None):
        handled = []
        try:
            if fails:
                raise ValueError("first")
        except ValueError as error:
            for i in range(3):
                note(i)
                handled.append(sys.exc_info()[1] is error)
                if i == wrong:
                    raise KeyError(i) from None
                x = x + i
            while x.sum() < 100:
                note(x)
                x = x * 2
                try:
                    raise IndexError
                except IndexError as inner:
                    handled.append((sys.exc_info()[1] is inner, inner.__context__ is error))
        finally:
            handled.append(sys.exc_info()[1] is None)
        return x, handled

    seen = check(f, x3(), True, graphs=None, breaks=None)
    assert "break inside a loop" not in [info.kind for info in seen.breaks]
    check(f, x3(), False, graphs=None, breaks=None)
    with pytest.raises(KeyError) as caught:
        run(f, x3(), True, 1)
    assert str(caught.value.__context__) == "first" and sys.exc_info()[1] is None


def test_comprehensions_in_the_body() -> None:
    def f(x):
        for i in range(3):
            parts = [x + j for j in range(2)]
            table = {k: v * i for k, v in enumerate(parts)}
            note(i)
            x = sum(table.values()) + sum(p * n for n, p in enumerate(parts))
        return x

    pieces(f, x3())


def appended(x, out):
    for _ in range(3):
        x = x + 1
        out.append(x.sum())
        print(end="")
    return x


def extended(x, out):
    out.extend([x, x * 2])
    out += (3,)
    return x + 1


def appended_then_read(x, out):
    out.append(x)
    out.append(len(out))
    return out[-2] + len(out)


def appended_to_itself(x, out):
    out.append(1)
    out.extend(out)
    return x * len(out)


@pytest.mark.parametrize("program", [appended, extended, appended_then_read, appended_to_itself], ids=lambda f: f.__name__)
def test_a_list_that_grows(program) -> None:
    compiled = dynamo.compile(program, backend="eager")
    want, got = [], []
    for _ in range(3):
        assert same(program(x3(), want), compiled(x3(), got))
        assert same(want, got)


def test_the_length_of_a_list_that_only_grows_is_no_guard() -> None:
    counter = Counter()
    compiled = dynamo.compile(appended, backend=counter)
    out: list = []
    for _ in range(4):
        compiled(x3(), out)
    assert len(out) == 12 and len(counter.graphs) == 1


def test_numbers_read_from_tensors_walk_back_in_one_graph() -> None:
    def viterbi(emission, transition):
        score, back = emission[0], []
        for row in emission[1:]:
            best, index = (score[:, None] + transition).max(0)
            score = best + row
            back.append(index)
        path = [int(score.argmax())]
        for index in reversed(back):
            path.append(int(index[path[-1]]))
        return path[::-1]

    counter = Counter()
    compiled = dynamo.compile(viterbi, backend=counter, fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        args = torch.rand(6, 4), torch.rand(4, 4)
        assert viterbi(*args) == compiled(*args)
    assert len(counter.graphs) == 1
