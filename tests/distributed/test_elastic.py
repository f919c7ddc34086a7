"""torch.distributed.elastic: rendezvous of machines that come and go, launchers, timers, events and numbers."""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flambeau import distributed as dist
from flambeau.distributed.elastic import events, metrics, rendezvous, timer, utils
from flambeau.distributed.elastic.agent.server import WorkerSpec, WorkerState
from flambeau.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes, to_map
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from flambeau.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous, registry
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout
from flambeau.distributed.launcher import LaunchConfig, elastic_launch
from tests.distributed.processes import free_port, needs_mpi
from tests.distributed.test_run import Launcher, launchers, none_left  # noqa: F401

LEFT_OUT = {"FileTimerClient", "FileTimerRequest", "FileTimerServer", "get_method_name", "get_std_cm", "resolve_hostname_or_addr",
            "get_subprocess_handler", "SubprocessHandler", "TailLog"}


@pytest.mark.parametrize("module", [
    "agent.server.api", "agent.server.local_elastic_agent", "rendezvous.api", "rendezvous.dynamic_rendezvous", "rendezvous.registry",
    "rendezvous.c10d_rendezvous_backend", "rendezvous.static_tcp_rendezvous", "rendezvous.utils", "timer", "timer.api", "timer.local_timer",
    "events", "events.api", "metrics", "metrics.api", "multiprocessing", "multiprocessing.api", "multiprocessing.errors", "utils.api",
    "utils.store", "utils.distributed", "utils.logging",
])
def test_names(module: str) -> None:
    pytest.importorskip("torch")
    theirs, ours = (importlib.import_module(f"{library}.distributed.elastic.{module}") for library in ("torch", "flambeau"))
    home = theirs.__name__.removesuffix(".api")
    public = [name for name, value in vars(theirs).items() if not name.startswith("_") and name not in LEFT_OUT
              and str(getattr(value, "__module__", "")).startswith(home)]
    assert public and not [name for name in public if not hasattr(ours, name)]


# -- rendezvous -----------------------------------------------------------------------------------------------------------------------
class Machines:
    """Handlers of one rendezvous, each with a thread of its own."""

    def __init__(self, least: int, most: int, join: float = 60, patience: int = 40, last_call: float = 0.2) -> None:
        self.store = dist.HashStore()
        self.made: list[DynamicRendezvousHandler] = []
        self.how: dict[str, Any] = {
            "min_nodes": least, "max_nodes": most, "timeout": RendezvousTimeout(timedelta(seconds=join), timedelta(seconds=last_call)),
            "keep_alive_interval": 0.05, "keep_alive_max_attempt": patience}
        self.pool = ThreadPoolExecutor(8)

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *error: object) -> None:
        for handler in self.made:
            handler.shutdown()
        self.pool.shutdown()

    def add(self, name: str) -> DynamicRendezvousHandler:
        backend = c10d_rendezvous_backend.C10dRendezvousBackend(self.store, "job")
        self.made.append(DynamicRendezvousHandler.from_backend("job", self.store, backend, local_addr=name, **self.how))
        return self.made[-1]

    def join(self, *handlers: DynamicRendezvousHandler) -> list[Any]:
        return [self.pool.submit(handler.next_rendezvous) for handler in handlers]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_machines_come_and_go() -> None:
    with Machines(2, 3) as machines:
        a, b, c, d = (machines.add(name) for name in "abcd")
        infos = [future.result() for future in machines.join(b, a)]
        assert [(i.rank, i.world_size) for i in infos] == [(1, 2), (0, 2)]
        infos[0].store.set("key", "value")
        assert infos[1].store.get("key") == b"value" and infos[0].bootstrap_store_info == infos[1].bootstrap_store_info
        assert a.num_nodes_waiting() == b.num_nodes_waiting() == 0
        later = machines.join(c)[0]     # comes later: the others begin the next round
        assert until(lambda: a.num_nodes_waiting() == 1 and b.num_nodes_waiting() == 1)
        infos = [future.result() for future in [*machines.join(a, b), later]]
        assert sorted(i.rank for i in infos) == [0, 1, 2] and {i.world_size for i in infos} == {3}
        assert not infos[0].store.check(["key"])     # each round has its own part
        spare = machines.join(d)[0]     # one too many: nobody begins anew
        assert until(lambda: d._was_waiting) and a.num_nodes_waiting() == 0
        c._ended.set()     # gives no sign any more; the spare one takes its place
        assert until(lambda: a.lost_nodes() == [c._node]) and a.num_nodes_waiting() == 1
        infos = [future.result() for future in [*machines.join(a, b), spare]]
        assert [(i.rank, i.world_size) for i in infos] == [(0, 3), (1, 3), (2, 3)]


