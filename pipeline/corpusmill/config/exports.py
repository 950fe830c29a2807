"""The sections for the shuffle, the formats and the destinations."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ByteSize, Field, model_validator

from corpusmill.config.values import LARGEST_COUNT, SPLIT_NAME, Bytes, Count, Location, Section
from corpusmill.errors import InvalidValueError

SHARD_NAME = r"^[A-Za-z0-9_/.{}-]+\.(npy|bin)$"


class ShuffleConfig(Section):
    """The order of the exports: a global shuffle, or source order, which ignores the other keys of the section."""

    order: Literal["random", "source"] = "random"
    seed: Annotated[int, Field(ge=0, lt=1 << 64, strict=True)] | None = None
    memory: Bytes = ByteSize(256 << 20)
    cells: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = None
    significance: Annotated[float, Field(gt=0, lt=0.5)] = 0.001

    @model_validator(mode="after")
    def _random_order_has_a_seed(self) -> ShuffleConfig:
        if self.order == "random" and self.seed is None:
            raise InvalidValueError("config.seed_missing: seed is required unless order is source: it sets the order")
        return self


class FormatSection(Section):
    """A format's settings. `holds`: the records in its files, `beside`: those that are shuffled beside them
    (shuffle/stages/scatter.py); `readers` and `files`, for people.
    """

    holds: ClassVar[Literal["documents", "contexts", "unpadded", "texts"]] = "documents"
    beside: ClassVar[Literal["", "pieces"]] = ""
    readers: ClassVar[str]
    files: ClassVar[str]


class WebDatasetConfig(FormatSection):
    """Tars of fixed-length contexts and a manifest (open_lm, DCLM)."""

    holds = "contexts"
    readers = "open_lm and webdataset"
    files = "tars of contexts, for open_lm and webdataset"

    context_tokens: Annotated[int, Field(ge=2, le=LARGEST_COUNT, strict=True)] = 2049
    contexts_per_shard: Count = 8192
    exp_data: bool = False


HEADED = {"llmc": 1_073_739_776, "llama3": (1 << 31) - 1, "automodel": (1 << 31) - 1}
"""Layouts of `.bin` shards behind a header -> the most tokens of a shard: one read call of modded-nanogpt returns no
more than 2^31 - 4096 bytes, and the header counts tokens in an int32.
"""


class NumpyConfig(FormatSection):
    """Token streams split into test and train: .npy shards (Jaxformer, build-nanogpt), one .bin each (nanoGPT), or .bin
    shards behind a header (llm.c, modded-nanogpt; NeMo AutoModel).
    """

    readers = "Jaxformer and nanoGPT loaders"
    files = ".npy shards of tokens, for Jaxformer and nanoGPT"

    tokens_per_shard: Count = 100_000_000
    layout: Literal["npy", "bin", "llmc", "llama3", "automodel"] = "npy"
    # Left out of dumps where they are not asked for: fingerprints of datasets from before them stay.
    merge_rest: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    bos_index: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test_shards: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] | None = None
    test_name: Annotated[str, Field(pattern=SPLIT_NAME)] | None = None
    train_name: Annotated[str, Field(pattern=SPLIT_NAME)] = "train"
    file_name: Annotated[str, Field(pattern=SHARD_NAME)] = "{split}/{split}_{number}.npy"
    number_digits: Annotated[int, Field(ge=1, le=12, strict=True)] = 4
    placeholders: bool = False
    checkpoints: bool = False

    @model_validator(mode="before")
    @classmethod
    def _headed_shards_are_numbered_as_their_writers_do(cls, values: Any) -> Any:
        headed = isinstance(values, dict) and values.get("layout") in tuple(HEADED)  # of any type
        return {"number_digits": 6, **values} if headed else values

    @model_validator(mode="after")
    def _file_names_are_unique(self) -> NumpyConfig:
        rest = self.file_name.replace("{split}", "").replace("{number}", "")
        if not {"{split}", "{number}"} <= {f"{{{part}}}" for part in re.findall(r"{(\w+)}", self.file_name)}:
            raise InvalidValueError("config.file_name_without_number: file_name must hold {split} and {number}")
        if set(rest) & set("{}") or self.file_name.startswith("/") or ".." in rest:
            raise InvalidValueError(
                "config.file_name_malformed: file_name holds {split} and {number}, no other braces, no '..', and is a"
                " relative path"
            )
        if self.split_names()[0] == self.split_names()[1]:
            raise InvalidValueError("config.split_names_equal: test_name and train_name must differ")
        if self.layout == "bin" and self.test_shards is not None:
            raise InvalidValueError("config.bin_layout: layout bin is one file per split: it has no test_shards")
        if self.layout != "npy" and (self.checkpoints or self.placeholders):
            raise InvalidValueError("config.npy_layout: checkpoints and placeholders need layout npy")
        if self.layout == "npy" and not self.file_name.endswith(".npy"):
            raise InvalidValueError("config.file_name_ending: files of layout npy end in .npy")
        if self.merge_rest and self.layout not in HEADED:
            raise InvalidValueError(f"config.merge_rest_layout: merge_rest is for layouts {', '.join(HEADED)}")
        if self.bos_index and self.layout != "automodel":
            raise InvalidValueError("config.bos_index_layout: bos_index is for layout automodel")
        if self.tokens_per_shard > (most := HEADED.get(self.layout, LARGEST_COUNT) >> self.merge_rest):
            raise InvalidValueError(
                f"config.shard_too_large: a shard of layout {self.layout} has at most {most:,} tokens"
            )
        return self

    def pattern(self) -> str:
        """file_name with the ending of the layout."""
        return (
            self.file_name
            if self.layout == "npy"
            else self.file_name.removesuffix(".npy").removesuffix(".bin") + ".bin"
        )

    def split_names(self) -> tuple[str, str]:
        """(held-out, train): Jaxformer calls the first test, nanoGPT and llm.c val."""
        return self.test_name or ("test" if self.layout == "npy" else "val"), self.train_name

    def held_out(self) -> int | float:
        """How much is held out: a number of shards, or a share."""
        return self.test_share if self.test_shards is None else self.test_shards


class MegatronConfig(FormatSection):
    """Indexed datasets: .bin and .idx (Megatron-LM, NeMo, GPT-NeoX)."""

    readers = "Megatron-LM, NeMo and GPT-NeoX"
    files = ".bin and .idx, for Megatron-LM, NeMo, GPT-NeoX"

    part_bytes: Bytes = ByteSize(10 * 10**9)


class NanosetConfig(FormatSection):
    """datatrove .ds files (nanotron)."""

    readers = "nanotron and datatrove"
    files = ".ds, for nanotron and datatrove"

    file_bytes: Bytes = ByteSize(10 * 10**9)
    loss: bool = False
    sequence_tokens: Count = 2048


OLMO_TOKENS = 3 << 30
"""The most tokens of a file for OLMo-core, on average: from 2^32 on it is refused (export/olmo.py), and some files get
longer documents than others.
"""


class OlmoConfig(FormatSection):
    """Raw ids in .npy files without a header, and their documents in .csv.gz (OLMo-core, MaxText).

    Without `file_tokens` files are cut where the parts of Megatron or Nanoset are, and share their tokens; else after
    536,870,912 tokens. They are cut between documents: a longer document makes a longer file.
    """

    readers = "OLMo-core and MaxText"
    files = "raw ids and .csv.gz, for OLMo-core"

    file_tokens: Annotated[int, Field(ge=1, le=OLMO_TOKENS, strict=True)] | None = None
    names: Literal["dolma", "open_instruct"] = "dolma"
    offsets: bool = False


LARGEST_LIST_COLUMN = (1 << 31) - 1  # values of a list column in one row group: pyarrow's offsets are int32
Column = Literal["input_ids", "labels", "attention_mask", "loss_mask", "position_ids", "seq_lengths", "seq_start_id"]


class ParquetIdsConfig(FormatSection):
    """Ids in parquet. `loss_mask` marks the token (SkyRL), or the position that predicts it (Megatron-Bridge)."""

    readers = "Trainer, TRL, Axolotl and SkyRL"

    columns: Annotated[tuple[Column, ...], Field(min_length=1)] = ("input_ids",)
    loss_mask: Literal["token", "label"] = "token"
    file_bytes: Bytes = ByteSize(10**9)
    rows_per_group: Annotated[int, Field(ge=1, le=1 << 20, strict=True)] = 1024

    @model_validator(mode="after")
    def _columns_have_ids_and_are_unique(self) -> ParquetIdsConfig:
        if self.columns[0] != "input_ids" or len(set(self.columns)) < len(self.columns):
            raise InvalidValueError("config.parquet_columns: columns begin with input_ids, and name none twice")
        return self

    def rows(self) -> dict[str, Any]:
        """What its writer and its reader take."""
        return self.model_dump(mode="json", include={"columns", "loss_mask", "rows_per_group"})


class ParquetDocumentsConfig(ParquetIdsConfig):
    """Ids in parquet, a document a row (Trainer, TRL, Axolotl, SkyRL, MaxText)."""

    files = "ids in parquet, for Trainer, TRL, Axolotl"


class ParquetContextsConfig(ParquetIdsConfig):
    """Ids in parquet, a packed context a row, never padded (Trainer, TRL, Megatron-Bridge)."""

    holds = "unpadded"
    beside = "pieces"
    files = "contexts in parquet, for Trainer, TRL"

    context_tokens: Annotated[int, Field(ge=2, le=LARGEST_COUNT, strict=True)] = 2048

    @property
    def file_rows(self) -> int:
        """Contexts of a full file; ids have 4 bytes."""
        return max(1, int(self.file_bytes) // (self.context_tokens * 4))

    @model_validator(mode="after")
    def _row_groups_can_be_written(self) -> ParquetContextsConfig:
        ids = min(self.rows_per_group, self.file_rows) * self.context_tokens
        if ids > LARGEST_LIST_COLUMN:
            rows = LARGEST_LIST_COLUMN // self.context_tokens
            lower = f"rows_per_group to {rows:,}" if rows else f"context_tokens to {LARGEST_LIST_COLUMN:,}"
            raise InvalidValueError(
                f"config.parquet_group_too_large: a row group of {ids:,} ids has more than a list column of parquet"
                f" holds, {LARGEST_LIST_COLUMN:,}: lower {lower} or less"
            )
        return self


class ParquetTextConfig(FormatSection):
    """Shuffled text in parquet, a document a row, the last file held out (nanochat, datasets)."""

    holds = "texts"
    readers = "nanochat and datasets"
    files = "shuffled text in parquet, for nanochat, datasets"

    groups_per_file: Count = 64
    held_out_groups: Count = 8
    rows_per_group: Annotated[int, Field(ge=1, le=1 << 20, strict=True)] = 1024

    def rows(self) -> dict[str, Any]:
        """What its writer takes."""
        return {"rows_per_group": self.rows_per_group}


SECTIONS: dict[str, type[FormatSection]] = {
    "webdataset": WebDatasetConfig,
    "numpy": NumpyConfig,
    "megatron": MegatronConfig,
    "nanoset": NanosetConfig,
    "olmo": OlmoConfig,
    "parquet_documents": ParquetDocumentsConfig,
    "parquet_contexts": ParquetContextsConfig,
    "parquet_text": ParquetTextConfig,
}
FORMATS = tuple(SECTIONS)


class ExportsConfig(Section):
    """Which training formats are written; a format is on when its section is present."""

    webdataset: WebDatasetConfig | None = None
    numpy: NumpyConfig | None = None
    megatron: MegatronConfig | None = None
    nanoset: NanosetConfig | None = None
    # Left out of dumps where they are not asked for: fingerprints of datasets from before these formats stay.
    olmo: Annotated[OlmoConfig | None, Field(exclude_if=lambda value: value is None)] = None
    parquet_documents: Annotated[ParquetDocumentsConfig | None, Field(exclude_if=lambda value: value is None)] = None
    parquet_contexts: Annotated[ParquetContextsConfig | None, Field(exclude_if=lambda value: value is None)] = None
    parquet_text: Annotated[ParquetTextConfig | None, Field(exclude_if=lambda value: value is None)] = None
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
            raise InvalidValueError(f"config.no_export: at least one export is required: {', '.join(FORMATS)}")
        if self.sample_documents is not None and self.megatron is None and self.nanoset is None:
            raise InvalidValueError(
                "config.sample_without_documents: sample_documents samples whole documents: it needs megatron or"
                " nanoset"
            )
        return self

    def formats(self) -> list[str]:
        """The names of the formats that are on, in a fixed order."""
        return [name for name in FORMATS if getattr(self, name) is not None]

    def context_tokens(self) -> dict[str, int]:
        """Tokens of a context, by the kind of record that holds contexts."""
        wanted = (self.webdataset, self.parquet_contexts)
        return {section.holds: section.context_tokens for section in wanted if section is not None}


class DestinationConfig(Section):
    """A place that receives the dataset: a folder, s3://bucket/prefix, gs://bucket/prefix, hf://datasets/owner/name."""

    path: Location
    endpoint_url: Location | None = None
