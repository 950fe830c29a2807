"""The wheel alone, in an empty environment and far from the repository: from one line to a dataset."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from corpusmill import build as build_here
from corpusmill.version import __version__
from tests.system.corpus import write_corpus
from tests.wheel.fresh import outside, run

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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may write nowhere else")
def test_program_of_somebody_without_a_home_builds(program: Path, folder: Path) -> None:
    place = folder / "nobody"
    write_corpus(place / "data")
    for path in (folder, place, *place.rglob("*")):
        path.chmod(0o777)
    done = subprocess.run(
        [program.with_name("corpusmill"), *LINE],
        cwd=place,
        env={**outside(), "HOME": "/nonexistent"},
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (place / "out" / "latest" / "dataset.json").is_file()
