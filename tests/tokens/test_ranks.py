from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import CorruptDataError
from corpusmill.tokens.ranks import read_ranks, token_lengths


@given(words=st.dictionaries(st.integers(0, 300), st.binary(min_size=1, max_size=9), min_size=1), data=st.data())
def test_token_lengths_of_ids_in_any_order_are_those_of_the_words(words: dict[int, bytes], data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(words)))
    content = b"".join(b"%s %d\n" % (base64.b64encode(words[item]), item) for item in order)
    ids = data.draw(st.lists(st.sampled_from(order)))
    lengths = token_lengths(content, np.array(ids, np.uint32), where=Path("own.tiktoken"))
    assert lengths.tolist() == [len(words[token]) for token in ids]


def test_token_lengths_of_an_unknown_id_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="no such id"):
        token_lengths(b"YQ== 0\nYmI= 2\n", np.array([0, 1]), where=Path("own.tiktoken"))


def test_read_ranks_malformed_line_is_named_by_its_number_and_not_quoted() -> None:
    with pytest.raises(ValueError, match="line 3 is malformed") as caught:
        read_ranks(b"YQ== 0\n\nPASSWORD=secret\n")
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_trace_imports_neither_numba_nor_a_tokenizer() -> None:
    """They take longer than everything else of `corpusmill trace`."""
    modules = ("lineage", "training", "documents.text_shard", "tokens.packing", "tokens.ranks", "tokens.record_shard")
    shown = f"import sys, {', '.join(f'corpusmill.{name}' for name in modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    assert not {"numba", "tiktoken", "tokenizers", "gigatoken", "awkward"} & set(done.stdout.split())