def test_the_end_of_a_rendezvous() -> None:
    with Machines(1, 1) as machines:
        a, b = machines.add("a"), machines.add("b")
        assert machines.join(a)[0].result().world_size == 1
        spare = machines.join(b)[0]
        assert until(lambda: b._was_waiting) and not b.is_closed()
        assert a.shutdown() and b.is_closed()
        with pytest.raises(rendezvous.RendezvousGracefulExitError, match="is over"):
            spare.result()
        with pytest.raises(rendezvous.RendezvousClosedError, match="'job' is over"):
            machines.add("c").next_rendezvous()
    with Machines(2, 2, join=0.3) as machines, pytest.raises(rendezvous.RendezvousTimeoutError, match="2 to 2 machines"):
        machines.add("a").next_rendezvous()
    with Machines(1, 2) as machines:
        machines.store.set("torch.rendezvous.job", "what?")
        with pytest.raises(rendezvous.RendezvousStateError, match="corrupt"):
            machines.add("a").next_rendezvous()


def test_parameters_and_backends() -> None:
    made = rendezvous.RendezvousParameters("c10d", f"localhost:{free_port()}", "job", 1, 2, last_call_timeout="3", flag="Yes", word="x")
    assert made.get("absent", 4) == 4 and made.get_as_int("last_call_timeout") == 3 and made.get_as_bool("flag") is True
    handler: Any = registry.get_rendezvous_handler(made)
    assert handler.get_backend() == "c10d" and handler.use_agent_store and handler.get_run_id() == "job"
    assert handler.settings.timeout.last_call == timedelta(seconds=3) and handler.settings.max_nodes == 2
    assert handler.shutdown()
    for call, message in ((lambda: made.get_as_int("word"), "integer value: 'x'"), (lambda: made.get_as_bool("word"), "boolean value: 'x'"),
                          (lambda: rendezvous.RendezvousParameters("", "", "j", 1, 1), "non-empty"),
                          (lambda: rendezvous.RendezvousParameters("a", "", "j", 2, 1), "greater than or equal"),
                          (lambda: registry.get_rendezvous_handler(rendezvous.RendezvousParameters("a", "", "j", 1, 1)), "not registered"),
                          (lambda: dynamic_rendezvous.RendezvousTimeout(join=timedelta(0)), "must be positive")):
        with pytest.raises(ValueError, match=message):
            call()
    parse = importlib.import_module("flambeau.distributed.elastic.rendezvous.utils").parse_rendezvous_endpoint
    assert [parse(e, 7) for e in ("", "h", "h:8", "[::1]:9", None)] == [("localhost", 7), ("h", 7), ("h", 8), ("::1", 9), ("localhost", 7)]
    with pytest.raises(ValueError, match="port number"):
        parse("h:x", 7)


# -- launchers ------------------------------------------------------------------------------------------------------------------------
def counted(folder: str, fail: int) -> tuple:
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    Path(folder, f"{os.environ['RANK']}.{attempt}").touch()
    if attempt < fail and os.environ["RANK"] == "1":
        raise ValueError(f"attempt {attempt}")
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), attempt


