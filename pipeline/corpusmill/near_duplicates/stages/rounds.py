"""Sign, propose, sets, compare: from texts to the pairs that decide.py decides (the room's docstring)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import unidata_version

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.anchor import require_readable
from corpusmill.dedup.stages.context import sections_in
from corpusmill.dedup.stages.reference import is_reference, lines_before, number_of, place_of, sources_of
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.sources.parts import PlacedSettings, places_in, shard_sources
from corpusmill.sources.stages.index import compared_stage, require_few_rejected

with lazily:
    import numpy as np
    import orjson

    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting
    from corpusmill.near_duplicates import groups, signatures, similarity


if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig
    from corpusmill.config.sections import NearDuplicatesConfig
    from corpusmill.engine.build import Build

UNIT = "dataset"
MATCHES = "matches"
ABOUT, ABOUT_ENDS = "leaders.jsonl", "leader_ends"
BYTES_PER_ROW = 80  # of a partition in memory: the rows, their documents, and the order of both
LEAST_PARTITIONS, MOST_PARTITIONS = 4, 4096


def wanted(config: DatasetConfig) -> bool:
    """Whether a configuration asks for near-duplicates."""
    return config.near_duplicates is not None


def settings_of(build: Build) -> NearDuplicatesConfig:
    """The section of the configuration."""
    assert build.config.near_duplicates is not None
    return build.config.near_duplicates


def compared_shards(build: Build) -> list[str]:
    """The shards that are compared, in order: those of references, then the dataset's."""
    return [*build.units("reference_sign"), *build.units("sign")]


def place_among(build: Build, shard: str) -> int:
    """The position of a shard in `compared_shards`."""
    return place_of(build, shard) if is_reference(shard) else len(build.units("reference_sign")) + int(shard)


def text_step(build: Build, shard: str) -> StepName:
    """The step whose text is compared."""
    return ("reference" if is_reference(shard) else compared_stage(build, shard)), shard


class RunSettings(Identity, frozen=True, kw_only=True):
    """What a run of words is. `unicode`: the version of the tables."""

    words: int
    unicode: str


class SignSettings(RunSettings, frozen=True, kw_only=True):
    """`sources`: the entry of `source.paths` of each file, where only documents of one entry are compared."""

    bands: int
    rows: int
    sources: list[int] | UnsetType = UNSET


def _identity_sign(build: Build, shard: str) -> SignSettings:
    near = settings_of(build)
    bands = signatures.bands_for(near.similarity)
    within = near.within == "source"
    return SignSettings(
        words=near.words,
        unicode=unidata_version,
        bands=bands.bands,
        rows=bands.rows,
        sources=(build.plan.paths or [])[int(shard)] if within else UNSET,
    )


def _run_sign(inputs: Inputs, settings: SignSettings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    signer, bands = signatures.Signer(settings.words), signatures.Bands(settings.bands, settings.rows)
    of_files = [source.documents for source in text.sources]
    salts = signatures.salts_of(np.repeat(settings.sources, of_files)) if settings.sources else None
    counts = {"documents": text.documents, "rows": 0, "runs": 0, "bytes_read": len(text.text)}

    def signed() -> Iterator[NDArray[np.uint64]]:
        for first, last, starts, ends in signatures.batches(text):
            keys, runs = signer.keys(text.text, starts, ends, bands)
            counts["runs"] += runs
            yield keys if salts is None else keys ^ salts[first:last, None]

    counts["rows"] = groups.write_keys(folder, signed())
    return Outcome(counts=counts, details={"file_documents": of_files})


def _checks_sign(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    keys, documents = receipt.settings["bands"] + 1, build.receipt(*text_step(build, shard)).counts["documents_out"]
    signed = (("signed", receipt.counts["documents"]),)
    rows = Check("keys", (("of documents", keys * documents),), (("written", receipt.counts["rows"]),))
    return [Check("documents", (("to compare", documents),), signed), rows]


def _recount_sign(_build: Build, _unit: str, folder: Path) -> Recount:
    documents = (folder / groups.DIGESTS).stat().st_size // 8
    return Recount({"documents": documents, "rows": recounting.section_rows(folder, groups.KEYS, 16)})


SIGN = Stage(
    "sign",
    version=1,
    after=("decontaminate",),
    per_shard=True,
    wanted=wanted,
    units_of="index",
    work=Work(SignSettings, _identity_sign, lambda build, shard: {"text": [text_step(build, shard)]}, _run_sign),
    checks=_checks_sign,
    recount=_recount_sign,
    gate=require_few_rejected,
    reclaimed=("*",),
    read_until="decide",
)
REFERENCE_SIGN = replace(
    SIGN,
    name="reference_sign",
    after=("reference",),
    per_shard=False,
    wanted=lambda config: config.near_duplicates_of_references,
    units_of="reference",
    common=True,
    gate=require_readable,
    reclaimed=(),
    read_until="",
    shown=Shown(on_trunk=False),
)


def rows_signed(build: Build) -> int:
    """The keys of all shards that are compared."""
    return build.total("reference_sign", "rows") + build.total("sign", "rows")


def _units_propose(build: Build) -> list[str]:
    """As many partitions as keep one within dedup.memory: a power of two. The number changes no byte of what follows,
    but the order of pairs.
    """
    most = max(int(build.config.dedup.memory) // BYTES_PER_ROW, 1)
    partitions = LEAST_PARTITIONS
    while partitions < MOST_PARTITIONS and rows_signed(build) > most * partitions:
        partitions *= 2
    return [f"{partition:05d}" for partition in range(partitions)]


class ProposeSettings(Identity, frozen=True, kw_only=True):
    """Which partition it is. `references`: how many of the shards are of references."""

    partition: int
    partitions: int
    references: int | UnsetType = UNSET


def _identity_propose(build: Build, unit: str) -> ProposeSettings:
    references = len(build.units("reference_sign")) or UNSET
    return ProposeSettings(partition=int(unit), partitions=len(build.units("propose")), references=references)


def _inputs_propose(build: Build, _unit: str) -> dict[str, list[StepName]]:
    return {"keys": whole(build, "reference_sign", "sign")}


def _run_propose(inputs: Inputs, settings: ProposeSettings, folder: Path, resources: Resources) -> Outcome:
    most_rows = resources.dedup_memory // BYTES_PER_ROW
    shards = [sections_in(step.blocks) for step in inputs.every("keys")]
    counts = groups.propose(
        shards, settings.partition, settings.partitions, folder, settings.references or 0, most_rows
    )
    return Outcome(counts={**counts, "bytes_read": 16 * counts["rows"]})


PROPOSE = Stage(
    "propose",
    version=3,
    after=("sign", "reference_sign"),
    wanted=wanted,
    units=_units_propose,
    work=Work(ProposeSettings, _identity_propose, _inputs_propose, _run_propose),
    recount=lambda _build, _unit, folder: Recount({"pairs": recounting.section_rows(folder, groups.PAIRS, 16)}),
    reclaimed=("*",),
    read_until="compare",
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory)) if wanted(config) else None),
    shown=Shown(unit_word="partition"),
)


