"""verify: a receipt that is damaged, forged or another's is named, and hides no damage behind it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import Receipt
from corpusmill.fingerprint import file_digest
from tests.quick import quick
from tests.system.verified import (
    ALL_STAGES,
    build_tiny,
    findings,
    folder,
    outputs,
    replaced,
    write_sources,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("receipts")
    write_sources(root)
    return root


@pytest.fixture(scope="module")
def built(root) -> Build:
    return build_tiny(root)


@pytest.fixture(scope="module")
def version(root, built) -> Path:
    return (root / "outputs/tiny/latest").resolve()


def resealed(receipt: dict[str, Any]) -> bytes:
    return msgspec.convert(receipt, Receipt).text()


def edited(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, dict):
        return {**value, "added": 1}
    return value[:-1] + ("0" if value[-1:] != "0" else "1") if isinstance(value, str) else value * 2 + 1


@pytest.mark.parametrize("content", quick([b"{}", None, b"", b"{", b"\xff\xfe"], 2))
@pytest.mark.parametrize("stage", ["plan", "index", "scatter", "upload", "report"])
def test_verify_unreadable_receipt_is_named_and_nothing_else(built, stage: str, content: bytes | None) -> None:
    path = folder(built, stage) / "receipt.json"
    with replaced(path, content):
        (actual,) = findings(built)
    assert actual.where == str(path)


@pytest.mark.slow
def test_verify_receipt_of_any_stage_with_a_bit_flipped_anywhere_is_named_and_nothing_else(built) -> None:
    rng = random.Random(5)
    for stage in ALL_STAGES:
        path = folder(built, stage) / "receipt.json"
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
        with replaced(path, bytes(content)):
            actual = findings(built)
        assert [item.where for item in actual] == [str(path)], place


@pytest.mark.parametrize("stage", quick(["index", "gather"], 1))
def test_verify_receipt_with_any_field_edited_left_out_or_added_is_named_and_nothing_else(built, stage: str) -> None:
    path = folder(built, stage) / "receipt.json"
    receipt = json.loads(path.read_text())
    changes = [
        {**receipt, "added": 0},
        *({**receipt, "counts": {**receipt["counts"], key: 0}} for key in ("files", "x")),
    ]
    for key, value in receipt.items():
        if value:  # an empty field that is left out says the same
            changes.append({other: kept for other, kept in receipt.items() if other != key})
        changes.append({**receipt, key: value[:-1] if isinstance(value, list) else edited(value)})
    for changed in changes:
        with replaced(path, json.dumps(changed).encode()):
            (actual,) = findings(built)
        assert actual.where == str(path)


@pytest.mark.parametrize("stage", ["tokenize", "scatter", "anchor"])
def test_verify_damaged_receipt_hides_no_damage_behind_it(built, stage) -> None:
    """Its counts decide on cells, partitions or files; files and a receipt of later steps are damaged, too."""
    paths = [folder(built, stage) / "receipt.json", folder(built, "export", 0) / "receipt.json"]
    damaged = [outputs(folder(built, later))[-1] for later in ("gather", "export", "manifest")]
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(replaced(path, b"{"))
        for path in damaged:
            stack.enter_context(replaced(path, path.read_bytes()[:-8]))
        actual = findings(built)
    printed = {item.where.split(", ")[0] for item in actual}
    assert printed == {str(path) for path in [*paths, *damaged]}


def test_verify_damaged_receipt_hides_no_folder_that_is_missing_behind_it(built, tmp_path) -> None:
    path, gone = folder(built, "scatter") / "receipt.json", folder(built, "gather")
    shutil.move(gone, tmp_path / "away")
    try:
        with replaced(path, b"{"):
            actual = findings(built)
    finally:
        shutil.move(tmp_path / "away", gone)
    assert [item.where for item in actual] == [str(path), f"{gone.parent}/{gone.name.rpartition('-')[0]}-*"]


def test_verify_damaged_receipt_hides_no_damage_at_a_destination(built, version) -> None:
    path, lost = folder(built, "tokenize") / "receipt.json", version / "SHA256SUMS"
    with replaced(path, b"{"), replaced(lost, None):
        actual = findings(built)
    assert [item.where for item in actual] == [str(path), str(lost)]


@pytest.mark.parametrize("stage", ["download", "index", "union", "tokenize", "scatter", "gather", "export"])
def test_verify_two_receipts_swapped_are_both_named_and_nothing_else(built, stage: str) -> None:
    first, second = (folder(built, stage, place) / "receipt.json" for place in (0, 1))
    item, other = first.read_bytes(), second.read_bytes()
    with replaced(first, other), replaced(second, item):
        actual = findings(built)
    assert {item.where for item in actual} == {str(first), str(second)}
    assert len(actual) == 2
    assert {item.what for item in actual} == {"a receipt is not its folder's"}


@pytest.mark.parametrize("stage", ["tokenize", "gather"])
def test_verify_record_changed_with_its_receipt_forged_shows_in_its_content(built, stage: str) -> None:
    """Size, digest and seal are mended, as a forger would."""
    step = folder(built, stage, 0)
    path, receipt = step / "tokens", step / "receipt.json"
    tokens = np.fromfile(path, "<u4")
    tokens[[0, 1]] = [tokens[1], tokens[0] ^ 1]
    with replaced(path, tokens.tobytes()):
        forged = json.loads(receipt.read_text())
        digest = f"xxh3_128:{file_digest(path, 'xxh3_128')}"
        next(item for item in forged["outputs"] if item["name"] == "tokens")["digest"] = digest
        with replaced(receipt, resealed(forged)):
            actual = findings(built)
    assert actual[0].where == f"{receipt}, details"
    assert actual[0].expected.startswith("content: ")


@pytest.mark.parametrize(
    ("stage", "count"),
    [
        ("anchor", "windows"),
        ("shared", "candidates"),
        ("context", "slices"),
        ("settle", "borders"),
        ("border", "edge_bytes"),
        ("match", "ranges"),
    ],
)
def test_verify_forged_count_of_a_dedup_stage_is_not_what_its_files_hold(built, stage: str, count: str) -> None:
    receipt = folder(built, stage) / "receipt.json"
    forged = json.loads(receipt.read_text())
    forged["counts"][count] += 1
    with replaced(receipt, resealed(forged)):
        actual = findings(built)
    assert actual[0].where == f"{receipt}, counts"
    assert actual[0].expected.startswith(f"{count}: ")
