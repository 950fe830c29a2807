"""What is checked before a build begins: everything that can be, and all that fails is said at once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import check_dataset, plan_dataset
from corpusmill.builds.preflight import Problems, needed_room, require_room, require_writable
from corpusmill.builds.room import held_by, moments, usually_held
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.plan import read_plan
from corpusmill.errors import (
    PermanentError,
    SourceError,
    StorageFullError,
    StoreUnavailableError,
    TransientError,
)
from corpusmill.sources.survey import texts_of
from tests.disks import small_disk
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus
from tests.tokens.vocabularies import GPT2, described, written


def config(root: Path, **changes: Any) -> DatasetConfig:
    return check_config(configuration(root, **changes), where="test")


def test_build_that_cannot_end_says_every_reason_at_once_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    (tmp_path / "file").touch()
    broken = config(
        tmp_path,
        source={"paths": [str(tmp_path / "nowhere")]},
        tokenizer={"name": "cl100k_base", "file": str(tmp_path / "gone.tiktoken")},
        dedup={"mode": "remove", "minimum_bytes": 100, "memory": "64GiB"},
        destinations=[{"path": str(tmp_path / "file" / "out")}, {"path": str(tmp_path / "fine")}],
    )
    with raises("preflight.refused") as caught:
        build_dataset(broken)
    printed = str(caught.value)
    for words in ("more memory than available", "vocabulary file does not exist", "a source does not exist"):
        assert words in printed
    assert "a destination cannot be written" in printed
    assert f"{tmp_path}/file" in printed
    assert not (tmp_path / "fine").exists()
    assert not (tmp_path / "work" / broken.name / "plan").exists()


def test_one_reason_is_said_as_it_is(tmp_path: Path) -> None:
    with raises("source.missing"):
        build_dataset(config(tmp_path, source={"paths": [str(tmp_path / "nowhere")]}))


@pytest.mark.parametrize("there", [None, "work", "work/tiny", "work/tiny/plan"])
def test_refused_first_plan_leaves_the_folders_that_were_there(tmp_path: Path, there: str | None) -> None:
    """It left the dataset's work folder, with a lock and nothing else in it."""
    if there:
        (tmp_path / there).mkdir(parents=True)
    with raises("source.missing"):
        build_dataset(config(tmp_path, source={"paths": [str(tmp_path / "nowhere")]}))
    folders = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_dir()}
    assert folders == ({Path(there), *Path(there).parents} - {Path()} if there else set())


@pytest.mark.parametrize("section", ["packing", "framing"])
@pytest.mark.parametrize("check", [check_dataset, build_dataset])
def test_bos_without_a_bos_token_is_refused_before_anything_is_read(tmp_path: Path, section: str, check: Any) -> None:
    """cl100k has no BOS: the build failed only once every document was tokenized."""
    write_corpus(tmp_path / "corpus")
    with raises("tokenizer.no_single_bos", f"{section}.bos"):
        check(config(tmp_path, **{section: {"bos": True}}))
    assert list(tmp_path.rglob("receipt.json")) == []
    named = {"name": "cl100k_base", "bos": "<|fim_prefix|>"}
    check_dataset(config(tmp_path, tokenizer=named, **{section: {"bos": True}}))


@pytest.mark.parametrize(
    "setting", [{"pattern": "gpt2"}, {"special_tokens": {"<|x|>": 50300}}], ids=["pattern", "special"]
)
@pytest.mark.parametrize("name", ["cl100k_base", "ours"])
def test_tokenizer_setting_without_effect_is_refused(tmp_path: Path, name: str, setting: dict[str, Any]) -> None:
    """A tokenizer.json's own split and tokens counted, and what the configuration said of them was skipped."""
    write_corpus(tmp_path / "corpus")
    file = {} if name == "cl100k_base" else {"file": written(described(GPT2), tmp_path)}
    for check in (check_dataset, build_dataset, plan_dataset):  # `reprocess` and `export` only plan
        with raises("tokenizer.settings_ignored", f"tokenizer.{next(iter(setting))}"):
            check(config(tmp_path, tokenizer={"name": name, **file, **setting}))


