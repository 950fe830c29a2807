"""Every command in a block of README.md or docs/ runs here, in another test, or is listed with the reason why not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import ChainMap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.config.starter import starter
from tests.docs.test_docs import FENCE, ROOT, TEXTS
from tests.system.corpus import lines_of, make_documents, write_corpus

SHELL = {"", "sh", "bash", "console"}
PROGRAMS = ("corpusmill", "pip", "python", "zstd", "make", "docker", "aws", "gcloud", "helm", "sbatch")

# Pages whose commands run one after another, in a folder with data/ and web.yaml, and what they need there first.
BEFORE: dict[str, list[str]] = {
    "README.md": [],
    "docs/index.md": [],
    "docs/tutorial.md": [],
    "docs/near-duplicates.md": ["corpusmill build data --tokenizer cl100k_base --export megatron --output outputs/old"],
    "docs/tokshuf.md": [],
    "docs/bsade.md": [],
    "docs/datatrove.md": [],
    "docs/megatron.md": [],
    "docs/decontamination.md": [],
    "docs/refresh.md": [],
    "docs/forget.md": ["corpusmill build web.yaml"],
    "docs/recover.md": ["corpusmill build data --tokenizer cl100k_base --export megatron --output old"],
    "docs/jobs.md": [
        "corpusmill build data --tokenizer cl100k_base --export megatron --output outputs/old",
        "corpusmill build data --tokenizer cl100k_base --export megatron --output outputs/books",
        "corpusmill megatron data --tokenizer cl100k_base --output parts/web",
        "corpusmill build web.yaml",
    ],
}
# What stands for a place, an answer or a version of the reader's own.
READERS_OWN: dict[str, Callable[[], str]] = {
    "init data": lambda: "init data --tokenizer cl100k_base --export megatron --export nanoset",
    "hf://datasets/openai/gsm8k@main/main/test-00000-of-00001.parquet": lambda: "gsm8k_test.jsonl",
    "data/items/*.jsonl": lambda: "items/*.jsonl",
    "s3://backup/web": lambda: str(shutil.copytree("outputs/web", "backup/web", symlinks=True)),
    "8abba1a9c8b0": lambda: Path("outputs/web/latest").resolve().name,
    "--shard 17": lambda: "--shard 1",
}
ELSEWHERE = {
    "docs/buckets.md": "tests/docs/test_docs.py::test_commands_of_the_page_on_buckets_run_with_its_configuration",
    "docs/existing-airflow.md": "tests/wheel/test_fresh_airflow.py",
    "docs/managed-airflows.md": "a cloud's account; tests/wheel/test_managed_requirements.py has its requirements",
    "docs/many-machines.md": "tests/containers/test_containers.py",
    "docs/oscar.md": "a terabyte behind a login; tests/system/test_oscar.py builds its configuration",
    "docs/slurm.md": "tests/deploy/test_slurm.py",
    "docs/steps.md": "tests/steps/test_trying.py, tests/system/test_decisions.py",
    "docs/training-steps.md": "a run of Megatron or nanotron; tests/training/test_megatron_cache.py has their caches",
}
NOT_RUN = {
    "pip install corpusmill": "tests/wheel/test_fresh_program.py",
    "corpusmill trace web.yaml --megatron-cache /scratch/cache --step 41230 --batch 1024": "a run of Megatron: "
    "tests/training/test_megatron_cache.py",
}


def commands(text: str) -> Iterator[str]:
    """The lines of blocks that a shell would run, without prompt and comment, joined where they go on."""
    for language, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if language in SHELL else ():
            words = line.removeprefix("$ ").partition(" #")[0].strip()
            if words.split(" ")[0] in PROGRAMS:
                yield words


PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in TEXTS if path.name != "CONTRIBUTING.md"}


def test_every_page_with_commands_is_run_or_says_why_not() -> None:
    shown = {name for name, text in PAGES.items() if any(commands(text))}
    assert shown == BEFORE.keys() | ELSEWHERE.keys()
    assert not BEFORE.keys() & ELSEWHERE.keys()
    indented = re.compile(rf"^(?: {{4}}|\t)(?:\$ )?(?:{'|'.join(PROGRAMS)}) .*", re.MULTILINE)
    assert [line for text in PAGES.values() for line in indented.findall(FENCE.sub("", text))] == []
    for reason in {*ELSEWHERE.values(), *NOT_RUN.values()}:
        for word in reason.replace(",", " ").split():
            assert not word.startswith("tests/") or (ROOT / word.partition("::")[0]).is_file(), word


@pytest.mark.parametrize("page", BEFORE)
def test_commands_of_a_page_run_one_after_another(page: str, tmp_path: Path, monkeypatch: Any) -> None:
    """With web.yaml: the first configuration, then with the page's sections, unless the page writes it."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "data", documents=120)
    (tmp_path / "data/news.jsonl").write_bytes(lines_of(make_documents(20, seed=1)))
    (tmp_path / "gsm8k_test.jsonl").write_text(json.dumps({"question": "Natalia sold clips to 48 of her friends"}))
    (tmp_path / "items").mkdir()
    (tmp_path / "items/a.jsonl").write_text(json.dumps({"prompt": "Who wrote it, and when was it first printed?"}))
    (tmp_path / "takedown.txt").write_text("doc-3\n")
    text = PAGES[page]
    sections = [yaml.safe_load(own(block)) for language, block in FENCE.findall(text) if language == "yaml"]
    config = yaml.safe_load(starter(shard_bytes="8KiB", exports={"megatron": {}, "nanoset": {}}))
    lines = [line for line in commands(text) if line not in NOT_RUN]
    assert lines
    if not any("--output web.yaml" in line for line in lines):
        Path("web.yaml").write_text(yaml.safe_dump(config))
        lines += ["corpusmill build web.yaml"] if sections else []
    run(BEFORE[page])
    if Path("web.yaml").exists():
        Path("web.yaml").write_text(yaml.safe_dump(dict(ChainMap(*reversed(sections), config))))
    run(lines)


def own(text: str) -> str:
    """`text` with what is the reader's own."""
    for shown, value in READERS_OWN.items():
        text = text.replace(shown, value()) if shown in text else text
    return text


def run(lines: list[str]) -> None:
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(own(line))[1:])
        assert result.exit_code == 0, f"{line}: {result.output}{result.exception}"
