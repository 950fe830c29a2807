"""The card that a dataset is delivered with if its configuration has one: from receipts, checked by both verifies."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.datasets.repair import compare_copies, repair_copies
from corpusmill.inspect.verify import verify_build, verify_version
from corpusmill.upload.stages.manifest import UNIT, WORK
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

STATED = {"license": "odc-by", "languages": ["en"], "sources": [{"name": "crawl", "license": "odc-by"}]}
CARD = {"README.md", "croissant.json"}


def config(root: Path, **changes: object):
    return check_config(
        configuration(root, **{"exports": {"megatron": {}, "numpy": {}}, "card": {}, **changes}), where="x.yaml"
    )


def delivered(root: Path, outputs: str = "outputs") -> Path:
    place = root / outputs / "tiny"
    return place / json.loads((place / "latest.json").read_text())["version"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", documents=60)
    return tmp_path


@pytest.mark.parametrize(("share", "words"), [({}, ""), ({"fuzzy_share": 0.8}, " where they cover 80% or more,")])
def test_card_states_that_text_between_repeats_was_removed_too(root, share: dict[str, float], words: str) -> None:
    build_dataset(config(root, dedup={"mode": "remove", "minimum_bytes": 100, **share}))
    line = next(line for line in (delivered(root) / "README.md").read_text().splitlines() if "exact repeats" in line)
    assert ("what lies between" in line, words in line) == (bool(words), True)


def test_card_counts_what_the_corpus_and_the_delivered_files_hold(root) -> None:
    build_dataset(config(root, dedup={"mode": "none"}))
    texts = [json.loads(line)["text"] for line in decompressed(root / "corpus")]
    card = DatasetCard.load(delivered(root) / "README.md")
    assert card.data.pretty_name == "tiny"
    assert card.data.license is None
    assert card.data.size_categories == ["n<1K"]
    kept = [text for text in texts if text]
    assert f"| documents | {len(kept)} |" in card.text
    assert f"| text | {sum(len(text.encode()) for text in kept):,} bytes of UTF-8 |" in card.text
    sources = [path for path in (root / "corpus").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in sources)
    assert f"{len(sources)} files, {size:,} bytes as they are stored." in card.text
    assert str(root) not in card.content


def test_card_is_made_of_receipts_that_the_manifest_names(root, monkeypatch) -> None:
    """What a stage's flows read is not in the work's hands, so that no type checker sees it."""
    dedup = {"mode": "remove", "minimum_bytes": 100, "drop_empty": True}
    built = open_build(build_dataset(config(root, dedup=dedup, framing={"empty_documents": "eod"})))
    inputs = WORK.opened(built, UNIT)
    flows, read = inputs.flows(), set()
    for name in ("find", "rollup"):
        original = getattr(Build, name)
        monkeypatch.setattr(Build, name, lambda *given, original=original: read.add(given[1]) or original(*given))
    assert inputs.flows() == flows
    assert {"index", "refine", "union", "tokenize"} <= read <= {stage for stage, _ in built.inputs("manifest", UNIT)}


def test_card_after_sources_are_stored_in_other_bytes_and_other_settings_give_the_same_text_is_made_again(root) -> None:
    wanted = {"mode": "remove", "minimum_bytes": 5000}
    build_dataset(config(root, dedup=wanted))
    files = sorted(path for path in (root / "corpus").rglob("*") if path.is_file())
    plain = next(path for path in files if path.suffix == ".jsonl")
    plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    for changes in ({}, {"keep": "every_string"}, {"minimum_bytes": 5001}):
        built = open_build(build_dataset(config(root, dedup={**wanted, **changes})))
        assert verify_build(built).findings == ()
        size = sum(path.stat().st_size for path in (root / "corpus").rglob("*") if path.is_file())
        assert f"{len(files)} files, {size:,} bytes as they are stored." in (delivered(root) / "README.md").read_text()


def decompressed(folder: Path) -> list[bytes]:
    import io

    import zstandard

    opened = {".gz": gzip.decompress, ".jsonl": bytes}
    lines: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix in {".zst", ".zstd"}:
                reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
                data = reader.read()
            else:
                data = opened[path.suffix](data)
            lines += data.splitlines()
    return lines


def test_card_that_states_something_changes_dataset_json_and_no_other_file(root) -> None:
    build_dataset(config(root))
    bare = delivered(root)
    build_dataset(config(root, card=STATED))
    stated = delivered(root)
    assert stated != bare
    names = {path.relative_to(bare).as_posix() for path in bare.rglob("*") if path.is_file()}
    other = {name for name in names if (bare / name).read_bytes() != (stated / name).read_bytes()}
    assert other == {"dataset.json", "SHA256SUMS", *CARD}
    assert json.loads((stated / "dataset.json").read_text())["card"]["license"] == "odc-by"
    assert not any(name in (stated / "SHA256SUMS").read_text() for name in CARD)


def test_card_whose_figures_no_longer_fit_is_found_wherever_it_lies(root) -> None:
    settings = config(root)
    build = open_build(build_dataset(settings))
    version = delivered(root)
    (step,) = (root / "work/tiny/manifest").glob("dataset-*")
    for name, damage in itertools.product(sorted(CARD), ("figure", "cut", "gone")):
        whole = (version / name).read_text()
        assert "8,842" in whole or "8842" in whole
        other = whole.replace("8,842", "8,843").replace("8842", "8843")
        for folder in (version, step):
            (folder / name).unlink()
            if damage != "gone":
                (folder / name).write_text(other if damage == "figure" else whole[: len(whole) // 2])
        of_version, of_build = verify_version(settings, version.name), verify_build(build)
        assert any("card" in finding.what for finding in of_version.findings), (name, damage)
        assert any(name in finding.where for finding in of_build.findings), (name, damage)
        assert all("README.md" in finding.where or "croissant.json" in finding.where for finding in of_version.findings)
        for folder in (version, step):
            (folder / name).write_text(whole)
    assert (verify_version(settings, version.name).findings, verify_build(build).findings) == ((), ())


def test_card_with_a_receipt_that_vouches_for_it_is_compared_with_the_counts(root, monkeypatch) -> None:
    """As if an earlier program had counted otherwise: digests fit, the figures do not."""
    from corpusmill.inspect.verify import exports

    build = open_build(build_dataset(config(root)))
    assert verify_build(build).findings == ()
    right = exports.card_figures
    monkeypatch.setattr(exports, "card_figures", lambda *of: right(*of).model_copy(update={"source_files": 6}))
    findings = verify_build(build).findings
    assert {finding.where.rpartition("/")[2] for finding in findings} == CARD


def test_card_that_is_damaged_at_one_place_is_mended_from_the_other(root) -> None:
    settings = config(root, destinations=[{"path": str(root / "outputs")}, {"path": str(root / "copies")}])
    build_dataset(settings)
    first, second = delivered(root), delivered(root, "copies")
    whole = {name: (first / name).read_bytes() for name in CARD}
    (first / "croissant.json").write_bytes(whole["croissant.json"].replace(b"8842", b"8843"))
    (finding,) = verify_version(settings, first.name).findings
    assert finding.where == f"{first}/croissant.json"
    assert repair_copies(compare_copies(str(first), str(second))) == (1, 0)
    (second / "README.md").write_text("damage")
    (finding,) = verify_version(settings, first.name).findings
    assert finding.where == f"{second}/README.md, byte 6"
    assert repair_copies(compare_copies(str(first), str(second))) == (0, 1)
    assert verify_version(settings, first.name).findings == ()
    assert {name: (place / name).read_bytes() for name in CARD for place in (first, second)} == whole


@pytest.mark.parametrize(
    "card", [{"license": "ODC BY"}, {"languages": []}, {"languages": ["english"]}, {"sources": [{"license": "x"}]}]
)
def test_card_section_that_the_hub_would_not_take_is_refused(root, card) -> None:
    with raises("config.missing_key config.wrong_value"):
        config(root, card=card)
