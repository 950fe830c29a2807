"""The figures of README.md and of docs/ that name a result file are the values there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text()
MEASURED = (ROOT / "docs" / "measured.md").read_text()
ROW = re.compile(r"^\| .+? \| (?P<measured>.+?) \| `benchmarks/results/(?P<result>\w+)\.json` \|$", re.M)
# Figures of a sentence stand before the link to their file, and behind the link before it.
SENTENCE = re.compile(r"(?P<measured>[^|\]]*?)\(?\[measured\]\(benchmarks/results/(?P<result>\w+)\.json\)")

# The values of each result that docs/measured.md shows in bold, in their order; a sentence shows the first of them.
SHOWN = {
    "json_lines": ["megabytes_per_cpu_second/ours", "times_orjson"],
    "dedup_memory": ["runs/1/seconds", "runs/0/seconds"],
    "beyond_memory": ["sizes/3/wall_seconds", "sizes/3/wall_to_cpu"],
    "tokenizing": ["ours/mb_per_cpu_second", "times_as_tokshuf", "times_datatrove"],
    "in_order": ["datatrove/times", "preprocess_data/times"],
    "decontamination": [
        "and_60000_items/search_mb_per_s",
        "quality/half 1/covered words/recall",
        "quality/half 1/covered words/precision",
        "quality/half 1/13 words in a row/recall",
        "quality/half 1/13 words in a row/precision",
    ],
    "originals": [
        "tokshuf/share_of_cpu_seconds",
        "bsade/share_of_cpu_seconds",
        "deduplicate_text_datasets/share_of_cpu_seconds",
        "terashuf/share_of_cpu_seconds",
    ],
    "many_files": ["commands/dedup/ratio"],
    "tokshuf_job": ["megabytes_of_text_per_cpu_second"],
    "shuffle": ["ours/megabytes_per_cpu_second"],
    "transfers": [
        "up/share_of_best_peer",
        "down, an object of ours/share_of_best_peer",
        "down, an object of others/share_of_best_peer",
    ],
    "installing": ["three_commands_wall_seconds", "install/wall_seconds"],
    "kills": ["kills"],
    "upload_pairs": ["pairs", "killed in time", "whole"],
    "faults": ["faults_in_all", "files_wrong"],
    "wrong_answers": ["answers_harmed", "rounds_that_delivered_something_wrong"],
    "bucket_faults": ["races_won_by_one", "faults_in_all", "kills"],
    "airflow_day": ["actions", "checks/files compared with a build from scratch"],
    "sixteen_runs": [
        "scheduler_cores_at_rest",
        "scheduler_cores_during_runs",
        "page/median_seconds_during_runs",
        "runs_that_waited_for_another",
    ],
}
BOLD = [(match["result"], match["measured"], SHOWN[match["result"]]) for match in ROW.finditer(MEASURED)]
BOLD += [
    (match["result"], match["measured"], SHOWN[match["result"]][: match["measured"].count("**") // 2])
    for match in SENTENCE.finditer(README)
]

# A page of docs/, words of it with # for each figure, a result, and the paths of the values that the figures show.
QUOTED = [
    (
        "against.md",
        "# to # times the CPU and # to # times the scratch space, at 100 and 500 bytes",
        "against",
        ["L = 100/cpu_ratio", "L = 500/cpu_ratio", "L = 500/scratch_ratio", "L = 100/scratch_ratio"],
    ),
    (
        "decontamination.md",
        "recall was at least # and precision at least # on that half, # and # on the other",
        "decontamination",
        [f"other_draws/half {half}/least_{measure}" for half in (1, 0) for measure in ("recall", "precision")],
    ),
    (
        "decontamination.md",
        "recall of at least # and precision of at least # on that half, # and # on the other",
        "decontamination_other_texts",
        [f"half {half}/least_{measure}" for half in (1, 0) for measure in ("recall", "precision")],
    ),
    (
        "measured.md",
        "delivery: # s of CPU with one worker, # times the # s of its parts",
        "whole_build",
        ["workers_1/cpu_seconds", "workers_1/cpu_to_that_of_its_parts", "parts_together"],
    ),
    (
        "decontamination.md",
        "has # hits (# per GB) for 3 of all # items",
        "decontamination",
        [f"unplanted_corpus/{key}" for key in ("hits", "hits_per_gb", "items_searched")],
    ),
    (
        "decontamination.md",
        "searches # MB/s of text with # items (# seeds, # bytes each, # s to index, # s to check that",
        "decontamination",
        [
            f"and_60000_items/{key}"
            for key in (
                *("search_mb_per_s", "items", "seeds", "index_bytes_a_seed"),
                *("index_cpu_seconds", "check_cpu_seconds"),
            )
        ],
    ),
    (
        "decontamination.md",
        "own text), # MB/s with #. The index",
        "decontamination",
        ["benchmarks_there/search_mb_per_s", "benchmarks_there/items"],
    ),
    (
        "decontamination.md",
        "all of its # MB hold # MB together",
        "decontamination",
        ["two_processes/index_bytes * 1e-6", "two_processes/pss_of_both * 1e-6"],
    ),
    (
        "forget.md",
        "# of the CPU of a build from scratch, or # for 100 documents spread",
        "forget_gigabytes_of_one_format",
        [f"{kind}/of_a_build_from_scratch" for kind in ("of_one_shard", "spread_over_all_shards")],
    ),
    (
        "forget.md",
        "18 shards are tokenized: # and #",
        "forget_gigabytes",
        [f"{kind}/of_a_build_from_scratch" for kind in ("of_one_shard", "spread_over_all_shards")],
    ),
    (
        "managed-airflows.md",
        "| requests | # million | # million |",
        "bucket_build",
        [f"requests_per_gb_of_text/{kind} * 1e-3" for kind in ("bucket", "machines")],
    ),
    (
        "managed-airflows.md",
        "| TB moved | # | # |",
        "bucket_build",
        [f"bytes_moved_per_byte_of_text/{kind}" for kind in ("bucket", "machines")],
    ),
    (
        "many-machines.md",
        "takes # times the CPU of a local build, and # times if each stage",
        "bucket_build",
        [f"cpu_of_a_folders/{kind}" for kind in ("bucket", "machines")],
    ),
    (
        "many-machines.md",
        "that is # and # million requests, and # and # TB moved",
        "bucket_build",
        [
            *(f"requests_per_gb_of_text/{kind} * 1e-3" for kind in ("bucket", "machines")),
            *(f"bytes_moved_per_byte_of_text/{kind}" for kind in ("bucket", "machines")),
        ],
    ),
    (
        "many-machines.md",
        "# and # times the actual requests, # and # times the bytes",
        "bucket_build",
        [f"estimated_{what}_of_actual/{kind}" for what in ("requests", "bytes") for kind in ("bucket", "machines")],
    ),
    (
        "many-machines.md",
        "# races of # writers, # faults between worker and store and # kills",
        "bucket_faults",
        ["races_won_by_one", "writers_of_a_race", "faults_in_all", "kills"],
    ),
    (
        "many-machines.md",
        "peaks at # bytes per byte of text, or # with `reclaim: eager`",
        "disk",
        ["keep/peak_per_text_byte", "eager/peak_per_text_byte"],
    ),
    *(
        (
            "sizing.md",
            f"| {shown} | # | # | # |",
            "model",
            [f"{size}/stated_by_measured/{value}" for size in ("0.5 GB", "4 GB", "4 GB that repeat themselves")],
        )
        for shown, value in (
            ("peak disk, `reclaim: eager`", "peak_disk"),
            ("tokens", "tokens"),
        )
    ),
    (
        "how-it-works.md",
        "`dedup` of 3.26 GB takes # major page faults",
        "dedup_memory",
        ["runs/1/major_faults"],
    ),
    (
        "sizing.md",
        "reads # bytes and writes # for each byte of text",
        "refresh",
        ["first_build/read_per_text_byte", "first_build/written_per_text_byte"],
    ),
    (
        "sizing.md",
        "the four exports are # of the # bytes written",
        "refresh",
        ["first_build/by_stage/export/1", "first_build/written_per_text_byte"],
    ),
    (
        "sizing.md",
        "| read, bytes per byte of text | # | # | | written, without the copy at the destination | # | # |",
        "refresh",
        [f"{build}/{what}_per_text_byte" for what in ("read", "written") for build in ("first_build", "refresh")],
    ),
    (
        "sizing.md",
        "| wall time, one process | # s | # s |",
        "refresh",
        ["first_build/seconds", "refresh/seconds"],
    ),
    (
        "sizing.md",
        "With # built shards of 100 kB, opening a task takes 8 to # ms of CPU, `plan` # s, and a build that finds"
        " nothing changed # s",
        "many_shards",
        ["shards", "open_task_seconds * 1e3", "plan_seconds", "unchanged_build_seconds"],
    ),
    (
        "sizing.md",
        "With # shards planned but not yet built, `plan` takes # s, and a task of `download` opens in # ms",
        "many_shards",
        [f"planned_alone/{key}" for key in ("shards", "plan_seconds", "open_task_seconds/download * 1e3")],
    ),
    (
        "sizing.md",
        "# shards of 2 MB take # s under Airflow on two cores, # times the command",
        "airflow_178_shards_of_2MB",
        ["shards", "under_airflow/seconds", "ratio"],
    ),
    (
        "sizing.md",
        "and # of 20 MB # s, # times the command",
        "airflow_16_shards_of_20MB",
        ["shards", "under_airflow/seconds", "ratio"],
    ),
    (
        "sizing.md",
        "in which nothing has changed takes # s",
        "airflow_16_shards_of_20MB",
        ["unchanged_under_airflow/seconds"],
    ),
    (
        "sizing.md",
        "# MB with dedup and all four formats take at most # s",
        "compose",
        ["text_megabytes", "most_seconds"],
    ),
    (
        "sizing.md",
        "the command 10 s, and 178 shards of 2 MB at most # s, # times the command",
        "compose_178_shards_of_2MB",
        ["most_seconds", "most_times_the_command"],
    ),
    (
        "sizing.md",
        "one after the other, take # s at best",
        "airflow_16_shards_of_20MB",
        ["seconds_of_9_tasks_in_a_chain_that_do_nothing/best"],
    ),
    *(
        (
            "near-duplicates.md",
            f"| {label} | # | # | # | # of # |",
            "near_duplicates",
            [
                f"labelled/{peer}/{key}"
                for key in ("mb_per_cpu_second", "recall", "left", "without_kept_match", "removed")
            ],
        )
        for peer, label in (
            ("corpusmill", "Corpusmill"),
            ("datatrove", "datatrove 0.10.1"),
            ("rensa", "rensa 0.5.0"),
            ("datasketch", "datasketch 2.0.0"),
        )
    ),
    (
        "near-duplicates.md",
        "one core compares # MB/s in that run (signatures alone #): # times rensa, # times datasketch, # times"
        " datatrove. With a quarter of the text's size as memory, page cache included, the rate is # of that",
        "near_duplicates",
        [
            *(f"speed/corpusmill/{rate}mb_per_cpu_second" for rate in ("", "signatures_alone_")),
            *(f"speed/{peer}/ours_times" for peer in ("rensa", "datasketch", "datatrove")),
            "memory/rate_to_that_in_memory",
        ],
    ),
    (
        "near-duplicates.md",
        "In a group of # near-copies of one page, most of which lie near the threshold, a near-copy costs # times",
        "near_duplicates",
        ["group/near_copies", "group/cost_of_a_near_copy_to_that_of_a_document"],
    ),
    (
        "near-duplicates.md",
        "follows from the texts by the definition above: # of # documents",
        "near_duplicates",
        [f"labelled/last_draw/{key}" for key in ("removed_by_definition", "documents")],
    ),
    (
        "steps.md",
        "run at # to # MB/s per core",
        "steps",
        [f"megabytes_a_second/corpusmill.steps.{step}" for step in ("repetition:Repetition", "c4:Lines")],
    ),
]


def value_of(result: str, path: str) -> Any:
    """The value at a path such as `runs/1/seconds` of a result's figures, times a factor behind ` * `."""
    value = json.loads((RESULTS / f"{result}.json").read_text())["figures"]
    path, _, factor = path.partition(" * ")
    for key in path.split("/"):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value * float(factor) if factor else value


