from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ByteSize, TypeAdapter, ValidationError

from corpusmill.config import EXAMPLE, FORMATS, DatasetConfig, absolute, check_config, load_config, parse_config
from corpusmill.config.reading import SHAPES
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.config.starter import example_text, starter
from tests.raising import raises

MINIMAL = """
name: tiny
source: {paths: [data]}
dedup: {mode: none}
tokenizer: {name: cl100k_base}
shuffle: {seed: 1}
exports: {megatron: }
destinations: [{path: out}]
"""


def test_config_example_file_is_valid() -> None:
    assert load_config(EXAMPLE).name == "web-en"


def test_config_example_file_names_every_key() -> None:
    values = yaml.safe_load(EXAMPLE.read_text())

    def keys(model: type, actual: object, path: str) -> None:
        for field_name, field in model.model_fields.items():  # type: ignore[attr-defined]
            name = field.alias or field_name
            assert name in actual, f"{path}{name} is not in the example"  # type: ignore[operator]
            inner = [
                item
                for item in getattr(field.annotation, "__args__", (field.annotation,))
                if hasattr(item, "model_fields")
            ]
            for section in inner:
                value = actual[name]  # type: ignore[index]
                value = (
                    {key: entry for item in value for key, entry in item.items()} if isinstance(value, list) else value
                )
                keys(section, value, f"{path}{name}.")

    keys(DatasetConfig, values, "")


def test_config_example_as_printed_is_valid_and_names_nothing_that_is_not_there() -> None:
    """The folder with the text is all that it needs; what needs more of one's own stands in comments."""
    text = example_text()
    values = yaml.safe_load(text)
    assert check_config(values, where="x").source.paths == ["data"]
    hidden = ["steps", "decisions", "forget", "decontamination", "near_duplicates", "budget", "lock", "card"]
    assert not {*hidden} & values.keys()
    assert all(f"\n# {section}:" in text for section in hidden)
    assert values["tokenizer"]["file"] is None
    assert not re.search(r"[0-9a-f]{64}", text.replace("0" * 64, ""))
    whole = re.sub(rf"^# (?={':|'.join(hidden)}:|  )", "", text, flags=re.MULTILINE)
    assert parse_config(whole, where="x") == load_config(EXAMPLE)


def test_config_short_example_has_twelve_lines_each_key_with_a_comment() -> None:
    lines = starter().splitlines()
    assert len(lines) == 12
    assert [line for line in lines if "#" not in line] == ["source:"]
    assert parse_config(starter(), where="x").exports.formats() == ["megatron"]


@pytest.mark.parametrize(
    "odd", ["a: b", "[x]", "über", "- y", "#z", "null", "1", "a,b", '"', "{c}", "it's", "s3://b/*"]
)
def test_config_starter_holds_any_text_as_it_is(odd: str) -> None:
    config = parse_config(
        starter(paths=[odd], text_field=odd, exports={name: {} for name in FORMATS}, shard_bytes="8MiB"), where="x"
    )
    assert (config.source.paths, config.source.text_field) == ([odd], odd)
    assert config.exports.formats() == list(FORMATS)


def test_config_bare_export_key_turns_the_format_on() -> None:
    assert parse_config(MINIMAL, where="x").exports.formats() == ["megatron"]


