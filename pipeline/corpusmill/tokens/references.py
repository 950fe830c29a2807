"""The reference libraries: tiktoken for .tiktoken vocabularies, tokenizers for tokenizer.json.

Their ids are right by definition; the engines are checked against them (fitness.py, audit.py).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.tokens.fitness import MARK, isolated, steps_of
from corpusmill.tokens.ranks import Spelling, read_ids, read_spelling

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")

# Byte-level vocabularies spell a byte that prints as itself, any other by the next free character from U+0100 on
# (openai/gpt-2, encoder.py, bytes_to_unicode).
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTED)]
BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTED} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


class Reference(Protocol):
    """A reference library with one vocabulary.

    `vocabulary_size` is one more than the largest id; `special_tokens` maps token strings to ids; `how_to_decode` is
    the next step where ids do not decode to their text.
    """

    package: str
    vocabulary_size: int
    special_tokens: dict[str, int]
    how_to_decode: str

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        """The ids of one document."""

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes of a document's ids, special tokens as their text."""

    def promises_round_trip(self, text: bytes) -> bool:
        """Whether decode(encode(text)) must be `text`."""

    def token_ends(self, text: bytes) -> NDArray[np.int64]:
        """For each token of a document, one past the last byte of the text that it stands for; ascending."""

    def id_of(self, token: str) -> int | None:
        """The id of a token given as a string, special or not; None if there is none."""

    def ordinary_ids(self) -> int:
        """The number of ids of the model and its special tokens; other added tokens do not count."""

    def spelled(self) -> Spelling | None:
        """Every id and its bytes; None if a document's bytes are more than those of its ids, back to back."""

    def normalized(self, text: bytes) -> bytes:
        """The bytes to which a document's ids must decode: its text as the tokenizer normalizes it."""


class TiktokenReference:
    """tiktoken: byte-level BPE, decoding returns every text unchanged.

    `load` returns the tiktoken.Encoding, only when needed: that takes 0.6 s, and a shard that another engine
    encodes needs only the .tiktoken file's content and `special_tokens`.
    """

    package = "tiktoken"
    how_to_decode = (
        "use a vocabulary with all 256 bytes, and as tokenizer.pattern (--pattern) the encoding that it is from, or a"
        " regular expression that matches every character of every text"
    )

    def __init__(
        self, load: Callable[[], Any], content: bytes, special_tokens: dict[str, int], *, parse_special: bool
    ) -> None:
        self.ranks = read_ids(content)
        self.special_tokens = special_tokens
        self.vocabulary_size = max(self.ranks + list(special_tokens.values()), default=-1) + 1
        self.content = content
        self._load = load
        self._allowed: Any = "all" if parse_special else set()

    @cached_property
    def encoding(self) -> Any:
        """The tiktoken.Encoding."""
        return self._load()

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        ids = self.encoding.encode_to_numpy(text.decode(), allowed_special=self._allowed, disallowed_special=())
        return np.asarray(ids, np.uint32)

    def decode(self, ids: NDArray[Any]) -> bytes:
        return bytes(self.encoding.decode_bytes(ids.tolist()))

    def promises_round_trip(self, text: bytes) -> bool:  # noqa: ARG002
        return True

    def token_ends(self, text: bytes) -> NDArray[np.int64]:
        pieces = self.encoding.decode_tokens_bytes(self.encode(text).tolist())
        return np.cumsum([len(piece) for piece in pieces], dtype=np.int64)

    def id_of(self, token: str) -> int | None:
        if token in self.special_tokens:
            return self.special_tokens[token]
        try:
            return int(self.encoding.encode_single_token(token))
        except KeyError:
            return None

    def ordinary_ids(self) -> int:
        return len({*self.ranks, *self.special_tokens.values()})  # ranks may have holes

    def spelled(self) -> Spelling | None:
        special = Spelling.of([*self.special_tokens.values()], [*map(str.encode, self.special_tokens)])
        return read_spelling(self.content).and_then(special)

    def normalized(self, text: bytes) -> bytes:
        return text


