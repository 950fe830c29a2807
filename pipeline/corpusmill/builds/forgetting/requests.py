"""Which documents of a request the last build has: before anybody waits for the next one to forget them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpusmill.builds.graph import open_build
from corpusmill.config import DatasetConfig, ForgetConfig, work_of
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.ledger import DamagedStepError
from corpusmill.engine.runs import delivered_plans
from corpusmill.engine.stage import StepMissingError
from corpusmill.errors import visible
from corpusmill.sources.parts import places_of
from corpusmill.steps.decisions import key_of
from corpusmill.steps.stages.decisions import document_keys
from corpusmill.steps.takedowns import LOG, Key, keys_in_log

SHOWN = 5


@dataclass(frozen=True)
class Requested:
    """The documents of a request. `known` is False if `unmatched` is not certain: nothing was built, or not all of the
    last build's ids can be read.
    """

    matched: tuple[Key, ...]
    unmatched: tuple[Key, ...]
    known: bool

    @property
    def is_failure(self) -> bool:
        """Whether no document is meant."""
        return self.known and not self.matched

    def __str__(self) -> str:
        if not self.known:
            return "the next build says which of them match a document"
        wanted = len(self.matched) + len(self.unmatched)
        text = f"{len(self.matched):,} of {wanted:,} match a document of the last build"
        if not self.unmatched:
            return text
        names = [" line ".join(map(str, key)) for key in self.unmatched[:SHOWN]]
        more = f" and {len(self.unmatched) - SHOWN:,} more" if len(self.unmatched) > SHOWN else ""
        return f"{text}; not {visible(', '.join(names))}{more}"


def match_requests(config: DatasetConfig, forget: ForgetConfig, wanted: Sequence[Key]) -> Requested:
    """Look for documents among those that the last build indexed; the log's documents match, too."""
    work = work_of(config)
    rest = {key_of(*key) for key in wanted} - {key_of(*key) for key in keys_in_log(forget, work / LOG)}
    plans = delivered_plans(work)
    known = bool(plans) or not rest
    try:
        for build in map(open_build, plans[:1]):
            for shard in build.units("index"):
                text = open_text_shard(build.folder("index", shard))
                place = places_of(build, shard, text)
                rest.difference_update(document_keys(text, place, by_id=isinstance(forget.key, str)))
    except (DamagedStepError, StepMissingError):  # reclaimed by a purge, or built by another version
        known = not rest
    keys = list(dict.fromkeys(wanted))
    matched, unmatched = (tuple(key for key in keys if (key_of(*key) in rest) == lacks) for lacks in (False, True))
    return Requested(matched, unmatched, known)
