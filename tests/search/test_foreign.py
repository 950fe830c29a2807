"""Random sources among which one is not what it seems: foreign bytes under a usual name, a hard link, a named pipe.

The build and every command refuse it, name it and write nothing; without it they go on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.documents.kinds import JSON_LINES
from corpusmill.errors import SourceError
from tests.documents.test_kinds import FOREIGN
from tests.search.compared import MEMORY
from tests.search.folders import built, small_limits
from tests.search.settings import Change, changed, changes, configuration, first_settings
from tests.search.sources import NAMES, Corpus, Source, filled
from tests.search.vocabularies import special_tokens, write_vocabulary

OWN = {".jsonl": JSON_LINES, ".gz": "gzip", ".zst": "Zstandard", ".zstd": "Zstandard", ".parquet": "parquet"}
TWO_WAYS = "reached in two ways"
NEW_NAMES = ["b.jsonl", "deep/f.jsonl.gz", "0.jsonl.zst", "zz/g.jsonl.zstd", "y.parquet"]
SPECIAL = [part for token, number in special_tokens().items() for part in ("--special-token", f"{token}={number}")]
COMMANDS = {
    "dedup": ["--minimum-bytes", "12"],
    "infini-gram": [],
    "tokenize": ["--tokenizer", "VOCABULARY", "--pattern", "cl100k_base", *SPECIAL],
    "shuffle-text": [],
}


@dataclass(frozen=True)
class Foreign:
    """A file that is put among the sources under a name."""

    name: str
    put: Callable[[Path, Path], object]
    what: str


def _foreign(name: str, kind: str, data: bytes) -> Foreign:
    return Foreign(name, lambda path, _: path.write_bytes(data), kind)


foreign_bytes = st.tuples(st.sampled_from(NEW_NAMES), st.sampled_from(FOREIGN)).map(
    lambda drawn: _foreign(drawn[0], *drawn[1])
)
hard_links = st.sampled_from(NEW_NAMES[:1]).map(
    lambda name: Foreign(name, lambda path, other: path.hardlink_to(other), TWO_WAYS)
)
pipes = st.sampled_from(NEW_NAMES).map(lambda name: Foreign(name, lambda path, _: os.mkfifo(path), "a FIFO"))
strangers = st.one_of(foreign_bytes, hard_links, pipes)
files = st.dictionaries(
    st.sampled_from([name for name in NAMES if ".part0" not in name]), filled, min_size=1, max_size=3
)
printed = st.lists(changes.filter(lambda change: change[0] != "source.paths"), max_size=6)


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


def require_refused(files: dict[str, Source], stranger: Foreign, wanted: list[Change]) -> None:
    own = OWN[Path(stranger.name).suffix]
    assume(stranger.what != own)
    # Under a name of another kind, a link has two reasons to be refused.
    assume(stranger.what != TWO_WAYS or sorted(files)[0].endswith(Path(stranger.name).suffix))
    folder = Path(tempfile.mkdtemp(prefix="foreign-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        corpus = Corpus(folder / "corpus")
        for name, source in files.items():
            corpus.put(name, source)
        vocabulary = folder / "tiny.tiktoken"
        write_vocabulary(vocabulary, "plain")
        (folder / "root").mkdir()
        config = configuration(changed(first_settings("one"), wanted), folder, vocabulary)
        before = built(folder / "root", config)

        path = corpus.folder / stranger.name
        path.parent.mkdir(exist_ok=True)
        stranger.put(path, corpus.folder / sorted(files)[0])
        refused = built(folder / "root", config)
        with_another = {before.error, "PermanentError"} if before.error else set()  # one error with both reasons
        assert refused.error in {"SourceError", *with_another}
        for command, options in COMMANDS.items():
            if path.suffix == ".parquet" and command in {"tokenize", "shuffle-text"}:
                continue  # they read lines alone, and name it among the files that they skip
            arguments = [str(vocabulary) if option == "VOCABULARY" else option for option in options]
            work = [] if command == "tokenize" else ["--work-folder", str(folder / "work")]
            output = folder / f"out-{command}"
            done = CliRunner().invoke(app, [command, str(corpus.folder), "--output", str(output), *arguments, *work])
            assert isinstance(done.exception, SourceError), (command, done.output)
            assert Path(stranger.name).name in str(done.exception)
            assert stranger.what in str(done.exception)
            written = [name for name in output.rglob("*") if name.is_file()] if output.is_dir() else []
            # tokenize writes a shard for every file, and those before this one are whole.
            assert not written or command == "tokenize"
            assert not (output / stranger.name / "token_shard.json").exists()
            assert not output.is_file()

        path.unlink()
        assert not built(folder / "root", config).differences(before)
    finally:
        shutil.rmtree(folder)


once = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


@seed(2)
@settings(once, max_examples=4)
@given(files, strangers, printed)
def test_stranger_among_random_sources_is_refused_by_all_and_forgotten_when_it_is_gone(
    files: dict[str, Source], stranger: Foreign, wanted: list[Change]
) -> None:
    require_refused(files, stranger, wanted)


@pytest.mark.slow
@settings(once, max_examples=80)
@given(files, strangers, printed)
def test_many_strangers_among_random_sources_are_refused_by_all(
    files: dict[str, Source], stranger: Foreign, wanted: list[Change]
) -> None:
    require_refused(files, stranger, wanted)
