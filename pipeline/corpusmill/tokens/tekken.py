"""Mistral's tekken.json: tiktoken's ranks behind a block of special tokens.

    {"config": {"pattern": "...", "default_vocab_size": 131072, "default_num_special_tokens": 1000, ...},
     "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": ...}, ...],          more than are used
     "special_tokens": [{"rank": 2, "token_str": "</s>", ...}, ...]}                optional

Special tokens have the ids 0 to 999, those without a name are <SPECIAL_20>, <SPECIAL_21> ...; the token of rank r has
the id r + 1000. So the file is a .tiktoken file with other ids, a pattern, and special tokens.

Source: mistral_common tokens/tokenizers/tekken.py, whose ids are those of tiktoken, moved.
"""

from __future__ import annotations

from binascii import b2a_base64
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from corpusmill.errors import TokenizerError
from corpusmill.tokens.fitness import MOST_TOKENS

BYTES = [bytes([byte]) for byte in range(256)]
UNNAMED = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]
"""The special tokens of a file that names none: those of versions up to 7."""


class TekkenRanks(NamedTuple):
    """What a tekken.json holds: ranks as a .tiktoken file's content, the split pattern, {special token: id}."""

    content: bytes
    pattern: str
    special_tokens: dict[str, int]


class _Token(msgspec.Struct):
    rank: int
    token_bytes: bytes  # base64 in the file


class _Special(msgspec.Struct):
    rank: int
    token_str: str


class _Config(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _File(msgspec.Struct):
    config: _Config
    vocab: list[_Token]
    special_tokens: list[_Special] | None = None


class _Kind(msgspec.Struct):
    config: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    vocab: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def is_tekken(content: bytes) -> bool:
    """Whether JSON has the parts of a tekken.json; a tokenizer.json has its vocabulary below `model`."""
    try:
        parts = msgspec.json.decode(content, type=_Kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return parts.config is not msgspec.UNSET and parts.vocab is not msgspec.UNSET


def read_tekken(path: Path, content: bytes) -> TekkenRanks:
    """The ranks of a tekken.json's content; TokenizerError for one that contradicts itself."""
    try:
        read = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(path, "config, vocab and special_tokens as mistral_common reads them", error) from None
    specials = read.config.default_num_special_tokens
    ordinary = read.config.default_vocab_size - specials
    if not (0 <= specials <= MOST_TOKENS and 0 < ordinary <= len(read.vocab)):
        sizes = f"{specials:,} special tokens, {read.config.default_vocab_size:,} in all, {len(read.vocab):,} listed"
        raise _malformed(path, "as many tokens as its config counts", sizes)
    vocab = list(islice(read.vocab, ordinary))
    if [token.rank for token in vocab] != list(range(ordinary)):
        raise _malformed(path, "the ranks 0, 1, 2 ... in order", "others")
    words = [token.token_bytes for token in vocab]
    if words[:256] != BYTES or len({*words, b""}) <= ordinary:
        raise _malformed(path, "the 256 bytes in order, then other tokens, none empty or twice", "others")
    named = [(token.token_str, token.rank) for token in read.special_tokens or ()]
    if read.special_tokens is None:
        named = [(token, rank) for rank, token in enumerate(UNNAMED[:specials])]
    named += [(f"<SPECIAL_{rank}>", rank) for rank in range(len(named), specials)]
    special_tokens = dict(named)
    if sorted(special_tokens.values()) != list(range(specials)):
        raise _malformed(path, f"special tokens of other names for the ids 0 to {specials - 1}", "others")
    lines = [b"%s %d\n" % (b2a_base64(word, newline=False), rank) for rank, word in enumerate(words, specials)]
    return TekkenRanks(b"".join(lines), read.config.pattern, special_tokens)


def _malformed(path: Path, expected: str, got: object) -> TokenizerError:
    return TokenizerError(
        "tokenizer.not_tekken: the file is not a tekken.json",
        where=path,
        expected=expected,
        got=got,
        next_step="fetch it again from the model's repository",
    )
