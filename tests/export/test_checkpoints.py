"""Our checkpoint objects, read by the rules of Jaxformer's --continue (tests/oracles/jaxformer.py)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.companions import EVERY, FOLDER, shard_checkpoints, write_checkpoints, write_placeholders
from corpusmill.export.numpy_shards import shard_names
from tests.oracles import jaxformer
from tests.oracles.export import jaxformer_shards

EOT = 99
DOCUMENTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), max_size=15)


def written(documents: list[list[int]], shard_tokens: int, folder: Path, cuts: list[int] | None = None) -> list[dict]:
    """Write the checkpoints of a stream whose cells are cut before the documents `cuts`; returns all of them."""
    bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts or []), len(documents)]
    cells = []
    for first, last in pairwise(bounds):
        ends = np.cumsum([len(document) for document in documents[first:last]], dtype=np.uint64)
        cells.append((ends, np.zeros(last - first, np.uint64), np.arange(first, last, dtype=np.uint64)))
    write_checkpoints(shard_checkpoints(cells, shard_tokens), folder)
    every = folder / FOLDER / EVERY
    return [json.loads(line) for line in every.read_text().splitlines()] if every.exists() else []


def bucket_of(folder: Path, written_at: int = 5) -> dict[str, jaxformer.Object]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): (written_at, path.read_text()) for path in files}


@given(DOCUMENTS, st.integers(1, 12), st.lists(st.integers(0, 15), max_size=3))
def test_numpy_stream_continued_at_any_checkpoint_is_the_uninterrupted_one(
    tmp_path_factory, documents, shard_tokens: int, cuts
) -> None:
    """Killed after any shard: the rest of the stream, straddling documents included, to the last token."""
    folder = tmp_path_factory.mktemp("checkpoints")
    whole = jaxformer_shards(documents, EOT, shard_tokens)
    every = written(documents, shard_tokens, folder, cuts)
    assert len(every) == sum(len(shard) == shard_tokens for shard in whole)
    for item in every:
        rest = jaxformer.continued(documents, EOT, shard_tokens, item["documents"], item["carry_tokens"])
        assert rest == whole[item["shard"] + 1 :]


def test_numpy_original_reads_our_checkpoint_and_would_lose_the_straddling_rest(tmp_path) -> None:
    documents = [[number % 10] * 4 for number in range(30)]
    every = written(documents, 12, tmp_path)
    ours = bucket_of(tmp_path)
    assert sum(name.endswith(".txt") for name in ours) == 1  # with two, the server's time would decide
    actual = jaxformer.newest_checkpoint(ours)
    assert actual == (every[-1]["document"], 11, every[-1]["documents"])
    assert every[0] == {"shard": 0, "documents": 3, "document": "00000-000000002", "carry_tokens": 3}
    whole = jaxformer_shards(documents, EOT, 12)
    assert jaxformer.continued(documents, EOT, 12, 3, 0) != whole[1:]
    assert jaxformer.continued(documents, EOT, 12, 3, 3) == whole[1:]


def test_numpy_loader_sees_every_shard_behind_a_placeholder(tmp_path) -> None:
    names = shard_names(6, 2)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("shard")
    write_placeholders(names, tmp_path)
    for split in ("test/", "train/"):
        seen = jaxformer.listed(list(bucket_of(tmp_path)), split)
        assert seen == [name for name in names if name.startswith(split)]
