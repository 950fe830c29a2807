"""What docs/ and README.md show exists: commands, options, configurations, pages, pictures."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.chain import STEPS
from corpusmill.cli import app
from corpusmill.config import EXAMPLE, FORMATS, DatasetConfig, check_config, load_config, parse_config, work_of
from corpusmill.config.starter import starter
from corpusmill.export import formats
from tests.commands.reference import each_command, names_of
from tests.docs import sizing, trainers
from tests.docs.example_help import comments_by_key
from tests.docs.reference import PAGES, configuration_page, sections_below
from tests.system.corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
COMMANDS = {tuple(name.split()): command for name, _, command in each_command()}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_OURS = {"docs/many-machines.md"}  # values for Airflow's Helm chart


def shown_commands(text: str) -> Iterator[str]:
    """Each `corpusmill ...` of a page: lines of code, joined where they go on, and code within sentences."""
    blocks = [*(block for _, block in FENCE.findall(text)), *re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"\s*(?:\$ )?(corpusmill [a-z].*)", line.partition(" #")[0]):
                yield match[1]
    yield from re.findall(r"`(corpusmill [a-z][^`]*)`", FENCE.sub("", text).replace("\n", " "))


SHOWN = [(path.name, line) for path in TEXTS for line in shown_commands(path.read_text())]


def problem_of(line: str) -> str:
    """Why a line could not be typed; "" if its command and its options exist."""
    words = shlex.split(line.replace("...", "").replace("'", " "))[1:]
    name = next((tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in COMMANDS), None)
    if name is None:
        return "" if words in (["COMMAND", "--help"], ["--help"], ["config"]) else f"no command {' '.join(words[:2])}"
    known = {option for parameter in COMMANDS[name].params for option in (*names_of(parameter), *parameter.opts)}
    own = words[len(name) : words.index("--") if "--" in words else None]
    unknown = [
        word
        for word in (word.partition("=")[0] for word in own)
        if word.startswith("-") and word not in {*known, "-", "--help"}
    ]
    return f"no option {', '.join(unknown)}" if unknown else ""


def test_docs_show_many_commands() -> None:
    assert len(SHOWN) > 80
    assert len({line.split()[1] for _, line in SHOWN}) > 20


@pytest.mark.parametrize(
    "line", ["corpusmill bild web.yaml", "corpusmill build web.yaml --wrkers 2", "corpusmill config lok x"]
)
def test_command_that_does_not_exist_is_a_problem(line: str) -> None:
    assert problem_of(line)


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_command_in_the_docs_exists_with_its_options(page: str, line: str) -> None:
    assert problem_of(line) == "", page


YAMLS = [
    (path.relative_to(ROOT).as_posix(), number, block)
    for path in TEXTS
    if path.relative_to(ROOT).as_posix() not in NOT_OURS
    for number, (language, block) in enumerate(FENCE.findall(path.read_text()))
    if language == "yaml"
]


@pytest.mark.parametrize(("page", "number", "text"), YAMLS)
def test_yaml_in_the_docs_is_a_configuration_or_sections_of_one(page: str, number: int, text: str) -> None:
    values = yaml.safe_load(text)
    assert check_config(yaml.safe_load(starter()) | values, where=f"{page}, block {number}")
    if "name" in values:
        assert parse_config(text, where=page)


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("README.md", starter()),
        ("docs/tutorial.md", starter(shard_bytes="8MiB", exports={"megatron": {}, "nanoset": {}})),
    ],
)
def test_first_configuration_on_a_page_is_what_init_writes(page: str, written: str) -> None:
    shown = next(text for name, _, text in YAMLS if name == page)
    assert without_comments(shown) == without_comments(written)


def without_comments(text: str) -> list[str]:
    lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_commands_of_the_page_on_buckets_run_with_its_configuration(
    moto: str, moto_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first block of commands, with its first configuration, but for the source on a hub."""
    text = (DOCS / "buckets.md").read_text()
    for theirs, ours in {"https://store.example:9000": moto, "s3://my-bucket": "s3://corpus"}.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "data", documents=20)
    for path in (tmp_path / "data").glob("*.zst"):
        moto_client.upload_file(str(path), "corpus", f"crawl/2026/{path.name}")
    blocks = FENCE.findall(text)
    sections = yaml.safe_load(next(block for language, block in blocks if language == "yaml"))
    sections["source"]["paths"] = sections["source"]["paths"][:1]
    Path("web.yaml").write_text(yaml.safe_dump(yaml.safe_load(starter()) | sections))
    commands = [
        line for line in next(block for language, block in blocks if not language).splitlines() if line[0] != "#"
    ]
    assert len(commands) == 6
    for line in ["corpusmill build web.yaml --workers 1", *commands]:
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, f"{line}: {result.output}{result.exception}"


def test_table_of_sizes_is_what_the_program_works_out() -> None:
    assert sizing.table() in (DOCS / "sizing.md").read_text(), "python -m tests.docs.sizing prints it"


@pytest.mark.parametrize("row", trainers.ROWS, ids=lambda row: row.trainers)
def test_exports_for_a_trainer_are_a_configuration_that_its_reader_takes(row: trainers.Row, caplog: Any) -> None:
    """Of the stated vocabulary, without a refusal or a warning."""
    config = check_config(yaml.safe_load(starter()) | {"exports": yaml.safe_load(row.exports)}, where=row.trainers)
    for name in config.exports.formats():
        formats.FORMATS[name].refuse(config.exports, row.ids)
    assert not caplog.text


