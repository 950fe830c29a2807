"""Maps a function over items on several cores, in order, in processes forked after the tokenizer is loaded, which they
share.

Threads would not help: parsing holds the GIL, and a gigatoken tokenizer encodes for one thread at a time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from corpusmill.builds.processes import WorkerLostError, end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # items per process, running or waiting for the item before them

_work: list[Callable[[Any], Any]] = []  # set in a forked process


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
    context = multiprocessing.get_context("fork")  # all are forked at the first item, before the pool starts a thread
    with ProcessPoolExecutor(processes, context, _begin, (work,)) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in chain(first, items):
                waiting.append(pool.submit(_do, item))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise WorkerLostError(
                "a process that parsed and encoded lines died",
                got="killed, most likely because memory ran out",
                next_step="run again; if it dies again, use fewer --workers",
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def _begin(work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    end_with_parent()
    _work.append(work)


def _do(item: Any) -> Any:
    return _work[-1](item)
