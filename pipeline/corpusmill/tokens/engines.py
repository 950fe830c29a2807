"""The engines, which encode batches of documents. All produce the ids of the reference library, or are refused.

`auto` is corpusmill's own engine (pieces.py) or gigatoken if the rule (fitness.py) admits the tokenizer, else the
reference library. Documents that gigatoken may encode differently go to the reference library one by one.

Steps of a tokenizer.json that gigatoken lacks, or does by other tables, are done before it: normalization, cutting at
digits. It then gets a tokenizer.json without those steps.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.lazy import lazily
from corpusmill.tokens.characters import (
    UNASSIGNED,
    Form,
    StringFinder,
    changing_kinds,
    cut_at_numbers,
    holding_kind,
    number_kinds,
    runs_of_kind,
)
from corpusmill.tokens.fitness import (
    AddedTokens,
    cuts_digits,
    merges_of,
    sort_added_tokens,
    steps_of,
    why_not_characters,
    why_not_gigatoken_json,
    why_not_pieces,
)
from corpusmill.tokens.pieces import PieceEngine, Rows
from corpusmill.tokens.ranks import Split, read_spelling
from corpusmill.tokens.references import BYTE_OF_CHARACTER, HuggingFaceReference, Reference, TiktokenReference
from corpusmill.tokens.vocabulary import PATTERNS

with lazily:
    from corpusmill.tokens import rank_merges

if TYPE_CHECKING:
    from corpusmill.tokens.sentencepiece_models import SentencePieceReference
    from corpusmill.tokens.vocabulary import VocabularyFile


UNICODE_FORMS = get_args(Form)
REMEMBERED_RUNS = 1 << 14

FEW_TEXTS = 256  # a batch of at most this many texts is always encoded one by one
ALONE_TEXTS = 1 << 16
"""Texts that a process encodes one by one, each 0.5 to 5 us slower, before it imports awkward for batches, which takes
0.2 s: a process does not know whether it will be short.
"""
_alone = [0]  # of this process


class Engine(Protocol):
    """Turns documents into ids: uint32 tokens back to back, and the number of tokens of each document.

    The third number says how many of the documents the reference library encoded.
    """

    def __call__(self, texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64], int]: ...


@dataclass(frozen=True)
class FastEngine:
    """An engine with the steps that are done before it, and the reference library for guarded documents.

    `normalize` is None if there is nothing to do before `encode`, which takes normalized documents. `cuts_by_kind`:
    `encode` cuts where letters, numbers and others meet. Its Unicode is newer than the reference library's, so
    documents with characters that Python's tables do not have go to the latter.
    """

    reference: Reference
    added: AddedTokens
    encode: Callable[[list[bytes]], Rows]
    normalize: Callable[[list[bytes]], list[bytes]] | None = None
    cuts_by_kind: bool = True

    def __call__(self, texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64], int]:
        guarded = self.added.raw.holding(texts)
        ready = texts
        if self.normalize:
            ready = self.normalize(texts)
            guarded |= self.added.normalized.holding(ready)
        if self.cuts_by_kind:
            guarded |= holding_kind(ready, number_kinds(), UNASSIGNED)
        if not guarded.any():
            return *self.encode(ready), 0
        lengths = np.empty(len(texts), np.int64)
        slow = [self.reference.encode(texts[place]) for place in np.flatnonzero(guarded).tolist()]
        fast, lengths[~guarded] = self.encode([ready[place] for place in np.flatnonzero(~guarded).tolist()])
        lengths[guarded] = [len(row) for row in slow]
        tokens = np.empty(int(lengths.sum()), np.uint32)
        is_slow = np.repeat(guarded, lengths)
        tokens[is_slow] = np.concatenate(slow)
        tokens[~is_slow] = fast
        return tokens, lengths, len(slow)


def fast_json_engine(reference: HuggingFaceReference, *, parse_special: bool) -> FastEngine | str:
    """gigatoken with the reference's tokenizer.json, or the reason (str) why its ids would differ."""
    import gigatoken

    description = reference.description
    marks_spaces = bool(description["model"].get("byte_fallback"))
    reason = why_not_gigatoken_json(description) or ("" if marks_spaces else why_not_characters())
    if reason:
        return reason
    kinds = {step["type"] for step in steps_of(description["normalizer"])}
    normalizes = bool(kinds) and not marks_spaces
    before = (lambda text: reference.normalized(text.encode()).decode()) if normalizes else None
    added = sort_added_tokens(reference, before, parse_special=parse_special)
    if isinstance(added, str):
        return added
    each_digit = cuts_digits(description)
    simpler = {
        **description,
        "added_tokens": added.native,
        "truncation": None,
        "padding": None,
        "normalizer": description["normalizer"] if marks_spaces else None,
        "model": description["model"] if marks_spaces else _reachable(description["model"]),
    }
    if each_digit is not None:
        simpler["pre_tokenizer"] = steps_of(description["pre_tokenizer"])[-1]
    try:
        tokenizer = gigatoken.Tokenizer.from_json(json.dumps(simpler))
    except BaseException as error:  # its refusals have several classes, panics included
        return _refusal(error)
    return FastEngine(
        reference,
        added,
        partial(_encode_batch, tokenizer) if each_digit is None else partial(_encode_cut, tokenizer, each_digit),
        _normalizing(reference, kinds) if normalizes else None,
        not marks_spaces,
    )


