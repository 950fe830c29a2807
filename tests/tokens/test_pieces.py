"""SentencePiece BPE piece by piece: the ids of `tokenizers`, whatever the merges, the text and what the table holds."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens import pieces
from corpusmill.tokens.audit import tricky_texts
from corpusmill.tokens.engines import FastEngine
from corpusmill.tokens.piece_kernels import CUT, FEW, KEPT_BYTES
from corpusmill.tokens.pieces import PieceEngine, safe_cuts
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.quick import examples
from tests.tokens.test_fitness import metaspace
from tests.tokens.vocabularies import sentencepiece, with_added, with_model, written

MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
KNOWN = ["▁", "a", "b", ",", "\n", "1", "é", "e", "\u0301", "中", "<", "0"]
PARTS = [*KNOWN, " ", "  ", " ▁", "\0", "🧑", "\u3000", "\u2580", "\x7f", "ab", "<0x41>", "a b", "\n\n", "<x>", "▁▁"]
ADDED = ["▁▁", "\n\n", "ab", " a", "<x>", "<", "a,", "中"]


def made(merges: list[tuple[str, str]], **changes: Any) -> dict[str, Any]:
    """sentencepiece() with these merges and their characters."""
    tokens = dict.fromkeys([*sentencepiece()["model"]["vocab"], *KNOWN, *map("".join, merges)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return {**with_model(sentencepiece(), vocab=vocabulary, merges=merges), **changes}


def loaded(description: dict[str, Any], folder: Any, **arguments: Any) -> Tokenizer:
    tokenizer = load_tokenizer(written(description, folder), eot="a", **arguments)
    assert tokenizer.engine == "corpusmill"
    return tokenizer


def require_reference(tokenizer: Tokenizer, documents: list[str]) -> None:
    texts = [document.encode() for document in documents]
    tokens, ends = tokenizer.encode(texts)
    rows = [tokens[first:last].tolist() for first, last in pairwise([0, *ends.astype(int).tolist()])]
    assert rows == [tokenizer.reference.encode(text).tolist() for text in texts]


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Merges of tokens that are characters or come of earlier merges: across marks, line ends, marks inside ..."""
    tokens, merges = list(KNOWN), []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        merges.append(pair)
        tokens.append("".join(pair))
    return merges


