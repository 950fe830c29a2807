"""The files that make a trainer draw a mixture.

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

import json
from collections.abc import Iterable

import numpy as np
import yaml

from corpusmill.training.mixture.mixture import Mixture
from corpusmill.training.mixture.splits import NAMES, BlendPart, parts_by_files

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
