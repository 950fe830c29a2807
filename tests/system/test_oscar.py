"""The OSCAR recipe as delivered, on a small multilingual corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config, load_config
from corpusmill.engine.build import Build
from corpusmill.export import megatron
from corpusmill.inspect.datasets.merge import merge_exports
from corpusmill.inspect.datasets.repair import compare_copies
from tests.system.corpus import make_documents

RECIPE = Path(__file__).resolve().parents[2] / "dags" / "datasets" / "oscar.yaml"


def small(root: Path, **changes: object) -> dict[str, object]:
    """The recipe's own values, with what this machine lacks replaced: sources, tokenizer, folders, sizes."""
    values = yaml.safe_load(RECIPE.read_text())
    values["source"] |= {"paths": [str(root / "data" / item) for item in ("en", "fr")], "shard_bytes": "16KiB"}
    values["tokenizer"] = {"name": "cl100k_base"}
    values["exports"] |= {"megatron": {"part_bytes": "40KiB"}, "nanoset": {"file_bytes": "40KiB"}}
    values["exports"]["sample_documents"] = 10
    values["destinations"] = [{"path": str(root / place)} for place in ("fast", "backup")]
    return {**values, "work_folder": str(root / "work"), **changes}


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(small(root, **changes), where="test"), workers=1))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("oscar")
    for number, (language, documents) in enumerate((("en", 60), ("fr", 20))):
        (folder / "data" / language).mkdir(parents=True)
        rows = [
            {"id": f"{language}-{i}", "content": text} for i, text in enumerate(make_documents(documents, seed=number))
        ]
        path = folder / "data" / language / f"{language}_part_1.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def oscar(root) -> Build:
    return build(root)


def test_oscar_recipe_is_a_valid_configuration_without_a_least_length() -> None:
    config = load_config(RECIPE)
    assert config.name == "oscar"
    assert len(config.destinations) == 2
    assert not config.selection.leaves_out()
    assert config.exports.sample_documents == 10_000


def test_oscar_sample_has_the_tokens_of_the_whole_set(oscar, root) -> None:
    folder = (root / "fast" / "oscar" / "latest").resolve()
    merged = root / "one_content_document"
    merge_exports([folder / "megatron"], merged)
    sample = megatron.open_part(folder / "sample" / "oscar_sample_content_document")
    whole = megatron.open_part(merged)
    assert sample.documents == 10
    assert (folder / "megatron" / "oscar_00000_content_document.bin").is_file()  # the key of the text
    assert sample.tokens.tobytes() == whole.tokens[: sample.tokens.size].tobytes()


def test_oscar_both_destinations_hold_the_same(oscar, root) -> None:
    compared = compare_copies(str(root / "fast" / "oscar"), str(root / "backup" / "oscar"))
    assert (compared.wrong_first, compared.wrong_second) == ((), ())
