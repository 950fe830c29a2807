"""The page: alone, escaped, the same each time, whole at every size; the flags name every file of this version."""

from __future__ import annotations

import re

import pytest
import yaml

from corpusmill.report.html import LISTED_ROWS, TrainingFlags, render_html, training_flags
from corpusmill.report.summary import (
    BalanceCheck,
    BuildSummary,
    DestinationSummary,
    EstimatedFigure,
    ExportSummary,
    OutputFile,
    VocabularySummary,
)
from tests.report import example_summaries as examples
from tests.report.page import Page

EXAMPLES = [examples.usual(), examples.huge(), examples.empty(), examples.planned(), examples.broken()]
HOSTILE = "<script>alert('x')</script><img src=x onerror=1>\"'&{{ 7*7 }}"


@pytest.mark.parametrize("summary", EXAMPLES, ids=["usual", "huge", "empty", "planned", "broken"])
def test_render_html_any_build_is_one_well_nested_file_that_asks_for_nothing(summary: BuildSummary) -> None:
    text = render_html(summary)
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert "http" not in text
    assert "url(" not in re.sub(r"url\(#[a-z]+\)", "", text)
    assert "@import" not in text
    for tag in ("script", "link", "img", "iframe", "object", "embed", "base", "form"):
        assert not page.all(tag), tag
    assert all(not {"src", "srcset", "action"} & set(attributes) for _, attributes in page.elements)
    assert all(attributes.get("href", "#").startswith("#") for _, attributes in page.elements)
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_render_html_hostile_names_stay_text_everywhere() -> None:
    text = render_html(examples.hostile(HOSTILE))
    page = Page(text)
    assert "<script" not in text
    assert "<img" not in text
    assert "{{ 7*7 }}" in page.text
    assert not any("onerror" in attributes for _, attributes in page.elements)
    # Both with one name: once in the heading, and in every table that names come from.
    assert page.text.count("alert('x')") > 15


def test_render_html_usual_build_says_the_facts() -> None:
    text = Page(render_html(examples.usual())).text
    for fact in (
        "web-en",
        "complete",
        "11 of 11 checks passed",
        "engine: gigatoken for 1,229,912 of 1,229,953 documents, the reference library for the others;"
        " 7 documents with the string of a",
        "ids: 1,229,000 documents decoded to the exact text, 940 to its normalized form, 13 not proven",
        "579 MiB in 349,901 ranges",
        "154,170 of 1,233,364 documents (12.5 %), 383 MiB of text, are near-duplicates of an earlier document and were",
        "81.2 % similar",
        "13.3 % of the text",
        "499,001 contexts of 2,049 tokens",
        "64 of 64",
        "web-en_text_document.bin",
        "data/web/part-00003.jsonl.zst",
        "3.88 bytes per token",
    ):
        assert fact in text, fact


@pytest.mark.parametrize(
    ("dedup", "words"),
    [
        ({}, "earlier in the dataset, cut at whole characters."),
        ({"keep": "every_string"}, "cut at whole characters; without what belongs to a copy that stays, so that"),
        ({"fuzzy_share": 0.8}, "cut at whole characters, and what lies between them where they cover 80% or more."),
    ],
    ids=["first window", "every string", "fuzzy"],
)
def test_render_html_says_of_shorter_ranges_than_the_minimum_why_they_are(dedup: dict, words: str) -> None:
    """Under every_string it said "331 ranges: strings of at least 200 bytes" above bars that began at 1 B."""
    usual = examples.usual()
    summary = usual.model_copy(update={"duplicates": usual.duplicates.model_copy(update=dedup)})
    text = Page(render_html(summary)).text
    assert words in text
    assert "of the text: strings of at least 500 bytes" in text
    assert ("dedup.fuzzy_share removes them, too" in text) == (dedup.get("keep") is None)


def test_render_html_both_colour_schemes_define_every_colour_used() -> None:
    text = render_html(examples.usual())
    style = text[text.index("<style>") : text.index("</style>")]
    used = set(re.findall(r"var\((--[a-z-]+)\)", style))
    assert used <= {name for name, _, _ in colours(style)}