def test_config_sizes_with_units_are_bytes() -> None:
    text = MINIMAL.replace("{paths: [data]}", "{paths: [data], shard_bytes: 16MiB}")
    assert parse_config(text, where="x").source.shard_bytes == 16 << 20


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shuffle: {seed: 1}", "shufle: {seed: 1}", ["config.unknown_key", "line 6: shufle", "shuffle?"]),
        (
            "{mode: none}",
            "{mode: none, minimum_byte: 7}",
            ["config.unknown_key", "dedup.minimum_byte", "minimum_bytes?"],
        ),
        ("{seed: 1}", "{}", ["config.seed_missing", "line 6: shuffle"]),
        ("tokenizer: {name: cl100k_base}", "", ["config.missing_key", "tokenizer"]),
        ("{mode: none}", "{mode: remove}", ["config.minimum_bytes_missing"]),
        ("{mode: none}", "{mode: remove, minimum_bytes: 6}", ["config.minimum_bytes_too_small", "7", "got 6"]),
        ("name: tiny", "name: ../evil", ["config.wrong_value", "name", "../evil"]),
        (
            "{paths: [data]}",
            "{paths: [data], shard_bytes: 5 bananas}",
            ["config.wrong_value", "source.shard_bytes", "bananas"],
        ),
        ("{paths: [data]}", "{paths: []}", ["config.wrong_value", "source.paths"]),
        ("{paths: [data]}", "{paths: data}", ["config.wrong_value", "source.paths", "must be a list, got 'data'"]),
        ("{name: cl100k_base}", "cl100k_base", ["config.wrong_value", "must be a section with keys of its own"]),
        ("{paths: [data]}", "{paths: [data], id_field: ''}", ["config.wrong_value", "must not be empty, got ''"]),
        ("{paths: [data]}", "{paths: [data], 1: 2}", ["config.wrong_value", "a key must be text, got 1"]),
        (
            "name: tiny",
            "name: Tiny",
            ["config.wrong_value", "must be lower-case letters, digits, - and _", "got 'Tiny'"],
        ),
        ("name: tiny", "name: tiny\ndag: {start: soon}", ["config.wrong_value", "must be a date, such as 2026-01-31"]),
        (
            "{megatron: }",
            "{parquet_documents: {columns: ids}}",
            ["config.wrong_value", "must be a list"],
        ),
        ("exports: {megatron: }", "exports: {}", ["config.no_export"]),
        (
            "exports: {megatron: }",
            "exports: {parquet_contexts: }\npacking: {tail: always_pad}",
            ["config.always_pad_of_rows", "set tail: pad"],
        ),
        ("[{path: out}]", "[{path: out}, {path: out}]", ["config.destination_twice"]),
        ("name: tiny", "name: tiny\nname: tiny2", ["config.key_twice", "lines 2 and 3"]),
        ("{seed: 1}", "{seed: [1}", ["config.not_yaml"]),
        ("{seed: 1}", "{seed: true}", ["config.wrong_value", "shuffle.seed", "got True"]),
        *(
            (
                "{mode: none}",
                f"{{mode: annotate, minimum_bytes: 500, annotate_key: {key}}}",
                ["config.annotation_place", f"dedup.annotate_key {key} "],
            )
            for key in ("text", "text.ranges", "a..b", ".a", "a.")
        ),
    ],
)
def test_config_bad_value_names_key_and_mend(old: str, new: str, message: list[str]) -> None:
    assert old in MINIMAL
    with raises(*message, "x.yaml"):
        parse_config(MINIMAL.replace(old, new), where="x.yaml")


def test_config_every_pattern_is_told_in_words() -> None:
    def patterns(node: Any) -> Iterator[str]:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            yield from [value] if key == "pattern" and isinstance(value, str) else patterns(value)

    sizes = TypeAdapter(ByteSize).json_schema()["anyOf"][0]["pattern"]
    assert {*patterns(DatasetConfig.model_json_schema())} - {sizes} == SHAPES.keys()


def test_config_tuple_whose_one_item_is_wrong_has_one_problem() -> None:
    with raises("config.wrong_value", "columns.0") as caught:
        parse_config(MINIMAL.replace("{megatron: }", "{parquet_documents: {columns: [ids]}}"), where="x.yaml")
    assert "empty" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_config_that_is_no_mapping_is_refused(text: str) -> None:
    with raises("config.not_a_mapping"):
        parse_config(text, where="x.yaml")


def test_config_missing_file_says_how_to_make_one(tmp_path) -> None:
    with raises("config.no_such_file", "corpusmill init FOLDER --output"):
        load_config(tmp_path / "none.yaml")


def test_config_relative_paths_start_at_the_root_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    assert absolute("data/web") == str(tmp_path / "data/web")
    assert absolute("/data/web") == "/data/web"
    assert absolute("s3://bucket/data") == "s3://bucket/data"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{paths: [data]}", "{paths: [data], endpoint_url: 'https://key:hush@store:9000'}"),
        ("{paths: [data]}", "{paths: ['s3://key:hush@bucket/data']}"),
        ("{path: out}", "{path: 's3://bucket/out', endpoint_url: 'http://hush@store'}"),
        ("{path: out}", "{path: 'gs://key:hush@bucket/out'}"),
    ],
)
def test_config_address_with_credentials_is_refused_and_not_repeated(old: str, new: str) -> None:
    """A configuration is copied into the plan and its receipt."""
    with raises("config.credentials") as caught:
        parse_config(MINIMAL.replace(old, new), where="x")
    assert "hush" not in str(caught.value)


