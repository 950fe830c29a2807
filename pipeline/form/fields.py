"""The form's fields, made from the configuration's models."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ByteSize
from pydantic.fields import FieldInfo

from corpusmill.addresses import CREDENTIALS
from corpusmill.config import EXAMPLE, FORMATS, LEAST_MINIMUM_BYTES, DatasetConfig
from corpusmill.form.help import help_by_key
from corpusmill.form.sizes import size_text
from corpusmill.section import Section

Kind = Literal["text", "number", "switch", "size", "digits", "lines", "places", "json", "format"]

ENDPOINT_MARK = " | "  # between a destination's path and its endpoint URL, in one line of the form
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP][iI]?)?[bB]?\s*$"
# Form values are stored before corpusmill.config checks them, so the form itself must refuse credentials.
NO_CREDENTIALS = f"^(?!.*{CREDENTIALS})"
LARGEST_EXACT = 1 << 53  # a browser rounds larger numbers, so those are text
# Reserved for the operator's file: keys that remove data, run custom code, decide what is published, or how much of
# each source is used.
NOT_IN_THE_FORM = frozenset({"budget", "card", "dag", "forget", "keep_versions", "reclaim", "steps"})

SECTIONS = {
    "source": "Source",
    "dedup": "Deduplication",
    "index": "Deduplication",
    "decisions": "Source",
    "decontamination": "Decontamination",
    "tokenizer": "Tokenizer",
    "lock": "Tokenizer",
    "audit": "Tokenizer",
    "selection": "Exports",
    "packing": "Exports",
    "framing": "Exports",
    "shuffle": "Shuffle",
    "exports": "Exports",
    "destinations": "Destinations",
    "work_folder": "Destinations",
    "estimate": "Destinations",
}
ACRONYMS = re.compile(r"\b(eot|eod|bos|id|url|sha256)\b")
# Keys whose names are clear by themselves; the others get their section's name.
STAND_ALONE = frozenset({
    "text_field", "id_field", "max_rejected_share", "shard_bytes", "minimum_bytes", "keep", "fuzzy_share",
    "annotate_key", "replace_existing", "drop_empty", "writeback", "unigram", "seed",
})  # fmt: skip
# A form that refuses a value shows the field's schema: this key, which the checker ignores, explains a pattern in
# words.
EXPECTED = "expected"
WITHOUT_CREDENTIALS = "an address without name, password and query; workers have those in their environment"
HEXADECIMAL = {EXPECTED: "64 hexadecimal digits, 0-9 and a-f"}
SPLIT = {EXPECTED: "letters, digits, - and _, at most 32, a letter or a digit first"}
# What a model's schema lacks: examples, explanations, and a limit that the model checks in a validator.
EXTRA: dict[str, dict[str, Any]] = {
    "name": {EXPECTED: "lower-case letters, digits, - and _, at most 63, a letter or a digit first"},
    "tokenizer_sha256": HEXADECIMAL,
    "lock_tokenizer_sha256": HEXADECIMAL,
    "numpy_test_name": SPLIT,
    "numpy_train_name": SPLIT,
    "numpy_file_name": {EXPECTED: "a path that ends in .npy, such as {split}/{split}_{number}.npy"},
    "source_endpoint_url": {
        "examples": ["http://127.0.0.1:9000"],
        "pattern": NO_CREDENTIALS,
        EXPECTED: WITHOUT_CREDENTIALS,
    },
    "decontamination_threshold": {EXPECTED: "default, strict, or a share such as 0.6"},
    "text_field": {"examples": ["text", "content", "raw_content"]},
    "id_field": {"examples": ["id", "url", "doc_id"]},
    "minimum_bytes": {"minimum": LEAST_MINIMUM_BYTES},
    "tokenizer_name": {
        "examples": ["cl100k_base", "o200k_base", "p50k_base", "r50k_base"],
        EXPECTED: "a name, a path or a hub id, without blanks and without |",
    },
}
HINTS: dict[str, str] = {
    "lines": "One per line.",
    "size": "A number with a unit: 256MiB, 10GB.",
    "places": "One per line; for an S3-compatible store add its address after a bar: "
    f"s3://bucket/prefix{ENDPOINT_MARK}http://127.0.0.1:9000",
    "json": "As JSON.",
}


@dataclass(frozen=True)
class FormField:
    """One line of the form: `keys` is the path of the configuration key, `schema` the JSON schema of its value.

    Every field may be left empty (null), which means the key's default, or the value in a chosen configuration.
    """

    name: str
    keys: tuple[str, ...]
    section: str | None
    title: str
    help: str
    kind: Kind
    schema: dict[str, Any]


def _fields() -> tuple[FormField, ...]:
    help_of = help_by_key(EXAMPLE.read_text(encoding="utf-8"))
    whole = DatasetConfig.model_json_schema()
    schemas = {**whole["$defs"], "DatasetConfig": whole}
    return tuple(
        _field(
            keys, info, schemas[model.__name__]["properties"][keys[-1]], help_of.get(keys) or help_of.get(keys[:-1], "")
        )
        for keys, model, info in _leaves(DatasetConfig, ())
    )


def _leaves(model: type[Section], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[Section], FieldInfo]]:
    for key, info in model.model_fields.items():
        keys = (*above, key)
        inner = section_of(info.annotation)
        if keys[0] in NOT_IN_THE_FORM:
            continue
        if inner is None or above == ("exports",):
            yield keys, model, info
        if inner is not None:
            yield from _leaves(inner, keys)


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a key holds, for `Section` and `Section | None`; None for values and for lists."""
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate if typing.get_origin(annotation) is not list else None
    return None


