"""gc: exactly the step folders that the newest plan does not reach go, and nothing that anybody still needs."""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.garbage import Garbage, find_garbage, remove_garbage, render_garbage
from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from corpusmill.engine.runs import begin_run
from corpusmill.engine.stage import PLAN
from corpusmill.inspect.verify import verify_build
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents, reused, write_corpus
from tests.system.kept import keep, put_back

STAGES = list(GRAPH.names)


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def step_folders(work: Path) -> set[Path]:
    return {folder for stage in (PLAN, *GRAPH.names) for folder in (work / stage).glob("*") if folder.is_dir()}


def reached(built: Build) -> set[Path]:
    return {built.plan_folder, *(built.folder(stage, unit) for stage in STAGES for unit in built.units(stage))}


def superseded_by(later: Build, *earlier: Build) -> set[Path]:
    """What only the earlier builds reach, but for what stays of every run: its plan and its report."""
    folders = {folder for built in earlier for folder in reached(built)} - reached(later)
    return {folder for folder in folders if folder.parent.name not in {"plan", "report"}}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Modification time and content of everything below a folder."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def built_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(root, the plans) of the same sources built with seed 7, then with seed 8."""
    root = tmp_path_factory.mktemp("rebuilt")
    write_corpus(root / "corpus", documents=24)
    plans = [build(root).plan_receipt, build(root, shuffle={"seed": 8}).plan_receipt]
    keep(root)
    return root, plans[0], plans[1]


@pytest.fixture
def root(built_twice) -> Path:
    put_back(built_twice[0])
    return built_twice[0]


@pytest.fixture
def rebuilt(root, built_twice) -> tuple[Build, Build]:
    return open_build(built_twice[1]), open_build(built_twice[2])


def test_gc_after_another_seed_exactly_the_superseded_folders_go(rebuilt) -> None:
    first, second = rebuilt
    superseded = superseded_by(second, first)
    garbage = find_garbage(second.work, GRAPH)
    assert {item.folder for item in garbage} == superseded
    stages = {item.folder.parent.name for item in garbage}
    assert stages == {"scatter", "gather", "export", "manifest", "upload"}
    for item in garbage:
        assert item.size_bytes == sum(path.stat().st_size for path in item.folder.rglob("*") if path.is_file())
    order = [PLAN, *GRAPH.names]
    assert garbage == sorted(garbage, key=lambda item: (order.index(item.folder.parent.name), item.folder.name))

    kept = step_folders(second.work) - superseded
    assert reached(second) < kept
    assert {item.folder for item in remove_garbage(second.work, GRAPH, garbage)} == superseded
    assert step_folders(second.work) == kept
    assert find_garbage(second.work, GRAPH) == []


def test_gc_of_a_configuration_keeps_its_steps_though_another_of_its_name_was_built_since(rebuilt) -> None:
    first, second = rebuilt
    named = first.config.model_copy(update={"lock": None, "keep_versions": 2})  # as its file says it
    assert find_garbage(second.work, GRAPH, config=named) == []
    assert find_garbage(second.work, GRAPH, config=second.config) == find_garbage(second.work, GRAPH)
    assert {item.folder for item in find_garbage(second.work, GRAPH)} == superseded_by(second, first)


def test_gc_plan_and_report_of_an_older_run_stay_and_what_else_it_needs_is_missed_in_words(rebuilt) -> None:
    first, second = rebuilt
    report = first.folder("report", "report")
    remove_garbage(second.work, GRAPH, find_garbage(second.work, GRAPH))
    older = open_build(first.plan_receipt)
    assert older.config == first.config
    assert "</html>" in (report / "report.html").read_text()
    with raises("step.not_finished", "if garbage collection removed it"):
        older.run("report", "report")
    assert read_receipt(report / RECEIPT_NAME).stage == "report"  # the one that is there stays
    for stage in STAGES:  # cleared from its first task on
        for unit in older.units(stage):
            older.run(stage, unit)
    assert older.folder("report", "report") == report


def test_gc_plan_that_nobody_began_goes_and_a_task_that_needs_it_fails_for_good(rebuilt, root) -> None:
    _, second = rebuilt
    dry = open_build(plan_dataset(check_config(configuration(root, shuffle={"seed": 9}), where="test")))
    assert dry.plan_folder in {item.folder for item in find_garbage(second.work, GRAPH)}
    remove_garbage(second.work, GRAPH, find_garbage(second.work, GRAPH))
    with raises("plan.gone", "clear the task plan with everything downstream"):
        _ = open_build(dry.plan_receipt).config