def test_bos_of_exports_that_are_not_written_is_not_asked_for(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    check_dataset(config(tmp_path, packing={"bos": True}, framing={"bos": True}, exports={"numpy": {}}))


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([StorageFullError("a.a: a"), StoreUnavailableError("b.b: b")], TransientError),
        ([StorageFullError("a.a: a"), SourceError("b.b: b")], PermanentError),
    ],
)
def test_reasons_are_tried_again_only_if_each_may_be(errors: list[Any], kind: type[Exception]) -> None:
    problems = Problems()
    for error in errors:
        with problems.kept():
            raise error
    with raises("preflight.refused preflight.unavailable"):
        problems.raise_all()


@pytest.mark.parametrize("harm", ["file", "file in the way", "dangling link", "latest", "not allowed"])
def test_folder_that_cannot_be_written_is_refused(tmp_path: Path, harm: str) -> None:
    place = tmp_path / "out"
    built = config(tmp_path, destinations=[{"path": str(place / "deep")}])
    if harm == "file":
        place.touch()
    elif harm == "file in the way":
        (place / "deep").mkdir(parents=True)
        (place / "deep" / built.name).touch()
    elif harm == "dangling link":
        place.symlink_to("gone")
    elif harm == "latest":
        (place / "deep" / built.name / "latest").mkdir(parents=True)
    else:
        place.mkdir(mode=0o500)
        if os.access(place, os.W_OK):
            pytest.skip("this user may write everywhere")
    with raises("destination.not_writable"):
        require_writable(built, built.destinations[0])


def test_folder_that_is_not_there_yet_and_a_links_target_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "out").symlink_to("large")
    for path in ("new/deep", "out", "out/deep"):
        built = config(tmp_path, destinations=[{"path": str(tmp_path / path)}])
        require_writable(built, built.destinations[0])
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "large").iterdir()) == []


def test_bucket_is_tried_and_left_as_it_was(tmp_path: Path, moto: str, moto_client: Any) -> None:
    places = [{"path": f"s3://{bucket}/data", "endpoint_url": moto} for bucket in ("corpus", "missing")]
    built = config(tmp_path, destinations=places)
    require_writable(built, built.destinations[0])
    assert "Contents" not in moto_client.list_objects_v2(Bucket="corpus")
    with raises("s3.refused"):
        require_writable(built, built.destinations[1])


def test_disk_without_room_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=1) as disk:
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / "a.jsonl").write_bytes(lines_of(make_documents(400)))
        built = config(tmp_path, work_folder=str(disk / "work"), destinations=[{"path": str(tmp_path / "out")}])
        with raises("work_folder.disk_too_small", disk):
            build_dataset(built, workers=1)
        assert list(disk.rglob("receipt.json")) == []


@pytest.mark.slow
def test_estimate_of_the_same_build_says_how_much_room_is_needed(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    built = config(tmp_path)
    estimate = estimate_dataset(built)
    build = open_build(plan_dataset(built))
    free_bytes = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    require_room(built, build.work, moments(estimate.held)["keep"], stated_by="the last estimate")
    with raises("work_folder.disk_too_small", "the last estimate"):
        require_room(built, build.work, [(0, 0), (free_bytes, 1 << 40), (free_bytes, 0)], stated_by="the last estimate")


def test_what_the_work_folder_holds_is_room(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=240)
    with small_disk(tmp_path / "disk", mebibytes=16) as disk:
        built = config(tmp_path, work_folder=str(disk / "work"), destinations=[{"path": str(tmp_path / "out")}])
        work = open_build(plan_dataset(built)).work
        (work / "kept").write_bytes(bytes(12 << 20))
        require_room(built, work, [(14 << 20, 0)], stated_by="test")
        with raises("work_folder.disk_too_small"):
            require_room(built, work, [(17 << 20, 0)], stated_by="test")


def test_build_that_was_delivered_needs_no_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "corpus", documents=10)
    built = config(tmp_path)
    receipt = build_dataset(built, workers=1)
    monkeypatch.setattr("corpusmill.builds.plan.needed_room", lambda *_: ({"keep": [(1 << 60, 1 << 60)]}, "a test"))
    assert build_dataset(built, workers=1) == receipt
    with raises("work_folder.disk_too_small"):
        build_dataset(config(tmp_path, shuffle={"seed": 9}), workers=1)


