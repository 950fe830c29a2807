"""The files that make a trainer draw a mixture.

    nanotron.yaml            dataset_folder as a list, dataset_weights beside it (nanotron's main branch)
    nanotron_dict.yaml       dataset_folder as a dictionary with weights (its documentation and older releases)
    megatron_data_path.txt   "w1 P1 w2 P2 ...", one line, for --data-path or --data-args-path; P without .bin
    megatron_splits.json     {"train": [...], "valid": [...], "test": [...]} for --per-split-data-args-path
    megatron_sequences.json  {P: [sequences, boundaries]} for --per-dataset-sequences-path

Source: nanotron config.py and docs/nanoset.md; Megatron-LM training/arguments.py, core/datasets/utils.py
(get_blend_from_list), tools/build_sequences_per_dataset.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml

from pipeline.mixture.mixture import Mixture
from pipeline.mixture.sources import TokenFile

DEFAULT_SPLIT = (969, 30, 1)  # Megatron's own default


def training_files(mixture: Mixture, split: tuple[int, int, int] = DEFAULT_SPLIT) -> dict[str, str]:
    """Name -> content of every file above that the mixture's exports allow."""
    files = {}
    if "nanoset" in mixture.exposures:
        files["nanotron.yaml"] = nanotron_yaml(mixture, as_dictionary=False)
        files["nanotron_dict.yaml"] = nanotron_yaml(mixture, as_dictionary=True)
    if "megatron" in mixture.exposures:
        files["megatron_data_path.txt"] = " ".join(data_path(mixture)) + "\n"
        files["megatron_splits.json"] = _json(splits(mixture, split))
        files["megatron_sequences.json"] = _json(
            {_prefix(file): [file.sequences, file.documents + 1] for _, file in _megatron_files(mixture)}
        )
    return files


def nanotron_yaml(mixture: Mixture, *, as_dictionary: bool) -> str:
    """A `data_stages` section. `.ds` files of a folder are found by name, so that a folder is a source."""
    folders = [str(one.nanoset[0].path.parent) for one in mixture.sources]
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

    Megatron takes an odd number of items, or one weight that is no number, for a list of prefixes; here the number is
    even and every weight is one.
    """
    return [item for weight, file in _megatron_files(mixture) for item in (repr(weight), _prefix(file))]


def splits(mixture: Mixture, split: tuple[int, int, int] = DEFAULT_SPLIT) -> dict[str, list[str] | None]:
    """The last files of every source for validation and test, in the proportion of `split`, where there are enough.

    Splits by file are exact and stay what they are when a source grows; a source too small for a file of its own in
    every split keeps all of its files in `train`.
    """
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for number, source in enumerate(mixture.sources):
        files = source.megatron
        counts = _files_of_splits(len(files), split)
        begin = 0
        for name, count in zip(parts, counts, strict=True):
            chosen = files[begin : begin + count]
            begin += count
            tokens = sum(file.tokens for file in chosen)
            for file in chosen:
                share = float(mixture.weights[number]) * file.tokens / tokens
                parts[name] += [repr(share), _prefix(file)]
    return {name: items or None for name, items in parts.items()}


def _files_of_splits(files: int, split: tuple[int, int, int]) -> tuple[int, int, int]:
    valid, test = (max(1, round(files * one / sum(split))) if one else 0 for one in split[1:])
    return (files - valid - test, valid, test) if files > valid + test else (files, 0, 0)


def _megatron_files(mixture: Mixture) -> list[tuple[float, TokenFile]]:
    return [
        (float(weight) * file.tokens / sum(one.tokens for one in source.megatron), file)
        for weight, source in zip(mixture.weights, mixture.sources, strict=True)
        for file in source.megatron
    ]


def _prefix(file: TokenFile) -> str:
    return str(file.path.with_suffix(""))


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_training_files(mixture: Mixture, folder: Path) -> list[Path]:
    """Write them below `folder`, which is made; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in training_files(mixture).items():
        (folder / name).write_text(content, encoding="utf-8")
        paths.append(folder / name)
    return paths
