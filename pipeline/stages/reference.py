"""Reference: the text of a shard of a reference of `dedup.against`; it is not delivered.

A reference's shards come before those of the dataset, so their text counts as earlier. A step's identity names no
dataset: all datasets of a work folder with the same reference share its text (Stage.common).

In: the files that the plan lists, read in place. Out: a text shard (documents/__init__.py). A unit is called
`<key of the reference>.<number>`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import ReferenceConfig, SourceConfig
from corpusmill.engine.stage import Recount, Stage, StepName, whole
from corpusmill.errors import PermanentError
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.sources.copies import PARQUET, count_traffic, read_source, streamed_copy
from corpusmill.sources.plan import plain
from corpusmill.stages.index import EXAMPLES, text_stage
from corpusmill.stages.parts import FilePlace, lines_by_source
from corpusmill.storage import is_local, open_location, require_identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.engine.build import Build
    from corpusmill.sources.copies import SourceCopy
    from corpusmill.sources.plan import Reference, SourceFile
    from corpusmill.storage import Traffic

_MARK = "."  # between a reference's key and a shard's number


def is_reference(unit: str) -> bool:
    """Whether a unit is a shard of a reference; those of the dataset are numbers."""
    return _MARK in unit


def units_of(reference: Reference) -> list[str]:
    """The shards of a reference."""
    return [f"{reference.key}{_MARK}{number:05d}" for number in range(len(reference.shards))]


def all_shards(build: Build) -> list[str]:
    """The shards that are searched for repeats, in order: those of references, then the dataset's."""
    return [*build.units("reference"), *build.units("index")]


def place_of(build: Build, shard: str) -> int:
    """The position of a shard in `all_shards`."""
    if not is_reference(shard):
        return len(build.units("reference")) + int(shard)
    before = 0
    for reference in build.plan.references or ():
        if shard.startswith(f"{reference.key}{_MARK}"):
            break
        before += len(reference.shards)
    return before + int(shard.partition(_MARK)[2])


def numbers(build: Build) -> list[int]:
    """For all shards the number of their reference, for the dataset's the number of references; [] without any."""
    references = build.plan.references or []
    own = [len(references)] * len(build.units("index"))
    of_references = [number for number, reference in enumerate(references) for _ in reference.shards]
    return [*of_references, *own] if references else []


def text_step(build: Build, shard: str) -> StepName:
    """The step that holds the text of one of all shards."""
    return ("reference", shard) if is_reference(shard) else (text_stage(build, shard), shard)


def index_step(build: Build, shard: str) -> StepName:
    """The step that holds the anchors, or the suffix array, of one of all shards."""
    return ("reference_index" if is_reference(shard) else _own_index(build), shard)


def _own_index(build: Build) -> str:
    return "suffix_array" if build.config.index.method == "suffix_array" else "anchor"


def every_index(build: Build) -> list[StepName]:
    """The steps that hold the anchors, or the suffix arrays, of all shards."""
    return [index_step(build, shard) for shard in all_shards(build)]


def whole_index(build: Build) -> list[StepName]:
    """The same as inputs."""
    return whole(build, "reference_index", _own_index(build))


def every_answer(build: Build, stage: str) -> list[StepName]:
    """The steps in which all shards answer: those of `context` or `border`, and of references."""
    return [(f"reference_{stage}" if is_reference(shard) else stage, shard) for shard in all_shards(build)]


def whole_answer(build: Build, stage: str) -> list[StepName]:
    """The same as inputs."""
    return whole(build, f"reference_{stage}", stage)


def of_unit(build: Build, unit: str) -> tuple[ReferenceConfig, Reference, list[SourceFile]]:
    """A shard's reference, as configured and as planned, and the shard's files."""
    key, _, number = unit.partition(_MARK)
    configured = zip(build.config.dedup.against or (), build.plan.references or (), strict=True)
    for wanted, planned in configured:
        if planned.key == key:
            return wanted, planned, planned.shards[int(number)]
    keys = [reference.key for reference in build.plan.references or ()]
    raise PermanentError(
        "a shard of a reference that the plan does not name", expected=", ".join(keys) or "no reference", got=unit
    )


