"""`corpusmill init`: what it sees of files, what it writes, and what it refuses."""

from __future__ import annotations

import gzip
import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.builds.starting import shard_size
from corpusmill.cli import app
from corpusmill.config import load_config
from corpusmill.sources.survey import MOST_FILES, survey_sources
from corpusmill.storage import list_sources
from tests.raising import raises
from tests.system.corpus import lines_of, make_documents

OPTIONS = ["--tokenizer", "cl100k_base", "--export", "megatron"]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()


def init(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["init", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def write_lines(name: str, *records: object) -> None:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))


def test_init_of_a_folder_writes_a_configuration_that_builds() -> None:
    Path("data/news.jsonl").write_bytes(lines_of(make_documents(20)))
    output = init("data", "--tokenizer", "cl100k_base", "--export", "nanoset, megatron", "--output", "Web 1.yaml")
    assert "in 20 of 20 lines" in output
    assert "Next: corpusmill build" in output
    text = Path("Web 1.yaml").read_text()
    assert 12 <= text.count("\n") <= 20
    config = load_config("Web 1.yaml")
    assert (config.name, config.source.paths, config.source.text_field) == ("web-1", ["data"], "text")
    assert config.exports.formats() == ["megatron", "nanoset"]
    built = CliRunner().invoke(app, ["build", "Web 1.yaml", "--workers", "1"], catch_exceptions=False)
    assert built.exit_code == 0
    assert Path("outputs/web-1/latest/dataset.json").is_file()


def test_short_example_builds_beside_a_folder_called_data() -> None:
    Path("data/news.jsonl").write_bytes(lines_of(make_documents(20)))
    Path("web.yaml").write_text(CliRunner().invoke(app, ["config", "example", "--short"]).output)
    assert CliRunner().invoke(app, ["build", "web.yaml", "--workers", "1"], catch_exceptions=False).exit_code == 0
    assert Path("outputs/web/latest/dataset.json").is_file()


def test_long_example_checks_beside_a_folder_called_data() -> None:
    Path("data/news.jsonl").write_bytes(lines_of(make_documents(20)))
    Path("web.yaml").write_text(CliRunner().invoke(app, ["config", "example"]).output)
    assert CliRunner().invoke(app, ["config", "check", "web.yaml"], catch_exceptions=False).exit_code == 0


def test_init_takes_the_key_with_most_text_where_none_is_called_text() -> None:
    write_lines(
        "data/a.jsonl", *[{"url": "http://a", "content": "long " * 9, "rare": "x" * (99 * (i < 2))} for i in range(9)]
    )
    output = init("data", *OPTIONS)
    assert load_config("data.yaml").source.text_field == "content"
    assert "other fields with text: " in output
    assert "url" in output.partition("other fields")[2]


def test_init_of_mixed_formats_with_one_key_counts_each() -> None:
    Path("data/a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    pq.write_table(pa.table({"n": [1], "text": ["b"]}), "data/b.parquet")
    Path("data/readme.md").write_text("no source")
    output = init("data", *OPTIONS)
    assert "1 .jsonl.gz, 1 .parquet); 1 file of other kinds skipped" in output
    assert "in 2 of 2 lines" in output


def test_init_of_mixed_formats_without_a_common_key_names_file_and_keys() -> None:
    write_lines("data/a.jsonl", *[{"text": "a"}] * 5)
    pq.write_table(pa.table({"content": ["b"]}), "data/b.parquet")
    with raises("survey.several_text_keys") as caught:
        init("data", *OPTIONS)
    details = dict(caught.value.details)
    assert details["where"] == "b.parquet"
    assert "content in 100%" in str(details["got"])
    assert not Path("data.yaml").exists()
    assert "warning: no text under text in b.parquet" in init("data", *OPTIONS, "--text-field", "text")


def test_init_says_how_many_lines_have_no_text() -> None:
    write_lines("data/a.jsonl", *[{"text": "a"}] * 5, {"title": "b"}, {"text": None}, [1])
    output = init("data", *OPTIONS)
    assert "in 5 of 8 lines" in output
    assert "warning: 3 lines without text under text" in output


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"n": 1}\n', b"no json\n", b'["text"]\n'])
def test_init_of_files_without_text_is_refused_and_writes_nothing(content: bytes) -> None:
    Path("data/a.jsonl").write_bytes(content)
    with raises("survey.no_text_key"):
        init("data", *OPTIONS)
    assert not Path("data.yaml").exists()


def test_init_of_a_folder_without_sources_names_the_endings() -> None:
    Path("data/a.txt").write_text("text")
    with raises("source.no_known_files", ".jsonl.zst"):
        init("data", *OPTIONS)


def test_init_of_a_pattern_of_json_files_keeps_the_pattern() -> None:
    write_lines("data/a.json", {"text": "a"})
    init("data/*.json", *OPTIONS, "--output", "a.yaml")
    assert load_config("a.yaml").source.paths == ["data/*.json"]


