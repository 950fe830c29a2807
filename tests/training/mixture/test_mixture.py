"""Mixtures of datasets made by hand: what each trainer sees, what is refused, and the files that come out."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.config.epochs import token_count
from corpusmill.export import megatron
from corpusmill.training.mixture import Source, mix, open_source
from corpusmill.training.mixture.folders import nanotron_yaml, splits, training_files
from corpusmill.training.mixture.mixture import nanoset_windows
from corpusmill.training.mixture.order import nanoset_epoch
from corpusmill.training.mixture.picture import mixture_html
from corpusmill.training.mixture.sources import by_size, normalised, parse_split
from tests.oracles.mixture import greedy_order
from tests.raising import raises
from tests.system.described import sha256_of
from tests.training.mixture.datasets import VOCABULARY, dataset


def windows(source: Source) -> int:
    return sum(file.windows(4) for file in source.nanoset)


def test_open_source_counts_documents_tokens_and_windows_of_files(sources) -> None:
    assert [(file.documents, file.tokens) for file in sources[0].nanoset] == [(4, 22), (6, 27)]
    assert [(file.documents, file.tokens) for file in sources[0].megatron] == [(4, 22), (6, 27)]
    assert [windows(source) for source in sources] == [9, 2, 5, 5]


@pytest.mark.parametrize("samples", [3, 11, 84])
def test_mix_nanoset_seen_is_what_the_epochs_samples_show_at_this_budget(sources, samples: int) -> None:
    weights = [0.1, 0.5, 0.3, 0.1]
    mixture = mix(sources, weights=weights, sequence_tokens=4, budget_tokens=4 * samples, seed=1234)
    drawn, places = nanoset_epoch(nanoset_windows(sources, 4), mixture.weights, 1234)
    epoch = list(zip(drawn.tolist(), places.tolist(), strict=True))
    shown, ever = set((epoch * 84)[:samples]), set(epoch)
    for number, exposure in enumerate(mixture.exposures["nanoset"]):
        assert exposure.seen == sum(source == number for source, _ in shown)
        assert exposure.reachable == sum(source == number for source, _ in ever) == exposure.samples - exposure.never


def test_mix_megatron_counts_strides_over_each_file(sources) -> None:
    mixture = mix(sources, weights=[1, 1, 1, 1], sequence_tokens=4, budget_tokens=80, seed=0, split=(1, 0, 0))
    for way in ("megatron", "megatron_splits"):
        assert [exposure.samples for exposure in mixture.exposures[way]] == [
            21 // 4 + 26 // 4,
            9 // 4,
            24 // 4,
            24 // 4,
        ]
        assert [exposure.drawn for exposure in mixture.exposures[way]] == pytest.approx([5, 5, 5, 5], abs=1)
        assert sum(exposure.drawn for exposure in mixture.exposures[way]) == 20
        assert not any(exposure.never for exposure in mixture.exposures[way])


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [1 / 2, 1 / 2]), (1.0, [0.8, 0.2]), (0.5, [2 / 3, 1 / 3])])
def test_by_size_alpha_between_equal_and_proportional(alpha: float, expected: list[float]) -> None:
    assert by_size([400, 100], alpha).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("weights", [[1e308, 1e308], [1e300, 1e-300]])
def test_normalised_weights_that_cannot_be_compared_are_refused(weights: list[float]) -> None:
    with raises("mixture.weights_not_comparable"):
        normalised(weights)


@pytest.mark.parametrize("weights", [[1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_normalised_weight_that_is_not_positive_is_refused(weights: list[float]) -> None:
    with raises("mixture.weight_not_positive") as caught:
        normalised(weights, ["outputs/web", "outputs/books"])
    assert re.search("where +outputs/(web|books)", str(caught.value))


def test_mix_different_vocabularies_are_refused_with_both_values(tmp_path, sources) -> None:
    other = dataset(tmp_path / "other", [[9]], vocabulary={**VOCABULARY, "size": 50300})
    with raises("mixture.vocabularies_differ", "size 50257", "size 50300"):
        mix([sources[0], other], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0)


def test_mix_source_without_a_whole_window_is_refused(tmp_path, sources) -> None:
    small = dataset(tmp_path / "small", [[2]])
    with raises("mixture.source_too_small"):
        mix([sources[0], small], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0)


def test_mix_no_common_export_is_refused(tmp_path) -> None:
    both = [dataset(tmp_path / name, [[20]], formats=(name,)) for name in ("megatron", "nanoset")]
    with raises("mixture.no_common_export"):
        mix(both, alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0)


def test_mix_one_source_twice_is_refused(sources) -> None:
    with raises("mixture.source_twice"):
        mix([sources[0], sources[0]], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0)


def test_open_source_folder_without_dataset_is_refused(tmp_path) -> None:
    with raises("dataset.not_finished"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["nanoset/*.ds", "nanoset/*.index", "megatron/*.bin", "megatron/*.idx"])
@pytest.mark.parametrize("damage", ["missing", "another size"])
def test_open_source_file_that_is_missing_or_has_another_size_is_refused(tmp_path, sources, name, damage) -> None:
    """A missing .idx ended in a traceback, other files were mixed as if they were there."""
    path = max((tmp_path / "a").glob(name))
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2])
    with raises("dataset.file_damaged", damage, path.name):
        open_source(tmp_path / "a")


def get_blend_from_list(items: list[str]) -> list[tuple[float, str]]:
    """Megatron's reading of --data-path: weights and prefixes in turn, if the number is even and all weights parse."""
    assert len(items) % 2 == 0
    return [(float(weight), prefix) for weight, prefix in zip(items[::2], items[1::2], strict=True)]


