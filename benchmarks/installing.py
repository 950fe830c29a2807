"""From an empty environment to a finished dataset of one's own JSON lines: three commands, each with its wall and CPU.

Install, build, peek, in a folder of their own: a fresh environment, home and caches, so everything is fetched, unpacked
and compiled. The wheel is made from this tree; the text is 2 MB (benchmarks/numbered.py). The packages come from
the index that the environment or /etc names to pip or uv: settings in the home are not read. The install's wall
depends on it.

    make setup && .venv/bin/python -m benchmarks.installing          # pip; --uv: uv instead
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.numbered import write_numbered
from benchmarks.results import write_result

ROOT = Path(__file__).resolve().parents[1]
MEGABYTES = 2
KEPT = ("PATH", "LANG", "PIP_", "UV_", "HTTP", "NO_PROXY", "SSL_")


def measured(command: list[str], folder: Path) -> dict[str, float]:
    """Wall and CPU seconds of a command and its processes, in an environment without caches."""
    variables = {name: value for name, value in os.environ.items() if name.upper().startswith(KEPT)}
    variables |= {"HOME": str(folder), "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", action="store_true", help="install by uv instead of pip")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpusmill-installing-") as name:
        folder = Path(name)
        write_numbered(folder / "data", MEGABYTES, files=2)
        subprocess.run(["make", "-s", "wheel", f"WHEELS={folder / 'wheels'}"], cwd=ROOT, check=True)
        (wheel,) = map(str, (folder / "wheels").glob("*.whl"))
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        program = str(folder / "env" / "bin" / "corpusmill")
        uv = str(ROOT / ".cache" / "setup-venv" / "bin" / "uv")
        by_uv = [uv, "pip", "install", "--quiet", "--python", str(folder / "env"), wheel]
        by_pip = [str(folder / "env" / "bin" / "pip"), "install", "--quiet", wheel]
        line = [program, "build", "data", "--tokenizer", "cl100k_base", "--export", "megatron", "--output", "out"]
        figures = {
            "install": measured(by_uv if arguments.uv else by_pip, folder),
            "build": measured(line, folder),
            "peek": measured([program, "peek", "out/latest"], folder),
            "build_again": measured([program, "build", "out.yaml"], folder),
        }
    total = round(sum(figures[step]["wall_seconds"] for step in ("install", "build", "peek")), 1)
    result = write_result(
        "installing_uv" if arguments.uv else "installing",
        "From an empty environment to a finished dataset: three commands, two minutes on 2 cores.",
        {**figures, "three_commands_wall_seconds": total},
    )
    print(result.read_text())


if __name__ == "__main__":
    main()
