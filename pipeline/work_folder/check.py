"""Does a store keep the promises that a work folder in it rests on?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from corpusmill.errors import PermanentError
from corpusmill.work_folder.objects import Objects, TakenError, objects_of

RACERS = 16
NAME = ".store-check"
OTHER_TAG = '"00000000000000000000000000000000"'


class StoreUnfitError(PermanentError):
    """A store that ignores conditions: two workers could both commit a step, or both have a dataset."""


@dataclass(frozen=True)
class Races:
    """How many of RACERS writers won each race: one, if the store is fit."""

    winners_of_new: list[int]
    winners_over_old: list[int]


def require_conditions(bucket: str, folder: str) -> None:
    """StoreUnfitError for a store that writes although a condition forbids it; a process asks once."""
    objects, key = objects_of(bucket), f"{folder}/{NAME}"
    if objects.keeps_conditions:
        return
    tag = objects.put(key, b"here\n").tag
    if _wins(objects, key, b"again\n", ""):
        raise _unfit(objects, key, "If-None-Match: *", "written over an object that is there")
    if _wins(objects, key, b"another\n", OTHER_TAG):
        raise _unfit(objects, key, "If-Match", "written over an object of another ETag")
    if not _wins(objects, key, b"mine\n", tag):
        raise _unfit(objects, key, "If-Match", "refused for the ETag that it gave out itself")
    objects.keeps_conditions = True


def race_writers(bucket: str, folder: str, races: int) -> Races:
    """Let RACERS threads write one object at the same time: where none is, then over the one that is there.

    StoreUnfitError if in any race more or less than one wins.
    """
    objects, new, old = objects_of(bucket), [], []
    with ThreadPoolExecutor(RACERS) as pool:
        for number in range(races):
            key = f"{folder}/{NAME}-{number}"
            objects.delete(key)
            new.append(sum(pool.map(lambda one, at=key: _wins(objects, at, b"%d\n" % one, ""), range(RACERS))))
            there = objects.get(key)
            tag = there.tag if there else ""
            contents = [b"%d again\n" % one for one in range(RACERS)]
            old.append(sum(pool.map(lambda text, at=key, tag=tag: _wins(objects, at, text, tag), contents)))
            objects.delete(key)
    for condition, winners in (("If-None-Match: *", new), ("If-Match", old)):
        if set(winners) - {1}:
            raise _unfit(objects, folder, condition, f"{max(winners)} of {RACERS} writers won a race")
    return Races(new, old)


def _wins(objects: Objects, key: str, content: bytes, over: str) -> bool:
    try:
        objects.put(key, content, over=over)
    except TakenError:
        there = objects.get(key)  # one's own success may be answered so, if its answer was lost
        return there is not None and there.content == content
    return True


def _unfit(objects: Objects, key: str, condition: str, got: str) -> StoreUnfitError:
    return StoreUnfitError(
        "this store cannot hold a work folder: it ignores conditions",
        where=f"s3://{objects.bucket}/{key}",
        expected=f"{condition} honoured, as Amazon S3, SeaweedFS, MinIO and Ceph do",
        got=got,
        next_step="take another store for work_folder; sources and destinations may stay in this one",
    )
