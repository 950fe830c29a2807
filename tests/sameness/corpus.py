"""The sources and the vocabularies of the family: a few kilobytes in every form, the same bytes everywhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.search.sources import NAMES, NO_DOCUMENTS, PASSAGES, Source
from tests.search.vocabularies import special_tokens, write_vocabulary
from tests.tokens.vocabularies import sentencepiece, with_added

RANKED, DESCRIBED, SENTENCES, LOSS = "tiny.tiktoken", "tokenizer.json", "sentences.jsonl", "loss.jsonl"
DOCUMENTS = 8  # of a file
FORMS: tuple[dict[str, Any], ...] = ({}, {"frame_bytes": 700}, {"frame_bytes": 300, "blocks": True}, {"ends": False})


def write_sources(folder: Path) -> None:
    """Files of every compression below `folder`/corpus, each with a malformed line; below `folder`/clean without.

    Beside them lie both vocabularies, documents that are lists of sentences, and documents with ranges of characters
    not to train on.
    """
    rng = random.Random(20)
    for number, name in enumerate(NAMES):
        lines = [_line(rng, place) for place in range(DOCUMENTS)]
        form = FORMS[number % len(FORMS)]
        Source(tuple(lines), **form).write(folder / "clean" / name)
        lines.insert(number, NO_DOCUMENTS[number % len(NO_DOCUMENTS)])
        Source(tuple(lines), **form).write(folder / "corpus" / name)
    sentences = [{"sentences": [_text(rng) for _ in range(place % 4)]} for place in range(DOCUMENTS)]
    (folder / SENTENCES).write_text("".join(json.dumps(row) + "\n" for row in sentences))
    (folder / LOSS).write_text("".join(json.dumps(_with_ranges(_text(rng), rng)) + "\n" for _ in range(5 * DOCUMENTS)))
    write_vocabulary(folder / RANKED, "other")  # it merges digits, so that split patterns differ
    description = sentencepiece()
    for token in special_tokens():
        description = with_added(description, content=token, special=True)
    (folder / DESCRIBED).write_text(json.dumps(description))


def _line(rng: random.Random, place: int) -> str:
    row = {"id": place, "text": _text(rng), "score": 1.5, "body": _text(rng)}
    return json.dumps(row, ensure_ascii=place % 2 == 0)


def _with_ranges(text: str, rng: random.Random) -> dict[str, Any]:
    """A document with its ranges; a third of the documents have no key for them."""
    places = sorted(rng.choices(range(len(text) + 1), k=2 * rng.randrange(4)))
    ranges = [places[first : first + 2] for first in range(0, len(places), 2)]
    return {"text": text, **({"no_loss_ranges": ranges} if rng.random() < 0.7 else {})}


def _text(rng: random.Random) -> str:
    """Up to about 150 characters, of which a third repeats what other documents have."""
    pieces = rng.randrange(7)
    return "".join(rng.choice(PASSAGES) if rng.random() < 0.3 else _fresh(rng) for _ in range(pieces))


def _fresh(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnop  éß中\n", k=rng.randrange(1, 40)))
