"""Configurations that commands print or write: a small one to begin with, and the long example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from corpusmill.config.reading import EXAMPLE

# Keys of the example that name a file or a digest of your own.
PRINTED_AS_COMMENTS = ("  against:", "steps:", "decisions:", "forget:", "decontamination:", "budget:", "lock:", "card:")
COMMENT_COLUMN = 32

FORMAT_READERS = {
    "webdataset": "tars of contexts, for open_lm and webdataset",
    "numpy": ".npy shards of tokens, for Jaxformer and nanoGPT",
    "megatron": ".bin and .idx, for Megatron-LM, NeMo, GPT-NeoX",
    "nanoset": ".ds, for nanotron and datatrove",
}


def starter(
    *,
    name: str = "web",
    path: str = "data",
    text_field: str = "text",
    id_field: str = "id",
    shard_bytes: str | None = None,
    tokenizer: str = "cl100k_base",
    formats: Sequence[str] = ("megatron",),
) -> str:
    """A configuration of 12 lines or a few more, with a comment per key.

    `shard_bytes`: a size with its unit; without it the key is left out.
    """
    lines = [
        (f"name: {_value(name)}", "names the dataset's folders and files"),
        ("source:", ""),
        (f"  paths: [{_value(path)}]", "folders, files, globs, s3://, gs://, hf://"),
        (f"  text_field: {_value(text_field)}", "the JSON key or parquet column that holds the text"),
        *([(f"  id_field: {_value(id_field)}", "the key that holds the id")] if id_field != "id" else ()),
        *(
            [(f"  shard_bytes: {shard_bytes}", "source bytes per shard, the unit of parallel work")]
            if shard_bytes
            else ()
        ),
        ("dedup: {mode: remove, minimum_bytes: 500}", "remove repeats of 500 bytes and more; or mode: annotate, none"),
        (f"tokenizer: {{name: {_value(tokenizer)}}}", "an encoding, a .tiktoken or tokenizer.json file, or a hub id"),
        ("shuffle: {seed: 1234}", "the same seed produces the same order on every machine"),
        ("exports:", "a format is written if its key is present"),
        *((f"  {name}:", FORMAT_READERS[name]) for name in formats),
        ("destinations: [{path: outputs}]", f"a folder, s3:// or gs://; the dataset is outputs/{name}/latest"),
        ("work_folder: work", "intermediate files and receipts; later builds reuse them"),
    ]
    commented = [f"{text:<{COMMENT_COLUMN}}  # {comment}" if comment else text for text, comment in lines]
    return "\n".join(["# All keys: corpusmill config example", *commented]) + "\n"


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
    return yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=1 << 20).strip()[1:-1]
