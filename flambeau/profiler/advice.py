"""What a profile suggests: each piece of advice with the share of the time that it is about, as measured, and the line to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flambeau import _C

from ..core.watching import ENGINE, USER
from .events import Event


class Advice(NamedTuple):
    """`share` of the wall time that `text` is about; `where`: the line to look at."""

    title: str
    share: float
    text: str
    where: str


LEAST = 0.03        # shares below are not told
_SMALL = 10_000     # ns: what takes less is dominated by the cost of calling it
_COMPILED = 1_000_000   # ns: what takes less found that it was compiled already
_LOADING = "enumerate(DataLoader)"
_MANY = 20          # operators a step of an optimizer that is not fused
_SYNCHRONISING = ("aten::item", "aten::tolist", "aten::nonzero", "aten::is_nonzero", "aten::cpu", "aten::numpy")


@dataclass
class Facts:
    """What rules look at: the events, the wall time in ns, and how often what broke graphs while they were recorded."""

    events: Sequence[Event]
    wall: int
    graph_breaks: Counter[str]

    def leaves(self) -> Iterator[Event]:
        """What ran, without what only holds others."""
        return (e for e in self.events if not e.cpu_children and e.kind not in (ENGINE, USER) and e.name != "[memory]")

    def named(self, *beginnings: str) -> list[Event]:
        """The outermost events whose names begin so."""
        return [e for e in self.events if e.name.startswith(beginnings) and not any(o.name.startswith(beginnings) for o in e.outer())]

    def share(self, events: Iterable[Event]) -> float:
        """Of the wall time."""
        return min(sum(e.end - e.start for e in events) / max(self.wall, 1), 1.0)


def _line(events: Iterable[Event]) -> str:
    """The user's line where most of their time goes."""
    times: Counter[str] = Counter()
    for event in events:
        if event.line:
            times[event.line] += event.end - event.start
    return times.most_common(1)[0][0] if times else ""


def _advice(facts: Facts, title: str, events: Sequence[Event], text: str) -> Iterator[Advice]:
    share = facts.share(events)
    if share >= LEAST:
        yield Advice(title, share, text, _line(events))


def _data_loading(facts: Facts) -> Iterator[Advice]:
    waits = facts.named(_LOADING)
    workers = any("MultiProcessing" in e.name for e in waits)
    yield from _advice(facts, "Waiting for data", waits, "The program waits for batches: "
                       + ("more num_workers, a larger prefetch_factor, or cheaper transforms." if workers
                          else "DataLoader(num_workers=2 or more) prepares them in other processes meanwhile."))


def _optimizer(facts: Facts) -> Iterator[Advice]:
    steps = facts.named("Optimizer.step#")
    count = min((len(e.cpu_children) for e in steps), default=0)    # the first step also makes the state
    if count > _MANY:
        kind = steps[0].name.rpartition("#")[2]
        yield from _advice(facts, "Unfused optimizer", steps, f"{kind} runs {count} operators a step: give it "
                           "fused=True or foreach=True where it takes that, or compile the step.")


def _precision(facts: Facts) -> Iterator[Advice]:
    wide = [e for e in facts.leaves() if e.flops and "float" in e.input_dtypes]
    if any(e.device_type for e in facts.events) or {"amx", "avx512_bf16"} & set(_C.instruction_sets()):
        yield from _advice(facts, "Products in float32", wide, "Under torch.autocast(device, dtype=torch.bfloat16) matrix products, "
                           "convolutions and attention run on the units for narrow numbers.")


def _sizes(facts: Facts) -> Iterator[Advice]:
    odd = [e for e in facts.leaves() if e.flops and {"c10::BFloat16", "c10::Half"} & set(e.input_dtypes)
           and any(size % 8 for shape in e.input_shapes[:2] if shape for size in shape[-2:])]
    if odd:
        yield from _advice(facts, "Odd sizes", odd, "Products of 16-bit numbers are fastest where sizes are multiples of 8; here are "
                           f"{odd[0].input_shapes[:2]}. Pad the vocabulary, the heads or the batch.")


def _small_kernels(facts: Facts) -> Iterator[Advice]:
    small = [e for e in facts.leaves() if e.end - e.start < _SMALL]
    if len(small) > 100:
        yield from _advice(facts, "Many small kernels", small, f"{len(small)} operators and kernels take less than "
                           f"{_SMALL // 1000} µs each: torch.compile joins them, a larger batch makes each worth its call.")


def _batch_size(facts: Facts) -> Iterator[Advice]:
    top = [e for e in facts.events if e.kind != USER and all(o.kind == USER for o in e.outer()) and e.name != "[memory]"]
    idle = max(0.0, 1 - facts.share(top) - facts.share(facts.named(_LOADING)))
    if idle >= 0.2 and len(top) > 100:
        yield Advice("Python between operators", idle, "In this share of the time no operator runs: a larger batch or torch.compile "
                     "leaves Python less to do for each example.", _line(top))


def _synchronisations(facts: Facts) -> Iterator[Advice]:
    yield from _advice(facts, "Synchronisations", facts.named(*_SYNCHRONISING), "Values that Python asks for are waited for: keep losses "
                       "as tensors and look at them every so many steps.")


def _compilation(facts: Facts) -> Iterator[Advice]:
    compiled = [e for e in facts.named("torch.compile ") if e.end - e.start > _COMPILED]
    counts = Counter(e.name.removeprefix("torch.compile ") for e in compiled)
    if not counts:
        return
    name, most = counts.most_common(1)[0]
    again = [e for e in compiled if counts[e.name.removeprefix("torch.compile ")] > 1]
    if most > 1:
        yield from _advice(facts, "Recompilations", again, f"{name} was compiled {most} times: TORCH_LOGS=recompiles says why; "
                           "torch.compile(dynamic=True) or mark_dynamic where sizes change.")
    yield from _advice(facts, "Compilation", [e for e in compiled if e not in again],
                       "Once in a program's life: the cache keeps it for the next run; profile after a step of warming up.")


def _graph_breaks(facts: Facts) -> Iterator[Advice]:
    if not facts.graph_breaks:
        return
    eager = [e for e in facts.leaves() if e.name.startswith("aten::")]
    kinds = ", ".join(f"{kind} ({count})" for kind, count in facts.graph_breaks.most_common(3))
    count = sum(facts.graph_breaks.values())
    yield Advice("Graph breaks", facts.share(eager), f"Compiled code was cut {count} times: {kinds}; "
                 "the share is of operators that ran one by one. python -m flambeau explain SCRIPT tells the lines.", _line(eager))


RULES: tuple[Callable[[Facts], Iterator[Advice]], ...] = (
    _data_loading, _optimizer, _precision, _sizes, _small_kernels, _batch_size, _synchronisations, _compilation, _graph_breaks)


def advise(events: Sequence[Event], graph_breaks: Counter[str] | None = None) -> list[Advice]:
    """What stands out in some events, the largest share first. `graph_breaks`: how many there were meanwhile, by kind."""
    if not events:
        return []
    wall = max(e.end for e in events) - min(e.start for e in events)
    facts = Facts(events, wall, graph_breaks or Counter())
    return sorted((advice for rule in RULES for advice in rule(facts)), key=lambda a: -a.share)
