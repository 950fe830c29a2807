"""Trainers whose packages no test can install read our rows: their rules, restated from their public source.

SkyRL (skyrl/train/dataset/pretokenized.py) and Megatron-Bridge (megatron/bridge/data/packing). Nothing of Corpusmill
reads here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from tests.docs.trainers import ROWS
from tests.system.corpus import configuration, write_corpus

CONTEXT = 65
SKYRL = {"parquet_documents": {"columns": ["input_ids", "loss_mask"], "file_bytes": "20KB", "rows_per_group": 5}}
BRIDGE = {
    "parquet_contexts": {
        "context_tokens": CONTEXT,
        "columns": ["input_ids", "loss_mask", "seq_start_id"],
        "loss_mask": "label",
        "file_bytes": "20KB",
        "rows_per_group": 10,
    }
}


class RefusedError(Exception):
    """A trainer would stop."""


def refuse_unless(holds: bool, why: str) -> None:
    if not holds:
        raise RefusedError(why)


def skyrl(folder: Path) -> Iterator[tuple[list[int], list[int]]]:
    """(ids, the places of the tokens trained on) of each row that SkyRL keeps, in its order.

    It takes every file below the folder, of one kind alone. A row is kept if its mask has a 1; from the first 1 on are
    its actions, and the log-probability of an action is that of the token before it, so place 0 has none.
    """
    kinds: dict[str, list[Path]] = {".parquet": [], ".jsonl": [], ".json": [], ".arrow": []}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in kinds and not hidden:
            kinds[path.suffix.lower()].append(path)
    refuse_unless([kind for kind, files in kinds.items() if files] == [".parquet"], "a mix of data formats")
    for path in kinds[".parquet"]:
        table = pq.read_table(path)
        refuse_unless({"input_ids", "loss_mask"} <= set(table.column_names), "a required column is missing")
        for row in table.to_pylist():
            ids, mask = row["input_ids"], row["loss_mask"]
            refuse_unless(len(mask) == len(ids), "a mask of another length")
            refuse_unless(set(mask) <= {0, 1}, "a mask of other values")
            refuse_unless(set(row.get("attention_mask") or [1]) == {1}, "padding")
            if 1 in mask:
                refuse_unless(mask.index(1) > 0, "one log-probability too few")
                yield ids, [place for place, wanted in enumerate(mask) if wanted]


class Packed(NamedTuple):
    """What Megatron-Bridge makes of a row: (a token, the next one, whether it is trained on), and bounds of sequences.

    `bounds` are Transformer Engine's cu_seqlens.
    """

    pairs: list[tuple[int, int, int]]
    bounds: list[int]


def bridge(folder: Path, sequence_length: int) -> Iterator[Packed]:
    """The rows of a folder of packed sequences: `*.parquet` and `*.pq` by name, of which each has the three columns."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in {".parquet", ".pq"})
    refuse_unless(bool(paths), "no file")
    for path in paths:
        missing = {"input_ids", "seq_start_id", "loss_mask"} - set(pq.read_schema(path).names)
        refuse_unless(not missing, f"required columns are missing: {missing}")
    for path in paths:
        for row in pq.read_table(path).to_pylist():
            ids, mask, starts = row["input_ids"], row["loss_mask"], row["seq_start_id"]
            refuse_unless(len(mask) == len(ids), "a mask of another length")
            refuse_unless(starts[:1] == [0] and starts == sorted(starts) and starts[-1] < len(ids), "starts")
            pairs, bounds = [], [0]
            for first, last in pairwise([*starts, len(ids)]):
                pairs += zip(ids[first : last - 1], ids[first + 1 : last], mask[first : last - 1], strict=True)
                bounds.append(bounds[-1] + last - first - 1)
            refuse_unless(bounds[-1] <= sequence_length, "longer than the model's sequences")
            yield Packed(pairs, bounds)


