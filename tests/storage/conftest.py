"""Stores for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.far import FOLDERS, Far, far_of


@pytest.fixture(params=FOLDERS)
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """A store with a few objects behind a proxy, of each kind."""
    with far_of(request, monkeypatch, request.param) as store:
        yield store


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that a server of the tests' own takes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
