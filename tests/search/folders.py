"""A folder in which datasets are built again and again, and what a build there comes to."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.verify import render, verify_build
from tests.search.beside import STEPS, WORDS

SMALL = {  # so that sources of a few kilobytes meet every limit
    "corpusmill.engine.plan.SMALLEST_PART_BYTES": 200,
    "corpusmill.export.stages.layout.UNIT_BYTES": 2000,
}
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
LONGEST_BUILD_SECONDS = 60


@dataclass(frozen=True)
class Result:
    """What a build came to: the delivered files and their version, or the kind of error."""

    error: str = ""
    version: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    findings: str = ""

    def differences(self, other: Result) -> list[str]:
        """What differs, by name; no content."""
        names = sorted(self.files.keys() | other.files.keys())
        actual = [
            f"{key}: {mine!r} and {theirs!r}"
            for key in ("error", "version", "findings")
            if (mine := getattr(self, key)) != (theirs := getattr(other, key))
        ]
        return actual + [name for name in names if self.files.get(name) != other.files.get(name)]

    def missing_or_wrong(self) -> list[str]:
        """The names in SHA256SUMS whose files are not what it says."""
        sums = [line.split("  ", 1) for line in self.files["SHA256SUMS"].decode().splitlines()]
        return [name for sha256, name in sums if hashlib.sha256(self.files.get(name, b"")).hexdigest() != sha256]


@contextmanager
def small_limits() -> Iterator[None]:
    """The program with limits that sources of a few kilobytes meet."""
    with ExitStack() as stack:
        for name, value in SMALL.items():
            stack.enter_context(patch(name, value))
        yield


@contextmanager
def rooted(root: Path) -> Iterator[None]:
    """Relative paths of configurations start at `root`."""
    before = os.environ.get("CORPUSMILL_ROOT")
    os.environ["CORPUSMILL_ROOT"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CORPUSMILL_ROOT"]
        else:
            os.environ["CORPUSMILL_ROOT"] = before


def planned(root: Path, config: DatasetConfig) -> Build:
    """A build that has been planned below `root`, nothing more."""
    with rooted(root):
        return open_build(plan_dataset(config))


def built(root: Path, config: DatasetConfig, *, verify: bool = False) -> Result:
    """Build below `root` in this process, and verify what came out."""
    with rooted(root):
        try:
            build = open_build(build_dataset(config, workers=1, verify=verify))
        except CorpusmillError as error:
            return Result(error=type(error).__name__)
        actual = verify_build(build)
        return delivered(root, config.name, findings=render(actual) if actual.findings else "")


def built_from_scratch(root: Path, config: DatasetConfig) -> Result:
    """Build below a `root` that is made for it and removed, as a new process would; no report, nothing verified."""
    root.mkdir()
    _forget_vocabularies()
    held = _without_steps()
    try:
        with rooted(root):
            run_build(plan_dataset(config), workers=1, until="upload")
        return delivered(root, config.name)
    except CorpusmillError as error:
        return Result(error=type(error).__name__)
    finally:
        _forget_vocabularies()
        _without_steps()
        sys.modules.update(held)
        shutil.rmtree(root)


def delivered(root: Path, name: str, *, findings: str = "") -> Result:
    """What lies at the destination as the latest version."""
    link = root / "outputs" / name / "latest"
    if not link.exists():
        return Result(error="nothing delivered")
    folder = link.resolve()
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files["../latest.json"] = link.with_name("latest.json").read_bytes()
    return Result(version=folder.name, files=files, findings=findings)


def build_killed(root: Path, config: DatasetConfig, moment: int) -> bool:
    """Build in a child that is killed when it is about to change the disk for the `moment`-th time; whether it was."""
    child = os.fork()
    if not child:
        _build_until(root, config, moment)
    seconds_left = LONGEST_BUILD_SECONDS * 100
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        seconds_left -= 1
        if not seconds_left:  # a library's threads are not in a forked child: whoever waits for them waits for ever
            os.kill(child, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], 0.01)
    return os.WIFSIGNALED(ended[1])


def _build_until(root: Path, config: DatasetConfig, moment: int) -> None:
    """Never returns."""
    changes = count(1)

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and next(changes) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    gc.disable()  # no finalizer of the parent's objects may run here
    sys.addaudithook(seen)
    try:
        with rooted(root):
            build_dataset(config, workers=1)
    finally:
        os._exit(0)


def _without_steps() -> dict[str, ModuleType]:
    """Take the modules of edited steps out of memory; returns them."""
    return {name: sys.modules.pop(name) for name in (STEPS, WORDS) if name in sys.modules}


def _forget_vocabularies() -> None:
    """Empty every cache of the rooms that read one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("corpusmill.tokens", "corpusmill.upload")):
            for var in list(vars(module).values()):
                if callable(getattr(var, "cache_clear", None)):
                    var.cache_clear()
