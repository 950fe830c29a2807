"""Accounts that must balance: the output accounts for the input, or the run fails.

An account compares counts, or content (see content.py): counts show how much is missing; content also detects
that one document was lost and another duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.errors import BalanceError
from corpusmill.kernels.content import ContentSum, add_up

Terms = tuple[tuple[str, Any], ...]
"""(label, value) of one side of an account: all values are counts (int), or all are content sums (ContentSum)."""


@dataclass(frozen=True)
class Check:
    """One identity: two sums that must be equal.

    `blame`: the steps (stage, unit) of which one is wrong if they differ; empty: the step whose account it is.
    """

    name: str
    left: Terms
    right: Terms
    blame: tuple[tuple[str, str], ...] = ()

    @property
    def of_content(self) -> bool:
        """Whether content is compared, not counts."""
        return any(isinstance(value, ContentSum) for _, value in (*self.left, *self.right))

    @property
    def difference(self) -> int | ContentSum:
        """left - right; falsy if the account balances."""
        left, right = ([value for _, value in terms] for terms in (self.left, self.right))
        return add_up(left) - add_up(right) if self.of_content else sum(left) - sum(right)

    def __str__(self) -> str:
        return f"{_in_words(self.left)} = {_in_words(self.right)}"


def _in_words(terms: Terms) -> str:
    return " + ".join(f"{label} {value:,}" if isinstance(value, int) else f"{label} {value}" for label, value in terms)


def require_balanced(
    checks: Iterable[Check], *, what: str, receipt: Path | None = None, next_step: str | None = None
) -> None:
    """Raise BalanceError naming every check that does not balance."""
    wrong = [check for check in checks if check.difference]
    if wrong:
        lines = [(check.name, f"{check}      {_missing(check.difference)}") for check in wrong]
        if receipt:
            lines.append(("receipt", str(receipt)))
        raise BalanceError(f"step.unbalanced: {what} does not balance", details=tuple(lines), next_step=next_step)


def _missing(difference: int | ContentSum) -> str:
    if isinstance(difference, ContentSum):
        return "contents differ"
    return f"{difference:,} missing" if difference > 0 else f"{-difference:,} too many"
