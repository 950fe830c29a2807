"""The writeback changes what it must, as the oracle says, and not one byte more."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.annotations import tally_of
from corpusmill.dedup.writeback import WriteBackCounts, WriteBackOptions, write_back_file
from corpusmill.kernels.content import ContentSum
from tests.documents.json_lines import files
from tests.oracles.content import texts
from tests.oracles.documents import (
    documents_of,
    indexed_source,
    lines_of,
    member_spans,
    records_written_back,
    text_shard_of,
)
from tests.raising import raises

Ranges = list[list[tuple[int, int]]]
FIRST_BYTE = 1000  # where this file's documents start in the text shard: other source files come before


def write_back(
    data: bytes, ranges: Ranges | None = None, mode: str = "remove", **options: Any
) -> tuple[bytes, WriteBackCounts]:
    """`ranges` are relative to each document's text; documents left out have none."""
    return write_back_indexed(data, data, ranges or [], mode, **options)


def write_back_indexed(
    indexed: bytes, data: bytes, ranges: Ranges, mode: str = "remove", **options: Any
) -> tuple[bytes, WriteBackCounts]:
    """`data` was `indexed` when it was indexed."""
    documents, _ = documents_of(indexed, "text")
    _, offsets = text_shard_of([text for _, text in documents])
    absolute = [
        (FIRST_BYTE + offset + 1 + start, FIRST_BYTE + offset + 1 + end)
        for offset, span in zip(offsets, ranges, strict=False)
        for start, end in span
    ]
    sink = io.BytesIO()
    sizes = {name: options.pop(name) for name in ("block_bytes", "longest_line_bytes") if name in options}
    counts = write_back_file(
        io.BytesIO(data),
        sink,
        indexed=indexed_source("web/a.jsonl", indexed, documents, FIRST_BYTE),
        ranges=np.array(absolute, np.uint64).reshape(-1, 2),
        options=WriteBackOptions(mode, "text", **options),  # type: ignore[arg-type]
        **sizes,
    )
    return sink.getvalue(), counts


@st.composite
def character_ranges(draw: st.DrawFn, text: bytes) -> list[tuple[int, int]]:
    """Ascending, disjoint ranges of whole characters, of which some may be empty or touch."""
    borders = [place for place in range(len(text) + 1) if place == len(text) or text[place] & 0xC0 != 0x80]
    cuts = sorted(draw(st.lists(st.sampled_from(borders), max_size=6)))
    return list(zip(cuts[::2], cuts[1::2], strict=False))


@st.composite
def files_with_ranges(draw: st.DrawFn) -> tuple[bytes, Ranges]:
    data = draw(files())
    return data, [draw(character_ranges(text)) for _, text in documents_of(data, "text")[0]]


def pairs_of(data: bytes) -> list[object]:
    lines = lines_of(data.removeprefix(b"\xef\xbb\xbf"))
    return [json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str) for line in lines]


@given(case=files_with_ranges(), block_bytes=st.sampled_from([1, 40, 8 << 20]), annotate=st.booleans())
def test_write_back_any_file_reads_as_the_oracle_says(
    case: tuple[bytes, Ranges], block_bytes: int, annotate: bool
) -> None:
    data, ranges = case
    output, counts = write_back(data, ranges, "annotate" if annotate else "remove", block_bytes=block_bytes)
    documents, _ = documents_of(data, "text")
    real = [[(start, end) for start, end in span if start < end] for span in ranges]
    assert pairs_of(output) == records_written_back(data, [number for number, _ in documents], real, annotate=annotate)

    texts_in = [text for _, text in documents]
    texts_out = [text for _, text in documents_of(output, "text")[0]]
    seen = asdict(counts)
    content = {name: ContentSum(**seen.pop(name)) for name in ("text_content", "kept_content")}
    assert content == {"text_content": texts(0, texts_in), "kept_content": texts(0, texts_out)}
    noted = {number: [list(span) for span in spans] for number, spans in enumerate(real)}
    assert ContentSum(**seen.pop("noted_content")) == (tally_of(noted, 0) if annotate else ContentSum())
    assert seen == {
        "documents_in": len(texts_in),
        "documents_out": len(texts_out),
        "documents_changed": sum(map(bool, real)),
        "documents_intact": 0 if annotate else len(texts_in) - sum(map(bool, real)),
        "documents_empty": sum(not out and len(was) > 0 for was, out in zip(texts_in, texts_out, strict=True)),
        "text_bytes_in": sum(map(len, texts_in)),
        "text_bytes_removed": 0 if annotate else sum(end - start for actual in real for start, end in actual),
        "text_bytes_out": sum(map(len, texts_out)),
    }
    assert counts.text_bytes_in == counts.text_bytes_removed + counts.text_bytes_out


