"""Trying a planted fault: a process of its own has it, builds, and says how that ended."""

from __future__ import annotations

import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.engine.running import RunnableBuild
from corpusmill.inspect.verify.verification import verify_build
from corpusmill.storage import open_store
from tests.faults.fault import Fault
from tests.faults.mutation import mutate
from tests.faults.planted_builds import (
    account_or_error,
    dataset,
    delivered,
    edit_sources,
    make_small,
    write_sources,
)

LIMIT_SECONDS = 120.0
BUILD, VERIFY, GOLDEN, NOTHING = "build", "verify", "golden", "nothing"


@dataclass
class Tries:
    """Tries faults below `folder`; `endpoint` is that of an S3 server with an empty bucket `corpus`."""

    folder: Path
    endpoint: str = ""
    golden: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def caught_by(self, fault: Fault) -> tuple[str, str]:
        """(BUILD, VERIFY, GOLDEN or NOTHING, what in words)."""
        golden = self.right(fault.scenario, fault.edit)
        root = self._root(fault.scenario)
        ended = self._built(root, fault.scenario, fault.edit, fault)
        verdict = (BUILD, ended["error"]) if "error" in ended else _compared(root, ended, golden, fault)
        self._remove(root)
        return verdict

    def right(self, scenario: str, edit: str) -> dict[str, str]:
        """What a fresh build delivers after an edit. AssertionError if a second build delivers something else."""
        if (scenario, edit) not in self.golden:
            fresh, second = self._root(scenario), self._root(scenario)
            edit_sources(fresh, edit)
            self._mirror(fresh, scenario)
            right = forked(fresh, lambda: self._build_right(fresh, scenario, edit))
            again = self._built(second, scenario, edit, None)
            if "error" in right or again.get("files") != right["files"]:
                raise AssertionError(f"without a fault, {scenario} with {edit or 'no edit'}: {right} {again}"[:500])
            self.golden[scenario, edit] = right["files"]
            self._remove(fresh)
            self._remove(second)
        return self.golden[scenario, edit]

    def _built(self, root: Path, scenario: str, edit: str, fault: Fault | None) -> dict[str, Any]:
        """A build, and if there is an edit a second one in the same work folder."""

        def body() -> dict[str, Any]:
            _plant(fault, scenario)
            ended = self._build(root, scenario, "")
            if not edit:
                return ended
            edit_sources(root, edit)
            self._mirror(root, scenario)
            return self._build(root, scenario, edit)

        return forked(root, body)

    def _build_right(self, root: Path, scenario: str, edit: str) -> dict[str, Any]:
        make_small(grouped=scenario == "grouped")
        return self._build(root, scenario, edit)

    def _build(self, root: Path, scenario: str, edit: str) -> dict[str, Any]:
        with made_good() as accounts:
            plan = build_dataset(dataset(root, scenario, edit, self.endpoint), workers=1)
        return {"files": delivered(root), "plan": str(plan), "made_good": accounts}

    def _root(self, scenario: str) -> Path:
        number = sum(1 for _ in self.folder.iterdir())
        root = self.folder / f"{number}-{time.monotonic_ns()}"
        root.mkdir()
        write_sources(root, scenario)
        self._mirror(root, scenario)
        return root

    def _mirror(self, root: Path, scenario: str) -> None:
        """The sources in the bucket, where a scenario reads them from there."""
        if scenario.startswith("s3"):
            store = open_store(f"s3://corpus/{root.name}", endpoint_url=self.endpoint)
            for path in sorted((root / "corpus").rglob("*.*")):
                store.receive_bytes(path.read_bytes(), path.relative_to(root / "corpus").as_posix())

    def _remove(self, root: Path) -> None:
        shutil.rmtree(root)


def forked(root: Path, body: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `body` returns in a child process, or {"error": what ended it}."""
    answer = root / "answer.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _answer(answer, body)
    deadline = time.monotonic() + LIMIT_SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            return {"error": f"no end after {LIMIT_SECONDS:.0f} s"}
        time.sleep(0.02)
    return json.loads(answer.read_text()) if answer.exists() else {"error": "the process died"}


def _answer(path: Path, body: Callable[[], dict[str, Any]]) -> None:
    """Run `body` in this child process, which ends here whatever happens."""
    try:
        with (path.parent / "log").open("w") as log:
            os.dup2(log.fileno(), 2)
            try:
                printed = body()
            except BaseException as error:
                traceback.print_exc()
                printed = {"error": account_or_error(error)}
        path.write_text(json.dumps(printed))
    finally:
        os._exit(0)


@contextmanager
def made_good() -> Iterator[list[str]]:
    """The accounts that did not balance at first, in a build that goes on: the steps to blame ran again."""
    accounts: list[str] = []
    checked = RunnableBuild._run_and_check

    def noting(build: RunnableBuild, stage: str, unit: str, *, verify: bool) -> Any:
        path, checks = checked(build, stage, unit, verify=verify)
        if checks:
            accounts.append(f"account: {stage}, {'; '.join(dict.fromkeys(check.name for check in checks))}")
        return path, checks

    RunnableBuild._run_and_check = noting  # type: ignore[method-assign]
    try:
        yield accounts
    finally:
        RunnableBuild._run_and_check = checked  # type: ignore[method-assign]


def _plant(fault: Fault | None, scenario: str) -> None:
    if fault is not None:
        mutate(f"corpusmill.{fault.module}", fault.old, fault.new)
    make_small(grouped=scenario == "grouped")


def _compared(root: Path, ended: dict[str, Any], golden: dict[str, str], fault: Fault) -> tuple[str, str]:
    """The verdict on a build that ended well; `verify` has the fault, too, as it would have for anyone."""
    files = ended["files"]
    if ended["made_good"]:
        return BUILD, f"{'; '.join(ended['made_good'])}, {'made good' if files == golden else 'and wrong all the same'}"
    if files == golden:
        return NOTHING, "the right bytes are delivered all the same"
    seen = forked(root, lambda: _verified(ended["plan"], fault))
    if seen.get("findings", seen.get("error")):
        return VERIFY, str(seen.get("findings", seen.get("error")))
    wrong = sorted(name for name in files.keys() | golden.keys() if files.get(name) != golden.get(name))
    return GOLDEN, ", ".join(sorted({name.partition("/")[0] for name in wrong}))


def _verified(plan: str, fault: Fault) -> dict[str, Any]:
    _plant(fault, fault.scenario)
    findings = verify_build(open_build(plan)).findings
    return {"findings": "; ".join(dict.fromkeys(finding.what for finding in findings))}
