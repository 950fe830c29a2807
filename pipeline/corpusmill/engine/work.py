"""What a step's work is given: its settings, its inputs by name, and resources. It reaches nothing else of a build.

A stage's settings are an Identity: their dump is their part of the step's fingerprint, and the work gets the value that
was dumped. What it reads beyond that, and changes its bytes, would be missing from the fingerprint, so that the step
would be reused after a change of it; here the type checker finds such a read, because the configuration and the plan
are not in the work's hands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import msgspec

from corpusmill.config import absolute
from corpusmill.engine.stage import MANY

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build
    from corpusmill.engine.ledger import Blocks, Outcome, Receipt, Step
    from corpusmill.engine.plan import SourceFile, SourcePart
    from corpusmill.engine.running import RunnableBuild
    from corpusmill.engine.stage import StepName
    from corpusmill.report.facts import Flow


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Base of a stage's settings: everything but its inputs that can change its bytes. Fields that are UNSET are left
    out of the fingerprint.
    """


@dataclass(frozen=True)
class Sources:
    """Files of the plan that a unit reads. Its settings, or the inputs that were made of them, identify them.

    `files`         in order
    `endpoint_url`  where their store answers
    `path`          as the configuration names them, for messages
    `place_of`      (file, lines before it) in the user's own files of one of `files`, for messages
    """

    files: Sequence[SourceFile]
    endpoint_url: str | None = None
    path: str = ""
    place_of: Callable[[str], tuple[str, int]] | None = None

    @cached_property
    def parts(self) -> dict[str, SourcePart | None]:
        """Of each of `files` by its name, which part of a file it is."""
        return {file.name: file.part for file in self.files}


@dataclass(frozen=True)
class Resources:
    """What a step's work may use that changes no byte.

    `vocabulary`    the path of the tokenizer's file, which the lock identifies by its content; None: found by its name
    `engine`        which library encodes: all give the same ids
    `batch_bytes`   text that is encoded at once
    `dedup_memory`  bytes that a task of propose or find_ranges may take
    `sources`       the entries of `source.paths`, for messages
    `seconds`       how long a batch may take in each of the user's steps, by name
    `steps_folder`  where all steps of the stage are, those of earlier builds too
    """

    vocabulary: str | None
    engine: str
    batch_bytes: int
    dedup_memory: int
    sources: tuple[str, ...]
    seconds: Mapping[str, int]
    steps_folder: Path

    @classmethod
    def of(cls, config: DatasetConfig, steps_folder: Path) -> Resources:
        """What a configuration says."""
        path = config.tokenizer.path()
        return cls(
            vocabulary=absolute(path) if path else None,
            engine=config.tokenizer.engine,
            batch_bytes=int(config.tokenizer.batch_bytes),
            dedup_memory=int(config.dedup.memory),
            sources=tuple(config.source.paths),
            seconds={step.called: step.seconds for step in config.steps or ()},
            steps_folder=steps_folder,
        )


class Input:
    """A finished step that another one reads."""

    def __init__(self, build: Build, step: StepName) -> None:
        self.stage, self.unit = step
        self._build = build

    @property
    def receipt(self) -> Receipt:
        """Its receipt."""
        return self._build.receipt(self.stage, self.unit)

    @property
    def blocks(self) -> Blocks:
        """See Build.blocks."""
        return self._build.blocks(self.stage, self.unit)

    def folder(self, *names: str) -> Path:
        """See Build.folder."""
        return self._build.folder(self.stage, self.unit, *names)

    def opened(self, *names: str) -> AbstractContextManager[Path]:
        """See Build.opened."""
        return self._build.opened(self.stage, self.unit, *names)


class Inputs:
    """The steps that one reads, by the names that its stage gives them, and the source files; `unit` is its own."""

    def __init__(
        self, build: Build, unit: str, named: Mapping[str, list[StepName]], sources: Sequence[Sources] = ()
    ) -> None:
        self.unit = unit
        self.sources = sources
        self._build, self._named = build, named

    @property
    def source(self) -> Sources:
        """The only sources."""
        (source,) = self.sources
        return source

    def __contains__(self, name: str) -> bool:
        return bool(self._named.get(name))

    def __getitem__(self, name: str) -> Input:
        """The only input of a name."""
        (step,) = self.every(name)
        return step

    def every(self, name: str) -> list[Input]:
        """All inputs of a name, in order."""
        steps = [(stage, of) for stage, unit in self._named[name] for of in self._build.named(stage, unit)]
        return [Input(self._build, step) for step in steps]

    def total(self, name: str, count: str) -> int:
        """One count summed over the inputs of a name, which are all steps of their stages."""
        return sum(self._build.total(stage, count) for stage, _ in self._named[name])

    def flows(self) -> dict[str, dict[str, Flow]]:
        """By stage, in order, what comes in, goes out and is lost: of the stages all of whose steps are inputs."""
        whole = {stage for steps in self._named.values() for stage, unit in steps if unit == MANY}
        of_each = {stage.name: stage.shown.flows(self._build) for stage in self._build.graph if stage.name in whole}
        return {stage: flows for stage, flows in of_each.items() if flows}


S = TypeVar("S", bound=Identity)


@dataclass(frozen=True)
class Work(Generic[S]):
    """What a stage does.

    `settings`  the class of its settings
    `identity`  the settings of one of its units
    `inputs`    the steps that a unit reads, by names of the stage's own
    `run`       the work: it writes files into the folder
    `sources`   the files of the plan that a unit reads
    """

    settings: type[S]
    identity: Callable[[Build, str], S]
    inputs: Callable[[Build, str], dict[str, list[StepName]]]
    run: Callable[[Inputs, S, Path, Resources], Outcome]
    sources: Callable[[Build, str], list[Sources]] = lambda _build, _unit: []
    reused: ClassVar[bool] = True

    def inputs_in_order(self, build: Build, unit: str) -> list[StepName]:
        """All inputs of a unit, each once."""
        return list(dict.fromkeys(step for steps in self.inputs(build, unit).values() for step in steps))

    def dumped(self, build: Build, unit: str) -> dict[str, object]:
        """The settings of a unit, as its fingerprint has them."""
        plain: dict[str, object] = msgspec.to_builtins(self.identity(build, unit))
        return plain

    def opened(self, build: Build, unit: str) -> Inputs:
        """The inputs of a unit."""
        return Inputs(build, unit, self.inputs(build, unit), self.sources(build, unit))

    def run_step(self, build: Build, step: Step, folder: Path) -> Outcome:
        """Do the work of a step."""
        settings = msgspec.convert(step.settings, self.settings)
        resources = Resources.of(build.config, build.home(step.stage) / step.stage)
        return self.run(self.opened(build, step.unit), settings, folder, resources)


@dataclass(frozen=True)
class EveryTime:
    """What a stage does that looks at the world outside the work folder, or at a whole build: it runs every time.

    No fingerprint decides whether it runs, so nothing can be missing from one: it gets the build.

    `inputs_in_order`, `dumped`    the steps and the settings that its folder is named after
    """

    inputs_in_order: Callable[[Build, str], list[StepName]]
    dumped: Callable[[Build, str], dict[str, object]]
    run: Callable[[RunnableBuild, str, Path], Outcome]
    reused: ClassVar[bool] = False

    def run_step(self, build: RunnableBuild, step: Step, folder: Path) -> Outcome:
        """Do the work of a step."""
        return self.run(build, step.unit, folder)
