"""mistral_common and the tokenizer files that it ships: Corpusmill gives the same ids."""

from __future__ import annotations

import json
import os
import random
import subprocess
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import mistral_common
import pytest
import zstandard
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

DATA = Path(mistral_common.__file__).parent / "data"
DELIVERED = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "documents"
CORPUS = Path(os.environ.get("CORPUSMILL_TEST_DATA", Path(__file__).parents[4] / "shared" / "data")) / "corpus"
ENCODED = Path(__file__).parents[1] / "encoded.py"
TEKKEN = sorted(path.name for path in DATA.glob("tekken_*.json"))
MODELS = sorted(path.name for path in DATA.glob("*.model.v*"))
PIECES = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "the",
    "'S",
    "Don't",
    "½",
    "٣",
    "1234567",
    "naïve",
    "é",
    "e\u0301",
    "中文",
    "日本語",
]
PIECES += [
    "слово",
    "हिन्दी",
    "العربية",
    "🙂",
    "👩‍👩‍👧",
    "</s>",
    "<s>",
    "[INST]",
    "<unk>",
    "//",
    "\x00",
    "\u2028",
    "\ufeff",
    "ǅ",
    "a" * 40,
]


def drawn(count: int) -> list[str]:
    """Texts of pieces that tokenizers cut differently, and of characters from all planes."""
    draw = random.Random(7)
    planes = [*range(0xD800), *range(0xE000, 0x11000)]

    def text() -> str:
        parts = (
            draw.choice(PIECES) if draw.random() < 0.8 else chr(draw.choice(planes)) for _ in range(draw.randrange(40))
        )
        return "".join(parts)

    return [text() for _ in range(count)]


@cache
def texts() -> tuple[str, ...]:
    """Drawn ones, the documents of the delivered dataset, and real ones where the shared corpus is."""
    lines = [line for path in sorted(DELIVERED.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    real = [json.loads(line)["text"] for line in lines]
    assert len(real) > 20
    for path in sorted(CORPUS.glob("*.jsonl.zst"))[:1]:
        with zstandard.open(path, "rt", encoding="utf-8") as documents:
            real += [json.loads(line)["text"] for line in islice(documents, 150)]
    return (*drawn(1000), *real)


def encoded(file: Path) -> Any:
    command = [os.environ["CORPUSMILL_CONSUMER_PYTHON"], ENCODED, file]
    done = subprocess.run(command, input=json.dumps(texts()), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def require_same(rows: list[list[int]], expected: list[list[int]]) -> None:
    different = [text for text, row, wanted in zip(texts(), rows, expected, strict=True) if row != wanted]
    assert not different, f"{len(different)} of {len(rows)} texts, such as {different[0]!r}"


@pytest.mark.parametrize("file", TEKKEN)
def test_mistral_tekken_ids_are_ours(file: str) -> None:
    library, ours = Tekkenizer.from_file(DATA / file), encoded(DATA / file)
    require_same(ours["ids"], [library.encode(text, bos=False, eos=False) for text in texts()])
    stated = (ours["size"], ours["bos"], ours["eos"], ours["pad"])
    assert stated == (library.n_words, library.bos_id, library.eos_id, library.pad_id)
    assert ours["engine"] == "gigatoken"


@pytest.mark.parametrize("file", MODELS)
def test_mistral_sentencepiece_ids_are_ours(file: str, tmp_path: Path) -> None:
    (tmp_path / "it.model").symlink_to(DATA / file)  # whose ending is .model.v3
    library, ours = SentencePieceTokenizer(DATA / file), encoded(tmp_path / "it.model")
    require_same(ours["ids"], [library.encode(text, bos=False, eos=False) for text in texts()])
    assert (ours["size"], ours["bos"], ours["eos"]) == (library.n_words, library.bos_id, library.eos_id)


def test_mistral_ships_both_kinds_of_files() -> None:
    assert TEKKEN
    assert MODELS
