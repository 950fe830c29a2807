"""Budget: how often the documents of each source are shown (decisions/0002-a-budget-is-drawn-before-the-shuffle.md).

One step for the dataset. It reads the lengths of all documents, not their tokens, and writes `shares.json`: per entry
of `source.paths` its counts, the whole epochs, the last draw, and the counts of the partial epoch. Readers derive the
documents from it (shuffle/budget.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config.epochs import MOST_EPOCHS, parse_amount
from corpusmill.engine.ledger import Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.lazy import lazily
from corpusmill.report.content import BudgetSummary, SourceShown

with lazily:
    import numpy as np

    from corpusmill.shuffle import budget as shuffle_budget
    from corpusmill.tokens import token_shard


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig
    from corpusmill.config.epochs import Amount
    from corpusmill.engine.build import Build
    from corpusmill.report.facts import Flow
    from corpusmill.shuffle.budget import Documents, Share
    from corpusmill.tokens.token_shard import TokenShard

UNIT, SHARES = "dataset", "shares.json"
ONCE = (1, None)
NOT_NAMED = "1 epoch"


def amounts_of(config: DatasetConfig) -> list[Amount]:
    """The amount of each entry of `source.paths`."""
    return [parse_amount(amount) for amount in _written(config)]


def _written(config: DatasetConfig) -> list[str]:
    return [(config.budget or {}).get(path, NOT_NAMED) for path in config.source.paths]


def shares_of(build: Build, shard: str) -> list[tuple[int, int | None]]:
    """(whole epochs, last draw) of each source file of a shard."""
    if not build.units("budget"):
        return [ONCE] * len(build.plan.shards[int(shard)])
    return _shares_in(build.receipt("budget", UNIT), int(shard))


def _shares_in(budget: Receipt, shard: int) -> list[tuple[int, int | None]]:
    sources = budget.details["sources"]
    return [(sources[path]["whole"], sources[path]["last"]) for path in budget.settings["paths"][shard]]


def shown_total(build: Build, count: str) -> int:
    """A count of the token shards (tokens, documents_out, documents_empty) over all showings of their documents."""
    if build.units("budget"):
        return build.receipt("budget", UNIT).counts[count]
    return build.total("tokenize", count)


def as_shown(shard: TokenShard, shares: list[tuple[int, int | None]], seed: int, number: int) -> TokenShard:
    """A token shard's documents as often as its files' shares show them. CorruptDataError if it has other files."""
    source_ends = _source_ends(shard, number, len(shares))
    draws = shuffle_budget.draw_documents(seed, number, shard.documents)
    return shard.as_shown(*shuffle_budget.shown_documents(shares, source_ends, draws))


def shown_shard(budget: Receipt | None, shard: str, tokens: TokenShard) -> TokenShard:
    """A shard's documents as often as the dataset shows them; unchanged without a budget."""
    shares = _shares_in(budget, int(shard)) if budget else []
    if budget is None or all(share == ONCE for share in shares):
        return tokens
    return as_shown(tokens, shares, budget.settings["seed"], int(shard))


def _source_ends(shard: TokenShard, number: int, files: int) -> NDArray[np.uint64]:
    """Documents up to the end of each source file of a shard; CorruptDataError unless it has `files` files."""
    if shard.source_ends is None or len(shard.source_ends) != files:
        raise CorruptDataError(
            "budget.sources_changed: a token shard has other source files than the plan",
            where=f"shard {number:05d}",
            expected=f"{files:,} files",
            got=f"{0 if shard.source_ends is None else len(shard.source_ends):,} files",
            next_step="remove its folder below tokenize and run again",
        )
    return shard.source_ends


class Settings(Identity, frozen=True, kw_only=True):
    """`paths`: for each file of each shard, which entry of `source.paths` it comes from."""

    seed: int
    amounts: list[str]
    paths: list[list[int]]


