"""Credentials of stores from Airflow's connections, and so from its secrets backends.

A configuration names a connection for each kind of store: `dag: {connections: {s3: aws_default}}`. `plan` keeps only
these names beside the plan, never secrets: a form may have chosen the configuration, whose file later tasks cannot
know. A task that uses stores gets the connections from Airflow and has their values in its environment while it works,
as do the programs that it starts. Airflow itself masks their secrets in the logs of the task that requested them.

A work folder in a bucket is read by every task, and by the pages: its credentials come from the environment, or a role.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine.work_folder.small import refresh, write
from corpusmill.errors import PermanentError
from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import path_of

with lazily:
    from corpusmill_airflow import by_version

if TYPE_CHECKING:
    from airflow.sdk import Connection

Variables = dict[str, str | None]
"""Variable -> its value; None removes it, so that secrets of two origins are never mixed."""


@contextmanager
def credentials(connections: Mapping[str, str]) -> Iterator[None]:
    """While the body runs, this process's environment has the credentials of these connections.

    PermanentError for a missing connection, or one with values that steps cannot use.
    """
    wanted: Variables = {}
    for store, name in connections.items():
        connection = _connection(name, store)
        variables = VARIABLES[store](connection, _extra(connection))
        if any(value is not None and not _is_variable(value) for value in variables.values()):
            raise _unusable(connection, "texts as values", "a value of another type, or with a zero byte")
        wanted |= variables
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set(wanted)
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

    try:
        connection: Connection = Connection.get(name)
    except by_version.AirflowNotFoundException as error:
        raise PermanentError(
            "airflow.no_such_connection: Airflow has no such connection",
            where=f"dag.connections: {store}",
            got=name,
            next_step="add it (Admin > Connections, or a secrets backend), or name another",
        ) from error
    if store in TYPES and connection.conn_type != TYPES[store]:
        raise _unusable(connection, f"a connection of type {TYPES[store]}", f"type {connection.conn_type}")
    return connection


def _extra(connection: Connection) -> dict[str, Any]:
    """The connection's extra; Airflow takes one that is malformed for an empty one."""
    text = connection.extra or ""
    extra = connection.extra_dejson
    if not isinstance(extra, dict) or (not extra and text.strip() not in {"", "{}", "null"}):
        raise _unusable(connection, "extra as a JSON object", "something else")
    return extra


def _is_variable(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _unusable(connection: Connection, expected: str, got: str) -> PermanentError:
    return PermanentError(
        "airflow.connection_unusable: a connection cannot be used by steps",
        where=f"the connection {connection.conn_id}",
        expected=expected,
        got=got,
        next_step="use another connection, or leave dag.connections out and give workers credentials by environment",
    )


def _require_no(connection: Connection, extra: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """PermanentError for settings such as a role to assume: without them, requests would have another identity."""
    if present := [key for key in keys if extra.get(key)]:
        raise _unusable(connection, "keys or a profile, without a role or impersonation", ", ".join(present))


def _s3_variables(connection: Connection, extra: dict[str, Any]) -> Variables:
    _require_no(connection, extra, ("role_arn", "assume_role_method", "credential_source"))
    key = connection.login or extra.get("aws_access_key_id")
    secret = connection.password or extra.get("aws_secret_access_key")
    if bool(key) != bool(secret):
        raise _unusable(connection, "an access key and its secret", "one of them alone")
    profile = extra.get("profile_name")
    beside = {"AWS_DEFAULT_REGION": extra.get("region_name"), "AWS_ENDPOINT_URL_S3": _endpoint(extra)}
    variables: Variables = {name: value for name, value in beside.items() if value}
    if key or profile:  # else, as in Airflow's own hooks, the connection means the worker's identity
        variables |= {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": extra.get("aws_session_token"),
            "AWS_PROFILE": None if key else profile,
        }
    return variables


def _endpoint(extra: dict[str, Any]) -> Any:
    """The endpoint, chosen as by Airflow's own hooks: the service's, else that of all services."""
    services = extra.get("service_config")
    service = services.get("s3") if isinstance(services, dict) else None
    return (service.get("endpoint_url") if isinstance(service, dict) else None) or extra.get("endpoint_url")


def _gs_variables(connection: Connection, extra: dict[str, Any]) -> Variables:
    old = "extra__google_cloud_platform__"  # as connections of older providers spell it
    extra = {key.removeprefix(old): value for key, value in extra.items()}
    _require_no(connection, extra, ("impersonation_chain", "key_secret_name", "credential_config_file"))
    key, path = extra.get("keyfile_dict"), extra.get("key_path")
    if not key and not path:
        return {}
    text = key if isinstance(key, str) or not key else json.dumps(key)
    return {"CORPUSMILL_GOOGLE_KEY": text, "GOOGLE_APPLICATION_CREDENTIALS": None if key else path}


def _hf_variables(connection: Connection, _extra: dict[str, Any]) -> Variables:
    if not connection.password:
        raise _unusable(connection, "the token as its password", "no password")
    return {"HF_TOKEN": connection.password}


VARIABLES: dict[str, Callable[[Connection, dict[str, Any]], Variables]] = {
    "s3": _s3_variables,
    "gs": _gs_variables,
    "hf": _hf_variables,
}
TYPES = {"s3": "aws", "gs": "google_cloud_platform"}


KEPT = ".dag"  # beside a plan's receipt, of the newest run: its KEYS
KEYS = {"approve_removal", "connections"}  # names of connections, never secrets


def keep_section(plan_receipt: Path, section: ScheduleConfig) -> None:
    """Record the section for every later task of a plan's run."""
    write(plan_receipt.with_name(KEPT), section.model_dump_json(include=KEYS).encode() + b"\n")


def section_of(plan_receipt: str | Path) -> ScheduleConfig:
    """The section kept beside a plan, given its receipt's path or address; the defaults if Airflow did not plan it."""
    path = path_of(plan_receipt).with_name(KEPT)
    return ScheduleConfig.model_validate_json(path.read_bytes()) if refresh(path) else ScheduleConfig()


def credentials_of(plan_receipt: str | Path) -> AbstractContextManager[None]:
    """The credentials of the connections that are named beside a plan."""
    return credentials(section_of(plan_receipt).connections)
