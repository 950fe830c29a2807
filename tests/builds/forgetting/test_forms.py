"""Stretches of texts: pieces of them, in every form that files have."""

from __future__ import annotations

import html
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.forgetting.finding import STRETCH_BYTES, WIDTH, stretches_of
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.quick import examples
from tests.system.corpus import make_documents


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer("cl100k_base")


@examples(40)
@given(st.text(max_size=400))
def test_stretches_are_pieces_of_the_text_long_enough_to_look_for(tokenizer: Tokenizer, text: str) -> None:
    for item in stretches_of(3, text.encode(), tokenizer):
        assert item.document == 3
        assert item.text in text.encode()
        assert len(item.text) >= STRETCH_BYTES
        assert min(map(len, item.forms)) >= WIDTH


@pytest.mark.parametrize(
    "text", [text for text in make_documents(24, seed=1) if len(text.encode()) > 2 * STRETCH_BYTES]
)
def test_every_way_to_write_a_text_holds_a_form_of_every_kind(text: str, tokenizer: Tokenizer) -> None:
    forms = [form for item in stretches_of(0, text.encode(), tokenizer) for form in item.forms]
    ids = tokenizer.encode([text.encode()])[0]
    written = [
        text.encode(),
        json.dumps(text).encode(),
        json.dumps(text, ensure_ascii=False).encode(),
        html.escape(text).encode(),
        ids.astype("<u4").tobytes(),
        ",".join(map(str, ids.tolist())).encode(),
        json.dumps(ids.tolist()).encode(),
    ]
    if int(ids.max()) < 1 << 16:
        written.append(ids.astype(np.uint16).tobytes())
    assert [sum(form in item for form in forms) > 1 for item in written] == [True] * len(written)


@pytest.mark.parametrize("padding", [" " * 60, " " * 59 + "\n", "}" + " " * 60 + "\n", "\0" * 99, "=" * 20 + "-" * 40])
def test_runs_of_one_byte_are_no_stretch_and_the_text_before_them_is(tokenizer: Tokenizer, padding: str) -> None:
    """The header of every .npy file ends in spaces: a text that did was found in all of them."""
    assert list(stretches_of(0, padding.encode(), tokenizer)) == []
    stretches = [*stretches_of(0, f"{make_documents(1)[0]}{padding}".encode(), tokenizer)]
    assert stretches
    stream = io.BytesIO()
    np.save(stream, np.zeros(3, np.uint16))
    assert not any(form in stream.getvalue() for item in stretches for form in item.forms)


def test_short_text_has_no_stretch(tokenizer: Tokenizer) -> None:
    assert list(stretches_of(0, b"x" * (STRETCH_BYTES - 1), tokenizer)) == []
