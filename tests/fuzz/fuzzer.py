"""Runs a target over drawn inputs in a child process, and keeps what is wrong as a case.

Input `number` of a seed is the same on every machine, so that a parent whose child died (an access outside of memory,
no end in sight, no memory left) knows which input it was. A case is made smaller as long as the same goes wrong.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.fuzz.target import Target

CASES = Path(__file__).parent / "cases"
LONGEST_SECONDS = 30  # of the processor for one input; ten times that on a clock, which a busy machine delays
MOST_MEMORY_BYTES = 3 << 30  # beyond what the process has before
SMALLER_TRIES = 400


@dataclass
class Fuzzed:
    """Cases by outcome, and the faults: what went wrong, by the file that holds the input."""

    cases: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)


def fuzz(target: Target, *, seconds: float, cases: int, seed: int, keep: Path = CASES) -> Fuzzed:
    """Check inputs until so many seconds are over and so many cases are done; faults are kept below `keep`."""
    done = Fuzzed()
    ends = time.monotonic() + seconds
    place = mmap.mmap(-1, 8)
    first = 0
    while True:
        printed, died = _in_child(target, first, ends, cases - done.cases.total(), seed, place, keep)
        done.cases += Counter(printed.get("cases", {}))
        done.faults |= printed.get("faults", {})
        if not died:
            return done
        first = int.from_bytes(place[:8], "little") + 1
        data = target.draw(random.Random(f"{target.name} {seed} {first - 1}"))
        done.faults[_kept(target, data, keep)] = f"the process died: {died}"
        done.cases["died"] += 1


def _in_child(
    target: Target, first: int, ends: float, cases: int, seed: int, place: mmap.mmap, keep: Path
) -> tuple[dict[str, dict[str, object]], str]:
    """(what a child says of its inputs, how it died)."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)  # ends the process, wherever it is
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit = _address_space_bytes() + MOST_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        logging.disable(logging.CRITICAL)
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - servers tell there of connections that were cut
        printed = _inputs(target, first, ends, cases, seed, place, keep)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps({"cases": printed.cases, "faults": printed.faults}).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(answer or b"{}"), "" if status == 0 and answer else f"exit {status}"


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def _inputs(target: Target, first: int, ends: float, cases: int, seed: int, place: mmap.mmap, keep: Path) -> Fuzzed:
    done = Fuzzed()
    known: set[str] = set()
    for number in count(first):
        place[:8] = number.to_bytes(8, "little")
        data = target.draw(random.Random(f"{target.name} {seed} {number}"))
        _end_after(LONGEST_SECONDS)
        fault = fault_of(target, data, done.cases)
        if fault and fault not in known:
            known.add(fault)
            _end_after(10 * LONGEST_SECONDS)
            done.faults[_kept(target, _smaller(target, data, fault), keep)] = fault
        if time.monotonic() >= ends and done.cases.total() >= cases:
            _end_after(0)
            return done
    raise AssertionError("unreachable: numbers do not end")


def _end_after(seconds: float) -> None:
    """End this process unless this is called again; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def fault_of(target: Target, data: bytes, cases: Counter[str] | None = None) -> str:
    """What is wrong with the check of an input, without what only this input says; empty if nothing is."""
    outcome, fault = "fault", ""
    try:
        outcome = target.check(data)
    except Exception as error:  # whatever it is, it is what is looked for
        here = [frame for frame in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in frame.filename]
        fault = f"{type(error).__name__} in {Path(here[-1].filename).name}, {here[-1].name}"
    if cases is not None:
        cases[outcome] += target.cases_of(data)
    return fault


def _smaller(target: Target, data: bytes, fault: str) -> bytes:
    """The input without what the fault does not need: stretches of half of it, a quarter and so on are left out."""
    tries, size = 0, len(data) // 2
    while size and tries < SMALLER_TRIES:
        at = 0
        while at < len(data) and tries < SMALLER_TRIES:
            shorter = data[:at] + data[at + size :]
            tries += 1
            if fault_of(target, shorter) == fault:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _kept(target: Target, data: bytes, keep: Path) -> str:
    folder = keep / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.case"
    path.write_bytes(data)
    return f"{target.name}/{path.name}"
