"""The sections for what is read, dropped, tokenized and packed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import ByteSize, ConfigDict, Field, field_validator, model_validator

from corpusmill.config.values import (
    LARGEST_COUNT,
    SPLIT_NAME,
    Arguments,
    Bytes,
    Count,
    Location,
    Section,
    Threshold,
    Used,
)
from corpusmill.errors import InvalidValueError
from corpusmill.storage.locations import Endpoint

LEAST_MINIMUM_BYTES = 7
ALL_BUT_ONE = math.nextafter(1, 0)  # the largest share of rows with which one of any number must match
FORGOTTEN = "forgotten"  # the drop reason of documents on the list of `forget`
LICENSE = r"^[a-z0-9][a-z0-9.+-]*$"  # as the Hub names them: odc-by, cc-by-4.0, other
SHA256 = r"^[0-9a-f]{64}$"
TOKENIZER_NAME = r"^[^|\s]+$"
TOKENIZER_LIBRARY = "^(tiktoken|sentencepiece)?$"
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$"  # ISO 639-1 or 639-3


class InStore(Section):
    """Where files are that a store may hold, and how it is asked for them."""

    endpoint_url: Location | None = None
    anonymous: bool | None = None
    requester_pays: bool | None = None

    @property
    def endpoint(self) -> str | None:
        """The endpoint, and how requests to it are made, for storage.open_store."""
        if not (self.anonymous or self.requester_pays):
            return self.endpoint_url
        return Endpoint(
            self.endpoint_url or "", anonymous=bool(self.anonymous), requester_pays=bool(self.requester_pays)
        )

    @model_validator(mode="after")
    def _someone_pays(self) -> Self:
        if self.anonymous and self.requester_pays:
            raise InvalidValueError(
                "config.anonymous_pays: anonymous requests have no account that could pay: use only one of anonymous"
                " and requester_pays"
            )
        return self


class SourceConfig(InStore):
    """Where the text comes from."""

    paths: Annotated[list[Location], Field(min_length=1)]
    text_field: Annotated[str, Field(min_length=1)] = "text"
    id_field: Annotated[str, Field(min_length=1)] = "id"
    max_rejected_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    shard_bytes: Bytes = ByteSize(256 << 20)
    stream: bool = False


class ReferenceConfig(InStore):
    """Text that counts as having come before the dataset's (docs/against.md): a finished dataset, or any source."""

    path: Location
    text_field: Annotated[str, Field(min_length=1)] | None = None
    shard_bytes: Bytes = ByteSize(256 << 20)


class DedupConfig(Section):
    """Exact-substring deduplication over the whole dataset, and against text that is not part of it."""

    mode: Literal["remove", "annotate", "none"]
    minimum_bytes: Annotated[int, Field(le=1 << 20, strict=True)] | None = None
    against: Annotated[list[ReferenceConfig], Field(min_length=1)] | None = None
    keep: Literal["first_window", "every_string"] = "first_window"
    fuzzy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    annotate_key: Annotated[str, Field(min_length=1)] = "sa_remove_ranges"
    replace_existing: bool = False
    drop_empty: bool = False
    writeback: bool = True
    memory: Bytes = ByteSize(1 << 30)

    @property
    def window_bytes(self) -> int:
        """`minimum_bytes`; ValueError for mode none, which needs none."""
        if self.minimum_bytes is None:
            raise ValueError("dedup.mode none compares no windows")
        return self.minimum_bytes

    @field_validator("against", mode="before")
    @classmethod
    def _path_alone_is_a_reference(cls, against: object) -> object:
        if not isinstance(against, list):
            return against
        return [{"path": reference} if isinstance(reference, str) else reference for reference in against]

    @field_validator("minimum_bytes")
    @classmethod
    def _minimum_leaves_a_character(cls, minimum_bytes: int | None) -> int | None:
        if minimum_bytes is not None and minimum_bytes < LEAST_MINIMUM_BYTES:
            raise InvalidValueError(
                f"config.minimum_bytes_too_small: must be at least {LEAST_MINIMUM_BYTES}, got"
                f" {minimum_bytes}: a shorter range may contain no whole character of UTF-8, so nothing could be"
                " removed (500 is a common choice)"
            )
        return minimum_bytes

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DedupConfig:
        if self.mode != "none" and self.minimum_bytes is None:
            raise InvalidValueError(
                "config.minimum_bytes_missing: minimum_bytes is required unless mode is none (500 is a common choice)"
            )
        times = Counter(reference.path for reference in self.against or ())
        if twice := next((path for path, count in times.items() if count > 1), ""):
            raise InvalidValueError(f"config.against_twice: against names {twice} twice")
        if self.keep == "every_string" and self.fuzzy_share is not None:
            raise InvalidValueError(
                "config.fuzzy_share_with_every_string: fuzzy_share removes text that keep: every_string keeps; use"
                " only one of them"
            )
        if self.drop_empty and self.mode != "remove":
            raise InvalidValueError(
                "config.drop_empty_without_remove: drop_empty needs mode remove: no other mode empties a document"
            )
        return self


