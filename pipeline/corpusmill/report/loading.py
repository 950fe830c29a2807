"""Code to load each format of a dataset, made from dataset.json only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from corpusmill.lazy import lazily

with lazily:
    import numpy as np


def how_to_load(content: dict[str, Any]) -> Iterator[str]:
    """A Markdown section for the documents and for each format of tokens."""
    names = [str(file["name"]) for file in content["files"]]
    documents = [name for name in names if name.startswith("documents/")]
    if documents:
        kind = "parquet" if documents[0].endswith(".parquet") else "json"
        yield _section("documents", f'datasets.load_dataset("{kind}", data_files="documents/**")', len(documents), {})
    for kind, held in content["formats"].items():
        first = next(name for name in names if name.startswith(f"{kind}/") and _holds_tokens(name))
        yield _section(kind, _code(kind, first, content), held["outputs"], held)


def _holds_tokens(name: str) -> bool:
    return name.endswith((".bin", ".ds", ".npy", ".tar"))


def _code(kind: str, first: str, content: dict[str, Any]) -> str:
    width = np.dtype(content["vocabulary"]["dtype"]).itemsize
    return {
        "megatron": f'megatron.core.datasets.indexed_dataset.IndexedDataset("{first.removesuffix(".bin")}")',
        "nanoset": f'datatrove.utils.dataset.DatatroveFolderDataset("nanoset", seq_len=2048, token_size={width})',
        "numpy": f'numpy.load("{first}", mmap_mode="r")'
        if first.endswith(".npy")
        else f'numpy.memmap("{first}", "{content["vocabulary"]["dtype"]}", "r")',
        "webdataset": f'webdataset.WebDataset("{first}").decode()',
    }[kind]


def _section(kind: str, code: str, outputs: int, held: dict[str, Any]) -> str:
    counts = [f"{outputs:,} outputs", *(f"{held[key]:,} {words}" for key, words in COUNTED if key in held)]
    return f"**{kind}**: {', '.join(counts)}\n\n```python\n{code}\n```\n"


COUNTED = (("records", "records"), ("slots", "token slots, with special tokens and padding"))
