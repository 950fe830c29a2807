"""The errors that Corpusmill raises on purpose, read from its syntax trees, for docs/errors.md and the house rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PIPELINE = Path(__file__).resolve().parents[2] / "pipeline"
CODED = re.compile(r"([a-z0-9_]+\.[a-z0-9_]+): (.+)")
PAGE = """<!-- python -m tests.docs.reference writes this page -->
# Errors

Every error that Corpusmill raises on purpose has a code: a terminal shows `error[config.unknown_key]: ...`, a program
reads `error.code`. A code stays when its sentence changes. A *permanent* error comes back until the input, the
configuration or the code changes. After a *transient* one a retry may succeed, and Airflow retries.

| code | kind | sentence |
|---|---|---|
"""
MADE_BEFORE = re.compile(r"""f['"]\{[^}]+\.code\}: |refused\['text'\]$""")  # the text of another error

Maker = tuple[str, str]
"""(its file if the name is private, name) of a class of errors, or a function that takes an error's text."""


class Made(NamedTuple):
    """A text of an error, with … for what is filled in. `code`: "" if the text has none, or cannot be read."""

    place: str
    code: str
    sentence: str
    kind: str


class Call(NamedTuple):
    """A call with arguments, and the function around it."""

    file: str
    node: ast.Call
    inside: ast.FunctionDef | None

    def called(self) -> Maker:
        """The last name of `f`, `module.f`, `self.f` and `CLASSES.get(code, f)`."""
        function = [self.node.func, *getattr(self.node.func, "args", ())][-1]
        return maker(self.file, getattr(function, "attr", "") or getattr(function, "id", ""))

    def hands_on(self) -> bool:
        """Whether its text is an argument of the function around it."""
        arguments = (
            [argument.arg for argument in self.inside.args.args if argument.arg != "self"] if self.inside else []
        )
        return ast.unparse(self.node.args[0]) in arguments[:1]

    def texts(self) -> Iterator[str]:
        """What its text can be: both of a choice, and what a variable is set to."""
        given = self.node.args[0]
        values = [
            node.value
            for node in ast.walk(self.inside or given)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(given)
        ]
        for value in values or [given]:
            yield from map(_shown, [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])


def maker(file: str, name: str) -> Maker:
    """See Maker."""
    return (file if name.startswith("_") else "", name)


def errors_page() -> str:
    """Every code, with its sentence."""
    rows = sorted(
        {(made.code, made.kind, made.sentence.replace("|", "\\|").replace("<", "&lt;")) for made in errors_made()}
    )
    return PAGE + "".join(f"| `{code}` | {kind} | {sentence} |\n" for code, kind, sentence in rows)


@cache
def errors_made() -> list[Made]:
    """Every text of an error, in the order of files."""
    trees = {
        path.relative_to(PIPELINE).as_posix(): ast.parse(path.read_text()) for path in sorted(PIPELINE.rglob("*.py"))
    }
    makers = {("", name): kind for name, kind in _kinds(trees.values()).items()}
    calls = [call for file, tree in trees.items() for call in _calls(file, tree, None)]
    for _ in range(3):  # a function may hand its text to one that hands it on
        made = [call for call in calls if call.called() in makers]
        makers |= {
            maker(call.file, call.inside.name): makers[call.called()]
            for call in made
            if call.inside and call.hands_on()
        }
    return [
        Made(f"{call.file}:{call.node.lineno}", *_parted(text), makers[call.called()])
        for call in made
        if not call.hands_on() and not MADE_BEFORE.match(ast.unparse(call.node.args[0]))
        for text in call.texts()
    ]


def _parted(text: str) -> tuple[str, str]:
    match = CODED.fullmatch(text)
    return (match[1], match[2]) if match else ("", text)


def _kinds(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Permanent or transient, for each class of errors."""
    classes = {
        node.name: ast.unparse(node.bases[0])
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.bases
    }
    kinds = {"PermanentError": "permanent", "TransientError": "transient", "InvalidValueError": "permanent"}
    for _ in classes:
        kinds |= {name: kinds[base] for name, base in classes.items() if base in kinds}
    return kinds


def _calls(file: str, node: ast.AST, inside: ast.FunctionDef | None) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and child.args:
            yield Call(file, child, inside)
        yield from _calls(file, child, child if isinstance(child, ast.FunctionDef) else inside)


def _shown(text: ast.expr) -> str:
    """A text or an f-string, with … for its values; of anything else its code."""
    if not isinstance(text, ast.JoinedStr):
        return str(text.value) if isinstance(text, ast.Constant) else ast.unparse(text)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in text.values)
