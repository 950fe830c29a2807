"""Every record of every export is traced to its source and back, and compared with plain readings of both."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
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
from corpusmill.stages.graph import open_build
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.oracles.documents import documents_of, ids_of
from tests.oracles.lineage import exported_records, numpy_stretches, source_lines
from tests.quick import quick
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus

EOT = 100257
MINIMUM_BYTES = 100
FILES = ["a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "c.jsonl", "d.jsonl", "deep/b.jsonl.zstd"]

Place = tuple[str, int]  # source file, line from 1
Texts = dict[Place, bytes]


def write_special_lines(folder: Path) -> None:
    """Lines that are none, odd ids, texts of short period, whole copies, and duplicates that only touch."""
    first, second = (json.dumps(" ".join(map(str, range(start, start + 200)))) for start in (1000, 2000))
    one, other = json.loads(first), json.loads(second)
    touching = "new " + one[:300] + other[50:450] + " end"
    lines = [
        b"\xef\xbb\xbf" + b'{"id": "first", "text": %s}' % first.encode(),
        b"",
        b'{"text": "no id"}',
        b'{"id": 17, "text": %s}' % second.encode(),
        b"{broken",
        b'{"id": "first", "text": %s}' % first.encode(),
        b'{"id": "touching", "text": %s}' % json.dumps(touching).encode(),
        b'{"id": "gaps", "text": %s}' % json.dumps(f"a {one[:150]} b {other[:150]} c").encode(),
        b'{"id": "period", "text": "%s"}' % (b"ab" * 300),
        b'{"id": "rule", "text": "%s %s"}' % (b"-" * 250, b"=" * 250),
        b'{"id": "empty", "text": ""}',
        b'{"id": [1.50], "text": "%s"}' % (b"x" + b"ab" * 200 + "é".encode() * 120),
        b'{"id": "literal", "text": "<|endoftext|> is plain text"}',
    ]
    (folder / "c.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "d.jsonl").write_bytes(lines_of(["long " * 40 + text * 3 for text in make_documents(3, seed=9)], 900))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.fixture(scope="module")
def built(root) -> Build:
    write_corpus(root / "corpus")
    write_special_lines(root / "corpus")
    return build(root)


def build(root: Path, **changes: object) -> Build:
    source = {"paths": [str(root / "corpus")], "shard_bytes": "8KiB", "max_rejected_share": 0.1}
    config = check_config(configuration(root, source=source, **changes), where="test")
    return open_build(build_dataset(config, workers=1))


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


def count_of_checked_duplicates(built: Build, texts: dict[Place, bytes], minimum_bytes: int) -> tuple[int, int]:
    """(removed bytes, ranges that repeat several stretches) after comparing every occurrence with a plain search."""
    order = {place: number for number, place in enumerate(texts)}
    everything = b"".join(b"\xff" + text for text in texts.values())
    starts = [0, *accumulate(len(text) + 1 for text in texts.values())]
    removed_bytes = several = gaps = 0
    for place, text in texts.items():
        found = locate(built, *place)
        assert isinstance(found, Located)
        for one in found.duplicates:
            several += len(one.occurrences) > 1
            covered: set[int] = set()
            for each in one.occurrences:
                earlier = (each.earlier.source, each.earlier.line)
                assert (order[earlier], each.earlier_bytes[0]) < (order[place], each.text_bytes[0])
                stretch = text[slice(*each.text_bytes)]
                assert len(stretch) >= minimum_bytes
                assert texts[earlier][slice(*each.earlier_bytes)] == stretch
                at = starts[order[earlier]] + 1 + each.earlier_bytes[0]
                assert everything.find(stretch[:minimum_bytes]) == at
                covered |= set(range(*each.text_bytes))
            gaps += len(set(range(*one.text_bytes)) - covered)
        assert found.removed_bytes == sum(one.text_bytes[1] - one.text_bytes[0] for one in found.duplicates)
        removed_bytes += found.removed_bytes
    # Cutting at whole characters adds to no range: all that no occurrence covers, fuzzy_share took out.
    assert gaps <= built.total("union", "fuzzy_bytes")
    return removed_bytes, several


def test_locate_names_the_first_occurrence_of_every_duplicate_byte(built, texts) -> None:
    removed_bytes, several = count_of_checked_duplicates(built, texts, MINIMUM_BYTES)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert several > 2


def built_of_few_letters(folder: Path, minimum_bytes: int, method: str, **dedup: object) -> tuple[Build, Texts]:
    """A build of documents that repeat each other everywhere, and its texts in dataset order."""
    rng = random.Random(minimum_bytes)

    def text() -> str:
        pieces = ["".join(rng.choices("abé中", [6, 3, 1, 1], k=rng.randrange(60))) for _ in range(3)]
        return "".join(piece + rng.choice(["", "-" * rng.randrange(40), "ab" * rng.randrange(30)]) for piece in pieces)

    (folder / "corpus").mkdir()
    texts = {}
    for name in ("1.jsonl", "2.jsonl", "3.jsonl"):
        rows = [text() for _ in range(25)]
        (folder / "corpus" / name).write_bytes(lines_of(rows))
        texts.update({(name, line): row.encode() for line, row in enumerate(rows, start=1)})
    changes = {"mode": "remove", "minimum_bytes": minimum_bytes, **dedup}
    return build(folder, dedup=changes, index={"method": method}, exports={"nanoset": {}}), texts


@pytest.mark.parametrize("method", ["anchors", "suffix_array"])
@pytest.mark.parametrize("minimum_bytes", quick([7, 21], 1))
@pytest.mark.parametrize("keep", ["first_window", "every_string"])
def test_locate_text_of_few_letters_and_short_periods_names_first_occurrences(
    tmp_path, keep: str, minimum_bytes: int, method: str
) -> None:
    built, texts = built_of_few_letters(tmp_path, minimum_bytes, method, keep=keep)
    removed_bytes, several = count_of_checked_duplicates(built, texts, minimum_bytes)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert several > 10


@pytest.mark.parametrize("method", ["anchors", "suffix_array"])
def test_locate_fuzzy_removal_names_the_repeats_and_what_lies_between(tmp_path, method: str) -> None:
    built, texts = built_of_few_letters(tmp_path, 21, method, fuzzy_share=0.8)
    removed_bytes, several = count_of_checked_duplicates(built, texts, 21)
    assert removed_bytes == built.total("union", "removed_bytes")
    assert built.total("union", "fuzzy_bytes") > 0
    assert several > 10
    assert any("between some (dedup.fuzzy_share)" in render_located(locate(built, *place)) for place in texts)


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


@pytest.mark.parametrize(
    ("framing", "exports"),
    [
        ({"empty_documents": "eod", "bos": True}, ("webdataset", "numpy", "megatron", "nanoset")),
        ({"empty_documents": "boundary", "bos": True}, ("webdataset", "megatron")),
    ],
    ids=["eod", "boundary"],
)
@pytest.mark.parametrize("eot", ["after", "around"])
def test_locate_document_without_tokens_names_the_records_that_hold_its_eod_and_trace_leads_back(
    root, tmp_path, framing: dict[str, object], exports: tuple[str, ...], eot: str
) -> None:
    """It was said to be in no record, and the trace of its record named nobody."""
    (tmp_path / "corpus").symlink_to(root / "corpus")
    kept = build(
        tmp_path,
        tokenizer={"name": "cl100k_base", "bos": "<|fim_prefix|>"},
        framing=framing,
        packing={"empty_documents": "keep", "eot": eot, "bos": True},
        exports={export: configuration(tmp_path)["exports"][export] for export in exports},
    )
    empty = [*locate_id(kept, "empty"), locate_id(kept, "first")[1]]
    assert [one.text_bytes == 0 for one in empty] == [True, False]
    for found in empty:
        assert found.tokens == 0
        assert {one.export for one in found.records} == set(exports)
        assert f"in {len(found.records)} record" in render_located(found)
        for one in found.records:
            record = trace(kept, one.export, one.file, one.record)
            held = [piece for piece in record.parts if isinstance(piece, Piece) and piece.document == found.document]
            assert [(piece.record_tokens, piece.document_tokens) for piece in held] == [(one.record_tokens, (0, 0))]
            around = [part.what for part in record.parts if isinstance(part, Special)]
            if one.export != "webdataset":
                framed = {"numpy": ["EOT"]}.get(one.export, ["BOS", "EOT"])
                assert around == (framed if framing["empty_documents"] == "eod" else [])
            assert f"{found.document.source}:{found.document.line}" in render_trace(record)
    assert verify_records(kept, sample=10**6, seed=0).records["megatron"] == kept.total("tokenize", "documents_out")


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ({"minimum_tokens": 6}, "selection.minimum_tokens: 6"),
        ({"minimum_bytes": 20, "minimum_tokens": 6}, "selection.minimum_bytes: 20"),
        ({"minimum_bytes": 3, "minimum_tokens": 6}, "selection.minimum_tokens: 6"),
    ],
)
def test_locate_document_that_was_too_short_says_which_setting_left_it_out(
    root, tmp_path, selection: dict[str, int], reason: str
) -> None:
    (tmp_path / "corpus").symlink_to(root / "corpus")
    selected = build(tmp_path, selection=selection)
    found = locate(selected, "c.jsonl", 3)
    assert isinstance(found, Located)
    assert (found.tokens, found.records, found.too_short_for) == (0, (), reason)
    assert f"left out as too short, {reason}: in no record" in render_located(found)
    (empty,) = locate_id(selected, "empty")
    long = locate_id(selected, "first")[0]
    assert [empty.too_short_for, long.too_short_for] == ["", ""]
    assert "empty: in no record" in render_located(empty)


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
        with pytest.raises(VerificationError, match="not what its source gives") as caught:
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
        with pytest.raises(VerificationError, match="not what its source gives") as caught:
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
        with pytest.raises(VerificationError, match="names another source"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)


def test_verify_changed_source_file_is_refused(built, root) -> None:
    path = root / "corpus/a1.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"doc-1", b"doc-2", 1))
    try:
        with pytest.raises((SourceError, VerificationError), match=r"changed|not the document"):
            verify_records(built, sample=10**6, seed=0)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("mode", ["none", "annotate"])
def test_lineage_without_removal_keeps_whole_texts(tmp_path, mode: str) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    dedup = {"mode": mode} if mode == "none" else {"mode": mode, "minimum_bytes": 100}
    one_export = build(tmp_path, dedup=dedup, exports={"nanoset": {}})
    assert verify_records(one_export, sample=10**6, seed=0).records["nanoset"] > 10
    found = [locate(one_export, "a1.jsonl", line) for line in range(1, 7)]
    assert all(one.removed_bytes == 0 for one in found)
    assert all([each.export for each in one.records] == ["nanoset"] for one in found if one.text_bytes)
    every = [locate(one_export, name, line) for name in ("a1.jsonl", "deep/b.jsonl.zstd") for line in range(1, 7)]
    assert any(one.duplicates for one in every) == (mode == "annotate")
    if mode == "annotate":
        assert "bytes annotated" in render_located(next(one for one in every if one.duplicates))
