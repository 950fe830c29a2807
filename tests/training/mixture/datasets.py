"""Datasets made by hand, for tests of mixtures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.export import megatron, nanoset
from corpusmill.training.mixture import open_source

VOCABULARY = {"name": "gpt2", "sha256": "0" * 64, "size": 50257, "eot_id": 50256, "dtype": "uint16"}


def dataset(
    folder: Path, files: list[list[int]], *, formats: tuple[str, ...] = ("megatron", "nanoset"), **printed: Any
):
    """A finished dataset of files of documents, given as lengths; ids count up through all of it."""
    listing, position = [], 0
    for number, lengths in enumerate(files):
        tokens = np.arange(position, position + sum(lengths), dtype=np.uint16)
        position += len(tokens)
        batch = (tokens, np.cumsum(lengths, dtype=np.uint64))
        for name in formats:
            (folder / name).mkdir(parents=True, exist_ok=True)
        if "megatron" in formats:
            megatron.write_part(
                folder / "megatron",
                f"d_{number:05d}_text_document",
                [batch],
                dtype=megatron.token_dtype(50257),
                eod_id=50256,
                vocabulary_size=50257,
            )
        if "nanoset" in formats:
            stem = nanoset.file_name(0, number)
            nanoset.write_file(
                folder / "nanoset", stem, [batch], eos_id=50256, tokenizer_name="gpt2", vocabulary_size=50257
            )
    for path in sorted(folder.glob("*/*")):
        name, size_bytes = path.relative_to(folder).as_posix(), path.stat().st_size
        listing.append(
            {"name": name, "size_bytes": size_bytes, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        )
    description = {"name": folder.name, "vocabulary": VOCABULARY, "formats": {key: {} for key in formats}, **printed}
    (folder / "dataset.json").write_text(json.dumps({**description, "files": listing}))
    return open_source(folder)
