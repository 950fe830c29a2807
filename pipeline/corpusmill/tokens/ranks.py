"""Reads ids and tokens' bytes from a .tiktoken file: lines of base64, a space, the id. Most steps need no more.

Loading a vocabulary of 100,000 tokens into tiktoken takes 0.6 s; reading it as arrays takes 25 ms, as a dict 45. All
functions take the file's content, not its path: the bytes used are those that were hashed.

tiktoken's published encodings are read through a loader of our own: the same checks, without a network.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError, TokenizerError


@dataclass(frozen=True)
class Spelling:
    """The bytes of a vocabulary's tokens: a list of 100,000 bytes objects takes five times as long to make as arrays.

    Token i has the id `ids[i]` and the bytes `text[starts[i] : starts[i] + lengths[i]]`; the later ones hold for an
    id that comes twice.

    ids, starts, lengths  int64 (tokens,)
    text                  uint8; may hold bytes of no token
    """

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    text: NDArray[np.uint8]

    @classmethod
    def of(cls, ids: Sequence[int], words: Sequence[bytes]) -> Spelling:
        """The tokens with these ids and bytes."""
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        text = np.frombuffer(b"".join(words), np.uint8)
        return cls(np.fromiter(ids, np.int64, len(ids)), np.cumsum(lengths) - lengths, lengths, text)

    def and_then(self, later: Spelling) -> Spelling:
        """These tokens and `later` ones."""
        starts = np.concatenate([self.starts, later.starts + len(self.text)])

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(self, name), getattr(later, name)])

        return Spelling(joined("ids"), starts, joined("lengths"), joined("text"))


class Split(NamedTuple):
    """How text is cut before merging: an expression, and the name that gigatoken has for it, or ""."""

    expression: str
    name: str = ""


NEWLINE, SPACE, PAD, ZERO = b"\n =0"
DIGITS = 9  # of an id, at most, for the fast way
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NO_SIXTET = 255
SIXTETS = np.full(256, NO_SIXTET, np.uint8)
SIXTETS[np.frombuffer(BASE64, np.uint8)] = np.arange(len(BASE64))
SIXTETS[PAD] = 0


def read_ranks(content: bytes) -> dict[bytes, int]:
    """{token: id} of every line; ValueError names the first line without a token and an id of 32 bits by its number."""
    ranks = {}
    for number, line in enumerate(content.splitlines(), 1):
        if line:
            try:
                token, rank = line.split()
                word, own = a2b_base64(token), int(rank)
            except ValueError:
                own = -1
            if not 0 <= own < 1 << 32:
                raise ValueError(f"line {number:,} is malformed")
            ranks[word] = own
    return ranks


def ranks_of(content: bytes) -> dict[bytes, int]:
    """As `read_ranks`, in a third of the time where lines are as tiktoken writes them."""
    plain = _plain_spelling(content)
    if plain is None:
        return read_ranks(content)
    text, ends = plain.text.tobytes(), plain.starts + plain.lengths
    places = zip(plain.starts.tolist(), ends.tolist(), plain.ids.tolist(), strict=True)
    return {text[start:end]: number for start, end, number in places}


def read_ids(content: bytes) -> list[int]:
    """The id of every line, also of one whose token comes again; ValueError or IndexError for a line without one."""
    plain = _plain_spelling(content)
    return [int(line.split()[1]) for line in content.splitlines() if line] if plain is None else plain.ids.tolist()


def read_spelling(content: bytes) -> Spelling:
    """The tokens, each with the id of its last line, as `read_ranks` has them; raises as it does."""
    plain = _plain_spelling(content)
    if plain is not None:
        return plain
    ranks = read_ranks(content)
    return Spelling.of([*ranks.values()], [*ranks])


@lru_cache(maxsize=1)  # asked for ids, and for bytes
def _plain_spelling(content: bytes) -> Spelling | None:
    """The spelling of a file as tiktoken writes it: no token comes twice, and a line is a token's padded base64, one
    space, and an id of few digits; tokshuf's file has a space behind it. None for another file.
    """
    content = content.replace(b" \n", b"\n")
    tokens = content.split()[::2]
    return _spelling_of_lines(np.frombuffer(content, np.uint8)) if len(set(tokens)) == len(tokens) else None


def _spelling_of_lines(content: NDArray[np.uint8]) -> Spelling | None:
    ends, spaces = np.flatnonzero(content == NEWLINE), np.flatnonzero(content == SPACE)
    if not len(ends) or len(spaces) != len(ends) or ends[-1] != len(content) - 1:
        return None
    begins = np.concatenate([[0], ends[:-1] + 1])
    letters, digits = spaces - begins, ends - spaces - 1
    if letters.min() <= 0 or (letters % 4).any() or digits.min() <= 0 or digits.max() > DIGITS:
        return None

    ids = np.zeros(len(ends), np.int64)
    for place in range(int(digits.max())):  # from the last digit on
        has_digit = digits > place
        digit = content[ends - 1 - place * has_digit] - np.uint8(ZERO)
        if (digit[has_digit] > 9).any():
            return None
        ids += np.where(has_digit, digit, 0) * np.int64(10**place)

    border = np.zeros(len(content), np.int8)
    border[begins], border[spaces] = 1, -1
    base64 = content[np.cumsum(border, dtype=np.int8).view(np.bool_)]
    sixtets = np.take(SIXTETS, base64)
    last, last_but_one = content[spaces - 1] == PAD, content[spaces - 2] == PAD
    pads = last.astype(np.int64) + last_but_one
    if (last_but_one & ~last).any() or sixtets.max() == NO_SIXTET or np.count_nonzero(base64 == PAD) != pads.sum():
        return None
    first, second, third, fourth = sixtets.reshape(-1, 4).T
    triples = np.empty((len(sixtets) // 4, 3), np.uint8)
    triples[:, 0] = first << 2 | second >> 4
    triples[:, 1] = second << 4 | third >> 2
    triples[:, 2] = third << 6 | fourth
    text, room = triples.reshape(-1), letters // 4 * 3
    stops = np.cumsum(room)
    if text[stops[pads > 0] - 1].any() or text[stops[pads > 1] - 2].any():  # the same token has other letters, too
        return None
    return Spelling(ids, stops - room, room - pads, text)


@lru_cache(maxsize=1)  # called for piece after piece of text
def _lengths(content: bytes) -> NDArray[np.int64]:
    """The bytes of every id up to the highest; 0 for an id without a line."""
    spelling = read_spelling(content)
    lengths = np.zeros(spelling.ids.max(initial=0) + 1, np.int64)
    lengths[spelling.ids] = spelling.lengths
    return lengths


def token_lengths(content: bytes, ids: NDArray[Any], *, where: Path) -> NDArray[np.int64]:
    """The number of bytes of each id's token. CorruptDataError for an unknown id, or a special token, which has no
    line.
    """
    lengths = _lengths(content)
    counts = np.take(lengths, ids, mode="clip")
    if (unknown := np.flatnonzero((counts == 0) | (ids >= len(lengths)))).size:
        raise CorruptDataError(
            "tokenizer.no_such_id: the vocabulary has no such id", where=where, got=int(ids[unknown[0]])
        )
    return counts


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

    return tiktoken.Encoding(**_constructed(name, lambda *_, **__: ranks_of(content)))


def published_special_tokens(name: str) -> dict[str, int]:
    """{token: id}, as tiktoken's own constructor names them."""
    return dict(_constructed(name, lambda *_, **__: {})["special_tokens"])


