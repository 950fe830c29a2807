"""verify: a whole build has no findings; whatever is damaged is named, and nothing innocent is."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine import recounting
from corpusmill.engine.build import Build
from corpusmill.engine.stage import Graph
from corpusmill.errors import VerificationError
from corpusmill.export import tar, webdataset
from corpusmill.fingerprint import file_digest
from corpusmill.inspect.verify import render, verify_build
from corpusmill.inspect.verify.verification import open_steps, verify_step
from corpusmill.kernels.content_kernels import records_sum
from tests.quick import quick
from tests.system.corpus import configuration, write_corpus
from tests.system.verified import (
    ALL_STAGES,
    build,
    build_tiny,
    findings,
    flipped,
    folder,
    outputs,
    replaced,
    write_sources,
)

DATA = Path(os.environ.get("CORPUSMILL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
TOKENIZERS = DATA / "tokenizers"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("verify")
    write_sources(root)
    return root


@pytest.fixture(scope="module")
def built(root) -> Build:
    """The build under test, in the work folder of an older one of the same sources."""
    build_tiny(root, shuffle={"seed": 6})
    return build_tiny(root)


@pytest.fixture(scope="module")
def version(root, built) -> Path:
    return (root / "outputs/tiny/latest").resolve()


def test_verify_whole_build_has_no_findings(built, version) -> None:
    verification = verify_build(built)
    assert verification.findings == ()
    receipts = [json.loads(path.read_text()) for path in (folder.joinpath("receipt.json") for folder in steps(built))]
    sizes = [item["size_bytes"] for receipt in receipts for item in receipt["outputs"]]
    sent = [path.stat().st_size for path in version.rglob("*") if path.is_file()]
    assert (verification.steps, verification.files) == (len(receipts), len(sizes) + len(sent))
    assert verification.read_bytes == sum(sizes) + sum(sent)
    assert render(verification).endswith("bytes re-read; no errors found")


def steps(built: Build) -> list[Path]:
    return [built.plan_folder, *(built.folder(stage, unit) for stage in GRAPH.names for unit in built.units(stage))]


def test_verify_older_build_beside_a_newer_one_has_no_findings(root, built) -> None:
    plans = sorted((root / "work/tiny/plan").glob("*/receipt.json"))
    assert len(plans) == 2
    assert [verify_build(open_build(plan)).findings for plan in plans] == [(), ()]


def test_verify_small_blocks_and_two_workers_find_the_same(built, monkeypatch) -> None:
    monkeypatch.setattr(recounting, "BLOCK", 97)
    assert verify_build(built, workers=2).findings == ()


@pytest.mark.parametrize(
    "changes",
    quick(
        [
            {"dedup": {"mode": "none"}},
            {"dedup": {"mode": "annotate", "minimum_bytes": 100}},
            {
                "dedup": {"mode": "annotate", "minimum_bytes": 100, "writeback": False},
                "exports": {"numpy": {"tokens_per_shard": 700}},
            },
            {"exports": {"webdataset": {"context_tokens": 33}}},
            {"tokenizer": {"name": "r50k_base"}},  # 16-bit ids
        ],
        2,
    ),
)
def test_verify_other_configurations_have_no_findings(tmp_path, changes) -> None:
    if "tokenizer" in changes:
        file = TOKENIZERS / f"{changes['tokenizer']['name']}.tiktoken"
        if not file.is_file():
            pytest.skip("the vocabulary is not at hand: set CORPUSMILL_TEST_DATA")
        changes = {"tokenizer": {**changes["tokenizer"], "file": str(file)}}
    write_corpus(tmp_path / "corpus", documents=24)
    built = build(tmp_path, **changes)
    assert findings(built) == ()
    build(tmp_path, **changes)
    assert findings(built) == ()


@pytest.mark.parametrize("stage", ALL_STAGES)
def test_verify_every_output_flipped_truncated_grown_or_gone_is_named_and_nothing_else(built, stage: str) -> None:
    """Every output of every step, one at a time. Receipts are intact here, so they are read once."""
    opened, steps, _ = open_steps(built)
    for step in (step for step in steps if step.stage == stage):
        for path in outputs(step.folder):
            content = path.read_bytes()
            damages = [content + b"\x00", None, *([flipped(content), content[:-1], b""] if content else [])]
            for damage in damages:
                with replaced(path, damage):
                    actual = verify_step(opened, step).findings
                assert str(path) in {item.where.split(", byte ")[0] for item in actual}, (path, damage)
                assert all(item.where.startswith(str(path.with_suffix(""))) for item in actual), actual
        assert verify_step(opened, step).findings == ()


@pytest.mark.parametrize("stage", quick(sorted(ALL_STAGES, key=lambda item: ALL_STAGES.index(item) % 4), 5))
def test_verify_damaged_output_leaves_all_other_steps_without_findings(built, stage: str) -> None:
    path = max(outputs(folder(built, stage)), key=lambda path: path.stat().st_size)
    for damage in (flipped(path.read_bytes()), path.read_bytes()[:-1], None):
        with replaced(path, damage):
            actual = findings(built)
        assert actual
        assert all(item.where.startswith(str(path.with_suffix(""))) for item in actual), actual


@pytest.mark.parametrize("name", ["tokens", "records", "record_shard.json"])
def test_verify_damaged_cell_leaves_the_exports_of_its_documents_without_findings(built, name: str) -> None:
    path = built.step_folder("gather", "documents-00000") / name
    for damage in (flipped(path.read_bytes()), path.read_bytes()[:-8], None):
        with replaced(path, damage):
            (actual,) = findings(built)
        assert actual.where.split(", byte ")[0] == str(path)


@pytest.mark.parametrize(
    ("pattern", "at", "patch", "what"),
    [
        ("megatron/*.bin", -4, None, "the token file is truncated"),
        ("megatron/*.bin", 0, b"\xff" * 4, "token 0 is not in the vocabulary"),
        ("megatron/*.idx", 17, b"\x08", "dtype code of another width"),
        ("nanoset/*.ds", 0, b"\xff" * 4, "token 0 is not in the vocabulary"),
        ("nanoset/*.index", 0, bytes(8), "the end of document 0 is impossible"),
        ("numpy/*/*.npy", 200, b"\xff" * 4, "token 18 is not in the vocabulary"),
        ("numpy/*/*.npy", -4, None, "the shard is truncated"),
        ("webdataset/*.tar", 156, b"5", "a tar header is not as written"),
        ("webdataset/*.tar", -512, None, "the archive is truncated"),
    ],
)
def test_verify_damaged_export_says_at_which_byte(built, pattern: str, at: int, patch: bytes | None, what: str) -> None:
    """`patch` replaces the bytes from `at` on; without one the file ends there."""
    path = min(path for unit in built.units("export") for path in built.folder("export", unit).glob(pattern))
    data = path.read_bytes()
    at %= len(data)
    with replaced(path, data[:at] if patch is None else data[:at] + patch + data[at + len(patch) :]):
        actual = findings(built)
    assert any(what in item.what and item.where == f"{path}, byte {at}" for item in actual), actual


def test_verify_bits_that_no_reader_sees_are_seen_by_the_digest(built) -> None:
    """The last byte of a deflate stream may have unused bits: every reader of the format gives the same contexts."""
    unit = next(unit for unit in built.units("export") if unit.startswith("webdataset"))
    path = sorted(built.folder("export", unit).glob("webdataset/*.tar"))[0]
    data = path.read_bytes()

    def accepted(changed: bytes) -> bool:
        with replaced(path, changed), contextlib.suppress(VerificationError):
            webdataset.verify_shard(path, context_tokens=129, vocabulary_size=100277, records=20)
            return True
        return False

    ends = [at + len(body) - 8 for _, at, body in tar.read_members(path)]  # of the deflate streams, before the trailers
    variants = (data[: end - 1] + bytes([data[end - 1] ^ 0x80]) + data[end:] for end in ends)
    unseen = [changed for changed in variants if accepted(changed)]
    assert unseen
    with replaced(path, unseen[0]):
        (actual,) = findings(built)
    assert actual.where == str(path)
    assert actual.expected in {f"sha256:{file_digest(path)}", f"xxh3_128:{file_digest(path, 'xxh3_128')}"}


@pytest.mark.parametrize("stage", quick(reversed(ALL_STAGES), 6))
def test_verify_missing_folder_is_named_and_nothing_else(built, tmp_path, stage: str) -> None:
    gone = folder(built, stage)
    shutil.move(gone, tmp_path / "away")
    try:
        (actual,) = findings(built)
    finally:
        shutil.move(tmp_path / "away", gone)
    assert actual.where == str(gone)


def test_verify_damaged_cell_from_which_files_are_planned_is_named_and_nothing_else(tmp_path) -> None:
    """Which parts have tokens is read from the cells where empty documents are kept."""
    write_corpus(tmp_path / "corpus", documents=24)
    exports = {"megatron": {"part_bytes": "20KiB"}}
    built = build(tmp_path, exports=exports, framing={"empty_documents": "boundary"})
    assert findings(built) == ()
    path = built.step_folder("gather", "documents-00000") / "records"
    with replaced(path, flipped(path.read_bytes())):
        (actual,) = findings(built)
    assert actual.where == str(path)


def test_verify_content_in_blocks_equals_that_of_the_whole(monkeypatch) -> None:
    lengths = np.array([3, 0, 1, 700, 2, 2], np.uint64)
    tokens = np.arange(int(lengths.sum()), dtype=np.uint32)
    ordinals = np.arange(len(lengths), dtype=np.uint64)
    for block in (1, 2, 5, 1000):
        monkeypatch.setattr(recounting, "BLOCK", block)
        got = recounting.records_content(tokens, np.cumsum(lengths), 2, ordinals)
        assert got == records_sum(tokens, lengths, 2, ordinals)


def test_verify_foreign_file_beside_outputs_is_named_temporaries_are_not(built) -> None:
    step = folder(built, "index")
    with replaced(step / "tokenized.copy", b"x"):
        (actual,) = findings(built)
    assert actual.where == str(step / "tokenized.copy")
    with replaced(step / ".receipt.json", b"x"), replaced(step / "tokenized.partial", b"x"):
        assert findings(built) == ()


def test_verify_unfinished_build_says_what_is_missing(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    planned = open_build(plan_dataset(check_config(configuration(tmp_path), where="test")))
    for stage in ("download", "index"):
        for unit in planned.units(stage):
            planned.run(stage, unit)
    planned.run("anchor", "00000")
    actual = findings(planned)
    missing = [planned.step("anchor", unit).folder(planned.work) for unit in planned.units("anchor")[1:]]
    assert [item.where for item in actual[: len(missing)]] == [str(path) for path in missing]
    assert all("missing" in item.what for item in actual)


def test_verify_after_an_upload_that_mended_a_destination_has_no_findings(tmp_path) -> None:
    """What an upload had to send is in no digest: the report, made from the earlier one, is still its report."""
    write_corpus(tmp_path / "corpus", documents=24)
    built = build(tmp_path)
    lost = next((tmp_path / "outputs/tiny/latest").resolve().rglob("*.npy"))
    lost.unlink()
    assert [finding.what for finding in findings(built)] == ["a file is missing at a destination"]
    open_build(built.plan_receipt).run("upload", "00000")
    assert open_build(built.plan_receipt).receipt("upload", "00000").traffic["files_sent"] == 1
    assert findings(built) == ()


def test_verify_folder_of_another_version_of_the_code_is_pointed_out(built) -> None:
    """Raising a stage's version asks for that stage again; what was made from the old one is still whole."""
    old = [built.folder("tokenize", unit) for unit in built.units("tokenize")]
    newer = Graph(replace(stage, version=99) if stage.name == "tokenize" else stage for stage in built.graph)
    actual = findings(Build(built.plan_receipt, newer))
    assert [item.what for item in actual] == ["a step's folder is missing"] * len(old)
    assert all(folder.name in item.got for folder, item in zip(old, actual, strict=True))