def piece_engine(reference: HuggingFaceReference, *, parse_special: bool) -> FastEngine | str:
    """An engine that encodes piece by piece, or the reason (str) why its ids would differ."""
    description = reference.description
    reason = why_not_gigatoken_json(description) or why_not_pieces(description)
    if reason:
        return reason
    added = sort_added_tokens(reference, None, parse_special=parse_special)
    if isinstance(added, str):
        return added
    engine = PieceEngine(
        description["model"]["vocab"],
        merges_of(description["model"]),
        {token["content"]: token["id"] for token in added.native},
        prepends=len(steps_of(description["normalizer"])) > 1,
    )
    return FastEngine(reference, added, engine, cuts_by_kind=False)


def sentencepiece_engine(reference: SentencePieceReference) -> FastEngine | str:
    """An engine that encodes a SentencePiece model piece by piece, or the reason (str) why its ids would differ."""
    if reason := reference.why_not_merges():
        return reason
    merges, ranks = reference.merges()
    prepends = reference.normalizer.add_dummy_prefix
    engine = PieceEngine(reference.pieces_of_text(), merges, {}, prepends=prepends, ranks=ranks)
    guarded = AddedTokens([], StringFinder(reference.user_defined()), StringFinder(()))
    return FastEngine(reference, guarded, engine, cuts_by_kind=False)


def _reachable(model: dict[str, Any]) -> dict[str, Any]:
    """A byte-level model without tokens that are not spelled in bytes, which no text ever produces.

    gigatoken would read such a token as UTF-8, and so have two tokens of the same bytes.
    """

    if BYTE_OF_CHARACTER.keys() >= set("".join(model["vocab"])):
        return model

    def spelled(token: str) -> bool:
        return BYTE_OF_CHARACTER.keys() >= set(token)

    vocabulary = {token: number for token, number in model["vocab"].items() if spelled(token)}
    return {**model, "vocab": vocabulary, "merges": [pair for pair in merges_of(model) if spelled("".join(pair))]}


def _normalizing(reference: HuggingFaceReference, kinds: set[str]) -> Callable[[list[bytes]], list[bytes]]:
    """The reference's normalizer, for the runs of characters that it may change, and the character before each.

    The others it leaves alone, and they do not compose with what precedes them (changing_kinds).

    gigatoken's tables follow a newer Unicode than those of tokenizers: they order combining marks added after
    Unicode 9 differently (125 of them, U+07FD and U+0898 to U+089F among them).
    """
    form = next((form for form in UNICODE_FORMS if kinds == {form}), None)
    if form is None:
        return lambda texts: [reference.normalized(text) for text in texts]

    normalized = lru_cache(maxsize=REMEMBERED_RUNS)(reference.normalized)

    def normalize(texts: list[bytes]) -> list[bytes]:
        ready = list(texts)
        for place, runs in groupby(runs_of_kind(texts, changing_kinds(form), 1).tolist(), itemgetter(0)):
            text, parts, at = texts[place], [], 0
            for _, start, end in runs:
                parts += [text[at:start], normalized(text[start:end])]
                at = end
            ready[place] = b"".join([*parts, text[at:]])
        return ready

    return normalize


def _encode_cut(tokenizer: Any, each_digit: bool, texts: list[bytes]) -> Rows:
    """As _encode_batch, of texts that are cut at numbers before."""
    text = b"".join(texts)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    bounds, pieces = cut_at_numbers(np.frombuffer(text, np.uint8), ends, each=each_digit)
    tokens, lengths = _encode_pieces(tokenizer, text, bounds)
    token_ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[pieces]
    return tokens, np.diff(token_ends, prepend=np.int64(0))


def _encode_pieces(tokenizer: Any, text: bytes, bounds: NDArray[np.int64]) -> Rows:
    """As _encode_batch, of the pieces of a text that end at `bounds[1:]`; where there are many, none becomes bytes."""
    if _one_by_one(len(bounds) - 1):
        return _encode_each(tokenizer, [text[first:last] for first, last in pairwise(bounds.tolist())])
    import awkward

    characters = awkward.contents.NumpyArray(np.frombuffer(text, np.uint8), parameters={"__array__": "byte"})
    rows = awkward.contents.ListOffsetArray(
        awkward.index.Index64(bounds), characters, parameters={"__array__": "bytestring"}
    )
    return _rows_of(tokenizer.encode_batch(awkward.Array(rows), parallel=False))


def _encode_batch(tokenizer: Any, texts: list[bytes]) -> Rows:
    if _one_by_one(len(texts)):
        return _encode_each(tokenizer, texts)
    return _rows_of(tokenizer.encode_batch(texts, parallel=False))


def _one_by_one(texts: int) -> bool:
    if texts <= FEW_TEXTS:
        return True
    if "awkward" in sys.modules:
        return False
    _alone[0] += texts
    return _alone[0] <= ALONE_TEXTS


