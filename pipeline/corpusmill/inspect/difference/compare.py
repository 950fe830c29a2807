"""Compares two versions, as plain values, where each pair holds the old version's value first, as text and as HTML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from corpusmill.config import DatasetConfig
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.errors import inline, visible
from corpusmill.inspect.difference.documents import (
    MEASURES,
    OUTCOMES,
    Numbers,
    Version,
    compare_left_out,
    count_outcomes,
    open_version,
    rows_of_build,
    rows_of_documents,
)
from corpusmill.report.html import report_environment

WORK, DELIVERED = "work folder", "documents/"
SHOWN_SOURCES = 20  # those with the most documents that are not unchanged
Plain = dict[str, Any]


def compare_versions(
    old: str,
    new: str,
    config: DatasetConfig | None = None,
    endpoint_urls: tuple[str | None, str | None] = (None, None),
) -> Plain:
    """Compare two versions, named as in `open_version`; raises its errors and those of documents.py.

    `documents` and each of `sources`: outcome (`all` and matching.OUTCOMES) -> measure -> [old, new]; None where that
    is unknown, as `settings` and `versions` are without a work folder. `told_by`: WORK, DELIVERED or "".
    `near_duplicates`: those that each version lists (documents.LeftOut), None if neither does.
    """
    sides = [open_version(where, config, url) for where, url in zip((old, new), endpoint_urls, strict=True)]
    files = [{file["name"]: file["sha256"] for file in version.description["files"]} for version in sides]
    both = files[0].keys() & files[1].keys()
    same = sum(files[0][name] == files[1][name] for name in both)
    alone = [len(names) - len(both) for names in files]
    sources: Numbers = {}
    told_by, rows = "", []
    if sides[0].build and sides[1].build:
        told_by, rows = WORK, [rows_of_build(version.build, sources) for version in sides if version.build]
    elif all(any(name.startswith(f"{FOLDER}/") for name in names) for names in files):
        told_by, rows = DELIVERED, [rows_of_documents(version, _fields(version, config), sources) for version in sides]
    counted = count_outcomes(rows[0], rows[1], sources) if told_by else None
    described = [
        {"dataset": version.description["name"], "version": version.version, "where": version.store.folder}
        for version in sides
    ]
    by_source = {}
    if counted is not None:
        by_source = {name: _outcomes(counted[number], told_by) for name, number in sorted(sources.items())}
    return {
        "old": described[0],
        "new": described[1],
        "told_by": told_by,
        "unknown": _unknown(sides, told_by),
        "documents": None if counted is None else _outcomes(counted.sum(axis=0), told_by),
        "sources": by_source,
        "near_duplicates": [asdict(side) for side in compare_left_out(*sides) or ()] or None,
        "files": {"equal": same, "different": len(both) - same, "lost": alone[0], "gained": alone[1]},
        "stated": differing(
            *({key: version.description[key] for key in ("vocabulary", "formats")} for version in sides)
        ),
        "settings": differing(*(version.configuration for version in sides)),
        "versions": differing(*(version.made_by for version in sides)),
    }


def _unknown(sides: list[Version], told_by: str) -> dict[str, str]:
    """{what is unknown: why}."""
    built = next((_why(version, "no longer has the steps of") for version in sides if not version.build), "")
    planned = next((_why(version, "has no plan that delivered") for version in sides if not version.configuration), "")
    documents = f"{built}; and not both versions have {FOLDER}/" if not told_by else ""
    cut = "the delivered text is already cut: a document that was cut differently counts as changed"
    reasons = {
        "documents": documents,
        "cut": cut if told_by == DELIVERED else "",
        "tokens and duplicates": built,
        "settings and versions": planned,
    }
    return {what: why for what, why in reasons.items() if why}


def _why(version: Version, lacks: str) -> str:
    if version.work is None:
        return f"the work folder of {version.store.folder} is unknown: pass its configuration, --config CONFIG"
    return f"{version.work} {lacks} {version.version}"


def _fields(version: Version, config: DatasetConfig | None) -> tuple[str, str]:
    """The fields of text and id: from the version's own configuration, else `config`, else the defaults."""
    if version.configuration:
        return version.configuration["source"]["text_field"], version.configuration["source"]["id_field"]
    return (config.source.text_field, config.source.id_field) if config else ("text", "id")


def _outcomes(counted: Any, told_by: str) -> Plain:
    """`counted`: int64 (outcomes, measures, 2)."""

    def plain(amounts: Any) -> Plain:
        known = MEASURES if told_by == WORK else MEASURES[:1]
        return {name: pair if name in known else None for name, pair in zip(MEASURES, amounts.tolist(), strict=True)}

    outcomes = {name: plain(amounts) for name, amounts in zip(OUTCOMES, counted, strict=True)}
    return {"all": plain(counted.sum(axis=0)), **outcomes, **({} if told_by == WORK else {"cut": None})}


