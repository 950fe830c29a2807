"""verify --version: a delivered version by itself, at every destination, without the work folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import DatasetConfig, check_config
from corpusmill.inspect.verify import Finding, verify_version
from corpusmill.inspect.verify.exports import check_manifests
from corpusmill.inspect.verify.verification import open_steps
from corpusmill.storage import Store, open_store
from corpusmill.upload.stages.description import reference_text, sums_text
from tests.system.corpus import configuration, write_corpus

PLACES = ("fast", "backup")
NOT_SENT = "a file at a destination differs from the one that was sent"
OTHER_CONTENT = "a file does not hold what dataset.json states"
OTHER_TOTALS = "dataset.json states totals of a format that differ from those of its files"


def config_of(root: Path, **changes: object) -> dict[str, Any]:
    exports = {
        "webdataset": {"context_tokens": 65, "contexts_per_shard": 90, "exp_data": True},
        "numpy": {"tokens_per_shard": 5000, "placeholders": True},
        "megatron": {},
        "nanoset": {"file_bytes": "40KiB", "loss": True},
        "sample_documents": 3,
    }
    destinations = [{"path": str(root / name)} for name in PLACES]
    return configuration(root, exports=exports, destinations=destinations, **changes)


def checked(root: Path, **changes: object) -> DatasetConfig:
    return check_config(config_of(root, **changes), where="test")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("delivered")
    write_corpus(root / "corpus", documents=40)
    build_dataset(checked(root), workers=1)
    return root


@pytest.fixture
def root(built, tmp_path) -> Path:
    """Both destinations, and neither work folder nor sources."""
    for name in PLACES:
        shutil.copytree(built / name, tmp_path / name, symlinks=True)
    return tmp_path


def folder_of(root: Path, place: str = "fast") -> Path:
    return (root / place / "tiny" / "latest").resolve()


def findings(root: Path, version: str = "latest", **changes: object) -> tuple[Finding, ...]:
    return verify_version(checked(root, **changes), version).findings


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_version_as_delivered_is_all_well_by_name_as_latest_and_with_two_workers(root) -> None:
    name = folder_of(root).name
    sizes = [path.stat().st_size for path in folder_of(root).rglob("*") if path.is_file()]
    for version, workers in (("latest", 1), (name, 2)):
        verification = verify_version(checked(root), version, workers=workers)
        assert verification.findings == ()
        assert (verification.steps, verification.files) == (2, 2 * len(sizes))
        assert verification.read_bytes == 2 * sum(sizes)


def test_version_every_file_flipped_cut_grown_or_gone_is_named_and_nothing_else(root) -> None:
    folder = folder_of(root)
    alone = check_config(config_of(root) | {"destinations": [{"path": str(root / "fast")}]}, where="test")
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        content = path.read_bytes()
        other = (None, content + b"x", content[:-1])[number % 3]
        for damage in (flipped(content), other) if content else (None, b"x"):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            actual = {finding.where.split(", byte ")[0] for finding in verify_version(alone, folder.name).findings}
            assert actual == {str(path)}, (path, actual)
            path.write_bytes(content)
    assert findings(root) == ()


def test_version_foreign_file_is_named_an_index_cache_is_not(root) -> None:
    cache = folder_of(root) / "megatron" / "tiny" / "cache" / "GPTDataset_indices" / "index.npy"
    cache.parent.mkdir(parents=True)
    cache.write_bytes(b"x")
    assert findings(root) == ()
    (folder_of(root) / "nanoset" / "more.ds").write_bytes(b"x")
    (finding,) = findings(root)
    assert finding.where == str(folder_of(root) / "nanoset" / "more.ds")


def test_version_dataset_json_gone_at_one_place_is_taken_from_the_other(root) -> None:
    (folder_of(root) / "dataset.json").unlink()
    damaged = folder_of(root) / "shuffle_quality.json"
    damaged.write_bytes(flipped(damaged.read_bytes()))
    assert {finding.where for finding in findings(root)} == {str(folder_of(root) / "dataset.json"), str(damaged)}


def test_version_dataset_json_damaged_everywhere_leaves_nothing_to_compare_with(root) -> None:
    paths = [folder_of(root, place) / "dataset.json" for place in PLACES]
    for path in paths:
        path.write_bytes(flipped(path.read_bytes()))
    actual = findings(root)
    assert [finding.where for finding in actual] == [str(path) for path in paths]
    assert all("cannot be checked" in finding.what for finding in actual)


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[::-1],
        lambda lines: [*lines, f"{'0' * 64}  more"],
        lambda lines: ["0" + line[1:] if line.endswith(".bin") else line for line in lines],
        lambda lines: ["0" * 64 + line[64:] if "exp_data" in line else line for line in lines],
        lambda _: ["\x00 not a list"],
    ],
)
def test_version_sums_that_do_not_agree_are_named(root, harm: Callable[[list[str]], list[str]]) -> None:
    path = folder_of(root) / "SHA256SUMS"
    path.write_text("".join(f"{line}\n" for line in harm(path.read_text().splitlines())))
    (finding,) = findings(root)
    assert finding.where.split(", byte ")[0] == str(path)


def test_version_latest_that_differs_cannot_be_read_or_has_no_version_is_named(root) -> None:
    other = root / "backup" / "tiny"
    (other / "latest.json").write_text('{"version": "0123456789ab"}')
    assert "latest is not the same version at every destination" in {finding.what for finding in findings(root)}
    for text in ('{"version": "../elsewhere"}', "{", None):
        (other / "latest.json").unlink()
        if text is not None:
            (other / "latest.json").write_text(text)
        (finding,) = findings(root)
        assert finding.where == f"{other}/latest.json"
    shutil.rmtree(other)
    (finding,) = findings(root, folder_of(root).name)
    assert finding.where.startswith(str(other))


def forged(root: Path, change: Callable[[Path, dict[str, Any]], None]) -> None:
    """Change files and dataset.json; sizes, digests, SHA256SUMS and the version agree with the change afterwards."""
    for place in PLACES:
        folder = folder_of(root, place)
        described = json.loads((folder / "dataset.json").read_bytes())
        change(folder, described)
        for file in described["files"]:
            data = (folder / file["name"]).read_bytes()
            file["size_bytes"], file["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        text = json.dumps(described).encode()
        (folder / "dataset.json").write_bytes(text)
        version = hashlib.sha256(text).hexdigest()[:12]
        for reference in described["references"]:
            (folder / reference["name"]).write_text(reference_text(described, reference, version))
        paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        del paths["SHA256SUMS"]
        digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}
        (folder / "SHA256SUMS").write_text(sums_text(digests))
        folder.rename(folder.with_name(version))
        (folder.parent / "latest.json").write_text(json.dumps({"version": version}))
        (folder.parent / "latest").unlink()
        (folder.parent / "latest").symlink_to(version)


def first(described: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(file for file in described["files"] if file["name"].startswith(f"{kind}/") and "slots" in file)


def set_token(path: Path, change: Callable[[np.ndarray], None]) -> None:
    data = bytearray(path.read_bytes())
    offset = 128 if path.suffix == ".npy" else 0
    tokens = np.frombuffer(data, "<u4", offset=offset)
    change(tokens)
    path.unlink()  # the .ds and the .bin of a build are one file
    path.write_bytes(data)


def one_more(tokens: np.ndarray) -> None:
    tokens[3] += 1


def exchanged(tokens: np.ndarray) -> None:
    different = int(np.flatnonzero(tokens != tokens[1])[2])
    tokens[[1, different]] = tokens[[different, 1]]


@pytest.mark.parametrize("kind", ["megatron", "nanoset", "numpy"])
@pytest.mark.parametrize("change", [one_more, exchanged])
def test_version_tokens_that_changed_before_they_were_digested_are_seen_by_their_content(root, kind, change) -> None:
    """Every sha256 is right, and dataset.json has its version: only the content sum knows."""
    forged(root, lambda folder, described: set_token(folder / first(described, kind)["name"], change))
    actual = findings(root)
    assert [finding.what for finding in actual] == [OTHER_CONTENT] * 2
    assert all(f"/{kind}/" in finding.where and "content: " in finding.expected for finding in actual)


@pytest.mark.parametrize("kind", ["webdataset", "megatron", "nanoset", "numpy"])
@pytest.mark.parametrize("key", ["content", "slots", "records"])
def test_version_statement_that_is_not_the_files_own_is_named(root, kind: str, key: str) -> None:
    if (kind, key) == ("numpy", "records"):
        key = "content"

    def change(_folder: Path, described: dict[str, Any]) -> None:
        file = first(described, kind)
        file[key] = "0" * 32 if key == "content" else file[key] + 1

    forged(root, change)
    wanted = [OTHER_CONTENT] if key == "content" else [OTHER_CONTENT, OTHER_TOTALS]
    assert [finding.what for finding in findings(root)] == wanted * 2


def test_version_file_of_tokens_without_a_content_and_wrong_totals_are_named(root) -> None:
    def change(_folder: Path, described: dict[str, Any]) -> None:
        del first(described, "megatron")["content"]
        described["formats"]["nanoset"]["outputs"] += 1

    forged(root, change)
    assert [finding.what for finding in findings(root)] == [OTHER_CONTENT, OTHER_TOTALS] * 2


@pytest.fixture
def remote(built, moto) -> tuple[Store, dict[str, Any]]:
    """A version in a bucket, and the changes of the configuration that lead there."""
    return sent(folder_of(built), moto)


def sent(folder: Path, moto: str) -> tuple[Store, dict[str, Any]]:
    store = open_store(f"s3://corpus/sets/tiny/{folder.name}", endpoint_url=moto)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        store.receive(path, path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
    pointer = json.dumps({"version": folder.name}).encode()
    open_store("s3://corpus/sets/tiny", endpoint_url=moto).receive_bytes(pointer, "latest.json")
    return store, {"destinations": [{"path": "s3://corpus/sets", "endpoint_url": moto}]}


def remote_findings(root: Path, changes: dict[str, Any], version: str = "latest") -> tuple[Finding, ...]:
    values = {**config_of(root), **changes}
    return verify_version(check_config(values, where="test"), version).findings


def test_version_in_a_bucket_is_all_well_and_every_damage_is_named(built, remote) -> None:
    store, changes = remote
    assert remote_findings(built, changes) == ()
    endpoint = changes["destinations"][0]["endpoint_url"]
    done = CliRunner().invoke(app, ["verify", "s3://corpus/sets/tiny", "--endpoint-url", endpoint])
    assert (done.exit_code, "no errors found" in done.output) == (0, True), done.output
    described = json.loads(store.open("dataset.json").read())
    nanoset, megatron = (first(described, kind)["name"] for kind in ("nanoset", "megatron"))
    put = {"Bucket": "corpus", "Key": store.key(nanoset)}
    there = store.client.get_object(**put)
    store.client.put_object(**put, Body=flipped(there["Body"].read()), Metadata=there["Metadata"])  # the sha256 noted
    bare = {"Bucket": "corpus", "Key": store.key("shuffle_quality.json")}
    store.client.put_object(**bare, Body=flipped(store.client.get_object(**bare)["Body"].read()))
    store.delete(megatron)
    store.receive_bytes(b"x", "documents/more")
    actual = {finding.where: finding.what for finding in remote_findings(built, changes)}
    names = (nanoset, "shuffle_quality.json", megatron, "documents/more")
    assert actual.keys() == {f"{store.folder}/{name}" for name in names}
    assert actual[f"{store.folder}/shuffle_quality.json"] == NOT_SENT


def test_version_in_a_bucket_with_forged_digests_is_seen_by_its_content(root, moto) -> None:
    forged(root, lambda folder, described: set_token(folder / first(described, "nanoset")["name"], one_more))
    changes = sent(folder_of(root), moto)[1]
    (finding,) = remote_findings(root, changes)
    assert finding.what == OTHER_CONTENT


def test_version_that_a_bucket_does_not_hold_is_a_finding(built, remote) -> None:
    _, changes = remote
    (finding,) = remote_findings(built, changes, "0123456789ab")
    assert finding.where == "s3://corpus/sets/tiny/0123456789ab"


def test_verify_command_names_a_version_and_exits_1_for_a_finding(root) -> None:
    config = root / "config.yaml"
    config.write_text(json.dumps(config_of(root)))
    for version in ("latest", folder_of(root).name):
        well = CliRunner().invoke(app, ["verify", str(config), "--version", version])
        assert (well.exit_code, "no errors found" in well.output) == (0, True), well.output
    (folder_of(root) / "SHA256SUMS").unlink()
    wrong = CliRunner().invoke(app, ["verify", str(config), "--version", "latest"])
    assert (wrong.exit_code, "1 finding\n" in wrong.output) == (1, True), wrong.output
    assert CliRunner().invoke(app, ["verify", str(config), "--version", "../.."]).exit_code == 2
    assert not (root / "work").exists()


@pytest.mark.parametrize("key", ["content", "records", "slots"])
def test_manifest_that_states_other_content_than_the_exports_receipts_is_named(built, tmp_path, key: str) -> None:
    (plan,) = (built / "work/tiny/plan").glob("*/receipt.json")
    build = open_steps(open_build(plan))[0]
    folder = tmp_path / "manifest"
    shutil.copytree(open_build(plan).folder("manifest", "dataset"), folder)
    assert check_manifests(build, folder) == []
    described = json.loads((folder / "dataset.json").read_bytes())
    first(described, "nanoset")[key] = 0
    (folder / "dataset.json").write_text(json.dumps(described))
    (finding,) = check_manifests(build, folder)
    assert finding.got == f"{key}: 0"


def test_copy_is_verified_by_its_folder_alone_under_any_name_and_its_damage_named(root: Path) -> None:
    folder = folder_of(root)
    renamed = root / "mine"
    shutil.copytree(folder, renamed)
    for place in (root / "fast" / "tiny", root / "fast" / "tiny" / "latest", folder, renamed):
        done = CliRunner().invoke(app, ["verify", str(place)])
        assert (done.exit_code, "no errors found" in done.output) == (0, True), done.output
    for place in (folder, renamed):
        for name in ("dataset.json", "SHA256SUMS", "documents/part.jsonl.zst"):
            path = next(path for path in place.rglob("*") if path.match(name.replace("part", "*")))
            content = path.read_bytes()
            path.write_bytes(flipped(content))
            done = CliRunner().invoke(app, ["verify", str(place)])
            assert (done.exit_code, str(place) in done.output) == (1, True), (path, done.output)
            path.write_bytes(content)
    assert CliRunner().invoke(app, ["verify", str(folder), "--version", "latest"]).exit_code == 2


@pytest.mark.parametrize("place", ["web.yaml", "."])
def test_verify_with_a_seed_but_no_sample_is_refused(place: str) -> None:
    done = CliRunner().invoke(app, ["verify", place, "--seed", "7"])
    assert (done.exit_code, "--seed draws the records of --sample" in done.output) == (2, True), done.output


@pytest.mark.parametrize("option", [["--endpoint-url", "http://127.0.0.1:1"], ["--anonymous"]])
def test_verify_of_a_configuration_refuses_what_it_would_not_use(option: list[str]) -> None:
    done = CliRunner().invoke(app, ["verify", "web.yaml", *option])
    assert (done.exit_code, "--anonymous are for a folder" in done.output) == (2, True), done.output


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "[" * 100_000, '{"references": 1}', '{"files": [], "formats": []}', {"formats": {"megatron": None}}],
)
def test_copy_whose_description_has_another_form_is_a_finding(root: Path, text: str | dict[str, Any]) -> None:
    """In a folder with any name no digest is known before it is read."""
    renamed = root / "mine"
    shutil.copytree(folder_of(root), renamed)
    described = renamed / "dataset.json"
    described.write_text(text if isinstance(text, str) else json.dumps(json.loads(described.read_text()) | text))
    done = CliRunner().invoke(app, ["verify", str(renamed)])
    assert (done.exit_code, str(renamed) in done.output) == (1, True), done.output
    assert isinstance(done.exception, SystemExit)
