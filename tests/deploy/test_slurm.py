"""docs/slurm.md: its very script, on a real Slurm, delivers the bytes of a local build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.engine.claim import CLAIM
from tests.deploy.slurm import is_installed, running_slurm
from tests.system.corpus import configuration, write_corpus

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"
CLAIM_COMMAND = [sys.executable, "-m", "corpusmill.cli", "claim"]


def script(name: str) -> str:
    """The block of the document behind a file's name."""
    actual = re.search(rf"`{name}`:\n\n```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert actual is not None
    return actual[1]


def config_file(root: Path) -> Path:
    write_corpus(root / "corpus", documents=60)
    path = root / "web.yaml"
    source = {"paths": [str(root / "corpus")], "shard_bytes": 200}
    path.write_text(yaml.safe_dump(configuration(root, source=source, reclaim="eager")))
    return path


def outputs(root: Path) -> dict[str, bytes]:
    folder = root / "outputs" / "tiny"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_script_of_slurm_is_ten_lines_at_most() -> None:
    assert 0 < len(script("arrays.sh").splitlines()) <= 10


def test_scripts_are_bash(tmp_path: Path) -> None:
    for name in ("arrays.sh", "jobs.sh"):
        (tmp_path / name).write_text(script(name))
        subprocess.run(["bash", "-n", str(tmp_path / name)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="needs Debian's slurm-wlm, and root for its daemons")
def test_script_of_the_document_builds_a_dataset_by_job_arrays_of_a_real_slurm(tmp_path: Path) -> None:
    (tmp_path / "arrays.sh").write_text(script("arrays.sh"))
    config = config_file(tmp_path)
    with running_slurm(tmp_path / "slurm") as environment:
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        settings = environment | {"PATH": path, "TASKS": "2", "CORES": "1"}
        run = subprocess.run(
            [*CLAIM_COMMAND, str(config), "--", "bash", "arrays.sh"],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
    logs = "".join(log.read_text() for log in sorted(tmp_path.glob("*.log")))
    assert run.returncode == 0, run.stdout + run.stderr + logs
    assert len(list(tmp_path.glob("tokenize-*.log"))) == 2
    (tmp_path / "local").mkdir()
    build_dataset(load_config(config_file(tmp_path / "local")), workers=1)
    assert outputs(tmp_path) == outputs(tmp_path / "local")


def test_claim_holds_the_dataset_while_its_program_runs_and_ends_as_it_ends(tmp_path: Path) -> None:
    config = config_file(tmp_path)
    claim = tmp_path / "work" / "tiny" / CLAIM
    other = f"{sys.executable} -m corpusmill.cli build {config}"
    program = (
        f'test -f {claim} && test -f "$CORPUSMILL_PLAN" && test "${{CORPUSMILL_ORDER##* }}" = report; {other}; exit $?'
    )
    run = subprocess.run([*CLAIM_COMMAND, str(config), "--", "bash", "-ec", program], capture_output=True, check=False)
    assert run.returncode == 75, run.stderr  # the other build was refused
    assert not claim.exists()
