"""Every command on a configuration whose work folder is in a bucket, typed on machines that share nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.commands import app
from tests.engine.work_folder.machines import keys, machine, work_folder
from tests.oracles.megatron_cache import write_draws
from tests.system.corpus import configuration, lines_of, write_corpus


@pytest.fixture
def dataset(bucket: str, tmp_path: Path) -> Path:
    """The file of a configuration."""
    write_corpus(tmp_path / "corpus", documents=40)
    values = configuration(tmp_path, work_folder=work_folder())
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "tiny.yaml"


def typed(dataset: Path, words: str, on: str) -> str:
    """What a command prints that ends well, on the machine of a name."""
    with machine(dataset.parent, on):
        done = CliRunner().invoke(app, [word.replace("CONFIG", str(dataset)) for word in words.split()])
    assert done.exit_code == 0, (words, done.output, done.exception)
    return str(done.output)


@pytest.mark.slow
def test_every_command_works_on_another_machine_than_the_last(dataset: Path) -> None:
    assert " requests, " in typed(dataset, "estimate CONFIG", "one")
    assert "nothing is built yet" in typed(dataset, "plan CONFIG", "two")
    typed(dataset, "build CONFIG --workers 1", "three")
    latest = dataset.parent / "outputs" / "tiny" / "latest" / "dataset.json"
    before = latest.read_bytes()
    assert "run: new" not in typed(dataset, "plan CONFIG", "four")
    typed(dataset, "reprocess CONFIG --stage tokenize --shard 00000 --workers 1", "five")
    assert latest.read_bytes() == before
    assert "doc-" in typed(dataset, "trace CONFIG --format nanoset --file 0 --record 0", "six")
    assert "nanoset" in typed(dataset, "locate CONFIG --id doc-1", "seven")
    step = "--format nanoset --run-sequence-tokens 31 --run-seed 5 --first-sample 3"
    assert "sample 3 of nanoset/" in typed(dataset, f"trace CONFIG {step}", "seven, who has not fetched the file")
    parts = sorted((dataset.parent / "outputs/tiny/latest/megatron").glob("*.idx"))
    lengths = np.fromfile(parts[0], "<i4", int(np.fromfile(parts[0], "<u8", 1, offset=18)[0]), offset=34).tolist()
    write_draws(dataset.parent / "cache", str(parts[0].with_suffix("")), lengths, samples=20)
    step = f"--megatron-cache {dataset.parent / 'cache'} --first-sample 3"
    assert "sample 3 of " in typed(dataset, f"trace CONFIG {step}", "seven, whose cache is empty, too")
    typed(dataset, "verify CONFIG", "eight")
    assert "30 records" in typed(dataset, "verify CONFIG --sample 30", "eight, for records")
    (dataset.parent / "corpus" / "zz.jsonl").write_bytes(lines_of(["a text that nobody has read yet " * 40], 9_000))
    typed(dataset, "build CONFIG --workers 1", "nine")  # the refresh
    assert latest.read_bytes() != before
    assert "doc-9000" in typed(dataset, "locate CONFIG --id doc-9000", "ten")
    there = len(keys())
    typed(dataset, "gc CONFIG --remove --keep-plans 1", "eleven")
    assert len(keys()) < there
    typed(dataset, "verify CONFIG", "twelve")


@pytest.mark.slow
def test_everything_of_a_dataset_is_listed_and_removed_from_the_bucket_on_another_machine(dataset: Path) -> None:
    typed(dataset, "build CONFIG --workers 1", "one")
    there = keys()
    listed = typed(dataset, "gc CONFIG --everything", "two").splitlines()[-2].split()
    assert (listed[1], int(listed[2])) == (f"{work_folder()}/tiny", len(there))
    assert keys() == there
    typed(dataset, "gc CONFIG --everything --remove", "three")
    assert [key for key in keys() if not key.endswith(".run.json")] == []
    assert not (dataset.parent / "outputs" / "tiny").exists()
