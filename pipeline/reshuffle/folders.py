"""The inputs and the output folder of `corpusmill shuffle`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpusmill.errors import ConfigError, SourceError
from corpusmill.export.files import INCOMPLETE, whole_files
from corpusmill.reshuffle.lines import list_inputs
from corpusmill.shuffle.lines import full_folder_explained

TOKEN_SHARD = "token_shard.json"  # noqa: S105 (a file's name)
KINDS = {".tar": "tars of contexts", ".npy": ".npy shards", TOKEN_SHARD: "token shards"}


def ready_inputs(inputs: list[str]) -> tuple[str, list[Path]]:
    """(kind, a key of KINDS; files, or folders of token shards) in order of path.

    SourceError for an input that holds none of them, ConfigError for two kinds at once, which may hold the same
    records.
    """
    paths = [Path(path) for path in list_inputs(inputs, tuple(KINDS))]
    kinds = {kind for kind in KINDS for path in paths if path.name.endswith(kind)}
    others = [path for path in paths if not path.name.endswith(tuple(KINDS))]
    if others or len(kinds) != 1:
        names = sorted(KINDS[kind] for kind in kinds)
        raise ConfigError(
            "the inputs are not all of one kind that can be reshuffled",
            where=", ".join(inputs),
            expected=f"one of: {', '.join(KINDS.values())}",
            got=others[0] if others else " and ".join(names),
            next_step="name the folder of one kind; lines of text are for corpusmill shuffle-text",
        )
    (kind,) = kinds
    return kind, [path.parent for path in paths] if kind == TOKEN_SHARD else paths


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A folder to write into, whose files get their names in `output` together (export/files.py, whole_files).

    ConfigError if `output` holds anything, because stale shards would be read together with new ones. SourceError if
    nothing was written, StorageFullError if the device or the quota is full.
    """
    names = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if names and names != [INCOMPLETE]:
        raise ConfigError(
            "the output folder is not empty: old and new shards would mix",
            where=output,
            got=", ".join(names[:3]),
            next_step="choose another folder, or empty this one",
        )
    with full_folder_explained(output, "the output needs as much as the input"), whole_files(output) as inner:
        yield inner
        if not any(inner.iterdir()):
            raise SourceError(
                "the inputs hold no record", next_step="check the inputs, and --context-tokens if it was given"
            )
