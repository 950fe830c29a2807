"""Ids in parquet: schema and values as an oracle has them, identity of write and read, every fault."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config import check_config
from corpusmill.config.exports import ExportsConfig
from corpusmill.errors import VerificationError
from corpusmill.export import parquet, parquet_reading
from corpusmill.export.formats import FORMATS
from corpusmill.export.framing import Framing
from tests.oracles import export as oracle
from tests.raising import raises
from tests.system.corpus import configuration

EOS, BOS = 50_256, 50_255
FRAMING = Framing(EOS, BOS)
EVERY = ("input_ids", "labels", "attention_mask", "loss_mask", "position_ids", "seq_lengths", "seq_start_id")
GOLDEN = [[1, 2, 3], [7], [10, 11, 12, 13, 14]]
documents = st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=9), max_size=12)


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "vocabulary_size": 50_257,
        "columns": EVERY,
        "loss_mask": "token",
        "rows_per_group": 2,
        **changes,
    }


def write(folder: Path, docs: list[list[int]], at: tuple[int, ...] = (), **changes: Any) -> Path:
    path = folder / "train.parquet"
    parquet.write_documents(path, oracle.batches_of(docs, "u4", list(at)), FRAMING, **settings(**changes))
    return path


def row(document: list[int], mask: str) -> dict[str, list[int]]:
    """A row by its definition."""
    ids = [BOS, *document, EOS]
    return {
        "input_ids": ids,
        "labels": ids,
        "attention_mask": [1] * len(ids),
        "loss_mask": [int(mask == "label"), *[1] * (len(ids) - 1)],
        "position_ids": list(range(len(ids))),
        "seq_lengths": [len(ids)],
        "seq_start_id": [0],
    }


@given(docs=documents, mask=st.sampled_from(["token", "label"]), group=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_parquet_rows_are_the_documents_whatever_the_batches(tmp_path_factory, docs, mask, group, seed):
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("parquet")
    bounds = tuple(sorted(rng.integers(0, len(docs) + 1, 2).tolist()))
    path = write(folder, docs, bounds, loss_mask=mask, rows_per_group=group)
    if not docs:
        assert list(folder.iterdir()) == []
        return
    assert pq.read_table(path).to_pylist() == [row(document, mask) for document in docs]
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sizes == [group] * (len(docs) // group) + [len(docs) % group] * (len(docs) % group > 0)
    opened = parquet_reading.open_file(path)
    assert [opened.row(number).tolist() for number in range(len(opened))] == [[BOS, *doc, EOS] for doc in docs]
    seen = parquet_reading.verify_documents(path, framing=FRAMING, **settings(loss_mask=mask, rows_per_group=group))
    assert seen == {"documents": len(docs), "tokens": sum(map(len, docs)), "special_tokens": 2 * len(docs)}
    whole = path.read_bytes()
    assert write(folder, docs, loss_mask=mask, rows_per_group=group).read_bytes() == whole


def test_parquet_columns_have_the_types_that_readers_ask_for(tmp_path):
    kinds = {field.name: field.type for field in pq.read_schema(write(tmp_path, GOLDEN))}
    narrow = {"attention_mask", "loss_mask"}
    assert kinds == {name: pa.list_(pa.field("element", pa.int8() if name in narrow else pa.int32())) for name in EVERY}
    assert list(pq.read_schema(write(tmp_path, GOLDEN, columns=("input_ids",))).names) == ["input_ids"]


PYARROW = "26.0.1"
GOLDEN_SHA256 = {
    "documents": "f34285bbcc26b54ef1025a17621ca031ef5cc2d41aed595ea10cc6de54817947",
    "contexts": "9a193135fc4c9941cebd04dc098829c9495df7030d5623f9c71d4d237b66a75c",
    "texts": "a0e223be27dddabb20195812ded77a188e8446b97285d9c21d1b688f4ac0ecb7",
}
"""Of files by the pinned pyarrow, whose name and version are in the footer."""


def golden_files(folder: Path) -> dict[str, Path]:
    """A file of each kind, of two row groups."""
    (folder / "texts").mkdir()
    (folder / "contexts").mkdir()
    texts = folder / "texts" / "train.parquet"
    encoded = [b"one", "zwölf".encode(), b"", b"four " * 99]
    batch = np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(text) for text in encoded], dtype=np.uint64)
    parquet.write_texts(texts, [batch], rows_per_group=3)
    return {
        "documents": write(folder, GOLDEN),
        "contexts": write_rows(folder / "contexts", CONTEXTS),
        "texts": texts,
    }


def test_parquet_golden_bytes_match(tmp_path):
    assert pa.__version__ == PYARROW, "another pyarrow writes other bytes: replace the digests, and say so under Bytes"
    files = golden_files(tmp_path)
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == GOLDEN_SHA256


@pytest.mark.parametrize(("rows", "step"), [(1 << 11, "lower rows_per_group"), (1, "leave this document out")])
def test_row_group_of_more_ids_than_a_list_column_holds_is_refused_by_us(rows, step):
    ids = np.broadcast_to(np.int32(7), 1 << 31)  # of no memory
    lengths = np.full(rows, (1 << 31) // rows)
    with raises("rows.group_too_large", "2,147,483,647", f"2,147,483,648 in {rows:,} rows", step):
        parquet.table_of(parquet.Rows.documents(ids, lengths), ["input_ids"], "token")


@pytest.mark.parametrize(
    ("contexts", "advice"),
    [
        ({"context_tokens": 1 << 20, "rows_per_group": 1 << 11, "file_bytes": "16GiB"}, "rows_per_group to 2,047"),
        ({"context_tokens": 1 << 31}, "context_tokens to 2,147,483,647"),
    ],
)
def test_contexts_whose_row_group_no_list_column_holds_are_refused_by_the_settings(contexts, advice):
    def checked(**values):
        exports = {"parquet_contexts": {**contexts, **values}}
        return check_config(configuration(Path("a"), exports=exports), where="test")

    with raises("config.parquet_group_too_large", advice):
        checked()
    assert checked(**({"rows_per_group": 2047} if "rows_per_group" in contexts else {"context_tokens": (1 << 31) - 1}))


def test_contexts_whose_files_are_smaller_than_a_row_group_are_allowed():
    contexts = {"context_tokens": 1 << 20, "rows_per_group": 1 << 11}
    assert ExportsConfig.model_validate({"parquet_contexts": contexts}).parquet_contexts.file_rows == 238


@pytest.mark.parametrize("bit", [4, 128])
def test_parquet_with_any_byte_flipped_is_refused_or_read_as_it_was(tmp_path, bit):
    """Pages have a CRC; a header or footer of another meaning is refused, or means the same."""
    path = write(tmp_path, GOLDEN, columns=("input_ids",))
    whole = path.read_bytes()
    expected = pq.read_table(path).to_pylist()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            parquet_reading.verify_documents(path, framing=FRAMING, **settings(columns=("input_ids",)))
            rows = parquet_reading.open_file(path)
            read = [{"input_ids": rows.row(number).tolist()} for number in range(len(rows))]
        except VerificationError:
            refused += 1
        else:
            assert read == expected, place
    assert refused > len(whole) // 3


def rewritten(path: Path, **columns: list[list[int]]) -> None:
    """The file with other values in some columns, with CRCs that are right."""
    table = pq.read_table(path)
    arrays = [
        pa.array(columns[name], table.schema.field(name).type) if name in columns else table.column(name)
        for name in table.column_names
    ]
    written = pa.Table.from_arrays(arrays, schema=table.schema)
    pq.write_table(written, path, row_group_size=2, store_schema=False, write_page_checksum=True)


@pytest.mark.parametrize(
    ("column", "values", "code"),
    [
        ("input_ids", [[BOS, 1, 2, 3, EOS], [BOS, 60_000, EOS], [BOS, 1, EOS]], "export.id_not_in_vocabulary"),
        ("input_ids", [[BOS, 1, 2, 3, EOS], [BOS, 7, 7], [BOS, 1, EOS]], "export.special_token_missing"),
        ("input_ids", [[BOS, 1, 2, 3, EOS], [BOS, EOS], [BOS, 1, EOS]], "rows.row_too_short"),
        ("labels", [[0], [0], [0]], "rows.column_differs"),
        ("loss_mask", [[1] * 5, [1] * 3, [1] * 7], "rows.column_differs"),
        ("seq_lengths", [[5], [3], [6]], "rows.column_differs"),
        ("labels", [[0], None, [0]], "rows.null"),
    ],
)
def test_parquet_values_that_do_not_follow_from_the_ids_are_named(tmp_path, column, values, code):
    path = write(tmp_path, GOLDEN)
    rewritten(path, **{column: values})
    with raises(code):
        parquet_reading.verify_documents(path, framing=FRAMING, **settings())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"columns": EVERY[:2]}, "rows.columns_differ"),
        ({"rows_per_group": 3}, "rows.group_size"),
        ({"loss_mask": "label"}, "rows.column_differs"),
    ],
)
def test_parquet_of_other_settings_is_refused(tmp_path, changes, code):
    path = write(tmp_path, GOLDEN)
    with raises(code):
        parquet_reading.verify_documents(path, framing=FRAMING, **settings(**changes))


def test_parquet_of_other_columns_is_no_file_of_ids(tmp_path):
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"text": ["a"]}), path)
    with raises("rows.not_readable"):
        parquet_reading.open_file(path)
    pq.write_table(pa.table({"input_ids": [[1.5]]}), path)
    with raises("rows.column_type"):
        parquet_reading.open_file(path)


@given(
    st.lists(st.text(max_size=9), max_size=12),
    st.integers(1, 5),
    st.sampled_from([(), (3,), (0, 5)]),
    st.integers(0, 4),
)
def test_parquet_texts_are_read_back_whatever_the_batches(tmp_path_factory, texts, group, at, flipped_bit):
    path = tmp_path_factory.mktemp("text") / "train.parquet"
    encoded = [text.encode() for text in texts]
    bounds = sorted({0, *(min(place, len(texts)) for place in at), len(texts)})
    batches = [
        (np.frombuffer(b"".join(part), np.uint8), np.cumsum([len(text) for text in part], dtype=np.uint64))
        for part in (encoded[first:last] for first, last in itertools.pairwise(bounds))
    ]
    written = parquet.write_texts(path, batches, rows_per_group=group)
    assert written == {"records": len(texts), "bytes": sum(map(len, encoded))}
    if not texts:
        assert not path.exists()
        return
    assert pq.read_table(path).to_pylist() == [{"text": text} for text in texts]
    assert parquet_reading.verify_texts(path, rows_per_group=group) == written
    opened = parquet_reading.open_file(path, "text")
    assert [opened.row(number).tobytes() for number in range(len(opened))] == encoded
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1 << flipped_bit
    path.write_bytes(whole)
    with contextlib.suppress(VerificationError):
        parquet_reading.verify_texts(path, rows_per_group=group)
        assert pq.read_table(path).to_pylist() == [{"text": text} for text in texts]


def test_pages_of_long_texts_hold_few_because_one_of_2_gib_cannot_be_written(tmp_path):
    texts, size, path = 256, 1 << 17, tmp_path / "a.parquet"
    batch = (np.full(texts * size, 97, np.uint8), np.arange(1, texts + 1, dtype=np.uint64) * np.uint64(size))
    parquet.write_texts(path, [batch], rows_per_group=texts)
    written = path.read_bytes()
    begins = [found.start() for found in re.finditer(re.escape(zstandard.FRAME_HEADER), written)]
    pages = [zstandard.get_frame_parameters(written[begin:]).content_size for begin in begins]
    assert sum(pages) >= texts * (size + 4)
    assert max(pages) < (1 << 20) + 16 * (size + 4)


@pytest.mark.slow
def test_texts_of_a_row_group_of_more_than_2_gib_are_read():
    size = 1 << 30
    long = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, size], np.int32)), pa.py_buffer(np.zeros(size, "u1"))
    )
    values, lengths = parquet_reading.values_of(pa.chunked_array([long, long, pa.array(["a", "", "bc"])]))
    assert lengths.tolist() == [size, size, 1, 0, 2]
    assert values[2 * size :].tobytes() == b"abc"


def test_parquet_text_that_is_no_utf8_is_not_written(tmp_path):
    batch = (np.array([65, 255], np.uint8), np.array([1, 2], np.uint64))
    with raises("rows.text_not_utf8"):
        parquet.write_texts(tmp_path / "a.parquet", [batch], rows_per_group=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (pa.table({"text": ["a", None]}), "rows.null"),
        (pa.table({"text": [b"a"]}), "rows.column_type"),
        (pa.table({"text": ["a"], "id": ["b"]}), "rows.columns_differ"),
        (pa.table({"other": ["a"]}), "rows.not_readable"),
    ],
)
def test_parquet_of_other_tables_is_no_file_of_text(tmp_path, table, code):
    pq.write_table(table, tmp_path / "a.parquet", write_page_checksum=True)
    with raises(code):
        parquet_reading.verify_texts(tmp_path / "a.parquet", rows_per_group=2)


def text_files(total: int, groups_per_file: int, held_out_groups: int, rows: int) -> tuple[list[int], int]:
    """Whole row groups of the training files, dealt one by one, in ascending order, and of the file held out."""
    groups = total // rows
    held_out = min(held_out_groups, groups // 2)
    files = [0] * math.ceil((groups - held_out) / groups_per_file)
    for number in range(groups - held_out):
        files[number % len(files)] += 1
    return sorted(files), held_out


texts = {
    "total": st.integers(0, 3000),
    "groups_per_file": st.integers(1, 9),
    "held": st.integers(1, 20),
    "rows": st.integers(1, 40),
}


@given(**texts)
def test_text_files_share_whole_groups_evenly_but_for_the_last_which_is_held_out(total, groups_per_file, held, rows):
    wanted = {"groups_per_file": groups_per_file, "held_out_groups": held, "rows_per_group": rows}
    exports = ExportsConfig.model_validate({"parquet_text": wanted})
    names, bounds = FORMATS["parquet_text"].plan(SimpleNamespace(config=SimpleNamespace(exports=exports)), total)
    sizes = np.diff(bounds).tolist()
    assert sum(sizes) == total
    assert all(sizes)
    assert names == sorted(names)
    splits = [name.partition("-")[0] for name in names]
    assert splits == (["train"] * (len(names) - 1) + ["validation"] if len(names) > 1 else ["train"] * len(names))
    if total < 2 * rows:
        assert sizes == [size for size in (total - total // 2, total // 2) if size]
        return
    sizes[-2] -= total % rows
    assert not any(size % rows for size in sizes)
    assert (sorted(size // rows for size in sizes[:-1]), sizes[-1] // rows) == text_files(
        total, groups_per_file, held, rows
    )


@given(**texts)
def test_text_that_is_not_doubted_holds_out_a_tenth_at_most_and_the_advice_is_right(total, groups_per_file, held, rows):
    def doubt_of(size: int) -> str:
        wanted = {"groups_per_file": groups_per_file, "held_out_groups": held, "rows_per_group": size}
        return FORMATS["parquet_text"].doubt(ExportsConfig.model_validate({"parquet_text": wanted}), total, 0)

    groups = text_files(total, groups_per_file, held, rows)[1]
    held_out = groups * rows if total >= 2 * rows else total // 2
    doubt = doubt_of(rows)
    assert (held_out * 10 <= total) == (not doubt)
    advised = re.findall(r"to ([\d,]+) or less", doubt)
    if advised and total >= 10 * held:
        assert not doubt_of(int(advised[0].replace(",", "")))


CONTEXTS = [[[1, 2, EOS], [3]], [[4, 5]], [[6], [7], [8, EOS]]]
"""Of each context the ids of each of its pieces."""
contexts = st.lists(
    st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=4), min_size=1, max_size=4), max_size=9
)


def batch_of(rows: list[list[list[int]]], dtype: str = "u2") -> parquet.Rows:
    pieces = [piece for row in rows for piece in row]
    ids = np.array([token for piece in pieces for token in piece], dtype)
    sizes = [[sum(map(len, row)) for row in rows], list(map(len, pieces)), list(map(len, rows))]
    return parquet.Rows(ids, *(np.array(size, np.int64) for size in sizes))


def write_rows(folder: Path, rows: list[list[list[int]]], at: tuple[int, ...] = (), **changes: Any) -> Path:
    path = folder / "train.parquet"
    bounds = [0, *at, len(rows)]
    batches = [batch_of(rows[first:last]) for first, last in itertools.pairwise(bounds)]
    parquet.write_contexts(path, batches, **settings(**changes))
    return path


def verify_rows(path: Path, **changes: Any) -> dict[str, int]:
    return parquet_reading.verify_contexts(path, **{"context_tokens": 16, **settings(**changes)})


def context_row(pieces: list[list[int]], mask: str) -> dict[str, list[int]]:
    """A row by its definition."""
    ids = [token for piece in pieces for token in piece]
    places = [place for piece in pieces for place in range(len(piece))]
    return {
        "input_ids": ids,
        "labels": ids,
        "attention_mask": [1] * len(ids),
        "loss_mask": [int(place > 0 or mask == "label") for place in places],
        "position_ids": places,
        "seq_lengths": [len(piece) for piece in pieces],
        "seq_start_id": [place for place, inner in enumerate(places) if inner == 0],
    }


@given(
    rows=contexts,
    mask=st.sampled_from(["token", "label"]),
    group=st.integers(1, 5),
    columns=st.sets(st.sampled_from(EVERY[1:])),
    random=st.randoms(use_true_random=False),
)
def test_parquet_rows_are_the_contexts_whatever_the_batches_and_columns(
    tmp_path_factory, rows, mask, group, columns, random
):
    folder = tmp_path_factory.mktemp("parquet")
    wanted = ("input_ids", *sorted(columns))
    changes = {"loss_mask": mask, "rows_per_group": group, "columns": wanted}
    bounds = tuple(sorted(random.choices(range(len(rows) + 1), k=2)))
    path = write_rows(folder, rows, bounds, **changes)
    if not rows:
        assert list(folder.iterdir()) == []
        return
    expected = [context_row(row, mask) for row in rows]
    assert pq.read_table(path).to_pylist() == [{name: row[name] for name in wanted} for row in expected]
    ids = [row["input_ids"] for row in expected]
    assert verify_rows(path, **changes) == {"records": len(rows), "tokens": sum(map(len, ids))}
    opened = parquet_reading.open_file(path)
    assert [opened.row(number).tolist() for number in range(len(opened))] == ids
    whole = path.read_bytes()
    assert write_rows(folder, rows, **changes).read_bytes() == whole


@pytest.mark.parametrize(
    ("column", "values", "code"),
    [
        ("input_ids", [[1, 2, EOS, 60_000], [4, 5], [6, 7, 8, EOS]], "export.id_not_in_vocabulary"),
        ("input_ids", [[1, 2, EOS, 3], [], [6, 7, 8, EOS]], "rows.row_too_short"),
        ("input_ids", [[1] * 17, [4, 5], [6, 7, 8, EOS]], "rows.row_too_long"),
        ("seq_lengths", [[3, 2], [2], [1, 1, 2]], "rows.column_differs"),
        ("seq_lengths", [[4, 0], [2], [1, 1, 2]], "rows.column_differs"),
        ("seq_lengths", [[3, 1], [2], [1, 1, 2, -1, 1]], "rows.column_differs"),
        ("seq_lengths", [[3], [1, 2], [1, 1, 2]], "rows.column_differs"),
        ("seq_lengths", [[2, 2], [2], [1, 1, 2]], "rows.column_differs"),
        ("seq_start_id", [[0, 2], [0], [0, 1, 2]], "rows.column_differs"),
        ("position_ids", [[0, 1, 2, 3], [0, 1], [0, 0, 0, 1]], "rows.column_differs"),
        ("labels", [[0], None, [0]], "rows.null"),
    ],
)
def test_parquet_columns_of_contexts_that_contradict_each_other_are_named(tmp_path, column, values, code):
    path = write_rows(tmp_path, CONTEXTS)
    assert verify_rows(path) == {"records": 3, "tokens": 10}
    rewritten(path, **{column: values})
    with raises(code):
        verify_rows(path)


@pytest.mark.parametrize("column", ["seq_start_id", "position_ids", "loss_mask"])
def test_parquet_pieces_of_contexts_that_fill_no_row_are_named_whichever_column_states_them(tmp_path, column):
    path = write_rows(tmp_path, CONTEXTS, columns=("input_ids", column))
    for wrong in (5, -1):
        rewritten(path, **{column: [[1, wrong, 1, 1], [1, 1], [1, 1, 1, 1]]})
        with raises("rows.column_differs"):
            verify_rows(path, columns=("input_ids", column))


def test_parquet_contexts_whose_pieces_or_ids_do_not_fit_are_not_written(tmp_path):
    right = batch_of(CONTEXTS)
    for wrong in (
        right._replace(pieces=right.pieces[:-1]),
        right._replace(pieces=right.pieces + 1),
        right._replace(counts=right.counts[::-1].copy()),
    ):
        with raises("rows.pieces_do_not_fill"):
            parquet.write_contexts(tmp_path / "a.parquet", [right, wrong], **settings())
    with raises("export.id_outside_vocabulary"):
        parquet.write_contexts(tmp_path / "a.parquet", [right], **settings(vocabulary_size=9))
    assert list(tmp_path.iterdir()) == []
