"""Small files of a work folder: receipts and marks. On a file system they are files; of a bucket, objects with a copy
in the mirror, which a process brings up to date when it first asks.

A file has the time of change that its store gave it, here as there: what is older than what is asked of one clock.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from corpusmill.mirrored import object_of
from corpusmill.work_folder.objects import Small, TakenError, objects_of

_known: dict[tuple[int, Path], str] = {}
"""(process, path) -> the tag of the object as this process saw it last; "" if there was none."""


def is_shared(path: Path) -> bool:
    """Whether a path of a work folder lies in a bucket."""
    return object_of(path) is not None


def refresh(path: Path, *, again: bool = False) -> bool:
    """Whether a small file is there; of one in a bucket, the copy here is then what it was when this process first
    asked, or with `again` what it is now.
    """
    there = object_of(path)
    if there is None:
        return path.exists()
    if again or _key(path) not in _known:
        bucket, key = there
        _take_over(path, objects_of(bucket).get(key))
    return bool(_known[_key(path)])


def refresh_all(folder: Path, name: str) -> None:
    """Bring `<folder>/*/<name>` up to date; those that are gone from a bucket go here, too."""
    there = object_of(folder)
    if there is None:
        return
    bucket, key = there
    listed = [one for one in objects_of(bucket).list(f"{key}/") if one.key.endswith(f"/{name}")]
    tags = {folder / one.key.removeprefix(f"{key}/"): one.tag for one in listed}
    for path in sorted(tags.keys() | set(folder.glob(f"*/{name}"))):
        refresh(path, again=tags.get(path) != _known.get(_key(path)))


def remove_all(folder: Path) -> None:
    """Remove every small file of a folder from the bucket, but for what is here."""
    there = object_of(folder)
    if there is None:
        return
    bucket, key = there
    for one in list(objects_of(bucket).list(f"{key}/")):
        objects_of(bucket).delete(one.key)
        _known.pop(_key(folder / one.key.removeprefix(f"{key}/")), None)


def names_below(folder: Path, prefix: str) -> list[Path]:
    """Every small file `<folder>/*/<prefix>...`, in order of name; none of a bucket's is brought here."""
    there = object_of(folder)
    if there is None:
        return sorted(folder.glob(f"*/{prefix}*"))
    bucket, key = there
    keys = (one.key.removeprefix(f"{key}/") for one in objects_of(bucket).list(f"{key}/"))
    return sorted(folder / name for name in keys if name.count("/") == 1 and name.partition("/")[2].startswith(prefix))


def age_seconds(path: Path) -> float:
    """How long ago a small file was written, by the clock of its store alone; refreshes it. Infinite if it is gone."""
    there = object_of(path)
    if there is None:
        clock = path.with_name(f"{path.name}.clock")
        clock.touch()
        now = clock.stat().st_mtime
        clock.unlink()
        return now - path.stat().st_mtime if path.exists() else math.inf
    bucket, key = there
    found = objects_of(bucket).get(key)
    _take_over(path, found)
    return found.asked_at - found.changed_at if found else math.inf


def write(path: Path, content: bytes) -> None:
    """Write a small file whole, whatever was there."""
    there = object_of(path)
    if there is None:
        _write_here(path, content)
    else:
        bucket, key = there
        _take_over(path, objects_of(bucket).put(key, content))


def put(path: Path, content: bytes) -> bool:
    """Write a small file in a bucket if what this process saw there last, or nothing, is still there; else False, and
    the copy here is what was written by another, or by oneself where an answer was lost.
    """
    bucket, key = object_of(path) or ("", "")
    objects = objects_of(bucket)
    try:
        _take_over(path, objects.put(key, content, over=_known.get(_key(path), "")))
    except TakenError:
        _take_over(path, objects.get(key))
        return bool(_known[_key(path)]) and path.read_bytes() == content
    return True


def remove(path: Path) -> None:
    """Remove a small file; nothing happens if there is none."""
    there = object_of(path)
    if there is not None:
        bucket, key = there
        objects_of(bucket).delete(key)
        _known[_key(path)] = ""
    path.unlink(missing_ok=True)


def _key(path: Path) -> tuple[int, Path]:
    return os.getpid(), path


def _take_over(path: Path, there: Small | None) -> None:
    """Make the copy here what is in the bucket."""
    if there is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_here(path, there.content, changed_at=there.changed_at)
    _known[_key(path)] = there.tag if there else ""


def _write_here(path: Path, content: bytes, *, changed_at: float | None = None) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
        temporary.write(content)
    os.chmod(temporary.name, 0o644)  # noqa: PTH101
    if changed_at is not None:
        os.utime(temporary.name, (changed_at, changed_at))
    Path(temporary.name).replace(path)
