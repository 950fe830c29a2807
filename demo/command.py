"""Airflow's own command line, over the Airflow of `make up`: `python demo/command.py backfill create --dag-id ...`.

With SQLite a command that writes while another component does may end with "database is locked". Airflow has taken back
what it did until then, so that the command may be given again; this does so. No longer time-out would: Airflow reads
inside a savepoint before it writes, and SQLite refuses that write at once if somebody else has committed in between.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from server import DEFAULT_PORT, ROOT, environment, running

TRIES = 10
BUSY = "database is locked"


def main(arguments: list[str]) -> int:
    """Run `airflow ARGUMENTS` with the settings of this repository's Airflow; its exit code."""
    server = running()
    command = [str(Path(sys.executable).with_name("airflow")), *arguments]
    for attempt in range(1, TRIES + 1):
        settings = environment(server.port if server else DEFAULT_PORT)
        done = subprocess.run(command, cwd=ROOT, env=settings, stderr=subprocess.PIPE, text=True, check=False)
        if not done.returncode or BUSY not in done.stderr or attempt == TRIES:
            sys.stderr.write(done.stderr)
            break
        print(f"The database is busy: trying again ({attempt} of {TRIES - 1}) ...", file=sys.stderr)
        time.sleep(1)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
