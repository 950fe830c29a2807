"""Every record of every export is traced to its source and back, and compared with plain readings of both."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from corpusmill.engine.build import Build
from corpusmill.export import webdataset
from corpusmill.export.stages import layout
from corpusmill.inspect.lineage import (
    locate,
    locate_id,
    render_located,
    render_trace,
    render_verified,
    trace,
    verify_records,
)
from corpusmill.inspect.lineage.facts import Located, Piece, RecordTrace, RejectedLine, Special
from corpusmill.inspect.lineage.records import export_folder, find_output
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.oracles.documents import documents_of, ids_of
from tests.oracles.lineage import exported_records, numpy_stretches, source_lines
from tests.raising import raises
from tests.system.corpus import write_corpus
from tests.system.traced import (
    EOT,
    FILES,
    MINIMUM_BYTES,
    Place,
    build,
    count_of_checked_duplicates,
    write_special_lines,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.fixture(scope="module")
def built(root) -> Build:
    write_corpus(root / "corpus")
    write_special_lines(root / "corpus")
    return build(root)


@pytest.fixture(scope="module")
def texts(built, root) -> dict[Place, bytes]:
    """The text of every document, read plainly, in dataset order."""
    actual = {}
    for name in FILES:
        data = b"".join(line + b"\n" for line in source_lines(root / "corpus" / name))
        actual.update({(name, line + 1): text for line, text in documents_of(data, "text")[0]})
    return actual


@pytest.fixture(scope="module")
def ids(root) -> dict[Place, str]:
    actual = {}
    for name in FILES:
        data = b"".join(line + b"\n" for line in source_lines(root / "corpus" / name))
        lines = [line + 1 for line, _ in documents_of(data, "text")[0]]
        actual.update(
            {(name, line): item.decode() for line, item in zip(lines, ids_of(data, "text", "id"), strict=True)}
        )
    return actual


@pytest.fixture(scope="module")
def encoding():
    return cl100k()


@pytest.fixture(scope="module")
def tokens(texts, encoding) -> dict[Place, list[int]]:
    """The ids of every document's kept text, by the oracle of deduplication and tiktoken."""
    kept = deduplicated_texts([text.decode() for text in texts.values()], MINIMUM_BYTES)
    return {place: encoding.encode_ordinary(text) for place, text in zip(texts, kept, strict=True)}


@pytest.fixture(scope="module")
def exported(built, root) -> list[tuple[str, str, int, list[int]]]:
    """(export, file, record, ids) of all that was exported, numpy's stretches among them."""
    folder = (root / "outputs/tiny/latest").resolve()
    numpy = [("numpy", file, at, row) for file, at, row in numpy_stretches(folder, EOT)]
    return [*exported_records(folder), *numpy]


@pytest.fixture(scope="module")
def traced(built, exported) -> list[RecordTrace]:
    return [trace(built, export, file, record) for export, file, record, _ in exported]


def test_corpus_holds_what_these_tests_are_about(built, texts, tokens) -> None:
    assert [*texts] == sorted(texts, key=lambda place: (FILES.index(place[0]), place[1]))
    assert len(built.units("index")) > 2
    assert any(text and not tokens[place] for place, text in texts.items())
    assert any(not text for text in texts.values())


def test_trace_every_record_of_every_export_names_what_is_in_it(traced, exported, texts, tokens, ids, encoding) -> None:
    pieces = 0
    for actual, (export, file, record, row) in zip(traced, exported, strict=True):
        origin, end = actual.record_tokens
        assert (actual.export, actual.record, end - origin) == (export, record, len(row))
        assert file in actual.file
        assert origin == (record if export == "numpy" else 0)
        assert [*(part.record_tokens[0] for part in actual.parts), end] == [
            origin,
            *(part.record_tokens[1] for part in actual.parts),
        ]
        for part in actual.parts:
            held = row[part.record_tokens[0] - origin : part.record_tokens[1] - origin]
            if isinstance(part, Special):
                assert set(held) == {EOT}
                assert part.what == "padding" or len(held) == 1
                continue
            place = (part.document.source, part.document.line)
            assert part.document.id == ids[place]
            assert held == tokens[place][slice(*part.document_tokens)]
            cut_out = b"".join(texts[place][slice(*span)] for span in part.text_bytes)
            assert cut_out == encoding.decode_bytes(held)
            assert all(first < last for first, last in part.text_bytes)
            assert all(before[1] < after[0] for before, after in pairwise(part.text_bytes))
            shown = cut_out.decode(errors="ignore")[:10]
            assert not shown.isalnum() or part.preview.startswith(shown)
            pieces += 1
    assert pieces > len(exported)


def test_trace_some_pieces_have_several_byte_spans_and_some_begin_within_a_document(traced) -> None:
    pieces = [part for actual in traced for part in actual.parts if isinstance(part, Piece)]
    assert any(len(part.text_bytes) > 2 for part in pieces)
    assert any(part.document_tokens[0] > 0 for part in pieces)
    assert any(part.document.id == "" for part in pieces)