def _encode_each(tokenizer: Any, texts: list[bytes]) -> Rows:
    rows = [tokenizer.encode(text) for text in texts]
    return np.concatenate([np.empty(0, np.uint32), *rows]), np.array([len(row) for row in rows], np.int64)


def _rows_of(encoded: Any) -> Rows:
    offsets = np.asarray(encoded.layout.offsets.data)
    return np.asarray(encoded.layout.content.data)[offsets[0] : offsets[-1]], np.diff(offsets)


AUTO, FAST, OWN = "auto", "gigatoken", "corpusmill"
ENGINES = (AUTO, FAST, "tiktoken", "tokenizers", "sentencepiece")


@dataclass(frozen=True)
class LoadedEngine:
    """An engine, its name, and the reason why auto chose the reference library ("" if it did not)."""

    name: str
    encode: Engine
    reason: str = ""


def load_engine(
    engine: str,
    name: str,
    file: VocabularyFile,
    reference: TiktokenReference | HuggingFaceReference | SentencePieceReference,
    split: Split,
    *,
    parse_special: bool,
) -> LoadedEngine:
    """An engine for a vocabulary; TokenizerError, with the reason, if its ids would not be the reference's."""
    if engine not in ENGINES:
        raise TokenizerError(
            "tokenizer.unknown_engine: unknown engine", where=f"tokenizer.engine: {engine}", expected=", ".join(ENGINES)
        )
    defining = file.defined_by
    if engine not in {AUTO, FAST, defining}:
        raise _needs(defining, f"{engine} does not read {file.kind} files", name, engine)
    reason = ""
    if engine == AUTO and not isinstance(reference, TiktokenReference):
        own = (
            piece_engine(reference, parse_special=parse_special)
            if isinstance(reference, HuggingFaceReference)
            else sentencepiece_engine(reference)
        )
        if not isinstance(own, str):
            return LoadedEngine(OWN, own)
        reason = own
    if engine != defining:
        if isinstance(reference, HuggingFaceReference):
            fast = fast_json_engine(reference, parse_special=parse_special)
        elif isinstance(reference, TiktokenReference):
            fast = _fast_ranks_engine(reference, split, published=name in PATTERNS, parse_special=parse_special)
        else:
            fast = reason or "gigatoken does not read SentencePiece models"
        if not isinstance(fast, str):
            return LoadedEngine(FAST, fast)
        if engine == FAST:
            raise _needs(defining, fast, name, engine)
        reason = fast
    if isinstance(reference, TiktokenReference) and name not in PATTERNS:
        reference.encode(b"")  # a pattern that cannot be used is found before any text
    return LoadedEngine(defining, _reference_engine(reference), reason)


def _needs(engine: str, reason: str, name: str, asked: str) -> TokenizerError:
    return TokenizerError(
        f"tokenizer.needs_engine: this tokenizer needs engine {engine} because {reason}",
        where=f"tokenizer.name: {name}",
        got=f"tokenizer.engine: {asked}",
        next_step=f"set tokenizer.engine: {engine}; it is slower, but its ids are right",
    )


def _fast_ranks_engine(
    reference: TiktokenReference, split: Split, *, published: bool, parse_special: bool
) -> FastEngine | str:
    """gigatoken with a .tiktoken file, or why not: only characters send a document to the reference library.

    It reads the file itself, in a third of the time, if it knows the pattern by name and ranks are as in published
    encodings; else a tokenizer.json of the same ids (rank_merges.py).
    """
    import gigatoken

    if reason := why_not_characters():
        return reason
    # Without special tokens a literal "<|endoftext|>" in a document is text and cannot become the separator.
    special = reference.special_tokens if parse_special else {}
    description = ""
    if not (published and split.name):
        spelling = read_spelling(reference.content)
        pairs = rank_merges.pairs_of(spelling)
        if isinstance(pairs, str):
            return pairs
        if not (split.name and rank_merges.as_published(spelling, pairs)):
            description = rank_merges.json_of(pairs, rank_merges.pre_tokenizer_of(split.expression))
    if description and special:
        return "gigatoken reads its ranks without special tokens only"
    try:
        if description:
            loaded = gigatoken.Tokenizer.from_json(description)
        else:
            # It reads only paths, and the file at the vocabulary's path may have changed since it was hashed.
            with tempfile.NamedTemporaryFile(suffix=".tiktoken") as copy:
                copy.write(reference.content)
                copy.flush()
                loaded = gigatoken.Tokenizer.from_tiktoken(copy.name, pretokenizer=split.name, special_tokens=special)
    except BaseException as error:  # its refusals have several classes, panics included
        return _refusal(error)
    return FastEngine(reference, AddedTokens([], StringFinder(()), StringFinder(())), partial(_encode_batch, loaded))


def _refusal(error: BaseException) -> str:
    """What gigatoken says of a vocabulary that it refuses; raises what is no refusal."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        raise error
    return f"gigatoken says: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"


def _reference_engine(reference: Reference) -> Engine:
    def encode(texts: list[bytes]) -> tuple[NDArray[Any], NDArray[np.int64], int]:
        rows = [reference.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *rows]), lengths, len(texts)

    return encode
