"""The program of docs/guarantees.md, as it stands there, against real builds: a stranger's check of a Nanoset."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.report.summary import DecodedSummary, from_json
from tests.system.corpus import configuration, lines_of, make_documents

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
TOKENIZER = {"name": "cl100k_base", "bos": "<|fim_prefix|>"}
FRAMINGS: dict[str, dict[str, Any]] = {
    "eod": {},
    "bos and empty documents": {"eod": True, "bos": True, "empty_documents": "eod"},
    "bare": {"eod": False},
}


@pytest.fixture(scope="module", params=FRAMINGS)
def delivered(request, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("guarantees")
    (root / "corpus").mkdir()
    texts = [
        *make_documents(30, seed=1),
        " ".join(str(n) for n in range(3000)),
    ]  # one of several blocks of 1,024 tokens
    (root / "corpus" / "a.jsonl").write_bytes(lines_of(texts))
    exports = {"nanoset": {"file_bytes": "40KiB"}, "webdataset": {"context_tokens": 129}}
    values = configuration(root, exports=exports, framing=FRAMINGS[request.param], tokenizer=TOKENIZER)
    build_dataset(check_config(values, where="test"), workers=1)
    return (root / "outputs" / "tiny" / "latest").resolve()


@pytest.fixture
def program(tmp_path) -> Path:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "check.py"
    path.write_text(block)
    return path


def run(program: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-W", "error", program, folder], capture_output=True, text=True, check=False
    )


def test_program_of_the_page_passes_what_was_delivered(program, delivered) -> None:
    done = run(program, delivered)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(list(delivered.glob("nanoset/*.ds"))) > 1


@pytest.mark.parametrize("damage", ["changed", "exchanged", "boundary", "dataset.json"])
def test_program_of_the_page_refuses_what_was_changed(program, delivered, tmp_path, damage: str) -> None:
    folder = tmp_path / delivered.name
    shutil.copytree(delivered, folder)
    path = sorted(folder.glob("nanoset/*.ds"))[-1]
    if damage == "dataset.json":
        path = folder / "dataset.json"
        path.write_text(path.read_text().replace("content", "contents"))
    elif damage == "boundary":
        path = path.with_name(f"{path.name}.index")
        ends = np.fromfile(path, "<u8")
        ends[0] += 1
        path.write_bytes(ends.tobytes())
    else:
        tokens = np.fromfile(path, "<u4")
        different = int(np.flatnonzero(tokens[1:] != tokens[1])[0]) + 1
        tokens[[1, different]] = (tokens[1] + 1, tokens[different]) if damage == "changed" else tokens[[different, 1]]
        path.write_bytes(tokens.tobytes())
    done = run(program, folder)
    assert done.returncode == 1
    assert path.name.removesuffix(".index") in done.stderr


def test_report_shows_the_accounts_of_content_in_order_of_the_chain(delivered) -> None:
    (path,) = delivered.parents[2].glob("work/tiny/report/*/summary.json")
    summary = from_json(path.read_bytes())
    assert summary.decoded == DecodedSummary(exactly=31, normalized=0, unproven=0)
    checks = summary.checks
    names = [check.name for check in checks if check.of_content]
    assert names == [
        "writeback: text",
        "manifest: kept text",
        "scatter: content",
        "manifest: documents content",
        "manifest: contexts content",
        "manifest: webdataset content",
        "manifest: nanoset content",
    ]
    assert [check.name for check in checks][: len(names)] == names
    assert all(len(check.left) == len(check.right) == 1 for check in checks if check.of_content)