@given(case=files_with_ranges(), block_bytes=st.sampled_from([1, 40, 8 << 20]))
def test_remove_changes_no_byte_but_those_of_the_text(case: tuple[bytes, Ranges], block_bytes: int) -> None:
    data, ranges = case
    output, _ = write_back(data, ranges, block_bytes=block_bytes)
    lines, expected = _lines_with_ends(data), []
    for (number, text), span in zip(documents_of(data, "text")[0], ranges, strict=True):
        removed = {place for start, end in span for place in range(start, end)}
        start, end = member_spans(lines[number], "text")[-1]
        kept = b'"' + without_characters(lines[number][start + 1 : end - 1], removed) + b'"'
        assert len(text) - len(removed) == len(json.loads(kept).encode())
        expected.append(lines[number][:start] + kept + lines[number][end:])
    assert output == b"".join(expected)


def without_characters(raw: bytes, removed: set[int]) -> bytes:
    """The inside of a JSON string as it is written, without the characters that begin at these bytes of its UTF-8."""
    kept, place = "", 0
    for character in re.findall(r"\\u[dD][89abAB]..\\u....|\\u....|\\.|.", raw.decode(), re.DOTALL):
        kept += "" if place in removed else character
        place += len(json.loads(f'"{character}"').encode())
    return kept.encode()


def _lines_with_ends(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in lines_of(data)]
    if lines and not data.endswith(b"\n"):
        lines[-1] = lines[-1][:-1]
    return lines


UNUSUAL = b'{ "a":1.50 ,"b" : 1e5, "a":12345678901234567890123, "t\\u0065xt"  :"0123456789" , "c":"\\u00e9\\/"  }  \r\n'


def test_remove_keeps_the_form_of_everything_but_the_text() -> None:
    output, _ = write_back(UNUSUAL * 2, [[], [(2, 5), (6, 9)]])
    assert output == UNUSUAL + UNUSUAL.replace(b'"0123456789"', b'"0159"')


def test_annotate_adds_the_last_key_and_keeps_the_form() -> None:
    output, _ = write_back(UNUSUAL * 2, [[], [(2, 5), (6, 9)]], "annotate")
    first = UNUSUAL.replace(b'\\/"', b'\\/", "sa_remove_ranges": []')
    assert output == first + first.replace(b"[]", b"[[2, 5], [6, 9]]")


def test_remove_keeps_the_escapes_of_what_stays() -> None:
    data = rb'{"text": "cut\u00e9\ud83d\ude00 \"\u0001\\/ cut"}'
    output, _ = write_back(data, [[(0, 3), (14, 18)]])
    assert output == rb'{"text": "\u00e9\ud83d\ude00 \"\u0001\\/"}'


def test_remove_from_duplicate_keys_changes_the_last_which_counts() -> None:
    output, _ = write_back(b'{"text": "first", "text": "second"}\n', [[(0, 3)]])
    assert output == b'{"text": "first", "text": "ond"}\n'


THREE = b'{"text": "aaa"}\n{"text": ""}\nnot json\n{"text": "bbb", "id": 7}'


def test_documents_that_become_empty_are_dropped_on_request_but_not_those_empty_before() -> None:
    output, counts = write_back(THREE, [[(0, 3)], [], [(0, 3)]], drop_empty=True)
    assert output == b'{"text": ""}\n'
    assert (counts.documents_in, counts.documents_out, counts.documents_empty) == (3, 1, 2)


