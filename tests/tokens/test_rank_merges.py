"""Rank files as a tokenizer.json: the ids of tiktoken, whatever their order."""

from __future__ import annotations

import base64
import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import CorpusmillError
from corpusmill.tokens import rank_merges
from corpusmill.tokens.ranks import Spelling, pattern_of, read_spelling
from corpusmill.tokens.references import BYTE_OF_CHARACTER
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import examples
from tests.raising import raises
from tests.tokens.test_tokenizer import TRICKY
from tests.tokens.vocabularies import shared

BYTES = [bytes([byte]) for byte in range(256)]


def half_of(ranks: dict[bytes, int], token: bytes) -> int:
    """Joins a token's bytes as tiktoken would, the whole excepted: where its two parts meet, or the reason for none."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(left + right) for left, right in pairwise(parts)]
        if not (there := [rank for rank in pairs if rank is not None]):
            return rank_merges.UNREACHED
        at = pairs.index(min(there))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return rank_merges.ALONE if len(parts) == 1 else len(parts[0])


@st.composite
def vocabularies(draw) -> list[bytes]:
    """All bytes and some strings of a few letters, in any order: some are made by higher ranks, or never, and half of
    the time all have lower ranks than the bytes.
    """
    words = draw(st.lists(st.text("abc ", min_size=2, max_size=6).map(str.encode), unique=True, max_size=40))
    words = sorted(words, key=len) if draw(st.booleans()) else words
    return [*BYTES, *words] if draw(st.booleans()) else [*words, *BYTES]


@examples(200)
@given(words=vocabularies(), texts=st.lists(st.text("abcd  \n", max_size=60), max_size=20))
def test_json_of_drawn_ranks_gives_tiktokens_ids(words: list[bytes], texts: list[str]) -> None:
    import gigatoken
    import tokenizers

    ranks = {word: rank for rank, word in enumerate(words)}
    pairs = rank_merges.pairs_of(Spelling.of([*ranks.values()], [*ranks]))
    assert isinstance(pairs, rank_merges.Pairs)
    description = rank_merges.json_of(pairs, rank_merges.pre_tokenizer_of(pattern_of("r50k_base")))
    reference = tiktoken.Encoding("x", pat_str=pattern_of("r50k_base"), mergeable_ranks=ranks, special_tokens={})
    engines = (
        gigatoken.Tokenizer.from_json(description),
        tokenizers.Tokenizer.from_str(description),
    )
    for text in [*texts, *(word.decode() for word in words if word.isascii())]:
        expected = reference.encode_ordinary(text)
        assert list(engines[0].encode(text)) == expected
        assert engines[1].encode(text, add_special_tokens=False).ids == expected


@examples(200)
@given(words=vocabularies(), texts=st.lists(st.text("ab1 \r\n'.\t", max_size=12), min_size=1, max_size=20))
@pytest.mark.parametrize("pattern", ["cl100k_base", "o200k_base", "p50k_base", "r50k_base", "llama3"])
def test_engine_of_drawn_ranks_and_any_pattern_gives_tiktokens_ids(
    pattern: str, words: list[bytes], texts: list[str]
) -> None:
    """With tokens of line breaks and other whitespace, which the patterns cut differently at the end of a text."""
    words = [*words, *(word for word in (b"\r ", b"\n ", b" \n", b"  ", b"\n\n", b"\t ") if word not in words)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.tiktoken"
        lines = [base64.b64encode(word) + b" %d\n" % (rank + (rank > 300)) for rank, word in enumerate(words)]
        path.write_bytes(b"".join(lines))
        settings = {"pattern": pattern, "special_tokens": (("<|endoftext|>", 9_999),)}
        tokenizers = [load_tokenizer(str(path), engine=engine, **settings) for engine in ("auto", "tiktoken")]
    for text in texts:
        assert len({tuple(tokenizer.encode([text.encode()])[0].tolist()) for tokenizer in tokenizers}) == 1


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*(byte for byte in BYTES if byte != b"a"), b"b ", b"a", b"ab"], id="a byte above 255"),
        pytest.param([*BYTES, b"abab", b"aba", b"ab"], id="merges of higher ranks"),
        pytest.param([*reversed(BYTES), b"ab", b"aba"], id="bytes in another order"),
    ],
)
def test_dense_ranks_of_an_unusual_order_run_on_the_fast_engine_with_tiktokens_ids(tmp_path, words) -> None:
    path = tmp_path / "dense.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(words)))
    settings = {"pattern": "r50k_base", "special_tokens": (("<|endoftext|>", len(words)),)}
    fast, slow = (load_tokenizer(str(path), engine=engine, **settings) for engine in ("auto", "tiktoken"))
    assert fast.engine == "gigatoken"
    for text in (b"abab", b"ab ab", b"babab aba", b"b a"):
        assert fast.encode([text])[0].tolist() == slow.encode([text])[0].tolist()


def test_ranks_that_the_fast_engine_takes_are_not_loaded_into_tiktoken_before_a_document_needs_it(tmp_path) -> None:
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(BYTES)))
    tokenizer = load_tokenizer(str(path), pattern="llama3", special_tokens=(("<|endoftext|>", 256),))
    tokenizer.encode([b"a document"])
    assert "encoding" not in vars(tokenizer.reference)
    tokenizer.encode(["\U0001fae9 since Unicode 16".encode()])
    assert "encoding" in vars(tokenizer.reference)


def test_rank_file_with_an_id_far_beyond_its_tokens_stays_with_tiktoken(tmp_path) -> None:
    """gigatoken makes a table of all ids up to the largest, and ends the process without room for it."""
    path = tmp_path / "far.tiktoken"
    ids = [*range(256), 2_147_483_653]
    path.write_bytes(
        b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in zip(ids, [*BYTES, b"ab"], strict=True))
    )
    tokenizer = load_tokenizer(str(path), pattern="o200k_base", special_tokens=(("<|endoftext|>", 300),))
    assert tokenizer.engine == "tiktoken"
    assert "largest id" in tokenizer.why_slow


def test_ranks_of_fewer_tokens_than_bytes_are_not_as_published() -> None:
    words = [bytes([byte]) for byte in sorted(rank_merges.UTF8_BYTES)]
    spelling = Spelling.of(range(len(words)), words)
    pairs = rank_merges.pairs_of(spelling)
    assert isinstance(pairs, rank_merges.Pairs)
    assert not rank_merges.as_published(spelling, pairs)


@pytest.mark.parametrize("pattern", ["", "a*", "(a", r"\s*|\S+"])
def test_pattern_that_tiktoken_cannot_cut_by_is_refused_before_any_text(tmp_path, pattern: str) -> None:
    """tiktoken panics at a piece without text."""
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(BYTES)))
    with raises("tokenizer.pattern_unusable", "own.tiktoken"):
        load_tokenizer(str(path), pattern=pattern, special_tokens=(("<|endoftext|>", 256),))


@pytest.mark.parametrize("name", ["o200k_base", "r50k_base"])
def test_json_of_published_ranks_has_the_merge_of_every_token(name: str) -> None:
    content = shared(f"{name}.tiktoken").read_bytes()
    spelling = read_spelling(content)
    pairs = rank_merges.pairs_of(spelling)
    assert isinstance(pairs, rank_merges.Pairs)
    assert rank_merges.as_published(spelling, pairs)
    description = json.loads(rank_merges.json_of(pairs, rank_merges.pre_tokenizer_of(pattern_of(name))))
    ranks = {
        spelling.text[start : start + length].tobytes(): rank
        for rank, start, length in zip(spelling.ids, spelling.starts, spelling.lengths, strict=True)
    }
    merges = {"".join(pair): len(pair[0]) for pair in description["model"]["merges"]}
    for token in list(ranks)[300::997]:
        assert merges["".join(map(rank_merges.CHARACTERS.__getitem__, token))] == half_of(ranks, token)


def neox(folder: Path) -> Path:
    """GPT-NeoX's vocabulary as a rank file: two tokens that no merge makes, and no token for bytes of no text."""
    vocabulary = json.loads(shared("gpt-neox-20b.tokenizer.json").read_text())["model"]["vocab"]
    path = folder / "neox.tiktoken"
    lines = [
        (rank, base64.b64encode(bytes(map(BYTE_OF_CHARACTER.__getitem__, token)))) for token, rank in vocabulary.items()
    ]
    path.write_bytes(b"".join(b"%s %d\n" % (word, rank) for rank, word in sorted(lines)))
    return path


