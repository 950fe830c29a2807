from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.batch import DocumentBatch, RejectionReason
from corpusmill.documents.jsonl import read_documents
from tests.documents.json_lines import BROKEN_LINES, files, objects
from tests.oracles.documents import documents_of, ids_of, lines_of

ROOT = Path(__file__).resolve().parents[2]


def read(data: bytes, **options: int) -> list[DocumentBatch]:
    return list(read_documents(io.BytesIO(data), source="web/a.jsonl", text_field="text", id_field="id", **options))


def outcome(batches: list[DocumentBatch]) -> tuple[list[tuple[int, bytes]], list[tuple[int, str]]]:
    documents = [pair for batch in batches for pair in zip(batch.line_numbers.tolist(), batch.texts(), strict=True)]
    rejections = [(rejection.line_number, str(rejection.reason)) for batch in batches for rejection in batch.rejections]
    return documents, rejections


@given(data=files(), block_bytes=st.sampled_from([1, 2, 7, 50, 8 << 20]))
def test_read_documents_any_file_equals_the_oracle_at_any_block_size(data: bytes, block_bytes: int) -> None:
    batches = read(data, block_bytes=block_bytes)
    assert outcome(batches) == documents_of(data, "text")
    assert [item for batch in batches for item in batch.each_id()] == ids_of(data, "text", "id")
    assert sum(batch.line_bytes for batch in batches) == len(data)
    assert sum(batch.lines for batch in batches) == len(lines_of(data))


