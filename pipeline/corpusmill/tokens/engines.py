"""The engines, which encode batches of documents. All produce the ids of the reference library, or are refused.

`auto` is corpusmill's own engine (pieces.py) or gigatoken if the rule (fitness.py) admits the tokenizer, else the
reference library. Documents that gigatoken may encode differently (fast.py, added.py) go to the reference library one
by one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.tokens.fast import Engine, fast_json_engine, fast_ranks_engine, piece_engine
from corpusmill.tokens.fitness import why_not_characters, why_not_gigatoken_ranks
from corpusmill.tokens.references import HuggingFaceReference, Reference, TiktokenReference

if TYPE_CHECKING:
    from corpusmill.tokens.vocabulary import VocabularyFile

AUTO, FAST, OWN = "auto", "gigatoken", "corpusmill"
ENGINES = (AUTO, FAST, "tiktoken", "tokenizers")
READS = {
    "tiktoken": "tiktoken",
    "tokenizer.json": "tokenizers",
}  # kind of vocabulary -> the library that defines its ids


@dataclass(frozen=True)
class LoadedEngine:
    """An engine, its name, and the reason why auto chose the reference library ("" if it did not)."""

    name: str
    encode: Engine
    reason: str = ""


def load_engine(
    engine: str, name: str, file: VocabularyFile, reference: Reference, pattern_name: str, *, parse_special: bool
) -> LoadedEngine:
    """An engine for a vocabulary; TokenizerError, with the reason, if its ids would not be the reference's."""
    if engine not in ENGINES:
        raise TokenizerError(
            "tokenizer.unknown_engine: unknown engine", where=f"tokenizer.engine: {engine}", expected=", ".join(ENGINES)
        )
    defining = READS[file.kind]
    if engine not in {AUTO, FAST, defining}:
        raise _needs(defining, f"{engine} does not read {file.kind} files", name, engine)
    reason = ""
    if engine == AUTO and isinstance(reference, HuggingFaceReference):
        own = piece_engine(reference, parse_special=parse_special)
        if not isinstance(own, str):
            return LoadedEngine(OWN, own)
    if engine != defining:
        fast = _fast_engine(file, reference, pattern_name, parse_special=parse_special)
        if not isinstance(fast, str):
            return LoadedEngine(FAST, fast)
        if engine == FAST:
            raise _needs(defining, fast, name, engine)
        reason = fast
    return LoadedEngine(defining, _reference_engine(reference), reason)


def _needs(engine: str, reason: str, name: str, asked: str) -> TokenizerError:
    return TokenizerError(
        f"tokenizer.needs_engine: this tokenizer needs engine {engine} because {reason}",
        where=f"tokenizer.name: {name}",
        got=f"tokenizer.engine: {asked}",
        next_step=f"set tokenizer.engine: {engine}; it is slower, but its ids are right",
    )


def _fast_engine(file: VocabularyFile, reference: Reference, pattern_name: str, *, parse_special: bool) -> Engine | str:
    """gigatoken with the reference's vocabulary, or why not."""
    if isinstance(reference, TiktokenReference):
        return _from_ranks(file, reference, pattern_name, parse_special=parse_special)
    assert isinstance(reference, HuggingFaceReference)  # noqa: S101 (the two kinds of vocabulary)
    return fast_json_engine(reference, parse_special=parse_special)


def _from_ranks(
    file: VocabularyFile, reference: TiktokenReference, pattern_name: str, *, parse_special: bool
) -> Engine | str:
    import gigatoken

    reason = why_not_gigatoken_ranks(pattern_name, reference.ranks) or why_not_characters()
    if reason:
        return reason
    # Without special tokens a literal "<|endoftext|>" in a document is text and cannot become the separator.
    special = reference.special_tokens if parse_special else {}
    # It reads only paths, and the file at the vocabulary's path may have changed since it was hashed.
    with tempfile.NamedTemporaryFile(suffix=".tiktoken") as copy:
        copy.write(file.content)
        copy.flush()
        try:
            loaded = gigatoken.Tokenizer.from_tiktoken(copy.name, pretokenizer=pattern_name, special_tokens=special)
        except BaseException as error:  # ranks that no merges produce make it panic, which is a BaseException
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            return "gigatoken cannot read its ranks"
    return fast_ranks_engine(reference, loaded)


def _reference_engine(reference: Reference) -> Engine:
    def encode(texts: list[bytes]) -> tuple[NDArray[Any], NDArray[np.int64], int]:
        rows = [reference.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *rows]), lengths, len(texts)

    return encode
