"""`corpusmill mix`: from folders and weights, as users write them, to the mixture's files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from corpusmill.config.epochs import token_count
from corpusmill.errors import ConfigError, full_device_explained
from corpusmill.export.files import whole_files
from corpusmill.training.mixture.mixture import Mixture, mix
from corpusmill.training.mixture.picture import mixture_html, mixture_table
from corpusmill.training.mixture.sources import open_source
from corpusmill.training.mixture.splits import parse_split
from corpusmill.training.mixture.training import TRAINING_FILES, training_files

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
