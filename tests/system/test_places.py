"""A document has one name and one line number everywhere: those of the user's own file, cut into parts or not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.builds.forgetting.remains import search_for
from corpusmill.builds.graph import open_build
from corpusmill.builds.infini_gram import write_index
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.dedup.stages.partitions import repeated_strings
from corpusmill.documents.quarantine import read_quarantine
from corpusmill.engine.build import Build
from corpusmill.engine.preview import preview
from corpusmill.inspect.lineage import locate
from corpusmill.inspect.lineage.facts import ContaminatedLine, DroppedLine, Located, RejectedLine
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import summarize
from tests.documents.test_splitting import bgzip_block
from tests.raising import raises
from tests.system.corpus import configuration, make_documents
from tests.system.test_decontamination import QUESTION, write_benchmark

STEPS = """
from pathlib import Path

from corpusmill.steps import Drop, Keep

def some(document, by):
    if document.line % by == 0:
        return Drop("by line")
    return Keep(attributes={"at": [document.file, document.line, document.id]})

def fails(document):
    if document.id == "doc-150":
        raise ValueError

def changes_the_file(document, path, old, new):
    if old in document.text:
        data = Path(path).read_bytes()
        Path(path).write_bytes(data.replace(old.encode(), new.encode()))
"""
ROWS = 160
CONTAMINATED = 141


def rows_of() -> list[bytes | None]:
    """The lines of the file; None for those that are no document."""
    texts = [text or "not empty" for text in make_documents(ROWS, seed=3)]
    texts[CONTAMINATED] += f" {QUESTION} and more"
    return [
        None if number % 11 == 5 else json.dumps({"id": f"doc-{number}", "text": text}).encode()
        for number, text in enumerate(texts)
    ]


def write(folder: Path, name: str) -> None:
    folder.mkdir()
    rows = rows_of()
    lines = [(row or b"{") + b"\n" for row in rows]
    if name.endswith(".parquet"):
        table = [json.loads(row) if row else {"id": None, "text": None} for row in rows]
        pq.write_table(pa.Table.from_pylist(table), folder / name, row_group_size=7)
    elif name.endswith(".zst"):
        data = [zstandard.compress(b"".join(lines[first : first + 3])) for first in range(0, ROWS, 3)]
        (folder / name).write_bytes(b"".join(data))
    else:
        (folder / name).write_bytes(b"".join(lines))
    (folder / "zz.jsonl").write_bytes(b"{\n" + json.dumps({"id": "last", "text": "the last one " * 9}).encode() + b"\n")


def config_of(root: Path, folder: Path, **changes: Any) -> Any:
    values = {
        "source": {"paths": [str(folder)], "shard_bytes": "8KiB", "max_rejected_share": 0.5},
        "steps": [
            {"use": "by_place:some", "with": {"by": 5}},
            {"use": "by_place:some", "with": {"by": 7}, "name": "late", "before": "writeback"},
        ],
        "decontamination": {"benchmarks": [write_benchmark(root, "kettles", QUESTION)], "action": "remove"},
    }
    return check_config(configuration(root, **(values | changes)), where="test")


@pytest.fixture(autouse=True)
def _small_files_are_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    (tmp_path / "by_place.py").write_text(STEPS)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def built(config: Any) -> Build:
    return open_build(build_dataset(config, workers=1))


@pytest.mark.parametrize("name", ["big.jsonl", "big.jsonl.zst", "big.parquet"])
def test_document_of_a_cut_file_is_named_by_the_line_of_the_users_file_everywhere(tmp_path: Path, name: str) -> None:
    write(tmp_path / "corpus", name)
    config = config_of(tmp_path, tmp_path / "corpus")
    build = built(config)
    assert len(build.plan.shards) > 3
    documents = {f"doc-{number}": number + 1 for number, row in enumerate(rows_of()) if row}
    latest = tmp_path / "outputs/tiny/latest"

    dropped = {row["id"]: (row["file"], row["line"]) for row in rows(latest / "steps/dropped.jsonl")}
    assert dropped == {id_: (name, line) for id_, line in documents.items() if line % 5 == 0 or line % 7 == 0}
    seen = [(row, at) for row in rows(latest / "steps/attributes.jsonl") for at in [row["attributes"]]]
    assert seen
    for row, at in seen:
        expected = [name, documents[row["id"]], row["id"]] if row["id"] != "last" else ["zz.jsonl", 2, "last"]
        assert [row["file"], row["line"], row["id"]] == expected
        assert all(step["at"] == expected for step in at.values())
    hits = {(row["file"], row["line"], row["id"]) for row in rows(latest / "decontamination/hits.jsonl")}
    assert hits == {(name, CONTAMINATED + 1, f"doc-{CONTAMINATED}")}

    malformed = {number + 1 for number, row in enumerate(rows_of()) if not row}
    summary = summarize(build)
    examples = [item for file in summary.quarantine for item in file.examples]
    assert {(item.source_file, item.line) for item in examples} <= {(name, line) for line in malformed} | {
        ("zz.jsonl", 1)
    }
    assert len({item.line for item in examples}) > 5
    quarantined = set()
    for file in summary.quarantine:
        with Path(file.path).open("rb") as stream:
            quarantined |= {(source, item.line_number + 1) for source, item in read_quarantine(stream, name=file.path)}
    assert quarantined == {(name, line) for line in malformed} | {("zz.jsonl", 1)}
    assert {item["source_file"] for item in repeated_strings(build)} <= {name, "zz.jsonl"}

    for line in range(1, ROWS + 1):
        found = locate(build, name, line)
        if line in malformed:
            kind: Any = RejectedLine
        elif line % 5 == 0 or line % 7 == 0:
            kind = DroppedLine
        else:
            kind = ContaminatedLine if line == CONTAMINATED + 1 else Located
        assert isinstance(found, kind), line
        where = (
            (found.document.source, found.document.line) if isinstance(found, Located) else (found.source, found.line)
        )
        assert where == (name, line)
    assert verify_build(build).findings == ()
    assert all(item.fate == "reuse" or item.why == "runs every time" for item in preview(build))


def test_rows_of_dropped_documents_copied_into_a_list_to_forget_match(tmp_path: Path) -> None:
    """They named parts, so they matched nothing, and the build succeeded."""
    write(tmp_path / "corpus", "big.jsonl")
    numbers = [number for number, row in enumerate(rows_of()) if row][-9:-1]
    taken = [{"file": "big.jsonl", "line": number + 1, "id": f"doc-{number}"} for number in numbers]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in taken))
    forget = {"path": str(tmp_path / "list.jsonl"), "key": ["file", "line"], "copies": "keep"}
    build = built(config_of(tmp_path, tmp_path / "corpus", forget=forget))
    places = search_for(build).places
    assert {(place.file, place.line) for place in places} == {(row["file"], row["line"]) for row in taken}
    assert verify_build(build).findings == ()


def test_errors_name_the_line_of_the_users_file(tmp_path: Path) -> None:
    write(tmp_path / "corpus", "big.jsonl")
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": "8KiB", "max_rejected_share": 0}
    with raises("documents.too_many_malformed") as rejected:
        built(config_of(tmp_path, tmp_path / "corpus", source=source))
    malformed = {f"big.jsonl line {number + 1}" for number, row in enumerate(rows_of()) if not row}
    where = str(dict(rejected.value.details)["where"]).split("\n")
    assert {line.partition(":")[0] for line in where} <= malformed | {"zz.jsonl line 1"}
    quarantine = Path(str(dict(rejected.value.details)["quarantine"]))
    assert {f"{row['source']} line {row['line']}" for row in rows(quarantine)} <= malformed | {"zz.jsonl line 1"}
    with raises("custom_step.failed", "big.jsonl, line 151"):
        built(config_of(tmp_path, tmp_path / "corpus", steps=[{"use": "by_place:fails"}]))


@pytest.mark.parametrize("name", ["big.jsonl", "big.parquet"])
def test_annotated_hit_of_a_cut_file_is_in_its_document(tmp_path: Path, name: str) -> None:
    write(tmp_path / "corpus", name)
    benchmarks = [write_benchmark(tmp_path, "kettles", QUESTION)]
    marked = {"benchmarks": benchmarks, "action": "annotate", "annotate_key": "hits"}
    build = built(config_of(tmp_path, tmp_path / "corpus", steps=None, decontamination=marked))
    assert len(build.plan.shards) > 3
    folder = tmp_path / "outputs/tiny/latest/documents"
    if name.endswith(".parquet"):
        written = [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    else:
        written = [row for path in sorted(folder.glob("big*.jsonl")) for row in rows(path)]
    assert [row["id"] for row in written if row.get("hits")] == [f"doc-{CONTAMINATED}"]
    assert verify_build(build).findings == ()


def test_infini_gram_index_of_a_cut_file_names_the_users_file_and_lines(tmp_path: Path) -> None:
    write(tmp_path / "corpus", "big.jsonl")
    config = config_of(tmp_path, tmp_path / "corpus", steps=None, decontamination=None)
    write_index(config, str(tmp_path / "ngrams"), workers=1)
    written = sorted((tmp_path / "ngrams").glob("*/metadata"))
    assert len(written) > 3
    named = {row["metadata"]["id"]: (row["path"], row["linenum"]) for path in written for row in rows(path)}
    places = {f"doc-{number}": ("big.jsonl", number) for number, row in enumerate(rows_of()) if row}
    assert named == places | {"last": ("zz.jsonl", 1)}


def stored_lines(folder: Path, name: str) -> list[str]:
    """Writes a file whose texts stand in it as they are; returns how each begins."""
    folder.mkdir()
    texts = [f"{number:05d} " + text for number, text in enumerate(make_documents(ROWS, seed=5))]
    rows = [{"id": f"doc-{number}", "text": text} for number, text in enumerate(texts)]
    if name.endswith(".parquet"):
        as_they_are: Any = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=7, **as_they_are)
    else:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [text[:6] for text in texts]


@pytest.mark.parametrize("name", ["big.jsonl", "big.parquet"])
def test_line_of_a_cut_file_that_changed_is_named_as_in_the_users_file(tmp_path: Path, name: str) -> None:
    """A step changes it while the dataset is built: after it was indexed, before it is read again."""
    texts, changed = stored_lines(tmp_path / "corpus", name), ROWS - 20
    change = {"path": str(tmp_path / "corpus" / name), "old": texts[changed], "new": "xxxxx "}
    steps = [{"use": "by_place:changes_the_file", "with": change, "before": "writeback"}]
    with raises("source.changed_during_build source.changed_since_indexed") as failed:
        built(config_of(tmp_path, tmp_path / "corpus", steps=steps, decontamination=None))
    if name.endswith(".parquet"):  # it is compared whole before a row is read
        what, where = "a source file changed during the build", name
    else:
        what, where = "a source file differs from the one that was indexed", f"{name}, line {changed + 1:,}"
    assert (failed.value.what, dict(failed.value.details)["where"]) == (what, where)


def test_annotation_without_a_place_names_the_line_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    texts = [f"{number:05d} " + text * 3 for number, text in enumerate(make_documents(400, seed=6))]
    rows = [{"text": text} | ({"ranges": []} if number == 390 else {}) for number, text in enumerate(texts)]
    (tmp_path / "corpus/big.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dedup = {"mode": "annotate", "minimum_bytes": 100, "writeback": True, "annotate_key": "ranges"}
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": "64KiB"}
    with raises("annotation.key_taken") as failed:
        built(config_of(tmp_path, tmp_path / "corpus", steps=None, decontamination=None, dedup=dedup, source=source))
    assert dict(failed.value.details)["where"] == "big.jsonl, line 391"


def damaged(folder: Path, name: str) -> tuple[int, int]:
    """Writes a file of many frames, of which one is damaged; returns where that begins, and the file's size."""
    folder.mkdir()
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in make_documents(6000, seed=5)]  # 9 MB
    pack = bgzip_block if ".gz" in name else zstandard.ZstdCompressor(write_checksum=True).compress
    frames = [pack(b"".join(lines[first : first + 3])) for first in range(0, len(lines), 3)]
    bad = len(frames) * 3 // 4
    begin, end = len(b"".join(frames[:bad])), len(b"".join(frames[: bad + 1]))
    data = bytearray(b"".join(frames))
    data[end - (12 if ".gz" in name else 9)] ^= 0x55  # before the checksum
    (folder / name).write_bytes(data)
    return begin, len(data)


