"""Steps before writeback: accounts, lineage and reuse. tests/search/test_chain.py compares what is delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.reprocess import begin
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import Tracer, locate, render_located
from corpusmill.inspect.lineage.facts import DroppedLine, Located, Piece
from corpusmill.inspect.lineage.records import find_output
from corpusmill.inspect.lineage.verify import verify_records
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import shard_table, summarize
from tests.oracles import dedup
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, reused

MINIMUM_BYTES = 60
STEPS = """
from corpusmill.steps import Keep

def few_stones(document):
    return document.text.count("stone") % 3 != 0

def pebbles(document):
    return document.text.replace("water", "brook") if "foo()" in document.text else None

def marked(document):
    return Keep(document.text + "!", [], {"stones": 1}) if "stone" in document.text else None
"""
LATE = [{"use": f"my_filters:{name}", "before": "writeback"} for name in ("few_stones", "pebbles")]


def texts_of(seed: int) -> list[str]:
    return make_documents(20, seed=seed % 2)  # the third file repeats the first


def sources(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    patch.setenv("CORPUSMILL_ROOT", str(folder))
    (folder / "my_filters.py").write_text(STEPS)
    for seed in range(3):
        write(folder, seed, texts_of(seed))
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return sources(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    with pytest.MonkeyPatch.context() as patch:
        yield build(sources(tmp_path_factory.mktemp("late"), patch))


def write(root: Path, seed: int, texts: list[str]) -> None:
    (root / "corpus").mkdir(exist_ok=True)
    lines = [json.dumps({"id": f"{seed}-{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (root / "corpus" / f"part{seed}.jsonl").write_text("".join(lines))


def build(root: Path, **changes: Any) -> Build:
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    wanted = {"source": source, "dedup": {"mode": "remove", "minimum_bytes": MINIMUM_BYTES}, "steps": LATE, **changes}
    return open_build(build_dataset(check_config(configuration(root, **wanted), where="test"), workers=1))


def lost_by_windows(shards: list[list[str]], keep: str) -> tuple[int, int]:
    """Documents that `few_stones` drops, and bytes of them, that were the only copy left: every window looked at."""
    laid_out = [dedup.text_of(text.encode() for text in texts) for texts in shards]
    find = dedup.kept_whole_ranges if keep == "every_string" else dedup.remove_ranges
    ranges = find([text for text, _ in laid_out], MINIMUM_BYTES)
    places: dict[bytes, list[tuple[int, int]]] = {}
    for number, (text, _) in enumerate(laid_out):
        for at in range(len(text) - MINIMUM_BYTES + 1):
            places.setdefault(text[at : at + MINIMUM_BYTES], []).append((number, at))
    repeated = [first for window, (first, *others) in places.items() if others and dedup.SEPARATOR not in window]
    kept_copies = {(number, at + i) for number, at in repeated for i in range(MINIMUM_BYTES)}
    removed = {(n, at) for n, own in enumerate(ranges) for start, end in own for at in range(start, end)}
    lost = []
    for number, (text, offsets) in enumerate(laid_out):
        for separator, end in zip(offsets, [*offsets[1:], len(text)], strict=True):
            kept = [at for at in range(separator + 1, end) if (number, at) not in removed]
            left = bytes(text[at] for at in kept).decode()
            if kept and left.count("stone") % 3 == 0:
                lost.append(sum((number, at) in kept_copies for at in kept))
    return sum(size > 0 for size in lost), sum(lost)


@pytest.mark.parametrize("keep", ["first_window", "every_string"])
def test_text_whose_only_copy_was_dropped_is_counted_and_stated(root: Path, keep: str) -> None:
    # ASCII, so that ranges are cut at no character and the oracle's bytes are those of the build
    plain = [[text.encode("ascii", "replace").decode() for text in texts_of(seed)] for seed in range(3)]
    for seed, texts in enumerate(plain):
        write(root, seed, texts)
    of = build(root, dedup={"mode": "remove", "minimum_bytes": MINIMUM_BYTES, "keep": keep})
    summary = summarize(of)
    actual = summary.filtered
    assert actual is not None
    assert (actual.documents_lost, actual.text_bytes_lost) == lost_by_windows(plain, keep)
    assert actual.text_bytes_lost > 0
    balance = {check.name: dict(check.right) for check in summary.checks}
    assert balance["lost: dropped text bytes"]["the only copy left of repeated text"] == actual.text_bytes_lost
    assert "held the last copy of repeated text" in (of.folder("report", "report") / "report.html").read_text()


def test_document_that_steps_rewrite_before_and_after_deduplication_counts_once_in_each(root: Path) -> None:
    of = build(
        root, steps=[{"use": "my_filters:marked"}, {"use": "my_filters:marked", "name": "x", "before": "writeback"}]
    )
    actual = summarize(of).filtered
    assert actual is not None
    rewritten = sum("stone" in text for seed in range(3) for text in texts_of(seed))
    assert (actual.documents_rewritten, actual.documents_with_attributes) == (rewritten, rewritten)
    assert 0 < actual.documents_rewritten_late == actual.documents_with_attributes_late <= rewritten
    page = " ".join((of.folder("report", "report") / "report.html").read_text().split())
    assert f"{rewritten} were rewritten before deduplication and {actual.documents_rewritten_late} after it." in page
    assert (
        f"of {rewritten} documents from steps before deduplication and of {actual.documents_rewritten_late} from"
        in page
    )


def test_build_with_late_steps_balances_verifies_and_makes_its_records_again(late: Build) -> None:
    of = late
    summary = summarize(of)
    assert summary.filtered is not None
    assert summary.filtered.documents_dropped == summary.filtered.documents_dropped_late > 0
    assert summary.filtered.documents_rewritten_late > 0 == summary.filtered.documents_rewritten
    assert all(check.ok for check in summary.checks)
    flows = {stage.stage: stage for stage in summary.stages}
    refined, tokenized = flows["refine"].text_bytes, flows["tokenize"].text_bytes
    assert refined is not None
    assert tokenized is not None
    assert refined.into + refined.gained_total == refined.out + refined.lost_total
    assert refined.lost["duplicates"] == of.total("union", "removed_bytes")
    assert tokenized.into == tokenized.out == refined.out
    assert sum(row.dropped_documents or 0 for row in shard_table(of).rows) == summary.filtered.documents_dropped
    assert verify_build(of).findings == ()
    assert verify_records(of, 1000, 1).documents > 10


def test_documents_are_located_and_records_traced_through_late_steps(late: Build) -> None:
    of = late
    fates = {}
    for seed in range(3):
        for number in range(20):
            fates[seed, number] = locate(of, f"part{seed}.jsonl", number + 1)
    dropped = [fate for fate in fates.values() if isinstance(fate, DroppedLine)]
    located = {place: fate for place, fate in fates.items() if isinstance(fate, Located)}
    assert {item.reason for item in dropped} == {"few_stones"}
    rewritten = {place: actual for place, actual in located.items() if actual.rewritten_bytes is not None}
    assert rewritten
    assert "as a step left it" in render_located(next(iter(rewritten.values())))
    for (seed, number), actual in located.items():
        text = texts_of(seed)[number].encode()
        assert actual.document.line == number + 1
        assert actual.text_bytes == len(text)
        cut = [text[first:last] for first, last in (duplicate.text_bytes for duplicate in actual.duplicates)]
        assert sum(map(len, cut)) == actual.removed_bytes
        for duplicate in actual.duplicates:
            for each in duplicate.occurrences:
                earlier = texts_of(int(each.earlier.source[4]))[each.earlier.line - 1].encode()
                assert earlier[slice(*each.earlier_bytes)] == text[slice(*each.text_bytes)]
        for holding in actual.records:
            record = Tracer(of).record(holding.export, find_output(of, holding.export, holding.file), holding.record)
            pieces = [part for part in record.parts if isinstance(part, Piece)]
            assert actual.document.line in {piece.document.line for piece in pieces}


def test_changed_step_asks_again_and_dedup_is_reused(root: Path) -> None:
    first = build(root)
    (root / "my_filters.py").write_text(STEPS.replace("% 3", "% 2"))
    second = build(root)
    assert first.rollup("union").digests == second.rollup("union").digests
    assert all(reused(second, *step) for step in (("match", unit) for unit in second.units("match")))
    assert not any(reused(second, "refine", shard) for shard in second.units("refine"))


def test_appended_repeat_redoes_no_token(root: Path) -> None:
    first = build(root)
    write(root, 3, [*texts_of(0)[:10], *make_documents(5, seed=9)])
    refreshed = build(root)
    assert [reused(refreshed, "refine", f"{shard:05d}") for shard in range(4)] == [True, True, True, False]
    assert [reused(refreshed, "tokenize", f"{shard:05d}") for shard in range(4)] == [True, True, True, False]
    assert refreshed.total("lost", "text_bytes_lost") >= first.total("lost", "text_bytes_lost")


def test_reprocessed_shard_of_late_steps_is_the_same(late: Build) -> None:
    of = late
    before = [receipt.outputs for receipt in of.receipts("refine")]
    plan_receipt = begin(of.plan_receipt, "refine", 1)
    run_build(plan_receipt, workers=1)
    again = open_build(plan_receipt)
    assert [reused(again, "refine", f"{shard:05d}") for shard in range(3)] == [True, False, True]
    assert [receipt.outputs for receipt in again.receipts("refine")] == before
    assert verify_build(again).findings == ()


@pytest.mark.parametrize("annotated", ["dedup", "decontamination"])
def test_late_step_with_annotations_is_refused(root: Path, annotated: str) -> None:
    wanted = {
        "dedup": {"mode": "annotate", "minimum_bytes": MINIMUM_BYTES},
        "decontamination": {"benchmarks": [{"name": "b", "path": str(root / "b.jsonl")}], "action": "annotate"},
    }
    with raises("config.step_changes_annotated_text"):
        build(root, **{annotated: wanted[annotated]})
