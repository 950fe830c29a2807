"""One dataset, one configuration: YAML in, a checked `DatasetConfig` out.

Rules of the file:

* every key is known; an unknown one is refused with the nearest valid key and its line,
* nothing that silently changes the dataset's bytes has a default (seed, tokenizer, what deduplication does),
* sizes are numbers with a unit: ``256MiB``, ``10GB``, or plain bytes,
* relative paths start at the root folder: the environment's CORPUSMILL_ROOT, else the current folder.

``corpusmill config example`` prints a complete commented file, ``corpusmill config check FILE`` validates one.
This module imports only the standard library, pydantic and YAML, because DAG files read configurations when parsed.
"""

from __future__ import annotations

import difflib
import os
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)

from corpusmill.addresses import without_credentials
from corpusmill.errors import ConfigError
from corpusmill.schedule import NAME_PATTERN, ScheduleConfig
from corpusmill.section import Section
from corpusmill.yaml_text import CONTROL, LONGEST_SHOWN, labelled, line_of, read_text, read_yaml, shown

EXAMPLE = Path(__file__).with_name("example.yaml")
LEAST_MINIMUM_BYTES = 7
FORMATS = ("webdataset", "numpy", "megatron", "nanoset")

MOST_SHOWN = 20  # errors of one configuration
# A scheduler counts a step's memory in GiB, ten times a shard's bytes for one of them, in 31 bits.
LARGEST_SIZE = 1 << 50
LARGEST_COUNT = 1 << 40


def _size(value: object, read: Callable[[object], ByteSize]) -> ByteSize:
    """ValueError for what pydantic's own reading of sizes lets escape: infinity, a list."""
    try:
        return read(value)
    except (OverflowError, TypeError) as error:
        raise ValueError("a size is a number with a unit, such as 256MiB or 10GB") from error


Bytes = Annotated[ByteSize, Field(gt=0, le=LARGEST_SIZE), WrapValidator(_size)]
Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT, strict=True)]
SPLIT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, float) or (isinstance(value, int) and value == 1) else value


Threshold = Annotated[
    str, Field(pattern=r"^(default|strict|0?\.\d*[1-9]\d*|1(\.0*)?)$"), BeforeValidator(_number_as_text)
]

# A configuration is copied into plans, receipts, logs and forms.
Location = Annotated[str, Field(min_length=1), AfterValidator(without_credentials)]


class SourceConfig(Section):
    """Where the text comes from."""

    paths: Annotated[list[Location], Field(min_length=1)]
    text_field: Annotated[str, Field(min_length=1)] = "text"
    id_field: Annotated[str, Field(min_length=1)] = "id"
    max_rejected_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    shard_bytes: Bytes = ByteSize(256 << 20)
    endpoint_url: Location | None = None
    stream: bool = False


class DedupConfig(Section):
    """Exact-substring deduplication over the whole dataset."""

    mode: Literal["remove", "annotate", "none"]
    minimum_bytes: Annotated[int, Field(le=1 << 20, strict=True)] | None = None
    keep: Literal["first_window", "every_string"] = "first_window"
    fuzzy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    annotate_key: Annotated[str, Field(min_length=1)] = "sa_remove_ranges"
    replace_existing: bool = False
    drop_empty: bool = False
    writeback: bool = True
    memory: Bytes = ByteSize(1 << 30)

    @field_validator("minimum_bytes")
    @classmethod
    def _minimum_leaves_a_character(cls, minimum_bytes: int | None) -> int | None:
        if minimum_bytes is not None and minimum_bytes < LEAST_MINIMUM_BYTES:
            raise ValueError(
                f"must be greater than or equal to {LEAST_MINIMUM_BYTES}, got {minimum_bytes}: a shorter range can lie"
                " between two characters of UTF-8, and nothing of it could be removed (500 is a common choice)"
            )
        return minimum_bytes

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DedupConfig:
        if self.mode != "none" and self.minimum_bytes is None:
            raise ValueError("minimum_bytes is required unless mode is none (500 is a common choice)")
        if self.keep == "every_string" and self.fuzzy_share is not None:
            raise ValueError("fuzzy_share removes text that keep: every_string promises to keep; give one of them")
        if self.drop_empty and self.mode != "remove":
            raise ValueError("drop_empty needs mode remove: no other mode empties a document")
        return self


