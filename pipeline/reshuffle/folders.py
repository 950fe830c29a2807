"""Inputs of `corpusmill shuffle`, opened, and its output folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpusmill.errors import ConfigError, SourceError
from corpusmill.reshuffle.lines import list_inputs
from corpusmill.shuffle.lines import full_folder_explained

TOKEN_SHARD = "token_shard.json"  # noqa: S105 (a file's name)
KINDS = {".tar": "tars of contexts", ".npy": ".npy shards", TOKEN_SHARD: "token shards"}
INCOMPLETE = ".incomplete"


def ready_inputs(inputs: list[str]) -> tuple[str, list[Path]]:
    """(kind, a key of KINDS; files, or folders of token shards) in order of path.

    SourceError for an input that holds none of them, ConfigError for two kinds at once: what the two hold may be the
    same records.
    """
    paths = [Path(path) for path in list_inputs(inputs, tuple(KINDS))]
    kinds = {kind for kind in KINDS for path in paths if path.name.endswith(kind)}
    strangers = [path for path in paths if not path.name.endswith(tuple(KINDS))]
    if strangers or len(kinds) != 1:
        names = sorted(KINDS[kind] for kind in kinds)
        raise ConfigError(
            "the inputs are not all of one kind that can be reshuffled",
            where=", ".join(inputs),
            expected=f"one of: {', '.join(KINDS.values())}",
            got=strangers[0] if strangers else " and ".join(names),
            next_step="name the folder of one kind; lines of text are for corpusmill shuffle-text",
        )
    (kind,) = kinds
    return kind, [path.parent for path in paths] if kind == TOKEN_SHARD else paths


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A folder inside `output` to write into, whose files move up into `output` when the block ends without an error.

    A run that fails leaves nothing, one that is killed a folder `.incomplete`, which the next one removes. ConfigError
    if `output` holds anything else: stale shards beside new ones would be read with them. SourceError if nothing was
    written, StorageFullError when the device or the quota is full.
    """
    names = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if names and names != [INCOMPLETE]:
        raise ConfigError(
            "the output folder is not empty: old and new shards would mix",
            where=output,
            got=", ".join(names[:3]),
            next_step="choose another folder, or empty this one",
        )
    inner = output / INCOMPLETE
    if inner.is_dir():
        shutil.rmtree(inner)
    inner.mkdir(parents=True)
    try:
        with full_folder_explained(output, "the output needs as much as the input"):
            yield inner
        if not any(inner.iterdir()):
            raise SourceError(
                "the inputs hold no record", next_step="check the inputs, and --context-tokens if it was given"
            )
        for path in sorted(inner.iterdir(), reverse=True):  # a manifest, which says what is there, after its shards
            path.rename(output / path.name)
    finally:
        shutil.rmtree(inner)
