"""The dataset.json of a finished dataset, for tests of what reads delivered files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path


def describe(dataset: Path, files: Iterable[Path], vocabulary: str = "gpt2", context_tokens: int = 4) -> None:
    """Write the description of a dataset that holds these files."""
    listed = [
        {"name": path.relative_to(dataset).as_posix(), "size_bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(files)
    ]
    content = {
        "name": "web",
        "vocabulary": {"name": vocabulary, "dtype": "uint16"},
        "formats": {"webdataset": {"records": 3, "slots": 3 * context_tokens}},
        "files": listed,
    }
    (dataset / "dataset.json").write_text(json.dumps(content))


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