class IndexConfig(Section):
    """How repeats are found: by anchors, or by suffix arrays, which stay as an infini-gram index."""

    method: Literal["anchors", "suffix_array"] = "anchors"
    unigram: bool = False

    @model_validator(mode="after")
    def _unigram_is_part_of_the_index(self) -> IndexConfig:
        if self.unigram and self.method != "suffix_array":
            raise ValueError("unigram is a file of the suffix array: it needs method suffix_array")
        return self


class ItemFieldsConfig(Section):
    """Under which keys a benchmark's rows have what; "": they do not have it."""

    question: Annotated[str, Field(min_length=1)] = "question"
    answer: str = "answer"
    passage: str = ""
    id: str = "id"


class BenchmarkConfig(Section):
    """A benchmark whose items the text must not hold: files of JSON lines or parquet, a row an item."""

    name: Annotated[str, Field(pattern=SPLIT_NAME)]
    path: Location
    endpoint_url: Location | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    fields: ItemFieldsConfig = ItemFieldsConfig()


class DecontaminationConfig(Section):
    """Documents that hold items of benchmarks, and what becomes of them."""

    benchmarks: Annotated[list[BenchmarkConfig], Field(min_length=1)]
    action: Literal["remove", "report"]
    threshold: Threshold = "default"
    seed_words: Annotated[int, Field(ge=3, le=64, strict=True)] = 5

    @model_validator(mode="after")
    def _names_tell_benchmarks_apart(self) -> DecontaminationConfig:
        names = [benchmark.name for benchmark in self.benchmarks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two benchmarks are called {twice}")
        return self


class TokenizerConfig(Section):
    """Which vocabulary turns text into ids, and which ids stand around documents (pipeline/tokens/special.py)."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^|\s]+$")]
    file: str | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    revision: str | None = None
    engine: Literal["auto", "gigatoken", "tiktoken", "tokenizers"] = "auto"
    batch_bytes: Bytes = ByteSize(2 << 20)
    pattern: str | None = None
    special_tokens: dict[str, Annotated[int, Field(ge=0, lt=1 << 32, strict=True)]] = {}
    eot: str | None = None
    bos: str | None = None
    pad: str | None = None
    parse_special: bool = False
    special_ids: Literal["tokenizer", "tokshuf"] = "tokenizer"

    def path(self) -> str | None:
        """Where the vocabulary lies, if the configuration says so: the file, or the name if that is a path."""
        return self.file or (self.name if self.name.endswith((".tiktoken", ".json", ".model")) else None)


class AuditConfig(Section):
    """How much of the dataset's own text is tokenized again by the reference library, and what must hold."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.005
    minimum_documents: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] = 1000
    bytes_per_token_band: Annotated[float, Field(gt=0, le=1)] = 0.2


class PackingConfig(Section):
    """How contexts are cut from documents (pipeline/tokens/packing.py)."""

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
            raise ValueError("overlap_tokens is for fit: cut with tail: pad only")
        if self.fit == "best_fit" and self.tail == "always_pad":
            raise ValueError("tail: always_pad is for fit: cut only; best fit pads every context where it must")
        return self