def test_functions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = LaunchConfig(1, 1, 2, max_restarts=1, monitor_interval=0.02, start_method="forkserver")
    assert elastic_launch(config, counted)(str(tmp_path), 1) == {0: (0, 2, 1), 1: (1, 2, 1)}
    assert "1 restarts left" in caplog.text and "rank 1 (pid" in caplog.text and "ValueError: attempt 0" in caplog.text
    with pytest.raises(ChildFailedError, match="ValueError: attempt 1") as caught:
        elastic_launch(config, counted)(str(tmp_path), 2)
    rank, failure = caught.value.get_first_failure()
    assert (rank, failure.exitcode, failure.local_rank) == (1, 1, 1) and "in counted" in failure.message["extraInfo"]["py_callstack"]
    assert "signal SIGKILL" in str(ProcessFailure(0, 7, -9, "")) and ProcessFailure(0, 7, -9, "").signal_name() == "SIGKILL"


def test_an_agent(tmp_path: Path) -> None:
    store = dist.HashStore()
    handler = DynamicRendezvousHandler.from_backend("a", store, c10d_rendezvous_backend.C10dRendezvousBackend(store, "a"), 1, 1)
    spec = WorkerSpec("trainer", 2, handler, entrypoint="sh", args=("-c", 'echo "$ROLE_NAME $RANK ${local_rank}"; echo oops >&2'),
                      monitor_interval=0.02)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(str(tmp_path), Std.ALL, {1: Std.OUT}), log_line_prefix_template="<$rank> ")
    result = agent.run()
    assert result.state == WorkerState.SUCCEEDED and not result.is_failed() and handler.is_closed()
    for i in range(2):
        assert (tmp_path / "a/attempt_0" / str(i) / "stdout.log").read_text() == f"trainer {i} {i}\n"
        assert (tmp_path / "a/attempt_0" / str(i) / "stderr.log").read_text() == "oops\n"
    with pytest.raises(ValueError, match="entrypoint"):
        WorkerSpec("r", 1, handler)


def test_processes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    logs = DefaultLogsSpecs(str(tmp_path), tee=Std.OUT, local_ranks_filter={0, 1})
    args = {i: ("-c", f"echo {i}; sleep {100 * (i == 2)}; exit {i}") for i in range(3)}
    context = start_processes("w", "sh", args, {0: {}, 1: {}, 2: {}}, logs)
    result = context.wait(period=0.02)
    assert result is not None and result.is_failed() and set(result.failures) == {1}
    assert sorted(capsys.readouterr().out.split()) == ["[w0]:0", "[w1]:1"] and none_left(list(context.pids().values()))
    assert to_map(Std.from_str("0:3,1:1"), 3) == {0: Std.ALL, 1: Std.OUT, 2: Std.NONE} and Std.from_str("2") is Std.ERR
    with pytest.raises(RuntimeError, match="local ranks 0 to 0"):
        start_processes("w", "sh", {1: ()}, {1: {}}, logs)


ELASTIC = """
import os, sys, time
import torch
import torch.distributed as dist
from pathlib import Path

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, world, attempt = dist.get_rank(), dist.get_world_size(), os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"{rank}.pid").write_text(str(os.getpid()))
while True:
    x = torch.ones(1)
    dist.all_reduce(x)
    (folder / f"{world}.{rank}").write_text(f"{x.item():g} {attempt}")
    stop = torch.tensor([float((folder / "stop").exists())])
    dist.all_reduce(stop)
    if stop.item():
        break
    time.sleep(0.02)
print(f"rank {rank} of {world}", flush=True)
"""


@needs_mpi
def test_a_job_grows_and_shrinks(tmp_path: Path, launchers: list) -> None:  # noqa: F811
    """A machine comes and is taken in; its launcher is killed, and the job goes on without it."""
    options = ("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=grow",
               "--rdzv-conf=last_call_timeout=0.2,keep_alive_interval=1,keep_alive_max_attempt=5")
    folder = tmp_path / "seen"
    folder.mkdir()

    def launch(name: str) -> Launcher:
        (tmp_path / name).mkdir()
        launchers.append(launcher := Launcher.__new__(Launcher))
        launcher.begin(tmp_path / name, ELASTIC, [*options, str(tmp_path / name / "script.py"), str(folder)])
        return launcher

    first = launch("a")
    assert until(lambda: (folder / "1.0").exists())
    second = launch("b")
    assert until(lambda: (folder / "2.0").exists() and (folder / "2.1").exists())
    assert (folder / "2.1").read_text() == "2 0"    # a machine that comes is no failure
    (folder / "1.0").unlink()
    second.process.kill()
    assert until(lambda: (folder / "1.0").exists())
    (folder / "stop").touch()
    code, out, err = first.end()
    assert code == 0 and out == "rank 0 of 1\n" and "start again" in err


