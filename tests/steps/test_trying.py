"""corpusmill step try: what a step would do, on the terminal and as a page."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.commands import app
from corpusmill.report.tried import compared

DOCS = Path(__file__).parents[2] / "docs" / "steps.md"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root folder with the Python of docs/steps.md as my_filters.py, and four documents."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "my_filters.py").write_text("\n".join(blocks))
    texts = ["one two three", "Mail ann@example.org, <b>please</b>", "x " * 60, "a@b.cd " * 21]
    rows = [json.dumps({"id": f"d{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("".join(rows))
    (tmp_path / "bad.txt").write_text("one\n")
    yield tmp_path
    sys.modules.pop("my_filters", None)
    sys.path[:] = [item for item in sys.path if item != str(tmp_path)]


def tried(root: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["step", "try", *words[:1], str(root / "texts.jsonl"), *words[1:]])
    assert done.exit_code == 0, done.output
    return done.output


def test_first_function_of_the_docs_drops_short_documents(root: Path) -> None:
    printed = tried(root, "my_filters:long_enough")
    assert "3 of 4  dropped: long_enough" in printed
    assert "1 of 4  kept as it is" in printed
    assert "texts.jsonl, line 1, id d0: dropped: long_enough\n  one two three\n" in printed
    assert "4 of 4  kept as it is" in tried(root, "my_filters:long_enough", "--set", "words=2")


def test_cuts_and_attributes_of_the_docs_are_shown_side_by_side(root: Path) -> None:
    printed = tried(root, "my_filters:without_addresses", "--page", str(root / "page.html"))
    assert "1 of 4  changed" in printed
    assert "1 of 4  dropped: without_addresses: a list of addresses" in printed
    assert 'without_addresses: {"addresses":1}' in printed
    assert re.search(r"Mail ann@example.org, <b>please</b> +\| Mail , <b>please</b>", printed)
    page = (root / "page.html").read_text()
    assert "<del>ann@example.org</del>" in page
    assert "&lt;b&gt;please&lt;/b&gt;" in page
    assert "<b>please" not in page


def test_classes_of_the_docs_run(root: Path) -> None:
    assert "1 of 4  dropped: NoBadWords" in tried(root, "my_filters:NoBadWords", "--set", f"path={root / 'bad.txt'}")
    assert "1 of 4  dropped: LongEnough: too short" in tried(root, "my_filters:LongEnough", "--set", "bytes=20")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["my_filters:absent"], "no absent in module my_filters next fix the name in `use`"),
        (["nosuch:step"], "no source file of a module nosuch next put the module into"),
        (["malformed:step"], "SyntaxError at malformed.py:2 where malformed was imported next fix the module"),
        (["failing:step"], "ZeroDivisionError at failing.py:3, in <module> where failing was imported next fix"),
        (["lacking:step"], "ModuleNotFoundError at lacking.py:1, in <module>: no module nosuch next install nosuch"),
        (["my_filters:long_enough", "--set", "word=1"], "next fix `with` (--set)"),
        (["my_filters:long_enough", "--set", "words=[1]"], "next fix the step, or set on_error: keep or drop"),
        (["my_filters"], "use must be module:name, such as"),
        (["my_filters:long_enough", "--set", "words"], "not KEY=VALUE"),
        (["my_filters:long_enough", "--set", "words=[1]"], "TypeError at my_filters.py"),
    ],
)
def test_step_that_cannot_be_tried_says_why(words: list[str], message: str, root: Path) -> None:
    (root / "malformed.py").write_text("\ndef step(:\n")
    (root / "failing.py").write_text("\n\n1 / 0\n")
    (root / "lacking.py").write_text("import nosuch\n")
    done = CliRunner().invoke(app, ["step", "try", words[0], str(root / "texts.jsonl"), *words[1:]])
    assert done.exit_code != 0
    assert message in re.sub(r"\s+", " ", done.output + str(done.exception))


def test_page_over_a_file_of_another_kind_is_refused_and_an_earlier_page_replaced(root: Path) -> None:
    tried(root, "my_filters:long_enough", "--page", str(root / "pages/page.html"))
    tried(root, "my_filters:long_enough", "--page", str(root / "pages/page.html"))
    for name in ("texts.jsonl", "my_filters.py", "bad.txt"):
        before = (root / name).read_bytes()
        words = ["step", "try", "my_filters:long_enough", str(root / "texts.jsonl"), "--page", str(root / name)]
        done = CliRunner().invoke(app, words)
        assert "--page names a file that this command did not write" in str(done.exception)
        assert (root / name).read_bytes() == before


texts = st.text(st.sampled_from("ab \n<é"), max_size=30)


@given(texts, texts)
def test_compared_pieces_are_the_texts_and_unmarked_ones_are_common(before: str, after: str) -> None:
    left, right = compared(before, after)
    assert ["".join(piece for piece, _ in side) for side in (left, right)] == [before, after]
    assert [piece for piece, marked in left if not marked] == [piece for piece, marked in right if not marked]