class FramingConfig(Section):
    """Which special tokens stand around the whole documents of Megatron and Nanoset (pipeline/export/framing.py)."""

    eod: bool = True
    bos: bool = False
    empty_documents: Literal["skip", "boundary", "eod"] = "skip"

    @model_validator(mode="after")
    def _options_agree(self) -> FramingConfig:
        if self.empty_documents == "eod" and not self.eod:
            raise ValueError("empty_documents: eod makes a document without tokens its EOD, so eod must be true")
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

    `tokenizer_eot` is the token that ends a text, if a file beside the tokenizer had to say so.
    """

    tokenizer_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tokenizer_revision: str = ""
    tokenizer_eot: str = ""

    def settings(self) -> dict[str, str]:
        """What of the lock can change a step's bytes."""
        return self.model_dump(exclude=None if self.tokenizer_eot else {"tokenizer_eot"})


class ShuffleConfig(Section):
    """The order of the exports: a global shuffle, or that of the source, where no other key of the section counts."""

    order: Literal["random", "source"] = "random"
    seed: Annotated[int, Field(ge=0, lt=1 << 64, strict=True)] | None = None
    memory: Bytes = ByteSize(256 << 20)
    cells: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = None
    significance: Annotated[float, Field(gt=0, lt=0.5)] = 0.001

    @model_validator(mode="after")
    def _random_order_has_a_seed(self) -> ShuffleConfig:
        if self.order == "random" and self.seed is None:
            raise ValueError("seed is required unless order is source: it decides the order")
        return self


class WebDatasetConfig(Section):
    """Tars of fixed-length contexts and a manifest (open_lm, DCLM)."""

    context_tokens: Annotated[int, Field(ge=2, le=LARGEST_COUNT, strict=True)] = 2049
    contexts_per_shard: Count = 8192
    exp_data: bool = False


class NumpyConfig(Section):
    """Token streams split into test and train: .npy shards (Jaxformer, build-nanogpt) or one .bin each (nanoGPT)."""

    tokens_per_shard: Count = 100_000_000
    layout: Literal["npy", "bin"] = "npy"
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test_shards: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] | None = None
    test_name: Annotated[str, Field(pattern=SPLIT_NAME)] | None = None
    train_name: Annotated[str, Field(pattern=SPLIT_NAME)] = "train"
    file_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_/.{}-]+\.npy$")] = "{split}/{split}_{number}.npy"
    number_digits: Annotated[int, Field(ge=1, le=12, strict=True)] = 4
    placeholders: bool = False
    checkpoints: bool = False

    @model_validator(mode="after")
    def _names_tell_files_apart(self) -> NumpyConfig:
        rest = self.file_name.replace("{split}", "").replace("{number}", "")
        if not {"{split}", "{number}"} <= {f"{{{part}}}" for part in re.findall(r"{(\w+)}", self.file_name)}:
            raise ValueError("file_name must hold {split} and {number}")
        if set(rest) & set("{}") or self.file_name.startswith("/") or ".." in rest:
            raise ValueError("file_name holds {split} and {number}, no other braces, no '..', and is a relative path")
        if self.split_names()[0] == self.split_names()[1]:
            raise ValueError("test_name and train_name are the same")
        if self.layout == "bin" and (self.test_shards is not None or self.checkpoints or self.placeholders):
            raise ValueError("layout bin is one file per split: test_shards, checkpoints, placeholders belong to npy")
        return self

    def split_names(self) -> tuple[str, str]:
        """(held-out, train): Jaxformer's writer says test, nanoGPT says val."""
        return self.test_name or ("val" if self.layout == "bin" else "test"), self.train_name

    def held_out(self) -> int | float:
        """How much is held out: a number of shards, or a share."""
        return self.test_share if self.test_shards is None else self.test_shards


class MegatronConfig(Section):
    """Indexed datasets: .bin and .idx (Megatron-LM, NeMo, GPT-NeoX)."""

    part_bytes: Bytes = ByteSize(10 * 10**9)


class NanosetConfig(Section):
    """datatrove .ds files (nanotron)."""

    file_bytes: Bytes = ByteSize(10 * 10**9)
    loss: bool = False
    sequence_tokens: Count = 2048


