"""Indexes of eight kinds of damage: every command that reads one names its part and writes nothing."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.config import FramingConfig
from corpusmill.errors import VerificationError
from corpusmill.export import megatron, nanoset
from corpusmill.export.formats.base import Readable
from corpusmill.export.megatron import open_part
from corpusmill.export.nanoset import open_file
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.verify.exports import file_content
from tests.oracles import damaged_indexes, export
from tests.raising import raises
from tests.system.described import sha256_of
from tests.training.mixture.datasets import VOCABULARY

EOD = 50_256
DOCUMENTS = [[1, 2, 3], [7, 8], [10, 11, 12, 13], [5]]
OTHER = [[4, 4], [9], [6, 6, 6]]
SAME_TOKENS = [DOCUMENTS[place] for place in (1, 0, 3, 2)]

CASES = [
    *(("megatron", kind) for kind in damaged_indexes.MEGATRON),
    *(("nanoset", kind) for kind in damaged_indexes.NANOSET),
]
DAMAGES = {"megatron": damaged_indexes.MEGATRON, "nanoset": damaged_indexes.NANOSET}
DATA = {"megatron": "p_text_document.bin", "nanoset": "p.ds"}
INDEX = {"megatron": "p_text_document.idx", "nanoset": "p.ds.index"}


def index_of(name: str, documents: list[list[int]]) -> bytes:
    return {"megatron": export.megatron, "nanoset": export.nanoset}[name](documents, EOD, 2)[1]


def dataset(folder: Path, name: str, index: bytes | None = None) -> Path:
    """A finished dataset of one export, described with the index that it has; its folder."""
    inner = folder / name
    inner.mkdir(parents=True)
    batches = export.batches_of(DOCUMENTS, "u2", [])
    if name == "megatron":
        megatron.write_part(
            inner, "p_text_document", batches, dtype=megatron.UINT16, eod_id=EOD, vocabulary_size=50_257
        )
    else:
        nanoset.write_file(inner, "p", batches, eos_id=EOD, tokenizer_name="gpt2", vocabulary_size=50_257)
    if index is not None:
        (inner / INDEX[name]).write_bytes(index)
    files = [
        {
            "name": f"{name}/{path.name}",
            "size_bytes": path.stat().st_size,
            "sha256": sha256_of(path),
            **({"slots": 14} if path.name == DATA[name] else {}),
        }
        for path in sorted(inner.iterdir())
    ]
    described = {"name": folder.name, "vocabulary": VOCABULARY, "formats": {name: {}}, "files": files}
    (folder / "dataset.json").write_text(json.dumps(described))
    return folder


def commands(folder: Path, name: str, output: Path) -> list[list[str]]:
    """Every command that reads an index of a finished dataset."""
    data = str(folder / name / DATA[name])
    return [
        ["merge", data, "--output", str(output / "merged")],
        ["mix", f"{folder}=1", "--sequence-tokens", "4", "--budget-tokens", "1k", "--output", str(output / "mixture")],
        ["peek", data, "--record", "0"],
    ]


def require_refused(folder: Path, name: str, output: Path) -> None:
    """Each command fails with the part's name, and the reading interface, too; nothing is written."""
    for command in commands(folder, name, output):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, VerificationError), (command[0], done.output, done.exception)
        assert f"{folder / name}/p" in str(done.exception)
        assert not output.exists(), command[0]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_damaged_index_is_refused_by_every_command_that_reads_it(tmp_path, name: str, kind: str) -> None:
    index = DAMAGES[name][kind](index_of(name, DOCUMENTS), index_of(name, OTHER))
    folder = dataset(tmp_path / "web", name, index)  # sizes and sha256 are those of the damaged file
    require_refused(folder, name, tmp_path / "output")
    with pytest.raises(VerificationError, match="/p"):
        list(open_dataset(folder).records(name))


@pytest.mark.parametrize(("name", "at"), [("megatron", 34 + 4), ("nanoset", 8), ("nanoset", 24)])
def test_document_beyond_the_tokens_is_refused_by_the_reader_of_verify(tmp_path, name: str, at: int) -> None:
    """Before anything is allocated for it: one bit took 32 GiB."""
    data = dataset(tmp_path / "web", name) / name / DATA[name]
    index = bytearray((data.parent / INDEX[name]).read_bytes())
    index[at + 3] |= 0x40
    (data.parent / INDEX[name]).write_bytes(index)
    with pytest.raises(ValueError, match="within its 14 tokens"):
        file_content(name, data, Readable(FramingConfig(), np.dtype("u2")))


