"""Documents that become empty: `drop_empty` drops them from every format, or from none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.inspect.lineage import locate, verify_records
from corpusmill.inspect.lineage.facts import DroppedLine
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import summarize
from tests.oracles.cl100k import cl100k
from tests.system.test_document_exports import EOT, build, outputs, parts_of

ONE = "Three documents have these words, so deduplication keeps them in one of those and leaves nothing of both others."
STEPS = """def blank(document, word):
    return document.text.replace(word, "") if document.text == word else None
"""
TEXTS = ["first", ONE, "", ONE, "early", "between", "late", ONE, "last"]
CASES: dict[str, Any] = {
    "boundary and steps": ({"framing": {"empty_documents": "boundary"}, "exports": {"megatron": {}}}, True),
    "eod and steps": ({"framing": {"empty_documents": "eod"}, "packing": {"empty_documents": "keep"}}, True),
    "skip and steps": ({}, True),
}


def settings(root: Path, case: str, monkeypatch: pytest.MonkeyPatch, *, drop_empty: bool) -> dict[str, Any]:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(root))
    (root / "blanking.py").write_text(STEPS)
    (root / "corpus").mkdir()
    rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(TEXTS)]
    (root / "corpus" / "a.jsonl").write_text("\n".join(rows[:5]) + "\n")
    (root / "corpus" / "b.jsonl").write_text("\n".join(rows[5:]) + "\n")
    changes, with_steps = CASES[case]
    early, late = ({"use": "blanking:blank", "name": word, "with": {"word": word}} for word in ("early", "late"))
    steps = {"steps": [early, {**late, "before": "writeback"}]} if with_steps else {}
    return {"dedup": {"mode": "remove", "minimum_bytes": 50, "drop_empty": drop_empty}, **changes, **steps}


def written(folder: Path) -> list[str]:
    """The texts in documents/."""
    lines = [line for name in ("a", "b") for line in (folder / f"documents/{name}.jsonl").read_text().splitlines()]
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("drop_empty", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_drop_empty_drops_the_same_documents_from_token_formats_as_from_documents(
    case: str, drop_empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = settings(tmp_path, case, monkeypatch, drop_empty=drop_empty)
    of = build(tmp_path, **changes)
    folder = outputs(tmp_path, "tiny")
    gone = {3, 7, *([4, 6] if CASES[case][1] else [])}  # what becomes empty; document 2 always was
    expected = [
        "" if number in gone else text for number, text in enumerate(TEXTS) if not (drop_empty and number in gone)
    ]
    texts = written(folder)
    assert texts == expected
    kept = changes.get("framing", {}).get("empty_documents", "skip") != "skip"
    of_megatron = [
        cl100k().decode(part.document(number).tolist()) for part in parts_of(folder) for number in range(part.documents)
    ]
    ends = "<|endoftext|>"
    assert Counter(text.removesuffix(ends) for text in of_megatron) == Counter(filter(lambda text: text or kept, texts))
    if of.config.exports.numpy:
        stream = np.concatenate([np.load(path) for path in sorted((folder / "numpy").rglob("*.npy"))])
        assert int((stream == EOT).sum()) == (len(texts) if kept else sum(map(bool, texts)))
    if of.config.exports.webdataset:
        packed = "packing" in changes
        contexts = [receipt for receipt in of.receipts("scatter") if receipt.unit.startswith("contexts")]
        special = sum(receipt.counts["special_tokens"] for receipt in contexts)
        assert special == (len(texts) if packed else sum(map(bool, texts)))
    assert all(check.ok for check in summarize(of).checks)
    assert verify_build(of).findings == ()
    verify_records(of, 1000, 0)


def test_locate_says_that_a_document_was_dropped_as_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = build(tmp_path, **settings(tmp_path, "eod and steps", monkeypatch, drop_empty=True))
    located = locate(of, "a.jsonl", 4)
    assert isinstance(located, DroppedLine)
    assert located.reason == "emptied"
