"""Budgets of sources at build: every format holds what a plain reading of the plan says, and all accounts balance."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.builds.estimate import estimate_dataset, render_estimate
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.export import megatron, nanoset
from corpusmill.inspect.lineage import locate_id
from corpusmill.inspect.lineage.verify import verify_records
from corpusmill.inspect.verify import verify_build
from corpusmill.report.terminal import print_summary
from corpusmill.shuffle.budget import draw_documents
from corpusmill.tokens.token_shard import open_token_shard
from corpusmill.training.mixture import mix, open_source
from corpusmill.upload.stages.summarize import summarize
from tests.oracles.budget import Drawn, times_shown
from tests.raising import raises
from tests.system.corpus import configuration, make_documents
from tests.system.test_forget import step_times
from tests.system.test_steps import outputs

Document = tuple[int, ...]
SOURCES = ("books", "web", "notes")
PLENTY = {"books": "2.5 epochs", "web": "5000 tokens"}


def write_sources(root: Path) -> None:
    for number, name in enumerate(SOURCES):
        (root / "data" / name).mkdir(parents=True)
        for part in range(2):
            texts = make_documents(24, seed=10 * number + part)
            rows = [{"id": f"{name}{part}-{place}", "text": text} for place, text in enumerate(texts)]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (root / "data" / name / f"{part}-{name}.jsonl").write_text(lines)  # shards hold files of several sources


def settings(root: Path, budget: dict[str, str] | None = None, **changes: Any) -> Any:
    paths = [str(root / "data" / name) for name in SOURCES]
    values: dict[str, Any] = {"source": {"paths": paths, "shard_bytes": "40kB"}, **changes}
    if budget:
        values["budget"] = {str(root / "data" / name): amount for name, amount in budget.items()}
    return check_config(configuration(root, **values), where="test")


def build(config: Any) -> Any:
    return open_build(build_dataset(config, workers=1))


def expected_showings(of: Any, budget: dict[str, str], seed: int = 7) -> Counter[Document]:
    """Documents by how often they are shown, from the token shards alone; those without tokens are `()`."""
    by_source: dict[str, list[Drawn]] = defaultdict(list)
    for number, shard in enumerate(of.units("tokenize")):
        tokens = open_token_shard(of.folder("tokenize", shard))
        draws = draw_documents(seed, number, tokens.documents).tolist()
        first = 0
        for file, end in zip(of.plan.shards[number], tokens.source_ends.tolist(), strict=True):
            for ordinal in range(first, end):
                document = tuple(tokens.document(ordinal).tolist())
                drawn = Drawn(draws[ordinal], len(document), (number, ordinal, document))
                by_source[file.location.split("/")[-2]].append(drawn)
            first = end
    shown: Counter[Document] = Counter()
    for source, documents in by_source.items():
        for (_, _, document), times in times_shown(documents, budget.get(source, "1 epoch")).items():
            shown[document] += times
    return +shown


def whole_documents(root: Path, name: str) -> Iterator[Document]:
    """The documents of a finished dataset's export, without the special tokens around them."""
    folder = root / "outputs" / "tiny" / "latest" / name
    if name == "numpy":
        files = [*sorted(folder.glob("test/*.npy")), *sorted(folder.glob("train/*.npy"))]
        stream = np.concatenate([np.load(path) for path in files])
        yield from (tuple(part[1:].tolist()) for part in np.split(stream, np.flatnonzero(stream == 100_257))[1:])
        return
    opened = (
        [megatron.open_part(path.with_suffix("")) for path in sorted(folder.glob("*.bin"))]
        if name == "megatron"
        else [nanoset.open_file(path) for path in sorted(folder.glob("*.ds"))]
    )
    for file in opened:
        count = file.documents if name == "megatron" else len(file)
        for number in range(count):
            yield tuple(file.document(number).tolist()[:-1])


