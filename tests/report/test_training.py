"""The flags name every file of this version, in the order in which a reader meets them."""

from __future__ import annotations

import yaml

from corpusmill.report.html import TrainingFlags, training_flags
from corpusmill.report.summary import DestinationSummary, ExportSummary, OutputFile, VocabularySummary
from tests.report import example_summaries as examples

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
    words = flags(exports=(parts,))["megatron"].text.replace("\\\n", " ").split()
    assert words == [
        "--data-path",
        f"{WHERE}/megatron/a_0_text",
        f"{WHERE}/megatron/a_1_text",
        "--split",
        "969,30,1",
    ]


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


def test_training_flags_before_the_upload_promise_no_path() -> None:
    assert training_flags(examples.planned()) == ()
    assert flags(destinations=()) == {}


def test_training_flags_format_that_no_known_trainer_reads_has_none() -> None:
    assert flags(exports=(files("parquet", "parquet/0.parquet"),)) == {}
