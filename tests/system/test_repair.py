"""Two destinations compared, and one repaired from the other, without the work folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import check_config
from corpusmill.inspect.datasets.repair import compare_copies, repair_copies
from corpusmill.storage import Store, open_store
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, write_corpus
from tests.system.verified import damage


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("copies")
    write_corpus(root / "corpus", documents=40)
    (root / "corpus" / "odd \u2028\r.jsonl").write_bytes(lines_of(["one", "two"]))  # not the end of a line of sums
    exports = {"megatron": {}, "nanoset": {}, "sample_documents": 5}
    places = [{"path": str(root / name)} for name in ("fast", "backup")]
    values = configuration(root, exports=exports, destinations=places)
    build_dataset(check_config(values, where="test"), workers=1)
    shutil.rmtree(root / "work")
    return root


@pytest.fixture
def places(built, tmp_path) -> tuple[Path, Path]:
    for name in ("fast", "backup"):
        shutil.copytree(built / name / "tiny", tmp_path / name / "tiny", symlinks=True)
    return tmp_path / "fast" / "tiny", tmp_path / "backup" / "tiny"


def contents(folder: Path) -> dict[str, bytes]:
    folder = (folder / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copies_equal_ones_compare_as_equal(places):
    compared = compare_copies(str(places[0]), str(places[1] / "latest"))
    assert (compared.wrong_first, compared.wrong_second) == ((), ())
    assert len(compared.sums) == len(contents(places[0]))
    assert repair_copies(compared) == (0, 0)


def test_copies_damage_at_each_is_repaired_from_the_other(places):
    whole = contents(places[0])
    fast, backup = ((place / "latest").resolve() for place in places)
    name = next(item for item in whole if item.endswith(".bin") and item.startswith("megatron"))
    damaged = bytearray(whole[name])
    damaged[7] ^= 1
    (fast / name).write_bytes(bytes(damaged))
    (backup / name.replace(".bin", ".idx")).unlink()
    (backup / "dataset.json").write_bytes(b"{}")
    (backup / "SHA256SUMS").write_bytes(b"damaged")
    compared = compare_copies(str(places[0]), str(places[1]))
    assert name in compared.wrong_first
    assert set(compared.wrong_second) == {name.replace(".bin", ".idx"), "dataset.json", "SHA256SUMS"}
    first, second = repair_copies(compared)
    assert (first, second) == (len(compared.wrong_first), 3)
    assert contents(places[0]) == contents(places[1]) == whole


def test_copies_file_wrong_at_both_is_named_and_nothing_is_written(places):
    for place in places:
        (place / "latest" / "shuffle_quality.json").write_bytes(b"")
    before = contents(places[0])
    with raises("repair.damaged_everywhere", "shuffle_quality.json"):
        repair_copies(compare_copies(*map(str, places)))
    assert contents(places[0]) == before


def test_copies_dataset_that_is_not_the_versions_at_both_is_not_trusted(places):
    for place in places:
        path = place / "latest" / "dataset.json"
        path.write_text(path.read_text().replace("0", "1"))
    with raises("repair.no_description", "dataset.json"):
        compare_copies(*map(str, places))


@pytest.fixture(params=["s3", "gcs"])
def remote(request, built) -> tuple[Store, dict[str, str]]:
    """Where a store keeps the version, every object with its sha256 noted beside it; and how it is reached."""
    folder = (built / "fast" / "tiny" / "latest").resolve()
    if request.param == "s3":
        endpoint = request.getfixturevalue("moto")
        store = open_store(f"s3://corpus/{folder.name}", endpoint_url=endpoint)
    else:
        request.getfixturevalue("gcs")
        endpoint, store = None, open_store(f"gs://corpus/{folder.name}")
    for path in folder.rglob("*"):
        if path.is_file():
            store.receive_bytes(path.read_bytes(), path.relative_to(folder).as_posix())
    return store, {"second_endpoint_url": endpoint}


@pytest.mark.parametrize("harm", quick(["one byte", "cut"], 1))
@pytest.mark.parametrize("beside", ["folder", "store"])
def test_copies_object_with_other_bytes_and_the_right_digest_noted_is_wrong_and_repaired(
    remote, places, harm: str, beside: str
) -> None:
    store, reached = remote
    whole = contents(places[0])
    name = next(item for item in whole if item.endswith(".bin") and item.startswith("megatron"))
    first, first_endpoint_url = str((places[0] / "latest").resolve()), None
    if beside == "store":
        other = open_store(
            store.folder.replace("corpus/", "corpus/other/"), endpoint_url=reached["second_endpoint_url"]
        )
        for item, content in whole.items():
            other.receive_bytes(content, item)
        first, first_endpoint_url = other.folder, reached["second_endpoint_url"]
    content = whole[name]
    damage(store, name, content[:100] if harm == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    compared = compare_copies(first, store.folder, first_endpoint_url=first_endpoint_url, **reached)
    assert (compared.wrong_first, compared.wrong_second) == ((), (name,))
    assert repair_copies(compared) == (0, 1)
    assert {file.name: store.open(file.name).read() for file in store.list_files()} == whole


def test_copies_list_of_sums_wrong_at_both_is_named_and_judges_no_other_file(places) -> None:
    path = places[0] / "latest" / "SHA256SUMS"
    path.write_text("".join(f"{'0' * 64}  {line[66:]}\n" for line in path.read_text().splitlines()))
    (places[1] / "latest" / "SHA256SUMS").unlink()
    compared = compare_copies(*map(str, places))
    assert (compared.wrong_first, compared.wrong_second) == (("SHA256SUMS",), ("SHA256SUMS",))
    with raises("repair.damaged_everywhere"):
        repair_copies(compared)


@pytest.mark.parametrize("harm", ["cut", "flipped digit"])
def test_copies_damaged_list_of_sums_is_repaired_from_the_whole_one(places, harm: str) -> None:
    whole = contents(places[0])
    path = places[0] / "latest" / "SHA256SUMS"
    lines = whole["SHA256SUMS"].splitlines(keepends=True)
    if harm == "cut":
        path.write_bytes(b"".join(lines[:-1]))
    else:
        number = next(number for number, line in enumerate(lines) if line.endswith(b".bin\n"))
        lines[number] = (b"1" if lines[number][:1] == b"0" else b"0") + lines[number][1:]
        path.write_bytes(b"".join(lines))
    compared = compare_copies(*map(str, places))
    assert (compared.wrong_first, compared.wrong_second) == (("SHA256SUMS",), ())
    assert repair_copies(compared) == (1, 0)
    assert contents(places[0]) == whole


def test_copies_no_dataset_is_said(tmp_path):
    with raises("repair.no_copy"):
        compare_copies(str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": "../elsewhere"}'])
def test_copies_latest_that_names_no_version_is_refused(places, text: str) -> None:
    (places[0] / "latest.json").write_text(text)
    with raises("destination.latest_unknown"):
        compare_copies(str(places[0]), str(places[1]))


def test_repair_command_says_what_is_wrong_and_repairs_only_when_asked(places):
    missing = next((places[1] / "latest" / "nanoset").glob("*.index"))
    content = missing.read_bytes()
    missing.unlink()
    checked = CliRunner().invoke(app, ["repair", str(places[0]), str(places[1]), "--check"])
    assert checked.exit_code == 1
    assert f"nanoset/{missing.name}: missing" in checked.output
    assert not missing.exists()
    done = CliRunner().invoke(app, ["repair", str(places[0]), str(places[1])])
    assert done.exit_code == 0, done.output
    assert missing.read_bytes() == content
