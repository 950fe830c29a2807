"""diff: what differs between two versions, against plain Python over the sources and the delivered files."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import check_config
from corpusmill.inspect.difference import compare_versions, render_difference, render_difference_page
from corpusmill.inspect.difference.compare import differing
from corpusmill.inspect.difference.documents import OUTCOMES, ROW, match
from corpusmill.storage import open_store
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.oracles.difference import Delivered, outcomes_of
from tests.raising import raises
from tests.system.corpus import configuration, make_documents

Documents = dict[str, list[tuple[str, str]]]
"""Source file -> its documents' (id, text)."""
ODD = "b\x1b[31m\u202e.jsonl"  # red, and from right to left, on a terminal that obeys


def first_documents() -> Documents:
    texts = make_documents(90)
    named = [(f"doc-{number}", text) for number, text in enumerate(texts)]
    nameless = [("", text) for text in [*texts[60:75], *texts[62:66]]]
    return {"a.jsonl": named[:30], ODD: named[30:60], "c.jsonl": nameless, "d.jsonl": [("same", t) for t in texts[75:]]}


def edited(documents: Documents) -> Documents:
    """Changed in place, removed (so that later copies stay), added, moved to another file and to a new one."""
    a, b, c, d = (list(documents[name]) for name in ("a.jsonl", ODD, "c.jsonl", "d.jsonl"))
    a[3] = (a[3][0], a[3][1] + " and an end that was not there")
    a[4] = (a[4][0], "")
    moved, d[2] = b.pop(5), (d[2][0], "of an id that many have")
    return {
        "a.jsonl": [*a[:20], moved],
        ODD: b + a[20:23],
        "c.jsonl": [*c[1:], ("", "new and nameless"), c[-1]],
        "d.jsonl": d[:-1],
        "e.jsonl": [("doc-new", "quite new"), *a[23:25]],
    }


def write(root: Path, documents: Documents) -> None:
    shutil.rmtree(root / "corpus", ignore_errors=True)
    (root / "corpus").mkdir()
    for name, rows in documents.items():
        lines = [json.dumps({"body": text, **({"key": key} if key else {})}) + "\n" for key, text in rows]
        (root / "corpus" / name).write_text("".join(lines))


def config_of(root: Path, dedup: dict[str, Any], **changes: object) -> dict[str, Any]:
    source = {"paths": [str(root / "corpus")], "shard_bytes": "8KiB", "text_field": "body", "id_field": "key"}
    return configuration(root, source=source, dedup=dedup, exports={"nanoset": {}}, **changes)


def build(root: Path, documents: Documents, dedup: dict[str, Any], **changes: object) -> str:
    """Build and deliver; the version. web.yaml is its configuration."""
    write(root, documents)
    config = config_of(root, dedup, **changes)
    (root / "web.yaml").write_text(yaml.safe_dump(config))
    build_dataset(check_config(config, where="test"), workers=1)
    return (root / "outputs" / str(config["name"]) / "latest").resolve().name


FIRST = {"mode": "remove", "minimum_bytes": 100}
SECOND: dict[str, dict[str, Any]] = {
    "equal settings": FIRST,
    "fewer duplicates": {"mode": "remove", "minimum_bytes": 700},
    "annotated": {"mode": "annotate", "minimum_bytes": 100},
    "none": {"mode": "none"},
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, str]]:
    """(root, the first version, those of the edited documents by what SECOND says)."""
    root = tmp_path_factory.mktemp("difference")
    first = build(root, first_documents(), FIRST)
    return root, first, {name: build(root, edited(first_documents()), dedup) for name, dedup in SECOND.items()}


def config(root: Path) -> Any:
    return check_config(yaml.safe_load((root / "web.yaml").read_text()), where="test")


def folder_of(root: Path, version: str) -> Path:
    return root / "outputs" / "tiny" / version


def delivered(folder: Path, documents: Documents, *, sources_known: bool = True) -> list[Delivered]:
    """The documents of a version, from its own files; what they were at the source, from what was written there."""
    encode = load_tokenizer("cl100k_base", engine="reference").encode
    rows = []
    for name in sorted(documents):
        lines = [json.loads(line) for line in (folder / "documents" / name).read_bytes().splitlines()]
        for line, (key, text) in zip(lines, documents[name], strict=True):
            assert line.get("key", "") == key
            count = len(encode([line["body"].encode()])[0])
            rows.append(Delivered(name, key, text if sources_known else line["body"], line["body"], count))
    return rows


