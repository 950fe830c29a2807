"""The web form shows a configuration, and its fields give that configuration back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config import EXAMPLE, FORMATS, LARGEST_SIZE, DatasetConfig, check_config, load_config
from corpusmill.errors import ConfigError
from corpusmill.form import FIELDS, FormField, changed_keys, config_from_form, form_from_config, size_text
from corpusmill.form.fields import NOT_IN_THE_FORM
from corpusmill.section import Section
from tests.quick import examples

DEMO = Path(__file__).resolve().parent.parent / "dags" / "datasets" / "demo.yaml"
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
    "train_name": st.just("learn"),
    "file_name": st.just("{split}_{number}.npy"),
    "number_digits": st.integers(1, 12),
    "placeholders": st.booleans(),
    "checkpoints": st.booleans(),
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
                "replace_existing": st.booleans(),
                "fuzzy_share": st.floats(0, 1, exclude_min=True),
            },
        ),
        "tokenizer": st.fixed_dictionaries(
            {"name": st.from_regex(r"[a-z0-9_/-]{1,20}", fullmatch=True)},
            optional={
                "file": words,
                "sha256": hexadecimal,
                "eot": words,
                "special_tokens": st.dictionaries(words, st.integers(0, 1 << 30), max_size=2),
                "parse_special": st.booleans(),
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
        "index": st.fixed_dictionaries({"method": st.just("suffix_array")}, optional={"unigram": st.booleans()}),
        "audit": st.fixed_dictionaries({}, optional={"share": st.floats(0, 1)}),
        "packing": st.fixed_dictionaries({}, optional={"fit": st.just("best_fit"), "bos": st.booleans()}),
        "lock": st.fixed_dictionaries({"tokenizer_sha256": hexadecimal}, optional={"tokenizer_revision": words}),
        "estimate": st.fixed_dictionaries({"sample_bytes": sizes}),
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


def leaf_keys(section: Any, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every key path of the configuration, down to values and to the on/off of each export."""
    keys: set[tuple[str, ...]] = set()
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            keys |= leaf_keys(value, (*prefix, name))
        if name in NOT_IN_THE_FORM | {"lock"}:
            continue
        if not isinstance(value, Section) or prefix == ("exports",):
            keys.add((*prefix, name))
    return keys


@examples(40)
@given(configs)
def test_form_of_any_config_gives_that_config_back(config: DatasetConfig) -> None:
    assert config_from_form(form_from_config(config), reserved=config) == config


@pytest.mark.parametrize("key", sorted(NOT_IN_THE_FORM - {"dag"}))
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
    assert changed_keys(file, own) == sorted(NOT_IN_THE_FORM - {"dag", key})


@pytest.mark.parametrize("key", ["file", "revision", "pattern", "eot", "bos", "pad"])
def test_form_that_shows_a_file_with_an_empty_text_changes_no_key(key: str) -> None:
    demo = load_config(DEMO)
    tokenizer = demo.tokenizer.model_dump(mode="json") | {key: ""}
    file = check_config(demo.model_dump(mode="json") | {"tokenizer": tokenizer}, where="a test")
    assert changed_keys(config_from_form(form_from_config(file), reserved=file), file) == []


def test_form_whose_file_states_a_budget_of_other_sources_is_refused() -> None:
    demo = load_config(DEMO)
    file = check_config(demo.model_dump() | {"budget": {demo.source.paths[0]: "2 epochs"}}, where="a test")
    with pytest.raises(ConfigError) as caught:
        config_from_form({"source_paths": ["elsewhere"]}, file)
    assert "budget: sample is not an entry of source.paths" in str(caught.value)


@examples(25)
@given(configs)
def test_form_of_any_config_passes_the_schema_that_the_form_shows(config: DatasetConfig) -> None:
    jsonschema.validate(form_from_config(config), SCHEMA)


