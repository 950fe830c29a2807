"""Every record of every export is traced to its source and back, and compared with plain readings of both."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from corpusmill.engine.build import Build
from corpusmill.errors import PermanentError, SourceError, VerificationError
from corpusmill.export import webdataset
from corpusmill.lineage import (
    locate,
    locate_id,
    render_located,
    render_trace,
    render_verified,
    trace,
    verify_records,
)
from corpusmill.lineage.facts import Located, Piece, RecordTrace, RejectedLine, Special
from corpusmill.lineage.records import export_folder, find_output
from corpusmill.stages import layout
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.oracles.documents import documents_of, ids_of
from tests.oracles.lineage import exported_records, numpy_stretches, source_lines
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
    found = {}
    for name in FILES:
        data = b"".join(line + b"\n" for line in source_lines(root / "corpus" / name))
        found.update({(name, line + 1): text for line, text in documents_of(data, "text")[0]})
    return found


@pytest.fixture(scope="module")
def ids(root) -> dict[Place, str]:
    found = {}
    for name in FILES:
        data = b"".join(line + b"\n" for line in source_lines(root / "corpus" / name))
        lines = [line + 1 for line, _ in documents_of(data, "text")[0]]
        found.update({(name, line): one.decode() for line, one in zip(lines, ids_of(data, "text", "id"), strict=True)})
    return found


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
    for found, (export, file, record, row) in zip(traced, exported, strict=True):
        origin, end = found.record_tokens
        assert (found.export, found.record, end - origin) == (export, record, len(row))
        assert file in found.file
        assert origin == (record if export == "numpy" else 0)
        assert [*(part.record_tokens[0] for part in found.parts), end] == [
            origin,
            *(part.record_tokens[1] for part in found.parts),
        ]
        for part in found.parts:
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
    pieces = [part for found in traced for part in found.parts if isinstance(part, Piece)]
    assert any(len(part.text_bytes) > 2 for part in pieces)
    assert any(part.document_tokens[0] > 0 for part in pieces)
    assert any(part.document.id == "" for part in pieces)


def test_trace_padding_is_said_as_such_in_the_last_context_of_each_shard_only(traced, built) -> None:
    padded = [found for found in traced if any(part == Special("padding", part.record_tokens) for part in found.parts)]
    assert {found.export for found in padded} == {"webdataset"}
    assert all(found.parts[-1].what == "padding" for found in padded)
    pads = sum(part.record_tokens[1] - part.record_tokens[0] for found in padded for part in found.parts[-1:])
    assert pads == built.total("scatter", "pad_tokens")


def test_trace_numpy_any_position_gives_the_document_that_has_it(built, exported) -> None:
    stretches = [(file, at, len(row)) for export, file, at, row in exported if export == "numpy"]
    for file, at, size in stretches[::5]:
        for position in {at, at + size // 2, at + size - 1}:
            found = trace(built, "numpy", file, position)
            assert found.record_tokens == (at, at + size)


def test_locate_is_the_inverse_of_trace(built, traced, texts, tokens) -> None:
    expected = defaultdict(list)
    for found in traced:
        for part in found.parts:
            if isinstance(part, Piece):
                one = (found.file, found.record, part.record_tokens, part.document_tokens)
                expected[part.document.source, part.document.line].append(one)
    for place, text in texts.items():
        found = locate(built, *place)
        assert isinstance(found, Located)
        assert (found.document.source, found.document.line) == place
        assert (found.text_bytes, found.tokens) == (len(text), len(tokens[place]))
        rows = [(one.file, one.record, one.record_tokens, one.document_tokens) for one in found.records]
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
    ((occurrence,),) = [one.occurrences for one in copy.duplicates]
    assert occurrence.earlier == first.document
    assert "removed whole: in no record" in render_located(copy)
    assert "c.jsonl:1" in render_located(copy)


def test_locate_touching_duplicates_of_two_documents_name_both(built) -> None:
    (found,) = locate_id(built, "touching")
    (one,) = found.duplicates
    assert [each.earlier.line for each in one.occurrences] == [1, 4]


def test_locate_text_of_short_period_repeats_itself(built) -> None:
    (found,) = locate_id(built, "period")
    (one,) = found.duplicates
    (each,) = one.occurrences
    assert each.earlier == found.document
    assert each.earlier_bytes[0] < each.text_bytes[0]


def test_locate_empty_document_says_so(built) -> None:
    (found,) = locate_id(built, "empty")
    assert (found.text_bytes, found.records, found.duplicates) == (0, (), ())
    assert "empty: in no record" in render_located(found)


@pytest.mark.parametrize(("document_id", "line"), [("17", 4), ("[1.50]", 12), ("", 3)])
def test_locate_id_finds_ids_that_are_no_strings_and_none(built, document_id: str, line: int) -> None:
    assert ("c.jsonl", line) in [(one.document.source, one.document.line) for one in locate_id(built, document_id)]


def test_locate_id_finds_every_id(built, ids) -> None:
    for document_id in set(ids.values()):
        found = [(one.document.source, one.document.line) for one in locate_id(built, document_id)]
        assert found == [place for place, one in ids.items() if one == document_id]


@pytest.mark.parametrize(("line", "reason"), [(2, "blank_line"), (5, "broken_json")])
def test_locate_rejected_line_says_why(built, line: int, reason: str) -> None:
    found = locate(built, "c.jsonl", line)
    assert isinstance(found, RejectedLine)
    assert (found.reason, found.line) == (reason, line)
    assert found.quarantine.is_file()
    assert f"c.jsonl, line {line}: rejected, {reason}" in render_located(found)


def test_locate_takes_a_location_for_a_name(built, root) -> None:
    assert locate(built, str(root / "corpus/deep/b.jsonl.zstd"), 1) == locate(built, "deep/b.jsonl.zstd", 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda built: locate(built, "a11.jsonl", 1), ["no such source file", "a1.jsonl"]),
        (lambda built: locate(built, "a1.jsonl", 31), ["no such line", "1 to 30"]),
        (lambda built: locate(built, "a3.jsonl", 1), ["no such line"]),
        (lambda built: locate_id(built, "nobody"), ["no document of the dataset has this id", "source.id_field: id"]),
        (lambda built: trace(built, "parquet", 0, 0), ["no such export", "webdataset, numpy, megatron, nanoset"]),
        (lambda built: trace(built, "megatron", 999, 0), ["megatron has no such file", "999", "tiny_00000"]),
        (lambda built: trace(built, "webdataset", "shard_9", 0), ["no such file", "shard_00000000.tar"]),
        (lambda built: trace(built, "webdataset", 0, 50), ["no such record", "0 to 49"]),
        (lambda built: trace(built, "numpy", 0, -1), ["no such record", "0 to 4999, a position in the file"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(built, call, said) -> None:
    with pytest.raises(PermanentError) as caught:
        call(built)
    for words in said:
        assert words in str(caught.value)


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
    found = next(one for one in traced if Special("padding", one.parts[-1].record_tokens) in one.parts[2:])
    said = render_trace(found)
    assert said.startswith(f"{found.file}, record {found.record}: 129 tokens")
    assert "padding" in said
    assert "EOT" in said
    assert all(f"{one.document.source}:{one.document.line}" in said for one in found.parts if isinstance(one, Piece))


def test_verify_every_record_is_equal(built, exported) -> None:
    found = verify_records(built, sample=10**6, seed=0)
    counts = defaultdict(int)
    for export, _, _, row in exported:
        counts[export] += row != [EOT]  # a numpy file can end with the EOT of the next one's document
    assert found.records == dict(counts)
    assert f"all {found.tokens:,} tokens are equal" in render_verified(found)


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
        with pytest.raises(VerificationError, match="differs from its source") as caught:
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)
    said = str(caught.value)
    assert f"{export}/{output.name}, record" in said
    assert ".jsonl" in said
    if export == "numpy":
        token = (position - 128) // 4
        (piece,) = [one for one in trace(built, export, 0, token).parts if isinstance(one, Piece)]
        assert f"token {token}" in said
        assert f"{piece.document.source}, line {piece.document.line}" in said


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
        with pytest.raises(VerificationError, match="differs from its source") as caught:
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
        with pytest.raises(VerificationError, match="has the name of another source"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)


def test_verify_changed_source_file_is_refused(built, root) -> None:
    path = root / "corpus/a1.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"doc-1", b"doc-2", 1))
    try:
        with pytest.raises((SourceError, VerificationError), match=r"changed|differs from the document"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)