def test_needed_room_of_everything_switched_on_is_what_was_measured(tmp_path: Path) -> None:
    exports = {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}}
    everything = config(tmp_path, exports=exports, dedup={"mode": "remove", "minimum_bytes": 100})
    room = moments(usually_held(everything, 32 * 10**6, 136 * 10**6))
    assert sum(room["keep"][-1]) / 136e6 == pytest.approx(10.5, rel=0.1)  # measured: 136 MB of text
    assert max(map(sum, room["eager"])) / 136e6 == pytest.approx(5.2, rel=0.15)
    in_order = config(tmp_path, exports={"megatron": {}}, dedup={"mode": "none"}, shuffle={"order": "source"})
    assert moments(usually_held(in_order, 400, 1000))["keep"][-1] == (1000 + 850 + 850, 850)


def stored(path: Path, texts: list[str]) -> int:
    """Write documents as the name's ending says; returns the bytes of their text."""
    rows = [{"id": f"{number:08d}", "meta": {"n": number}, "text": text} for number, text in enumerate(texts)]
    lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines, mtime=0))
    else:
        path.write_bytes(zstandard.compress(lines) if path.suffix == ".zst" else lines)
    return sum(len(text.encode()) for text in texts)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"])
@pytest.mark.parametrize("documents", [30, 12_000])
def test_text_of_compressed_files_is_measured_at_their_beginnings(tmp_path: Path, ending: str, documents: int) -> None:
    """Small files are read whole, of large ones 4 MiB."""
    texts = make_documents(documents, seed=4)
    held = [stored(tmp_path / f"sources/{number}{ending}", texts[number::2]) for number in range(2)]
    plan = read_plan(plan_dataset(config(tmp_path, source={"paths": [str(tmp_path / "sources")]})))
    measured = texts_of(plan.files(), "text")
    assert [text.size_bytes for text in measured] == pytest.approx(held, rel=0.05)
    assert sum(text.documents for text in measured) == pytest.approx(documents, rel=0.05)


def test_text_is_measured_for_each_kind_of_file_and_for_every_part_of_one(tmp_path: Path) -> None:
    texts = make_documents(12_000, seed=4)
    held = [
        stored(tmp_path / name, part)
        for name, part in (("a.jsonl.zst", texts[:20]), ("b.jsonl", texts[20:40]), ("c.jsonl", texts[40:]))
    ]
    (tmp_path / "d.jsonl").touch()
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(b"{broken\n"))
    source = {"paths": [str(tmp_path / "*.*")], "shard_bytes": "1MiB"}
    plan = read_plan(plan_dataset(config(tmp_path, source=source)))
    files = [*plan.files()]
    assert len(files) > 6
    measured = [text.size_bytes for text in texts_of(files, "text")]
    of_c = sum(size for file, size in zip(files, measured, strict=True) if file.location.endswith("c.jsonl"))
    assert [*measured[:2], of_c] == pytest.approx(held, rel=0.05)
    assert [size for file, size in zip(files, measured, strict=True) if file.name == "d.jsonl"] == [0]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst", ".parquet"])
def test_needed_room_of_compressed_sources_is_what_the_build_takes(tmp_path: Path, ending: str) -> None:
    stored(tmp_path / f"corpus/a{ending}", make_documents(3000, seed=4))
    source = {"paths": [str(tmp_path / "corpus")]}
    built = config(tmp_path, source=source, exports={"megatron": {}}, dedup={"mode": "none"})
    plan = read_plan(plan_dataset(built))
    needed, stated_by = needed_room(built, plan, tmp_path / "work" / "tiny")
    assert "of text" in stated_by
    actual = moments(held_by(open_build(build_dataset(built, workers=1))))
    for reclaim in ("keep", "eager"):
        assert max(map(sum, needed[reclaim])) == pytest.approx(max(map(sum, actual[reclaim])), rel=0.3)


