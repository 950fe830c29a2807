"""Builds with `source.stream` that write documents, too: what is read later must be what became tokens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.storage import open_store
from tests.faults.proxy import Answer, FaultyProxy
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents

SIZES = {"whole": 60, "cut": 2000}
KINDS = ("jsonl", "parquet")
EDITED = [(size, "annotate", kind) for size in SIZES for kind in KINDS]
EDITED += [(size, "remove", kind) for size in SIZES for kind in KINDS]


def streamed(root: Path, path: str, endpoint: str | None, mode: str = "annotate") -> dict[str, object]:
    source = {"paths": [path], "shard_bytes": "1MiB", "stream": True}
    return configuration(
        root,
        source=source | ({"endpoint_url": endpoint} if endpoint else {}),
        dedup={"mode": mode, "minimum_bytes": 100},
        exports={"megatron": {}, "numpy": {"tokens_per_shard": 50_000}},
    )


def content(kind: str, texts: list[str], folder: Path) -> bytes:
    """A source file with these texts, which can be seen in its bytes."""
    if kind == "jsonl":
        return lines_of(texts)
    table = pa.table({"id": [f"doc-{number}" for number in range(len(texts))], "text": texts})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, folder / "t.parquet", row_group_size=300, **plain)
    return (folder / "t.parquet").read_bytes()


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs/tiny/latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Edit:
    """While it is armed, a word of the next answers with the object's text is changed, in `armed` of them."""

    def __init__(self) -> None:
        self.armed = self.harmed = 0

    def __call__(self, method: str, path: str, answer: Answer) -> Answer:
        edited = answer._replace(content=answer.content.replace(b"water", b"wafer", 1))
        if not self.armed or method != "GET" or "/dump/a." not in path or edited == answer:
            return answer
        self.armed, self.harmed = self.armed - 1, self.harmed + 1
        return edited


@pytest.mark.parametrize("case", quick(EDITED, 4), ids=map("-".join, EDITED))
def test_streamed_build_with_one_edited_answer_while_documents_are_written_is_that_of_a_clean_build(
    tmp_path, rclone, rclone_client, hasty, case: tuple[str, str, str]
) -> None:
    """What becomes tokens was read before, so the edit would stand in documents/ alone."""
    size, mode, kind = case
    data = content(kind, make_documents(SIZES[size]), tmp_path)
    rclone_client.put_object(Bucket="corpus", Key=f"dump/a.{kind}", Body=data)
    for root in ("clean", "edited"):
        (tmp_path / root).mkdir()
    config = streamed(tmp_path / "clean", "s3://corpus/dump", rclone.endpoint, mode)
    build_dataset(check_config(config, where="test"), workers=1)
    edit = Edit()
    with FaultyProxy(rclone.endpoint, harm=edit) as proxy:
        config = streamed(tmp_path / "edited", "s3://corpus/dump", proxy.endpoint, mode)
        planned = plan_dataset(check_config(config, where="test"))
        run_build(planned, workers=1, until="index")
        built = open_build(planned)
        assert all(built.find("writeback", unit) is None for unit in built.units("download"))
        edit.armed = 1
        run_build(planned, workers=1)
    built = open_build(planned)
    assert (len(built.units("download")) > 1) is (size == "cut")
    assert edit.harmed == 1
    assert sum(built.receipt("writeback", unit).traffic["retries"] for unit in built.units("writeback")) == 1
    assert outputs(tmp_path / "edited") == outputs(tmp_path / "clean")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_streamed_build_whose_object_is_never_again_what_was_indexed_delivers_nothing(
    tmp_path, rclone, rclone_client, hasty, size: str, kind: str
) -> None:
    data = content(kind, make_documents(SIZES[size]), tmp_path)
    rclone_client.put_object(Bucket="corpus", Key=f"dump/a.{kind}", Body=data)
    edit = Edit()
    with FaultyProxy(rclone.endpoint, harm=edit) as proxy:
        config = streamed(tmp_path, "s3://corpus/dump", proxy.endpoint)
        planned = plan_dataset(check_config(config, where="test"))
        run_build(planned, workers=1, until="index")
        edit.armed = 10_000
        with raises("store.other_bytes"):
            run_build(planned, workers=1)
    assert edit.harmed > 1
    assert not (tmp_path / "outputs").exists() or not list((tmp_path / "outputs").rglob("dataset.json"))


# (store, what becomes of the object, its size, the mode of the first build)
REPLACED = [
    ("s3", "overwritten", "whole", "annotate"),
    ("gcs", "overwritten", "cut", "annotate"),
    ("s3", "other prefix", "cut", "remove"),
    ("gcs", "other prefix", "whole", "remove"),
    ("s3", "overwritten", "cut", "remove"),
    ("gcs", "overwritten", "whole", "remove"),
    ("s3", "other prefix", "whole", "annotate"),
    ("gcs", "other prefix", "cut", "annotate"),
]


@pytest.mark.parametrize("case", quick(REPLACED, 2), ids=map("-".join, REPLACED))
def test_streamed_build_of_an_object_replaced_by_one_of_its_name_and_size_is_that_of_a_build_from_scratch(
    tmp_path, request, case: tuple[str, str, str, str]
) -> None:
    """New text in documents/ beside old tokens, or old text in both, is what must not be."""
    store, move, size, mode = case
    server = request.getfixturevalue("rclone" if store == "s3" else "gcs")
    bucket, endpoint = ("s3://corpus", server.endpoint) if store == "s3" else ("gs://corpus", None)

    def put(prefix: str, data: bytes) -> None:
        if store == "s3":  # as others write it: without our own digest
            request.getfixturevalue("rclone_client").put_object(Bucket="corpus", Key=f"{prefix}/x.jsonl", Body=data)
        else:
            open_store(f"{bucket}/{prefix}").receive_bytes(data, "x.jsonl")

    def delivered(root: str, prefix: str, mode: str = "annotate") -> dict[str, bytes]:
        (tmp_path / root).mkdir(exist_ok=True)
        config = check_config(streamed(tmp_path / root, f"{bucket}/{prefix}", endpoint, mode), where="test")
        built = open_build(build_dataset(config, workers=1))
        assert (len(built.units("download")) > 1) is (size == "cut")
        return outputs(tmp_path / root)

    first = lines_of(make_documents(SIZES[size]))
    second = first.replace(b"water", b"wafer")
    assert (len(second), second != first) == (len(first), True)
    put("a", first)
    earlier = delivered("kept", "a", mode)
    later = "a" if move == "overwritten" else "b"
    put(later, second)
    got, fresh = delivered("kept", later), delivered("fresh", later)
    assert got == fresh
    for kind in ("documents/", "megatron/", "numpy/"):
        assert any(name.startswith(kind) and got[name] != earlier.get(name) for name in got)
    written = b"".join(data for name, data in got.items() if name.startswith("documents/"))
    assert (b"wafer" in written, b"water" in written) == (True, False)
