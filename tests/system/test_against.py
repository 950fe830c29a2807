"""`dedup.against`: what is left of a dataset is what would be left of its files behind those of the references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.commands import app
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import COMMON, Build
from corpusmill.engine.garbage import find_garbage, remove_garbage
from corpusmill.engine.preview import preview
from corpusmill.inspect.lineage import locate, render_located
from corpusmill.inspect.lineage.facts import Located
from corpusmill.inspect.verify import verify_build
from corpusmill.report.html import render_html
from corpusmill.report.summary import BuildSummary
from corpusmill.report.terminal import print_summary
from corpusmill.upload.stages.retention import find_old_versions
from corpusmill.upload.stages.summarize import summarize
from tests.oracles import dedup as oracle
from tests.raising import raises
from tests.system.corpus import configuration, make_documents

MINIMUM = 100
TEXTS = make_documents(90, seed=3)
PARTS = {"a1": TEXTS[:20], "a2": TEXTS[20:40], "b1": TEXTS[40:60], "b2": TEXTS[60:]}


def write(folder: Path, *names: str, key: str = "text") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        rows = [{"id": f"{name}-{number}", key: text} for number, text in enumerate(PARTS[name])]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def settings(root: Path, *against: object, name: str = "tiny", dedup: Any = None, **sections: Any) -> DatasetConfig:
    """A dataset of the files in `root/name`; all of them lie in the same work folder."""
    dedup = {"mode": "remove", "minimum_bytes": MINIMUM, **(dedup or {})}
    values = configuration(
        root,
        name=name,
        source={"paths": [str(root / name)], "shard_bytes": "8KiB"},
        exports={"megatron": {}},
        dedup={**dedup, "against": list(against)} if against else dedup,
        **sections,
    )
    return check_config(values, where="test")


def build(config: DatasetConfig, **how: Any) -> Build:
    return open_build(build_dataset(config, workers=1, **how))


def documents(root: Path, name: str = "tiny") -> dict[str, bytes]:
    folder = (root / "outputs" / name / "latest" / "documents").resolve()
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def small(path: Path) -> dict[str, str]:
    return {"path": str(path), "shard_bytes": "8KiB"}


def without_references(lines: bytes) -> bytes:
    """Lines whose ranges name no reference; pieces that touch are one range."""
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        ranges: list[list[int]] = []
        for start, end, _ in row.get("sa_remove_ranges", ()):
            if ranges and ranges[-1][1] == start:
                ranges[-1][1] = end
            else:
                ranges.append([start, end])
        if "sa_remove_ranges" in row:
            row["sa_remove_ranges"] = ranges
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


MODES = {
    "annotate": {"dedup": {"mode": "annotate"}},
    "every string": {"dedup": {"keep": "every_string"}},
    "fuzzy": {"dedup": {"fuzzy_share": 0.3}},
    "reclaimed": {"reclaim": "eager"},
}


@pytest.mark.parametrize("changes", MODES.values(), ids=MODES)
def test_build_against_references_leaves_what_one_of_all_files_leaves_of_ours(changes: Any, tmp_path: Path) -> None:
    write(tmp_path / "both", "a1", "a2", "b1", "b2")
    write(tmp_path / "tiny", "b1", "b2")
    references = write(tmp_path / "references", "a1", "a2")
    build(settings(tmp_path, name="both", **changes))
    of_ours = build(settings(tmp_path, small(references / "a1.jsonl"), str(references / "a2.jsonl"), **changes))
    of_both = documents(tmp_path, "both")
    of_own = {name: without_references(content) for name, content in documents(tmp_path).items()}
    assert of_own == {name: of_both[name] for name in ("b1.jsonl", "b2.jsonl")}
    assert not verify_build(of_ours).findings
    actual = summarize(of_ours).duplicates
    assert actual
    assert [reference.documents for reference in actual.references] == [20, 20]
    assert all(reference.held_bytes for reference in actual.references)
    assert actual.within_bytes
    counts = {name: of_ours.total("union", name) for name in ("removed_bytes", "fuzzy_bytes")}
    held = actual.within_bytes + sum(reference.held_bytes for reference in actual.references)
    assert counts["removed_bytes"] == held + counts["fuzzy_bytes"]


def test_annotated_ranges_name_the_reference_that_the_oracle_names(tmp_path: Path) -> None:
    texts = [oracle.text_of(text.encode() for text in part)[0] for part in PARTS.values()]
    expected = oracle.referred_bytes(texts, MINIMUM, [0, 1, 2, 2])[2:]
    write(tmp_path / "tiny", "b1", "b2")
    references = write(tmp_path / "references", "a1", "a2")
    against = [str(references / f"{name}.jsonl") for name in ("a1", "a2")]
    build(settings(tmp_path, *against, dedup={"mode": "annotate"}))
    named = set()
    for of_file, known in zip(documents(tmp_path).values(), expected, strict=True):
        begin = 1
        for row in map(json.loads, of_file.splitlines()):
            text = row["text"].encode()
            for start, end, reference in row["sa_remove_ranges"]:
                assert text[start:end].decode()  # whole characters
                inside = {known.get(begin + at, -1) + 1 for at in range(start, end) if text[at] & 0xC0 != 0x80}
                assert inside == {reference}
                named.add(reference)
            begin += len(text) + 1
    assert named == {0, 1, 2}


def test_reference_is_indexed_once_for_every_dataset_and_collected_with_the_last(tmp_path: Path) -> None:
    references = write(tmp_path / "references", "a1", "a2")
    write(tmp_path / "one", "b1")
    write(tmp_path / "other", "b2")
    item = settings(tmp_path, small(references), name="one")
    other = settings(tmp_path, small(references), name="other")
    build(item)
    shared = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "work" / COMMON).glob("*/*"))
    times = {path: (tmp_path / path / "receipt.json").stat().st_mtime_ns for path in shared}
    assert len(shared) == 2 * len(open_build(plan_dataset(item)).units("reference")) > 2
    build(other)
    assert {path: (tmp_path / path / "receipt.json").stat().st_mtime_ns for path in times} == times
    build(settings(tmp_path, name="other"))
    assert not find_garbage(tmp_path / "work" / "one", GRAPH)
    build(settings(tmp_path, name="one"))
    garbage = find_garbage(tmp_path / "work" / "one", GRAPH)
    assert {tmp_path / path for path in shared} <= {actual.folder for actual in garbage}
    remove_garbage(tmp_path / "work" / "one", GRAPH, garbage)
    assert not list((tmp_path / "work" / COMMON).glob("*/*"))


def test_reference_that_grows_redoes_what_depends_on_it_alone(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1", "b2")
    references = write(tmp_path / "references", "a1")
    config = settings(tmp_path, small(references))
    before = build(config)
    write(references, "a2")
    steps = preview(open_build(plan_dataset(config)))
    fates = {stage: {step.fate for step in steps if step.stage == stage} for stage in ("index", "anchor", "reference")}
    assert fates == {"index": {"reuse"}, "anchor": {"reuse"}, "reference": {"reuse", "run"}}
    after = build(config)
    assert after.total("union", "reference_bytes") > before.total("union", "reference_bytes")


def test_locate_of_a_removed_text_names_the_reference_and_where_in_it(tmp_path: Path) -> None:
    write(tmp_path / "earlier", "a1", "a2")
    write(tmp_path / "tiny", "b1", "b2")
    build(settings(tmp_path, name="earlier"))
    latest = tmp_path / "outputs" / "earlier" / "latest"
    made = build(settings(tmp_path, small(latest)))
    kept = {
        f"{name}.jsonl": [json.loads(line)["text"].encode() for line in text.splitlines()]
        for name, text in ((path.removesuffix(".jsonl"), body) for path, body in documents(tmp_path, "earlier").items())
    }
    seen = 0
    for name in ("b1", "b2"):
        for line, text in enumerate(PARTS[name], start=1):
            actual = locate(made, f"{name}.jsonl", line)
            assert isinstance(actual, Located)
            for occurrence in (occurrence for each in actual.duplicates for occurrence in each.occurrences):
                earlier = occurrence.earlier
                if earlier.reference:
                    own, there = text.encode(), kept[earlier.source][earlier.line - 1]
                    assert own[slice(*occurrence.text_bytes)] == there[slice(*occurrence.earlier_bytes)]
                    assert earlier.reference == str(latest)
                    assert str(latest) in render_located(actual)
                    seen += 1
    assert seen > 10
    summary = summarize(made)
    assert isinstance(summary, BuildSummary)
    assert summary.duplicates
    assert summary.duplicates.references[0].version == latest.resolve().name


def test_reference_version_of_the_dataset_itself_is_not_removed_by_retention(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1")
    build(settings(tmp_path))
    version = (tmp_path / "outputs" / "tiny" / "latest").resolve()
    write(tmp_path / "tiny", "b2")
    (tmp_path / "tiny" / "b1.jsonl").unlink()
    config = settings(tmp_path, str(version))
    build(config)
    assert (tmp_path / "outputs" / "tiny" / "latest").resolve() != version
    assert find_old_versions(config, keep=1) == []
    with raises("source.inside_output"):
        plan_dataset(settings(tmp_path, str(version.parent / "latest")))


def test_reference_without_a_common_text_is_named_by_report_verify_and_dedup(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1", "b2")
    references = write(tmp_path / "references", "a1", "a2")
    rows = (references / "a1.jsonl").read_text()
    (references / "again.jsonl").write_text(rows)  # what it has, an earlier reference has
    (references / "other.jsonl").write_text('{"text": "nobody has this"}\n')
    named = [references / f"{name}.jsonl" for name in ("other", "a1", "again")]
    expected = (
        f"the reference {named[0]} (1 document) has no 100 bytes in common with the dataset",
        f"the reference {named[2]} (20 documents) has no 100 bytes in common with the dataset that an earlier"
        " reference has not",
    )
    made = build(settings(tmp_path, *map(str, named)))
    summary = summarize(made)
    assert summary.duplicates
    assert summary.duplicates.references_without_text == expected
    assert verify_build(made).lists == expected
    console = Console(width=1 << 10, record=True)
    print_summary(summary, tmp_path / "page.html", console)
    page, shown = render_html(summary), console.export_text()
    options = [option for path in named for option in ("--against", str(path))]
    told = (
        CliRunner()
        .invoke(
            app,
            ["dedup", str(tmp_path / "tiny"), "--output", str(tmp_path / "clean"), "--minimum-bytes", "100", *options],
        )
        .output
    )
    assert all(f"Note: {sentence}." in page and sentence in shown and sentence in told for sentence in expected)
    assert not any(f"{named[1]} (20 documents) has" in text for text in (page, shown, told))


BAD = {
    "none there": ("nothing", "source.missing"),
    "no text under the key": ({"text_field": "content"}, "reference.too_many_malformed"),
    "its own source": ("tiny", "reference.file_in_dataset"),
    "empty": ("empty", "reference.no_text"),
}


@pytest.mark.parametrize(("wanted", "code"), BAD.values(), ids=BAD)
def test_reference_that_cannot_be_compared_with_is_refused(wanted: Any, code: str, tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1")
    write(tmp_path / "references", "a1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "none.jsonl").write_text("")
    named = tmp_path / (wanted if isinstance(wanted, str) else "references")
    more = {} if isinstance(wanted, str) else wanted
    with raises(code):
        build(settings(tmp_path, {"path": str(named), **more}))


def test_references_that_share_a_file_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1")
    references = write(tmp_path / "references", "a1", "a2")
    with raises("reference.file_twice"):
        plan_dataset(settings(tmp_path, str(references), str(references / "a*.jsonl")))
    with raises("config.against_twice"):
        settings(tmp_path, str(references), str(references))
    with raises("config.against_without_dedup"):
        settings(tmp_path, str(references), dedup={"mode": "none"})


def test_reference_dataset_without_documents_or_with_others_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "earlier", "a1")
    write(tmp_path / "tiny", "b1")
    build(settings(tmp_path, name="earlier", dedup={"writeback": False}))
    latest = tmp_path / "outputs" / "earlier" / "latest"
    with raises("reference.no_documents"):
        plan_dataset(settings(tmp_path, str(latest)))
    build(settings(tmp_path, name="earlier"))
    with (latest / "documents" / "a1.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with raises("reference.documents_changed"):
        plan_dataset(settings(tmp_path, str(latest)))
    with (latest / "dataset.json").open("ab") as file:
        file.write(b" ")
    with raises("dataset.description_changed"):
        plan_dataset(settings(tmp_path, str(latest)))


def test_dedup_command_against_a_folder_leaves_what_a_build_leaves(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1", "b2")
    references = write(tmp_path / "references", "a1", "a2")
    build(settings(tmp_path, str(references)))
    options = ["--minimum-bytes", str(MINIMUM), "--against", str(references), "--work-folder", str(tmp_path / "alone")]
    told = CliRunner().invoke(app, ["dedup", str(tmp_path / "tiny"), "--output", str(tmp_path / "clean"), *options])
    assert told.exit_code == 0
    assert f"of these are in {references}" in told.output
    clean = {name: (tmp_path / "clean" / name).read_bytes() for name in ("b1.jsonl", "b2.jsonl")}
    assert clean == documents(tmp_path)
    assert not (tmp_path / "clean" / "a1.jsonl").exists()
