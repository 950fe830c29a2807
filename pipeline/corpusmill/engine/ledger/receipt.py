"""The record of a finished step: JSON that anyone can read."""

from __future__ import annotations

import json
import os
import platform
import zlib
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import xxhash
from msgspec.structs import asdict

from corpusmill.errors import CorruptDataError, PermanentError
from corpusmill.fingerprint import Algorithm, file_digests, fingerprint
from corpusmill.storage.local import write_whole
from corpusmill.version import __version__

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises for odd JSON
RECEIPT_NAME = "receipt.json"
BLOCKS_NAME = ".blocks"  # beside it, see blocks.py

# Libraries whose version can change a step's bytes; receipts record what was installed.
WITNESSED_LIBRARIES = (
    "numpy",
    "numba",
    "gigatoken",
    "tiktoken",
    "tokenizers",
    "sentencepiece",
    "orjson",
    "msgspec",
    "zstandard",
    "lz4",
    "deflate",
    "humanize",
    "pyarrow",
)


class OutputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file that a step wrote: its name relative to the step's folder, its size, its digest.

    The digest is `sha256:<64 hex digits>` for delivered files, `xxh3_128:<32 hex digits>` for files that only later
    steps read (engine/decisions/0004-two-digests.md).
    """

    name: str
    size_bytes: int
    digest: Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64}|xxh3_128:[0-9a-f]{32})$")]

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of `digest`."""
        return "sha256" if self.digest.startswith("sha256:") else "xxh3_128"

    @property
    def sha256(self) -> str:
        """64 hex digits; PermanentError for an output that is not delivered."""
        if self.algorithm != "sha256":
            raise PermanentError(
                "receipt.no_digest: an intermediate file has no sha256", where=self.name, got=self.digest
            )
        return self.digest.removeprefix("sha256:")


def output_file(path: Path, name: str, algorithm: Algorithm) -> OutputFile:
    """Read a file that a step wrote, to its end."""
    return output_file_and_blocks(path, name, algorithm)[0]


def output_file_and_blocks(path: Path, name: str, algorithm: Algorithm) -> tuple[OutputFile, bytes]:
    """The same, and the digests of the file's blocks (blocks.py)."""
    digest, blocks = file_digests(path, algorithm)
    return OutputFile(name=name, size_bytes=path.stat().st_size, digest=f"{algorithm}:{digest}"), blocks


class InputReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step that this one read from, and the digest its receipt had then."""

    stage: str
    unit: str
    digest: str


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The receipt of one step.

    `counts` are plain totals that the balance uses; `details` may hold anything else that is a function of the data
    (histograms, examples). `seconds`, `peak_rss_bytes`, `traffic` (requests, retries, bytes over the wire), `versions`
    and `inputs` describe the run and are outside the digest, and so is `reclaimed`: the names of outputs that were
    deleted since because no step needs them (finished.py). In a bucket, `attempt` is the name below which the outputs
    are, and `again` requests a rerun (finished.py). `blocks` is the XXH3-128 of the outputs' block digests (blocks.py),
    `seal` that of the file's text without it: a receipt that was damaged or edited is invalid.
    """

    stage: str
    stage_version: int
    unit: str
    fingerprint: str
    settings: dict[str, Any]
    inputs: tuple[InputReceipt, ...]
    counts: dict[str, int]
    details: dict[str, Any]
    outputs: tuple[OutputFile, ...]
    versions: dict[str, str]
    traffic: dict[str, int] = {}
    seconds: float
    peak_rss_bytes: int
    blocks: str = ""
    reclaimed: tuple[str, ...] = msgspec.field(name="given_back", default=())
    attempt: str = ""
    again: bool = False
    seal: str = ""

    @cached_property
    def digest(self) -> str:
        """64 hex digits over stage, counts, details and outputs: equal digests mean equal outputs."""
        return fingerprint(
            {
                "stage": self.stage,
                "counts": self.counts,
                "details": self.details,
                "outputs": [asdict(output) for output in self.outputs],
            }
        )

    def text(self) -> bytes:
        """The content of its file: JSON, sealed."""
        values = {**msgspec.to_builtins(self, str_keys=True, enc_hook=_plain), "seal": ""}
        # json.dumps is slow with an indent (Python) and fast without (C); msgspec indents exactly as it would.
        text = json.dumps(values, sort_keys=True, ensure_ascii=False).encode()
        unsealed = msgspec.json.format(text, indent=1) + b"\n"
        return unsealed.replace(_sealed_with(""), _sealed_with(xxhash.xxh3_128_hexdigest(unsealed)))


