"""Accounts that must balance: what went in came out, or the run fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BalanceError


@dataclass(frozen=True)
class Check:
    """One identity: two sums that must be equal, each a list of (label, count)."""

    name: str
    left: tuple[tuple[str, int], ...]
    right: tuple[tuple[str, int], ...]

    @property
    def difference(self) -> int:
        """left - right; zero when the account balances."""
        return sum(count for _, count in self.left) - sum(count for _, count in self.right)

    def __str__(self) -> str:
        left = " + ".join(f"{label} {count:,}" for label, count in self.left)
        right = " + ".join(f"{label} {count:,}" for label, count in self.right)
        return f"{left} = {right}"


def require_balanced(
    checks: Iterable[Check], *, what: str, receipt: Path | None = None, next_step: str | None = None
) -> None:
    """Raise BalanceError naming every check that does not balance."""
    wrong = [check for check in checks if check.difference]
    if wrong:
        lines = [(check.name, f"{check}      {_missing(check.difference)}") for check in wrong]
        if receipt:
            lines.append(("receipt", str(receipt)))
        raise BalanceError(f"{what} does not balance", details=tuple(lines), next_step=next_step)


def _missing(difference: int) -> str:
    return f"{difference:,} missing" if difference > 0 else f"{-difference:,} too many"
