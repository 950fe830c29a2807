"""The memory of a long line is what writeback's docstring says, whichever way its text is read again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMORY = r"""
import ctypes, io, json, sys
from pathlib import Path
import numpy as np
from corpusmill.dedup.writeback import WriteBackOptions, write_back_file
from tests.oracles.documents import indexed_source

class Measuring:
    written = 0
    def write(self, data):
        self.written += len(data)

def kibibytes(key):
    return int(Path("/proc/self/status").read_text().partition(key + ":")[2].split()[0])

def times(before, behind, text_bytes):
    # How many times a line's bytes are held beside it, while ten bytes of its text are cut; the bytes written.
    text = b"abcde" * (text_bytes // 5)
    line = before + text + behind
    indexed, sink = indexed_source("a", line, [(0, text)], 0), Measuring()
    del text
    ranges = np.array([(1 + 5, 1 + 15)], np.uint64)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held = kibibytes("VmRSS")
    stream, options = io.BytesIO(line), WriteBackOptions("remove", "text")
    write_back_file(stream, sink, indexed=indexed, ranges=ranges, options=options)
    return (kibibytes("VmHWM") - held) * 1024 / len(line), len(line) - sink.written

before, behind = json.loads(sys.argv[1])
times(before.encode(), behind.encode(), 1000)  # what importing takes is not the line's
print(json.dumps(times(before.encode(), behind.encode(), 40 << 20)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ('{"text": "', '"}\n'),
        (r'{"te\u0078t": "', '"}\n'),
        ('{"text": "', '", "more": "a\\/b"}\n'),
    ],
    ids=["read by the kernel", "escaped key", "escape behind"],
)
def test_writeback_longest_line_takes_the_memory_that_the_docstring_says(before: str, behind: str) -> None:
    # glibc would keep what it has once been given back.
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", MEMORY, json.dumps([before, behind])]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, check=True)
    times, cut_bytes = json.loads(ran.stdout)
    assert cut_bytes == 10
    assert times < 4.1
