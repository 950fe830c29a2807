from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from corpusmill.engine.ledger import RECEIPT_NAME, InputReceipt, Outcome, Step, read_receipt, run_once, valid_receipt
from tests.raising import raises

STEP = Step(
    "index", 1, "00000", {"text_field": "text"}, (InputReceipt(stage="download", unit="00000", digest="d" * 64),)
)


def write(folder: Path) -> Outcome:
    (folder / "a.bin").write_bytes(b"abc")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.bin").write_bytes(b"defg")
    return Outcome(counts={"documents": 2}, details={"note": "x"})


def never(folder: Path) -> Outcome:
    raise AssertionError("the body must not run")


def test_run_once_first_run_writes_receipt_with_sizes_and_digests(tmp_path) -> None:
    path = run_once(STEP, tmp_path, write)
    assert path.parent.name == f"00000-{STEP.fingerprint()[:16]}"
    receipt = read_receipt(path)
    assert [(output.name, output.size_bytes) for output in receipt.outputs] == [("a.bin", 3), ("sub/b.bin", 4)]
    assert receipt.outputs[0].digest == "xxh3_128:06b05ab6733a618578af5f94892f3950"
    assert receipt.counts == {"documents": 2}
    assert json.loads(path.read_text())["inputs"][0]["stage"] == "download"


