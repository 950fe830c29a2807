"""Documents that hold items of benchmarks: a build without them is a build of sources that never had them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.commands import app
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.preview import preview
from corpusmill.inspect.difference import compare_versions
from corpusmill.inspect.lineage import locate, locate_id, render_located, verify_records
from corpusmill.inspect.lineage.facts import ContaminatedLine, Located
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.summarize import summarize
from tests.hub import COMMIT, Hub
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, reused

QUESTION = (
    "A merchant sells nine copper kettles on Tuesday and twice as many on Friday; how many kettles remain unsold?"
)
OTHER = "Which river did the surveyors of Holm cross before they reached the abandoned quarry on the northern ridge?"
HITS = "decontamination/hits.jsonl"


def documents(seed: int) -> list[str]:
    """Ten texts; in each file the fourth holds an item, and the ninth repeats all else that the fourth says."""
    texts = make_documents(10, seed=seed)
    shared = f"{seed} " + " ".join(f"sentence {seed} {number}" for number in range(60))
    texts[3], texts[8] = f"{shared}\n\n{(QUESTION, OTHER)[seed % 2]}", shared
    return texts


def without_passages(text: str) -> str:
    """A hit begins and ends with a word: the question marks stay."""
    return text.replace(QUESTION[:-1], "").replace(OTHER[:-1], "")


def write_sources(root: Path, *, contaminated: bool = True, tables: bool = False, cut: bool = False) -> None:
    folder = root / "corpus"
    folder.mkdir(parents=True)
    for seed in range(3):
        rows = [{"id": f"{seed}-{number}", "text": text} for number, text in enumerate(documents(seed))]
        rows = [row for row in rows if contaminated or not row["id"].endswith("-3")]
        if cut:
            rows = [{**row, "text": without_passages(row["text"])} for row in rows]
        if tables:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"part{seed}.parquet")
        else:
            (folder / f"part{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_benchmark(root: Path, name: str, *questions: str) -> dict[str, Any]:
    path = root / f"{name}.jsonl"
    lines = [{"id": f"{name}/{number}", "question": question} for number, question in enumerate(questions)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"name": name, "path": str(path)}


def settings(root: Path, **changes: Any):
    values = {"source": {"paths": [str(root / "corpus")], "shard_bytes": 1}, **changes}
    return check_config(configuration(root, **values), where="test")


def decontaminated(root: Path, *benchmarks: dict[str, Any], action: str = "remove", **changes: Any):
    wanted = {"benchmarks": list(benchmarks), "action": action}
    return settings(root, decontamination=wanted, **changes)


def build(config: Any) -> Build:
    return open_build(build_dataset(config, workers=1))


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    actual = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del actual["dataset.json"], actual["SHA256SUMS"]
    return actual


@pytest.mark.parametrize(
    "changes",
    [
        {"dedup": {"mode": "annotate", "minimum_bytes": 100}},
        {"dedup": {"mode": "none"}},
        {"dedup": {"mode": "remove", "minimum_bytes": 100, "drop_empty": True, "keep": "every_string"}},
    ],
    ids=["annotate", "none", "every string"],
)
def test_build_that_removes_contaminated_documents_equals_one_without_them(changes: Any, tmp_path: Path) -> None:
    write_sources(tmp_path / "one")
    write_sources(tmp_path / "other", contaminated=False)
    benchmarks = write_benchmark(tmp_path, "kettles", QUESTION), write_benchmark(tmp_path, "rivers", OTHER, "", "one")
    of_one = build(decontaminated(tmp_path / "one", *benchmarks, **changes))
    build(settings(tmp_path / "other", **changes))
    item, other = outputs(tmp_path / "one"), outputs(tmp_path / "other")
    rows = [json.loads(line) for line in item.pop(HITS).splitlines()]
    assert item == other
    assert [(row["benchmark"], row["item"], row["file"], row["line"], row["id"]) for row in rows] == [
        ("kettles", "kettles/0", "part0.jsonl", 4, "0-3"),
        ("rivers", "rivers/0", "part1.jsonl", 4, "1-3"),
        ("kettles", "kettles/0", "part2.jsonl", 4, "2-3"),
    ]
    for seed, row in enumerate(rows):
        assert documents(seed)[3].encode()[row["begin"] : row["end"]].decode() == row["passage"]
        assert row["covered"] == [[0, len(row["passage"].encode())]]
    assert of_one.total("decontaminate", "documents_removed") == 3
    assert not verify_build(of_one).findings


@pytest.mark.parametrize(
    ("changes", "tables"),
    [
        ({}, True),
        ({"dedup": {"mode": "annotate", "minimum_bytes": 100}}, False),
        ({"dedup": {"mode": "none"}, "shuffle": {"order": "source"}}, True),
    ],
    ids=["remove", "annotate", "none, in order"],
)
def test_build_that_cuts_passages_equals_one_of_texts_without_them(changes: Any, tables: bool, tmp_path: Path) -> None:
    write_sources(tmp_path / "one", tables=tables)
    write_sources(tmp_path / "other", tables=tables, cut=True)
    benchmarks = write_benchmark(tmp_path, "kettles", QUESTION), write_benchmark(tmp_path, "rivers", OTHER)
    of = build(decontaminated(tmp_path / "one", *benchmarks, action="cut", **changes))
    build(settings(tmp_path / "other", **changes))
    item, other = outputs(tmp_path / "one"), outputs(tmp_path / "other")
    assert len(item.pop(HITS).splitlines()) == 3
    assert item == other
    assert (of.total("decontaminate", "documents_hit"), of.total("decontaminate", "documents_removed")) == (3, 0)
    removed = sum(len(documents(seed)[3]) - len(without_passages(documents(seed)[3])) for seed in range(3))
    assert of.total("decontaminate", "text_bytes_removed") == removed
    asked = GRAPH["decontaminate"].schedule.approval
    assert asked is not None
    assert f"**3 of 30 documents contain benchmark items and would lose {removed} bytes of text.**" in asked(of)
    assert not verify_build(of).findings
    assert isinstance(locate(of, f"part0.{'parquet' if tables else 'jsonl'}", 4), Located)
    assert verify_records(of, 20, 0)


def test_passages_that_overlap_are_cut_once(tmp_path: Path) -> None:
    write_sources(tmp_path / "one")
    write_sources(tmp_path / "other", cut=True)
    behind = "sentence 0 58 sentence 0 59 " + QUESTION
    benchmarks = write_benchmark(tmp_path, "both", QUESTION, OTHER), write_benchmark(tmp_path, "wide", behind)
    of = build(decontaminated(tmp_path / "one", *benchmarks, action="cut"))
    rows = [json.loads(line) for line in outputs(tmp_path / "one")[HITS].splitlines()]
    spans = [(row["begin"], row["end"]) for row in rows if row["file"] == "part0.jsonl"]
    covered = set().union(*(range(begin, end) for begin, end in spans))
    assert len(spans) == 2
    assert sum(end - begin for begin, end in spans) > len(covered)
    lost = of.receipt("decontaminate", "00000").counts["text_bytes_removed"]
    assert lost == len(covered)


def test_report_lists_benchmarks_items_and_marked_passages(tmp_path: Path) -> None:
    write_sources(tmp_path)
    changed = QUESTION.replace("copper", "silver & <tin>")
    benchmarks = write_benchmark(tmp_path, "kettles", changed, "too short"), write_benchmark(tmp_path, "rivers", OTHER)
    of = build(decontaminated(tmp_path, *benchmarks))
    (report,) = of.units("report")
    page = (of.folder("report", report) / "report.html").read_text()
    assert "<b>3</b> of 30 documents contain benchmark items and were" in page
    actual = summarize(of).contamination
    assert actual is not None
    assert [
        (benchmark.name, benchmark.items, benchmark.undecidable, benchmark.items_met, benchmark.hits)
        for benchmark in actual.benchmarks
    ] == [
        ("kettles", 2, 1, 1, 2),
        ("rivers", 1, 0, 1, 1),
    ]
    assert [(item.item, item.hits) for item in actual.most_met] == [("kettles/0", 2), ("rivers/0", 1)]
    assert actual.borderline[0].pieces == (
        ("A merchant sells nine", True),
        (" copper ", False),
        (QUESTION.partition("copper ")[2].rstrip("?"), True),
    )
    assert "<b>A merchant sells nine</b> copper <b>kettles on Tuesday" in page


def test_build_that_reports_contaminated_documents_changes_none(tmp_path: Path) -> None:
    write_sources(tmp_path / "one")
    write_sources(tmp_path / "other")
    build(decontaminated(tmp_path / "one", write_benchmark(tmp_path, "both", QUESTION, OTHER), action="report"))
    build(settings(tmp_path / "other"))
    item = outputs(tmp_path / "one")
    assert len(item.pop(HITS).splitlines()) == 3
    assert item == outputs(tmp_path / "other")


def test_locate_contaminated_document_names_the_items_and_the_difference_counts_it_as_lost(tmp_path: Path) -> None:
    write_sources(tmp_path)
    old = dataset_version(build(settings(tmp_path)))
    config = decontaminated(tmp_path, write_benchmark(tmp_path, "kettles", QUESTION))
    of = build(config)
    left_out = locate(of, "part0.jsonl", 4)
    assert isinstance(left_out, ContaminatedLine)
    assert [(hit.benchmark, hit.item, hit.share) for hit in left_out.items] == [("kettles", "kettles/0", 1.0)]
    assert locate_id(of, "0-3") == (left_out,)
    assert "kettles/0" in render_located(left_out)
    (stays,) = locate_id(of, "0-8")
    assert isinstance(stays, Located)
    assert stays.records
    assert stays.removed_bytes == 0  # what it repeats was never there
    difference = compare_versions(old, dataset_version(of), config)
    counts = {name: item["documents"] for name, item in difference["documents"].items()}
    assert difference["told_by"] == "work folder"
    assert (counts["all"], counts["lost"]) == ([30, 28], [2, 0])
    assert counts["cut"] == [2, 2]  # the ninth of each file repeated the fourth
    assert counts["changed"] == counts["moved"] == counts["gained"] == [0, 0]


def test_refresh_with_another_benchmark_reads_no_source_again(tmp_path: Path) -> None:
    write_sources(tmp_path)
    kettles = write_benchmark(tmp_path, "kettles", QUESTION)
    build(decontaminated(tmp_path, kettles))
    again = build(decontaminated(tmp_path, write_benchmark(tmp_path, "kettles", QUESTION)))  # written anew
    assert all(reused(again, "decontaminate", f"0000{shard}") for shard in range(3))
    rivers = write_benchmark(tmp_path, "rivers", OTHER)
    config = decontaminated(tmp_path, kettles, rivers)
    fates = {(item.stage, item.unit): item.fate for item in preview(open_build(plan_dataset(config)))}
    assert {fates[stage, f"0000{shard}"] for stage in ("download", "index") for shard in range(3)} == {"reuse"}
    assert fates["benchmarks", "index"] == "run"
    build(config)
    refreshed = outputs(tmp_path)
    write_sources(tmp_path / "scratch")
    build(decontaminated(tmp_path / "scratch", kettles, rivers))
    assert refreshed == outputs(tmp_path / "scratch")


def test_benchmark_that_changes_behind_the_plan_is_refused(tmp_path: Path) -> None:
    write_sources(tmp_path)
    plan = plan_dataset(decontaminated(tmp_path, write_benchmark(tmp_path, "kettles", QUESTION)))
    write_benchmark(tmp_path, "kettles", OTHER, QUESTION)
    with raises("source.changed_since_planned"):
        open_build(plan).run("benchmarks", "index")


def test_benchmark_is_pinned_by_what_the_command_prints(tmp_path: Path) -> None:
    write_sources(tmp_path)
    benchmark = write_benchmark(tmp_path, "kettles", QUESTION, "too short")
    config = tmp_path / "tiny.yaml"
    config.write_text(decontaminated(tmp_path, benchmark).model_dump_json(exclude_none=True))
    printed = CliRunner().invoke(app, ["benchmarks", str(config)], catch_exceptions=False).output
    assert "kettles: 2 items of" in printed
    assert "not pinned" in printed
    assert "cannot be decided: kettles/1\n" in printed
    assert "kettles/0" not in printed
    sha256 = hashlib.sha256((tmp_path / "kettles.jsonl").read_bytes()).hexdigest()
    assert printed.count(sha256) == 1
    build(decontaminated(tmp_path, {**benchmark, "sha256": sha256}))
    write_benchmark(tmp_path, "kettles", OTHER)
    with raises("benchmark.changed"):
        build(decontaminated(tmp_path, {**benchmark, "sha256": sha256}))


def test_benchmark_on_a_hub_is_saved_and_pinned_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sources(tmp_path)
    write_benchmark(tmp_path, "test-10", QUESTION)
    write_benchmark(tmp_path, "test-9", OTHER, "too short")
    rows = {f"main/{path.name}": path.read_bytes() for path in sorted(tmp_path.glob("test-*.jsonl"))}
    config, saved = tmp_path / "tiny.yaml", tmp_path / "saved"
    with Hub(rows) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        wanted = {"name": "both", "path": "hf://datasets/owner/name/main/*.jsonl"}
        config.write_text(decontaminated(tmp_path, wanted).model_dump_json(exclude_none=True))
        arguments = ["benchmarks", str(config), "--save", str(saved)]
        printed = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert f"not pinned, commit {COMMIT}, sha256: " in printed
    (sha256,) = re.findall("[0-9a-f]{64}", printed)
    assert [path.name for path in sorted((saved / "both").iterdir())] == ["test-10.jsonl", "test-9.jsonl"]
    build(decontaminated(tmp_path, {"name": "both", "path": str(saved / "both"), "sha256": sha256}))
    hits = map(json.loads, outputs(tmp_path)[HITS].splitlines())
    assert [hit["item"] for hit in hits] == ["test-10/0", "test-9/0", "test-10/0"]


def test_benchmarks_of_one_name_are_refused(tmp_path: Path) -> None:
    benchmark = {"name": "same", "path": "items.jsonl"}
    with raises("config.benchmark_name_twice", "same"):
        decontaminated(tmp_path, benchmark, benchmark)


@pytest.mark.parametrize(
    ("threshold", "text"), [(0.6, "0.6"), (1, "1"), ("strict", "strict"), (0, ""), (1.5, ""), ("much", "")]
)
def test_threshold_of_a_configuration_is_a_word_or_a_share(threshold: Any, text: str, tmp_path: Path) -> None:
    wanted = {"benchmarks": [{"name": "one", "path": "items.jsonl"}], "action": "report", "threshold": threshold}
    if text:
        config = settings(tmp_path, decontamination=wanted)
        assert config.decontamination is not None
        assert config.decontamination.threshold == text
    else:
        with raises("config.wrong_value"):
            settings(tmp_path, decontamination=wanted)
