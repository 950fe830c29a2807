"""One dataset from text to four formats, compared with the obvious way of making it."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.reprocess import digests
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.export import companions, megatron, nanoset, numpy_shards, webdataset
from corpusmill.report.summary import from_json
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.oracles.tokens import stream_of
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, reused, write_corpus

EOT = 100257


def build(root: Path, workers: int = 1, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=workers))


def outputs(root: Path) -> Path:
    return (root / "outputs" / "tiny" / "latest").resolve()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="module")
def texts(root) -> list[str]:
    return write_corpus(root / "corpus")


@pytest.fixture(scope="module")
def kept(texts) -> list[str]:
    return deduplicated_texts(texts, 100)


@pytest.fixture(scope="module")
def documents(kept) -> Counter[tuple[int, ...]]:
    """Token ids of every document that has any, by tiktoken."""
    encoding = cl100k()
    return Counter(tuple(encoding.encode_ordinary(text)) for text in kept if text)


@pytest.fixture(scope="module")
def built(root, texts) -> Build:
    return build(root)


def test_build_corpus_has_duplicates_and_empty_documents(texts, kept) -> None:
    assert sum(map(len, kept)) < 0.95 * sum(map(len, texts))
    assert "" in texts


def test_build_megatron_parts_hold_every_document_once_with_eod(built, root, documents) -> None:
    actual: Counter[tuple[int, ...]] = Counter()
    parts = sorted(outputs(root).glob("megatron/*.bin"))
    assert len(parts) > 1
    for part in parts:
        megatron_part = megatron.open_part(part.with_suffix(""))
        for index in range(len(megatron_part.lengths)):
            row = megatron_part.document(index).tolist()
            assert row[-1] == EOT
            actual[tuple(row[:-1])] += 1
    assert actual == documents


def test_build_nanoset_files_hold_every_document_once_with_eos(built, root, documents) -> None:
    actual: Counter[tuple[int, ...]] = Counter()
    for path in sorted(outputs(root).glob("nanoset/*.ds")):
        tokens, ends = np.fromfile(path, "<u4"), np.fromfile(f"{path}.index", "<u8")
        for first, last in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            assert tokens[last - 1] == EOT
            actual[tuple(tokens[first : last - 1].tolist())] += 1
        assert Path(f"{path}.metadata").read_text().splitlines()[0] == "cl100k_base|4"
    assert actual == documents


def test_build_megatron_and_nanoset_hold_the_same_bytes(built, root) -> None:
    bins, files = (sorted(outputs(root).glob(pattern)) for pattern in ("megatron/*.bin", "nanoset/*.ds"))
    assert [path.read_bytes() for path in bins] == [path.read_bytes() for path in files]


def test_build_numpy_shards_are_one_stream_with_eot_before_each_document(built, root, documents) -> None:
    paths = [*sorted(outputs(root).glob("numpy/test/*.npy")), *sorted(outputs(root).glob("numpy/train/*.npy"))]
    shards = [np.load(path, allow_pickle=False) for path in paths]
    assert {len(shard) for shard in shards[:-1]} == {5000}
    assert {shard.dtype for shard in shards} == {np.dtype("<u4")}
    stream = np.concatenate(shards)
    assert stream[0] == EOT
    starts = np.flatnonzero(stream == EOT)
    actual = Counter(tuple(piece[1:].tolist()) for piece in np.split(stream, starts)[1:])
    assert actual == documents


def test_build_webdataset_contexts_are_the_shards_streams_cut(built, root, kept) -> None:
    """Members name shard and ordinal: contexts put back in order are each shard's stream."""
    encoding = cl100k()
    manifest = (outputs(root) / "webdataset/manifest.jsonl").read_bytes()
    assert manifest.endswith(b"\n")
    actual: dict[tuple[int, int], list[int]] = {}
    sizes = []
    for line in manifest.decode().split("\n")[:-1]:
        row = json.loads(line)
        with tarfile.open(outputs(root) / "webdataset" / f"{row['shard']}.tar") as tar:
            members = tar.getmembers()
            for member in members:
                shard, ordinal = member.name.split("_")[2].split(".")[0].split("-")
                actual[int(shard), int(ordinal)] = json.loads(gzip.decompress(tar.extractfile(member).read()))
        assert row["num_sequences"] == len(members)
        sizes.append(len(members))
    assert set(sizes[:-1]) == {50}
    first = 0
    for shard in range(len(built.units("index"))):
        count = built.receipt("index", f"{shard:05d}").counts["documents_out"]
        stream = stream_of([encoding.encode_ordinary(text) for text in kept[first : first + count]], EOT)
        rows = [actual[key] for key in sorted(actual) if key[0] == shard]
        assert {len(row) for row in rows} <= {129}
        flat = [token for row in rows for token in row]
        assert flat[: len(stream)] == stream
        assert set(flat[len(stream) :]) <= {EOT}
        assert len(flat) - len(stream) < 129
        first += count


