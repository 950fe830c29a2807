from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.errors import BalanceError
from corpusmill.ledger import Check, require_balanced


def test_balance_equal_sides_pass() -> None:
    require_balanced([Check("documents", (("in", 5),), (("out", 3), ("rejected", 2)))], what="index 00000")


def test_balance_missing_documents_are_named_with_the_difference() -> None:
    check = Check("documents", (("in", 41233),), (("out", 41190), ("rejected", 40)))
    with pytest.raises(BalanceError) as caught:
        require_balanced([check], what="tokenize 00017", receipt=Path("work/receipt.json"), next_step="run again")
    assert str(caught.value).splitlines() == [
        "tokenize 00017 does not balance",
        "  documents  in 41,233 = out 41,190 + rejected 40      3 missing",
        "  receipt    work/receipt.json",
        "  next       run again",
    ]


def test_balance_too_many_documents_are_named_as_such() -> None:
    with pytest.raises(BalanceError, match="does not balance") as caught:
        require_balanced([Check("documents", (("in", 1),), (("out", 2),))], what="x")
    assert "1 too many" in str(caught.value)
