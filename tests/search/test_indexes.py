"""Damaged indexes of every format: a reader refuses them, or gives what a plain reader of the format finds there."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.errors import PermanentError
from corpusmill.inspect.datasets.dataset import open_dataset
from tests.oracles import damaged_indexes, export
from tests.search.compared import MEMORY
from tests.system.described import sha256_of
from tests.training.mixture.datasets import VOCABULARY

EOD = 50_256
STEPS = [-(2**63), -(2**31), -3, -2, -1, 1, 2, 3, 2**31, 2**63 - 1]

Documents = list[list[int]]
Damage = Callable[[bytes, bytes], bytes]

documents = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=3, max_size=6)
parts = st.lists(documents, min_size=2, max_size=3)


def step(at: int, change: int) -> Damage:
    """Add to one of the numbers of 8 bytes, counted from the end."""

    def damaged(index: bytes, _other: bytes) -> bytes:
        place = len(index) - 8 * (1 + at % (len(index) // 8))
        number = (struct.unpack_from("<Q", index, place)[0] + change) % 2**64
        return index[:place] + struct.pack("<Q", number) + index[place + 8 :]

    return damaged


def put(at: int, byte: int) -> Damage:
    return lambda index, _other: b"%b%c%b" % (index[: at % len(index)], byte, index[at % len(index) + 1 :])


def cut(at: int, size: int) -> Damage:
    return lambda index, _other: index[: at % len(index)] + index[at % len(index) + size :]


def twice(at: int, size: int) -> Damage:
    return lambda index, _other: index[: at % len(index) + size] + index[at % len(index) :]


places = st.integers(0, 500)
odd = st.one_of(
    st.builds(step, places, st.sampled_from(STEPS)),
    st.builds(put, places, st.integers(0, 255)),
    st.builds(cut, places, st.sampled_from([1, 4, 8, 16])),
    st.builds(twice, places, st.sampled_from([1, 4, 8, 16])),
)
kept: Damage = lambda index, _other: index  # noqa: E731
named = {
    "megatron": damaged_indexes.MEGATRON,
    "nanoset": damaged_indexes.NANOSET,
    "tokens": damaged_indexes.NANOSET,
}
cases = {
    name: st.tuples(st.just(name), parts, st.one_of(st.sampled_from([kept, *kinds.values()]), odd), documents)
    for name, kinds in named.items()
}


class Exported:
    """Parts of one format in a folder, written by the oracles; the first one's index is then damaged."""

    def __init__(self, root: Path, name: str, parts: list[Documents], damage: Damage, other: Documents) -> None:
        self.root, self.name = root, name
        self.folder = root / "web" / name
        self.folder.mkdir(parents=True)
        self.written = [self._write(f"p{number}", part) for number, part in enumerate(parts)]
        self.whole = self._described()
        self.path = self.written[0][1]
        index = self.path.read_bytes()
        self.path.write_bytes(damage(index, self._pair(other)[1]))
        self.changed = self.path.read_bytes() != index
        held = [self._read(*paths) for paths in self.written]
        self.held = None if None in held else [part for part in held if part is not None]

    def _pair(self, part: Documents) -> tuple[bytes, bytes]:
        if self.name == "megatron":
            return export.megatron(part, EOD, 2)
        return export.nanoset(part, EOD, 2)

    def _write(self, stem: str, part: Documents) -> tuple[Path, Path]:
        """(the file of tokens, its index)."""
        data, index = self._pair(part)
        paths = {
            "megatron": (self.folder / f"{stem}.bin", self.folder / f"{stem}.idx"),
            "nanoset": (self.folder / f"{stem}.ds", self.folder / f"{stem}.ds.index"),
            "tokens": (self.folder / stem / "tokens", self.folder / stem / "ends"),
        }[self.name]
        paths[0].parent.mkdir(exist_ok=True)
        paths[0].write_bytes(data)
        paths[1].write_bytes(index)
        if self.name == "nanoset":
            (self.folder / f"{stem}.ds.metadata").write_bytes(export.nanoset_metadata("gpt2", 2, len(data) // 2))
        if self.name == "tokens":
            about = {"dtype": "uint16", "tokenizer": "gpt2", "sha256": "0" * 64, "vocabulary_size": 50_257}
            about |= {"eot_id": EOD, "bos_id": None, "pad_id": EOD, "revision": ""}
            (self.folder / stem / "token_shard.json").write_text(json.dumps(about))
            (self.folder / stem / "source_ends").write_bytes(struct.pack("<Q", len(part)))
        return paths

    def _read(self, data: Path, index: Path) -> Documents | None:
        if self.name == "megatron":
            return damaged_indexes.read_megatron(data.read_bytes(), index.read_bytes())
        return damaged_indexes.read_ends(data.read_bytes(), index.read_bytes(), 2, empty=self.name == "tokens")

    def _described(self) -> str:
        """The content of a dataset.json that states the files as they are now."""
        files = [
            {
                "name": f"{self.name}/{path.name}",
                "size_bytes": path.stat().st_size,
                "sha256": sha256_of(path),
                **({"slots": path.stat().st_size // 2} if path.suffix in {".bin", ".ds"} else {}),
            }
            for path in sorted(self.folder.iterdir())
            if path.is_file()
        ]
        return json.dumps({"name": "web", "vocabulary": VOCABULARY, "formats": {self.name: {}}, "files": files})

    def run(self, *arguments: object) -> bool:
        """Whether a command did its work; else it was refused by an error of ours, and left no output."""
        output = self.root / "output"
        shutil.rmtree(output, ignore_errors=True)
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if done.exit_code:
            assert isinstance(done.exception, PermanentError), (arguments[0], done.exception)
            assert not output.exists(), arguments[0]
        return done.exit_code == 0


def require_refused_or_right(name: str, parts: list[Documents], damage: Damage, other: Documents, root: Path) -> None:
    exported = Exported(root, name, parts, damage, other)
    if name == "tokens":
        require_shuffled_or_refused(exported)
        return
    require_merged_or_refused(exported)
    for described, whole in ((exported._described(), False), (exported.whole, True)):
        (root / "web/dataset.json").write_text(described)
        right = exported.held is not None and not (whole and exported.changed)
        require_shown_or_refused(exported, right)


def require_merged_or_refused(exported: Exported) -> None:
    output = exported.root / "output"
    named = [data for data, _ in exported.written]
    done = exported.run("merge", *named, "--output", output / ("m.ds" if exported.name == "nanoset" else "m"))
    assert done == (exported.held is not None)
    if exported.held is not None:
        endings = (".ds", ".ds.index") if exported.name == "nanoset" else (".bin", ".idx")
        merged = exported._read(*(output / f"m{ending}" for ending in endings))
        assert merged == [ids for part in exported.held for ids in part]


def require_shown_or_refused(exported: Exported, right: bool) -> None:
    folder, data = exported.root / "web", exported.written[0][0]
    options = ("--sequence-tokens", 1, "--budget-tokens", 100, "--output", exported.root / "output")
    assert exported.run("mix", f"{folder}=1", *options) == right
    assert exported.run("peek", data, "--record", 0) == right
    if right:
        held = [ids.tolist() for ids in open_dataset(folder).records(exported.name)]
        assert held == [ids for part in exported.held for ids in part]
    else:
        with pytest.raises(PermanentError):
            list(open_dataset(folder).records(exported.name))


def require_shuffled_or_refused(exported: Exported) -> None:
    output, scratch = exported.root / "output", exported.root / "scratch"
    done = exported.run("shuffle", exported.folder, "--output", output, "--seed", 1, "--work-folder", scratch)
    assert done == (exported.held is not None)
    if exported.held is not None:
        shards = [exported._read(shard / "tokens", shard / "ends") or [] for shard in sorted(output.iterdir())]
        before = sorted(ids for part in exported.held for ids in part)
        assert sorted(ids for shard in shards for ids in shard) == before


@pytest.mark.parametrize("name", cases)
def test_damaged_indexes_are_refused_or_read_rightly(name: str) -> None:
    search(name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases)
def test_many_damaged_indexes_are_refused_or_read_rightly(name: str) -> None:
    search(name, 500)


def search(name: str, examples: int) -> None:
    """So many damages of one format, always the same ones."""

    @seed(1)
    @settings(
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        max_examples=examples,
    )
    @given(cases[name])
    def run(case: tuple[str, list[Documents], Damage, Documents]) -> None:
        root = Path(tempfile.mkdtemp(prefix="indexes-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            require_refused_or_right(*case, root)
        finally:
            shutil.rmtree(root)

    run()
