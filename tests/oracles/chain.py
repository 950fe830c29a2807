"""A whole dataset, said plainly: from the lines of its sources to the content of every file that it delivers.

One document, one token, one record at a time; dictionaries and lists. What comes out is a mapping of file names to
bytes where the format leaves no choice, and to what must be read back where it does: a tar to its members' names and
ids, a document file to its records.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.oracles import dedup, documents
from tests.oracles.bpe import encode
from tests.oracles.chain_exports import (
    Record,
    Row,
    Settings,
    Vocabulary,
    numpy_files,
    ordered,
    webdataset,
    whole_documents,
)
from tests.oracles.sources import Part


@dataclass
class Document:
    """One document: where it stands in its part's lines, its text, the bytes found to repeat earlier ones, its ids.

    `rewritten`: a step made the text of what was left without them, and it has no such bytes any more.
    """

    line: int
    text: bytes
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ids: Row = field(default_factory=list)
    rewritten: bool = False
    identity: str = ""

    def kept(self) -> bytes:
        gone = {place for start, end in self.ranges for place in range(start, end)}
        return bytes(byte for place, byte in enumerate(self.text) if place not in gone)


class RefusedError(Exception):
    """There is no such dataset; the name of the error that says so."""


class Members(list[Any]):
    """The members of a JSON object, as pairs."""


def dataset(
    settings: Settings, shards: list[list[Part]], vocabulary: Vocabulary, listed: list[str], seen: Counter[str]
) -> dict[str, Any] | None:
    """Name to content of every delivered file but dataset.json, SHA256SUMS, shuffle_quality.json and exp_data.json.

    `settings` are complete, as `DatasetConfig.model_dump()` has them; `listed`: the ids of the list to forget. None if
    no document has a token. `seen` counts what happens to documents.
    """
    texts = [[(part, _documents(part, settings["source"])) for part in shard] for shard in shards]
    if settings["forget"]:
        _forget([held for shard in texts for _, held in shard], settings["forget"], listed, seen)
    dropped = _stepped(texts, settings, "index")
    if settings["dedup"]["mode"] != "none":
        _find_repeats([[item for _, held in shard for item in held] for shard in texts], settings["dedup"])
    seen["emptied"] += sum(
        bool(item.ranges and not item.kept()) for shard in texts for _, held in shard for item in held
    )
    dropped += _stepped(texts, settings, "writeback")
    for item in (item for shard in texts for _, held in shard for item in held):
        item.ids = _selected(item, settings, vocabulary)
    documents_of = {}
    if settings["dedup"]["mode"] != "none" and settings["dedup"]["writeback"]:
        for part, held in (pair for shard in texts for pair in shard):
            documents_of[f"documents/{part.name}"] = _written_back(part, held, settings, seen)
    if not any(item.ids for shard in texts for _, held in shard for item in held):
        return None
    files: dict[str, Any] = {**documents_of}
    if settings["steps"]:
        files |= {"steps/dropped.jsonl": dropped, "steps/attributes.jsonl": b""}
    whole = [[item for _, held in shard for item in held] for shard in texts]
    records = [
        Record(number, ordinal, item.ids)
        for number, shard in enumerate(whole)
        for ordinal, item in enumerate(shard)
        if item.ids or settings["framing"]["empty_documents"] != "skip"
    ]
    in_order = ordered(records, "documents", settings)
    exports = settings["exports"]
    if exports["webdataset"]:
        files |= webdataset(
            settings, [[[item.ids for item in held] for _, held in shard] for shard in texts], vocabulary
        )
    if exports["numpy"]:
        files |= numpy_files(exports["numpy"], in_order, vocabulary.eot)
    for name in ("megatron", "nanoset"):
        if exports[name]:
            files |= whole_documents(name, settings, in_order, vocabulary)
    return files


def _documents(part: Part, source: Settings) -> list[Document]:
    lines = documents.lines_of(part.file.text)[part.first_line : part.last_line]
    actual, _ = documents.documents_of(b"".join(line + b"\n" for line in lines), source["text_field"])
    return [Document(line, text, identity=_identity(lines[line], source["id_field"])) for line, text in actual]


def _identity(line: bytes, id_field: str) -> str:
    """Text as it is, other values as they are written; "" for null and none."""
    value = json.loads(line, parse_int=str, parse_float=str).get(id_field)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _forget(files: list[list[Document]], wanted: Settings, listed: list[str], seen: Counter[str]) -> None:
    """Drop the documents with listed ids, and with `copies: also` those with the same text."""
    known = {item.identity for held in files for item in held} - {""}
    lacking = [identity for identity in listed if identity not in known]
    most = wanted["max_unmatched_share"]
    if len(lacking) > most * len(listed) if most is not None else listed and lacking == listed:
        raise RefusedError("UnmatchedDecisionsError")
    gone = [item for held in files for item in held if item.identity in known.intersection(listed)]
    texts = {item.text for item in gone if item.text and wanted["copies"] == "also"}
    for held in files:
        held[:] = [item for item in held if item.identity not in known.intersection(listed) and item.text not in texts]
    seen["forgotten"] += len(gone)
    seen["all unmatched"] += bool(listed and not gone)


def _find_repeats(shards: list[list[Document]], wanted: Settings) -> None:
    laid_out = [dedup.text_of(item.text for item in shard) for shard in shards]
    find = dedup.kept_whole_ranges if wanted["keep"] == "every_string" else dedup.remove_ranges
    for shard, (_, offsets), ranges in zip(
        shards, laid_out, find([text for text, _ in laid_out], wanted["minimum_bytes"]), strict=True
    ):
        for start, end in ranges:
            number = bisect_right(offsets, start) - 1
            begin = offsets[number] + 1
            if aligned := dedup.align(shard[number].text, start - begin, end - begin):
                shard[number].ranges.append(aligned)
        if wanted["fuzzy_share"] is not None:
            for item in shard:
                item.ranges = dedup.join_spans(item.ranges, wanted["fuzzy_share"])


def _stepped(shards: list[list[tuple[Part, list[Document]]]], settings: Settings, place: str) -> list[tuple[str, int]]:
    """Apply the steps of a place to what is left of documents; (file, line) of those that they dropped.

    Where a token format would keep them, emptied documents are dropped with the last steps.
    """
    steps = [step for step in settings["steps"] or () if step["before"] == place]
    keeps = settings["framing"]["empty_documents"] != "skip" or settings["packing"]["empty_documents"] == "keep"
    dropping = place == "writeback" and settings["dedup"]["drop_empty"] and keeps
    dropped = []
    for part, held in (pair for shard in shards for pair in shard):
        for item in held.copy():
            before = (item.kept() if settings["dedup"]["mode"] == "remove" else item.text).decode()
            after: str | None = before
            for step in steps if before or not item.ranges else ():  # else deduplication left nothing to ask about
                after = None if after is None else _answer(after, step["use"], step["with"])
            if after is None or (dropping and not after and (item.ranges or item.rewritten or before)):
                del held[next(place for place, other in enumerate(held) if other is item)]
                dropped.append((part.file.name, part.first_line + item.line + 1))
            elif after != before:
                item.text, item.ranges, item.rewritten = after.encode(), [], True
    return dropped


def _answer(text: str, use: str, wanted: Settings) -> str | None:
    """What a step of tests/search/own makes of a text."""
    match use:
        case "own_steps:without":
            return text if len(text.split(wanted["word"])) - 1 <= wanted["most"] else None
        case "own_steps:cut":
            short = len(text) < wanted["last"]
            return text if short else text[: wanted["first"]] + text[wanted["last"] :]
        case "own_steps:replaced":
            return wanted["by"].join(text.split(wanted["word"]))
    raise ValueError(use)


def _selected(item: Document, settings: Settings, vocabulary: Vocabulary) -> Row:
    """The document's ids; none if it is too short."""
    text = item.kept() if settings["dedup"]["mode"] == "remove" else item.text
    special = vocabulary.special if settings["tokenizer"]["parse_special"] else {}
    ids = encode(text.decode(), vocabulary.ranks, settings["tokenizer"]["pattern"], special)
    least = settings["selection"]
    return ids if len(text) >= (least["minimum_bytes"] or 0) and len(ids) >= (least["minimum_tokens"] or 0) else []


