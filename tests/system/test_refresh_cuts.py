"""A refresh with another `source.shard_bytes`: files are cut elsewhere, and each document is there once."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
import zstandard

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.build import Build
from corpusmill.engine.plan import SourcePart
from tests.documents.test_splitting import bgzip_block
from tests.quick import quick
from tests.system.corpus import configuration, lines_of

BLOCK = 60_000  # bytes of text in a block of bgzip


def random_texts(count: int, size: int) -> list[str]:
    rng = random.Random(5)
    return ["".join(rng.choices(string.ascii_letters + string.digits, k=size)) for _ in range(count)]


def frames_of_zstd() -> tuple[list[str], bytes, tuple[int, int]]:
    """(texts, file of three frames, two sizes of a shard): the second part is the second frame, or the last two."""
    texts = random_texts(275, 24_000)
    bounds = ((0, 140), (140, 207), (207, 275))
    frames = [zstandard.compress(lines_of(texts[first:last], first)) for first, last in bounds]
    return texts, b"".join(frames), (1_100_000, 2_470_000)


def blocks_of_bgzip() -> tuple[list[str], bytes, tuple[int, int]]:
    """(texts, file of 38 blocks that are not compressed, two sizes of a shard): the second part's own blocks are up to
    the 29th, and then a long line that ends in the 38th; or all to the end, with the short lines behind it.
    """
    texts, short = random_texts(80, 19_000), random_texts(3, 60)
    missing = 37 * BLOCK + 500 - len(lines_of([*texts, "", *short]))
    texts = [*texts, *random_texts(1, missing), *short]
    lines = lines_of(texts)
    blocks = [bgzip_block(lines[at : at + BLOCK], level=0) for at in range(0, len(lines), BLOCK)]
    file = b"".join(blocks)
    return texts, file, (18 * len(blocks[0]) + len(blocks[-1]) // 2, len(file) - 1)


FILES = {"jsonl.zst": frames_of_zstd, "jsonl.gz": blocks_of_bgzip}


def built(root: Path, source: dict[str, object], shard_bytes: int) -> Build:
    root.mkdir(exist_ok=True)
    config = configuration(root, source=source | {"shard_bytes": shard_bytes}, exports={"megatron": {}})
    return open_build(build_dataset(check_config(config, where="test"), workers=1))


def texts_of(build: Build) -> list[str]:
    shards = [open_text_shard(build.folder("index", shard)) for shard in build.units("index")]
    return [shard.document_bytes(number).decode() for shard in shards for number in range(shard.documents)]


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs/tiny/latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def second_part(build: Build) -> SourcePart:
    part = [*build.plan.files()][1].part
    assert part is not None
    return part


# (kind, where it is, what the second build's shards are)
RECUT = [("jsonl.gz", "here", "larger"), ("jsonl.gz", "bucket", "smaller"), ("jsonl.gz", "streamed", "larger")]
RECUT += [("jsonl.zst", "here", "smaller"), ("jsonl.zst", "bucket", "larger"), ("jsonl.zst", "streamed", "smaller")]
RECUT += [(kind, place, "larger" if change == "smaller" else "smaller") for kind, place, change in RECUT]


@pytest.mark.parametrize("case", quick(RECUT, 3, 3), ids=map("-".join, RECUT))
def test_refresh_another_shard_size_of_a_cut_file_holds_each_document_once(
    tmp_path, rclone, rclone_client, case: tuple[str, str, str]
) -> None:
    """The second part's bytes and name stay, and what of them is its own does not."""
    kind, place, change = case
    texts, file, sizes = FILES[kind]()
    if place == "here":
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / f"big.{kind}").write_bytes(file)
        source: dict[str, object] = {"paths": [str(tmp_path / "corpus")]}
    else:
        rclone_client.put_object(Bucket="corpus", Key=f"dump/big.{kind}", Body=file)
        source = {"paths": ["s3://corpus/dump"], "endpoint_url": rclone.endpoint, "stream": place == "streamed"}
    first, second = sizes if change == "larger" else sizes[::-1]
    before, after = (built(tmp_path / "kept", source, size) for size in (first, second))
    parts = [second_part(build) for build in (before, after)]
    assert parts[0].pieces == parts[1].pieces
    assert parts[0].own_bytes != parts[1].own_bytes
    assert texts_of(before) == texts
    assert texts_of(after) == texts
    built(tmp_path / "fresh", source, second)
    assert outputs(tmp_path / "kept") == outputs(tmp_path / "fresh")