class SetsSettings(PlacedSettings, frozen=True, kw_only=True):
    """What a run of words is, the shard's place among those that are compared, and n of the n-th reference."""

    words: int
    unicode: str
    shard: int
    reference: int | UnsetType = UNSET


def _identity_sets(build: Build, shard: str) -> SetsSettings:
    return SetsSettings(
        words=settings_of(build).words,
        unicode=unidata_version,
        shard=place_among(build, shard),
        lines_before=lines_before(build, shard) or UNSET,
        reference=number_of(build, shard) if is_reference(shard) else UNSET,
    )


def _inputs_sets(build: Build, shard: str) -> dict[str, list[StepName]]:
    signed = "reference_sign" if is_reference(shard) else "sign", shard
    return {"text": [text_step(build, shard)], "signed": [signed], "asked": whole(build, "propose")}


def _run_sets(inputs: Inputs, settings: SetsSettings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    asked = [sections_in(step.blocks).read(groups.LEADERS_FILE, settings.shard) for step in inputs.every("asked")]
    leaders = np.unique(np.concatenate(asked)).astype(np.int64)
    digests = sections_in(inputs["signed"].blocks).whole(groups.DIGESTS)
    hashes = similarity.write_sets(text, leaders, digests, settings.words, folder)
    ids, place = text.document_ids(), places_in(inputs.source.files, text, settings.lines_before)
    of_reference = {"reference": settings.reference} if settings.reference else {}
    ends = np.zeros(len(leaders), np.int64)
    with (folder / ABOUT).open("wb") as rows:
        for at, ordinal in enumerate(leaders.tolist()):
            file, line = place(ordinal)
            rows.write(orjson.dumps({**of_reference, "id": ids[ordinal], "file": file, "line": line + 1}) + b"\n")
            ends[at] = rows.tell()
    (folder / ABOUT_ENDS).write_bytes(ends.astype("<u8").data)
    return Outcome(counts={"leaders": len(leaders), "hashes": hashes, "bytes_read": len(text.text)})


def _recount_sets(_build: Build, _unit: str, folder: Path) -> Recount:
    sizes = {"leaders": similarity.LEADERS, "hashes": similarity.SETS}
    return Recount({count: (folder / name).stat().st_size // 8 for count, name in sizes.items()})


SETS = Stage(
    "sets",
    version=1,
    after=("propose",),
    per_shard=True,
    wanted=wanted,
    units_of="sign",
    work=Work(SetsSettings, _identity_sets, _inputs_sets, _run_sets, shard_sources),
    recount=_recount_sets,
    reclaimed=("*",),
    read_until="near_duplicates",
)
REFERENCE_SETS = replace(
    SETS,
    name="reference_sets",
    per_shard=False,
    units_of="reference_sign",
    work=Work(SetsSettings, _identity_sets, _inputs_sets, _run_sets, sources_of),
)


class CompareSettings(RunSettings, frozen=True, kw_only=True):
    """The least similarity of a match, and the shard's place among those that are compared."""

    similarity: float
    shard: int


def _identity_compare(build: Build, shard: str) -> CompareSettings:
    near = settings_of(build)
    return CompareSettings(
        words=near.words, unicode=unidata_version, similarity=near.similarity, shard=place_among(build, shard)
    )


def _inputs_compare(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [text_step(build, shard)],
        "signed": [("sign", shard)],
        "pairs": whole(build, "propose"),
        "answers": whole(build, "reference_sets", "sets"),
    }


def _run_compare(inputs: Inputs, settings: CompareSettings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    proposed, answers = ([sections_in(step.blocks) for step in inputs.every(name)] for name in ("pairs", "answers"))
    digests = sections_in(inputs["signed"].blocks).whole(groups.DIGESTS)
    matches, counts = similarity.compare(
        text, proposed, settings.shard, digests, answers, settings.words, settings.similarity
    )
    (folder / MATCHES).write_bytes(matches.data)
    return Outcome(counts={**counts, "matches": len(matches), "bytes_read": len(text.text)})


COMPARE = Stage(
    "compare",
    version=2,
    after=("sets", "reference_sets"),
    per_shard=True,
    wanted=wanted,
    units_of="sign",
    work=Work(CompareSettings, _identity_compare, _inputs_compare, _run_compare),
    recount=lambda _build, _unit, folder: Recount({"matches": (folder / MATCHES).stat().st_size // 24}),
    reclaimed=("*",),
    read_until="decide",
)
