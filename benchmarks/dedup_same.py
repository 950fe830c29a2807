"""Claim: deduplication writes the bytes that an earlier commit writes, on ten corpora.

`corpusmill dedup` of both, each in a process of its own with its own modules: the sample whole, in files and in parts,
and made text: words from few, periods, near-copies, characters of four bytes, one document again and again.
`python benchmarks/dedup_same.py CORPUS_FOLDER COMMIT`
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zstandard
from dedup_before import HERE, ask, start
from results import write_result

RUNS = (("remove", 500), ("annotate", 100), ("remove", 40))


def made() -> Iterator[tuple[str, list[str]]]:
    """(name, documents) of corpora that no sample has."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrd", k=rng.randint(2, 7))) for _ in range(300)]
    yield "few words", [" ".join(rng.choices(words, k=rng.randint(1, 600))) for _ in range(4000)]
    pieces = [" ".join(rng.choices(words, k=80)) for _ in range(60)]
    yield "passages again", [" ".join(rng.choices(pieces, k=rng.randint(1, 9))) for _ in range(3000)]
    yield "periods", [rng.choice("ab-=") * rng.randint(0, 5000) + rng.choice(pieces) for _ in range(2000)]
    long = " ".join(rng.choices(words, k=20_000))
    copies = []
    for _ in range(60):
        letters = list(long)
        for at in range(rng.randrange(397), len(letters), 397):
            letters[at] = rng.choice("XYZ")
        copies.append("".join(letters))
    yield "near-copies", copies
    wide = ["".join(rng.choices("\u00e9\u4e2d\U0001f600a ", k=500)) for _ in range(40)]
    yield "characters of four bytes", ["".join(rng.choices(wide, k=rng.randint(1, 4))) for _ in range(2000)]
    yield "one document", [long[:3000]] * 2000


def write(documents: list[str], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number in range(3):
        own = documents[number::3]
        lines = "".join(json.dumps({"id": str(at), "text": text}) + "\n" for at, text in enumerate(own))
        (folder / f"{number}.jsonl.zst").write_bytes(zstandard.compress(lines.encode(), 1))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("commit")
    arguments = parser.parse_args()
    files = sorted(arguments.corpus.resolve().iterdir())
    with tempfile.TemporaryDirectory(prefix="same-") as root:
        folder = Path(root)
        corpora = {"the sample": arguments.corpus.resolve()}
        for path in files:
            corpora[path.name] = folder / path.name.partition(".")[0]
            corpora[path.name].mkdir()
            (corpora[path.name] / path.name).symlink_to(path)
        corpora |= {name: write(documents, folder / name.replace(" ", "-")) for name, documents in made()}
        tree = folder / "before"
        tree.mkdir()
        archive = subprocess.run(["git", "archive", arguments.commit], cwd=HERE, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
        with start(tree) as before, start(HERE) as now:
            for name, corpus in corpora.items():
                for mode, length in RUNS:
                    digests = {ask(side, str(corpus), mode, length)["written"] for side in (before, now)}
                    assert len(digests) == 1, (name, mode, length)
                    print(name, mode, length, *digests, flush=True)
            for side in (before, now):
                side.communicate()
    figures = {"before": arguments.commit, "corpora": list(corpora), "runs": [list(run) for run in RUNS], "unequal": 0}
    print(write_result("dedup_same", (__doc__ or "").split("\n\n", maxsplit=1)[0], figures))


if __name__ == "__main__":
    main()