class ExportsConfig(Section):
    """Which training formats are written; a format is on when its section is present."""

    webdataset: WebDatasetConfig | None = None
    numpy: NumpyConfig | None = None
    megatron: MegatronConfig | None = None
    nanoset: NanosetConfig | None = None
    sample_documents: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_key_means_defaults(cls, values: Any) -> Any:
        # `megatron:` with nothing below it is YAML's null; whoever writes the key wants the format.
        return (
            {key: {} if value is None and key in FORMATS else value for key, value in values.items()}
            if isinstance(values, dict)
            else values
        )

    @model_validator(mode="after")
    def _at_least_one(self) -> ExportsConfig:
        if not self.formats():
            raise ValueError(f"at least one export is required: {', '.join(FORMATS)}")
        if self.sample_documents is not None and self.megatron is None and self.nanoset is None:
            raise ValueError("sample_documents is a sample of whole documents: it needs megatron or nanoset")
        return self

    def formats(self) -> list[str]:
        """The names of the formats that are on, in a fixed order."""
        return [name for name in FORMATS if getattr(self, name) is not None]


class DestinationConfig(Section):
    """A place that receives the finished dataset: a folder, s3://bucket/prefix or gs://bucket/prefix."""

    path: Location
    endpoint_url: Location | None = None


class DatasetConfig(Section):
    """Everything about one dataset."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    source: SourceConfig
    dedup: DedupConfig
    index: IndexConfig = IndexConfig()
    decontamination: DecontaminationConfig | None = None
    tokenizer: TokenizerConfig
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
    lock: LockConfig | None = None
    work_folder: str = "work"
    dag: Annotated[ScheduleConfig | None, Field(exclude=True)] = None  # never in a dump: it cannot change a byte

    @field_validator("work_folder")
    @classmethod
    def _work_folder_is_local(cls, work_folder: str) -> str:
        if "://" in work_folder:
            raise ValueError(
                "work_folder is a folder of this machine or of a file system that all workers mount, not a bucket;"
                " sources and destinations may be buckets"
            )
        return work_folder

    @model_validator(mode="after")
    def _destinations_differ(self) -> DatasetConfig:
        places = [(_place(destination.path), destination.endpoint_url) for destination in self.destinations]
        twice = next((place for number, (place, _) in enumerate(places) if places[number] in places[:number]), None)
        if twice is not None:
            raise ValueError(f"two destinations have the same path: {twice}")
        return self

    @model_validator(mode="after")
    def _waits_for_others(self) -> DatasetConfig:
        if self.dag and self.name in self.dag.after:
            raise ValueError("dag.after holds the dataset itself: each build of it would start the next")
        return self

    @model_validator(mode="after")
    def _sample_is_uniform(self) -> DatasetConfig:
        if self.exports.sample_documents is not None and self.shuffle.order == "source":
            raise ValueError(
                "exports.sample_documents are the first documents, a uniform sample of a random order alone;"
                " leave it out, or set shuffle.order: random"
            )
        return self

    @model_validator(mode="after")
    def _empty_documents_have_a_place(self) -> DatasetConfig:
        kept = self.framing.empty_documents
        if kept == "boundary" and (self.exports.nanoset or self.exports.numpy):
            raise ValueError("framing.empty_documents: only megatron can hold a document without tokens as a boundary")
        if self.selection.leaves_out() and (kept != "skip" or self.packing.empty_documents == "keep"):
            raise ValueError("selection leaves documents without tokens; they are skipped, so empty_documents must be")
        return self


def root_folder() -> Path:
    """Where relative paths start: CORPUSMILL_ROOT, else the current folder."""
    return Path(os.environ.get("CORPUSMILL_ROOT") or Path.cwd()).resolve()


def absolute(path: str) -> str:
    """A path of the configuration made absolute; s3:// locations are returned as they are."""
    return path if "://" in path else str(root_folder() / Path(path).expanduser())


