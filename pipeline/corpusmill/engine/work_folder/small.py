"""Small files of a work folder: receipts and marks. On a file system they are files; in a bucket, objects with a copy
in the mirror, which a process refreshes when it first reads it.

The copy has the store's time of change, so that ages are compared by one clock.

A store must honour the conditional writes on which a work folder relies: `require_conditions` checks it.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpusmill.engine.work_folder.objects import NO_TAG, Objects, Small, TakenError, objects_of
from corpusmill.engine.work_folder.outputs import new_attempt
from corpusmill.errors import PermanentError
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


RACERS = 16
NAME = ".store-check"
IF_ABSENT, IF_SAME = "If-None-Match: *", "If-Match"


class StoreUnfitError(PermanentError):
    """A store that ignores conditions: two workers could both commit a step, or both have a dataset."""


def require_conditions(bucket: str, folder: str) -> None:
    """StoreUnfitError for a store that writes although a condition forbids it; checked once per process.

    So errors of requests that these credentials may not send, listing included, come before any work.
    """
    objects = objects_of(bucket)
    if objects.keeps_conditions:
        return
    key = f"{folder}/{NAME}-{new_attempt()}"  # others may check at the same time
    tag = objects.put(key, b"here\n").tag
    if _wins(objects, key, b"again\n", ""):
        raise _unfit(objects, key, IF_ABSENT, "overwrote an existing object")
    if _wins(objects, key, b"another\n", NO_TAG):
        raise _unfit(objects, key, IF_SAME, "overwrote another object than the one named")
    if not _wins(objects, key, b"mine\n", tag):
        raise _unfit(objects, key, IF_SAME, "refused to overwrite the object named")
    next(objects.list(key), None)
    objects.delete(key)
    objects.keeps_conditions = True


def race_writers(bucket: str, folder: str, races: int) -> None:
    """Let RACERS threads write one object at the same time: first a new one, then over the existing one.

    StoreUnfitError unless exactly one wins every race.
    """
    objects = objects_of(bucket)
    with ThreadPoolExecutor(RACERS) as pool:

        def winners(key: str, over: str) -> int:
            texts = [b"%d over %s\n" % (number, over.encode()) for number in range(RACERS)]
            return sum(pool.map(lambda text: _wins(objects, key, text, over), texts))

        for _ in range(races):
            key = f"{folder}/{NAME}-{new_attempt()}"
            if (count := winners(key, "")) != 1:
                raise _unfit(objects, key, IF_ABSENT, f"{count} of {RACERS} writers won a race")
            there = objects.get(key)
            if (count := winners(key, there.tag if there else NO_TAG)) != 1:
                raise _unfit(objects, key, IF_SAME, f"{count} of {RACERS} writers won a race")
            objects.delete(key)


def _wins(objects: Objects, key: str, content: bytes, over: str) -> bool:
    try:
        objects.put(key, content, over=over)
    except TakenError:
        there = objects.get(key)  # a retry after a lost answer fails like this, too
        return there is not None and there.content == content
    return True


def _unfit(objects: Objects, key: str, condition: str, got: str) -> StoreUnfitError:
    return StoreUnfitError(
        "work_folder.conditions_ignored: this store cannot hold a work folder: it ignores conditions",
        where=objects.location(key),
        expected=f"{condition} honoured, as in Amazon S3 and SeaweedFS",
        got=got,
        next_step="use another store for work_folder; sources and destinations may remain in this one",
    )
