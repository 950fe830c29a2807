"""A guest in Airflow: nothing that runs inside it names anything that Airflow keeps to itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for folder in ("pipeline/corpusmill_airflow", "dags", "plugins", "demo")
    for path in (ROOT / folder).rglob("*.py")
)
# A name that begins with an underscore, alone or as a part of a path: _state, airflow.x._y, airflow.x:_y
PRIVATE = re.compile(r"(?:[\w.:]*[.:])?_\w*(?:[.:][\w.:]*)?")
OWN_STRINGS = {"_", "__main__"}


def private_names(tree: ast.AST) -> list[str]:
    """Names that begin with an underscore and may belong to somebody else, sorted.

    A module's globals are its own. So are the attributes that a class reaches through `self` or `cls`, provided that
    it has no base class, which might have them too.
    """
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bare, derived = (
        {id(node) for kind in classes if bool(kind.bases) is has for node in ast.walk(kind)} for has in (False, True)
    )
    named = {name for node in ast.walk(tree) for name in names_in(node, reaches_own=id(node) in bare - derived)}
    return sorted(name for name in named if PRIVATE.fullmatch(name))


def names_in(node: ast.AST, *, reaches_own: bool) -> list[str]:
    """The names in one node that need not be its module's or class's own."""
    names: list[str] = []
    match node:
        case ast.ImportFrom(module=module) if module != "__future__":
            names = [module or "", *(alias.name for alias in node.names)]
        case ast.Import():
            names = [alias.name for alias in node.names]
        case ast.Attribute(value=ast.Name(id="self" | "cls")) if reaches_own:
            pass
        case ast.Attribute(attr=attribute) if not is_dunder(attribute):
            names = [attribute]
        case ast.ClassDef(bases=[_, *_], body=body):  # what it defines may override what it inherits
            names = [name for statement in body for name in defined_by(statement) if not is_dunder(name)]
        case ast.keyword(arg=str(argument)):
            names = [argument]
        case ast.MatchClass(kwd_attrs=attributes):
            names = attributes
        case ast.Constant(value=str(text)) if text not in OWN_STRINGS:
            names = [text]
    return names


def defined_by(statement: ast.stmt) -> list[str]:
    """The names that a statement of a class's body binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def is_dunder(name: str) -> bool:
    """Whether a name belongs to the language."""
    return name.startswith("__") and name.endswith("__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_that_airflow_loads_names_nothing_private(path: Path) -> None:
    assert private_names(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "select(DagRun._state)",
        "process._last = 1",
        "self.queue._reader",
        "def f(self): self._x",
        "class A(LocalExecutor):\n def sync(self): self._unread",
        "class A:\n class B(LocalExecutor):\n  def sync(self): self._unread",
        "class A(LocalExecutor):\n def sync(self): super()._process_workloads([])",
        "class A(LocalExecutor):\n def _process_workloads(self): pass",
        "class A(LocalExecutor):\n _limit: int = 3",
        "from airflow.models import _state",
        "from airflow._shared import plugins",
        "from airflow.__main__ import main",
        "import airflow._shared.plugins as plugins",
        "getattr(run, '_state')",
        "import_module('airflow._shared.plugins')",
        "monkeypatch('airflow.models:_state')",
        "update(_state=1)",
        "match run:\n case DagRun(_state=state): pass",
    ],
)
def test_private_name_of_something_else_is_seen(code: str) -> None:
    assert private_names(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "from __future__ import annotations",
        "_kept = {}\ndef _keep(): _kept.clear()",
        "class A:\n def _f(self): self._x = self._f()",
        "class A:\n def __init__(self): super().__init__()",
        "class A(Operator):\n def __init__(self): super().__init__()",
        "if __name__ == '__main__': main()",
        "print('a_b', 'a _b', run.start_date, DagRun.state)",
    ],
)
def test_own_private_name_is_allowed(code: str) -> None:
    assert private_names(ast.parse(code)) == []