@pytest.mark.parametrize("data", [b"", b"\n", b"not json\n{}\n"])
@pytest.mark.parametrize("mode", ["remove", "annotate"])
def test_file_without_documents_gives_an_empty_file(data: bytes, mode: str) -> None:
    assert write_back(data, [], mode) == (b"", WriteBackCounts())


def test_line_too_long_when_it_was_indexed_is_left_out() -> None:
    data = b'{"text": "a"}\n{"text": "' + b"x" * 100 + b'"}\n{"text": "b"}\n'
    indexed = b'{"text": "a"}\n{}\n{"text": "b"}\n'
    output, _ = write_back_indexed(indexed, data, [], longest_line_bytes=50)
    assert output == b'{"text": "a"}\n{"text": "b"}\n'


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        (b'{"text": "ab"}', "meta.ranges", b'{"text": "ab", "meta": {"ranges": [[0, 1]]}}'),
        (b'{"text": "ab", "meta": {}}', "meta.ranges", b'{"text": "ab", "meta": {"ranges": [[0, 1]]}}'),
        (
            b'{"meta": { "n":1.0 } ,"text":"ab"}',
            "meta.ranges",
            b'{"meta": { "n":1.0, "ranges": [[0, 1]] } ,"text":"ab"}',
        ),
        (b'{"a": {"b": {"c": 1}}, "text": "ab"}', "a.b.d", b'{"a": {"b": {"c": 1, "d": [[0, 1]]}}, "text": "ab"}'),
        (
            b'{"a": {"b": {"c": 1}}, "text": "ab"}',
            "a.x.d",
            b'{"a": {"b": {"c": 1}, "x": {"d": [[0, 1]]}}, "text": "ab"}',
        ),
        (b'{"text": "ab"}', '"\xe9', '{"text": "ab", "\\"é": [[0, 1]]}'.encode()),
    ],
)
def test_annotate_key_may_be_a_path(line: bytes, key: str, expected: bytes) -> None:
    plain = b'{"text": "zz"}\n'
    output, _ = write_back(plain + line + b"\n" + plain, [[], [(0, 1)], []], "annotate", annotate_key=key)
    assert lines_of(output)[1] == expected
    *path, last = key.split(".")
    for record in map(json.loads, lines_of(output)[::2]):
        for step in path:
            record = record[step]  # noqa: PLW2901
        assert record[last] == []


@pytest.mark.parametrize(
    ("line", "key", "replaced"),
    [
        (b'{"old": [[7, 9]] , "text": "ab"}', "old", b'{"old": [[0, 1]] , "text": "ab"}'),
        (b'{"old": 1, "old": 2, "text": "ab"}', "old", b'{"old": 1, "old": [[0, 1]], "text": "ab"}'),
        (b'{"meta": {"old": "x", "b": 1}, "text": "ab"}', "meta.old",
         b'{"meta": {"old": [[0, 1]], "b": 1}, "text": "ab"}'),
    ],
)  # fmt: skip
def test_annotate_existing_key_is_an_error_unless_it_may_go(line: bytes, key: str, replaced: bytes) -> None:
    with raises("annotation.key_taken", "web/a.jsonl, line 1"):
        write_back(line, [[(0, 1)]], "annotate", annotate_key=key)
    output, _ = write_back(line, [[(0, 1)]], "annotate", annotate_key=key, replace_existing=True)
    assert output == replaced


@pytest.mark.parametrize("replace_existing", [False, True])
@pytest.mark.parametrize("value", [b'"kept"', b"0", b"[]", b"false"])
def test_annotate_below_something_other_than_an_object_is_an_error(value: bytes, replace_existing: bool) -> None:
    """With replace_existing the value was deleted."""
    line = b'{"meta": ' + value + b', "text": "ab"}'
    with raises("annotation.not_an_object", "web/a.jsonl, line 1"):
        write_back(line, [[(0, 1)]], "annotate", annotate_key="meta.old", replace_existing=replace_existing)


