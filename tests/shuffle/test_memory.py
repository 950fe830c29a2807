"""A process that gathers stays within shuffle.memory, however much there is to shuffle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUDGET_BYTES = 256 << 20
TOKENS = 40 << 20  # 160 MiB of uint32: with an interpreter of 200 MiB they would not fit the budget together

GATHER = """
import json, sys
from pathlib import Path
from corpusmill.shuffle.cells import gather_cell, gather_shard
from corpusmill.shuffle.cells import open_scattered
folder, cells = Path(sys.argv[1]), int(sys.argv[2])

def kibibytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in lines) if "kB" in value}

# The kernel maps as many pages of library files as are near in its cache (57 or 91 MiB seen), and takes them back.
libraries = kibibytes()["RssFile"]
records = 0
for cell in range(cells):
    (folder / f"cell-{cell}").mkdir()
    records += (
        gather_cell([open_scattered(folder / "scatter", cell)], cell, folder / f"cell-{cell}")
        if sys.argv[3] == "random"
        else gather_shard(open_scattered(folder / "scatter", 0), cell, folder / f"cell-{cell}")
    ).records
# Not ru_maxrss: it begins with the peak of the process that this one was forked from.
print(json.dumps([records, (kibibytes()["VmHWM"] - libraries) * 1024]))
"""


def test_shuffle_scattered_tokens_of_a_mapped_shard_leave_this_processs_memory(tmp_path) -> None:
    """All of the process's pages of the file, however the array was made from its mapping."""
    import numpy as np

    from corpusmill.kernels.mapping import release_pages
    from corpusmill.tokens.token_shard import open_token_shard

    tokens = np.ones(16 << 20, "<u4")
    (tmp_path / "tokens").write_bytes(tokens.data)
    (tmp_path / "ends").write_bytes(np.array([len(tokens)], "<u8").data)
    (tmp_path / "source_ends").write_bytes(np.array([1], "<u8").data)
    about = {"dtype": "uint32", "tokenizer": "test", "sha256": "0" * 64, "vocabulary_size": 2}
    about |= {"eot_id": 0, "pad_id": 0, "bos_id": None, "revision": ""}
    (tmp_path / "token_shard.json").write_text(json.dumps(about))
    opened = open_token_shard(tmp_path)
    before = mapped_bytes()
    assert int(opened.tokens.sum()) == len(tokens)
    assert mapped_bytes() - before > tokens.nbytes * 3 // 4
    release_pages(opened.tokens)
    assert mapped_bytes() - before < tokens.nbytes // 4


def mapped_bytes() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(status[kind].split()[0]) * 1024 for kind in ("RssFile", "RssShmem"))  # on a disk, in memory


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "source"])
def test_shuffle_gathering_process_stays_within_its_budget(tmp_path, order) -> None:
    """The original holds as many cells as it has threads; here a process's peak, as the kernel counts it, is capped."""
    import numpy as np

    from corpusmill.shuffle.cells import cells_needed, scatter_records
    from corpusmill.tokens.records import context_records
    from corpusmill.tokens.token_shard import TokenShard

    tokens = np.random.Philox(key=1).random_raw(TOKENS // 2).view("<u4") % np.uint32(100_000)
    ends = np.arange(1000, TOKENS + 1, 1000, dtype=np.uint64)
    shard = TokenShard(tokens, ends, "test", "0" * 64, 100_001, eot_id=100_000, pad_id=100_000)
    records = context_records(shard, 2049)
    cells = cells_needed(tokens.nbytes, shard.documents, BUDGET_BYTES) if order == "random" else 1
    seed = 1 if order == "random" else None
    (tmp_path / "scatter").mkdir()
    scatter_records(records, seed=seed, kind="contexts", shard=0, cells=cells, folder=tmp_path / "scatter")
    command = [sys.executable, "-c", GATHER, str(tmp_path), str(cells), order]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    gathered, peak_bytes = json.loads(done.stdout)
    assert gathered == len(records.ordinals)
    assert peak_bytes < BUDGET_BYTES
    assert tokens.nbytes > BUDGET_BYTES // 2
