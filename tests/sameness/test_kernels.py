"""What the image compiles is all that builds and commands call: no container compiles a kernel again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MINUTES = 15


@pytest.mark.slow
def test_kernels_compiled_with_the_image_are_those_that_builds_and_commands_call(tmp_path: Path) -> None:
    """Every value of every setting is in one of the builds that `test_same_bytes.py` runs in every test run."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "NUMBA_CPU_NAME": "generic"}
    environment.pop("PYTEST_XDIST_WORKER", None)

    def run(*arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60 * MOST_MINUTES,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "kernels").rglob("*.nbc")}

    compiled = run("deploy/compile_kernels.py")
    assert len(compiled) > 80
    called = run("-m", "pytest", "-n", "0", "-m", "not slow", "tests/sameness/test_same_bytes.py")
    assert called == compiled, sorted(called - compiled)
