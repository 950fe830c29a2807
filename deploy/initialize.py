"""Once before Airflow starts: tables, stored graphs, memory pool, login, bucket. Repeating it changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path


def main() -> None:
    """Do everything that is not done yet."""
    from airflow.models.pool import Pool
    from airflow.utils.db import initdb

    from corpusmill_airflow.stored_graphs import mend_stored_graphs

    initdb()
    mend_stored_graphs()
    pool, gib = os.environ["CORPUSMILL_MEMORY_POOL"], int(os.environ["CORPUSMILL_MEMORY_GIB"])
    if Pool.get_pool(pool) is None:
        Pool.create_or_update_pool(pool, gib, "GiB of memory; a task takes what it needs", include_deferred=False)
    write_password(Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]))
    if bucket := os.environ.get("CORPUSMILL_BUCKET"):
        make_bucket(bucket, os.environ["CORPUSMILL_BUCKET_ENDPOINT"])


def write_password(path: Path) -> None:
    """The admin's password, from the environment into the file that Airflow reads; nobody else may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"admin": os.environ["CORPUSMILL_ADMIN_PASSWORD"]}, file)


def make_bucket(name: str, endpoint_url: str) -> None:
    """A bucket for sources and destinations, if there is none of that name."""
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint_url)
    if name not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=name)


if __name__ == "__main__":
    main()