@given(pairs=st.lists(objects()), newline=st.sampled_from([b"\n", b"\r\n"]))
def test_read_documents_json_of_any_style_gives_the_texts(pairs: list[tuple[bytes, str]], newline: bytes) -> None:
    documents, rejections = outcome(read(newline.join(line for line, _ in pairs)))
    assert documents == list(enumerate(text.encode() for _, text in pairs))
    assert not rejections


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank_line"),
        (b" \t\r", "blank_line"),
        (b'{"text": "a"', "broken_json"),
        (b'{"text": NaN}', "broken_json"),
        (b'{"text": "a", "score": Infinity}', "broken_json"),
        (b'{"text": "a", "score": 1e999}', "broken_json"),
        (b'{"text": "a", "deep": ' + b"[" * 2000 + b"]" * 2000 + b"}", "broken_json"),
        (b'{"text": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "broken_json"),
        (b'{"text": "a", "digits": ' + b"9" * 5000 + b"}", "broken_json"),
        (b'{"text": "a"}{"text": "b"}', "broken_json"),
        (b'{"text": "a\x0bb"}', "broken_json"),
        (b"\xef\xbb\xbf" + b'{"text": "a"}', "broken_json"),
        (b'["text"]', "not_an_object"),
        (b'"text"', "not_an_object"),
        (b"17", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"Text": "a", "content": {"text": "a"}}', "missing_text"),
        (b'{"text": null}', "text_not_a_string"),
        (b'{"text": ["a"]}', "text_not_a_string"),
        (b'{"text": {"encode": "a"}}', "text_not_a_string"),
        (b'{"text": "a", "text": false}', "text_not_a_string"),
        (b'{"text": "\xff"}', "invalid_utf8"),
        (b'{"text": "\xc3"}', "invalid_utf8"),
        (b'{"text": "\xed\xa0\x80"}', "invalid_utf8"),
        (b'{"text": "a", "id": "\xf5\x80\x80\x80"}', "invalid_utf8"),
        ('{"text": "a"}'.encode("utf-16"), "invalid_utf8"),
        (rb'{"text": "\ud800"}', "lone_surrogate"),
        (rb'{"text": "\udc00\ud800"}', "lone_surrogate"),
        (rb'{"text": "a", "id": "\uDFFF"}', "lone_surrogate"),
        (rb'{"text": "a", "\ud800": 1}', "lone_surrogate"),
    ],
)
def test_rejection_each_reason_keeps_the_raw_line_and_its_neighbours(line: bytes, reason: str) -> None:
    (batch,) = read(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    assert batch.texts() == [b"before", b"after"]
    assert batch.line_numbers.tolist() == [0, 2]
    (rejection,) = batch.rejections
    assert (str(rejection.reason), rejection.line_number, rejection.raw) == (reason, 1, line)


@pytest.mark.parametrize(
    "line", [b'{"text": "%b"}', b'{"te\\u0078t": "%b"}', b'{"text": "", "id": "%b"}', b'{"%b": 0, "text": ""}']
)
@pytest.mark.parametrize("following", [b"", b"\xa0", b"\x82\xa2"])
def test_utf8_byte_80_to_bf_at_the_beginning_of_a_character_is_rejected(line: bytes, following: bytes) -> None:
    """Shift_JIS text looks like that."""
    lines = [line % (b"%c" % byte + following) for byte in range(0x80, 0xC0)]
    documents, rejections = outcome(read(b"\n".join(lines)))
    assert not documents
    assert rejections == [(number, "invalid_utf8") for number in range(64)]


def test_rejection_reasons_are_the_strings_on_disk() -> None:
    assert {reason.value for reason in RejectionReason} == {
        *("blank_line", "broken_json", "not_an_object", "missing_text", "text_not_a_string"),
        *("invalid_utf8", "lone_surrogate", "line_too_long", "field_too_long", "malformed_ranges"),
    }


@pytest.mark.parametrize("block_bytes", [10, 64, 8 << 20])
def test_line_too_long_keeps_its_beginning_and_its_neighbours(block_bytes: int) -> None:
    longest = b'{"text": "exactly fifty bytes long, so it is kept"}'[:48] + b'"}'
    data = longest + b"\n" + b'{"text": "' + b"x" * 100 + b'"}\n' + longest
    batches = read(data, block_bytes=block_bytes, longest_line_bytes=50)
    documents, rejections = outcome(batches)
    assert [number for number, _ in documents] == [0, 2]
    assert rejections == [(1, "line_too_long")]
    assert sum(batch.line_bytes for batch in batches) == len(data)


def test_byte_order_mark_only_at_the_start_of_the_file_is_skipped() -> None:
    line = b'\xef\xbb\xbf{"text": "a"}\n'
    for block_bytes in (1, 8 << 20):
        documents, rejections = outcome(read(line + line, block_bytes=block_bytes))
        assert documents == [(0, b"a")]
        assert rejections == [(1, "broken_json")]


def test_unicode_line_ends_inside_a_text_do_not_end_the_line() -> None:
    text = "a\u2028b\u2029c\u0085d"
    documents, _ = outcome(read(json.dumps({"text": text}, ensure_ascii=False).encode()))
    assert documents == [(0, text.encode())]


MEMORY = """
import ctypes, io, json, sys
from pathlib import Path
from corpusmill.documents.jsonl import read_documents

def kibibytes(key):
    return int(Path("/proc/self/status").read_text().partition(key + ":")[2].split()[0])

def outcome(line):
    stream = io.BytesIO(line)  # shares the bytes, which are there before
    (batch,) = read_documents(stream, source="a", text_field="text", id_field="id")
    return [one.reason.value for one in batch.rejections] or batch.text_lengths.tolist()

MANY = b"[" + b"{}," * (4 << 20) + b"{}]"
found = {}
outcome(b'{"id": 1, "text": "\\ud83d\\ude00"}')  # what importing takes is not the line's
for name, line in eval(sys.argv[1], {"MANY": MANY}).items():
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = kibibytes("VmRSS")
    found[name] = [outcome(line), (kibibytes("VmHWM") - before) * 1024 / len(line)]
print(json.dumps(found))
"""

LINES = r"""{
    "escaped key": b'{"te\\u0078t": "a", "many": ' + MANY + b'}',
    "deep": b'{"text": "a", "deep": ' + b"[" * 1000 + MANY + b"]" * 1000 + b'}',
    "long text": b'{"text": "' + b"abcde" * (3 << 20) + '\U0001f600"}'.encode(),
    "array": MANY,
    "infinite": b'{"text": "a", "many": ' + MANY + b', "n": 1e999}',
    "half a pair": b'{"text": "\\ud800", "many": ' + MANY + b'}',
    "not UTF-8": b'{"text": "a", "many": ' + MANY + b', "id": "\x82\xa0"}',
}"""


@pytest.mark.slow
def test_read_documents_longest_line_takes_the_memory_that_the_docstring_says() -> None:
    # glibc would keep what it has once been given back.
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", MEMORY, LINES]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, check=True)
    actual = json.loads(ran.stdout)
    assert {name: result for name, (result, _) in actual.items()} == {
        "escaped key": [1],
        "deep": [1],
        "long text": [(15 << 20) + 4],
        "array": ["not_an_object"],
        "infinite": ["broken_json"],
        "half a pair": ["lone_surrogate"],
        "not UTF-8": ["invalid_utf8"],
    }
    assert {name: times for name, (_, times) in actual.items() if times > 4} == {}


def test_empty_stream_gives_no_batch() -> None:
    assert read(b"") == []


def test_text_field_is_a_literal_key() -> None:
    line = b'{"content.text": "a", "content": {"text": "b"}}'
    (batch,) = read_documents(io.BytesIO(line), source="a", text_field="content.text", id_field="id")
    assert batch.texts() == [b"a"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'"caf\\u00e9"', "caf\u00e9".encode()),
        *(
            (value, value)
            for value in (b"17", b"0", b"-0", b"1.50", b"12345678901234567890123", b"true", b'["a", 1]', b"{}")
        ),
        (b"null", b""),
        (b'""', b""),
        (b'1, "id": "last"', b"last"),
    ],
)
def test_ids_are_strings_or_the_json_of_the_line(value: bytes, expected: bytes) -> None:
    others = b'{"text": "a", "id": "x"}\nnot json\n{"text": "a"}\n'
    (batch,) = read(others + b'{"id": ' + value + b', "text": "a"}\n' + others)
    assert batch.each_id() == [b"x", b"", expected, b"x", b""]


def test_line_numbers_are_uint64_with_and_without_documents() -> None:
    for line in (b'{"text": "a"}', *BROKEN_LINES):
        assert all(batch.line_numbers.dtype == np.uint64 for batch in read(line))
