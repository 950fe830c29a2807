"""Doing a step again, one that was cut off included, and what people are told before and after."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.dedup.ranges import read_ranges
from corpusmill.engine.build import Build
from corpusmill.engine.groups import LEAST_TASKS
from corpusmill.engine.preview import preview
from corpusmill.errors import SourceError
from corpusmill.ledger import read_receipt
from corpusmill.report.summary import from_json
from corpusmill.stages.announce import announcement
from corpusmill.stages.graph import open_build
from corpusmill.stages.report import SUMMARY, UNIT
from corpusmill.stages.union import CUT_RANGES, code_span, removal_in_words
from corpusmill.tokens.tokenizer import Tokenizer
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus


class CutOffError(Exception):
    """The worker dies here."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished build of the small corpus."""
    root = tmp_path_factory.mktemp("again")
    write_corpus(root / "corpus")
    small_batches = {"name": "cl100k_base", "batch_bytes": 2000}
    build_dataset(check_config(configuration(root, tokenizer=small_batches), where="a test"), workers=1)
    return root


@pytest.fixture
def build(root: Path) -> Build:
    return open_build(next((root / "work").glob("*/plan/*/receipt.json")))


def test_finished_task_is_reused_and_again_really_does_it_again(build: Build) -> None:
    shard = build.tasks("tokenize")[0]
    (path,) = build.run_task("tokenize", shard)
    digest, tokens = read_receipt(path).digest, path.parent / "tokens"
    inode = tokens.stat().st_ino
    tokens.rename(tokens.with_name("set aside"))  # keeps the inode from being given away again
    (tokens.with_name("set aside")).rename(tokens)
    build.run_task("tokenize", shard)
    assert tokens.stat().st_ino == inode
    kept = tokens.open("rb")
    build.run_task("tokenize", shard, again=True)
    assert tokens.stat().st_ino != inode
    kept.close()
    assert read_receipt(path).digest == digest


