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

from tests.docs.errors import errors_made

ROOT = Path(__file__).parent.parent
PIPELINE = ROOT / "pipeline" / "corpusmill"
FILES = sorted(path for path in PIPELINE.rglob("*.py"))

# Who may import whom: each room, of the rooms that are listed above it, these and itself. Imports inside of functions
# count; those for the type checker alone do not.
MAY_IMPORT = {
    "errors": "",
    "version": "",
    "kernels": "",
    "installed": "errors version",
    "lazy": "",
    "fingerprint": "errors lazy",
    "storage": "errors fingerprint kernels lazy",
    "config": "errors storage",
    "documents": "errors kernels lazy storage",
    "engine": "config documents errors fingerprint kernels lazy storage version",
    "report": "errors lazy",
    "sources": "config documents engine errors fingerprint kernels lazy report storage",
    "decontamination": "config documents engine errors kernels lazy report sources storage",
    "dedup": "config decontamination documents engine errors kernels lazy report sources storage",
    "near_duplicates": "decontamination dedup documents engine errors kernels lazy report sources",
    "tokens": "config dedup documents engine errors fingerprint kernels lazy report sources",
    "shuffle": "config documents engine errors fingerprint kernels lazy report sources tokens",
    "export": "config engine errors kernels lazy shuffle tokens",
    "steps": "config dedup documents engine errors kernels lazy report sources storage",
    "upload": "config decontamination dedup engine errors export fingerprint kernels lazy near_duplicates report"
    " shuffle sources steps storage tokens version",
    "builds": "config decontamination dedup documents engine errors export fingerprint kernels lazy near_duplicates"
    " report shuffle sources steps storage tokens upload version",
    "inspect": "builds config decontamination dedup documents engine errors export fingerprint kernels lazy"
    " report shuffle sources steps storage tokens upload",
    "training": "config errors export inspect kernels lazy report upload",
    "direct": "builds config documents errors export inspect kernels lazy shuffle sources storage tokens",
    "api": "builds config engine inspect lazy training",
    "commands": "api builds config decontamination direct engine errors export inspect lazy near_duplicates report"
    " steps storage tokens training upload version",
    "cli": "builds commands errors installed",
    "questions": "builds config engine errors inspect installed lazy report steps storage upload",
}

