"""Items in texts."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.decontamination.decide import too_little
from corpusmill.decontamination.items import Item
from corpusmill.decontamination.search import Hit, Searcher, met_seeds
from corpusmill.decontamination.seeds import build_seeds, open_seeds, read_entries, write_seeds
from corpusmill.decontamination.text_words import WordFinder
from tests.quick import examples
from tests.raising import raises

QUESTION = (
    "A merchant sells nine copper kettles on Tuesday and twice as many on Friday; how many kettles remain unsold?"
)
ANSWER = "Twenty-seven kettles were sold, so three remain on the shelf."
FILLER = "The harbour was quiet that morning, and nobody had opened the shutters yet."
APACHE = """Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in
compliance with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless
required by applicable law or agreed to in writing, software distributed under the License is distributed on an "AS IS"
BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied."""
WORDS = [f"{a}{b}" for a in ("bar", "kel", "mon", "tru", "vis") for b in ("do", "fen", "gal", "nik", "pos", "rum")]


def searcher_of(*items: Item, threshold: str | float = "default") -> Searcher:
    return Searcher(build_seeds(items, 5)[0], threshold)


def item(question: str, answer: str = "", passage: str = "", name: str = "1") -> Item:
    return Item("bench", name, question, answer, passage)


def search(searcher: Searcher, *texts: str) -> list[Hit]:
    encoded = [text.encode() for text in texts]
    lengths = np.array([len(text) for text in encoded], np.uint64)
    ends = np.cumsum(lengths, dtype=np.uint64)
    return list(searcher.search(np.frombuffer(b"".join(encoded), np.uint8), ends - lengths, ends))


def passage(hit: Hit, text: str) -> str:
    return text.encode()[hit.begin : hit.end].decode()


@examples(60)
@given(
    st.lists(st.sampled_from(WORDS), min_size=12, max_size=40, unique=True),
    st.lists(st.sampled_from(["one", "two", "three", "four", "çà", "\n", "--"]), max_size=60),
    st.integers(0, 60),
    st.sampled_from([" ", "\n", " ** ", ", "]),
)
def test_search_planted_item_is_found_in_place(words: list[str], around: list[str], at: int, between: str) -> None:
    before, behind = " ".join(around[:at]), " ".join(around[at:])
    planted = between.join(words)
    text = f"{before} {planted} {behind}"
    (hit,) = search(searcher_of(item(" ".join(words))), text)
    assert passage(hit, text) == planted


@examples(40)
@given(st.lists(st.lists(st.sampled_from(WORDS[:8]), max_size=40).map(" ".join), min_size=1, max_size=5))
def test_search_of_several_texts_gives_what_each_gives(texts: list[str]) -> None:
    searcher = searcher_of(item(" ".join(WORDS[:8])), item(" ".join(WORDS[7::-1]), name="2"))
    each = [
        Hit(number, item.sequence, item.begin, item.end, item.share, item.words)
        for number, text in enumerate(texts)
        for item in search(searcher, text)
    ]
    assert search(searcher, *texts) == each


@examples(60)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=12), min_size=1, max_size=6),
    st.lists(st.lists(st.sampled_from("abcd"), max_size=30), max_size=4),
    st.integers(3, 6),
)
def test_met_seeds_are_those_of_a_dictionary(items: list[list[str]], texts: list[list[str]], size: int) -> None:
    questions = [" ".join(f"{letter}word" for letter in letters) for letters in items]
    seeds, entries = build_seeds([item(question, name=str(at)) for at, question in enumerate(questions)], size)
    expected_postings = {}
    for entry in entries:
        words = items[int(entry.item)]
        for place in reversed(range(len(words) - size + 1)):
            expected_postings[(tuple(words[place : place + size]), entry.sequence)] = place
    finder = WordFinder(seeds.characters, seeds.expansions)
    encoded = [" ".join(f"{letter}word" for letter in letters).encode() for letters in texts]
    lengths = np.array([len(text) for text in encoded], np.uint64)
    ends = np.cumsum(lengths, dtype=np.uint64)
    met = met_seeds(seeds, finder.find(np.frombuffer(b"".join(encoded), np.uint8), ends - lengths, ends))
    before = np.cumsum([0, *map(len, texts)])
    assert sorted(map(tuple, met.tolist())) == sorted(
        (number, sequence, int(before[number]) + at, place)
        for number, words in enumerate(texts)
        for at in range(len(words) - size + 1)
        for (run, sequence), place in expected_postings.items()
        if run == tuple(words[at : at + size])
    )


def test_index_written_and_opened_is_the_same(tmp_path: Path) -> None:
    seeds, entries = build_seeds([item(QUESTION, ANSWER), item("", name="2")], 5)
    write_seeds(tmp_path, seeds, entries)
    opened = open_seeds(tmp_path)
    assert read_entries(tmp_path) == entries
    for name, array in seeds.arrays():
        assert np.array_equal(getattr(opened, name), array), name
    assert search(Searcher(opened), QUESTION) == search(Searcher(seeds), QUESTION)


@pytest.mark.parametrize("name", ["keys", "index.json", "postings"])
def test_index_with_a_short_file_is_refused(name: str, tmp_path: Path) -> None:
    write_seeds(tmp_path, *build_seeds([item(QUESTION)], 5))
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with raises("benchmark.index_incomplete"):
        open_seeds(tmp_path)


@examples(60)
@given(
    st.lists(st.lists(st.sampled_from([*WORDS[:9], "the", "of"]), max_size=25).map(" ".join), max_size=8),
    st.sampled_from(["default", "strict", 0.6]),
)
def test_every_seed_is_met_by_its_item_and_every_item_that_can_be_decided_meets_itself(
    questions: list[str], threshold: str | float
) -> None:
    items = [item(question, answer=question[:20], name=str(at)) for at, question in enumerate(questions)]
    seeds, _ = build_seeds(items, 5)
    met, seeds_met = Searcher(seeds, threshold).met_alone()
    assert seeds_met == len(seeds.postings)
    assert np.array_equal(met, ~too_little(seeds, threshold))


def test_index_is_mapped_read_only(tmp_path: Path) -> None:
    write_seeds(tmp_path, *build_seeds([item(QUESTION)], 5))
    opened = open_seeds(tmp_path)
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert {Path(row[-1]).name for row in mapped} == {name for name, array in opened.arrays() if array.size}
    assert {row[1] for row in mapped} == {"r--s"}


def test_search_benchmark_of_empty_and_one_word_items_meets_nothing() -> None:
    searcher = searcher_of(item(""), item("Paris", "Paris", name="2"), item("", "", "", name="3"), item("!?", name="4"))
    assert search(searcher, "Paris Paris Paris", "", QUESTION) == []
    assert search(searcher_of(), QUESTION) == []


def test_search_item_that_many_benchmarks_have_is_rare_still() -> None:
    items = [Item(f"bench{number}", "7", QUESTION, ANSWER) for number in range(10_000)]
    seeds, entries = build_seeds(items, 5)
    assert [entry.benchmark for entry in entries] == [item.benchmark for item in items]
    (hit,) = search(Searcher(seeds), QUESTION)
    assert {entry.sequence for entry in entries} == {hit.sequence}


def test_search_benchmark_that_is_the_text_meets_every_item_once() -> None:
    def question(number: int) -> str:
        return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(1, 12)) + f" number{number}"

    items = [item(question(number), name=str(number)) for number in range(500)]
    seeds, _ = build_seeds(items, 5)
    hits = search(Searcher(seeds, 0.9), "\n\n".join(item.question for item in items))
    assert sorted(hit.sequence for hit in hits) == list(range(seeds.sequences))


def test_search_licence_that_items_share_is_no_hit() -> None:
    functions = [f"def {word}(x): return the {word} of x counted from the left edge" for word in WORDS]
    searcher = searcher_of(*(item(f"{APACHE}\n{code}", name=code) for code in functions))
    assert search(searcher, APACHE, f"{FILLER}\n{APACHE}\n{FILLER}") == []
    alone = searcher_of(item(f"{APACHE}\n{functions[0]}"))
    assert search(alone, APACHE) == []
    assert len(search(alone, f"{APACHE}\n{functions[0]}")) == 1


def test_search_phrases_of_examinations_are_no_hit() -> None:
    phrases = [
        "Which of the following statements is true",
        "Which one of the following statements is correct? All of the above. None of the above.",
        "What is the total number of",
    ]
    searcher = searcher_of(*(item(phrase, name=phrase) for phrase in phrases))
    assert search(searcher, *phrases, "\n".join(phrases)) == []


def test_search_preamble_that_items_share_is_no_hit() -> None:
    preamble = "Consider the imaginary kingdom of Velmora where every citizen owns precisely four painted lanterns."
    items = [item(f"{preamble} How would {word} sort the {word}s?", name=word) for word in WORDS]
    assert search(searcher_of(*items), f"{FILLER} {preamble} {FILLER}") == []
    assert len(search(searcher_of(*items), items[3].question)) == 1


def test_search_answer_counts_near_its_question_only() -> None:
    searcher = searcher_of(item(QUESTION, ANSWER))
    half = QUESTION.rpartition(";")[0]
    assert search(searcher, ANSWER) == []
    near, far = f"{half}. {ANSWER}", f"{half}. {f'{FILLER} ' * 30} {ANSWER}"
    (with_answer,), (without,) = search(searcher, near), search(searcher, far)
    assert passage(with_answer, near) == near.rstrip(".")
    assert passage(without, far) == half


def test_search_passage_is_met_without_its_question() -> None:
    text = "Glaciers in the Verdant Range retreated eleven metres a year until the dam at Holm was breached in spring."
    searcher = searcher_of(item("What was breached?", "the dam", text))
    (hit,) = search(searcher, f"{FILLER} {text} {FILLER}")
    assert passage(hit, f"{FILLER} {text} {FILLER}") == text.rstrip(".")


@pytest.mark.parametrize(
    ("question", "wrapped", "other"),
    [
        ("某商店星期二卖出九把铜壶\uff0c星期五卖出的数量是星期二的两倍\uff0c请问还剩下多少把铜壶没有卖出\uff1f",
         "某商店星期二卖出九把铜壶,\n星期五卖出的数量是星期二的两倍,\n请问还剩下多少把铜壶没有卖出?",
         "请问还剩下多少时间\uff1f某商店星期五不营业\uff0c数量有限\uff0c先到先得\uff0c欢迎光临本店。"),
        ("ある店で火曜日に銅のやかんが九個売れ、金曜日にはその二倍売れました。残りはいくつですか。",
         "ある店で火曜日に\n銅のやかんが九個売れ\n金曜日にはその二倍売れました 残りはいくつですか",
         "残りはいくつですかと店員に聞きました。金曜日には休みです。"),
        ("ร้านค้าขายกาน้ำทองแดงเก้าใบในวันอังคารและสองเท่าในวันศุกร์ เหลือกาน้ำกี่ใบ",
         "ร้านค้าขายกาน้ำทองแดงเก้าใบ\nในวันอังคารและสองเท่า\nในวันศุกร์ เหลือกาน้ำกี่ใบ",
         "ร้านค้าปิดในวันศุกร์ กรุณากลับมาใหม่ในวันเสาร์"),
    ],
)  # fmt: skip
def test_search_language_without_spaces_is_searched_by_characters(question: str, wrapped: str, other: str) -> None:
    searcher = searcher_of(item(question))
    assert [hit.share for hit in search(searcher, f"x {question} y", wrapped)] == [1.0, 1.0]
    assert search(searcher, other) == []


def test_search_threshold_says_how_much_is_enough() -> None:
    words = WORDS[:20]
    text = " ".join(words[:12])
    (hit,) = search(searcher_of(item(" ".join(words))), text)
    assert hit.share == 0.6
    assert hit.words == 12
    assert search(searcher_of(item(" ".join(words)), threshold="strict"), text) == []
    assert search(searcher_of(item(" ".join(words)), threshold=0.61), text) == []
    assert len(search(searcher_of(item(" ".join(words)), threshold=0.59), text)) == 1


def test_search_replaced_words_cost_themselves_alone() -> None:
    words = WORDS[:20]
    changed = [word if place % 6 != 3 else "else" for place, word in enumerate(words)]
    (hit,) = search(searcher_of(item(" ".join(words))), " ".join(changed))
    assert hit.words == sum(a == b for a, b in zip(words, changed, strict=True))


def test_search_pieces_of_an_item_count_together_if_they_are_most_of_it() -> None:
    """Another item of the same form has its first and last words; a half of this one is in one stretch."""
    words, searcher = WORDS[:24], searcher_of(item(" ".join(WORDS[:24])))
    sibling = [*words[:6], *FILLER.split(), *words[18:]]
    half = [*FILLER.split(), *words[:12], *FILLER.split()]
    scattered = [*words[:9], *FILLER.split(), *words[12:]]
    assert search(searcher, " ".join(sibling)) == []
    assert [hit.words for hit in search(searcher, " ".join(half))] == [12]
    assert [hit.words for hit in search(searcher, " ".join(scattered))] == [21]


def test_search_text_and_item_of_one_word_end_in_linear_time() -> None:
    searcher = searcher_of(item("spam " * 400), item(QUESTION, name="2"))
    begun = time.process_time()
    search(searcher, "spam " * 300_000)
    search(searcher, f"{QUESTION}\n" * 5_000)
    assert time.process_time() - begun < 30
