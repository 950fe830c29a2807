"""What several consumers' tests need; imported in environments that may lack it, so only when asked for."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

TRACED = Path(__file__).parent / "traced.py"


@pytest.fixture(scope="session")
def traced() -> Callable[..., Any]:
    """What Corpusmill says of samples of the dataset `all`: see traced.py. Its words, if it refuses."""

    def ask(**arguments: object) -> Any:
        command = [os.environ["CORPUSMILL_CONSUMER_PYTHON"], TRACED, os.environ["CORPUSMILL_CONSUMER_CONFIG"]]
        done = subprocess.run([*command, json.dumps(arguments)], capture_output=True, text=True, check=False)
        assert not done.stderr or "Traceback" not in done.stderr, done.stderr
        return done.stdout if done.returncode else json.loads(done.stdout)

    return ask


def read_through(array: Any) -> int:
    """The number of ids of an array, each of which was touched; of a text its bytes."""
    if isinstance(array, str):
        return len(array.encode())
    import numpy as np

    ids = np.asarray(array)
    assert int(ids.max(initial=0)) < 1 << 31
    return int(ids.size)


@pytest.fixture
def shown() -> Callable[..., None]:
    """Compare what a package's reader gives first with a plain reading, and keep it: run.py --record shows it.

    `every`: reads all of the export, array by array, for the rate; None for a program of its own. `release`: of a
    reader that is no package of Python; `dataset`: whose tokenizer decodes the ids, "" where they are bytes of text.
    """

    def show(
        package: str,
        reader: str,
        export: str,
        ids: Any,
        plain: Any,
        every: Callable[[], Iterable[Any]] | None,
        *,
        release: str = "",
        dataset: str = "all",
    ) -> None:
        read = [int(number) for number in ids]
        assert read == [int(number) for number in plain]
        assert len(read) > 2
        named = f"{package} {release or version(package)}"
        row = {"package": named, "reader": reader, "export": export, "dataset": dataset, "ids": read}
        if every:
            began = time.process_time()
            slots = [read_through(array) for array in every()]
            row |= {"slots": sum(slots), "reads": len(slots), "cpu_seconds": time.process_time() - began}
            assert sum(slots) >= len(read)
        (Path(os.environ["CORPUSMILL_CONSUMER_SHOWN"]) / f"{export} {named}.json").write_text(json.dumps(row))

    return show


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The bucket `datasets` of an S3 server of the test's own, to which the environment points every client."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        boto3.client("s3").create_bucket(Bucket="datasets")
        yield boto3.resource("s3").Bucket("datasets")
    finally:
        server.stop()
