"""Whatever a configuration file holds: a checked configuration, or a ConfigError that names the file and the key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpusmill.config import (
    EXAMPLE,
    DatasetConfig,
    DedupConfig,
    ExportsConfig,
    ShuffleConfig,
    SourceConfig,
    check_config,
    load_config,
    parse_config,
)
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.errors import ConfigError
from tests.config.test_config import MINIMAL
from tests.quick import examples
from tests.raising import raises

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60))
ODD_TEXTS = [
    ("dag: {start: 2026-02-30}", "line 9: dag.start"),
    ("dag: {start: 0001-01-01}", "dag.start"),
    ("dag: {deadline: 99999999999d}", "dag.deadline"),
    (f"dag: {{deadline: {'9' * 5000}d}}", "dag.deadline"),
    ("dag: {after: [tiny]}", "config.after_itself"),
    ("dag: {on_late: [{use: 'a:B'}]}", "config.late_without_deadline"),
    ("dag: {on_failure: [{use: slack}]}", "dag.on_failure"),
    ("dag: {on_failure: [{use: 'a:B', with: {at: 2026-01-01}}]}", "config.with_not_json"),
    (f"work_folder: {'[' * 2000}{']' * 2000}", "config.too_deep"),
    (f"work_folder:\n{'- ' * 200_000}x", "config.too_deep"),
    ("work_folder: &a [*a]", "config.too_deep"),
    (LAUGHS, "config.too_many_values"),
    (MERGED, "config.too_deep"),
    ("? [a, b]\n: 1", "config.not_a_key"),
    ("work_folder: !!int x", "line 9: work_folder"),
    ("work_folder: !!bool x", "line 9: work_folder"),
    ("work_folder: !!timestamp x", "line 9: work_folder"),
    ("!!int x: 1", "line 9: x"),
    (f"estimate: {{sample_bytes: {'9' * 5000}}}", "line 9: estimate.sample_bytes"),
    (f"estimate: {{sample_bytes: 0x{'f' * 5000}}}", "line 9: estimate.sample_bytes"),
    (f"estimate: {{sample_bytes: '{'9' * 400}TiB'}}", "line 9: estimate.sample_bytes"),
    ("estimate: {sample_bytes: 99999999999999999999999TiB}", "line 9: estimate.sample_bytes"),
    ("estimate: {sample_bytes: .inf}", "line 9: estimate.sample_bytes"),
    ("estimate: {sample_bytes: [1]}", "line 9: estimate.sample_bytes"),
    (f"selection: {{minimum_tokens: 1{'0' * 60}}}", "line 9: selection.minimum_tokens"),
    ('work_folder: "a\\0b"', "line 9: work_folder"),
    ('work_folder: "a\\eb"', "line 9: work_folder"),
    ('work_folder: "\\ud800"', "line 9"),
    (f"audit: {{{'x' * 1000}: 1}}", "line 9: audit.xxx"),
    ("audit: {1: 1, null: 2}", "audit"),
    ("work_folder: \ud800", "config.not_yaml"),
]


@pytest.mark.parametrize(("line", "shown"), ODD_TEXTS, ids=[line[:24].strip() for line, _ in ODD_TEXTS])
def test_config_odd_text_is_an_error_with_file_and_key(line: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{MINIMAL}{line}\n", where="x.yaml")
    assert "x.yaml" in str(caught.value)
    assert shown in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_config_seed_of_five_thousand_digits_is_an_error_with_its_key() -> None:
    with raises("config.number_too_long", "shuffle.seed"):
        parse_config(MINIMAL.replace("seed: 1", f"seed: {'7' * 5000}"), where="x.yaml")
    with raises("config.missing_key", "a form"):
        check_config({"shuffle": {"seed": 7**9000}}, where="a form")


def test_config_with_a_thousand_errors_names_twenty() -> None:
    with raises("config.unknown_key", "1000 errors") as caught:
        parse_config(MINIMAL + "".join(f"key{n}: 1\n" for n in range(1000)), where="x.yaml")
    assert str(caught.value).count("unknown key") == 20
    assert "980 other errors" in str(caught.value)


def test_config_alias_of_a_value_stands_for_it() -> None:
    text = MINIMAL.replace("[data]", "[&place data, other]") + "work_folder: *place\n"
    assert parse_config(text, where="x").work_folder == "data"


def test_config_merged_mapping_gives_its_keys() -> None:
    text = MINIMAL.replace("{mode: none}", "&whole {mode: none}") + "dag: {queues: {<<: *whole}}\n"
    schedule = parse_config(text, where="x").dag
    assert schedule is not None
    assert schedule.queues == {"mode": "none"}


@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "latin-1", "unreadable name"])
def test_config_that_is_no_text_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.yaml"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "large":
            path.write_text("#" * (2 << 20))
        case "latin-1":
            path.write_bytes("name: \u00e9".encode("latin-1"))
        case "unreadable name":
            path = Path("a\0b.yaml")
    with pytest.raises(ConfigError):
        load_config(path)


ODD_SCALARS = [
    "", "null", "~", "true", ".inf", "-.inf", ".nan", "1e999", "0x1F", "1:60:60", "2026-02-30", "2026-13-01T99:99:99Z",
    "!!int", "!!str", "!!binary =", "!!set {a}", "{}", "[]", "&a", "*a", "<<:", "?", "|", ">", "%", "---", "!x",
    "5GB", "1.5.5TiB", "10d", "@daily", "'* * * * *'", "data", '"\\0"', '"\\ud800"',
]  # fmt: skip
SCALARS = st.one_of(
    st.sampled_from(ODD_SCALARS),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20),
    st.text("[]{}:,-?&*!|>'\"%@`#<~ \n\tax019.", max_size=30),
)
EXAMPLE_LINES = EXAMPLE.read_text(encoding="utf-8").splitlines()


@st.composite
def odd_files(draw: st.DrawFn) -> str:
    """The example, or a small configuration, with some values, keys or lines replaced by odd ones."""
    lines = draw(st.sampled_from([EXAMPLE_LINES, MINIMAL.splitlines()])).copy()
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(lines) - 1))
        key, colon, _ = lines[position].partition(":")
        lines[position] = draw(
            st.one_of(
                SCALARS.map(lambda odd, key=key, colon=colon: f"{key}{colon} {odd}"),
                SCALARS.map(lambda odd, key=key: f"{key}: {{{odd}: 1}}"),
                SCALARS,
            )
        )
    return "\n".join(lines)


@settings(examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(odd_files(), SCALARS, st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape"))))
def test_config_of_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    try:
        assert isinstance(parse_config(text, where="x.yaml"), DatasetConfig)
    except ConfigError as error:
        assert "x.yaml" in str(error)  # noqa: PT017


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = sorted(DatasetConfig.model_fields)
KEYS = {
    "source": SourceConfig,
    "dedup": DedupConfig,
    "dag": ScheduleConfig,
    "exports": ExportsConfig,
    "shuffle": ShuffleConfig,
}
ANY_VALUES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(SECTIONS, PLAIN)
    | {
        section: PLAIN | st.dictionaries(st.sampled_from(sorted(model.model_fields)), PLAIN, max_size=3)
        for section, model in KEYS.items()
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_VALUES)
def test_config_of_any_values_is_a_configuration_or_a_config_error(values: dict[str, object]) -> None:
    try:
        assert isinstance(check_config(values, where="a form"), DatasetConfig)
    except ConfigError as error:
        assert "a form" in str(error)  # noqa: PT017
