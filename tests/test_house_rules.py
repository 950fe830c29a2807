"""Rules of the house that a reader of the syntax tree can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIPELINE = ROOT / "pipeline"
FILES = sorted(path for path in PIPELINE.rglob("*.py"))

# Who may import whom: each room, of the rooms that are listed above it, these and itself. Imports inside of functions
# count; those for the type checker alone do not.
MAY_IMPORT = {
    "errors": "",
    "section": "",
    "epochs": "",
    "content": "",
    "kernels": "",
    "words": "kernels",
    "slices": "kernels",
    "addresses": "",
    "version": "",
    "installed": "errors version",
    "fingerprint": "errors",
    "yaml_text": "errors",
    "schedule": "section yaml_text",
    "content_kernels": "content kernels words",
    "mirrored": "",
    "config": "addresses epochs errors mirrored schedule section yaml_text",
    "form": "addresses config errors section",
    "storage": "addresses errors fingerprint kernels",
    "bounds": "config errors form storage",
    "work_folder": "errors fingerprint mirrored storage",
    "ledger": "content errors fingerprint mirrored version work_folder",
    "report": "errors",
    "documents": "content_kernels errors kernels slices storage words",
    "dedup": "config content content_kernels documents errors kernels slices words",
    "tokens": "content content_kernels errors fingerprint kernels slices words",
    "shuffle": "content content_kernels epochs errors fingerprint slices tokens",
    "export": "content content_kernels errors kernels slices",
    "sources": "config documents errors fingerprint storage",
    "decontamination": "config documents errors kernels sources storage words",
    "steps": "config documents errors kernels ledger report sources storage words work_folder",
    "engine": "config errors fingerprint ledger mirrored schedule sources work_folder",
    "stages": "config content content_kernels decontamination dedup documents engine epochs errors export fingerprint"
    " ledger report shuffle slices sources steps storage tokens version work_folder",
    "forgetting": "config documents engine errors kernels ledger mirrored stages steps storage work_folder",
    "lineage": "dedup documents errors export fingerprint sources stages storage tokens work_folder",
    "verify": "config content engine errors export fingerprint forgetting ledger mirrored report sources stages storage"
    " work_folder",
    "datasets": "addresses config documents errors export stages storage tokens verify",
    "difference": "config content_kernels datasets dedup documents engine errors fingerprint ledger report stages"
    " storage tokens verify",
    "builds": "config content_kernels difference documents engine epochs errors fingerprint forgetting installed ledger"
    " mirrored report section sources stages steps storage tokens version work_folder",
    "mixture": "datasets epochs errors export kernels report",
    "training": "datasets errors export lineage mixture stages",
    "reshuffle": "datasets documents errors export shuffle slices storage tokens",
    "in_order": "builds config documents errors export sources storage tokens",
    "api": "builds config datasets engine lineage stages training",
    "commands": "api builds config datasets decontamination difference documents engine errors export forgetting"
    " in_order lineage mirrored mixture report reshuffle stages steps tokens training verify version work_folder",
    "cli": "builds commands errors installed",
}

# Calls whose result differs from run to run, or that lose an error. ndarray.tofile raises OSError without an errno on a
# short write, so that a full disk cannot be told from other faults.
FORBIDDEN_CALLS = {"tofile", "uuid1", "uuid4", "urandom", "default_rng", "shuffle", "permutation"}
FORBIDDEN_IMPORTS = {"airflow", "corpusmill_airflow", "pickle", "random", "uuid", "secrets", "shelve", "marshal"}
# A key that nobody can know beforehand, for a table in memory; no result depends on it (dedup/shared.py says why).
MAY_IMPORT_FORBIDDEN = {
    "dedup/shared.py": {"secrets"},
    "work_folder/outputs.py": {"secrets"},  # names of attempts
    "engine/claim.py": {"secrets"},  # tells mirrors apart
}
# isal's compressor wrote unequal bytes for equal input in two processes; decompressing is checked by a checksum.
MAY_IMPORT_ISAL = {"documents/decompressing.py"}
# nanotron's own generators and seeds, to give its own order.
MAY_DRAW = {"mixture/order.py": {"shuffle", "permutation", "default_rng"}}
MAY_READ_THE_CLOCK = {"ledger/once.py", "ledger/lock.py", "builds/progress.py"}
MAY_READ_THE_CLOCK |= {"steps/takedowns.py"}  # who asked when, beside every build
MAY_READ_THE_CLOCK |= {"storage/local.py", "storage/retries.py"}  # the age of what nobody writes to; Retry-After
# A folder is listed in an order that differs from disk to disk: only inside sorted(), or where no order can be seen.
LISTINGS = {"iterdir", "glob", "rglob", "listdir", "scandir", "walk"}
MAY_LIST_UNSORTED = {
    "forgetting/purge.py": "a set, sorted before it is listed",
    "ledger/lock.py": "removes what it finds",
    "ledger/cached.py": "sizes are summed; steps are sorted before one goes",
    "storage/output_folder.py": "asks whether there is anything",
    "reshuffle/folders.py": "asks whether there is anything",
    "stages/audit.py": "sorted by age and name in the next line",
    "engine/garbage.py": "sorted in the next line; sizes are summed",
    "builds/disk.py": "sizes are summed",
    "builds/local.py": "threads are counted",
    "builds/timing.py": "sizes are summed; one plan",
    "stages/manifest.py": "a mapping, sorted by name before it is written",
    "builds/preflight.py": "sizes are summed",
    "stages/retention.py": "sizes are counted and summed",
    "storage/walk.py": "sorted by name in the next line",
    "verify/receipts.py": "a mapping, sorted by name where findings are made",
}
# Results in the order in which they are ready; and numbers of this process or machine. builds/local.py waits for steps,
# whose bytes do not depend on one another's.
UNORDERED = {"as_completed", "imap_unordered", "wait", "hash", "id", "cpu_count", "getpid", "get_ident", "node"}
MAY_BE_UNORDERED = {
    "ledger/lock.py": {"getpid", "node"},  # says who holds a lock
    "builds/local.py": {"wait", "cpu_count"},
    "engine/claim.py": {"getpid", "node", "wait"},  # says who has a dataset; pauses between two beats
    "work_folder/buckets.py": {"getpid"},  # a client of its own for each process
    "work_folder/moved.py": {"getpid"},  # counts of its own for each process
    "report/progress.py": {"wait"},  # pauses between two looks
    "builds/estimate.py": {"cpu_count"},  # hours on this machine
    "builds/timing.py": {"getpid"},  # its program ends with this process
    "builds/worker_check.py": {"cpu_count", "node"},  # speaks of a machine
    "storage/local.py": {"getpid", "node"},  # a temporary name of its own for each arrival
    "storage/retries.py": {"getpid", "get_ident"},  # spreads pauses between processes
    "tokens/audit.py": {"id"},  # which of one list stand in another
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def imports_of(tree: ast.AST) -> set[str]:
    actual = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            actual |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            actual |= (
                {node.module} if node.module != "corpusmill" else {f"corpusmill.{alias.name}" for alias in node.names}
            )
    return actual


@cache
def called(tree: ast.AST) -> set[str]:
    return {called_name(node) for node in nodes(tree)}


def listed_unsorted(tree: ast.AST) -> set[str]:
    """Listings of folders that do not stand inside a call of sorted()."""
    inside = {id(node) for call in nodes(tree) if called_name(call) == "sorted" for node in ast.walk(call)}
    calls = [node for node in nodes(tree) if called_name(node) in LISTINGS and id(node) not in inside]
    return {called_name(node) for node in calls if not ast.unparse(node).startswith("ast.")}


def called_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PIPELINE).as_posix())
def test_pipeline_file_keeps_the_house_rules(path: Path) -> None:
    tree = parsed(path)
    name = path.relative_to(PIPELINE).as_posix()
    imported = imports_of(tree)
    assert not {item.split(".")[0] for item in imported} & (FORBIDDEN_IMPORTS - MAY_IMPORT_FORBIDDEN.get(name, set()))
    assert not called(tree) & (FORBIDDEN_CALLS - MAY_DRAW.get(name, set()))
    assert "isal" not in imported or name in MAY_IMPORT_ISAL
    if name not in MAY_READ_THE_CLOCK:
        assert not called(tree) & {"time", "time_ns", "now", "today", "utcnow"}
    assert name in MAY_LIST_UNSORTED or not listed_unsorted(tree)
    assert not called(tree) & (UNORDERED - MAY_BE_UNORDERED.get(name, set()))


def test_rooms_import_those_below_them_alone() -> None:
    above: set[str] = set()
    for room, allowed in MAY_IMPORT.items():
        assert set(allowed.split()) <= above, f"{room} stands above a room that it imports"
        above.add(room)
    imported: dict[str, set[str]] = {}
    for module, others in import_graph().items():
        room = module.split(".")[1] if "." in module else ""
        imported.setdefault(room, set()).update(other.split(".")[1] for other in others if "." in other)
    imported.pop("", None)
    assert {room: " ".join(sorted(rooms - {room})) for room, rooms in imported.items()} == MAY_IMPORT


def test_package_is_imported_under_one_name_which_no_folder_of_a_users_dags_has() -> None:
    assert (ROOT / "corpusmill").resolve() == PIPELINE
    for folder in ("pipeline", "corpusmill_airflow", "dags", "plugins", "deploy", "demo", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"^\s*(from|import) pipeline\b", path.read_text(), re.MULTILINE), path


def test_no_files_import_one_another_in_a_circle() -> None:
    TopologicalSorter(import_graph()).prepare()  # raises CycleError


@cache
def import_graph() -> dict[str, set[str]]:
    """{module: the modules of pipeline/ that it imports}, inside of functions too, but for the type checker alone."""
    modules = {
        ".".join(("corpusmill", *path.relative_to(PIPELINE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in FILES
    }
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = parsed(path)
        for_types = {id(node) for block in nodes(tree) if _is_for_types(block) for node in ast.walk(block)}
        graph[module] = {
            name if (name := f"{node.module}.{alias.name}") in modules else node.module
            for node in nodes(tree)
            if isinstance(node, ast.ImportFrom) and id(node) not in for_types
            for alias in node.names
            if node.module and node.module.split(".")[0] == "corpusmill"
        }
        graph[module] |= {
            alias.name
            for node in nodes(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name in modules
        }
    return graph


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize("name", MAY_LIST_UNSORTED)
def test_exceptions_to_the_rule_on_listings_are_still_needed(name: str) -> None:
    assert listed_unsorted(parsed(PIPELINE / name))


@pytest.mark.parametrize("line", ["for p in folder.iterdir(): use(p)", "os.listdir(x)", "[p for p in a.rglob('*')]"])
def test_listing_outside_of_sorted_is_seen(line: str) -> None:
    assert listed_unsorted(ast.parse(line))
    assert not listed_unsorted(ast.parse("for p in sorted(q for q in folder.iterdir()): use(p)"))


OUTSIDE = sorted(
    path for folder in ("corpusmill_airflow", "dags", "plugins", "deploy") for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_airflow_side_unpickles_and_evaluates_nothing(path: Path) -> None:
    tree = parsed(path)
    loaders = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    assert not {item.split(".")[0] for item in imports_of(tree)} & loaders
    assert not called(tree) & {"eval", "exec", "load_all", "unsafe_load", "full_load"}
    for node in nodes(tree):
        if called_name(node) == "load" and ast.unparse(node).startswith("yaml.load"):
            assert "SafeLoader" in ast.unparse(node)


def test_airflows_side_needs_none_of_the_workers_packages() -> None:
    """An environment that has the wheel without its extra; what tasks ask of the workers is in builds/questions.py."""
    sources = [parsed(path) for path in (ROOT / "corpusmill_airflow").rglob("*.py")]
    modules = {
        node.module
        for source in sources
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corpusmill.")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_airflow = {"jinja2", "rich"}  # which needs them itself
    named = [re.split(r"[^\w-]", item)[0].replace("-", "_") for item in project["optional-dependencies"]["worker"]]
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({sorted({*named} - of_airflow)!r}))\n"
        f"[importlib.import_module(one) for one in {sorted(modules - {'corpusmill.builds.questions'})!r}]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
