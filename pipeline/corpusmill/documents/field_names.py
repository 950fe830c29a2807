"""Names of fields that reach into objects by dots: `meta.lang` is `lang` of the object `meta`.

A key that has the dots itself wins where it exists: of {"a.b": 1, "a": {"b": 2}}, `a.b` is 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MISSING = object()
DEEPEST = 8


def field_of(record: dict[str, Any], name: str) -> Any:
    """The value of a field of an object. KeyError if it lacks it, TypeError if `record` is none."""
    if "." not in name:
        return record[name]
    value = get_field(record, name, MISSING) if isinstance(record, dict) else record[name]
    if value is MISSING:
        raise KeyError(name)
    return value


def get_field(record: dict[str, Any], name: str, default: Any = None) -> Any:
    """The same, or `default` if the object lacks it."""
    if name in record:
        return record[name]
    for head, rest in splits(name):
        inner = record.get(head)
        if isinstance(inner, dict) and (value := get_field(inner, rest, MISSING)) is not MISSING:
            return value
    return default


def pop_field(record: dict[str, Any], name: str) -> Any:
    """The value of a field, which is taken out of its object. KeyError if there is none."""
    if name in record:
        return record.pop(name)
    for head, rest in splits(name):
        inner = record.get(head)
        if isinstance(inner, dict) and get_field(inner, rest, MISSING) is not MISSING:
            return pop_field(inner, rest)
    raise KeyError(name)


def overlap(first: str, second: str) -> bool:
    """Whether two names are one, or one is of a field inside the other's."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def splits(name: str) -> Iterator[tuple[str, str]]:
    """(key, name of the field in its object) of each way to cut a name at a dot, the longest key first."""
    at = name.rfind(".")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.rfind(".", 0, at)


def all_fields(record: dict[str, Any], *, depth: int = DEEPEST) -> Iterator[tuple[str, Any]]:
    """(name, value) of every field of an object, those of objects in it by dots."""
    for key, value in record.items():
        yield key, value
        if depth and isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in all_fields(value, depth=depth - 1))
