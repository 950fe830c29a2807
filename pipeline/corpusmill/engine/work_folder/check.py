"""Checks that a store honours the conditional writes on which a work folder relies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from corpusmill.engine.work_folder.buckets import objects_of
from corpusmill.engine.work_folder.objects import NO_TAG, Objects, TakenError
from corpusmill.engine.work_folder.outputs import new_attempt
from corpusmill.errors import PermanentError

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
