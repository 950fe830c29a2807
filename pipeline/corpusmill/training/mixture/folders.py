"""`corpusmill mix`: from folders and weights, as users write them, to the files that make a trainer draw the mixture.

    nanotron.yaml            dataset_folder as a list, dataset_weights beside it (nanotron's main branch)
    nanotron_dict.yaml       dataset_folder as a dictionary with weights (its documentation and older releases)
    megatron_data_path.txt   "w1 P1 w2 P2 ...", one line, for --data-path or --data-args-path; P without .bin. Megatron
                             cuts every file by --split; give it the mixture's, for which the epochs are counted
    megatron_splits.json     {"train": [...], "valid": [...], "test": [...]} for --per-split-data-args-path
    megatron_sequences.json  {P: [sequences, boundaries]} for --per-dataset-sequences-path

Source: nanotron config.py and docs/nanoset.md; Megatron-LM training/arguments.py, core/datasets/utils.py
(get_blend_from_list), tools/build_sequences_per_dataset.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console

from corpusmill.config.epochs import token_count
from corpusmill.errors import ConfigError, full_device_explained
from corpusmill.export.files import whole_files
from corpusmill.training.mixture.mixture import Mixture, mix
from corpusmill.training.mixture.picture import mixture_html, mixture_table
from corpusmill.training.mixture.sources import NAMES, BlendPart, open_source, parse_split, parts_by_files

TRAINING_FILES = (
    "nanotron.yaml",
    "nanotron_dict.yaml",
    "megatron_data_path.txt",
    "megatron_splits.json",
    "megatron_sequences.json",
)


def training_files(mixture: Mixture) -> dict[str, str]:
    """Name -> content of every file above that the mixture's exports allow."""
    files = {}
    if "nanoset" in mixture.exposures:
        files["nanotron.yaml"] = nanotron_yaml(mixture, as_dictionary=False)
        files["nanotron_dict.yaml"] = nanotron_yaml(mixture, as_dictionary=True)
    if "megatron" in mixture.exposures:
        files["megatron_data_path.txt"] = " ".join(data_path(mixture)) + "\n"
        files["megatron_splits.json"] = _json(splits(mixture))
        files["megatron_sequences.json"] = _json(
            {
                str(file.path.with_suffix("")): [file.sequences, file.documents + 1]
                for source in mixture.sources
                for file in source.megatron
            }
        )
    return files


def nanotron_yaml(mixture: Mixture, *, as_dictionary: bool) -> str:
    """A `data_stages` section. `.ds` files of a folder are found by name, so that a folder is a source."""
    folders = [str(source.nanoset[0].path.parent) for source in mixture.sources]
    weights = [float(weight) for weight in mixture.weights]
    dataset: dict[str, object] = (
        {"dataset_folder": dict(zip(folders, weights, strict=True))}
        if as_dictionary
        else {"dataset_folder": folders, "dataset_weights": weights}
    )
    if not as_dictionary:
        dataset["token_size_in_bytes"] = np.dtype(mixture.sources[0].vocabulary["dtype"]).itemsize
    stage = {
        "name": "mixture",
        "start_training_step": 1,
        "data": {"dataset": dataset, "num_loading_workers": 1, "seed": mixture.seed},
    }
    return yaml.safe_dump({"data_stages": [stage]}, sort_keys=False, allow_unicode=True, width=1000)


def data_path(mixture: Mixture) -> list[str]:
    """Weights and prefixes in turn. A source of several files shares its weight among them by their tokens.

    Megatron takes an odd number of items, or a weight that is not a number, for a list of prefixes; here the number of
    items is even and every weight is a number.
    """
    return _items(mixture.data_path)


def splits(mixture: Mixture) -> dict[str, list[str] | None]:
    """The last files of every source for validation and test, in the mixture's split, if there are enough.

    Splits by file are exact and do not change when a source grows; a source too small for a file of its own in
    every split keeps all of its files in `train`.
    """
    items: dict[str, list[str]] = {name: [] for name in NAMES}
    for source, weight in zip(mixture.sources, mixture.weights.tolist(), strict=True):
        for name, parts in parts_by_files(source, weight, mixture.split).items():
            items[name] += _items(parts)
    return {name: paths or None for name, paths in items.items()}


