"""A stage from a package outside of pipeline/, by command; under Airflow: tests/dags/test_live_connections.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.builds.own_stage import NAME, write_package
from tests.system.corpus import configuration, make_documents

TEXTS = make_documents(24)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def corpusmill(tmp_path: Path) -> Run:
    """The command in a folder with a corpus, a configuration `tiny.yaml` and the stage."""
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[number::2])
        (tmp_path / "corpus" / f"{number}.jsonl").write_text(lines)
    (tmp_path / "tiny.yaml").write_text(
        yaml.safe_dump(configuration(tmp_path, source={"paths": ["corpus"], "shard_bytes": 100}))
    )
    stages = write_package(tmp_path / "own")

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from corpusmill.cli import main; main()", *arguments]
        environment = os.environ | stages | settings
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_stage_of_ones_own_is_built_counted_reused_reprocessed_balanced_and_verified(
    corpusmill: Run, tmp_path: Path
) -> None:
    assert "steps will run, from download to report" in succeeded(corpusmill("plan", "tiny.yaml"))
    succeeded(corpusmill("build", "tiny.yaml", "--workers", "2"))
    receipts = sorted((tmp_path / "work" / "tiny" / NAME).glob("*/receipt.json"))
    counts = [json.loads(path.read_text())["counts"] for path in receipts]
    assert sum(count["documents"] for count in counts) == len(TEXTS)
    assert sum(count["words"] for count in counts) == sum(len(text.encode().split()) for text in TEXTS)

    lines = succeeded(corpusmill("plan", "tiny.yaml")).splitlines()
    (index,) = (line.split() for line in lines if line.startswith("index "))
    assert index[2:] == ["reuse"]
    assert int(index[1]) >= 2 * len(receipts)
    written = [path.stat().st_mtime_ns for path in receipts]
    succeeded(corpusmill("build", "tiny.yaml"))
    assert [path.stat().st_mtime_ns for path in receipts] == written
    (summary,) = (json.loads(path.read_text()) for path in (tmp_path / "work/tiny/report").glob("*/summary.json"))
    (stage,) = (item for item in summary["stages"] if item["stage"] == NAME)
    assert stage["step"] == "index"
    assert stage["units_reused"] == stage["units_total"] == len(receipts)
    (check,) = (item for item in summary["checks"] if item["name"] == f"{NAME}: documents")
    assert check["left"] == [["indexed", len(TEXTS)]]

    printed = succeeded(corpusmill("reprocess", "tiny.yaml", "--stage", NAME, "--shard", "0"))
    assert f"{NAME} 00000" in printed
    assert [path.stat().st_mtime_ns for path in receipts][1:] == written[1:]
    assert receipts[0].stat().st_mtime_ns != written[0]

    assert "no errors found" in succeeded(corpusmill("verify", "tiny.yaml"))
    (receipts[0].parent / "words.json").write_text("[1]")
    actual = corpusmill("verify", "tiny.yaml")
    assert actual.returncode != 0
    assert "words.json" in actual.stdout + actual.stderr


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise OSError('no disk')", ["error[stage.not_importable]", "my_package.broken", "OSError: no disk"]),
        ("STAGE = 'index'", ["error[stage.not_importable]", "my_package.broken", "type str"]),
        (None, ["error[stage.not_importable]", "my_package.broken", "ModuleNotFoundError"]),
        (
            "from dataclasses import replace\nfrom corpusmill.sources.stages.index import STAGE",
            ["error[stage.name_twice]", "stage index"],
        ),
        (
            "from dataclasses import replace\nfrom corpusmill.sources.stages.index import STAGE as INDEX\n"
            "STAGE = replace(INDEX, name='mine', after=('yours',))",
            ["error[stage.waits_for_unknown]", "stage mine", "yours"],
        ),
        (
            "from dataclasses import replace\nfrom corpusmill.sources.stages.index import STAGE as INDEX\n"
            "STAGE = replace(INDEX, name='mine', after=('mine',))",
            ["error[stage.cycle]", "stage mine"],
        ),
        (
            "from dataclasses import replace\nfrom corpusmill.sources.stages.index import STAGE as INDEX\n"
            "STAGE = replace(INDEX, name='mine', after=())",
            ["error[stage.reads_without_waiting]", "stage mine", "download in `after`", "got       no stage"],
        ),
        (
            "from dataclasses import replace\nfrom corpusmill.sources.stages.index import STAGE as INDEX\n"
            "STAGE = replace(INDEX, name='../mine')",
            ["error[stage.name_not_plain]", "stage ../mine", "small letters"],
        ),
    ],
    ids=[
        "raises",
        "is no stage",
        "is not there",
        "name is taken",
        "waits for nothing",
        "circle",
        "does not wait",
        "path",
    ],
)
def test_stage_that_cannot_be_used_is_one_error_that_names_it(
    corpusmill: Run, tmp_path: Path, source: str | None, words: list[str]
) -> None:
    if source is not None:
        (tmp_path / "own" / "my_package" / "broken.py").write_text(source)
    done = corpusmill("plan", "tiny.yaml", CORPUSMILL_STAGES="my_package.broken")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_stage_whose_work_opens_a_missing_file_keeps_its_traceback(corpusmill: Run, tmp_path: Path) -> None:
    source = (tmp_path / "own" / "my_package" / f"{NAME}.py").read_text()
    broken = source.replace(
        "def run(inputs, settings, folder, resources):\n",
        "def run(inputs, settings, folder, resources):\n    open('words.txt')\n",
    )
    (tmp_path / "own" / "my_package" / "broken.py").write_text(broken)
    done = corpusmill("build", "tiny.yaml", "--workers", "1", CORPUSMILL_STAGES="my_package.broken")
    assert done.returncode == 1
    assert "open('words.txt')" in done.stderr
    assert f"in {NAME} 0000" in done.stderr
