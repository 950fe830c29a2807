"""What tokshuf does, on one dataset without deduplication."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.export.companions import read_manifest
from corpusmill.export.webdataset import read_shard
from corpusmill.report.summary import from_json
from corpusmill.shuffle import cells
from corpusmill.shuffle.cells import draw_placements
from corpusmill.upload.stages.summarize import summarize
from tests.oracles.cl100k import cl100k
from tests.raising import raises
from tests.system.corpus import make_documents

EOT = 100257
CONTEXT = 33
TEXTS = [text for text in make_documents(90, seed=5) if text]


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"body": text, "other": [1]}).encode() + b"\n" for text in texts)


def frames(texts: list[str]) -> bytes:
    half = len(texts) // 2
    return b"".join(zstandard.compress(lines(part)) for part in (texts[:half], texts[half:]))


def members(texts: list[str]) -> bytes:
    half = len(texts) // 2
    return b"".join(gzip.compress(lines(part)) for part in (texts[:half], texts[half:]))


def configuration(root: Path, **changes: object) -> dict[str, object]:
    return {
        "name": "tok",
        "source": {"paths": [str(root / "one"), str(root / "two.jsonl")], "text_field": "body", "shard_bytes": "1"},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1234},
        "exports": {"webdataset": {"context_tokens": CONTEXT, "contexts_per_shard": 64}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
        **changes,
    }


def write_sources(root: Path) -> None:
    (root / "one/deep").mkdir(parents=True)
    (root / "one/a.jsonl").write_bytes(lines(TEXTS[:20]))
    (root / "one/b.jsonl.gz").write_bytes(members(TEXTS[20:40]))
    (root / "one/c.jsonl.zst").write_bytes(frames(TEXTS[40:60]))
    (root / "one/deep/d.jsonl.zstd").write_bytes(frames(TEXTS[60:70]))
    (root / "one/ignored.txt").write_text("not a source\n")
    (root / "two.jsonl").write_bytes(lines(TEXTS[70:]).removesuffix(b"\n"))


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def contexts(root: Path, name: str = "tok") -> dict[tuple[int, int], list[int]]:
    """(shard of the corpus, ordinal) to context, in the order of the tars."""
    folder = root / "outputs" / name / "latest" / "webdataset"
    actual = {}
    for shard, _ in read_manifest(folder / "manifest.jsonl"):
        for member, context in read_shard(folder / f"{shard}.tar"):
            number, ordinal = member.split("_")[2].split(".")[0].split("-")
            actual[int(number), int(ordinal)] = context.tolist()
    return actual


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokshuf")
    write_sources(folder)
    return folder


@pytest.fixture(scope="module")
def built(root) -> Build:
    return build(root)


@pytest.fixture(scope="module")
def actual(built, root) -> dict[tuple[int, int], list[int]]:
    return contexts(root)


@pytest.fixture(scope="module")
def files() -> list[list[list[int]]]:
    """Ids of the documents of each source file, one file being one shard here, by tiktoken."""
    encoding = cl100k()
    groups = (TEXTS[:20], TEXTS[20:40], TEXTS[40:60], TEXTS[60:70], TEXTS[70:])
    return [[encoding.encode_ordinary(text) for text in group] for group in groups]


def stream(actual: dict[tuple[int, int], list[int]], shard: int) -> list[int]:
    return [token for key in sorted(actual) if key[0] == shard for token in actual[key]]


def test_webdataset_folders_files_and_every_compression_are_read_whole(actual, files) -> None:
    documents = Counter(tuple(document) for file in files for document in file)
    read: Counter[tuple[int, ...]] = Counter()
    for shard in range(len(files)):
        document: list[int] = []
        for token in stream(actual, shard):
            if token == EOT:
                read[tuple(document)] += 1
                document = []
            else:
                document.append(token)
    del read[()]  # padding
    assert read == documents


def test_webdataset_text_is_the_configured_field_and_nothing_else(tmp_path) -> None:
    """Both fields hold text; only the configured one comes out, and no byte of any other field."""
    encoding = cl100k()
    rows = [{"body": f"body {number}", "text": f"text {number}", "url": "http://x"} for number in range(20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for field in ("body", "text"):
        build(tmp_path, name=field, source={"paths": [str(tmp_path / "a.jsonl")], "text_field": field})
        tokens = stream(contexts(tmp_path, field), 0)
        expected = [token for row in rows for token in (*encoding.encode_ordinary(row[field]), EOT)]
        assert tokens[: len(expected)] == expected
        assert set(tokens[len(expected) :]) <= {EOT}  # padding


def test_webdataset_eot_follows_every_document(actual, files) -> None:
    for shard, documents in enumerate(files):
        expected = [token for document in documents for token in (*document, EOT)]
        assert stream(actual, shard)[: len(expected)] == expected


def test_webdataset_literal_special_string_stays_text(tmp_path) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines(["before <|endoftext|> after"] * 3))
    build(tmp_path, source={"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"})
    assert Counter(token for context in contexts(tmp_path).values() for token in context)[EOT] < 3 + CONTEXT
    assert stream(contexts(tmp_path), 0).index(EOT) > 4


def test_webdataset_contexts_are_cut_per_shard_one_after_another(actual, files) -> None:
    for shard, documents in enumerate(files):
        tokens = sum(len(document) + 1 for document in documents)
        ordinals = sorted(ordinal for number, ordinal in actual if number == shard)
        assert ordinals == list(range(-(-tokens // CONTEXT)))
    assert {len(item) for item in actual.values()} == {CONTEXT}


@pytest.mark.parametrize("tokens", [CONTEXT * 2, CONTEXT * 2 + 1, 1])
def test_webdataset_exact_multiple_makes_no_context_of_padding_alone(tmp_path, tokens: int) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines([" a" * (tokens - 1) if tokens > 1 else "x"]))
    built = build(tmp_path, source={"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"})
    slots = max(tokens, 2)
    assert len(contexts(tmp_path)) == -(-slots // CONTEXT)
    assert built.total("scatter", "pad_tokens") == -slots % CONTEXT


@pytest.mark.parametrize("cells", [1, 2, 15, 16, 40])
def test_webdataset_any_number_of_cells_gives_at_most_one_short_shard(root, cells: int, actual) -> None:
    build(root, name=f"cells{cells}", shuffle={"seed": 1234, "cells": cells})
    listed = read_manifest(root / "outputs" / f"cells{cells}" / "latest/webdataset" / "manifest.jsonl")
    assert {records for _, records in listed[:-1]} == {64}
    assert 0 < listed[-1][1] <= 64
    assert contexts(root, f"cells{cells}") == actual


def test_webdataset_order_depends_on_the_seed_and_not_on_the_folder(root, tmp_path, actual) -> None:
    write_sources(tmp_path)
    build(tmp_path)
    assert list(contexts(tmp_path)) == list(actual)
    build(root, name="other", shuffle={"seed": 1235})
    assert list(contexts(root, "other")) != list(actual)
    assert contexts(root, "other") == actual


def test_webdataset_positions_of_a_record_are_uniform_over_seeds() -> None:
    """Where record 0 of 3 shards of 4 ends up, over 3,000 seeds; 31.26 is the 99.9 % quantile at 11 degrees."""
    places: Counter[int] = Counter()
    for seed in range(3000):
        keys = [int(key) for shard in range(3) for key in draw_placements(seed, "contexts", shard, 4, 16)[1]]
        places[sorted(keys).index(keys[0])] += 1
    assert sum((places[place] - 250) ** 2 / 250 for place in range(12)) < 31.26


def test_webdataset_bad_line_fails_the_run_and_names_it(tmp_path) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines(TEXTS[:20]) + b"{broken\n\n" + lines(TEXTS[20:30]))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"}
    with raises("documents.too_many_malformed"):
        build(tmp_path, source=source)
    build(tmp_path, source=source | {"max_rejected_share": 0.5})
    documents = sum(context.count(EOT) for context in contexts(tmp_path).values())
    assert documents >= 30


def test_webdataset_real_special_and_padding_tokens_are_told_apart(built, files) -> None:
    packing = from_json((built.folder("report", "report") / "summary.json").read_bytes()).packing
    assert packing is not None
    assert packing.real_tokens == sum(len(document) for file in files for document in file)
    assert packing.special_tokens == len(TEXTS)
    assert packing.slots == packing.contexts * CONTEXT


def test_webdataset_killed_in_the_middle_then_run_again_gives_the_same_bytes(root, tmp_path, actual) -> None:
    """Every step but the last ones is there; a half-written one is not believed."""
    write_sources(tmp_path)
    first = build(tmp_path)
    for unit in first.units("gather")[:2]:
        folder = first.folder("gather", unit)
        (folder / "receipt.json").unlink()
        (folder / "tokens").write_bytes(b"half")
    for path in (tmp_path / "outputs").rglob("*.tar"):
        path.unlink()
    build(tmp_path)
    assert list(contexts(tmp_path)) == list(actual)


def test_webdataset_contexts_in_equal_contexts_out_equal_the_manifests_sum(built, root, actual) -> None:
    listed = read_manifest(root / "outputs/tok/latest/webdataset" / "manifest.jsonl")
    scattered = sum(built.receipt("scatter", unit).counts["records"] for unit in built.units("scatter"))
    assert scattered == len(actual) == sum(records for _, records in listed)


def run_steps(plan_receipt: Path, first: str, last: str) -> None:
    """Run the waves from the stage `first` to the stage `last`."""
    names = [wave[0] for wave in GRAPH.waves()]
    for wave in GRAPH.waves()[names.index(first) : names.index(last) + 1]:
        for stage in wave:
            for unit in open_build(plan_receipt).units(stage):
                open_build(plan_receipt).run(stage, unit)


@pytest.mark.parametrize("damage", ["changed", "doubled"])
def test_webdataset_context_that_the_shuffle_changes_or_doubles_is_found_by_its_content(
    tmp_path, damage: str, monkeypatch
) -> None:
    """Sizes and counts stay what they were; only the content can tell, and a second try changes nothing."""
    (tmp_path / "two.jsonl").write_bytes(lines(TEXTS))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"}
    plan_receipt = plan_dataset(check_config(configuration(tmp_path, source=source), where="test"))
    run_steps(plan_receipt, "download", "scatter")
    place = cells._place

    def damaging(cell: cells.ScatteredCell, places: NDArray[np.uint64], permuted: NDArray[np.uint32]) -> None:
        place(cell, places, permuted)
        contexts = permuted.reshape(-1, CONTEXT)
        if damage == "changed":
            contexts[7, 3] ^= 1
        else:
            contexts[7] = contexts[8]

    monkeypatch.setattr(cells, "_place", damaging)
    run_steps(plan_receipt, "gather", "export")
    with raises("step.unbalanced", "contexts content", "it is a bug"):
        run_steps(plan_receipt, "manifest", "manifest")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_webdataset_one_huge_file_is_cut_at_line_ends_into_many_shards(tmp_path) -> None:
    """Contexts never straddle source files; a file larger than a shard becomes parts, and each counts as one."""
    encoding = cl100k()
    texts = TEXTS * 20
    (tmp_path / "two.jsonl").write_bytes(lines(texts))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body", "shard_bytes": "1KiB"}
    built = build(tmp_path, source=source)
    units = built.units("tokenize")
    assert (tmp_path / "two.jsonl").stat().st_size > 2 << 20
    assert len(units) > 2
    actual = contexts(tmp_path)
    expected = iter(texts)
    for shard, unit in enumerate(units):
        documents = built.receipt("index", unit).counts["documents_out"]
        wanted = [token for _ in range(documents) for token in (*encoding.encode_ordinary(next(expected)), EOT)]
        tokens = stream(actual, shard)
        assert tokens[: len(wanted)] == wanted
        assert len(tokens) - len(wanted) < CONTEXT
    assert next(expected, None) is None
    assert summarize(built).source_files == 1  # parts of a file are not files


def test_webdataset_steps_share_nothing_but_finished_files(built, root, tmp_path, actual) -> None:
    """What tokshuf's unfinished branch wants for several nodes: every step opened anew, in any order within a wave."""
    assert len(built.units("tokenize")) == len(built.units("scatter")) == 5
    assert len(built.units("gather")) >= 4
    write_sources(tmp_path)
    plan_receipt = plan_dataset(check_config(configuration(tmp_path), where="test"))
    for wave in GRAPH.waves():
        for stage in wave:
            for unit in reversed(open_build(plan_receipt).units(stage)):
                open_build(plan_receipt).run(stage, unit)
    assert list(contexts(tmp_path).items()) == list(actual.items())
    folders = [item / "outputs/tok/latest/webdataset" for item in (root, tmp_path)]
    bytes_of = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert bytes_of[0] == bytes_of[1]


