from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import deflate
import numpy as np
import pytest

from corpusmill.direct.reshuffle.folders import ready_inputs
from corpusmill.direct.reshuffle.tars import reshuffle
from corpusmill.export.companions import read_manifest, write_manifest
from corpusmill.export.webdataset import read_shard, write_shard
from tests.raising import raises
from tests.system.described import describe


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


def bodies(folder: Path) -> list[bytes]:
    actual = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            actual += [archive.extractfile(member).read() for member in archive]
    return actual


def test_webdataset_shuffle_only_keeps_every_body_once_in_another_order_and_full_shards(source, tmp_path) -> None:
    assert run(source, tmp_path / "out") == 43
    assert sorted(samples(tmp_path / "out")) == sorted(samples(source))
    assert sorted(bodies(tmp_path / "out")) == sorted(bodies(source))
    assert bodies(tmp_path / "out") != bodies(source)
    assert [records for _, records in read_manifest(tmp_path / "out" / "manifest.jsonl")] == [10, 10, 10, 10, 3]


def test_webdataset_shuffle_only_same_bytes_whatever_the_memory(source, tmp_path) -> None:
    actual = []
    for name, memory_bytes in (("small", 200), ("large", 1 << 20)):
        run(source, tmp_path / name, memory_bytes=memory_bytes)
        actual.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert actual[0] == actual[1]


def test_webdataset_passes_do_not_lengthen_names_and_foreign_names_get_ids(tmp_path) -> None:
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


