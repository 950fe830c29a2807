"""gc --destinations: old versions go, and none that latest, a later run or another dataset needs."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.cli import app
from corpusmill.config import DatasetConfig, check_config, load_config
from corpusmill.engine.runs import begin_run
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.retention import find_old_versions
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

SEEDS = (7, 8, 9)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with one dataset built three times, and its versions, the oldest first."""
    root = tmp_path_factory.mktemp("retention")
    write_corpus(root / "corpus", documents=24)
    return root, [build(root, seed) for seed in SEEDS]


@pytest.fixture
def three(built: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A copy of that folder."""
    root, versions = built
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    for name in ("work", "outputs", "corpus"):
        shutil.copytree(root / name, tmp_path / name, symlinks=True)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(configuration(tmp_path, shuffle={"seed": SEEDS[-1]})))
    return tmp_path, versions


def configured(root: Path, seed: int, **changes: object) -> DatasetConfig:
    return check_config(configuration(root, shuffle={"seed": seed}, **changes), where="test")


def build(root: Path, seed: int, **changes: object) -> str:
    return dataset_version(open_build(build_dataset(configured(root, seed, **changes), workers=1)))


def gc(root: Path, *arguments: object) -> str:
    command = ["gc", str(root / "tiny.yaml"), "--destinations", *map(str, arguments)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def there(root: Path) -> set[str]:
    return {path.name for path in (root / "outputs" / "tiny").iterdir() if path.is_dir() and not path.is_symlink()}


def old(root: Path, keep: int) -> list[str]:
    return [Path(version.folder).name for version in find_old_versions(load_config(root / "tiny.yaml"), keep)]


def everything(config: Path, *arguments: str) -> str:
    command = ["gc", str(config), "--everything", *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_everything_of_a_dataset_without_its_configuration_is_listed_then_removed(
    three: tuple[Path, list[str]],
) -> None:
    root, versions = three
    build(root, SEEDS[0])  # its plan names this copy's places
    (root / "tiny.yaml").unlink()
    (root / "outputs" / "notes.txt").write_text("mine")
    listed = everything(root / "work" / "tiny")
    assert all(str(root / "outputs" / "tiny" / version) in listed for version in versions)
    assert there(root) == set(versions)
    everything(root / "work" / "tiny", "--remove")
    assert not (root / "outputs" / "tiny").exists()
    assert not (root / "work" / "tiny").exists()
    assert (root / "outputs" / "notes.txt").exists()
    assert (root / "corpus").is_dir()


def test_everything_keeps_what_no_run_here_delivered(three: tuple[Path, list[str]]) -> None:
    root, _ = three
    other = root / "outputs" / "tiny" / "0123456789ab"
    other.mkdir()
    (other / "dataset.json").write_text("{}")
    everything(root / "tiny.yaml", "--remove")
    assert [path.name for path in (root / "outputs" / "tiny").iterdir()] == ["0123456789ab"]


def test_everything_of_a_dataset_that_another_reads_is_refused(three: tuple[Path, list[str]]) -> None:
    root, versions = three
    source = {"paths": [str(root / "outputs/tiny" / versions[0] / "documents")]}
    build(root, 7, name="later", source=source)
    with raises("retention.version_in_use"):
        everything(root / "tiny.yaml", "--remove")
    assert there(root) == set(versions)
    assert (root / "work" / "tiny" / "plan").is_dir()


def test_everything_of_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work" / "tiny").mkdir(parents=True)
    with raises("run.none_started"):
        everything(tmp_path / "work" / "tiny")


def test_everything_of_a_folder_that_no_build_wrote_is_refused(three: tuple[Path, list[str]]) -> None:
    root, _ = three
    values = configuration(root, work_folder=str(root)) | {"name": "corpus"}  # as in `cd texts; work_folder: .`
    (root / "other.yaml").write_text(yaml.safe_dump(values))
    before = sorted((root / "corpus").rglob("[!.]*"))
    for remove in ((), ("--remove",)):
        with raises("retention.not_a_work_folder"):
            everything(root / "other.yaml", *remove)
        assert sorted((root / "corpus").rglob("[!.]*")) == before


def test_everything_lists_what_is_behind_the_link_to_a_work_folder(three: tuple[Path, list[str]]) -> None:
    root, _ = three
    (root / "work" / "tiny").rename(root / "elsewhere")
    (root / "work" / "tiny").symlink_to(root / "elsewhere")
    files = sum(path.is_file() for path in (root / "elsewhere").rglob("*"))
    listed = everything(root / "tiny.yaml").splitlines()[-2].split()
    assert (listed[1], int(listed[2]) >= files) == (str(root / "elsewhere"), True)
    everything(root / "tiny.yaml", "--remove")
    assert not {path.name for path in (root / "elsewhere").iterdir()} - {".run.lock", ".run.json"}


def test_only_the_newest_stay_and_a_list_removes_nothing(three: tuple[Path, list[str]]) -> None:
    root, (first, second, third) = three
    size = sum(path.stat().st_size for path in (root / "outputs" / "tiny" / first).rglob("*") if path.is_file())
    assert gc(root) == "no version can be removed\n"
    printed = gc(root, "--keep-versions", 2)
    assert f"{size:,}  {root / 'outputs' / 'tiny' / first}  " in printed
    assert "can be removed: --remove does it" in printed
    assert there(root) == {first, second, third}
    assert "bytes removed" in gc(root, "--keep-versions", 2, "--remove")
    assert there(root) == {second, third}
    gc(root, "--keep-versions", 1, "--remove")
    assert there(root) == {third}
    assert (root / "outputs" / "tiny" / "latest" / "dataset.json").is_file()
    assert (root / "corpus").is_dir()


def test_what_latest_names_stays_however_old_it_is(three: tuple[Path, list[str]]) -> None:
    root, (first, second, _) = three
    pointer = root / "outputs" / "tiny" / "latest.json"
    pointer.write_text(json.dumps({"version": first}))
    assert old(root, keep=1) == [second]
    pointer.write_text('{"vers')
    with raises("destination.latest_unknown"):
        old(root, keep=1)
    pointer.unlink()
    assert old(root, keep=1) == [second, first]


def test_version_that_another_dataset_is_built_against_stays(three: tuple[Path, list[str]]) -> None:
    root, (first, second, _) = three
    documents = root / "outputs" / "tiny" / first / "documents"
    (root / "by another way").symlink_to(documents)
    source = {"paths": [str(root / "by another way")], "shard_bytes": 10_000}
    other = check_config(configuration(root, name="other", source=source), where="test")
    begin_run(plan_dataset(other))
    assert old(root, keep=1) == [second]


@pytest.mark.parametrize("torn", ["plan.json", "receipt.json", "plan.json is gone"])
def test_damaged_plan_of_another_dataset_is_named_and_removes_nothing(three: tuple[Path, list[str]], torn: str) -> None:
    """Such a plan may need any version; the error was a traceback of the reader's."""
    root, versions = three
    other = plan_dataset(check_config(configuration(root, name="other"), where="test"))
    begin_run(other)
    file = other.parent / torn.split(maxsplit=1)[0]
    file.unlink() if "gone" in torn else file.write_bytes(file.read_bytes()[:40])
    with raises("retention.plan_not_readable", other.parent):
        gc(root, "--keep-versions", 1, "--remove")
    assert there(root) == set(versions)


def test_versions_that_no_run_here_delivered_stay(three: tuple[Path, list[str]]) -> None:
    root, (first, second, _) = three
    shutil.copytree(root / "outputs" / "tiny" / first, root / "outputs" / "tiny" / "0123456789ab")
    (root / "outputs" / "tiny" / "notes").mkdir()
    for mark in (root / "work" / "tiny" / "plan").glob("*/.delivered"):
        if first in mark.read_text():
            mark.write_text(json.dumps({"number": 1, "versions": {"../../corpus": 1}}))  # damaged: counts for nothing
    assert old(root, keep=1) == [second]


def test_links_in_and_to_an_old_version_are_not_followed(three: tuple[Path, list[str]]) -> None:
    root, (first, second, third) = three
    outputs = root / "outputs" / "tiny"
    (outputs / first / "elsewhere").symlink_to(root / "corpus")
    shutil.move(outputs / second, root / "moved")
    (outputs / second).symlink_to(root / "moved")
    assert old(root, keep=1) == [first]
    gc(root, "--keep-versions", 1, "--remove")
    assert {path.name for path in outputs.iterdir()} == {"latest", "latest.json", second, third}
    assert list((root / "corpus").iterdir())
    assert list((root / "moved").iterdir())


def test_removal_that_was_interrupted_goes_on(three: tuple[Path, list[str]]) -> None:
    root, (first, second, third) = three
    (root / "outputs" / "tiny" / first / "dataset.json").unlink()
    gc(root, "--keep-versions", 2, "--remove")
    assert there(root) == {second, third}
    assert old(root, keep=2) == []


def test_keep_versions_of_a_run_removes_older_ones_and_of_an_experiment_none(three: tuple[Path, list[str]]) -> None:
    root, (first, second, third) = three
    receipt = begin_run(plan_dataset(configured(root, 10, keep_versions=1)), latest_stays="an experiment")
    tried = open_build(receipt)
    for stage in GRAPH.names:
        for unit in tried.units(stage):
            tried.run(stage, unit)
    assert there(root) == {first, second, third, dataset_version(tried)}
    assert build(root, SEEDS[0], keep_versions=2) == first  # now the newest, and the experiment is the second
    assert there(root) == {first, dataset_version(tried)}
    assert (root / "outputs" / "tiny" / "latest").resolve().name == first


def test_keep_versions_that_cannot_be_told_apart_all_stay_and_the_run_delivers(
    three: tuple[Path, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    root, versions = three
    torn = root / "work" / "other" / "plan" / "other-0123456789abcdef" / "receipt.json"  # and no plan beside it
    torn.parent.mkdir(parents=True)
    torn.touch()
    with caplog.at_level(logging.WARNING):
        build(root, SEEDS[0], keep_versions=1)
    assert "old versions of tiny are kept" in caplog.text
    assert there(root) == set(versions)
    torn.unlink()
    build(root, SEEDS[0], keep_versions=1)
    assert there(root) == {versions[0]}


def test_keep_versions_is_how_many_gc_keeps_unless_it_is_told(three: tuple[Path, list[str]]) -> None:
    root, (first, second, _) = three
    with (root / "tiny.yaml").open("a") as file:
        file.write("keep_versions: 1\n")
    assert all(version in gc(root) for version in (first, second))
    assert gc(root, "--keep-versions", 3) == "no version can be removed\n"
