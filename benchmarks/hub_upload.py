"""Target: a dataset reaches a hub at 0.9 of the rate of huggingface_hub's own upload_folder, verified.

Files of random bytes go to a hub on loopback (tests/hub_writing.py, in a process of its own, which digests what it
gets) by LFS: once with upload_folder, once with commit_version, which also compares the commit and the tag with what
was sent. Each way sends its own bytes, so that the hub holds none of them; in turn, and the medians are compared. Then
each way is made again, when the hub holds all. `python benchmarks/hub_upload.py --files 8 --file-mib 64 --rounds 5`
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": "hf_let-me-write"}

import numpy as np
from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpusmill.fingerprint import file_digest
from corpusmill.storage.hub import HubRepository, LocalFile
from corpusmill.upload.stages.hub_upload import commit_version
from tests.hub_writing import WritableHub

REPOSITORY = "owner/name"


class Seconds(NamedTuple):
    """Of a delivery: from start to end, and of this process's cores; the hub's are not in it."""

    wall: float
    cpu: float


def serve(folder: Path, answers: Connection) -> None:
    """A hub until the other end of the pipe says so."""
    with WritableHub(folder) as hub:
        hub.create()
        hub.branches["theirs"] = hub.branches["main"]
        answers.send(hub.endpoint)
        answers.recv()


def written(folder: Path, files: int, file_bytes: int, seed: int) -> Path:
    """A folder of files that no other seed makes."""
    folder.mkdir()
    generator = np.random.Generator(np.random.PCG64(seed))
    for number in range(files):
        (folder / f"part-{number:03d}.bin").write_bytes(generator.bytes(file_bytes))
    return folder


def by_us(folder: Path, version: str) -> Seconds:
    """A delivery; digests are known from the receipts, so they are made before."""
    files = [LocalFile(path.name, path, file_digest(path), path.stat().st_size) for path in sorted(folder.iterdir())]
    wall, cpu = time.perf_counter(), time.process_time()
    repository = HubRepository(f"hf://datasets/{REPOSITORY}")
    commit_version(repository, files, name="bench", version=version, branch=version)
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def by_upload_folder(folder: Path) -> Seconds:
    """huggingface_hub's own, to a branch that holds the same names."""
    from huggingface_hub import HfApi

    wall, cpu = time.perf_counter(), time.process_time()
    HfApi(endpoint=os.environ["HF_ENDPOINT"]).upload_folder(
        repo_id=REPOSITORY, repo_type="dataset", folder_path=folder, revision="theirs"
    )
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def main() -> None:
    """Print the medians and write the result file; exits with 1 below 0.9."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--file-mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    size_mb = asked.files * asked.file_mib * 1.048576
    seconds: dict[str, list[Seconds]] = {"ours": [], "theirs": [], "ours again": [], "theirs again": []}
    with tempfile.TemporaryDirectory(prefix="hub-upload-") as root:
        (Path(root) / "objects").mkdir()
        ours, theirs = multiprocessing.Pipe()
        hub = multiprocessing.Process(target=serve, args=(Path(root) / "objects", theirs), daemon=True)
        hub.start()
        os.environ["HF_ENDPOINT"] = ours.recv()
        for number in range(asked.rounds):
            item = written(Path(root) / f"ours-{number}", asked.files, asked.file_mib << 20, 2 * number)
            other = written(Path(root) / f"theirs-{number}", asked.files, asked.file_mib << 20, 2 * number + 1)
            ways = [("ours", lambda: by_us(item, f"{number:012x}")), ("theirs", lambda: by_upload_folder(other))]  # noqa: B023
            for suffix in ("", " again"):
                for name, upload in ways if number % 2 else reversed(ways):
                    seconds[name + suffix].append(upload())
            for path in [*item.iterdir(), *other.iterdir(), *(Path(root) / "objects").iterdir()]:
                path.unlink()
        ours.send("enough")
        hub.join()
    times = {name: Seconds(*map(list, zip(*pairs, strict=True))) for name, pairs in seconds.items()}
    share = median(theirs / ours for ours, theirs in zip(times["ours"].wall, times["theirs"].wall, strict=True))
    figures: dict[str, object] = {
        "files": asked.files,
        "MB": round(size_mb),
        "rounds": asked.rounds,
        "MB/s of commit_version, verified": round(size_mb / median(times["ours"].wall), 1),
        "MB/s of upload_folder": round(size_mb / median(times["theirs"].wall), 1),
        "share, the median of the rounds": round(share, 3),
        "CPU seconds of commit_version": round(median(times["ours"].cpu), 3),
        "CPU seconds of upload_folder": round(median(times["theirs"].cpu), 3),
        "seconds of each": {name: [round(each, 2) for each in taken.wall] for name, taken in times.items()},
    }
    print(figures)
    write_result("hub_upload", "target: a dataset reaches a hub at 0.9 of upload_folder's rate, verified", figures)
    raise SystemExit(share < 0.9)


if __name__ == "__main__":
    main()
