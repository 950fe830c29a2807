"""tiktoken's published encodings, read through a loader of our own: the same checks, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from corpusmill.errors import TokenizerError
from corpusmill.tokens.ranks import read_ranks


class _SourceKnownError(Exception):
    """Carries the arguments with which an encoding's constructor calls its loader."""


@cache
def published_source(name: str) -> tuple[str, str | None]:
    """(address, expected sha256) of an encoding's ranks, as tiktoken's own constructor names them."""

    def ranks_of(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        raise _SourceKnownError(url, expected_hash)

    try:
        _constructed(name, ranks_of)
    except _SourceKnownError as known:
        url, expected = known.args
        return url, expected
    raise TokenizerError(f"tokenizer.no_ranks: tiktoken's {name} has no ranks", next_step="install the pinned tiktoken")


def published_encoding(name: str, content: bytes) -> Any:
    """The tiktoken.Encoding of a published name, its ranks those of a .tiktoken file's content."""
    import tiktoken

    return tiktoken.Encoding(**_constructed(name, lambda *_, **__: read_ranks(content)))


def published_special_tokens(name: str) -> dict[str, int]:
    """{token: id}, as tiktoken's own constructor names them."""
    return dict(_constructed(name, lambda *_, **__: {})["special_tokens"])


def own_encoding(path: Path, content: bytes, pattern: str, special_tokens: dict[str, int]) -> Any:
    """A tiktoken.Encoding of a rank file's content and a split pattern (a regular expression).

    Special tokens without an id are not known to a rank file, so they must be given. `path` is only for messages:
    tiktoken's own loader would use a cache keyed by the path, and could return the file's earlier content.
    """
    import tiktoken

    try:
        ranks = read_ranks(content)
    except ValueError as error:
        raise TokenizerError(
            "tokenizer.not_ranks: the file does not hold tiktoken's ranks",
            where=path,
            expected="lines of base64 and rank",
            got=error,
        ) from error
    try:
        return tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_tokens)
    except ValueError as error:  # a pattern that is no regular expression
        raise TokenizerError(
            "tokenizer.pattern_unusable: tokenizer.pattern cannot be used", where=path, got=error
        ) from error


def pattern_of(name: str) -> str:
    """The split pattern of a published encoding."""
    return str(_constructed(name, lambda *_, **__: {})["pat_str"])


def _constructed(name: str, loader: Any) -> dict[str, Any]:
    from tiktoken_ext import openai_public

    with _loader_replaced(openai_public, loader):
        arguments: dict[str, Any] = openai_public.ENCODING_CONSTRUCTORS[name]()
    return arguments


@contextmanager
def _loader_replaced(module: Any, loader: Any) -> Iterator[None]:
    """Let tiktoken's own constructors (patterns, special tokens, expected hashes) read through another loader."""
    original = module.load_tiktoken_bpe
    module.load_tiktoken_bpe = loader
    try:
        yield
    finally:
        module.load_tiktoken_bpe = original
