from __future__ import annotations

import pickle

from corpusmill.errors import BalanceError, InvalidValueError, PermanentError, StorageFullError, TransientError


def test_error_message_aligns_its_details() -> None:
    error = BalanceError("step.unbalanced: it does not balance", where="here", expected=3, got="2\n3", next_step="look")
    assert str(error).splitlines() == [
        "error[step.unbalanced]: it does not balance",
        "  where     here",
        "  expected  3",
        "  got       2",
        "            3",
        "  next      look",
    ]


def test_error_that_crosses_processes_keeps_class_code_and_details() -> None:
    error = BalanceError("step.unbalanced: it does not balance", where="here", details=(("receipt", "a/b"),))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is BalanceError
    assert (copy.code, copy.what, copy.details) == (error.code, error.what, error.details)


def test_invalid_value_that_crosses_processes_keeps_its_code() -> None:
    copy = pickle.loads(pickle.dumps(InvalidValueError("config.size: a size is a number: 1")))  # noqa: S301
    assert (copy.code, str(copy)) == ("config.size", "a size is a number: 1")


def test_error_families_are_disjoint() -> None:
    assert issubclass(BalanceError, PermanentError)
    assert issubclass(StorageFullError, TransientError)
    assert not issubclass(TransientError, PermanentError)


def test_error_makes_control_characters_visible() -> None:
    """OSC 52 would write the clipboard, U+202E turn what follows around; half a pair cannot be printed."""
    error = BalanceError(
        "step.unbalanced: a\x1b]52;c;eA==\x07", where="b\u202e\r\ud800", details=(("c\x9b", "d\n\te"),)
    )
    assert str(error).splitlines() == [
        r"error[step.unbalanced]: a\x1b]52;c;eA==\x07",
        r"  c\x9b  d",
        "         \te",
        r"  where  b\u202e\r\ud800",
    ]
