"""The whole configuration of a dataset, the constraints between its sections, and the places that it names."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from corpusmill.config.exports import DestinationConfig, ExportsConfig, ShuffleConfig
from corpusmill.config.schedule import NAME_PATTERN, ScheduleConfig
from corpusmill.config.sections import (
    ALIASES,
    FORGOTTEN,
    AuditConfig,
    CardConfig,
    DecisionsConfig,
    DecontaminationConfig,
    DedupConfig,
    EstimateConfig,
    ForgetConfig,
    FramingConfig,
    LockConfig,
    NearDuplicatesConfig,
    PackingConfig,
    SelectionConfig,
    SourceConfig,
    StepConfig,
    TokenizerConfig,
)
from corpusmill.config.values import Amount, Count, Location, Section
from corpusmill.errors import InvalidValueError
from corpusmill.storage.locations import without_file_scheme
from corpusmill.storage.mirrored import is_bucket, mirror_of, path_of

WHERE = "where "  # before a condition among the keys of a budget


class DatasetConfig(Section):
    """Everything about one dataset."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    source: SourceConfig
    dedup: DedupConfig
    steps: Annotated[list[StepConfig], Field(min_length=1)] | None = None
    decisions: Annotated[list[DecisionsConfig], Field(min_length=1)] | None = None
    forget: ForgetConfig | None = None
    decontamination: DecontaminationConfig | None = None
    near_duplicates: NearDuplicatesConfig | None = None
    tokenizer: TokenizerConfig
    budget: Annotated[dict[Location, Amount], Field(min_length=1)] | None = None
    shuffle: ShuffleConfig
    exports: ExportsConfig
    destinations: Annotated[list[DestinationConfig], Field(min_length=1)]
    keep_versions: Count | None = None
    reclaim: Literal["keep", "eager"] = "keep"
    audit: AuditConfig = AuditConfig()
    packing: PackingConfig = PackingConfig()
    framing: FramingConfig = FramingConfig()
    selection: SelectionConfig = SelectionConfig()
    estimate: EstimateConfig = EstimateConfig()
    card: CardConfig | None = None
    lock: LockConfig | None = None
    work_folder: str = "work"
    dag: Annotated[ScheduleConfig | None, Field(exclude=True)] = None  # never in a dump: it cannot change a byte

    @field_validator("work_folder")
    @classmethod
    def _work_folder_is_a_place(cls, work_folder: str) -> str:
        if not work_folder:
            raise InvalidValueError("config.work_folder_empty: work_folder is empty: name a folder, such as work")
        if is_bucket(work_folder):
            mirror_of(work_folder)
        elif "://" in work_folder:
            raise InvalidValueError(
                "config.work_folder_scheme: work_folder is a folder of this machine, or that all workers mount, or"
                " s3://bucket/prefix; gs:// and hf:// hold sources and destinations alone"
            )
        return work_folder

    @field_validator("tokenizer")
    @classmethod
    def _model_means_its_encoding(cls, tokenizer: TokenizerConfig) -> TokenizerConfig:
        """Unless a file has the vocabulary: then the name is a label."""
        known = ALIASES.get(tokenizer.name) if tokenizer.file is None else None
        return tokenizer.model_copy(update={"name": known}) if known else tokenizer

    @model_validator(mode="after")
    def _destinations_differ(self) -> DatasetConfig:
        places = [(_place(destination.path), destination.endpoint_url) for destination in self.destinations]
        twice = next((place for number, (place, _) in enumerate(places) if places[number] in places[:number]), None)
        if twice is not None:
            raise InvalidValueError(f"config.destination_twice: two destinations have the same path: {twice}")
        return self

    @model_validator(mode="after")
    def _step_names_are_unique(self) -> DatasetConfig:
        names = [*(decision.name for decision in self.decisions or ()), *(step.called for step in self.steps or ())]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise InvalidValueError(f"config.step_name_twice: two steps or decisions are called {twice}: rename one")
        if FORGOTTEN in names:
            raise InvalidValueError(
                f"config.step_name_reserved: the name {FORGOTTEN} is reserved for the list of `forget`: rename the"
                " step or decisions"
            )
        return self

    @model_validator(mode="after")
    def _late_steps_change_no_annotated_text(self) -> DatasetConfig:
        actions = {
            "dedup.mode": self.dedup.mode,
            "decontamination.action": self.decontamination and self.decontamination.action,
        }
        annotating = [key for key, action in actions.items() if action == "annotate"]
        if annotating and (steps := self.steps_before("writeback")):
            raise InvalidValueError(
                f"config.step_changes_annotated_text: {steps[0].called} is a step before: writeback, but the ranges"
                f" that {annotating[0]}: annotate records would not fit text that the step changed: put it before:"
                " index"
            )
        return self

    @model_validator(mode="after")
    def _annotations_have_a_place(self) -> DatasetConfig:
        dedup, text = self.dedup, self.source.text_field
        others = {"decontamination": self.decontamination, "near_duplicates": self.near_duplicates}
        added = {
            f"{name}.annotate_key": section.annotate_key
            for name, section in others.items()
            if section is not None and section.action == "annotate"
        }
        keys = {**({"dedup.annotate_key": dedup.annotate_key} if dedup.mode == "annotate" else {}), **added}
        for name, key in keys.items():
            overlap = f"{key}.".startswith(f"{text}.") or f"{text}.".startswith(f"{key}.")
            if overlap or not all(key.split(".")):
                raise InvalidValueError(
                    f"config.annotation_place: {name} {key} is no place for an annotation: it must be keys joined by"
                    f" dots, of which the first is not source.text_field, {self.source.text_field}"
                )
        if added and (dedup.mode == "none" or not dedup.writeback):
            section = next(iter(added)).partition(".")[0]
            raise InvalidValueError(
                f"config.annotation_without_documents: {section}.action: annotate writes into documents/: it"
                " needs dedup.mode remove or annotate, and dedup.writeback"
            )
        for (name, own), (other_name, other) in combinations(reversed(keys.items()), 2):
            if f"{own}.".startswith(f"{other}.") or f"{other}.".startswith(f"{own}."):
                raise InvalidValueError(
                    f"config.annotation_place_twice: {name} {own} and {other_name} {other} name one place"
                )
        return self

    @model_validator(mode="after")
    def _references_are_compared_with(self) -> DatasetConfig:
        if self.dedup.against and self.dedup.mode == "none" and not self.near_duplicates_of_references:
            raise InvalidValueError(
                "config.against_without_dedup: dedup.against needs dedup.mode remove or annotate, or near_duplicates"
                " within: dataset: nothing else is compared with references"
            )
        return self

    @property
    def near_duplicates_of_references(self) -> bool:
        """Whether documents are compared with those of `dedup.against`."""
        near = self.near_duplicates
        return near is not None and near.within == "dataset" and bool(self.dedup.against)

    def steps_before(self, place: str) -> list[StepConfig]:
        """The steps of a place, in order: `index` (text as it was read), or `writeback` (deduplicated text)."""
        return [step for step in self.steps or () if step.before == place]

    @property
    def drops_emptied(self) -> bool:
        """Whether documents that became empty must be dropped before tokenization: `dedup.drop_empty` where token
        formats keep documents without tokens. Elsewhere writeback drops them, and no record holds them.
        """
        keeps = self.framing.empty_documents != "skip" or self.packing.empty_documents == "keep"
        return self.dedup.drop_empty and keeps

    @property
    def wants_windows(self) -> bool:
        """Whether deduplication lists repeated windows, not only repeated bytes: to keep whole copies, or to tell which
        text is lost with a document that a step drops after deduplication.
        """
        removing = self.dedup.mode == "remove" and bool(self.steps_before("writeback"))
        return self.dedup.keep == "every_string" or removing

    def listed_decisions(self) -> list[DecisionsConfig]:
        """All lists of documents to keep or drop, by precedence: the list of `forget`, then `decisions` with a path."""
        listed = [decisions for decisions in self.decisions or () if decisions.path is not None]
        return [*([self.forget.decisions()] if self.forget else ()), *listed]

    def own_decisions(self) -> list[DecisionsConfig]:
        """The decisions by the documents' own fields, which come after those of lists."""
        return [decisions for decisions in self.decisions or () if decisions.path is None]

    def budget_conditions(self) -> dict[str, str]:
        """{condition: amount} of the documents of which the budget names a condition, `where lang = 'de'`; sorted,
        because a plan's record keeps no order of keys.
        """
        named = {key: amount for key, amount in sorted((self.budget or {}).items()) if key not in self.source.paths}
        return {key.removeprefix(WHERE): amount for key, amount in named.items() if key.startswith(WHERE)}

    def decides(self) -> bool:
        """Whether documents are dropped by lists, or by their own fields."""
        return bool(self.forget or self.decisions)

    @model_validator(mode="after")
    def _waits_for_others(self) -> DatasetConfig:
        if self.dag and self.name in self.dag.after:
            raise InvalidValueError(
                "config.after_itself: dag.after contains the dataset itself: each build of it would start the next"
            )
        return self

    @model_validator(mode="after")
    def _sample_is_uniform(self) -> DatasetConfig:
        if self.exports.sample_documents is not None and self.shuffle.order == "source":
            raise InvalidValueError(
                "config.sample_in_order: exports.sample_documents are the first documents, a uniform sample only in"
                " random order; leave it out, or set shuffle.order: random"
            )
        return self

    @model_validator(mode="after")
    def _budgets_are_of_sources(self) -> DatasetConfig:
        known = {*self.source.paths, *(WHERE + condition for condition in self.budget_conditions())}
        if unknown := [source for source in self.budget or () if source not in known]:
            raise InvalidValueError(
                f"config.budget_of_unknown_source: budget: {unknown[0]} is neither a condition, where lang = 'de', nor"
                f" an entry of source.paths: {', '.join(self.source.paths)}"
            )
        if self.budget and self.shuffle.order == "source":
            raise InvalidValueError(
                "config.budget_in_order: a budget draws documents, and repeats some: it needs shuffle.order: random"
            )
        return self

    @model_validator(mode="after")
    def _empty_documents_have_a_place(self) -> DatasetConfig:
        kept = self.framing.empty_documents
        if kept == "boundary" and set(self.exports.formats()) - {"webdataset", "megatron"}:
            raise InvalidValueError(
                "config.empty_documents_boundary: framing.empty_documents: only megatron can hold a document without"
                " tokens as a boundary"
            )
        if self.exports.parquet_contexts and self.packing.tail == "always_pad":
            raise InvalidValueError(
                "config.always_pad_of_rows: packing.tail: always_pad pads contexts, and rows of parquet_contexts are"
                " never padded; set tail: pad"
            )
        if self.exports.olmo and not self.framing.eod:
            raise InvalidValueError(
                "config.olmo_without_eod: framing.eod: readers of olmo find documents by the EOD at their ends"
            )
        if self.selection.leaves_out() and (kept != "skip" or self.packing.empty_documents == "keep"):
            raise InvalidValueError(
                "config.selection_with_empty_documents: selection leaves documents without tokens, so"
                " framing.empty_documents and packing.empty_documents must be skip"
            )
        return self


def root_folder() -> Path:
    """Where relative paths start: CORPUSMILL_ROOT, else the current folder."""
    return Path(os.environ.get("CORPUSMILL_ROOT") or Path.cwd()).resolve()


def absolute(path: str) -> str:
    """A path of the configuration made absolute; addresses such as s3:// are returned unchanged."""
    path = without_file_scheme(path)
    return path if "://" in path else str(root_folder() / Path(path).expanduser())


def absolute_here(path: str) -> str:
    """A path typed on a command line made absolute, from the current folder; addresses are returned unchanged."""
    path = without_file_scheme(path)
    return path if "://" in path else str(Path.cwd() / Path(path).expanduser())


def _place(path: str) -> str:
    """A destination in normal form: `/out/`, `/out/.` and `/x/../out` are `/out`."""
    return path.rstrip("/") if "://" in path else os.path.normpath(path)


def work_of(config: DatasetConfig) -> Path:
    """The folder of a dataset's steps, receipts and plans; for one in a bucket, its local mirror."""
    return path_of(absolute(config.work_folder)) / config.name
