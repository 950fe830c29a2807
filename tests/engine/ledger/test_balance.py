from __future__ import annotations

from pathlib import Path

from corpusmill.engine.ledger import Check, require_balanced
from tests.raising import raises


def test_balance_equal_sides_pass() -> None:
    require_balanced([Check("documents", (("in", 5),), (("out", 3), ("rejected", 2)))], what="index 00000")


def test_balance_missing_documents_are_named_with_the_difference() -> None:
    check = Check("documents", (("in", 41233),), (("out", 41190), ("rejected", 40)))
    with raises("step.unbalanced") as caught:
        require_balanced([check], what="tokenize 00017", receipt=Path("work/receipt.json"), next_step="run again")
    assert str(caught.value).splitlines() == [
        "error[step.unbalanced]: tokenize 00017 does not balance",
        "  documents  in 41,233 = out 41,190 + rejected 40      3 missing",
        "  receipt    work/receipt.json",
        "  next       run again",
    ]


def test_balance_too_many_documents_are_named_as_such() -> None:
    with raises("step.unbalanced", "1 too many"):
        require_balanced([Check("documents", (("in", 1),), (("out", 2),))], what="x")
