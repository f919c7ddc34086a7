"""Work in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(*works: Callable[[], object]) -> None:
    """Do all of them at one time, each in a thread of its own, to their ends."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