def told(outcomes: dict[str, list[list[Delivered]]], *, by_work: bool) -> dict[str, Any]:
    """As `compare_versions` has it."""

    def amounts(sides: list[list[Delivered]]) -> dict[str, Any]:
        gone = [sum(len(item.text.encode()) - len(item.left.encode()) for item in side) for side in sides]
        tokens = [sum(item.tokens for item in side) for side in sides]
        known = {"tokens": tokens, "duplicate_bytes": gone} if by_work else {"tokens": None, "duplicate_bytes": None}
        return {"documents": [len(side) for side in sides], **known}

    every = [[item for sides in outcomes.values() for item in sides[side]] for side in (0, 1)]
    parts = {name: amounts(outcomes.get(name, [[], []])) for name in OUTCOMES}
    return {"all": amounts(every), **parts, **({} if by_work else {"cut": None})}


def in_all(became: dict[str, dict[str, list[list[Delivered]]]]) -> dict[str, list[list[Delivered]]]:
    return {
        outcome: [[item for file in became.values() for item in file.get(outcome, [[], []])[side]] for side in (0, 1)]
        for outcome in OUTCOMES
    }


@pytest.mark.parametrize("name", ["equal settings", "fewer duplicates"])
def test_difference_with_the_work_folder_is_what_plain_python_counts(versions: Any, name: str) -> None:
    root, first, second = versions
    difference = compare_versions(first, second[name], config(root))
    became = outcomes_of(
        delivered(folder_of(root, first), first_documents()),
        delivered(folder_of(root, second[name]), edited(first_documents())),
    )
    assert difference["told_by"] == "work folder"
    assert difference["unknown"] == {}
    assert difference["sources"] == {file: told(item, by_work=True) for file, item in became.items()}
    assert difference["documents"] == told(in_all(became), by_work=True)
    for outcome in OUTCOMES:
        assert sum(difference["documents"][outcome]["documents"]), f"no document was {outcome}: the test shows nothing"


@pytest.mark.parametrize("name", ["equal settings", "fewer duplicates"])
def test_difference_of_two_folders_is_told_by_their_documents_and_says_what_it_does_not_know(
    versions: Any, name: str, tmp_path: Path
) -> None:
    root, first, second = versions
    build_of = {"old": (first, first_documents()), "new": (second[name], edited(first_documents()))}
    sides = []
    for side, (version, documents) in build_of.items():
        shutil.copytree(folder_of(root, version), tmp_path / side)
        sides.append(delivered(tmp_path / side, documents, sources_known=False))
    other_work = {"work_folder": str(tmp_path / "work")}
    elsewhere = check_config(config_of(root, FIRST, **other_work), where="test")
    difference = compare_versions(str(tmp_path / "old"), str(tmp_path / "new"), elsewhere)
    became = outcomes_of(*sides)
    assert difference["told_by"] == "documents/"
    assert difference["sources"] == {file: told(item, by_work=False) for file, item in became.items()}
    assert difference["documents"] == told(in_all(became), by_work=False)
    assert difference["settings"] is None
    assert difference["versions"] is None
    assert difference["unknown"].keys() == {"cut", "tokens and duplicates", "settings and versions"}
    assert f"unknown  tokens and duplicates: {tmp_path / 'work'}" in render_difference(difference)


def test_difference_of_lists_of_sections_names_the_keys_that_differ() -> None:
    old = {"steps": [{"use": "a:b", "with": {"words": 50}}, {"use": "c:d"}], "paths": ["x"], "none": []}
    new = {"steps": [{"use": "a:b", "with": {"words": 90}}], "paths": ["x", "y"], "none": []}
    expected = {"steps[0].with.words": [50, 90], "steps[1].use": ["c:d", None], "paths": [["x"], ["x", "y"]]}
    assert differing(old, new) == expected


