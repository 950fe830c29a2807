"""The tokenizer's part of a configuration: locked, checked before anything runs, stated by every receipt, and
as docs/tokenizers.md has it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.vocabularies import PAGE, RESULT, page
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import check_config, load_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.report.summary import EncodedSummary
from corpusmill.tokens.stages.tokenize import locked
from corpusmill.upload.stages.summarize import summarize
from tests.raising import raises
from tests.system.corpus import configuration, lines_of
from tests.tokens.vocabularies import GPT2, described, shared, with_added, written


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_bytes(lines_of(["Some TEXT, and <|endoftext|> in it.", "more"]))
    tokenizer = {"name": "ours", "file": written(described(GPT2), tmp_path)}
    path = tmp_path / "tiny.yaml"
    values = configuration(tmp_path, dedup={"mode": "none"}, tokenizer=tokenizer, exports={"nanoset": {}})
    path.write_text(yaml.safe_dump(values))
    return path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_config_lock_pins_the_vocabulary_that_every_receipt_states(config, tmp_path) -> None:
    sha256 = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    assert sha256 in run("config", "lock", config)
    text = config.read_text()
    assert yaml.safe_load(text)["lock"] == {"tokenizer_sha256": sha256, "tokenizer_revision": ""}
    run("config", "lock", config)
    assert config.read_text() == text  # once is enough
    built = open_build(build_dataset(load_config(config), workers=1))
    for receipt in built.receipts("tokenize"):
        assert receipt.details["vocabulary"]["sha256"] == sha256
    receipts = list((tmp_path / "work").rglob(RECEIPT_NAME))
    assert {path.parents[1].name for path in receipts} >= {"plan", "download", "tokenize", "gather", "upload", "report"}
    assert {json.loads(path.read_bytes())["versions"]["tokenizer_sha256"] for path in receipts} == {sha256}
    dataset = json.loads((tmp_path / "outputs/tiny/latest/dataset.json").read_text())
    assert dataset["vocabulary"]["sha256"] == sha256


@pytest.mark.parametrize("command", [("config", "check"), ("config", "lock"), ("build",), ("estimate",)])
def test_locked_configuration_refuses_a_vocabulary_that_changed(config, tmp_path, command) -> None:
    run("config", "lock", config)
    description = described(GPT2)
    vocabulary = description["model"]["vocab"]
    vocabulary["!"], vocabulary['"'] = vocabulary['"'], vocabulary["!"]
    written(description, tmp_path)
    with raises("tokenizer.not_locked"):
        run(*command, config)
    assert not (tmp_path / "outputs").exists()


def test_configuration_locked_to_a_hub_tokenizer_that_names_another_says_that_it_is_locked(config) -> None:
    """The lock's revision is none that somebody wrote beside a published encoding."""
    lock = {"tokenizer_sha256": "0" * 64, "tokenizer_revision": "0123abcd"}
    values = {**yaml.safe_load(config.read_text()), "tokenizer": {"name": "cl100k_base"}, "lock": lock}
    config.write_text(yaml.safe_dump(values))
    with raises("tokenizer.not_locked"):
        locked(load_config(config))


def test_config_check_engine_whose_ids_would_differ_names_the_one_that_is_needed(config, tmp_path) -> None:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = [{"type": "Punctuation", "behavior": "Isolated"}, level]
    changed = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    written(described(GPT2, **changed), tmp_path)
    reason = "its pre_tokenizer is Punctuation and ByteLevel"
    values = yaml.safe_load(config.read_text())
    values["tokenizer"]["engine"] = "gigatoken"
    config.write_text(yaml.safe_dump(values))
    with raises("tokenizer.needs_engine", "tokenizers", reason):
        run("config", "check", config)
    values["tokenizer"].pop("engine")
    config.write_text(yaml.safe_dump(values))
    assert f"engine tokenizers ({reason}), texts end with id 50256" in run("config", "check", config)
    built = open_build(build_dataset(load_config(config), workers=1))
    assert built.receipt("audit", "00000").counts["round_trips"] == 0  # nothing is promised of such pieces


def beside_the_vocabulary(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content))


def test_build_without_an_engine_says_how_each_document_was_encoded(config, tmp_path) -> None:
    """One of the two documents holds a special token's string, and one an added token's."""
    written(with_added(described(GPT2), content="more", single_word=True), tmp_path)
    built = open_build(build_dataset(load_config(config), workers=1))
    counts = built.receipts("tokenize")[0].counts
    assert (counts["documents_by_reference"], counts["documents_special"]) == (1, 1)
    assert summarize(built).encoded == EncodedSummary(engines=("gigatoken",), documents=2, by_reference=1, special=1)


