"""Rules of the house that a reader of the syntax tree can check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIPELINE = ROOT / "pipeline"
FILES = sorted(path for path in PIPELINE.rglob("*.py"))

# room -> the rooms of pipeline/ whose modules it may import (design: who may import whom)
LIGHT = {"addresses", "errors", "config", "fingerprint"}
KERNELS = {"content", "content_kernels", "words"}
MAY_IMPORT = {
    "errors": set(),
    "fingerprint": {"errors"},
    "content": set(),
    "content_kernels": {"content", "words"},
    "section": set(),
    "yaml_text": {"errors"},
    "schedule": {"section", "yaml_text"},
    "config": {"addresses", "errors", "schedule", "section", "yaml_text"},
    "form": {"addresses", "errors", "config", "section", "form"},
    "storage": LIGHT | {"storage"},
    "ledger": LIGHT | {"content", "storage", "ledger"},
    "documents": LIGHT | KERNELS | {"storage", "documents"},
    "slices": set(),
    "words": set(),
    "dedup": LIGHT | KERNELS | {"documents", "dedup", "slices"},
    "tokens": LIGHT | KERNELS | {"storage", "tokens", "slices"},
    "shuffle": LIGHT | KERNELS | {"tokens", "shuffle", "slices"},
    "export": LIGHT | KERNELS | {"tokens", "export", "slices"},
    "report": LIGHT | {"ledger", "report"},
    "mixture": LIGHT | {"export", "report", "mixture"},
}

# Calls whose result differs from run to run, or that lose an error. ndarray.tofile raises OSError without an errno on a
# short write, so that a full disk cannot be told from other faults.
FORBIDDEN_CALLS = {"tofile", "uuid1", "uuid4", "urandom", "default_rng", "shuffle", "permutation"}
FORBIDDEN_IMPORTS = {"airflow", "pickle", "random", "uuid", "secrets", "shelve", "marshal"}
# A key that nobody can know beforehand, for a table in memory; no result depends on it (dedup/levels.py says why).
MAY_IMPORT_FORBIDDEN = {"dedup/levels.py": {"secrets"}}
# isal's compressor wrote unequal bytes for equal input in two processes; decompressing is checked by a checksum.
MAY_IMPORT_ISAL = {"documents/decompressing.py"}
# nanotron's own generators and seeds, to give its own order.
MAY_DRAW = {"mixture/order.py": {"shuffle", "permutation", "default_rng"}}
MAY_READ_THE_CLOCK = {"ledger/once.py", "ledger/lock.py", "engine/build.py", "report/progress.py"}
MAY_READ_THE_CLOCK |= {"storage/local.py", "storage/retries.py"}  # the age of what nobody writes to; Retry-After
# A folder is listed in an order that differs from disk to disk: only inside sorted(), or where no order can be seen.
LISTINGS = {"iterdir", "glob", "rglob", "listdir", "scandir", "walk"}
MAY_LIST_UNSORTED = {
    "documents/sample_corpus.py": "removes what it finds",
    "ledger/once.py": "removes what it finds",
    "single/output_folder.py": "asks whether there is anything",
    "single/ready.py": "asks whether there is anything",
    "stages/audit.py": "sorted by age and name in the next line",
    "engine/garbage.py": "sorted in the next line; sizes are summed",
    "planning/estimate.py": "sizes are summed",
    "stages/manifest.py": "a mapping, sorted by name before it is written",
    "planning/preflight.py": "sizes are summed",
    "engine/preview.py": "sorted by age in the next line; for people",
    "stages/retention.py": "sizes are counted and summed",
    "storage/walk.py": "sorted by name in the next line",
    "verify/receipts.py": "a mapping, sorted by name where findings are made",
}
# Results in the order in which they are ready; and numbers of this process or machine. local.py waits for steps, whose
# bytes do not depend on one another's.
UNORDERED = {"as_completed", "imap_unordered", "wait", "hash", "id", "cpu_count", "getpid", "get_ident", "node"}
MAY_BE_UNORDERED = {
    "ledger/lock.py": {"getpid", "node"},  # says who holds a lock
    "local.py": {"wait", "cpu_count"},
    "engine/claim.py": {"getpid", "node", "wait"},  # says who has a dataset; pauses between two beats
    "report/progress.py": {"wait"},  # pauses between two looks
    "planning/estimate.py": {"cpu_count"},  # hours on this machine
    "planning/worker_check.py": {"cpu_count", "node"},  # speaks of a machine
    "storage/local.py": {"getpid", "node"},  # a temporary name of its own for each arrival
    "storage/retries.py": {"getpid", "get_ident"},  # spreads pauses between processes
    "tokens/audit.py": {"id"},  # which of one list stand in another
}


def imports_of(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "pipeline" else {f"pipeline.{alias.name}" for alias in node.names}
    return found


def called(tree: ast.AST) -> set[str]:
    return {called_name(node) for node in ast.walk(tree)}


def listed_unsorted(tree: ast.AST) -> set[str]:
    """Listings of folders that do not stand inside a call of sorted()."""
    inside = {id(node) for call in ast.walk(tree) if called_name(call) == "sorted" for node in ast.walk(call)}
    calls = [node for node in ast.walk(tree) if called_name(node) in LISTINGS and id(node) not in inside]
    return {called_name(node) for node in calls if not ast.unparse(node).startswith("ast.")}


def called_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PIPELINE).as_posix())
def test_pipeline_file_keeps_the_house_rules(path: Path) -> None:
    tree = ast.parse(path.read_text())
    name = path.relative_to(PIPELINE).as_posix()
    imported = imports_of(tree)
    assert not {one.split(".")[0] for one in imported} & (FORBIDDEN_IMPORTS - MAY_IMPORT_FORBIDDEN.get(name, set()))
    assert not called(tree) & (FORBIDDEN_CALLS - MAY_DRAW.get(name, set()))
    assert "isal" not in imported or name in MAY_IMPORT_ISAL
    if name not in MAY_READ_THE_CLOCK:
        assert not called(tree) & {"time", "time_ns", "now", "today", "utcnow"}
    assert name in MAY_LIST_UNSORTED or not listed_unsorted(tree)
    assert not called(tree) & (UNORDERED - MAY_BE_UNORDERED.get(name, set()))
    room = name.split("/")[0].removesuffix(".py")
    if room in MAY_IMPORT:
        rooms = {one.split(".")[1] for one in imported if one.startswith("pipeline.")}
        assert rooms <= MAY_IMPORT[room], f"{name} imports {sorted(rooms - MAY_IMPORT[room])}"


@pytest.mark.parametrize("name", MAY_LIST_UNSORTED)
def test_exceptions_to_the_rule_on_listings_are_still_needed(name: str) -> None:
    assert listed_unsorted(ast.parse((PIPELINE / name).read_text()))


@pytest.mark.parametrize("line", ["for p in folder.iterdir(): use(p)", "os.listdir(x)", "[p for p in a.rglob('*')]"])
def test_listing_outside_of_sorted_is_seen(line: str) -> None:
    assert listed_unsorted(ast.parse(line))
    assert not listed_unsorted(ast.parse("for p in sorted(q for q in folder.iterdir()): use(p)"))


OUTSIDE = sorted(path for folder in ("dags", "plugins", "deploy") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_airflow_side_unpickles_and_evaluates_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    loaders = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    assert not {one.split(".")[0] for one in imports_of(tree)} & loaders
    assert not called(tree) & {"eval", "exec", "load_all", "unsafe_load", "full_load"}
    for node in ast.walk(tree):
        if called_name(node) == "load" and ast.unparse(node).startswith("yaml.load"):
            assert "SafeLoader" in ast.unparse(node)
