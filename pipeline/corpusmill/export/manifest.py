"""The files next to the WebDataset shards: `manifest.jsonl` for open_lm, and DCLM's dataset reference.

    {"num_sequences":8192,"shard":"shard_00000000"}
    {"num_sequences":8192,"shard":"shard_00000001"}
    {"num_sequences":1234,"shard":"shard_00000002"}

open_lm splits the file at newlines and drops the last piece, so the file must end with one, or it never sees the last
shard (tokshuf's own file has none). It takes shards in the order of the lines, requires equal sizes, and puts the
names into a brace expression, so names contain no comma and no brace.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import orjson

from corpusmill.errors import ConfigError, PermanentError
from corpusmill.export.files import fault, file_bytes, whole_file
from corpusmill.export.webdataset import SHARD_NAME

MANIFEST = "manifest.jsonl"


def write_manifest(path: Path, shards: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Write (shard name without `.tar`, number of sequences) as lines sorted by shard. Returns shards, records, bytes.

    Raises PermanentError for a name that is not shard_<8 digits>, appears twice, or has no sequence.
    """
    ordered = sorted(shards, key=lambda shard: (len(shard[0]), shard[0]))
    refused = [pair for pair in ordered if not SHARD_NAME.fullmatch(pair[0]) or pair[1] < 1]
    refused += [pair for before, pair in pairwise(ordered) if before[0] == pair[0]]
    if refused or not ordered:
        raise PermanentError(
            "manifest.no_common_name: these shards cannot be listed in a manifest",
            where=path,
            expected="shard_<8 digits>, each once, with at least one sequence",
            got=refused[:3] or "no shards",
        )
    text = b"".join(manifest_line(name, records) for name, records in ordered)
    with whole_file(path) as file:
        file.write(text)
    return {"shards": len(ordered), "records": sum(records for _, records in ordered), "bytes": len(text)}


def manifest_line(name: str, records: int) -> bytes:
    return orjson.dumps(
        {"num_sequences": records, "shard": name}, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def read_manifest(path: Path) -> list[tuple[str, int]]:
    """(shard, number of sequences) of every line. VerificationError, naming the byte, for a line not as written."""
    file_bytes(path)
    lines = path.read_bytes().splitlines(keepends=True)
    entries: list[tuple[str, int]] = []
    at = 0
    for line in lines:
        try:
            entry = orjson.loads(line)
            name, records = entry["shard"], entry["num_sequences"]
            as_written = manifest_line(name, int(records))
        except (ValueError, KeyError, TypeError) as error:
            raise fault(
                "manifest.not_a_shard: a line is not a shard",
                path,
                at,
                expected='{"num_sequences":N,"shard":"shard_N"}',
                got=line,
            ) from error
        if line != as_written:
            raise fault("manifest.line_differs: a line is not as written", path, at, expected=as_written, got=line)
        entries.append((name, records))
        at += len(line)
    return entries


def exp_data(
    *,
    name: str,
    sources: list[str],
    num_tokens: int,
    size_bytes: int,
    dataset_url: str,
    manifest_url: str,
    tokenizer: str,
    sampling_yaml: str = "",
    dcnlp_commit_hash: str = "",
    dcnlp_diff: str = "",
    note: str = "",
    uuid: str | None = None,
    creation_date: str | None = None,
) -> dict[str, object]:
    """DCLM's dataset reference (training/dataset_reference.py), whose loader refuses unknown keys.

    `num_tokens` is sequences x context length, pads included, as DCLM counts. `uuid` and `creation_date` are left out
    unless given: DCLM fills them in, and nothing here depends on a clock. Raises ConfigError for a folder URL without
    its slash, or a manifest elsewhere: open_lm takes the tars from the manifest's own folder.
    """
    if not dataset_url.endswith("/") or manifest_url != f"{dataset_url}{MANIFEST}":
        raise ConfigError(
            "manifest.shards_not_found: open_lm would not find the shards",
            expected=f"dataset_url ending in '/', manifest_url = dataset_url + {MANIFEST}",
            got=f"{dataset_url} and {manifest_url}",
        )
    reference: dict[str, object] = {
        "name": name,
        "sources": sources,
        "tokenized": True,
        "num_tokens": num_tokens,
        "size": size_bytes,
        "dataset_url": dataset_url,
        "manifest_url": manifest_url,
        "dcnlp_commit_hash": dcnlp_commit_hash,
        "dcnlp_diff": dcnlp_diff,
        "sampling_yaml": sampling_yaml,
        "tokenizer": tokenizer,
        "data_key": "json.gz",
        "note": note,
    }
    optional = {"uuid": uuid, "creation_date": creation_date}
    return reference | {key: value for key, value in optional.items() if value is not None}