def test_build_keeps_the_ending_token_that_was_stated_beside_the_vocabulary_in_its_lock(config, tmp_path) -> None:
    written(described(GPT2, added_tokens=[]), tmp_path)
    beside_the_vocabulary(tmp_path, "tokenizer_config.json", {"eos_token": "!"})
    run("config", "lock", config)
    assert yaml.safe_load(config.read_text())["lock"]["tokenizer_eot"] == "!"
    built = open_build(build_dataset(load_config(config), workers=1))
    assert built.receipts("tokenize")[0].details["vocabulary"]["eot_id"] == 0
    beside_the_vocabulary(tmp_path, "tokenizer_config.json", {"eos_token": "#"})
    with raises("tokenizer.not_locked", "text ends with !"):
        run("build", config)


def test_config_check_vocabulary_larger_than_the_embeddings_beside_it_says_so(config, tmp_path) -> None:
    beside_the_vocabulary(tmp_path, "config.json", {"vocab_size": 50_257})
    assert "embeddings" not in run("config", "check", config)
    beside_the_vocabulary(tmp_path, "config.json", {"vocab_size": 50_000})
    assert "ids go up to 50,256, but the config.json beside the tokenizer has 50,000 embeddings" in run(
        "config", "check", config
    )


def lossy(tmp_path: Path, how: str) -> dict[str, str]:
    """Tokenizers that pass every check but do not give back a text."""
    if how == "no decoder":
        return {"name": written(described(GPT2, decoder=None), tmp_path)}
    return {"name": str(shared("r50k_base.tiktoken")), "pattern": how}


LOSSY = {
    "llama9": ("tokenizer.pattern_is_a_word", "cl100k_base, o200k_base, p50k_base, r50k_base"),
    r"[a-z]+| +": ("audit.not_decodable", "tricky.yaml", "tokenizer.pattern (--pattern)"),
    "no decoder": ("audit.not_decodable", "tricky.yaml", '"decoder": {"type": "ByteLevel"}'),
}


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (("config", "check"), r"[a-z]+| +"),
        (("plan",), "no decoder"),
        (("build",), r"[a-z]+| +"),
        (("export", "--format", "nanoset"), "llama9"),
        (("estimate",), r"[a-z]+| +"),
    ],
)
def test_configuration_whose_tokenizer_loses_text_is_refused_before_the_work(config, tmp_path, command, how) -> None:
    special = {} if how == "no decoder" else {"special_tokens": {"<|endoftext|>": 50256}}
    values = {**yaml.safe_load(config.read_text()), "tokenizer": {**lossy(tmp_path, how), **special}}
    config.write_text(yaml.safe_dump(values))
    with raises(*LOSSY[how]):
        run(*command, config)
    assert {path.name for path in (tmp_path / "work").glob("tiny/*") if path.is_dir()} <= {"plan"}
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("command", "how"), [("tokenize", r"[a-z]+| +"), ("megatron", "no decoder"), ("nanoset", "llama9")]
)
def test_command_whose_tokenizer_loses_text_is_refused_before_the_work(config, tmp_path, command, how) -> None:
    wanted = lossy(tmp_path, how)
    options = ["--tokenizer", wanted["name"], "--output", tmp_path / "made"]
    if how != "no decoder":
        options += ["--pattern", wanted["pattern"], "--special-token", "<|endoftext|>=50256"]
    with raises(*LOSSY[how]):
        run(command, tmp_path / "corpus", *options)
    assert not list(tmp_path.glob("made*"))


def test_shard_reprocessed_with_a_tokenizer_that_loses_text_is_refused_before_the_work(config, tmp_path) -> None:
    values = yaml.safe_load(config.read_text())
    values["tokenizer"] = {"name": lossy(tmp_path, "")["name"], "special_tokens": {"<|endoftext|>": 50256}}
    config.write_text(yaml.safe_dump({**values, "tokenizer": {**values["tokenizer"], "pattern": "r50k_base"}}))
    run("build", config)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob(RECEIPT_NAME)}
    config.write_text(yaml.safe_dump({**values, "tokenizer": {**values["tokenizer"], "pattern": r"\w+"}}))
    with raises("audit.not_decodable", "tricky.yaml"):
        run("reprocess", config, "--stage", "tokenize", "--shard", "0")
    after = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob(RECEIPT_NAME) if "plan" not in path.parts
    }
    assert after == {path: before[path] for path in after}


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3"])
def test_tokenizers_page_configuration_is_valid_and_names_no_engine(name: str) -> None:
    text = PAGE.read_text()
    assert f"name: {name}" in text
    values = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    values["tokenizer"]["name"] = name
    assert check_config(values, where="docs/tokenizers.md").tokenizer.engine == "auto"
    assert "engine" not in values["tokenizer"]


def test_tokenizers_page_table_is_that_of_the_result_file() -> None:
    text = PAGE.read_text()
    result = json.loads(RESULT.read_text())
    assert page(result, text) == text
    rows = result["figures"]["tokenizers"].values()
    assert rows
    assert sum(row["documents_unequal"] + row["tricky_unequal"] for row in rows) == 0
