"""A build with more shards than a process may have files open."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from tests.system.corpus import configuration, lines_of, make_documents

SHARDS = 80
ENOUGH = 64  # what the error asks for; the limit of macOS is 256, of Linux usually 1,024
TOO_FEW = 24
CHANGES = {"dedup": {"mode": "remove", "minimum_bytes": 60}}


def sources(root: Path) -> None:
    (root / "corpus").mkdir(parents=True)
    texts = [text[:400] for text in make_documents(2 * SHARDS)]
    for number in range(SHARDS):
        (root / "corpus" / f"{number:03d}.jsonl").write_bytes(lines_of(texts[2 * number : 2 * number + 2], 2 * number))


def delivered(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def build_bounded(root: Path, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """`corpusmill build` of the sources in `root` by a process with these limits."""
    changes = {**CHANGES, "source": {"paths": ["corpus"], "shard_bytes": 1}}
    (root / "dataset.yaml").write_text(yaml.safe_dump(configuration(root, **changes)))
    return subprocess.run(
        [sys.executable, "-m", "corpusmill.cli", "build", "dataset.yaml", "--workers", "2"],
        cwd=root,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_build_of_more_shards_than_open_files_says_so_and_with_64_is_the_build_with_many(tmp_path: Path) -> None:
    for name in ("bounded", "free"):
        sources(tmp_path / name)
    done = build_bounded(tmp_path / "bounded", TOO_FEW, TOO_FEW)
    assert done.returncode == 1
    assert "needs more open files than allowed" in done.stderr
    assert "Traceback" not in done.stderr
    done = build_bounded(tmp_path / "bounded", TOO_FEW, ENOUGH)  # the hard limit is what counts
    assert done.returncode == 0, done.stderr[-2000:]
    source = {"paths": [str(tmp_path / "free" / "corpus")], "shard_bytes": 1}
    build_dataset(check_config(configuration(tmp_path / "free", **CHANGES, source=source), where="test"), workers=2)
    assert delivered(tmp_path / "bounded") == delivered(tmp_path / "free")
    assert len(list((tmp_path / "bounded" / "work" / "tiny" / "index").iterdir())) == SHARDS
