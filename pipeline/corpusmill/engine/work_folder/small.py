"""Small files of a work folder: receipts and marks. On a file system they are files; in a bucket, objects with a copy
in the mirror, which a process refreshes when it first reads it.

The copy has the store's time of change, so that ages are compared by one clock.
"""

from __future__ import annotations

import math
from pathlib import Path

from corpusmill.engine.work_folder.buckets import objects_of
from corpusmill.engine.work_folder.objects import Objects, Small, TakenError
from corpusmill.storage.local import write_whole
from corpusmill.storage.mirrored import object_of


def is_shared(path: Path | str) -> bool:
    """Whether a path of a work folder is in a bucket."""
    return object_of(path) is not None


def refresh(path: Path, *, again: bool = False) -> bool:
    """Whether a small file exists. The copy of one in a bucket is then the file as of the first call in this process,
    or with `again` as of now.
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
    """Refresh `<folder>/*/<name>`; copies of files that are gone from the bucket are removed."""
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
    """Remove every small file of a folder from the bucket, but not the copies here."""
    there = object_of(folder)
    if there is None:
        return
    bucket, key = there
    objects = objects_of(bucket)
    for stored in list(objects.list(f"{key}/")):
        objects.delete(stored.key)
        objects.tags.pop(stored.key, None)


def names_below(folder: Path, prefix: str) -> list[Path]:
    """Every small file `<folder>/*/<prefix>...`, in order of name, without fetching any from a bucket."""
    there = object_of(folder)
    if there is None:
        return sorted(folder.glob(f"*/{prefix}*"))
    bucket, key = there
    keys = (stored.key.removeprefix(f"{key}/") for stored in objects_of(bucket).list(f"{key}/"))
    return sorted(folder / name for name in keys if name.count("/") == 1 and name.partition("/")[2].startswith(prefix))


def folders_below(folder: Path) -> list[Path]:
    """Every folder directly below one, in order of name, without fetching anything from a bucket."""
    there = object_of(folder)
    if there is None:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    bucket, key = there
    return sorted(folder / name for name in objects_of(bucket).folders(f"{key}/"))


def age_seconds(path: Path) -> float:
    """Seconds since a small file was written, by its store's clock only; refreshes it. Infinite if it is gone."""
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
    """Write a small file atomically, over any existing one."""
    there = object_of(path)
    if there is None:
        write_whole(path, content)
    else:
        bucket, key = there
        objects = objects_of(bucket)
        _take_over(path, objects.put(key, content), objects, key)


def put(path: Path, content: bytes) -> bool:
    """Write a small file in a bucket if it has not changed since this process last saw it; returns whether it was
    written.

    If not, the copy here is that of the other writer.
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
    """Remove a small file, if it exists."""
    there = object_of(path)
    if there is not None:
        bucket, key = there
        objects_of(bucket).delete(key)
        objects_of(bucket).tags[key] = ""
    path.unlink(missing_ok=True)


def _take_over(path: Path, there: Small | None, objects: Objects, key: str) -> None:
    """Update the copy here from the bucket."""
    if there is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, there.content, changed_ns=round(there.changed_at * 1e9), flush=False)
    objects.tags[key] = there.tag if there else ""
