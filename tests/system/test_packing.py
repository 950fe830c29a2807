"""Packing options through whole builds: contexts as the oracle cuts them, accounts, lineage and verification."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import PackingConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.export.companions import read_manifest
from corpusmill.export.webdataset import read_shard
from corpusmill.inspect.lineage import locate, trace, verify_records
from corpusmill.inspect.lineage.facts import Piece
from corpusmill.inspect.verify import verify_build
from corpusmill.report.summary import from_json
from tests.oracles.cl100k import cl100k
from tests.oracles.tokens import packed
from tests.system.corpus import configuration, lines_of, make_documents

EOT, BOS, PAD = 100257, 100258, 100276
LENGTH = 65
FILES = {"a.jsonl": make_documents(9, seed=1), "b.jsonl": [], "c.jsonl": [*make_documents(9, seed=2), "", "short"]}
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
    values = configuration(
        root,
        source={"paths": [str(root / "corpus")], "shard_bytes": "1MB"},  # one shard of all three files
        dedup={"mode": "none"},
        tokenizer={"name": "cl100k_base", "bos": "<|fim_prefix|>", "pad": "<|endofprompt|>"},
        exports={"webdataset": {"context_tokens": LENGTH, "contexts_per_shard": 50}},
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
        records = [
            (record.file, record.record, record.record_tokens, record.document_tokens)
            for record in locate(built, *place).records
        ]
        assert sorted(records) == sorted(held[place])
    assert verify_records(built, sample=10**6, seed=0).records == {"webdataset": len(expected)}
    assert not verify_build(built).findings
