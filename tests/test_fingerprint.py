from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.fingerprint import canonical_json, file_digest, fingerprint
from tests.raising import raises

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON))
def test_fingerprint_key_order_does_not_matter(values: dict[str, object]) -> None:
    assert fingerprint(values) == fingerprint(dict(reversed(values.items())))


def test_fingerprint_is_the_sha256_of_canonical_json() -> None:
    assert canonical_json({"b": [1, 2.5], "a": "ü"}) == '{"a":"ü","b":[1,2.5]}'.encode()
    assert fingerprint({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"f": print}, "function"),
        ({"s": {1, 2}}, "no order"),
        ([math.nan], "does not equal itself"),
        ([math.inf], "no JSON text"),
        ({"p": Path("/tmp/x")}, "another path on another machine"),  # noqa: S108
        ({"k": {1: 2}}, "keys are not all strings"),
        ([object()], "no canonical JSON"),
    ],
)
def test_fingerprint_value_without_stable_identity_is_refused(value: object, why: str) -> None:
    with raises("fingerprint.unstable_value", why):
        fingerprint(value)


@given(st.binary(max_size=5000))
def test_file_digest_equals_sha256_of_the_bytes(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        assert file_digest(path) == hashlib.sha256(content).hexdigest()
