"""Writes what an Airflow's DAGs folder needs: two DAG files and a first configuration. Existing files are kept.

python -m corpusmill_airflow ~/airflow/dags
"""

from __future__ import annotations

import sys
from pathlib import Path

DAG_FILE = '''"""{about} (an Airflow DAG file)."""

from pathlib import Path

from corpusmill_airflow.factory import {function}

globals().update({function}(Path(__file__).parent / "datasets"))
'''
FIRST = """# Text of `corpusmill sample-corpus --output sample`; `corpusmill config example` explains every key.
name: first
source:
  paths: [sample]
dedup:
  mode: remove
  minimum_bytes: 100
tokenizer:
  name: cl100k_base
shuffle:
  seed: 7
exports:
  nanoset: {}
destinations:
  - path: outputs
"""
FILES = {
    "corpusmill_datasets.py": DAG_FILE.format(
        about="The DAGs of the configurations in datasets/", function="make_dags"
    ),
    "corpusmill_refused.py": DAG_FILE.format(
        about="Import errors for the invalid configurations in datasets/", function="refused_configurations"
    ),
    "datasets/first.yaml": FIRST,
}


def write_files(folder: Path) -> list[str]:
    """Write the files into a DAGs folder; a line for each, which states whether it existed."""
    lines = []
    for name, text in FILES.items():
        path = folder / name
        if name.endswith(".yaml") and any(path.parent.glob("*.yaml")):
            lines.append(f"{path.parent} already has configurations")
        elif path.exists():
            lines.append(f"{path} already exists")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            lines.append(f"{path} written")
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m corpusmill_airflow DAGS_FOLDER")
    print(*write_files(Path(sys.argv[1])), sep="\n")