def test_fields_cover_every_configuration_key_once() -> None:
    every_format_on = load_config(DEMO).model_copy(update={"decontamination": load_config(EXAMPLE).decontamination})
    assert every_format_on.exports.formats() == list(FORMATS)
    lock = {("lock", "tokenizer_sha256"), ("lock", "tokenizer_revision"), ("lock", "tokenizer_eot")}
    assert sorted(item.keys for item in FIELDS) == sorted(leaf_keys(every_format_on) | lock)
    assert len({item.name for item in FIELDS}) == len(FIELDS)


def test_fields_carry_a_title_and_help_from_the_example() -> None:
    printed = {item.name: item.help for item in FIELDS}
    assert all(printed.values())
    assert len({*printed.values()}) == len(FIELDS)  # none has its section's text for lack of its own
    assert [item.name for item in FIELDS if item.section is None] == ["name"]
    assert (
        printed["minimum_bytes"]
        == "Required unless mode: none; repeats of at least this many bytes are duplicates (7 or more)."
    )
    assert printed["numpy_layout"].startswith("npy | bin (nanoGPT")
    assert printed["shard_bytes"].endswith("256MiB, 10GB. Default: 256MiB.")


def test_empty_fields_take_what_the_chosen_configuration_says() -> None:
    base = load_config(DEMO)
    assert config_from_form({}, base) == base
    changed = config_from_form({"seed": "99", "export_numpy": "off", "packing_fit": "best_fit"}, base)
    assert changed.shuffle.seed == 99
    assert changed.exports.formats() == ["webdataset", "megatron", "nanoset"]
    assert changed.packing.fit == "best_fit"
    assert changed.dedup == base.dedup


def test_dag_section_is_not_part_of_the_form_and_changes_no_dump() -> None:
    config = load_config(DEMO)
    scheduled = check_config(config.model_dump() | {"dag": {"schedule": "@daily"}}, where="a test")
    assert scheduled.dag is not None
    assert scheduled.model_dump() == config.model_dump()
    assert form_from_config(scheduled) == form_from_config(config)


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
    with pytest.raises(ConfigError, match="did you mean minimum_bytes"):
        config_from_form(demo_form() | {"minimum_byte": 100})


@pytest.mark.parametrize(
    ("change", "label", "word"),
    [
        ({"minimum_bytes": 3}, "dedup.minimum_bytes", "greater than or equal to 7"),
        ({"minimum_bytes": None}, "dedup", "minimum_bytes is required"),
        ({"seed": ""}, "shuffle", "seed is required unless order is source"),
        ({"seed": "many"}, "shuffle.seed", "valid integer"),
        ({"shard_bytes": "8 apples"}, "source.shard_bytes", "got '8 apples'"),
        ({"tokenizer_sha256": "abc"}, "tokenizer.sha256", "got 'abc'"),
        ({f"export_{name}": "off" for name in FORMATS}, "exports", "at least one export is required"),
        ({"destinations": ["x", "x"]}, "configuration", "two destinations have the same path"),
    ],
)
def test_bad_value_is_refused_in_the_words_of_the_command_line(change: dict[str, Any], label: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_form(demo_form() | change)
    assert any(label in str(key) and word in str(value) for key, value in caught.value.details), str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"minimum_bytes": 6},
        {"minimum_bytes": (1 << 20) + 1},
        {"dedup_mode": "delete"},
        {"max_rejected_share": 1.5},
        {"numpy_test_share": 1},
        {"webdataset_context_tokens": 1},
        {"numpy_tokens_per_shard": 0},
        {"shard_bytes": "lots"},
        {"seed": "-1"},
        {"name": "Upper Case"},
        {"source_paths": ["data", "s3://key:hush@bucket/data"]},
        {"source_endpoint_url": "https://key:hush@store:9000"},
        {"destinations": ["s3://bucket/out | https://hush@store:9000"]},
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


def test_refused_value_is_told_what_was_expected() -> None:
    with pytest.raises(jsonschema.ValidationError, match="a number with a unit, such as 256MiB or 10GB"):
        jsonschema.validate(demo_form() | {"shard_bytes": "8 apples"}, SCHEMA)


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
