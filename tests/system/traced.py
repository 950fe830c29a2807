"""A dataset of sources with all that lineage is hard for, and a plain search for what repeats in it."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import (
    locate,
)
from corpusmill.inspect.lineage.facts import Located
from tests.system.corpus import configuration, lines_of, make_documents

EOT = 100257
MINIMUM_BYTES = 100
FILES = ["a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "c.jsonl", "d.jsonl", "deep/b.jsonl.zstd"]
Place = tuple[str, int]  # source file, line from 1
Texts = dict[Place, bytes]


def write_special_lines(folder: Path) -> None:
    """Lines that are none, odd ids, texts of short period, whole copies, and duplicates that only touch."""
    first, second = (json.dumps(" ".join(map(str, range(start, start + 200)))) for start in (1000, 2000))
    item, other = json.loads(first), json.loads(second)
    touching = "new " + item[:300] + other[50:450] + " end"
    lines = [
        b"\xef\xbb\xbf" + b'{"id": "first", "text": %s}' % first.encode(),
        b"",
        b'{"text": "no id"}',
        b'{"id": 17, "text": %s}' % second.encode(),
        b"{broken",
        b'{"id": "first", "text": %s}' % first.encode(),
        b'{"id": "touching", "text": %s}' % json.dumps(touching).encode(),
        b'{"id": "gaps", "text": %s}' % json.dumps(f"a {item[:150]} b {other[:150]} c").encode(),
        b'{"id": "period", "text": "%s"}' % (b"ab" * 300),
        b'{"id": "rule", "text": "%s %s"}' % (b"-" * 250, b"=" * 250),
        b'{"id": "empty", "text": ""}',
        b'{"id": [1.50], "text": "%s"}' % (b"x" + b"ab" * 200 + "é".encode() * 120),
        b'{"id": "literal", "text": "<|endoftext|> is plain text"}',
    ]
    (folder / "c.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "d.jsonl").write_bytes(lines_of(["long " * 40 + text * 3 for text in make_documents(3, seed=9)], 900))


def build(root: Path, **changes: object) -> Build:
    source = {"paths": [str(root / "corpus")], "shard_bytes": "8KiB", "max_rejected_share": 0.1}
    config = check_config(configuration(root, source=source, **changes), where="test")
    return open_build(build_dataset(config, workers=1))


def count_of_checked_duplicates(built: Build, texts: dict[Place, bytes], minimum_bytes: int) -> tuple[int, int]:
    """(removed bytes, ranges that repeat several stretches) after comparing every occurrence with a plain search."""
    order = {place: number for number, place in enumerate(texts)}
    everything = b"".join(b"\xff" + text for text in texts.values())
    starts = [0, *accumulate(len(text) + 1 for text in texts.values())]
    removed_bytes = several = gaps = 0
    for place, text in texts.items():
        actual = locate(built, *place)
        assert isinstance(actual, Located)
        for duplicate in actual.duplicates:
            several += len(duplicate.occurrences) > 1
            covered: set[int] = set()
            for each in duplicate.occurrences:
                earlier = (each.earlier.source, each.earlier.line)
                assert (order[earlier], each.earlier_bytes[0]) < (order[place], each.text_bytes[0])
                stretch = text[slice(*each.text_bytes)]
                assert len(stretch) >= minimum_bytes
                assert texts[earlier][slice(*each.earlier_bytes)] == stretch
                at = starts[order[earlier]] + 1 + each.earlier_bytes[0]
                assert everything.find(stretch[:minimum_bytes]) == at
                covered |= set(range(*each.text_bytes))
            gaps += len(set(range(*duplicate.text_bytes)) - covered)
        assert actual.removed_bytes == sum(
            duplicate.text_bytes[1] - duplicate.text_bytes[0] for duplicate in actual.duplicates
        )
        removed_bytes += actual.removed_bytes
    # Cutting at whole characters adds to no range: all that no occurrence covers, fuzzy_share took out.
    assert gaps <= built.total("union", "fuzzy_bytes")
    return removed_bytes, several
