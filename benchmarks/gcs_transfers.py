"""Claim: verified GCS downloads are faster than transfer_manager's alone, uploads keep 75 % of its parts' speed.

Against an emulator in Python on loopback, which takes most of the time, so shares say how much ours adds and no more;
the CPU of transfer_manager's processes is not counted.
Down: ours (ranges in order, the sha256 that we left or the store's crc32c, and XXH3-128) beside
transfer_manager.download_chunks_concurrently with threads and with its default, processes. Up: ours (sha256 and crc32c
of the file first, then transfer_manager's parts) beside its bare parts and beside one stream.
`python benchmarks/gcs_transfers.py`
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import xxhash
from results import write_result
from transfers import MEMORY, compared

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpusmill.storage import Checksum, Wanted, fetch, open_store
from tests.gcs_front import GcsFront
from tests.servers import gcs_emulator

FILE_BYTES, PART_BYTES, THREADS = 64 << 20, 8 << 20, 4


def main() -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    from google.cloud.storage import transfer_manager

    with (
        tempfile.TemporaryDirectory(prefix="gcs-", dir=MEMORY if MEMORY.is_dir() else None) as folder,
        gcs_emulator(root := Path(folder)) as server,
        GcsFront(server.endpoint) as front,
    ):
        front.empty("corpus")
        source, target = root / "source", root / "target"
        source.write_bytes(b"".join(hashlib.shake_128(b"%d" % number).digest(1 << 20) for number in range(64)))
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        whole = Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(source.read_bytes()))

        os.environ["STORAGE_EMULATOR_HOST"] = front.endpoint
        store = open_store("gs://corpus")
        client = storage.Client(credentials=AnonymousCredentials(), project="benchmark")
        sizes = {"chunk_size": PART_BYTES, "max_workers": THREADS}

        def their_parts() -> None:
            transfer_manager.upload_chunks_concurrently(
                str(source), client.bucket("corpus").blob("theirs"), worker_type="thread", **sizes
            )

        up = compared(
            {
                "ours": lambda: store.receive(source, "ours", digest),
                "transfer_manager, threads": their_parts,
                "one stream": lambda: client.bucket("corpus").blob("one").upload_from_filename(str(source)),
            },
            FILE_BYTES,
        )

        os.environ["STORAGE_EMULATOR_HOST"] = server.endpoint
        store = open_store("gs://corpus")
        direct = storage.Client(credentials=AnonymousCredentials(), project="benchmark")

        def down(name: str) -> dict[str, object]:
            there = store.stat(name)
            assert there is not None
            wanted = Wanted(name, FILE_BYTES, there.identity)

            def ours() -> None:
                assert fetch(store, wanted, target, root / "partial") == whole

            def theirs(workers: str) -> None:
                blob = direct.bucket("corpus").get_blob(name)
                transfer_manager.download_chunks_concurrently(blob, str(target), worker_type=workers, **sizes)

            return compared(
                {
                    "ours": ours,
                    "transfer_manager, threads": lambda: theirs("thread"),
                    "transfer_manager, processes": lambda: theirs("process"),
                },
                FILE_BYTES,
            )

        figures = {
            "load_average": round(os.getloadavg()[0], 1),
            "up": up,
            "down, an object of ours": down("ours"),
            "down, an object of others": down("theirs"),
        }
    print(figures)
    print(
        write_result(
            "gcs_transfers", "verified GCS downloads beat transfer_manager's, uploads keep 75 % of its speed", figures
        )
    )


if __name__ == "__main__":
    main()