@pytest.mark.parametrize("key", ["", "text", "text.ranges", "a..b", "a."])
def test_annotate_key_without_a_place_is_an_error(key: str) -> None:
    with raises("annotation.no_place", "annotate_key"):
        write_back(b"", [], "annotate", annotate_key=key)


@pytest.mark.parametrize(
    "changed",
    [
        *(b"", b'{"text": "aaa"}\n', b'{"text": "aaa"}\n{"text": "bb"}\n', b'{"text": "aaa"}\n\n{"text": "bbb"}\n'),
        *(
            b'{"text": "aaa"}\n{"text": 123}\n',
            b'{"text": "aaa"}\n{"texts": "bbb"}\n',
            b'{"text": "aaa"}\n{"text": "bbb"\n',
        ),
        *(
            b'{"text": "aaa"}\n["bbb"]\n',
            b'{"text": "aaa"}\n{"text": "bbb\\u00e9"}',
            b'{"text": "aaa"}\n{"text": "\\q\\q\\q"}\n',
        ),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 8 << 20])
def test_source_that_changed_since_it_was_indexed_is_an_error(changed: bytes, block_bytes: int) -> None:
    indexed = b'{"text": "aaa"}\n{"text": "bbb"}\n'
    with raises("source.changed_since_indexed", "web/a.jsonl, line "):
        write_back_indexed(indexed, changed, [[], [(0, 1)]], block_bytes=block_bytes)


@pytest.mark.parametrize(
    "ranges",
    [
        [[(-1, 2)]],  # begins on the separator
        [[(0, 4)]],  # ends behind the next separator
        [[(-5, -2)]],
        [[], [(0, 4)]],
        [[(1, 2), (0, 1)]],
        [[(0, 2), (1, 3)]],
        [[(2, 1)]],
    ],
)
def test_ranges_that_do_not_fit_the_documents_are_an_error(ranges: Ranges) -> None:
    with raises("writeback.ranges_do_not_match", "web/a.jsonl"):
        write_back(b'{"text": "aaa"}\n{"text": "bbb"}\n', ranges)


def test_ranges_that_cut_a_character_are_an_error() -> None:
    with raises("writeback.ranges_do_not_match", "a.jsonl, line 2", "cut a character"):
        write_back('\n{"text": "é"}\n'.encode(), [[(0, 1)]])


ROOT = Path(__file__).resolve().parents[2]
MEMORY = r"""
import ctypes, io, json, sys
from pathlib import Path
import numpy as np
from corpusmill.dedup.writeback import WriteBackOptions, write_back_file
from tests.oracles.documents import indexed_source

class Measuring:
    written = 0
    def write(self, data):
        self.written += len(data)

def kibibytes(key):
    return int(Path("/proc/self/status").read_text().partition(key + ":")[2].split()[0])

def times(before, behind, text_bytes):
    # How many times a line's bytes are held beside it, while ten bytes of its text are cut; the bytes written.
    text = b"abcde" * (text_bytes // 5)
    line = before + text + behind
    indexed, sink = indexed_source("a", line, [(0, text)], 0), Measuring()
    del text
    ranges = np.array([(1 + 5, 1 + 15)], np.uint64)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held = kibibytes("VmRSS")
    stream, options = io.BytesIO(line), WriteBackOptions("remove", "text")
    write_back_file(stream, sink, indexed=indexed, ranges=ranges, options=options)
    return (kibibytes("VmHWM") - held) * 1024 / len(line), len(line) - sink.written

before, behind = json.loads(sys.argv[1])
times(before.encode(), behind.encode(), 1000)  # what importing takes is not the line's
print(json.dumps(times(before.encode(), behind.encode(), 20 << 20)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "behind"),
    [('{"text": "', '"}\n'), ('{"text": "', '", "more": "a\\/b"}\n')],
    ids=["read by the kernel", "escape behind"],
)
def test_writeback_longest_line_takes_the_memory_that_the_docstring_says(before: str, behind: str) -> None:
    # glibc would keep what it has once been given back.
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", MEMORY, json.dumps([before, behind])]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, check=True)
    times, cut_bytes = json.loads(ran.stdout)
    assert cut_bytes == 10
    assert times < 4.1
