from __future__ import annotations

import pytest

from corpusmill.storage import list_sources, open_location, open_store
from corpusmill.storage.locations import is_open_to_others, without_credentials, without_queries
from tests.raising import raises

WITH_CREDENTIALS = [
    "https://name:hush@host/bucket",
    "https://name:hu/sh@host",
    "HTTP://hush@host",
    "https://host/?token=hush",
    "https://host/path#hush",
    "s3://key:hush@bucket/prefix",
    "s3://key:hu/sh@bucket/prefix",
    "gs://hush@bucket",
]


@pytest.mark.parametrize("address", WITH_CREDENTIALS)
def test_address_with_credentials_is_refused_wherever_it_is_given_and_not_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="may not hold credentials"):
        without_credentials(address)
    for call in (open_store, open_location, lambda given: list_sources([given], (".jsonl",))):
        with raises("config.credentials") as caught:
            call(address)
        assert "sh@" not in str(caught.value) + repr(caught.value.__cause__)
    if address.lower().startswith("http"):
        with raises("config.credentials"):
            open_store("s3://bucket", endpoint_url=address)


@pytest.mark.parametrize(
    "address",
    ["hf://datasets/owner/name@main", "s3://b/a@b:c.jsonl", "s3://b/part-?.jsonl", "http://minio:9000", "data@home?"],
)
def test_address_without_credentials_is_taken_as_it_is(address: str) -> None:
    assert without_credentials(address) == address


def test_queries_of_urls_leave_a_text_and_nothing_else_does() -> None:
    text = "403 for 'https://host/a?X-Amz-Signature=hush&x=1' and (http://h:1/b#hush) why?"
    text += " (Caused by ... with url: /upload?upload_id=hush)"
    assert without_queries(text) == "403 for 'https://host/a' and (http://h:1/b why? (Caused by ... with url: /upload"


@pytest.mark.parametrize(
    ("endpoint_url", "warned"),
    [
        ("https://example.com", False),
        ("http://example.com:9000", True),
        ("http://8.8.8.8", True),
        ("http://127.0.0.1:9000", False),
        ("http://[::1]:9000", False),
        ("http://10.1.2.3", False),
        ("http://minio:9000", False),
        ("http://minio.storage.svc", False),
        ("http://store.cluster.local", False),
    ],
)
def test_plain_http_is_warned_of_beyond_private_hosts(caplog, monkeypatch, endpoint_url: str, warned: bool) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert is_open_to_others(endpoint_url) == warned
    open_store("s3://bucket", endpoint_url=endpoint_url)
    assert ("not encrypted" in caplog.text) == warned
