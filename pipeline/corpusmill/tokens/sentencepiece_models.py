"""SentencePiece models (`.model`): their reference library, and those of them that the piece engine encodes.

    .model   a protobuf message: pieces (string, score, type), trainer_spec, normalizer_spec, denormalizer_spec

SentencePiece joins, of all neighbours whose characters together are a piece, those of the highest score, the leftmost
first, whatever two sides they have. So the merges of a model are all pairs of sides of its pieces, and those of one
piece share a rank (pieces.py). Pieces of one score have no order of their own but the place in the text; vocabularies
have that of runs of marks alone, behind all others. There the longest first is the same: a run grows at its left end,
a mark at a time, until no piece is longer.

`why_not_merges` checks what the piece engine takes for granted:

    BPE, and all 256 bytes            an unknown character becomes its bytes, and is merged with nothing
    only spaces become marks          no table of characters, no spaces removed, no marks behind words
    no unused pieces                  SentencePiece cuts them again
    characters that are pieces        a side of one character needs no piece in SentencePiece
    user-defined pieces without marks documents that hold their strings go to the library

Price: the reference library encodes 0.4 to 4 MB of text a second, long documents slowest.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.tokens.fitness import BYTE_TOKENS, MARK, MOST_TOKENS
from corpusmill.tokens.ranks import Spelling

messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made by protoc, without types
PIECE = messages.ModelProto.SentencePiece
BPE = messages.TrainerSpec.BPE

Merges = tuple[list[tuple[str, str]], NDArray[np.int64]]
"""The two sides of every merge, and its rank."""


class SentencePieceReference:
    """sentencepiece: ids of a `.model`, without BOS and EOS. Control pieces in a text are text.

    `pieces`: (string, score, type) of each id, as the file has them.
    """

    package = "sentencepiece"
    how_to_decode = "report the text: SentencePiece's own decoder should return it"

    def __init__(self, path: Path, content: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(content)
            model = messages.ModelProto.FromString(content)
            # Of a piece that is not UTF-8, protobuf gives bytes, or raises.
            self.pieces = [
                (str(piece.piece, "utf-8") if isinstance(piece.piece, bytes) else piece.piece, piece.score, piece.type)
                for piece in model.pieces
            ]
        except (DecodeError, RuntimeError, UnicodeDecodeError) as error:
            raise TokenizerError(
                "tokenizer.not_sentencepiece: the file is not a model that sentencepiece can read",
                where=path,
                got=type(error).__name__,
                next_step="fetch it again; ranks of tiktoken begin with base64, and may also be called .model",
            ) from None
        self.trainer, self.normalizer = model.trainer_spec, model.normalizer_spec
        self.vocabulary_size = len(self.pieces)
        self._ids = {piece: number for number, (piece, _, _) in enumerate(self.pieces)}  # no two are equal
        self.special_tokens = {
            piece: number for number, (piece, _, kind) in enumerate(self.pieces) if kind == PIECE.CONTROL
        }

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        ids: NDArray[Any] = self._processor.EncodeAsNumpy(text)
        return ids.astype(np.uint32)

    def decode(self, ids: NDArray[Any]) -> bytes:
        if not self.keeps_text:
            return str(self._processor.Decode(ids.tolist())).encode()
        text = b"".join(map(self._bytes, ids.tolist()))
        return text.removeprefix(b" ") if self.normalizer.add_dummy_prefix else text

    def promises_round_trip(self, text: bytes) -> bool:
        return self.keeps_text and MARK.encode() not in text

    def token_ends(self, text: bytes) -> NDArray[np.int64]:
        offsets = self._processor.EncodeAsOffsetMapping(text)["offsets"]
        ends = np.array([last for _, last in offsets], np.int64)
        return np.maximum.accumulate(ends) if len(ends) else ends

    def id_of(self, token: str) -> int | None:
        return self._ids.get(token)

    def ordinary_ids(self) -> int:
        return len(self.pieces)

    def spelled(self) -> Spelling | None:
        ids = range(len(self.pieces))
        return Spelling.of(ids, list(map(self._bytes, ids))) if self.keeps_text else None

    def normalized(self, text: bytes) -> bytes:
        characters: bytes = self._processor.Normalize(text)
        return characters.replace(MARK.encode(), b" ")

    @cached_property
    def keeps_text(self) -> bool:
        """Whether the bytes of a text's ids are the text, behind a space where one is put before it."""
        return not self._why_not_text()

    def _why_not_text(self) -> str:
        bytes_held = {piece for piece, _, kind in self.pieces if kind == PIECE.BYTE}
        cuts_characters = self.trainer.model_type != messages.TrainerSpec.WORD and (MARK, PIECE.NORMAL) in {
            (piece, kind) for piece, _, kind in self.pieces
        }
        reasons = {
            "its normalizer changes characters": bool(self.normalizer.precompiled_charsmap),
            "its normalizer removes spaces": self.normalizer.remove_extra_whitespaces,
            "it does not mark spaces": not self.normalizer.escape_whitespaces,
            "it marks the ends of words": self.trainer.treat_whitespace_as_suffix,
            "its vocabulary does not have every byte": bytes_held != set(BYTE_TOKENS),
            "its marks of spaces may become bytes": not cuts_characters,
        }
        return next((reason for reason, applies in reasons.items() if applies), "")

    def _bytes(self, number: int) -> bytes:
        piece, _, kind = self.pieces[number]
        return bytes([int(piece[3:5], 16)]) if kind == PIECE.BYTE else piece.replace(MARK, " ").encode()

    def why_not_merges(self) -> str:
        """Why the piece engine would give other ids; "" if it gives those of sentencepiece."""
        if self.trainer.model_type != BPE:
            return f"its model is {messages.TrainerSpec.ModelType.Name(self.trainer.model_type).title()}, not BPE"
        if reason := self._why_not_text():
            return reason
        normal = [(piece, score) for piece, score, kind in self.pieces if kind == PIECE.NORMAL]
        singles = {piece for piece, _ in normal if len(piece) == 1}
        longer = sorted(((score, piece) for piece, score in normal if len(piece) > 1), reverse=True)
        tied = {score for score, times in Counter(score for score, _ in longer).items() if times > 1}
        runs = [(score, piece) for score, piece in longer if not piece.strip(MARK)]
        reasons = {
            "it has unused pieces": any(kind == PIECE.UNUSED for _, _, kind in self.pieces),
            "it has a score that is no number": not all(isfinite(score) for _, score, _ in self.pieces),
            "it has user-defined pieces with spaces": any(MARK in piece for piece in self.user_defined()),
            "it has pieces of characters that are no pieces": not singles.issuperset({*MARK, *"".join(dict(normal))}),
            "pieces of one score are no runs of spaces, or not the last": bool(tied)
            and (len(tied) > 1 or longer[-len(runs) :] != runs or any(score not in tied for score, _ in runs)),
            "it has more than 2,097,151 pieces": len(self.pieces) > MOST_TOKENS,
        }
        return next((reason for reason, applies in reasons.items() if applies), "")

    def pieces_of_text(self) -> dict[str, int]:
        """{piece: id} of bytes and of what text is merged to; it never becomes a control piece, or the unknown one."""
        kinds = {PIECE.NORMAL, PIECE.BYTE}
        return {piece: number for number, (piece, _, kind) in enumerate(self.pieces) if kind in kinds}

    def user_defined(self) -> list[str]:
        """The strings that are pieces wherever they occur."""
        return [piece for piece, _, kind in self.pieces if kind == PIECE.USER_DEFINED]

    def merges(self) -> Merges:
        """All pairs of pieces that are a piece together; those of one piece share a rank."""
        normal = {piece: score for piece, score, kind in self.pieces if kind == PIECE.NORMAL}
        order = sorted((piece for piece in normal if len(piece) > 1), key=lambda piece: (-normal[piece], -len(piece)))
        pairs = [
            ((piece[:cut], piece[cut:]), rank)
            for rank, piece in enumerate(order)
            for cut in range(1, len(piece))
            if piece[:cut] in normal and piece[cut:] in normal
        ]
        return [sides for sides, _ in pairs], np.array([rank for _, rank in pairs], np.int64)
