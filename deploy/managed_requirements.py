"""The requirements file with which a managed Airflow installs Corpusmill and changes no package of its image.

    python3 deploy/managed_requirements.py constraints.txt 3.12 > requirements.txt

The first argument names the image's packages, `name==version` a line: Airflow's constraints, or the list that the
product publishes. The second is the image's Python. What Corpusmill needs and the file does not name is pinned to
the newest version that fits. Exit code 1, with uv's words if nothing fits.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".cache" / "setup-venv" / "bin" / "uv"  # `make setup` installs it
PINNED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)==([\w.!]+)")  # without `+composer` and other names of builds
OPTIONS = ("--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet")


def requirements(constraints: str, python: str) -> str:
    """The file's text: Corpusmill, and a line for each package that the image lacks; SystemExit if there is none."""
    image = {canonical(found[1]): found[2] for found in map(PINNED.match, constraints.splitlines()) if found}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    uv = UV if UV.exists() else shutil.which("uv")
    if uv is None:
        sys.exit("there is no uv: run `make setup`")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as fixed:
        fixed.writelines(f"{name}=={version}\n" for name, version in image.items())
        fixed.flush()
        command = [str(uv), "pip", "compile", *OPTIONS, "--python-version", python, "--constraint", fixed.name, "-"]
        done = subprocess.run(command, input="\n".join(needed), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    lines = [line for line in done.stdout.splitlines() if canonical(line.partition("==")[0]) not in image]
    return "\n".join(["corpusmill", *lines]) + "\n"


def canonical(name: str) -> str:
    """A package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python3 deploy/managed_requirements.py CONSTRAINTS PYTHON_VERSION")
    print(requirements(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]), end="")
