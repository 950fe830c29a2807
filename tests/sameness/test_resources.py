"""What a step is given beside its identity (memory, places, times, processes) changes none of its bytes.

Every resource is varied in a build from scratch. Its delivered files must be the same, and so must all files of every
step whose folder has the same name, because the name ends in the step's fingerprint.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.engine.ledger import RECEIPT_NAME
from tests.disks import enlarge, small_disk
from tests.quick import quick
from tests.raising import raises
from tests.sameness.digests import prepared
from tests.sameness.family import CHANGES_NO_BYTE
from tests.search.folders import delivered, rooted
from tests.search.settings import Settings, configuration, first_settings

Files = dict[str, bytes]

NOT_VARIED = {
    "name": "part of every file's name",
    "destinations": "exp_data.json holds the address",
    "source.endpoint_url": "tests/system/test_remote_builds.py builds from stores",
    "source.anonymous": "of stores alone: tests/system/test_every_kind.py",
    "source.requester_pays": "of stores alone: tests/system/test_every_kind.py",
    "source.stream": "of stores alone: tests/system/test_remote_builds.py",
    "tokenizer.name": "a label in dataset.json",
    "tokenizer.revision": "of a hub's tokenizer",
    "tokenizer.sha256": "only the right one is accepted",
    "lock": "only the right one is accepted",
    "work_folder": "every build here has its own",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "source.max_rejected_share": {"source": {"max_rejected_share": 0.9}},
    "audit.bytes_per_token_band": {"audit": {"bytes_per_token_band": 0.9}},
    "shuffle.significance": {"shuffle": {"significance": 0.2}},
    "estimate.sample_bytes": {"estimate": {"sample_bytes": 1000}},
    "keep_versions": {"keep_versions": 3},
    "reclaim": {"reclaim": "eager"},
    "dag": {"dag": {"schedule": "@daily", "start": "2026-01-01"}},
}
LIMITS: dict[str, dict[str, Any]] = {  # a byte may depend on these as far as the fingerprint names them
    "dedup.memory": {"dedup": {"memory": "64MiB"}},
    "tokenizer.batch_bytes": {"tokenizer": {"batch_bytes": 64}},
    "shuffle.memory": {"shuffle": {"memory": "4KiB"}},
}


@contextmanager
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def surroundings(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        for name, value in {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "TMPDIR": str(tmp_path)}.items():
            patch.setenv(name, value)
        yield


@contextmanager
def without_copies_in_the_kernel(_: Path) -> Iterator[None]:
    """As on a file system without reflinks, of a kernel that copies between no two files."""

    def refuses(*_arguments: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "copy_file_range", refuses)
        yield


PROCESSES: dict[str, tuple[int, Callable[[Path], AbstractContextManager[None]]]] = {
    "eight workers": (8, lambda _: nullcontext()),
    "no copies in the kernel": (1, without_copies_in_the_kernel),
    "umask": (1, lambda _: umask()),
    "time zone, language, folders": (1, surroundings),
}


def build(
    root: Path, settings: Settings, *, workers: int = 1, around: AbstractContextManager[None] | None = None
) -> tuple[Files, dict[str, Files]]:
    """(what is delivered, the files of each step by the name of its folder) of a build from scratch."""
    config = configuration(settings, root.parent, root.parent / settings["tokenizer"].pop("file"))
    root.mkdir()
    with rooted(root), around or nullcontext():
        plan_receipt = plan_dataset(config)
        run_build(plan_receipt, workers=workers, until="upload")
        done = open_build(plan_receipt)
        folders = [
            done.step_folder(stage, unit)
            for stage in done.graph.names
            if stage not in ("upload", "report")  # these look outside: at the destination, at times
            for unit in done.units(stage)
        ]
        return delivered(root, config.name).files, {
            f"{folder.parent.name}/{folder.name}": {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file() and path.name != RECEIPT_NAME  # a receipt says how long it took
            }
            for folder in folders
        }


def settings_with(changes: dict[str, Any]) -> Settings:
    settings = copy.deepcopy(first_settings("tiny"))
    settings["tokenizer"]["file"] = "tiny.tiktoken"
    settings["exports"]["webdataset"]["exp_data"] = False
    for key, value in changes.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return settings


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Files, dict[str, Files]]:
    folder = prepared(tmp_path_factory.mktemp("resources"))
    return folder, *build(folder / "usual", settings_with({}))


def require_same(usual: tuple[Path, Files, dict[str, Files]], actual: tuple[Files, dict[str, Files]]) -> None:
    _, files, steps = usual
    assert actual[0] == files
    same = steps.keys() & actual[1].keys()
    assert {name.partition("/")[0] for name in same} >= {"download", "index", "export", "writeback"}
    for name in same:
        kept = actual[1][name]  # with reclaim: eager less of it
        assert {path: content for path, content in steps[name].items() if path in kept} == kept, name


@pytest.mark.parametrize("name", quick([*SETTINGS, *LIMITS], 4))
def test_setting_j14_that_is_a_resource_changes_no_byte(usual, name: str) -> None:
    root = usual[0] / name
    require_same(usual, build(root, settings_with((SETTINGS | LIMITS)[name])))


@pytest.mark.parametrize("name", quick(PROCESSES, 1))
def test_process_that_is_another_changes_no_byte(usual, name: str, tmp_path: Path) -> None:
    workers, around = PROCESSES[name]
    require_same(usual, build(usual[0] / name, settings_with({}), workers=workers, around=around(tmp_path)))


def test_destination_that_was_full_holds_the_same_bytes_after_a_second_run(usual) -> None:
    settings, root = settings_with({}), usual[0] / "full"
    config = configuration(settings, root.parent, root.parent / settings["tokenizer"].pop("file"))
    root.mkdir()
    with rooted(root), small_disk(root / "outputs", mebibytes=1) as disk:
        plan_receipt = plan_dataset(config)
        (disk / "ballast").write_bytes(bytes((1 << 20) - (16 << 10)))
        with raises("destination.disk_full"):
            run_build(plan_receipt, workers=1, until="upload")
        assert not list(disk.rglob("dataset.json"))
        (disk / "ballast").unlink()
        enlarge(disk, mebibytes=200)
        run_build(plan_receipt, workers=8, until="upload")
        assert delivered(root, config.name).files == usual[1]


def test_every_setting_that_changes_no_byte_is_varied_or_says_why_not() -> None:
    assert {*SETTINGS, *NOT_VARIED} == {*CHANGES_NO_BYTE}
    assert not {*SETTINGS} & {*NOT_VARIED}
