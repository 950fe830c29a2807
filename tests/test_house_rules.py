"""Rules of the house that a reader of the syntax tree can check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PIPELINE = Path(__file__).parent.parent / "pipeline"
FILES = sorted(path for path in PIPELINE.rglob("*.py"))

# room -> the rooms of pipeline/ whose modules it may import (design: who may import whom)
LIGHT = {"errors", "config", "fingerprint"}
MAY_IMPORT = {
    "errors": set(),
    "fingerprint": {"errors"},
    "section": set(),
    "schedule": {"section"},
    "config": {"errors", "schedule", "section"},
    "form": {"errors", "config", "section", "form"},
    "storage": LIGHT | {"storage"},
    "ledger": LIGHT | {"storage", "ledger"},
    "documents": LIGHT | {"storage", "documents"},
    "slices": set(),
    "dedup": LIGHT | {"documents", "dedup", "slices"},
    "tokens": LIGHT | {"storage", "tokens", "slices"},
    "shuffle": LIGHT | {"tokens", "shuffle", "slices"},
    "export": LIGHT | {"tokens", "export"},
    "report": LIGHT | {"ledger", "report"},
    "mixture": LIGHT | {"export", "report", "mixture"},
}

# Calls whose result differs from run to run, or that lose an error. ndarray.tofile raises OSError without an errno on a
# short write, so that a full disk cannot be told from other faults.
FORBIDDEN_CALLS = {"tofile", "uuid1", "uuid4", "urandom", "default_rng", "shuffle", "permutation"}
FORBIDDEN_IMPORTS = {"airflow", "pickle", "random", "uuid", "secrets", "shelve", "marshal"}
# isal's compressor wrote unequal bytes for equal input in two processes; decompressing is checked by a checksum.
MAY_IMPORT_ISAL = {"documents/decompressing.py"}
# nanotron's own generators and seeds, to give its own order.
MAY_DRAW = {"mixture/order.py": {"shuffle", "permutation", "default_rng"}}
MAY_READ_THE_CLOCK = {"ledger/once.py", "ledger/lock.py", "stages/build.py", "report/progress.py"}


def imports_of(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "pipeline" else {f"pipeline.{alias.name}" for alias in node.names}
    return found


def called(tree: ast.AST) -> set[str]:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in functions}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PIPELINE).as_posix())
def test_pipeline_file_keeps_the_house_rules(path: Path) -> None:
    tree = ast.parse(path.read_text())
    name = path.relative_to(PIPELINE).as_posix()
    imported = imports_of(tree)
    assert not {one.split(".")[0] for one in imported} & FORBIDDEN_IMPORTS
    assert not called(tree) & (FORBIDDEN_CALLS - MAY_DRAW.get(name, set()))
    assert "isal" not in imported or name in MAY_IMPORT_ISAL
    if name not in MAY_READ_THE_CLOCK:
        assert not called(tree) & {"time", "time_ns", "now", "today", "utcnow"}
    room = name.split("/")[0].removesuffix(".py")
    if room in MAY_IMPORT:
        rooms = {one.split(".")[1] for one in imported if one.startswith("pipeline.")}
        assert rooms <= MAY_IMPORT[room], f"{name} imports {sorted(rooms - MAY_IMPORT[room])}"
