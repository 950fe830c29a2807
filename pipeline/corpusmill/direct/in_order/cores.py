"""Maps a function over items on several cores, in order, in processes forked after the tokenizer is loaded, which they
share.

Threads would not help: parsing holds the GIL, and a gigatoken tokenizer encodes for one thread at a time. Each process
has a pipe of its own, and a thread that waits for it. ProcessPoolExecutor has one pipe to all of them: before Python
3.11.5 it waits forever for a process that dies while an item, of megabytes, is on its way (CPython issue 94777).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from corpusmill.builds.processes import WorkerLostError, end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # items per process, running or waiting for the item before them

Idle: TypeAlias = "SimpleQueue[Connection]"
"""The pipes to processes that wait for an item."""


def cores() -> int:
    """The default number of processes: one per core; one on systems where fork is not safe."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def in_order(work: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """`map(work, items)` on several cores; items and results are pickled, `work` is not. A single item starts no
    process.

    Errors of `work` are raised at their item's turn. WorkerLostError for a process that was killed.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if processes == 1 or len(first) < 2:
        yield from map(work, chain(first, items))
        return
    with ThreadPoolExecutor(processes) as threads, _workers(work, processes) as idle:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in chain(first, items):
                waiting.append(threads.submit(_ask, idle, item))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _workers(work: Callable[[Any], Any], number: int) -> Iterator[Idle]:
    """Pipes to forked processes that wait for an item. They are forked before a thread is started, and are killed at
    the end: all results have been received, or nobody wants them.
    """
    context = multiprocessing.get_context("fork")
    idle: Idle = SimpleQueue()
    started = []
    try:
        for _ in range(number):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(work, there), daemon=True)
            process.start()
            there.close()  # the process has the only other copy, so reading ends when it does
            started.append(process)
            idle.put(here)
        yield idle
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.join()


def _ask(idle: Idle, item: Any) -> Any:
    """Have an idle process work on an item."""
    process = idle.get()
    try:
        process.send(item)
        result, error = process.recv()
    except (EOFError, OSError) as lost:
        raise WorkerLostError(
            "in_order.worker_died: a process that parsed and encoded lines died",
            got="killed, most likely because memory ran out",
            next_step="run again; if it dies again, use fewer --workers",
        ) from lost
    finally:
        idle.put(process)
    if error is not None:
        raise error
    return result


def _serve(work: Callable[[Any], Any], asked: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    end_with_parent()
    while True:
        try:
            answer: tuple[Any, Exception | None] = work(asked.recv()), None
        except Exception as error:
            answer = None, error
        asked.send(answer)
