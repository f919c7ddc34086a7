"""How independently started processes become one MPI job: MPICH reads where a process manager listens (`PMI_PORT`) and who it is
(`PMI_ID`), and asks it for addresses of the others in PMI-1, lines of `key=value`. Rank 0 answers, in a thread.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Sequence
from itertools import groupby

_LONGEST_LINE = 1 << 16
_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"


def process_mapping(hosts: Sequence[str]) -> str:
    """Which ranks share a machine, as PMI writes it: `(vector,(node,1,ranks),...)` for runs of ranks on one node."""
    number = {host: i for i, host in enumerate(dict.fromkeys(hosts))}
    runs = ",".join(f"({number[host]},1,{len(list(run))})" for host, run in groupby(hosts))
    return f"(vector,{runs})"


class PMIServer:
    """Answers the processes of one job. `tokens[r]` is the PMI_ID of rank r: a random number, which a stranger doesn't know. Nobody
    is let in any more once all ranks have come."""

    def __init__(self, host: str, hosts: Sequence[str], timeout: float) -> None:
        self.size, self.deadline = len(hosts), time.monotonic() + timeout
        self.tokens = secrets.SystemRandom().sample(range(1, 1 << 31), self.size)
        self.values = {"PMI_process_mapping": process_mapping(hosts)}
        self._name, self._waiting, self._lock = f"kvs_{secrets.token_hex(4)}", list[socket.socket](), threading.Lock()
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=self.size)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="flambeau-pmi", daemon=True).start()

    def _accept(self) -> None:
        joined: set[int] = set()
        with self._listener:
            self._listener.settimeout(1.0)
            while len(joined) < self.size and time.monotonic() < self.deadline:
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    continue
                connection.settimeout(5.0)
                try:
                    rank = self._admit(connection)
                except (OSError, ValueError):
                    connection.close()
                    continue
                joined.add(rank)
                connection.settimeout(None)
                threading.Thread(target=self._serve, args=(connection,), name=f"flambeau-pmi-{rank}", daemon=True).start()

    def _admit(self, connection: socket.socket) -> int:
        """The rank of who connects; ValueError for a stranger."""
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = connection.recv(1)
            if not byte or len(line) > 64:
                raise ValueError("not a process of this job")
            line += byte
        asked = _fields(line.decode("ascii"))
        if asked.get("cmd") != "initack":
            raise ValueError("not a process of this job")
        rank = self.tokens.index(int(asked.get("pmiid", "-1")))
        connection.sendall(f"cmd=initack rc=0\ncmd=set size={self.size}\ncmd=set rank={rank}\ncmd=set debug=0\n".encode())
        return rank

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r", encoding="ascii", newline="\n") as lines:
            try:
                while (line := lines.readline(_LONGEST_LINE)) and (answer := self._answer(_fields(line), connection)) is not None:
                    if answer:
                        connection.sendall((answer + "\n").encode("ascii"))
            except (OSError, ValueError):
                pass  # a process has gone: its peers notice by their timeouts, and who started it by its exit code

    def _answer(self, asked: dict[str, str], connection: socket.socket) -> str | None:
        """The line to send back; "" for none yet, None for nothing more."""
        match asked.get("cmd"):
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes {_LIMITS} rc=0"
            case "get_appnum":
                return "cmd=appnum appnum=0 rc=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._name} rc=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self.size} rc=0"
            case "put":
                self.values[asked["key"]] = asked["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get":
                value = self.values.get(asked["key"])
                return "cmd=get_result rc=-1 msg=unknown_key" if value is None else f"cmd=get_result rc=0 msg=success value={value}"
            case "barrier_in":
                return self._barrier(connection)
            case "finalize":
                connection.sendall(b"cmd=finalize_ack rc=0\n")
                return None
        return None

    def _barrier(self, connection: socket.socket) -> str:
        with self._lock:
            self._waiting.append(connection)
            if len(self._waiting) < self.size:
                return ""
            waiting, self._waiting = self._waiting, []
        for other in waiting:
            other.sendall(b"cmd=barrier_out rc=0\n")
        return ""


def _fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split() if "=" in part)