def colours(style: str) -> list[tuple[str, str, str]]:
    """(name, its colour on light paper, its colour on dark paper) of every variable."""
    return re.findall(r"(--[a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", style)


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(item: str, other: str) -> float:
    darker, lighter = sorted((luminance(item), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_render_html_text_colours_reach_wcag_aa_contrast_in_both_schemes() -> None:
    actual = colours(render_html(examples.planned()))
    for scheme in (1, 2):
        palette = {item[0].removeprefix("--"): item[scheme] for item in actual}
        for ink in ("ink", "soft", "documents", "text-bytes", "tokens", "lost", "gained"):
            assert contrast(palette[ink], palette["card"]) >= 4.5, ink
        for word in ("good", "warn", "bad"):
            assert contrast(palette[word], palette[f"{word}-paper"]) >= 4.5, word
        assert contrast(palette["soft"], palette["paper"]) >= 4.5


def test_render_html_estimate_is_shown_beside_what_came_out() -> None:
    estimate = (
        EstimatedFigure(name="tokens", unit="tokens", estimated=1_000_000, actual=1_050_000, low=900_000, high=1e6),
        EstimatedFigure(name="duplicate text", unit="share", estimated=0.1, actual=0.133, lower_bound=True),
    )
    text = Page(render_html(examples.usual().model_copy(update={"estimate": estimate}))).text
    section = text[text.index("Estimate and result") :]
    assert re.search(r"\u2717\s*tokens\s*1.00 M\s*900 K to 1.00 M\s*1.05 M\s*1.05", section)
    assert re.search(r"\u2713\s*duplicate text\s*at least 10.0 %\s*13.3 %\s*1.33", section)
    assert "Estimate and result" not in Page(render_html(examples.usual())).text


def test_render_html_requests_stand_with_their_stage_and_repeated_tokens_in_the_packing() -> None:
    usual = examples.usual()
    (first, *others) = usual.stages
    stage = first.model_copy(update={"requests": 12, "retries": 3, "wire_bytes": 2048, "without_checksum": 1})
    assert usual.packing
    packing = usual.packing.model_copy(update={"repeated_tokens": 777})
    text = Page(render_html(usual.model_copy(update={"stages": (stage, *others), "packing": packing}))).text
    assert "2.00 KiB in 12 requests, 3 of them retries; 1 file or part without a checksum of the store" in text
    assert re.search(r"repeated tokens\s*777", text)
    assert not re.search(r"of them retries|repeated tokens", Page(render_html(usual)).text)


def test_render_html_failed_check_comes_first_and_says_what_is_missing() -> None:
    text = Page(render_html(examples.broken())).text
    assert "does not balance" in text
    assert "11 of 12 checks passed" in text
    section = text[text.index("Both sides") :]
    assert section.index("tokenize shard 00017") < section.index("index: documents")
    assert "3 missing" in section
    assert "60 of 64" in text


def test_render_html_sums_of_content_stand_first_in_order_of_the_chain_and_are_shortened() -> None:
    build = examples.usual()
    text = render_html(build)
    section = text[text.index('<section id="balance">') :]
    names = [check.name for check in build.checks]
    assert [check.of_content for check in build.checks] == [True] * 5 + [False] * 6
    assert sorted(names, key=section.index) == names
    for check in build.content_checks:
        whole = check.left[0][1]
        assert section.count(f'<code title="{whole}">{whole[:12]}</code>') == 2


def test_render_html_too_much_of_a_document_is_said_as_too_many() -> None:
    check = BalanceCheck(name="x", left=(("in", 1),), right=(("out", 3),))
    text = Page(render_html(examples.planned().model_copy(update={"checks": (check,)}))).text
    assert "2 too many" in text


def test_render_html_long_lists_are_folded_and_cut_with_a_word() -> None:
    page = Page(render_html(examples.huge()))
    assert "996 more files" in page.text
    assert "2,992 more source files" in page.text
    assert f"{3000 - LISTED_ROWS:,} more source files are in the JSON summary" in page.text
    assert "webdataset/shard_00000998.tar" in page.text
    assert page.text.count("deep/part-0") == LISTED_ROWS


def test_render_html_empty_build_shows_zeros_and_draws_nothing_false() -> None:
    text = Page(render_html(examples.empty())).text
    assert "nothing to draw" in text
    assert "0 contexts of 2,049 tokens" in text
    assert "1 of 1 check passed" in text
    assert "nan" not in text.lower().split()


WHERE = "s3://corpora/web-en/0b174da9c042"
USUAL = examples.usual().model_copy(
    update={
        "destinations": (DestinationSummary(where=WHERE, files=1, verified_files=1, size_bytes=1),),
        "vocabulary": VocabularySummary(name="cl100k_base", ids=100_277, eot_id=100_257, token_bytes=4),
    }
)


def flags(**changes: object) -> dict[str, TrainingFlags]:
    return {flag.format: flag for flag in training_flags(USUAL.model_copy(update=changes))}


def files(format_name: str, *paths: str) -> ExportSummary:
    return ExportSummary(format=format_name, files=tuple(OutputFile(path=path, size_bytes=1) for path in paths))


def test_training_flags_megatron_names_every_prefix_once_and_no_weight() -> None:
    parts = files("megatron", "megatron/a_0_text.bin", "megatron/a_0_text.idx", "megatron/a_1_text.bin")
    run, cache = flags(exports=(parts,))["megatron"].text.replace("\\\n", " ").split("\n\n")
    data = ["--data-path", f"{WHERE}/megatron/a_0_text", f"{WHERE}/megatron/a_1_text", "--split", "969,30,1"]
    assert run.split() == data
    assert cache.splitlines()[1].split()[:7] == ["python", "tools/prepare_cache.py", *data]


def test_training_flags_nanotron_is_yaml_that_names_the_folder_and_the_width_of_an_id() -> None:
    made = flags(exports=(files("nanoset", "nanoset/0.ds", "nanoset/0.ds.index", "nanoset/1.ds"),))["nanoset"]
    stage = yaml.safe_load(made.text)["data_stages"][0]
    assert stage["data"]["dataset"] == {"dataset_folder": [f"{WHERE}/nanoset"], "token_size_in_bytes": 4}
    assert "100,277" in made.note


def test_training_flags_open_lm_counts_tokens_and_not_contexts() -> None:
    words = flags()["webdataset"].text.replace("\\\n", " ").split()
    assert words[:2] == ["--dataset-manifest", f"{WHERE}/webdataset/manifest.jsonl"]
    assert words[2:4] == ["--data-key", "json.gz"]
    assert words[5] == str(499_001 * 2048)


def shards(layout: str, *tokens: int, pattern: str = "numpy/{}/{}_{:04d}.bin") -> ExportSummary:
    """The first shard is held out."""
    splits = ["val", *("train" for _ in tokens[1:])]
    return ExportSummary(
        format="numpy",
        layout=layout,
        files=tuple(
            OutputFile(path=pattern.format(split, split, max(0, number - 1)), size_bytes=1, tokens=count)
            for number, (split, count) in enumerate(zip(splits, tokens, strict=True))
        ),
    )


def test_training_flags_llmc_name_both_splits_and_the_ranks_that_the_smallest_file_has_a_step_for() -> None:
    """A file of R x 4,096 tokens has no step for R ranks: a step reads one token more."""
    for smallest, ranks in ((8 * 4096, 7), (8 * 4096 + 1, 8)):
        made = flags(exports=(shards("llmc", 50_000, 50_000, smallest),))["numpy"]
        assert made.text == f'-i "{WHERE}/numpy/train/train_*.bin" -j "{WHERE}/numpy/val/val_*.bin"'
        assert f"3 files of {smallest:,} to 50,000 tokens" in made.note
        assert f"up to {ranks} ranks" in made.note
        assert "at id 50256, not at 100257" in made.note
        assert "tokens on average" in made.note


@pytest.mark.parametrize(("files_of_train", "readers"), [(1, 1), (4, 2), (5, 2), (8, 4)])
def test_training_flags_automodel_count_readers_with_two_files_each(files_of_train: int, readers: int) -> None:
    made = flags(exports=(shards("automodel", 10, *[100] * files_of_train),))["numpy"]
    assert yaml.safe_load(made.text)["dataset"]["file_pattern"] == f"{WHERE}/numpy/train/train_*.bin"
    assert f"up to {readers} ranks x loader workers" in made.note


def test_training_flags_of_shards_without_a_split_name_those_there_are() -> None:
    made = flags(exports=(shards("llmc", 10_000, pattern="numpy/web_{}_{:.0}{}.bin"),))["numpy"]
    assert made.text == f'-i "{WHERE}/numpy/web_val_*.bin"'
    npy = flags(exports=(shards("npy", 10, 20),))["numpy"]
    assert npy.text.splitlines() == [f"{WHERE}/numpy/train", f"{WHERE}/numpy/val"]
    assert "2 files of 10 to 20 tokens" in npy.note


def test_training_flags_olmo_state_the_width_that_the_loader_would_guess() -> None:
    made = flags(exports=(files("olmo", "olmo/part-0-00000.npy", "olmo/part-0-00000.csv.gz"),))["olmo"]
    assert f'"{WHERE}/olmo/*.npy"' in made.text
    assert "NumpyDatasetDType.uint32" in made.text


@pytest.mark.parametrize("name", ["parquet_documents", "parquet_contexts"])
def test_training_flags_of_parquet_are_a_line_of_datasets_and_who_reads_everything(name: str) -> None:
    made = flags(exports=(files(name, f"{name}/train-00000.parquet"),))[name]
    assert made.text == f'datasets.load_dataset("parquet", data_dir="{WHERE}/{name}", split="train")'
    assert "Any number of ranks reads everything" in made.note


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((9, 8, 5), "up to 3 ranks read everything"),
        ((10, 8, 2), "the last held out with 10.0% of the documents."),
        ((2, 1), "up to 1 ranks"),
        ((3,), "the last held out. A rank"),
        ((3,), "none with a single file"),
    ],
)
def test_training_flags_of_text_are_nanochats_and_how_many_ranks_have_a_row_group(rows: tuple, said: str) -> None:
    outputs = tuple(
        OutputFile(path=f"parquet_text/{n}.parquet", size_bytes=1, sha256="0" * 64, records=count)
        for n, count in enumerate(rows)
    )
    made = flags(exports=(ExportSummary(format="parquet_text", files=outputs, group_rows=2),))["parquet_text"]
    assert f"ln -s {WHERE}/parquet_text BASE/base_data_climbmix" in made.text
    assert said in made.note


def test_training_flags_before_the_upload_promise_no_path() -> None:
    assert training_flags(examples.planned()) == ()
    assert flags(destinations=()) == {}


def test_training_flags_format_that_no_known_trainer_reads_has_none() -> None:
    assert flags(exports=(files("parquet", "parquet/0.parquet"),)) == {}