def test_training_files_empty_documents_and_raw_bin_files_are_told_apart(tmp_path) -> None:
    source = dataset(tmp_path / "a", [[5, 5, 5, 3]])
    batch = (np.arange(7, dtype=np.uint16), np.array([4, 4, 7], np.uint64))
    megatron.write_part(
        tmp_path / "a" / "megatron",
        "d_00000_text_document",
        [batch],
        dtype=megatron.UINT16,
        eod_id=50256,
        vocabulary_size=50257,
        empty_documents="boundary",
    )
    (tmp_path / "a" / "numpy").mkdir()
    (tmp_path / "a" / "numpy" / "train.bin").write_bytes(bytes(20))
    printed = json.loads((tmp_path / "a" / "dataset.json").read_text())
    printed["files"] = [
        {
            "name": path.relative_to(tmp_path / "a").as_posix(),
            "size_bytes": path.stat().st_size,
            "sha256": sha256_of(path),
        }
        for path in sorted((tmp_path / "a").glob("*/*"))
    ]
    (tmp_path / "a" / "dataset.json").write_text(json.dumps(printed))
    mixture = mix([open_source(source.folder)], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0)
    (counts,) = json.loads(training_files(mixture)["megatron_sequences.json"]).values()
    assert counts == [2, 4]


def test_splits_files_go_to_one_split_each(tmp_path) -> None:
    many = dataset(tmp_path / "many", [[10]] * 10)
    mixture = mix([many], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0, split=(80, 10, 10))
    actual = splits(mixture)
    prefixes = {name: [prefix for _, prefix in get_blend_from_list(items or [])] for name, items in actual.items()}
    assert [len(prefixes[name]) for name in ("train", "valid", "test")] == [8, 1, 1]
    everywhere = [prefix for some in prefixes.values() for prefix in some]
    assert sorted(everywhere) == sorted(str(file.path.with_suffix("")) for file in many.megatron)
    assert splits(mix([dataset(tmp_path / "one", [[10]])], alpha=1.0, sequence_tokens=4, budget_tokens=4, seed=0)) == {
        "train": ["1.0", str((tmp_path / "one/megatron/d_00000_text_document").resolve())],
        "valid": None,
        "test": None,
    }


def epochs_of(blend: list[tuple[float, str]], samples: int, sequence_tokens: int, share: float) -> dict[str, float]:
    """Dataset -> epochs of a run of `samples`, by the definition: greedy draws, tokens of the documents that train."""
    weights = np.array([weight for weight, _ in blend])
    weights = weights / weights.sum()
    trained, there = Counter[str](), Counter[str]()
    for number, _ in greedy_order((weights / weights.sum()).tolist(), samples):
        trained[Path(blend[number][1]).parent.parent.name] += sequence_tokens
    for _, prefix in blend:
        lengths = megatron.open_part(Path(prefix)).lengths
        there[Path(prefix).parent.parent.name] += int(lengths[: round(share * len(lengths))].sum())
    return {name: trained[name] / there[name] for name in there}