def test_init_of_a_bucket_looks_at_its_objects_and_keeps_the_address(
    moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    moto_client.put_object(Bucket="corpus", Key="crawl/a.jsonl.gz", Body=gzip.compress(b'{"body": "long text"}\n'))
    pq.write_table(pa.table({"n": [1], "body": ["b"]}), "b.parquet")
    moto_client.put_object(Bucket="corpus", Key="crawl/b.parquet", Body=Path("b.parquet").read_bytes())
    assert "in 2 of 2 lines" in init("s3://corpus/crawl", *OPTIONS, "--output", "a.yaml")
    config = load_config("a.yaml")
    assert (config.source.paths, config.source.text_field) == (["s3://corpus/crawl"], "body")


def test_init_of_a_damaged_file_names_it() -> None:
    Path("data/a.jsonl.gz").write_bytes(gzip.compress(lines_of(make_documents(20)))[:100])
    with raises("source.truncated", "a.jsonl.gz"):
        init("data", *OPTIONS)


def test_init_keeps_a_file_that_is_there() -> None:
    write_lines("data/a.jsonl", {"text": "a"})
    Path("data.yaml").write_text("mine")
    with raises("config.output_exists"):
        init("data", *OPTIONS)
    assert Path("data.yaml").read_text() == "mine"


@pytest.mark.parametrize("folder", [".", "../here"])
def test_init_of_the_folder_that_it_builds_into_reads_its_files_and_its_other_folders(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("a.jsonl").write_bytes(lines_of(make_documents(20)))
    Path("below/b.jsonl").write_bytes(lines_of(make_documents(20)))
    for beside in ("code", ".venv"):
        Path(beside).mkdir()
        Path(beside, "setup.py").touch()
    output = init(folder, *OPTIONS, "--output", "a.yaml")
    assert "2 source files," in output
    assert [Path(path).name for path in load_config("a.yaml").source.paths] == ["*", "below"]
    versions = set()
    for _ in range(2):  # the second build must not read what the first one wrote
        assert CliRunner().invoke(app, ["build", "a.yaml", "--workers", "1"], catch_exceptions=False).exit_code == 0
        versions.add(Path("outputs/a/latest").resolve().name)
    assert len(versions) == 1


def test_init_with_an_unknown_tokenizer_writes_nothing() -> None:
    write_lines("data/a.jsonl", {"text": "a"})
    with raises("tokenizer.unknown"):
        init("data", "--tokenizer", "gpt9", "--export", "megatron")
    assert not Path("data.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "option"),
    [([], "INPUT"), (["data"], "--tokenizer"), (["data", "--tokenizer", "x"], "--export")],
)
def test_init_without_a_terminal_names_the_option_that_is_missing(arguments: list[str], option: str) -> None:
    done = CliRunner().invoke(app, ["init", *arguments])
    assert (done.exit_code, option in done.output) == (2, True)


@pytest.mark.parametrize("exports", ["csv", "megatron,csv", ",", " "])
def test_init_of_an_unknown_format_is_refused(exports: str) -> None:
    done = CliRunner().invoke(app, ["init", "data", "--tokenizer", "cl100k_base", "--export", exports])
    assert done.exit_code == 2
    assert "webdataset" in done.output


def test_init_on_a_terminal_asks_for_what_is_missing() -> None:
    write_lines("data/a.jsonl", {"text": "a"})
    ours, theirs = pty.openpty()
    os.write(ours, b"dta\n\ncl100k_bas\n\nnanoste\nnanoset\n")
    code = "from corpusmill.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "init"], stdin=theirs, capture_output=True, text=True, check=True
    )
    os.close(ours)
    os.close(theirs)
    assert done.stdout.count("Tokenizer") == done.stdout.count("Folder with your text") == 2
    config = load_config("data.yaml")
    assert (config.tokenizer.name, config.exports.formats()) == ("cl100k_base", ["nanoset"])


def test_init_takes_several_inputs_and_patterns() -> None:
    write_lines("data/a.jsonl", {"text": "a"})
    Path("more").mkdir()
    write_lines("more/b.jsonl", {"text": "b"})
    write_lines("more/c.jsonl.1", {"text": "c"})
    init("data", "more/*.jsonl", *OPTIONS)
    assert load_config("data.yaml").source.paths == ["data", "more/*.jsonl"]


def test_init_replaces_a_configuration_that_init_wrote_where_asked_to() -> None:
    write_lines("data/a.jsonl", {"text": "a"})
    init("data", *OPTIONS)
    init("data", "--tokenizer", "cl100k_base", "--export", "nanoset", "--force")
    assert load_config("data.yaml").exports.formats() == ["nanoset"]
    Path("data.yaml").write_text("mine")
    with raises("command.file_of_others"):
        init("data", *OPTIONS, "--force")
    assert Path("data.yaml").read_text() == "mine"


def test_survey_of_many_files_opens_few_of_them() -> None:
    for number in range(MOST_FILES * 3 + 1):
        write_lines(f"data/{number}.jsonl", {"text": "a"})
    survey = survey_sources(list_sources([str(Path("data").resolve())], (".jsonl",)))
    assert survey.endings == {".jsonl": MOST_FILES * 3 + 1}
    assert MOST_FILES // 2 < len(survey.files) <= MOST_FILES


@given(st.integers(0, 1 << 40))
def test_init_shard_size_makes_at_most_sixteen_shards_of_a_moderate_corpus(size_bytes: int) -> None:
    chosen = int(shard_size(size_bytes).removesuffix("MiB")) << 20
    assert 4 << 20 <= chosen <= 256 << 20
    assert math.ceil(size_bytes / chosen) <= 16 or chosen == 256 << 20