def test_again_does_every_step_of_a_task_with_several(build: Build) -> None:
    shard = build.tasks("scatter")[0]
    before = [path.stat().st_mtime_ns for path in build.run_task("scatter", shard)]
    assert len(before) == 2
    after = [path.stat().st_mtime_ns for path in build.run_task("scatter", shard, again=True)]
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_cleared_task_that_fails_keeps_its_receipt_for_other_tasks_and_its_retry_does_it_again(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = build.tasks("tokenize")[0]
    before = build.finished_at("tokenize", shard)

    def fail(*_: object) -> Any:
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode_counted", fail)
        with pytest.raises(CutOffError):
            open_build(build.plan_receipt).run_task("tokenize", shard, again=True)
        other = open_build(build.plan_receipt)
        other.folder("tokenize", shard)  # every byte as the receipt says
        assert other.finished_at("tokenize", shard) == before
        other.run_task("audit", other.tasks("audit")[0])
    (told,) = [item for item in preview(other) if item.stage == "tokenize" and item.fate == "run"]
    assert (told.unit, told.why) == (shard, "it was marked to run again, and has not finished since")

    open_build(build.plan_receipt).run_task("tokenize", shard)  # a retry: it is not called cleared any more
    assert build.finished_at("tokenize", shard) > before
    assert {item.fate for item in preview(open_build(build.plan_receipt)) if item.stage == "tokenize"} == {"reuse"}


def test_cleared_download_of_an_edited_source_fails_and_what_was_made_of_it_is_still_read(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    config = check_config(configuration(tmp_path), where="a test")
    built = open_build(build_dataset(config, workers=1))
    receipt = built.receipt("download", "00000")
    source = Path(built.plan.shards[0][0].location)
    source.write_bytes(source.read_bytes() + lines_of(make_documents(1, seed=77), 1000))
    with pytest.raises(SourceError):
        open_build(built.plan_receipt).run_task("download", "00000", again=True)
    other = open_build(built.plan_receipt)
    assert other.receipt("download", "00000") == receipt
    other.run_task("tokenize", "00000", again=True)  # StepMissingError without the receipts before it
    with pytest.raises(SourceError):
        other.run_task("download", "00000")  # its retry
    newer = open_build(build_dataset(config, workers=1))  # planned anew, the source is another one
    assert newer.plan_receipt != built.plan_receipt


def test_receipt_of_a_cleared_task_is_there_at_every_moment_of_its_doing_again(build: Build) -> None:
    shard = build.tasks("index")[0]
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(open_build(build.plan_receipt).run_task, "index", shard, again=True)
        looks = 0
        while not again.done() or not looks:
            open_build(build.plan_receipt).step("tokenize", shard)  # StepMissingError without the index's receipt
            looks += 1
    again.result()


def test_tasks_of_a_stage_with_little_work_in_many_cells_join_neighbours(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    config = check_config(configuration(tmp_path, shuffle={"seed": 7, "cells": 35}), where="a test")
    build_dataset(config, workers=1)
    build = open_build(next((tmp_path / "work").glob("*/plan/*/receipt.json")))
    tasks = build.tasks("gather")
    assert tasks[:2] == ["00000 to 00008", "00009 to 00016"]
    assert len(tasks) == LEAST_TASKS
    kinds = ("documents", "contexts")
    first = {f"{kind}-{cell:05d}" for kind in kinds for cell in range(9)}
    assert set(build.units_of_task("gather", tasks[0])) == first
    assert sorted(unit for task in tasks for unit in build.units_of_task("gather", task)) == sorted(
        build.units("gather")
    )
    ran = {receipt.parent for receipt in build.run_task("gather", tasks[0])}
    assert ran == {build.folder("gather", unit) for unit in first}


def test_tokenize_cut_off_begins_its_shard_anew_and_writes_the_same_bytes(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = max(build.units("tokenize"), key=lambda unit: build.receipt("tokenize", unit).counts["bytes_read"])
    path = build.run("tokenize", shard)
    digest, encode = read_receipt(path).digest, Tokenizer.encode_counted
    batches: list[list[bytes]] = []

    def encoding(stop: int | None) -> Any:
        def encode_some(tokenizer: Tokenizer, texts: list[bytes]) -> Any:
            if len(batches) == stop:
                raise CutOffError
            batches.append(texts)
            return encode(tokenizer, texts)

        return encode_some

    path.unlink()
    monkeypatch.setattr(Tokenizer, "encode_counted", encoding(4))
    with pytest.raises(CutOffError):
        open_build(build.plan_receipt).run("tokenize", shard)
    cut_off = list(batches)
    assert (path.parent / "tokens").exists()  # what it left is not believed

    batches.clear()
    monkeypatch.setattr(Tokenizer, "encode_counted", encoding(None))
    assert read_receipt(open_build(build.plan_receipt).run("tokenize", shard)).digest == digest
    assert batches[:4] == cut_off
    assert len(batches) > 4


def test_removal_in_words_states_the_counts_of_the_receipts(build: Build) -> None:
    printed = removal_in_words(build)
    assert f"{build.total('union', 'removed_bytes'):,} of {build.total('index', 'text_bytes_out'):,} bytes" in printed
    assert printed.count("| `") == 5


@pytest.mark.parametrize("dedup", [{"keep": "every_string"}, {"fuzzy_share": 0.8}], ids=["every string", "fuzzy"])
def test_duplicates_in_words_are_those_that_are_removed(root: Path, dedup: dict[str, object]) -> None:
    """Of fuzzy removal the ranges were counted before they were joined, and each was called a whole repeat."""
    changes = {"dedup": {"mode": "remove", "minimum_bytes": 20, **dedup}, "work_folder": str(root / next(iter(dedup)))}
    built = open_build(build_dataset(check_config(configuration(root, **changes), where="a test"), workers=1))
    cut = [read_ranges(built.folder("union", shard) / CUT_RANGES) for shard in built.units("union")]
    printed = removal_in_words(built)
    assert f"in {sum(map(len, cut)):,} ranges" in printed
    summary = from_json((built.folder("report", UNIT) / SUMMARY).read_bytes()).duplicates
    assert summary is not None
    assert summary.ranges.count == sum(map(len, cut))
    assert f"Ranges are {summary.range_in_words}." in printed
    shortest = min(int((rows[:, 1] - rows[:, 0]).min()) for rows in cut if len(rows))
    assert (shortest < 20 - 6) == ("a range may be far shorter" in printed)


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("a.jsonl", "`a.jsonl`"),
        ("a`![x](http://y)`.jsonl", "``a`![x](http://y)`.jsonl``"),
        ("`a``b`", "``` `a``b` ```"),
        ("a|b", r"`a\|b`"),
        ("a\x1b]52;c;b\n", r"`a\x1b]52;c;b\n`"),
    ],
)
def test_file_name_in_an_approval_stays_in_its_code_span(name: str, span: str) -> None:
    assert code_span(name) == span


def test_announcement_states_counts_and_a_digest_for_each_format(build: Build) -> None:
    printed = announcement(build)
    assert printed["tokens"] == build.total("tokenize", "tokens")
    assert set(printed["digests"]) >= {*build.config.exports.formats(), "documents"}
    assert printed == announcement(open_build(build.plan_receipt))
