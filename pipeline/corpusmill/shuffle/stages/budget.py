"""Budget: how often the documents of each source are shown (decisions/0002-a-budget-is-drawn-before-the-shuffle.md).

One step for the dataset. It reads the lengths of all documents, not their tokens, and writes `shares.json`: per entry
of `source.paths`, and per condition of the budget, its counts, the whole epochs, the last draw, and the counts of the
partial epoch. Readers derive the documents from it (shuffle/budget.py).

A condition, `where lang = 'de'`, is tested with the fields of the texts that were tokenized. A document is of the one
that is true for it, else of its source.

    conditions_00000   uint16 LE a document of a shard: the number of its condition, from 1; 0 without one
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET, UnsetType

from corpusmill.config.dataset import WHERE
from corpusmill.config.epochs import MOST_EPOCHS, parse_amount
from corpusmill.engine.ledger import Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Work
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.lazy import lazily
from corpusmill.report.content import BudgetSummary, SourceShown
from corpusmill.sources.stages.index import final_stage

with lazily:
    import numpy as np

    from corpusmill.documents import conditions, text_shard
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
    """The amount of each entry of `source.paths`; documents of conditions are counted there, too."""
    return [parse_amount(amount) for amount in _written(config)]


def _written(config: DatasetConfig) -> list[str]:
    return [(config.budget or {}).get(path, NOT_NAMED) for path in config.source.paths]


def conditions_file(shard: str) -> str:
    """The file with the condition of each document of a shard."""
    return f"conditions_{shard}"


def conditions_in(budget: Input, shard: str) -> NDArray[np.uint16] | None:
    """uint16 (documents,) of a shard: see the module; None if the budget has no conditions."""
    if "where" not in budget.receipt.settings:
        return None
    with budget.opened(conditions_file(shard)) as folder:
        return np.fromfile(folder / conditions_file(shard), "<u2")


def shares_of(build: Build, shard: str) -> list[tuple[int, int | None]]:
    """(whole epochs, last draw) of each source file of a shard, then of each condition of the budget."""
    if not build.units("budget"):
        return [ONCE] * len(build.plan.shards[int(shard)])
    return _shares_in(build.receipt("budget", UNIT), int(shard))


def _shares_in(budget: Receipt, shard: int) -> list[tuple[int, int | None]]:
    sources, where = budget.details["sources"], budget.settings.get("where", ())
    conditions = range(len(sources) - len(where), len(sources))
    return [
        (sources[source]["whole"], sources[source]["last"])
        for source in (*budget.settings["paths"][shard], *conditions)
    ]


def shown_total(build: Build, count: str) -> int:
    """A count of the token shards (tokens, documents_out, documents_empty) over all showings of their documents."""
    if build.units("budget"):
        return build.receipt("budget", UNIT).counts[count]
    return build.total("tokenize", count)


def as_shown(
    shard: TokenShard,
    shares: list[tuple[int, int | None]],
    seed: int,
    number: int,
    files: int,
    conditions: NDArray[np.uint16] | None = None,
) -> TokenShard:
    """A token shard's documents as often as the shares of its files, and of conditions, show them. CorruptDataError if
    it has other files, or other documents.
    """
    source_ends = _source_ends(shard, number, files)
    of = _shares_of_documents(shard, source_ends, conditions, number)
    draws = shuffle_budget.draw_documents(seed, number, shard.documents)
    return shard.as_shown(*shuffle_budget.shown_documents(shares, of, source_ends, draws))


def shown_shard(budget: Input | None, shard: str, tokens: TokenShard) -> TokenShard:
    """A shard's documents as often as the dataset shows them; unchanged without a budget."""
    if budget is None:
        return tokens
    settings, shares = budget.receipt.settings, _shares_in(budget.receipt, int(shard))
    if all(share == ONCE for share in shares):
        return tokens
    files = len(settings["paths"][int(shard)])
    return as_shown(tokens, shares, settings["seed"], int(shard), files, conditions_in(budget, shard))


def _shares_of_documents(
    shard: TokenShard, source_ends: NDArray[np.uint64], conditions: NDArray[np.uint16] | None, number: int
) -> NDArray[np.int64]:
    if conditions is not None and len(conditions) != shard.documents:
        raise CorruptDataError(
            "budget.documents_changed: a token shard has other documents than the budget was made for",
            where=f"shard {number:05d}",
            expected=f"{len(conditions):,} documents",
            got=f"{shard.documents:,} documents",
            next_step="remove the folder of budget and run again",
        )
    return shuffle_budget.shares_of_documents(source_ends, conditions)


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
    """`paths`: for each file of each shard, which entry of `source.paths` it comes from; `where`: the conditions, UNSET
    without any; `amounts`: of each entry of `source.paths`, then of each condition.
    """

    seed: int
    amounts: list[str]
    paths: list[list[int]]
    where: list[str] | UnsetType = UNSET


