"""`make test-ui`: a real Airflow, a real browser. `make screenshots`: the same, and README's pictures are made anew.

Chromium is the machine's own (CHROMIUM=/path/to/it, or whatever is found); its driver comes from requirements.lock into
an environment of its own. Screenshots and Airflow's log stay in build/ui.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "ui"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
sys.path.insert(0, str(ROOT))

from tests.consumers.run import environment  # noqa: E402


def browser() -> str:
    """The machine's Chromium; ends with words if there is none."""
    actual = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not actual:
        sys.exit(
            "The browser tests need Chromium.\n"
            f"  looked for  {', '.join(BROWSERS)}, and the variable CHROMIUM\n"
            "  next        install it (Debian, Ubuntu: apt-get install chromium), or set CHROMIUM to its path"
        )
    return actual


def main() -> int:
    """Start Airflow, drive it, stop it; the tests' exit code."""
    chromium = browser()
    python = environment(HERE / "requirements.lock")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    serve = [sys.executable, str(HERE / "airflow_server.py")]
    try:
        up = subprocess.run([*serve, "up", str(OUT)], stdout=subprocess.PIPE, text=True, check=True)
        settings = {
            "CORPUSMILL_UI_URL": up.stdout.split()[-1],
            "CORPUSMILL_UI_OUT": str(OUT),
            "CORPUSMILL_UI_PYTHON": sys.executable,
            "CHROMIUM": chromium,
        }
        command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-c", HERE / "pytest.ini", HERE]
        return subprocess.run(command, env=os.environ | settings, check=False).returncode
    finally:
        subprocess.run([*serve, "down", str(OUT)], check=True)


if __name__ == "__main__":
    code = main()
    if code == 0 and "screenshots" in sys.argv[1:]:
        for picture in sorted((OUT / "readme").glob("*.png")):
            shutil.copyfile(picture, ROOT / "docs" / picture.name)
            print(f"docs/{picture.name}  {picture.stat().st_size:,} bytes")
    raise SystemExit(code)
