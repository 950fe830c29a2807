"""Pages of docs/ that are made from the code; `python -m tests.docs.reference` writes them anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import ByteSize
from pydantic_core import PydanticUndefined

from corpusmill.config import EXAMPLE, DatasetConfig
from corpusmill.config.values import Section
from tests.docs.errors import errors_page
from tests.docs.example_help import help_by_key
from tests.docs.kinds import kinds_page
from tests.docs.trainers import table

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BY = "<!-- python -m tests.docs.reference writes this page -->\n"
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("GB", 10**9))
CONFIGURATION = f"""{WRITTEN_BY}# Configuration

A dataset is one YAML file. `corpusmill init` writes a first one, `corpusmill config example --short` prints 12 lines
that run, and `corpusmill config example` prints every key. An unknown key is an error that names the nearest known one.
Settings that silently change a dataset's bytes have no default. Sizes are bytes, or have a unit: `256MiB`, `10GB`.
Relative paths in the file start at `CORPUSMILL_ROOT` if it is set, otherwise at the current folder. Paths typed on a
command line always start at the current folder.

In the tables, *required* means: required if the section is present.
"""
FORMATS = f"""{WRITTEN_BY}# Formats
{table()}
Below are the files of a delivered dataset, and those between steps, as the modules that write them describe them.
"""
FILES_OF_FORMATS = {
    "Megatron": "export/megatron.py",
    "Nanoset": "export/nanoset.py",
    "OLMo-core": "export/olmo.py",
    "Ids in parquet": "export/parquet.py",
    "WebDataset": "export/webdataset.py",
    "WebDataset: the tar": "export/tar.py",
    "What lies beside the exports": "export/companions.py",
    "Token shards as .npy, and nanoGPT's .bin": "export/numpy_shards.py",
    "Special tokens around documents": "export/framing.py",
    "Work folder: text shards": "documents/__init__.py",
    "Work folder: token shards and record shards": "tokens/__init__.py",
    "Work folder: shuffled records": "shuffle/__init__.py",
    "Work folder: ranges": "dedup/__init__.py",
    "Work folder: receipts": "engine/ledger/__init__.py",
}


def configuration_page() -> str:
    """Every key with its values, default and meaning, a table per section."""
    parts = [CONFIGURATION]
    printed = help_by_key(EXAMPLE.read_text(encoding="utf-8"))
    for keys, section in sections_below(DatasetConfig, ()):
        parts.append(
            f"\n## {'.'.join(keys) or 'The whole'}\n\n| key | values | default | meaning |\n|---|---|---|---|\n"
        )
        schema = section.model_json_schema()
        for key, field in ((field.alias or name, field) for name, field in section.model_fields.items()):
            values = _values(field.annotation, schema["properties"][key], schema)
            meaning = printed.get((*keys, key)) or printed.get(keys, "")
            cells = (f"`{key}`", values, _default(field), _meaning(meaning))
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def formats_page() -> str:
    """The docstrings of the modules that write files, byte diagrams and all."""
    texts = (
        (title, ast.get_docstring(ast.parse((ROOT / "pipeline" / "corpusmill" / name).read_text())) or "", name)
        for title, name in FILES_OF_FORMATS.items()
    )
    return FORMATS + "".join(
        f"\n## {title}\n\n`corpusmill/{name}`\n\n{_markdown(text)}\n" for title, text, name in texts
    )


def sections_below(model: type[Section], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    yield above, model
    for key, field in model.model_fields.items():
        if (inner := _section(field.annotation)) is not None:
            yield from sections_below(inner, (*above, key))


def _section(annotation: Any) -> type[Section] | None:
    """The section that a key or the items of its list hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section, getattr(annotation, "__args__", ()))), None)


def _values(annotation: Any, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    if _section(annotation):
        return (
            "list of sections" if "array" in [item.get("type") for item in schema.get("anyOf", [schema])] else "section"
        )
    choices = [item for item in schema.get("anyOf", [schema]) if item.get("type") != "null"]
    chosen = choices[0]
    if "enum" in chosen:
        return " | ".join(f"`{value}`" for value in chosen["enum"])
    if "const" in chosen:
        return f"`{chosen['const']}`"
    if "ByteSize" in str(annotation) or annotation is ByteSize:
        return "size"
    kinds = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` | `false`"}
    return " or ".join(
        dict.fromkeys(
            kinds.get(
                choice.get("type", ""), {"array": "list", "object": "mapping"}.get(choice.get("type", ""), "text")
            )
            for choice in choices
        )
    )


def _default(field: Any) -> str:
    if field.default is PydanticUndefined:
        return "*required*"
    if field.default is None or isinstance(field.default, Section):
        return ""
    if isinstance(field.default, ByteSize):
        return next(f"`{field.default // size}{unit}`" for unit, size in UNITS if field.default % size == 0)
    if isinstance(field.default, timedelta):
        return f"`{field.default.days}d`"
    text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return f"`{text}`" if text else "empty"


def _meaning(text: str) -> str:
    return text.replace("<", "&lt;")


def _markdown(text: str) -> str:
    """A docstring: `::` opens a block, and a line indented by four or more is part of one."""
    lines: list[str] = []
    inside = False
    for line in text.replace("::\n", ":\n").split("\n"):
        code = line.startswith("  ") and (inside or not lines or not lines[-1] or line.startswith("    "))
        if code and not line.lstrip().startswith("* ") and not inside:
            lines.append("```")
            inside = True
        elif inside and line and not line.startswith("  "):
            lines.insert(len(lines) - (not lines[-1]), "```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, *(["```"] if inside else [])])


PAGES = {
    "sources.md": kinds_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "formats.md": formats_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