# Calls whose result differs from run to run, or that lose an error. ndarray.tofile raises OSError without an errno on a
# short write, so that a full disk cannot be told from other faults.
FORBIDDEN_CALLS = {"tofile", "uuid1", "uuid4", "urandom", "default_rng", "shuffle", "permutation"}
FORBIDDEN_IMPORTS = {"airflow", "corpusmill_airflow", "pickle", "random", "uuid", "secrets", "shelve", "marshal"}
# A key that nobody can know beforehand, for a table in memory; no result depends on it (dedup/shared.py says why).
MAY_IMPORT_FORBIDDEN = {
    "dedup/shared.py": {"secrets"},
    "engine/work_folder/outputs.py": {"secrets"},  # names of attempts
    "engine/claim.py": {"secrets"},  # tells mirrors apart
}
# isal's compressor wrote unequal bytes for equal input in two processes; decompressing is checked by a checksum.
MAY_IMPORT_ISAL = {"documents/decompressing.py"}
# nanotron's own generators and seeds, to give its own order.
MAY_DRAW = {"training/mixture/order.py": {"shuffle", "permutation", "default_rng"}}
MAY_READ_THE_CLOCK = {"engine/ledger/once.py", "engine/ledger/lock.py", "builds/progress.py"}
MAY_READ_THE_CLOCK |= {"steps/takedowns.py"}  # who asked when, beside every build
MAY_READ_THE_CLOCK |= {"storage/local.py", "storage/retries.py"}  # the age of what nobody writes to; Retry-After
# A folder is listed in an order that differs from disk to disk: only inside sorted(), or where no order can be seen.
LISTINGS = {"iterdir", "glob", "rglob", "listdir", "scandir", "walk"}
MAY_LIST_UNSORTED = {
    "builds/forgetting/purge.py": "a set, sorted before it is listed",
    "engine/ledger/lock.py": "removes what it finds",
    "engine/ledger/cache.py": "sizes are summed; steps are sorted before one goes",
    "storage/output_folder.py": "asks whether there is anything",
    "direct/reshuffle/folders.py": "asks whether there is anything",
    "tokens/stages/audit.py": "sorted by age and name in the next line",
    "engine/garbage.py": "sorted in the next line; sizes are summed",
    "builds/room.py": "sizes are summed",
    "builds/local.py": "threads are counted",
    "upload/stages/manifest.py": "a mapping, sorted by name before it is written",
    "builds/preflight.py": "sizes are summed",
    "upload/stages/retention.py": "sizes are counted and summed",
    "storage/local.py": "sorted by name in the next line",
    "inspect/verify/receipts.py": "a mapping, sorted by name where findings are made",
}
# Results in the order in which they are ready; and numbers of this process or machine. builds/local.py waits for steps,
# whose bytes do not depend on one another's.
UNORDERED = {"as_completed", "imap_unordered", "wait", "hash", "id", "cpu_count", "getpid", "get_ident", "node"}
MAY_BE_UNORDERED = {
    "engine/ledger/lock.py": {"getpid", "node"},  # says who holds a lock
    "builds/local.py": {"wait", "cpu_count"},
    "engine/claim.py": {"getpid", "node", "wait"},  # says who has a dataset; pauses between two beats
    "engine/work_folder/objects.py": {"getpid"},  # a client of its own for each process
    "engine/work_folder/moved.py": {"getpid"},  # counts of its own for each process
    "report/progress.py": {"wait"},  # pauses between two looks
    "builds/estimate.py": {"cpu_count"},  # hours on this machine
    "builds/worker_check.py": {"cpu_count", "node"},  # speaks of a machine
    "storage/local.py": {"getpid", "node"},  # a temporary name of its own for each arrival
    "storage/retries.py": {"getpid", "get_ident"},  # spreads pauses between processes
    "tokens/audit.py": {"id"},  # which of one list are in another
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
        assert set(allowed.split()) <= above, f"{room} is listed above a room that it imports"
        above.add(room)
    imported: dict[str, set[str]] = {}
    for module, others in import_graph().items():
        room = module.split(".")[1] if "." in module else ""
        imported.setdefault(room, set()).update(other.split(".")[1] for other in others if "." in other)
    imported.pop("", None)
    assert {room: " ".join(sorted(rooms - {room})) for room, rooms in imported.items()} == MAY_IMPORT


def test_every_error_has_a_code_for_one_sentence() -> None:
    assert [made for made in errors_made() if not made.code] == []
    sentences: dict[str, set[tuple[str, str]]] = {}
    for made in errors_made():
        sentences.setdefault(made.code, set()).add((made.sentence, made.kind))
    assert [code for code, said in sentences.items() if len(said) > 1] == []


def test_package_is_imported_under_one_name_which_no_folder_of_a_users_dags_has() -> None:
    for folder in ("pipeline", "dags", "plugins", "deploy", "demo", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"^\s*(from|import) pipeline\b", path.read_text(), re.MULTILINE), path


def test_no_files_import_one_another_in_a_circle() -> None:
    TopologicalSorter(import_graph()).prepare()  # raises CycleError


@cache
def import_graph() -> dict[str, set[str]]:
    """{module: the modules of corpusmill/ that it imports}, inside of functions too, but for the type checker alone."""
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
    path
    for folder in ("pipeline/corpusmill_airflow", "dags", "plugins", "deploy")
    for path in (ROOT / folder).rglob("*.py")
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
    """The thin install of docs/existing-airflow.md; questions.py asks the workers."""
    sources = [parsed(path) for path in (ROOT / "pipeline" / "corpusmill_airflow").rglob("*.py")]
    modules = {
        node.module
        for source in sources
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corpusmill.")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_airflow, thin = {"jinja2", "pydantic", "pyyaml", "rich"}, {"msgspec", "xxhash"}
    named = [re.split(r"[^\w-]", item)[0].replace("-", "_") for item in project["dependencies"]]
    code = (
        "import importlib, importlib.abc, sys\n"
        "import corpusmill.lazy\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {sorted({*named} - of_airflow - thin)!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(1, Missing())\n"
        f"[importlib.import_module(one) for one in {sorted(modules - {'corpusmill.questions'})!r}]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