def file_of_reference(build: Build, unit: str, source: str) -> FilePlace:
    """(name of the file, lines before the part) of a source of a reference's shard, which may be a part of a file."""
    _, reference, files = of_unit(build, unit)
    part = next(file.part for file in files if file.name == source)
    if part is None:
        return source, 0
    before = 0
    for other, held in zip(units_of(reference), reference.shards, strict=True):
        earlier = [
            file.name for file in held if file.part and file.part.of == part.of and file.part.number < part.number
        ]
        if earlier:
            lines = lines_by_source(build, "reference", other)
            before += sum(lines[name] for name in earlier)
    return part.of, before


def source_of(source: SourceConfig, reference: ReferenceConfig) -> SourceConfig:
    """How the files of a reference are read."""
    return source.model_copy(update={"text_field": reference.text_field or source.text_field})


def _units(build: Build) -> list[str]:
    return [unit for reference in build.plan.references or () for unit in units_of(reference)]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    wanted, _, files = of_unit(build, unit)
    source = source_of(build.config.source, wanted)
    tables = any(file.name.endswith(PARQUET) for file in files)
    return {
        "files": [plain(file) for file in files],
        "text_field": source.text_field,
        "id_field": source.id_field,
        "libraries": versions_of("orjson", "msgspec", *(["pyarrow"] if tables else [])),
    }


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.documents.text_shard import TextShardWriter
    from corpusmill.storage import Traffic

    wanted, _, files = of_unit(build, unit)
    source = source_of(build.config.source, wanted)
    counts: Counter[str] = Counter(files=0, lines=0, documents_out=0, text_bytes_out=0, bytes_read=0)
    examples: list[dict[str, Any]] = []
    traffic = Traffic()
    with TextShardWriter(folder) as writer:
        for copy in _copies(files, wanted.endpoint_url, traffic):
            writer.start_source(copy.name)
            counts["files"] += 1
            for batch in read_source(copy, source):
                writer.append(batch)
                counts["lines"] += batch.lines
                counts["bytes_read"] += batch.line_bytes
                for rejection in batch.rejections:
                    counts[f"rejected_{rejection.reason.value}"] += 1
                    if len(examples) < EXAMPLES:
                        line, reason = rejection.line_number + 1, rejection.reason.value
                        examples.append({"source": copy.name, "line": line, "reason": reason})
    counts["documents_out"], counts["text_bytes_out"] = writer.documents, writer.text_bytes
    return Outcome(counts=dict(counts), details={"examples": examples}, traffic=count_traffic(traffic))


def _copies(files: list[SourceFile], endpoint_url: str | None, traffic: Traffic) -> Iterator[SourceCopy]:
    """Each file, to be read in place; SourceError if one differs from the plan, before or after it is read."""
    for file in files:
        store, name = open_location(file.location, endpoint_url=endpoint_url, traffic=traffic)
        require_identity(file.location, file.identity, store.stat(name))
        yield streamed_copy(file, endpoint_url, traffic)
        require_identity(file.location, file.identity, store.stat(name))


def _in_place(build: Build, unit: str) -> bool:
    """Whether files are read in place: only their bytes show reliably whether they changed."""
    return any(is_local(file.location) for file in of_unit(build, unit)[2])


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    planned = (("planned", len(of_unit(build, unit)[2])),)
    return [Check("files", planned, (("read", receipt.counts["files"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    from corpusmill.documents.text_shard import open_text_shard

    text = open_text_shard(folder)
    rejected: Counter[str] = Counter()
    for source in text.sources:
        rejected.update(source.rejected)
    counts = {
        "files": len(text.sources),
        "lines": sum(source.lines for source in text.sources),
        "documents_out": text.documents,
        "text_bytes_out": text.text_bytes,
        "bytes_read": sum(source.line_bytes for source in text.sources),
        **{f"rejected_{reason}": count for reason, count in rejected.items()},
    }
    return Recount(counts)


STAGE = Stage(
    "reference",
    version=2,
    after=(),
    units=_units,
    inputs=lambda _build, _unit: [],
    settings=_settings,
    run=_run,
    common=True,
    stores=True,
    outside=_in_place,
    recount=_recount,
    checks=_checks,
    on_trunk=False,
)
