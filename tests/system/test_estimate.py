"""`corpusmill estimate`: what a sample says, against what the build comes to."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.estimate import estimate_dataset, render_estimate
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.preflight import needed_room
from corpusmill.builds.room import Moments, moments
from corpusmill.builds.sampling import draw_files, total_of, write_sample
from corpusmill.cli import app
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.estimates import SUBJECT, Estimate, last_estimate
from corpusmill.engine.ledger import Receipt
from corpusmill.report.figures import bytes_text
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents


def many_files(root: Path, files: int = 24, seed: int = 0) -> None:
    (root / "corpus").mkdir()
    for number in range(files):
        texts = make_documents(10 + 5 * (number % 4), seed=seed + number)
        (root / "corpus" / f"{number:02d}.jsonl").write_bytes(lines_of(texts))


def values(root: Path, sample_bytes: str, **changes: object) -> dict[str, object]:
    return configuration(
        root,
        **{
            "source": {"paths": [str(root / "corpus")], "shard_bytes": "1MB"},
            "estimate": {"sample_bytes": sample_bytes},
            "exports": {"webdataset": {"context_tokens": 129}},
            **changes,
        },
    )


def test_estimate_of_everything_is_what_the_build_comes_to(tmp_path) -> None:
    many_files(tmp_path, files=12)
    text = {"rows_per_group": 4, "held_out_groups": 6}
    exports = {"webdataset": {"context_tokens": 129}, "numpy": {"tokens_per_shard": 900}, "parquet_text": text}
    config = check_config(values(tmp_path, "1GB", exports=exports), where="test")
    actual = estimate_dataset(config)
    assert not (tmp_path / "outputs").exists()  # before anything of it was built
    built = open_build(build_dataset(config, workers=1))
    tokens = built.total("tokenize", "tokens")
    assert (actual.tokens_low, actual.tokens, actual.tokens_high) == (tokens, tokens, tokens)
    assert actual.scale == 1
    assert actual.text_bytes == built.total("index", "text_bytes_out")
    assert actual.duplicate_share == built.total("union", "removed_bytes") / actual.text_bytes > 0.02
    written = sum(path.stat().st_size for path in (tmp_path / "outputs/tiny/latest/webdataset").glob("*.tar"))
    assert actual.output_bytes["webdataset"] == pytest.approx(written, rel=0.02)  # other shards, other member names
    assert max(moments(actual.held)["keep"])[0] > written
    latest = tmp_path / "outputs" / "tiny" / "latest"
    rows = [pq.read_metadata(path).num_rows for path in sorted((latest / "parquet_text").iterdir())]
    shards = {split: sum(map(len, map(np.load, (latest / "numpy" / split).iterdir()))) for split in ("test", "train")}
    assert actual.documents == sum(rows)
    assert actual.held_out == {
        "numpy": pytest.approx(shards["test"] / sum(shards.values()), abs=0.01),
        "parquet_text": rows[-1] / sum(rows),
    }
    assert f"held out      {rows[-1] / sum(rows):.1%} of parquet_text" in render_estimate(actual)


def test_estimate_reports_what_it_does_and_gives_units(tmp_path) -> None:
    many_files(tmp_path, files=4)
    lines: list[str] = []
    text = render_estimate(estimate_dataset(check_config(values(tmp_path, "1GB"), where="test"), report=lines.append))
    assert [line.split()[0] for line in lines] == ["sampling", "building", "building"]
    figures = dict(line.split("  ", 1) for line in text.splitlines())
    assert re.fullmatch(r" *[0-9.]+ KiB", figures["text"])
    assert re.match(r" *[0-9.]+ s on \d+ cores", figures["time"])
    # The most that this process has taken, which other tests ran in.
    assert re.fullmatch(
        r" *[0-9.]+ [MG]iB a worker(; with more .* up to [0-9.]+ GiB, as configured)?", figures["memory"]
    )
    assert "bytes" not in text


def test_estimate_with_a_wrong_text_field_names_the_keys_that_hold_text(tmp_path) -> None:
    many_files(tmp_path, files=2)
    source = {"paths": [str(tmp_path / "corpus")], "text_field": "body"}
    config = check_config({**values(tmp_path, "1GB"), "source": source}, where="test")
    with raises("survey.no_text", "text in 100%"):
        estimate_dataset(config)


@pytest.mark.slow
def test_estimate_counts_references_by_their_files_and_the_speed_of_the_sample(tmp_path) -> None:
    many_files(tmp_path, files=6)
    (tmp_path / "old").mkdir()
    for number in range(3):
        texts = make_documents(20, seed=90 + number)
        (tmp_path / "old" / f"{number}.jsonl").write_bytes(lines_of(texts))
    dedup = {"mode": "remove", "minimum_bytes": 100, "against": [str(tmp_path / "old")]}
    config = check_config(values(tmp_path, "1GB", dedup=dedup), where="test")
    alone = estimate_dataset(check_config(values(tmp_path, "1GB"), where="test"))
    actual = estimate_dataset(config)
    size = sum(path.stat().st_size for path in (tmp_path / "old").iterdir())
    assert (alone.reference_bytes, actual.reference_bytes) == (None, size)
    assert (actual.tokens, actual.tokens_low, alone.tokens_low) == (alone.tokens, 0, alone.tokens)
    assert "has nothing of the references" in render_estimate(actual)
    assert "(references are not compared)" in render_estimate(actual)
    planned = plan_dataset(config)
    assert open_build(planned).plan.reference_bytes() == size
    built = open_build(build_dataset(config, workers=1))
    stated = {row[0]: row[1] + row[2] for row in actual.held_of_references}
    made = {stage: sum(size_of(receipt) for receipt in built.receipts(stage)) for stage in stated}
    assert 0.5 < stated["reference"] / made["reference"] < 2
    assert 0.5 < sum(stated.values()) / sum(made.values()) < 2
    assert f"references  {bytes_text(size)} to read" in render_estimate(actual)
    assert sum(stated.values()) < most(needed_room(config, built.plan, built.work)[0]["keep"])
    assert most(moments([*actual.held, *actual.held_of_references])["keep"]) > most(moments(actual.held)["keep"])


def size_of(receipt: Receipt) -> int:
    return sum(output.size_bytes for output in receipt.outputs)


def most(seen: Moments) -> float:
    return max(work for work, _ in seen)


@pytest.mark.slow
def test_estimate_from_a_sample_has_the_total_in_its_interval(tmp_path) -> None:
    many_files(tmp_path)
    config = check_config(values(tmp_path, "40kB", dedup={"mode": "none"}), where="test")
    actual = estimate_dataset(config)
    again = estimate_dataset(config)  # seconds and memory differ; what is counted does not
    assert (again.tokens, again.tokens_low, again.output_bytes) == (
        actual.tokens,
        actual.tokens_low,
        actual.output_bytes,
    )
    built = open_build(build_dataset(config, workers=1))
    assert actual.scale > 3
    assert actual.tokens_low < built.total("tokenize", "tokens") < actual.tokens_high < 2 * actual.tokens


@pytest.mark.slow
def test_estimate_of_other_sources_or_settings_is_not_compared(tmp_path) -> None:
    many_files(tmp_path, files=4)
    estimated = values(tmp_path, "10kB")
    estimate_dataset(check_config(estimated, where="test"))

    def compared(**changes: object) -> bool:
        return last_estimate(open_build(plan_dataset(check_config({**estimated, **changes}, where="test")))) is not None

    assert compared()
    assert compared(destinations=[{"path": str(tmp_path / "elsewhere")}])
    assert not compared(shuffle={"seed": 8})
    (tmp_path / "corpus" / "04.jsonl").write_bytes(lines_of(make_documents(10, seed=4)))
    assert not compared()
    (tmp_path / "corpus" / "04.jsonl").unlink()
    assert compared()


@pytest.mark.slow
def test_estimate_where_duplicates_are_removed_is_an_upper_bound(tmp_path) -> None:
    many_files(tmp_path)
    config = check_config(values(tmp_path, "40kB"), where="test")
    actual = estimate_dataset(config)
    assert actual.tokens_low == 0
    assert open_build(build_dataset(config, workers=1)).total("tokenize", "tokens") < actual.tokens_high


@pytest.mark.slow
def test_estimate_of_files_without_duplicates_finds_none(tmp_path) -> None:
    """Eight files of random words in which no stretch of 100 bytes comes twice."""
    random = np.random.Generator(np.random.Philox(5))
    (tmp_path / "corpus").mkdir()
    for number in range(8):
        texts = [" ".join(f"{word:x}" for word in random.integers(1 << 60, size=60)) for _ in range(1000)]
        (tmp_path / f"corpus/{number}.jsonl").write_bytes(lines_of(texts))
    actual = estimate_dataset(check_config(values(tmp_path, "900KB"), where="test"))
    assert actual.duplicate_share == 0
    assert actual.scale > 5
    assert actual.sampled_text_bytes > 600_000


@pytest.mark.slow
def test_estimate_of_a_sample_that_is_cut_into_parts_counts_all_of_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        texts = make_documents(60, seed=number)
        (tmp_path / f"corpus/{number}.jsonl").write_bytes(lines_of(texts))
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": "32KiB"}
    config = check_config(values(tmp_path, "1GB", source=source, dedup={"mode": "none"}), where="test")
    actual = estimate_dataset(config)
    built = open_build(build_dataset(config, workers=1))
    assert len(built.units("index")) > 2
    assert actual.tokens == built.total("tokenize", "tokens")


@pytest.mark.parametrize("before", quick(["index", "writeback"], 1))
def test_estimate_with_steps_counts_the_tokens_of_what_they_left(tmp_path, before: str) -> None:
    many_files(tmp_path, files=6)
    steps = [{"use": "corpusmill.steps.gopher:Quality", "before": before, "with": {"minimum_stop_words": 0}}]
    dedup = {"mode": "remove", "minimum_bytes": 100}
    config = check_config(values(tmp_path, "1GB", steps=steps, dedup=dedup), where="test")
    actual = estimate_dataset(config)
    built = open_build(build_dataset(config, workers=1))
    assert 0 < built.total("tokenize", "documents_out") < built.total("index", "documents_out")
    assert actual.tokens == built.total("tokenize", "tokens")


@pytest.mark.parametrize("sample_bytes", quick(["1GB", "20kB"], 1))
def test_estimate_of_parquet_is_what_the_build_comes_to(tmp_path, sample_bytes: str) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(20):
        texts = make_documents(12, seed=number)
        rows = {"id": [f"{number}-{row}" for row in range(len(texts))], "text": texts}
        pq.write_table(pa.table(rows), tmp_path / f"corpus/{number}.parquet", row_group_size=4)
    config = check_config(values(tmp_path, sample_bytes, dedup={"mode": "none"}), where="test")
    actual = estimate_dataset(config)
    tokens = open_build(build_dataset(config, workers=1)).total("tokenize", "tokens")
    assert actual.tokens_low <= tokens <= actual.tokens_high < 2 * tokens
    assert (actual.tokens == tokens) == (actual.scale == 1) == (sample_bytes == "1GB")


@pytest.fixture
def uneven(tmp_path) -> tuple[Path, Build, dict[bytes, int]]:
    """(root, its build, tokens of every line): 60 files of up to 90 documents of 5 to 400 words."""
    random = np.random.Generator(np.random.Philox(11))
    (tmp_path / "corpus").mkdir()
    tokenizer = load_tokenizer("cl100k_base", engine="gigatoken")
    tokens: dict[bytes, int] = {}
    for number in range(60):
        texts = [
            " ".join(f"{word:x}" for word in random.integers(1 << 30, size=int(words)))
            for words in np.exp(random.uniform(np.log(5), np.log(400), size=int(random.integers(1, 90))))
        ]
        lines = lines_of(texts).splitlines(keepends=True)
        tokens |= {line: len(tokenizer.encode([text.encode()])[0]) for line, text in zip(lines, texts, strict=True)}
        if number % 3:
            (tmp_path / f"corpus/{number:02d}.jsonl").write_bytes(b"".join(lines))
        else:
            (tmp_path / f"corpus/{number:02d}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), mtime=0))
    build = open_build(
        build_dataset(check_config(values(tmp_path, "1GB", dedup={"mode": "none"}), where="t"), workers=1)
    )
    return tmp_path, build, tokens


@pytest.mark.slow
def test_estimate_interval_holds_the_builds_tokens_as_often_as_it_says(uneven) -> None:
    """400 seeds: the mean is the total, at least 92 % of the 95 % intervals hold it, and they are not wide for that."""
    root, build, tokens_of = uneven
    total = build.total("tokenize", "tokens")
    assert total == sum(tokens_of.values())
    for sample_bytes in (60_000, 200_000, 600_000):
        config = check_config(values(root, str(sample_bytes), dedup={"mode": "none"}), where="test")
        files = [file for shard in build.plan.shards for file in shard]
        totals = []
        for seed in range(400):
            drawn, share = draw_files(files, sample_bytes, seed)
            folder = root / f"samples/{sample_bytes}-{seed}"
            write_sample(config, drawn, share, seed, folder)
            lines = [path.read_bytes().splitlines(keepends=True) for path in sorted(folder.iterdir())]
            assert len({line for some in lines for line in some}) == sum(map(len, lines))
            tokens = [np.array([tokens_of[line] for line in some], np.int64) for some in lines]
            totals.append(total_of(tokens, drawn, share))
        estimates = np.array([total.estimate for total in totals])
        spread = estimates.std()
        assert abs(estimates.mean() - total) < 4 * spread / 20  # unbiased
        covered = sum(item.low <= total <= item.high for item in totals)
        assert covered >= 368
        assert np.mean([total.high - total.low for total in totals]) < 6 * spread  # 3.92 for a known, normal spread
    # What a real estimate says is what its own seed draws.
    changes = {"dedup": {"mode": "none"}, "shuffle": {"seed": 3}, "work_folder": str(root / "estimated")}
    actual = estimate_dataset(check_config(values(root, "600000", **changes), where="test"))
    assert (actual.tokens_low, actual.tokens, actual.tokens_high) == pytest.approx(
        (totals[3].low, totals[3].estimate, totals[3].high), abs=1
    )


@pytest.mark.slow
def test_estimate_command_says_what_a_build_needs(tmp_path) -> None:
    many_files(tmp_path, files=6)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(values(tmp_path, "8kB")))
    done = CliRunner().invoke(app, ["estimate", str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for row in ("sampled", "text", "tokens", "duplicates", "time", "memory", "peak disk", "webdataset"):
        assert row in done.output
    saved = json.loads((tmp_path / "work/tiny/estimate.json").read_text())
    written = Estimate(**{name: value for name, value in saved.items() if name != SUBJECT})
    assert f"at most {written.tokens_high:,}; {written.tokens:,} if" in done.output
    assert [path.name for path in (tmp_path / "work/tiny").iterdir()] == ["estimate.json"]  # the scratch folder is gone
