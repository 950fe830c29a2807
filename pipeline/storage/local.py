"""Files in a folder of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import VerificationError
from pipeline.fingerprint import file_digest
from pipeline.storage.listing import natural_order
from pipeline.storage.locations import StoredFile, safe_relative_name

COPY_BYTES = 8 << 20


class LocalStore:
    """A folder; names are paths below it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root = Path(folder)

    def list_files(self) -> list[StoredFile]:
        """Every regular file below the folder, hidden files (names that start with a dot) left out."""
        paths = (path for path in self._root.rglob("*") if path.is_file())
        names = (path.relative_to(self._root).as_posix() for path in paths)
        visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
        return [self._stored(name) for name in sorted(visible, key=natural_order)]

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        return self._stored(name) if self._path(name).is_file() else None

    def open(self, name: str) -> BinaryIO:
        """See Store."""
        return self._path(name).open("rb")

    def digest(self, name: str) -> str | None:
        """See Store; reads the whole file."""
        path = self._path(name)
        return file_digest(path) if path.is_file() else None

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Copy through a temporary name, flush, compare the sha256 of what the disk now holds, rename."""
        temporary = self._temporary(name)
        with source.open("rb") as reading, temporary.open("wb") as writing:
            shutil.copyfileobj(reading, writing, COPY_BYTES)
            writing.flush()
            os.fsync(writing.fileno())
        got = file_digest(temporary)
        if got != sha256:
            temporary.unlink()
            raise VerificationError(
                "a copied file is not what its receipt says",
                where=source,
                expected=f"sha256 {sha256}",
                got=f"sha256 {got}",
                next_step="the source changed after it was written: remove its folder and run again",
            )
        temporary.replace(self._path(name))

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        temporary = self._temporary(name)
        with temporary.open("wb") as writing:
            writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())
        temporary.replace(self._path(name))

    def _path(self, name: str) -> Path:
        return self._root / safe_relative_name(name, where=self.folder)

    def _temporary(self, name: str) -> Path:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.with_name(f".{path.name}.partial")

    def _stored(self, name: str) -> StoredFile:
        path = self._path(name)
        stat = path.stat()
        return StoredFile(name, str(path), stat.st_size, f"{stat.st_size}-{stat.st_mtime_ns}")
