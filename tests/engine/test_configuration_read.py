"""What the work of a step reads of the configuration must be in its settings, or a change of it would go unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest
from pydantic import BaseModel

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.graph import Graph
from corpusmill.stages.graph import GRAPH, open_build
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus

ALL_FORMATS: dict[str, Any] = {
    "webdataset": {"context_tokens": 129, "exp_data": True},
    "numpy": {"tokens_per_shard": 5000, "placeholders": True, "checkpoints": True},
    "megatron": {},
    "nanoset": {"loss": True},
    "sample_documents": 5,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "formats": {"exports": ALL_FORMATS, "packing": {"overlap_tokens": 1}, "card": {}},
    "near-copies, source order": {
        "dedup": {"mode": "annotate", "minimum_bytes": 100, "fuzzy_share": 0.8},
        "shuffle": {"order": "source"},
    },
    "suffix arrays": {"index": {"method": "suffix_array"}, "framing": {"empty_documents": "eod"}},
    "forgotten": {"forget": {"path": "FOLDER/list.jsonl", "copies": "also"}},
    "everything that decides": {
        "forget": {"path": "FOLDER/list.jsonl", "copies": "also"},
        "decisions": [
            {"name": "quality", "path": "FOLDER/scores.jsonl", "keep": "score >= 1", "max_unmatched_share": 1}
        ],
        "decontamination": {"benchmarks": [{"name": "items", "path": "FOLDER/items.jsonl"}], "action": "cut"},
        "steps": [{"use": "my_filters:some"}, {"use": "my_filters:some", "name": "again", "before": "writeback"}],
        "dedup": {"mode": "remove", "minimum_bytes": 100, "against": ["FOLDER/old.jsonl"], "fuzzy_share": 0.8},
        "selection": {"minimum_bytes": 3},
        "card": {"license": "odc-by"},
    },
}
CHANGES_NO_BYTE = {"source.endpoint_url"}  # where a store answers
# Stage -> keys that its work reads and its settings do not. Its inputs tell them apart: which step wrote the text,
# whether there are decontaminated shards, whether anchors are read for windows, of which cells and with what counts.
TEXT = {"decontamination", "decontamination.action"}
WINDOWS = {"dedup.keep", "dedup.mode", "index", "index.method", "steps", "steps.*"}
TOLD_BY_INPUTS = {
    **dict.fromkeys(("anchor", "suffix_array", "border", "match", "union", "refine", "lost", "tokenize"), TEXT),
    "context": TEXT | WINDOWS,
    "reference_context": TEXT | WINDOWS,
    "gather": {"shuffle", "shuffle.order"},
    "manifest": TEXT
    | {"shuffle.cells", "shuffle.memory", "selection", "selection.minimum_bytes", "selection.minimum_tokens"},
    "writeback": {"dedup.drop_empty"},  # read in mode annotate, too, where it has no effect
}


class Recorded:
    """A section of a configuration that notes the keys that are read; `shuffle.*` stands for all of a section."""

    def __init__(self, section: BaseModel, read: set[str], path: str = "") -> None:
        self.__dict__.update(_section=section, _read=read, _path=path)

    def __getattr__(self, name: str) -> Any:
        section, read, path = self._section, self._read, self._path
        if name in type(section).model_fields:
            value = getattr(section, name)
            if isinstance(value, BaseModel):
                read.add(f"{path}{name}")
                return Recorded(value, read, f"{path}{name}.")
            read.add(f"{path}{name}" if isinstance(value, str | int | float | None) else f"{path}{name}.*")
            return value
        own = next((vars(kind)[name] for kind in type(section).__mro__[:-1] if name in vars(kind)), None)
        if isinstance(own, property):
            assert own.fget is not None
            return own.fget(self)
        if isinstance(own, FunctionType) and own.__module__.startswith("corpusmill"):
            return MethodType(own, self)
        read.add(f"{path}*")
        return getattr(section, name)

    def __eq__(self, other: object) -> bool:
        self._read.add(f"{self._path}*")
        return bool(self._section == other)

    def __hash__(self) -> int:
        return hash(self._path)


def in_folder(value: Any, folder: Path) -> Any:
    return json.loads(json.dumps(value).replace("FOLDER", str(folder)))


@pytest.mark.parametrize("changes", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_step_reads_of_the_configuration_only_what_its_settings_read(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, set[str]] = {stage.name: set() for stage in GRAPH}

    def recording(stage: Any) -> Callable[..., Any]:
        def run(build: Any, unit: str, folder: Path) -> Any:
            build.config = Recorded(build.config, read[stage.name])
            return stage.run(build, unit, folder)

        return run

    recorded = Graph(replace(stage, run=recording(stage)) if stage.reuse else stage for stage in GRAPH)
    monkeypatch.setattr("corpusmill.stages.graph.GRAPH", recorded)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    (tmp_path / "my_filters.py").write_text("def some(document):\n    return len(document.text) % 9 > 0\n")
    write_corpus(tmp_path / "corpus", documents=40)
    (tmp_path / "list.jsonl").write_text('{"id": "doc-3"}\n')
    (tmp_path / "scores.jsonl").write_text("".join(f'{{"id": "doc-{n}", "score": {n % 4}}}\n' for n in range(40)))
    (tmp_path / "items.jsonl").write_text(json.dumps({"id": 1, "question": " ".join(map(str, range(60)))}) + "\n")
    (tmp_path / "old.jsonl").write_bytes(lines_of(make_documents(9, seed=3)))
    config = check_config(configuration(tmp_path, **in_folder(changes, tmp_path)), where="a test")
    plan = build_dataset(config, workers=1)
    unnamed: dict[str, set[str]] = {}
    for stage in recorded:
        named: set[str] = set()
        build = open_build(plan)
        units = open_build(plan).units(stage.name)
        build.__dict__["config"] = Recorded(build.config, named)
        for unit in units:
            stage.settings(build, unit)
        whole = tuple(key.removesuffix("*") for key in named if key.endswith(".*"))
        told = named | TOLD_BY_INPUTS.get(stage.name, set()) | CHANGES_NO_BYTE
        unnamed[stage.name] = {key for key in read[stage.name] - told if not key.startswith(whole)}
    assert not {stage: keys for stage, keys in unnamed.items() if keys}
