"""What a progress view sees while steps come and go."""

from __future__ import annotations

from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.ledger import RECEIPT_NAME
from corpusmill.stages.graph import open_build
from tests.system.corpus import configuration, write_corpus


def test_progress_receipt_that_vanishes_while_it_is_watched_counts_as_not_done(tmp_path) -> None:
    """Upload runs every time: its receipt goes when it starts, after a view has already seen it."""
    write_corpus(tmp_path / "corpus", documents=8)
    built = open_build(build_dataset(check_config(configuration(tmp_path), where="test"), workers=1))
    before = {item.stage: item for item in built.progress()}
    assert before["upload"].units_done == before["upload"].units_total == 1
    (built.folder("upload", "00000") / RECEIPT_NAME).unlink()
    after = {item.stage: item for item in built.progress()}
    assert after["upload"].units_done == 0
    assert after["index"] == before["index"]


def test_reading_commands_do_not_make_finished_steps_look_reused(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    config = check_config(configuration(tmp_path), where="test")
    built = open_build(build_dataset(config, workers=1))
    plan_dataset(config)  # as plan, verify, trace and locate do
    assert not any(built.reused(stage, unit) for stage in ("index", "export") for unit in built.units(stage))