def test_difference_names_settings_and_versions_that_differ_and_no_others(
    versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, first, second = versions
    difference = compare_versions(first, second["fewer duplicates"], config(root))
    assert difference["settings"] == {"dedup.minimum_bytes": [100, 700]}
    assert difference["versions"] == {}
    old = build(tmp_path, first_documents(), FIRST)
    monkeypatch.setattr("corpusmill.builds.plan.__version__", "0.2.0")
    new = build(tmp_path, edited(first_documents()), FIRST, shuffle={"seed": 8})
    difference = compare_versions(old, new, config(tmp_path))
    assert difference["settings"] == {"shuffle.seed": [7, 8]}
    assert difference["versions"] == {"corpusmill": ["0.1.0", "0.2.0"]}


@pytest.mark.parametrize("name", ["annotated", "none"])
def test_difference_counts_documents_without_duplicates_as_unchanged_in_every_mode(versions: Any, name: str) -> None:
    root, _, second = versions
    removed = compare_versions(second["equal settings"], second[name], config(root))["documents"]
    duplicates = compare_versions(second["equal settings"], second["equal settings"], config(root))["documents"]
    total = removed["all"]["documents"][0]
    assert duplicates["unchanged"] == duplicates["all"]
    assert removed["unchanged"]["documents"][0] + removed["cut"]["documents"][0] == total
    assert removed["cut"]["duplicate_bytes"] == (
        [duplicates["all"]["duplicate_bytes"][0], 0] if name == "none" else [0, 0]
    )


def test_difference_of_different_datasets_is_made_and_said(versions: Any, tmp_path: Path) -> None:
    root, first, _ = versions
    other = build(tmp_path, first_documents(), FIRST, name="other")
    old, new = str(folder_of(root, first)), str(tmp_path / "outputs" / "other" / other)
    difference = compare_versions(old, new, config(root))
    assert "different datasets" in render_difference(difference)
    assert difference["unknown"]["settings and versions"].startswith("the work folder of")
    assert difference["documents"]["unchanged"] == difference["documents"]["all"]


def test_difference_without_documents_and_work_folder_knows_totals_alone(versions: Any, tmp_path: Path) -> None:
    root, first, _ = versions
    bare = build(tmp_path, first_documents(), {**FIRST, "writeback": False})
    difference = compare_versions(str(folder_of(root, first)), str(tmp_path / "outputs" / "tiny" / bare))
    assert (difference["told_by"], difference["documents"], difference["sources"]) == ("", None, {})
    assert "documents/" in difference["unknown"]["documents"]
    assert difference["files"]["lost"] == len(first_documents())
    assert difference["stated"] == {}


def test_difference_on_a_terminal_shows_no_control_character_of_a_name(versions: Any) -> None:
    root, first, second = versions
    for options in ([], ["--json"]):
        arguments = ["diff", first, second["equal settings"], "--config", str(root / "web.yaml"), *options]
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        assert not {"\x1b", "\u202e"} & set(done.output)
        assert "[31m" in done.output


def test_difference_of_a_version_and_itself_says_that_no_source_file_differs(versions: Any) -> None:
    root, first, _ = versions
    printed = render_difference(compare_versions(first, first, config(root)))
    assert "\nno source file differs\n" in printed
    assert "old > new" not in printed


def cells_of(page: str) -> list[list[str]]:
    """The table rows of a page, as texts."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    return [
        [
            html.unescape(re.sub(r"<[^>]*>", " ", cell)).split()
            for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, flags=re.DOTALL)
        ]
        for row in rows
    ]


def test_page_has_every_figure_and_obeys_no_name(versions: Any, tmp_path: Path) -> None:
    root, first, second = versions
    page = tmp_path / "diff.html"
    arguments = ["diff", first, second["none"], "--config", str(root / "web.yaml"), "--page", str(page)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0  # replaces its own page
    text = page.read_text()
    assert not {"\x1b", "\u202e"} & set(text)
    assert not re.search(r"<(script|link|img)|https?://", text)
    difference = compare_versions(first, second["none"], config(root))
    rows = {" ".join(row[0]): row[1:] for row in cells_of(text) if row}
    for name, measures in difference["documents"].items():
        assert [cell[0] for cell in rows[name]][:2] == [f"{measures[key][1]:,}" for key in ("documents", "tokens")]
    for name, measures in difference["sources"].items():
        if name != ODD:
            after = [f"{measure['documents'][1]:,}" for measure in measures.values()]
            assert [cell[0] for cell in rows[name]] == [*after, f"{measures['all']['tokens'][1]:,}"]
    assert all(key in text for key in difference["settings"])


def test_page_over_a_file_of_another_kind_is_refused_before_anything_is_compared(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("name: web\n")
    done = CliRunner().invoke(app, ["diff", "a", "b", "--page", str(tmp_path / "web.yaml")])
    assert "--page names a file that this command did not write" in str(done.exception)
    assert (tmp_path / "web.yaml").read_text() == "name: web\n"


def test_page_of_versions_about_which_little_is_known_says_so(versions: Any) -> None:
    root, first, second = versions
    page = render_difference_page(compare_versions(*(str(folder_of(root, item)) for item in (first, second["none"]))))
    assert "Unknown: " in page
    assert 'title="unknown"' in page or "<h2>Documents</h2>" not in page


def test_difference_of_versions_in_a_bucket_is_that_of_the_same_folders(versions: Any, moto: str) -> None:
    root, first, second = versions
    names = (first, second["equal settings"])
    for version in names:
        store = open_store(f"s3://corpus/{version}", endpoint_url=moto)
        for path in (path for path in folder_of(root, version).rglob("*") if path.is_file()):
            store.receive_bytes(path.read_bytes(), path.relative_to(folder_of(root, version)).as_posix())
    elsewhere = check_config(config_of(root, FIRST, work_folder=str(root / "none")), where="test")
    here = compare_versions(*(str(folder_of(root, version)) for version in names), elsewhere)
    there = compare_versions(*(f"s3://corpus/{version}" for version in names), elsewhere, (moto, moto))
    assert there["told_by"] == "documents/"
    for key in ("documents", "sources", "files", "stated"):
        assert there[key] == here[key]


def test_difference_of_what_is_no_version_is_refused(versions: Any, tmp_path: Path) -> None:
    root, first, _ = versions
    good = str(folder_of(root, first))
    with raises("repair.no_copy"):
        compare_versions(str(tmp_path), good)
    with raises("diff.no_such_version"):
        compare_versions("0123456789ab", good, config(root))
    (tmp_path / "latest.json").write_text('{"version": "../../etc"}')
    with raises("destination.latest_unknown"):
        compare_versions(good, str(tmp_path))
    for text in ("", "{", "[]", '{"name": 1, "files": []}', '{"name": "a", "files": [{"name": 1}]}', "[" * 100_000):
        (tmp_path / "dataset.json").write_text(text)
        with raises("dataset.description_changed"):
            compare_versions(good, str(tmp_path))


def test_difference_reads_no_damaged_file(versions: Any, tmp_path: Path) -> None:
    root, first, _ = versions
    good = folder_of(root, first)
    copy = tmp_path / first
    shutil.copytree(good, copy)
    path = copy / "documents" / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b"doc-1", b"doc-9", 1))
    elsewhere = check_config(config_of(root, FIRST, work_folder=str(tmp_path / "none")), where="test")
    with raises("diff.file_changed"):
        compare_versions(str(good), str(copy), elsewhere)
    path.unlink()
    with raises("diff.file_missing"):
        compare_versions(str(good), str(copy), elsewhere)
    with raises("diff.no_text"):
        compare_versions(str(good), str(good))  # their texts are not under `text`
    described = copy / "dataset.json"
    described.write_bytes(described.read_bytes() + b" ")
    with raises("dataset.description_changed"):
        compare_versions(str(good), str(copy))


def test_difference_reads_no_damaged_step(versions: Any, tmp_path: Path) -> None:
    root, first, second = versions
    shutil.copytree(root / "work", tmp_path / "work")
    elsewhere = check_config(config_of(root, FIRST, work_folder=str(tmp_path / "work")), where="test")
    for path in (tmp_path / "work" / "tiny" / "union").glob("*/cut_ranges"):
        path.write_bytes(bytes(path.stat().st_size))
    with raises("step.output_damaged"):
        compare_versions(first, second["equal settings"], elsewhere)


ROWS = st.lists(st.tuples(*(st.integers(0, 2) for _ in range(3))), max_size=12)


@given(ROWS, ROWS, st.sampled_from([("identity",), ("identity", "text"), ("identity", "source", "text")]))
def test_match_pairs_the_first_of_equal_rows(old: list[Any], new: list[Any], columns: tuple[str, ...]) -> None:
    sides = []
    for values in (old, new):
        rows = np.zeros(len(values), ROW)
        for column, name in enumerate(("identity", "text", "source")):
            rows[name] = [value[column] for value in values]
        sides.append(rows)
    expected = [np.zeros(len(rows), bool) for rows in sides]
    for number, row in enumerate(sides[0]):
        same = [
            place
            for place, other in enumerate(sides[1])
            if not expected[1][place] and all(row[name] == other[name] for name in columns)
        ]
        if same:
            expected[0][number] = expected[1][same[0]] = True
    for got, wanted in zip(match(sides[0], sides[1], columns), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
