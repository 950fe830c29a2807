"""Megatron and Nanoset in whole builds: framing, empty documents, samples, one token file everywhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.export import megatron, nanoset
from corpusmill.inspect.datasets.merge import merge_exports
from corpusmill.inspect.lineage import verify_records
from corpusmill.inspect.verify import render, verify_build
from tests.oracles.cl100k import cl100k
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, write_corpus

EOT, BOS = 100257, 100258  # cl100k_base's <|endoftext|> and <|fim_prefix|>


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def outputs(root: Path, name: str) -> Path:
    return (root / "outputs" / name / "latest").resolve()


def parts_of(folder: Path) -> list[megatron.MegatronPart]:
    return [megatron.open_part(path.with_suffix("")) for path in sorted((folder / "megatron").glob("*.idx"))]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_corpus(folder / "corpus", documents=60)
    return folder


@pytest.fixture(scope="module")
def framed(root) -> Build:
    return build(
        root,
        name="framed",
        tokenizer={"name": "cl100k_base", "bos": "<|fim_prefix|>"},
        framing={"bos": True, "empty_documents": "eod"},
        exports={
            "numpy": {"tokens_per_shard": 5000},
            "megatron": {"part_bytes": "40KiB"},
            "nanoset": {"file_bytes": "40KiB", "loss": True, "sequence_tokens": 128},
            "sample_documents": 7,
        },
    )


def test_framing_bos_and_empty_documents_stand_in_both_formats_and_verify(framed, root) -> None:
    parts = parts_of(outputs(root, "framed"))
    documents = [part.document(i).tolist() for part in parts for i in range(part.documents)]
    assert all(document[0] == BOS and document[-1] == EOT for document in documents)
    assert [BOS, EOT] in documents
    assert len(documents) == framed.total("tokenize", "documents_out") == 60
    actual = verify_build(framed)
    assert not actual.findings, render(actual)
    assert sum(verify_records(framed, 10_000, 0).records.values()) >= 2 * 60


@pytest.mark.parametrize(("order", "empty"), [("random", 9), ("source", 4), ("source", 1)])
def test_framing_boundary_parts_of_empty_documents_join_a_neighbour(tmp_path, order, empty) -> None:
    """A part without a token cannot be mapped; its documents are delivered all the same."""
    bare = [""] * empty
    texts = [*bare, "one", *bare, "two", "three", *bare]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    built = build(
        tmp_path,
        dedup={"mode": "none"},
        framing={"empty_documents": "boundary"},
        shuffle={"seed": 3, "order": order},
        exports={"megatron": {"part_bytes": 8}},
    )
    parts = parts_of(outputs(tmp_path, "tiny"))
    described = json.loads((outputs(tmp_path, "tiny") / "dataset.json").read_text())["formats"]["megatron"]
    assert sum(part.documents for part in parts) == described["records"] == len(texts)
    assert len(parts) == described["outputs"]
    assert sum(len(part) for part in parts) == 3
    assert verify_build(built).findings == ()


def test_olmo_parts_that_share_tokens_are_cut_between_documents_by_its_limit(tmp_path, monkeypatch) -> None:
    """Of 2^32 tokens and more OLMo-core counts positions wrongly; the limit here is 200."""
    monkeypatch.setattr("corpusmill.export.formats.documents.OLMO_TOKENS", 200)
    texts = [f"{number} " * 20 for number in range(20)] + ["long " * 900]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    build(tmp_path, dedup={"mode": "none"}, exports={"megatron": {}, "olmo": {}})
    parts = parts_of(outputs(tmp_path, "tiny"))
    files = sorted((outputs(tmp_path, "tiny") / "olmo").glob("*.npy"))
    assert len(files) == len(parts) > 5
    assert all(path.samefile(part.data_path) for path, part in zip(files, parts, strict=True))
    assert all(np.fromfile(path, "<i4")[-1] == EOT for path in files)
    sizes = sorted(path.stat().st_size // 4 for path in files)
    assert sizes[-1] > 900
    assert sizes[-2] < 400


def test_several_keys_builds_of_two_keys_and_one_seed_keep_their_documents_side_by_side(tmp_path) -> None:
    """A dataset is one key's; lines are drawn by shard and ordinal, so that of another key has the same order."""
    texts = make_documents(60, seed=4)
    rows = [{"text": text, "title": f"line {number}"} for number, text in enumerate(texts)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "corpus" / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    encoding = cl100k()
    held = {}
    for key in ("text", "title"):
        build(
            tmp_path,
            name=key,
            source={"paths": [str(tmp_path / "corpus")], "text_field": key, "shard_bytes": "8KiB"},
            dedup={"mode": "none"},
            framing={"empty_documents": "boundary", "eod": False},
            exports={"megatron": {}},
        )
        (part,) = parts_of(outputs(tmp_path, key))
        assert part.index_path.name == f"{key}_00000_{key}_document.idx"
        held[key] = [encoding.decode(part.document(i).tolist()) for i in range(part.documents)]
    order = [int(title.removeprefix("line ")) for title in held["title"]]
    assert order != sorted(order)
    assert held["text"] == [texts[number] for number in order]


def test_one_token_file_is_one_file_at_a_local_destination(framed, root) -> None:
    folder = outputs(root, "framed")
    bins, files = sorted((folder / "megatron").glob("*.bin")), sorted((folder / "nanoset").glob("*.ds"))
    assert len(bins) == len(files) > 1
    assert all(item.samefile(two) for item, two in zip(bins, files, strict=True))
    traffic = framed.receipt("upload", "00000").traffic
    assert traffic["files_named"] == len(bins) + 1  # the sample, too
    again = build(root, **_config_of(framed))
    assert again.receipt("upload", "00000").traffic["files_named"] == 0
    assert again.receipt("upload", "00000").traffic["files_sent"] == 0


def _config_of(built: Build) -> dict[str, object]:
    """Enough to plan the same build again."""
    dumped = built.config.model_dump(mode="json", exclude_none=True)
    return {key: dumped[key] for key in ("name", "tokenizer", "framing", "exports", "selection")}


def test_sample_is_the_first_documents_of_the_shuffled_order_token_for_token(framed, root) -> None:
    folder = outputs(root, "framed")
    sample = megatron.open_part(folder / "sample" / "framed_sample_text_document")
    whole = [part.document(i) for part in parts_of(folder) for i in range(part.documents)][:7]
    assert sample.documents == 7
    assert all(np.array_equal(sample.document(i), document) for i, document in enumerate(whole))
    file = nanoset.open_file(folder / "sample" / "framed_sample.ds")
    assert len(file) == 7
    assert file.tokens.tobytes() == sample.tokens.tobytes()


def test_sums_name_every_file_as_sha256sum_writes_them(framed, root) -> None:
    folder = outputs(root, "framed")
    printed = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(printed) == there - {"SHA256SUMS"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256 for name, sha256 in printed.items())


def test_prefix_is_new_for_new_content_and_index_caches_are_left_alone(root) -> None:
    first = build(root, name="versions", exports={"megatron": {}})
    before = outputs(root, "versions")
    cache = before / "megatron" / "versions_00000_text_document" / "cache" / "GPTDataset_indices"
    cache.mkdir(parents=True)
    (cache / "0-GPTDataset-train-document_index.npy").write_bytes(b"an index of Megatron's loader")
    same = build(root, name="versions", exports={"megatron": {}})
    assert outputs(root, "versions") == before
    assert not verify_build(same).findings
    build(root, name="versions", exports={"megatron": {}}, shuffle={"seed": 8})
    after = outputs(root, "versions")
    assert after != before
    assert not list(after.rglob("cache"))  # a trainer that reads the new prefix cannot meet the old one's indexes
    assert json.loads((before.parent / "latest.json").read_text())["version"] == after.name
    assert first.receipt("manifest", "dataset").outputs


def test_merge_of_parts_of_different_vocabularies_is_refused_with_both(framed, root) -> None:
    """Both are int32, and no index of Megatron's names its tokenizer."""
    build(root, name="other", tokenizer={"name": "cl100k_base", "eot": "<|fim_suffix|>"}, exports={"megatron": {}})
    (other,) = parts_of(outputs(root, "other"))
    (first, *_) = parts_of(outputs(root, "framed"))
    with raises("merge.vocabularies_differ", "eot_id 100257", "eot_id 100260"):
        merge_exports([first.index_path, other.index_path], root / "merged")
    assert not list(root.glob("merged*"))
    counts = merge_exports([outputs(root, "framed") / "megatron"], root / "merged")
    assert counts["documents"] == sum(part.documents for part in parts_of(outputs(root, "framed")))


def test_report_windows_and_dropped_tokens_of_every_file(framed, root) -> None:
    from corpusmill.report.summary import from_json

    summary = from_json((framed.folder("report", "report") / "summary.json").read_bytes())
    told = next(export for export in summary.exports if export.format == "nanoset")
    assert told.sequence_tokens == 128
    files = {file.path: file for file in told.files}
    for path in sorted((outputs(root, "framed") / "nanoset").glob("*.ds")):
        tokens = nanoset.open_file(path).tokens.size
        item = files[f"nanoset/{path.name}"]
        assert (item.windows, item.dropped_tokens) == (tokens // 129, tokens % 129)
    assert told.windows > 0
    assert all(file.windows is None for file in files.values() if not file.path.endswith(".ds"))
