"""Compile every numba kernel once, by building a tiny dataset in a folder that is thrown away.

The compiled kernels stay in NUMBA_CACHE_DIR. Without this the first three tasks of every stage would compile the same
kernels beside each other: 55 s of a first demo instead of 17 s here, while Airflow starts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from corpusmill.builds.local import build_dataset
from corpusmill.config import DestinationConfig, load_config
from corpusmill.documents.sample_corpus import write_sample_corpus

CONFIG = Path(__file__).resolve().parent.parent / "dags" / "datasets" / "demo.yaml"


def main() -> None:
    """Build about 200 kB of sample text with the demo's settings."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        write_sample_corpus(Path(folder, "sample"), target_bytes=200_000, files=2)
        config = load_config(CONFIG)
        source = config.source.model_copy(update={"paths": [f"{folder}/sample"]})
        destination = DestinationConfig(path=f"{folder}/outputs")
        changes = {"source": source, "destinations": [destination], "work_folder": f"{folder}/work"}
        build_dataset(config.model_copy(update=changes), workers=1)


if __name__ == "__main__":
    sys.exit(main())
