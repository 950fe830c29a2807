"""`corpusmill build data --tokenizer ...`: one line from text to a dataset, and the configuration that it leaves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from corpusmill.cli import app, main
from corpusmill.commands.build import FORMATS, Reader
from corpusmill.config import FORMATS as KNOWN
from corpusmill.config import load_config, parse_config
from corpusmill.config.starter import PRESETS, starter
from corpusmill.errors import CorpusmillError
from tests.hub import Hub
from tests.raising import raises
from tests.system.corpus import lines_of, make_documents

LINE = ["build", "data", "--tokenizer", "cl100k_base", "--export", "megatron", "--output", "out/web", "--workers", "1"]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORPUSMILL_ROOT", raising=False)
    Path("data").mkdir()
    Path("data/news.jsonl").write_bytes(lines_of(make_documents(20)))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def delivered() -> dict[str, bytes]:
    folder = Path("out/web/latest").resolve()
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_line_builds_and_its_configuration_goes_on_with_the_same_dataset() -> None:
    first = run(*LINE, "--dedup", "100", "--shuffle-seed", "7", "--near", "0.9")
    assert first.exit_code == 0, first.output
    assert "out/web.yaml is the configuration" in first.output
    config = load_config("out/web.yaml")
    assert (config.name, config.source.paths, config.shuffle.seed) == ("web", ["data"], 7)
    assert (config.dedup.mode, config.dedup.minimum_bytes) == ("remove", 100)
    assert config.near_duplicates is not None
    assert config.near_duplicates.similarity == 0.9
    before = delivered()
    assert {name.partition("/")[0] for name in before} >= {"megatron", "dataset.json"}
    assert run("build", "out/web.yaml", "--workers", "1").exit_code == 0
    Path("data/more.jsonl").write_bytes(lines_of(make_documents(5, seed=3), first=20))
    again = run(*LINE, "--dedup", "100", "--shuffle-seed", "7", "--near", "0.9")
    assert (again.exit_code, "resuming" in again.output) == (0, True)
    assert delivered() != before


def test_line_with_other_options_leaves_the_configuration_alone_until_forced() -> None:
    Path("out").mkdir()
    run(*LINE, "--dedup", "100")
    written = Path("out/web.yaml").read_bytes()
    with raises("config.output_differs", "--force"):
        run(*LINE, "--dedup", "0")
    assert Path("out/web.yaml").read_bytes() == written
    assert run(*LINE, "--dedup", "0", "--force").exit_code == 0
    assert load_config("out/web.yaml").dedup.mode == "none"
    Path("out/web.yaml").write_text("name: mine\n")
    with raises("command.file_of_others"):
        run(*LINE, "--force")


@pytest.mark.parametrize(("place", "wrong"), [(1, "nothing"), (3, "nothing.json")])
def test_forced_line_that_cannot_be_configured_keeps_the_configuration_that_is_there(place: int, wrong: str) -> None:
    Path("out").mkdir()
    Path("out/web.yaml").write_text(starter())
    words = [*LINE, "--force"]
    words[place] = wrong
    assert isinstance(CliRunner().invoke(app, words).exception, CorpusmillError)
    assert Path("out/web.yaml").read_text() == starter()


@pytest.mark.parametrize("output", ["~/web", "file://{}/web"])
def test_configuration_of_a_line_lies_beside_the_dataset_however_its_folder_is_written(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    words = [*LINE]
    words[words.index("out/web")] = output.format(home)
    assert run(*words).exit_code == 0
    assert {path.name for path in home.iterdir()} == {"web", "web.yaml"}
    assert not {*Path().glob("~"), *Path().glob("web.yaml")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data"], "corpusmill build FOLDER --tokenizer"),
        (["data", "--export", "megatron"], "text needs --tokenizer"),
        (["data", "more"], "text needs --tokenizer"),
        (["web.yaml", "--output", "out"], "a configuration has all its settings"),
        (["data", "--tokenizer", "cl100k_base"], "text needs --export or --for"),
        (["data", "--tokenizer", "cl100k_base", "--for", "megatron"], "text needs --output"),
        (["data", "--tokenizer", "cl100k_base", "--for", "megatron", "--export", "numpy", "--output", "o"], "not both"),
        (["data", "--tokenizer", "cl100k_base", "--for", "megatron", "--output", "Out 1"], "such as out-1"),
        (["data", "--tokenizer", "cl100k_base", "--for", "megatron", "--output", "s3://bucket"], "names the dataset"),
        (["-", "--tokenizer", "cl100k_base", "--for", "megatron", "--output", "out"], "write it to a file first"),
        (["dta", "--tokenizer", "cl100k_base", "--for", "megatron", "--output", "out"], "did you mean"),
    ],
)
def test_line_that_is_not_whole_is_a_usage_error_and_writes_nothing(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().rglob("*"))
    monkeypatch.setattr(sys, "argv", ["corpusmill", "build", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("reader", PRESETS)
def test_preset_is_a_configuration_of_known_formats(reader: str) -> None:
    config = parse_config(starter(exports=PRESETS[reader]), where=reader)
    dumped = config.exports.model_dump(exclude_none=True, exclude_defaults=True)
    assert {name: section | PRESETS[reader].get(name, {}) for name, section in dumped.items()} == dumped
    assert dumped.keys() == PRESETS[reader].keys()


def test_line_for_nanochat_leaves_a_folder_whose_last_file_by_name_validates() -> None:
    words = [*LINE, "--dedup", "0"]
    words[4:6] = ["--for", "nanochat"]
    assert run(*words).exit_code == 0
    paths = sorted(str(path) for path in Path("out/web/latest/parquet_text").iterdir())
    assert [Path(path).name for path in paths] == ["train-00000.parquet", "validation-00001.parquet"]
    texts = [text for path in paths for text in pq.read_table(path).column("text").to_pylist()]
    assert sorted(texts) == sorted(text for text in make_documents(20) if text)


def test_commands_name_every_format_and_every_preset() -> None:
    assert set(get_args(Reader)) == set(PRESETS)
    assert set(FORMATS.split(", ")) == set(KNOWN)


def test_text_in_a_bucket_becomes_a_dataset_in_a_bucket(
    moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_client.put_object(Bucket="corpus", Key="raw/a.jsonl", Body=lines_of(make_documents(20)))
    words = [*LINE, "--endpoint-url", moto]
    words[1], words[words.index("out/web")] = "s3://corpus/raw", "s3://corpus/sets/web"
    assert run(*words).exit_code == 0
    assert load_config("web.yaml").destinations[0].endpoint_url == moto
    listed = moto_client.list_objects_v2(Bucket="corpus", Prefix="sets/web/")["Contents"]
    assert any(item["Key"].endswith(".idx") for item in listed)


def test_text_on_the_hub_becomes_a_dataset_by_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*LINE]
    words[1] = "hf://datasets/owner/name"
    with Hub({"data/a.jsonl": lines_of(make_documents(20))}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert run(*words).exit_code == 0
    assert load_config("out/web.yaml").source.paths == ["hf://datasets/owner/name"]
    assert {name.partition("/")[0] for name in delivered()} >= {"megatron", "documents"}


@pytest.mark.parametrize(
    "line",
    [
        "build s3://corpus/raw --tokenizer cl100k_base --export megatron --output out/web --workers 1",
        "dedup s3://corpus/raw --output clean --workers 1",
        "tokenize s3://corpus/raw --tokenizer cl100k_base --output tokens",
        "step try corpusmill.steps.gopher:Quality s3://corpus/raw",
    ],
)
def test_public_bucket_is_read_without_credentials_if_the_command_is_anonymous(
    line: str, moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_client.put_object(Bucket="corpus", Key="raw/a.jsonl", Body=lines_of(make_documents(20)), ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    words = [*line.split(), "--endpoint-url", moto]
    with raises("s3.no_credentials", "--anonymous"):
        run(*words)
    assert run(*words, "--anonymous").exit_code == 0