def test_webdataset_output_folder_with_stale_shards_is_refused(source, tmp_path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/shard_00000099.tar").touch()
    with raises("reshuffle.output_not_empty"):
        run(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shard_00000099.tar"]


SIXTH = b"00000000_00000005"  # a member in the middle
# Name of the damage -> what it makes of a tar whose members end at `end`.
DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "cut before the end": lambda tar, end: tar[:end],
    "cut within the end": lambda tar, end: tar[: end + 512],
    "cut at a member": lambda tar, _: tar[: tar.index(SIXTH)],
    "zeros in the middle": lambda tar, _: tar.replace(SIXTH, bytes(1024) + SIXTH),
    "one block of zeros in the middle": lambda tar, _: tar.replace(SIXTH, bytes(512) + SIXTH),
    "damaged header in the middle": lambda tar, _: tar.replace(SIXTH, b"1" + SIXTH[1:]),
    "two in one": lambda tar, _: tar + tar,
    "junk far behind the end": lambda tar, _: tar + bytes(9 << 20) + b"x",
    "cut within a member": lambda tar, _: tar[:700],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_webdataset_tar_without_a_clean_end_is_refused(source, tmp_path, damage: str) -> None:
    path = source / "shard_00000000.tar"
    with tarfile.open(path) as archive:
        assert len(archive.getmembers()) == 30
        end = archive.offset
    path.write_bytes(DAMAGES[damage](path.read_bytes(), end))
    with raises("reshuffle.tar_truncated reshuffle.tar_with_rest reshuffle.tar_not_readable"):
        run(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_webdataset_more_zeros_behind_the_end_are_read(source, tmp_path) -> None:
    path = source / "shard_00000000.tar"
    path.write_bytes(path.read_bytes() + bytes(1 << 20))
    assert run(source, tmp_path / "out") == 43


def write_tars(folder: Path, *, context_tokens: int = 4, shards: int = 2) -> Path:
    folder.mkdir(parents=True)
    for number in range(shards):
        contexts = np.arange(3 * context_tokens, dtype=np.uint32).reshape(3, context_tokens)
        ids = [f"{number}-{ordinal}" for ordinal in range(3)]
        write_shard(folder / f"shard_{number:08d}.tar", [contexts], ids, number, vocabulary_size=5000)
    return folder


def reshuffled(tmp_path: Path, *inputs: Path) -> None:
    files = ready_inputs(list(map(str, inputs)))[1]
    reshuffle(files, tmp_path / "out", seed=1, memory_bytes=1 << 20, scratch=tmp_path / "scratch")


def test_shuffle_tars_of_two_vocabularies_are_refused(tmp_path) -> None:
    for name in ("web", "other"):
        write_tars(tmp_path / name / "webdataset")
        describe(tmp_path / name, (tmp_path / name).rglob("*.*"), name)
    with raises("merge.vocabularies_differ"):
        reshuffled(tmp_path, tmp_path / "web/webdataset", tmp_path / "other/webdataset")
    assert not (tmp_path / "out").exists()
    describe(tmp_path / "other", (tmp_path / "other").rglob("*.*"), "web")
    reshuffled(tmp_path, tmp_path / "web/webdataset", tmp_path / "other/webdataset")


def test_shuffle_tars_of_two_context_lengths_are_refused(tmp_path) -> None:
    for name, context_tokens in (("a", 4), ("b", 5)):
        write_tars(tmp_path / name, context_tokens=context_tokens)
        describe(tmp_path / name, (tmp_path / name).rglob("*.*"), context_tokens=context_tokens)
    with raises("reshuffle.lengths_differ", "4 tokens", "5 tokens"):
        reshuffled(tmp_path, tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("missing", [0, 1])
def test_shuffle_folder_of_a_dataset_with_a_missing_tar_is_refused(tmp_path, missing: int) -> None:
    folder = write_tars(tmp_path / "web/webdataset")
    describe(tmp_path / "web", (tmp_path / "web").rglob("*.*"))
    lost = folder / f"shard_{missing:08d}.tar"
    lost.unlink()
    with raises("dataset.file_damaged", lost.name):
        reshuffled(tmp_path, folder)
    reshuffled(tmp_path, folder / f"shard_{1 - missing:08d}.tar")  # named by itself


def test_shuffle_tar_that_the_manifest_lists_and_is_missing_is_refused(source, tmp_path) -> None:
    write_manifest(source / "manifest.jsonl", [(f"shard_{n:08d}", count) for n, count in enumerate((30, 1, 12))])
    reshuffled(tmp_path, source)
    (source / "shard_00000002.tar").unlink()
    shutil.rmtree(tmp_path / "out")
    for folder in (source, source.parent):
        with raises("reshuffle.tar_missing", "shard_00000002.tar"):
            reshuffled(tmp_path, folder)
    assert not (tmp_path / "out").exists()
    reshuffled(tmp_path, *sorted(source.glob("*.tar")))


def test_shuffle_tar_with_fewer_samples_than_the_manifest_lists_is_refused(source, tmp_path) -> None:
    write_manifest(source / "manifest.jsonl", [(f"shard_{n:08d}", count) for n, count in enumerate((30, 2, 12))])
    with raises("reshuffle.sample_count"):
        reshuffled(tmp_path, source)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("text", ['{"shard": "shard_00000000", "num_sequences": 30}', '{"other": 1}\n[2]\n'])
def test_shuffle_manifest_of_another_program_is_read_or_passed_over(source, tmp_path, text: str) -> None:
    (source / "manifest.jsonl").write_text(text)
    reshuffled(tmp_path, source)


def test_shuffle_damaged_manifest_is_refused(source, tmp_path) -> None:
    (source / "manifest.jsonl").write_text('{"shard": "shard_0000')
    with raises("reshuffle.manifest_not_readable"):
        reshuffled(tmp_path, source)


@pytest.mark.parametrize(("made", "kind"), [("folder", "the folder"), ("link", "the link"), ("other", "the file")])
def test_member_that_is_no_sample_is_named_for_what_it_is(made: str, kind: str, tmp_path: Path) -> None:
    member = tarfile.TarInfo(f"a/{made}")
    member.type = {"folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "other": tarfile.REGTYPE}[made]
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(member)
    with raises("reshuffle.not_a_sample", "a.tar", f"{kind} a/{made}", "tar -cf NEW.tar"):
        reshuffle([tmp_path / "a.tar"], tmp_path / "out", seed=1, memory_bytes=1 << 20, scratch=tmp_path / "scratch")
