"""The output folder of a repeated command: it contains only what the last run delivered.

`.delivered.json` in the folder lists the files of the last run, its command and the names of its sources. With it the
next run distinguishes its own files from others: its own that it no longer delivers are removed, or a document that is
now in `a.part00000.jsonl` would stay in `a.jsonl`, too. A folder with other files is refused, and so is one that would
lose files of another command, or of sources of which this run reads none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.storage.local import require_writable_folder
from corpusmill.storage.stores import Store, is_local, open_store

LIST = ".delivered.json"
log = logging.getLogger(__name__)


class Delivered(BaseModel):
    """The content of `.delivered.json`: a run's command, its sources and its files, sorted."""

    model_config = ConfigDict(frozen=True)

    command: str
    sources: tuple[str, ...]
    files: tuple[str, ...]


class OutputFolder:
    """The folder, or the prefix in a bucket, that a command delivers to."""

    def __init__(self, location: str, command: str) -> None:
        """ConfigError if the folder holds files that no run of a command listed; hidden ones do not count.

        PermanentError for a folder of this machine into which nothing can be written.
        """
        if is_local(location):
            require_writable_folder(Path(location))
        self.store: Store = open_store(location)
        self._command = command
        self._earlier = _read_list(self.store)
        listed = set(self._earlier.files)
        strangers = [
            file.name
            for file in self.store.list_files()
            if file.name not in listed and not any(part.startswith(".") for part in file.name.split("/"))
        ]
        if strangers:
            raise ConfigError(
                "output.files_of_others: the output folder holds files that no earlier run delivered: old and new ones"
                " would mix",
                where=location,
                expected=f"no files, or those of an earlier run of corpusmill {command}",
                got=f"{len(strangers):,} others, such as {', '.join(strangers[:3])}",
                next_step="choose another folder",
            )

    def replace(self, sources: Iterable[str], files: Iterable[str]) -> None:
        """List these files before they are delivered, and remove stale ones of the earlier run.

        ConfigError if the stale ones are of another command or of other sources.
        """
        mine = Delivered(command=self._command, sources=tuple(sorted(sources)), files=tuple(sorted(files)))
        earlier = self._earlier
        stale = sorted(set(earlier.files) - set(mine.files))
        if stale and (earlier.command != mine.command or set(earlier.sources).isdisjoint(mine.sources)):
            raise ConfigError(
                "output.other_command: the output folder has the output of another command or of other sources",
                where=self.store.folder,
                expected=f"files of corpusmill {mine.command} of some of the same sources",
                got=f"files of corpusmill {earlier.command} of {', '.join(earlier.sources[:3])}",
                next_step="choose another folder",
            )
        for name in stale:
            self.store.delete(name)
            if is_local(self.store.folder):
                _remove_empty_folders(Path(self.store.folder), Path(self.store.folder, name).parent)
        if stale:
            log.warning("%s: %s files of an earlier run removed", self.store.folder, f"{len(stale):,}")
        self.store.receive_bytes(f"{mine.model_dump_json(indent=1)}\n".encode(), LIST)


def _read_list(store: Store) -> Delivered:
    if store.stat(LIST) is None:
        return Delivered(command="", sources=(), files=())
    with store.open(LIST) as file:
        text = file.read()
    try:
        return Delivered.model_validate_json(text)
    except ValidationError as error:
        raise CorruptDataError(
            "output.list_not_readable: the list of an output folder's files cannot be read",
            where=f"{store.folder}/{LIST}",
            got=f"{error.error_count()} problems",
            next_step="choose another folder",
        ) from error


def _remove_empty_folders(root: Path, folder: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
