"""Packing options through whole builds: contexts as the oracle cuts them, accounts, lineage and verification."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import PackingConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.export.companions import read_manifest
from corpusmill.export.webdataset import read_shard
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.lineage import locate, trace, verify_records
from corpusmill.inspect.lineage.facts import Piece
from corpusmill.inspect.verify import verify_build
from corpusmill.report.summary import from_json
from tests.oracles.cl100k import cl100k
from tests.oracles.tokens import packed, packed_pieces
from tests.system.corpus import configuration, lines_of, make_documents

EOT, BOS, PAD = 100257, 100258, 100276
LENGTH = 65
FILES = {"a.jsonl": make_documents(9, seed=1), "b.jsonl": [], "c.jsonl": [*make_documents(9, seed=2), "", "short"]}
ROWS = {
    "context_tokens": LENGTH,
    "file_bytes": "10KiB",
    "rows_per_group": 7,
    "columns": ["input_ids", "position_ids", "seq_lengths", "seq_start_id", "loss_mask"],
}
OPTIONS = {
    "best fit, file, bos": {"fit": "best_fit", "stream": "file", "bos": True, "eot": "before"},
    "eot around": {"eot": "around"},
    "overlap, file": {"overlap_tokens": 1, "stream": "file", "eot": "around"},
    "as tokshuf": {"tail": "always_pad", "stream": "file", "empty_documents": "keep"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("packing")
    (root / "corpus").mkdir()
    for name, texts in FILES.items():
        (root / "corpus" / name).write_bytes(lines_of(texts))
    return root


def build(root: Path, packing: dict[str, object]) -> Build:
    rows = {} if "tail" in packing else {"parquet_contexts": ROWS}
    values = configuration(
        root,
        source={"paths": [str(root / "corpus")], "shard_bytes": "1MB"},  # one shard of all three files
        dedup={"mode": "none"},
        tokenizer={"name": "cl100k_base", "bos": "<|fim_prefix|>", "pad": "<|endofprompt|>"},
        exports={"webdataset": {"context_tokens": LENGTH, "contexts_per_shard": 50}, **rows},
        packing=packing,
    )
    return open_build(build_dataset(check_config(values, where="test"), workers=1))


def contexts(root: Path) -> tuple[list[list[int]], dict[tuple[str, int], list[int]]]:
    """(contexts by their ordinal in the corpus' one shard, contexts by file and record)."""
    folder = (root / "outputs/tiny/latest/webdataset").resolve()
    by_ordinal, by_record = {}, {}
    for shard, _ in read_manifest(folder / "manifest.jsonl"):
        for record, (member, ids) in enumerate(read_shard(folder / f"{shard}.tar")):
            by_ordinal[int(member.split("-")[1].split(".")[0])] = by_record[shard, record] = ids.tolist()
    return [by_ordinal[item] for item in sorted(by_ordinal)], by_record


@pytest.mark.parametrize("name", OPTIONS)
def test_packing_option_through_a_whole_build_is_the_oracles_and_traced_back(root, name: str) -> None:
    options = PackingConfig(**OPTIONS[name]).model_dump()
    built = build(root, OPTIONS[name])
    encoding = cl100k()
    tokens = {
        (file, line): encoding.encode_ordinary(text)
        for file, texts in FILES.items()
        for line, text in enumerate(texts, start=1)
    }
    files = [[ids for (of, _), ids in tokens.items() if of == file] for file in FILES]
    streams = files if options["stream"] == "file" else [[*files[0], *files[1], *files[2]]]
    expected = [row for stream in streams for row in packed(stream, LENGTH, options, EOT, BOS, PAD)]
    actual, by_record = contexts(root)
    assert actual == expected

    slots = [slot for row in expected for slot in row]
    packing = from_json((built.folder("report", "report") / "summary.json").read_bytes()).packing
    assert packing is not None
    assert (packing.contexts, packing.slots, packing.pad_tokens) == (len(expected), len(slots), slots.count(PAD))
    assert packing.real_tokens == sum(map(len, tokens.values()))
    if not options["overlap_tokens"]:
        assert packing.repeated_tokens == 0
        assert packing.special_tokens == slots.count(EOT) + slots.count(BOS)

    held = defaultdict(list)  # per document: (file, record, in the record, in the document) of every piece of it
    names = {EOT: "EOT", BOS: "BOS", PAD: "padding"}
    for (file, record), row in by_record.items():
        position = 0
        for part in trace(built, "webdataset", file, record).parts:
            first, last = part.record_tokens
            assert first == position
            position = last
            if isinstance(part, Piece):
                place = part.document.source, part.document.line
                assert row[first:last] == tokens[place][slice(*part.document_tokens)]
                held[place].append((f"webdataset/{file}.tar", record, part.record_tokens, part.document_tokens))
            else:
                assert {names[item] for item in row[first:last]} == {part.what}
        assert position == LENGTH
    for place in tokens:
        located = locate(built, *place).records
        records = [(record.file, record.record, record.record_tokens, record.document_tokens) for record in located]
        for file in built.config.exports.formats():
            parts = sorted(record for record in records if record[0].startswith(f"{file}/"))
            assert [part[2:] for part in parts] == [part[2:] for part in sorted(held[place])]
        assert sorted(record for record in records if record[0].endswith(".tar")) == sorted(held[place])
    sampled = verify_records(built, sample=10**6, seed=0).records
    assert sampled == {name: len(expected) for name in built.config.exports.formats()}
    assert not verify_build(built).findings


@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if "tail" not in options])
def test_rows_of_contexts_are_those_of_webdataset_without_padding_and_with_their_pieces(root, name: str) -> None:
    """Row by row in the order of the tars; where a document ends is the oracle's, not that of an EOT."""
    options = PackingConfig(**OPTIONS[name]).model_dump()
    built = build(root, OPTIONS[name])
    encoding = cl100k()
    files = [[encoding.encode_ordinary(text) for text in texts] for texts in FILES.values()]
    streams = files if options["stream"] == "file" else [[*files[0], *files[1], *files[2]]]
    pieces = [context for stream in streams for context in packed_pieces(stream, LENGTH, options)]
    folder = (root / "outputs/tiny/latest").resolve()
    tars = [folder / "webdataset" / f"{shard}.tar" for shard, _ in read_manifest(folder / "webdataset/manifest.jsonl")]
    members = [member for tar in tars for member in read_shard(tar)]
    paths = sorted((folder / "parquet_contexts").iterdir())
    assert len(paths) > 1
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    for (member, ids), row in zip(members, rows, strict=True):
        sizes = pieces[int(member.split("-")[1].split(".")[0])]
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        assert row["input_ids"] == ids[: sum(sizes)].tolist()
        assert set(ids[sum(sizes) :].tolist()) <= {PAD}
        assert row["seq_lengths"] == sizes
        assert row["seq_start_id"] == starts
        assert row["position_ids"] == [place for size in sizes for place in range(size)]
        assert row["loss_mask"] == [int(place not in starts) for place in range(sum(sizes))]
    dataset = open_dataset(folder, built.config)["parquet_contexts"]
    assert [ids.tolist() for ids in dataset] == [row["input_ids"] for row in rows]
    assert dataset.document(3).parts[0].record_tokens[0] == 0
