"""Arrays mapped from files: their items, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.kernels.mapping import mapped, release_pages


@given(st.lists(st.integers(0, 2**16 - 1), max_size=40), st.integers(0, 9), st.data())
def test_mapped_any_file_gives_its_items(tmp_path_factory, values, offset_bytes, data):
    path = tmp_path_factory.mktemp("mapped") / "items"
    path.write_bytes(bytes(offset_bytes) + np.array(values, "<u2").tobytes())
    count = data.draw(st.none() | st.integers(0, len(values)))
    items = mapped(path, "<u2", count, offset_bytes)
    assert items.tolist() == values[:count]
    assert not items.flags.writeable
    release_pages(items)
    assert items.tolist() == values[:count]


def test_mapped_part_of_an_item_is_refused(tmp_path):
    (tmp_path / "items").write_bytes(b"123")
    with pytest.raises(ValueError, match="multiple"):
        mapped(tmp_path / "items", "<u2")