def test_gc_what_remains_is_whole_and_every_step_is_reused(rebuilt, root) -> None:
    _, second = rebuilt
    remove_garbage(second.work, GRAPH, find_garbage(second.work, GRAPH))
    assert verify_build(second).findings == ()
    again = build(root, shuffle={"seed": 8})
    for stage in STAGES:
        if stage not in {"upload", "report"}:  # these look at the world outside, every time
            assert all(reused(again, stage, unit) for unit in again.units(stage)), stage
    assert again.receipt("upload", "00000").traffic["files_sent"] == 0


def test_gc_finding_and_rendering_change_nothing(rebuilt) -> None:
    _, second = rebuilt
    before = snapshot(second.work)
    garbage = find_garbage(second.work, GRAPH)
    printed = render_garbage(garbage, removed=False)
    assert snapshot(second.work) == before
    assert f"{sum(item.size_bytes for item in garbage):,}  bytes in {len(garbage)} folders" in printed
    assert printed.endswith("can be removed: --remove does it")
    assert all(str(item.folder) in printed for item in garbage)


def test_gc_two_newest_plans_kept_leave_only_the_third(rebuilt, root) -> None:
    first, second = rebuilt
    third = build(root, shuffle={"seed": 9})
    garbage = {item.folder for item in find_garbage(third.work, GRAPH, keep_plans=2)}
    assert garbage == superseded_by(third, first) - reached(second)
    assert find_garbage(third.work, GRAPH, keep_plans=3) == []


def test_gc_older_plan_begun_again_is_the_newest(rebuilt, root) -> None:
    _, second = rebuilt
    again = build(root)
    garbage = {item.folder for item in find_garbage(again.work, GRAPH)}
    assert superseded_by(again, second) <= garbage
    assert not garbage & reached(again)


def test_gc_locked_folder_stays(rebuilt) -> None:
    _, second = rebuilt
    garbage = find_garbage(second.work, GRAPH)
    locked = next(item for item in garbage if item.folder.parent.name == "gather")
    with (locked.folder / ".lock").open("r") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert locked not in find_garbage(second.work, GRAPH)
        removed = remove_garbage(second.work, GRAPH, garbage)
    assert locked not in removed
    assert len(removed) == len(garbage) - 1
    assert (locked.folder / RECEIPT_NAME).exists()
    assert find_garbage(second.work, GRAPH) == [locked]


def test_gc_folder_without_receipt_is_garbage_unless_its_step_is_running(rebuilt) -> None:
    _, built = rebuilt
    remove_garbage(built.work, GRAPH, find_garbage(built.work, GRAPH))
    assert render_garbage(find_garbage(built.work, GRAPH), removed=False) == "nothing is left over"
    killed = built.work / "index" / "00009-0123456789abcdef"
    killed.mkdir()
    (killed / "tokenized").write_bytes(b"half")
    (killed / ".lock").touch()
    (actual,) = find_garbage(built.work, GRAPH)
    assert actual == Garbage(killed, 4, "it has no receipt: its step never finished")
    with (killed / ".lock").open("r") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert find_garbage(built.work, GRAPH) == []
    assert remove_garbage(built.work, GRAPH, [actual]) == [actual]
    assert not killed.exists()


def test_gc_unfinished_build_keeps_what_it_may_still_reuse(tmp_path) -> None:
    """A file was added and the second build stopped after index: the stages after it may still need old folders."""
    write_corpus(tmp_path / "corpus", documents=24)
    first = build(tmp_path)
    (tmp_path / "corpus" / "z.jsonl").write_bytes(lines_of(make_documents(12, seed=5)))
    second = open_build(begin_run(plan_dataset(check_config(configuration(tmp_path), where="test"))))
    for stage in ("download", "index"):
        for unit in second.units(stage):
            second.run(stage, unit)
    assert (
        find_garbage(second.work, GRAPH) == []
    )  # until the second has delivered, the first is what may be reprocessed
    third = build(tmp_path)
    garbage = {item.folder for item in find_garbage(third.work, GRAPH)}
    folders = step_folders(third.work) - reached(third)
    assert garbage == {folder for folder in folders if folder.parent.name not in {"plan", "report"}}
    assert first.folder("manifest", "dataset") in garbage


