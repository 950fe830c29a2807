"""How often a store is asked again is configurable, and the same for reads and writes."""

from __future__ import annotations

import pytest

from corpusmill.storage import Traffic, open_store, retries
from tests.raising import raises


@pytest.fixture
def nobody(monkeypatch) -> str:
    """An address where nobody listens, and credentials to ask it with."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return "http://127.0.0.1:9"


@pytest.mark.parametrize("attempts", [1, 3])
def test_retries_attempts_of_the_environment_hold_for_reads_and_writes(nobody, monkeypatch, attempts: int) -> None:
    """The original reads five times whatever --s3-retries says, and writes once."""
    policy = retries.policy_of({retries.ATTEMPTS_KEY: str(attempts)})
    monkeypatch.setattr(retries, "POLICY", policy)
    for ask in (lambda store: store.stat("a"), lambda store: store.receive_bytes(b"x", "a")):
        traffic = Traffic()
        with raises("s3.unavailable") as caught:
            ask(open_store("s3://corpus", endpoint_url=nobody, traffic=traffic))
        assert (traffic.requests, traffic.retries) == (attempts, attempts - 1)
        assert f"{attempts} times" in str(caught.value)


def test_retries_budget_of_pauses_ends_them_earlier(nobody, monkeypatch) -> None:
    monkeypatch.setattr(retries, "POLICY", retries.policy_of({retries.BUDGET_KEY: "0"}))
    traffic = Traffic()
    with raises("s3.unavailable"):
        open_store("s3://corpus", endpoint_url=nobody, traffic=traffic).stat("a")
    assert traffic.requests == 1


@pytest.mark.parametrize("words", ["many", "0", "-1", "1.5"])
def test_retries_attempts_that_are_no_number_are_refused(words: str) -> None:
    with raises("store.attempts", words):
        retries.policy_of({retries.ATTEMPTS_KEY: words})
    assert retries.policy_of({}) == retries.RetryPolicy()