@pytest.mark.parametrize("name", ["big.jsonl.zst", "big.jsonl.gz"])
def test_damage_in_a_cut_file_is_named_by_the_byte_of_the_users_file(tmp_path: Path, name: str) -> None:
    begin, size_bytes = damaged(tmp_path / "corpus", name)
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": "256KiB"}
    with raises("source.not_decompressable") as failed:
        built(config_of(tmp_path, tmp_path / "corpus", steps=None, decontamination=None, source=source))
    where = str(dict(failed.value.details)["where"])
    said = re.fullmatch(
        rf"{name}, at or before byte ([0-9,]+), after [0-9,]+ decompressed bytes from byte [0-9,]+ on", where
    )
    assert said, where
    assert begin < int(said[1].replace(",", "")) <= size_bytes


def test_damaged_row_group_of_a_cut_file_is_said_of_the_users_file(tmp_path: Path) -> None:
    texts = stored_lines(tmp_path / "corpus", "big.parquet")
    data = bytearray((tmp_path / "corpus/big.parquet").read_bytes())
    at = data.index(texts[70].encode())
    data[at - 64 : at - 4] = bytes(60)  # the header of the page before it
    (tmp_path / "corpus/big.parquet").write_bytes(data)
    with raises("parquet.not_readable") as failed:
        built(config_of(tmp_path, tmp_path / "corpus", steps=None, decontamination=None))
    assert str(dict(failed.value.details)["where"]).startswith("big.parquet")
    assert "part0" not in str(failed.value)
