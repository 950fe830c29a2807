"""Every single command on random sources against the oracles: what it writes, read back by json, tarfile and numpy."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.direct.in_order.exports import write_megatron, write_nanoset
from corpusmill.direct.in_order.source import Source as InOrder
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.oracles import dedup, export
from tests.oracles.bpe import encode
from tests.oracles.documents import documents_of, lines_of
from tests.oracles.shuffle import shuffled
from tests.oracles.sources import natural
from tests.search.compared import MEMORY
from tests.search.folders import small_limits
from tests.search.plain import expected, read_back
from tests.search.settings import changed, configuration, first_settings
from tests.search.sources import Corpus, Source, filled
from tests.search.vocabularies import ranks_of, special_tokens, write_vocabulary

EOT = special_tokens()["<|endoftext|>"]
names = st.sampled_from(["a.jsonl", "c10.jsonl.gz", "c9.jsonl.zst", "deep/d.jsonl.zstd"])
files = st.dictionaries(names, filled, min_size=1, max_size=3)


class Commands:
    """Commands in a folder of their own, and the documents of its sources in their order."""

    def __init__(self, root: Path, files: dict[str, Source]) -> None:
        self.root = root
        self.corpus = Corpus(root / "corpus")
        for name, source in files.items():
            self.corpus.put(name, source)
        self.vocabulary = root / "tiny.tiktoken"
        write_vocabulary(self.vocabulary, "plain")
        self.texts = {
            name: [text for _, text in documents_of(files[name].text(), "text")[0]]
            for name in sorted(files, key=natural)
        }
        self.ids = {
            name: [encode(text.decode(), ranks_of("plain"), "cl100k_base", {}) for text in texts]
            for name, texts in self.texts.items()
        }

    def run(self, *arguments: object) -> None:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    def below(self, folder: str) -> dict[str, bytes]:
        """Name to content of what a command wrote, but for its own list of that."""
        root = self.root / folder
        files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in files.items() if not path.name.startswith(".")}

    def documents(self) -> list[list[int]]:
        return [ids for held in self.ids.values() for ids in held]


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


wanted = (files, st.integers(0, 2**64 - 1), st.sampled_from([40, 300]), st.booleans())
commands_once = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


@seed(1)
@settings(commands_once, max_examples=3)
@given(*wanted)
def test_commands_on_random_sources_write_what_the_oracles_say(
    files: dict[str, Source], number: int, size: int, annotate: bool
) -> None:
    require_oracles(files, number, size, annotate)


@pytest.mark.slow
@settings(commands_once, max_examples=60)
@given(*wanted)
def test_commands_on_many_random_sources_write_what_the_oracles_say(
    files: dict[str, Source], number: int, size: int, annotate: bool
) -> None:
    require_oracles(files, number, size, annotate)


def require_oracles(files: dict[str, Source], number: int, size: int, annotate: bool) -> None:
    root = Path(tempfile.mkdtemp(prefix="commands-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        commands = Commands(root, files)
        assume(any(text for texts in commands.texts.values() for text in texts))  # else nothing can be made of them
        require_dedup(commands, annotate)
        require_index(commands)
        require_shuffled_text(commands, number)
        require_tokens(commands, number, size)
        require_in_order(commands)
        require_reshuffled_exports(commands, number, size)
    finally:
        shutil.rmtree(root)


def require_dedup(commands: Commands, annotate: bool) -> None:
    root, mode = commands.root, "annotate" if annotate else "remove"
    options = ("--minimum-bytes", 12, "--mode", mode, "--shard-bytes", 700, "--workers", 1)
    commands.run("dedup", root / "corpus", "--output", root / "clean", *options, "--work-folder", root / "work")
    wanted = changed(first_settings("clean"), [("dedup.mode", mode), ("source.shard_bytes", 700)])
    config = configuration(wanted, root, commands.vocabulary)
    printed = expected(config, commands.corpus.files, commands.corpus.folder, [], Counter())
    assert printed is not None
    actual = read_back({f"documents/{name}": content for name, content in commands.below("clean").items()})
    assert actual == {name: content for name, content in printed.items() if name.startswith("documents/")}


def require_index(commands: Commands) -> None:
    root = commands.root
    commands.run(
        "infini-gram", root / "corpus", "--output", root / "ngrams", "--work-folder", root / "work", "--workers", 1
    )
    text, offsets = dedup.text_of(text for held in commands.texts.values() for text in held)
    actual = commands.below("ngrams")
    assert actual["0/tokenized"] == text
    assert np.frombuffer(actual["0/offset"], "<u8").tolist() == offsets
    width = len(actual["0/table"]) // len(text)
    table = [int.from_bytes(actual["0/table"][at : at + width], "little") for at in range(0, width * len(text), width)]
    assert table == dedup.suffix_array(text)


def require_shuffled_text(commands: Commands, number: int) -> None:
    root = commands.root
    in_order = sorted(commands.corpus.files)  # by path, as text
    lines = [line for name in in_order for line in lines_of(commands.corpus.files[name].text())]
    for memory in (300, "1GiB"):
        options = ("--seed", number, "--memory", memory, "--work-folder", root / "scratch", "--force")
        commands.run("shuffle-text", root / "corpus", "--output", root / "lines.jsonl.gz", *options)
        assert lines_of(gzip.decompress((root / "lines.jsonl.gz").read_bytes())) == shuffled(lines, number)


def require_tokens(commands: Commands, number: int, size: int) -> None:
    """Token shards, and the same shuffled."""
    root = commands.root
    special = [part for token, item in special_tokens().items() for part in ("--special-token", f"{token}={item}")]
    known = ("--pattern", "cl100k_base", "--eot-token", "<|endoftext|>", *special)
    commands.run("tokenize", root / "corpus", "--tokenizer", commands.vocabulary, "--output", root / "tokens", *known)
    actual = commands.below("tokens")
    assert {name.rpartition("/")[0] for name in actual} == set(commands.ids)
    for name, held in commands.ids.items():
        assert _documents(actual, name) == held
    for memory in (300, "1GiB"):
        options = ("--seed", number, "--memory", memory, "--work-folder", root / "scratch", "--tokens-per-shard", size)
        output = root / f"again-{memory}"
        commands.run("shuffle", root / "tokens", "--output", output, *options)
        again = commands.below(output.name)
        shards = sorted({name.split("/")[0] for name in again})
        parts = [_documents(again, shard) for shard in shards]
        assert [ids for part in parts for ids in part] == shuffled(
            [ids for name in sorted(commands.ids) for ids in commands.ids[name]], number
        )
        # A document stands in the shard in which its first token falls.
        begins = np.cumsum([0, *(len(ids) for part in parts for ids in part)])[:-1] // size
        of_shard = [place for place, part in enumerate(parts) for _ in part]
        assert [begin == other for begin, other in pairwise(begins)] == [
            item == two for item, two in pairwise(of_shard)
        ]


def _documents(files: dict[str, bytes], shard: str) -> list[list[int]]:
    tokens = np.frombuffer(files[f"{shard}/tokens"], "<u2").tolist()
    ends = np.frombuffer(files[f"{shard}/ends"], "<u8").tolist()
    return [tokens[first:last] for first, last in pairwise([0, *ends])]


def require_in_order(commands: Commands) -> None:
    """Megatron and Nanoset in the order of the source, and what merging two halves gives."""
    root = commands.root
    tokenizer = load_tokenizer(
        "tiny",
        file=str(commands.vocabulary),
        engine="gigatoken",
        pattern="cl100k_base",
        special_tokens=tuple(special_tokens().items()),
        eot="<|endoftext|>",
    )
    for name, inputs in {"whole": [""], "one": sorted(commands.ids)[:1], "rest": sorted(commands.ids)[1:]}.items():
        if not inputs:
            continue
        (root / name).mkdir()
        read = InOrder([str(root / "corpus" / item) for item in inputs], ("text",), root / name / "rejected.jsonl")
        write_megatron(read, root / name / "m", tokenizer, empty_documents="skip")
        write_nanoset(read, root / name, tokenizer, empty_documents="skip")
    whole = commands.below("whole")
    sequences, boundaries = [], [0]
    for ids in commands.documents():
        sequences += [[*ids, EOT]] if ids else []
        boundaries += [len(sequences)] if ids else []
    assert (whole["m_text_document.bin"], whole["m_text_document.idx"]) == export.indexed(sequences, boundaries, 2)
    assert (whole["00000_unshuffled.ds"], whole["00000_unshuffled.ds.index"]) == export.nanoset(
        commands.documents(), EOT, 2
    )
    # The first file by name alone, and the others in their order: whole where names and order agree.
    halves = [root / name for name in ("one", "rest") if (root / name).is_dir()]
    if sorted(commands.ids) == list(commands.ids) and len(halves) == 2:
        commands.run("merge", *(half / "m_text_document" for half in halves), "--output", root / "merged_text_document")
        commands.run("merge", *(half / "00000_unshuffled.ds" for half in halves), "--output", root / "merged.ds")
        for ending in (".bin", ".idx"):
            assert (root / f"merged_text_document{ending}").read_bytes() == whole[f"m_text_document{ending}"]
        for ending in (".ds", ".ds.index", ".ds.metadata"):
            assert (root / f"merged{ending}").read_bytes() == whole[f"00000_unshuffled{ending}"]


def require_reshuffled_exports(commands: Commands, number: int, size: int) -> None:
    """.npy shards by documents, and tars of contexts."""
    root = commands.root
    (root / "npy").mkdir()
    (root / "tars").mkdir()
    documents = [ids for ids in commands.documents() if ids]
    for place, shard in enumerate(export.jaxformer_shards(documents, EOT, size)):
        np.save(root / "npy" / f"train_{place:04d}.npy", np.array(shard, "<u2"))
    options = ("--seed", number, "--work-folder", root / "scratch")
    commands.run("shuffle", root / "npy", "--output", root / "npy-again", "--eot-id", EOT, *options)
    stream = [
        token
        for name in sorted(commands.below("npy-again"), key=natural)
        for token in np.load(root / "npy-again" / name).tolist()
    ]
    assert stream == [token for ids in shuffled(documents, number) for token in (EOT, *ids)]

    bodies = [gzip.compress(export.compact_json(ids), mtime=0) for ids in documents]
    held = [bodies[first : first + 7] for first in range(0, len(bodies), 7)]
    for place, some in enumerate(held):
        members = [(f"m{at}.json.gz", body) for at, body in enumerate(some)]
        (root / "tars" / f"{place:05d}.tar").write_bytes(export.tar_of(members))
    size = 5
    commands.run("shuffle", root / "tars", "--output", root / "tars-again", "--contexts-per-shard", size, *options)
    actual: list[Any] = []
    for name, content in sorted(commands.below("tars-again").items()):
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                actual.append([file.read() for item in tar if (file := tar.extractfile(item))])
    expected_bodies = shuffled(bodies, number)
    assert actual == [expected_bodies[first : first + size] for first in range(0, len(bodies), size)]
    manifest = commands.below("tars-again")["manifest.jsonl"].decode().splitlines()
    assert [json.loads(line)["num_sequences"] for line in manifest] == [len(some) for some in actual]
