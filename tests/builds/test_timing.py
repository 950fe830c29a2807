"""Seconds of a build, from the builds of two samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.builds.timing import Timed, scaled_seconds, timed_build
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import TransientError
from corpusmill.stages.graph import GRAPH
from tests.system.corpus import configuration, lines_of, make_documents


def built(text_bytes: int) -> Timed:
    """Of a build that takes 2 s whatever its size, 0.3 s of them in single steps, and 3 s and 0.5 s a gigabyte."""
    return Timed(text_bytes, 2 + 3.5e-9 * text_bytes, 0.3 + 0.5e-9 * text_bytes, 0)


@pytest.mark.parametrize("scale", [1, 1.5, 100])
@pytest.mark.parametrize("more_cores", [1, 8])
def test_scaled_seconds_are_those_of_a_build_of_that_size_whose_single_steps_use_one_core(
    scale: float, more_cores: int
) -> None:
    part, whole = built(10**8), built(8 * 10**8)
    assert scaled_seconds(part, whole, scale, more_cores) == pytest.approx(2 + 0.8 * scale * (3 / more_cores + 0.5))


def test_scaled_seconds_of_one_text_are_all_growing_and_never_negative() -> None:
    """No part was timed, or one line is most of the sample; or the machine was busy while the part was built."""
    assert scaled_seconds(Timed(100, 2, 1, 0), Timed(100, 2, 1, 0), 10, 1) == 20
    assert scaled_seconds(Timed(10, 9, 4, 0), Timed(100, 3, 1, 0), 10, 1) == 3


def settings(root: Path, **changes: object) -> DatasetConfig:
    (root / "sample").mkdir()
    (root / "sample/00000.jsonl").write_bytes(lines_of(make_documents(60)))
    source = {"paths": [str(root / "sample")]}
    return check_config(configuration(root, **{"source": source, **changes}), where="test")


@pytest.mark.slow
def test_timed_build_counts_stages_as_often_as_it_is_told(tmp_path: Path) -> None:
    config = settings(tmp_path)
    once = timed_build(config, 2, {})
    assert 0 < once.single_seconds < once.seconds
    assert once.text_bytes > 0
    assert once.peak_rss_bytes > 10 << 20
    (tmp_path / "work").rename(tmp_path / "first")
    none = timed_build(config, 2, dict.fromkeys(GRAPH.names, 0.0))
    assert (none.text_bytes, none.seconds, none.single_seconds) == (once.text_bytes, 0, 0)


@pytest.mark.slow
def test_timed_build_imports_a_users_step_from_where_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short_ones.py").write_text("def keep(document):\n    return len(document.text) < 5_000\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert timed_build(settings(tmp_path, steps=[{"use": "short_ones:keep"}]), 1, {}).text_bytes > 0


def test_timed_build_that_fails_is_an_error_that_may_pass(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (tmp_path / "sample/00000.jsonl").write_bytes(b"no JSON\n" * 100)
    with pytest.raises(TransientError, match="by a program of its own failed"):
        timed_build(config, 1, {})
