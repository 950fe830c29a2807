"""find_bytes: where a byte stands, against a loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.byte_places import find_bytes


@given(st.lists(st.sampled_from(b"\\\n\x00\xff"), max_size=200).map(bytes), st.sampled_from(b"\\\n\x00\xff"))
def test_find_bytes_equals_a_loop(data: bytes, byte: int) -> None:
    places = find_bytes(np.frombuffer(data, np.uint8), byte)
    assert places.tolist() == [place for place, other in enumerate(data) if other == byte]