def refuse_other_content(path: Path, content: bytes) -> None:
    """TokenizerError if a rank file holds anything but ranks."""
    try:
        read_spelling(content)
    except ValueError as error:
        raise TokenizerError(
            "tokenizer.not_ranks: the file does not hold tiktoken's ranks",
            where=path,
            expected="lines of base64 and rank",
            got=error,
        ) from error


def own_encoding(path: Path, content: bytes, pattern: str, special_tokens: dict[str, int]) -> Any:
    """A tiktoken.Encoding of a rank file's content and a split pattern (a regular expression).

    Special tokens without an id are not known to a rank file, so they must be given. `path` is only for messages:
    tiktoken's own loader would use a cache keyed by the path, and could return the file's earlier content.
    """
    import tiktoken

    ranks = ranks_of(content)
    try:
        encoding = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_tokens)
        encoding.encode_ordinary("")
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # ValueError: no regular expression; a panic: it matches where there is no text
        raise TokenizerError(
            "tokenizer.pattern_unusable: tokenizer.pattern cannot be used",
            where=path,
            expected="a regular expression that matches every text piece by piece, and no piece without text",
            got=error,
        ) from error
    return encoding


LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def pattern_of(name: str) -> str:
    """The split pattern of a published encoding, or of llama3."""
    if name == "llama3":
        return LLAMA3_PATTERN
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
