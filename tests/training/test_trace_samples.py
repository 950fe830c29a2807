"""Samples of a training run, traced through a whole build: their tokens, documents and lines, read plainly."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import corpusmill
from corpusmill.commands import app
from corpusmill.config import check_config
from corpusmill.errors import PermanentError
from corpusmill.inspect.lineage.facts import Piece, Special
from corpusmill.training import SampleTrace
from tests.oracles import damaged_indexes
from tests.oracles import export as oracle
from tests.oracles.cl100k import cl100k
from tests.oracles.lineage import source_lines
from tests.oracles.megatron_cache import write_blend, write_draws
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

EOT = 100257
SEQUENCE = 48


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    write_corpus(folder / "corpus", documents=60)
    exports = {name: configuration(folder)["exports"][name] for name in ("megatron", "nanoset")}
    config = configuration(folder, exports=exports | {"nanoset": {"file_bytes": "24KiB"}})
    (folder / "tiny.yaml").write_text(json.dumps(config))
    corpusmill.build(folder / "tiny.yaml")
    return folder


@pytest.fixture(scope="module")
def config(root: Path) -> Path:
    return root / "tiny.yaml"


@pytest.fixture(scope="module")
def texts(root: Path) -> dict[tuple[str, int], bytes]:
    paths = [path for path in sorted((root / "corpus").rglob("*")) if path.is_file()]
    return {
        (path.relative_to(root / "corpus").as_posix(), number): json.loads(line)["text"].encode()
        for path in paths
        for number, line in enumerate(source_lines(path), 1)
    }


def prefixes(root: Path) -> list[Path]:
    return [path.with_suffix("") for path in sorted((root / "outputs/tiny/latest/megatron").glob("*.idx"))]


def documents_of(prefix: Path) -> list[list[int]]:
    count = int(np.fromfile(f"{prefix}.idx", "<u8", 1, offset=18)[0])
    ends = np.cumsum(np.fromfile(f"{prefix}.idx", "<i4", count, offset=34)).tolist()
    tokens = np.fromfile(f"{prefix}.bin", "<i4").tolist()
    return [tokens[first:last] for first, last in pairwise([0, *ends])]


def require_tokens(sample: SampleTrace, expected: list[int], texts: dict[tuple[str, int], bytes]) -> int:
    """Every part of a sample stands for the tokens at its place, by the bytes of the source. Returns its documents."""
    encoding = cl100k()
    at, documents = 0, set()
    for record in sample.records:
        origin, end = record.record_tokens
        assert record.parts[0].record_tokens[0] == origin < end == record.parts[-1].record_tokens[1]
        for part in record.parts:
            first, last = (place - origin + at for place in part.record_tokens)
            if isinstance(part, Special):
                assert expected[first:last] == [EOT]
                continue
            place = part.document.source, part.document.line
            cut_out = b"".join(texts[place][slice(*span)] for span in part.text_bytes)
            assert cut_out == encoding.decode_bytes(expected[first:last])
            documents.add(place)
        at += end - origin
    assert at == len(expected)
    return len(documents)


def test_trace_samples_of_one_prefix_names_the_documents_of_every_sample(root, config, texts, tmp_path) -> None:
    prefix = prefixes(root)[1]
    rows = documents_of(prefix)
    drawn = write_draws(tmp_path, str(prefix), [len(row) for row in rows], samples=40, sequence=SEQUENCE, train=0.8)[1]
    actual = list(corpusmill.trace_samples(config, 0, len(drawn), megatron_cache=tmp_path))
    assert [item.number for item in actual] == [*range(len(drawn))]
    documents = [
        require_tokens(sample, [rows[item][token] for item, token in expected], texts)
        for sample, expected in zip(actual, drawn, strict=True)
    ]
    assert {1, 2} <= set(documents)
    assert {item.file for item in actual} == {str(prefix)}
    item = list(corpusmill.trace_samples(config, 7, megatron_cache=str(tmp_path)))
    assert item == actual[7:8]


def test_trace_samples_where_documents_have_no_sequence_names_the_right_ones(root, texts, tmp_path) -> None:
    """A sequence is then not the document of its number."""
    changes = {"framing": {"empty_documents": "boundary"}, "exports": {"megatron": {}}, "name": "bare"}
    bare = configuration(root, **changes, work_folder=str(root / "bare"))
    corpusmill.build(bare)
    prefix = root / "outputs/bare/latest/megatron/bare_00000_text_document"
    rows = documents_of(prefix)
    assert len(rows) + 1 < int(np.fromfile(f"{prefix}.idx", "<u8", 1, offset=26)[0])
    drawn = write_draws(tmp_path, str(prefix), [len(row) for row in rows], samples=40, sequence=SEQUENCE)[1]
    for sample in corpusmill.trace_samples(bare, 0, 40, megatron_cache=tmp_path):
        require_tokens(sample, [rows[item][token] for item, token in drawn[sample.number]], texts)


def test_trace_samples_of_a_blend_follows_it_and_names_other_datasets(root, config, texts, tmp_path) -> None:
    ours = prefixes(root)[:2]
    rows = [documents_of(our) for our in ours]
    parts = [
        write_draws(tmp_path, str(prefix), [*map(len, row)], samples=9, sequence=SEQUENCE)
        for prefix, row in zip(ours, rows, strict=True)
    ]
    strange = write_draws(tmp_path, "/else/books_00000_text_document", [5] * 99, samples=9, sequence=SEQUENCE)
    order = [(1, 0), (2, 0), (0, 0), (0, 1), (2, 1), (1, 1)]
    write_blend(tmp_path, [*(part[0] for part in parts), strange[0]], order)
    actual = list(corpusmill.trace_samples(config, 0, len(order), megatron_cache=tmp_path))
    for sample, (which, number) in zip(actual, order, strict=True):
        if which == 2:
            assert (sample.file, sample.records) == ("/else/books_00000_text_document", ())
        else:
            require_tokens(sample, [rows[which][item][token] for item, token in parts[which][1][number]], texts)


@pytest.mark.parametrize(("sequence", "seed"), [(1, None), (31, None), (31, 0), (700, 77)])
def test_trace_samples_of_a_nanoset_names_the_documents_of_every_window(root, config, texts, sequence, seed) -> None:
    paths = sorted((root / "outputs/tiny/latest/nanoset").glob("*.ds"))
    if seed is not None:
        paths = [paths[item] for item in np.random.default_rng(42).permutation(len(paths))]
    windows = []
    for path in paths:
        tokens = np.fromfile(path, "<u4").tolist()
        windows += [tokens[at : at + sequence + 1] for at in range(0, len(tokens) - sequence, sequence + 1)]
    order = np.arange(len(windows))
    if seed is not None:
        np.random.RandomState(seed).shuffle(order)
    assert len(paths) > 2 < len(windows)
    numbers = {0, 1, len(windows) // 2, len(windows) - 1}
    for number in numbers if seed is None else numbers | {len(windows), 7 * len(windows) + 1}:
        (sample,) = corpusmill.trace_samples(config, number, sequence_tokens=sequence, seed=seed)
        require_tokens(sample, windows[order[number % len(windows)]], texts)
    if seed is None:
        with raises("training.too_few_samples"):
            list(corpusmill.trace_samples(config, len(windows), sequence_tokens=sequence))


def test_trace_samples_of_a_window_longer_than_every_file_is_refused(config) -> None:
    with raises("nanoset.no_sample_of_length"):
        list(corpusmill.trace_samples(config, 0, sequence_tokens=10**7, seed=1))


@pytest.fixture
def cached(root: Path, tmp_path: Path) -> Path:
    """The cache of a run on one part: seed 1, 48 tokens, split 1,0."""
    prefix = prefixes(root)[0]
    write_draws(tmp_path, str(prefix), [*map(len, documents_of(prefix))], samples=20, sequence=SEQUENCE)
    return tmp_path


@pytest.mark.parametrize("other", [{"seed": 2}, {"sequence_tokens": 49}, {"split": "9,1"}])
def test_cache_of_another_run_is_refused_and_said_to_hold_what_it_holds(config, cached, other) -> None:
    same = {"seed": 1, "sequence_tokens": SEQUENCE, "split": "1,0,0"}
    assert len(list(corpusmill.trace_samples(config, 0, megatron_cache=cached, **same))) == 1
    with raises("index_cache.no_run", "seed 1, 48 tokens a sample, split 1,0"):
        corpusmill.trace_samples(config, 0, megatron_cache=cached, **(same | other))


def test_cache_of_two_runs_is_refused_until_they_are_told_apart(root, config, cached) -> None:
    prefix = prefixes(root)[0]
    write_draws(cached, str(prefix), [*map(len, documents_of(prefix))], samples=20, sequence=SEQUENCE, seed=2)
    with raises("index_cache.several_runs") as caught:
        corpusmill.trace_samples(config, 0, megatron_cache=cached)
    assert all(f"seed {seed}, 48 tokens" in str(caught.value) for seed in (1, 2))
    assert len(list(corpusmill.trace_samples(config, 0, megatron_cache=cached, seed=2))) == 1


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("/far/books_00000_text_document", "does not have the name of a part of this dataset"),
        ("/far/tiny/0123456789ab/megatron/tiny_00000_text_document", "is of version 0123456789ab"),
    ],
)
def test_cache_of_another_dataset_is_refused(config, tmp_path, prefix: str, words: str) -> None:
    write_draws(tmp_path, prefix, [9] * 50, samples=5, sequence=SEQUENCE)
    with raises("index_cache.no_run", words):
        corpusmill.trace_samples(config, 0, megatron_cache=tmp_path)


def test_cache_of_another_version_that_lies_here_is_refused_by_its_digests(root, config, tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "other" / "corpus", documents=30, seed=5)
    other = json.loads(config.read_text()) | {"work_folder": str(tmp_path / "work")}
    other |= {"source": {"paths": [str(tmp_path / "other/corpus")]}, "destinations": [{"path": str(tmp_path / "out")}]}
    corpusmill.build(check_config(other, where="test"))
    (tmp_path / "out/tiny/latest").resolve().rename(tmp_path / "moved")
    prefix = tmp_path / "moved/megatron" / prefixes(root)[0].name
    write_draws(tmp_path / "cache", str(prefix), [*map(len, documents_of(prefix))], samples=5, sequence=SEQUENCE)
    with raises("index_cache.no_run", "differs from this dataset's part of that name"):
        corpusmill.trace_samples(config, 0, megatron_cache=tmp_path / "cache")


def test_cache_of_a_path_that_is_not_here_is_read_if_it_fits_and_refused_if_not(root, config, texts, tmp_path) -> None:
    prefix = prefixes(root)[0]
    rows = documents_of(prefix)
    lengths = [len(row) for row in rows]
    far = f"/cluster/tiny/latest/megatron/{prefix.name}"
    drawn = write_draws(tmp_path / "fits", far, lengths, samples=20, sequence=SEQUENCE)[1]
    for sample in corpusmill.trace_samples(config, 0, 20, megatron_cache=tmp_path / "fits"):
        require_tokens(sample, [rows[item][token] for item, token in drawn[sample.number]], texts)
    write_draws(tmp_path / "stale", far, lengths[::-1], samples=20, sequence=SEQUENCE)
    with raises("index_cache.files_differ"):
        list(corpusmill.trace_samples(config, 0, 20, megatron_cache=tmp_path / "stale"))


def test_blend_that_draws_twice_from_a_prefix_checks_both_draws(root, config, texts, tmp_path) -> None:
    prefix = prefixes(root)[0]
    rows = documents_of(prefix)
    lengths = [len(row) for row in rows]
    whole = write_draws(tmp_path, str(prefix), lengths, samples=9, sequence=SEQUENCE)
    more = write_draws(tmp_path, str(prefix), lengths, samples=4 * sum(lengths) // SEQUENCE, sequence=SEQUENCE)
    stale = write_draws(tmp_path, str(prefix), lengths[:-1], samples=8, sequence=SEQUENCE)
    write_blend(tmp_path, [whole[0], more[0], stale[0]], [(0, 3), (1, 3), (2, 3)])
    for number, expected in ((0, whole[1][3]), (1, more[1][3])):
        (sample,) = corpusmill.trace_samples(config, number, megatron_cache=tmp_path)
        require_tokens(sample, [rows[item][token] for item, token in expected], texts)
    with raises("index_cache.files_differ"):
        list(corpusmill.trace_samples(config, 0, 3, megatron_cache=tmp_path))


def run(config: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["trace", str(config), *options])
    return done.exit_code, done.output


def test_trace_command_shows_a_step_sample_by_sample(config, cached, texts) -> None:
    code, shown = run(config, "--megatron-cache", str(cached), "--step", "3", "--batch", "5")
    assert code == 0
    assert shown.startswith(f"seed 1, {SEQUENCE} tokens a sample, split 1,0, ")
    heads = [line for line in shown.splitlines() if line.startswith("sample ")]
    assert [line.split()[1] for line in heads] == ["10", "11", "12", "13", "14"]
    assert all(f" {SEQUENCE + 1} tokens, " in line for line in heads)
    assert shown.count("in the sample") == 5
    first = next(iter(corpusmill.trace_samples(config, 10, megatron_cache=cached)))
    pieces = [part for record in first.records for part in record.parts if isinstance(part, Piece)]
    assert all(f"{piece.document.source}:{piece.document.line}" in shown for piece in pieces)
    code, again = run(config, "--megatron-cache", str(cached), "--first-sample", "10", "--batch", "5")
    assert (code, again) == (0, shown)


def test_trace_command_shows_a_sample_of_a_nanoset(config) -> None:
    code, shown = run(
        config, "--format", "nanoset", "--run-sequence-tokens", "31", "--run-seed", "5", "--first-sample", "3"
    )
    assert code == 0
    assert shown.startswith("a Nanoset with seed 5, 31 tokens a sample, ")
    assert "sample 3 of nanoset/00000_000" in shown


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--format", "megatron"],
        ["--format", "megatron", "--file", "0", "--batch", "3"],
        ["--format", "megatron", "--file", "0", "--run-seed", "3"],
        ["--megatron-cache", "x"],
        ["--megatron-cache", "x", "--step", "1"],
        ["--megatron-cache", "x", "--step", "1", "--batch", "2", "--first-sample", "0"],
        ["--megatron-cache", "x", "--step", "0", "--batch", "2"],
        ["--megatron-cache", "x", "--first-sample", "0", "--file", "0"],
        ["--megatron-cache", "x", "--first-sample", "0", "--format", "nanoset"],
        ["--format", "megatron", "--first-sample", "0"],
        ["--first-sample", "0", "--run-sequence-tokens", "8"],
        ["--format", "nanoset", "--first-sample", "0", "--run-sequence-tokens", "8", "--run-seed", str(2**32)],
    ],
)
def test_trace_command_with_options_that_do_not_go_together_is_refused(config, options) -> None:
    code, shown = run(config, *options)
    assert code == 2
    assert "Usage" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "nanoset", "--first-sample", "0"], "no sequence_tokens"),
        (
            ["--format", "nanoset", "--first-sample", "0", "--run-sequence-tokens", "8", "--run-split", "9,1,0"],
            "split 9,1,0",
        ),
        (["--megatron-cache", "x", "--first-sample", "0"], "holds no index cache"),
    ],
)
def test_trace_command_of_a_run_that_cannot_be_known_says_what_is_missing(config, options, words) -> None:
    done = CliRunner().invoke(app, ["trace", str(config), *options])
    assert words in str(done.exception)


@pytest.mark.parametrize("reclaim", ["keep", "eager"])
def test_trace_samples_of_a_damaged_index_are_refused_with_its_name(root, tmp_path, reclaim: str) -> None:
    """Eight kinds of damage, in the work folder or, once that was freed, at the destination."""
    changes = {"name": reclaim, "reclaim": reclaim, "work_folder": str(tmp_path / "work")}
    exports = {"megatron": {}, "nanoset": {}}
    config = configuration(root, **changes, exports=exports, destinations=[{"path": str(tmp_path / "outputs")}])
    corpusmill.build(config)
    folder = tmp_path / ("work" if reclaim == "keep" else "outputs")
    (part,), (file,) = (sorted(folder.rglob(ending)) for ending in ("*_text_document.idx", "*.ds.index"))
    prefix = str(next((tmp_path / "outputs").rglob("*_text_document.idx"))).removesuffix(".idx")
    write_draws(tmp_path / "cache", prefix, [*map(len, documents_of(Path(prefix)))], samples=9, sequence=SEQUENCE)
    asks = {
        part: (damaged_indexes.MEGATRON, {"megatron_cache": tmp_path / "cache"}),
        file: (damaged_indexes.NANOSET, {"sequence_tokens": SEQUENCE, "seed": 1}),
    }
    for path, (damages, asked) in asks.items():
        assert len(list(corpusmill.trace_samples(config, 0, **asked))) == 1
        whole = path.read_bytes()
        other = oracle.megatron([[1], [2, 3]], EOT, 4)[1] if path == part else np.array([5, 9], "<u8").tobytes()
        for damage in damages.values():
            path.unlink()
            path.write_bytes(damage(whole, other))
            # A file of another size is no output of a finished step: the error names the step.
            with pytest.raises(PermanentError, match=f"{re.escape(path.name)}|export documents-00000"):
                list(corpusmill.trace_samples(config, 0, **asked))
        path.write_bytes(whole)
