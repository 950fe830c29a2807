"""Airflow's notifiers of a dataset's runs, made from `dag.on_failure`, `on_success` and `on_late`.

The DAG processor calls the first two kinds when a run ends, the triggerer those for a late run (deadline.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from airflow.sdk import BaseNotifier

from corpusmill.config.schedule import NotifierConfig, ScheduleConfig
from corpusmill.errors import ConfigError
from corpusmill_airflow.by_version import AirflowNotFoundException


def make_notifiers(asked: Sequence[NotifierConfig], key: str) -> list[BaseNotifier]:
    """The notifiers that a key of the section `dag` lists; ConfigError for one that is not installed, is no notifier,
    or does not take its arguments.
    """
    return [_make(item, f"dag.{key}[{at}]", is_late=key == "on_late") for at, item in enumerate(asked)]


def is_async(kind: type[BaseNotifier]) -> bool:
    """Whether it has a method for the triggerer, which runs many alerts in one thread."""
    return kind.async_notify is not BaseNotifier.async_notify


def _make(asked: NotifierConfig, where: str, *, is_late: bool) -> BaseNotifier:
    module, _, name = asked.use.partition(":")
    try:
        kind = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # whatever its module does: a script may end the process
        raise ConfigError(
            "airflow.notifier_not_installed: a notifier cannot be imported",
            where=f"{where}.use: {asked.use}",
            got=f"{type(error).__name__}: {error}",
            next_step="install its provider in every environment of this Airflow, or fix `use`",
        ) from error
    is_notifier = isinstance(kind, type) and issubclass(kind, BaseNotifier)
    if not is_notifier or not (kind.notify is not BaseNotifier.notify or (is_late and is_async(kind))):
        raise ConfigError(
            "airflow.not_a_notifier: not a notifier",
            where=f"{where}.use: {asked.use}",
            expected="a class that extends airflow.sdk.BaseNotifier and has a method `notify`",
            next_step="name one, such as airflow.providers.smtp.notifications.smtp:SmtpNotifier",
        )
    try:
        made: BaseNotifier = kind(**asked.arguments)
    except Exception as error:
        raise ConfigError(
            "airflow.notifier_arguments: a notifier does not take its arguments",
            where=f"{where}.with, for {asked.use}",
            got=f"{type(error).__name__}: {error}",
            next_step="its provider's documentation lists them",
        ) from error
    return made


def missing_connections(when: ScheduleConfig) -> list[str]:
    """The connections that a section names and Airflow lacks: of `connections`, and arguments of notifiers.

    Asks Airflow for each, once in the life of the process: the DAG processor reads DAG files in a new one.
    """
    arguments = [item.arguments for asked in (when.on_failure, when.on_success, when.on_late) for item in asked]
    of_notifiers = {value for each in arguments for key, value in each.items() if key.endswith("conn_id")}
    named = {*when.connections.values(), *(value for value in of_notifiers if isinstance(value, str))}
    return [name for name in sorted(named) if "{{" not in name and not _is_known(name)]  # a template's is known later


@cache
def _is_known(connection: str) -> bool:
    from airflow.sdk import Connection

    try:
        Connection.get(connection)
    except AirflowNotFoundException:
        return False
    except Exception:  # a malformed one: its user says why
        return True
    return True
