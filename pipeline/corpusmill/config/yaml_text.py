"""YAML text in, plain values with their lines out; every problem with the text is a ConfigError.

A DAG processor reads every configuration in one process, so one bad file must not break its neighbours or the process:
text, nesting, aliases and numbers are bounded before anything is built from them. No configuration that a person writes
comes near these bounds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from corpusmill.errors import ConfigError, InvalidValueError, MissingConfigError

LARGEST_BYTES = 1 << 20
DEEPEST = 20  # the C loader recurses without a limit of its own, up to a segmentation fault
MOST_VALUES = 100_000  # every use of an alias counts: a few lines of them can stand for 2**40 values
LONGEST_NUMBER = 100  # characters; Python refuses to print an int of more than 4,300 digits
LONGEST_SHOWN = 200  # characters of a value in a message
MOST_SHOWN = 20  # errors of one configuration
NUMBERS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
MERGE = "tag:yaml.org,2002:merge"
# PostgreSQL cannot store NUL, UTF-8 cannot encode a lone surrogate, and a terminal obeys the other characters.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

Keys = tuple[Any, ...]


OF_A_FOLDER = """name a .yaml
text:     corpusmill build FOLDER --tokenizer cl100k_base --export megatron --output out
version:  corpusmill verify FOLDER, or corpusmill repair A B --check"""


def read_text(path: Path) -> str:
    """The text of a configuration file; ConfigError if it is not a regular file, too large or not UTF-8. Never blocks
    on a pipe.
    """
    try:
        if path.exists() and not path.is_file():
            raise MissingConfigError(
                "config.not_a_file: the configuration is not a file", where=path, next_step=OF_A_FOLDER
            )
        if (size := path.stat().st_size) > LARGEST_BYTES:
            raise ConfigError(
                "config.too_large: the configuration file is too large",
                where=path,
                expected=f"at most {LARGEST_BYTES:,} bytes",
                got=size,
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(str(path), sorted(map(str, path.parent.glob("*.y*ml"))), n=1)
        instead = f"did you mean {near[0]}? Else " if near else ""
        raise MissingConfigError(
            "config.no_such_file: there is no such configuration file",
            where=path.absolute(),
            next_step=f"{instead}corpusmill init FOLDER --output {path} writes one for the files in FOLDER",
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError("config.not_readable: the configuration cannot be read", where=path, got=error) from error


def read_yaml(text: str, *, where: str) -> tuple[Any, yaml.Node | None]:
    """(plain values, the nodes they were made from) of one YAML document; ConfigError names `where`, line and key."""
    try:
        _refuse_deep_nesting(text, where)
        loader = yaml.CSafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _check_nodes(loader, node, where)
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except ConfigError:
        raise
    except Exception as error:  # YAML's constructors raise whatever int() and date() do
        raise ConfigError(
            "config.not_yaml: the configuration is not valid YAML",
            where=where,
            got=error if isinstance(error, yaml.YAMLError) else type(error).__name__,
            next_step="check indentation and quotes",
        ) from error


def invalid(problems: list[tuple[str, InvalidValueError]], *, where: str) -> ConfigError:
    """The error for problems of a configuration: (key path with its line, error); its code is that of the first."""
    more = (("more", f"{len(problems) - MOST_SHOWN:,} other errors"),) if len(problems) > MOST_SHOWN else ()
    return ConfigError(
        f"{problems[0][1].code}: the configuration has {len(problems)} error{'s' if len(problems) > 1 else ''}",
        where=where,
        details=(*problems[:MOST_SHOWN], *more),
        next_step="corpusmill config example prints a complete one with every key explained",
    )


def line_of(node: yaml.Node | None, keys: Keys) -> int | None:
    """1-based line of a key in the YAML text, or of its nearest existing parent."""
    line = None
    for part in keys:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def labelled(keys: Keys, line: int | None) -> str:
    """``line 3: dedup.mode``, as messages name a key."""
    label = ".".join(shortened(str(part)) for part in keys) or "configuration"
    return f"line {line}: {label}" if line else label


def shortened(text: str) -> str:
    """At most LONGEST_SHOWN characters of a text."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def shown(value: object) -> str:
    """A value as a message quotes it."""
    try:
        return shortened(repr(value))
    except ValueError:  # Python refuses to print more digits
        return "a number of more than 4,300 digits"


def _refuse_deep_nesting(text: str, where: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise _too_deep(where)


def _too_deep(where: str) -> ConfigError:
    return ConfigError(
        "config.too_deep: the configuration is nested too deeply, or contains an alias of itself",
        where=where,
        expected=f"at most {DEEPEST} levels",
    )


def _check_nodes(loader: yaml.CSafeLoader, root: yaml.Node, where: str) -> None:
    """ConfigError for a node that no plain value can be made of, and for a key that occurs twice."""
    for count, (keys, node) in enumerate(_nodes(root, (), where)):
        if count > MOST_VALUES:
            raise ConfigError(
                "config.too_many_values: the configuration has too many values, counting each use of an alias",
                where=where,
                expected=f"at most {MOST_VALUES:,}",
            )
        if isinstance(node, yaml.ScalarNode) and node.tag != MERGE and (problem := _unreadable(loader, node)):
            raise invalid([(labelled(keys, node.start_mark.line + 1), problem)], where=where)


def _nodes(node: yaml.Node, keys: Keys, where: str) -> Iterator[tuple[Keys, yaml.Node]]:
    """Every node, those of keys included, with the keys that lead to it."""
    if len(keys) > DEEPEST:
        raise _too_deep(where)
    yield keys, node
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _nodes(item, (*keys, position), where)
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            below = (*keys, _key(key, keys, where, lines))
            yield below, key
            yield from _nodes(value, below, where)


def _key(key: yaml.Node, above: Keys, where: str, lines: dict[str, int]) -> str:
    """A key's text, added to `lines`. YAML keeps the last of two equal keys in silence; here that is an error."""
    line = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode):
        problem = InvalidValueError("config.not_a_key: a key must be a word")
        raise invalid([(labelled(above, line), problem)], where=where)
    text: str = key.value
    if text in lines:
        raise ConfigError(
            f"config.key_twice: the key {shortened(text)} occurs twice",
            where=f"{where}, lines {lines[text]} and {line}",
            next_step="delete one of them",
        )
    lines[text] = line
    return text


def _unreadable(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> InvalidValueError | None:
    """Why no plain value can be made of a scalar."""
    kind = node.tag.rpartition(":")[2]
    if node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
        return InvalidValueError(
            f"config.number_too_long: a number has at most {LONGEST_NUMBER} characters, got {len(node.value):,}"
        )
    try:
        loader.construct_object(node)
    except yaml.YAMLError:
        raise
    except Exception:  # int() and date() raise their own errors, a bool a KeyError
        return InvalidValueError(f"config.not_a_value: cannot be read as {kind}, got {shown(node.value)}")
    return None
