from __future__ import annotations

import io

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.batch import DocumentBatch, Rejection, RejectionReason, batch_of
from corpusmill.documents.quarantine import PREVIEW_CHARACTERS, append_rejections, read_quarantine
from tests.raising import raises

REJECTIONS = st.builds(Rejection, st.sampled_from(RejectionReason), st.integers(0, 2**53), st.binary(max_size=2000))


def batch_with(rejections: list[Rejection], source: str = "web/ä.jsonl") -> DocumentBatch:
    return batch_of(source, [], [], np.empty(0, np.uint64), 0, rejections)


@given(rejections=st.lists(REJECTIONS, max_size=5))
def test_quarantine_any_rejections_come_back_exactly(rejections: list[Rejection]) -> None:
    file = io.BytesIO()
    assert append_rejections(file, batch_with(rejections)) == len(rejections)
    append_rejections(file, batch_with(rejections, "b.jsonl"))
    file.seek(0)
    expected = [(source, rejection) for source in ("web/ä.jsonl", "b.jsonl") for rejection in rejections]
    assert list(read_quarantine(file, name="quarantine.jsonl")) == expected


def test_quarantine_line_counts_from_one() -> None:
    file = io.BytesIO()
    append_rejections(file, batch_with([Rejection(RejectionReason.BROKEN_JSON, 16, b"{text: 1}")]))
    assert (
        file.getvalue()
        == (
            '{"reason":"broken_json","source":"web/ä.jsonl","line":17,'
            '"preview":"{text: 1}","raw_base64":"e3RleHQ6IDF9"}\n'
        ).encode()
    )


@given(raw=st.binary(max_size=1000) | st.text(max_size=1000).map(str.encode))
def test_quarantine_preview_is_short_and_printable(raw: bytes) -> None:
    file = io.BytesIO()
    append_rejections(file, batch_with([Rejection(RejectionReason.INVALID_UTF8, 0, raw)]))
    preview = orjson.loads(file.getvalue())["preview"]
    assert len(preview) <= PREVIEW_CHARACTERS
    assert preview.isprintable()


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"{}", b'{"reason":"new","source":"a","line":1,"raw_base64":""}'),
        *(b'{"reason":"blank_line","source":"a","line":1,"raw_base64":"?"}', b'{"reason":"blank_line","source":"a"}'),
    ],
)
def test_quarantine_foreign_line_is_an_error_that_names_it(line: bytes) -> None:
    file = io.BytesIO()
    append_rejections(file, batch_with([Rejection(RejectionReason.BLANK_LINE, 0, b"")]))
    file.write(line + b"\n")
    file.seek(0)
    with raises("quarantine.malformed", "q.jsonl", "line 2"):
        list(read_quarantine(file, name="q.jsonl"))