def differing(old: Plain | None, new: Plain | None) -> Plain | None:
    """Dotted key -> [old, new], for the values that differ."""
    if old is None or new is None:
        return None
    left, right = dict(_flat(old)), dict(_flat(new))
    keys = sorted(left.keys() | right.keys())
    return {key: [left.get(key), right.get(key)] for key in keys if left.get(key) != right.get(key)}


def _flat(values: Plain, above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key -> value; of a list of mappings, as of steps, each entry by its number from 0."""
    for key, value in values.items():
        entries = value if isinstance(value, list) and all(isinstance(entry, dict) for entry in value) else []
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        elif entries:
            yield from _flat({f"{key}[{number}]": entry for number, entry in enumerate(entries)}, above)
        else:
            yield f"{above}{key}", value


def render_difference(difference: Plain) -> str:
    """For a terminal: all but the source files beyond SHOWN_SOURCES."""
    old, new, every = (difference[key] for key in ("old", "new", "documents"))
    lines = [inline(f"{side}  {' '.join(difference[side].values())}") for side in ("old", "new")]
    if old["dataset"] != new["dataset"]:
        lines.append("these are versions of different datasets")
    lines.append("files: " + ", ".join(f"{count:,} {what}" for what, count in difference["files"].items()))
    if every:
        known = [name for name in MEASURES if every["all"][name]]
        heads = [f"{side} {name.replace('_', ' ')}" for name in known for side in ("old", "new")]
        amounts = [
            [name, *(pair for key in known for pair in measures[key])] for name, measures in every.items() if measures
        ]
        lines += ["", f"according to the {difference['told_by']}:", *_table([["", *heads], *amounts])]
        sources = touched_sources(difference)
        shown = sources[:SHOWN_SOURCES]
        kinds = [name for name, measures in every.items() if measures]
        files = [[inline(name), *(_old_and_new(measures[kind]) for kind in kinds)] for name, measures in shown]
        heading = f"source files that differ: {len(sources):,}; documents of {len(shown):,} of them, old > new:"
        lines += ["", *([heading, *_table([["", *kinds], *files])] if files else ["no source file differs"])]
    lines += ["", *left_out_lines(difference)]
    for title in ("stated", "settings", "versions"):
        for key, (before, after) in (difference[title] or {}).items():
            lines.append(inline(f"{title}  {key}: {json.dumps(before)} -> {json.dumps(after)}"))
    return "\n".join([*lines, *(inline(f"unknown  {what}: {why}") for what, why in difference["unknown"].items())])


def left_out_lines(difference: Plain) -> list[str]:
    """How many near-duplicates each version lists, and the first of those that one of them alone lists."""
    lines = []
    for name, side in zip(("old", "new"), difference["near_duplicates"] or (), strict=False):
        lines.append(
            f"near-duplicates that {name} lists: {side['documents']:,}, {side['alone']:,} of them not in the other"
        )
        for row in side["shown"]:
            kept = f"{row['kept_file']} line {row['kept_line']:,}"
            of = f"reference {row['kept_reference']}: {kept}" if "kept_reference" in row else kept
            lines.append(inline(f"  {row['file']} line {row['line']:,}: {row['similarity']:.1%} similar to {of}"))
        lines += [f"  and {more:,} more"] if (more := side["alone"] - len(side["shown"])) else []
    return lines


def touched_sources(difference: Plain) -> list[tuple[str, Plain]]:
    """(name, outcomes) of the source files with documents that are not unchanged, those with the most of them first."""
    sources = [(name, measures) for name, measures in difference["sources"].items() if _touched(measures)]
    return sorted(sources, key=lambda source: (-_touched(source[1]), source[0]))


def _touched(outcomes: Plain) -> int:
    """Documents of either side that are not unchanged."""
    return sum(
        sum(measures["documents"])
        for name, measures in outcomes.items()
        if measures and name not in {"all", "unchanged"}
    )


def _old_and_new(outcome: Plain) -> str:
    old, new = outcome["documents"]
    return f"{old:,}" if old == new else f"{old:,} > {new:,}"


def _table(rows: list[list[Any]]) -> list[str]:
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]


def render_difference_page(difference: Plain) -> str:
    """The page of a result of compare_versions; files beyond the environment's `listed_rows` are only counted."""
    old, new = (difference[side] for side in ("old", "new"))
    settings = [
        (title, key, *(json.dumps(value, ensure_ascii=False) for value in pair))
        for title in ("stated", "settings", "versions")
        for key, pair in (difference[title] or {}).items()
    ]
    return (
        report_environment()
        .get_template("difference.html")
        .render(
            title=f"{old['dataset']}: {old['version']} and {new['version']}",
            difference=difference,
            outcomes={name: count for name, count in (difference["documents"] or {}).items() if count},
            sources=[(visible(name), outcomes) for name, outcomes in touched_sources(difference)],
            settings=settings,
            left_out=left_out_lines(difference),
        )
    )
