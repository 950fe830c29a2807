"""Converts a configuration to field values, and field values to a configuration."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from corpusmill.config import DatasetConfig, DestinationConfig, check_config
from corpusmill.errors import ConfigError
from corpusmill.form import fields as form
from corpusmill.form.sizes import size_text
from corpusmill.section import Section

FORM = "the trigger form"
SWITCH = {"on": True, "off": False}


def form_from_config(config: DatasetConfig) -> dict[str, Any]:
    """The field values of `config`; fields of absent sections are empty."""
    return {field.name: _shown(config, field) for field in form.FIELDS}


def config_from_form(
    values: Mapping[str, Any], base: DatasetConfig | None = None, *, reserved: DatasetConfig | None = None
) -> DatasetConfig:
    """The configuration that field values represent.

    None and empty text, lists and objects mean the value in `base` or, without one, the key's default. The keys that no
    form sets have the values in `reserved`, by default in `base`.
    Raises ConfigError for an unknown field and for every value that `check_config` refuses.
    """
    refuse_unknown(values, [field.name for field in form.FIELDS], where=FORM)
    merged = form_from_config(base) if base else {}
    merged |= {name: value for name, value in values.items() if not _is_empty(value)}
    tree: dict[str, Any] = {"exports": {}}
    if file := reserved or base:
        tree |= file.model_dump(mode="json", include=set(form.NOT_IN_THE_FORM), exclude_none=True)
    for field in form.FIELDS:
        value = _meant(field, merged.get(field.name))
        if _is_empty(value) or (field.kind == "format" and not value):
            continue
        of_format = field.keys[0] == "exports" and len(field.keys) == 3
        if of_format and not isinstance(tree["exports"].get(field.keys[1]), dict):
            continue  # the format is off, or it is neither on nor off and refused for that
        section = tree
        for key in field.keys[:-1]:
            section = section.setdefault(key, {})
        section[field.keys[-1]] = {} if field.kind == "format" and value is True else value
    return check_config(tree, where=FORM)


def changed_keys(config: DatasetConfig, own: DatasetConfig) -> list[str]:
    """The keys, such as `dedup.minimum_bytes`, that have other values in `config` than the form of `own` has."""
    own = config_from_form(form_from_config(own), reserved=own)
    shown = [".".join(field.keys) for field in form.FIELDS if _shown(config, field) != _shown(own, field)]
    reserved = sorted(form.NOT_IN_THE_FORM - {"dag"})  # `dag` changes no byte, and a form's configuration has none
    return [*(key for key in reserved if getattr(config, key) != getattr(own, key)), *shown]


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _shown(config: DatasetConfig, field: form.FormField) -> Any:
    value: Any = config
    for key in field.keys:
        value = getattr(value, key) if value is not None else None
    if field.kind == "format":
        return "on" if value is not None else "off"
    if value is None:
        return None
    shows: dict[str, Callable[[Any], Any]] = {
        "switch": lambda on: "on" if on else "off",
        "size": size_text,
        "digits": str,
        "places": lambda listed: [_line(item) for item in listed],
        "json": _plain,
    }
    return shows.get(field.kind, lambda same: same)(value)


def _meant(field: form.FormField, value: Any) -> Any:
    match field.kind:
        case "switch" | "format":
            return SWITCH.get(value, value) if isinstance(value, str) else value
        case "digits" if isinstance(value, str) and value.isascii() and value.isdecimal():
            return int(value)
        case "places" if isinstance(value, list):
            return [_destination(item) if isinstance(item, str) else item for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.model_dump(mode="json", exclude_none=True)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _line(destination: DestinationConfig) -> str:
    """A destination as one line: its path, its path and endpoint, or JSON if those do not suffice."""
    values = destination.model_dump(mode="json", exclude_defaults=True)
    path, endpoint_url = values["path"], values.get("endpoint_url")
    simple = path if endpoint_url is None else f"{path}{form.ENDPOINT_MARK}{endpoint_url}"
    return simple if _destination(simple) == values else json.dumps(values, ensure_ascii=False)


def _destination(line: str) -> Any:
    if line.lstrip().startswith("{"):
        try:
            return json.loads(line)
        except ValueError:
            return {"path": line}
    path, mark, endpoint_url = line.partition(form.ENDPOINT_MARK)
    return {"path": path, "endpoint_url": endpoint_url} if mark else {"path": path}


def refuse_unknown(values: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """ConfigError for a field that a form does not have: Airflow takes any key that a trigger's JSON holds."""
    known = list(known)
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise ConfigError(
            f"the form has no field {unknown[0]}" + (f"; did you mean {near[0]}?" if near else ""),
            where=where,
            expected=", ".join(known),
            got=", ".join(unknown),
        )