def test_config_address_with_a_revision_is_none_with_credentials() -> None:
    paths = ["hf://datasets/owner/name@main", "s3://bucket/a@b.jsonl", "data@home"]
    assert parse_config(MINIMAL.replace("[data]", str(paths)), where="x").source.paths == paths


@pytest.mark.parametrize(
    "paths",
    [
        ("/out", "/out/"),
        ("/out", "/x/../out/."),
        ("s3://b/x", "s3://b/x/"),
    ],
)
def test_config_destinations_that_are_one_place_are_refused(paths: tuple[str, str]) -> None:
    text = MINIMAL.replace("[{path: out}]", "[" + ", ".join(f"{{path: {path}}}" for path in paths) + "]")
    with raises("config.destination_twice"):
        parse_config(text, where="x.yaml")


def test_config_one_bucket_at_two_stores_is_two_destinations() -> None:
    places = "[{path: 's3://b/x', endpoint_url: 'http://a:9000'}, {path: 's3://b/x', endpoint_url: 'http://b:9000'}]"
    assert len(parse_config(MINIMAL.replace("[{path: out}]", places), where="x").destinations) == 2


def test_config_bucket_as_work_folder_is_a_prefix() -> None:
    place = "s3://bucket/x"
    assert parse_config(f"{MINIMAL}\nwork_folder: {place}\n", where="x.yaml").work_folder == place
    for refused in ("s3://bucket", "s3://bucket/../x", "s3:///x", "gs://bucket/x", "http://bucket/x"):
        with raises("config.work_folder_bucket config.work_folder_scheme"):
            parse_config(f"{MINIMAL}\nwork_folder: {refused}\n", where="x.yaml")


@pytest.mark.parametrize(
    ("schedule", "works"),
    [
        ("30 2 * * 1", True),
        ("*/15 0-6,22-2 1,L JAN-MAR/2 mon#2", True),
        ("59 23 31 12 7", True),
        ("0 0 ? * 5#3", True),
        ("0 0 L * L5", True),
        ("99 * * * *", False),
        ("0 25 * * *", False),
        ("0 0 0 * *", False),
        ("0 0 32 * *", False),
        ("0 0 1 13 *", False),
        ("0 0 * * 8", False),
        ("*/0 * * * *", False),
        ("1-60 * * * *", False),
        (", * * * *", False),
        ("1- * * * *", False),
    ],
)
def test_schedule_of_cron_fields_is_refused_unless_its_values_exist(schedule: str, works: bool) -> None:
    if works:
        assert ScheduleConfig(schedule=schedule).schedule == schedule
    else:
        with pytest.raises(ValidationError, match="not a schedule"):
            ScheduleConfig(schedule=schedule)


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("{most: .inf}", "with.most"),
        ("{most: {less: [1, .nan]}}", "with.most.less[1]"),
        ("{since: 2026-01-01}", "with.since"),
        ("{labels: {1: spam}}", "the key with.labels.1"),
        ("{words: !!set {a, b}}", "with.words"),
    ],
)
def test_config_step_setting_that_json_would_change_is_refused(written: str, place: str) -> None:
    """The plan hands a step's settings on as JSON: .inf became null, and the key 1 became "1"."""
    with raises("config.with_not_json", place):
        parse_config(MINIMAL + f'steps: [{{use: "own:cap", with: {written}}}]', where="a test")


def test_config_step_settings_come_back_from_json_as_they_are() -> None:
    kept = {"a": None, "b": True, "c": 1, "d": 1.0, "e": 1 << 70, "f": ["x", {"g": []}], "h": -0.0, "": "ü"}
    config = check_config({**yaml.safe_load(MINIMAL), "steps": [{"use": "own:cap", "with": kept}]}, where="a test")
    again = DatasetConfig.model_validate_json(config.model_dump_json(exclude_none=True))
    assert again.steps is not None
    assert repr(again.steps[0].settings) == repr(kept)


@pytest.mark.parametrize(("name", "file", "expected"), [("gpt2", None, "r50k_base"), ("gpt2", "own.json", "gpt2")])
def test_tokenizer_of_a_model_is_its_encoding_unless_a_file_has_the_vocabulary(name, file, expected) -> None:
    values = yaml.safe_load(EXAMPLE.read_text()) | {"tokenizer": {"name": name} | ({"file": file} if file else {})}
    assert check_config(values, where="test").tokenizer.name == expected
