"""`corpusmill estimate`: what a sample says, against what the build comes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.config import check_config
from pipeline.local import build_dataset
from pipeline.stages import open_build, plan_dataset
from pipeline.stages.estimate import SUBJECT, Estimate, _draws, compare_with_actual, estimate_dataset, last_estimate
from pipeline.storage import StoredFile
from tests.system.corpus import configuration, lines_of, make_documents


def many_files(root: Path, files: int = 24, seed: int = 0) -> None:
    (root / "corpus").mkdir()
    for number in range(files):
        texts = make_documents(10 + 5 * (number % 4), seed=seed + number)
        (root / "corpus" / f"{number:02d}.jsonl").write_bytes(lines_of(texts))


def values(root: Path, sample_bytes: str) -> dict[str, object]:
    return configuration(
        root,
        source={"paths": [str(root / "corpus")], "shard_bytes": "1MB"},
        estimate={"sample_bytes": sample_bytes},
        exports={"webdataset": {"context_tokens": 129}},
    )


def test_estimate_of_everything_is_what_the_build_comes_to(tmp_path) -> None:
    many_files(tmp_path)
    config = check_config(values(tmp_path, "1GB"), where="test")
    found = estimate_dataset(config)
    assert not (tmp_path / "outputs").exists()  # before anything of it was built
    built = open_build(build_dataset(config, workers=1))
    tokens = built.total("tokenize", "tokens")
    assert (found.tokens_low, found.tokens, found.tokens_high) == (tokens, tokens, tokens)
    assert found.scale == 1
    assert found.text_bytes == built.total("index", "text_bytes_out")
    assert found.duplicate_share == built.total("union", "removed_bytes") / found.text_bytes > 0.02
    written = sum(path.stat().st_size for path in (tmp_path / "outputs/tiny/latest/webdataset").glob("*.tar"))
    assert found.output_bytes["webdataset"] == pytest.approx(written, rel=0.02)  # other shards, other member names
    assert found.scratch_bytes > written
    assert "within" in compare_with_actual(built)


def test_estimate_from_a_sample_has_the_total_in_its_interval(tmp_path) -> None:
    many_files(tmp_path)
    config = check_config(values(tmp_path, "40kB"), where="test")
    found = estimate_dataset(config)
    again = estimate_dataset(config)  # seconds and memory differ; what is counted does not
    assert (again.tokens, again.tokens_low, again.output_bytes) == (found.tokens, found.tokens_low, found.output_bytes)
    tokens = open_build(build_dataset(config, workers=1)).total("tokenize", "tokens")
    assert found.scale > 3
    assert found.tokens_low < tokens < found.tokens_high
    assert found.tokens_high < 2 * tokens


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


@pytest.mark.parametrize("sample_bytes", [1, 1000, 10**9])
def test_draws_weights_make_each_draw_an_estimate_of_the_whole(sample_bytes: int) -> None:
    files = [StoredFile(f"{size}.jsonl", f"/{size}.jsonl", size, "") for size in (10, 990, 5000, 1, 44_000)]
    total = sum(file.size_bytes for file in files)
    draws = _draws(files, sample_bytes)
    assert sum(file.size_bytes * weight for file, weight in draws) == pytest.approx(total)
    assert (len(draws) == len(files)) == (sample_bytes == 10**9)  # a census takes every file once


def test_estimate_command_says_what_a_build_needs_and_the_build_compares(tmp_path) -> None:
    many_files(tmp_path, files=6)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(values(tmp_path, "8kB")))
    done = CliRunner().invoke(app, ["estimate", str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for row in ("sampled", "text", "tokens", "duplicates", "time", "memory", "scratch", "webdataset"):
        assert row in done.output
    saved = json.loads((tmp_path / "work/tiny/estimate.json").read_text())
    written = Estimate(**{name: value for name, value in saved.items() if name != SUBJECT})
    assert f"{written.tokens:,} ({written.tokens_low:,} to {written.tokens_high:,})" in done.output
    assert [one.name for one in (tmp_path / "work/tiny").iterdir()] == ["estimate.json"]  # the scratch folder is gone
    built = CliRunner().invoke(app, ["build", str(path), "--workers", "1"], catch_exceptions=False)
    assert f"estimated  {written.tokens:,} tokens; got " in built.output
