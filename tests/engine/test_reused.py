"""Which steps of a build count as reused."""

from __future__ import annotations

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from tests.system.corpus import configuration, reused, write_corpus


def test_reading_commands_do_not_make_finished_steps_look_reused(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    config = check_config(configuration(tmp_path), where="test")
    built = open_build(build_dataset(config, workers=1))
    plan_dataset(config)  # as plan, verify, trace and locate do
    assert not any(reused(built, stage, unit) for stage in ("index", "export") for unit in built.units(stage))