@pytest.mark.parametrize(("stage", "function"), [("scatter", "scatter_records"), ("gather", "gather_cell")])
def test_shuffle_full_disk_is_transient_and_leaves_no_receipt(tmp_path, monkeypatch, stage: str, function: str) -> None:
    """The tokens of one step go to /dev/full, whose ENOSPC is the kernel's own."""
    original = getattr(cells, function)

    def onto_a_full_disk(*arguments: Any, **named: Any) -> Any:
        folder = named.get("folder") or arguments[-1]
        (folder / "tokens").symlink_to("/dev/full")
        return original(*arguments, **named)

    (tmp_path / "two.jsonl").write_bytes(lines(TEXTS))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"}
    with monkeypatch.context() as patched:
        patched.setattr(cells, function, onto_a_full_disk)
        with raises("step.disk_full"):
            build(tmp_path, source=source)
    assert not list((tmp_path / "work").rglob(f"{stage}/*/receipt.json"))
    build(tmp_path, source=source)
    assert len(contexts(tmp_path)) > 60


def test_build_zero_records_is_refused_before_anything_is_exported(tmp_path) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines(["", ""]))
    with raises("dataset.no_text"):
        build(tmp_path, source={"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"})
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("texts", [["only one"], ["a b c"] * 3])
def test_build_one_record_and_fewer_records_than_a_shard_are_whole(tmp_path, texts: list[str]) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines(texts))
    exports = {"webdataset": {"context_tokens": CONTEXT}, "numpy": {"tokens_per_shard": 100}}
    build(tmp_path, source={"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"}, exports=exports)
    assert len(contexts(tmp_path)) == 1
    (shard,) = (tmp_path / "outputs/tok/latest/numpy").rglob("*.npy")
    assert int((np.load(shard) == EOT).sum()) == len(texts)
