"""The cache of a machine: eight workers share it within its bound, its disk is full, its processes fork."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME, Outcome, Step, evict_excess, output_file, read_receipt, run_once
from corpusmill.engine.ledger.blocks import Blocks
from corpusmill.engine.ledger.cache import BOUND, disk_bytes, make_room
from corpusmill.engine.ledger.compared import ComparedBlocks
from corpusmill.engine.ledger.finished import refresh_step
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.errors import StorageFullError
from corpusmill.shuffle.cells import gather_cell, open_scattered
from corpusmill.storage.mirrored import address_of, cache_folder, mirror_of
from tests.disks import enlarge, small_disk
from tests.engine.work_folder.machines import machine, objects, work_folder
from tests.raising import raises
from tests.system.corpus import configuration, lines_of

WORKERS, STEPS_OF_EACH = 8, 12
OUTPUT_BYTES = 1 << 20
BOUND_BYTES = 160 << 20
GATHERED_SHARDS, CELLS, GATHERERS = 72, 12, 3
GATHER_BOUND_BYTES = 8 << 20


def step(stage: str, number: int) -> Step:
    return Step(stage, 1, f"{number:05d}", {"of": "test"}, ())


def content(stage: str, number: int, size_bytes: int = OUTPUT_BYTES) -> bytes:
    return random.Random(f"{stage} {number}").randbytes(size_bytes)


def work() -> Path:
    return mirror_of(f"{work_folder()}/tiny")


def run(stage: str, number: int, size_bytes: int = OUTPUT_BYTES) -> Path:
    def body(folder: Path) -> Outcome:
        (folder / "tokens").write_bytes(content(stage, number, size_bytes))
        return Outcome()

    return run_once(step(stage, number), work(), body)


def blocks_of(stage: str, number: int) -> Blocks:
    """What another step opens of this one."""
    folder = step(stage, number).folder(work())
    refresh_step(folder)
    return Blocks(folder, read_receipt(folder / RECEIPT_NAME))


def read(stage: str, number: int) -> bytes:
    """What another step reads of this one's."""
    with blocks_of(stage, number).open("tokens") as file:
        return file.read()


def cached_bytes() -> int:
    """What the cache holds of finished steps, whoever reads or writes them."""
    return sum(disk_bytes(receipt.parent) for receipt in cache_folder().rglob(RECEIPT_NAME))


def most_cached(works: list[Callable[[], None]]) -> int:
    """The most that the cache holds while other processes work."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work) for work in works]
    for process in processes:
        process.start()
    most = 0
    while any(process.is_alive() for process in processes):
        most = max(most, cached_bytes())
    assert [process.exitcode for process in processes] == [0] * len(works)
    return most


def read_and_run(number: int) -> None:
    """Run steps, each of which reads another's output and one that all read, as a worker does."""
    for at in range(number * STEPS_OF_EACH, (number + 1) * STEPS_OF_EACH):
        assert read("index", at) == content("index", at)
        assert read("index", 0) == content("index", 0)
        run("tokenize", at)
        evict_excess(work())


