"""What the fuzzers have found stays mended, and they find what they are for; `make fuzz` lets them search."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fuzz import files, steps, texts
from tests.fuzz.answers import answers_of
from tests.fuzz.fuzzer import CASES, fault_of, fuzz
from tests.fuzz.target import Target, packed, unpacked
from tests.gcs_front import GcsFront
from tests.raising import raises
from tests.servers import Server

TARGETS = {target.name: target for target in (*texts.TARGETS, *files.TARGETS, *steps.TARGETS)}


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_found_cases_and_a_few_drawn_ones_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    actual = [path.read_bytes() for path in sorted((CASES / name).glob("*.case"))]
    drawn = [target.draw(random.Random(f"{name} test {number}")) for number in range(25)]
    assert [fault_of(target, data) for data in (*actual, *drawn)] == [""] * len(actual + drawn)


def test_fuzz_found_answers_and_a_few_drawn_ones_end_well_or_in_an_error_of_ours(
    rclone: Server, gcs: GcsFront, tmp_path: Path
) -> None:
    actual = [path.read_bytes() for path in sorted((CASES / "answers").glob("*.case"))]
    with answers_of(rclone.endpoint, gcs.target.geturl(), tmp_path) as target:
        drawn = [target.draw(random.Random(f"answers test {number}")) for number in range(25)]
        assert [fault_of(target, data) for data in (*actual, *drawn)] == [""] * len(actual + drawn)


def _breaks(data: bytes) -> str:
    if b"kill" in data:
        os.kill(os.getpid(), 9)
    while b"wait" in data:
        pass
    if b"raise" in data:
        raise KeyError(data)
    if b"refuse" in data:
        return "refused"
    return "read"


@pytest.mark.slow
def test_fuzzer_keeps_what_raises_smaller_what_dies_whole_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.fuzzer.LONGEST_SECONDS", 1)
    words = [b"fine", b"refuse", b"some raise thing", b"kill it", b"wait for it"]
    target = Target("broken", lambda rng: rng.choice(words), _breaks, aim=0)
    done = fuzz(target, seconds=0, cases=12, seed=1, keep=tmp_path)
    kept = {path.read_bytes() for path in (tmp_path / "broken").iterdir()}
    assert kept == {b"raise", b"kill it", b"wait for it"}
    assert len(done.faults) == 3
    assert "KeyError in test_fuzz.py, _breaks" in done.faults.values()
    assert done.cases["died"] >= 2
    assert done.cases["fault"] >= 1


def test_fuzz_packed_values_are_unpacked() -> None:
    value = {"a": b"\xff\0", "b": [1, "x", None, b""]}
    assert unpacked(packed(value)) == value


def test_fuzz_oracle_of_gzip_is_no_mirror_of_ours(monkeypatch) -> None:
    """A reader that takes a cut file for a whole one is a fault."""
    (target,) = (target for target in files.TARGETS if target.name == "gzip")
    data = files._gzip_seeds()[0][:-9]
    assert target.check(data) == "refused"

    class Whole:
        def __init__(self, *_: object) -> None: ...

        def read(self) -> bytes:
            return b""

    monkeypatch.setattr(files, "open_decompressed", Whole)
    assert fault_of(target, data).startswith("EOFError")


def test_token_shard_that_names_another_type_is_refused(tmp_path: Path) -> None:
    for name, content in steps._token_shard_seed().items():
        (tmp_path / name).write_bytes(content.replace(b'"uint16"', b'"object"'))
    with raises("token_shard.files_disagree"):
        steps.open_token_shard(tmp_path)
