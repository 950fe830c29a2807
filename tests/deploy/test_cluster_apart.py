"""The compose file's profile `apart`: workers that share nothing but a bucket. One is killed, and its disk is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.documents.sample_corpus import write_sample_corpus
from tests.consumers.run import environment
from tests.deploy.test_cluster import DAG, begin, files_below, running_cluster, settings

pytestmark = pytest.mark.slow

BUCKET = "corpusmill"


def test_worker_killed_with_its_disk_costs_no_byte(tmp_path: Path) -> None:
    weed = environment(Path(__file__).with_name("requirements.lock")).with_name("weed")
    with running_cluster(weed) as cluster:
        for service in ("worker-apart", "worker-heavy-apart"):
            cluster.run(service, "--celery-hostname", f"{service}@%h")
        worker = cluster.environment("worker-apart")
        client = boto3.client(
            "s3",
            endpoint_url=worker["AWS_ENDPOINT_URL"],
            aws_access_key_id=worker["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=worker["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
        )
        write_sample_corpus(tmp_path / "corpus", target_bytes=20_000_000, files=2)
        for path in sorted((tmp_path / "corpus").iterdir()):
            shutil.copy(path, path.with_name(f"copy-{path.name}"))
        for path in sorted((tmp_path / "corpus").iterdir()):
            client.upload_file(str(path), BUCKET, f"corpus/{path.name}")
        begin(cluster, in_bucket(settings(tmp_path)))
        cluster.kill("worker-apart")
        shutil.rmtree(cluster.disk("worker-apart"))
        cluster.run("worker-apart", "--celery-hostname", "another@%h", name="another")
        assert cluster.live.finish(DAG, "killed") == "success"

        tasks = cluster.live.tasks(DAG, "killed")
        assert tasks["tokenize", 0]["try_number"] == 2
        caches = {path.parent.name for path in cluster.folder.glob("disks/*/s3")}
        assert caches >= {"another", "worker-heavy-apart"}
        page = cluster.live.client.get(f"/dataset-report/{DAG}/killed/report")
        assert (page.status_code, "tokens" in page.text) == (200, True)
        build_dataset(check_config(settings(tmp_path), where="a test"), workers=1)
        version = (tmp_path / "out" / "cluster" / "latest").resolve()
        alone = files_below(version)
        assert delivered(client, f"out/cluster/{version.name}/") == alone != {}


def in_bucket(configuration: dict[str, Any]) -> dict[str, Any]:
    """The same, of files in the bucket, into the bucket."""
    return configuration | {
        "source": {"paths": [f"s3://{BUCKET}/corpus"]},
        "destinations": [{"path": f"s3://{BUCKET}/out"}],
        "work_folder": f"s3://{BUCKET}/work",
    }


def delivered(client: Any, prefix: str) -> dict[str, bytes]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    keys = [row["Key"] for page in pages for row in page.get("Contents", [])]
    return {key.removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
