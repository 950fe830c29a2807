"""Near-duplicates in builds: one that removes them equals one of sources that never had them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from corpusmill.builds.forgetting.purge import purge
from corpusmill.builds.forgetting.remains import match_requests
from corpusmill.builds.graph import GRAPH
from corpusmill.builds.plan import plan_dataset
from corpusmill.commands import app
from corpusmill.inspect.difference import compare_versions, render_difference
from corpusmill.inspect.lineage import locate_id, render_located
from corpusmill.inspect.verify import verify_build
from corpusmill.inspect.verify.destinations import IN_SPITE
from corpusmill.near_duplicates.stages.near_duplicates import TooManyNearDuplicatesError
from corpusmill.steps.stages import filter as filter_stage
from corpusmill.tokens.stages.tokenize import configured_tokenizer
from corpusmill.upload.stages.summarize import summarize
from tests.near_duplicates.test_engine import edited
from tests.oracles import near_duplicates as oracle
from tests.raising import raises
from tests.system.corpus import reused
from tests.system.test_budget import whole_documents
from tests.system.test_decontamination import build, outputs, settings

PAIRS = "near_duplicates/pairs.jsonl"
DEDUP = {"mode": "remove", "minimum_bytes": 500}


def documents() -> list[dict[str, Any]]:
    texts = edited(11, documents=60, distinct=9, words=120)
    return [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]


def matches_of(rows: list[dict[str, Any]]) -> dict[str, tuple[str, float]]:
    """{id of a document that the definition leaves out: id of its kept one, their similarity}."""
    found = oracle.decide([row["text"] for row in rows], "0.8")
    pairs = zip(rows, found, strict=True)
    return {row["id"]: (rows[match.kept]["id"], float(match.similarity)) for row, match in pairs if match}


def write_sources(root: Path, rows: list[dict[str, Any]], without: Any = (), *, tables: bool = False) -> None:
    (folder := root / "corpus").mkdir(parents=True, exist_ok=True)
    for number in range(3):
        own = [row for row in rows[number * 20 : number * 20 + 20] if row["id"] not in without]
        if tables:
            pq.write_table(pa.Table.from_pylist(own), folder / f"part{number}.parquet")
        else:
            (folder / f"part{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))


def near(root: Path, action: str = "remove", **changes: Any) -> Any:
    wanted = {"action": action, "most_removed": 1, **changes.pop("near", {})}
    return settings(root, near_duplicates=wanted, **{"dedup": DEDUP, **changes})


def listed(root: Path) -> dict[str, tuple[str, float]]:
    rows = map(json.loads, (root / "outputs" / "tiny" / "latest" / PAIRS).read_text().splitlines())
    return {row["id"]: (row["kept_id"], row["similarity"]) for row in rows}


def test_build_that_removes_near_duplicates_equals_one_without_them(tmp_path: Path) -> None:
    rows = documents()
    expected = matches_of(rows)
    write_sources(tmp_path / "one", rows)
    write_sources(tmp_path / "other", rows, without=expected)
    of_one = build(near(tmp_path / "one"))
    build(settings(tmp_path / "other", dedup=DEDUP))
    one, other = outputs(tmp_path / "one"), outputs(tmp_path / "other")
    pairs = [json.loads(line) for line in one.pop(PAIRS).splitlines()]
    assert one == other
    assert {row["id"]: (row["kept_id"], row["similarity"]) for row in pairs} == expected
    kept = [row["kept_id"] for row in pairs]
    for row in pairs:
        number, of_kept = int(row["id"][1:]), int(row["kept_id"][1:])
        assert (row["file"], row["line"]) == (f"part{number // 20}.jsonl", number % 20 + 1)
        assert (row["kept_file"], row["kept_line"]) == (f"part{of_kept // 20}.jsonl", of_kept % 20 + 1)
        assert row["stands_for"] == kept.count(row["kept_id"]) + 1
    assert not verify_build(of_one).findings
    asked = GRAPH["near_duplicates"].schedule.approval
    assert asked
    assert f"**{len(expected)} of 60 documents are near-duplicates" in asked(of_one)


@pytest.mark.parametrize("tables", [False, True])
def test_documents_are_annotated_with_what_they_nearly_duplicate(tmp_path: Path, tables: bool) -> None:
    rows = documents()
    write_sources(tmp_path, rows, tables=tables)
    built = build(near(tmp_path, "annotate"))
    folder = tmp_path / "outputs" / "tiny" / "latest" / "documents"
    written: list[dict[str, Any]] = []
    for path in sorted(folder.iterdir()):
        lines = path.read_text().splitlines() if not tables else ()
        written += pq.read_table(path).to_pylist() if tables else map(json.loads, lines)
    assert [row["id"] for row in written] == [row["id"] for row in rows]
    named = {row["id"]: row["near_duplicate_of"] for row in written}
    assert (
        {name: (about[0]["id"], about[0]["similarity"]) for name, about in named.items() if about}
        == matches_of(rows)
        == listed(tmp_path)
    )
    assert not verify_build(built).findings


def test_only_documents_of_one_source_are_compared_within_sources(tmp_path: Path) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    paths = [str(tmp_path / "corpus" / f"part{number}.jsonl") for number in range(3)]
    build(near(tmp_path, "report", near={"within": "source"}, source={"paths": paths}))
    expected = [matches_of(rows[first : first + 20]) for first in (0, 20, 40)]
    assert listed(tmp_path) == {name: match for of_source in expected for name, match in of_source.items()}


def test_source_that_would_lose_too_much_stops_the_build_and_says_why(tmp_path: Path) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    gone = len(matches_of(rows))
    with pytest.raises(TooManyNearDuplicatesError) as refused:
        build(near(tmp_path, near={"most_removed": 0.2}))
    said = str(refused.value)
    assert refused.value.code == "near_duplicates.too_many_removed"
    assert f"{gone} of 60 documents" in said
    assert "part0.jsonl line" in said
    assert not any(row["text"][:40] in said for row in rows)
    built = build(near(tmp_path, near={"most_removed": gone / 60}))
    assert reused(built, "decide", "dataset")


STEP = """
def common(document):
    return document.fields["near_duplicates.stands_for"] <= 5 and document.fields["kind"] == "page"
