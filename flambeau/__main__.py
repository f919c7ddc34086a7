"""`python -m flambeau`: run a PyTorch program, and look into the house.

    python -m flambeau run SCRIPT [args]      run a script with `import torch` meaning Flambeau (-m MODULE too)
    python -m flambeau explain SCRIPT [args]  the same, reporting graph breaks, recompilations and the cache as it happens
    python -m flambeau profile SCRIPT [args]  the same, and a page of where its time and memory went (docs/profiler.md)
    python -m flambeau ops [PATTERN]          every operator with its facets
    python -m flambeau bench [names]          the figures side by side with torch (from a clone)
    python -m flambeau coverage               which public names of torch there are: docs/coverage.md (from a clone; needs PyTorch)
    python -m flambeau info                   versions, compiler, threads, caches
    python -m flambeau cache [--clear]        what the cache of compiled code holds; --clear empties it
"""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _C
from .core import cache
from .core.lazy import LazyModule
from .core.settings import told
from .inductor.cpu.compile import compiler
from .ops.registry import OPERATORS, PRIMITIVES


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that lead from the command line to the script."""
    entry = trace
    while entry is not None and entry.tb_frame.f_code is not _run.__code__:
        entry = entry.tb_next
    if entry is None:
        return trace    # of an error that is not the script's
    while entry is not None and (entry.tb_frame.f_code is _run.__code__ or entry.tb_frame.f_globals.get("__name__") == "runpy"):
        entry = entry.tb_next
    return entry


_INSIDE = tuple(str(Path(__file__).parent / room / "") + os.sep for room in ("ops", "core", "backends"))


def _to_the_call(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """A traceback that ends where an operator was called, if that refused its arguments: the error says the rest."""
    last = entry = trace if isinstance(error, (RuntimeError, TypeError, ValueError, IndexError)) else None
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_INSIDE):
            last = entry
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None
    return trace


def _hide_runner() -> None:
    """Uncaught errors are shown from the script's first line to its last, by the hook that was there."""
    show = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trace = _to_the_call(error, _from_script(trace))
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


def _run(args: argparse.Namespace) -> int:
    """Run `args.script` as `__main__` with `torch` meaning Flambeau, in the Python processes that it starts, too."""
    _hide_runner()
    LazyModule("flambeau.as_torch").install()
    package = Path(__file__).resolve().parent
    folders = [str(package / "_children"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*folders, str(package.parent)]))
    if args.module:
        sys.argv = [args.script, *args.args]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(args.script, run_name="__main__", alter_sys=True)
        return 0
    script = Path(args.script)
    if not script.is_file():
        print(f"python -m flambeau run: no such script: {script}", file=sys.stderr)
        return 2
    sys.argv = [args.script, *args.args]
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(args.script, run_name="__main__")
    return 0


def _explain(args: argparse.Namespace) -> int:
    """`run` with the compiler's account of itself switched on; the logs are read when flambeau is imported."""
    os.environ["TORCH_LOGS"] = ",".join(filter(None, [told("TORCH_LOGS"), "graph_breaks,recompiles,cache"]))
    return _run(args)


def _profile(args: argparse.Namespace) -> int:
    """`run`, recorded; or traces of several processes side by side."""
    session = LazyModule("flambeau.profiler.session")
    if args.ranks:
        session.compare_ranks([args.script, *args.args], args.output)
        return 0
    command = " ".join([args.script, *args.args])
    LazyModule("flambeau.as_torch").install()
    return session.run_profiled(lambda: _run(args), command, args.output, args.trace, args.events)


def _primitive_facets(prim: Any) -> str:
    """What the record of a primitive holds, in the order of docs/interfaces.md."""
    kernels = ",".join(sorted(prim.kernels)) or ("layout" if prim.kind == "view" else "loop" if prim.loop else "-")
    facets = {
        "kernel": kernels,
        "loop": prim.loop if isinstance(prim.loop, str) else "yes" if prim.loop else "-",
        "derivative": type(prim.derivative).__name__ if prim.derivative else "-",
        "batch": "yes" if prim.batch else "-",
        "samples": "yes" if prim.samples else "-",
        "tags": ",".join(sorted(prim.tags)) or "-",
    }
    return "  ".join(f"{name} {fact}" for name, fact in facets.items())


def _operator_facets(fn: Any) -> str:
    info = fn._operator
    facets = [
        "gradient of its own" if info.vjp else "",
        f"library {info.library}" if info.library else "",
        "generated kernel" if info.fused else "",
        f"method {','.join(info.methods)}" if info.methods else "",
    ]
    return "  ".join(filter(None, facets)) or "-"


