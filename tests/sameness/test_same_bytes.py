"""Every configuration of the family, and every command, writes the bytes whose digests stand in digests.json.

A refactoring must leave all of them as they are. A change that is meant to change bytes writes the digests anew: see
tests/sameness/write.py.
"""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from corpusmill.config import DatasetConfig
from corpusmill.config.values import Section
from corpusmill.errors import ConfigError
from tests.sameness.commands import COMMANDS, command_digests
from tests.sameness.corpus import DESCRIBED, RANKED
from tests.sameness.covering import Row, allowed_pairs, covering_rows
from tests.sameness.digests import NothingDeliveredError, built_digests, prepared, recorded
from tests.sameness.family import (
    ALL,
    CHANGES_NO_BYTE,
    CHOICES_COMPARED_ELSEWHERE,
    COMPARED_ELSEWHERE,
    FEW,
    REFUSED,
    SAME_AS,
    VALUES,
    apart,
    family,
    settings_of,
)
from tests.search.vocabularies import special_tokens

FAMILY = family()
NAMES = list(FAMILY)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("family"))


def require_recorded(name: str, sources: Path) -> None:
    assert built_digests(FAMILY[name], sources) == recorded()[name]


@pytest.mark.parametrize("name", NAMES[:FEW])
def test_build_of_each_value_delivers_the_recorded_bytes(sources, name: str) -> None:
    require_recorded(name, sources)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[FEW:])
def test_build_of_each_pair_of_values_delivers_the_recorded_bytes(sources, name: str) -> None:
    require_recorded(name, sources)


@pytest.mark.slow
def test_commands_write_the_recorded_bytes(tmp_path) -> None:
    expected = recorded()
    assert command_digests(prepared(tmp_path)) == {name: expected[name] for name in expected if "command" in name}


def test_recorded_digests_are_those_of_the_family_and_the_commands() -> None:
    assert list(recorded()) == [*NAMES, *(f"command {name}" for name in COMMANDS)]


def test_recorded_digests_of_different_configurations_differ() -> None:
    """Else a digest would not depend on what was built."""
    assert len({held["dataset"] for name, held in recorded().items() if "command" not in name}) > len(NAMES) * 0.9


def test_family_holds_every_allowed_pair() -> None:
    rows = [[(key, VALUES[key].index(value)) for key, value in row.items()] for row in covering_rows(VALUES, apart)]
    assert {frozenset(pair) for row in rows for pair in combinations(row, 2)} == allowed_pairs(VALUES, apart)


def test_first_configurations_hold_every_value() -> None:
    rows = covering_rows(VALUES, apart)
    values = [{(key, repr(value)) for row in some for key, value in row.items()} for some in (rows[:FEW], rows)]
    assert values[0] == values[1]
    assert values[1] == {(key, repr(value)) for key, held in VALUES.items() for value in held}


@pytest.mark.parametrize("engine", VALUES["tokenizer.engine"])
def test_build_with_the_default_engine_delivers_the_recorded_bytes_of_every_engine(sources, engine: str) -> None:
    name = next(name for name in NAMES if FAMILY[name]["tokenizer"]["engine"] == engine)
    settings = {**FAMILY[name], "tokenizer": {**FAMILY[name]["tokenizer"], "engine": SAME_AS[0]}}
    assert built_digests(settings, sources) == recorded()[name]


@pytest.mark.slow
@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: f"{entry[0]} {entry[2]}")
def test_values_that_stay_apart_are_refused_together(sources, entry: tuple[str, Any, str, Any]) -> None:
    first, values, second, others = entry
    for value, other in product(values, others or VALUES[second]):
        with pytest.raises((ConfigError, NothingDeliveredError)):
            built_digests(settings_of(row_with({first: value, second: other})), sources)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"tokenizer.file": DESCRIBED}])
def test_values_that_stay_apart_are_refused_for_no_other_reason(sources, changes: Row) -> None:
    assert built_digests(settings_of(row_with(changes)), sources)


def row_with(changes: Row) -> Row:
    """A row that can be built, but for these values."""
    ranked = {"tokenizer.pattern": "cl100k_base", "tokenizer.special_tokens": special_tokens()}
    row = {
        "formats": ALL,
        "source.paths": ["corpus"],
        "dedup.mode": "annotate",
        "dedup.minimum_bytes": 12,
        "tokenizer.file": RANKED,
        "tokenizer.eot": "<|endoftext|>",
        "tokenizer.bos": "<|bos|>",
        "shuffle.order": "random",
        "shuffle.seed": 1,
        **({} if changes.get("tokenizer.file") == DESCRIBED else ranked),
    }
    return {**row, **changes}


def leaves(section: type[Section], before: str = "") -> dict[str, Any]:
    """Key -> annotation of every setting of a section and of those below it."""
    held: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        key, kinds = f"{before}{name}", get_args(field.annotation) or (field.annotation,)
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
        held |= leaves(inner[0], f"{key}.") if inner else {key: field.annotation}
    return held


def test_family_varies_every_setting_that_can_change_a_byte() -> None:
    every = leaves(DatasetConfig)
    named = {*CHANGES_NO_BYTE, *COMPARED_ELSEWHERE}
    explained = {key for key in every if any(key == name or key.startswith(f"{name}.") for name in named)}
    assert set(every) - explained == set(VALUES) - {"formats"}
    assert not explained & set(VALUES)
    for key in set(VALUES) - {"formats"}:
        choices = {*get_args(every[key])} if get_origin(every[key]) is Literal else set()
        choices -= CHOICES_COMPARED_ELSEWHERE.get(key, set())
        assert {*map(repr, choices)} - {repr(SAME_AS[0])} <= {*map(repr, VALUES[key])}, key
        assert every[key] is not bool or sorted(VALUES[key]) == [False, True], key