@pytest.mark.parametrize("split", ["969,30,1", "8,1,1", "100,0,0"])
def test_mix_epochs_hold_for_the_files_that_are_written_beside_them(tmp_path, split: str) -> None:
    random = np.random.Generator(np.random.Philox(3))
    many = [random.integers(1, 40, size=30).tolist() for _ in range(10)]
    for name, files in (("many", many), ("few", many[:2]), ("three", many[3:6])):
        dataset(tmp_path / name, files)
    folders = [f"{tmp_path}/many=0.5", f"{tmp_path}/few=0.3", f"{tmp_path}/three=0.2"]
    command = ["mix", *folders, "--budget-tokens", "30k", "--sequence-tokens", "16", "--split", split]
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    printed = json.loads((tmp_path / "out/mixture.json").read_text())
    numbers = [float(part) for part in split.split(",")]
    blend = get_blend_from_list((tmp_path / "out/megatron_data_path.txt").read_text().split())
    train = get_blend_from_list(json.loads((tmp_path / "out/megatron_splits.json").read_text())["train"])
    by_sequences = epochs_of(blend, printed["samples"], 16, numbers[0] / sum(numbers))
    by_files = epochs_of(train, printed["samples"], 16, 1.0)
    for item in printed["sources"]:
        assert item["megatron"]["epochs"] == pytest.approx(by_sequences[item["name"]], rel=1e-12)
        assert item["megatron_splits"]["epochs"] == pytest.approx(by_files[item["name"]], rel=1e-12)
        assert f"{by_files[item['name']]:.3f}" in done.output
        assert f"{by_sequences[item['name']]:.3f}" in done.output
    undivided = [item["name"] for item in printed["sources"] if not item["divided_by_files"]]
    assert undivided == ([] if split == "100,0,0" else ["few"])
    assert ("few has 2 files, too few" in done.output) == bool(undivided)


def test_mix_files_with_too_few_documents_for_the_split_are_named(tmp_path) -> None:
    """--split 8,1,1 gives 5 documents' worth of [0, 4), [4, 4) and [4, 5): round(4.5) is 4. Megatron would hang."""
    dataset(tmp_path / "one", [[10] * 5, [10] * 20])
    for split, empty in (("8,1,1", ["d_00000_text_document"]), ("8,2,0", []), ("100", [])):
        command = ["mix", f"{tmp_path}/one", "--budget-tokens", "100", "--sequence-tokens", "4", "--split", split]
        done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "out")], catch_exceptions=False)
        printed = json.loads((tmp_path / "out/mixture.json").read_text())["indivisible_files"]
        assert [Path(item).name for item in printed] == empty
        assert ("1 file with too few documents for --split 8,1,1, such as d_00000" in done.output) == bool(empty)


def test_mix_split_that_leaves_a_file_without_training_documents_is_refused(tmp_path) -> None:
    item = dataset(tmp_path / "one", [[10, 10], [20]])
    with raises("mixture.split_without_training"):
        mix([item], alpha=1.0, sequence_tokens=4, budget_tokens=4, seed=0, split=(1, 2, 0))


@pytest.mark.parametrize("text", ["", "x", "0,1,1", "1,-1", "1,1,1,1", "nan", "inf,1"])
def test_parse_split_other_text_is_refused(text: str) -> None:
    with raises("mixture.not_a_split"):
        parse_split(text)


def test_parse_split_missing_numbers_are_zero() -> None:
    assert parse_split("969,30,1") == (969, 30, 1)
    assert parse_split("9.5,0.5") == (9.5, 0.5, 0)
    assert parse_split("1") == (1, 0, 0)


def test_nanotron_yaml_list_and_dictionary_forms_hold_the_same(sources) -> None:
    mixture = mix(sources, weights=[1, 2, 3, 4], sequence_tokens=4, budget_tokens=40, seed=7)
    listed, named = (
        yaml.safe_load(nanotron_yaml(mixture, as_dictionary=form))["data_stages"][0]["data"] for form in (False, True)
    )
    folders = [str(source.folder / "nanoset") for source in mixture.sources]
    assert listed["dataset"] == {
        "dataset_folder": folders,
        "dataset_weights": pytest.approx([0.1, 0.2, 0.3, 0.4]),
        "token_size_in_bytes": 2,
    }
    assert named["dataset"]["dataset_folder"] == pytest.approx(dict(zip(folders, [0.1, 0.2, 0.3, 0.4], strict=True)))
    assert listed["seed"] == named["seed"] == 7


def test_mixture_html_name_with_markup_is_escaped(tmp_path) -> None:
    source = dataset(tmp_path / "x", [[20]], name="<script>alert(1)</script>")
    page = mixture_html(mix([source], alpha=1.0, sequence_tokens=4, budget_tokens=40, seed=0))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(("text", "tokens"), [("20B", 20 * 10**9), ("1.5T", 15 * 10**11), ("3m", 3 * 10**6), ("7", 7)])
def test_token_count_scales_are_powers_of_ten(text: str, tokens: int) -> None:
    assert token_count(text) == tokens


@pytest.mark.parametrize("text", ["", "B", "-1", "1e9", "nan", "0", "12 B", "9999999999T"])
def test_token_count_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number of tokens looks like"):
        token_count(text)
