"""The engines: what turns batches of documents into ids. All give the ids of the reference library, or are refused."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.tokens.fitness import why_not_gigatoken_json, why_not_gigatoken_ranks
from corpusmill.tokens.references import HuggingFaceReference, Reference, TiktokenReference

if TYPE_CHECKING:
    from corpusmill.tokens.vocabulary import VocabularyFile

ENGINES = ("gigatoken", "tiktoken", "tokenizers")
READS = {
    "tiktoken": "tiktoken",
    "tokenizer.json": "tokenizers",
}  # kind of vocabulary -> the library that defines its ids


class Engine(Protocol):
    """Turns documents into ids: uint32 tokens back to back, and the number of tokens of each document."""

    def __call__(self, texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...


def load_engine(
    engine: str, name: str, found: VocabularyFile, reference: Reference, pattern_name: str, *, parse_special: bool
) -> Engine:
    """An engine for a vocabulary; TokenizerError if it would not give the reference's ids, with the reason."""
    if engine not in ENGINES:
        raise TokenizerError("unknown engine", where=f"tokenizer.engine: {engine}", expected=", ".join(ENGINES))
    if engine == READS[found.kind]:
        return _reference_engine(reference)
    if engine != "gigatoken":
        raise _needs(READS[found.kind], f"{engine} does not read {found.kind} files", name, engine)
    if isinstance(reference, TiktokenReference):
        return _from_ranks(name, found, reference, pattern_name, parse_special=parse_special)
    assert isinstance(reference, HuggingFaceReference)  # noqa: S101 (the two kinds of vocabulary)
    return _from_json(name, reference, parse_special=parse_special)


def _needs(engine: str, reason: str, name: str, asked: str) -> TokenizerError:
    return TokenizerError(
        f"this tokenizer needs engine {engine} because {reason}",
        where=f"tokenizer.name: {name}",
        got=f"tokenizer.engine: {asked}",
        next_step=f"set tokenizer.engine: {engine}; it is slower, and its ids are right",
    )


def _from_ranks(
    name: str, found: VocabularyFile, reference: TiktokenReference, pattern_name: str, *, parse_special: bool
) -> Engine:
    import gigatoken

    reason = why_not_gigatoken_ranks(pattern_name, reference.ranks)
    if reason:
        raise _needs("tiktoken", reason, name, "gigatoken")
    # Without special tokens a literal "<|endoftext|>" in a document is text and cannot become the separator.
    special = reference.special_tokens if parse_special else {}
    # It reads paths alone, and what lies at the vocabulary's may not be what was hashed any more.
    with tempfile.NamedTemporaryFile(suffix=".tiktoken") as copy:
        copy.write(found.content)
        copy.flush()
        try:
            loaded = gigatoken.Tokenizer.from_tiktoken(copy.name, pretokenizer=pattern_name, special_tokens=special)
        except BaseException as error:  # ranks that no merges make let it panic, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise _needs("tiktoken", "gigatoken cannot read its ranks", name, "gigatoken") from error
    return _gigatoken_engine(loaded)


def _from_json(name: str, reference: HuggingFaceReference, *, parse_special: bool) -> Engine:
    import gigatoken

    reason = why_not_gigatoken_json(reference.description, parse_special=parse_special)
    if reason:
        raise _needs("tokenizers", reason, name, "gigatoken")
    added = [token for token in reference.description["added_tokens"] if parse_special or not token["special"]]
    description = {**reference.description, "added_tokens": added, "truncation": None, "padding": None}
    composes = not reference.description["model"].get("byte_fallback") and description["normalizer"] is not None
    if composes:  # the rule lets only NFC through
        description["normalizer"] = None
    try:
        engine = _gigatoken_engine(gigatoken.Tokenizer.from_json(json.dumps(description)))
    except Exception as error:  # its own refusals are of several classes: they become ours
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _needs("tokenizers", f"gigatoken says: {said}", name, "gigatoken") from error
    return _composing(engine) if composes else engine


def _composing(engine: Engine) -> Engine:
    """NFC before an engine, by the reference's own tables.

    gigatoken's follow a newer Unicode than those of tokenizers: they order combining marks that came after Unicode 9
    differently (125 of them, U+07FD and U+0898 to U+089F among them). ASCII is NFC as it is.
    """
    from tokenizers import normalizers

    normalize = normalizers.NFC().normalize_str

    def encode(texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        return engine([text if text.isascii() else normalize(text.decode()).encode() for text in texts])

    return encode


def _gigatoken_engine(tokenizer: Any) -> Engine:
    def encode(texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        if not texts:
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        rows = tokenizer.encode_batch(texts, parallel=False).layout
        offsets = np.asarray(rows.offsets.data)
        return np.asarray(rows.content.data)[offsets[0] : offsets[-1]], np.diff(offsets)

    return encode


def _reference_engine(reference: Reference) -> Engine:
    def encode(texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        rows = [reference.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *rows]), lengths

    return encode