def _items(parts: Iterable[BlendPart]) -> list[str]:
    return [item for part in parts for item in (repr(part.weight), part.prefix)]


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


PAGE, FIGURES = "mixture.html", "mixture.json"
TABLE_COLUMNS = 110


def mix_folders(
    datasets: Sequence[str],
    output: Path,
    *,
    budget: str,
    sequence_tokens: int,
    alpha: float | None,
    seed: int,
    split: str,
    say: Callable[[str], object],
) -> Mixture:
    """Mix `FOLDER=WEIGHT`s (or `FOLDER`s with `alpha`), write everything below `output`, and print the table and the
    paths with `say`.

    Files of an earlier mixture in `output` are replaced or removed once all new ones are written; other files stay.
    Without weights and alpha, sources are drawn by their size (alpha 1). ConfigError for weights on some folders only,
    StorageFullError for a full disk, which keeps the earlier mixture.
    """
    folders, weights = _parsed(datasets)
    mixture = mix(
        [open_source(Path(folder)) for folder in folders],
        weights=weights,
        alpha=1.0 if weights is None and alpha is None else alpha,
        sequence_tokens=sequence_tokens,
        budget_tokens=_budget_tokens(budget),
        seed=seed,
        split=parse_split(split),
    )
    files = {**training_files(mixture), PAGE: mixture_html(mixture), FIGURES: mixture_json(mixture)}
    next_step = "free space on that device, then run the command again"
    full = full_device_explained("mixture.disk_full: no space left for a mixture", where=output, next_step=next_step)
    with full, whole_files(output) as inner:
        for name, content in files.items():
            (inner / name).write_text(content, encoding="utf-8")
        for name in sorted({*TRAINING_FILES, PAGE, FIGURES} - files.keys()):
            (output / name).unlink(missing_ok=True)
    say(_table_text(mixture))
    for name in files:
        say(str(output / name))
    return mixture


def _parsed(datasets: Sequence[str]) -> tuple[list[str], list[float] | None]:
    pairs = [dataset.rpartition("=") if "=" in dataset else (dataset, "", "") for dataset in datasets]
    with_weight = [bool(equals) for _, equals, _ in pairs]
    folders = [folder for folder, _, _ in pairs]
    if remote := [folder for folder in folders if "://" in folder]:
        raise ConfigError(
            "mixture.not_a_folder: mix reads datasets in folders, and so do the trainers that read its output",
            got=", ".join(remote),
            expected="<destination>/<name>/<version> on this machine or on a mounted file system",
            next_step="copy the datasets here, or mount the bucket",
        )
    if not any(with_weight):
        return folders, None
    if not all(with_weight):
        raise ConfigError(
            "mixture.weight_missing: some datasets have a weight and some do not",
            expected="FOLDER=WEIGHT for all of them, or for none",
            got=", ".join(datasets),
        )
    return folders, [_number(weight, folder) for folder, _, weight in pairs]


def _number(text: str, folder: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(
            "mixture.weight_not_a_number: a weight is not a number", where=folder, expected="such as 0.3", got=text
        ) from error


def _budget_tokens(text: str) -> int:
    try:
        return token_count(text)
    except ValueError as error:
        raise ConfigError(
            "mixture.tokens_not_a_number: this is not a number of tokens",
            where="--budget-tokens",
            expected="such as 20B or 500M",
            got=text,
        ) from error


def mixture_json(mixture: Mixture) -> str:
    """Everything that the table shows, exactly."""
    rows = [
        {
            "folder": str(source.folder),
            "name": source.name,
            "weight": float(weight),
            **{way: asdict(exposures[number]) for way, exposures in mixture.exposures.items()},
            "divided_by_files": source not in mixture.undivided,
        }
        for number, (source, weight) in enumerate(zip(mixture.sources, mixture.weights, strict=True))
    ]
    values = {
        "sequence_tokens": mixture.sequence_tokens,
        "samples": mixture.samples,
        "seed": mixture.seed,
        "split": mixture.split,
        "indivisible_files": [part.prefix for part in mixture.indivisible_files],
        "vocabulary": mixture.sources[0].vocabulary,
        "sources": rows,
    }
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def _table_text(mixture: Mixture) -> str:
    console = Console(file=io.StringIO(), width=TABLE_COLUMNS)
    with console.capture() as captured:
        console.print(mixture_table(mixture))
    return captured.get().rstrip()