class StepConfig(Section):
    """A custom step: a function or class that keeps, drops or changes documents (docs/steps.md)."""

    model_config = ConfigDict(serialize_by_alias=True)

    use: Used
    before: Literal["index", "writeback"] = "index"
    settings: Arguments = {}
    name: Annotated[str, Field(pattern=SPLIT_NAME)] | None = None
    fields: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] | None = None
    version: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] = 1
    on_error: Literal["fail", "keep", "drop"] = "fail"
    seconds: Annotated[int, Field(ge=1, le=86_400, strict=True)] = 60

    @property
    def called(self) -> str:
        """The step's name: the one given, else that of its function or class."""
        return self.name or self.use.partition(":")[2]


class DecisionsConfig(InStore):
    """Decisions about documents (docs/steps.md): made elsewhere, rows of JSON lines, CSV, parquet or Arrow; or by the
    documents' own fields, without a path.
    """

    name: Annotated[str, Field(pattern=SPLIT_NAME)]
    path: Location | None = None
    key: Annotated[str, Field(min_length=1)] | tuple[str, str] = "id"
    keep: Annotated[str, Field(min_length=1)]
    undecided: Literal["keep", "drop"] = "keep"
    max_unmatched_share: Annotated[float, Field(ge=0, le=1)] = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of an id, or those of a file and of a line in it."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        of_rows = ("endpoint_url", "anonymous", "requester_pays", "key", "max_unmatched_share")
        told = [name for name in of_rows if getattr(self, name) != type(self).model_fields[name].default]
        if self.path is None and told:
            raise InvalidValueError(
                f"config.decisions_without_path: {told[0]} needs a path: decisions without one are by the documents'"
                " own fields"
            )
        return self


class ForgetConfig(InStore):
    """Documents that no build may deliver any more: a list of takedowns and opt-outs (docs/forget.md)."""

    path: Location
    key: Annotated[str, Field(min_length=1)] | tuple[str, str] = "id"
    copies: Literal["keep", "also"]
    max_unmatched_share: Annotated[float, Field(ge=0, le=1)] | None = None

    def decisions(self) -> DecisionsConfig:
        """The list as decisions that no document survives: a row without a key is refused, and by default a list of
        which no row matches.
        """
        return DecisionsConfig(
            name=FORGOTTEN,
            path=self.path,
            endpoint_url=self.endpoint_url,
            anonymous=self.anonymous,
            requester_pays=self.requester_pays,
            key=self.key,
            keep="false",
            max_unmatched_share=ALL_BUT_ONE if self.max_unmatched_share is None else self.max_unmatched_share,
        )


class ItemFieldsConfig(Section):
    """The keys of a benchmark's rows; "" if they have no such field."""

    question: Annotated[str, Field(min_length=1)] = "question"
    answer: str = "answer"
    passage: str = ""
    id: str = "id"


class BenchmarkConfig(InStore):
    """A benchmark whose items the text must not hold: files of JSON lines or parquet, a row an item."""

    name: Annotated[str, Field(pattern=SPLIT_NAME)]
    path: Location
    sha256: Annotated[str, Field(pattern=SHA256)] | None = None
    fields: ItemFieldsConfig = ItemFieldsConfig()


