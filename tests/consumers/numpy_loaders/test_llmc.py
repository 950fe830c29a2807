"""llm.c's loader on our shards: its rules restated, and its own llmc/dataloader.h where CORPUSMILL_LLMC names a clone
of karpathy/llm.c and there is a C compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SHARDS = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "olmo" / "latest" / "numpy"
TRAIN = str(SHARDS / "*_train_*.bin")
B, T = 2, 64
Batches = Callable[[str, int, int], np.ndarray]
"""(pattern, rank, ranks) -> inputs and targets of one epoch, int32 (batches, 2, B x T)."""


def files_of(pattern: str) -> list[np.ndarray]:
    """Tokens of each file, in order of name, by the format's description."""
    files = []
    for path in sorted(SHARDS.glob(Path(pattern).name)):
        header = np.fromfile(path, "<i4", 256)
        assert header[:4].tolist() == [20240520, 1, header[2], 0]
        assert path.stat().st_size == 1024 + 2 * header[2]
        files.append(np.fromfile(path, "<u2", offset=1024).astype(np.int32))
    assert len(files) > 1 or "train" not in pattern
    return files


def epoch(pattern: str, ranks: int) -> int:
    """Batches that a rank gets of each file in turn."""
    return sum((len(tokens) - 1) // (ranks * B * T) for tokens in files_of(pattern))


def restated(pattern: str, rank: int, ranks: int) -> np.ndarray:
    """Each file in strides of a global batch, of which a rank has one part and a token more."""
    batches = []
    for tokens in files_of(pattern):
        assert len(tokens) > ranks * B * T
        for first in range(rank * B * T, (len(tokens) - 1) // (ranks * B * T) * ranks * B * T, ranks * B * T):
            batches.append([tokens[first : first + B * T], tokens[first + 1 : first + B * T + 1]])
    return np.array(batches)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    source = os.environ.get("CORPUSMILL_LLMC")
    compiler = shutil.which("cc")
    if not source or not compiler:
        pytest.skip("CORPUSMILL_LLMC names no clone of llm.c, or there is no C compiler")
    built = tmp_path_factory.mktemp("llmc") / "batches"
    program = Path(__file__).with_name("llmc_batches.c")
    subprocess.run([compiler, "-O1", "-w", "-I", source, program, "-o", built, "-lm"], check=True)
    return built


def run(program: Path, pattern: str, rank: int, ranks: int, batches: int) -> subprocess.CompletedProcess[bytes]:
    words = map(str, (program, pattern, B, T, rank, ranks, batches))
    return subprocess.run([*words], capture_output=True, check=False)


@pytest.fixture(params=["restated", "llm.c"])
def batches(request) -> Batches:
    if request.param == "restated":
        return restated
    program = request.getfixturevalue("program")

    def read(pattern: str, rank: int, ranks: int) -> np.ndarray:
        done = run(program, pattern, rank, ranks, epoch(pattern, ranks))
        assert done.returncode == 0, done.stderr
        return np.frombuffer(done.stdout, np.int32).reshape(-1, 2, B * T)

    return read


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_llmc_ranks_together_read_every_token_once_but_the_rest_of_each_file(batches, ranks) -> None:
    read = [batches(TRAIN, rank, ranks) for rank in range(ranks)]
    expected = []
    for tokens in files_of(TRAIN):
        kept = (len(tokens) - 1) // (ranks * B * T) * ranks * B * T
        expected.append(np.stack([tokens[:kept].reshape(-1, B * T), tokens[1 : kept + 1].reshape(-1, B * T)], axis=1))
    together = np.stack(read, axis=1).reshape(-1, 2, B * T)
    assert np.array_equal(together, np.concatenate(expected))
    assert len(together) > 4


def test_llmc_validation_is_another_glob(batches) -> None:
    (tokens,) = files_of("*_val_*.bin")
    assert batches(str(SHARDS / "*_val_*.bin"), 0, 1)[0].tolist() == [
        tokens[: B * T].tolist(),
        tokens[1 : B * T + 1].tolist(),
    ]


@pytest.mark.parametrize("change", [-2, 2])
def test_llmc_refuses_a_file_of_another_size(program, tmp_path, change: int) -> None:
    data = sorted(SHARDS.glob("*_train_*.bin"))[0].read_bytes()
    (tmp_path / "x_train_000000.bin").write_bytes(data[:change] if change < 0 else data + bytes(change))
    done = run(program, str(tmp_path / "*.bin"), 0, 1, 1)
    assert done.returncode != 0
    assert b"size" in done.stdout


def test_llmc_first_tokens_are_shown(program, shown) -> None:
    commit = ["git", "-C", os.environ["CORPUSMILL_LLMC"], "rev-parse", "--short=8", "HEAD"]
    release = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
    first = np.frombuffer(run(program, TRAIN, 0, 1, 1).stdout, np.int32)[: B * T]
    shown(
        "llm.c",
        "DataLoader",
        "numpy, layout llmc",
        first,
        files_of(TRAIN)[0][: B * T],
        None,
        release=release,
        dataset="olmo",
    )
