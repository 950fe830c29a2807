"""The rounds of near-duplicates in memory and on disk, against the definition."""

from __future__ import annotations

import random
import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpusmill.documents.batch import SEPARATOR
from corpusmill.documents.text_shard import OFFSET_FILE, TEXT_FILE, TextShard
from corpusmill.engine.sections import Sections, write_sections
from corpusmill.near_duplicates import decide, groups, similarity
from corpusmill.near_duplicates.signatures import Bands, Signer, bands_for, batches
from tests.decontamination.planted import is_there
from tests.near_duplicates.corpora import corpus
from tests.near_duplicates.planted import plant
from tests.oracles import near_duplicates as oracle
from tests.quick import examples

EVERY_PAIR = Bands(108, 1)
MANY_BANDS = Bands(400, 1)  # misses a pair of similarity 0.3 in 10^62
Found = list[tuple[int, float] | None]


def shard_of(folder: Path, texts: Sequence[str]) -> TextShard:
    folder.mkdir()
    encoded = [text.encode() for text in texts]
    (folder / TEXT_FILE).write_bytes(b"".join(SEPARATOR + text for text in encoded))
    lengths = np.array([len(text) + 1 for text in encoded], np.uint64)
    (folder / OFFSET_FILE).write_bytes((np.cumsum(lengths, dtype=np.uint64) - lengths).astype("<u8").data)
    text, offsets = (np.fromfile(folder / name, dtype) for name, dtype in ((TEXT_FILE, np.uint8), (OFFSET_FILE, "<u8")))
    none = np.empty(0, np.uint64)
    return TextShard(folder, text, offsets, none, none, (), np.empty(0, np.int64))


def decided_of(
    folder: Path,
    texts: Sequence[TextShard],
    least: float,
    words: int,
    bands: Bands,
    partitions: int,
    references: int = 0,
    most_rows: int = 1 << 20,
) -> tuple[NDArray[Any], NDArray[np.uint32], dict[str, int]]:
    """(what decide.decide returns, counts of pairs), through files in `folder` as the stages write them.

    The first `references` texts are of references.
    """
    digests, keyed = [], []
    for number, text in enumerate(texts):
        signer = Signer(words)
        (signed := folder / f"keys-{number}").mkdir()
        keys = (signer.keys(text.text, starts, ends, bands)[0] for _first, _last, starts, ends in batches(text))
        rows = groups.write_keys(signed, keys)
        assert rows == text.documents * (bands.bands + 1)
        keyed.append(Sections(signed))
        digests.append(keyed[-1].whole(groups.DIGESTS))
    proposed, counts = [], {"rows": 0, "pairs": 0, "rows_cut": 0, "compared": 0, "left_out": 0}
    for partition in range(partitions):
        (folder / f"pairs-{partition}").mkdir()
        proposed.append(Sections(folder / f"pairs-{partition}"))
        into = proposed[-1].folder
        for name, count in groups.propose(keyed, partition, partitions, into, references, most_rows).items():
            counts[name] += count
    answers = []
    for number, text in enumerate(texts):
        asked = np.unique(np.concatenate([of.read(groups.LEADERS_FILE, number) for of in proposed])).astype(np.int64)
        (answered := folder / f"sets-{number}").mkdir()
        similarity.write_sets(text, asked, digests[number], words, answered)
        answers.append(Sections(answered))
    of_references = [groups.read_pairs(proposed, len(texts), at) for at in range(references)]
    assert not any(len(pairs) for blocks in of_references for pairs in blocks)
    matches = [np.empty(0, similarity.MATCH)] * references
    for number, text in enumerate(texts[references:], references):
        found, compared = similarity.compare(text, proposed, number, digests[number], answers, words, least)
        matches.append(found)
        counts["compared"] += compared["compared"]
        counts["left_out"] += compared["left_out"]
    return *decide.decide(matches, [text.documents for text in texts]), counts


