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
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.plan import plain
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Sources, Work
from corpusmill.errors import PermanentError
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.sources import parts
from corpusmill.sources.copies import count_traffic, streamed_copy
from corpusmill.sources.parts import FilePlace, lines_by_source
from corpusmill.sources.stages import index
from corpusmill.sources.stages.index import parsing_libraries, read_texts, recount_texts, text_stage
from corpusmill.storage import Traffic, is_local, open_location, require_identity

with lazily:
    from corpusmill.documents import text_shard


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import Reference, SourceFile
    from corpusmill.sources.copies import SourceCopy

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


def text_step(build: Build, shard: str) -> StepName:
    """The step that holds the text of one of all shards."""
    return ("reference", shard) if is_reference(shard) else (text_stage(build, shard), shard)


def index_step(shard: str) -> StepName:
    """The step that holds the anchors of one of all shards."""
    return ("reference_index" if is_reference(shard) else "anchor", shard)


def of_unit(build: Build, unit: str) -> tuple[ReferenceConfig, Reference, list[SourceFile]]:
    """A shard's reference, as configured and as planned, and the shard's files."""
    key, _, number = unit.partition(_MARK)
    configured = zip(build.config.dedup.against or (), build.plan.references or (), strict=True)
    for wanted, planned in configured:
        if planned.key == key:
            return wanted, planned, planned.shards[int(number)]
    keys = [reference.key for reference in build.plan.references or ()]
    raise PermanentError(
        "reference.shard_not_planned: the plan does not name this shard of a reference",
        expected=", ".join(keys) or "no reference",
        got=unit,
    )


def number_of(build: Build, unit: str) -> int:
    """n for a shard of the n-th entry of `dedup.against`."""
    return 1 + [reference.key for reference in build.plan.references or ()].index(unit.partition(_MARK)[0])


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


def lines_before(build: Build, shard: str) -> dict[str, int]:
    """Name of each part in one of all shards -> the lines that its file has before it."""
    if not is_reference(shard):
        return parts.lines_before(build, shard)
    names = [file.name for file in of_unit(build, shard)[2] if file.part]
    return {name: file_of_reference(build, shard, name)[1] for name in names}


def places_of(build: Build, shard: str, text: TextShard) -> Callable[[int], FilePlace]:
    """A function from an ordinal of a text shard of one of all shards, of any stage, to its document's place."""
    files = of_unit(build, shard)[2] if is_reference(shard) else build.plan.shards[int(shard)]
    return parts.places_in(files, text, lines_before(build, shard))


def source_of(source: SourceConfig, reference: ReferenceConfig) -> SourceConfig:
    """How the files of a reference are read."""
    return source.model_copy(update={"text_field": reference.text_field or source.text_field})


def _units(build: Build) -> list[str]:
    return [unit for reference in build.plan.references or () for unit in units_of(reference)]


class Settings(index.Settings, frozen=True, kw_only=True):
    """`files`: those of the plan."""

    files: list[Any]


def _identity(build: Build, unit: str) -> Settings:
    wanted, _, files = of_unit(build, unit)
    source = source_of(build.config.source, wanted)
    return Settings(
        files=[plain(file) for file in files],
        text_field=source.text_field,
        id_field=source.id_field,
        libraries=parsing_libraries(files),
    )


def sources_of(build: Build, unit: str) -> list[Sources]:
    """The files of a shard of a reference."""
    wanted, _, files = of_unit(build, unit)
    return [Sources(files, wanted.endpoint)]


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    counts: Counter[str] = Counter(files=0, lines=0, documents_out=0, text_bytes_out=0, bytes_read=0)
    examples: list[dict[str, Any]] = []
    traffic = Traffic()
    advance.begin(sum(file.size_bytes for file in inputs.source.files))
    with text_shard.TextShardWriter(folder) as writer:
        for copy in _copies(inputs.source, traffic):
            for _ in read_texts(copy, settings, writer, counts, examples):
                pass
    counts["documents_out"], counts["text_bytes_out"] = writer.documents, writer.text_bytes
    return Outcome(counts=dict(counts), details={"examples": examples}, traffic=count_traffic(traffic))


def _copies(sources: Sources, traffic: Traffic) -> Iterator[SourceCopy]:
    """Each file, to be read in place; SourceError if one differs from the plan, before or after it is read."""
    endpoint_url = sources.endpoint_url
    for file in sources.files:
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
    return Recount(recount_texts(text_shard.open_text_shard(folder)))


STAGE = Stage(
    "reference",
    version=2,
    after=(),
    wanted=lambda config: bool(config.dedup.against),
    units=_units,
    work=Work(Settings, _identity, lambda _build, _unit: {}, _run, sources_of),
    common=True,
    outside=_in_place,
    recount=_recount,
    checks=_checks,
    schedule=Schedule(stores=True),
    shown=Shown(on_trunk=False),
)
