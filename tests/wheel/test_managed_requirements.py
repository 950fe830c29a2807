"""deploy/managed_requirements.py: what it asks for leaves the image's packages alone, and works beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.corpus import write_corpus
from tests.wheel.fresh import AIRFLOWS, ROOT, TRIED, installed, make_environment, run, uv
from tests.wheel.test_fresh_airflow import PARSED
from tests.wheel.test_fresh_program import LINE, OPENED

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "deploy" / "managed_requirements.py"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize("version", TRIED)
def test_whole_program_is_installed_beside_airflow_changes_none_of_its_packages_and_builds(
    folder: Path, wheel: Path, version: str
) -> None:
    """MWAA's image is Airflow with Amazon's provider, and its constraints name every package of it."""
    place = folder / f"managed-{version}"
    image = (f"apache-airflow=={version}", "apache-airflow-providers-amazon")
    python = make_environment(place / "env", *image, newest=AIRFLOWS[version])
    before = installed(place / "env")
    constraints, asked = place / "constraints.txt", place / "requirements.txt"
    constraints.write_text("# of the image\n" + "".join(f"{name}=={of}\n" for name, of in before.items()))
    lines = run(sys.executable, SCRIPT, constraints, PYTHON).splitlines()
    assert lines[0] == "corpusmill"
    assert not {line.partition("==")[0] for line in lines} & before.keys()
    asked.write_text("\n".join([str(wheel), *lines[1:]]))
    run(uv(), "pip", "install", "-q", "--python", python, "-r", asked, "--constraint", constraints)
    after = installed(place / "env")
    assert before.items() <= after.items()
    assert {name for name in after.keys() - before.keys() if name != "corpusmill"} == {
        line.partition("==")[0] for line in lines[1:]
    }

    run(python, "-m", "corpusmill_airflow", place / "dags")
    parsed = json.loads(run(python, "-c", PARSED, cwd=place).splitlines()[-1])
    assert (parsed["errors"], "dataset__first" in parsed["dags"]) == ([], True)
    write_corpus(place / "data")
    run(python.with_name("corpusmill"), *LINE, cwd=place)
    assert int(run(python, "-c", OPENED, cwd=place)) > 0


def test_image_with_which_nothing_fits_is_said_in_the_resolvers_words(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==1.26.4+composer\n")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "constraints.txt"), PYTHON]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "numpy==1.26.4" in done.stderr
