"""Rows of a dataset's inputs, however the files fall into shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.upload.stages.report import provenance
from tests.system.corpus import configuration


@pytest.mark.parametrize("shard_bytes", ["2KB", "3500B", "1MB"])
def test_provenance_counts_rows_of_each_folder_whether_shards_cut_or_join_its_files(
    tmp_path: Path, shard_bytes: str
) -> None:
    rows = {}
    for folder, files in (("books", 3), ("web", 4)):
        for number in range(files):
            path = tmp_path / folder / f"{folder}{number}.jsonl"
            path.parent.mkdir(exist_ok=True)
            texts = [f"{folder} {number} {line} " * 3 for line in range(10 + number * 17)]
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            rows[str(path.parent)] = rows.get(str(path.parent), 0) + len(texts)
    paths = [str(tmp_path / folder) for folder in ("books", "web")]
    source = {"paths": paths, "shard_bytes": shard_bytes}
    values = configuration(tmp_path, source=source, dedup={"mode": "none"}, exports={"nanoset": {}})
    build = open_build(build_dataset(check_config(values, where="test")))
    assert {item["name"]: item["lines"] for item in provenance(build)["inputs"]} == rows
