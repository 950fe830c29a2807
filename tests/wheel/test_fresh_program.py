"""The wheel alone, in an empty environment and far from the repository: from one line to a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill import build as build_here
from corpusmill.version import __version__
from tests.system.corpus import write_corpus
from tests.wheel.fresh import run

pytestmark = pytest.mark.slow

LINE = [
    "build",
    "data",
    "--tokenizer",
    "cl100k_base",
    "--export",
    "megatron",
    "--output",
    "out",
    "--dedup",
    "100",
    "--workers",
    "1",
]
OPENED = "import corpusmill; print(len(corpusmill.open_dataset('out/latest')['megatron']))"


def test_program_of_the_wheel_alone_builds_what_this_repository_builds(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data")
    corpusmill = program.with_name("corpusmill")
    assert run(corpusmill, "--version", cwd=tmp_path).split() == ["corpusmill", __version__]
    run(corpusmill, *LINE, cwd=tmp_path)
    there = {path.name: path.read_bytes() for path in (tmp_path / "out" / "latest" / "megatron").iterdir()}
    assert int(run(program, "-c", OPENED, cwd=tmp_path)) > 0

    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "data").symlink_to(tmp_path / "data")
    build_here(tmp_path / "out.yaml")
    assert there == {path.name: path.read_bytes() for path in (tmp_path / "here/out/latest/megatron").iterdir()} != {}
