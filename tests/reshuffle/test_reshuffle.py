from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import deflate
import numpy as np
import pytest

from corpusmill.errors import ConfigError, CorruptDataError, SourceError
from corpusmill.export.manifest import read_manifest
from corpusmill.export.webdataset import read_shard, write_shard
from corpusmill.reshuffle.folders import ready_inputs
from corpusmill.reshuffle.tars import reshuffle


@pytest.fixture
def source(tmp_path) -> Path:
    (tmp_path / "in").mkdir()
    for shard, count in enumerate((30, 1, 12)):
        contexts = np.arange(count * 4, dtype=np.uint32).reshape(count, 4) + 1000 * shard
        ids = [f"{shard:05d}-{ordinal:09d}" for ordinal in range(count)]
        write_shard(tmp_path / f"in/shard_{shard:08d}.tar", [contexts], ids, shard, vocabulary_size=5000)
    return tmp_path / "in"


def run(source: Path, output: Path, *, per_shard: int = 10, memory_bytes: int = 1 << 20, seed: int = 1) -> int:
    done = reshuffle(
        ready_inputs([str(source)])[1],
        output,
        seed=seed,
        contexts_per_shard=per_shard,
        memory_bytes=memory_bytes,
        scratch=output.parent / "scratch",
    )
    return done.records


def samples(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (name.split("_", 2)[2], tuple(context.tolist()))
        for path in sorted(folder.glob("*.tar"))
        for name, context in read_shard(path)
    ]


def test_webdataset_t26_shuffle_only_keeps_every_sample_once_in_another_order(source, tmp_path) -> None:
    assert run(source, tmp_path / "out") == 43
    actual = samples(tmp_path / "out")
    assert sorted(actual) == sorted(samples(source))
    assert actual != samples(source)


def test_webdataset_t26_shuffle_only_carries_the_bodies_untouched(source, tmp_path) -> None:
    run(source, tmp_path / "out")

    def bodies(folder: Path) -> list[bytes]:
        actual = []
        for path in folder.glob("*.tar"):
            with tarfile.open(path) as archive:
                actual += [archive.extractfile(member).read() for member in archive]
        return sorted(actual)

    assert bodies(source) == bodies(tmp_path / "out")


def test_webdataset_t18_shuffle_only_shards_are_full_but_the_last(source, tmp_path) -> None:
    run(source, tmp_path / "out")
    assert [records for _, records in read_manifest(tmp_path / "out" / "manifest.jsonl")] == [10, 10, 10, 10, 3]


def test_webdataset_t26_shuffle_only_same_bytes_whatever_the_memory(source, tmp_path) -> None:
    actual = []
    for name, memory_bytes in (("small", 200), ("large", 1 << 20)):
        run(source, tmp_path / name, memory_bytes=memory_bytes)
        actual.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert actual[0] == actual[1]


def test_webdataset_t26_passes_do_not_lengthen_names_and_foreign_names_get_ids(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in/a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(3):
            body = deflate.gzip_compress(b"[%d,7]" % number, 1)
            member = tarfile.TarInfo(f"{'deep/' * 30}{number}.json.gz")
            member.size = len(body)
            import io

            archive.addfile(member, io.BytesIO(body))
    run(tmp_path / "in", tmp_path / "once")
    run(tmp_path / "once", tmp_path / "twice", seed=2)
    names = [name for name, _ in samples(tmp_path / "twice")]
    assert sorted(names) == [f"00000-{number:09d}.json.gz" for number in range(3)]


def test_webdataset_t34_output_folder_with_stale_shards_is_refused(source, tmp_path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/shard_00000099.tar").touch()
    with pytest.raises(ConfigError, match="not empty"):
        run(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shard_00000099.tar"]


@pytest.mark.parametrize("damage", [700, 5000])
def test_webdataset_t26_truncated_tar_is_refused(source, tmp_path, damage: int) -> None:
    path = source / "shard_00000000.tar"
    path.write_bytes(path.read_bytes()[:damage])
    with pytest.raises(CorruptDataError, match="tar"):
        run(source, tmp_path / "out")


def cut_before_the_end(tar: bytes, end: int) -> bytes:
    return tar[:end]


def cut_within_the_end(tar: bytes, end: int) -> bytes:
    return tar[: end + 512]


def cut_at_a_member(tar: bytes, end: int) -> bytes:
    return tar[: tar.index(b"00000000_00000005")]


def zeros_in_the_middle(tar: bytes, end: int) -> bytes:
    return tar[: tar.index(b"00000000_00000005")] + bytes(1024) + tar[tar.index(b"00000000_00000005") :]


def one_block_of_zeros_in_the_middle(tar: bytes, end: int) -> bytes:
    return tar[: tar.index(b"00000000_00000005")] + bytes(512) + tar[tar.index(b"00000000_00000005") :]


def damaged_header_in_the_middle(tar: bytes, end: int) -> bytes:
    return tar.replace(b"00000000_00000005", b"10000000_00000005")


def two_in_one(tar: bytes, end: int) -> bytes:
    return tar + tar


def junk_far_behind_the_end(tar: bytes, end: int) -> bytes:
    return tar + bytes(9 << 20) + b"x"


@pytest.mark.parametrize(
    "damage",
    [
        cut_before_the_end,
        cut_within_the_end,
        cut_at_a_member,
        zeros_in_the_middle,
        one_block_of_zeros_in_the_middle,
        damaged_header_in_the_middle,
        two_in_one,
        junk_far_behind_the_end,
    ],
)
def test_webdataset_t26_tar_without_a_clean_end_is_refused(source, tmp_path, damage: Callable[..., bytes]) -> None:
    path = source / "shard_00000000.tar"
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        end = archive.offset
    assert len(members) == 30
    path.write_bytes(damage(path.read_bytes(), end))
    with pytest.raises(CorruptDataError, match="a tar"):
        run(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_webdataset_t26_more_zeros_behind_the_end_are_read(source, tmp_path) -> None:
    path = source / "shard_00000000.tar"
    path.write_bytes(path.read_bytes() + bytes(1 << 20))
    assert run(source, tmp_path / "out") == 43


def test_webdataset_t26_folder_without_tars_is_refused(tmp_path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        run(tmp_path / "nothing", tmp_path / "out")


def test_webdataset_t26_fewer_samples_than_a_shard_make_one_short_shard(source, tmp_path) -> None:
    run(source, tmp_path / "out", per_shard=8192)
    assert read_manifest(tmp_path / "out" / "manifest.jsonl") == [("shard_00000000", 43)]