def test_trace_padding_is_said_as_such_in_the_last_context_of_each_shard_only(traced, built) -> None:
    padded = [
        actual for actual in traced if any(part == Special("padding", part.record_tokens) for part in actual.parts)
    ]
    assert {actual.export for actual in padded} == {"webdataset"}
    assert all(actual.parts[-1].what == "padding" for actual in padded)
    pads = sum(part.record_tokens[1] - part.record_tokens[0] for actual in padded for part in actual.parts[-1:])
    assert pads == built.total("scatter", "pad_tokens")


def test_trace_numpy_any_position_gives_the_document_that_has_it(built, exported) -> None:
    stretches = [(file, at, len(row)) for export, file, at, row in exported if export == "numpy"]
    for file, at, size in stretches[::5]:
        for position in {at, at + size // 2, at + size - 1}:
            actual = trace(built, "numpy", file, position)
            assert actual.record_tokens == (at, at + size)


def test_locate_is_the_inverse_of_trace(built, traced, texts, tokens) -> None:
    expected = defaultdict(list)
    for actual in traced:
        for part in actual.parts:
            if isinstance(part, Piece):
                item = (actual.file, actual.record, part.record_tokens, part.document_tokens)
                expected[part.document.source, part.document.line].append(item)
    for place, text in texts.items():
        actual = locate(built, *place)
        assert isinstance(actual, Located)
        assert (actual.document.source, actual.document.line) == place
        assert (actual.text_bytes, actual.tokens) == (len(text), len(tokens[place]))
        rows = [(record.file, record.record, record.record_tokens, record.document_tokens) for record in actual.records]
        assert sorted(rows) == sorted(expected[place])


def test_locate_names_the_first_occurrence_of_every_duplicate_byte(built, texts) -> None:
    removed_bytes, several = count_of_checked_duplicates(built, texts, MINIMUM_BYTES)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert several > 2


def test_locate_document_removed_whole_is_in_no_record(built) -> None:
    first, copy = locate_id(built, "first")
    assert (first.document.line, copy.document.line) == (1, 6)
    assert copy.removed_bytes == copy.text_bytes
    assert (copy.tokens, copy.records) == (0, ())
    ((occurrence,),) = [duplicate.occurrences for duplicate in copy.duplicates]
    assert occurrence.earlier == first.document
    assert "removed whole: in no record" in render_located(copy)
    assert "c.jsonl:1" in render_located(copy)


def test_locate_empty_document_says_so(built) -> None:
    (actual,) = locate_id(built, "empty")
    assert (actual.text_bytes, actual.records, actual.duplicates) == (0, (), ())
    assert "empty: in no record" in render_located(actual)


def test_locate_id_finds_every_id(built, ids) -> None:
    for document_id in set(ids.values()):
        actual = [(item.document.source, item.document.line) for item in locate_id(built, document_id)]
        assert actual == [place for place, token in ids.items() if token == document_id]


@pytest.mark.parametrize(("line", "reason"), [(2, "blank_line"), (5, "broken_json")])
def test_locate_rejected_line_says_why(built, line: int, reason: str) -> None:
    actual = locate(built, "c.jsonl", line)
    assert isinstance(actual, RejectedLine)
    assert (actual.reason, actual.line) == (reason, line)
    assert actual.quarantine.is_file()
    assert f"c.jsonl, line {line}: rejected, {reason}" in render_located(actual)


def test_locate_takes_a_location_for_a_name(built, root) -> None:
    assert locate(built, str(root / "corpus/deep/b.jsonl.zstd"), 1) == locate(built, "deep/b.jsonl.zstd", 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda built: locate(built, "a11.jsonl", 1), ["locate.no_such_source", "a1.jsonl"]),
        (lambda built: locate(built, "a1.jsonl", 31), ["locate.no_such_line", "1 to 30"]),
        (lambda built: locate(built, "a3.jsonl", 1), ["locate.no_such_line"]),
        (lambda built: locate_id(built, "nobody"), ["locate.no_such_id", "source.id_field: id"]),
        (
            lambda built: trace(built, "parquet", 0, 0),
            ["dataset.no_such_export", "webdataset, numpy, megatron, nanoset"],
        ),
        (lambda built: trace(built, "megatron", 999, 0), ["locate.no_such_file", "megatron", "999", "tiny_00000"]),
        (lambda built: trace(built, "webdataset", "shard_9", 0), ["locate.no_such_file", "shard_00000000.tar"]),
        (lambda built: trace(built, "webdataset", 0, 50), ["record.outside_file", "0 to 49"]),
        (lambda built: trace(built, "numpy", 0, -1), ["record.outside_file", "0 to 4999, a position in the file"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(built, call, message) -> None:
    with raises(*message):
        call(built)


@pytest.mark.parametrize(
    ("export", "names"),
    [
        ("webdataset", ["0", "shard_00000000", "shard_00000000.tar", "webdataset/shard_00000000.tar"]),
        ("numpy", ["0", "test_0000", "test/test_0000.npy", "numpy/test/test_0000.npy"]),
        ("megatron", ["0", "tiny_00000_text_document", "megatron/tiny_00000_text_document.idx"]),
        ("nanoset", ["0", "00000_00000_doc_shuffled.ds", "00000_00000_doc_shuffled.ds.index"]),
    ],
)
def test_find_output_takes_numbers_and_names(built, export: str, names: list[str]) -> None:
    assert {find_output(built, export, name) for name in [*names, 0]} == {layout.output_plans(built, export)[0]}


def test_render_trace_names_documents_and_special_positions(built, traced) -> None:
    actual = next(item for item in traced if Special("padding", item.parts[-1].record_tokens) in item.parts[2:])
    printed = render_trace(actual)
    assert printed.startswith(f"{actual.file}, record {actual.record}: 129 tokens")
    assert "padding" in printed
    assert "EOT" in printed
    assert all(
        f"{part.document.source}:{part.document.line}" in printed for part in actual.parts if isinstance(part, Piece)
    )


def test_verify_every_record_is_equal(built, exported) -> None:
    actual = verify_records(built, sample=10**6, seed=0)
    counts = defaultdict(int)
    for export, _, _, row in exported:
        counts[export] += row != [EOT]  # a numpy file can end with the EOT of the next one's document
    assert actual.records == dict(counts)
    assert f"all {actual.tokens:,} tokens are equal" in render_verified(actual)


def test_verify_sample_is_a_function_of_the_seed(built) -> None:
    assert verify_records(built, sample=12, seed=5) == verify_records(built, sample=12, seed=5)
    assert sum(verify_records(built, sample=12, seed=5).records.values()) >= 12
    assert len({verify_records(built, sample=12, seed=seed).tokens for seed in range(4)}) > 1


def altered(path: Path, position: int, by: int = 1) -> bytes:
    data = bytearray(path.read_bytes())
    data[position] = (data[position] + by) % 128
    return bytes(data)


@pytest.mark.parametrize(
    ("export", "ending", "position"),
    [("megatron", ".bin", 4000), ("nanoset", ".ds", 8), ("numpy", "", 128 + 4 * 77)],
)
def test_verify_one_altered_token_is_found_by_file_record_and_source(built, export, ending, position) -> None:
    output = find_output(built, export, 0)
    path = export_folder(built, export, output) / f"{output.name}{ending}"
    good = path.read_bytes()
    changed = altered(path, position)
    path.unlink()  # a .bin and a .ds may be one file under two names
    path.write_bytes(changed)
    try:
        with raises("trace.record_differs") as caught:
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)
    printed = str(caught.value)
    assert f"{export}/{output.name}, record" in printed
    assert ".jsonl" in printed
    if export == "numpy":
        token = (position - 128) // 4
        (piece,) = [part for part in trace(built, export, 0, token).parts if isinstance(part, Piece)]
        assert f"token {token}" in printed
        assert f"{piece.document.source}, line {piece.document.line}" in printed


def test_verify_altered_context_is_found(built) -> None:
    output = find_output(built, "webdataset", 0)
    path = export_folder(built, "webdataset", output) / output.name
    good = path.read_bytes()
    records = list(webdataset.read_shard(path))
    names = [name.split("_", 2)[2].removesuffix(".json.gz") for name, _ in records]
    contexts = [context.copy() for _, context in records]
    try:
        for other in range(1000, 3000):  # until the file has its size again, as its receipt says
            contexts[7][100] = other
            webdataset.write_shard(path, [context[None] for context in contexts], names, 0, vocabulary_size=100277)
            if path.stat().st_size == len(good) and other != records[7][1][100]:
                break
        with raises("trace.record_differs") as caught:
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)
    assert f"webdataset/{output.name}, record 7, token 100" in str(caught.value)


def test_verify_records_in_another_order_are_found_by_their_names(built) -> None:
    output = find_output(built, "webdataset", 0)
    path = export_folder(built, "webdataset", output) / output.name
    good = path.read_bytes()
    records = list(webdataset.read_shard(path))
    names = [name.split("_", 2)[2].removesuffix(".json.gz") for name, _ in records]
    names[3], names[4] = names[4], names[3]
    try:
        webdataset.write_shard(path, [row[None] for _, row in records], names, 0, vocabulary_size=100277)
        with raises("trace.record_of_other_source"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)


def test_verify_changed_source_file_is_refused(built, root) -> None:
    path = root / "corpus/a1.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"doc-1", b"doc-2", 1))
    try:
        with raises("source.changed_during_build"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)
