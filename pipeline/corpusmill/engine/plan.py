"""The plan of a dataset's sources: which files and parts of files make up each shard; and how a plan's step is read.

Files are taken in natural order of their names and grouped greedily: a shard is full when the next file would take it
past `source.shard_bytes`. A larger file is cut into parts of that size, if it can be; the last two share what is left
(documents/splitting.py). Each part counts as a file of its own, `big.part00003.jsonl` of `big.jsonl` (part_names.py). A
file that cannot be cut is a shard alone, and `Plan.uncut` says why. So files appended at the end make new shards, or
refill the last one, and leave the others as they were, however many there are: a scheduler's tasks take groups of them
(parts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace
from pydantic import ValidationError

from corpusmill.documents.cuts import Uncut
from corpusmill.engine.ledger import Blocks, Receipt, read_receipt_as
from corpusmill.engine.ledger.receipt import UNREADABLE
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import BalanceError, CorruptDataError
from corpusmill.lazy import lazily
from corpusmill.storage import StoredFile, is_local, open_location
from corpusmill.storage.listing import OtherFiles

with lazily:
    from corpusmill.config import dataset
    from corpusmill.documents import part_names, splitting

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.documents.part_names import Taken


SMALLEST_PART_BYTES = 1 << 20  # smaller parts would cost more in steps than they gain


class SourcePart(msgspec.Struct, frozen=True):
    """Part number `number` of the source file `of`; see documents.splitting.Cut."""

    of: str
    number: int
    kind: Literal["lines", "frames", "rows"]
    pieces: tuple[tuple[int, int], ...]
    own_bytes: int
    row_groups: tuple[int, int]


class DrawnLines(msgspec.Struct, frozen=True):
    """The file that the lines of a sample's file were drawn from, and the 0-based number there of each of them."""

    file: str
    numbers: list[int]


class SourceFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source file as the plan saw it (see storage.StoredFile), or one part of it.

    A part's `size_bytes` is that of its pieces; its `identity` is the file's. `drawn`: of a file of a sample
    (builds/estimate.py).
    """

    name: str
    location: str
    size_bytes: int
    identity: str
    part: SourcePart | None = None
    drawn: DrawnLines | None = None

    @classmethod
    def of(cls, file: StoredFile) -> SourceFile:
        """A whole file."""
        return cls(file.name, file.location, file.size_bytes, file.identity)  # asdict would take ten times as long

    @property
    def shown(self) -> str:
        """The name of the user's own file, for messages."""
        return self.part.of if self.part else self.name

    def stored(self) -> StoredFile:
        """The file as it was listed."""
        return StoredFile(self.name, self.location, self.size_bytes, self.identity)


class UncutFile(msgspec.Struct, frozen=True):
    """A file larger than a shard that cannot be cut, why not, and how to write it so that it can."""

    name: str
    size_bytes: int
    why: str
    remedy: str