def test_every_format_and_the_report_show_each_document_as_often_as_the_budget_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sources(tmp_path)
    of = build(settings(tmp_path, PLENTY))
    expected = expected_showings(of, PLENTY)
    expected.pop((), None)
    for name in ("megatron", "nanoset", "numpy"):
        assert Counter(whole_documents(tmp_path, name)) == expected
    assert verify_build(of).findings == ()
    verified = verify_records(of, 10**9, seed=1)  # every record, contexts too, made again from the sources
    assert verified.records["webdataset"] == of.total("scatter", "records") - sum(expected.values())
    summary = summarize(of)
    assert all(check.ok for check in summary.checks)
    assert summary.packing.real_tokens == sum(len(document) * times for document, times in expected.items())

    books, web, notes = summary.budget.sources
    assert (books.whole, web.whole, notes.shown_tokens) == (2, 0, notes.tokens)
    assert [source.budget for source in summary.budget.sources] == [PLENTY["books"], PLENTY["web"], ""]
    longest = max(map(len, expected))
    assert 0 <= books.shown_tokens - 2.5 * books.tokens < longest
    assert 0 <= web.shown_tokens - 5000 < longest
    times = Counter({times for source in summary.budget.sources for times, _ in source.by_times})
    assert set(times) == {0, 1, 2, 3}

    print_summary(summary, tmp_path / "report.html")
    assert "2.5 epochs" in capsys.readouterr().out
    page = next((tmp_path / "work").rglob("report.html")).read_text()
    assert "How often each source is used" in page
    assert all(f"{documents:,} shown {times} times" in page for times, documents in books.by_times)
    flows = {stage.stage: stage for stage in summary.stages}["budget"]
    assert flows.tokens.out == sum(source.shown_tokens for source in summary.budget.sources)

    actual = [locate_id(of, f"books0-{number}")[0] for number in range(24)]
    for item in actual:
        whole = [record for record in item.records if record.export == "megatron"]
        assert len(whole) in ({2, 3} if item.tokens else {0})


def test_budget_of_one_epoch_of_everything_is_no_budget(tmp_path: Path) -> None:
    write_sources(tmp_path / "one")
    both_kinds = {"exports": {"webdataset": {}, "megatron": {}}, "dedup": {"mode": "none"}}
    of = build(settings(tmp_path / "one", dict.fromkeys(SOURCES, "1 epoch"), **both_kinds))
    write_sources(tmp_path / "other")
    build(settings(tmp_path / "other", **both_kinds))
    assert outputs(tmp_path / "one") == outputs(tmp_path / "other")
    assert not any("shares" in receipt.settings for receipt in of.receipts("scatter"))


def test_another_budget_redoes_the_shards_of_its_source_alone(tmp_path: Path) -> None:
    write_sources(tmp_path)
    one_by_one = {"paths": [str(tmp_path / "data" / name) for name in SOURCES], "shard_bytes": 1}
    others = {"source": one_by_one, "shuffle": {"seed": 7, "cells": 3}, "exports": {"megatron": {}}}
    first = build(settings(tmp_path, {"books": "2 epochs"}, **others))
    before = step_times(first, "tokenize", "audit", "scatter")
    of = build(settings(tmp_path, {"books": "2 epochs", "web": "4k tokens"}, **others))
    after = step_times(of, "tokenize", "audit", "scatter")
    redone = {unit.partition("-")[2] for (_, unit), time in after.items() if before[_, unit] != time}
    web = {shard for shard, files in enumerate(of.plan.shards) if "web" in files[0].location}
    assert redone == {f"{shard:05d}" for shard in web}


@pytest.mark.parametrize(
    "changes",
    [
        {"packing": {"overlap_tokens": 1, "eot": "around"}, "dedup": {"mode": "none"}},
        pytest.param(
            {"packing": {"stream": "file", "fit": "best_fit"}, "selection": {"minimum_tokens": 40}},
            marks=pytest.mark.slow,
        ),
        {
            "framing": {"empty_documents": "boundary"},
            "exports": {"megatron": {"part_bytes": "40KiB"}, "sample_documents": 5},
            "reclaim": "eager",
        },
    ],
    ids=["overlap", "best fit of files", "boundaries, samples"],
)
def test_accounts_and_records_hold_under_every_packing_and_framing(changes: dict[str, Any], tmp_path: Path) -> None:
    write_sources(tmp_path)
    of = build(settings(tmp_path, PLENTY, **changes))
    expected = expected_showings(of, PLENTY)
    if "framing" not in changes:  # documents without tokens are skipped
        expected.pop((), None)
    records = [receipt for receipt in of.receipts("scatter") if receipt.settings["kind"] == "documents"]
    assert sum(record.counts["records"] for record in records) == sum(expected.values())
    assert all(check.ok for check in summarize(of).checks)
    assert verify_build(of).findings == ()
    verify_records(of, 300, seed=1)


def test_budget_in_tokens_of_mixs_plan_has_its_epochs(tmp_path: Path) -> None:
    """What mix plans for finished datasets, a source each, is what a budget of as many tokens makes of the sources."""
    write_sources(tmp_path)
    bare = {"framing": {"eod": False}, "dedup": {"mode": "none"}}
    folders = []
    for name in SOURCES:
        alone = settings(
            tmp_path / name, source={"paths": [str(tmp_path / "data" / name)]}, exports={"megatron": {}}, **bare
        )
        build(alone)
        folders.append(tmp_path / name / "outputs" / "tiny" / "latest")
    mixture = mix(
        [open_source(folder) for folder in folders],
        weights=[0.5, 0.2, 0.3],
        sequence_tokens=64,
        budget_tokens=60_000,
        seed=1,
        split=(100, 0, 0),
    )
    plan = mixture.exposures["megatron"]
    tokens = {name: f"{exposure.tokens} tokens" for name, exposure in zip(SOURCES, plan, strict=True)}
    of = build(settings(tmp_path, tokens, exports={"megatron": {}}, **bare))
    longest = max(map(len, expected_showings(of, tokens)))
    for source, exposure in zip(summarize(of).budget.sources, plan, strict=True):
        assert source.tokens == exposure.there
        assert source.whole == int(exposure.epochs)
        assert 0 <= source.shown_tokens - exposure.tokens < longest


