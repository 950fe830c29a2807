"""The code of a step that runs is the code that was fingerprinted, whatever one process imported and edited before."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from pathlib import Path

import pytest

from corpusmill.config import StepConfig
from corpusmill.steps.loading import identity_of, load
from tests.raising import raises

FILES = {
    "my_filters.py": "from words import one\nfrom lists import last\nA = 1\n"
    "def value(document=None):\n    import late\n    from lists.deep import deeper\n"
    "    return [A, one(), last, deeper.B, late.C]\n",
    "other_filters.py": "from words import one\ndef value(document=None):\n    return one()\n",
    "words.py": "import further\ndef one():\n    return further.D\n",
    "further.py": "D = 1\n",
    "lists/__init__.py": "from .own import E as last\n",
    "lists/own.py": "E = 1\n",
    "lists/deep/deeper.py": "B = 1\n",
    "late.py": "C = 1\n",
}
NAMES = {"my_filters", "other_filters", "words", "further", "lists", "late"}
EDITED = ["my_filters.py", "further.py", "lists/own.py", "lists/deep/deeper.py", "late.py"]
STEP = StepConfig(use="my_filters:value")


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    yield tmp_path
    forget()


def edit(path: Path) -> None:
    """Edit 1 to 2, as long as before and with the times of before: bytecode of before seems current."""
    before = path.stat()
    path.write_text(path.read_text().replace("= 1\n", "= 2\n"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_a_new_process(use: str) -> list[int]:
    code = (
        "import sys; from corpusmill.config import StepConfig; from corpusmill.steps.loading import load\n"
        f"print(load(StepConfig(use={use!r}))())"
    )
    return eval(subprocess.check_output([sys.executable, "-c", code], text=True))  # noqa: S307


@pytest.mark.parametrize("bytecode", [False, True])
@pytest.mark.parametrize("edited", EDITED)
def test_step_loaded_again_after_an_edit_is_what_its_files_hold(root: Path, edited: str, *, bytecode: bool) -> None:
    if bytecode:
        compileall.compile_dir(root, quiet=1)
    before = identity_of(STEP)
    assert load(STEP, before)() == [1, 1, 1, 1, 1]
    edit(root / edited)
    assert identity_of(STEP) != before
    actual = load(STEP, identity_of(STEP))()
    assert sorted(actual) == [1, 1, 1, 1, 2]
    assert not bytecode or actual == in_a_new_process(STEP.use)


@pytest.mark.parametrize("edited", EDITED)
def test_step_that_a_script_imported_before_an_edit_is_what_its_files_hold(
    root: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    monkeypatch.syspath_prepend(str(root))
    assert import_module("my_filters").value() == [1, 1, 1, 1, 1]
    edit(root / edited)
    assert sorted(load(STEP, identity_of(STEP))()) == [1, 1, 1, 1, 2]


def test_step_that_a_script_reloaded_before_an_edit_is_what_its_files_hold(root: Path) -> None:
    load(STEP)
    reload(sys.modules["words"])
    reload(sys.modules["my_filters"])
    edit(root / "my_filters.py")
    assert load(STEP, identity_of(STEP))() == [2, 1, 1, 1, 1]


def test_steps_that_share_an_edited_module_both_run_the_edited_code(root: Path) -> None:
    other = StepConfig(use="other_filters:value")
    assert (load(STEP)()[1], load(other)()) == (1, 1)
    edit(root / "further.py")
    assert (load(STEP)()[1], load(other)()) == (2, 2)


def test_step_whose_module_lies_in_two_folders_runs_the_one_it_is_identified_by(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path_factory.mktemp("first")
    (first / "further.py").write_text("D = 3\n")
    before = identity_of(STEP)
    assert load(STEP)()[1] == 1
    monkeypatch.syspath_prepend(str(first))
    assert identity_of(STEP) != before
    assert load(STEP, identity_of(STEP))()[1] == 3
    (first / "further.py").write_text("D = 4\n")
    assert load(STEP, identity_of(STEP))()[1] == 4


def test_step_after_a_script_set_an_earlier_path_again_is_of_the_root_folder(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(STEP)
    kept = [*sys.path]
    for folder, number in ((tmp_path_factory.mktemp("second"), 2), (tmp_path_factory.mktemp("third"), 3)):
        (folder / "my_filters.py").write_text(f"def value(document=None):\n    return {number}\n")
        monkeypatch.setenv("CORPUSMILL_ROOT", str(folder))
        assert load(STEP)() == number
        sys.path[:] = kept  # has the first root


def test_step_whose_imported_module_was_deleted_fails_as_in_a_new_process(root: Path) -> None:
    load(STEP)
    (root / "words.py").unlink()
    with raises("custom_step.unusable", "no module words"):
        load(STEP, identity_of(STEP))


def test_step_without_an_edit_is_not_imported_again(root: Path) -> None:
    first = load(STEP)
    first()  # imports late.py
    load(StepConfig(use="other_filters:value"))
    before = identity_of(STEP)
    (root / "unrelated.py").write_text("F = 1\n")
    assert identity_of(STEP) == before
    assert load(STEP) is first


def test_step_that_changes_while_it_is_loaded_is_refused(root: Path) -> None:
    (root / "my_filters.py").write_text("import words\nimport further\ndef value(document): ...\n")
    (root / "words.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('further.py').write_text('D = 5')\n"
    )
    with raises("custom_step.changed_while_loaded", "further.py"):
        load(STEP)


def test_installed_step_that_is_upgraded_while_it_is_in_memory_is_refused(tmp_path: Path) -> None:
    package, record = tmp_path / "installed_filters", tmp_path / "installed_filters-1.0.dist-info"
    for folder in (package, record):
        folder.mkdir()
    (package / "__init__.py").write_text("from .own import E as value\n")
    (package / "own.py").write_text("def E(document): return True\n")
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-filters\nVersion: 1.0\n")
    (record / "top_level.txt").write_text("installed_filters\n")
    code = (
        "from pathlib import Path\nfrom corpusmill.config import StepConfig\n"
        "from corpusmill.steps.loading import StepChangedError, load\n"
        "step = StepConfig(use='installed_filters:value')\nload(step)\nload(step)\n"
        f"record = Path({str(record)!r})\ndata = (record / 'METADATA').read_text()\n"
        "record.rename(record.with_name('installed_filters-2.0.dist-info'))\n"
        "(record.with_name('installed_filters-2.0.dist-info') / 'METADATA').write_text(data.replace('1.0', '2.0'))\n"
        "try:\n    load(step)\nexcept StepChangedError as error:\n    print(error)\n"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(tmp_path)}, text=True
    )
    assert "installed again" in printed
    assert "installed-filters 1.0" in printed
    assert "installed-filters 2.0" in printed
