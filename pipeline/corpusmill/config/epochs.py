"""How often the tokens of a source are seen: amounts as users write them, and the resulting epochs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from corpusmill.errors import InvalidValueError

TOKENS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMbBgGtT]?)")
SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
MOST_TOKENS = 2**62
MOST_EPOCHS = 10_000  # only small shards can be repeated this often: MOST_REPEATS of shuffle/budget.py


@dataclass(frozen=True)
class Epochs:
    """`whole` times all of the `there` tokens (or samples) of a source, then `rest` of them, fewer than all."""

    there: int
    whole: int
    rest: int

    @property
    def seen(self) -> int:
        """How many of them are seen at least once."""
        return self.there if self.whole else self.rest

    @property
    def mean(self) -> float:
        """How often each is seen on average."""
        return (self.whole * self.there + self.rest) / self.there


def epochs_of(there: int, drawn: int) -> Epochs:
    """The epochs of a source of `there` tokens (or samples), not 0, of which `drawn` are seen: all before any again."""
    return Epochs(there, *divmod(drawn, there))


@dataclass(frozen=True)
class Amount:
    """A number of tokens, or of epochs of a source; exactly one is set."""

    tokens: int | None = None
    epochs: Fraction | None = None

    def of(self, there: int) -> int:
        """The amount in tokens, for a source of `there` tokens; rounded up."""
        return self.tokens if self.tokens is not None else -int(-(self.epochs or 0) * there // 1)


def token_count(text: str) -> int:
    """20B, 1.5T, 300M or plain digits. ValueError for anything else, and for less than one token."""
    match = TOKENS.fullmatch(text)
    count = int(Fraction(match[1]) * SCALES[match[2].upper()]) if match else 0
    if not 1 <= count <= MOST_TOKENS:
        raise InvalidValueError("config.token_count: a number of tokens looks like 20B or 500M")
    return count


def parse_amount(text: str) -> Amount:
    """`20B tokens`, `2.5 epochs`, `1 epoch`. ValueError for anything else, for nothing, and for too many epochs."""
    number, _, unit = text.partition(" ")
    if unit in {"token", "tokens"}:
        return Amount(tokens=token_count(number))
    match = TOKENS.fullmatch(number)
    if unit not in {"epoch", "epochs"} or match is None or match[2]:
        raise InvalidValueError("config.budget: a budget looks like 20B tokens or 2.5 epochs")
    epochs = Fraction(match[1])
    if not 0 < epochs <= MOST_EPOCHS:
        raise InvalidValueError(
            f"config.budget_of_epochs: a budget is more than 0 and at most {MOST_EPOCHS:,} epochs; to use none of a"
            " source, remove it from source.paths, of a condition's documents, drop them by decisions"
        )
    return Amount(epochs=epochs)


def shown_share(amounts: Sequence[Amount], there: Sequence[int]) -> float:
    """Tokens seen, repeats included, per token `there`, over all sources; 1.0 if the sources have no tokens."""
    total = sum(there)
    return sum(amount.of(tokens) for amount, tokens in zip(amounts, there, strict=True)) / total if total else 1.0