def _identity(build: Build, _unit: str) -> Settings:
    assert build.config.shuffle.seed is not None
    conditions = build.config.budget_conditions()
    return Settings(
        seed=build.config.shuffle.seed,
        amounts=[*_written(build.config), *conditions.values()],
        paths=[*map(list, build.plan.paths or ())],
        where=[*conditions] or UNSET,
    )


def _inputs(build: Build, _unit: str) -> dict[str, list[StepName]]:
    """With conditions also the texts that were tokenized, whose fields they test."""
    shards = build.units("tokenize") if build.config.budget_conditions() else []
    return {"tokens": whole(build, "tokenize"), "texts": [(final_stage(build, shard), shard) for shard in shards]}


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    shards, bytes_read = inputs.every("tokens"), 0
    where = settings.where or []
    if where:
        _write_conditions(inputs, where, folder)
    own = len(settings.amounts) - len(where)

    def conditions_of(shard: str) -> NDArray[np.uint16] | None:
        return np.fromfile(folder / conditions_file(shard), "<u2") if where else None

    def documents() -> Iterator[Documents]:
        nonlocal bytes_read
        for step, of_files in zip(shards, settings.paths, strict=True):
            with step.opened() as tokenized:
                shard = token_shard.open_token_shard(tokenized)
                source_ends = _source_ends(shard, int(step.unit), len(of_files))
                bytes_read += shard.ends.nbytes
                of = _shares_of_documents(shard, source_ends, conditions_of(step.unit), int(step.unit))
                sources = np.array([*of_files, *range(own, own + len(where))], np.int64)[of]
                draws = shuffle_budget.draw_documents(settings.seed, int(step.unit), shard.documents)
                yield shuffle_budget.Documents(sources, draws, np.diff(shard.ends, prepend=np.uint64(0)))

    shares = shuffle_budget.share_out([parse_amount(amount) for amount in settings.amounts], documents)
    names = [*resources.sources, *(WHERE + condition for condition in where)]
    for name, amount, share in zip(names, settings.amounts, shares, strict=True):
        _require_possible(name, amount, share)
    for step, of_files in zip(shards, settings.paths, strict=True):
        of_shard = [(share.whole, share.last) for share in (*(shares[path] for path in of_files), *shares[own:])]
        with step.opened() as tokenized:
            _require_room(tokenized, int(step.unit), of_shard, len(of_files), conditions_of(step.unit))
    sources = [
        {"there": list(share.there), "whole": share.whole, "last": share.last, "rest": list(share.rest)}
        for share in shares
    ]
    (folder / SHARES).write_text(json.dumps(sources, indent=1) + "\n")
    shown = shuffle_budget.Counted()
    for share in shares:
        shown = shown.plus(share.shown())
    return Outcome(counts={**_counts(shown), "bytes_read": bytes_read}, details={"sources": sources})


def _write_conditions(inputs: Inputs, where: list[str], folder: Path) -> None:
    tested = [*map(conditions.read_condition, where)]
    for step in inputs.every("texts"):
        text = text_shard.open_text_shard(step.folder())
        numbers = np.zeros(text.documents, np.uint16)
        for number, condition in enumerate(tested, start=1):
            holds = conditions.of_documents(condition, text.document_fields(), text.documents) == 1
            if (twice := np.flatnonzero(holds & (numbers > 0))).size:
                _refuse_overlap(text.source_of(int(twice[0])), where[numbers[twice[0]] - 1], where[number - 1])
            numbers[holds] = number
        (folder / conditions_file(step.unit)).write_bytes(numbers.astype("<u2").tobytes())


def _refuse_overlap(place: tuple[str, int], one: str, other: str) -> NoReturn:
    raise SourceError(
        "budget.conditions_overlap: two conditions of the budget are true for one document",
        where=f"{place[0]}, line {place[1] + 1:,}",
        expected="at most one",
        got=f"{one}; {other}",
        next_step=f"exclude one from the other: where ({other}) and not coalesce({one}, false)",
    )


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


def _require_room(
    folder: Path,
    number: int,
    shares: list[tuple[int, int | None]],
    files: int,
    conditions: NDArray[np.uint16] | None,
) -> None:
    """SourceError if a shard repeats more documents than fit in memory when it is scattered."""
    if all(share[0] < 2 for share in shares):
        return
    source_ends = _source_ends(token_shard.open_token_shard(folder), number, files)
    repeats = shuffle_budget.repeats_of(shares, shuffle_budget.shares_of_documents(source_ends, conditions), files)
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
    names = [*build.config.source.paths, *(WHERE + condition for condition in build.config.budget_conditions())]
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
            for path, source in zip(names, sources, strict=True)
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
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    shown=Shown(unit_word="dataset", flows=_flows),
)
