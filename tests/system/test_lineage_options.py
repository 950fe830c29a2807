"""Lineage of builds with other settings: methods of removal, texts of few letters, documents without a record."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import (
    locate,
    locate_id,
    render_located,
    render_trace,
    trace,
    verify_records,
)
from corpusmill.inspect.lineage.facts import Located, Piece, Special
from tests.quick import quick
from tests.system.corpus import configuration, lines_of, write_corpus
from tests.system.traced import (
    Texts,
    build,
    count_of_checked_duplicates,
    write_special_lines,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Sources that several configurations are built of."""
    root = tmp_path_factory.mktemp("lineage")
    write_corpus(root / "corpus", documents=40)
    write_special_lines(root / "corpus")
    return root


def built_of_few_letters(folder: Path, minimum_bytes: int, **dedup: object) -> tuple[Build, Texts]:
    """A build of documents that repeat each other everywhere, and its texts in dataset order."""
    rng = random.Random(minimum_bytes)

    def text() -> str:
        pieces = ["".join(rng.choices("abé中", [6, 3, 1, 1], k=rng.randrange(60))) for _ in range(3)]
        return "".join(piece + rng.choice(["", "-" * rng.randrange(40), "ab" * rng.randrange(30)]) for piece in pieces)

    (folder / "corpus").mkdir()
    texts = {}
    for name in ("1.jsonl", "2.jsonl", "3.jsonl"):
        rows = [text() for _ in range(25)]
        (folder / "corpus" / name).write_bytes(lines_of(rows))
        texts.update({(name, line): row.encode() for line, row in enumerate(rows, start=1)})
    changes = {"mode": "remove", "minimum_bytes": minimum_bytes, **dedup}
    return build(folder, dedup=changes, exports={"nanoset": {}}), texts


@pytest.mark.parametrize("minimum_bytes", quick([7, 21], 1, 0))
@pytest.mark.parametrize("keep", ["first_window", "every_string"])
def test_locate_text_of_few_letters_and_short_periods_names_first_occurrences(
    tmp_path, keep: str, minimum_bytes: int
) -> None:
    built, texts = built_of_few_letters(tmp_path, minimum_bytes, keep=keep)
    removed_bytes, several = count_of_checked_duplicates(built, texts, minimum_bytes)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert several > 10


def test_locate_fuzzy_removal_names_the_repeats_and_what_lies_between(tmp_path) -> None:
    built, texts = built_of_few_letters(tmp_path, 21, fuzzy_share=0.8)
    removed_bytes, several = count_of_checked_duplicates(built, texts, 21)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert built.total("union", "fuzzy_bytes") > 0
    assert several > 10
    assert any("between repeats (dedup.fuzzy_share)" in render_located(locate(built, *place)) for place in texts)


@pytest.mark.parametrize(
    ("framing", "exports"),
    [
        ({"empty_documents": "eod", "bos": True}, ("webdataset", "numpy", "megatron", "nanoset")),
        ({"empty_documents": "boundary", "bos": True}, ("webdataset", "megatron")),
    ],
    ids=["eod", "boundary"],
)
@pytest.mark.parametrize("eot", ["after", "around"])
def test_locate_document_without_tokens_names_the_records_that_hold_its_eod_and_trace_leads_back(
    root, tmp_path, framing: dict[str, object], exports: tuple[str, ...], eot: str
) -> None:
    """It was said to be in no record, and the trace of its record named nobody."""
    (tmp_path / "corpus").symlink_to(root / "corpus")
    kept = build(
        tmp_path,
        tokenizer={"name": "cl100k_base", "bos": "<|fim_prefix|>"},
        framing=framing,
        packing={"empty_documents": "keep", "eot": eot, "bos": True},
        exports={export: configuration(tmp_path)["exports"][export] for export in exports},
    )
    empty = [*locate_id(kept, "empty"), locate_id(kept, "first")[1]]
    assert [item.text_bytes == 0 for item in empty] == [True, False]
    for actual in empty:
        assert actual.tokens == 0
        assert {record.export for record in actual.records} == set(exports)
        assert f"in {len(actual.records)} record" in render_located(actual)
        for item in actual.records:
            record = trace(kept, item.export, item.file, item.record)
            held = [piece for piece in record.parts if isinstance(piece, Piece) and piece.document == actual.document]
            assert [(piece.record_tokens, piece.document_tokens) for piece in held] == [(item.record_tokens, (0, 0))]
            around = [part.what for part in record.parts if isinstance(part, Special)]
            if item.export != "webdataset":
                framed = {"numpy": ["EOT"]}.get(item.export, ["BOS", "EOT"])
                assert around == (framed if framing["empty_documents"] == "eod" else [])
            assert f"{actual.document.source}:{actual.document.line}" in render_trace(record)
    assert verify_records(kept, sample=10**6, seed=0).records["megatron"] == kept.total("tokenize", "documents_out")


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ({"minimum_tokens": 6}, "selection.minimum_tokens: 6"),
        ({"minimum_bytes": 20, "minimum_tokens": 6}, "selection.minimum_bytes: 20"),
        ({"minimum_bytes": 3, "minimum_tokens": 6}, "selection.minimum_tokens: 6"),
    ],
)
def test_locate_document_that_was_too_short_says_which_setting_left_it_out(
    root, tmp_path, selection: dict[str, int], reason: str
) -> None:
    (tmp_path / "corpus").symlink_to(root / "corpus")
    selected = build(tmp_path, selection=selection)
    actual = locate(selected, "c.jsonl", 3)
    assert isinstance(actual, Located)
    assert (actual.tokens, actual.records, actual.too_short_for) == (0, (), reason)
    assert f"too short, {reason}: in no record" in render_located(actual)
    (empty,) = locate_id(selected, "empty")
    long = locate_id(selected, "first")[0]
    assert [empty.too_short_for, long.too_short_for] == ["", ""]
    assert "empty: in no record" in render_located(empty)


@pytest.mark.parametrize("mode", ["none", "annotate"])
def test_lineage_without_removal_keeps_whole_texts(tmp_path, mode: str) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    dedup = {"mode": mode} if mode == "none" else {"mode": mode, "minimum_bytes": 100}
    one_export = build(tmp_path, dedup=dedup, exports={"nanoset": {}})
    assert verify_records(one_export, sample=10**6, seed=0).records["nanoset"] > 10
    actual = [locate(one_export, "a1.jsonl", line) for line in range(1, 7)]
    assert all(item.removed_bytes == 0 for item in actual)
    assert all([each.export for each in item.records] == ["nanoset"] for item in actual if item.text_bytes)
    every = [locate(one_export, name, line) for name in ("a1.jsonl", "deep/b.jsonl.zstd") for line in range(1, 7)]
    assert any(item.duplicates for item in every) == (mode == "annotate")
    if mode == "annotate":
        assert "bytes annotated" in render_located(next(item for item in every if item.duplicates))
