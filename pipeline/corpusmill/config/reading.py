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
from corpusmill.config.exports import SHARD_NAME
from corpusmill.config.schedule import NAME_PATTERN
from corpusmill.config.sections import LANGUAGE, LICENSE, SHA256, TOKENIZER_LIBRARY, TOKENIZER_NAME
from corpusmill.config.values import SPLIT_NAME, THRESHOLD, USED, Section
from corpusmill.config.yaml_text import CONTROL, LONGEST_SHOWN, invalid, labelled, line_of, read_text, read_yaml, shown
from corpusmill.errors import ConfigError, InvalidValueError, plain

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
        # pydantic calls a tuple too short whose one item is wrong.
        errors = [found for found in error.errors() if found["type"] != "too_short" or not found["input"]]
        problems = [_explain(dict(problem), node) for problem in errors]
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
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("string_too_short", "too_short"), "must not be empty"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("byte_size", "byte_size_unit"), "must be a size, such as 256MiB or 10GB"),
    "string_type": "must be text",
    "invalid_key": "a key must be text",
}
A_DATE = "must be a date, such as 2026-01-31"
SHAPES = {
    NAME_PATTERN: "must be lower-case letters, digits, - and _ (at most 63), and begin with a letter or a digit",
    SPLIT_NAME: "must be letters, digits, - and _ (at most 32), and begin with a letter or a digit",
    SHARD_NAME: "must be letters, digits, / _ . - and {}, and end in .npy or .bin",
    SHA256: "must be a sha256: 64 digits of 0-9 and a-f",
    TOKENIZER_NAME: "must not be empty, nor hold white space or |",
    TOKENIZER_LIBRARY: "must be tiktoken, sentencepiece or empty",
    LICENSE: "must be a license's name on the Hub, such as odc-by",
    LANGUAGE: "must be a language's code, such as de",
    THRESHOLD: "must be default, strict, or a share above 0 and at most 1",
    USED: "must be module:name, such as my_filters:long_enough",
}
"""What a text of each pattern of the configuration is."""


def explained(problem: Any) -> str:
    """What one of pydantic's errors says of a value, in plain words."""
    if problem["type"] == "string_pattern_mismatch":
        return SHAPES[problem["ctx"]["pattern"]]
    if problem["type"].startswith("date"):
        return A_DATE
    return WANTED.get(problem["type"]) or plain(problem["msg"])


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
        error = InvalidValueError(f"config.wrong_value: {explained(problem)}, got {shown(problem['input'])}")
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
