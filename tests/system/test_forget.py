"""Documents that are to be forgotten: a build with a list of them is a build of sources without them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.forgetting.purge import purge, render_purge
from corpusmill.builds.forgetting.remains import search_for
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.commands import app
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.inspect.lineage import locate
from corpusmill.inspect.lineage.facts import DroppedLine
from corpusmill.inspect.verify import render, verify_build
from corpusmill.inspect.verify.destinations import IN_SPITE
from corpusmill.steps.stages import filter as filter_stage
from corpusmill.steps.takedowns import LOG, read_log, read_requests
from corpusmill.tokens.stages.tokenize import configured_tokenizer
from corpusmill.upload.stages.summarize import summarize
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, make_documents
from tests.system.test_steps import outputs

Row = dict[str, Any]
COPIED = "This text was posted by one person and copied by another. " * 8


def rows_of(seed: int) -> list[Row]:
    rows = [{"id": f"{seed}-{number}", "text": text} for number, text in enumerate(make_documents(24, seed=seed))]
    rows[5]["text"] = COPIED if seed < 2 else rows[5]["text"]  # 0-5 and 1-5 are copies
    return rows


def write_sources(root: Path, *, stay: Callable[[Row], bool] = lambda _row: True) -> None:
    folder = root / "corpus"
    folder.mkdir(parents=True)
    for seed in range(3):
        rows = [row for row in rows_of(seed) if stay(row)]
        (folder / f"part{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_list(root: Path, *rows: Row) -> None:
    root.mkdir(exist_ok=True)
    (root / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def settings(root: Path, copies: str = "", **changes: Any) -> Any:
    values: Row = {"source": {"paths": [str(root / "corpus")], "shard_bytes": 1}, **changes}
    if copies:
        values["forget"] = {"path": str(root / "list.jsonl"), "copies": copies, **values.pop("listed", {})}
    return check_config(configuration(root, **values), where="test")


def build(config: Any) -> Any:
    return open_build(build_dataset(config, workers=1))


def step_times(of: Any, *stages: str) -> dict[tuple[str, str], int]:
    return {
        (stage, unit): (of.step_folder(stage, unit) / RECEIPT_NAME).stat().st_mtime_ns
        for stage in stages
        for unit in of.units(stage)
    }


@pytest.mark.parametrize("copies", ["keep", "also"])
def test_build_that_forgets_is_a_build_of_sources_without_the_documents(copies: str, tmp_path: Path) -> None:
    gone = {"0-5", "2-1", "2-23", *(["1-5"] if copies == "also" else [])}
    write_sources(tmp_path / "one")
    write_sources(tmp_path / "other", stay=lambda row: row["id"] not in gone)
    write_list(tmp_path / "one", {"id": "0-5"}, {"id": "2-23"}, {"id": "2-1"}, {"id": "0-5"})
    dedup = {"mode": "remove", "minimum_bytes": 50}
    of = build(settings(tmp_path / "one", copies, dedup=dedup))
    build(settings(tmp_path / "other", dedup=dedup))
    assert outputs(tmp_path / "one") == outputs(tmp_path / "other")
    assert of.units("filter") == (["00000", "00001", "00002"] if copies == "also" else ["00000", "00002"])
    assert all(check.ok for check in summarize(of).checks)
    assert verify_build(of).findings == ()


def test_list_by_file_and_line_forgets_those_lines(tmp_path: Path) -> None:
    write_sources(tmp_path / "one")
    write_sources(tmp_path / "other", stay=lambda row: row["id"] not in {"1-0", "1-9"})
    write_list(tmp_path / "one", {"file": "part1.jsonl", "line": 1}, {"file": "part1.jsonl", "line": 10})
    build(settings(tmp_path / "one", "keep", listed={"key": ["file", "line"]}))
    build(settings(tmp_path / "other"))
    assert outputs(tmp_path / "one") == outputs(tmp_path / "other")


def test_another_id_runs_steps_again_of_the_shard_that_holds_it_alone(tmp_path: Path) -> None:
    write_sources(tmp_path)
    before = step_times(build(settings(tmp_path)), "index", "anchor", "tokenize")
    write_list(tmp_path, {"id": "1-3"})
    first = build(settings(tmp_path, "also"))
    middle = step_times(first, "index", "anchor", "tokenize", "filter")
    assert {step for step, at in middle.items() if before.get(step) != at} == {
        ("filter", "00001"),
        ("anchor", "00001"),
        ("tokenize", "00001"),
    }
    write_list(tmp_path, {"id": "1-3"}, {"id": "2-7"})
    after = step_times(build(settings(tmp_path, "also")), "index", "anchor", "tokenize", "filter")
    assert {step for step, at in after.items() if middle.get(step) != at} == {
        ("filter", "00002"),
        ("anchor", "00002"),
        ("tokenize", "00002"),
    }


def test_list_that_matches_no_document_is_no_success_of_build_purge_or_verify(tmp_path: Path) -> None:
    write_sources(tmp_path)
    build(settings(tmp_path))
    before = outputs(tmp_path)
    write_list(tmp_path, {"id": "nobody"}, {"id": "no one"})
    config = settings(tmp_path, "also")
    with raises("decisions.unmatched", "2 of 2 rows", "list.jsonl, row 1\n") as caught:
        build(config)
    assert outputs(tmp_path) == before
    planned = open_build(plan_dataset(config))
    verification = verify_build(planned)
    refused = verification.findings[0]
    assert refused.what == "2 of 2 rows of the list to forget match no document"
    assert refused.where == "list.jsonl, row 1\nlist.jsonl, row 2"
    advice = dict(caught.value.details)["next"]
    assert refused.next_step == advice
    lines = render(verification).splitlines()
    assert lines[2:8] == [
        "1. 2 of 2 rows of the list to forget match no document",
        "   where     list.jsonl, row 1",
        "             list.jsonl, row 2",
        "   expected  a row that matches",
        "   got       100.0000% unmatched",
        f"   next      {advice}",
    ]
    assert lines[-1].startswith(
        "next  first what the finding itself says; then build again with --verify"
    )  # copies lack
    alone = render(replace(verification, findings=(refused,)))
    assert alone.splitlines() == [lines[0].replace("4 findings", "1 finding"), *lines[1:8]]
    with raises("forget.version_of_other_configuration"):
        purge(planned)


@pytest.mark.parametrize("row", [None, ["0-5"], {"id": None}, {"id": True}, {"id": 0.5}, {"id": ["0-5"]}, {}])
def test_list_with_a_row_that_is_null_or_of_another_type_is_refused_by_file_and_row(tmp_path: Path, row: Any) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "0-5"}, row, {"id": "2-1"})
    with raises("decisions.no_key decisions.not_readable") as refused:
        build(settings(tmp_path, "also"))
    assert dict(refused.value.details)["where"] == "list.jsonl, row 2"
    assert not (tmp_path / "outputs").exists()
    assert not (tmp_path / "work/tiny/filter").exists()
    (tmp_path / "asked.jsonl").write_text(json.dumps({"id": "1-1"}) + "\n" + json.dumps(row) + "\n")
    with raises("decisions.no_key decisions.not_readable") as asked:
        read_requests(settings(tmp_path, "also").forget, str(tmp_path / "asked.jsonl"))
    assert dict(asked.value.details)["where"] == "asked.jsonl, row 2"


@pytest.mark.parametrize("long_lived", [True, False])
def test_list_of_documents_that_the_sources_removed_fails_until_its_share_may_be_1(
    long_lived: bool, tmp_path: Path
) -> None:
    """With the log of an earlier version, and from scratch; every row may be required to match, too."""
    write_list(tmp_path, {"id": "0-5"}, {"id": "2-1"})
    if long_lived:
        write_sources(tmp_path)
        build(settings(tmp_path, "also"))
        shutil.rmtree(tmp_path / "corpus")
    write_sources(tmp_path, stay=lambda row: row["id"] not in {"0-5", "2-1"})
    with raises("decisions.unmatched"):
        build(settings(tmp_path, "also"))
    of = build(settings(tmp_path, "also", listed={"max_unmatched_share": 1}))
    assert verify_build(of).findings == ()
    assert "0 of 2 rows match a document" in render_purge(purge(of))
    shutil.rmtree(tmp_path / "corpus")
    write_sources(tmp_path, stay=lambda row: row["id"] != "2-1")  # one of them is back
    of = build(settings(tmp_path, "also", listed={"max_unmatched_share": 1}))
    assert (of.total("join", "forgotten"), of.receipt("decided", "forgotten").counts["unmatched"]) == (1, 1)
    with raises("decisions.unmatched", "1 of 2 rows"):
        build(settings(tmp_path, "also", listed={"max_unmatched_share": 0.4}))


def test_rows_that_match_and_rows_that_do_not_are_named_by_report_purge_and_verify(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "nobody"}, {"id": "0-5"}, {"id": "no one"})
    of = build(settings(tmp_path, "also"))
    filtered = summarize(of).filtered
    assert filtered is not None
    expected = "1 of 3 rows match a document; not list.jsonl row 1, list.jsonl row 3"
    assert [found.matched_text() for found in filtered.decisions] == [expected]
    verification = verify_build(of)
    assert (verification.findings, verification.lists) == ((), (f"forgotten: {expected}",))
    assert f"list: {expected}" in render_purge(purge(of))


def test_estimate_of_a_sample_without_the_listed_documents_is_no_error(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "nobody"})
    assert estimate_dataset(settings(tmp_path, "keep")).tokens > 0


def test_forget_says_which_ids_match_and_fails_if_none_does(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "0-5"})
    values = settings(tmp_path, "keep").model_dump(mode="json", exclude_none=True)
    (tmp_path / "tiny.yaml").write_text(json.dumps(values))

    def forget(*ids: str) -> tuple[int, str]:
        (tmp_path / "ids.txt").write_text("\n".join(ids))
        done = CliRunner().invoke(app, ["forget", str(tmp_path / "tiny.yaml"), "--ids", str(tmp_path / "ids.txt")])
        return done.exit_code, done.output.splitlines()[-1]

    assert forget("1-2") == (0, "the next build says which of them match a document")
    build(settings(tmp_path, "keep"))
    assert forget("3", "4") == (1, "0 of 2 match a document of the last build; not 3, 4")
    assert forget("3", "2-7") == (0, "1 of 2 match a document of the last build; not 3")
    assert forget("1-2", "0-5") == (0, "2 of 2 match a document of the last build")
    assert forget() == (1, "0 of 0 match a document of the last build")


def test_log_names_no_document_that_the_sources_do_not_have(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "none-1"}, {"id": "0-4"}, {"id": "none-1"}, {"id": "none-2", "asked_by": "x"})
    of = build(settings(tmp_path, "keep"))
    assert [row["id"] for row in read_log(of.work / LOG)] == ["0-4"]
    assert of.receipt("decided", "forgotten").counts["unmatched"] == 2


def test_list_of_ids_is_read_as_written_and_white_space_around_an_id_is_refused(tmp_path: Path) -> None:
    forget = settings(tmp_path, "keep").forget
    (tmp_path / "ids.txt").write_bytes("\ufeffone\r\n\r\ntwo words\n".encode())
    assert read_requests(forget, str(tmp_path / "ids.txt")) == [("one",), ("two words",)]
    for text in ("one\ntwo \n", "one\n\ttwo", " \n"):
        (tmp_path / "ids.txt").write_text(text)
        with raises("forget.white_space") as caught:
            read_requests(forget, str(tmp_path / "ids.txt"))
        assert "two" not in str(caught.value)


def test_nothing_but_its_place_is_written_of_a_forgotten_document(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "0-5"})
    decisions = [{"name": "quality", "path": str(tmp_path / "list.jsonl"), "keep": "id is null", "key": "id"}]
    of = build(settings(tmp_path, "also", decisions=decisions))
    rows = [json.loads(line) for line in outputs(tmp_path)["steps/dropped.jsonl"].splitlines()]
    assert rows == [
        {"file": "part0.jsonl", "line": 6, "id": "", "reason": "forgotten"},
        {"file": "part1.jsonl", "line": 6, "id": "", "reason": "forgotten: copy"},
    ]
    written = b"".join(path.read_bytes() for path in of.step_folder("report", "report").iterdir())
    assert COPIED[:50].encode() not in written
    assert not any((of.step_folder("filter", shard) / "samples.jsonl").read_bytes() for shard in of.units("filter"))
    line = locate(of, "part0.jsonl", 6)
    assert isinstance(line, DroppedLine)
    assert line.reason == "forgotten"


def plant(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


@pytest.mark.parametrize("copies", ["keep", "also"])
def test_verify_finds_the_text_of_a_forgotten_document_in_every_format(copies: str, tmp_path: Path) -> None:
    write_sources(tmp_path)
    mine = max(rows_of(2), key=lambda row: len(row["text"]))
    write_list(tmp_path, {"id": mine["id"]}, {"id": "0-5"})
    of = build(settings(tmp_path, copies))
    assert not [finding for finding in verify_build(of).findings if finding.what == IN_SPITE]
    text = mine["text"][100:700]
    tokens = configured_tokenizer(of.config).encode([text.encode()])[0]
    version = next(
        path for path in (tmp_path / "outputs" / "tiny").iterdir() if path.is_dir() and not path.is_symlink()
    )
    exported = tokens.astype("<u4").tobytes()
    files = {
        next(version.rglob(name)): data
        for name, data in {
            "part1.jsonl": json.dumps({"text": text}).encode(),
            "*.npy": exported,
            "*.bin": exported,
            "*.ds": exported,
            "manifest.jsonl": json.dumps(tokens.tolist()).encode(),
        }.items()
    }
    files[of.step_folder("report", "report") / "report.html"] = text.encode()
    for path, data in files.items():
        plant(path, data)
    actual = {finding.where: finding.got for finding in verify_build(of).findings if finding.what == IN_SPITE}
    assert {Path(where).stat().st_ino for where in actual} == {path.stat().st_ino for path in files}  # some are links
    assert set(actual.values()) == {f"text of 1 documents: part2.jsonl line {int(mine['id'][2:]) + 1}"}


def test_text_that_a_dropped_document_shares_with_a_forgotten_one_is_no_finding(tmp_path: Path) -> None:
    """Samples and report have an excerpt of it; with `copies: keep` it may be dropped for reasons of its own."""
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "0-5"})
    (tmp_path / "scores.jsonl").write_text('{"id": "1-5", "score": 0}\n')
    decisions = [{"name": "quality", "path": str(tmp_path / "scores.jsonl"), "keep": "score > 0", "key": "id"}]
    of = build(settings(tmp_path, "keep", decisions=decisions))
    assert COPIED[:100] in (of.step_folder("filter", "00001") / "samples.jsonl").read_text()
    assert verify_build(of).findings == ()
    assert search_for(of).unsearchable == 1
    done = purge(of)
    assert (done.remains, done.unsearchable) == ([], 1)


def test_verify_finds_a_document_that_the_filter_left_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "1-3"})
    monkeypatch.setattr(filter_stage, "_lists", lambda _build, _shard: [])
    of = build(settings(tmp_path, "keep"))
    actual = [finding for finding in verify_build(of).findings if finding.what == IN_SPITE]
    assert (actual[0].where, actual[0].got) == ("part1.jsonl line 4", "its id, or its file and line")


def test_damaged_file_that_the_report_reads_is_mended_by_the_next_build(tmp_path: Path) -> None:
    """The report runs every time and reads files of steps that no step names as inputs."""
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "none-1"}, {"id": "0-4"}, {"id": "1-5"})
    of = build(settings(tmp_path, "also"))
    before = outputs(tmp_path)
    stages = ("decisions", "join", "decided", "copies", "filter")
    folders = [of.step_folder(stage, unit) for stage in stages for unit in of.units(stage)]
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    files = [path for path in files if path.name not in {RECEIPT_NAME} and path.stat().st_size]
    assert "unmatched.jsonl" in {path.name for path in files}
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        build(settings(tmp_path, "also"))
        assert outputs(tmp_path) == before
        assert path.name != "unmatched.jsonl" or path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]\n", b'{"id": "a"}\n', b"\xff\n"])
def test_damaged_log_is_an_error_that_names_its_line_and_quotes_nothing(damage: bytes, tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_list(tmp_path, {"id": "0-4"}, {"id": "1-5"})
    of = build(settings(tmp_path, "keep"))
    log = of.work / LOG
    first, second = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + (damage or second[:-9]))
    for read in (lambda: read_log(log), lambda: build(settings(tmp_path, "keep"))):
        with raises("forget.log_damaged", "jsonl, line 2") as caught:
            read()
        assert "1-5" not in str(caught.value)
    log.write_bytes(first)
    build(settings(tmp_path, "keep"))
    assert [row["id"] for row in read_log(log)] == ["0-4", "1-5"]


def test_list_that_is_not_there_is_an_error_of_the_plan(tmp_path: Path) -> None:
    write_sources(tmp_path)
    with raises("source.missing", "list.jsonl"):
        plan_dataset(settings(tmp_path, "keep"), to_build=True)


def test_name_of_the_list_is_refused_for_decisions(tmp_path: Path) -> None:
    with raises("config.step_name_reserved", "forgotten"):
        settings(tmp_path, decisions=[{"name": "forgotten", "path": "x.jsonl", "keep": "id is null"}])


def test_stages_that_forget_have_no_units_without_a_list(tmp_path: Path) -> None:
    write_sources(tmp_path)
    of = build(settings(tmp_path))
    assert not any(of.units(stage) for stage in GRAPH.names if stage in {"decisions", "join", "copies", "filter"})


def test_reference_that_holds_a_forgotten_text_is_not_the_dataset(tmp_path: Path) -> None:
    write_sources(tmp_path)
    mine = rows_of(2)[1]
    (tmp_path / "old.jsonl").write_text(json.dumps(mine) + "\n")
    write_list(tmp_path, {"id": mine["id"]})
    against = {"mode": "remove", "minimum_bytes": 100, "against": [str(tmp_path / "old.jsonl")]}
    of = build(settings(tmp_path, "keep", dedup=against))
    assert verify_build(of).findings == ()


@pytest.mark.parametrize("minimum_bytes", quick([60, 100, 30], 1, 1))
def test_forgotten_text_that_references_repeat_is_in_no_report(minimum_bytes: int, tmp_path: Path) -> None:
    write_sources(tmp_path)
    mine = {"id": "mine", "text": " ".join(f"{number} private words that nobody else wrote." for number in range(20))}
    (tmp_path / "corpus" / "part3.jsonl").write_text(json.dumps(mine) + "\n")
    (tmp_path / "old.jsonl").write_text((json.dumps(mine) + "\n") * 90)
    write_list(tmp_path, {"id": mine["id"]})
    against = {"mode": "remove", "minimum_bytes": minimum_bytes, "against": [str(tmp_path / "old.jsonl")]}
    of = build(settings(tmp_path, "keep", dedup=against))
    duplicates = summarize(of).duplicates
    assert duplicates is not None
    ours = "".join(row["text"] for seed in range(3) for row in rows_of(seed))
    assert duplicates.most_repeated
    assert all(string.excerpt in ours for string in duplicates.most_repeated)
    assert verify_build(of).findings == ()
    assert purge(of).remains == []
