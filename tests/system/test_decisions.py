"""Decisions made elsewhere: a build with them is a build of sources without the documents that they drop."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.preview import preview
from corpusmill.inspect.lineage import locate
from corpusmill.inspect.lineage.facts import DroppedLine
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import summarize
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, make_documents
from tests.system.test_steps import ours, outputs

LINE = ["file", "line"]


def rows_of(seed: int) -> list[dict[str, Any]]:
    return [{"id": f"{seed}-{number}", "text": text} for number, text in enumerate(make_documents(24, seed=seed))]


def score(row: dict[str, Any]) -> float:
    return len(row["text"]) % 10 / 10


def write_sources(root: Path, *, stay: Any = None) -> None:
    folder = root / "corpus"
    folder.mkdir(parents=True)
    for seed in range(3):
        rows = [row for row in rows_of(seed) if stay is None or stay(row)]
        (folder / f"part{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_decisions(root: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), root / "scores.parquet")
    elif kind == "arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(root / "scores.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=7)
    elif kind == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        (root / "scores.csv").write_text(text.getvalue())
    else:
        (root / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def scores(*, every: int = 1) -> list[dict[str, Any]]:
    rows = [
        {"id": row["id"], "file": f"part{seed}.jsonl", "line": line, "score": score(row)}
        for seed in range(3)
        for line, row in enumerate(rows_of(seed), start=1)
    ]
    return rows[::-1][::every]


def settings(root: Path, **changes: Any):
    values = {"source": {"paths": [str(root / "corpus")], "shard_bytes": 1}, **changes}
    return check_config(configuration(root, **values), where="test")


def decided(root: Path, kind: str = "jsonl", **changes: Any) -> dict[str, Any]:
    path = str(root / f"scores.{kind}")
    return {"decisions": [{"name": "quality", "path": path, "keep": "score >= 0.5", **changes}]}


def build(config: Any, workers: int = 1) -> Any:
    return open_build(build_dataset(config, workers=workers))


@cache
def scratch() -> dict[str, bytes]:
    """What a build of the documents that the decisions keep delivers."""
    with TemporaryDirectory() as folder:
        write_sources(Path(folder), stay=lambda row: score(row) >= 0.5)
        build(settings(Path(folder)))
        return outputs(Path(folder))


@pytest.mark.parametrize(
    "keyed",
    quick([("id", "jsonl"), (LINE, "csv"), ("id", "arrow"), ("id", "parquet"), ("id", "csv"), (LINE, "jsonl")], 3),
)
def test_build_with_decisions_is_a_build_without_the_documents(keyed: tuple[Any, str], tmp_path: Path) -> None:
    key, kind = keyed
    write_sources(tmp_path / "one")
    write_decisions(tmp_path, kind, scores())
    of = build(settings(tmp_path / "one", **decided(tmp_path, kind, key=key)))
    assert ours(outputs(tmp_path / "one")) == scratch()
    gone = [row["id"] for seed in range(3) for row in rows_of(seed) if score(row) < 0.5]
    rows = [json.loads(line) for line in outputs(tmp_path / "one")["steps/dropped.jsonl"].splitlines()]
    assert [(row["id"], row["reason"]) for row in rows] == [(item, "quality") for item in gone]
    assert (of.total("decided", "matched"), of.total("decided", "unmatched")) == (72, 0)
    assert all(check.ok for check in summarize(of).checks)
    assert verify_build(of).findings == ()


def test_documents_without_a_decision_stay_or_go(tmp_path: Path) -> None:
    write_decisions(tmp_path, "jsonl", scores(every=3))
    known = {row["id"] for row in scores(every=3)}
    fates = {
        "keep": lambda row: row["id"] not in known or score(row) >= 0.5,
        "drop": lambda row: row["id"] in known and score(row) >= 0.5,
    }
    for undecided, stay in fates.items():
        write_sources(tmp_path / undecided)
        write_sources(tmp_path / f"{undecided}-other", stay=stay)
        of = build(settings(tmp_path / undecided, **decided(tmp_path, undecided=undecided)))
        build(settings(tmp_path / f"{undecided}-other"))
        assert ours(outputs(tmp_path / undecided)) == outputs(tmp_path / f"{undecided}-other")
    assert of.total("filter", "dropped_quality: undecided") == 48


def test_decisions_come_before_steps_and_the_chain_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    (tmp_path / "after_decisions.py").write_text("def odd(document):\n    return len(document.text) % 2 == 1\n")
    write_sources(tmp_path)
    write_decisions(tmp_path, "jsonl", scores())
    of = build(settings(tmp_path, **decided(tmp_path), steps=[{"use": "after_decisions:odd"}]))
    reasons = ["quality" if score(row) < 0.5 else "odd" if len(row["text"]) % 2 == 0 else "" for row in rows_of(0)]
    for line, reason in enumerate(reasons, start=1):
        actual = locate(of, "part0.jsonl", line)
        assert (actual.reason if isinstance(actual, DroppedLine) else "") == reason
    assert all(check.ok for check in summarize(of).checks)


def test_decisions_that_meet_no_document_are_counted_and_too_many_fail(tmp_path: Path) -> None:
    write_sources(tmp_path)
    strangers = [{"id": f"nobody-{number}", "score": 1} for number in range(8)]
    write_decisions(tmp_path, "jsonl", [*strangers, *scores()])
    with raises("decisions.unmatched", "8 of 80 decisions", "scores.jsonl, row 1\n"):
        build(settings(tmp_path, **decided(tmp_path)))
    of = build(settings(tmp_path, **decided(tmp_path, max_unmatched_share=0.1)))
    assert of.total("decided", "unmatched") == 8
    actual = summarize(of).filtered
    assert actual is not None
    assert [(decision.name, decision.decisions, decision.unmatched) for decision in actual.decisions] == [
        ("quality", 80, 8)
    ]
    listed = (of.folder("decided", "quality") / "unmatched.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in listed] == list(range(1, 9))


def test_lines_of_a_file_in_parts_are_counted_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    rows = [{"id": str(number), "text": text} for number, text in enumerate(make_documents(60, seed=5))]
    for name, size in (("one", "1GiB"), ("parts", "8KiB")):
        folder = tmp_path / name / "corpus"
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        write_decisions(
            tmp_path, "jsonl", [{"file": "a.jsonl", "line": n, "score": n % 3} for n in range(1, len(rows) + 1)]
        )
        source = {"paths": [str(folder)], "shard_bytes": size}
        changes = decided(tmp_path, key=LINE)
        of = build(settings(tmp_path / name, source=source, dedup={"mode": "none"}, **changes))
        dropped = [json.loads(line)["id"] for line in outputs(tmp_path / name)["steps/dropped.jsonl"].splitlines()]
        assert dropped == [str(n - 1) for n in range(1, len(rows) + 1) if n % 3 == 0]
    assert len(of.units("filter")) > 1


def test_other_decisions_or_another_condition_read_no_source_again(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_decisions(tmp_path, "jsonl", scores())
    build(settings(tmp_path, **decided(tmp_path)))
    config = settings(tmp_path, **decided(tmp_path, keep="score >= 0.7"))
    fates = {(item.stage, item.unit): item.fate for item in preview(open_build(plan_dataset(config)))}
    assert {fates["index", f"0000{shard}"] for shard in range(3)} == {"reuse"}
    assert fates["decisions", "quality"] == "run"
    build(config)
    write_sources(tmp_path / "other", stay=lambda row: score(row) >= 0.7)
    build(settings(tmp_path / "other"))
    assert ours(outputs(tmp_path)) == outputs(tmp_path / "other")


def test_condition_that_cannot_be_read_is_an_error_of_the_plan(tmp_path: Path) -> None:
    write_sources(tmp_path)
    write_decisions(tmp_path, "jsonl", scores())
    with raises("condition.not_parsed"):
        plan_dataset(settings(tmp_path, **decided(tmp_path, keep="score > other")), to_build=True)


def test_workers_change_no_byte(tmp_path: Path) -> None:
    write_decisions(tmp_path, "jsonl", scores(every=2))
    for name, workers in (("one", 1), ("four", 4)):
        write_sources(tmp_path / name)
        build(settings(tmp_path / name, **decided(tmp_path)), workers=workers)
    assert outputs(tmp_path / "one") == outputs(tmp_path / "four")


def test_score_file_of_the_docs_drops_what_its_condition_is_false_for(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "steps.md").read_text()
    (script,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "zlib" in block]
    (written,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "scores.jsonl" in block]
    (tmp_path / "corpus").mkdir()
    texts = [*make_documents(24, seed=3), "again and again " * 50, "0123456789 " * 9, "zqxjkvbp" * 2]
    rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "corpus/a.jsonl").write_text(lines)
    run = subprocess.run([sys.executable, "-c", script], input=lines, capture_output=True, text=True, check=True)
    (tmp_path / "scores.jsonl").write_text(run.stdout)
    (decision,) = yaml.safe_load(written)["decisions"]
    decisions = [{**decision, "path": str(tmp_path / "scores.jsonl")}]
    build(settings(tmp_path, decisions=decisions, dedup={"mode": "none"}))
    gone = []
    for row in rows:
        data = row["text"].encode()
        compressed = len(zlib.compress(data)) / max(1, len(data))
        letters = sum(map(str.isalpha, row["text"])) / max(1, len(row["text"]))
        if not (0.2 <= compressed <= 0.7 and letters >= 0.6):
            gone.append(row["id"])
    dropped = [json.loads(line) for line in outputs(tmp_path)["steps/dropped.jsonl"].splitlines()]
    assert [row["id"] for row in dropped] == gone
    assert 3 <= len(gone) < len(rows)
