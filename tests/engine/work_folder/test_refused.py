"""Credentials that may not do everything in the bucket, as Amazon S3 answers them: 403 before anything is done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config, work_of
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine import garbage
from corpusmill.engine.work_folder.small import require_conditions
from corpusmill.inspect.verify.verification import verify_build
from corpusmill.storage.mirrored import address_of
from tests.engine.work_folder.machines import keys, machine, objects
from tests.faults.proxy import FaultyProxy
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

Refused = Callable[[str, str], bool]

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
ABSENT = 404


class Policy(FaultyProxy):
    """A store that refuses some requests, of (method, path with its query)."""

    def __init__(self, target: str, refused: Refused) -> None:
        super().__init__(target)
        self._refused = refused
        self.writes = 0

    def _passed_on(self, client: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        if self._refused(client.command, client.path):
            return 403, [("Content-Type", "application/xml")], DENIED
        answer = super()._passed_on(client, body)
        # Amazon S3 does not tell who may not list what is not there.
        if client.command == "GET" and answer[0] == ABSENT and self._refused("GET", "/corpus?list-type=2"):
            return 403, [("Content-Type", "application/xml")], DENIED
        self.writes += client.command != "GET"
        return answer


def lists(method: str, path: str) -> bool:
    return method == "GET" and "list-type" in parse_qs(urlsplit(path).query)


def writes(method: str, path: str) -> bool:
    return method not in {"GET", "HEAD"}


def removes(method: str, path: str) -> bool:
    return method == "DELETE"


@contextmanager
def only(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> Iterator[Policy]:
    """Inside, the store refuses such requests."""
    with Policy(os.environ["AWS_ENDPOINT_URL"], refused) as proxy, monkeypatch.context() as inside:
        inside.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture
def config(bucket: str, tmp_path: Path) -> DatasetConfig:
    write_corpus(tmp_path / "corpus", documents=20)
    return check_config(configuration(tmp_path, work_folder="s3://corpus/mill"), where="test")


@pytest.mark.parametrize(
    ("refused", "allow"),
    [(writes, "s3:PutObject"), (lists, "s3:ListBucket"), (removes, "s3:DeleteObject")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_build_that_may_not_do_all_says_what_to_allow_before_it_works(
    config: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, allow: str
) -> None:
    with only(refused, monkeypatch), machine(tmp_path, "second"):
        for ask in (
            lambda: build_dataset(config, workers=1),
            lambda: require_conditions("s3://corpus", "mill"),  # check-store
        ):
            with raises("s3.refused", "AccessDenied", allow):
                ask()
    assert not [key for key in keys() if "/outputs/" in key]
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_reader_who_may_not_write_sees_and_verifies_the_whole(
    config: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = address_of(build_dataset(config, workers=1))
    before = {row.key: row.tag for row in objects().list("")}
    with only(writes, monkeypatch) as proxy, machine(tmp_path, "second"):
        build = open_build(plan)
        assert not verify_build(build).findings
        assert (build.folder("report", "report") / "report.html").read_bytes()
        assert not proxy.writes
    assert {row.key: row.tag for row in objects().list("")} == before


ACTIONS = {
    "GET": "s3:GetObject",
    "PUT": "s3:PutObject",
    "POST": "s3:PutObject",
    "DELETE": "s3:DeleteObject",
    "GET list-type": "s3:ListBucket",
    "GET uploads": "s3:ListBucketMultipartUploads",
    "DELETE uploadId": "s3:AbortMultipartUpload",
}


@pytest.mark.slow
def test_policy_of_the_docs_allows_what_a_build_and_gc_send_and_no_more(
    config: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = set()

    def noted(method: str, path: str) -> bool:
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        keys = [f"{method} {name}" for name in query if f"{method} {name}" in ACTIONS]
        sent.add(ACTIONS[keys[0] if keys else method])
        return False

    with only(noted, monkeypatch):
        (tmp_path / "output").write_bytes(bytes(20 << 20))
        objects().send(tmp_path / "output", "mill/tiny/outputs/0123456789abcdef/killed/tokens")
        store: Any = objects()
        store.store.client.create_multipart_upload(
            Bucket="corpus", Key="mill/tiny/outputs/0123456789abcdef/killed/half"
        )
        build_dataset(config, workers=1)
        at_once = ScheduleConfig.model_construct(task_timeout=timedelta(seconds=-1))
        monkeypatch.setattr(garbage, "ScheduleConfig", lambda: at_once)
        found = garbage.find_garbage(work_of(config), GRAPH)
        assert garbage.remove_garbage(work_of(config), GRAPH, found)
    assert not objects().unfinished("")
    page = (Path(__file__).parents[3] / "docs" / "managed-airflows.md").read_text()
    policy = json.loads(page.partition("```json\n")[2].partition("```")[0])
    assert sent == {action for statement in policy["Statement"] for action in statement["Action"]}
