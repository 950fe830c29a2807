"""How often the documents of each source are shown under a budget."""

from __future__ import annotations

from corpusmill.report.facts import Count, Facts, Flow


class SourceShown(Facts):
    """An entry of `source.paths`, its budget ("": none) and its counts: everything is shown `whole` times, and the
    `rest_` counts once more. `empty` documents have no tokens and are counted among `documents`.
    """

    path: str
    budget: str
    tokens: Count
    documents: Count
    empty: Count
    whole: Count
    rest_tokens: Count
    rest_documents: Count
    rest_empty: Count

    @property
    def shown_tokens(self) -> int:
        """Tokens of all showings."""
        return self.whole * self.tokens + self.rest_tokens

    @property
    def epochs(self) -> float:
        """How often a token is shown on average; 0 where there is none."""
        return self.shown_tokens / self.tokens if self.tokens else 0.0

    @property
    def by_times(self) -> tuple[tuple[int, int], ...]:
        """(times, number of documents shown that many times), of documents with tokens."""
        held, more = self.documents - self.empty, self.rest_documents - self.rest_empty
        pairs = ((self.whole, held - more), (self.whole + 1, more))
        return tuple((times, documents) for times, documents in pairs if documents)


class BudgetSummary(Facts):
    """All sources, in the order of `source.paths`."""

    sources: tuple[SourceShown, ...]

    def documents_flow(self) -> Flow:
        """Documents with tokens: those that are left out, and showings after the first."""
        times = [pair for source in self.sources for pair in source.by_times]
        return _flow(times)

    def tokens_flow(self) -> Flow:
        """The same of tokens."""
        return _flow(
            [
                pair
                for source in self.sources
                for pair in (
                    (source.whole, source.tokens - source.rest_tokens),
                    (source.whole + 1, source.rest_tokens),
                )
            ]
        )


def _flow(times: list[tuple[int, int]]) -> Flow:
    """`times`: pairs (how often it is shown, its amount)."""
    left_out = sum(amount for shown, amount in times if not shown)
    again = sum((shown - 1) * amount for shown, amount in times if shown > 1)
    return Flow(
        into=sum(amount for _, amount in times),
        out=sum(shown * amount for shown, amount in times),
        lost={"beyond the budget": left_out} if left_out else {},
        gained={"shown again": again} if again else {},
    )