def test_run_once_receipt_gets_its_name_when_it_is_on_the_device_and_outputs_are_not_waited_for(
    tmp_path, monkeypatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def recorded_replace(path: Path, target: Path) -> Path:
        done.append(f"{path.name} -> {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    run_once(STEP, tmp_path, write)
    assert done == [done[0], f"{done[0]} -> {RECEIPT_NAME}"]


def test_run_once_receipt_says_how_it_came_about(tmp_path) -> None:
    receipt = read_receipt(run_once(STEP, tmp_path, write, versions={"tokenizer_sha256": "f" * 64}))
    assert receipt.versions["tokenizer_sha256"] == "f" * 64
    assert {"corpusmill", "python", "numpy", "zstandard", "gigatoken", "pyarrow"} <= set(receipt.versions)
    assert receipt.seconds >= 0
    assert receipt.peak_rss_bytes > 10 << 20
    assert [(item.stage, item.digest) for item in receipt.inputs] == [("download", "d" * 64)]


def test_receipt_with_numbers_and_texts_of_other_classes_holds_plain_json(tmp_path) -> None:
    class Word(str):
        __slots__ = ()

    details = {"share": np.float64(0.1), "word": Word("é"), "big": 2**70, "pairs": ((1, 2),), "by_number": {3: 4}}
    receipt = read_receipt(run_once(STEP, tmp_path, lambda _folder: Outcome({"words": np.int64(7)}, details)))
    plain = {"share": 0.1, "word": "é", "big": 2**70, "pairs": [[1, 2]], "by_number": {"3": 4}}
    assert (receipt.counts, receipt.details) == ({"words": 7}, plain)
    assert json.loads((STEP.folder(tmp_path) / RECEIPT_NAME).read_bytes())["details"] == plain


def test_receipt_with_something_that_json_has_not_is_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match="complex"):
        run_once(STEP, tmp_path, lambda _folder: Outcome({}, {"share": 1j}))
    assert valid_receipt(STEP, tmp_path) is None


@pytest.mark.parametrize("count", [1.5, 2.0, np.float64(3), "4", None])
def test_run_once_count_that_is_no_whole_number_is_refused_and_leaves_no_receipt(tmp_path, count) -> None:
    with raises("step.count_not_whole", "count 'documents'", type(count).__name__):
        run_once(STEP, tmp_path, lambda _folder: Outcome({"documents": count}))
    assert valid_receipt(STEP, tmp_path) is None


def test_run_once_step_that_delivers_states_sha256(tmp_path) -> None:
    receipt = read_receipt(run_once(STEP, tmp_path, write, delivers=True))
    assert receipt.outputs[0].sha256.startswith("ba7816bf8f01cfea")
    assert receipt.outputs[0].digest == f"sha256:{receipt.outputs[0].sha256}"


def test_output_file_sha256_of_an_intermediate_is_refused(tmp_path) -> None:
    receipt = read_receipt(run_once(STEP, tmp_path, write))
    with raises("receipt.no_digest"):
        _ = receipt.outputs[0].sha256


def test_run_once_second_run_reuses_the_receipt(tmp_path) -> None:
    first = run_once(STEP, tmp_path, write)
    assert run_once(STEP, tmp_path, never) == first


def test_valid_receipt_while_the_step_runs_again_and_again_is_always_there(tmp_path) -> None:
    # Other tasks of the dataset read the receipts of steps that begin again, and must not fail.
    first = read_receipt(run_once(STEP, tmp_path, write))
    with ThreadPoolExecutor(1) as pool:
        again = [pool.submit(run_once, STEP, tmp_path, write, reuse=False) for _ in range(300)]
        while not again[-1].done():
            actual = valid_receipt(STEP, tmp_path)
            assert actual is not None
            assert actual.outputs == first.outputs
    assert [item.result() for item in again] == [tmp_path / "index" / STEP.folder(tmp_path).name / RECEIPT_NAME] * 300


@pytest.mark.parametrize("change", ["stage", "version", "unit", "settings", "inputs"])
def test_step_fingerprint_any_part_changes_it(change: str) -> None:
    other = {
        "stage": ("anchor", 1, "00000", STEP.settings, STEP.inputs),
        "version": ("index", 2, "00000", STEP.settings, STEP.inputs),
        "unit": ("index", 1, "00001", STEP.settings, STEP.inputs),
        "settings": ("index", 1, "00000", {"text_field": "body"}, STEP.inputs),
        "inputs": ("index", 1, "00000", STEP.settings, ()),
    }[change]
    assert Step(*other).fingerprint() != STEP.fingerprint()


@pytest.mark.parametrize(("size_bytes", "wrong"), [(2, "is 2 bytes, not 4"), (None, "is missing")])
def test_run_once_truncated_or_missing_output_runs_again_with_one_warning(tmp_path, caplog, size_bytes, wrong) -> None:
    """It warned whenever somebody looked: 31 times, of a size where the file was missing."""
    path = run_once(STEP, tmp_path, write)
    output = path.parent / "sub" / "b.bin"
    output.unlink() if size_bytes is None else output.write_bytes(b"d" * size_bytes)
    assert [valid_receipt(STEP, tmp_path) for _ in range(3)] == [None] * 3
    run_once(STEP, tmp_path, write)
    assert output.read_bytes() == b"defg"
    assert caplog.messages == [f"index 00000 runs again: sub/b.bin {wrong} in {path.parent}"]


def test_run_once_edited_receipt_runs_again(tmp_path) -> None:
    path = run_once(STEP, tmp_path, write)
    receipt = json.loads(path.read_text())
    path.write_text(json.dumps({**receipt, "fingerprint": "0" * 64}))
    assert valid_receipt(STEP, tmp_path) is None


@pytest.mark.parametrize("key", ["traffic", "seconds", "blocks", "outputs"])
def test_read_receipt_flipped_bit_in_a_key_is_no_receipt_though_its_value_is_the_default(tmp_path, key: str) -> None:
    path = run_once(STEP, tmp_path, write)
    assert read_receipt(path).traffic == {}
    text = path.read_bytes()
    place = text.index(f'"{key}"'.encode()) + 1
    path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
    with raises("receipt.not_readable"):
        read_receipt(path)


def test_run_once_unreadable_receipt_runs_again(tmp_path) -> None:
    path = run_once(STEP, tmp_path, write)
    path.write_text("{")
    with raises("receipt.not_readable"):
        read_receipt(path)
    assert read_receipt(run_once(STEP, tmp_path, write)).counts == {"documents": 2}


def test_run_once_failing_body_leaves_no_receipt_and_the_next_run_starts_clean(tmp_path) -> None:
    def fail(folder: Path) -> Outcome:
        (folder / "half").write_bytes(b"x")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_once(STEP, tmp_path, fail)
    assert not (STEP.folder(tmp_path) / RECEIPT_NAME).exists()
    path = run_once(STEP, tmp_path, write)
    assert not (path.parent / "half").exists()


def _killed_in_the_middle(folder: Path) -> Outcome:
    (folder / "half").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome()


def test_run_once_killed_in_the_middle_runs_again_from_clean(tmp_path) -> None:
    process = multiprocessing.get_context("fork").Process(target=run_once, args=(STEP, tmp_path, _killed_in_the_middle))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert valid_receipt(STEP, tmp_path) is None
    path = run_once(STEP, tmp_path, write)
    assert sorted(item.name for item in path.parent.iterdir()) == [".blocks", ".lock", "a.bin", RECEIPT_NAME, "sub"]


def test_run_once_full_device_is_a_transient_error_that_names_the_folder(tmp_path) -> None:
    def full(folder: Path) -> Outcome:
        raise OSError(errno.ENOSPC, "No space left on device")

    with raises("step.disk_full", "index 00000", STEP.folder(tmp_path)):
        run_once(STEP, tmp_path, full)


def test_receipt_digest_ignores_how_it_came_about(tmp_path) -> None:
    other = Step("index", 1, "00007", {"text_field": "body"}, ())
    first, second = (read_receipt(run_once(step, tmp_path, write)) for step in (STEP, other))
    assert first.fingerprint != second.fingerprint
    assert first.digest == second.digest


def test_receipt_holds_no_absolute_path(tmp_path) -> None:
    assert str(tmp_path) not in run_once(STEP, tmp_path, write).read_text()


def test_run_once_two_names_of_one_file_have_one_digest_each(tmp_path) -> None:
    def body(folder: Path) -> Outcome:
        (folder / "a").write_bytes(b"abc")
        (folder / "b").hardlink_to(folder / "a")
        return Outcome()

    first, second = read_receipt(run_once(STEP, tmp_path, body)).outputs
    assert (first.name, second.name) == ("a", "b")
    assert first.digest == second.digest


def test_run_once_limit_of_open_files_is_raised_as_far_as_it_may_be(tmp_path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(list(Path("/proc/self/fd").iterdir()))

    def opens_many(folder: Path) -> Outcome:
        opened = [(folder / "a.bin").open("wb") for _ in range(files + 100)]
        for file in opened:
            file.close()
        return Outcome(counts={})

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files + 50, hard))
        run_once(STEP, tmp_path, opens_many)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_run_once_too_many_open_files_is_permanent_and_names_the_limit(tmp_path) -> None:
    def opens_too_many(folder: Path) -> Outcome:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with raises("run.too_few_open_files", "index 00000", "ulimit -n"):
        run_once(STEP, tmp_path, opens_too_many)
