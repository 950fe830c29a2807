"""What earlier versions built is reused or built again, never misread (keep.py says what is kept of each)."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.builds.graph import open_build
from corpusmill.cli import app
from corpusmill.config import load_config
from corpusmill.engine.ledger import RECEIPT_NAME, Outcome, Step, run_once
from corpusmill.errors import CorpusmillError
from tests.quick import quick
from tests.raising import raises
from tests.search.folders import Result, built, delivered, rooted
from tests.upgrades.keep import KEPT, NAME, refresh, write_dataset

ARCHIVES = sorted(KEPT.glob("*.tar.xz"))
OF_THE_RUN = {RECEIPT_NAME, ".lock", ".started", ".delivered"}
QUESTIONS = (
    f"plan {NAME}.yaml",
    f"verify {NAME}.yaml",
    f"verify {NAME}.yaml --sample 5",
    f"verify {NAME}.yaml --version latest",
    f"trace {NAME}.yaml --format webdataset --file 0 --record 3",
    f"locate {NAME}.yaml --source 1.jsonl --line 2",
    f"diff OLD NEW --config {NAME}.yaml",
    f"gc {NAME}.yaml",
)
WITH_PLACES = {"plan", "download", "report"}  # stages whose steps name the folder, so that moving it makes others


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Iterator[Path]:
    """The same dataset, built by this version where nothing was built before."""
    root = tmp_path_factory.mktemp("scratch")
    write_dataset(root)
    refresh(root)
    assert not build(root).error
    yield root
    shutil.rmtree(root)


@pytest.fixture(params=quick(ARCHIVES, 1, slow=1), ids=lambda path: path.name.removesuffix(".tar.xz"))
def kept(request, tmp_path) -> Path:
    """A root folder as an earlier version left it."""
    with tarfile.open(request.param) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(tmp_path)  # noqa: S202
    return tmp_path


def build(root: Path) -> Result:
    with rooted(root):
        return built(root, load_config(root / f"{NAME}.yaml"))


def ask(root: Path, line: str) -> tuple[str, BaseException | None]:
    """(what a command printed, how it failed)."""
    new = (root / "outputs" / NAME / "latest").resolve().name
    old = next((path.name for path in (root / "outputs" / NAME).glob("?" * 12) if path.name != new), new)
    with rooted(root), chdir(root):
        result = CliRunner().invoke(app, line.replace("OLD", old).replace("NEW", new).split())
    return result.output, None if isinstance(result.exception, SystemExit) else result.exception


def step_outputs(root: Path) -> dict[str, dict[str, bytes]]:
    """{step's folder: its files} of every finished step, without what says when it ran."""
    folders = [path.parent for path in (root / "work" / NAME).glob(f"*/*/{RECEIPT_NAME}")]
    return {
        folder.relative_to(root).as_posix(): {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name not in OF_THE_RUN
        }
        for folder in folders
        if folder.parent.name not in WITH_PLACES
    }


def test_an_earlier_version_is_kept() -> None:
    assert ARCHIVES


def test_build_in_a_kept_folder_delivers_the_bytes_of_a_fresh_build(kept, scratch) -> None:
    before, result, fresh = step_outputs(kept), build(kept), step_outputs(scratch)
    assert not result.differences(delivered(scratch, NAME))
    after = step_outputs(kept)
    assert fresh.keys() <= after.keys()
    assert {name for name in fresh if fresh[name] != after[name]} == set()
    assert {name for name in before.keys() & fresh.keys() if before[name] != fresh[name]} == set()
    assert build(kept).version == result.version
    assert {line: failed for line in QUESTIONS if (failed := ask(kept, line)[1])} == {}


def test_questions_about_a_kept_folder_are_answered_or_refused_in_words(kept) -> None:
    before = delivered(kept, NAME)
    for line in QUESTIONS:
        output, failed = ask(kept, line)
        assert failed is None or isinstance(failed, CorpusmillError), f"{line}: {failed!r}"
        if line.startswith(("plan", "diff")) or "--version" in line:
            assert failed is None, f"{line}: {failed}"
            assert output
    assert not delivered(kept, NAME).differences(before)


def test_reprocessing_a_shard_of_a_kept_folder_delivers_what_this_version_builds(kept, scratch) -> None:
    output, failed = ask(kept, f"reprocess {NAME}.yaml --stage tokenize --shard 0 --workers 1")
    assert failed is None, failed
    assert "tokenize" in output
    assert not delivered(kept, NAME).differences(delivered(scratch, NAME))


def test_plan_with_keys_of_another_version_is_an_error_in_words(tmp_path) -> None:
    def write(folder: Path) -> Outcome:
        (folder / "config.json").write_text('{"name": "web", "gone_since": "a value"}')
        (folder / "plan.json").write_text('{"shards": 3}')
        return Outcome(counts={})

    build = open_build(run_once(Step("plan", 1, "web", {}, ()), tmp_path, write))
    for read in (lambda: build.config, lambda: build.plan):
        with raises("plan.other_version") as refused:
            read()
        assert "a value" not in str(refused.value)
