"""What people script, and the page that shows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.export.megatron import open_part
from tests.commands.folder import write_folder
from tests.raising import raises
from tests.system.corpus import configuration

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("api")
    write_folder(root)
    with chdir(root):
        corpusmill.build("web.yaml")
    return root


def test_page_blocks_run_one_after_another_in_one_script(tmp_path: Path) -> None:
    write_folder(tmp_path)
    script = tmp_path / "script.py"
    script.write_text("\n".join(BLOCKS))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert " tokens\n" in done.stdout
    assert "doc-" in done.stdout
    assert "news.jsonl" in done.stdout
    assert re.match(r"\d+ documents, the first: \[[\d\s.]+\] \S", done.stdout)
    assert all(f"corpusmill.{name}(" in "".join(BLOCKS) for name in corpusmill.__all__ if name[0] != "_")


def test_page_begins_with_five_lines_that_show_a_document() -> None:
    assert len(BLOCKS[0].splitlines()) == 5
    assert PAGE.read_text().split("```")[0].strip() == "# From Python"
    assert "documents.text(0)" in BLOCKS[0]


def test_plan_of_a_mapping_and_of_its_file_are_equal_and_reuse_what_was_built(root: Path) -> None:
    with chdir(root):
        values = corpusmill.load("web.yaml").model_dump(mode="json", exclude_none=True)
        steps = corpusmill.plan("web.yaml")
        assert corpusmill.plan(values) == steps
    assert {step.fate for step in steps if step.stage == "tokenize"} == {"reuse"}


def test_load_of_a_wrong_mapping_raises_all_errors_at_once() -> None:
    with raises("config.missing_key", "name", "tokenizer"):
        corpusmill.load({"source": {"paths": ["data"]}})


def test_records_of_every_export_are_the_files_own_and_add_up(root: Path) -> None:
    dataset = corpusmill.open_dataset(root / "outputs" / "web" / "latest")
    parts = [
        open_part(dataset.folder / file["name"].removesuffix(".bin"))
        for file in dataset.files("megatron")
        if file["name"].endswith(".bin")
    ]
    read = [part.document(number) for part in parts for number in range(part.documents)]
    assert all(map(np.array_equal, dataset.records("megatron"), read))
    for export, stated in dataset.description["formats"].items():
        records = list(dataset.records(export))
        assert len(records) == stated.get("records", stated["outputs"])
        assert sum(len(record) for record in records) == stated["slots"]


FORGOTTEN = {7, 60}  # takedowns.jsonl


def test_documents_are_those_that_were_delivered(root: Path) -> None:
    dataset = corpusmill.open_dataset(root / "outputs" / "web" / "latest")
    documents = list(dataset.documents())
    assert sorted(document["id"] for document in documents) == sorted(
        f"doc-{number}" for number in range(80) if number not in FORGOTTEN
    )


def test_documents_of_parquet_sources_are_their_rows(tmp_path: Path) -> None:
    rows = [{"id": f"row-{number}", "text": f"{number} stones in the water", "stars": number} for number in range(9)]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "rows.parquet")
    values = configuration(tmp_path, source={"paths": [str(tmp_path / "data")]}, exports={"nanoset": {}})
    corpusmill.build(values)
    dataset = corpusmill.open_dataset(tmp_path / "outputs" / "tiny" / "latest")
    assert list(dataset.documents()) == rows


def test_damaged_documents_are_refused_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"text": f"{number} stones in the water"} for number in range(9)]
    (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "b.parquet")
    corpusmill.build(configuration(tmp_path, source={"paths": [str(tmp_path / "data")]}, exports={"nanoset": {}}))
    dataset = corpusmill.open_dataset(tmp_path / "outputs" / "tiny" / "latest")
    table, lines = (dataset.folder / "documents" / name for name in ("b.parquet", "a.jsonl"))
    intact = table.read_bytes()
    table.write_bytes(intact[:4] + bytes(60) + intact[64:])
    with raises("parquet.not_readable", "documents/b.parquet"):
        list(dataset.documents())
    lines.write_bytes(lines.read_bytes().replace(b'"3 stones', b'"3\n stones'))
    with raises("dataset.documents_damaged", "documents/a.jsonl, line 4\n"):
        list(dataset.documents())


def test_open_dataset_of_another_folder_or_format_says_what_is_there(root: Path) -> None:
    with raises("dataset.not_finished", "dataset.json"):
        corpusmill.open_dataset(root)
    with raises("dataset.no_such_export", "webdataset or numpy"):
        next(corpusmill.open_dataset(root / "outputs" / "web" / "latest").records("parquet"))


def test_trace_names_the_documents_of_a_record(root: Path) -> None:
    with chdir(root):
        traced = corpusmill.trace("web.yaml", "nanoset", 0, 0)
    (piece,) = [part for part in traced.parts if hasattr(part, "document")]
    assert piece.document.source in {"news.jsonl", "talk.jsonl"}