def test_split_that_the_sources_cannot_give_is_told_by_the_check_and_the_plan(tmp_path: Path, caplog) -> None:
    stored(tmp_path / "corpus/a.jsonl", make_documents(60, seed=4))
    source = {"paths": [str(tmp_path / "corpus")]}
    for check in (check_dataset, partial(plan_dataset, to_build=True)):
        check(config(tmp_path, source=source, exports={"numpy": {"tokens_per_shard": 10_000_000}}))
        assert "test gets 0 % of the tokens instead of 10 %" in caplog.text
        caplog.clear()
        check(config(tmp_path, source=source, exports={"numpy": {"tokens_per_shard": 500}, "megatron": {}}))
        assert "instead of" not in caplog.text
        for rows, said in ((5, "so validation gets 50 % of them"), (1, "validation gets 13.3 %")):
            check(config(tmp_path, source=source, exports={"parquet_text": {"rows_per_group": rows}}))
            assert said in caplog.text
            caplog.clear()
        check(config(tmp_path, source=source, exports={"parquet_text": {"rows_per_group": 1, "held_out_groups": 6}}))
        assert "validation" not in caplog.text


def test_source_that_cannot_be_read_is_a_reason_not_to_build(tmp_path: Path) -> None:
    stored(tmp_path / "corpus/a.jsonl.zst", make_documents(30, seed=4))
    (tmp_path / "corpus/b.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd no frame")
    with raises("source.not_decompressable", "b.jsonl.zst"):
        build_dataset(config(tmp_path, source={"paths": [str(tmp_path / "corpus")]}), workers=1)
    assert not [*(tmp_path / "work").rglob("index")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_check_says_how_many_lines_have_the_id_field_and_refuses_one_that_none_has(kind: str, tmp_path: Path) -> None:
    rows = [{"text": text, "doc_id": number} for number, text in enumerate(make_documents(3, seed=1))]
    rows[1]["doc_id"] = None
    (tmp_path / "corpus").mkdir()
    if kind == "jsonl":
        (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "corpus" / "a.parquet")
    source = {"paths": [str(tmp_path / "corpus")]}
    assert "2 of 3 lines read have doc_id" in check_dataset(config(tmp_path, source={**source, "id_field": "doc_id"}))
    assert "0 of 3 lines read have id;" in check_dataset(config(tmp_path, source=source))
    (tmp_path / "list.jsonl").write_text('{"id": "1"}\n')
    forget = {"path": str(tmp_path / "list.jsonl"), "copies": "keep"}
    for changes in ({"source": {**source, "id_field": "document"}}, {"source": source, "forget": forget}):
        with raises("survey.no_ids", "doc_id in 67%"):
            check_dataset(config(tmp_path, **changes))


@pytest.mark.parametrize("mode", ["ranges", "hits"])
def test_annotation_that_has_no_place_is_refused_at_the_first_look(mode: str, tmp_path: Path) -> None:
    """It failed in the last stage."""
    (tmp_path / "items.jsonl").write_text('{"question": "How many kettles are left on Friday?"}\n')
    benchmark = {"name": "items", "path": str(tmp_path / "items.jsonl")}
    wanted = {"benchmarks": [benchmark], "action": "annotate", "annotate_key": "meta.key"}
    ranges = {"dedup": {"mode": "annotate", "minimum_bytes": 100, "annotate_key": "meta.key"}}
    changes: dict[str, Any] = ranges if mode == "ranges" else {"decontamination": wanted}
    (tmp_path / "corpus").mkdir()
    plan = partial(plan_dataset, to_build=True)

    def refused(where: str, **more: Any) -> None:
        for check in (check_dataset, plan):
            with raises("annotation.column_taken annotation.key_taken annotation.not_an_object", where):
                check(config(tmp_path, **changes, **more))
        assert list(tmp_path.rglob("receipt.json")) == []

    def fits(**more: Any) -> None:
        check_dataset(config(tmp_path, **changes, **more))
        shutil.rmtree(plan(config(tmp_path, **changes, **more)).parents[2])

    for meta, has_place in ((None, True), ({}, True), ({"key": None}, True), ("text", False), ({"key": 1}, False)):
        rows = [{"text": "one"}, {"meta": 5}, {"text": "two", "meta": meta}]  # the second is no document
        (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        fits() if has_place else refused("a.jsonl, line 3")
    fits(steps=[{"use": "corpusmill.steps.gopher:Quality"}])  # which may drop that document
    (tmp_path / "corpus" / "a.jsonl").unlink()
    for column, has_place in (("meta", True), ("meta.other", True), ("meta.key", False)):  # dots are part of a name
        pq.write_table(pa.table({"text": ["one"], column: [{"key": 1}]}), tmp_path / "corpus" / "a.parquet")
        fits() if has_place else refused("a.parquet, column meta.key")
