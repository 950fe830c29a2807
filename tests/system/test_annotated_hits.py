"""`decontamination.action: annotate`: documents keep their text and say which items of benchmarks they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.dedup.stages import writeback
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import summarize
from tests.raising import raises
from tests.system.test_decontamination import (
    HITS,
    OTHER,
    QUESTION,
    build,
    decontaminated,
    documents,
    outputs,
    settings,
    write_benchmark,
    write_sources,
)

REMOVE = {"mode": "remove", "minimum_bytes": 100}
ANNOTATE = {"mode": "annotate", "minimum_bytes": 100}


def rows_of(files: dict[str, bytes], folder: Path) -> dict[str, dict[str, Any]]:
    """The delivered documents by their ids."""
    rows = []
    for name, content in files.items():
        if name.endswith(".parquet"):
            rows += pq.read_table(folder / "outputs" / "tiny" / "latest" / name).to_pylist()
        elif name.startswith("documents/"):
            rows += [json.loads(line) for line in content.splitlines()]
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize(("dedup", "tables"), [(REMOVE, True), (ANNOTATE, False)], ids=["tables", "lines"])
def test_annotated_documents_equal_the_others_but_for_their_hits(dedup: Any, tables: bool, tmp_path: Path) -> None:
    write_sources(tmp_path / "one", tables=tables)
    write_sources(tmp_path / "other", tables=tables)
    benchmark = write_benchmark(tmp_path, "both", QUESTION, OTHER)
    of = build(decontaminated(tmp_path / "one", benchmark, action="annotate", dedup=dedup))
    build(settings(tmp_path / "other", dedup=dedup))
    item, other = outputs(tmp_path / "one"), outputs(tmp_path / "other")
    hits = [json.loads(line) for line in item.pop(HITS).splitlines()]
    assert len(hits) == 3
    annotated, plain = rows_of(item, tmp_path / "one"), rows_of(other, tmp_path / "other")
    printed = {identity: row.pop("contamination") for identity, row in annotated.items()}
    assert annotated == plain
    assert {name: item[name] for name in item if not name.startswith("documents/")} == {
        name: other[name] for name in other if not name.startswith("documents/")
    }
    assert {identity: len(value) for identity, value in printed.items() if value} == {"0-3": 1, "1-3": 1, "2-3": 1}
    for row in hits:
        (hit,) = printed[row["id"]]
        passage = annotated[row["id"]]["text"].encode()[hit["begin"] : hit["end"]].decode()
        repeats = dedup["mode"] == "remove" and row["id"] == "2-3"  # its question stands in 0-3
        assert passage == ("" if repeats else row["passage"])
        assert {name: hit[name] for name in ("benchmark", "item", "part", "share")} == {
            name: row[name] for name in ("benchmark", "item", "part", "share")
        }
    assert not verify_build(of).findings


def test_hits_of_text_that_is_removed_in_part_name_what_is_left_of_it(tmp_path: Path) -> None:
    """The second document repeats the first one's text, its item's first half included."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    half = QUESTION[: QUESTION.index("Friday")]
    shared = " ".join(f"ähnlich {number}" for number in range(40)) + f" {half}"
    texts = [f"{shared} and no more of it", f"then {shared}Friday{QUESTION.partition('Friday')[2]} end"]
    lines = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
    (folder / "part.jsonl").write_text("\n".join(lines) + "\n")
    build(decontaminated(tmp_path, write_benchmark(tmp_path, "both", QUESTION), action="annotate", dedup=REMOVE))
    rows = rows_of(outputs(tmp_path), tmp_path)
    text = rows["1"]["text"].encode()
    (hit,) = rows["1"]["contamination"]
    rest = text[hit["begin"] : hit["end"]].decode()
    assert rest == QUESTION[QUESTION.index("Friday") : -1]
    assert len(text) < len(shared)


def test_hits_of_a_document_that_is_dropped_as_empty_go_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [{"id": "0", "text": f"before {QUESTION}"}, {"id": "1", "text": QUESTION}, {"id": "2", "text": OTHER}]
    (folder / "part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dedup = {**REMOVE, "drop_empty": True}
    benchmark, framing = write_benchmark(tmp_path, "both", QUESTION, OTHER), {"empty_documents": "eod"}
    of = build(decontaminated(tmp_path, benchmark, action="annotate", dedup=dedup, framing=framing))
    rows_written = rows_of(outputs(tmp_path), tmp_path)
    hits = {number: [hit["item"] for hit in row["contamination"]] for number, row in rows_written.items()}
    assert hits == {"0": ["both/0"], "2": ["both/1"]}
    (hit,) = rows_written["2"]["contamination"]
    assert (hit["begin"], hit["end"]) == (0, len(OTHER) - 1)
    assert of.total("decontaminate", "hits") == 3
    assert all(check.ok for check in summarize(of).checks)


@pytest.mark.parametrize(
    ("changes", "key", "code"),
    [
        ({"dedup": {"mode": "none"}}, "contamination", "config.annotation_without_documents"),
        ({"dedup": {**REMOVE, "writeback": False}}, "contamination", "config.annotation_without_documents"),
        ({"dedup": {**ANNOTATE, "annotate_key": "meta"}}, "meta.hits", "config.annotation_place_twice"),
    ],
    ids=["no dedup", "no documents", "one key in the other"],
)
def test_annotations_without_a_place_are_refused(changes: Any, key: str, code: str, tmp_path: Path) -> None:
    wanted = {"benchmarks": [{"name": "one", "path": "items.jsonl"}], "action": "annotate", "annotate_key": key}
    with raises(code):
        settings(tmp_path, decontamination=wanted, **changes)
    wanted["action"] = "report"
    settings(tmp_path, decontamination=wanted, **changes)


def test_both_annotations_stand_in_one_object(tmp_path: Path) -> None:
    write_sources(tmp_path)
    benchmark = write_benchmark(tmp_path, "both", QUESTION, OTHER)
    wanted = {"benchmarks": [benchmark], "action": "annotate", "annotate_key": "meta.hits"}
    build(settings(tmp_path, decontamination=wanted, dedup={**ANNOTATE, "annotate_key": "meta.ranges"}))
    rows = rows_of(outputs(tmp_path), tmp_path)
    assert {tuple(row["meta"]) for row in rows.values()} == {("ranges", "hits")}
    assert documents(0)[3] == rows["0-3"]["text"]


def test_hits_that_go_to_another_document_do_not_balance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sources(tmp_path)
    right = writeback._annotations

    def shifted(*arguments: Any, **named: Any) -> Any:
        (annotation,) = right(*arguments, **named)
        value_of = annotation.value_of
        annotation.value_of = lambda document: value_of(document + 1)
        return [annotation]

    monkeypatch.setattr(writeback, "_annotations", shifted)
    with raises("step.unbalanced"):
        build(decontaminated(tmp_path, write_benchmark(tmp_path, "both", QUESTION), action="annotate"))
