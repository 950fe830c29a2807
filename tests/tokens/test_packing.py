from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.inspect.lineage.shards import context_stretches
from corpusmill.shuffle.carried import piece_records
from corpusmill.tokens.records import Packing, RecordsContent, context_records, plan_contexts
from corpusmill.tokens.token_shard import TokenShard
from tests.oracles.content import records as content_of
from tests.oracles.tokens import contexts_of_rows, framed, packed, packed_pieces
from tests.raising import raises

EOT, BOS, PAD = 97, 98, 99
DOCUMENTS = st.lists(st.lists(st.integers(0, 90), max_size=14), max_size=16)
COMMON = {
    "eot": st.sampled_from(["after", "before", "around"]),
    "bos": st.booleans(),
    "empty_documents": st.sampled_from(["skip", "keep"]),
}
OPTIONS = st.one_of(
    st.fixed_dictionaries(
        {**COMMON, "fit": st.just("cut"), "overlap_tokens": st.sampled_from([0, 1]), "tail": st.just("pad")}
    ),
    st.fixed_dictionaries(
        {**COMMON, "fit": st.just("cut"), "overlap_tokens": st.just(0), "tail": st.just("always_pad")}
    ),
    st.fixed_dictionaries({**COMMON, "fit": st.just("best_fit"), "overlap_tokens": st.just(0), "tail": st.just("pad")}),
)


def shard_of(files: list[list[list[int]]]) -> TokenShard:
    documents = [document for file in files for document in file]
    tokens = np.array([token for document in documents for token in document], "<u2")
    ends = np.cumsum([len(document) for document in documents], dtype=np.uint64)
    sources = np.cumsum([len(file) for file in files], dtype=np.uint64)
    return TokenShard(tokens, ends, "test", "0" * 64, 100, EOT, PAD, BOS, "", sources)


@given(st.lists(DOCUMENTS, min_size=1, max_size=4), st.integers(2, 17), OPTIONS, st.sampled_from(["shard", "file"]))
def test_contexts_any_documents_and_options_equal_the_oracle(files, length: int, options: dict, stream: str) -> None:
    shard = shard_of(files)
    records = context_records(shard, length, Packing(stream=stream, **options))
    streams = files if stream == "file" else [[document for file in files for document in file]]
    expected = [context for stream in streams for context in packed(stream, length, options, EOT, BOS, PAD)]
    assert records.copy(np.arange(len(records.ordinals))).reshape(-1, length).tolist() == expected
    slots = [slot for context in expected for slot in context]
    assert records.pad_tokens == slots.count(PAD)
    assert len(shard.tokens) + records.special_tokens + records.pad_tokens + records.repeated_tokens == len(slots)
    if not options["overlap_tokens"]:
        assert records.special_tokens == slots.count(EOT) + slots.count(BOS)


@given(
    st.lists(DOCUMENTS, min_size=1, max_size=4),
    st.integers(2, 17),
    OPTIONS.filter(lambda options: options["tail"] == "pad"),
    st.sampled_from(["shard", "file"]),
    st.randoms(use_true_random=False),
)
def test_unpadded_contexts_and_their_pieces_equal_the_oracle(files, length: int, options: dict, stream: str, random):
    """In any order and in batches, as scatter copies them; the contents add up to those of the documents."""
    shard, packing = shard_of(files), Packing(stream=stream, **options)
    streams = files if stream == "file" else [[document for file in files for document in file]]
    whole = [context for of in streams for context in contexts_of_rows(framed(of, options, EOT, BOS), length, options)]
    pieces = [context for of in streams for context in packed_pieces(of, length, options)]
    for records, expected in (
        (context_records(shard, length, packing, padded=False), whole),
        (piece_records(shard, length, packing), pieces),
    ):
        assert records.lengths.tolist() == list(map(len, expected))
        order = random.sample(range(len(expected)), len(expected))
        content, half = RecordsContent(), len(order) // 2
        for part in (order[:half], order[half:]):
            chosen = np.array(part, np.int64)
            copied = records.copy(chosen)
            assert copied.tolist() == [slot for number in part for slot in expected[number]]
            content += records.content(chosen, copied, 3)
        assert content.records == content_of((3, number, row) for number, row in enumerate(expected))
        assert content.document_tokens + content.special_tokens == sum(map(len, whole))
        if expected is whole:
            documents = content_of((3, n, row) for n, row in enumerate(row for file in files for row in file))
            assert content.documents - records.repeated_content(3) == documents
            assert records.pad_tokens == 0


@given(DOCUMENTS, st.integers(2, 17), OPTIONS)
def test_context_stretches_any_options_name_every_slot(documents, length: int, options: dict) -> None:
    shard, packing = shard_of([documents]), Packing(**options)
    records = context_records(shard, length, packing)
    contexts = records.copy(np.arange(len(records.ordinals))).reshape(-1, length).tolist()
    for number, context in enumerate(contexts):
        actual = []
        for stretch in context_stretches(records.plan, packing, shard.ends, number):
            assert stretch.first == len(actual)
            size = stretch.last - stretch.first
            if stretch.special:
                actual += [shard.special_id(stretch.special)] * size
            else:
                actual += documents[stretch.ordinal][stretch.document_first : stretch.document_first + size]
        assert actual == context


@given(DOCUMENTS, st.integers(4, 17))
def test_best_fit_document_that_fits_a_context_is_never_split(documents, length: int) -> None:
    plan = plan_contexts(shard_of([documents]).ends, length, Packing(fit="best_fit"))
    for ordinal, document in enumerate(documents):
        pieces = np.flatnonzero(plan.documents == ordinal)
        assert len(pieces) == (-(-(len(document) + 1) // length) if document else 0)


def test_always_pad_file_without_documents_makes_one_context_of_padding() -> None:
    packing = Packing(tail="always_pad", stream="file")
    plan = plan_contexts(np.empty(0, np.uint64), 8, packing, np.array([0], np.uint64))
    assert (plan.contexts, plan.pad_tokens) == (1, 8)


def test_bos_without_such_a_token_is_refused() -> None:
    shard = TokenShard(np.array([1], "<u2"), np.array([1], np.uint64), "none", "0" * 64, 100, EOT, PAD)
    with raises("tokenizer.no_special_token", "BOS"):
        context_records(shard, 4, Packing(bos=True)).copy(np.arange(1))
