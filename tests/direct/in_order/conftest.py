"""The tokenizer of tests in source order."""

from __future__ import annotations

import pytest

from corpusmill.tokens.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("cl100k_base", engine="gigatoken", bos="<|fim_prefix|>")