@pytest.mark.parametrize("name", ["config.json", "plan.json"])
def test_verify_plan_file_that_says_something_else_is_named_and_not_believed(built, name: str) -> None:
    path = built.plan_folder / name
    other = path.read_bytes().replace(b"a1.jsonl", b"zz.jsonl").replace(b'"seed": 7', b'"seed": 8')
    assert other != path.read_bytes()
    with replaced(path, other):
        (actual,) = findings(built)
    assert actual.where == str(path)


@pytest.mark.parametrize("name", ["dataset.json", "webdataset/manifest.jsonl", "documents/a1.jsonl"])
def test_verify_file_at_a_destination_missing_changed_grown_or_added_is_named(built, version, name: str) -> None:
    path = version / name
    content = path.read_bytes()
    for damage, place in ((None, ""), (flipped(content), ""), (content + b"x", f", byte {len(content)}")):
        with replaced(path, damage):
            (actual,) = findings(built)
        assert actual.where == f"{path}{place}"
    with replaced(path.with_name("added.bin"), b"x"):
        (actual,) = findings(built)
    assert actual.where == str(path.with_name("added.bin"))
    with replaced(path.with_name(".added.bin.partial"), b"x"):
        assert findings(built) == ()


def test_verify_destination_gone_is_one_finding(built, version, tmp_path) -> None:
    shutil.move(version, tmp_path / "away")
    try:
        (actual,) = findings(built)
    finally:
        shutil.move(tmp_path / "away", version)
    assert (actual.what, actual.where) == ("a destination has nothing of this version", str(version))


def test_verify_several_faults_are_all_named_in_order_of_the_steps(built, version) -> None:
    paths = [outputs(folder(built, stage))[0] for stage in ("index", "scatter", "export")]
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(replaced(path, flipped(path.read_bytes())))
        stack.enter_context(replaced(folder(built, "gather") / "receipt.json", b"{"))
        stack.enter_context(replaced(version / "dataset.json", None))
        verification = verify_build(open_build(built.plan_receipt))
    printed = [finding.where.split(", byte")[0] for finding in verification.findings]
    expected = [*paths[:2], folder(built, "gather") / "receipt.json", paths[2], version / "dataset.json"]
    assert [place for place, _ in itertools.groupby(printed)] == [str(path) for path in expected]
    words = render(verification)
    assert f"{len(printed)} findings" in words
    for path in expected:
        assert str(path) in words
