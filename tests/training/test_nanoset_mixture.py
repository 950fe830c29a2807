"""Samples of a Nanoset of several folders, by the mixture that `corpusmill mix` planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import corpusmill
from corpusmill.commands import app
from corpusmill.training.mixture.folders import mix_folders
from tests.oracles.mixture import greedy_order
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

SEQUENCE, SEED = 31, 1234
SHARES = [0.7, 0.3]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """web.yaml, books.yaml, and mixture/mixture.json of both."""
    folder = tmp_path_factory.mktemp("mixed")
    for seed, name in enumerate(("web", "books")):
        write_corpus(folder / name, documents=40, seed=seed)
        changes: dict[str, Any] = {
            "name": name,
            "source": {"paths": [str(folder / name)]},
            "exports": {"nanoset": {"file_bytes": "24KiB"}},
        }
        (folder / f"{name}.yaml").write_text(json.dumps(configuration(folder, **changes)))
        corpusmill.build(folder / f"{name}.yaml")
    mix_folders(
        [f"{folder}/outputs/{name}/latest={share}" for name, share in zip(("web", "books"), SHARES, strict=True)],
        folder / "mixture",
        budget="100k",
        sequence_tokens=SEQUENCE,
        alpha=None,
        seed=SEED,
        split="100,0,0",
        say=lambda _: None,
    )
    return folder


def windows_of(folder: Path) -> list[list[int]]:
    """The windows of a folder's files, the files in the order in which datatrove shuffles them."""
    paths = sorted(folder.glob("*.ds"))
    windows = []
    for number in np.random.default_rng(42).permutation(len(paths)):
        tokens = np.fromfile(paths[number], "<u4").tolist()
        windows += [tokens[at : at + SEQUENCE + 1] for at in range(0, len(tokens) - SEQUENCE, SEQUENCE + 1)]
    return windows


@pytest.mark.parametrize("name", ["web", "books"])
def test_trace_samples_of_a_mixture_are_the_greedy_draws_of_ours_and_the_folders_of_others(root, name: str) -> None:
    windows = [windows_of(root / "outputs" / item / "latest" / "nanoset") for item in ("web", "books")]
    samples = sum(map(len, windows))
    order = [(folder, drawn % len(windows[folder])) for folder, drawn in greedy_order(SHARES, samples)]
    shuffled = np.arange(samples)
    np.random.RandomState(SEED).shuffle(shuffled)
    epoch = [order[place] for place in shuffled]
    file_of = {path.stem: path for path in (root / "outputs" / name / "latest" / "nanoset").glob("*.ds")}
    seen = 0
    traced = corpusmill.trace_samples(root / f"{name}.yaml", 0, samples + 3, mixture=root / "mixture" / "mixture.json")
    for sample, (folder, window) in zip(traced, [*epoch, *epoch[:3]], strict=True):
        if ("web", "books")[folder] != name:
            other = (root / "outputs" / ("web", "books")[folder] / "latest").resolve()
            assert (sample.file, sample.records) == (str(other), ())
            continue
        tokens: list[int] = []
        for record in sample.records:
            path = file_of[Path(record.file).name]
            ends = np.fromfile(f"{path}.index", "<u8").tolist()
            begin = ends[record.record - 1] if record.record else 0
            first, last = record.record_tokens
            tokens += np.fromfile(path, "<u4")[begin + first : begin + last].tolist()
        assert tokens == windows[folder][window]
        seen += 1
    assert 0 < seen < samples


def test_trace_command_shows_a_step_of_a_mixture(root: Path) -> None:
    command = ["trace", str(root / "web.yaml"), "--format", "nanoset", "--mixture", str(root / "mixture/mixture.json")]
    done = CliRunner().invoke(app, [*command, "--step", "2", "--batch", "6"])
    assert done.exit_code == 0, done.output
    assert f"a Nanoset with seed {SEED} of 2 folders, {SEQUENCE} tokens a sample" in done.output
    assert all(f"sample {number} of " in done.output for number in range(6, 12))


def changed(root: Path, folder: Path, **changes: Any) -> Path:
    stated = json.loads((root / "mixture" / "mixture.json").read_text())
    for name, value in changes.items():
        stated = {**stated, name: value} if name != "ours" else stated
    if "ours" in changes:
        stated["sources"][0].update(changes["ours"])
    (folder / "mixture.json").write_text(json.dumps(stated))
    return folder / "mixture.json"


@pytest.mark.parametrize(
    ("changes", "asked", "code"),
    [
        ({}, {"seed": 5}, "mixture.other_run"),
        ({}, {"sequence_tokens": 32}, "mixture.other_run"),
        ({}, {"split": "9,1,0"}, "training.nanoset_order"),
        ({}, {"megatron_cache": "x"}, "dataset.no_such_export"),
        ({"sequence_tokens": 20}, {}, "mixture.other_files"),
        ({"ours": {"folder": "/elsewhere/web/0123456789ab"}}, {}, "mixture.dataset_not_drawn"),
        ({"ours": {"nanoset": None}}, {}, "mixture.not_of_nanosets"),
        ({"ours": {"weight": -1}}, {}, "mixture.not_of_nanosets"),
        ({"sources": []}, {}, "mixture.not_of_nanosets"),
    ],
)
def test_mixture_of_another_run_or_dataset_is_refused(root, tmp_path, changes, asked, code: str) -> None:
    path = changed(root, tmp_path, **changes)
    with raises(code):
        corpusmill.trace_samples(root / "web.yaml", 0, mixture=path, **asked)


def test_mixture_whose_dataset_is_elsewhere_by_now_is_known_by_its_version(root: Path, tmp_path: Path) -> None:
    version = (root / "outputs" / "web" / "latest").resolve().name
    path = changed(root, tmp_path, ours={"folder": f"/elsewhere/web/{version}"})
    ours = root / "mixture" / "mixture.json"
    assert list(corpusmill.trace_samples(root / "web.yaml", 0, 1, mixture=path)) == list(
        corpusmill.trace_samples(root / "web.yaml", 0, 1, mixture=ours)
    )
