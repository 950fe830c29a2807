"""What a plan calls the files and parts that it delivers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.plan import SourceFile, SourcePart, _require_every_byte_once
from corpusmill.errors import BalanceError
from corpusmill.storage import StoredFile
from tests.raising import raises
from tests.system.corpus import configuration, lines_of


@pytest.fixture(autouse=True)
def _small_files_are_cut(monkeypatch) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)


def fill(folder: Path, sizes: dict[str, int]) -> None:
    """Files of so many lines of about 1 KiB."""
    for name, lines in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines_of([f"{name} {number} " + "x" * 1000 for number in range(lines)]))


def planned_names(root: Path, *paths: Path) -> list[str]:
    source = {"paths": [str(path) for path in paths], "shard_bytes": "20KiB"}
    build = open_build(plan_dataset(check_config(configuration(root, source=source), where="test")))
    return [file.name for shard in build.plan.shards for file in shard]


def test_plan_parts_of_a_cut_file_are_numbered_before_the_ending(tmp_path) -> None:
    fill(tmp_path / "src", {"a.jsonl": 2, "big.jsonl": 50})
    assert planned_names(tmp_path, tmp_path / "src") == [
        "a.jsonl",
        "big.part00000.jsonl",
        "big.part00001.jsonl",
        "big.part00002.jsonl",
    ]


@pytest.mark.parametrize("taken", ["big.part00001.jsonl", "big.part00007.jsonl", "big.part00001.jsonl/deep.jsonl"])
def test_plan_part_never_has_the_name_of_a_source_or_of_its_folder(tmp_path, taken: str) -> None:
    """Also not one that a part would have once the file has grown: its parts would then be renamed."""
    fill(tmp_path / "src", {"big.jsonl": 50, "other.jsonl": 30, taken: 1})
    names = planned_names(tmp_path, tmp_path / "src")
    assert sorted(names) == sorted(
        [
            *("big.part_00000.jsonl", "big.part_00001.jsonl", "big.part_00002.jsonl"),
            *("other.part00000.jsonl", "other.part00001.jsonl", taken),
        ]
    )
    fill(tmp_path / "src", {"big.part_00000.jsonl": 1})
    assert "big.part__00002.jsonl" in planned_names(tmp_path, tmp_path / "src")


def test_plan_part_name_that_is_taken_in_another_folder_is_avoided(tmp_path) -> None:
    fill(tmp_path, {"one/big.jsonl": 50, "two/big.part00001.jsonl": 1})
    names = planned_names(tmp_path, tmp_path / "one", tmp_path / "two")
    assert len(set(names)) == len(names) == 4
    assert "big.part00001.jsonl" in names


def built(root: Path) -> Path:
    source = {"paths": [str(root / "src")], "shard_bytes": "20KiB"}
    return build_dataset(check_config(configuration(root, source=source), where="test"), workers=1)


@pytest.mark.parametrize("lines", [1, 20], ids=["shard of a part", "shard of its own"])
def test_build_beside_a_file_called_like_a_part_delivers_every_document(tmp_path, lines: int) -> None:
    """Such a part took the other file's place: 105 of 136 documents were delivered, and the accounts balanced."""
    fill(tmp_path / "src", {"big.jsonl": 50, "big.part00002.jsonl": lines, "z.jsonl": 3})
    build = open_build(built(tmp_path))
    assert len(build.units("writeback")) > 1
    delivered = sorted((tmp_path / "outputs/tiny/latest/documents").iterdir())
    assert len(delivered) == len([file for shard in build.plan.shards for file in shard]) > 3
    assert sum(path.read_bytes().count(b"\n") for path in delivered) == 50 + lines + 3


@pytest.mark.parametrize("shards", ["one shard", "two shards"])
def test_build_whose_plan_has_a_name_twice_fails(tmp_path, monkeypatch, shards: str) -> None:
    """The nets below the plan: a shard does not write over its own file, the dataset does not list a name twice."""
    monkeypatch.setattr("corpusmill.documents.part_names.part_name", lambda *_: "z.jsonl")
    if shards == "one shard":
        monkeypatch.setattr("corpusmill.engine.plan.group_into_shards", lambda entries, _: [entries])
    fill(tmp_path / "src", {"a.jsonl": 1, "big.jsonl": 50})
    with pytest.raises(FileExistsError if shards == "one shard" else BalanceError, match=r"z\.jsonl|twice"):
        built(tmp_path)


def cut_into(
    file: StoredFile, kind: str, pieces: list[tuple[int, int]], owns: list[int] | None = None
) -> list[SourceFile]:
    parts = [
        SourcePart(of=file.name, number=n, kind=kind, pieces=(piece,), own_bytes=own, row_groups=(0, 0))
        for n, (piece, own) in enumerate(zip(pieces, owns or [0] * len(pieces), strict=True))
    ]
    return [SourceFile(**{**asdict(file), "name": f"{n}", "size_bytes": 1}, part=part) for n, part in enumerate(parts)]


@pytest.mark.parametrize(
    ("kind", "pieces", "owns"),
    [
        ("lines", [(0, 40), (40, 50)], None),  # the end is missing
        ("lines", [(0, 40), (39, 61)], None),  # a byte twice
        ("lines", [(0, 40), (41, 59)], None),  # a byte left out
        ("frames", [(0, 60), (40, 60)], [60, 60]),  # the tail counts as its own
        ("frames", [(0, 60)], [40]),  # the last part is missing
    ],
)
def test_plan_that_does_not_read_every_byte_once_is_refused(kind, pieces, owns) -> None:
    file = StoredFile("a.jsonl", "/a.jsonl", 100, "100-1")
    other = StoredFile("b.jsonl", "/b.jsonl", 5, "5-1")
    with raises("plan.bytes_not_read_once"):
        _require_every_byte_once([file, other], [*cut_into(file, kind, pieces, owns), SourceFile(**asdict(other))])


def test_plan_that_reads_every_byte_once_is_taken() -> None:
    lines, frames = (StoredFile(name, f"/{name}", 100, "100-1") for name in ("a.jsonl", "b.jsonl.zst"))
    whole = StoredFile("c.jsonl", "/c.jsonl", 0, "0-1")
    entries = [
        *cut_into(lines, "lines", [(0, 40), (40, 60)]),
        *cut_into(frames, "frames", [(0, 60), (40, 60)], [40, 60]),
    ]
    _require_every_byte_once([lines, frames, whole], [*entries, SourceFile(**asdict(whole))])
    for lost in range(5):
        left = [*entries, SourceFile(**asdict(whole))]
        del left[lost]
        with raises("plan.bytes_not_read_once"):
            _require_every_byte_once([lines, frames, whole], left)
