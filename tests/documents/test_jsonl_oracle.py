"""What is read from JSON lines is what Python's own `json` reads from strict UTF-8, whoever has parsed them here."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.jsonl import read_documents
from deploy.sample_corpus import write_sample_corpus
from tests.documents.json_lines import changed_lines, files
from tests.oracles.documents import documents_of, ids_of, lines_of

SNIPPETS = [
    *(rb"\u0041", rb"\ud83d\ude00", rb"\ud83d", rb"\ude00", rb"\ud83d\u0041", rb"\u00", rb"\\", rb"\"", rb"\x", b"\\"),
    *(
        b"\x82\xa0",
        b"\x80",
        b"\xbf",
        b"\xc3\xa9",
        b"\xc3",
        b"\xe4\xb8\xad",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98\x80",
        b"\xff",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\x00",
        b"\x1f",
        b"\x7f",
        b"\t",
        b"\r",
        b" ",
        b'"',
        b",",
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
        b"e",
        b"-",
    ),
    *(b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 309, b"-0", b"01", b"1.", b"1e-999", b"true", b"nul", b"[[{}]]"),
    *(
        b'"text":',
        b'"text":"b",',
        rb'"te\u0078t":"c",',
        b'"id":7,',
        b'"id":null,',
        rb'"\u0069d":[1.50],',
        b'"a":"\\ud800",',
    ),
]


def changed(line: bytes, chance: random.Random) -> bytes:
    """The line with up to three stretches of up to three bytes replaced by nothing or a snippet, often next to a quote,
    a brace or a comma."""
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(line) + 1)
        if chance.random() < 0.7:
            places = [at for at, byte in enumerate(line) if byte in b'"{},:\\']
            place = chance.choice(places or [0]) + chance.randrange(2)
        snippet = chance.choice([*SNIPPETS, b""])
        line = line[:place] + snippet + line[place + chance.choice([0, 0, 0, 1, 2, 3]) :]
    return line.replace(b"\n", b" ")


def require_as_json_reads(data: bytes, longest_parsed_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusmill.documents.jsonl.LONGEST_PARSED_BYTES", longest_parsed_bytes)
        batches = list(read_documents(io.BytesIO(data), source="a", text_field="text", id_field="id"))
    texts = [pair for batch in batches for pair in zip(batch.line_numbers.tolist(), batch.texts(), strict=True)]
    rejected = [(rejection.line_number, rejection.reason.value) for batch in batches for rejection in batch.rejections]
    assert (texts, rejected) == documents_of(data, "text")
    assert [item for batch in batches for item in batch.each_id()] == ids_of(data, "text", "id")
    lines = [line.removeprefix(b"\xef\xbb\xbf" if not number else b"") for number, line in enumerate(lines_of(data))]
    assert all(rejection.raw == lines[rejection.line_number] for batch in batches for rejection in batch.rejections)


@pytest.fixture(scope="module")
def real_lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Lines of text that this machine has, written with and without escapes, with more fields on either side."""
    folder: Path = tmp_path_factory.mktemp("sample")
    write_sample_corpus(folder, target_bytes=2_000_000, files=1)
    (path,) = folder.glob("*.zst")
    lines = lines_of(zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read())
    records = [json.loads(line) for line in lines]
    written = []
    for number, record in enumerate(records):
        for start in range(0, min(len(record["text"]), 3_000), 600):
            around = {
                "n": number,
                "text": record["text"][start : start + 600],
                "more": [1.5, {"text": None}],
                "s": "é\\",
            }
            written.append(json.dumps({**around, "id": record["id"]}, ensure_ascii=number % 2 == 0).encode())
    return written


@given(lines=st.lists(changed_lines(), max_size=4), longest_parsed_bytes=st.sampled_from([-1, 40, 1 << 20]))
def test_lines_with_changed_bytes_are_read_as_json_reads_them(lines: list[bytes], longest_parsed_bytes: int) -> None:
    require_as_json_reads(b"\n".join(lines), longest_parsed_bytes)


@given(data=files(), longest_parsed_bytes=st.sampled_from([-1, 40]))
def test_files_are_read_as_json_reads_them_without_building_lines(data: bytes, longest_parsed_bytes: int) -> None:
    require_as_json_reads(data, longest_parsed_bytes)


@pytest.mark.parametrize("longest_parsed_bytes", [-1, 1 << 20])
@pytest.mark.parametrize(
    "count", [pytest.param(1_000, id="thousand"), pytest.param(30_000, id="many", marks=pytest.mark.slow)]
)
def test_real_lines_with_changed_bytes_are_read_as_json_reads_them(
    real_lines: list[bytes], count: int, longest_parsed_bytes: int
) -> None:
    chance = random.Random(count)
    for _ in range(0, count, 200):
        lines = [changed(chance.choice(real_lines), chance) for _ in range(200)]
        require_as_json_reads(b"\n".join(lines) + b"\n", longest_parsed_bytes)