def test_gc_edited_receipt_does_not_doom_what_was_made_from_it(rebuilt, caplog) -> None:
    _, built = rebuilt
    remove_garbage(built.work, GRAPH, find_garbage(built.work, GRAPH))
    path = built.folder("tokenize", "00000") / RECEIPT_NAME
    receipt = json.loads(path.read_text())
    for damage in ({"counts": {}}, {"details": {}}, {"counts": {**receipt["counts"], "tokens": 10**12}}):
        path.write_text(json.dumps({**receipt, **damage}))
        with caplog.at_level(logging.CRITICAL):
            assert find_garbage(built.work, GRAPH) == []


def test_gc_without_any_plan_refuses(rebuilt) -> None:
    _, second = rebuilt
    shutil.rmtree(second.work / "plan")
    with raises("garbage.no_plan"):
        find_garbage(second.work, GRAPH)


def test_gc_unreadable_plan_refuses(rebuilt) -> None:
    _, second = rebuilt
    (second.plan_folder / "plan.json").write_bytes(b"{")
    with raises("garbage.plan_not_readable"):
        find_garbage(second.work, GRAPH)


def test_gc_folder_of_no_dataset_has_no_garbage(tmp_path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "holidays").mkdir()
    (tmp_path / "index" / "notes.txt").write_text("mine")
    assert find_garbage(tmp_path, GRAPH) == []
    assert find_garbage(tmp_path / "nowhere", GRAPH) == []


def test_gc_links_and_foreign_folders_are_left_alone(rebuilt, root) -> None:
    first, second = rebuilt
    elsewhere = root / "elsewhere"
    (elsewhere / "00000-0123456789abcdef").mkdir(parents=True)
    (elsewhere / "00000-0123456789abcdef" / "mine").write_text("mine")
    (second.work / "index" / "00001-0123456789abcdef").symlink_to(elsewhere / "00000-0123456789abcdef")
    (second.work / "index" / "my notes").mkdir()
    (second.work / "mine").mkdir()
    garbage = find_garbage(second.work, GRAPH)
    assert {item.folder for item in garbage} == superseded_by(second, first)
    inside = garbage[-1].folder
    (inside / "a link").symlink_to(elsewhere)
    (inside / ".lock").unlink()
    (inside / ".lock").symlink_to(elsewhere / "00000-0123456789abcdef" / "mine")
    assert len(remove_garbage(second.work, GRAPH, garbage)) == len(garbage)
    assert not inside.exists()
    assert (elsewhere / "00000-0123456789abcdef" / "mine").read_text() == "mine"
    assert (second.work / "index" / "my notes").is_dir()
    assert (second.work / "index" / "00001-0123456789abcdef").is_symlink()


@pytest.mark.parametrize(
    "name",
    ["../other/index/00000-0123456789abcdef", "index", "index/notes", "holidays/00000-0123456789abcdef", "index/../x"],
)
def test_gc_removing_anything_but_a_step_folder_is_refused_before_anything_goes(rebuilt, name: str) -> None:
    _, second = rebuilt
    garbage = find_garbage(second.work, GRAPH)
    target = second.work / name
    with raises("garbage.not_a_step_folder"):
        remove_garbage(second.work, GRAPH, [*garbage, Garbage(target, 0, "said so")])
    assert all(item.folder.is_dir() for item in garbage)


def test_gc_removing_through_a_linked_stage_folder_is_refused(rebuilt, root) -> None:
    _, second = rebuilt
    moved = root / "moved"
    shutil.move(second.work / "gather", moved)
    (second.work / "gather").symlink_to(moved)
    assert not [item for item in find_garbage(second.work, GRAPH) if item.folder.parent.name == "gather"]
    folder = next(moved.iterdir())
    with raises("garbage.not_a_step_folder"):
        remove_garbage(second.work, GRAPH, [Garbage(second.work / "gather" / folder.name, 0, "said so")])
    assert folder.is_dir()


def test_gc_interrupted_removal_leaves_no_receipt_without_those_it_was_made_from(rebuilt, monkeypatch) -> None:
    """Whatever the moment of a kill: later stages go first, and a folder's receipt goes before its files."""
    from corpusmill.engine import garbage

    _, second = rebuilt
    order = [PLAN, *GRAPH.names]
    seen: list[int] = []
    original = garbage._remove

    def watched(folder: Path) -> bool:
        seen.append(order.index(folder.parent.name))
        return original(folder)

    monkeypatch.setattr(garbage, "_remove", watched)
    remove_garbage(second.work, GRAPH, find_garbage(second.work, GRAPH))
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) > 3
