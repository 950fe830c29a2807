"""What tokshuf does, on one dataset without deduplication, with its special ids and tokenizers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import zstandard
from numpy.typing import NDArray

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.export.companions import read_manifest
from corpusmill.export.webdataset import read_shard
from corpusmill.shuffle import cells
from corpusmill.tokens.tokenizer import load_tokenizer
from corpusmill.upload.stages.summarize import summarize
from tests.oracles.cl100k import cl100k
from tests.raising import raises
from tests.system.corpus import make_documents
from tests.tokens.vocabularies import NEOX, described, shared, written

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


def test_webdataset_sources_of_every_compression_are_whole_documents_each_with_its_eot(actual, files) -> None:
    for shard, documents in enumerate(files):
        expected = [token for document in documents for token in (*document, EOT)]
        tokens = stream(actual, shard)
        assert tokens[: len(expected)] == expected
        assert len(tokens) - len(expected) < CONTEXT
    assert {len(item) for item in actual.values()} == {CONTEXT}


def test_webdataset_more_cells_than_shards_give_at_most_one_short_shard(root, actual) -> None:
    build(root, name="cells", shuffle={"seed": 1234, "cells": 40})
    listed = read_manifest(root / "outputs/cells/latest/webdataset/manifest.jsonl")
    assert {records for _, records in listed[:-1]} == {64}
    assert 0 < listed[-1][1] <= 64
    assert contexts(root, "cells") == actual


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


def test_webdataset_file_larger_than_a_shard_is_cut_at_line_ends_into_many(tmp_path, monkeypatch) -> None:
    """Contexts never straddle source files; a file larger than a shard becomes parts, and each counts as one."""
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    encoding = cl100k()
    (tmp_path / "two.jsonl").write_bytes(lines(TEXTS))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body", "shard_bytes": "48KiB"}
    built = build(tmp_path, source=source)
    units = built.units("tokenize")
    assert len(units) > 2
    actual = contexts(tmp_path)
    expected = iter(TEXTS)
    for shard, unit in enumerate(units):
        documents = built.receipt("index", unit).counts["documents_out"]
        wanted = [token for _ in range(documents) for token in (*encoding.encode_ordinary(next(expected)), EOT)]
        tokens = stream(actual, shard)
        assert tokens[: len(wanted)] == wanted
        assert len(tokens) - len(wanted) < CONTEXT
    assert next(expected, None) is None
    assert summarize(built).source_files == 1  # parts of a file are not files


FEW = ["one two", "three four five", "six"]
# What Llama-3 has: its own two special ids, above the ranks of a .tiktoken file, and no padding token.
BEGIN, END = 128_000, 128_001


def like_llama_3(**changes: object) -> dict[str, object]:
    special = {"<|begin_of_text|>": BEGIN, "<|end_of_text|>": END}
    file = str(shared("cl100k_base.tiktoken"))
    return {"name": "like-llama-3", "file": file, "pattern": "cl100k_base", "special_tokens": special, **changes}


def own_neox(folder: Path) -> str:
    """GPT-NeoX-20B's tokenizer.json as EleutherAI published it: without what others added behind id 50276."""
    whole = described(NEOX)
    return written({**whole, "added_tokens": [item for item in whole["added_tokens"] if item["id"] <= 50_276]}, folder)


def built_stream(folder: Path, tokenizer: dict[str, object], **changes: object) -> list[int]:
    """The tokens of one shard's contexts, in order."""
    (folder / "two.jsonl").write_bytes(lines(FEW))
    source = {"paths": [str(folder / "two.jsonl")], "text_field": "body"}
    build(folder, source=source, tokenizer=tokenizer, **changes)
    return stream(contexts(folder), 0)


def test_webdataset_llama_3_separates_by_its_end_of_text_and_opens_by_bos(tmp_path) -> None:
    """The original separates by id 0, which is "!", and adds 128000 with tiktoken only."""
    plain = load_tokenizer("cl100k_base", engine="tiktoken")
    tokens = built_stream(tmp_path, like_llama_3(), packing={"bos": True})
    expected = [token for text in FEW for token in (BEGIN, *plain.encode([text.encode()])[0].tolist(), END)]
    assert tokens[: len(expected)] == expected
    assert 0 not in tokens


def test_webdataset_padding_of_neox_is_its_own_token_or_tokshufs_50256(tmp_path) -> None:
    path = own_neox(tmp_path)
    own = built_stream(tmp_path, {"name": path})
    pads = CONTEXT - sum(token != 1 for token in own)
    assert pads > 5
    assert own[-pads:] == [1] * pads  # <|padding|>
    (tmp_path / "tokshuf").mkdir()
    theirs = built_stream(tmp_path / "tokshuf", {"name": path, "special_ids": "tokshuf"})
    assert theirs == [*own[:-pads], *[50_256] * pads]


HARD_FOR_TIKTOKEN = {
    "two spaces": "a  b",
    "indented code": "def f(x):\n    return x\n        # deep\n",
    "runs of 2 to 30 spaces": "x".join(" " * count for count in range(2, 31)),
    "decomposed accents": "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "trailing spaces and tabs": "a   \n\t\tb\t \n\n",
    "no-break spaces": "a\u00a0\u00a0b",
    "plain": "The quick brown fox; 中文。",
}


def test_webdataset_neox_ids_are_those_of_its_tokenizer_json(tmp_path) -> None:
    """tokshuf's bundled rank file differs on runs of spaces and on what is not NFC; tokenizer.json is the reference."""
    path = own_neox(tmp_path)
    library = tokenizers.Tokenizer.from_file(path)
    engines = [load_tokenizer(path, engine=engine) for engine in ("gigatoken", "tokenizers")]
    for case, text in HARD_FOR_TIKTOKEN.items():
        expected = library.encode(text, add_special_tokens=False).ids
        assert [engine.encode([text.encode()])[0].tolist() for engine in engines] == [expected] * 2, case
        if case in {"two spaces", "indented code"}:
            assert max(expected) >= 50_254  # the added tokens of runs of spaces, which tokshuf's file moves
    assert json.loads(Path(path).read_text())["normalizer"] == {"type": "NFC"}
