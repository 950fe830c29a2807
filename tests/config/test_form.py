"""The web form shows a configuration, and its fields give that configuration back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config import EXAMPLE, FORMATS, LARGEST_SIZE, DatasetConfig, check_config, load_config
from corpusmill.config.form import (
    FIELDS,
    RESERVED,
    FormField,
    changed_keys,
    config_from_form,
    form_from_config,
    size_text,
)
from corpusmill.errors import ConfigError
from tests.quick import examples
from tests.raising import raises

DEMO = Path(__file__).resolve().parents[2] / "dags" / "datasets" / "demo.yaml"
SCHEMA = {"type": "object", "properties": {item.name: item.schema for item in FIELDS}}

words = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
sizes = st.integers(min_value=1, max_value=LARGEST_SIZE)
counts = st.integers(min_value=2, max_value=1 << 40)
WEBDATASET = {"context_tokens": counts, "contexts_per_shard": counts, "exp_data": st.booleans()}
NUMPY = {
    "tokens_per_shard": counts,
    "test_share": st.floats(0, 0.99),
    "test_shards": st.integers(0, 1 << 40),
    "test_name": st.just("val"),
    "file_name": st.just("{split}_{number}.npy"),
    "placeholders": st.booleans(),
}
sections = st.fixed_dictionaries(
    {},
    optional={
        "webdataset": st.fixed_dictionaries({}, optional=WEBDATASET),
        "numpy": st.fixed_dictionaries({}, optional=NUMPY),
        "megatron": st.fixed_dictionaries({}, optional={"part_bytes": sizes}),
        "nanoset": st.fixed_dictionaries({}, optional={"file_bytes": sizes}),
    },
).filter(bool)
hexadecimal = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
SHUFFLE = {"memory": sizes, "cells": st.integers(1, 4096), "significance": st.floats(0.0001, 0.4)}
STEP = {"with": st.dictionaries(words, words | st.none() | st.booleans() | sizes, max_size=2), "version": counts}
configs = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True),
        "source": st.fixed_dictionaries(
            {"paths": st.lists(words, min_size=1, max_size=3)},
            optional={
                "text_field": words,
                "max_rejected_share": st.floats(0, 1),
                "shard_bytes": sizes,
                "endpoint_url": words,
            },
        ),
        "dedup": st.fixed_dictionaries(
            {"mode": st.sampled_from(["remove", "annotate", "none"]), "minimum_bytes": st.integers(7, 1 << 20)},
            optional={
                "annotate_key": words.map(lambda key: "r" * 20 + key.replace(".", "")),  # longer than any text field
                "writeback": st.booleans(),
                "memory": sizes,
                "fuzzy_share": st.floats(0, 1, exclude_min=True),
            },
        ),
        "tokenizer": st.fixed_dictionaries(
            {"name": st.from_regex(r"[a-z0-9_/-]{1,20}", fullmatch=True)},
            optional={
                "file": words,
                "sha256": hexadecimal,
                "eot": words | st.just(""),
                "special_tokens": st.dictionaries(words, st.integers(0, 1 << 30), max_size=2),
            },
        ),
        "shuffle": st.fixed_dictionaries({"seed": st.integers(0, (1 << 64) - 1)}, optional=SHUFFLE),
        "exports": sections,
        "destinations": st.lists(
            st.fixed_dictionaries({"path": words}, optional={"endpoint_url": words}),
            min_size=1,
            max_size=3,
            unique_by=lambda destination: destination["path"],
        ),
    },
    optional={
        "work_folder": words,
        "audit": st.fixed_dictionaries({}, optional={"share": st.floats(0, 1)}),
        "packing": st.fixed_dictionaries({}, optional={"fit": st.just("best_fit"), "bos": st.booleans()}),
        "lock": st.fixed_dictionaries({"tokenizer_sha256": hexadecimal}, optional={"tokenizer_revision": words}),
        # which no form sets
        "steps": st.lists(
            st.fixed_dictionaries({"use": st.from_regex(r"[a-z]{1,9}:[a-z]{1,9}", fullmatch=True)}, optional=STEP),
            min_size=1,
            max_size=1,
        ),
        "forget": st.fixed_dictionaries({"path": words, "copies": st.sampled_from(["keep", "also"])}),
        "keep_versions": st.integers(1, 9),
        "reclaim": st.just("eager"),
        "card": st.fixed_dictionaries({}, optional={"license": st.just("cc-by-4.0")}),
    },
).map(lambda values: check_config(values, where="a test"))


def demo_form() -> dict[str, Any]:
    return form_from_config(load_config(DEMO))


@examples(40)
@given(configs)
def test_form_of_any_config_gives_that_config_back_and_passes_its_schema(config: DatasetConfig) -> None:
    shown = form_from_config(config)
    assert config_from_form(shown, reserved=config) == config
    assert config_from_form({}, config) == config
    jsonschema.validate(shown, SCHEMA)


def test_form_of_a_config_with_every_key_gives_it_back() -> None:
    whole = load_config(EXAMPLE).model_copy(update={"dag": None})
    assert config_from_form(form_from_config(whole), reserved=whole) == whole


@pytest.mark.parametrize("key", sorted(RESERVED - {"dag"}))
def test_key_that_no_form_sets_comes_from_the_file_of_the_form(key: str) -> None:
    whole, demo = load_config(EXAMPLE), load_config(DEMO)
    file = check_config(
        demo.model_dump(mode="json", exclude_none=True)
        | {"keep_versions": 3, "reclaim": "eager", "budget": {demo.source.paths[0]: "2 epochs"}}
        | whole.model_dump(mode="json", include={"steps", "forget", "card"}),
        where="a test",
    )
    assert getattr(file, key) != getattr(demo, key)
    for formed in (config_from_form(form_from_config(file), reserved=file), config_from_form({}, file)):
        assert getattr(formed, key) == getattr(file, key)
    own = demo.model_copy(update={key: getattr(file, key)})
    assert sorted(changed_keys(file, own)) == sorted(RESERVED - {"dag", key})
    with raises("form.key_reserved", key):
        config_from_form({"settings": yaml.safe_dump({key: 1})}, file)


def test_changed_keys_are_named_with_their_sections() -> None:
    demo = load_config(DEMO)
    changed = config_from_form({"minimum_bytes": 99, "export_numpy": "off", "settings": "packing: {bos: true}"}, demo)
    assert changed_keys(changed, demo) == ["dedup.minimum_bytes", "exports.numpy", "packing.bos"]
    assert changed_keys(demo, demo) == []


def test_form_whose_file_states_a_budget_of_other_sources_is_refused() -> None:
    demo = load_config(DEMO)
    file = check_config(demo.model_dump() | {"budget": {demo.source.paths[0]: "2 epochs"}}, where="a test")
    with raises("config.budget_of_unknown_source", "budget: sample"):
        config_from_form({"source_paths": ["elsewhere"]}, file)


def test_empty_fields_take_what_the_chosen_configuration_says() -> None:
    base = load_config(DEMO)
    changed = config_from_form({"seed": "99", "export_numpy": "off", "settings": "packing: {fit: best_fit}"}, base)
    assert changed.shuffle.seed == 99
    assert changed.exports.formats() == ["webdataset", "megatron", "nanoset"]
    assert changed.packing.fit == "best_fit"
    assert changed.dedup == base.dedup


def test_settings_are_laid_over_the_chosen_configuration_key_by_key() -> None:
    base = load_config(DEMO)
    assert base.exports.megatron is not None
    text = "exports: {megatron: {part_bytes: 5GB}}\nsource: {id_field: url}\nwork_folder: elsewhere"
    changed = config_from_form({"settings": text}, base)
    assert changed_keys(changed, base) == ["source.id_field", "exports.megatron.part_bytes", "work_folder"]


def test_format_is_written_if_its_switch_or_else_the_settings_say_so() -> None:
    base, text = load_config(DEMO), "exports: {nanoset: {loss: true}, sample_documents: 3}"
    off = config_from_form({"export_nanoset": "off"}, base)
    assert off.exports.nanoset is None
    for formed in (config_from_form({"settings": text}, off), config_from_form({"export_nanoset": "on"}, off)):
        assert formed.exports.nanoset is not None
    both = config_from_form({"export_nanoset": "off", "settings": text}, base)
    assert (both.exports.nanoset, both.exports.sample_documents) == (None, 3)


def test_settings_show_what_the_file_says_beyond_the_fields_as_people_write_it() -> None:
    shown = yaml.safe_load(demo_form()["settings"])
    assert shown["exports"]["megatron"] == {"part_bytes": "16MiB"}
    assert shown["dedup"] == {"memory": "128MiB"}
    minimal = {"name": "x", "source": {"paths": ["a"]}, "dedup": {"mode": "none"}, "tokenizer": {"name": "cl100k_base"}}
    minimal |= {"shuffle": {"seed": 1}, "exports": {"megatron": {}}, "destinations": [{"path": "o"}]}
    assert form_from_config(check_config(minimal, where="a test"))["settings"] is None


def test_dag_section_is_not_part_of_the_form_and_changes_no_dump() -> None:
    config = load_config(DEMO)
    scheduled = check_config(config.model_dump() | {"dag": {"schedule": "@daily"}}, where="a test")
    assert scheduled.dag is not None
    assert scheduled.model_dump() == config.model_dump()
    assert form_from_config(scheduled) == form_from_config(config)
    assert changed_keys(scheduled, config) == []


def test_fields_left_empty_mean_the_defaults() -> None:
    required = {"name", "source_paths", "dedup_mode", "minimum_bytes", "tokenizer_name", "seed", "destinations"}
    form = {name: value if name in required else None for name, value in demo_form().items()} | {"export_numpy": "on"}
    config = config_from_form(form)
    assert config.source.text_field == "text"
    assert config.exports.numpy is not None
    assert config.exports.numpy.tokens_per_shard == 100_000_000
    assert config.exports.formats() == ["numpy"]


def test_destination_with_an_endpoint_is_one_line_of_the_form() -> None:
    form = demo_form() | {"destinations": ["outputs", "s3://bucket/prefix | http://127.0.0.1:9000"]}
    plain, store = config_from_form(form).destinations
    assert (plain.path, plain.endpoint_url) == ("outputs", None)
    assert (store.path, store.endpoint_url) == ("s3://bucket/prefix", "http://127.0.0.1:9000")


def test_destination_that_a_bar_would_spoil_is_one_line_of_json() -> None:
    config = load_config(DEMO)
    odd = check_config(config.model_dump() | {"destinations": [{"path": "a | b"}]}, where="a test")
    assert form_from_config(odd)["destinations"] == ['{"path": "a | b"}']
    assert config_from_form(form_from_config(odd)) == odd


def test_unknown_field_is_refused_with_the_nearest_name() -> None:
    with raises("form.unknown_field", "did you mean minimum_bytes"):
        config_from_form(demo_form() | {"minimum_byte": 100})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("packing: {fit: [", "config.not_yaml"),
        ("- packing", "form.settings_not_a_mapping"),
        ("dedup: {minimum_bytes: 5}", "form.key_has_field"),
        ("name: other", "form.key_has_field"),
        ("paking: {fit: cut}", "config.unknown_key"),
        ("a: &a [*a]", "config.too_deep"),
        ("work_folder: a\nwork_folder: b", "config.key_twice"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(text: str, code: str) -> None:
    with raises(code, "the trigger form"):
        config_from_form({"settings": text}, load_config(DEMO))


@pytest.mark.parametrize(
    ("change", "label", "code"),
    [
        ({"minimum_bytes": 3}, "dedup.minimum_bytes", "config.minimum_bytes_too_small"),
        ({"minimum_bytes": None}, "dedup", "config.minimum_bytes_missing"),
        ({"seed": ""}, "shuffle", "config.seed_missing"),
        ({"seed": "many"}, "shuffle.seed", "config.wrong_value"),
        ({"shard_bytes": "8 apples"}, "source.shard_bytes", "config.wrong_value"),
        ({"settings": "tokenizer: {sha256: abc}"}, "tokenizer.sha256", "config.wrong_value"),
        ({f"export_{name}": "off" for name in FORMATS}, "exports", "config.no_export"),
        ({"destinations": ["x", "x"]}, "configuration", "config.destination_twice"),
    ],
)
def test_bad_value_is_refused_as_on_the_command_line(change: dict[str, Any], label: str, code: str) -> None:
    with raises(code) as caught:
        config_from_form(demo_form() | change)
    assert label in dict(caught.value.details)


@pytest.mark.parametrize(
    "change",
    [
        {"minimum_bytes": 6},
        {"minimum_bytes": (1 << 20) + 1},
        {"dedup_mode": "delete"},
        {"shard_bytes": "lots"},
        {"seed": "-1"},
        {"name": "Upper Case"},
        {"tokenizer_name": "two words"},
        {"export_numpy": "yes"},
        {"source_paths": ["data", "s3://key:hush@bucket/data"]},
        {"destinations": ["s3://bucket/out | https://hush@store:9000"]},
        {"settings": "work_folder: w\nsource: {endpoint_url: 'https://key:hush@store:9000'}"},
    ],
)
def test_value_the_schema_refuses_is_refused_by_the_configuration_too(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(demo_form() | change, SCHEMA)
    with pytest.raises(ConfigError):
        config_from_form(demo_form() | change)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_pattern_that_refuses_a_value_is_shown_with_words(field: FormField) -> None:
    for schema in (field.schema, field.schema.get("items", {})):
        assert ("pattern" in schema) == ("expected" in schema)
    assert field.title
    assert field.help


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (1, "1"),
        (1000, "1KB"),
        (1024, "1KiB"),
        (256 << 20, "256MiB"),
        (10**10, "10GB"),
        (1025, "1025"),
        (3 << 40, "3TiB"),
    ],
)
def test_size_text_known_sizes_are_written_as_people_do(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