def documents(folder: Path) -> list[list[int]]:
    """Those of Megatron's files, by their plain layout."""
    found = []
    for path in sorted(folder.glob("*.idx")):
        index, tokens = path.read_bytes(), path.with_suffix(".bin").read_bytes()
        (count,) = struct.unpack_from("<Q", index, 18)
        lengths = struct.unpack_from(f"<{count}i", index, 34)
        ids = iter(struct.unpack(f"<{len(tokens) // 4}i", tokens))
        found += [[next(ids) for _ in range(length)] for length in lengths]
    return found


@pytest.fixture(scope="module")
def version(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("restated")
    write_corpus(root / "corpus", documents=60)
    exports: dict[str, Any] = {"megatron": {"part_bytes": "40KiB"}, **SKYRL, **BRIDGE}
    build_dataset(check_config(configuration(root, exports=exports), where="test"), workers=1)
    return (root / "outputs" / "tiny" / "latest").resolve()


def test_skyrl_trains_on_every_token_that_another_precedes(version) -> None:
    rows = list(skyrl(version / "parquet_documents"))
    assert [ids for ids, _ in rows] == documents(version / "megatron")
    assert all(places == list(range(1, len(ids))) for ids, places in rows)


def test_skyrl_refuses_the_version_as_a_whole_and_rows_without_their_mask(version, tmp_path) -> None:
    """So docs/formats.md names the folder and the columns."""
    with pytest.raises(RefusedError, match="mix"):
        next(skyrl(version))
    rows = pq.read_table(next((version / "parquet_documents").glob("*.parquet")))
    pq.write_table(rows.drop_columns(["loss_mask"]), tmp_path / "a.parquet")
    with pytest.raises(RefusedError, match="missing"):
        next(skyrl(tmp_path))


def test_skyrl_refuses_the_mask_that_megatron_bridge_takes(version) -> None:
    with pytest.raises(RefusedError, match="too few"):
        next(skyrl(version / "parquet_contexts"))


def test_megatron_bridge_trains_on_every_pair_of_a_document_but_where_a_context_cuts_it(version) -> None:
    rows = list(bridge(version / "parquet_contexts", CONTEXT - 1))
    assert all(trained for row in rows for *_, trained in row.pairs)
    read = Counter(pair[:2] for row in rows for pair in row.pairs)
    held = documents(version / "megatron")
    right = Counter(pair for document in held for pair in pairwise(document))
    pieces = sum(len(row.bounds) - 1 for row in rows)
    assert pieces > len(held)
    assert not read - right
    assert (right - read).total() == pieces - len(held)


def test_megatron_bridge_would_miss_the_beginnings_of_documents_by_the_mask_of_skyrl(version, tmp_path) -> None:
    """The planted fault of the test before: the same column, shifted by one."""
    for path in (version / "parquet_contexts").glob("*.parquet"):
        table = pq.read_table(path)
        masks = [
            [int(place not in row["seq_start_id"]) for place in range(len(row["input_ids"]))]
            for row in table.to_pylist()
        ]
        place = table.column_names.index("loss_mask")
        shifted = table.set_column(place, table.schema.field(place), pa.array(masks, table.schema.field(place).type))
        pq.write_table(shifted, tmp_path / path.name)
    rows = list(bridge(tmp_path, CONTEXT - 1))
    sequences = sum(first < last for row in rows for first, last in pairwise(row.bounds))
    assert sum(not trained for row in rows for *_, trained in row.pairs) == sequences


def test_megatron_bridge_refuses_documents_without_their_starts(version) -> None:
    with pytest.raises(RefusedError, match="seq_start_id"):
        next(bridge(version / "parquet_documents", CONTEXT - 1))


@pytest.mark.parametrize(("trainer", "exports"), [("SkyRL", SKYRL), ("Megatron-Bridge, packed", BRIDGE)])
def test_docs_name_the_columns_that_were_read_here(trainer, exports) -> None:
    (row,) = [row for row in ROWS if row.trainers == trainer]
    sizes = {"context_tokens", "file_bytes", "rows_per_group"}
    shown, tried = (
        {name: values.items() for name, values in of.items()} for of in (yaml.safe_load(row.exports), exports)
    )
    assert {name: [item for item in items if item[0] not in sizes] for name, items in shown.items()} == {
        name: [item for item in items if item[0] not in sizes] for name, items in tried.items()
    }