def test_build_shuffle_changes_the_order(built, root, kept) -> None:
    encoding = cl100k()
    part = megatron.open_part(sorted(outputs(root).glob("megatron/*.bin"))[0].with_suffix(""))
    inorder = [tuple(encoding.encode_ordinary(text)) for text in kept if text]
    actual = [tuple(part.document(index)[:-1].tolist()) for index in range(len(part.lengths))]
    assert actual != inorder[: len(actual)]


def test_build_writeback_keeps_files_and_everything_but_the_removed_text(built, root, texts, kept) -> None:
    documents = outputs(root) / "documents"
    sources = {path.relative_to(root / "corpus") for path in (root / "corpus").rglob("*.*") if path.is_file()}
    assert {path.relative_to(documents) for path in documents.rglob("*.*") if path.is_file()} == sources
    rows = []
    for name in ("a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "deep/b.jsonl.zstd"):
        content = (documents / name).read_bytes()
        if name.endswith(".gz"):
            content = gzip.decompress(content)
        elif "zst" in name:
            content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
        assert b'"score": 1.5' in content or not content
        rows += [json.loads(line) for line in content.splitlines()]
    assert [row["text"] for row in rows] == kept


def test_build_verifiers_accept_every_export(built, root) -> None:
    for part in outputs(root).glob("megatron/*.bin"):
        megatron.verify_part(part.with_suffix(""), vocabulary_size=100277, eod_id=EOT)
    for path in outputs(root).glob("nanoset/*.ds"):
        nanoset.verify_file(path, vocabulary_size=100277, eos_id=EOT, tokenizer_name="cl100k_base")
    for name, records in companions.read_manifest(outputs(root) / "webdataset" / "manifest.jsonl"):
        path = outputs(root) / "webdataset" / f"{name}.tar"
        webdataset.verify_shard(path, context_tokens=129, vocabulary_size=100277, records=records)
    for path in outputs(root).glob("numpy/*/*.npy"):
        tokens = len(np.load(path, mmap_mode="r"))
        numpy_shards.verify_shard(path, tokens=tokens, dtype=np.dtype("<u4"), vocabulary_size=100277)


def test_build_dataset_manifest_lists_every_file_with_its_digest(built, root) -> None:
    import hashlib

    description = json.loads((outputs(root) / "dataset.json").read_text())
    listed = {item["name"]: item["sha256"] for item in description["files"]}
    there = {path.relative_to(outputs(root)).as_posix() for path in outputs(root).rglob("*") if path.is_file()}
    assert there == {*listed, "SHA256SUMS", "dataset.json", "shuffle_quality.json", "webdataset/manifest.jsonl"}
    for name, digest in listed.items():
        assert hashlib.sha256((outputs(root) / name).read_bytes()).hexdigest() == digest


def test_build_report_states_the_counts_and_all_accounts_balance(built, texts, kept, documents) -> None:
    folder = built.folder("report", "report")
    summary = from_json((folder / "summary.json").read_bytes())
    assert summary.verdict == "complete"
    assert len(summary.checks) > 15
    assert not summary.failed_checks
    assert summary.duplicates is not None
    removed = sum(len(text.encode()) for text in texts) - sum(len(text.encode()) for text in kept)
    assert summary.duplicates.duplicate_bytes == removed
    assert summary.packing is not None
    assert summary.packing.real_tokens == sum(len(row) * times for row, times in documents.items())
    assert "<html" in (folder / "report.html").read_text()


def test_build_second_run_reuses_every_step(built, root) -> None:
    again = build(root)
    for stage in (
        "download",
        "index",
        "anchor",
        "shared",
        "context",
        "settle",
        "border",
        "match",
        "union",
        "writeback",
        "tokenize",
        "scatter",
        "gather",
        "export",
    ):
        assert all(reused(again, stage, unit) for unit in again.units(stage)), stage


def test_build_other_minimum_bytes_reuses_what_does_not_depend_on_it(built, root) -> None:
    other = build(root, dedup={"mode": "remove", "minimum_bytes": 5000})
    assert all(reused(other, "index", unit) for unit in other.units("index"))
    assert not any(reused(other, "anchor", unit) for unit in other.units("anchor"))


def test_build_unchanged_ranges_stop_the_change_from_spreading(built, root) -> None:
    """Nothing repeats at 6,000 bytes either: the ranges are the same, so tokens and exports are reused."""
    build(root, dedup={"mode": "remove", "minimum_bytes": 5000})
    other = build(root, dedup={"mode": "remove", "minimum_bytes": 6000})
    assert not any(reused(other, "anchor", unit) for unit in other.units("anchor"))
    for stage in ("tokenize", "scatter", "gather", "export"):
        assert all(reused(other, stage, unit) for unit in other.units(stage)), stage


def test_build_two_contents_lie_in_two_version_folders(built, root) -> None:
    first = outputs(root)
    build(root, shuffle={"seed": 8})
    second = outputs(root)
    assert first != second
    assert first.is_dir()
    assert json.loads((second.parent / "latest.json").read_text()) == {"version": second.name}


@pytest.mark.parametrize("mode", ["none", "annotate"])
def test_build_without_removal_tokenizes_all_text(tmp_path, mode: str) -> None:
    texts = write_corpus(tmp_path / "corpus", documents=24)
    dedup = {"mode": mode} if mode == "none" else {"mode": mode, "minimum_bytes": 100}
    built = build(tmp_path, dedup=dedup)
    assert built.total("tokenize", "text_bytes_encoded") == sum(len(text.encode()) for text in texts)
    written = outputs(tmp_path) / "documents" / "a1.jsonl"
    assert written.exists() == (mode == "annotate")
    if mode == "annotate":
        rows = [json.loads(line) for line in written.read_text().splitlines()]
        assert [row["text"] for row in rows] == texts[: len(rows)]
        assert all("sa_remove_ranges" in row for row in rows)


def test_build_with_one_export_writes_only_that(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    build(tmp_path, exports={"nanoset": {}})
    assert sorted(path.name for path in outputs(tmp_path).iterdir()) == [
        "SHA256SUMS",
        "dataset.json",
        "documents",
        "nanoset",
        "shuffle_quality.json",
    ]


@pytest.mark.parametrize("content", ['{"text": ""}\n' * 5, ""])
def test_build_corpus_without_any_text_is_refused(tmp_path, content: str) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text(content)
    with raises("dataset.no_text"):
        build(tmp_path)


def test_build_of_which_steps_and_selection_leave_nothing_is_refused_with_the_counts(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "one two three four"}\n{"text": "one"}\n{"text": ""}\n')
    rows = tmp_path / "decisions.jsonl"
    rows.write_text('{"file": "a.jsonl", "line": 1, "score": 0}\n')
    decisions = [{"name": "quality", "path": str(rows), "key": ["file", "line"], "keep": "score >= 1"}]
    with raises("dataset.no_text", "3 lines, 3 documents: 1 dropped, 1 empty, 1 too short"):
        build(tmp_path, decisions=decisions, selection={"minimum_tokens": 9})


def test_build_exports_smaller_than_a_shard_are_whole(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "one two three"}\n')
    build(tmp_path)
    assert np.load(outputs(tmp_path) / "numpy/train/train_0000.npy").tolist() == [EOT, 606, 1403, 2380]
    assert megatron.open_part(outputs(tmp_path) / "megatron/tiny_00000_text_document").document(0).tolist() == [
        606,
        1403,
        2380,
        EOT,
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_build_one_and_four_workers_in_two_folders_write_the_same_bytes(tmp_path) -> None:
    actual = []
    for name, workers in (("first", 1), ("second/deeper", 4)):
        root = tmp_path / name
        root.mkdir(parents=True)
        write_corpus(root / "corpus", documents=60)
        built = build(root, workers=workers)
        actual.append((files_below(root / "outputs" / "tiny"), digests(built)))
    assert actual[0] == actual[1]


@pytest.mark.slow
def test_build_many_documents_spread_over_all_cells(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    for number, text in enumerate(make_documents(40, seed=3)):
        (tmp_path / "corpus" / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    built = build(tmp_path, source={"paths": [str(tmp_path / "corpus")], "shard_bytes": 1})
    assert len(built.units("index")) == 40
    assert all(built.receipt("gather", unit).counts["records"] for unit in built.units("gather"))