class Reference(msgspec.Struct, frozen=True):
    """A reference of `dedup.against`: as it is configured, and its files, shard by shard.

    `key` identifies it in all datasets of a work folder; `version` is that of a finished dataset, else "".
    """

    path: str
    key: str
    shards: list[list[SourceFile]]
    version: str

    def files(self) -> Iterator[SourceFile]:
        """Every file and part, in the order in which their documents count."""
        return (file for shard in self.shards for file in shard)


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source files of every shard; a shard's name is its number, `00000` upwards.

    `benchmarks` are the files of each benchmark, `decisions` those of the list of `forget` and of decisions made
    elsewhere, `steps` the identities of the steps' code, `references` those of `dedup.against`, all in the
    configuration's order. `paths`, with a budget or near-duplicates: for each file of each shard, the number of its
    entry in `source.paths`. `fields`: those of documents that steps, decisions and the budget ask for, sorted.
    `stands_for`: they also ask for the count of near-duplicates that a document stands for, which no source has.
    """

    shards: list[list[SourceFile]]
    uncut: list[UncutFile] | None = None
    others: OtherFiles | None = None
    benchmarks: list[list[SourceFile]] | None = None
    steps: list[dict[str, str]] | None = None
    decisions: list[list[SourceFile]] | None = None
    paths: list[list[int]] | None = None
    references: list[Reference] | None = None
    fields: list[str] | None = None
    stands_for: bool = False

    def shard_names(self) -> list[str]:
        """`00000`, `00001`, ..."""
        return [f"{number:05d}" for number in range(len(self.shards))]

    def files(self) -> Iterator[SourceFile]:
        """Every file and part, in the order in which their documents count."""
        return (file for shard in self.shards for file in shard)

    def files_of_references(self) -> Iterator[SourceFile]:
        """Every file and part of references, in the order in which their documents count."""
        return (file for reference in self.references or () for file in reference.files())

    def reference_bytes(self) -> int:
        """Size of all files of references, compressed as they are."""
        return sum(file.size_bytes for file in self.files_of_references())

    def source_bytes(self) -> int:
        """Size of all source files, compressed as they are."""
        return sum(file.size_bytes for file in self.files())


def plain(value: msgspec.Struct) -> Any:
    """As JSON: objects, arrays, strings and numbers, without fields that are None by default."""
    return msgspec.json.decode(msgspec.json.encode(value))


def plan_files(files: list[StoredFile], shard_bytes: int, endpoint_url: str | None = None) -> Plan:
    """Consecutive files and parts in groups of at most `shard_bytes`; a file that cannot be cut may be larger."""
    taken = part_names.taken_names(file.name for file in files)
    uncut: list[UncutFile] = []
    part_bytes = max(shard_bytes, SMALLEST_PART_BYTES)
    entries = [entry for file in files for entry in _entries(file, part_bytes, endpoint_url, uncut, taken)]
    plan = Plan(shards=group_into_shards(entries, shard_bytes), uncut=uncut or None)
    _require_every_byte_once(files, [*plan.files()])
    return plan


def _entries(
    file: StoredFile, part_bytes: int, endpoint_url: str | None, uncut: list[UncutFile], taken: Taken
) -> list[SourceFile]:
    """The file itself, or parts of about `part_bytes` if it is larger and can be cut."""
    whole = SourceFile.of(file)
    if file.size_bytes <= part_bytes:
        return [whole]
    store, name = open_location(file.location, endpoint_url=endpoint_url)
    with store.open(name) as stream:
        cuts = splitting.cut_file(stream, file.name, file.size_bytes, part_bytes, local=is_local(file.location))
    if isinstance(cuts, Uncut):
        uncut.append(UncutFile(name=file.name, size_bytes=file.size_bytes, why=cuts.why, remedy=cuts.remedy))
        return [whole]
    if len(cuts) == 1:
        return [whole]
    return [
        replace(
            whole,
            name=part_names.part_name(file.name, number, taken),
            size_bytes=cut.size_bytes,
            part=SourcePart(of=file.name, number=number, **asdict(cut)),
        )
        for number, cut in enumerate(cuts)
    ]


def _require_every_byte_once(files: list[StoredFile], entries: list[SourceFile]) -> None:
    """BalanceError unless the entries, in order, are the files: each whole, or in parts that cover it without a gap.

    Only a part's own bytes count, without the tail that it reads beyond them; for parquet, its row groups.
    """
    at = 0
    for file in files:
        covered = number = groups = 0
        while at < len(entries) and entries[at].location == file.location:
            part = entries[at].part
            if part is None or part.kind == "rows":
                contiguous = number == 0 if part is None else part.row_groups[0] == groups < part.row_groups[1]
                groups = part.row_groups[1] if part else 0
                own = file.size_bytes if part is None else 0
            else:
                contiguous = part.pieces[0][0] == covered and (part.kind == "lines") == (part.own_bytes == 0)
                own = part.own_bytes or sum(size for _, size in part.pieces)
            if not contiguous or (part is not None and part.number != number):
                raise _gap(file, f"part {number} from byte {covered:,} on", entries[at])
            covered, number, at = covered + own, number + 1, at + 1
        if number == 0 or (not groups and covered != file.size_bytes):
            raise _gap(file, f"{file.size_bytes:,} bytes in parts", f"{covered:,} bytes in {number} parts")
    if at < len(entries):
        raise _gap(entries[at], "no more parts than the files have", f"{len(entries) - at} more")


def _gap(file: StoredFile | SourceFile, expected: object, got: object) -> BalanceError:
    return BalanceError(
        "plan.bytes_not_read_once: the plan does not read every byte of a source file once",
        where=file.name,
        expected=expected,
        got=got,
        next_step="report this with the file's size and source.shard_bytes: it is a bug",
    )


def group_into_shards(files: list[SourceFile], shard_bytes: int) -> list[list[SourceFile]]:
    """Consecutive files in groups of at most `shard_bytes`; a larger one is a group alone."""
    shards: list[list[SourceFile]] = []
    filled = 0
    for file in files:
        if not shards or filled + file.size_bytes > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(file)
        filled += file.size_bytes
    return shards


GONE = frozenset({"index"})  # which way to index a shard: there is one


def read_plan(plan_receipt: Path) -> Plan:
    """The plan of a receipt; CorruptDataError if it is damaged, or written by a version with other keys."""
    text = read_planned(plan_receipt, name := "plan.json")
    try:
        return msgspec.json.decode(text, type=Plan)  # of ten thousand files in a third of pydantic's time
    except UNREADABLE as error:
        raise _of_another_version(plan_receipt, name, str(error)) from error


def read_config(plan_receipt: Path) -> DatasetConfig:
    """The configuration that was planned; CorruptDataError as for the plan."""
    text = read_planned(plan_receipt, name := "config.json")
    try:
        return planned_config(msgspec.json.decode(text))
    except ValidationError as error:
        first = error.errors()[0]
        got = f"{error.error_count()} problems, first: {'.'.join(map(str, first['loc']))}: {first['type']}"
        raise _of_another_version(plan_receipt, name, got) from error


def planned_config(values: dict[str, Any]) -> DatasetConfig:
    """A configuration as a plan states it, without the sections of before that decide nothing any more."""
    return dataset.DatasetConfig.model_validate({key: value for key, value in values.items() if key not in GONE})


def _of_another_version(plan_receipt: Path, name: str, got: str) -> CorruptDataError:
    return CorruptDataError(
        "plan.other_version: a plan was written by another version of Corpusmill, and this one cannot read it",
        where=plan_receipt.with_name(name),
        got=got,
        next_step="build the dataset, which plans it again",
    )


def read_planned(plan_receipt: Path, name: str) -> bytes:
    """A file of the plan's step, checked against its receipt."""
    with Blocks(plan_receipt.parent, plan_of(plan_receipt)).open(name) as file:
        return file.read()


class Planned(msgspec.Struct, frozen=True):
    """The part of a plan step's settings that tasks need, out of the whole plan: the versions of the code."""

    code: dict[str, str] = {}


class PlanReceipt(Receipt, frozen=True, kw_only=True):
    """The receipt of a plan without most of its settings, which takes two fifths of the time to parse."""

    settings: Planned  # type: ignore[assignment]


def plan_of(plan_receipt: Path) -> PlanReceipt:
    """The receipt of a plan, which may be megabytes: it is cached until the file changes."""
    refresh(plan_receipt)
    status = plan_receipt.stat()
    return _read_once(plan_receipt, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _read_once(plan_receipt: Path, _inode: int, _mtime_ns: int) -> PlanReceipt:
    return read_receipt_as(PlanReceipt, plan_receipt)


def tokenizer_versions(config: DatasetConfig) -> dict[str, str]:
    """The versions of the locked tokenizer, which every receipt states."""
    lock = config.lock
    if lock is None:
        return {}
    revision = {"tokenizer_revision": lock.tokenizer_revision} if lock.tokenizer_revision else {}
    return {"tokenizer_sha256": lock.tokenizer_sha256, **revision}
