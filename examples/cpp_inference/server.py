"""A server of images from a package, with several sessions, and a load test of it.

    python -m flambeau run examples/cpp_inference/server.py out/cpp_inference/resnet18.pt2 --sessions 2 --clients 8 --requests 50

A request is the bytes of a float32 image, the answer the number of its class as a line. Requests that wait are served as one batch, of at
most as many as the package takes; a session computes on one thread, and as many batches are on their way as there are sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from show import Progress, write_loss_plot


class Server:
    """Gathers requests into batches, and gives each session's thread one after the other."""

    def __init__(self, path: str, sessions: int, largest: int = 8) -> None:
        self.model = torch._inductor.aoti_load_package(path, run_single_threaded=True)
        self.shape = self.model.inputs[0][2][1:]
        self.size, self.largest = 4 * int(np.prod(self.shape)), largest
        self.workers, self.threads = sessions, ThreadPoolExecutor(sessions)
        self.waiting: asyncio.Queue[tuple[bytes, asyncio.Future]] = asyncio.Queue()

    async def __aenter__(self) -> Server:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.tasks = [asyncio.create_task(self.work()) for _ in range(self.workers)]
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.server.close()
        await self.server.wait_closed()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.threads.shutdown()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it goes."""
        try:
            while True:
                answer: asyncio.Future = asyncio.get_running_loop().create_future()
                await self.waiting.put((await reader.readexactly(self.size), answer))
                writer.write(b"%d\n" % await answer)
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    async def work(self) -> None:
        """One session's batches."""
        while True:
            batch = [await self.waiting.get()]
            while len(batch) < self.largest and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            classes = await asyncio.get_running_loop().run_in_executor(self.threads, self.classes, [image for image, _ in batch])
            for (_, answer), number in zip(batch, classes):
                answer.set_result(number)

    def classes(self, images: list[bytes]) -> list[int]:
        """The classes of some images."""
        batch = torch.from_numpy(np.stack([np.frombuffer(image, np.float32).reshape(self.shape) for image in images]))
        return self.model(batch).argmax(-1).tolist()


async def client(port: int, image: bytes, requests: int, title: str | None = None) -> list[float]:
    """Seconds from each request to its answer; behind a progress bar with a title."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    for _ in Progress(requests, title) if title else range(requests):
        start = time.perf_counter()
        writer.write(image)
        await writer.drain()
        await reader.readline()
        taken.append(time.perf_counter() - start)
    writer.close()
    await writer.wait_closed()
    return taken


async def load_test(path: str, sessions: int, clients: int, requests: int, plot: Path) -> None:
    async with Server(path, sessions) as server:
        rng = np.random.default_rng(0)
        images = [rng.random(server.shape, np.float32).tobytes() for _ in range(clients)]
        await client(server.port, images[0], 2)
        start = time.perf_counter()
        work = (client(server.port, image, requests, None if i else "requests") for i, image in enumerate(images))
        taken = sorted(1e3 * t for each in await asyncio.gather(*work) for t in each)
        seconds = time.perf_counter() - start
    p50, p99 = (taken[int(part * (len(taken) - 1))] for part in (0.5, 0.99))
    percentiles = [taken[percent * (len(taken) - 1) // 100] for percent in range(101)]
    curve = {f"{clients} clients, {sessions} sessions": percentiles}
    write_loss_plot(plot, curve, "Milliseconds to an answer", across="percent of requests")
    print(f"{len(taken)} requests of {clients} clients, {sessions} sessions: p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
          f"{len(taken) / seconds:.1f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=50, help="of each client")
    parser.add_argument("--plot", type=Path, default=Path("out/cpp_inference/latency.svg"))
    args = parser.parse_args()
    asyncio.run(load_test(args.package, args.sessions, args.clients, args.requests, args.plot))


if __name__ == "__main__":
    main()
