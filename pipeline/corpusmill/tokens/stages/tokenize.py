"""Tokenize: encodes the text of a shard, without its duplicates, into a token shard.

Every document's ids are decoded and compared with the text that was encoded (tokens/decoding.py). The receipt has two
content sums (content.py): `text_content` of what was encoded, `content` of the tokens that were written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.config import DatasetConfig, LockConfig, TokenizerConfig, absolute, load_config, parse_config
from corpusmill.dedup.stages.union import cuts_stage
from corpusmill.engine.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.engine.stage import Recount, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import TokenizerError
from corpusmill.kernels import advance
from corpusmill.kernels.content import ContentSum
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.stages.index import final_stage, require_few_rejected, text_flow
from corpusmill.tokens.stages.kept import text_and_cuts, text_inputs
from corpusmill.tokens.vocabulary import PATTERNS, find_vocabulary, refuse_ignored_settings

with lazily:
    import numpy as np

    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.engine import recounting
    from corpusmill.kernels import content_kernels, mapping, slices
    from corpusmill.report import histograms
    from corpusmill.tokens import decoding, special, token_shard
    from corpusmill.tokens import tokenizer as tokens_tokenizer


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import SourceEntry
    from corpusmill.engine.build import Build
    from corpusmill.tokens.token_shard import Selection
    from corpusmill.tokens.tokenizer import Tokenizer
    from corpusmill.tokens.vocabulary import VocabularyFile


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's name and pins, the number of its ids, the ids around documents, and the width of an id."""

    name: str
    sha256: str
    size: int
    eot_id: int
    dtype: str
    pad_id: int
    bos_id: int | None = None
    revision: str = ""


def locked(config: DatasetConfig) -> DatasetConfig:
    """The configuration with the tokenizer's sha256 and revision in its lock; TokenizerError if it differs from an
    existing lock, ConfigError for settings that the vocabulary would override.
    """
    lock, wanted = config.lock, config.tokenizer
    file = vocabulary_file(config)
    refuse_ignored_settings(
        wanted.name,
        file,
        pattern=wanted.pattern,
        special_tokens=wanted.special_tokens,
        revision=wanted.revision,
        parse_special=wanted.parse_special,
    )
    stated = "" if wanted.eot or wanted.special_ids == "tokshuf" else special.stated_eot(file, wanted.name)
    now = LockConfig(
        tokenizer_sha256=file.sha256,
        tokenizer_revision=file.revision,
        tokenizer_eot=stated,
        tokenizer_library=file.defined_by if file.kind in {"tekken", "sentencepiece"} else "",
    )
    if lock and lock != now:
        raise TokenizerError(
            "tokenizer.not_locked: the tokenizer differs from the one that the configuration is locked to",
            where=file.path,
            expected=_lock_text(lock),
            got=_lock_text(now),
            next_step="fetch the right one; if the change is intended, delete the lock section and lock again",
        )
    return config.model_copy(update={"lock": now})


def lock_file(path: Path) -> LockConfig:
    """Lock a configuration file: its lock section, appended if there is none. TokenizerError as `locked` raises it."""
    config = load_config(path)
    lock = locked(config).lock
    assert lock is not None
    if config.lock is None:
        text = path.read_text(encoding="utf-8")
        text += ("" if text.endswith("\n") else "\n") + "\nlock:\n"
        text += "".join(f"  {key}: {json.dumps(value)}\n" for key, value in lock.settings().items())
        parse_config(text, where=f"{path} with a lock section added")
        path.write_text(text, encoding="utf-8")
    return lock


def _lock_text(lock: LockConfig) -> str:
    ending = f", text ends with {lock.tokenizer_eot}" if lock.tokenizer_eot else ""
    return f"sha256 {lock.tokenizer_sha256}, revision {lock.tokenizer_revision or 'none'}{ending}"


def vocabulary_file(config: DatasetConfig) -> VocabularyFile:
    """The vocabulary that a configuration names; TokenizerError if it is not the pinned one."""
    wanted, lock = config.tokenizer, config.lock
    revision = wanted.revision or (lock.tokenizer_revision if lock else None) or None
    return find_vocabulary(wanted.name, file=_file(config), sha256=wanted.sha256, revision=revision)