def _field(keys: tuple[str, ...], info: FieldInfo, schema: dict[str, Any], description: str) -> FormField:
    schema_of = _without_null(schema)
    kind = _kind(keys, info, schema_of)
    name = _name(keys)
    help_text = " ".join(filter(None, [description, HINTS.get(kind, ""), _default_words(kind, info)]))
    shown = _schema(kind, schema_of) | EXTRA.get(name, {})
    return FormField(name, keys, SECTIONS.get(keys[0]), _title(keys), help_text, kind, shown)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `T` for `T` and for `T | None`."""
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    return choices[0] if len(choices) == 1 else schema


def _kind(keys: tuple[str, ...], info: FieldInfo, schema: dict[str, Any]) -> Kind:
    kinds: dict[str, Kind] = {"string": "text", "integer": "number", "number": "number", "boolean": "switch"}
    if keys[:-1] == ("exports",) and keys[-1] in FORMATS:
        return "format"
    if ByteSize in (info.annotation, *typing.get_args(info.annotation)):
        return "size"
    if schema.get("exclusiveMaximum", 0) > LARGEST_EXACT:
        return "digits"
    if schema.get("type") == "array":
        items = schema.get("items", {})
        if items.get("type") == "string":
            return "lines"
        return "places" if keys == ("destinations",) else "json"
    return kinds.get(schema.get("type", "object"), "json")


def _schema(kind: Kind, schema: dict[str, Any]) -> dict[str, Any]:
    if kind == "json":
        return {"type": [schema.get("type", "object"), "null"]}
    items = {"type": "string", "minLength": 1, "pattern": NO_CREDENTIALS, EXPECTED: WITHOUT_CREDENTIALS}
    size = {"pattern": SIZE_PATTERN, EXPECTED: "a number with a unit, such as 256MiB or 10GB"}
    digits = {"pattern": r"^\d{1,20}$", EXPECTED: "a whole number of at most 20 digits, 0 or more"}
    fixed: dict[Kind, dict[str, Any]] = {
        "switch": {"type": ["string", "null"], "enum": ["on", "off", None]},
        "format": {"type": ["string", "null"], "enum": ["on", "off", None]},
        "size": {"type": ["string", "null"], **size},
        "digits": {"type": ["string", "null"], **digits},
        "lines": {"type": ["array", "null"], "items": items},
        "places": {"type": ["array", "null"], "items": items},
    }
    if kind in fixed:
        return dict(fixed[kind])
    limits = ("enum", "pattern", "minLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    kept = {key: schema[key] for key in limits if key in schema}
    if "enum" in kept:
        kept["enum"] = [*kept["enum"], None]
    return {"type": [schema["type"], "null"], **kept}


def _name(keys: tuple[str, ...]) -> str:
    if keys[0] == "exports":
        return f"export_{keys[1]}" if len(keys) == 2 else "_".join(keys[1:])
    stands_alone = keys[-1] in STAND_ALONE and keys[0] not in {"selection", "decontamination"}
    return keys[-1] if len(keys) == 1 or stands_alone else "_".join(keys)


def _title(keys: tuple[str, ...]) -> str:
    words = keys[-1].replace("_", " ")
    if keys[0] == "exports":
        return f"Write {words}" if len(keys) == 2 else f"{keys[1]}: {words}"
    words = ACRONYMS.sub(lambda match: match[0].upper(), words)
    if keys[0] in {"index", "packing", "framing", "audit", "lock", "selection", "estimate"}:
        return f"{keys[0].capitalize()}: {words}"
    return "Dataset name" if keys == ("name",) else words[0].upper() + words[1:]


def _default_words(kind: Kind, info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if info.is_required() or value in (None, "", {}, []) or kind == "format":
        return ""
    if kind == "switch":
        value = "on" if value else "off"
    return f"Default: {size_text(value) if kind == 'size' else value}."


FIELDS = _fields()
