"""Writes what an Airflow's DAGs folder needs: two DAG files and a first configuration. Existing files are kept.

python -m corpusmill_airflow ~/airflow/dags

The DAG files are those of dags/ in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

BUILD_FILE = '''"""What a build does, a line for each step, and the DAGs that do it (an Airflow DAG file).

`build_dataset` builds any configuration from a form, `dataset__<name>` that of a file in datasets/, with the steps that
it uses; `reprocess_shard` and `forget_documents` have the same steps.
"""

from pathlib import Path

from corpusmill_airflow.factory import make_dags


def steps_of_a_build(steps):
    """The steps, in order; one that a dataset does not need is left out."""
    return [
        steps.plan(),  # reads the sources, and decides how many tasks each step has
        steps.download(),  # sources, references, lists and benchmarks
        steps.index(),  # text shards, the user's steps, decontamination, anchors
        steps.approve_decontamination(),  # only where dag.approve_removal asks for it
        steps.near_duplicates(),  # copies of an earlier document but for small differences
        steps.approve_near_duplicates(),
        steps.find_ranges(),  # which bytes repeat, over the whole dataset
        steps.approve_removal(),
        steps.writeback(),  # cuts what repeats, writes the documents back
        steps.tokenize(),  # ids, and their audit
        steps.shuffle(),  # scatter, gather
        steps.export(),  # a task for each format
        steps.upload(),  # manifest, destinations
        steps.report(),
    ]


globals().update(make_dags(Path(__file__).parent / "datasets", steps_of_a_build))
'''
REFUSED_FILE = '''"""Import errors for the invalid configurations in datasets/ (an Airflow DAG file)."""

from pathlib import Path

from corpusmill_airflow.factory import refused_configurations

globals().update(refused_configurations(Path(__file__).parent / "datasets"))
'''
FIRST = """# Put text into data/, such as .jsonl files; `corpusmill config example` explains every key.
name: first
source:
  paths: [data]
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
    "corpusmill_datasets.py": BUILD_FILE,
    "corpusmill_refused.py": REFUSED_FILE,
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
