"""A tokenizer: one pinned vocabulary, the engine that encodes, and the reference library, whose ids it must produce."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.config.sections import ALIASES
from corpusmill.errors import TokenizerError
from corpusmill.lazy import lazily
from corpusmill.tokens.characters import StringFinder
from corpusmill.tokens.decoding import token_table
from corpusmill.tokens.engines import AUTO, Engine, load_engine
from corpusmill.tokens.ranks import (
    Split,
    own_encoding,
    pattern_of,
    published_encoding,
    published_special_tokens,
    refuse_other_content,
)
from corpusmill.tokens.references import HuggingFaceReference, Reference, TiktokenReference
from corpusmill.tokens.special import choose_special_ids, stated_eot
from corpusmill.tokens.tekken import read_tekken
from corpusmill.tokens.vocabulary import (
    PATTERNS,
    SPLITS,
    VocabularyFile,
    find_vocabulary,
    refuse_ignored_settings,
)

with lazily:
    from corpusmill.tokens import sentencepiece_models

if TYPE_CHECKING:
    from corpusmill.tokens.decoding import TokenTable
    from corpusmill.tokens.sentencepiece_models import SentencePieceReference

PLAIN_WORD = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer. Literal special strings in text are text, unless it was loaded with `parse_special`.

    `reference` is the library that defines this tokenizer's ids. `why_slow`: why engine auto came to be that library;
    "" if it did not.
    """

    name: str
    sha256: str
    vocabulary_size: int
    eot_id: int
    pad_id: int
    engine: str
    _encode: Engine = field(repr=False)
    reference: Reference = field(repr=False)
    bos_id: int | None = None
    revision: str = ""
    why_slow: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint16 when every id fits (at most 65,536 of them), else uint32; little endian."""
        return np.dtype("<u2" if self.vocabulary_size <= 1 << 16 else "<u4")

    @cached_property
    def table(self) -> TokenTable | None:
        """The bytes of every id, made once; None if a document's bytes are more than those of its ids."""
        spelled = self.reference.spelled()
        return None if spelled is None else token_table(spelled, self.vocabulary_size)

    def encode(self, texts: list[bytes]) -> tuple[NDArray[Any], NDArray[np.uint64]]:
        """Ids of several documents: (tokens of `dtype`, ends uint64), ends cumulative and exclusive."""
        return self.encode_counted(texts)[:2]

    def encode_counted(self, texts: list[bytes]) -> tuple[NDArray[Any], NDArray[np.uint64], int]:
        """As encode, and the number of documents that the reference library encoded."""
        tokens, lengths, by_reference = self._encode(texts)
        if len(lengths) != len(texts):
            raise TokenizerError(
                f"tokenizer.documents_lost: engine {self.engine} returned another number of documents",
                expected=len(texts),
                got=len(lengths),
                next_step="set another tokenizer.engine and report the text",
            )
        if tokens.size and int(tokens.max()) >= self.vocabulary_size:
            raise TokenizerError(
                f"tokenizer.id_outside_vocabulary: engine {self.engine} returned an id outside the vocabulary of"
                f" {self.name}",
                expected=f"ids below {self.vocabulary_size:,}",
                got=int(tokens.max()),
                next_step="set another tokenizer.engine and report the text",
            )
        return tokens.astype(self.dtype, copy=False), np.cumsum(lengths, dtype=np.uint64), by_reference

    @cached_property
    def special_strings(self) -> StringFinder:
        """Finds the documents that hold a special token's string."""
        return StringFinder(self.reference.special_tokens)

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes of some ids; special tokens give their text."""
        return self.reference.decode(ids)


def load_tokenizer(
    name: str,
    *,
    engine: str = AUTO,
    file: str | None = None,
    sha256: str | None = None,
    revision: str | None = None,
    pattern: str | None = None,
    special_tokens: tuple[tuple[str, int], ...] = (),
    eot: str | None = None,
    bos: str | None = None,
    pad: str | None = None,
    parse_special: bool = False,
    tokshuf_ids: bool = False,
) -> Tokenizer:
    """Load a tokenizer by name, path or hub id (vocabulary.py), with its special ids (special.py).

    engine          auto, gigatoken, tiktoken, tokenizers, sentencepiece, or reference: the one of the last three that
                    defines the ids
    pattern         a .tiktoken file's split pattern: a published encoding's name, or a regular expression
    special_tokens  a .tiktoken file's special tokens: (string, id)
    Raises TokenizerError: unknown, missing, not the pinned one, no EOT, or an engine that would give other ids;
    ConfigError for settings that the vocabulary would override.
    """
    name = name if file else ALIASES.get(name, name)
    vocabulary = find_vocabulary(name, file=file, sha256=sha256, revision=revision)
    refuse_ignored_settings(
        name, vocabulary, pattern=pattern, special_tokens=special_tokens, revision=revision, parse_special=parse_special
    )
    named = {"eot": eot, "bos": bos, "pad": pad}
    own = {"pattern": pattern, "special_tokens": special_tokens, "parse_special": parse_special}
    return _loaded(name, vocabulary, engine, tokshuf_ids=tokshuf_ids, **named, **own)


@lru_cache(maxsize=4)  # a worker tokenizes many shards: loading takes 0.4 s, and the engine caches words
def _loaded(
    name: str,
    file: VocabularyFile,
    engine: str,
    pattern: str | None,
    special_tokens: tuple[tuple[str, int], ...],
    eot: str | None,
    bos: str | None,
    pad: str | None,
    *,
    parse_special: bool,
    tokshuf_ids: bool,
) -> Tokenizer:
    split, reference = _load_reference(name, file, pattern, dict(special_tokens), parse_special=parse_special)
    stated = "" if eot or tokshuf_ids else stated_eot(file, name)
    ids = choose_special_ids(reference, name, eot=eot, bos=bos, pad=pad, stated_eot=stated, tokshuf=tokshuf_ids)
    engine = file.defined_by if engine == "reference" else engine
    loaded = load_engine(engine, name, file, reference, split, parse_special=parse_special)
    return Tokenizer(
        name=name,
        sha256=file.sha256,
        vocabulary_size=max(reference.vocabulary_size, ids.pad_id + 1),
        eot_id=ids.eot_id,
        pad_id=ids.pad_id,
        engine=loaded.name,
        _encode=loaded.encode,
        reference=reference,
        bos_id=ids.bos_id,
        revision=file.revision,
        why_slow=loaded.reason,
    )


def _load_reference(
    name: str, file: VocabularyFile, pattern: str | None, special_tokens: dict[str, int], *, parse_special: bool
) -> tuple[Split, TiktokenReference | HuggingFaceReference | SentencePieceReference]:
    """(how text is cut before merging, if ranks are; the reference library with the vocabulary)."""
    if file.kind == "tokenizer.json":
        return Split(""), HuggingFaceReference(file.path, file.content, parse_special=parse_special)
    if file.kind == "sentencepiece":
        return Split(""), sentencepiece_models.SentencePieceReference(file.path, file.content)
    if file.kind == "tekken":
        tekken = read_tekken(file.path, file.content)
        return Split(tekken.pattern), TiktokenReference(
            partial(own_encoding, file.path, tekken.content, tekken.pattern, tekken.special_tokens),
            tekken.content,
            tekken.special_tokens,
            parse_special=parse_special,
        )
    if name in PATTERNS:
        return Split(pattern_of(name), PATTERNS[name]), TiktokenReference(
            partial(published_encoding, name, file.content),  # its sha256 guarantees that it can be loaded
            file.content,
            published_special_tokens(name),
            parse_special=parse_special,
        )
    if pattern is None:
        raise TokenizerError(
            "tokenizer.no_pattern: a .tiktoken file does not define how text is split before merging",
            where=file.path,
            expected=f"tokenizer.pattern: {', '.join(SPLITS)}, or a regular expression",
            next_step="a wrong pattern silently produces wrong ids: check the origin of the file",
        )
    if pattern not in SPLITS and PLAIN_WORD.fullmatch(pattern):
        raise TokenizerError(
            "tokenizer.pattern_is_a_word: tokenizer.pattern is not the name of an encoding, and as a regular"
            " expression it matches one word only",
            where=file.path,
            expected=f"{', '.join(SPLITS)}, or a regular expression that matches every text piece by piece",
            got=pattern,
            next_step="name the encoding that the file is from, or copy its split pattern from its authors' code",
        )
    expression = pattern_of(pattern) if pattern in SPLITS else pattern
    refuse_other_content(file.path, file.content)
    return Split(expression, PATTERNS.get(pattern, "")), TiktokenReference(
        partial(own_encoding, file.path, file.content, expression, special_tokens),
        file.content,
        special_tokens,
        parse_special=parse_special,
    )