@pytest.mark.parametrize("name", ["megatron", "nanoset"])
def test_index_of_the_same_documents_in_another_order_is_refused_by_its_checksum(tmp_path, name: str) -> None:
    folder = dataset(tmp_path / "web", name)
    other = index_of(name, SAME_TOKENS)
    assert other != (folder / name / INDEX[name]).read_bytes()
    (folder / name / INDEX[name]).write_bytes(other)
    require_refused(folder, name, tmp_path / "output")


@pytest.mark.parametrize("name", ["megatron", "nanoset"])
def test_sound_index_is_read_by_every_command(tmp_path, name: str) -> None:
    folder = dataset(tmp_path / "web", name, index_of(name, DOCUMENTS))
    for command in commands(folder, name, tmp_path / "output"):
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    for ending in {"megatron": (".bin", ".idx"), "nanoset": (".ds", ".ds.index")}[name]:
        part = folder / name / DATA[name]
        assert (tmp_path / f"output/merged{ending}").read_bytes() == part.with_suffix(ending).read_bytes()
    assert [ids.tolist() for ids in open_dataset(folder).records(name)] == [[*ids, EOD] for ids in DOCUMENTS]


@pytest.mark.parametrize("boundaries", [[], [1], [0, 0, 4, 4, 4], [0, 2, -1, 4], [0, 5, 4], [0, 3], [0, 4], [4]])
def test_megatron_boundaries_are_right_or_refused(tmp_path, boundaries: list[int]) -> None:
    """Documents without tokens, and of several sequences, are right."""
    data, index = export.indexed([[*ids, EOD] for ids in DOCUMENTS], boundaries, 2)
    (tmp_path / "p.bin").write_bytes(data)
    (tmp_path / "p.idx").write_bytes(index)
    right = bool(boundaries) and boundaries == sorted(boundaries) and boundaries[0] == 0 and boundaries[-1] == 4
    if right:
        assert open_part(tmp_path / "p").boundaries.tolist() == boundaries
    else:
        with raises("export.boundaries_miscounted export.impossible_boundary", "p.idx, byte"):
            open_part(tmp_path / "p")


def test_index_without_its_tokens_is_checked(tmp_path) -> None:
    """Samples of a training run are traced from the index alone."""
    megatron_folder, nanoset_folder = (dataset(tmp_path / name, name) / name for name in ("megatron", "nanoset"))
    (megatron_folder / DATA["megatron"]).unlink()
    (nanoset_folder / DATA["nanoset"]).unlink()
    prefix, path = megatron_folder / "p_text_document", nanoset_folder / DATA["nanoset"]
    assert open_part(prefix, data=False).documents == len(open_file(path, data=False)) == len(DOCUMENTS)
    for kind in ("falling", "moved", "swapped", "last too small"):
        for index, damages in ((prefix.with_suffix(".idx"), "megatron"), (path.with_name("p.ds.index"), "nanoset")):
            index.write_bytes(DAMAGES[damages][kind](index_of(damages, DOCUMENTS), b""))
        with raises("export.boundaries_miscounted export.impossible_boundary export.wrong_pointer"):
            open_part(prefix, data=False)
        with raises("export.impossible_document_end nanoset.token_counts_differ"):
            open_file(path, data=False)


def test_index_of_several_blocks_is_checked_to_its_end(tmp_path) -> None:
    count = 70_000  # a block has 65,536
    batches = [(np.ones(count, np.uint16), np.arange(1, count + 1, dtype=np.uint64))]
    megatron.write_part(tmp_path, "p", batches, dtype=megatron.UINT16, eod_id=EOD, vocabulary_size=50_257)
    assert open_part(tmp_path / "p").documents == count
    index = (tmp_path / "p.idx").read_bytes()
    for at in (34 + 4 * count + 8 * (count - 1), 34 + 12 * count + 8 * (count - 1)):
        damaged = index[:at] + struct.pack("<q", 5) + index[at + 8 :]
        (tmp_path / "p.idx").write_bytes(damaged)
        with raises("export.impossible_boundary export.wrong_pointer", f"byte {at}\n"):
            open_part(tmp_path / "p")
