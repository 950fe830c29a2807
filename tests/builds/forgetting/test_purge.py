"""Purge: after it, nothing that a dataset's builds left behind has the text of a forgotten document."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.builds.forgetting.purge import purge, render_preview, render_purge
from corpusmill.builds.graph import open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.commands import app
from corpusmill.engine.preview import preview
from corpusmill.errors import ConfigError
from corpusmill.inspect.lineage import locate
from corpusmill.inspect.lineage.facts import RejectedLine
from corpusmill.inspect.verify import verify_build
from tests.raising import raises
from tests.system.kept import keep, put_back
from tests.system.test_forget import build, rows_of, settings, write_list, write_sources

MINE = max(rows_of(2), key=lambda row: len(row["text"]))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset built whole, and again without MINE."""
    root = tmp_path_factory.mktemp("twice")
    write_sources(root)
    build(settings(root))
    write_list(root, {"id": MINE["id"]})
    of = build(settings(root, "also"))
    keep(root)
    return of.plan_receipt


@pytest.fixture
def root(plan: Path) -> Path:
    """Its folder, as it was built: a test may change it."""
    root = plan.parents[4]
    put_back(root)
    write_list(root, {"id": MINE["id"]})
    return root


def holds(path: Path, text: str) -> bool:
    """Whether a file has a text, as text or as JSON: an oracle that knows nothing of stretches."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return any(form.encode() in data for form in (text, json.dumps(text)[1:-1]))


def holding(root: Path, text: str) -> list[Path]:
    return [
        path
        for name in ("work", "outputs")
        for path in (root / name).rglob("*")
        if path.is_file() and holds(path, text)
    ]


def test_purge_leaves_no_file_with_the_text(plan: Path, root: Path) -> None:
    of = open_build(plan)
    middle = MINE["text"][len(MINE["text"]) // 2 :][:120]
    old = {path.parent.parent.name for path in holding(root / "outputs", middle)}
    assert holding(root, middle)
    (of.work / "arriving").mkdir()
    (of.work / "arriving" / "0123").write_bytes(gzip.compress(MINE["text"].encode())[:-9])  # an interrupted download
    copy = of.work / "report" / "report-0123456789abcdef"  # of a build whose plan is gone
    copy.mkdir()
    (copy / "report.html").write_text(MINE["text"])
    before = sorted(root.rglob("*"))
    listed = {line.split()[-1] for line in render_preview(of).splitlines()[:-1]}
    assert sorted(root.rglob("*")) == before
    done = purge(of)
    steps = {str(of.work.joinpath(*Path(name).relative_to(of.work).parts[:2])) for name in done.reclaimed}
    assert (steps <= listed, {*done.removed} - listed) == (True, set())
    assert not (of.work / "arriving").exists()
    assert (done.documents, done.unsearchable, done.remains) == (1, 0, [])
    assert holding(root, middle) == []
    assert done.out_of_reach == ["part2.jsonl (a source)"]
    versions = [path.name for path in (root / "outputs" / "tiny").iterdir() if path.is_dir() and not path.is_symlink()]
    assert versions == [(root / "outputs" / "tiny" / "latest").resolve().name]
    assert not old & set(versions)
    assert verify_build(of).findings == ()
    assert all(item.fate == "reuse" or item.why == "runs every time" for item in preview(of))
    assert MINE["text"][:40] not in render_purge(done)


def test_purge_again_and_a_build_behind_it_change_nothing(tmp_path: Path) -> None:
    changes = {"source": {"paths": [str(tmp_path / "corpus")], "shard_bytes": 1, "max_rejected_share": 0.5}}
    write_sources(tmp_path)
    (tmp_path / "corpus" / "part2.jsonl").open("a").write("no document\n")
    write_list(tmp_path, {"id": MINE["id"]})
    purge(build(settings(tmp_path, "also", **changes)))
    before = {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()}
    of = build(settings(tmp_path, "also", **changes))
    again = purge(of)
    assert verify_build(of).findings == ()
    assert isinstance(locate(of, "part2.jsonl", 25), RejectedLine)
    assert (again.documents, again.unsearchable, again.remains) == (1, 1, [])
    assert {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()} == before


def test_another_id_of_a_purged_shard_is_forgotten_too(plan: Path, root: Path) -> None:
    purge(open_build(plan))
    write_list(root, {"id": MINE["id"]}, {"id": "2-3"})
    done = purge(build(settings(root, "also")))
    assert (done.documents, done.remains) == (2, [])


def test_text_that_purge_may_not_touch_is_named(plan: Path, root: Path) -> None:
    of = open_build(plan)
    strange = root / "outputs" / "tiny" / "0123456789ab"
    strange.mkdir()
    (strange / "copy.jsonl").write_text(json.dumps({"text": MINE["text"]}))
    for _ in range(2):  # a purge that failed fails again, as long as the file is there
        done = purge(of)
        assert (done.remains, done.unsearchable, done.reclaimed) == ([str(strange / "copy.jsonl")], 0, [])
        assert f"{strange} (no run of this work folder delivered it)" in done.out_of_reach
    (strange / "copy.jsonl").unlink()
    assert purge(of).remains == []
    assert holding(root / "work", MINE["text"][:120]) == []


def test_version_that_another_dataset_is_built_against_is_out_of_reach(tmp_path: Path) -> None:
    write_sources(tmp_path)
    first = (tmp_path / "outputs" / "tiny").joinpath
    build(settings(tmp_path))
    old = first("latest").resolve()
    build(settings(tmp_path, name="other", source={"paths": [str(old / "documents")], "shard_bytes": 1}))
    write_list(tmp_path, {"id": MINE["id"]})
    done = purge(build(settings(tmp_path, "also")))
    assert f"{old} (another dataset is built against it)" in done.out_of_reach
    assert old.is_dir()
    assert any(remain.startswith(str(old)) for remain in done.remains)


def test_purge_of_a_list_that_no_build_has_seen_is_refused(root: Path) -> None:
    write_list(root, {"id": MINE["id"]}, {"id": "2-3"})
    with raises("forget.version_of_other_configuration"):
        purge(open_build(plan_dataset(settings(root, "also"))))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_command_adds_ids_and_the_log_says_when_they_were_gone(tmp_path: Path) -> None:
    write_sources(tmp_path)
    config = settings(tmp_path, "also")
    (tmp_path / "tiny.yaml").write_text(config.model_dump_json(exclude_none=True))
    (tmp_path / "ids.txt").write_text("0-5\n\n2-1\n0-5\n")
    printed = run("forget", str(tmp_path / "tiny.yaml"), "--ids", str(tmp_path / "ids.txt"), "--by", "anna")
    assert "3 rows, 2 of them new" in printed
    printed = run("forget", str(tmp_path / "tiny.yaml"), "--ids", str(tmp_path / "ids.txt"), "--by", "bert")
    assert "3 rows, 0 of them new" in printed
    assert run("forget", str(tmp_path / "tiny.yaml")) == ""
    build(config)
    build(config)
    log = [json.loads(line) for line in run("forget", str(tmp_path / "tiny.yaml")).splitlines()]
    assert [(row["id"], row["asked_by"]) for row in log] == [("0-5", "anna"), ("2-1", "anna")]
    latest = (tmp_path / "outputs" / "tiny" / "latest").resolve().name
    assert {row["version"] for row in log} == {latest}
    assert all(row["asked_at"] <= row["gone_at"] for row in log)
    printed = run("forget", str(tmp_path / "tiny.yaml"), "--purge", "--remove")
    assert "purged 3 forgotten documents" in printed


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_command_with_ids_that_cannot_be_read_names_the_file(content: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(settings(tmp_path, "also").model_dump_json(exclude_none=True))
    if content:
        (tmp_path / "ids.txt").write_bytes(content)
    result = CliRunner().invoke(app, ["forget", str(tmp_path / "tiny.yaml"), "--ids", str(tmp_path / "ids.txt")])
    assert isinstance(result.exception, ConfigError)
    assert str(tmp_path / "ids.txt") in str(result.exception)
    assert not (tmp_path / "list.jsonl").exists()


def test_command_without_a_list_says_what_to_add(tmp_path: Path) -> None:
    write_sources(tmp_path)
    (tmp_path / "tiny.yaml").write_text(settings(tmp_path).model_dump_json(exclude_none=True))
    result = CliRunner().invoke(app, ["forget", str(tmp_path / "tiny.yaml"), "--ids", "ids.txt"])
    assert "no list of documents to forget" in str(result.exception)