def _place(path: str) -> str:
    """A destination without what says the same in another way: `/out/`, `/out/.` and `/x/../out` are `/out`."""
    return path.rstrip("/") if "://" in path else os.path.normpath(path)


def work_of(config: DatasetConfig) -> Path:
    """The folder in which a dataset's steps, receipts and plans lie."""
    return Path(absolute(config.work_folder)) / config.name


def load_config(path: str | Path) -> DatasetConfig:
    """Read and check one configuration file; ConfigError names the file, the line, the key and the mend."""
    return parse_config(read_text(Path(path)), where=str(path))


def parse_config(text: str, *, where: str) -> DatasetConfig:
    """Check YAML text; `where` names it in messages. ConfigError, and no other, whatever the text is."""
    values, node = read_yaml(text, where=where)
    return check_config(values, where=where, node=node)


def check_config(values: Any, *, where: str, node: yaml.Node | None = None) -> DatasetConfig:
    """Check plain values (from YAML, a web form, a test); ConfigError, and no other, whatever they are."""
    if not isinstance(values, dict):
        raise ConfigError(
            "the configuration is not a mapping of keys to values",
            where=where,
            got="nothing" if values is None else type(values).__name__,
            next_step="corpusmill config example prints a complete one",
        )
    try:
        problems = _unseen(values, node)
        if not problems:
            return DatasetConfig.model_validate(values)
    except ValidationError as error:
        problems = [_explain(dict(problem), node) for problem in error.errors()]
    except Exception as error:  # a validator may raise anything; one file must not take the others with it
        raise ConfigError("the configuration cannot be checked", where=where, got=type(error).__name__) from error
    more = (("more", f"{len(problems) - MOST_SHOWN:,} other errors"),) if len(problems) > MOST_SHOWN else ()
    raise ConfigError(
        f"the configuration has {len(problems)} error{'s' if len(problems) > 1 else ''}",
        where=where,
        details=(*problems[:MOST_SHOWN], *more),
        next_step="corpusmill config example prints a complete one with every key explained",
    )


def _unseen(values: Any, node: yaml.Node | None) -> list[tuple[str, str]]:
    """(key path with its line, sentence) for every text that holds a control character."""
    signs = [(keys, sign[0]) for keys, text in _texts(values, ()) if (sign := CONTROL.search(text))]
    return [
        (labelled(keys, line_of(node, keys)), f"may not hold the control character U+{ord(sign):04X}")
        for keys, sign in signs
    ]


def _texts(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text among plain values, those of keys too, with the keys that lead to it."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key, (*keys, key))
            yield from _texts(inner, (*keys, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _texts(inner, (*keys, position))


def _explain(problem: dict[str, Any], node: yaml.Node | None) -> tuple[str, str]:
    """(key path with its line, sentence) for one pydantic error."""
    location = tuple(problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        valid = _keys_at(location[:-1])
        near = difflib.get_close_matches(str(location[-1])[:LONGEST_SHOWN], valid, n=1)
        message = f"unknown key; did you mean {near[0]}?" if near else f"unknown key; valid keys: {', '.join(valid)}"
    elif problem["type"] == "missing":
        message = "required, and has no default"
    elif problem["type"] not in {"value_error"}:
        message = f"{message}, got {shown(problem['input'])}"
    return labelled(location, line_of(node, location)), message


def _keys_at(location: tuple[Any, ...]) -> list[str]:
    """The valid keys of the section at a path of keys and list positions."""
    model: Any = DatasetConfig
    for part in location:
        if isinstance(part, str):
            model = _section_in(model.model_fields[part].annotation)
    return sorted(model.model_fields)


def _section_in(annotation: Any) -> Any:
    """The Section inside an annotation such as `list[Section]` or `Section | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, Section) else None
    return next((found for item in typing.get_args(annotation) if (found := _section_in(item))), None)