def _identity(build: Build, _unit: str) -> Settings:
    assert build.config.shuffle.seed is not None
    return Settings(
        seed=build.config.shuffle.seed, amounts=_written(build.config), paths=[*map(list, build.plan.paths or ())]
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    shards, bytes_read = inputs.every("tokens"), 0

    def documents() -> Iterator[Documents]:
        nonlocal bytes_read
        for step, of_files in zip(shards, settings.paths, strict=True):
            with step.opened() as tokenized:
                shard = token_shard.open_token_shard(tokenized)
                source_ends = _source_ends(shard, int(step.unit), len(of_files))
                bytes_read += shard.ends.nbytes
                of_each = np.diff(source_ends, prepend=np.uint64(0)).astype(np.int64)
                files = np.repeat(np.array(of_files, np.int64), of_each)
                draws = shuffle_budget.draw_documents(settings.seed, int(step.unit), shard.documents)
                yield shuffle_budget.Documents(files, draws, np.diff(shard.ends, prepend=np.uint64(0)))

    shares = shuffle_budget.share_out([parse_amount(amount) for amount in settings.amounts], documents)
    for path, amount, share in zip(resources.sources, settings.amounts, shares, strict=True):
        _require_possible(path, amount, share)
    for step, of_files in zip(shards, settings.paths, strict=True):
        of_shard = [(shares[path].whole, shares[path].last) for path in of_files]
        with step.opened() as tokenized:
            _require_room(tokenized, int(step.unit), of_shard)
    sources = [
        {"there": list(share.there), "whole": share.whole, "last": share.last, "rest": list(share.rest)}
        for share in shares
    ]
    (folder / SHARES).write_text(json.dumps(sources, indent=1) + "\n")
    shown = shuffle_budget.Counted()
    for share in shares:
        shown = shown.plus(share.shown())
    return Outcome(counts={**_counts(shown), "bytes_read": bytes_read}, details={"sources": sources})


def _counts(shown: Any) -> dict[str, int]:
    return {"tokens": shown.tokens, "documents_out": shown.documents, "documents_empty": shown.empty}


def _require_possible(path: str, amount: str, share: Share) -> None:
    if not share.there.tokens and parse_amount(amount).tokens is not None:
        raise SourceError(
            "budget.source_without_tokens: a source with a budget has no tokens",
            where=path,
            expected=amount,
            got=f"{share.there.documents:,} documents, all of them empty after removing repeats and short ones",
            next_step="remove it from budget, or give it epochs",
        )
    if (share.whole, share.rest.documents) > (MOST_EPOCHS, 0):
        raise SourceError(
            "budget.source_too_small: a source is too small for its budget",
            where=path,
            expected=f"at most {MOST_EPOCHS:,} epochs",
            got=f"{amount} of a source of {share.there.tokens:,} tokens",
            next_step=f"give it a smaller budget, such as {MOST_EPOCHS} epochs, or more text",
        )


def _require_room(folder: Path, number: int, shares: list[tuple[int, int | None]]) -> None:
    """SourceError if a shard repeats more documents than fit in memory when it is scattered."""
    if all(share[0] < 2 for share in shares):
        return
    repeats = shuffle_budget.repeats_of(shares, _source_ends(token_shard.open_token_shard(folder), number, len(shares)))
    most = shuffle_budget.MOST_REPEATS
    if repeats > most:
        raise SourceError(
            "budget.too_many_repeats: a shard has more repeats of documents than can be shuffled",
            where=f"shard {number:05d}",
            expected=f"at most {most:,}",
            got=f"{repeats:,}",
            next_step=f"make shards smaller (source.shard_bytes divided by {-(-repeats // most)}), or budgets",
        )


def budget_summary(build: Build) -> BudgetSummary | None:
    """How often each source is shown; None without a budget."""
    if build.config.budget is None:
        return None
    sources = build.receipt("budget", UNIT).details["sources"]
    return BudgetSummary(
        sources=tuple(
            SourceShown(
                path=path,
                budget=build.config.budget.get(path, ""),
                tokens=source["there"][0],
                documents=source["there"][1],
                empty=source["there"][2],
                whole=source["whole"],
                rest_tokens=source["rest"][0],
                rest_documents=source["rest"][1],
                rest_empty=source["rest"][2],
            )
            for path, source in zip(build.config.source.paths, sources, strict=True)
        )
    )


def _flows(build: Build) -> dict[str, Flow]:
    summary = budget_summary(build)
    return {} if summary is None else {"documents": summary.documents_flow(), "tokens": summary.tokens_flow()}


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    sources = json.loads((folder / SHARES).read_bytes())
    shown = shuffle_budget.Counted()
    for source in sources:
        there, rest = (shuffle_budget.Counted(*source[name]) for name in ("there", "rest"))
        shown = shown.plus(shuffle_budget.Share(there, source["whole"], source["last"], rest).shown())
    return Recount(_counts(shown), {"sources": sources})


STAGE = Stage(
    "budget",
    version=1,
    after=("tokenize",),
    wanted=lambda config: config.budget is not None,
    units=lambda _build: [UNIT],
    work=Work(Settings, _identity, lambda build, _unit: {"tokens": whole(build, "tokenize")}, _run),
    recount=_recount,
    shown=Shown(unit_word="dataset", flows=_flows),
)