@pytest.mark.parametrize(("pattern", "eot"), [("r50k_base", 50_300), ("llama3", 100_257)])
def test_rank_file_of_another_model_runs_on_the_fast_engine_with_tiktokens_ids(
    tmp_path, pattern: str, eot: int
) -> None:
    path = neox(tmp_path) if pattern == "r50k_base" else tmp_path / "tokenizer.model"
    if pattern == "llama3":
        path.write_bytes(shared("cl100k_base.tiktoken").read_bytes())
    settings = {"pattern": pattern, "special_tokens": (("<|endoftext|>", eot),)}
    fast = load_tokenizer(str(path), **settings)
    slow = load_tokenizer(str(path), engine="tiktoken", **settings)
    assert (fast.engine, fast.why_slow) == ("gigatoken", "")
    for text in map(str.encode, TRICKY):
        assert fast.encode([text])[0].tolist() == slow.encode([text])[0].tolist()


@pytest.mark.parametrize(("name", "encoding"), [("gpt-4", "cl100k_base"), ("gpt4", "cl100k_base")])
def test_tokenizer_of_a_model_is_its_published_encoding(name: str, encoding: str) -> None:
    assert load_tokenizer(name).name == encoding


def test_tokenizer_in_a_folder_is_found_by_its_path_and_hides_no_repository(tmp_path, monkeypatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "org" / "model" / "tokenizer.json").write_bytes(shared("gpt2.tokenizer.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert load_tokenizer("./org/model").vocabulary_size == 50_257
    with pytest.raises(CorpusmillError):  # the hub's, which cannot be reached
        load_tokenizer("org/model")


@pytest.mark.parametrize(
    ("name", "repository"), [("llama3", "meta-llama/Meta-Llama-3-8B"), ("NeoX", "EleutherAI/gpt-neox-20b")]
)
def test_tokenizer_by_a_name_that_people_use_is_told_its_repository(name: str, repository: str) -> None:
    with raises("tokenizer.unknown", repository):
        load_tokenizer(name)
