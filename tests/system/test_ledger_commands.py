"""The commands on a finished dataset, as typed: plan, verify, trace, locate, reprocess, gc."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.local import build_dataset
from corpusmill.cli import app, main
from corpusmill.engine.claim import CLAIM, Holder, claim_dataset
from corpusmill.engine.ledger import RUN_LOCK, locked
from corpusmill.errors import TransientError
from tests.system.corpus import configuration, write_corpus


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from corpusmill.config import load_config

    root = tmp_path_factory.mktemp("commands")
    write_corpus(root / "corpus", documents=24)
    path = root / "tiny.yaml"
    path.write_text(yaml.safe_dump(configuration(root)))
    build_dataset(load_config(path), workers=1)
    return path


def run(*arguments: object, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == exit_code, done.output
    return done.output


def test_plan_command_of_a_finished_dataset_reuses_everything(config: Path) -> None:
    printed = run("plan", config)
    assert re.search(r"tokenize +\d+ reuse", printed)
    assert "runs every time" in printed
    assert "new" not in printed


def test_trace_and_locate_commands_lead_to_one_another(config: Path) -> None:
    for export in ("webdataset", "numpy", "megatron", "nanoset"):
        printed = run("trace", config, "--format", export, "--file", 0, "--record", 0)
        actual = re.search(r"(\S+\.jsonl\S*):(\d+) +(doc-\d+)", printed)
        assert actual, printed
        source, line, document_id = actual.groups()
        by_line = run("locate", config, "--source", source, "--line", line)
        assert f"{source}:{line}  id {document_id}" in by_line
        assert export in by_line
        assert by_line.strip() in run("locate", config, "--id", document_id)  # several files have such an id


def test_verify_command_exits_1_and_names_the_file_that_was_damaged(config: Path) -> None:
    assert "no errors found" in run("verify", config)
    assert "equal" in run("verify", config, "--sample", 5)
    path = next((config.parent / "work/tiny/gather").glob("*/tokens"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    printed = run("verify", config, exit_code=1)
    path.write_bytes(content)
    assert str(path) in printed.replace("\n", "")


def test_reprocess_command_ends_with_a_table_of_what_changed_and_what_did_not(config: Path) -> None:
    printed = run("reprocess", config, "--stage", "tokenize", "--shard", 1, "--workers", 1)
    assert "done again  tokenize 00001, scatter" in printed
    for stage in ("tokenize", "scatter", "gather", "export", "manifest"):
        assert re.search(rf"{stage} +\d+ unchanged +0 changed", printed), printed


def test_gc_command_lists_and_removes_only_when_asked(config: Path) -> None:
    killed = config.parent / "work/tiny/index/00009-0123456789abcdef"
    killed.mkdir()
    (killed / "tokenized").write_bytes(b"half")
    printed = run("gc", config)
    assert re.search(rf"\b4  {killed}  it has no receipt", printed), printed
    assert "can be removed: --remove does it" in printed
    assert killed.is_dir()
    assert "removed" in run("gc", config, "--remove")
    assert not killed.exists()
    assert "nothing is left over" in run("gc", config)


@pytest.mark.parametrize("holder", ["a run of an Airflow", "a process of this machine"])
@pytest.mark.parametrize(
    "command",
    [
        "build {}",
        "reprocess {} --stage tokenize --shard 1",
        "gc {} --remove",
        "download {}",
        "upload {}",
        "export {} --format nanoset",
    ],
)
def test_command_that_writes_refuses_a_dataset_that_another_has_and_leaves_it_alone(
    config: Path, holder: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = config.parent / "work/tiny"
    run_of_an_airflow = Holder("of another id", "dataset__tiny", "manual__1")
    process = holder == "a process of this machine"
    killed = work / "index/00009-0123456789abcdef"
    killed.mkdir()
    with locked(work / RUN_LOCK, wait=False) if process else nullcontext():
        if not process:
            claim_dataset(work, run_of_an_airflow, lambda _: True)
        before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.name != RUN_LOCK and path != work}
        monkeypatch.setattr("sys.argv", ["corpusmill", *command.format(config).split()])
        with pytest.raises(SystemExit) as ended:
            main()
        after = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.name != RUN_LOCK and path != work}
    (work / CLAIM).unlink(missing_ok=True)
    killed.rmdir()
    assert ended.value.code == TransientError.exit_code
    assert ("process " if process else "run manual__1 of dataset__tiny") in capsys.readouterr().err
    assert after == before
