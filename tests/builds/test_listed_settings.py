"""Builds whose figures a list may compare: those of equal processing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.config import check_config
from corpusmill.upload.stages.report import listed_details
from tests.report.usual_summary import usual
from tests.system.corpus import configuration


def settings(root: Path, **changes: Any) -> str:
    config = check_config(configuration(root, **changes), where="test")
    digest: str = listed_details(config, "v", usual())["settings"]
    return digest


@pytest.mark.parametrize(
    "changes",
    [
        {"dedup": {"mode": "remove", "minimum_bytes": 51}},
        {"shuffle": {"seed": 8}},
        {"exports": {"numpy": {}}},
        {"tokenizer": {"name": "gpt2"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_listed_settings_of_other_processing_differ(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert settings(tmp_path, **changes) != settings(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {"paths": ["elsewhere/*.jsonl"], "shard_bytes": "8KiB"}},
        {"destinations": [{"path": "ready"}]},
        {"keep_versions": 3},
        {"work_folder": "other"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_listed_settings_of_a_refresh_or_another_place_are_equal(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert settings(tmp_path, **changes) == settings(tmp_path)
