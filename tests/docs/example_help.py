"""The comments of `example.yaml` by key: those on the key's line and on the lines below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

_COMMENT = re.compile(r"""^(?:[^"'#]|"[^"]*"|'[^']*'|(?<=\S)#)*?(?:^|\s)#\s?(.*)$""")
_ONLY_COMMENT = re.compile(r"^\s+#\s?(.*)$")


def help_by_key(text: str) -> dict[tuple[str, ...], str]:
    """{path of a key: one or two sentences} for every commented key of a YAML text."""
    return {keys: help_text for keys, comment in comments_by_key(text).items() if (help_text := _sentences(comment))}


def comments_by_key(text: str) -> dict[tuple[str, ...], str]:
    """{path of a key: its comment} for every commented key of a YAML text."""
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    return {keys: comment for keys, line in _keys(root, ()) if (comment := _comment(lines, line))}


def _keys(node: yaml.Node | None, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every key path of nested mappings with its 0-based line; lists add nothing to a path."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _keys(item, above)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            keys = (*above, str(key.value))
            yield keys, key.start_mark.line
            yield from _keys(value, keys)


def _comment(lines: list[str], line: int) -> str:
    first = _COMMENT.match(lines[line])
    if not first:
        return ""
    parts = [first[1]]
    for below in lines[line + 1 :]:
        if not (more := _ONLY_COMMENT.match(below)):
            break
        parts.append(more[1])
    return " ".join(part.strip() for part in parts)


def _sentences(comment: str) -> str:
    sentence = comment.removeprefix("optional;").removeprefix("optional").strip()
    if not sentence:
        return ""
    word, _, rest = sentence.partition(" ")
    is_word = re.fullmatch(r"[a-z]+(-[a-z]+)?,?", word) and not rest.startswith("|")  # a value (npy | bin) stays
    return f"{word.capitalize() if is_word else word} {rest}".rstrip(". ") + "."
