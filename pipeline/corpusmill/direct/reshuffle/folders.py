"""The inputs and the output folder of `corpusmill shuffle`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from corpusmill.direct.reshuffle.lines import list_inputs
from corpusmill.errors import ConfigError, CorruptDataError, SourceError
from corpusmill.export.companions import MANIFEST
from corpusmill.export.files import INCOMPLETE, whole_files
from corpusmill.inspect.datasets.complete import require_complete
from corpusmill.shuffle.lines import full_folder_explained

TOKEN_SHARD = "token_shard.json"  # noqa: S105 (a file's name)
KINDS = {".tar": "tars of contexts", ".npy": ".npy shards", TOKEN_SHARD: "token shards"}


def ready_inputs(inputs: list[str]) -> tuple[str, list[Path]]:
    """(kind, a key of KINDS; files, or folders of token shards) in order of path.

    SourceError for an input that holds none of them, ConfigError for two kinds at once, which may hold the same
    records. A folder stands for all of its files: VerificationError if one is missing that its dataset states,
    SourceError if one is missing that a manifest beside the tars lists.
    """
    paths = [Path(path) for path in list_inputs(inputs, tuple(KINDS))[0]]
    kinds = {kind for kind in KINDS for path in paths if path.name.endswith(kind)}
    others = [path for path in paths if not path.name.endswith(tuple(KINDS))]
    if others or len(kinds) != 1:
        names = sorted(KINDS[kind] for kind in kinds)
        raise ConfigError(
            "reshuffle.several_kinds: the inputs are not all of one kind that can be reshuffled",
            where=", ".join(inputs),
            expected=f"one of: {', '.join(KINDS.values())}",
            got=others[0] if others else " and ".join(names),
            next_step="name the folder of one kind; lines of text are for corpusmill shuffle-text",
        )
    (kind,) = kinds
    require_complete(map(Path, inputs), (kind,))
    if kind == ".tar":
        _require_listed(sorted({path.parent for path in paths if any(Path(entry) in path.parents for entry in inputs)}))
    return kind, [path.parent for path in paths] if kind == TOKEN_SHARD else paths


def _require_listed(folders: list[Path]) -> None:
    """SourceError if a manifest in one of the folders lists a tar that is missing."""
    for folder in folders:
        missing = sorted(path for path in listed_tars(folder) if not path.is_file())
        if missing:
            raise SourceError(
                "reshuffle.tar_missing: a tar is missing that the manifest lists",
                where=missing[0],
                expected=f"a file, as {folder / MANIFEST} says",
                got=f"{len(missing):,} missing",
                next_step="fetch it again, or name the tars that you want",
            )


def listed_tars(folder: Path) -> dict[Path, int]:
    """{tar: samples} of a folder's manifest, ours or open_lm's; empty without one. CorruptDataError for no JSON lines.

    Lines that name no shard, which another program's `manifest.jsonl` may have, are passed over.
    """
    path = folder / MANIFEST
    try:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []
    except ValueError as error:
        raise CorruptDataError(
            "reshuffle.manifest_not_readable: the manifest beside the tars cannot be read",
            where=path,
            expected='{"num_sequences":N,"shard":"shard_N"}',
            got=error,
            next_step="fetch it again, or remove it: it tells whether tars are missing",
        ) from error
    return {
        folder / f"{row['shard'].removesuffix('.tar')}.tar": row["num_sequences"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("shard"), str) and "num_sequences" in row
    }


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A folder to write into, whose files get their names in `output` together (export/files.py, whole_files).

    ConfigError if `output` holds anything, because stale shards would be read together with new ones. SourceError if
    nothing was written, StorageFullError if the device or the quota is full.
    """
    names = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if names and names != [INCOMPLETE]:
        raise ConfigError(
            "reshuffle.output_not_empty: the output folder is not empty: old and new shards would mix",
            where=output,
            got=", ".join(names[:3]),
            next_step="choose another folder, or empty this one",
        )
    with full_folder_explained(output, "the output needs as much as the input"), whole_files(output) as inner:
        yield inner
        if not any(inner.iterdir()):
            raise SourceError(
                "reshuffle.no_records: the inputs hold no record",
                next_step="check the inputs, and --context-tokens if it was given",
            )