"""


def test_budget_and_late_steps_ask_how_many_documents_one_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    (tmp_path / "my_common.py").write_text(STEP)
    rows = [{**row, "kind": "page", "near_duplicates": {"stands_for": 3}} for row in documents()]
    write_sources(tmp_path, rows)
    kept_for = Counter(kept for kept, _ in matches_of(rows).values())
    stands_for = {row["id"]: kept_for[row["id"]] + 1 for row in rows if row["id"] not in matches_of(rows)}
    field = "near_duplicates.stands_for"
    step = {"use": "my_common:common", "fields": [field, "kind"], "before": "writeback"}
    budget = {f"where {field} > 1 and {field} < 4": "3 epochs", f"where {field} >= 4": "2 epochs"}
    changes = {"dedup": {"mode": "none"}, "exports": {"megatron": {}}, "steps": [step], "budget": budget}
    of_build = build(near(tmp_path, **changes))
    assert (of_build.plan.fields, of_build.plan.stands_for) == (["kind"], True)
    texts = {row["id"]: row["text"] for row in rows}
    expected = Counter(
        {texts[name]: 1 if many == 1 else 3 if many < 4 else 2 for name, many in stands_for.items() if many <= 5}
    )
    tokenizer = configured_tokenizer(of_build.config)
    shown = Counter(tokenizer.decode(np.array(ids)).decode() for ids in whole_documents(tmp_path, "megatron"))
    assert shown == expected
    assert len({*expected.values()}) == 3
    assert max(stands_for.values()) > 5
    assert not verify_build(of_build).findings


def test_count_of_near_duplicates_is_refused_where_it_is_not_known(tmp_path: Path) -> None:
    write_sources(tmp_path, documents())
    field = "near_duplicates.stands_for"
    early = [
        {"decisions": [{"name": "common", "keep": f"{field} < 5"}]},
        {"steps": [{"use": "my_common:common", "fields": [field]}]},
    ]
    for changes in early:
        advice = f"{{use: module:function, fields: [{field}], before: writeback}}"
        with raises("near_duplicates.not_counted_yet", "the count would depend on itself", advice, *changes):
            plan_dataset(near(tmp_path, **changes))
    with raises("near_duplicates.not_counted", "got       report"):
        plan_dataset(near(tmp_path, "report", budget={f"where {field} > 1": "2 epochs"}))
    with raises("near_duplicates.not_counted", "no near_duplicates"):
        plan_dataset(settings(tmp_path, budget={f"where {field} > 1": "2 epochs"}))


def against(root: Path, rows: list[dict[str, Any]], *, tables: bool = False) -> list[dict[str, str]]:
    """The references that hold the first twenty documents, cut into shards; the dataset has the others."""
    write_sources(root, rows, tables=tables)
    source = next((root / "corpus").glob("part0.*"))
    (references := root / "references").mkdir()
    source.rename(references / source.name)
    (references / "b.jsonl").write_text(json.dumps({"id": "b", "text": rows[59]["text"] + " more"}) + "\n")
    paths = [references / source.name, references / "b.jsonl"]
    return [{"path": str(path), "shard_bytes": "4KiB"} for path in paths]


def matches_against(rows: list[dict[str, Any]]) -> dict[str, tuple[str, float]]:
    """`matches_of` the last forty, where the others and `b` are references."""
    before = [*rows[:20], {"id": "b", "text": rows[59]["text"] + " more"}]
    ordered = [*before, *rows[20:]]
    found = oracle.decide([row["text"] for row in ordered], "0.8", references=len(before))
    pairs = zip(ordered, found, strict=True)
    return {row["id"]: (ordered[match.kept]["id"], float(match.similarity)) for row, match in pairs if match}


@pytest.mark.parametrize("action", ["remove", "annotate"])
def test_near_duplicates_of_references_are_found_and_name_the_reference(tmp_path: Path, action: str) -> None:
    rows = documents()
    tables = action == "annotate"
    references = against(tmp_path, rows, tables=tables)
    expected = matches_against(rows)
    built = build(near(tmp_path, action, dedup={**DEDUP, "against": references}))
    assert listed(tmp_path) == expected
    pairs = [json.loads(line) for line in (tmp_path / "outputs" / "tiny" / "latest" / PAIRS).read_text().splitlines()]
    held = {row["id"]: row.get("kept_reference") for row in pairs}
    numbers = {**{row["id"]: 1 for row in rows[:20]}, "b": 2}
    assert held == {name: numbers.get(kept) for name, (kept, _) in expected.items()}
    assert {*held.values()} == {None, 1, 2}
    for row in pairs:
        number = int(row["kept_id"].removeprefix("d")) if row["kept_id"] != "b" else 0
        file = "b.jsonl" if row["kept_id"] == "b" else f"part{number // 20}.{'parquet' if tables else 'jsonl'}"
        assert (row["kept_file"], row["kept_line"]) == (file, number % 20 + 1)
    assert not verify_build(built).findings
    folder = tmp_path / "outputs" / "tiny" / "latest" / "documents"
    written = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    if tables:
        written = [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]
        noted = {row["id"]: about for row in written for about in row["near_duplicate_of"]}
        assert {name: (about["reference"], about["id"]) for name, about in noted.items()} == {
            name: (held[name] or 0, kept) for name, (kept, _) in expected.items()
        }
    assert {row["id"] for row in written} == {row["id"] for row in rows[20:]} - ({*expected} if not tables else {*()})
    facts = summarize(built).near_duplicates
    assert facts
    counts = Counter(number for number in held.values() if number)
    assert facts.by_reference == tuple((of["path"], counts[n]) for n, of in enumerate(references, 1))
    of_reference = [pair for pair in facts.pairs if held[pair.left_out.id]]
    assert of_reference
    for pair in of_reference:
        assert pair.kept.source_file.startswith(f"{references[held[pair.left_out.id] - 1]['path']}: ")
    if not tables:
        (found,) = locate_id(built, of_reference[0].left_out.id)
        assert f"kept        {references[held[found.id] - 1]['path']}: " in render_located(found)
        list_of_all = forgetting(tmp_path).forget
        groups = {row["kept_id"] for row in pairs if "kept_reference" not in row}
        wanted = [(row["kept_id"],) for row in pairs]
        assert match_requests(built.config, list_of_all, wanted).groups == len(groups) > 0  # none of references


@pytest.mark.parametrize("tables", [False, True])
def test_near_duplicates_of_references_have_the_same_bytes_whatever_the_folder(tmp_path: Path, tables: bool) -> None:
    rows = documents()
    for root in (tmp_path / "one", tmp_path / "other"):
        references = against(root, rows, tables=tables)
        build(near(root, "annotate", dedup={**DEDUP, "mode": "annotate", "against": references}))
    assert outputs(tmp_path / "one") == outputs(tmp_path / "other")


def test_references_are_not_compared_with_within_sources(tmp_path: Path) -> None:
    rows = documents()
    references = against(tmp_path, rows)
    paths = [str(tmp_path / "corpus" / f"part{number}.jsonl") for number in (1, 2)]
    dedup = {**DEDUP, "against": references}
    built = build(near(tmp_path, "report", near={"within": "source"}, source={"paths": paths}, dedup=dedup))
    expected = [matches_of(rows[first : first + 20]) for first in (20, 40)]
    assert listed(tmp_path) == {name: match for of_source in expected for name, match in of_source.items()}
    assert built.units("reference_sign") == []


def forgetting(root: Path, *names: str, copies: str = "keep") -> Any:
    (root / "list.jsonl").write_text("".join(json.dumps({"id": name}) + "\n" for name in names))
    return near(root, forget={"path": str(root / "list.jsonl"), "copies": copies})


@pytest.mark.parametrize("copies", ["keep", "also"])
def test_forgotten_kept_documents_are_named_by_the_command_and_their_groups_decided_again(
    tmp_path: Path, copies: str
) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    matches = matches_of(rows)
    kept, left_out = [*dict.fromkeys(kept for kept, _ in matches.values())][:2], next(iter(matches))
    asked = [*kept, left_out]
    config = forgetting(tmp_path, copies=copies)
    (tmp_path / "tiny.yaml").write_text(config.model_dump_json(exclude_none=True))
    (tmp_path / "ids.txt").write_text("\n".join(asked))
    build(near(tmp_path))
    done = CliRunner().invoke(app, ["forget", str(tmp_path / "tiny.yaml"), "--ids", str(tmp_path / "ids.txt")])
    assert "the next build decides 2 groups of near-duplicates again" in done.output, done.output
    of_build = build(forgetting(tmp_path, *asked, copies=copies))
    texts = {row["text"] for row in rows if row["id"] in asked}
    gone = [row["id"] for row in rows if row["id"] in asked or (copies == "also" and row["text"] in texts)]
    assert (len(gone) > len(asked)) == (copies == "also")
    assert listed(tmp_path) == matches_of([row for row in rows if row["id"] not in gone]) != matches
    write_sources(tmp_path / "other", rows, without=gone)
    build(near(tmp_path / "other"))
    one, other = outputs(tmp_path), outputs(tmp_path / "other")
    for each in (one, other):  # lines count from other beginnings
        del each[PAIRS]
    assert one == other
    assert purge(of_build).remains == []
    folders = tmp_path / "work", tmp_path / "outputs"
    naming = [path for folder in folders for name in ("pairs", "leaders") for path in folder.rglob(f"{name}.jsonl")]
    assert len(naming) >= 7
    places = [(f"part{number // 20}.jsonl", number % 20 + 1) for number in (int(name[1:]) for name in gone)]
    for row in (json.loads(line) for path in naming for line in path.read_text().splitlines()):
        assert not {row["id"], row.get("kept_id")} & {*gone}
        assert not {(row["file"], row["line"]), (row.get("kept_file"), row.get("kept_line"))} & {*places}
    assert not verify_build(of_build).findings


def test_verify_finds_a_forgotten_near_duplicate_that_the_filter_left_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    name = next(iter(matches_of(rows)))
    monkeypatch.setattr(filter_stage, "_lists", lambda _build, _shard: [])
    actual = [
        finding for finding in verify_build(build(forgetting(tmp_path, name))).findings if finding.what == IN_SPITE
    ]
    number = int(name[1:])
    assert actual[0].where == f"part{number // 20}.jsonl line {number % 20 + 1}"


def test_difference_of_two_datasets_names_the_near_duplicates_that_came_back_or_went(tmp_path: Path) -> None:
    rows = documents()
    changed = [*rows[:5], {**rows[5], "text": rows[30]["text"]}, *rows[6:]]
    latest = tmp_path / "outputs" / "tiny" / "latest"
    versions, expected = [], []
    for own, least in ((rows, 0.8), (changed, 0.9)):
        write_sources(tmp_path, own)
        build(near(tmp_path, near={"similarity": least}))
        versions.append(str(latest.resolve()))
        expected.append({*listed(tmp_path)})
    difference = compare_versions(versions[0], versions[1])
    shown = render_difference(difference)
    for side, own, other in zip(difference["near_duplicates"], expected, reversed(expected), strict=True):
        assert (side["documents"], side["alone"]) == (len(own), len(own - other))
        assert [row["id"] for row in side["shown"]] == sorted(own - other, key=lambda name: int(name[1:]))[:20]
        for row in side["shown"]:
            assert f"{row['file']} line {row['line']}: {row['similarity']:.1%} similar to {row['kept_file']}" in shown
    assert all(side["alone"] for side in difference["near_duplicates"])
    write_sources(tmp_path, rows)
    build(near(tmp_path, "report"))
    listing = render_difference(compare_versions(versions[0], str(latest.resolve())))
    assert f"near-duplicates that new lists: {len(expected[0])}, 0 of them not in the other" in listing
    assert "left out" not in listing
    build(settings(tmp_path, dedup=DEDUP))
    without = compare_versions(versions[0], str(latest.resolve()))
    assert [side["documents"] for side in without["near_duplicates"]] == [len(expected[0]), 0]
    assert compare_versions(str(latest.resolve()), str(latest.resolve()))["near_duplicates"] is None


def test_lone_surrogates_escaped_in_json_are_malformed_lines_and_the_others_are_compared(tmp_path: Path) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    text = rows[0]["text"]
    surrogates = ["\\ud800", "\\udfff", "\\udc00\\ud800"]
    lines = [f'{{"id": "s{number}", "text": "{text} {escape}"}}\n' for number, escape in enumerate(surrogates)]
    (tmp_path / "corpus" / "a.jsonl").write_text(
        "".join(lines) + '{"id": "pair", "text": "' + text + ' \\ud83d\\ude00"}\n'
    )
    of_build = build(near(tmp_path, source={"paths": [str(tmp_path / "corpus")], "max_rejected_share": 0.5}))
    assert listed(tmp_path) == matches_of([{"id": "pair", "text": text + " \U0001f600"}, *rows])
    assert listed(tmp_path)["d0"] == ("pair", 1.0)
    assert of_build.total("index", "lines") - of_build.total("index", "documents_out") == len(surrogates)


def test_source_that_loses_exactly_the_share_that_is_allowed_is_built(tmp_path: Path) -> None:
    """0.29 * 100 is less than 29 in binary."""
    rows = [{"id": f"d{number}", "text": f"page {max(number, 29)}"} for number in range(29 + 71)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build(near(tmp_path, near={"most_removed": 0.29}))
    assert len(listed(tmp_path)) == 29
    with pytest.raises(TooManyNearDuplicatesError):
        build(near(tmp_path, near={"most_removed": 0.289}))


def test_group_whose_kept_document_is_forgotten_is_decided_again(tmp_path: Path) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    expected = matches_of(rows)
    build(near(tmp_path))
    assert listed(tmp_path) == expected
    kept = next(iter(expected.values()))[0]
    (tmp_path / "forget.jsonl").write_text(json.dumps({"id": kept}) + "\n")
    build(near(tmp_path, forget={"path": str(tmp_path / "forget.jsonl"), "copies": "keep"}))
    assert listed(tmp_path) == matches_of([row for row in rows if row["id"] != kept])
