"""`corpusmill mix`: what it writes, prints and refuses."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.errors import ConfigError, StorageFullError
from tests.training.mixture.datasets import dataset


def test_mix_command_writes_the_trainers_files_and_prints_the_table(tmp_path, sources) -> None:
    command = ["mix", f"{tmp_path}/a=0.9", f"{tmp_path}/b=0.1", "--budget-tokens", "4k", "--sequence-tokens", "4"]
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "epochs" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "nanotron.yaml",
        "nanotron_dict.yaml",
        "megatron_data_path.txt",
        "megatron_splits.json",
        "megatron_sequences.json",
        "mixture.html",
        "mixture.json",
    }
    printed = json.loads((tmp_path / "out/mixture.json").read_text())
    assert [item["weight"] for item in printed["sources"]] == [0.9, 0.1]
    assert sum(item["nanoset"]["drawn"] for item in printed["sources"]) == 1000


def test_mix_command_into_a_used_folder_leaves_nothing_of_the_other_mixture(tmp_path, sources) -> None:
    dataset(tmp_path / "plain", [[30]], formats=("nanoset",))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    for folders in (["a", "b"], ["a", "plain"]):
        command = ["mix", *(f"{tmp_path}/{name}=1" for name in folders), "--budget-tokens", "4k"]
        command += ["--sequence-tokens", "4", "--output", str(tmp_path / "out")]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    names = {"nanotron.yaml", "nanotron_dict.yaml", "mixture.html", "mixture.json", "notes.txt"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert str(tmp_path / "b") not in (tmp_path / "out/nanotron.yaml").read_text()


def test_mix_command_on_a_full_disk_says_so_and_keeps_the_earlier_mixture(tmp_path, sources, monkeypatch) -> None:
    output = tmp_path / "out"
    command = ["mix", f"{tmp_path}/a=1", f"{tmp_path}/b=1", "--sequence-tokens", "4", "--output", str(output)]
    assert CliRunner().invoke(app, [*command, "--budget-tokens", "4k"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    write_text = Path.write_text

    def full(path: Path, *arguments, **wanted) -> int:
        if path.name == "megatron_splits.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *arguments, **wanted)

    monkeypatch.setattr(Path, "write_text", full)
    asked = CliRunner().invoke(app, [*command, "--budget-tokens", "8k"])
    assert isinstance(asked.exception, StorageFullError)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_mix_command_hardly_drawn_source_is_not_said_to_be_seen_whole(tmp_path) -> None:
    for name in ("large", "small"):
        dataset(tmp_path / name, [[100] * 20])
    command = ["mix", f"{tmp_path}/large=0.99", f"{tmp_path}/small=0.01", "--budget-tokens", "2k"]
    command += ["--sequence-tokens", "4", "--output", str(tmp_path / "out"), "--split", "1"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    printed = json.loads((tmp_path / "out/mixture.json").read_text())["sources"]
    rows = [line for line in done.output.splitlines() if line.startswith("small")]
    assert len(rows) == 3
    for item, row in zip(("megatron", "megatron_splits", "nanoset"), rows, strict=True):
        seen, samples = printed[1][item]["seen"], printed[1][item]["samples"]
        assert 1 <= seen <= 6 < samples
        assert f"{1000 * seen // samples / 10:.1f} %" in row
        assert ("never, in any epoch" in row) == (item == "nanoset")


def test_mix_command_weight_on_some_folders_only_is_refused(tmp_path, sources) -> None:
    command = ["mix", f"{tmp_path}/a=0.9", f"{tmp_path}/b", "--budget-tokens", "4k", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ConfigError)
    assert not (tmp_path / "out").exists()


def test_mix_command_dataset_in_a_bucket_is_refused_in_words(tmp_path) -> None:
    asked = CliRunner().invoke(
        app, ["mix", "s3://bucket/web/latest=1", "--budget-tokens", "1M", "--output", str(tmp_path / "mixture")]
    )
    assert asked.exit_code == 1
    assert "mix reads datasets in folders" in str(asked.exception)
    assert not (tmp_path / "mixture").exists()
