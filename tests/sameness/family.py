"""Configurations such that every value of every setting that can change a byte meets every other in one of them.

The settings and their values are those of tests/search, and more: single formats, a vocabulary in a tokenizer.json,
ids that need four bytes. Two values stay apart where a build refuses them together, and where one of them then means
nothing (`packing` without WebDataset).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corpusmill.fingerprint import fingerprint
from tests.sameness.corpus import DESCRIBED, RANKED
from tests.sameness.covering import Row, Values, covering_rows
from tests.search.settings import PATHS, Settings
from tests.search.settings import VALUES as SEARCHED
from tests.search.vocabularies import special_tokens

# Setting, or section -> why it cannot change a byte of what is delivered.
CHANGES_NO_BYTE = {
    "name": "names folders and files; one name is enough",
    "source.endpoint_url": "where a store answers",
    "source.anonymous": "how a store is asked",
    "source.requester_pays": "how a store is asked",
    "source.max_rejected_share": "only whether a build fails; the sources have malformed lines, so all may be rejected",
    "source.stream": "whether a store is read twice",
    "tokenizer.name": "a label in dataset.json; tokenizer.file is the vocabulary",
    "tokenizer.revision": "of a hub's tokenizer",
    "tokenizer.sha256": "only whether a build fails",
    "audit.bytes_per_token_band": "only whether a build fails",
    "shuffle.significance": "when the report warns",
    "estimate.sample_bytes": "no build reads it",
    "lock": "only whether a build fails",
    "destinations": "where a dataset lies; exp_data names the place, and one is enough",
    "keep_versions": "which older versions stay",
    "reclaim": "when intermediate files are deleted",
    "work_folder": "where intermediate files lie",
    "dag": "when Airflow builds",
}
# Setting, or section -> what is compared instead of digests.
COMPARED_ELSEWHERE = {
    "budget": "tests/system/test_budget.py: with an oracle of the plan, and builds without a budget",
    "forget": "tests/system/test_forget.py: with builds of sources without the documents",
    "decisions": "tests/system/test_decisions.py: with builds of sources without the documents",
    "card": "tests/system/test_card.py: with a dataset that states nothing",
    "steps": "tests/system/test_steps.py: with builds of sources that they had already decided about",
    "dedup.against": "tests/system/test_against.py: with builds of the references' files and the dataset's",
    "exports.numpy.merge_rest": "tests/system/test_export_options.py: with the tokens of .npy shards",
    "exports.numpy.bos_index": "tests/system/test_export_options.py: with the EOTs of the shards",
    "exports.olmo": "tests/system/test_every_format.py: with the documents of exports.megatron",
    "exports.parquet_documents": "tests/system/test_every_format.py: with the documents of exports.megatron",
    "exports.parquet_contexts": "tests/system/test_packing.py: with the contexts of exports.webdataset",
    "exports.parquet_text": "tests/system/test_every_format.py: with the documents of exports.megatron",
    "decontamination": "tests/system/test_decontamination.py: with builds of sources that lack the documents",
    "near_duplicates": "tests/system/test_near_duplicates.py: with builds of sources that lack the documents",
}
CHOICES_COMPARED_ELSEWHERE = {
    "exports.numpy.layout": {
        "llmc",
        "llama3",
        "automodel",
    },  # tests/system/test_export_options.py: with the tokens of .npy shards
    "tokenizer.engine": {"sentencepiece"},  # tests/tokens/test_sentencepiece.py: with the library's own ids
}
SAME_AS = ("auto", "gigatoken")  # tokenizer.engine, where gigatoken reads the tokenizer
WIDE = {token: number + 70_000 for token, number in special_tokens().items()}
FEW = 11  # the first so many configurations hold every value
OWN_PATTERN = SEARCHED["tokenizer.pattern"][-1]
ALL = "webdataset numpy megatron nanoset"
VALUES: Values = {
    "formats": [ALL, "webdataset", "numpy", "megatron", "nanoset", "webdataset megatron"],
    "tokenizer.file": [RANKED, DESCRIBED],
    "source.paths": list(PATHS.values()),
    **{key: values for key, values in SEARCHED.items() if key not in CHANGES_NO_BYTE and values != [None, {}]},
    "tokenizer.engine": ["gigatoken", "tiktoken", "tokenizers"],
    "tokenizer.special_tokens": [special_tokens(), WIDE],
}


def without(*names: str) -> list[str]:
    """The combinations of formats in which none of these is."""
    return [formats for formats in VALUES["formats"] if not {*names} & {*formats.split()}]


def given(key: str) -> list[Any]:
    """The values of an optional setting but for its absence."""
    return [value for value in VALUES[key] if value is not None]


# Each entry: with one of these values of the first key, the second (a key, or all keys that begin so) has none of those
# values; None stands for every value.
Apart = list[tuple[str, Sequence[Any] | None, str, Sequence[Any] | None]]
SELECTED = ("selection.minimum_bytes", "selection.minimum_tokens")
REFUSED: Apart = [
    ("formats", without("megatron", "nanoset"), "exports.sample_documents", given("exports.sample_documents")),
    ("formats", [ALL, "numpy", "nanoset"], "framing.empty_documents", ["boundary"]),
    ("dedup.mode", ["none", "annotate"], "dedup.drop_empty", [True]),
    ("dedup.keep", ["every_string"], "dedup.fuzzy_share", given("dedup.fuzzy_share")),
    ("dedup.annotate_key", ["score"], "dedup.replace_existing", [False]),  # every document has a score
    ("tokenizer.file", [RANKED], "tokenizer.engine", ["tokenizers"]),
    ("tokenizer.file", [DESCRIBED], "tokenizer.engine", ["tiktoken"]),
    ("tokenizer.file", [DESCRIBED], "tokenizer.parse_special", [True]),  # its decoder adds spaces around special tokens
    ("tokenizer.engine", ["gigatoken"], "tokenizer.pattern", [OWN_PATTERN]),
    ("packing.overlap_tokens", [1], "packing.fit", ["best_fit"]),
    ("packing.overlap_tokens", [1], "packing.tail", ["always_pad"]),
    ("packing.fit", ["best_fit"], "packing.tail", ["always_pad"]),
    ("framing.eod", [False], "framing.empty_documents", ["eod"]),
    *(("framing.empty_documents", ["boundary", "eod"], key, given(key)) for key in SELECTED),
    *(("packing.empty_documents", ["keep"], key, given(key)) for key in SELECTED),
    ("shuffle.order", ["source"], "exports.sample_documents", given("exports.sample_documents")),
    ("exports.numpy.layout", ["bin"], "exports.numpy.test_shards", given("exports.numpy.test_shards")),
    ("exports.numpy.layout", ["bin"], "exports.numpy.placeholders", [True]),
    ("exports.numpy.layout", ["bin"], "exports.numpy.checkpoints", [True]),
    ("tokenizer.bos", [None], "packing.bos", [True]),
    ("tokenizer.bos", [None], "framing.bos", [True]),
]
WITHOUT_MEANING: Apart = [
    *(("formats", without(name), f"exports.{name}.", None) for name in ALL.split()),
    ("formats", without("webdataset"), "packing.", None),
    ("formats", without("webdataset"), "tokenizer.pad", None),
    ("formats", without("megatron", "nanoset"), "framing.", None),
    ("formats", without("megatron", "nanoset"), "exports.sample_documents", None),
    ("framing.empty_documents", ["boundary"], "exports.numpy.", None),
    ("framing.empty_documents", ["boundary"], "exports.nanoset.", None),
    *(("dedup.mode", ["none"], f"dedup.{key}", None) for key in ("minimum", "keep", "fuzzy", "writeback", "memory")),
    *(("dedup.mode", ["none", "remove"], f"dedup.{key}", None) for key in ("annotate_key", "replace_existing")),
    ("dedup.mode", ["none", "annotate"], "dedup.drop_empty", None),
    ("dedup.drop_empty", None, "dedup.annotate_key", None),
    ("dedup.drop_empty", None, "dedup.replace_existing", None),
    *(("tokenizer.file", [DESCRIBED], f"tokenizer.{key}", None) for key in ("pattern", "special_tokens")),
    *(("tokenizer.engine", ["tokenizers"], f"tokenizer.{key}", None) for key in ("pattern", "special_tokens")),
    ("tokenizer.engine", ["tokenizers"], "tokenizer.parse_special", [True]),
    *(("shuffle.order", ["source"], f"shuffle.{key}", None) for key in ("seed", "memory", "cells")),
    *(("exports.numpy.layout", ["bin"], f"exports.numpy.{key}", None) for key in ("tokens_per", "file_name", "number")),
    ("exports.numpy.test_shards", given("exports.numpy.test_shards"), "exports.numpy.test_share", None),
]


def apart(key: str, value: Any, other: str, other_value: Any) -> bool:
    """Whether an entry forbids these two values to stand together; it is asked in both orders."""
    return any(
        key == first
        and (values is None or value in values)
        and other.startswith(second)
        and (others is None or other_value in others)
        for first, values, second, others in (*REFUSED, *WITHOUT_MEANING)
    )


def family() -> dict[str, Settings]:
    """Name -> settings. A name is a number and a digest of the settings: no two configurations ever share one."""
    settings = [settings_of(row) for row in covering_rows(VALUES, apart)]
    return {f"{number:02d}-{fingerprint(whole)[:8]}": whole for number, whole in enumerate(settings)}


def settings_of(row: Row) -> Settings:
    """The settings of a row, as tests/search/settings.py takes them."""
    whole: Settings = {
        "name": "tiny",
        "source": {"max_rejected_share": 1},
        "tokenizer": {"name": "tiny"},
        "audit": {"bytes_per_token_band": 1},
        "shuffle": {},
        "exports": {name: {} for name in row["formats"].split()},
    }
    for key, value in row.items():
        section, _, last = key.rpartition(".")
        if value is not None and section:
            inner = whole
            for name in section.split("."):
                inner = inner.setdefault(name, {})
            inner[last] = value
    return whole