# -- timers, events, numbers, stores ------------------------------------------------------------------------------------------------
def late(queue: Any, after: float, sleeps: float) -> None:
    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=100, scope="outer"), timer.expires(after):
        time.sleep(sleeps)


def test_timers() -> None:
    with pytest.raises(RuntimeError, match="Configure timer client"), timer.expires(1):
        pass
    context = multiprocessing.get_context("forkserver")
    queue: Any = context.Queue()
    server = timer.LocalTimerServer(queue, max_interval=0.05)
    server.start()
    processes = [context.Process(target=late, args=(queue, *how)) for how in ((0.1, 100), (100, 0))]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    server.stop()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0]


def test_events(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    monkeypatch.setitem(events._HANDLERS, "kept", Kept())
    event = events.Event("begun", events.EventSource.WORKER, 12, {"rank": 3, "ok": True})
    events.record(event, "kept")
    assert json.loads(seen[0]) == {"name": "begun", "source": "WORKER", "timestamp": 12, "metadata": {"rank": 3, "ok": True}}
    assert events.Event.deserialize(seen[0]) == event == events.Event.deserialize(event) and str(event) == seen[0]
    events.construct_and_record_rdzv_event("job", "joined", events.NodeState.RUNNING)
    with pytest.raises(KeyError, match="no handler of events"):
        events.get_logging_handler("elsewhere")


@pytest.fixture
def numbers() -> Iterator[list]:
    seen: list = []

    class Kept(metrics.MetricHandler):
        def emit(self, metric_data: metrics.MetricData) -> None:
            seen.append(metric_data)

    metrics.configure(Kept(), "mine")
    yield seen
    metrics._handlers.pop("mine")


def test_numbers(numbers: list, capsys: pytest.CaptureFixture) -> None:
    @metrics.prof(group="mine")
    def work(ok: bool) -> int:
        """What work does."""
        if not ok:
            raise ValueError
        return 3

    assert work(True) == 3 and work.__doc__ == "What work does."
    with pytest.raises(ValueError):
        work(False)
    metrics.put_metric("size", 7, "mine")
    metrics.put_metric("size", 8)    # of another group: nobody listens
    names = [data.name.rpartition(">.")[2] for data in numbers]
    assert names == ["work.success", "work.duration.ms", "work.failure", "work.duration.ms", "size"] and numbers[-1].value == 7
    metrics.ConsoleMetricHandler().emit(numbers[-1])
    assert capsys.readouterr().out.endswith("[mine]: size=7\n")
    with pytest.warns(FutureWarning, match="put_metric"):
        metrics.publish_metric("mine", "size", 9)


def test_meetings_in_a_store() -> None:
    store, found = dist.HashStore(), {}
    threads = [threading.Thread(target=lambda r=r: found.update({r: utils.synchronize(store, f"{r}".encode(), r, 3, "k/")})) for r in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {rank: [b"0", b"1", b"2"] for rank in range(3)}
    with pytest.raises(dist.DistStoreError, match="not in the barrier: <1>, <2>"):
        utils.barrier(store, 3, "b", 0.1, 0, lambda rank: f"<{rank}>")
    assert utils.macros.substitute(["--rank=${local_rank}", 3], "4") == ["--rank=4", 3]
    assert utils.create_c10d_store(True, "127.0.0.1", wait_for_workers=False).port > 0
    with pytest.raises(ValueError, match="server_port"):
        utils.create_c10d_store(False, "127.0.0.1")
