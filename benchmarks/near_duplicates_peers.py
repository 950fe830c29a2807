"""Near-duplicates by datatrove, rensa and datasketch; started by near_duplicates.py with a Python that has them.

In: a file of JSON strings, one text a line, and the name of a peer. Out, on the last line: the numbers of the texts it
removes, its CPU seconds from text to decision, and its version. Each with what its documentation shows: datatrove's
four steps with their defaults (14 bands of 8), the others with 128 hashes and a threshold of 0.8. rensa and datasketch
leave the splitting to their caller: sets of runs of five words, cut at `\\W`, as `datatrove` and Corpusmill do.
`python near_duplicates_peers.py rensa texts.jsonl`
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

SIMILARITY, WORDS, HASHES = 0.8, 5, 128
WORD = re.compile(r"\w+")


def main() -> None:
    name, path = sys.argv[1:]
    texts = [json.loads(line) for line in Path(path).read_text().splitlines()]
    peer = PEERS[name]
    peer(texts[:50])  # loads and compiles
    begun = time.process_time()
    removed = peer(texts)
    seconds = time.process_time() - begun
    print()
    print(json.dumps({"removed": removed, "cpu_seconds": seconds, "version": version(name)}))


def runs(text: str) -> Iterator[str]:
    """The same for both libraries that take sets."""
    words = WORD.findall(text.lower())
    return (" ".join(words[at : at + WORDS]) for at in range(max(len(words) - WORDS + 1, 1)))


def rensa(texts: list[str]) -> list[int]:
    from rensa import RMinHash, RMinHashDeduplicator

    kept, removed = RMinHashDeduplicator(threshold=SIMILARITY, num_perm=HASHES, use_lsh=True), []
    for number, text in enumerate(texts):
        signature = RMinHash(num_perm=HASHES, seed=42)
        signature.update(list(runs(text)))
        if not kept.add(str(number), signature):
            removed.append(number)
    return removed


def datasketch(texts: list[str]) -> list[int]:
    from datasketch import MinHash, MinHashLSH

    kept, removed = MinHashLSH(threshold=SIMILARITY, num_perm=HASHES), []
    for number, text in enumerate(texts):
        signature = MinHash(num_perm=HASHES)
        signature.update_batch([run.encode() for run in runs(text)])
        if kept.query(signature):
            removed.append(number)
        else:
            kept.insert(number, signature)
    return removed


def datatrove(texts: list[str]) -> list[int]:
    from datatrove.data import Document
    from datatrove.pipeline.dedup import minhash

    config = minhash.MinhashConfig()
    with tempfile.TemporaryDirectory() as folder:
        signatures, pairs, clusters = (f"{folder}/{name}" for name in ("signatures", "pairs", "clusters"))
        documents = (Document(text=text, id=str(number)) for number, text in enumerate(texts))
        minhash.MinhashDedupSignature(signatures, config).run(documents)  # type: ignore[arg-type]
        for bucket in range(config.num_buckets):
            minhash.MinhashDedupBuckets(signatures, pairs, config=config).run(
                rank=bucket, world_size=config.num_buckets
            )
        minhash.MinhashDedupCluster(pairs, clusters, config).run()
        removed = Path(clusters) / "000000.remove"
        return [number for (number,) in struct.iter_unpack("<I", removed.read_bytes())] if removed.exists() else []


PEERS: dict[str, Callable[[list[str]], list[int]]] = {
    "datatrove": datatrove,
    "rensa": rensa,
    "datasketch": datasketch,
}

if __name__ == "__main__":
    main()
