"""What a stage's work is given, and what the type checker says of a read of anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from corpusmill.builds.graph import GRAPH
from corpusmill.engine.ledger import Outcome, Step
from corpusmill.engine.stage import Stage, StepName
from corpusmill.engine.work import EveryTime, Identity, Inputs, Resources, Work

ROOT = Path(__file__).resolve().parents[2]
STAGE = """
from pathlib import Path

from corpusmill.engine.build import Build
from corpusmill.engine.stage import StepName
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.engine.ledger import Outcome


class Settings(Identity, frozen=True, kw_only=True):
    least: int


def inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    return {"text": [("index", unit)]}


def identity(build: Build, unit: str) -> Settings:
    return Settings(least=build.config.dedup.window_bytes)


def run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    READ
    return Outcome(counts={"bytes": settings.least + inputs["text"].receipt.counts["bytes"]})


WORK = Work(Settings, identity, inputs, run)
"""


@pytest.mark.parametrize(
    ("read", "refused"),
    [
        ("pass", ""),
        ("settings.keep", '"Settings" has no attribute "keep"'),
        ("inputs.config.dedup.keep", '"Inputs" has no attribute "config"'),
        ("inputs.plan.shards", '"Inputs" has no attribute "plan"'),
        ("inputs['text'].config", '"Input" has no attribute "config"'),
        ("inputs.source.plan", '"Sources" has no attribute "plan"'),
        ("resources.seed", '"Resources" has no attribute "seed"'),
        ("settings.least = 3", "is read-only"),
    ],
)
def test_work_that_reads_more_than_it_is_given_does_not_type_check(read: str, refused: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(STAGE.replace("READ", read))
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), str(tmp_path / "planted.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == bool(refused), done.stdout + done.stderr
    assert refused in done.stdout


class Settings(Identity, frozen=True, kw_only=True):
    least: int
    keep: str | UnsetType = UNSET
    pairs: list[tuple[int, int | None]] | UnsetType = UNSET


def work(ran: list[Any]) -> Work[Settings]:
    def inputs(_build: Any, unit: str) -> dict[str, list[StepName]]:
        return {"text": [("index", unit)], "cuts": [], "answers": [("a", "1"), ("index", unit), ("a", "2")]}

    def run(inputs: Inputs, settings: Settings, _folder: Path, _resources: Resources) -> Outcome:
        ran.append((inputs, settings))
        return Outcome(counts={})

    return Work(Settings, lambda _build, _unit: Settings(least=7, pairs=[(1, None)]), inputs, run)


def test_settings_are_dumped_without_what_is_unset_and_come_back_equal(tmp_path: Path) -> None:
    ran: list[Any] = []
    own = work(ran)
    dumped = own.dumped(SimpleNamespace(), "00000")  # type: ignore[arg-type]
    assert dumped == {"least": 7, "pairs": [(1, None)]}
    config = SimpleNamespace(
        tokenizer=SimpleNamespace(path=lambda: None, engine="auto", batch_bytes=1),
        dedup=SimpleNamespace(memory=2),
        source=SimpleNamespace(paths=["a"]),
        steps=None,
    )
    build: Any = SimpleNamespace(config=config, home=lambda _: tmp_path, named=lambda _, of: [of])
    own.run_step(build, Step("own", 1, "00000", dumped, ()), tmp_path)
    ((inputs, settings),) = ran
    assert settings == Settings(least=7, pairs=[(1, None)])
    assert (inputs.unit, "text" in inputs, "cuts" in inputs) == ("00000", True, False)
    assert [(step.stage, step.unit) for step in inputs.every("answers")] == [("a", "1"), ("index", "00000"), ("a", "2")]
    assert inputs["text"].unit == "00000"


def test_inputs_of_several_names_are_one_input_each() -> None:
    assert work([]).inputs_in_order(SimpleNamespace(), "1") == [("index", "1"), ("a", "1"), ("a", "2")]  # type: ignore[arg-type]


def test_inputs_that_a_stage_does_not_name_cannot_be_opened() -> None:
    inputs = work([]).opened(SimpleNamespace(named=lambda _, of: [of]), "1")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        inputs.every("other")


def test_stage_that_looks_outside_gets_the_build_and_is_never_reused() -> None:
    outside = EveryTime(lambda _build, unit: [("index", unit)], lambda *_: {"place": "x"}, lambda *given: given)  # type: ignore[arg-type,return-value]
    stage = Stage("own", version=1, after=(), work=outside)
    build: Any = SimpleNamespace()
    assert not stage.reuse
    assert (stage.inputs(build, "1"), stage.settings(build, "1")) == ([("index", "1")], {"place": "x"})
    assert outside.run_step(build, Step("own", 1, "1", {}, ()), Path("f")) == (build, "1", Path("f"))
    assert [stage.name for stage in GRAPH if not stage.reuse] == ["upload", "report"]
