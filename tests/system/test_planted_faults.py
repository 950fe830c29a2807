"""Some of the faults that benchmarks/planted_faults.py plants: each ends the build, or shows in a golden digest."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fault import Fault
from tests.faults.mutation import import_everything
from tests.faults.planted import FAULTS
from tests.faults.planted_builds import SCENARIOS, own_s3, warm_up
from tests.faults.planted_runs import BUILD, GOLDEN, NOTHING, VERIFY, Tries
from tests.quick import quick

# What some must be caught by, and how that begins.
BY_THE_BUILD = {
    "tokenize takes out no ranges": "account: tokenize",
    "the texts of a batch are encoded in reverse": "error[tokens.not_decodable]",
    "a document is taken twice, the next one not": "account: scatter",
    "a document's tokens begin one early": "account: scatter, content",
    "a showing's tokens begin one early": "account: scatter, content",
    "a budget's last document is not shown": "account: manifest",
}


def fault_named(what: str) -> Fault:
    return next(fault for fault in FAULTS if fault.what == what)


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Tries:
    import_everything()
    folder = tmp_path_factory.mktemp("planted")
    warm_up(folder / "warm")
    return Tries(folder / "tries")


@pytest.fixture(scope="module")
def tries_with_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tries]:
    import_everything()
    folder = tmp_path_factory.mktemp("planted")
    warm_up(folder / "warm")
    with pytest.MonkeyPatch.context() as patch, own_s3(folder, patch.setenv) as endpoint:
        yield Tries(folder / "tries", endpoint)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_planted_fault_stands_in_the_program_once(fault: Fault) -> None:
    """A change of the program that moves a line takes its fault along, or the list would quietly grow shorter."""
    source = Path(str(importlib.import_module(f"corpusmill.{fault.module}").__file__)).read_text()
    assert source.count(fault.old) == 1
    compile(source.replace(fault.old, fault.new), fault.module, "exec")
    assert fault.scenario in SCENARIOS


@pytest.mark.parametrize("what", quick(BY_THE_BUILD, 3))
def test_planted_fault_is_caught_by_what_it_should(tries: Tries, what: str) -> None:
    by, got = tries.caught_by(fault_named(what))
    assert (by, got[: len(BY_THE_BUILD[what])]) == (BUILD, BY_THE_BUILD[what])


@pytest.mark.slow
def test_planted_fault_in_a_class_reaches_the_classes_that_extend_it(tries: Tries) -> None:
    """The build that runs is a RunnableBuild, of another module than the fault's."""
    assert tries.caught_by(fault_named("no fingerprint names the inputs, and a document is appended"))[0] == GOLDEN
    assert tries.caught_by(fault_named("scatter leaves out the seed"))[0] == GOLDEN


@pytest.mark.slow
def test_planted_fault_of_both_sides_shows_in_a_golden_digest_alone(tries: Tries) -> None:
    """The seed is no content: only other bytes than a right build's tell."""
    assert tries.caught_by(fault_named("the seed is not used"))[0] == GOLDEN


@pytest.mark.parametrize("first", quick([0, 4], 0, slow=1))
def test_planted_faults_every_eighth_is_caught(tries_with_store: Tries, first: int) -> None:
    caught = {fault.what: tries_with_store.caught_by(fault)[0] for fault in FAULTS[first::8]}
    assert sum(by in {BUILD, VERIFY} for by in caught.values()) > len(caught) // 3
    assert sum(by == NOTHING for by in caught.values()) <= len(caught) // 8
