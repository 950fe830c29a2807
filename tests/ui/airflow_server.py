"""An Airflow of its own for the browser tests: with logins, in a folder of its own, over a small corpus.

Run by the repository's Python (`python airflow_server.py up FOLDER` prints the address, `down FOLDER` stops it, `many
FOLDER` adds runs of 200 shards and of 1,000 parts); the tests themselves run in an environment that has a browser's
driver and no Airflow.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "demo")]

import server  # noqa: E402

USERS = {"admin": "admin", "looker": "viewer"}  # user -> role
START_SECONDS = 600  # a machine that does other things, too


def set_up(folder: Path) -> None:
    """Let demo/server.py work in `folder`, for users who log in."""
    home = folder / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({user: user for user in USERS}))
    usual = server.environment
    ours = {
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in USERS.items()),
    }
    nobody = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "of-no-store"}  # else no store is even asked
    nobody["CORPUSMILL_FORM_ROOTS"] = "sample,work,outputs,s3://far | http://127.0.0.1:9"

    def environment(port: int) -> dict[str, str]:
        settings = {f"AIRFLOW__{name}": value for name, value in ours.items()}
        return usual(port) | nobody | settings | {"AIRFLOW_HOME": str(home), "CORPUSMILL_ROOT": str(folder / "data")}

    server.environment = environment
    server.HOME, server.STATE, server.LOG = home, home / "server.json", home / "standalone.log"
    server.PASSWORDS = passwords
    server.START_SECONDS = START_SECONDS


def write_data(folder: Path) -> None:
    """The form's default source, small: five files, of which each becomes a shard of its own."""
    from tests.system.corpus import write_corpus

    write_corpus(folder / "data" / "sample", documents=240)


def add_many_shards(folder: Path) -> None:
    """Runs of build_dataset over 200 shards, as if its tasks had run: two that finished, one of 4 parts and one of
    1,000, the most that a DAG may have; and one that failed.
    """
    started = server.running()
    assert started is not None
    os.environ.update(server.environment(started.port))
    from tests.dags.seeded import build_shards, seed_run

    plan = build_shards(folder / "many", 200, exports={"nanoset": {}})
    seed_run(plan, "many_finished", parts=4)
    seed_run(plan, "many_parts", parts=1000)
    seed_run(plan, "many_failed", until="tokenize", state="failed", parts=4)


if __name__ == "__main__":
    verb, where = sys.argv[1], Path(sys.argv[2])
    set_up(where)
    if verb == "up":
        write_data(where)
        print(server.start()[0].url)
    elif verb == "many":
        add_many_shards(where)
    else:
        server.stop()