def _written_back(part: Part, held: list[Document], settings: Settings, seen: Counter[str]) -> list[Any]:
    """The records of a document file, as pairs of key and value."""
    wanted, text_field = settings["dedup"], settings["source"]["text_field"]
    lines = documents.lines_of(part.file.text)[part.first_line : part.last_line]
    records = []
    for item in held:
        pairs = [list(pair) for pair in json.loads(lines[item.line], object_pairs_hook=Members, parse_float=str)]
        if wanted["mode"] == "annotate":
            next(pair for pair in pairs if pair[0] == text_field)[1] = item.text.decode()  # as steps left it
            path = [wanted["annotate_key"]] if part.name.endswith(".parquet") else wanted["annotate_key"].split(".")
            _annotate(pairs, path, [[start, end] for start, end in item.ranges], wanted["replace_existing"], seen)
        else:
            next(pair for pair in pairs if pair[0] == text_field)[1] = item.kept().decode()
            if wanted["drop_empty"] and (item.ranges or item.rewritten) and not item.kept():
                continue
        records.append([tuple(pair) for pair in pairs])
    return records


def _annotate(pairs: list[Any], path: list[str], value: Any, replaces: bool, seen: Counter[str]) -> None:
    """Put the value at the path: null counts as absent, and nothing but the last key's value may be replaced."""
    there = next((number for number, pair in reversed([*enumerate(pairs)]) if pair[0] == path[0]), None)
    old = None if there is None else pairs[there][1]
    seen["annotated null"] += there is not None and old is None
    seen["replaced"] += old is not None and not path[1:]
    if path[1:]:
        if old is not None and not isinstance(old, Members):
            raise RefusedError("ConfigError")
        seen["annotated within an object"] += bool(old)
        inner = [*(old or ())]
        _annotate(inner, path[1:], value, replaces, seen)
        value = inner
    elif old is not None and not replaces:
        raise RefusedError("ConfigError")
    if there is None:
        pairs.append((path[0], value))
    else:
        pairs[there] = (path[0], value)
