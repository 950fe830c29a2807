"""Configurations that commands print or write: a small one to begin with, and the long example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml

from corpusmill.config.exports import SECTIONS
from corpusmill.config.reading import EXAMPLE

# Keys of the example that name a file or a digest of your own.
PRINTED_AS_COMMENTS = (
    "  against:",
    "steps:",
    "decisions:",
    "forget:",
    "decontamination:",
    "near_duplicates:",
    "budget:",
    "lock:",
    "card:",
)
COMMENT_COLUMN = 32
HEAD = "# All keys: corpusmill config example"

Exports = Mapping[str, Mapping[str, Any]]
PRESETS: dict[str, Exports] = {
    "llm.c": {"numpy": {"layout": "llmc"}},
    "megatron": {"megatron": {}},
    "nanochat": {"parquet_text": {}},
    "nanotron": {"nanoset": {}},
    "olmo-core": {"olmo": {}},
    "trainer": {"parquet_documents": {}},
}
"""Who reads the dataset -> section `exports`."""


def starter(
    *,
    name: str = "web",
    paths: Sequence[str] = ("data",),
    text_field: str = "text",
    id_field: str = "id",
    shard_bytes: str | None = None,
    endpoint_url: str | None = None,
    anonymous: bool | None = None,
    minimum_bytes: int = 500,
    similarity: float | None = None,
    tokenizer: str = "cl100k_base",
    seed: int = 1234,
    exports: Exports = MappingProxyType({"megatron": {}}),
    destination: str = "outputs",
    work_folder: str = "work",
) -> str:
    """A configuration of 12 lines or a few more, with a comment per key.

    `shard_bytes`: a size with its unit; without it the key is left out. `minimum_bytes`: of repeats; 0 keeps them.
    `similarity`: from which on
    near-duplicates are removed. `endpoint_url`: of the sources and of a destination in S3. `anonymous`: how the sources
    are asked for.
    """
    dedup = f"{{mode: remove, minimum_bytes: {minimum_bytes}}}" if minimum_bytes else "{mode: none}"
    removed = f"remove repeats of {minimum_bytes} bytes and more" if minimum_bytes else "keep repeats"
    endpoint = f", endpoint_url: {_value(endpoint_url)}" if endpoint_url and destination.startswith("s3://") else ""
    lines = [
        (f"name: {_value(name)}", "names the dataset's folders and files"),
        ("source:", ""),
        (f"  paths: [{', '.join(map(_value, paths))}]", "folders, files, globs, s3://, gs://, hf://"),
        *([(f"  endpoint_url: {_value(endpoint_url)}", "of the S3-compatible store")] if endpoint_url else ()),
        *([("  anonymous: true", "requests without credentials, for a public bucket")] if anonymous else ()),
        (f"  text_field: {_value(text_field)}", "the JSON key or parquet column that holds the text"),
        *([(f"  id_field: {_value(id_field)}", "the key that holds the id")] if id_field != "id" else ()),
        *(
            [(f"  shard_bytes: {shard_bytes}", "source bytes per shard, the unit of parallel work")]
            if shard_bytes
            else ()
        ),
        (f"dedup: {dedup}", f"{removed}; or mode: annotate, none"),
        *(
            [
                (
                    f"near_duplicates: {{similarity: {similarity}, action: remove}}",
                    "leave out copies with small differences",
                )
            ]
            if similarity is not None
            else ()
        ),
        (f"tokenizer: {{name: {_value(tokenizer)}}}", "an encoding, a .tiktoken or tokenizer.json file, or a hub id"),
        (f"shuffle: {{seed: {seed}}}", "the same seed produces the same order on every machine"),
        ("exports:", "a format is written if its key is present"),
        *(
            (f"  {format}:{' ' + _flow(settings) if settings else ''}", SECTIONS[format].files)
            for format, settings in exports.items()
        ),
        (
            f"destinations: [{{path: {_value(destination)}{endpoint}}}]",
            f"a folder, s3:// or gs://; the dataset is {destination}/{name}/latest",
        ),
        (f"work_folder: {_value(work_folder)}", "intermediate files and receipts; later builds reuse them"),
    ]
    commented = [f"{text:<{COMMENT_COLUMN}}  # {comment}" if comment else text for text, comment in lines]
    return "\n".join([HEAD, *commented]) + "\n"


def example_text() -> str:
    """The long example, every key explained; keys that need something of your own are comments."""
    lines, hidden_indent = [], ""  # lines that begin with it are below a hidden key
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if line.startswith(PRINTED_AS_COMMENTS):
            hidden_indent = line[: -len(line.lstrip())] + " "
        elif not hidden_indent or not line.startswith(hidden_indent):
            hidden_indent = ""
        lines.append(f"# {line}" if hidden_indent else line)
    return "\n".join(lines) + "\n"


def _value(text: Any) -> str:
    """A text as YAML writes it inside a list, on one line."""
    return _flow([text])[1:-1]


def _flow(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1 << 20)).strip()
