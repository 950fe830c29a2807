"""verify of a damaged dataset whose work folder holds another build of it, too: damage behind damage is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.inspect.verify import verify_build
from tests.quick import quick
from tests.system.corpus import configuration, lines_of, make_documents
from tests.system.kept import keep, put_back


def write(root: Path, folder: str, number: int, seed: int) -> None:
    path = root / folder / f"part{number}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines_of(make_documents(20, seed=seed), 20 * number))
    os.utime(path, (1e9 + seed, 1e9 + seed))


def configured(root: Path, **changes: object) -> DatasetConfig:
    return check_config(
        configuration(root, source={"paths": [str(root / "corpus")], "shard_bytes": 1}, **changes), where="test"
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build whose steps are current again, after one of another file in its place: the other's folders are newer."""
    root = tmp_path_factory.mktemp("beside")
    for number in (1, 2, 3):
        write(root, "corpus", number, number)
    build_dataset(configured(root), workers=1)
    write(root, "corpus", 2, 77)
    build_dataset(configured(root), workers=1)
    write(root, "corpus", 2, 2)
    path = build_dataset(configured(root), workers=1)
    keep(path.parents[4])
    return path


@pytest.fixture
def built(plan: Path) -> Iterator[Build]:
    put_back(plan.parents[4])
    yield open_build(plan)
    put_back(plan.parents[4])


CASES = [
    ("anchor", "shared"),
    ("scatter", "export"),
    ("anchor", "union"),
    ("match", "union"),
    ("scatter", "gather"),
    ("context", "settle"),
    ("border", "match"),
    ("index", "export"),
    ("tokenize", "gather"),
]


@pytest.mark.parametrize("case", quick(CASES, 3), ids=" hides ".join)
def test_verify_names_damage_behind_a_lost_receipt(built: Build, case: tuple[str, str]) -> None:
    lost, hurt = case
    folder = built.step_folder(hurt, built.units(hurt)[0])
    outputs = [path for path in folder.rglob("*") if path.is_file() and path.name not in {RECEIPT_NAME, ".blocks"}]
    damaged = max(outputs, key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    receipt = built.step_folder(lost, built.units(lost)[0]) / RECEIPT_NAME
    receipt.unlink()
    findings = verify_build(open_build(built.plan_receipt)).findings
    assert {str(receipt), str(damaged)} <= {finding.where.partition(",")[0] for finding in findings}
    assert not [finding for finding in findings if finding.what == "a step's folder is missing"]


@pytest.mark.parametrize("stage", quick(["anchor", "reference", "reference_index", "index", "shared", "settle"], 2))
def test_verify_of_a_lost_receipt_beside_another_reference_raises_nothing(tmp_path: Path, stage: str) -> None:
    for number in (1, 2):
        write(tmp_path, "corpus", number, number)
        write(tmp_path, "references", number, 10 + number)
    for number in (1, 2):
        against = [str(tmp_path / f"references/part{number}.jsonl")]
        dedup = {"mode": "remove", "minimum_bytes": 100, "against": against}
        built = open_build(build_dataset(configured(tmp_path, dedup=dedup), workers=1))
    receipt = built.step_folder(stage, built.units(stage)[0]) / RECEIPT_NAME
    receipt.unlink()
    assert str(receipt) in {finding.where for finding in verify_build(open_build(built.plan_receipt)).findings}