@examples(200)
@given(data=st.data())
def test_pieces_of_any_vocabulary_have_the_ids_of_the_whole_text(data: st.DataObject, tmp_path_factory) -> None:
    steps = [MARK, *data.draw(st.sampled_from([[], [PREPEND]]))][::-1]
    cut = data.draw(st.sampled_from([None, {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"}]))
    description = made(
        data.draw(merge_lists()),
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer=cut and {**cut, "invert": False, "behavior": "MergedWithPrevious"},
    )
    for content in data.draw(st.lists(st.sampled_from(ADDED), unique=True, max_size=3)):
        flags = [{}, {"special": True}, *([{"normalized": True}] if content != "▁▁" else [])]
        marked = data.draw(st.sampled_from(flags))
        description = with_added(description, content=content, **marked)
    special = data.draw(st.booleans())
    tokenizer = loaded(description, tmp_path_factory.mktemp("made"), parse_special=special)
    document = st.builds("".join, st.lists(st.sampled_from(PARTS), max_size=12))
    long = st.builds(lambda text, times: text * times, document, st.sampled_from([1, FEW, KEPT_BYTES]))
    documents = data.draw(st.lists(long, max_size=4))
    require_reference(tokenizer, documents)
    require_reference(tokenizer, documents[::-1])  # by the table, now


def test_safe_cuts_are_everywhere_else_but_within_characters() -> None:
    cuts = safe_cuts([("a", "b"), (",", "▁"), ("ab", "é")])
    whole = {(left, right) for left in range(256) for right in range(256) if not cuts[left, right] & CUT}
    joined = {(ord("a"), ord("b")), (ord(","), ord(" ")), (ord(","), 0xE2), (ord("b"), 0xC3)}
    assert whole == joined | {(left, right) for left in range(256) for right in range(0x80, 0xC0)}


@pytest.mark.parametrize("limit", ["ROWS", "KEYS_BYTES", "KEPT_IDS"])
def test_pieces_table_that_is_soon_full_changes_no_id(tmp_path, monkeypatch, limit: str) -> None:
    monkeypatch.setattr(pieces, limit, 20)
    rng = random.Random(1)
    documents = ["".join(rng.choices(PARTS, k=rng.randrange(40))) for _ in range(60)]
    require_reference(loaded(sentencepiece(), tmp_path), documents)


def test_pieces_of_every_length_come_back_from_the_table_as_they_went_in(tmp_path) -> None:
    """Runs of a token that nothing cuts, to both sides of a word's 7 bytes, of KEPT_BYTES, and of FEW symbols."""
    tokenizer = loaded(made([("a", "a"), ("aa", "a"), ("b", "b"), ("a", "b"), ("b", "a"), ("中", "中")]), tmp_path)
    runs = [unit * times for unit in ("a", "ab", "b", "中") for times in [*range(1, 80), 1000]]
    require_reference(tokenizer, [*runs, *runs])


def test_pieces_of_tricky_texts_are_the_references_in_threads_that_share_an_engine(tmp_path) -> None:
    tokenizer = loaded(with_added(sentencepiece(), content="▁▁▁"), tmp_path)
    documents = [text.decode() for text in tricky_texts()]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: require_reference(tokenizer, documents), range(4)))
    require_reference(tokenizer, [])
    require_reference(tokenizer, ["", "", " ", ""])


@pytest.mark.parametrize("text", [b"\xff", b"a\xe4\xb8", b"\xf4\x90\x80\x80", b"\xed\xa0\x80"])
def test_pieces_text_that_is_not_utf8_is_refused_as_by_the_reference(tmp_path, text: bytes) -> None:
    tokenizer = loaded(sentencepiece(), tmp_path)
    for encode in (tokenizer.reference.encode, lambda item: tokenizer.encode([b"a", item, b"\xad"])):
        with pytest.raises(UnicodeDecodeError):
            encode(text)


def without(token: str) -> dict[str, Any]:
    vocabulary = sentencepiece()["model"]["vocab"]
    vocabulary.pop(token)
    return with_model(sentencepiece(), vocab=vocabulary)


REFUSED = {
    "ignore_merges": lambda: with_model(sentencepiece(), ignore_merges=True),
    "a byte without a token": lambda: without("<0xC3>"),
    "two tokens of one id": lambda: with_model(sentencepiece(), vocab={**sentencepiece()["model"]["vocab"], "q": 270}),
    "bytes that merge": lambda: made([("<0xE4>", "<0xB8>")]),
    "bytes that merge with text": lambda: made([("<0x41>", "▁")]),
    "another mark": lambda: sentencepiece(normalizer={**MARK, "content": "_"}),
    "nothing marks spaces": lambda: sentencepiece(normalizer=None),
    "more is prepended": lambda: sentencepiece(
        normalizer={"type": "Sequence", "normalizers": [{**PREPEND, "prepend": "▁▁"}, MARK]}
    ),
    "metaspace": lambda: sentencepiece(normalizer=None, pre_tokenizer=metaspace("first", cut=False)),
    "cut at a letter": lambda: sentencepiece(
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": "h"},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pieces_vocabulary_that_the_rule_does_not_cover_goes_to_another_engine(tmp_path, name: str) -> None:
    tokenizer = load_tokenizer(written(REFUSED[name](), tmp_path), eot="a")
    assert tokenizer.engine != "corpusmill"
    rng = random.Random(2)
    require_reference(tokenizer, ["".join(rng.choices([*PARTS, "the", "h"], k=9)) for _ in range(30)])


def test_pieces_emoji_and_bytes_without_tokens_fall_back_to_the_tokens_of_bytes(tmp_path) -> None:
    tokenizer = loaded(sentencepiece(), tmp_path)
    engine = tokenizer._encode
    assert isinstance(engine, FastEngine)
    assert isinstance(engine.encode, PieceEngine)
    assert tokenizer.encode(["🧑".encode()])[0].tolist()[1:] == [
        tokenizer.reference.id_of(f"<0x{byte:02X}>") for byte in "🧑".encode()
    ]