def test_exports_for_trainers_name_every_format() -> None:
    assert {name for row in trainers.ROWS for name in yaml.safe_load(row.exports)} == set(FORMATS)


def test_docs_show_configurations() -> None:
    assert {"docs/tutorial.md", "docs/buckets.md", "docs/decontamination.md"} <= {page for page, _, _ in YAMLS}


@pytest.mark.parametrize("name", PAGES)
def test_page_made_from_the_code_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "python -m tests.docs.reference writes it anew"


def test_configuration_page_has_every_key_of_the_form_with_a_meaning() -> None:
    page = configuration_page()
    assert page.count("\n| `") > 90
    assert set(DatasetConfig.model_fields) <= set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert {"## steps", "## decisions", "## dedup.against", "## card.sources"} <= set(page.splitlines())


def test_example_marks_every_key_with_a_default_as_optional() -> None:
    """But for formats, of which one is required, and keys that another key's value makes optional."""
    comments = comments_by_key(EXAMPLE.read_text(encoding="utf-8"))
    unmarked = set()
    for keys, section in sections_below(DatasetConfig, ()):
        for key, field in section.model_fields.items():
            at = (*keys, field.alias or key)
            marked = comments.get(at, "").startswith(("optional", "required unless"))
            if not marked and not field.is_required():
                unmarked.add(".".join(at))
            assert not marked or not field.is_required(), at
    assert unmarked == {f"exports.{name}" for name in FORMATS}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_rows_of_a_table_have_as_many_cells_as_its_head(path: Path) -> None:
    """A bar in a cell begins another cell, in code too, unless it is escaped."""
    for table in re.findall(r"(?:^\|.*\n)+", FENCE.sub("", path.read_text()), re.MULTILINE):
        rows = table.splitlines()
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {rows[0].count("|")}, rows[0]


def test_site_has_every_page_in_its_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = [page for entry in nav for page in ([entry] if isinstance(entry, str) else next(iter(entry.values())))]
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_and_pictures_of_a_page_lead_to_files_and_headings(path: Path) -> None:
    for target in re.findall(r"(?:\]\(|\b(?:href|src|srcset)=\")([^)\"\s]+)[)\"]", FENCE.sub("", path.read_text())):
        if not target.startswith(("http://", "https://")):
            name, _, anchor = target.partition("#")
            there = path.parent / name if name else path
            assert there.exists(), target
            assert not anchor or anchor in {
                slug(line) for line in re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            }


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = spec_from_file_location("site_build", DOCS / "site" / "build.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<link rel=stylesheet href=//fonts.example/css>",
        "<img alt=\"\" src='http://a.example/a.png'>",
        "body{background:url(https://a.example/b.png)}",
        '@import "https://a.example/c.css";',
        '<pre class="mermaid">graph</pre>',
        '<a class="md-source" href="x">stars</a>',
    ],
)
def test_page_that_asks_another_server_is_seen(site: ModuleType, text: str) -> None:
    assert list(site.foreign_requests(text))


@pytest.mark.parametrize(
    "text", ['<a href="https://a.example">a</a>', '<img src="flow.svg">', "url(data:image/png;base64,x)"]
)
def test_page_that_asks_nobody_is_not_refused(site: ModuleType, text: str) -> None:
    assert not list(site.foreign_requests(text))


def test_plans_copy_of_a_configuration_is_one_that_commands_take(tmp_path: Path) -> None:
    """docs/recover.md: a dataset whose configuration is gone."""
    from corpusmill.builds.plan import plan_dataset
    from tests.system.corpus import configuration, write_corpus

    write_corpus(tmp_path / "corpus", documents=5)
    config = check_config(configuration(tmp_path), where="a test")
    receipt = plan_dataset(config)
    copy = load_config(receipt.with_name("config.json"))
    assert (copy.name, copy.source, copy.destinations) == (config.name, config.source, config.destinations)
    assert work_of(copy) == work_of(config)


def guarantees() -> tuple[list[str], dict[str, list[str]]]:
    """(what docs/guarantees.md guarantees, in order; {guarantee: its tests})."""
    chain, differs, unseen, held = re.findall(
        r"^## (?:The chain|When something differs|What no digest|Which test)(.*?)(?=^## )",
        (DOCS / "guarantees.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    first = re.compile(r"^\| ([^|`]+) \|", re.MULTILINE)
    named = (
        first.findall(chain)[1:] + re.findall(r"^\* \*\*([^*]+)\*\*", differs, re.MULTILINE) + first.findall(unseen)[1:]
    )
    rows = re.findall(r"^\| ([^|]+) \| (`.+`) \|$", held, re.MULTILINE)
    return named, {name: re.findall(r"`([^`]+)`", tests) for name, tests in rows}


def test_every_guarantee_names_tests_that_are_there() -> None:
    named, held = guarantees()
    assert len(named) > 25
    assert list(held) == named
    for name, tests in held.items():
        for test in tests:
            path, _, function = test.partition("::")
            defined = {
                node.name
                for node in ast.parse((ROOT / "tests" / path).read_text()).body
                if isinstance(node, ast.FunctionDef)
            }
            assert function in defined, (name, test)


def test_how_it_works_has_a_chapter_for_each_step_in_order() -> None:
    chapters = re.findall(r"^## (.*)", (DOCS / "how-it-works.md").read_text(), re.MULTILINE)
    assert chapters == ["plan", *STEPS]
