"""The web form: a flat list of typed fields, and the dataset configuration that they stand for.

    fields (one line of the form each)  --config_from_form-->  DatasetConfig  --form_from_config-->  fields

The orchestrator's form knows no nesting, so every configuration key has one field here. `FIELDS` carries what the form
shows: section, title, help and a JSON schema that refuses plainly wrong values before a run starts. What the schema
lets through is checked by `pipeline.config`, with the same words as on the command line.

Invariant: ``config_from_form(form_from_config(config)) == config`` for every configuration the form can show.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.config import (
    FORMATS,
    DatasetConfig,
    MegatronConfig,
    NanosetConfig,
    NumpyConfig,
    Section,
    WebDatasetConfig,
    check_config,
)
from pipeline.errors import ConfigError

FORM = "the trigger form"
ENDPOINT_MARK = " | "  # between a destination's path and its endpoint URL, in one line of the form
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP][iI]?)?[bB]?\s*$"
# Keys without a field: a configuration in which they differ from their defaults is built with corpusmill build.
NOT_SHOWN = (
    *(("tokenizer", key) for key in ("revision", "pattern", "special_tokens", "eot", "bos", "pad", "parse_special")),
    ("tokenizer", "special_ids"),
    ("tokenizer", "batch_bytes"),
    ("audit",),
    ("packing",),
    ("estimate",),
    ("lock",),
)
SIZE_UNITS = (
    *((f"{letter}iB", 1 << (10 * power)) for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))),
    *((f"{letter}B", 1000**power) for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))),
)
FORMAT_DEFAULTS: dict[str, Section] = {
    "webdataset": WebDatasetConfig(),
    "numpy": NumpyConfig(),
    "megatron": MegatronConfig(),
    "nanoset": NanosetConfig(),
}


@dataclass(frozen=True)
class FormField:
    """One line of the form: `keys` is the path of the configuration key, `schema` the JSON schema of its value."""

    name: str
    keys: tuple[str, ...]
    section: str | None
    title: str
    help: str
    schema: dict[str, Any] = field(default_factory=dict)


def _size(name: str, keys: tuple[str, ...], section: str, title: str, help: str) -> FormField:
    schema = {"type": ["string", "null"], "pattern": SIZE_PATTERN}
    return FormField(name, keys, section, title, f"{help} A number with a unit: 256MiB, 10GB.", schema)


def _count(name: str, keys: tuple[str, ...], title: str, help: str, minimum: int = 1) -> FormField:
    return FormField(name, keys, "Exports", title, help, {"type": ["integer", "null"], "minimum": minimum})


def _text(name: str, keys: tuple[str, ...], title: str, help: str) -> FormField:
    return FormField(name, keys, "Exports", title, help, {"type": ["string", "null"]})


def _switch(name: str, keys: tuple[str, ...], title: str, help: str) -> FormField:
    return FormField(name, keys, "Exports", title, help, {"type": "boolean"})


def _format(name: str, help: str) -> FormField:
    return FormField(f"export_{name}", ("exports", name), "Exports", f"Write {name}", help, {"type": "boolean"})


FIELDS: tuple[FormField, ...] = (
    FormField(
        "name",
        ("name",),
        None,
        "Dataset name",
        "Lower-case letters, digits, - and _. Names folders and file prefixes; runs of one name share finished steps.",
        {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]{0,62}$"},
    ),
    FormField(
        "source_paths",
        ("source", "paths"),
        "Source",
        "Source paths",
        "One a line: folders (searched recursively), files, globs, or s3://bucket/prefix/.",
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ),
    FormField(
        "text_field",
        ("source", "text_field"),
        "Source",
        "Text field",
        "The JSON key that holds a document's text.",
        {"type": ["string", "null"], "examples": ["text", "content", "raw_content"]},
    ),
    FormField(
        "id_field",
        ("source", "id_field"),
        "Source",
        "Id field",
        "The JSON key that names a document, so that it can be found again. Documents may lack it.",
        {"type": ["string", "null"], "examples": ["id", "url", "doc_id"]},
    ),
    FormField(
        "max_rejected_share",
        ("source", "max_rejected_share"),
        "Source",
        "Largest share of unusable lines",
        "The run fails when more than this share of the lines is unusable; unusable lines are kept in quarantine.",
        {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    ),
    _size("shard_bytes", ("source", "shard_bytes"), "Source", "Shard size", "Source bytes per shard, one task each."),
    FormField(
        "source_endpoint_url",
        ("source", "endpoint_url"),
        "Source",
        "Store address",
        "For s3:// sources on MinIO and other S3-compatible stores. Empty: Amazon.",
        {"type": ["string", "null"], "examples": ["http://127.0.0.1:9000"]},
    ),
    FormField(
        "source_stream",
        ("source", "stream"),
        "Source",
        "Keep no local copy",
        "Read sources in buckets and hubs whenever they are needed instead of copying them first: for small disks.",
        {"type": ["boolean", "null"]},
    ),
    FormField(
        "dedup_mode",
        ("dedup", "mode"),
        "Deduplication",
        "Mode",
        "What happens to repeated text: remove it, annotate it (keep the text, add the ranges), or none.",
        {
            "type": "string",
            "enum": ["remove", "annotate", "none"],
            "values_display": {
                "remove": "remove repeated text",
                "annotate": "annotate: keep the text, add the ranges",
                "none": "none: no deduplication",
            },
        },
    ),
    FormField(
        "minimum_bytes",
        ("dedup", "minimum_bytes"),
        "Deduplication",
        "Minimum bytes",
        "Repeats of at least this many bytes are duplicates. Smaller finds more; 500 is a common choice.",
        {"type": ["integer", "null"], "minimum": 7, "maximum": 1 << 20},
    ),
    FormField(
        "keep",
        ("dedup", "keep"),
        "Deduplication",
        "Keep",
        "Of repeated text, keep the first window, or a whole copy of every repeated string (removes less).",
        {"type": "string", "enum": ["first_window", "every_string"]},
    ),
    FormField(
        "fuzzy_share",
        ("dedup", "fuzzy_share"),
        "Deduplication",
        "Fuzzy share",
        "Also remove what lies between repeats where they cover this share of a span. Empty: off; OLMo 3 uses 0.8.",
        {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    ),
    FormField(
        "annotate_key",
        ("dedup", "annotate_key"),
        "Deduplication",
        "Annotation key",
        "The JSON key that mode annotate adds; dots go deeper: metadata.ranges.",
        {"type": ["string", "null"]},
    ),
    FormField(
        "replace_existing",
        ("dedup", "replace_existing"),
        "Deduplication",
        "Replace existing annotations",
        "Overwrite a field that has the annotation key already; otherwise that is an error.",
        {"type": "boolean"},
    ),
    FormField(
        "drop_empty",
        ("dedup", "drop_empty"),
        "Deduplication",
        "Drop emptied documents",
        "With remove: leave documents out of which nothing is left, instead of keeping them empty.",
        {"type": "boolean"},
    ),
    FormField(
        "writeback",
        ("dedup", "writeback"),
        "Deduplication",
        "Write documents back",
        "Also deliver the deduplicated documents in their original format.",
        {"type": "boolean"},
    ),
    _size(
        "dedup_memory", ("dedup", "memory"), "Deduplication", "Memory", "Of one match task, without the mapped text."
    ),
    FormField(
        "index_method",
        ("index", "method"),
        "Deduplication",
        "Index",
        "How repeats are found; suffix_array is 50 times slower and leaves an infini-gram index.",
        {"type": "string", "enum": ["anchors", "suffix_array"]},
    ),
    FormField(
        "unigram",
        ("index", "unigram"),
        "Deduplication",
        "Count bytes",
        "With suffix_array: also write the unigram file.",
        {"type": "boolean"},
    ),
    FormField(
        "tokenizer_name",
        ("tokenizer", "name"),
        "Tokenizer",
        "Tokenizer",
        "The vocabulary that turns text into ids: an encoding, a path, or a hub id.",
        {"type": "string", "examples": ["cl100k_base", "o200k_base", "r50k_base", "p50k_base"]},
    ),
    FormField(
        "tokenizer_file",
        ("tokenizer", "file"),
        "Tokenizer",
        "Vocabulary file",
        "Where the vocabulary lies. Empty: installed packages and tiktoken's cache.",
        {"type": ["string", "null"]},
    ),
    FormField(
        "tokenizer_sha256",
        ("tokenizer", "sha256"),
        "Tokenizer",
        "Vocabulary sha256",
        "64 hex digits. Empty: the digest published for this tokenizer.",
        {"type": ["string", "null"], "pattern": r"^([0-9a-f]{64})?$"},
    ),
    FormField(
        "tokenizer_engine",
        ("tokenizer", "engine"),
        "Tokenizer",
        "Engine",
        "All give the same ids, or refuse; all but gigatoken are about ten times slower.",
        {"type": "string", "enum": ["gigatoken", "tiktoken", "tokenizers"]},
    ),
    FormField(
        "seed",
        ("shuffle", "seed"),
        "Shuffle",
        "Seed",
        "The same seed gives the same order on every machine. Any whole number below 2^64.",
        {"type": "string", "pattern": r"^\d{1,20}$"},  # text, because a browser rounds numbers above 2^53
    ),
    _size("shuffle_memory", ("shuffle", "memory"), "Shuffle", "Memory", "For a process that shuffles."),
    FormField(
        "shuffle_cells",
        ("shuffle", "cells"),
        "Shuffle",
        "Cells",
        "Instead of what follows from the memory; the order is the same for any number.",
        {"type": ["integer", "null"], "minimum": 1, "maximum": 4096},
    ),
    FormField(
        "shuffle_significance",
        ("shuffle", "significance"),
        "Shuffle",
        "Significance",
        "The report warns of an order that chance gives less often than this.",
        {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    ),
    _format("webdataset", "Tars of fixed-length contexts and manifest.jsonl, for open_lm and webdataset."),
    _switch(
        "webdataset_exp_data",
        ("exports", "webdataset", "exp_data"),
        "webdataset: exp_data",
        "Also DCLM's dataset reference, with the dataset's address at each destination.",
    ),
    _count(
        "webdataset_context_tokens",
        ("exports", "webdataset", "context_tokens"),
        "webdataset: tokens per context",
        "Model sequence length + 1.",
        minimum=2,
    ),
    _count(
        "webdataset_contexts_per_shard",
        ("exports", "webdataset", "contexts_per_shard"),
        "webdataset: contexts per tar",
        "Every tar but the last holds this many.",
    ),
    _format("numpy", "train/ and test/ .npy shards of fixed length, for Jaxformer and nanoGPT loaders."),
    _count(
        "numpy_tokens_per_shard",
        ("exports", "numpy", "tokens_per_shard"),
        "numpy: tokens per shard",
        "Every shard but the last holds this many.",
    ),
    FormField(
        "numpy_test_share",
        ("exports", "numpy", "test_share"),
        "Exports",
        "numpy: test share",
        "The share of the shards that goes to test/; below 1.",
        {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 1},
    ),
    FormField(
        "numpy_layout",
        ("exports", "numpy", "layout"),
        "Exports",
        "numpy: layout",
        "npy: shards for Jaxformer and build-nanogpt; bin: one raw file per split, for nanoGPT.",
        {"type": ["string", "null"], "enum": ["npy", "bin", None]},
    ),
    _count(
        "numpy_test_shards",
        ("exports", "numpy", "test_shards"),
        "numpy: test shards",
        "Instead of a share: how many shards are held out; at most half of them.",
        minimum=0,
    ),
    _text("numpy_test_name", ("exports", "numpy", "test_name"), "numpy: test name", "Default: test; of bin: val."),
    _text("numpy_train_name", ("exports", "numpy", "train_name"), "numpy: train name", "Name of the other split."),
    _text(
        "numpy_file_name",
        ("exports", "numpy", "file_name"),
        "numpy: file name",
        "A relative path that holds {split} and {number}.",
    ),
    _count(
        "numpy_number_digits",
        ("exports", "numpy", "number_digits"),
        "numpy: digits of a number",
        "At least so many, from 1 to 12.",
    ),
    _switch(
        "numpy_placeholders",
        ("exports", "numpy", "placeholders"),
        "numpy: placeholders",
        "An empty first file per folder, for loaders that drop the first.",
    ),
    _switch(
        "numpy_checkpoints",
        ("exports", "numpy", "checkpoints"),
        "numpy: checkpoints",
        "checkpoints/ as Jaxformer's --continue reads them.",
    ),
    _format("megatron", ".bin and .idx pairs, for Megatron-LM, NeMo and GPT-NeoX."),
    _size("megatron_part_bytes", ("exports", "megatron", "part_bytes"), "Exports", "megatron: part size", "Per .bin."),
    _format("nanoset", ".ds files, for nanotron and datatrove."),
    _size("nanoset_file_bytes", ("exports", "nanoset", "file_bytes"), "Exports", "nanoset: file size", "Per .ds."),
    FormField(
        "destinations",
        ("destinations",),
        "Destinations",
        "Destinations",
        "One a line: a folder or s3://bucket/prefix. For an S3-compatible store add its address after a bar: "
        f"s3://bucket/prefix{ENDPOINT_MARK}http://127.0.0.1:9000",
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ),
    FormField(
        "work_folder",
        ("work_folder",),
        "Destinations",
        "Work folder",
        "Intermediate files and receipts. Relative paths start at the repository.",
        {"type": ["string", "null"]},
    ),
)


def form_from_config(config: DatasetConfig) -> dict[str, Any]:
    """Field values that show `config`; fields of formats that are off show that format's defaults.

    ConfigError if `config` sets a key that the form does not have.
    """
    _refuse_not_shown(config)
    return {item.name: _shown(config, item) for item in FIELDS}


def config_from_form(values: Mapping[str, Any]) -> DatasetConfig:
    """The configuration that the field values stand for; None and empty text mean the key's default.

    Raises ConfigError for an unknown field and for every value that `check_config` refuses.
    """
    _refuse_unknown(values)
    tree: dict[str, Any] = {"exports": {name: {} for name in FORMATS if values.get(f"export_{name}")}}
    for item in FIELDS:
        value = values.get(item.name)
        if value in (None, "") or (item.keys[0] == "exports" and not _is_export_setting(item, tree)):
            continue
        section = tree
        for key in item.keys[:-1]:
            section = section.setdefault(key, {})
        section[item.keys[-1]] = _meant(item, value)
    return check_config(tree, where=FORM)


def _is_export_setting(item: FormField, tree: Mapping[str, Any]) -> bool:
    return len(item.keys) == 3 and item.keys[1] in tree["exports"]


def size_text(size_bytes: int) -> str:
    """A size as text that reads back exactly: the largest unit that divides it, else plain bytes."""
    fits = [(unit_bytes, name) for name, unit_bytes in SIZE_UNITS if size_bytes and size_bytes % unit_bytes == 0]
    if not fits:
        return str(size_bytes)
    unit_bytes, name = max(fits)
    return f"{size_bytes // unit_bytes}{name}"


def _shown(config: DatasetConfig, item: FormField) -> Any:
    if item.keys[0] == "exports":
        section = getattr(config.exports, item.keys[1])
        if len(item.keys) == 2:
            return section is not None
        value = getattr(section or FORMAT_DEFAULTS[item.keys[1]], item.keys[2])
    else:
        value = config
        for key in item.keys:
            value = getattr(value, key)
    if item.name == "destinations":
        return [_line(destination.path, destination.endpoint_url) for destination in value]
    if item.schema.get("pattern") == SIZE_PATTERN:
        return size_text(value)
    return str(value) if item.name == "seed" else value


def _meant(item: FormField, value: Any) -> Any:
    if item.name == "destinations" and isinstance(value, list):
        return [_destination(line) if isinstance(line, str) else line for line in value]
    if item.name == "seed" and isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    return value


def _line(path: str, endpoint_url: str | None) -> str:
    if ENDPOINT_MARK in path:
        raise ConfigError(
            f"the form cannot show a destination whose path contains '{ENDPOINT_MARK}'",
            where="destinations",
            got=path,
            next_step="rename it, or build this dataset with corpusmill build",
        )
    return path if endpoint_url is None else f"{path}{ENDPOINT_MARK}{endpoint_url}"


def _destination(line: str) -> dict[str, str]:
    path, mark, endpoint_url = line.partition(ENDPOINT_MARK)
    return {"path": path, "endpoint_url": endpoint_url} if mark else {"path": path}


def _refuse_not_shown(config: DatasetConfig) -> None:
    for keys in NOT_SHOWN:
        section: Section = config
        for key in keys[:-1]:
            section = getattr(section, key)
        value = getattr(section, keys[-1])
        if value != type(section).model_fields[keys[-1]].get_default(call_default_factory=True):
            raise ConfigError(
                "the form has no field for this key",
                where=".".join(keys),
                got=value,
                next_step="leave it out, or build this dataset with corpusmill build",
            )


def _refuse_unknown(values: Iterable[str]) -> None:
    known = [item.name for item in FIELDS]
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise ConfigError(
            f"the form has no field {unknown[0]}" + (f"; did you mean {near[0]}?" if near else ""),
            where=FORM,
            expected=", ".join(known),
            got=", ".join(unknown),
        )