class DecontaminationConfig(Section):
    """Which benchmarks to search for, and what to do with documents that hold their items."""

    benchmarks: Annotated[list[BenchmarkConfig], Field(min_length=1)]
    action: Literal["remove", "cut", "annotate", "report"]
    threshold: Threshold = "default"
    seed_words: Annotated[int, Field(ge=3, le=64, strict=True)] = 5
    annotate_key: Annotated[str, Field(min_length=1)] = "contamination"

    @model_validator(mode="after")
    def _benchmark_names_are_unique(self) -> DecontaminationConfig:
        names = [benchmark.name for benchmark in self.benchmarks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValueError(f"config.benchmark_name_twice: two benchmarks are called {twice}")
        return self

    def changes_text(self) -> bool:
        """Whether the action changes the text that later stages see."""
        return self.action in {"remove", "cut"}


class NearDuplicatesConfig(Section):
    """Which documents count as copies of an earlier one but for small differences, and what to do with them."""

    similarity: Annotated[float, Field(ge=0.3, le=1)] = 0.8
    words: Annotated[int, Field(ge=1, le=64, strict=True)] = 5
    action: Literal["remove", "annotate", "report"]
    within: Literal["dataset", "source"] = "dataset"
    most_removed: Annotated[float, Field(ge=0, le=1)] = 0.6
    annotate_key: Annotated[str, Field(min_length=1)] = "near_duplicate_of"


ALIASES = {
    "gpt2": "r50k_base",
    "gpt-2": "r50k_base",
    "gpt3": "r50k_base",
    "gpt-3": "r50k_base",
    "gpt4": "cl100k_base",
    "gpt-4": "cl100k_base",
    "gpt4o": "o200k_base",
    "gpt-4o": "o200k_base",
}
"""Models whose tokenizers are published encodings."""


class TokenizerConfig(Section):
    """Which vocabulary turns text into ids, and which ids are put around documents (corpusmill/tokens/special.py)."""

    name: Annotated[str, Field(pattern=TOKENIZER_NAME)]
    file: str | None = None
    sha256: Annotated[str, Field(pattern=SHA256)] | None = None
    revision: str | None = None
    engine: Literal["auto", "gigatoken", "tiktoken", "tokenizers", "sentencepiece"] = "auto"
    batch_bytes: Bytes = ByteSize(2 << 20)
    pattern: str | None = None
    special_tokens: dict[str, Annotated[int, Field(ge=0, lt=1 << 32, strict=True)]] = {}
    eot: str | None = None
    bos: str | None = None
    pad: str | None = None
    parse_special: bool = False
    special_ids: Literal["tokenizer", "tokshuf"] = "tokenizer"

    def path(self) -> str | None:
        """The vocabulary's path, if the configuration has one: the file, or the name if that is a path."""
        return self.file or (self.name if self.name.endswith((".tiktoken", ".json", ".model")) else None)


class AuditConfig(Section):
    """How much of the dataset's own text is tokenized again by the reference library, and what must hold."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.005
    minimum_documents: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] = 1000
    bytes_per_token_band: Annotated[float, Field(gt=0, le=1)] = 0.2


class PackingConfig(Section):
    """How contexts are cut from documents (corpusmill/tokens/records.py)."""

    stream: Literal["shard", "file"] = "shard"
    eot: Literal["after", "before", "around"] = "after"
    bos: bool = False
    fit: Literal["cut", "best_fit"] = "cut"
    overlap_tokens: Annotated[int, Field(ge=0, le=1, strict=True)] = 0
    tail: Literal["pad", "always_pad"] = "pad"
    empty_documents: Literal["skip", "keep"] = "skip"

    @model_validator(mode="after")
    def _options_agree(self) -> PackingConfig:
        if self.overlap_tokens and (self.fit == "best_fit" or self.tail == "always_pad"):
            raise InvalidValueError("config.overlap_with_other_fit: overlap_tokens needs fit: cut and tail: pad")
        if self.fit == "best_fit" and self.tail == "always_pad":
            raise InvalidValueError(
                "config.always_pad_with_best_fit: tail: always_pad needs fit: cut; best_fit pads every context as"
                " needed"
            )
        return self


class FramingConfig(Section):
    """Which special tokens are put around the whole documents of Megatron and Nanoset (export/framing.py)."""

    eod: bool = True
    bos: bool = False
    empty_documents: Literal["skip", "boundary", "eod"] = "skip"

    @model_validator(mode="after")
    def _options_agree(self) -> FramingConfig:
        if self.empty_documents == "eod" and not self.eod:
            raise InvalidValueError(
                "config.eod_of_empty_documents: empty_documents: eod writes only EOD for a document without tokens, so"
                " eod must be true"
            )
        return self


class SelectionConfig(Section):
    """Which documents are long enough to be exported; by default all are."""

    minimum_bytes: Count | None = None
    minimum_tokens: Count | None = None

    def leaves_out(self) -> bool:
        """Whether any document can be too short."""
        return self.minimum_bytes is not None or self.minimum_tokens is not None


class EstimateConfig(Section):
    """How large a sample estimates a build before it runs: bytes of the source files as stored, compressed or not."""

    sample_bytes: Bytes = ByteSize(64 << 20)


class LockConfig(Section):
    """What the tokenizer was when the configuration was locked; `corpusmill config lock` writes it.

    `tokenizer_eot` is the token that ends a text, if it was read from a file beside the tokenizer; `tokenizer_library`
    the library that defines the ids, if the file's name does not tell it.
    """

    tokenizer_sha256: Annotated[str, Field(pattern=SHA256)]
    tokenizer_revision: str = ""
    tokenizer_eot: str = ""
    tokenizer_library: Annotated[str, Field(pattern=TOKENIZER_LIBRARY)] = ""

    def settings(self) -> dict[str, str]:
        """The part of the lock that can change a step's bytes."""
        later = {"tokenizer_eot", "tokenizer_library"}  # only where they say something, so that older locks stay valid
        return self.model_dump(exclude={key for key in later if not getattr(self, key)})


class CardSource(Section):
    """A source, as the card names it."""

    name: Annotated[str, Field(min_length=1)]
    license: Annotated[str, Field(min_length=1)] | None = None
    url: Location | None = None


class CardConfig(Section):
    """What the dataset's card states beyond what can be counted."""

    license: Annotated[str, Field(pattern=LICENSE)] | None = None
    languages: Annotated[list[Annotated[str, Field(pattern=LANGUAGE)]], Field(min_length=1)] | None = None
    sources: Annotated[list[CardSource], Field(min_length=1)] | None = None
