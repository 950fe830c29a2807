from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.report.card import CROISSANT, README, CardFigures, StageFlow, card_texts, figures_in

FIGURES = CardFigures(
    source_files=3,
    source_bytes=1_234_567,
    source_locations=("s3://bucket/crawl",),
    flows=(
        StageFlow(stage="index", quantity="documents", into=1300, out=1200, lost={"no text": 100}),
        StageFlow(stage="tokenize", quantity="documents", into=1200, out=1150, lost={"empty": 50}),
        StageFlow(stage="gather", quantity="tokens", into=90_000, out=90_400, gained={"special": 400}),
    ),
    duplicates=None,
    benchmarks=(),
    steps=(),
    shuffle_seed=7,
)


def content(**changes: Any) -> dict[str, Any]:
    return {
        "name": "demo",
        "vocabulary": {"name": "gpt2", "dtype": "uint16"},
        "formats": {"megatron": {"records": 1150, "slots": 91_150, "outputs": 1}},
        "files": [
            {"name": "megatron/demo_00000_text_document.bin", "size_bytes": 5, "sha256": "a" * 64, "records": 1150},
            {"name": "megatron/demo_00000_text_document.idx", "size_bytes": 6, "sha256": "b" * 64},
        ],
        **changes,
    }


def header_of(readme: str) -> Any:
    from huggingface_hub import DatasetCard

    card = DatasetCard(readme)
    return card.data


def test_card_header_is_what_the_hubs_parser_reads() -> None:
    stated = {"license": "odc-by", "languages": ["en", "de"], "sources": [{"name": "crawl", "license": "odc-by"}]}
    data = header_of(card_texts(content(card=stated), FIGURES, "0" * 12)[README])
    assert (data.pretty_name, data.license, data.language) == ("demo", "odc-by", ["en", "de"])
    assert data.size_categories == ["1K<n<10K"]
    assert data.to_dict()["viewer"] is False


def test_card_of_text_in_parquet_names_its_splits_for_the_hub_and_counts_its_bytes() -> None:
    names = ["parquet_text/train-00000.parquet", "parquet_text/validation-00001.parquet"]
    files = [{"name": name, "size_bytes": 5, "sha256": "a" * 64, "records": 3, "slots": 9} for name in names]
    formats = {"parquet_text": {"records": 6, "slots": 18, "outputs": 2}}
    readme = card_texts(content(formats=formats, files=files), FIGURES, "0" * 12)[README]
    (config,) = header_of(readme).to_dict()["configs"]
    assert config["config_name"] == "parquet_text"
    assert {part["split"]: [fnmatchcase(name, part["path"]) for name in names] for part in config["data_files"]} == {
        "train": [True, False],
        "validation": [False, True],
    }
    assert "2 outputs, 6 records, 18 bytes of text" in readme


def test_card_without_a_word_of_its_user_lists_what_is_missing() -> None:
    unstated = card_texts(content(), FIGURES, "0" * 12)[README]
    stated = {"license": "odc-by", "languages": ["en"], "sources": [{"name": "crawl"}]}
    all_stated = card_texts(content(card=stated), FIGURES, "0" * 12)[README]
    for what in ("the licence of the whole", "the languages", "the licence and origin of each source"):
        assert f"* {what}\n" in unstated
        assert f"* {what}\n" not in all_stated
    assert "* whether the text holds personal data" in all_stated
    assert header_of(unstated).license is None


def test_card_figures_are_the_counts_of_the_last_stage_that_knows_them() -> None:
    readme = card_texts(content(), FIGURES, "0" * 12)[README]
    assert "| documents | 1,150 |" in readme
    assert "| tokens | 90,000 of `gpt2`, uint16 |" in readme
    assert "| files | 2, 11 bytes |" in readme
    assert "| index | documents | 1,300 |  | 100 no text | 1,200 |" in readme


@pytest.mark.parametrize(
    ("documents", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (99_999, "10K<n<100K"), (10**6, "1M<n<10M"), (10**8, "100M<n<1B"),
     (10**11, "100B<n<1T"), (10**12 - 1, "100B<n<1T"), (10**12, "n>1T")],
)  # fmt: skip
def test_card_size_category_is_one_of_the_hubs(documents: int, category: str) -> None:
    flow = StageFlow(stage="tokenize", quantity="documents", into=documents, out=documents)
    figures = FIGURES.model_copy(update={"flows": (flow,)})
    assert header_of(card_texts(content(), figures, "0" * 12)[README]).size_categories == [category]


def test_croissant_lists_every_file_with_its_sha256() -> None:
    croissant = json.loads(card_texts(content(), FIGURES, "0" * 12)[CROISSANT])
    files = {item["name"]: item["sha256"] for item in croissant["distribution"]}
    assert files == {item["name"]: item["sha256"] for item in content()["files"]}
    assert croissant["version"] == "0" * 12


@pytest.mark.parametrize(
    ("name", "loader", "encoding"),
    [
        ("a.jsonl", "json", "application/jsonlines"),
        ("a.NDJSON", "json", "application/jsonlines"),
        ("a.jsonl.xz", "json", "application/x-xz"),
        ("a.jsonl.bz2", "json", "application/x-bzip2"),
        ("a.jsonl.lz4", "json", "application/x-lz4"),
        ("a.PARQUET", "parquet", "application/vnd.apache.parquet"),
        ("a.arrow", "arrow", "application/vnd.apache.arrow.file"),
        ("wiki_00", "json", "application/octet-stream"),
    ],
)
def test_card_loads_documents_of_every_kind_as_what_they_are(name: str, loader: str, encoding: str) -> None:
    documents = {"name": f"documents/{name}", "size_bytes": 1, "sha256": "c" * 64}
    texts = card_texts(content(files=[*content()["files"], documents]), FIGURES, "0" * 12)
    assert f'datasets.load_dataset("{loader}", data_files="documents/**")' in texts[README]
    assert json.loads(texts[CROISSANT])["distribution"][-1]["encodingFormat"] == encoding


@given(text=st.text(), seed=st.none() | st.integers())
def test_card_figures_come_back_from_croissant_whatever_the_names(text: str, seed: int | None) -> None:
    named = FIGURES.model_copy(update={"source_locations": (text,), "steps": (text,), "shuffle_seed": seed})
    texts = card_texts(content(name=text or "x"), named, "0" * 12)
    assert figures_in(texts[CROISSANT].encode("utf-8", "surrogatepass")) == named
    header_of(texts[README])


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"corpusmill:figures": 3}', b"\xff", b"[" * 100_000])
def test_croissant_that_is_damaged_has_no_figures(text: bytes) -> None:
    assert figures_in(text) is None


@pytest.mark.parametrize("odd", ["a|b", "a\nb", "`a`", "<script>alert(1)</script>", "---\nlicense: mit"])
def test_card_name_stays_inside_its_cell(odd: str) -> None:
    stated = {"sources": [{"name": odd}]}
    readme = card_texts(content(card=stated), FIGURES, "0" * 12)[README]
    (row,) = [line for line in readme.splitlines() if line.endswith("| not stated | not stated |")]
    assert row.replace("\\|", "").count("|") == 4
    assert "<script>" not in readme
    assert header_of(readme).license is None