def found_in(
    folder: Path,
    shards: Sequence[Sequence[str]],
    least: float,
    words: int,
    bands: Bands,
    partitions: int,
    references: int = 0,
    most_rows: int = 1 << 20,
) -> tuple[Found, dict[str, int]]:
    """(for each text of all shards its kept one and their similarity, or None; counts of pairs)."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [shard_of(folder / f"text-{number}", of_shard) for number, of_shard in enumerate(shards)]
    decided, copies, counts = decided_of(folder, texts, least, words, bands, partitions, references, most_rows)
    bases = np.cumsum([0, *map(len, shards)])
    found: Found = [None] * int(bases[-1])
    for numbers in decided.tolist():
        document, kept = (int(bases[number >> 32] + (number & 0xFFFFFFFF)) for number in numbers[:2])
        found[document] = kept, numbers[2]
    kept_of = [match[0] for match in found if match]
    assert [match is not None for match in found] == (copies == decide.LEFT_OUT).tolist()
    assert all(copies[kept] == kept_of.count(kept) for kept in kept_of)
    return found, counts


@examples(40)
@given(seed=st.integers(0, 2**32), ends=st.lists(st.integers(0, 80), max_size=3))
def test_near_duplicates_of_corpora_of_many_scripts_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ends: list[int]
) -> None:
    texts = corpus(seed, 80)
    for least, words in (("0.3", 1), ("0.5", 2), ("0.8", 5), ("1.0", 5)):
        found, _ = found_in(tmp_path_factory.mktemp("rounds"), cut(texts, ends), float(least), words, MANY_BANDS, 4)
        assert found == expected(texts, least, words)


@pytest.mark.skipif(not is_there(), reason="the corpus is not here")
def test_near_duplicates_of_the_labelled_set_are_nearly_all_and_each_has_a_kept_match(tmp_path: Path) -> None:
    labelled = plant(0, originals=300, each=25)
    found, _ = found_in(tmp_path, [labelled.texts[::2], labelled.texts[1::2]], 0.8, 5, bands_for(0.8), 4)
    order = [*range(0, len(found), 2), *range(1, len(found), 2)]
    sets = [labelled.sets[number] for number in order]
    true = {number for number, match in enumerate(oracle.decide_quickly(sets, "0.8")) if match}
    removed = {number: match for number, match in enumerate(found) if match}
    assert len(true & removed.keys()) >= 0.99 * len(true) > 300
    for number, (kept, share) in removed.items():
        assert found[kept] is None
        assert kept < number
        assert share == float(oracle.jaccard(sets[kept], sets[number])) >= 0.8


def expected(texts: Sequence[str], least: str, words: int, references: int = 0) -> Found:
    matches = oracle.decide(texts, least, words, references=references)
    return [None if match is None else (match.kept, float(match.similarity)) for match in matches]


def cut(texts: Sequence[str], ends: Sequence[int]) -> list[Sequence[str]]:
    bounds = sorted(min(end, len(texts)) for end in ends)
    return [texts[first:last] for first, last in zip([0, *bounds], [*bounds, len(texts)], strict=True)]


WORDS = ["the", "cat", "sat", "É", "e\u0301", "ß", "İ", "中", "文", "の", "กำ", "ลั", "12", "٣", "\u0301", "-"]
text_of_words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@examples(150)
@given(
    texts=st.lists(text_of_words, min_size=1, max_size=8),
    edits=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 11), st.sampled_from(WORDS)), max_size=4),
    least=st.sampled_from(["0.3", "0.5", "0.8", "1.0"]),
    words=st.sampled_from([1, 2, 5]),
    ends=st.lists(st.integers(0, 12), max_size=4),
    partitions=st.sampled_from([1, 4, 64]),
    references=st.integers(0, 2),
    most_rows=st.sampled_from([1, 200, 1 << 20]),
)
def test_near_duplicates_with_bands_of_one_row_are_those_of_the_definition_whatever_the_shards(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    edits: list[tuple[int, int, str]],
    least: str,
    words: int,
    ends: list[int],
    partitions: int,
    references: int,
    most_rows: int,
) -> None:
    for which, place, word in edits:  # a copy of one of them with a word replaced
        spelled = texts[which % len(texts)].split()
        spelled[place : place + 1] = [word]
        texts.append(" ".join(spelled))
    folder = tmp_path_factory.mktemp("rounds")
    shards = cut(texts, ends)
    references = min(references, len(shards) - 1)
    found, counts = found_in(folder, shards, float(least), words, EVERY_PAIR, partitions, references, most_rows)
    assert found == expected(texts, least, words, sum(map(len, shards[:references])))
    assert counts["rows"] == len(texts) * 109
    assert counts["rows_cut"] == counts["left_out"] == 0  # a group of twelve is compared whole


def edited(seed: int, documents: int, distinct: int, words: int) -> list[str]:
    """Texts, most of them copies of a few with up to one in 25 words replaced."""
    drawn = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(2000)]
    pages = [drawn.choices(vocabulary, k=words) for _ in range(distinct)]
    texts = []
    for _ in range(documents):
        page = list(drawn.choice(pages))
        for _ in range(drawn.randrange(words // 25)):
            page[drawn.randrange(words)] = drawn.choice(vocabulary)
        texts.append(" ".join(page))
    return texts


def test_near_duplicates_with_the_usual_bands_are_the_same_for_any_shards_partitions_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = edited(5, documents=400, distinct=30, words=150)
    bands = bands_for(0.8)
    one, counts = found_in(tmp_path / "one", [texts], 0.8, 5, bands, 1)
    for number, (ends, partitions) in enumerate([([100, 250], 4), ([0, 1, 2, 399], 64), ([13, 13, 77], 4096)]):
        monkeypatch.setattr(similarity, "PAIRS_AT_ONCE", [100, 1 << 22, 1 << 22][number])
        most_rows = [1, 100, 1 << 20][number]
        cut_up = found_in(tmp_path / f"{number}", cut(texts, ends), 0.8, 5, bands, partitions, most_rows=most_rows)
        assert cut_up == (one, counts)
    sets = [oracle.runs_of(text, 5) for text in texts]
    removed = [(number, match) for number, match in enumerate(one) if match]
    assert len(removed) > 100
    for number, (kept, share) in removed:
        assert one[kept] is None
        assert share == float(oracle.jaccard(sets[kept], sets[number])) >= 0.8
    true = [number for number, match in enumerate(oracle.decide_quickly(sets, "0.8")) if match]
    assert len({number for number, _ in removed} & {*true}) >= 0.99 * len(true)


def test_chain_of_documents_keeps_the_ends_that_are_not_alike(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(60)]
    first, middle, last = (" ".join(words[at : at + 50]) for at in (0, 4, 8))
    found, _ = found_in(tmp_path, [[first, middle, last]], 0.8, 5, EVERY_PAIR, 1)
    share = float(Fraction(42, 50))
    assert found == [None, (0, share), None]
    assert oracle.jaccard(oracle.runs_of(middle, 5), oracle.runs_of(last, 5)) == Fraction(42, 50)


@pytest.mark.parametrize("ends", [[], [2], [1, 2, 4]])
def test_document_that_equals_one_that_goes_goes_for_its_kept_one_though_it_was_never_paired_with_it(
    ends: list[int],
) -> None:
    """0 and 3 are kept; 1 goes for 0; 2 equals 1; 4 equals 2, and is more like 3; 5 equals 1, and is as much like 3."""
    rows = [(1, 0, 0.9), (2, 1, 1.0), (4, 2, 1.0), (4, 3, 0.95), (5, 1, 1.0), (5, 3, 0.9)]
    firsts = [0, *ends, 6]
    numbers = [shard << 32 | at for shard, (first, last) in enumerate(pairwise(firsts)) for at in range(last - first)]
    matches = [
        np.array([(at - first, numbers[to], share) for at, to, share in rows if first <= at < last], similarity.MATCH)
        for first, last in pairwise(firsts)
    ]
    decided, copies = decide.decide(matches, np.diff(firsts).tolist())
    expected = [(1, 0, 0.9), (2, 0, 0.9), (4, 3, 0.95), (5, 0, 0.9)]
    assert decided.tolist() == [(numbers[at], numbers[kept], share) for at, kept, share in expected]
    assert copies.tolist() == [3, decide.LEFT_OUT, decide.LEFT_OUT, 1, decide.LEFT_OUT, decide.LEFT_OUT]


def test_sets_of_documents_far_apart_in_a_large_shard_are_found(tmp_path: Path) -> None:
    """A shard of 3 GiB, nearly all of it a hole."""
    far = 3 << 30
    (tmp_path / TEXT_FILE).write_bytes(SEPARATOR + b"one")
    with (tmp_path / TEXT_FILE).open("r+b") as file:
        file.seek(far)
        file.write(SEPARATOR + b"two")
    text, none = np.memmap(tmp_path / TEXT_FILE, np.uint8, "r"), np.empty(0, np.uint64)
    offsets = np.array([0, 4, far], np.uint64)
    shard = TextShard(tmp_path, text, offsets, none, none, (), np.empty(0, np.int64))
    found = list(similarity.sets_of(shard, np.array([0, 2]), Signer(1)))
    assert [len(hashes) for hashes, _ in found] == [1, 1]


def test_comparing_a_shard_has_the_answers_of_one_shard_at_a_time_in_memory(tmp_path: Path) -> None:
    shards, leaders = 30, 100_000
    answers = []
    for number in range(shards):
        (folder := tmp_path / f"answers-{number}").mkdir()
        columns = (np.arange(leaders), np.full(leaders, 7), np.zeros(leaders))  # all are equal: no set is read
        for name, column in zip((similarity.LEADERS, groups.DIGESTS, similarity.SET_ENDS), columns, strict=True):
            column.astype("<u8").tofile(folder / name)
        answers.append(Sections(folder))
    pairs = np.array([(0, (number << 32) + number) for number in range(shards)], np.uint64)
    text, digests = shard_of(tmp_path / "text", ["one"]), np.full(1, 7, np.uint64)
    (tmp_path / "pairs").mkdir()
    write_sections(tmp_path / "pairs", groups.PAIRS, [pairs[:2], pairs, *[pairs[:0]] * (shards - 2)])
    proposed = [Sections(tmp_path / "pairs")]
    similarity.compare(text, proposed, 0, digests, answers, 5, 0.8)  # compiles
    tracemalloc.start()
    matches, _ = similarity.compare(text, proposed, 1, digests, answers, 5, 0.8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(matches) >= similarity.ENOUGH
    assert peak < 3 * 24 * leaders < 24 * leaders * shards / 9


@pytest.mark.parametrize("alike", ["equal", "of one key"])
def test_rows_of_one_key_take_memory_for_few_at_a_time_and_are_paired_as_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: str
) -> None:
    documents, bytes_per_row = 300_000, 80
    monkeypatch.setattr(groups, "_BLOCK_PAIRS", 1 << 14)
    monkeypatch.setattr(groups, "_CHUNK", 1 << 12)
    monkeypatch.setattr(groups, "BATCH_DOCUMENTS", 1 << 14)
    keys = np.full((documents, 2), 7, np.uint64)
    if alike == "of one key":
        keys[:, 1] += np.arange(documents, dtype=np.uint64) | groups.EQUAL  # in the other partition
    (tmp_path / "keys").mkdir()
    groups.write_keys(tmp_path / "keys", np.array_split(keys, 100))
    found, peaks = [], []
    for number, most_rows in enumerate([20_000, 20_000, 1 << 20]):  # the first one compiles
        (folder := tmp_path / f"{number}").mkdir()
        tracemalloc.start()
        counts = groups.propose([Sections(tmp_path / "keys")], 0, 2, folder, 0, most_rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        pairs = np.concatenate([*groups.read_pairs([Sections(folder)], 1, 0)])
        found.append((counts, sorted(map(tuple, pairs.tolist()))))
    assert found[1] == found[2]
    assert found[1][0]["pairs"] > documents - groups.LEADERS
    constant = 6 << 20
    asked = 24 * documents if alike == "of one key" else 0  # all but the last one are the earlier one of a pair
    few, whole = peaks[1] - asked, peaks[2] - asked
    assert few < constant + bytes_per_row * 20_000
    assert 2 * few < whole < constant + bytes_per_row * found[0][0]["rows"]


def test_pairs_of_a_skewed_shard_take_memory_for_few_at_a_time_and_match_as_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, near = 20_000, 40
    earlier = np.arange(documents)[:, None] - np.arange(1, near + 1)
    own = np.repeat(np.arange(documents), near)[earlier.ravel() >= 0]
    pairs = np.column_stack([own, earlier.ravel()[earlier.ravel() >= 0]]).astype(np.uint64)
    np.random.default_rng(1).shuffle(pairs)
    (tmp_path / "pairs").mkdir()
    write_sections(tmp_path / "pairs", groups.PAIRS, [pairs])
    text = shard_of(tmp_path / "text", ["one"] * documents)
    digests = np.arange(documents).astype(np.uint64)  # the sets are equal, and read
    (tmp_path / "sets").mkdir()
    similarity.write_sets(text, np.arange(documents), digests, 5, tmp_path / "sets")
    found, peaks = [], []
    proposed, answers = [Sections(tmp_path / "pairs")], [Sections(tmp_path / "sets")]
    for at_once in (len(pairs), 40_000):
        monkeypatch.setattr(similarity, "PAIRS_AT_ONCE", at_once)
        similarity.compare(text, proposed, 0, digests, answers, 5, 1.0)  # compiles
        tracemalloc.start()
        found.append(similarity.compare(text, proposed, 0, digests, answers, 5, 1.0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert found[0][0].tolist() == found[1][0].tolist() != []
    assert found[0][1] == found[1][1]
    assert peaks[1] < peaks[0] / 3


def test_batches_of_short_documents_have_few_enough_that_their_keys_take_no_more_than_long_ones(tmp_path: Path) -> None:
    text = shard_of(tmp_path / "text", ["a"] * 50_000)
    bounds = [(first, last) for first, last, _, _ in batches(text)]
    assert [first for first, _ in bounds[1:]] == [last for _, last in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (0, 50_000)
    assert max(last - first for first, last in bounds) <= 8192


def test_document_with_an_equal_digest_is_compared_first_though_earlier_ones_share_a_key_of_every_band() -> None:
    most_bands = max(bands_for(hundredths / 100).bands for hundredths in range(30, 101))
    earlier = np.array([*range(20)] * most_bands + [20], np.uint64)
    earlier[-1] |= groups.EQUAL
    ordered, soon = np.empty((len(earlier), 2), np.uint64), np.empty(len(earlier), np.bool_)
    own, ends = np.zeros(len(earlier), np.int64), np.array([len(earlier)])
    filled = similarity.order_most_shared(own, earlier, ends, np.empty_like(earlier), ordered, soon)
    assert filled == 21
    assert ordered[0, 1] == 20


@pytest.mark.parametrize("text", ["", "one", "a" * 100_000, "中" * 1000, "\u0301", "--- !!"])
def test_equal_texts_of_any_kind_leave_the_first(tmp_path: Path, text: str) -> None:
    found, counts = found_in(tmp_path, [[text] * 40, [text]], 1.0, 5, bands_for(1.0), 4)
    assert found == [None, *[(0, 1.0)] * 40]
    assert counts["compared"] == 40


@pytest.mark.slow
def test_texts_of_one_character_a_million_times_and_of_no_words_are_those_of_the_definition(tmp_path: Path) -> None:
    million = 1_000_000
    long = ["a" * million, "中" * million, "a " * (million // 2), "-" * million]
    texts = [*long, "中" * 7, "中" * 4, "中" * 6 + "文字", "", "!?", "\u0301", "a A a a A", "A" * million, "a" * 99]
    sets = [oracle.runs_of(text, 5) for text in texts]
    for least in ("0.3", "0.8", "1.0"):
        found, _ = found_in(tmp_path / least, [texts[:5], [], texts[5:]], float(least), 5, MANY_BANDS, 4)
        matches = oracle.decide_quickly(sets, least)
        assert found == [match and (match.kept, float(match.similarity)) for match in matches]


def test_documents_of_a_large_group_are_compared_with_a_bounded_number_and_the_rest_is_counted(tmp_path: Path) -> None:
    texts = edited(7, documents=600, distinct=1, words=200)
    found, counts = found_in(tmp_path, [texts], 0.8, 5, bands_for(0.8), 1)
    assert counts["pairs"] <= groups.LEADERS * 19 * len(texts)
    assert counts["rows_cut"] > 0 < counts["left_out"]
    true = sum(match is not None for match in oracle.decide_quickly([oracle.runs_of(text, 5) for text in texts], "0.8"))
    assert sum(match is not None for match in found) >= 0.99 * true


def test_copies_a_few_pages_behind_theirs_are_found_though_hundreds_of_pages_share_a_template(tmp_path: Path) -> None:
    """Nine tenths of a page are the template: its hashes are those of the whole site. Up to six texts lie between."""
    drawn = random.Random(1)
    words = [f"w{number}" for number in range(20_000)]
    template, pages = drawn.choices(words, k=400), [drawn.choices(words, k=60) for _ in range(400)]
    copied: dict[int, list[list[str]]] = defaultdict(list)  # copies by the page that they come after
    for number in range(0, 400, 4):
        copy = [*pages[number]]
        for _ in range(12):
            copy[drawn.randrange(len(copy))] = drawn.choice(words)
        copied[number + drawn.randrange(6)].append(copy)
    texts = [text for number, page in enumerate(pages) for text in (page, *copied[number])]
    texts = [" ".join(template + page) for page in texts]
    sets = [oracle.runs_of(text, 5) for text in texts]
    true = {number for number, match in enumerate(oracle.decide_quickly(sets, "0.8")) if match}
    found, counts = found_in(tmp_path, [texts], 0.8, 5, bands_for(0.8), 1, most_rows=1000)
    assert len(true) > 90
    assert counts["rows_cut"]
    assert len({number for number, match in enumerate(found) if match} & true) >= 0.99 * len(true)


def test_bands_of_a_similarity_propose_its_pairs_with_the_fewest_others() -> None:
    assert bands_for(0.8) == Bands(18, 6)
    for least in (0.3, 0.5, 0.72, 0.8, 0.9, 0.95, 1.0):
        bands = bands_for(least)
        assert bands.recall(least) >= 0.995
        assert bands.bands * bands.rows <= 108
    assert bands_for(0.3).rows == 1


def test_keys_of_pairs_agree_as_often_as_theory_says() -> None:
    """Of pairs of similarity 0.8, a band of 6 rows agrees for 0.8^6 of them."""
    drawn = random.Random(3)
    pairs = []
    for _ in range(800):
        shared = [f"s{drawn.getrandbits(40)}" for _ in range(80)]
        own = [[f"o{drawn.getrandbits(40)}" for _ in range(10)] for _ in range(2)]
        pairs += [" ".join(shared + own[0]), " ".join(shared + own[1])]
    encoded = [text.encode() for text in pairs]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.uint64)
    starts = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])
    keys, _ = Signer(1).keys(np.frombuffer(b"".join(encoded), np.uint8), starts, ends, Bands(18, 6))
    agree = (keys[::2, :-1] == keys[1::2, :-1]).mean()
    assert abs(agree - 0.8**6) < 0.015  # five standard deviations of 800 pairs, whose bands are independent
    assert abs((keys[::2, :-1] == keys[1::2, :-1]).any(axis=1).mean() - Bands(18, 6).recall(0.8)) < 0.012
