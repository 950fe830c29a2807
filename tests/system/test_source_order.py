"""Whole builds in the order of the source: accounts, lineage and formats as of every build, nothing shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.direct.in_order.exports import write_nanoset
from corpusmill.direct.in_order.source import Source
from corpusmill.engine.build import Build
from corpusmill.engine.preview import preview
from corpusmill.export import megatron, nanoset
from corpusmill.inspect.lineage import locate, trace, verify_records
from corpusmill.inspect.lineage.facts import Piece
from corpusmill.inspect.verify import render, verify_build
from corpusmill.report.summary import from_json
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.oracles import export as oracle
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.oracles.lineage import exported_records
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents, reused, write_corpus

EOT = 100257
ORDER = {"order": "source"}
ONE_FILE_EACH = {"megatron": {}, "nanoset": {}}
NOT_DONE_AGAIN = {"plan", "download", "index", "anchor", "shared", "context", "settle", "border", "match", "union"}
NOT_DONE_AGAIN |= {"writeback", "tokenize", "audit"}


def config(root: Path, **changes: object):
    return check_config(configuration(root, **{"shuffle": ORDER} | changes), where="test")


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(config(root, **changes), workers=1))


def latest(root: Path, name: str = "tiny") -> Path:
    return (root / "outputs" / name / "latest").resolve()


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source-order")
    write_corpus(folder / "corpus")
    return folder


@pytest.fixture(scope="module")
def built(root) -> Build:
    return build(root)


@pytest.fixture(scope="module")
def documents() -> list[list[int]]:
    """The ids of every document of the corpus in its order, deduplicated, by the oracles and tiktoken."""
    encoding = cl100k()
    return [encoding.encode_ordinary(text) for text in deduplicated_texts(make_documents(120), 100)]


def framed(documents: list[list[int]]) -> list[list[int]]:
    return oracle.with_special(documents, EOT, before=False)


def test_source_order_megatron_and_nanoset_equal_the_oracles_byte_for_byte(root, documents) -> None:
    whole = build(root, name="whole", exports=ONE_FILE_EACH)
    folder = latest(root, "whole")
    part, file = folder / "megatron" / "whole_00000_text_document", folder / "nanoset" / "00000_unshuffled.ds"
    actual = [part.with_suffix(ending).read_bytes() for ending in (".bin", ".idx")]
    assert actual == list(oracle.megatron(documents, EOT, 4))
    actual = [file.read_bytes(), Path(f"{file}.index").read_bytes()]
    assert actual == list(oracle.nanoset(documents, EOT, 4))
    assert len(list(folder.glob("*/*.ds"))) == len(list(folder.glob("*/*.bin"))) == 1
    assert whole.config.shuffle.seed is None


def test_source_order_every_format_holds_the_documents_in_their_order(built, root, documents) -> None:
    folder = latest(root)
    records = list(exported_records(folder))
    for name in ("megatron", "nanoset"):
        assert [ids for export, _, _, ids in records if export == name] == framed(documents)
    stream = np.concatenate([np.load(folder / "numpy" / path) for path in numpy_files(folder)]).tolist()
    assert stream == [token for ids in oracle.with_special(documents, EOT, before=True) for token in ids]
    # Contexts are cut per shard, so the padding of each shard's last one goes before they are joined.
    pad = built.receipt("tokenize", "00000").details["vocabulary"]["pad_id"]
    contexts = [token for export, _, _, ids in records if export == "webdataset" for token in ids if token != pad]
    assert contexts == [token for ids in framed(documents) for token in ids if token != pad]
    assert not (folder / "shuffle_quality.json").exists()


def numpy_files(folder: Path) -> Iterator[str]:
    for split in ("test", "train"):  # the first files are held out
        yield from sorted(path.relative_to(folder / "numpy").as_posix() for path in folder.glob(f"numpy/{split}/*.npy"))


def test_source_order_parts_have_their_size_but_the_last(built, root) -> None:
    folder = latest(root)
    sizes = [path.stat().st_size for path in sorted((folder / "megatron").glob("*.bin"))]
    largest_shard = 4 * max(receipt.counts["slots"] for receipt in built.receipts("scatter"))
    assert len(sizes) > 2
    assert all(abs(size - (40 << 10)) < largest_shard for size in sizes[:-1])
    assert sizes == [path.stat().st_size for path in sorted((folder / "nanoset").glob("*_unshuffled.ds"))]


def test_source_order_balances_verifies_and_traces_every_record_back(built) -> None:
    for stage in ("scatter", "gather", "manifest"):
        assert built.checks(stage)
    actual = verify_build(built)
    assert not actual.findings, render(actual)
    checked = verify_records(built, 100_000, 0).records
    assert checked["megatron"] == checked["nanoset"] == len(framed_records(built))


def framed_records(built: Build) -> list[tuple[int, int]]:
    """(shard, ordinal) of every document with tokens."""
    actual = []
    for shard, unit in enumerate(built.units("tokenize")):
        ends = np.fromfile(built.folder("tokenize", unit) / "ends", "<u8")
        actual += [(shard, int(ordinal)) for ordinal in np.flatnonzero(np.diff(ends, prepend=np.uint64(0)))]
    return actual


def test_source_order_trace_and_locate_are_inverse_and_ascend_with_the_source(built, root) -> None:
    places = []
    for path in sorted((latest(root) / "nanoset").glob("*.ds")):
        for record in range(len(nanoset.open_file(path))):
            (piece,) = (part for part in trace(built, "nanoset", path.name, record).parts if isinstance(part, Piece))
            source, line = piece.document.source, piece.document.line
            places.append((source, line))
            held = [record for record in locate(built, source, line).records if record.export == "nanoset"]
            assert [(Path(item.file).name, item.record) for item in held] == [(path.stem, record)]
    order = ["a1.jsonl", "a2.jsonl.gz", "a10.jsonl.zst", "deep/b.jsonl.zstd"]
    numbers = [(order.index(file), line) for file, line in places]
    assert numbers == sorted(numbers)


def test_source_order_report_says_not_shuffled_and_warns_of_nothing(built) -> None:
    folder = built.folder("report", "report")
    summary = from_json((folder / "summary.json").read_bytes())
    assert summary.shuffle.seed is None
    assert not summary.shuffle.quality
    assert not summary.shuffle.warnings
    assert "source order: not shuffled" in (folder / "report.html").read_text().lower()


def test_source_order_is_that_of_the_single_command_and_so_of_datatrove(root) -> None:
    """tests/consumers compares the command's files with those of datatrove's DocumentTokenizer."""
    corpus = root / "four"
    corpus.mkdir()
    for number in range(4):
        (corpus / f"{number}.jsonl").write_bytes(lines_of([text for text in make_documents(20, seed=number) if text]))
    source = {"paths": [str(corpus)], "shard_bytes": "8KiB"}
    plain = build(root, name="plain", source=source, dedup={"mode": "none"}, exports=ONE_FILE_EACH)
    assert len(plain.units("gather")) == 4
    tokenizer = load_tokenizer("cl100k_base", file=None, engine="gigatoken", pattern=None, eot=None, bos=None)
    read = Source([str(corpus)], ("text",), root / "command" / "rejected.jsonl")
    (root / "command").mkdir()
    (written,) = write_nanoset(read, root / "command", tokenizer)
    for ending in (".ds", ".ds.index", ".ds.metadata"):
        ours = (latest(root, "plain") / "nanoset" / f"00000_unshuffled{ending}").read_bytes()
        assert ours == Path(f"{written.path}{ending}").read_bytes()


def test_source_order_switched_on_redoes_the_shuffle_and_what_follows_alone(root) -> None:
    build(root)
    build(root, name="switched", shuffle={"seed": 7})
    fates = preview(open_build(plan_dataset(config(root, name="switched"))))
    assert {fate.stage for fate in fates if fate.fate == "reuse"} == NOT_DONE_AGAIN - {"plan"}
    switched = build(root, name="switched")
    for stage in ("index", "union", "tokenize", "audit"):
        assert all(reused(switched, stage, unit) for unit in switched.units(stage))
    assert not any(reused(switched, "scatter", unit) for unit in switched.units("scatter"))
    assert megatron_tokens(latest(root, "switched")) == megatron_tokens(latest(root))


def megatron_tokens(folder: Path) -> list[int]:
    paths = sorted((folder / "megatron").glob("*.idx"))
    return [int(token) for path in paths for token in megatron.open_part(path.with_suffix("")).tokens]


def test_source_order_other_keys_of_the_section_change_nothing(built, root) -> None:
    again = build(root, shuffle=ORDER | {"seed": 99, "cells": 3, "memory": "1MiB"})
    for stage in ("scatter", "gather", "export", "manifest"):
        assert all(reused(again, stage, unit) for unit in again.units(stage))


def test_source_order_appended_file_makes_new_cells_alone_and_equals_a_build_from_scratch(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("corpusmill.export.stages.layout.UNIT_BYTES", 1)  # a step for each file
    write_corpus(tmp_path / "corpus")
    build(tmp_path)
    more = lines_of(make_documents(30, seed=8), 500)
    (tmp_path / "corpus" / "z.jsonl").write_bytes(more)
    refreshed = build(tmp_path)
    kept = [unit for unit in refreshed.units("gather") if reused(refreshed, "gather", unit)]
    fresh = [unit for unit in refreshed.units("gather") if not reused(refreshed, "gather", unit)]
    assert max(unit for unit in kept if unit.startswith("documents")) < min(
        unit for unit in fresh if unit.startswith("documents")
    )
    parts = [unit for unit in refreshed.units("export") if unit.startswith("documents")]
    assert reused(refreshed, "export", parts[0])  # a part that was full stays
    write_corpus(tmp_path / "scratch" / "corpus")
    (tmp_path / "scratch" / "corpus" / "z.jsonl").write_bytes(more)
    build(tmp_path / "scratch")
    assert files_below(latest(tmp_path)) == files_below(latest(tmp_path / "scratch"))


@pytest.mark.slow
def test_source_order_estimate_takes_a_sample_in_order(root) -> None:
    actual = estimate_dataset(config(root, name="estimated", exports=ONE_FILE_EACH))
    assert actual.tokens > 0
    assert set(actual.output_bytes) == {"megatron", "nanoset"}


def test_source_order_keeps_bounds_of_bos_and_kept_empty_documents(root, documents) -> None:
    kept = build(
        root,
        name="kept",
        framing={"empty_documents": "eod"},
        exports={"megatron": {"part_bytes": "24KiB"}, "nanoset": {"file_bytes": "16KiB"}},
    )
    records = list(exported_records(latest(root, "kept")))
    for name in ("megatron", "nanoset"):
        assert [ids for export, _, _, ids in records if export == name] == [[*ids, EOT] for ids in documents]
    actual = verify_build(kept)
    assert not actual.findings, render(actual)


def test_random_order_without_a_seed_and_a_sample_in_source_order_are_refused(root) -> None:
    with raises("config.seed_missing"):
        config(root, shuffle={})
    with raises("config.sample_in_order"):
        config(root, exports={"megatron": {}, "sample_documents": 5})
