"""tokshuf's special ids and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import quick
from tests.system.test_like_tokshuf import build, contexts, lines, stream
from tests.tokens.vocabularies import NEOX, described, shared, written

TEXTS = ["one two", "three four five", "six"]
# What Llama-3 has: its own two special ids, above the ranks of a .tiktoken file, and no padding token.
BEGIN, END = 128_000, 128_001
CONTEXT = 33


def like_llama_3(**changes: object) -> dict[str, object]:
    special = {"<|begin_of_text|>": BEGIN, "<|end_of_text|>": END}
    file = str(shared("cl100k_base.tiktoken"))
    return {"name": "like-llama-3", "file": file, "pattern": "cl100k_base", "special_tokens": special, **changes}


def own_neox(folder: Path) -> str:
    """GPT-NeoX-20B's tokenizer.json as EleutherAI published it: without what others added behind id 50276."""
    whole = described(NEOX)
    return written({**whole, "added_tokens": [item for item in whole["added_tokens"] if item["id"] <= 50_276]}, folder)


def built_stream(folder: Path, tokenizer: dict[str, object], **changes: object) -> list[int]:
    """The tokens of one shard's contexts, in order."""
    (folder / "two.jsonl").write_bytes(lines(TEXTS))
    source = {"paths": [str(folder / "two.jsonl")], "text_field": "body"}
    build(folder, source=source, tokenizer=tokenizer, **changes)
    return stream(contexts(folder), 0)


@pytest.mark.parametrize("bos", [False, True])
def test_webdataset_llama_3_separates_by_its_end_of_text_and_opens_by_bos_if_asked(tmp_path, bos: bool) -> None:
    """The original separates by id 0, which is "!", and adds 128000 with tiktoken only."""
    plain = load_tokenizer("cl100k_base", engine="tiktoken")
    tokens = built_stream(tmp_path, like_llama_3(), packing={"bos": bos})
    expected = [
        token
        for text in TEXTS
        for token in (*([BEGIN] if bos else []), *plain.encode([text.encode()])[0].tolist(), END)
    ]
    assert tokens[: len(expected)] == expected
    assert 0 not in tokens


def test_webdataset_bos_counts_among_the_special_tokens(tmp_path) -> None:
    (tmp_path / "two.jsonl").write_bytes(lines(TEXTS))
    source = {"paths": [str(tmp_path / "two.jsonl")], "text_field": "body"}
    built = build(tmp_path, source=source, tokenizer=like_llama_3(), packing={"bos": True})
    assert built.total("scatter", "special_tokens") == 2 * len(TEXTS)


def test_webdataset_padding_of_neox_is_its_own_token_or_tokshufs_50256(tmp_path) -> None:
    path = own_neox(tmp_path)
    own = built_stream(tmp_path, {"name": path})
    pads = CONTEXT - sum(token != 1 for token in own)
    assert pads > 5
    assert own[-pads:] == [1] * pads  # <|padding|>
    (tmp_path / "tokshuf").mkdir()
    theirs = built_stream(tmp_path / "tokshuf", {"name": path, "special_ids": "tokshuf"})
    assert theirs == [*own[:-pads], *[50_256] * pads]


def test_webdataset_padding_of_llama_3_is_inside_its_vocabulary(tmp_path) -> None:
    """The original pads with 128258, a row that a Llama-3 embedding of 128,256 rows does not have."""
    tokens = built_stream(tmp_path, like_llama_3())
    assert tokens[-5:] == [END] * 5
    size = load_tokenizer(**{**like_llama_3(special_tokens=(("<|end_of_text|>", END),)), "engine": "gigatoken"})
    assert max(tokens) < size.vocabulary_size == END + 1
    (tmp_path / "tokshuf").mkdir()
    ranks = load_tokenizer("cl100k_base", engine="tiktoken").reference.ranks
    assert max(built_stream(tmp_path / "tokshuf", like_llama_3(special_ids="tokshuf"))) == len(ranks) + 2 + 2


@pytest.mark.parametrize("name", ["cl100k_base", "neox"])
@pytest.mark.parametrize("engine", ["gigatoken", "reference"])
def test_webdataset_literal_special_string_is_plain_text_for_every_engine(tmp_path, name: str, engine: str) -> None:
    reference = "tiktoken" if name == "cl100k_base" else "tokenizers"
    wanted = name if name == "cl100k_base" else own_neox(tmp_path)
    tokenizer = load_tokenizer(wanted, engine=reference if engine == "reference" else engine)
    ids = tokenizer.encode([b"a <|endoftext|> b"])[0]
    assert tokenizer.eot_id not in ids.tolist()
    assert tokenizer.decode(ids) == b"a <|endoftext|> b"


HARD_FOR_TIKTOKEN = {
    "two spaces": "a  b",
    "indented code": "def f(x):\n    return x\n        # deep\n",
    "runs of 2 to 30 spaces": "x".join(" " * count for count in range(2, 31)),
    "decomposed accents": "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "trailing spaces and tabs": "a   \n\t\tb\t \n\n",
    "no-break spaces": "a\u00a0\u00a0b",
    "plain": "The quick brown fox; 中文。",
}


@pytest.mark.parametrize("case", quick(HARD_FOR_TIKTOKEN, 3))
def test_webdataset_neox_ids_are_those_of_its_tokenizer_json(tmp_path, case: str) -> None:
    """tokshuf's bundled rank file differs on runs of spaces and on what is not NFC; tokenizer.json is the reference."""
    path, text = own_neox(tmp_path), HARD_FOR_TIKTOKEN[case]
    expected = tokenizers.Tokenizer.from_file(path).encode(text, add_special_tokens=False).ids
    for engine in ("gigatoken", "tokenizers"):
        assert load_tokenizer(path, engine=engine).encode([text.encode()])[0].tolist() == expected
    if case in {"two spaces", "indented code"}:
        assert max(expected) >= 50_254  # the added tokens of runs of spaces, which tokshuf's file moves
    assert json.loads(Path(path).read_text())["normalizer"] == {"type": "NFC"}