@pytest.mark.slow
def test_cache_of_eight_workers_keeps_within_its_bound(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(tmp_path, "maker"):
        for number in range(WORKERS * STEPS_OF_EACH):
            run("index", number)
    monkeypatch.setenv(BOUND, str(BOUND_BYTES))
    most = most_cached([lambda number=number: read_and_run(number) for number in range(WORKERS)])
    assert BOUND_BYTES * 0.9 < most <= BOUND_BYTES * 1.05, most


def scattered(root: Path) -> RunnableBuild:
    """A build in the bucket of many shards, of 150 kB of tokens each, up to what gather reads."""
    (root / "corpus").mkdir()
    for shard in range(GATHERED_SHARDS):
        words = random.Random(shard)
        texts = [" ".join(f"{words.getrandbits(40):x}" for _ in range(60)) for _ in range(100)]
        (root / "corpus" / f"{shard:03d}.jsonl").write_bytes(lines_of(texts))
    values = configuration(
        root,
        work_folder=work_folder(),
        source={"paths": [str(root / "corpus")], "shard_bytes": 1},
        dedup={"mode": "none"},
        shuffle={"seed": 1, "cells": CELLS},
        exports={"numpy": {}},
    )
    build = open_build(address_of(begin_run(plan_dataset(check_config(values, where="test"), to_build=True))))
    for stage in (*GRAPH.before("gather"), "scatter"):
        for unit in build.units(stage):
            build.run(stage, unit)
    return build


@pytest.mark.slow
def test_cache_of_gathers_that_read_many_steps_at_once_keeps_within_its_bound(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(tmp_path, "maker"):
        maker = scattered(tmp_path)
        plan, units = address_of(maker.plan_receipt), maker.units("gather")
        folders = [maker.step_folder("scatter", unit) for unit in maker.units("scatter")]
        assert len(folders) == GATHERED_SHARDS
        assert sum(map(disk_bytes, folders)) > 1.4 * GATHER_BOUND_BYTES
    monkeypatch.setenv(BOUND, str(GATHER_BOUND_BYTES))

    def gather(number: int) -> None:
        build = open_build(plan)
        for unit in units[number::GATHERERS]:
            build.run("gather", unit)

    most = most_cached([lambda number=number: gather(number) for number in range(GATHERERS)])
    assert GATHER_BOUND_BYTES * 0.9 < most <= GATHER_BOUND_BYTES * 1.05, most
    built = open_build(plan)
    for cell, unit in enumerate(units):
        (alone := tmp_path / unit).mkdir()
        gather_cell([open_scattered(folder, cell) for folder in folders], cell, alone)
        outputs = built.receipt("gather", unit).outputs
        assert [output_file(alone / output.name, output.name, output.algorithm) for output in outputs] == [*outputs]


def is_here(folder: Path) -> bool:
    return (folder / "tokens").exists()


def test_what_a_step_has_open_or_mapped_stays_and_comes_again_when_it_had_to_go(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BOUND, "1")
    folders = [step("index", number).folder(work()) for number in range(2)]
    with machine(tmp_path, "maker"):
        for number in range(2):
            run("index", number)
    readers = [blocks_of("index", number) for number in range(2)]
    with readers[0].open("tokens") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        readers[1].open("tokens").close()
        make_room(work(), 1)
        assert [*map(is_here, folders)] == [True, False]
        file.close()
        make_room(work(), 1)
        assert is_here(folders[0])
        assert mapped[:] == content("index", 0)
    make_room(work(), 1)
    assert not is_here(folders[0])
    for number, reader in enumerate(readers):
        with reader.open("tokens") as file:
            assert file.read() == content("index", number)


def test_outputs_of_a_step_go_when_they_are_more_than_the_bound_and_the_log_says_how_much(
    bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(BOUND, str(OUTPUT_BYTES))
    folder = run("index", 0, 3 * OUTPUT_BYTES).parent
    assert is_here(folder)
    evict_excess(work())
    assert not is_here(folder)
    assert re.search(r"had to hold 3,1\d\d,\d{3} bytes", caplog.text)
    caplog.clear()
    assert read("index", 0) == content("index", 0, 3 * OUTPUT_BYTES)
    evict_excess(work())
    assert f"{BOUND} is {OUTPUT_BYTES:,}" in caplog.text
    assert not is_here(folder)


def test_hole_of_which_a_slow_clock_says_that_it_was_compared_is_fetched(bucket: str, tmp_path: Path) -> None:
    """A file that is evicted, and created again in the same tick, may have the inode and the time of the one before."""
    with machine(tmp_path, "maker"):
        run("index", 0, 6 << 20)
    with machine(tmp_path, "reader"):
        assert read("index", 0) == content("index", 0, 6 << 20)
        path = step("index", 0).folder(work()) / "tokens"
        with path.open("r+b") as file:
            file.truncate(2 << 20)
            file.truncate(6 << 20)
        ComparedBlocks(str(path), path.stat(), 6).add(range(6))
        assert read("index", 0) == content("index", 0, 6 << 20)


def test_step_on_a_full_disk_says_so_and_works_once_there_is_room(bucket: str, tmp_path: Path) -> None:
    with machine(tmp_path, "maker"):
        run("index", 0, 6 << 20)
    with small_disk(tmp_path / "disk", 4) as disk, machine(disk, "cache"):
        with raises("step.disk_full"):
            run("tokenize", 0, 6 << 20)
        shutil.rmtree(step("tokenize", 0).folder(work()))
        with pytest.raises((StorageFullError, OSError), match="No space left"):
            read("index", 0)
        enlarge(disk, 32)
        assert read("index", 0) == content("index", 0, 6 << 20)
        run("tokenize", 0, 6 << 20)
        assert not [path for path in disk.rglob(".*.json.*") if path.is_file()]
    with machine(tmp_path, "another"):
        assert read("tokenize", 0) == content("tokenize", 0, 6 << 20)


@contextmanager
def asking_all_the_time() -> Iterator[None]:
    """Let four threads of this process send requests while the body of the `with` runs."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            objects().get("mill/none")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def forked(folder: Path, number: int) -> None:
    with machine(folder, f"child {number}"):
        run("tokenize", number)
        os._exit(read("index", 0) != content("index", 0))


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_processes_that_fork_while_requests_are_under_way_all_end(bucket: str, tmp_path: Path) -> None:
    run("index", 0)
    context = multiprocessing.get_context("fork")
    with asking_all_the_time():
        children = [context.Process(target=forked, args=(tmp_path, number)) for number in range(6)]
        for child in children:
            child.start()
        for child in children:
            child.join(120)
    assert [child.exitcode for child in children] == [0] * len(children)