def configured_tokenizer(config: DatasetConfig, *, engine: str | None = None) -> Tokenizer:
    """The tokenizer that a configuration names, its vocabulary checked against the lock."""
    return locked_tokenizer(config.tokenizer, config.lock, _file(config), engine)


def identified_tokenizer(tokenizer: dict[str, Any], lock: dict[str, str], resources: Resources) -> Tokenizer:
    """The tokenizer that a step's settings identify."""
    wanted = TokenizerConfig.model_validate({**tokenizer, "engine": resources.engine})
    return locked_tokenizer(wanted, LockConfig.model_validate(lock) if lock else None, resources.vocabulary)


def locked_tokenizer(
    wanted: TokenizerConfig, lock: LockConfig | None, file: str | None, engine: str | None = None
) -> Tokenizer:
    """A tokenizer with the vocabulary of a lock, if there is one, in a file or found by its name."""
    return tokens_tokenizer.load_tokenizer(
        wanted.name,
        file=file,
        sha256=lock.tokenizer_sha256 if lock else wanted.sha256,
        revision=(lock.tokenizer_revision if lock else wanted.revision) or None,
        engine=engine or wanted.engine,
        pattern=wanted.pattern,
        special_tokens=tuple(sorted(wanted.special_tokens.items())),
        eot=wanted.eot or (lock.tokenizer_eot if lock else None) or None,
        bos=wanted.bos,
        pad=wanted.pad,
        parse_special=wanted.parse_special,
        tokshuf_ids=wanted.special_ids == "tokshuf",
    )


def _file(config: DatasetConfig) -> str | None:
    path = config.tokenizer.path()
    return absolute(path) if path else None


def vocabulary(build: Build) -> Vocabulary:
    """The vocabulary that the tokenized shards state, without loading it."""
    return Vocabulary(**build.rollup("tokenize").details["vocabulary"])


def _stated_vocabulary(folder: Path) -> dict[str, Any]:
    """The vocabulary that a token shard states, as a receipt has it."""
    stated = json.loads((folder / "token_shard.json").read_bytes())
    renamed = {"name": stated["tokenizer"], "size": stated["vocabulary_size"]}
    own = {key: stated[key] for key in ("sha256", "eot_id", "dtype", "pad_id", "bos_id", "revision")}
    return asdict(Vocabulary(**renamed, **own))


class Settings(Identity, frozen=True, kw_only=True):
    """What identifies the tokens of a shard besides its text."""

    mode: str
    tokenizer: dict[str, Any]
    lock: dict[str, str]
    libraries: dict[str, str]
    selection: dict[str, int | None] | UnsetType = UNSET


def _identity(build: Build, _shard: str) -> Settings:
    # The lock identifies the vocabulary: loading refuses any file with another sha256.
    wanted = build.config.tokenizer.model_dump(exclude={"file", "sha256", "revision", "batch_bytes"})
    wanted["engine"] = engine_of(build.config)
    lock = build.config.lock.settings() if build.config.lock else {}
    libraries = versions_of(*_libraries(build.config))
    selection = build.config.selection.model_dump() if build.config.selection.leaves_out() else UNSET
    return Settings(mode=build.config.dedup.mode, tokenizer=wanted, lock=lock, libraries=libraries, selection=selection)


def engine_of(config: DatasetConfig) -> str:
    """The engine as in fingerprints, where auto counts as gigatoken. The library that defines the ids is there, too.

    All engines give the same ids, so a build with gigatoken is reused under auto, and vice versa.
    """
    return "gigatoken" if config.tokenizer.engine == "auto" else config.tokenizer.engine


def _libraries(config: DatasetConfig) -> list[str]:
    """The engine, and the library that defines the ids: it adds special ids and normalizes by its own tables.

    Decided by the lock and the vocabulary's name only, so that machines without the file agree; both libraries if they
    do not tell.
    """
    wanted = config.tokenizer
    place = wanted.file or wanted.name
    if config.lock and config.lock.tokenizer_library:
        defining = [config.lock.tokenizer_library]
    elif wanted.name in PATTERNS or place.endswith(".tiktoken"):
        defining = ["tiktoken"]
    elif place.endswith(".json") or (not wanted.file and not place.endswith(".model")):
        defining = ["tokenizers"]
    else:
        defining = ["tiktoken", "tokenizers"]
    return sorted({engine_of(config), *defining})