def shows(figure: str, value: float) -> bool:
    """Whether a printed figure is the value, rounded to the figure's digits."""
    digits = len(figure.partition(".")[2])
    return abs(float(figure.replace(",", "")) - value) <= 0.5001 * 10**-digits


def test_docs_have_a_table_of_measurements() -> None:
    assert [match["result"] for match in ROW.finditer(MEASURED)] == [*SHOWN]
    assert len(SENTENCE.findall(README)) == 2  # the two of the first paragraph


@pytest.mark.parametrize(("figure", "value"), [("0.92", 0.914), ("9.4", 9.34), ("1,000", 1001)])
def test_figure_that_is_not_the_value_is_seen(figure: str, value: float) -> None:
    assert not shows(figure, value)


@pytest.mark.parametrize(("result", "measured", "paths"), BOLD)
def test_bold_figure_is_the_value_in_its_result_file(result: str, measured: str, paths: list[str]) -> None:
    figures = re.findall(r"\*\*([0-9.,]+)\*\*", measured)
    assert figures
    for figure, path in zip(figures, paths, strict=True):
        assert shows(figure, value_of(result, path)), f"{result} has {value_of(result, path)} at {path}"


@pytest.mark.parametrize(("page", "words", "result", "paths"), QUOTED)
def test_docs_figure_is_the_value_in_the_result_file(page: str, words: str, result: str, paths: list[str]) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    quoted = re.search(re.escape(words).replace(r"\#", r"(\d[\d,]*(?:\.\d+)?)"), text)
    assert quoted, f"{page} has no such words"
    for figure, path in zip(quoted.groups(), paths, strict=True):
        assert shows(figure, value_of(result, path)), f"{result} has {value_of(result, path)} at {path}"


def test_docs_table_of_decontamination_is_the_result() -> None:
    page = (ROOT / "docs" / "decontamination.md").read_text()
    half, whole = value_of("decontamination", "quality/half 1"), value_of("decontamination", "whole_benchmark")
    for way, covered in half["covered words"].items():
        assert f"| {way} | {covered} | {half['13 words in a row'][way]} | {whole.get(way, '')} |" in page