def _plain(value: object) -> object:
    """Numbers and texts of other classes, such as numpy.float64, as those that JSON has."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} cannot be written to a receipt")


def _sealed_with(seal: str) -> bytes:
    return (
        b'\n "seal": "%s"' % seal.encode()
    )  # one space of indent: the object's own key; strings hold no raw line feed


AnyReceipt = TypeVar("AnyReceipt", bound="Receipt")


def read_receipt(path: Path | str) -> Receipt:
    """Read a receipt; CorruptDataError if the file is malformed or does not match its seal."""
    return read_receipt_as(Receipt, path)


def read_receipt_as(kind: type[AnyReceipt], path: Path | str) -> AnyReceipt:
    """The same, as a class with fewer fields than `Receipt`; the seal covers the whole file."""
    text = _read(path)
    receipt = _parsed(kind, text, path)
    seal = xxhash.xxh3_128_hexdigest(text.replace(_sealed_with(receipt.seal), _sealed_with("")))
    if receipt.seal != seal:
        raise CorruptDataError(
            "receipt.broken_seal: a receipt does not match its seal",
            where=path,
            expected=f"seal {seal}, computed from the file",
            got=f"seal {receipt.seal}",
            next_step="run again: the step reruns",
        )
    return receipt


def parse_receipt(path: Path) -> Receipt:
    """Read a receipt, sealed or not; CorruptDataError if the file is malformed."""
    return _parsed(Receipt, _read(path), path)


def _read(path: Path | str) -> bytes:
    # A build reads a hundred thousand: creating a file object and a Path takes as long as reading one.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(descriptor).st_size
        text = os.read(descriptor, size_bytes)
        while len(text) < size_bytes and (more := os.read(descriptor, size_bytes)):
            text += more
        return text
    finally:
        os.close(descriptor)


def _parsed(kind: type[AnyReceipt], text: bytes, path: Path | str) -> AnyReceipt:
    try:
        receipt: AnyReceipt = _decoder(kind).decode(text)
    except UNREADABLE as error:
        raise CorruptDataError(
            "receipt.not_readable: a receipt cannot be read",
            where=path,
            expected="the JSON that the step wrote",
            got=error,
            next_step=f"remove the folder {Path(path).parent}; the step will run again",
        ) from error
    return receipt


@cache
def _decoder(kind: type[Receipt]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def write_receipt(receipt: Receipt, folder: Path, *, finished_ns: int | None = None) -> Path:
    """Write `receipt`, sealed, into `folder`: flushed to the device, then by atomic rename, so it is never a half one.

    `finished_ns`: the file's modification time, which states when the step finished; by default now.
    """
    path = folder / RECEIPT_NAME
    write_whole(path, receipt.text(), changed_ns=finished_ns)
    return path


def versions_of(*libraries: str) -> dict[str, str]:
    """Versions of libraries that can change a step's bytes, for its settings: an upgrade runs the step again."""
    return {name: installed_versions()[name] for name in libraries}


@cache
def installed_versions() -> dict[str, str]:
    """Versions of the code and of every library that can change bytes."""
    libraries = {name: metadata.version(name) for name in WITNESSED_LIBRARIES}
    own = {"corpusmill": __version__, "python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION}
    return {**own, **libraries}
