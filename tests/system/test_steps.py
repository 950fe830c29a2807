"""Steps of one's own: a build with them is a build of sources that they had already decided about."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import StepConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.engine.preview import preview
from corpusmill.inspect.lineage import locate, locate_id, render_located
from corpusmill.inspect.lineage.facts import DroppedLine, Located
from corpusmill.inspect.lineage.verify import verify_records
from corpusmill.inspect.verify import verify_build
from corpusmill.steps.loading import identity_of, load
from corpusmill.upload.stages.summarize import shard_table, summarize
from tests.raising import raises
from tests.system.corpus import configuration, make_documents

STEPS = """
from corpusmill.steps import Drop, Keep

def long_enough(document, words=1):
    return len(document.text.split()) >= words

def no_water(document):
    if document.text.count("water") > 30:
        return Drop("wet")
    return None

def tidy(document, word="stone"):
    text = document.text.replace(word, "pebble").replace("\\n\\n", "\\n")
    cut = [(at, at + 3) for at in (0, 10) if len(text) > 100]
    return Keep(text, cut, {"length": len(text)} if text else {})
"""


def decided(text: str) -> str | None:
    """What the three steps above make of a text: the oracle."""
    if len(text.split()) < 20 or text.count("water") > 30:
        return None
    text = text.replace("stone", "pebble").replace("\n\n", "\n")
    return text[3:10] + text[13:] if len(text) > 100 else text


CHAIN = [
    {"use": "my_filters:long_enough", "with": {"words": 20}},
    {"use": "my_filters:no_water"},
    {"use": "my_filters:tidy", "name": "tidied"},
]


def texts_of(seed: int) -> list[str]:
    return make_documents(24, seed=seed)


def write_sources(root: Path, *, already: bool = False, tables: bool = False) -> None:
    """Three files; `already`: without what the steps drop, and with the texts that they give."""
    folder = root / "corpus"
    folder.mkdir(parents=True)
    for seed in range(3):
        rows: list[dict[str, Any]] = [
            {"id": f"{seed}-{number}", "text": text} for number, text in enumerate(texts_of(seed))
        ]
        if already:
            rows = [{**row, "text": text} for row in rows if (text := decided(row["text"])) is not None]
        if tables:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"part{seed}.parquet", row_group_size=5)
        else:
            lines = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
            (folder / f"part{seed}.jsonl").write_text(lines)


@pytest.fixture
def filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module my_filters in a root folder of the test's own."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    path = tmp_path / "my_filters.py"
    path.write_text(STEPS)
    return path


def settings(root: Path, **changes: Any):
    return check_config(
        configuration(root, **{"source": {"paths": [str(root / "corpus")], "shard_bytes": 1}, **changes}), where="test"
    )


def build(config: Any, workers: int = 1) -> Build:
    return open_build(build_dataset(config, workers=workers))


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    actual = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in actual.items() if name not in {"dataset.json", "SHA256SUMS"}}


@pytest.fixture(scope="module")
def chained_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root folder with a dataset that was built with CHAIN."""
    root = tmp_path_factory.mktemp("chained")
    (root / "my_filters.py").write_text(STEPS)
    write_sources(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUSMILL_ROOT", str(root))
        build(settings(root, steps=CHAIN))
    return root


@pytest.fixture
def chained(chained_root: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """That build."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(chained_root))
    return open_build(next((chained_root / "work/tiny/plan").glob("*/receipt.json")))


def ours(outputs: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in outputs.items() if not name.startswith("steps/")}


@pytest.mark.parametrize(
    ("mode", "tables"),
    [("annotate", True), ("remove", False), ("none", False), pytest.param("remove", True, marks=pytest.mark.slow)],
)
def test_build_with_steps_is_a_build_of_what_they_left(mode: str, tables: bool, filters: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"dedup": {"mode": mode, **({} if mode == "none" else {"minimum_bytes": 100})}}
    write_sources(tmp_path / "one", tables=tables)
    write_sources(tmp_path / "other", already=True, tables=tables)
    of = build(settings(tmp_path / "one", steps=CHAIN, **changes))
    build(settings(tmp_path / "other", **changes))
    item, other = outputs(tmp_path / "one"), outputs(tmp_path / "other")
    rows = [json.loads(line) for line in item["steps/dropped.jsonl"].splitlines()]
    gone = [f"{seed}-{n}" for seed in range(3) for n, text in enumerate(texts_of(seed)) if decided(text) is None]
    assert [row["id"] for row in rows] == gone
    assert {row["reason"] for row in rows} == {"long_enough", "no_water: wet"}
    if tables and mode != "none":
        for name in [name for name in item if name.startswith("documents/")]:
            mine, theirs = (pq.read_table(pa.BufferReader(data.pop(name))).to_pylist() for data in (item, other))
            assert mine == theirs
    assert ours(item) == ours(other)
    assert of.total("filter", "documents_out") == 72 - len(gone)
    assert all(check.ok for check in summarize(of).checks)


def test_dropped_document_is_located_with_its_reason(chained: Build) -> None:
    number = next(number for number, text in enumerate(texts_of(1)) if decided(text) is None)
    left_out = locate(chained, "part1.jsonl", number + 1)
    assert isinstance(left_out, DroppedLine)
    assert locate_id(chained, f"1-{number}") == (left_out,)
    assert "dropped, long_enough" in render_located(left_out)
    stays = next(number for number, text in enumerate(texts_of(1)) if decided(text))
    assert isinstance(locate(chained, "part1.jsonl", stays + 1), Located)
    assert verify_build(chained).findings == ()
    assert verify_records(chained, 1000, 1).documents > 10


def test_report_has_reasons_samples_and_rows_of_shards(chained: Build) -> None:
    actual = summarize(chained).filtered
    assert actual is not None
    dropped = [text for seed in range(3) for text in texts_of(seed) if decided(text) is None]
    assert actual.documents_dropped == len(dropped)
    assert {reason.reason: reason.documents for reason in actual.reasons}["long_enough"] == sum(
        len(text.split()) < 20 for text in dropped
    )
    assert sum(reason.text_bytes for reason in actual.reasons) == sum(len(text.encode()) for text in dropped)
    assert {example.excerpt for example in actual.examples} <= {text[:300] for text in dropped}
    assert sum(row.dropped_documents or 0 for row in shard_table(chained).rows) == len(dropped)
    page = (chained.folder("report", "report") / "report.html").read_text()
    assert "no_water: wet" in page


def test_attributes_are_delivered_with_their_documents(chained_root: Path) -> None:
    rows = [json.loads(line) for line in outputs(chained_root)["steps/attributes.jsonl"].splitlines()]
    lengths = {row["id"]: row["attributes"]["tidied"]["length"] for row in rows}
    kept = {f"{s}-{n}": text for s in range(3) for n, text in enumerate(texts_of(s)) if decided(text) is not None}
    assert lengths.keys() == kept.keys()
    assert all(
        lengths[item] == len(text.replace("stone", "pebble").replace("\n\n", "\n")) for item, text in kept.items()
    )


def test_modules_of_one_name_in_two_root_folders_are_each_roots_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kept in (("one", "True"), ("other", "False"), ("one", "True")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "my_filters.py").write_text(f"def keeps(document):\n    return {kept}\n")
        monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / name))
        step = StepConfig(use="my_filters:keeps")
        assert load(step, identity_of(step))(None) is (kept == "True")


def test_edit_of_the_steps_source_runs_them_again_and_reads_no_source(filters: Path, tmp_path: Path) -> None:
    write_sources(tmp_path)
    build(settings(tmp_path, steps=CHAIN))
    filters.write_text(STEPS.replace("> 30", "> 20"))  # as long as before, within the same second
    fates = {
        (item.stage, item.unit): item.fate
        for item in preview(open_build(plan_dataset(settings(tmp_path, steps=CHAIN))))
    }
    assert {fates["index", f"0000{shard}"] for shard in range(3)} == {"reuse"}
    assert {fates["filter", f"0000{shard}"] for shard in range(3)} == {"run"}
    refreshed = build(settings(tmp_path, steps=CHAIN))
    write_sources(tmp_path / "scratch")
    build(settings(tmp_path / "scratch", steps=CHAIN))
    assert outputs(tmp_path) == outputs(tmp_path / "scratch")
    wet = [text for s in range(3) for text in texts_of(s) if len(text.split()) >= 20 and text.count("water") > 20]
    assert refreshed.total("filter", "dropped_no_water: wet") == len(wet) > 0


def test_settings_and_version_of_a_step_run_it_again_and_its_time_limit_does_not(filters: Path, tmp_path: Path) -> None:
    write_sources(tmp_path)
    item = {"use": "my_filters:long_enough", "with": {"words": 20}}
    build(settings(tmp_path, steps=[item]))
    for change, fate in (({"with": {"words": 21}}, "run"), ({"version": 2}, "run"), ({"seconds": 5}, "reuse")):
        of = open_build(plan_dataset(settings(tmp_path, steps=[{**item, **change}])))
        assert {step.fate for step in preview(of) if step.stage == "filter"} == {fate}


def test_step_whose_source_changed_behind_the_plan_is_refused(filters: Path, tmp_path: Path) -> None:
    write_sources(tmp_path)
    of = open_build(plan_dataset(settings(tmp_path, steps=CHAIN)))
    for stage in ("download", "index"):
        of.run(stage, "00000")
        of.run(stage, "00001")
        of.run(stage, "00002")
    filters.write_text(STEPS + "\n")
    with raises("custom_step.other_code"):
        of.run("filter", "00000")


def test_step_whose_late_import_changes_while_documents_are_answered_is_refused(filters: Path, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("LIMIT = 1\n")
    filters.write_text(
        "from pathlib import Path\nLATE = Path(__file__).with_name('late.py')\n"
        "def keeps(document):\n    LATE.write_text('LIMIT = 2\\n')\n    import late\n    return late.LIMIT == 2\n"
    )
    write_sources(tmp_path)
    with raises("custom_step.other_code"):
        build(settings(tmp_path, steps=[{"use": "my_filters:keeps"}]))
    assert not list((tmp_path / "work/tiny/filter").glob("*/receipt.json"))


@pytest.mark.parametrize("before", ["index", "writeback"])
def test_edit_of_an_imported_module_between_two_builds_of_one_process_counts(
    before: str, filters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    filters.write_text("from limits import MOST\ndef dry(document):\n    return document.text.count('water') <= MOST\n")
    write_sources(tmp_path)
    counted = [text.count("water") for seed in range(3) for text in texts_of(seed)]
    for most in (30, 20):  # as long as before, within the same second
        (tmp_path / "limits.py").write_text(f"MOST = {most}\n")
        if most == 30:
            import_module("my_filters")  # as a user's script may
        steps = [{"use": "my_filters:dry", "before": before}]
        of = build(settings(tmp_path, steps=steps, dedup={"mode": "none"}))
        stage = "filter" if before == "index" else "refine"
        assert of.total(stage, "dropped_dry") == sum(count > most for count in counted) > 0


def test_step_that_remembers_is_refused_with_the_document(filters: Path, tmp_path: Path) -> None:
    filters.write_text(
        "seen = set()\ndef new(document):\n    known = document.text in seen\n"
        "    seen.add(document.text)\n    return not known\n"
    )
    write_sources(tmp_path)
    with raises("custom_step.not_deterministic", "part0.jsonl, line"):
        build(settings(tmp_path, steps=[{"use": "my_filters:new"}]))


@pytest.mark.parametrize("before", ["index", "writeback"])
def test_no_file_has_what_a_step_prints_and_raises(
    before: str, filters: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = "AKIA-of-the-tests"
    filters.write_text(f"def prints(document):\n    print({mark!r}, document.text)\n    raise ValueError({mark!r})\n")
    write_sources(tmp_path)
    steps = [{"use": "my_filters:prints", "before": before, "on_error": "keep"}]
    of = build(settings(tmp_path, steps=steps, dedup={"mode": "none"}))
    assert mark in capfd.readouterr().out  # where whoever wrote the step meant it to go
    files = [path for name in ("work", "outputs") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert len(files) > 50
    assert not [path for path in files if mark.encode() in path.read_bytes()]
    assert summarize(of).filtered.failed == {"prints": 72}  # type: ignore[union-attr]


def test_steps_and_decontamination_in_one_build_balance_and_verify(filters: Path, tmp_path: Path) -> None:
    write_sources(tmp_path)
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"id": "one", "question": texts_of(0)[3][:200]}) + "\n")
    wanted = {"benchmarks": [{"name": "own", "path": str(items)}], "action": "remove"}
    of = build(settings(tmp_path, steps=CHAIN, decontamination=wanted))
    assert all(check.ok for check in summarize(of).checks)
    assert verify_build(of).findings == ()
    assert verify_records(of, 1000, 1).documents > 10
    stayed = [of.total(stage, "documents_out") for stage in ("filter", "decontaminate")]
    assert stayed[0] - stayed[1] == of.total("decontaminate", "documents_removed")


@pytest.mark.slow
def test_workers_and_a_kill_in_the_middle_change_no_byte(chained_root: Path, filters: Path, tmp_path: Path) -> None:
    write_sources(tmp_path / "killed")
    slow = [*CHAIN, {"use": "my_filters:suicide"}]
    filters.write_text(
        STEPS + "\nimport os, signal, pathlib\n"
        "def suicide(document):\n"
        f"    if document.id == '1-20' and not pathlib.Path({str(tmp_path / 'once')!r}).exists():\n"
        f"        pathlib.Path({str(tmp_path / 'once')!r}).touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    config = tmp_path / "killed.json"
    config.write_text(settings(tmp_path / "killed", steps=slow).model_dump_json(exclude_none=True))
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(config), "--workers"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for workers, code in (("1", -signal.SIGKILL), ("2", 0)):
        ended = subprocess.run([*command, workers], env=environment, check=False, capture_output=True)
        assert ended.returncode == code
    assert outputs(chained_root) == outputs(tmp_path / "killed")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"use": "my_filters"}, ["config.wrong_value"]),
        ({"use": "my_filters:long_enough", "wiht": {}}, ["config.unknown_key", "with?"]),
        ({"use": "my_filters:absent"}, ["custom_step.missing", "no absent in module my_filters"]),
        ({"use": "no_such_module_here:absent"}, ["custom_step.missing", "no_such_module_here"]),
        ({"use": "my_filters:long_enough", "with": {"sentences": 3}}, ["custom_step.unusable", "its parameters"]),
    ],
)
def test_step_that_cannot_be_used_is_an_error_of_the_plan(
    step: dict[str, Any], message: list[str], filters: Path, tmp_path: Path
) -> None:
    write_sources(tmp_path)
    with raises(*message):
        plan_dataset(settings(tmp_path, steps=[step]), to_build=True)


def test_two_steps_of_one_name_are_refused(filters: Path, tmp_path: Path) -> None:
    with raises("config.step_name_twice"):
        settings(tmp_path, steps=[{"use": "my_filters:no_water"}] * 2)