class HuggingFaceReference:
    """tokenizers: a tokenizer.json without its truncation, padding and post-processor (they add no text's tokens).

    `description` is the parsed file in the canonical form of fitness.isolated.
    """

    package = "tokenizers"
    how_to_decode = (
        "fetch the tokenizer.json again: what it adds or replaces in a text, its decoder must undo, and a byte-level"
        ' vocabulary needs "decoder": {"type": "ByteLevel"}'
    )

    def __init__(self, path: Path, content: bytes, *, parse_special: bool) -> None:
        # Its thread pool would not survive a fork; workers are processes here.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
            self.description = isolated(json.loads(content))
        except BaseException as error:
            # A vocabulary that contradicts itself makes its loader panic, which is a BaseException.
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            # Its message, and that of its cause, may quote the file, which may be any file that a form names.
            raise TokenizerError(
                "tokenizer.not_a_tokenizer_json: the file is not a tokenizer.json that tokenizers can read",
                where=path,
                got=type(error).__name__,
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = not parse_special
        dropout = self.description["model"].get("dropout")
        if dropout:
            raise TokenizerError(
                "tokenizer.random_merges: this tokenizer draws its merges at random, so equal texts would get"
                " different ids",
                where=path,
                expected="model.dropout: null",
                got=dropout,
            )
        self._ids: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary_size = max(self._ids.values(), default=-1) + 1
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_tokens = {token.content: number for number, token in added.items() if token.special}

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        try:
            [encoding] = self._tokenizer.encode_batch_fast([text.decode()], add_special_tokens=False)
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            raise TokenizerError(  # a panic: of added tokens that overlap and take the spaces around them, for one
                "tokenizer.text_not_encodable: the library tokenizers fails on a text, so no id of it is defined",
                got=type(error).__name__,
                next_step="fix the added tokens of the tokenizer.json, or use another tokenizer",
            ) from None
        return np.array(encoding.ids, np.uint32)

    def decode(self, ids: NDArray[Any]) -> bytes:
        return bytes(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False).encode())

    def promises_round_trip(self, text: bytes) -> bool:
        if not self._keeps_bytes:
            return False
        characters = text.decode()
        if self._is_sentencepiece:
            return MARK not in characters  # it decodes to a space
        normalizer = self._tokenizer.normalizer
        return normalizer is None or normalizer.normalize_str(characters) == characters

    @cached_property
    def _is_sentencepiece(self) -> bool:
        return bool(self.description["model"].get("byte_fallback"))

    @cached_property
    def _keeps_bytes(self) -> bool:
        """Whether decoding returns every text that normalization does not change.

        Byte-level BPE does, unless it adds a space or drops one around an added token; SentencePiece does if it has
        all 256 bytes and its normalizer only marks spaces. Everything else is not promised.
        """
        description = self.description
        model, normalizer = description["model"], steps_of(description["normalizer"])
        before = steps_of(description["pre_tokenizer"])
        if model["type"] != "BPE" or model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
            return False
        if any(token["lstrip"] or token["rstrip"] for token in description["added_tokens"]):
            return False
        if self._is_sentencepiece:
            prepends = any(step["type"] == "Prepend" for step in normalizer)
            strips = any(step["type"] == "Strip" for step in (description["decoder"] or {}).get("decoders", []))
            marks = not before and all(step["type"] in {"Prepend", "Replace"} for step in normalizer)
            return marks and prepends == strips and all(f"<0x{byte:02X}>" in self._ids for byte in range(256))
        level = [step for step in before if step["type"] == "ByteLevel"]
        splits = [step for step in before if step["type"] not in {"ByteLevel", "Digits"}]
        whole = all(step["type"] == "Split" and step["behavior"] == "Isolated" for step in splits)
        return whole and len(level) == 1 and not level[0]["add_prefix_space"]

    def token_ends(self, text: bytes) -> NDArray[np.int64]:
        characters = text.decode()
        offsets = self._tokenizer.encode(characters, add_special_tokens=False).offsets
        widths = np.fromiter((len(character.encode()) for character in characters), np.int64, len(characters))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])[[last for _, last in offsets]]
        return np.maximum.accumulate(ends) if len(ends) else ends.astype(np.int64)

    def id_of(self, token: str) -> int | None:
        return self._ids.get(token)

    def ordinary_ids(self) -> int:
        model = set(self._tokenizer.get_vocab(with_added_tokens=False).values())
        return len(model | set(self.special_tokens.values()))

    def spelled(self) -> Spelling | None:
        if not self._keeps_bytes:
            return None
        added = self._tokenizer.get_added_tokens_decoder()
        spell = _sentencepiece_bytes if self._is_sentencepiece else _byte_level_bytes
        words = {number: spell(token) for token, number in self._ids.items() if number not in added}
        return Spelling.of([*words, *added], [*words.values(), *(token.content.encode() for token in added.values())])

    def normalized(self, text: bytes) -> bytes:
        normalizer = self._tokenizer.normalizer
        if normalizer is None:
            return text
        characters: str = normalizer.normalize_str(text.decode())
        return (characters.replace(MARK, " ") if self._is_sentencepiece else characters).encode()


def _byte_level_bytes(token: str) -> bytes:
    """The bytes that a byte-level vocabulary spells with printable characters; b"" for a token with another one."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return b""


def _sentencepiece_bytes(token: str) -> bytes:
    if BYTE_TOKEN.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace(MARK, " ").encode()
