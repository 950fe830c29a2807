"""Maps a Megatron run's samples to spans of our parts' documents; refuses a cache of other files."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.errors import PermanentError, SourceError
from corpusmill.export.megatron import MegatronPart, open_part
from corpusmill.export.stages.layout import OutputPlan, output_plans
from corpusmill.inspect.datasets.dataset import dataset_above
from corpusmill.inspect.lineage.records import export_folder
from corpusmill.lazy import lazily
from corpusmill.training.megatron_cache import CachedRun, Draws, cached_runs
from corpusmill.training.sample import Drawn, RecordSpan
from corpusmill.upload.stages.manifest import dataset_files, dataset_version

with lazily:
    from corpusmill.training.mixture import sources


if TYPE_CHECKING:
    from corpusmill.engine.build import Build

EXPORT = "megatron"
_VERSION = re.compile(r"[0-9a-f]{12}")


class MegatronSamples:
    """The training samples of one run in a cache, by their numbers from 0.

    The run is the only one on this dataset with the given seed, tokens per sample and split. PermanentError, with the
    runs in the cache, for none or several such runs.
    """

    export = EXPORT

    def __init__(
        self,
        build: Build,
        folder: Path,
        *,
        seed: int | None = None,
        sequence_tokens: int | None = None,
        split: str | None = None,
    ) -> None:
        self.build = build
        self._outputs = {plan.name: plan for plan in output_plans(build, EXPORT)}
        self._parts: dict[tuple[str, object], MegatronPart] = {}
        self._beside: dict[Path, dict[str, str] | None] = {}
        self._run = self._only(folder, seed, sequence_tokens, split)

    def __len__(self) -> int:
        return len(self._run)

    @property
    def title(self) -> str:
        return self._run.title

    def sample(self, number: int) -> Drawn:
        """The spans of a sample. CorruptDataError for a cache that does not fit the dataset's files."""
        draws, drawn = self._run.sample(number)
        if self._why_strange(draws):
            return Drawn(draws.prefix, None)
        output = self._outputs[_name(draws)]
        part = self._part(draws, output)
        spans = []
        for sequence, first, last in draws.spans(drawn, part.lengths):
            # A document that EOD does not follow may have no sequence: it shares its boundary with the next one.
            record = int(np.searchsorted(part.boundaries, sequence, side="right")) - 1
            spans.append(RecordSpan(record, first, last))
        return Drawn(draws.prefix, output, tuple(spans))

    def _part(self, draws: Draws, output: OutputPlan) -> MegatronPart:
        key = draws.prefix, draws.description.get("num_samples")  # a blend may draw from a prefix twice
        if key not in self._parts:
            part = open_part(export_folder(self.build, EXPORT, output, ".idx") / output.name, data=False)
            draws.require_totals(part.lengths)
            self._parts[key] = part
        return self._parts[key]

    def _only(self, folder: Path, seed: int | None, sequence_tokens: int | None, split: str | None) -> CachedRun:
        runs = cached_runs(folder)
        fit = [run for run in runs if _fits(run.parts[0], seed, sequence_tokens, split)]
        ours = [run for run in fit if not all(map(self._why_strange, run.parts))]
        if len(ours) == 1:
            return ours[0]
        reasons = {self._why_strange(draws) for run in fit for draws in run.parts} - {""}
        raise PermanentError(
            "index_cache.several_runs: the cache holds several runs on this dataset"
            if ours
            else "index_cache.no_run: the cache holds no run on this dataset",
            where=folder,
            expected=f"one run on version {dataset_version(self.build)} of {self.build.config.name}"
            + ("" if seed is None else f", seed {seed}")
            + ("" if sequence_tokens is None else f", {sequence_tokens:,} tokens a sample")
            + ("" if split is None else f", split {split}"),
            got="\n".join([*sorted(reasons), *(run.title for run in ours or runs)]),
            next_step="choose one by the run's seed, sequence tokens or split, or remove the caches of other runs"
            if ours
            else "give the configuration that built what the run was trained on",
        )

    def _why_strange(self, draws: Draws) -> str:
        """Why a prefix is not one of this dataset's parts; "" if it is one, judging by its name."""
        name, path = _name(draws), Path(draws.prefix)
        if name not in self._outputs:
            return f"{draws.prefix} does not have the name of a part of this dataset"
        there = self._digests_beside(path.parent)
        if there is None:  # not on this machine: its folder's name may still state a version
            version, ours = path.parent.parent.name, dataset_version(self.build)
            return f"{path} is of version {version}" if _VERSION.fullmatch(version) and version != ours else ""
        same = all(there.get(file) == self._digests[file] for file in (f"{EXPORT}/{name}.bin", f"{EXPORT}/{name}.idx"))
        return "" if same else f"{path} differs from this dataset's part of that name"

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {name: sha256 for name, _, sha256, _ in dataset_files(self.build)}

    def _digests_beside(self, folder: Path) -> dict[str, str] | None:
        """The sha256 of every part of the finished dataset around a folder; None if there is no such dataset."""
        if folder not in self._beside:
            try:
                files = dataset_above(folder / "part").files(EXPORT)
                self._beside[folder] = {file["name"]: file["sha256"] for file in files}
            except SourceError:
                self._beside[folder] = None
        return self._beside[folder]


def _fits(draws: Draws, seed: int | None, sequence_tokens: int | None, split: str | None) -> bool:
    if seed not in (None, draws.seed) or sequence_tokens not in (None, draws.sequence_tokens):
        return False
    if split is None or not draws.split:
        return split is None
    return sources.parse_split(split) == sources.parse_split(draws.split)


def _name(draws: Draws) -> str:
    return draws.prefix.rpartition("/")[2]
