"""New and changed sources: only what depends on them runs.

tests/search compares what is delivered after random edits with builds from scratch.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.reprocess import ask_for_shard, compare, digests, render_comparison
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RUN_LOCK, locked
from corpusmill.engine.preview import preview, render_preview
from corpusmill.inspect.verify import verify_build
from corpusmill.storage import StoredFile
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents, reused
from tests.system.kept import keep, put_back


def write_files(folder: Path, *numbers: int) -> None:
    """Files of 20 documents; equal numbers give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"part{number}.jsonl").write_bytes(lines_of(make_documents(20, seed=number), 20 * number))


def settings(root: Path, **changes: object):
    """A shard per file, so that the test can name them."""
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    return check_config(configuration(root, source=source, **changes), where="test")


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(settings(root, **changes), workers=1))


def fates(root: Path, **changes: object) -> dict[tuple[str, str], str]:
    return {(item.stage, item.unit): item.fate for item in preview(open_build(plan_dataset(settings(root, **changes))))}


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path) -> Path:
    """A build whose sources a test changes."""
    write_files(tmp_path / "corpus", 1, 2, 3)
    build(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept")
    write_files(root / "corpus", 1, 2, 3)
    build(root)
    keep(root)
    return root


@pytest.fixture
def built_root(kept: Path) -> Path:
    """The same, for tests that leave the sources as they are."""
    put_back(kept)
    return kept


def test_refresh_appended_file_reuses_old_shards(root) -> None:
    write_files(root / "corpus", 4)
    before = fates(root)
    for stage in ("download", "index", "anchor"):
        assert [before[stage, f"{shard:05d}"] for shard in range(3)] == ["reuse"] * 3
    assert before["download", "00003"] == "run"
    built = build(root)
    assert all(reused(built, "tokenize", f"{shard:05d}") for shard in range(3))
    assert not reused(built, "tokenize", "00003")


def test_refresh_changed_file_redoes_exactly_its_dependants(root) -> None:
    changed = lines_of(make_documents(20, seed=99), 40)
    (root / "corpus" / "part2.jsonl").write_bytes(changed)
    built = build(root)
    for stage in ("download", "index", "anchor"):
        assert [reused(built, stage, unit) for unit in built.units(stage)] == [True, False, True]


def test_refresh_touched_but_equal_file_changes_nothing_after_download(root) -> None:
    path = root / "corpus" / "part2.jsonl"
    path.write_bytes(path.read_bytes())
    built = build(root)
    assert not reused(built, "download", "00001")
    assert all(reused(built, stage, unit) for stage in ("index", "tokenize", "export") for unit in built.units(stage))


def test_plan_changed_setting_is_named_with_both_values(built_root) -> None:
    planned = open_build(plan_dataset(settings(built_root, dedup={"mode": "remove", "minimum_bytes": 120})))
    text = render_preview(preview(planned), STEP_OF)
    assert "minimum_bytes 100 -> 120" in text
    assert "index        3 reuse, 3 run" in text
    assert "writeback    6 may run" in text
    reasons = [line.strip() for line in text.splitlines() if "run: " in line]
    assert len(reasons) == 3  # of the stage that the setting changes, of upload and report; none of those between
    assert reasons[1:] == ["run: runs every time"] * 2
    assert text.endswith("`may run`: runs only if an input changes.")


def test_plan_new_dataset_says_new(tmp_path) -> None:
    write_files(tmp_path / "corpus", 1)
    text = render_preview(preview(open_build(plan_dataset(settings(tmp_path)))), STEP_OF)
    assert text == "nothing is built yet: all 9 steps will run, from download to report"


def test_plan_added_file_of_a_built_dataset_names_the_new_shard_alone(root) -> None:
    write_files(root / "corpus", 4)
    text = render_preview(preview(open_build(plan_dataset(settings(root)))), STEP_OF)
    assert "run: new  [00003]" in text
    assert "download     3 reuse, 1 run" in text


def test_plan_damaged_and_unfinished_steps_are_said(built_root) -> None:
    built = build(built_root)
    (built.folder("index", "00000") / "tokenized").write_bytes(b"short")
    (built.folder("index", "00001") / "receipt.json").unlink()
    text = render_preview(preview(open_build(built.plan_receipt)), STEP_OF)
    assert "its outputs were damaged" in text
    assert "an earlier run did not finish it" in text


def edit_in_place(path: Path) -> None:
    """Other text of the same size, written into the same file, and the old time set again, as `rsync -t` does."""
    times, content = path.stat(), path.read_bytes()
    with path.open("r+b") as file:
        file.write(content.replace(b"the", b"teh"))
    assert path.read_bytes() != content
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def built_from_scratch(root: Path, folder: Path) -> dict[str, bytes]:
    shutil.copytree(root / "corpus", folder / "corpus")
    build(folder)
    return outputs(folder)


def test_refresh_source_changed_in_place_with_its_old_size_and_time_is_read_anew(root, tmp_path) -> None:
    edit_in_place(root / "corpus" / "part1.jsonl")
    build(root)
    assert outputs(root) == built_from_scratch(root, tmp_path / "scratch")


def test_refresh_source_that_is_another_file_of_the_same_bytes_makes_no_later_step_run_again(root) -> None:
    before = build(root)
    for path in sorted((root / "corpus").iterdir()):
        shutil.copy2(path, root / "copy")
        (root / "copy").replace(path)
    after = build(root)
    for shard in after.units("index"):
        assert after.step("download", shard).fingerprint() != before.step("download", shard).fingerprint()
        assert reused(after, "index", shard)


def test_refresh_source_whose_change_nothing_shows_is_refused_with_the_cure_and_seen_by_verify(
    root, tmp_path, monkeypatch
) -> None:
    """On a file system without times of change."""

    def stored(name: str, path: Path, status: os.stat_result) -> StoredFile:
        return StoredFile(name, str(path), status.st_size, f"{status.st_size}-0")

    monkeypatch.setattr("corpusmill.storage.local._stored", stored)
    build(root)
    edit_in_place(root / "corpus" / "part1.jsonl")
    fields = {"source": {"paths": [str(root / "corpus")], "shard_bytes": 1, "id_field": "name"}}
    changed = check_config(configuration(root, **fields), where="test")
    with raises("source.changed_during_build", "build with --verify"):
        build_dataset(changed, workers=1)
    build_dataset(changed, workers=1, verify=True)
    build_dataset(settings(root), workers=1)
    assert outputs(root) == built_from_scratch(root, tmp_path / "scratch")


def test_build_verify_flipped_byte_is_repaired_and_said_aloud(built_root, caplog) -> None:
    whole = outputs(built_root)
    built = build(built_root)
    path = built.folder("tokenize", "00001") / "tokens"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    build_dataset(settings(built_root), workers=1)
    assert path.read_bytes() != content  # sizes are equal: without verify nothing is read
    build_dataset(settings(built_root), workers=1, verify=True)
    assert path.read_bytes() == content
    assert "tokens does not have the digest xxh3_128:" in caplog.text
    assert outputs(built_root) == whole


def edit_fingerprint(receipt: Path) -> None:
    receipt.write_text(json.dumps(json.loads(receipt.read_text()) | {"fingerprint": "0" * 64}))


def truncate_output(receipt: Path) -> None:
    largest = max(json.loads(receipt.read_text())["outputs"], key=lambda item: item["size_bytes"])
    os.truncate(receipt.parent / largest["name"], largest["size_bytes"] // 2)


HARMS = {
    "folder gone": lambda receipt: shutil.rmtree(receipt.parent),
    "file truncated": truncate_output,
    "receipt torn": lambda receipt: receipt.write_bytes(receipt.read_bytes()[:100]),
    "receipt edited": edit_fingerprint,
}


@pytest.mark.parametrize("harm", HARMS)
def test_build_harmed_in_every_stage_is_repaired_to_the_same_bytes(built_root, harm: str) -> None:
    whole, built = outputs(built_root), build(built_root)
    stages = ("download", "index", "anchor", "shared", "context", "settle", "border", "match", "union")
    stages += ("writeback", "tokenize", "audit", "scatter", "gather")
    steps = [(stage, built.units(stage)[-1]) for stage in (*stages, "export", "manifest")]
    receipts = [built.folder(*step) / "receipt.json" for step in steps]
    for receipt in receipts:
        if json.loads(receipt.read_text())["outputs"] or harm != "file truncated":
            HARMS[harm](receipt)
    again = build(built_root)
    assert not reused(again, "tokenize", again.units("tokenize")[-1])
    assert reused(again, "tokenize", again.units("tokenize")[0])
    assert outputs(built_root) == whole
    assert verify_build(again).findings == ()


def raise_counts(receipt: dict[str, Any]) -> None:
    receipt["counts"] = {name: count + 1 for name, count in receipt["counts"].items()}


def edit_sum(receipt: dict[str, Any]) -> None:
    receipt["details"]["content"] = f"{int(receipt['details']['content'], 16) ^ 1:032x}"


def leave_sum_out(receipt: dict[str, Any]) -> None:
    del receipt["details"]["content"]


@pytest.mark.parametrize("edit", [raise_counts, edit_sum, leave_sum_out])
@pytest.mark.parametrize("stage", ["index", "gather"])
def test_build_with_a_receipt_edited_by_hand_runs_its_step_again(built_root, stage: str, edit: Any) -> None:
    whole, built = outputs(built_root), build(built_root)
    receipt = built.folder(stage, built.units(stage)[0]) / "receipt.json"
    edited = json.loads(receipt.read_text())
    edit(edited)
    receipt.write_text(json.dumps(edited))
    again = build(built_root)
    assert outputs(built_root) == whole
    runs = [(item, unit) for item in ("index", "tokenize", "scatter", "gather") for unit in again.units(item)]
    assert [step for step in runs if not reused(again, *step)] == [(stage, built.units(stage)[0])]


@pytest.mark.parametrize("stage", ["download", "index", "tokenize"])
def test_reprocess_unchanged_shard_shows_that_nothing_changed(built_root, stage: str) -> None:
    built = build(built_root)
    before = digests(built)
    dropped = ask_for_shard(open_build(built.plan_receipt), stage, "00001")
    assert dropped[0] == (stage, "00001")
    assert {unit.split("-")[-1] for _, unit in dropped} == {"00001"}
    again = build(built_root)
    assert not reused(again, "tokenize", "00001")
    assert reused(again, "tokenize", "00000")
    assert compare(before, digests(again)) == []
    assert "tokenize        3 unchanged      0 changed" in render_comparison(dropped, before, digests(again))


def test_reprocess_shard_whose_text_changed_names_what_changed(root) -> None:
    built = build(root)
    before = digests(built)
    (root / "corpus" / "part2.jsonl").write_bytes(lines_of(make_documents(20, seed=98), 40))
    after = digests(build(root))
    changed = {(item.stage, item.unit) for item in compare(before, after)}
    assert ("index", "00001") in changed
    assert ("index", "00000") not in changed


@pytest.mark.parametrize(("stage", "shard"), [("gather", "00001"), ("tokenize", "00009"), ("tokenise", "00001")])
def test_reprocess_impossible_request_names_the_choices(built_root, stage: str, shard: str) -> None:
    with raises("reprocess.no_such_shard reprocess.step_without_shards", "\n  next "):
        ask_for_shard(build(built_root), stage, shard)


def test_build_second_run_at_the_same_time_says_who_holds_the_dataset(built_root) -> None:
    with locked(built_root / "work" / "tiny" / RUN_LOCK, wait=False), raises("run.locked") as caught:
        build(built_root)
    for words in ("another run holds this dataset", "process ", " on ", " seconds", "next"):
        assert words in str(caught.value)


MORE = (make_documents(1, seed=77), ["one more document of a few words"], ["x"])


def require_as_from_scratch(root: Path, shuffle: dict[str, object]) -> None:
    build(root, shuffle=shuffle)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "corpus", Path(folder) / "corpus")
        build(Path(folder), shuffle=shuffle)
        assert outputs(root) == outputs(Path(folder))


@pytest.mark.parametrize("order", quick(["random", "source"], 0, 1))
def test_refresh_earlier_cell_that_grows_or_shrinks_moves_every_later_export(tmp_path, monkeypatch, order: str) -> None:
    """Later cells keep their digests, but what an output takes from them begins elsewhere: a step for each file."""
    monkeypatch.setattr("corpusmill.export.stages.layout.UNIT_BYTES", 1)
    shuffle = {"seed": 7, "order": order} | ({"cells": 12} if order == "random" else {})
    write_files(tmp_path / "corpus", 1, 2, 3, 4, 5)
    first, delivered = tmp_path / "corpus" / "part1.jsonl", []
    build(tmp_path, shuffle=shuffle)
    for extra in MORE:
        first.write_bytes(first.read_bytes() + lines_of(extra, 1000))
        require_as_from_scratch(tmp_path, shuffle)
        delivered.append(outputs(tmp_path))
    lines = first.read_bytes().splitlines(keepends=True)
    for before in reversed(delivered[:-1]):  # of the last document its own cell alone changes
        del lines[-1]
        first.write_bytes(b"".join(lines))
        build(tmp_path, shuffle=shuffle)
        assert outputs(tmp_path) == before
    first.write_bytes(b"".join(lines[1:]))  # without the first document, all places change
    require_as_from_scratch(tmp_path, shuffle)