def selection_of(minimum: dict[str, int | None] | UnsetType) -> Selection:
    """The selection of documents by minimum lengths."""
    stated = minimum or {}
    return token_shard.Selection(stated.get("minimum_bytes") or 0, stated.get("minimum_tokens") or 0)


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    text, ranges = text_and_cuts(inputs)
    selection = selection_of(settings.selection)
    bounds = text.bounds(0, text.documents)
    batches = list(slices.runs(bounds[1:], resources.batch_bytes))
    tokenizer = identified_tokenizer(settings.tokenizer, settings.lock, resources)
    decoder = decoding.Decoder(tokenizer.reference, tokenizer.table)
    advance.begin(len(text.text))
    tally = _Tally(int(inputs.unit), selecting=settings.selection is not UNSET)

    def encoded() -> Iterator[tuple[Any, Any]]:
        for first, last in batches:
            kept, boundaries = dedup_ranges.remove_ranges_from(text.text, text.offsets, ranges, first, last)
            mapping.release_pages(text.text)  # or memory would grow with the shard
            tally.add_text(kept, boundaries)
            whole = kept.tobytes()
            texts = [whole[start:end] for start, end in pairwise(boundaries.tolist())]
            tokens, ends, by_reference = tokenizer.encode_counted(texts)
            tally.counts["documents_by_reference"] += by_reference
            tally.counts["documents_special"] += int(tokenizer.special_strings.holding(texts).sum())
            decoder.compare(kept, boundaries, tokens, ends)
            token_shard.document_lengths((tokens, ends), tally.documents)  # refuses a document that no export can hold
            size = len(tokens)
            tokens, ends, short = selection.apply(tokens, ends, tally.text_bytes)
            if short.any():
                tally.counts["documents_short"] += int(short.sum())
                tally.counts["tokens_short"] += size - len(tokens)
            tally.add_tokens(tokens, ends)
            yield tokens, ends
            advance.note(int(bounds[last] - bounds[first]))

    source_ends = np.array([source.first_document + source.documents for source in text.sources], np.uint64)
    tokens = token_shard.write_token_shard(encoded(), tokenizer, folder, source_ends)
    counts = {**tally.counts, **decoder.counts, "tokens": tokens, "bytes_read": len(text.text)}
    engine = {"name": tokenizer.engine, "why_slow": tokenizer.why_slow}
    details = {**tally.details(text.sources), "vocabulary": _stated_vocabulary(folder), "engine": engine}
    return Outcome(counts=counts, details=details)


