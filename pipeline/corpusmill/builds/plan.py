"""Plan: list the sources of a configuration, group them into shards, and record both."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from corpusmill.builds.graph import GRAPH
from corpusmill.builds.overlap import require_no_overlap, require_none_written, written_places
from corpusmill.builds.preflight import (
    Problems,
    needed_room,
    ready_tokenizer,
    require_room,
    require_writable,
    warn_of_splits,
)
from corpusmill.builds.room import require_memory
from corpusmill.config import DatasetConfig, absolute, work_of
from corpusmill.decontamination.stages.benchmarks import benchmark_of
from corpusmill.dedup.stages.annotating import require_places
from corpusmill.engine.ledger import RECEIPT_NAME, Outcome, Step, run_once
from corpusmill.engine.plan import Plan, SourceFile, plain, plan_files, plan_of, tokenizer_versions
from corpusmill.engine.runs import DELIVERED, delivered_plans
from corpusmill.engine.stage import PLAN, PLAN_VERSION
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import ConfigError, PermanentError
from corpusmill.lazy import lazily
from corpusmill.near_duplicates.stages.near_duplicates import STANDS_FOR
from corpusmill.report.figures import counted
from corpusmill.steps.loading import identity_of
from corpusmill.storage import StoredFile, list_sources, safe_relative_name
from corpusmill.storage.listing import Listing, list_all
from corpusmill.storage.mirrored import path_of
from corpusmill.tokens.stages.tokenize import locked, vocabulary_file
from corpusmill.version import __version__

with lazily:
    from corpusmill.builds import references
    from corpusmill.documents import compression, conditions
    from corpusmill.sources import survey as sources_survey
    from corpusmill.sources.survey import Survey
    from corpusmill.steps import chain
    from corpusmill.steps import decisions as steps_decisions
    from corpusmill.tokens import special


if TYPE_CHECKING:
    from corpusmill.documents.conditions import Condition
    from corpusmill.tokens.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def plan_dataset(config: DatasetConfig, *, to_build: bool = False) -> Path:
    """List the sources, group them, write the plan; returns the path of the plan's receipt.

    The plan is an observation: every build makes it again, and equal observations produce the same folder. With
    `to_build`, one error names every reason why the build could not finish (preflight.py).
    """
    if to_build:
        config, plan = _ready(config)
    else:
        config = locked(config)
        _, plan = plan_sources(config)
    if plan.others:
        log.warning("%s", plan.others)
    return write_plan(config, plan)


def write_plan(config: DatasetConfig, plan: Plan) -> Path:
    """Write the plan of a configuration with its lock; returns the path of the plan's receipt."""

    def write(folder: Path) -> Outcome:
        (folder / "config.json").write_text(config.model_dump_json(indent=1, exclude_none=True) + "\n")
        (folder / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
        for file in plan.uncut or ():
            log.warning("%s (%s bytes): %s; %s", file.name, f"{file.size_bytes:,}", file.why, file.remedy)
        entries = sum(len(shard) for shard in plan.shards)
        return Outcome(counts={"files": entries, "shards": len(plan.shards), "source_bytes": plan.source_bytes()})

    return run_once(_step(config, plan), work_of(config), write, verify=True, versions=tokenizer_versions(config))


def require_same_code(plan_receipt: Path) -> None:
    """PermanentError for a plan of other code: its steps have other identities, so the run would mix two versions."""
    planned, running = plan_of(plan_receipt).settings.code, _code()
    if planned != running:
        changed = sorted(name for name in planned.keys() | running.keys() if planned.get(name) != running.get(name))
        raise PermanentError(
            "run.code_replaced: the code was replaced while the run was under way",
            where=plan_receipt,
            expected="the versions that planned it",
            got=f"other versions of {', '.join(changed)}",
            next_step="clear the run from its first task on, or start a new one: finished steps are reused",
        )


def _code() -> dict[str, str]:
    """The versions of this program and of its stages."""
    return {"corpusmill": __version__, **{stage.name: str(stage.version) for stage in GRAPH}}


def _step(config: DatasetConfig, plan: Plan) -> Step:
    settings = {
        "code": _code(),
        "config": config.model_dump(mode="json", exclude_none=True),
        "plan": plain(plan),
    }
    return Step(PLAN, PLAN_VERSION, config.name, settings, inputs=())


def _ready(config: DatasetConfig) -> tuple[DatasetConfig, Plan]:
    """(the configuration with its lock, the plan) of a build that can begin; else one error with all reasons."""
    problems, plan, files = Problems(), Plan(shards=[]), list[StoredFile]()
    with problems.kept():
        require_memory(config, where=config.name)
    with problems.kept():
        listing, plan = plan_sources(config)
        files = listing.files
    work, delivered = work_of(config), False  # a delivered plan writes nothing new
    with problems.kept():
        config = locked(config)
        delivered = refresh(_step(config, plan).folder(work) / DELIVERED)
        if not delivered:
            ready_tokenizer(config)
    for destination in config.destinations:
        with problems.kept():
            require_writable(config, destination)
    if not delivered:
        with problems.kept():
            survey = sources_survey.survey_sources(
                files,
                config.source.endpoint,
                fields=_fields(config),
                asked=plan.fields or (),
                most_files=sources_survey.MOST_MEASURED,
                visit=partial(require_places, config),
            )
            # A build may begin without ids, and one that may reject every line without texts; `config check` says it.
            if config.source.max_rejected_share < 1:
                sources_survey.require_text_field(survey, config.source.text_field)
            sources_survey.require_asked_fields(survey, plan.fields or ())
        with problems.kept():
            needed, stated_by = needed_room(config, plan, work)
            require_room(config, work, needed[config.reclaim], stated_by=stated_by)
            warn_of_splits(config, plan, work)
    problems.raise_all()
    return config, plan


def _fields(config: DatasetConfig) -> tuple[str, str]:
    return config.source.text_field, config.source.id_field


def require_fields(config: DatasetConfig, survey: Survey) -> None:
    """SourceError if no surveyed line has the text field, or an id field that is set or by which a list names ids."""
    id_field = config.source.id_field
    sources_survey.require_text_field(survey, config.source.text_field)
    if id_field != sources_survey.USUAL_ID or any(
        isinstance(decisions.key, str) for decisions in config.listed_decisions()
    ):
        sources_survey.require_id_field(survey, id_field)


def check_dataset(config: DatasetConfig) -> str:
    """Check what the configuration refers to (tokenizer, sources); returns a summary for people."""
    config = locked(config)
    tokenizer = ready_tokenizer(config)
    listing, plan = plan_sources(config)
    files = listing.files
    survey = sources_survey.survey_sources(
        files,
        config.source.endpoint,
        fields=_fields(config),
        asked=plan.fields or (),
        visit=partial(require_places, config),
    )
    require_fields(config, survey)
    sources_survey.require_asked_fields(survey, plan.fields or ())
    warn_of_splits(config, plan, work_of(config))
    id_field = config.source.id_field
    others = f"\n{plan.others}" if plan.others else ""
    uncut = "".join(f"\n{file.name}: {file.why}; {file.remedy}" for file in plan.uncut or ())
    return (
        f"{config.name}: {counted(len(files), 'source file')}, {sum(file.size_bytes for file in files):,} bytes,"
        f" {counted(len(plan.shards), 'shard')};"
        f" {survey.lines_with_id(id_field):,} of {counted(survey.lines(), 'line')} read have {id_field};"
        f" tokenizer {tokenizer.name} ({tokenizer.vocabulary_size:,} ids, sha256 {tokenizer.sha256[:12]}...),"
        f" {engine_text(tokenizer)}, texts end with id {tokenizer.eot_id}"
        f"{_missing_embeddings(config, tokenizer)}{uncut}{others}"
    )


def engine_text(tokenizer: Tokenizer) -> str:
    """Which engine encodes, and why it is not a faster one."""
    reason = f" ({tokenizer.why_slow})" if tokenizer.why_slow else ""
    return f"engine {tokenizer.engine}{reason}"


def _missing_embeddings(config: DatasetConfig, tokenizer: Tokenizer) -> str:
    rows = special.embedding_rows(vocabulary_file(config), config.tokenizer.name)
    if rows is None or rows >= tokenizer.vocabulary_size:
        return ""
    return (
        f"\nids go up to {tokenizer.vocabulary_size - 1:,}, but the config.json beside the tokenizer has {rows:,}"
        " embeddings: enlarge the model's, or name tokens below that number as tokenizer.eot, bos and pad"
    )


def plan_sources(config: DatasetConfig) -> tuple[Listing, Plan]:
    """The source files of a configuration, and all that its plan says of them and of files beside them."""
    listing = list_dataset(config)
    plan = plan_files(listing.files, config.source.shard_bytes, config.source.endpoint)
    asked = _asked_fields(config)
    plan = replace(
        plan,
        others=listing.others,
        benchmarks=_benchmarks(config),
        steps=_steps(config),
        decisions=_decisions(config),
        paths=_paths(plan, listing) if config.budget or config.near_duplicates else None,
        references=references.plan_references(config, listing.files),
        fields=sorted(asked - {STANDS_FOR}) or None,
        stands_for=STANDS_FOR in asked,
    )
    return listing, plan


def _paths(plan: Plan, listing: Listing) -> list[list[int]]:
    """For each file of each shard, the number of its entry in `source.paths`."""
    return [[listing.path_of[file.location] for file in shard] for shard in plan.shards]


def _benchmarks(config: DatasetConfig) -> list[list[SourceFile]] | None:
    if config.decontamination is None:
        return None
    benchmarks = map(benchmark_of, config.decontamination.benchmarks)
    return [[SourceFile.of(file) for file in benchmark.files()] for benchmark in benchmarks]


def _steps(config: DatasetConfig) -> list[dict[str, str]] | None:
    """The identity of each step's code. Steps are imported here, so an unusable step is an error of the plan."""
    if not config.steps:
        return None
    identities = [identity_of(step) for step in config.steps]
    chain.Chain(config.steps, identities)
    return identities


def _asked_fields(config: DatasetConfig) -> set[str]:
    """The fields of documents that steps, decisions by fields and the budget ask for. ConfigError for a condition that
    cannot be read, or that asks for the count of near-duplicates where there is none.
    """
    early = {f"steps: {step.called}: fields": {*(step.fields or ())} for step in config.steps_before("index")}
    for decisions in config.own_decisions():
        where = f"decisions: {decisions.name}: keep"
        early[where] = {*_condition(where, decisions.keep).kinds}
    late = {f"steps: {step.called}: fields": {*(step.fields or ())} for step in config.steps_before("writeback")}
    for condition in config.budget_conditions():
        where = f"budget: where {condition}"
        late[where] = {*_condition(where, condition).kinds}
    near = config.near_duplicates
    for where, names in {**early, **late}.items():
        if STANDS_FOR in names and (near is None or near.action != "remove"):
            raise ConfigError(
                "near_duplicates.not_counted: near-duplicates are counted only where they are removed",
                where=where,
                expected="near_duplicates.action: remove",
                got="no near_duplicates" if near is None else near.action,
                next_step=f"set near_duplicates.action: remove, or ask for another field than {STANDS_FOR}",
            )
        if STANDS_FOR in names and where in early:
            raise ConfigError(
                "near_duplicates.not_counted_yet: decisions and steps before: index choose what is compared, so the"
                " count would depend on itself",
                where=where,
                expected=f"{STANDS_FOR} in a condition of budget, or in the fields of a step before: writeback",
                next_step="leave documents out by it once it is counted, in a step of your own: {use: module:function,"
                f" fields: [{STANDS_FOR}], before: writeback}}; or show them more often by budget",
            )
    return set().union(*early.values(), *late.values())


def _condition(where: str, text: str) -> Condition:
    try:
        return conditions.read_condition(text)
    except ValueError as error:
        raise ConfigError(
            "condition.not_parsed: a condition cannot be parsed",
            where=where,
            expected="such as: score >= 0.5 and language in ('en', 'de') (docs/steps.md)",
            got=str(error),
        ) from None


def _decisions(config: DatasetConfig) -> list[list[SourceFile]] | None:
    """The files of decisions made elsewhere. ConfigError for a condition that cannot be read."""
    wanted = config.listed_decisions()
    if not wanted:
        return None  # and no library is loaded that has threads, so that workers can be forked
    for decision in wanted:
        _condition(f"decisions: {decision.name}: keep", decision.keep)
    listed = [
        list_sources([absolute(decision.path or "")], steps_decisions.DECISION_ENDINGS, decision.endpoint)
        for decision in wanted
    ]
    return [[SourceFile.of(file) for file in files] for files in listed]


def list_dataset(config: DatasetConfig) -> Listing:
    """The source files of a configuration; ConfigError if the build would read what it writes."""
    paths = [absolute(path) for path in config.source.paths]
    places = written_places(config)
    require_no_overlap(paths, places)
    listing = list_all(
        paths, compression.SOURCE_ENDINGS, config.source.endpoint, named=tuple(compression.NAMED_ENDINGS)
    )
    require_none_written(listing.files, places)
    return listing


def find_plan(work_folder: str, dataset: str, plan: str = "") -> Path:
    """The receipt of the plan in the folder `plan`, or of the plan that `latest` follows.

    Dry, failed and refused runs have delivered nothing, so their plans are found by name only.
    ConfigError if there is none.
    """
    work = path_of(absolute(work_folder)) / safe_relative_name(dataset, where=work_folder)
    if plan:
        receipt = work / "plan" / safe_relative_name(plan, where=str(work)) / RECEIPT_NAME
        if not refresh(receipt):
            raise ConfigError(
                "plan.not_of_dataset: the dataset no longer has this plan",
                where=receipt.parent,
                next_step="leave the plan empty for the last one that delivered, or build the dataset again",
            )
        return receipt
    delivered = delivered_plans(work)
    if not delivered:
        raise ConfigError(
            "plan.never_finished: no build of this dataset has finished here",
            where=work,
            next_step="check the dataset's name and its work folder, or build it first",
        )
    return delivered[0]
