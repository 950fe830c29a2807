"""What a document that stays shares with a forgotten one, in any of its fields, is no finding."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.builds.forgetting.finding import Finder
from corpusmill.builds.forgetting.purge import purge
from corpusmill.builds.forgetting.remains import search_for
from corpusmill.builds.forgetting.staying import strings_of_other_fields
from corpusmill.inspect.verify import verify_build
from corpusmill.inspect.verify.destinations import IN_SPITE
from corpusmill.steps.stages import filter as filter_stage
from tests.system.corpus import make_documents
from tests.system.test_forget import Row, build, settings, write_list

TEXTS = [make_documents(2, seed=seed)[1][:400] for seed in (7, 8, 9)]
FORGOTTEN, STAYS, _ = TEXTS
PASSAGE = FORGOTTEN[:200]


STEPS = """
def shouted(document):
    return document.text.upper()

def spaced(document):
    return " ".join(document.text.split())

def kept(document):
    return document.fields["raw"] is not None
"""


def write_rows(root: Path, rows: list[Row], ending: str = ".jsonl") -> None:
    """One source file of some kind, and the list, which names the first row."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = root / "corpus" / f"part0{ending}"
    path.parent.mkdir()
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(zstandard.compress(data) if ending == ".jsonl.zst" else data)
    write_list(root, {"id": rows[0]["id"]})


def require_nothing_found(of: Any) -> None:
    assert verify_build(of).findings == ()
    assert purge(of).remains == []


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with STEPS."""
    (tmp_path / "staying_steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "staying_steps"


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst", ".parquet"])
@pytest.mark.parametrize("other", [{"raw": PASSAGE}, {"raw": {"pages": [f"<p>{FORGOTTEN}</p>"]}}])
def test_passage_in_another_field_of_a_document_that_stays_is_no_finding(
    ending: str, other: Row, tmp_path: Path
) -> None:
    """Deduplication writes documents back with all their fields."""
    write_rows(tmp_path, [{"id": "a", "text": FORGOTTEN, **other}, {"id": "b", "text": STAYS, **other}], ending)
    of = build(settings(tmp_path, "also"))
    assert search_for(of).unsearchable == (FORGOTTEN in str(other))
    require_nothing_found(of)


def test_address_in_a_forgotten_text_and_the_id_of_a_document_that_stays_is_no_finding(tmp_path: Path) -> None:
    address = "https://example.org/2024/12/31/how-to-carry-water-up-a-hill-of-stones"
    write_rows(tmp_path, [{"id": "a", "text": f"Short. {address}"}, {"id": address, "text": STAYS}])
    require_nothing_found(build(settings(tmp_path, "also", dedup={"mode": "none"})))


def test_passage_in_a_field_that_steps_ask_for_is_no_finding(steps: str, tmp_path: Path) -> None:
    """Nothing is written back: the field is in text shards alone."""
    write_rows(tmp_path, [{"id": "a", "text": FORGOTTEN, "raw": ""}, {"id": "b", "text": STAYS, "raw": FORGOTTEN}])
    asking = [{"use": f"{steps}:kept", "fields": ["raw"]}]
    require_nothing_found(build(settings(tmp_path, "also", dedup={"mode": "none"}, steps=asking)))


@pytest.mark.parametrize("before", ["index", "writeback"])
def test_text_that_a_step_makes_equal_to_a_forgotten_one_is_no_finding(before: str, steps: str, tmp_path: Path) -> None:
    """It is a copy of nothing: copies have the same text in the sources."""
    text = " ".join(FORGOTTEN.split())
    write_rows(tmp_path, [{"id": "a", "text": text}, {"id": "b", "text": text.replace(" ", "  ")}])
    late = [{"use": f"{steps}:spaced", "before": before}]
    require_nothing_found(build(settings(tmp_path, "also", steps=late)))


def test_fields_that_steps_ask_for_of_a_forgotten_document_are_purged(steps: str, tmp_path: Path) -> None:
    rows = [{"id": str(number), "text": text, "raw": f"by author {number}"} for number, text in enumerate(TEXTS)]
    rows[0]["raw"] += FORGOTTEN
    write_rows(tmp_path, rows)
    asking = [{"use": f"{steps}:kept", "fields": ["raw"]}]
    config = settings(tmp_path, "also", dedup={"mode": "none"}, steps=asking)
    of = build(config)
    require_nothing_found(of)
    files = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
    assert [path for path in files if b"by author 0" in path.read_bytes()] == []
    assert verify_build(of).findings == ()
    write_list(tmp_path, {"id": "0"}, {"id": "1"})
    require_nothing_found(build(config))


@pytest.mark.parametrize("left_in", ["copies", "join"])
@pytest.mark.parametrize("late", ["edited", "decontaminated"])
def test_document_that_the_filter_left_in_is_none_that_stays(
    left_in: str, late: str, steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the texts of a stage alone, or its text was changed and another field still has it."""
    texts = {"a": FORGOTTEN, "b": FORGOTTEN, "c": STAYS}
    rows = [{"id": name, "text": text, "raw": text} for name, text in texts.items()]
    write_rows(tmp_path, rows)
    (tmp_path / "items.jsonl").write_text(json.dumps({"question": PASSAGE}) + "\n")
    benchmarks = [{"name": "items", "path": str(tmp_path / "items.jsonl")}]
    changes: dict[str, Row] = {
        "edited": {"steps": [{"use": f"{steps}:shouted"}]},
        "decontaminated": {"decontamination": {"benchmarks": benchmarks, "action": "remove"}},
    }
    monkeypatch.setitem(filter_stage.READERS, left_in, lambda _step: {})
    of = build(settings(tmp_path, "also", **changes[late]))
    where = [finding.where for finding in verify_build(of).findings if finding.what == IN_SPITE]
    assert where[0] == f"part0.jsonl line {2 if left_in == 'copies' else 1}"
    assert len(where) > 1
    assert purge(of).remains


PAGE = "A page with a passage that only one person has ever written."


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (json.dumps({"meta": {"text": "other"}, "raw": PAGE}), {PAGE}),
        (json.dumps({"meta": {"text": PAGE}, "raw": PAGE}), set()),
        (json.dumps({"meta": {"text": PAGE}, "raw": "other"}), set()),
        (json.dumps({"raw": PAGE}), set()),
        (PAGE, set()),
    ],
)
def test_other_fields_count_only_of_a_line_whose_text_has_no_stretch(line: str, expected: set[str]) -> None:
    """A forgotten document that writeback had left in would have a text with one."""
    lines = io.BytesIO(f"{{}}\n{line}\r\n".encode())
    strings = strings_of_other_fields(lines, "meta.text", Finder([PAGE.encode()]))
    assert strings == {text.encode() for text in expected}


def test_other_fields_count_of_a_first_line_behind_a_byte_order_mark() -> None:
    line = b"\xef\xbb\xbf" + json.dumps({"text": "other", "raw": PAGE}).encode()
    assert strings_of_other_fields(io.BytesIO(line), "text", Finder([PAGE.encode()])) == {PAGE.encode()}
