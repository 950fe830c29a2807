"""What the work of a step may read: its settings, its inputs, the plan, the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import StepView, UndeclaredInputError
from corpusmill.engine.graph import Graph
from corpusmill.ledger import Outcome
from corpusmill.stages.graph import GRAPH
from tests.system.corpus import configuration, write_corpus

READS: dict[str, Callable[[StepView], Any]] = {
    "a receipt": lambda build: build.receipt("index", "00001"),
    "whether there is a receipt": lambda build: build.find("index", "00001"),
    "all receipts": lambda build: build.receipts("index"),
    "a total": lambda build: build.total("index", "documents_out"),
    "outputs": lambda build: build.folder("index", "00001"),
    "slices of outputs": lambda build: build.blocks("index", "00001"),
    "outputs, nothing compared": lambda build: build.step_folder("index", "00001"),
    "a step before its input": lambda build: build.receipt("download", "00000"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_step_that_reads_what_it_does_not_name_fails_and_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[StepView], Any]
) -> None:
    stage = GRAPH["anchor"]

    def reading(build: StepView, unit: str, folder: Path) -> Outcome:
        outcome: Outcome = stage.run(build, unit, folder)  # its own input, and its settings
        assert build.settings == {"minimum_bytes": build.config.dedup.minimum_bytes}
        read(build)
        return outcome

    changed = Graph(replace(item, run=reading) if item is stage else item for item in GRAPH)
    monkeypatch.setattr("corpusmill.stages.graph.GRAPH", changed)
    write_corpus(tmp_path / "corpus", documents=24)
    with pytest.raises(
        UndeclaredInputError, match="anchor 00000 reads from a step that is not among its inputs"
    ) as caught:
        build_dataset(check_config(configuration(tmp_path), where="a test"), workers=1)
    assert "got       index 00001" in str(caught.value) or "got       download 00000" in str(caught.value)
    assert not list(tmp_path.glob("work/tiny/anchor/*/receipt.json"))