@pytest.mark.parametrize(
    ("budget", "shuffle", "code"),
    [
        ({"book": "1 epoch"}, {"seed": 1}, "config.budget_of_unknown_source"),
        ({"books": "0 epochs"}, {"seed": 1}, "config.budget_of_epochs"),
        ({"books": "0 tokens"}, {"seed": 1}, "config.token_count"),
        ({"books": "10001 epochs"}, {"seed": 1}, "config.budget_of_epochs"),
        ({"books": "much"}, {"seed": 1}, "config.budget"),
        ({"books": "2 epochs"}, {"order": "source"}, "config.budget_in_order"),
    ],
)
def test_budget_that_cannot_be_met_is_refused_at_once(budget, shuffle, code: str, tmp_path: Path) -> None:
    with raises(code):
        settings(tmp_path, budget, shuffle=shuffle)


def test_budget_larger_than_all_epochs_of_its_source_ends_the_build(tmp_path: Path) -> None:
    write_sources(tmp_path)
    for path in (tmp_path / "data" / "web").iterdir():
        path.write_text('{"id": "short", "text": "water"}\n')
    with raises("budget.source_too_small"):
        build(settings(tmp_path, {"web": "20001 tokens"}, dedup={"mode": "none"}, exports={"megatron": {}}))


def test_small_source_is_shown_hundreds_of_times_and_a_shard_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path)
    budget = {"books": "0.1 epochs", "web": "0.1 epochs", "notes": "300.5 epochs"}
    config = settings(tmp_path, budget, exports={"megatron": {}, "webdataset": {}})
    of = build(config)
    expected = expected_showings(of, budget)
    expected.pop((), None)
    assert Counter(whole_documents(tmp_path, "megatron")) == expected
    assert max(expected.values()) >= 301
    assert all(check.ok for check in summarize(of).checks)
    verify_records(of, 200, seed=1)
    monkeypatch.setattr("corpusmill.shuffle.budget.MOST_REPEATS", 300)
    with raises("budget.too_many_repeats"):
        build(settings(tmp_path, {"notes": "300 epochs"}, exports={"megatron": {}}))


def test_source_without_a_token_has_no_budget_of_tokens(tmp_path: Path) -> None:
    write_sources(tmp_path)
    for path in (tmp_path / "data" / "web").iterdir():
        path.write_text('{"id": "empty", "text": ""}\n')
    with raises("budget.source_without_tokens"):
        build(settings(tmp_path, {"web": "10 tokens"}, exports={"megatron": {}}))
    summary = summarize(build(settings(tmp_path, {"web": "2 epochs"}, exports={"megatron": {}})))
    assert summary.budget.sources[1].epochs == 0


def test_estimate_of_a_budget_is_of_what_is_shown(tmp_path: Path) -> None:
    write_sources(tmp_path)
    plain = {"dedup": {"mode": "none"}, "exports": {"megatron": {}}}
    config = settings(tmp_path, dict.fromkeys(SOURCES, "3 epochs"), **plain)
    once, thrice = (estimate_dataset(item) for item in (settings(tmp_path, **plain), config))
    assert (once.tokens, once.shown_tokens) == (thrice.tokens, None)
    assert thrice.shown_tokens == 3 * once.tokens
    assert thrice.output_bytes["megatron"] == pytest.approx(3 * once.output_bytes["megatron"], rel=0.01)
    assert f"{thrice.shown_tokens:,} tokens shown" in render_estimate(thrice)


def test_room_that_a_build_needs_grows_with_its_budget(tmp_path: Path) -> None:
    from corpusmill.builds.preflight import needed_room
    from corpusmill.engine.plan import read_plan

    write_sources(tmp_path)
    rooms = []
    for budget in ({}, dict.fromkeys(SOURCES, "3 epochs")):
        config = settings(tmp_path, budget, dedup={"mode": "none"})
        needed, _ = needed_room(config, read_plan(plan_dataset(config)), tmp_path / "none")
        rooms.append(max(delivered for _, delivered in needed["keep"]))
    assert rooms[1] == pytest.approx(3 * rooms[0], rel=0.01)