class _Tally:
    """The totals of a shard's batches: a batch's text is added first, then its tokens."""

    def __init__(self, shard: int, *, selecting: bool) -> None:
        names = (
            "documents_out",
            "documents_empty",
            "text_bytes_encoded",
            "documents_by_reference",
            "documents_special",
        )
        self.counts = Counter(dict.fromkeys((*names, *(("documents_short", "tokens_short") if selecting else ())), 0))
        self._shard = shard
        self._text, self._content = ContentSum(), ContentSum()
        self._bytes: list[NDArray[np.uint64]] = []
        self._tokens: list[NDArray[np.uint64]] = []

    @property
    def documents(self) -> int:
        """Documents whose tokens were added."""
        return self.counts["documents_out"]

    @property
    def text_bytes(self) -> NDArray[np.uint64]:
        """uint64: text bytes of each document of the batch added last."""
        return self._bytes[-1]

    def add_text(self, text: NDArray[np.uint8], boundaries: NDArray[np.uint64]) -> None:
        """The text of a batch: document i is `text[boundaries[i] : boundaries[i + 1]]`."""

        lengths = np.diff(boundaries)
        self._text += content_kernels.texts_sum(text, boundaries, 0, self._shard, self.documents)
        self.counts["text_bytes_encoded"] += int(lengths.sum())
        self._bytes.append(lengths)

    def add_tokens(self, tokens: NDArray[Any], ends: NDArray[np.uint64]) -> None:
        """The tokens of that batch, `ends` cumulative."""

        lengths = np.diff(ends, prepend=np.uint64(0))
        ordinals = np.arange(self.documents, self.documents + len(lengths), dtype=np.uint64)
        self._content += content_kernels.records_sum(tokens, lengths, self._shard, ordinals)
        self.counts["documents_out"] += len(lengths)
        self.counts["documents_empty"] += int((lengths == 0).sum())
        self._tokens.append(lengths)

    def details(self, sources: Sequence[SourceEntry]) -> dict[str, Any]:
        """The content sums; bytes and tokens by source file, and as histograms over documents."""

        none = [np.empty(0, np.uint64)]
        text_bytes, tokens = np.concatenate(self._bytes or none), np.concatenate(self._tokens or none)
        sums = np.zeros((len(tokens) + 1, 2), np.uint64)
        np.cumsum(np.stack([text_bytes, tokens], axis=1), axis=0, out=sums[1:])
        return {
            "text_content": str(self._text),
            "content": str(self._content),
            "by_source_file": [
                {"path": source.path, "text_bytes": int(of_source[0]), "tokens": int(of_source[1])}
                for source in sources
                for of_source in [sums[source.first_document + source.documents] - sums[source.first_document]]
            ],
            "document_bytes": histograms.power_histogram(text_bytes).model_dump(),
            "document_tokens": histograms.power_histogram(tokens).model_dump(),
        }


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    indexed = build.receipt(final_stage(build, shard), shard)
    counts, index = receipt.counts, indexed.counts
    removing = build.config.dedup.mode == "remove"
    removed = build.receipt(cuts_stage(build), shard).counts["removed_bytes"] if removing else 0
    text = ContentSum.parse(receipt.details["text_content"])
    whole = (
        []
        if removing
        else [Check("text", (("indexed", ContentSum.parse(indexed.details["content"])),), (("encoded", text),))]
    )
    return [
        *whole,
        Check("documents", (("indexed", index["documents_out"]),), (("tokenized", counts["documents_out"]),)),
        Check(
            "text bytes",
            (("indexed", index["text_bytes_out"]),),
            (("encoded", counts["text_bytes_encoded"]), ("removed", removed)),
        ),
    ]


def _flows(build: Build) -> dict[str, Flow]:
    documents, empty = build.total("tokenize", "documents_out"), build.total("tokenize", "documents_empty")
    short = build.total("tokenize", "documents_short") if build.config.selection.leaves_out() else 0
    lost = {name: count for name, count in (("empty", empty - short), ("too short", short)) if count}
    tokens, left_out = build.total("tokenize", "tokens"), build.total("tokenize", "tokens_short")
    return {
        "documents": Flow(into=documents, out=documents - empty, lost=lost),
        "text_bytes": text_flow(build, build.total("tokenize", "text_bytes_encoded")),
        "tokens": Flow(into=tokens + left_out, out=tokens, lost={"too short": left_out} if left_out else {}),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:

    shard = token_shard.open_token_shard(folder)
    recounting.require_ascending(folder / "ends", shard.ends)
    largest = max(
        (int(shard.tokens[at : at + recounting.BLOCK].max()) for at in range(0, len(shard.tokens), recounting.BLOCK)),
        default=0,
    )
    if largest >= shard.vocabulary_size:
        raise recounting.contradiction(folder / "tokens", f"ids below {shard.vocabulary_size:,}", largest)
    empty = int((np.diff(shard.ends, prepend=np.uint64(0)) == 0).sum())
    counts = {"documents_out": shard.documents, "documents_empty": empty, "tokens": len(shard.tokens)}
    ordinals = np.arange(shard.documents, dtype=np.uint64)
    content = recounting.records_content(shard.tokens, np.asarray(shard.ends), int(unit), ordinals)
    return Recount(counts, {"vocabulary": _stated_vocabulary(folder), "content": str(content)})


STAGE = Stage(
    "tokenize",
    version=4,
    after=("refine",),
    per_shard=True,
    units_of="download",
    work=Work(Settings, _identity, text_inputs, _run),
    recount=_recount,
    checks=_checks,
    rolled_up=lambda receipts: {key: first.details[key] for first in islice(receipts, 1) for key in ("vocabulary",)},
    gate=require_few_rejected,
    shown=Shown(flows=_flows),
)
