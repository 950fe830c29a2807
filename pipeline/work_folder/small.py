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
from corpusmill.work_folder.buckets import objects_of
from corpusmill.work_folder.objects import Objects, Small, TakenError


def is_shared(path: Path | str) -> bool:
    """Whether a path of a work folder lies in a bucket."""
    return object_of(path) is not None


def refresh(path: Path, *, again: bool = False) -> bool:
    """Whether a small file is there; of one in a bucket, the copy here is then what it was when this process first
    asked, or with `again` what it is now.
    """
    there = object_of(path)
    if there is None:
        return path.exists()
    bucket, key = there
    objects = objects_of(bucket)
    if again or key not in objects.tags:
        _take_over(path, objects.get(key), objects, key)
    return bool(objects.tags[key])


def refresh_all(folder: Path, name: str) -> None:
    """Bring `<folder>/*/<name>` up to date; those that are gone from a bucket go here, too."""
    there = object_of(folder)
    if there is None:
        return
    bucket, key = there
    objects = objects_of(bucket)
    tags = {stored.key: stored.tag for stored in objects.list(f"{key}/") if stored.key.endswith(f"/{name}")}
    here = {f"{key}/{path.parent.name}/{name}" for path in sorted(folder.glob(f"*/{name}"))}
    for kept in sorted(tags.keys() | here):
        refresh(folder / kept.removeprefix(f"{key}/"), again=tags.get(kept, "") != objects.tags.get(kept))


def remove_all(folder: Path) -> None:
    """Remove every small file of a folder from the bucket, but for what is here."""
    there = object_of(folder)
    if there is None:
        return
    bucket, key = there
    objects = objects_of(bucket)
    for stored in list(objects.list(f"{key}/")):
        objects.delete(stored.key)
        objects.tags.pop(stored.key, None)


def names_below(folder: Path, prefix: str) -> list[Path]:
    """Every small file `<folder>/*/<prefix>...`, in order of name; none of a bucket's is brought here."""
    there = object_of(folder)
    if there is None:
        return sorted(folder.glob(f"*/{prefix}*"))
    bucket, key = there
    keys = (stored.key.removeprefix(f"{key}/") for stored in objects_of(bucket).list(f"{key}/"))
    return sorted(folder / name for name in keys if name.count("/") == 1 and name.partition("/")[2].startswith(prefix))


def folders_below(folder: Path) -> list[Path]:
    """Every folder directly below one, in order of name; none of a bucket's is brought here."""
    there = object_of(folder)
    if there is None:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    bucket, key = there
    return sorted(folder / name for name in objects_of(bucket).folders(f"{key}/"))


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
    objects = objects_of(bucket)
    newest = objects.get(key)
    _take_over(path, newest, objects, key)
    return newest.asked_at - newest.changed_at if newest else math.inf


def write(path: Path, content: bytes) -> None:
    """Write a small file whole, whatever was there."""
    there = object_of(path)
    if there is None:
        write_here(path, content)
    else:
        bucket, key = there
        objects = objects_of(bucket)
        _take_over(path, objects.put(key, content), objects, key)


def put(path: Path, content: bytes) -> bool:
    """Write a small file in a bucket if what this process saw there last, or nothing, is still there; else False, and
    the copy here is what was written by another, or by oneself where an answer was lost.
    """
    bucket, key = object_of(path) or ("", "")
    objects = objects_of(bucket)
    try:
        _take_over(path, objects.put(key, content, over=objects.tags.get(key, "")), objects, key)
    except TakenError:
        _take_over(path, objects.get(key), objects, key)
        return bool(objects.tags[key]) and path.read_bytes() == content
    return True


def remove(path: Path) -> None:
    """Remove a small file; nothing happens if there is none."""
    there = object_of(path)
    if there is not None:
        bucket, key = there
        objects_of(bucket).delete(key)
        objects_of(bucket).tags[key] = ""
    path.unlink(missing_ok=True)


def _take_over(path: Path, there: Small | None, objects: Objects, key: str) -> None:
    """Make the copy here what is in the bucket."""
    if there is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_here(path, there.content, changed_at=there.changed_at)
    objects.tags[key] = there.tag if there else ""


def write_here(path: Path, content: bytes, *, changed_at: float | None = None) -> None:
    """Write a file of this machine by atomic rename, whoever else writes it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
        temporary.write(content)
    os.chmod(temporary.name, 0o644)  # noqa: PTH101
    if changed_at is not None:
        os.utime(temporary.name, (changed_at, changed_at))
    Path(temporary.name).replace(path)
