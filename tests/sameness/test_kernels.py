"""What the image compiles is all that builds and commands call: no container compiles a kernel again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVERY_KERNEL = """
from numba.core.dispatcher import Dispatcher
from tests.modules import every_module

for module in every_module():
    items = [item for item in vars(module).values() if isinstance(item, Dispatcher)]
    own = [item for item in items if item.py_func.__module__ == module.__name__ and "inline" not in item.targetoptions]
    print(*(f"{module.__name__.rpartition('.')[2]}.{item.py_func.__name__}" for item in own))
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_kernels_compiled_with_the_image_are_all_of_the_code_and_those_that_builds_and_commands_call(
    tmp_path: Path,
) -> None:
    """The first holds rare kernels, such as those of crowded borders; the second the types that they are called with.

    Every value of every setting is in one of the builds that `test_same_bytes.py` runs in every test run.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}
    environment.pop("PYTEST_XDIST_WORKER", None)

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def compiled() -> set[str]:
        return {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.nbc")}

    run("deploy/compile_kernels.py")
    every = set(run("-c", EVERY_KERNEL).split())
    assert len(every) > 60
    assert every <= {path.name.partition("-")[0] for path in tmp_path.rglob("*.nbi")}
    before = compiled()
    run("-m", "pytest", "-n", "0", "-m", "not slow", "tests/sameness/test_same_bytes.py")
    assert compiled() == before
