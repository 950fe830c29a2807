"""The files of a dataset's exports, said plainly: from records in their order to bytes, or to what is read back.

A tar is its members' names and ids; everything else is bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tests.oracles import export
from tests.oracles.tokens import packed

Settings = dict[str, Any]
Row = list[int]


@dataclass
class Record:
    """A whole document or a context: its shard, its ordinal there, its ids."""

    shard: int
    ordinal: int
    ids: Row


@dataclass
class Vocabulary:
    ranks: dict[bytes, int]
    special: dict[str, int]
    eot: int
    bos: int
    pad: int


def ordered(records: list[Record], kind: str, settings: Settings) -> list[Record]:
    """The global order: by the words of a generator keyed by (kind, seed, shard), ties by shard and ordinal."""
    if settings["shuffle"]["order"] == "source":
        return records
    keys: list[tuple[int, int, int]] = []
    for shard in sorted({record.shard for record in records}):
        identity = {"shuffle": kind, "seed": settings["shuffle"]["seed"], "shard": shard}
        printed = json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()
        key = np.frombuffer(hashlib.sha256(printed).digest()[:16], "<u8")
        words = np.random.Philox(key=key)
        keys += [(int(words.random_raw()), shard, record.ordinal) for record in records if record.shard == shard]
    return [item for _, item in sorted(zip(keys, records, strict=True), key=lambda pair: pair[0])]


def webdataset(settings: Settings, shards: list[list[list[Row]]], vocabulary: Vocabulary) -> dict[str, Any]:
    wanted, packing = settings["exports"]["webdataset"], settings["packing"]
    records = []
    for number, files in enumerate(shards):
        streams = files if packing["stream"] == "file" else [[row for held in files for row in held]]
        contexts = [
            context
            for stream in streams
            for context in packed(
                stream, wanted["context_tokens"], packing, vocabulary.eot, vocabulary.bos, vocabulary.pad
            )
        ]
        records += [Record(number, ordinal, ids) for ordinal, ids in enumerate(contexts)]
    records = ordered(records, "contexts", settings)
    size = wanted["contexts_per_shard"]
    files: dict[str, Any] = {}
    manifest = ""
    for number, first in enumerate(range(0, len(records), size)):
        held = records[first : first + size]
        files[f"webdataset/shard_{number:08d}.tar"] = [
            (f"{number:08d}_{place:08d}_{item.shard:05d}-{item.ordinal:09d}.json.gz", item.ids)
            for place, item in enumerate(held)
        ]
        manifest += (
            json.dumps({"num_sequences": len(held), "shard": f"shard_{number:08d}"}, separators=(",", ":")) + "\n"
        )
    return {**files, "webdataset/manifest.jsonl": manifest.encode()}


def numpy_files(wanted: Settings, records: list[Record], eot: int) -> dict[str, Any]:
    stream = [token for record in records for token in (eot, *record.ids)]
    held_out = wanted["test_name"] or ("val" if wanted["layout"] == "bin" else "test")
    if wanted["layout"] == "bin":
        first = min(int(len(stream) * wanted["test_share"]), len(stream) // 2)
        raw = {held_out: stream[:first], wanted["train_name"]: stream[first:]}
        return {f"numpy/{name}.bin": np.array(ids, "<u2").tobytes() for name, ids in raw.items() if ids}
    size = wanted["tokens_per_shard"]
    shards = [stream[first : first + size] for first in range(0, len(stream), size)]
    share = wanted["test_share"]
    test = wanted["test_shards"]
    if test is None:
        test = max(1, int(share * len(shards) + 0.5)) if share else 0
    test = min(test, len(shards) // 2)
    digits = max(wanted["number_digits"], len(str(len(shards) - test - 1)))
    files: dict[str, Any] = {}
    for number, ids in enumerate(shards):
        split, at = (held_out, number) if number < test else (wanted["train_name"], number - test)
        name = wanted["file_name"].replace("{split}", split).replace("{number}", str(at).zfill(digits))
        content = io.BytesIO()
        np.save(content, np.array(ids, "<u2"))
        files[f"numpy/{name}"] = content.getvalue()
        if wanted["placeholders"]:
            files["/".join(["numpy", *name.split("/")[:-1], ".placeholder"])] = b""
    return files | (_checkpoints(records, size) if wanted["checkpoints"] else {})


def _checkpoints(records: list[Record], size: int) -> dict[str, Any]:
    """Of every full shard: documents begun when it closes, the last of them, and its tokens that are still to come."""
    ends = list(accumulate(1 + len(record.ids) for record in records))
    rows = []
    for number, bound in enumerate(range(size, (ends[-1] if ends else 0) + 1, size)):
        last = next(place for place, end in enumerate(ends) if end >= bound)
        identity = f"{records[last].shard:05d}-{records[last].ordinal:09d}"
        rows.append({"shard": number, "documents": last + 1, "document": identity, "carry_tokens": ends[last] - bound})
    if not rows:
        return {}
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    newest = f"{rows[-1]['shard']}:{rows[-1]['documents']}".encode()
    return {
        "numpy/checkpoints/checkpoints.jsonl": text.encode(),
        f"numpy/checkpoints/{rows[-1]['document']}.txt": newest,
    }


def whole_documents(name: str, settings: Settings, records: list[Record], vocabulary: Vocabulary) -> dict[str, Any]:
    """Megatron's or Nanoset's files, and the sample of them."""
    framing, exports = settings["framing"], settings["exports"]
    specials = (vocabulary.eot if framing["eod"] else None, vocabulary.bos if framing["bos"] else None)
    framed = [export.framed([[record.ids]], *specials, framing["empty_documents"]) for record in records]
    limit = exports["megatron"]["part_bytes"] if name == "megatron" else exports["nanoset"]["file_bytes"]
    bounds = _bounds(settings, records, framed, limit)
    in_source_order = settings["shuffle"]["order"] == "source"
    stem = f"{settings['name']}_%05d_{settings['source']['text_field']}_document"
    if name == "nanoset":
        stem = "%05d_unshuffled" if in_source_order else "00000_%05d_doc_shuffled"
    files: dict[str, Any] = {}
    for number, (first, last) in enumerate(pairwise(bounds)):
        files |= _file_set(name, f"{name}/{stem % number}", framed[first:last], settings)
    if sampled := exports["sample_documents"]:
        key = settings["source"]["text_field"]
        ending = f"_sample_{key}_document" if name == "megatron" else "_sample"
        files |= _file_set(name, f"sample/{settings['name']}{ending}", framed[:sampled], settings, sample=True)
    return files


Framed = list[tuple[list[Row], list[int]]]
"""Of every document its sequences with special tokens (one or none), and its boundaries."""


def _bounds(settings: Settings, records: list[Record], framed: Framed, limit: int) -> list[int]:
    """The documents at which files begin, and the end; every file has a token."""
    sizes = [sum(map(len, sequences)) for sequences, _ in framed]
    if settings["shuffle"]["order"] == "source":
        bounds = _source_bounds(records, sizes, settings["framing"], max(1, limit // 2))
    else:
        parts = min(len(records), -(-2 * sum(sizes) // limit))
        bounds = [number * len(records) // parts for number in range(parts + 1)]
    kept = [0]
    for bound in bounds[1:-1]:
        if sum(sizes[kept[-1] : bound]) and sum(sizes[bound:]):
            kept.append(bound)
    return [*kept, len(records)]


def _source_bounds(records: list[Record], sizes: list[int], framing: Settings, tokens_per_part: int) -> list[int]:
    """Where the tokens pass a multiple of a part's, as if the documents of a shard were equally long."""
    bounds, documents_before, tokens_before = {0, len(records)}, 0, 0
    for shard in range(max(record.shard for record in records) + 1):
        held = [place for place, record in enumerate(records) if record.shard == shard]
        specials = (framing["eod"] + framing["bos"]) * len(held)
        tokens = sum(len(records[place].ids) for place in held) + specials
        mark = -(-tokens_before // tokens_per_part) * tokens_per_part
        while mark < tokens_before + tokens:
            bounds.add(documents_before + (mark - tokens_before) * len(held) // tokens)
            mark += tokens_per_part
        documents_before, tokens_before = documents_before + len(held), tokens_before + tokens
    return sorted(bounds)


def _file_set(name: str, path: str, framed: Framed, settings: Settings, *, sample: bool = False) -> dict[str, Any]:
    sequences = [sequence for held, _ in framed for sequence in held]
    if name == "megatron":
        boundaries = list(accumulate((len(held) for held, bounds in framed for _ in bounds[1:]), initial=0))
        content = export.indexed(sequences, boundaries, 2)
        return {f"{path}.bin": content[0], f"{path}.idx": content[1]}
    tokens = sum(map(len, sequences))
    files = {
        f"{path}.ds": export.token_bytes(sequences, "H"),
        f"{path}.ds.index": np.array(list(accumulate(map(len, sequences))), "<u8").tobytes(),
        f"{path}.ds.metadata": export.nanoset_metadata(settings["tokenizer"]["name"], 2, tokens),
    }
    if settings["exports"]["nanoset"]["loss"] and not sample:
        files[f"{path}.ds.loss"] = b"\1" * tokens
    return files
