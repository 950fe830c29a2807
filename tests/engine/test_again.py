"""Doing a step again, one that was cut off included, and what people are told before and after."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.dedup.ranges import read_ranges
from corpusmill.dedup.stages.union import CUT_RANGES, code_span, removal_in_words
from corpusmill.engine.ledger import read_receipt
from corpusmill.engine.preview import preview
from corpusmill.engine.running import RunnableBuild
from corpusmill.report.summary import from_json
from corpusmill.tokens.tokenizer import Tokenizer
from corpusmill.upload.stages.report import SUMMARY, UNIT, announcement
from tests.raising import raises
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
def build(root: Path) -> RunnableBuild:
    return open_build(next((root / "work").glob("*/plan/*/receipt.json")))


def run_again(build: RunnableBuild, stage: str, unit: str) -> Path:
    build.ask_for(stage, unit)
    return build.run(stage, unit)


def test_finished_step_is_reused_and_again_really_does_it_again(build: RunnableBuild) -> None:
    shard = build.units("tokenize")[0]
    path = build.run("tokenize", shard)
    digest, tokens = read_receipt(path).digest, path.parent / "tokens"
    inode = tokens.stat().st_ino
    tokens.rename(tokens.with_name("set aside"))  # keeps the inode from being given away again
    (tokens.with_name("set aside")).rename(tokens)
    build.run("tokenize", shard)
    assert tokens.stat().st_ino == inode
    kept = tokens.open("rb")
    run_again(build, "tokenize", shard)
    assert tokens.stat().st_ino != inode
    kept.close()
    assert read_receipt(path).digest == digest


def test_cleared_task_that_fails_keeps_its_receipt_for_other_tasks_and_its_retry_does_it_again(
    build: RunnableBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = build.units("tokenize")[0]
    before = build.finished_at("tokenize", shard)

    def fail(*_: object) -> Any:
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode_counted", fail)
        with pytest.raises(CutOffError):
            run_again(open_build(build.plan_receipt), "tokenize", shard)
        other = open_build(build.plan_receipt)
        other.folder("tokenize", shard)  # every byte as the receipt says
        assert other.finished_at("tokenize", shard) == before
        other.run("audit", other.units("audit")[0])
    (told,) = [item for item in preview(other) if item.stage == "tokenize" and item.fate == "run"]
    assert (told.unit, told.why) == (shard, "it was marked to run again, and has not finished since")

    open_build(build.plan_receipt).run("tokenize", shard)  # a retry: it is not called cleared any more
    assert build.finished_at("tokenize", shard) > before
    assert {item.fate for item in preview(open_build(build.plan_receipt)) if item.stage == "tokenize"} == {"reuse"}


def test_cleared_download_of_an_edited_source_fails_and_what_was_made_of_it_is_still_read(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    config = check_config(configuration(tmp_path), where="a test")
    built = open_build(build_dataset(config, workers=1))
    receipt = built.receipt("download", "00000")
    source = Path(built.plan.shards[0][0].location)
    source.write_bytes(source.read_bytes() + lines_of(make_documents(1, seed=77), 1000))
    with raises("source.changed_since_planned"):
        run_again(open_build(built.plan_receipt), "download", "00000")
    other = open_build(built.plan_receipt)
    assert other.receipt("download", "00000") == receipt
    run_again(other, "tokenize", "00000")  # StepMissingError without the receipts before it
    with raises("source.changed_since_planned"):
        other.run("download", "00000")  # its retry
    newer = open_build(build_dataset(config, workers=1))  # planned anew, the source is another one
    assert newer.plan_receipt != built.plan_receipt


def test_receipt_of_a_cleared_task_is_there_at_every_moment_of_its_doing_again(build: RunnableBuild) -> None:
    shard = build.units("index")[0]
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(run_again, open_build(build.plan_receipt), "index", shard)
        looks = 0
        while not again.done() or not looks:
            open_build(build.plan_receipt).step("tokenize", shard)  # StepMissingError without the index's receipt
            looks += 1
    again.result()


def test_tokenize_cut_off_begins_its_shard_anew_and_writes_the_same_bytes(
    build: RunnableBuild, monkeypatch: pytest.MonkeyPatch
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


def test_removal_in_words_states_the_counts_of_the_receipts(build: RunnableBuild) -> None:
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


def test_announcement_states_counts_and_a_digest_for_each_format(build: RunnableBuild) -> None:
    printed = announcement(build)
    assert printed["tokens"] == build.total("tokenize", "tokens")
    assert set(printed["digests"]) >= {*build.config.exports.formats(), "documents"}
    assert printed == announcement(open_build(build.plan_receipt))
