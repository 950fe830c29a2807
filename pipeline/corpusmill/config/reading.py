"""From text or plain values to a configuration; every error names its key, its line and what to do."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from corpusmill.config.dataset import DatasetConfig
from corpusmill.config.values import Section
from corpusmill.config.yaml_text import CONTROL, LONGEST_SHOWN, invalid, labelled, line_of, read_text, read_yaml, shown
from corpusmill.errors import ConfigError, InvalidValueError

EXAMPLE = Path(__file__).with_name("example.yaml")


def load_config(path: str | Path) -> DatasetConfig:
    """Read and check one configuration file; ConfigError names the file, the line, the key and the fix."""
    return parse_config(read_text(Path(path)), where=str(path))


def parse_config(text: str, *, where: str) -> DatasetConfig:
    """Check YAML text; `where` names it in messages. ConfigError, and no other, whatever the text is."""
    values, node = read_yaml(text, where=where)
    return check_config(values, where=where, node=node)


def check_config(values: Any, *, where: str, node: yaml.Node | None = None) -> DatasetConfig:
    """Check plain values (from YAML, a web form, a test); ConfigError, and no other, whatever they are."""
    if not isinstance(values, dict):
        raise ConfigError(
            "config.not_a_mapping: the configuration is not a mapping of keys to values",
            where=where,
            got="nothing" if values is None else type(values).__name__,
            next_step="corpusmill config example --short prints a small one",
        )
    try:
        problems = _control_characters(values, node)
        if not problems:
            return DatasetConfig.model_validate(values)
    except ValidationError as error:
        problems = [_explain(dict(problem), node) for problem in error.errors()]
        problems.sort(key=lambda problem: problem[1].code != "config.unknown_key")  # a misspelt key is missing, too
    except Exception as error:  # a validator may raise anything; one file must not break the others
        raise ConfigError(
            "config.not_checkable: the configuration cannot be checked", where=where, got=type(error).__name__
        ) from error
    raise invalid(problems, where=where)


def _control_characters(values: Any, node: yaml.Node | None) -> list[tuple[str, InvalidValueError]]:
    """(key path with its line, error) for every text that holds a control character."""
    signs = [(keys, sign[0]) for keys, text in _texts(values, ()) if (sign := CONTROL.search(text))]
    return [
        (
            labelled(keys, line_of(node, keys)),
            InvalidValueError(f"config.control_character: may not hold the control character U+{ord(sign):04X}"),
        )
        for keys, sign in signs
    ]


def _texts(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text among plain values, keys included, with the keys that lead to it."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key, (*keys, key))
            yield from _texts(inner, (*keys, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _texts(inner, (*keys, position))


# In pydantic's words: a valid dictionary or instance of a class.
WANTED = {
    **dict.fromkeys(("model_type", "dict_type"), "must be a section with keys of its own"),
    "list_type": "must be a list",
    "string_type": "must be text",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
}


def _explain(problem: dict[str, Any], node: yaml.Node | None) -> tuple[str, InvalidValueError]:
    """(key path with its line, error) for one pydantic error."""
    location = tuple(problem["loc"])
    error = problem.get("ctx", {}).get("error")
    if problem["type"] == "extra_forbidden":
        valid = _keys_at(location[:-1])
        near = difflib.get_close_matches(str(location[-1])[:LONGEST_SHOWN], valid, n=1)
        known = f"did you mean {near[0]}?" if near else f"valid keys: {', '.join(valid)}"
        error = InvalidValueError(f"config.unknown_key: unknown key; {known}")
    elif problem["type"] == "missing":
        error = InvalidValueError("config.missing_key: required, and has no default")
    elif not isinstance(error, InvalidValueError):
        must = WANTED.get(problem["type"]) or problem["msg"].replace("Input should be", "must be")
        error = InvalidValueError(f"config.wrong_value: {must}, got {shown(problem['input'])}")
    return labelled(location, line_of(node, location)), error


def _keys_at(location: tuple[Any, ...]) -> list[str]:
    """The valid keys of the section at a path of keys and list positions."""
    model: Any = DatasetConfig
    for part in location:
        if isinstance(part, str):
            model = _section_in(_fields_by_key(model)[part].annotation)
    return sorted(_fields_by_key(model))


def _fields_by_key(model: Any) -> dict[str, Any]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _section_in(annotation: Any) -> Any:
    """The Section inside an annotation such as `list[Section]` or `Section | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, Section) else None
    return next((section for item in typing.get_args(annotation) if (section := _section_in(item))), None)