def _ops(args: argparse.Namespace) -> int:
    """One line a record: its name and facets; then how many there are."""
    tables = (("primitives", PRIMITIVES, _primitive_facets), ("operators", OPERATORS, _operator_facets))
    for title, table, facets in tables:
        names = [name for name in sorted(table) if fnmatch(name, args.pattern)]
        for name in names:
            print(f"{name:<32} {facets(table[name])}")
        print(f"{len(names)} {title}\n")
    return 0


def _bench(args: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parent.parent
    if not (root / "benchmarks" / "run.py").is_file():
        print("python -m flambeau bench: the benchmarks are not part of the installed package; clone the repository "
              "and use ./dev bench there", file=sys.stderr)
        return 2
    return subprocess.call([sys.executable, "-m", "benchmarks.run", *args.names], cwd=root)


def _coverage(args: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parent.parent
    if not (root / "tests" / "oracle" / "coverage.py").is_file():
        print("python -m flambeau coverage: the comparison is not part of the installed package; clone the repository", file=sys.stderr)
        return 2
    return subprocess.call([sys.executable, "-m", "tests.oracle.coverage"], cwd=root)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not found"
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return found.splitlines()[0] if found else "no answer"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _cache_kinds() -> dict[str, tuple[int, int]]:
    """By what lies in the cache: how many entries, how many bytes."""
    sizes: dict[str, list[int]] = {kind: [] for kind in cache.KINDS}
    for entry in cache.entries():
        sizes[entry.kind].append(entry.size)
    return {name: (len(sizes[kind]), sum(sizes[kind])) for kind, (name, _) in cache.KINDS.items()}


def _cache_summary() -> str:
    """Where compiled code is kept, and how much of it there is."""
    kinds = _cache_kinds()
    held = ", ".join(f"{count} {name}" for name, (count, _) in kinds.items() if count) or "empty"
    return f"{cache.cache_directory()}: {held}, {_mib(sum(size for _, size in kinds.values()))} of at most {_mib(cache.limit())}"


def _cache(args: argparse.Namespace) -> int:
    """The cache of compiled code: a line a kind of entry, or `--clear`."""
    if args.clear:
        print(f"{cache.cache_directory()}: {_mib(cache.clear())} removed")
        return 0
    kinds = _cache_kinds()
    print(f"{cache.cache_directory()}")
    for name, (count, size) in (*kinds.items(), ("in all", tuple(map(sum, zip(*kinds.values()))))):
        print(f"{name:<24}{count:>8}{_mib(size):>14}")
    print(f"{'at most':<32}{_mib(cache.limit()):>14}    (FLAMBEAU_CACHE_LIMIT)")
    return 0


def _info(args: argparse.Namespace) -> int:
    facts: dict[str, object] = {
        "flambeau": f"{_version('flambeau')} ({Path(__file__).parent})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "threads": _C.get_num_threads(),
        **{name: _version(name) for name in ("numpy", "scipy", "ml_dtypes", "safetensors", "onednn-cpu-gomp")},
        "compiler's cache": _cache_summary(),
        "C++ compiler": _first_line([compiler() or told("CXX", "g++"), "--version"]),
        "PyTorch beside it": _version("torch"),
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:<{width}}  {fact}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flambeau", description="PyTorch 2 rebuilt small.")
    parser.add_argument("--version", action="version", version=f"flambeau {_version('flambeau')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(act=act)
        return sub

    for name, act, help in (
        ("run", _run, "run a script with `import torch` meaning Flambeau"),
        ("explain", _explain, "run a script and report graph breaks, recompilations, and what came from the cache"),
        ("profile", _profile, "run a script and write a page of where its time and memory went"),
    ):
        sub = command(name, act, help)
        if name == "profile":
            sub.add_argument("-o", dest="output", type=Path, default=Path("profile.html"), metavar="FILE", help="the page: profile.html")
            sub.add_argument("--trace", type=Path, metavar="FILE", help="also a trace for Perfetto (.json or .json.gz)")
            sub.add_argument("--events", type=int, default=200_000, metavar="N", help="record the first N (200,000)")
            sub.add_argument("--ranks", action="store_true", help="SCRIPT and args are traces of processes, shown side by side")
        sub.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
        sub.add_argument("script", metavar="SCRIPT")
        sub.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")
    ops = command("ops", _ops, "list the operators with their facets")
    ops.add_argument("pattern", nargs="?", default="*", help="such as 'conv*'")
    bench = command("bench", _bench, "the figures, side by side with torch")
    bench.add_argument("names", nargs="*")
    command("coverage", _coverage, "which public names of torch there are: docs/coverage.md (needs PyTorch)")
    command("info", _info, "versions, compiler, threads, caches")
    cache = command("cache", _cache, "what the cache of compiled code holds: entries and size of each kind")
    cache.add_argument("--clear", action="store_true", help="remove everything in it")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        status = args.act(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:     # of `... | head`, if it was our pipe
        if args.act in (_run, _explain):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())    # what Python still flushes at its end
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
