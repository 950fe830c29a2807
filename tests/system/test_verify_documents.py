"""`corpusmill verify` finds in Megatron and Nanoset files what their readers accept in silence."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from corpusmill.inspect.verify.exports import verify_outputs
from corpusmill.inspect.verify.receipts import StepFolder
from corpusmill.inspect.verify.verification import open_steps, verify_step
from tests.system.corpus import configuration, reused, write_corpus

SIZE = 100277


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> tuple[Build, list[StepFolder]]:
    root = tmp_path_factory.mktemp("silent")
    write_corpus(root / "corpus", documents=30)
    exports = {"megatron": {"part_bytes": "1GB"}, "nanoset": {"file_bytes": "2GB", "loss": True}}
    values = configuration(root, exports=exports)
    return open_steps(open_build(build_dataset(check_config(values, where="test"), workers=1)))[:2]


def counts_of(index: bytes) -> tuple[int, int, int]:
    """(sequences, where the pointers begin, where the boundaries begin)."""
    (sequences,) = struct.unpack_from("<Q", index, 18)
    return sequences, 34 + 4 * sequences, 34 + 12 * sequences


def replaced(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def swapped_pointers(index: bytes) -> bytes:
    _, pointers, _ = counts_of(index)
    return replaced(index, pointers + 8, index[pointers + 16 : pointers + 24] + index[pointers + 8 : pointers + 16])


def longer_last(index: bytes) -> bytes:
    sequences, pointers, _ = counts_of(index)
    (length,) = struct.unpack_from("<i", index, pointers - 4)
    assert sequences
    return replaced(index, pointers - 4, struct.pack("<i", length + 1))


def last_boundary(index: bytes) -> bytes:
    sequences, _, boundaries = counts_of(index)
    return replaced(index, boundaries + 8 * sequences, struct.pack("<q", sequences - 1))


def another_count(metadata: bytes) -> bytes:
    at = metadata.index(b"\n") + 1
    return replaced(metadata, at, b"8" if metadata[at : at + 1] == b"9" else b"9")


Damage = Callable[[bytes], bytes]
MEGATRON: dict[str, tuple[str, Damage]] = {
    "wrong magic": (".idx", lambda data: replaced(data, 0, b"TNTIDX\0\0\0")),
    "wrong version": (".idx", lambda data: replaced(data, 9, struct.pack("<Q", 2))),
    "index shorter than its header says": (".idx", lambda data: data[:-8]),
    "last boundary is not the number of sequences": (".idx", last_boundary),
    "junk behind the index": (".idx", lambda data: data + bytes(8)),
    "junk behind the tokens": (".bin", lambda data: data + bytes(4)),
    "tokens truncated": (".bin", lambda data: data[:-4]),
    "wrong pointers": (".idx", swapped_pointers),
    "wrong dtype code": (".idx", lambda data: replaced(data, 17, b"\x08")),
    "lengths that are not the tokens": (".idx", longer_last),
    "no tokens": (".bin", lambda _: b""),
    "id beyond the vocabulary": (".bin", lambda data: replaced(data, 0, struct.pack("<I", SIZE))),
    "document without EOD": (".bin", lambda data: replaced(data, len(data) - 4, struct.pack("<I", 5))),
}
NANOSET: dict[str, tuple[str, Damage]] = {
    "document without EOS, four bytes a token": (
        ".ds",
        lambda data: replaced(data, len(data) - 4, bytes([5, 0, 0, 0])),
    ),
    "junk behind the tokens": (".ds", lambda data: data + bytes(4)),
    "tokens truncated": (".ds", lambda data: data[:-4]),
    "document of no length": (".index", lambda data: replaced(data, 8, data[:8])),
    "index shorter than the tokens": (".index", lambda data: data[:-8]),
    "index that falls": (".index", lambda data: data[8:16] + data[:8] + data[16:]),
    "loss of another length": (".loss", lambda data: data[:3]),
    "loss of other bytes": (".loss", lambda data: b"\2" + data[1:]),
    "metadata of another width": (".metadata", lambda data: data.replace(b"|4\n", b"|2\n")),
    "metadata of another count": (".metadata", another_count),
    "id beyond the vocabulary": (".ds", lambda data: replaced(data, 0, struct.pack("<I", SIZE))),
}
CASES = [("megatron", fault) for fault in MEGATRON] + [("nanoset", fault) for fault in NANOSET]


@pytest.mark.parametrize(("export", "fault"), CASES)
def test_verify_finds_what_readers_accept(opened, export, fault) -> None:
    """By the digest, and by what the files say of each other, which also finds what was wrong when it was written."""
    ending, damage = {"megatron": MEGATRON, "nanoset": NANOSET}[export][fault]
    build, steps = opened
    step = next(step for step in steps if step.stage == "export" and step.unit.startswith(export))
    (path,) = step.folder.glob(f"{export}/*{ending}")
    before = path.read_bytes()
    assert not verify_step(build, step).findings
    path.write_bytes(damage(before))
    try:
        assert path.read_bytes() != before
        by_all = verify_step(build, step).findings
        by_content, _ = verify_outputs(build, step.folder, step.receipt)
    finally:
        path.write_bytes(before)
    assert any(str(path) in item.where for item in by_all)
    assert by_content
    assert any(path.name.split(".")[0] in item.where for item in by_content)


def test_megatron_changed_input_is_made_anew_and_the_rest_is_reused(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=20)
    values = configuration(tmp_path, exports={"megatron": {}, "nanoset": {}}, dedup={"mode": "none"})

    def build():
        return open_build(build_dataset(check_config(values, where="test"), workers=1))

    first = build()
    bins = sorted(path.read_bytes() for path in (tmp_path / "outputs/tiny/latest").resolve().rglob("*.bin"))
    receipts = {unit: first.folder("tokenize", unit).name for unit in first.units("tokenize")}
    again = build()
    assert all(reused(again, "export", unit) for unit in again.units("export"))
    path = tmp_path / "corpus" / "a1.jsonl"
    lines = path.read_text().splitlines()
    row = json.loads(lines[0])
    lines[0] = json.dumps({**row, "text": row["text"][::-1]})  # as long, so that files stay in their shards
    path.write_text("\n".join(lines) + "\n")
    changed = build()
    after = {unit: changed.folder("tokenize", unit).name for unit in changed.units("tokenize")}
    assert 0 < sum(after[unit] != receipts[unit] for unit in receipts) < len(receipts)
    assert bins != sorted(path.read_bytes() for path in (tmp_path / "outputs/tiny/latest").resolve().rglob("*.bin"))
    unit = changed.units("export")[0]
    folder = changed.folder("export", unit)
    whole = {output.name: (folder / output.name).read_bytes() for output in read_receipt(folder / RECEIPT_NAME).outputs}
    (folder / RECEIPT_NAME).unlink()  # killed before its receipt: nothing of it counts
    for name in whole:
        (folder / name).write_bytes(b"half")
    build()
    assert whole == {name: (folder / name).read_bytes() for name in whole}
