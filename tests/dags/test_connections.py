"""Credentials of stores from Airflow's connections: what of them reaches a step's environment, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.graph import GRAPH
from corpusmill.config import check_config
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.errors import PermanentError
from corpusmill.storage.mirrored import path_of
from corpusmill_airflow.connections import credentials, keep_section, section_of
from tests.dags.live import tiny
from tests.engine.work_folder.machines import machine
from tests.raising import raises

SECRET = "a-secret-of-the-tests"  # noqa: S105
IDENTITY = {"AWS_ACCESS_KEY_ID": "another", "AWS_SECRET_ACCESS_KEY": "theirs", "AWS_SESSION_TOKEN": "old"}
Add = Callable[..., None]
EXTRAS = ("region_name", "endpoint_url", "service_config", "profile_name", "keyfile_dict", "key_path", "role_arn")
NESTED = st.just({"s3": {"endpoint_url": 3}}) | st.just({"s3": "text"}) | st.just({"s3": {"endpoint_url": "http://a"}})


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds a connection called `team`, as Airflow reads it from the environment."""

    def added(**connection: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_TEAM", json.dumps(connection))

    return added


def environment_with(store: str) -> dict[str, str]:
    """What a program that a task starts would have, of the variables that stores' libraries read."""
    with credentials({store: "team"}):
        return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE", "HF", "CORP"))}


def test_access_key_replaces_every_part_of_the_worker_s_identity(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (IDENTITY | {"AWS_PROFILE": "worker"}).items():
        monkeypatch.setenv(name, value)
    add(conn_type="aws", login="key", password=SECRET, extra={"region_name": "eu-north-1"})
    before = dict(os.environ)
    there = environment_with("s3")
    assert there["AWS_ACCESS_KEY_ID"] == "key"
    assert there["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert there["AWS_DEFAULT_REGION"] == "eu-north-1"
    assert not {"AWS_SESSION_TOKEN", "AWS_PROFILE"} & there.keys()
    assert dict(os.environ) == before


def test_boto3_signs_with_the_connection(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is read by the library itself, whatever the worker's own profile says."""
    for name, value in (IDENTITY | {"AWS_PROFILE": "nowhere"}).items():
        monkeypatch.setenv(name, value)
    extra = {"aws_session_token": "fresh", "endpoint_url": "http://127.0.0.1:9"}
    add(conn_type="aws", login="key", password=SECRET, extra=extra)
    code = (
        "import boto3; s = boto3.Session(); c = s.get_credentials();"
        " print(c.access_key, c.secret_key, c.token, s.client('s3', region_name='x').meta.endpoint_url)"
    )
    with credentials({"s3": "team"}):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["key", SECRET, "fresh", "http://127.0.0.1:9"]


def test_connection_without_keys_leaves_the_worker_s_identity(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    add(conn_type="aws", extra={"region_name": "eu-north-1"})
    assert IDENTITY.items() <= environment_with("s3").items()


@pytest.mark.parametrize("as_text", [False, True])
def test_google_key_reaches_the_client_of_the_store(add: Add, as_text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusmill.storage.gcs_client import open_client

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    key = google_key()
    add(conn_type="google_cloud_platform", extra={"keyfile_dict": json.dumps(key) if as_text else key})
    with credentials({"gs": "team"}):
        assert open_client("gs://bucket")._credentials.service_account_email == key["client_email"]


def test_google_key_that_is_none_is_refused_without_quoting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusmill.storage.gcs_client import open_client

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for text in (
        "{" + SECRET,
        "[]",
        "3",
        json.dumps({"private_key": SECRET}),
        json.dumps(google_key() | {"private_key": SECRET}),
    ):
        monkeypatch.setenv("CORPUSMILL_GOOGLE_KEY", text)
        with raises("gcs.not_a_key") as refused:
            open_client("gs://bucket")
        assert SECRET not in str(refused.value)
        assert refused.value.__suppress_context__


def test_token_of_the_hub_is_the_password(add: Add) -> None:
    add(conn_type="http", password=SECRET)
    assert environment_with("hf")["HF_TOKEN"] == SECRET


@pytest.mark.parametrize(
    ("store", "connection", "words"),
    [
        ("s3", {"conn_type": "postgres", "login": "a", "password": SECRET}, "type aws"),
        ("s3", {"conn_type": "aws", "login": "key"}, "one of them alone"),
        ("s3", {"conn_type": "aws", "login": "a", "password": SECRET, "extra": {"role_arn": "arn:x"}}, "role_arn"),
        ("s3", {"conn_type": "aws", "login": "a", "password": SECRET, "extra": f"{SECRET} is no JSON"}, "extra as"),
        ("gs", {"conn_type": "aws", "login": "a", "password": SECRET}, "type google_cloud_platform"),
        ("gs", {"conn_type": "google_cloud_platform", "extra": {"impersonation_chain": "x@y"}}, "impersonation"),
        ("hf", {"conn_type": "http"}, "no password"),
    ],
)
def test_connection_that_steps_cannot_use_is_refused_without_its_secret(
    add: Add, store: str, connection: dict[str, Any], words: str
) -> None:
    add(**connection)
    before = dict(os.environ)
    with raises("airflow.connection_unusable", words) as refused:
        environment_with(store)
    assert SECRET not in str(refused.value)
    assert dict(os.environ) == before


@given(
    store=st.sampled_from(["s3", "gs", "hf"]),
    extra=st.dictionaries(
        st.sampled_from(EXTRAS), st.none() | st.integers() | st.text() | st.lists(st.text()) | NESTED
    ),
    whole=st.none() | st.sampled_from(["[1]", "3", '"text"', "{", "null", " "]),
    login=st.text(),
    password=st.text(),
)
def test_any_connection_is_used_or_refused_and_the_environment_is_as_before(
    store: str, extra: dict[str, Any], whole: str | None, login: str, password: str
) -> None:
    types = {"s3": "aws", "gs": "google_cloud_platform", "hf": "http"}
    connection = {"conn_type": types[store], "login": login, "password": password}
    connection["extra"] = json.dumps(extra) if whole is None else whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_TEAM", json.dumps(connection))
        before = dict(os.environ)
        with suppress(PermanentError):
            environment_with(store)
        assert dict(os.environ) == before


def test_connection_that_is_missing_is_named_with_its_key() -> None:
    with raises("airflow.no_such_connection", "dag.connections: s3", "nowhere"), credentials({"s3": "nowhere"}):
        pass


@given(st.dictionaries(st.sampled_from(["s3", "gs", "hf"]), st.text(min_size=1, max_size=50)))
def test_names_kept_beside_a_plan_are_read_again(tmp_path_factory: Any, connections: dict[str, str]) -> None:
    plan_receipt = tmp_path_factory.mktemp("plan") / "receipt.json"
    keep_section(plan_receipt, ScheduleConfig(connections=connections))
    assert section_of(plan_receipt).connections == connections


def test_names_kept_in_a_bucket_are_read_by_the_address_on_another_machine(
    tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    address = "s3://corpus/mill/tiny/plan/tiny-0123456789abcdef/receipt.json"
    with machine(tmp_path, "first"):
        path_of(address).parent.mkdir(parents=True)
        keep_section(path_of(address), ScheduleConfig(connections={"gs": "google"}))
    with machine(tmp_path, "second"):
        assert section_of(address).connections == {"gs": "google"}


def test_connections_change_neither_the_plan_nor_its_configuration() -> None:
    plain, named = (
        check_config(tiny("tiny", **more), where="a test") for more in ({}, {"dag": {"connections": {"s3": "team"}}})
    )
    assert plain.model_dump_json(exclude_none=True) == named.model_dump_json(exclude_none=True)
    assert named.dag
    assert named.dag.connections == {"s3": "team"}


def test_stages_whose_rooms_open_stores_are_those_that_get_credentials() -> None:
    assert {stage.name for stage in GRAPH if stage.schedule.stores} == {
        "benchmarks",
        "decisions",
        "download",
        "index",
        "reference",
        "upload",
        "writeback",
    } & set(GRAPH.names)


def google_key() -> dict[str, str]:
    """As Google gives out, for nobody."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "tests",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "steps@tests.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.example/token",
    }
