"""Credentials of stores from Airflow's connections, and so from its secrets backends.

A configuration names a connection for each kind of store: `dag: {connections: {s3: aws_default}}`. `plan` keeps these
names, never what they stand for, beside the plan. A task that talks to stores asks Airflow for the connections and has
what they say in its environment while it works, and so do the programs that it starts. Airflow itself masks the secrets
of a connection in the logs of the task that asked for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import PermanentError

if TYPE_CHECKING:
    from airflow.sdk import Connection

KEPT = ".connections"  # beside a plan's receipt: {kind of store: name of a connection}, as the newest run has them
Variables = dict[str, str | None]
"""Variable -> its value; None takes it away, so that no secret of two origins is mixed."""


def keep_connections(plan_receipt: Path, connections: Mapping[str, str]) -> None:
    """Let every later task of a plan's run know which connections are its stores'."""
    temporary = plan_receipt.with_name(f"{KEPT}.new")
    temporary.write_text(json.dumps(dict(connections)) + "\n", encoding="utf-8")
    temporary.replace(plan_receipt.with_name(KEPT))


def connections_of(plan_receipt: Path) -> dict[str, str]:
    """What was kept beside a plan; nothing if its run began without Airflow."""
    try:
        kept: dict[str, str] = json.loads(plan_receipt.with_name(KEPT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return kept


@contextmanager
def credentials(connections: Mapping[str, str]) -> Iterator[None]:
    """While the body runs, this process's environment holds what these connections say.

    PermanentError for a connection that there is not, or that says what steps cannot use.
    """
    wanted: Variables = {}
    for store, name in connections.items():
        wanted |= VARIABLES[store](_connection(name, store))
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _connection(name: str, store: str) -> Connection:
    from airflow.sdk import Connection

    from corpusmill_airflow.by_version import AirflowNotFoundException

    try:
        connection: Connection = Connection.get(name)
    except AirflowNotFoundException as error:
        raise PermanentError(
            "Airflow knows no such connection",
            where=f"dag.connections: {store}",
            got=name,
            next_step="add it (Admin > Connections, or a secrets backend), or name another one",
        ) from error
    if store in TYPES and connection.conn_type != TYPES[store]:
        raise _unusable(connection, f"a connection of type {TYPES[store]}", f"type {connection.conn_type}")
    if connection.extra and connection.extra.strip() not in {"{}", "null"} and not connection.extra_dejson:
        raise _unusable(connection, "extra as a JSON object", "something else")
    return connection


def _unusable(connection: Connection, expected: str, got: str) -> PermanentError:
    return PermanentError(
        "a connection cannot be used by steps",
        where=f"the connection {connection.conn_id}",
        expected=expected,
        got=got,
        next_step="use another connection, or leave dag.connections out and give workers credentials by environment",
    )


def _require_no(connection: Connection, extra: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """Such as a role to assume: with the rest alone, requests would be somebody else's."""
    if present := [key for key in keys if extra.get(key)]:
        raise _unusable(connection, "keys or a profile, and nothing that changes whose they are", ", ".join(present))


def _s3_variables(connection: Connection) -> Variables:
    extra = connection.extra_dejson
    _require_no(connection, extra, ("role_arn", "assume_role_method", "credential_source"))
    key = connection.login or extra.get("aws_access_key_id")
    secret = connection.password or extra.get("aws_secret_access_key")
    if bool(key) != bool(secret):
        raise _unusable(connection, "an access key and its secret", "one of them alone")
    profile = extra.get("profile_name")
    service = (extra.get("service_config") or {}).get("s3") or {}
    beside = {
        "AWS_DEFAULT_REGION": extra.get("region_name"),
        "AWS_ENDPOINT_URL_S3": service.get("endpoint_url") or extra.get("endpoint_url"),
    }
    variables: Variables = {name: value for name, value in beside.items() if value}
    if key or profile:  # else the connection says no more than Airflow's own hooks read in it: the worker's identity
        variables |= {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": extra.get("aws_session_token"),
            "AWS_PROFILE": None if key else profile,
        }
    return variables


def _gs_variables(connection: Connection) -> Variables:
    old = "extra__google_cloud_platform__"  # as connections of older providers spell it
    extra = {key.removeprefix(old): value for key, value in connection.extra_dejson.items()}
    _require_no(connection, extra, ("impersonation_chain", "key_secret_name", "credential_config_file"))
    key, path = extra.get("keyfile_dict"), extra.get("key_path")
    if not key and not path:
        return {}
    text = key if isinstance(key, str) or not key else json.dumps(key)
    return {"CORPUSMILL_GOOGLE_KEY": text, "GOOGLE_APPLICATION_CREDENTIALS": None if key else path}


def _hf_variables(connection: Connection) -> Variables:
    if not connection.password:
        raise _unusable(connection, "the token as its password", "no password")
    return {"HF_TOKEN": connection.password}


VARIABLES: dict[str, Callable[[Connection], Variables]] = {
    "s3": _s3_variables,
    "gs": _gs_variables,
    "hf": _hf_variables,
}
TYPES = {"s3": "aws", "gs": "google_cloud_platform"}
