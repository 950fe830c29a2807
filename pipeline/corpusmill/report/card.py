"""A dataset's card: README.md with the Hub's YAML header, and Croissant metadata, made from figures only.

In:  dataset.json's content, and `CardFigures`, the counts of receipts that dataset.json does not hold.
Out: the two texts. croissant.json holds the figures, too, so that anyone with the delivered files can write both again
 and compare. Every sentence depends only on figures or on the configuration's `card`.

Sources: the hub's documentation of dataset cards; Croissant 1.0 of MLCommons. What is listed as missing is what the
European Commission's template for the summary of training content asks for (AI Act, article 53(1)(d)).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from corpusmill.lazy import lazily
from corpusmill.report.facts import Count, Facts, Flow
from corpusmill.report.figures import grouped

with lazily:
    import numpy as np

README, CROISSANT = "README.md", "croissant.json"
FIGURES = "corpusmill:figures"
LETTERS = "KMBT"
VIEWED = (  # by the Hub's viewer; the other formats are not tables
    {"config_name": "documents", "data_files": "documents/**"},
    {"config_name": "webdataset", "data_files": "webdataset/*.tar"},
    {
        "config_name": "parquet_text",
        "data_files": [
            {"split": split, "path": f"parquet_text/{split}-*.parquet"} for split in ("train", "validation")
        ],
    },
)
MISSING = (
    ("license", "the licence of the whole"),
    ("languages", "the languages"),
    ("sources", "the licence and origin of each source"),
    ("", "when the text was collected, by whom, and from which domains"),
    ("", "whether rights holders' reservations (opt-outs) were respected, and by which means"),
    ("", "whether the text holds personal data, and on which ground it is used"),
    ("", "which part is synthetic, licensed, or from users of a service"),
)
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "corpusmill": "urn:corpusmill:",
    FIGURES: {"@id": FIGURES, "@type": "@json"},
}
ENCODINGS = {
    ".jsonl": "application/jsonlines",
    ".ndjson": "application/jsonlines",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".tar": "application/x-tar",
    ".gz": "application/gzip",
    ".zst": "application/zstd",
    ".zstd": "application/zstd",
    ".xz": "application/x-xz",
    ".bz2": "application/x-bzip2",
    ".lz4": "application/x-lz4",
}


class StageFlow(Flow):
    """What one stage did to one quantity: documents, text_bytes or tokens."""

    stage: str
    quantity: str


class DuplicateFigures(Facts):
    """How duplicates were removed, and from how many documents; `references`: (name, bytes of text that it holds)."""

    mode: str
    minimum_bytes: Count
    keep: str
    documents_touched: Count
    documents_emptied: Count
    references: tuple[tuple[str, Count], ...] = ()
    fuzzy_share: float | None = None


class NearDuplicateFigures(Facts):
    """How near-duplicates were found, and how many documents are near-duplicates of an earlier one."""

    similarity: float
    words: Count
    action: str
    within: str
    documents: Count
    left_out: Count


class BenchmarkFigures(Facts):
    """A benchmark, its items, and how many hits the text has."""

    name: str
    items: Count
    hits: Count


class CardFigures(Facts):
    """Counts of the build that delivered the dataset; `source_locations`: those in buckets and on the Hub."""

    source_files: Count
    source_bytes: Count
    source_locations: tuple[str, ...]
    flows: tuple[StageFlow, ...]
    near_duplicates: NearDuplicateFigures | None = None
    duplicates: DuplicateFigures | None
    benchmarks: tuple[BenchmarkFigures, ...]
    steps: tuple[str, ...]
    shuffle_seed: int | None

    def last(self, quantity: str) -> int:
        """What the last stage that counts a quantity passed on, before anything was added to it."""
        return next((flow.out - flow.gained_total for flow in reversed(self.flows) if flow.quantity == quantity), 0)


def figures_in(croissant: bytes) -> CardFigures | None:
    """The figures that a croissant.json holds; None if it is damaged."""
    try:
        return CardFigures.model_validate(json.loads(croissant)[FIGURES])
    except (ValueError, LookupError, TypeError, ValidationError, RecursionError):
        return None


def card_texts(content: dict[str, Any], figures: CardFigures, version: str) -> dict[str, str]:
    """Name -> text of README.md and croissant.json of a version whose dataset.json holds `content`."""
    readme = "\n".join([_header(content, figures), *_sections(content, figures, version)])
    return {README: readme, CROISSANT: _croissant(content, figures, version)}


def _header(content: dict[str, Any], figures: CardFigures) -> str:
    stated = content.get("card", {})
    folders = {str(file["name"]).partition("/")[0] for file in content["files"]}
    shown = [format_name for format_name in VIEWED if format_name["config_name"] in folders]
    header = {
        "pretty_name": content["name"],
        **({"license": stated["license"]} if stated.get("license") else {}),
        **({"language": stated["languages"]} if stated.get("languages") else {}),
        "size_categories": [_size_category(figures.last("documents"))],
        "tags": ["croissant", "corpusmill"],
        **({"configs": shown} if shown else {"viewer": False}),
    }
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def _size_category(documents: int) -> str:
    """The Hub's size categories: n<1K, 1K<n<10K, ... 100B<n<1T, n>1T."""
    if documents < 10**3:
        return "n<1K"
    if documents >= 10**12:
        return "n>1T"
    digits = len(str(documents)) - 1
    return f"{_short(digits)}<n<{_short(digits + 1)}"


def _short(digits: int) -> str:
    return f"{10 ** (digits % 3)}{LETTERS[digits // 3 - 1]}"


def _sections(content: dict[str, Any], figures: CardFigures, version: str) -> Iterator[str]:
    sizes = [int(file["size_bytes"]) for file in content["files"]]
    vocabulary = content["vocabulary"]
    yield f"# {content['name']}\n"
    yield f"Version `{version}`: the first digits of the sha256 of `dataset.json`, which lists the files.\n"
    yield _table(
        ("", ""),
        [
            ("documents", grouped(figures.last("documents"))),
            ("text", f"{grouped(figures.last('text_bytes'))} bytes of UTF-8"),
            ("tokens", f"{grouped(figures.last('tokens'))} of `{vocabulary['name']}`, {vocabulary['dtype']}"),
            ("files", f"{grouped(len(sizes))}, {grouped(sum(sizes))} bytes"),
        ],
    )
    yield "## Sources\n"
    yield f"{grouped(figures.source_files)} files, {grouped(figures.source_bytes)} bytes as they are stored.\n"
    yield from _listed(f"`{_plain(location)}`" for location in figures.source_locations)
    yield from _stated_sources(content)
    yield "## Steps\n"
    yield _table(("stage", "of", "in", "added", "left out", "out"), [_flow_row(flow) for flow in figures.flows])
    if figures.steps:
        yield f"Steps of its own: {', '.join(f'`{_plain(name)}`' for name in figures.steps)}.\n"
    yield from _near_duplicates(figures)
    yield from _duplicates(figures)
    yield from _benchmarks(figures)
    seed = figures.shuffle_seed
    yield "Order: that of the sources.\n" if seed is None else f"Order: random, seed {seed}.\n"
    yield "## Formats\n"
    yield from how_to_load(content)
    yield "## Not stated\n"
    stated = content.get("card", {})
    yield from _listed(what for key, what in MISSING if not stated.get(key))


def _stated_sources(content: dict[str, Any]) -> Iterator[str]:
    sources = content.get("card", {}).get("sources") or ()
    if sources:
        keys = ("name", "license", "url")
        rows = [tuple(_plain(source.get(key) or "not stated") for key in keys) for source in sources]
        yield _table(("source, as stated", "licence", "origin"), rows)


def _duplicates(figures: CardFigures) -> Iterator[str]:
    repeats = figures.duplicates
    if repeats is None:
        yield "Duplicates: not looked for.\n"
        return
    between = ""
    if repeats.fuzzy_share is not None:
        between = f" and what lies between them where they cover {repeats.fuzzy_share:.0%} or more,"
    yield (
        f"Duplicates: exact repeats of {grouped(repeats.minimum_bytes)} bytes and more,{between} mode"
        f" `{_plain(repeats.mode)}`, keep `{_plain(repeats.keep)}`. {grouped(repeats.documents_touched)} documents"
        f" held some, {grouped(repeats.documents_emptied)} nothing else.\n"
    )
    if repeats.references:
        yield "Text that stands in these counts as a repeat, too:\n"
        yield _table(
            ("reference", "bytes of text here"), [(_plain(name), grouped(size)) for name, size in repeats.references]
        )


def _near_duplicates(figures: CardFigures) -> Iterator[str]:
    near = figures.near_duplicates
    if near is None:
        return
    yield (
        f"Near-duplicates: {grouped(near.left_out)} of {grouped(near.documents)} documents share {near.similarity:.0%}"
        f" or more of their runs of {near.words} words with an earlier document"
        f"{' of their source' if near.within == 'source' else ''}, action `{_plain(near.action)}`.\n"
    )


def _benchmarks(figures: CardFigures) -> Iterator[str]:
    if not figures.benchmarks:
        yield "Decontamination: none.\n"
        return
    rows = [
        (_plain(benchmark.name), grouped(benchmark.items), grouped(benchmark.hits)) for benchmark in figures.benchmarks
    ]
    yield _table(("benchmark", "items", "hits in the text"), rows)


def _flow_row(flow: StageFlow) -> tuple[str, ...]:
    lost = ", ".join(f"{grouped(count)} {_plain(why)}" for why, count in sorted(flow.lost.items()) if count)
    gained = ", ".join(f"{grouped(count)} {_plain(why)}" for why, count in sorted(flow.gained.items()) if count)
    return _plain(flow.stage), _plain(flow.quantity), grouped(flow.into), gained, lost, grouped(flow.out)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _listed(items: Iterator[str]) -> Iterator[str]:
    if lines := [f"* {item}" for item in items]:
        yield "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A name without characters that would end a cell, a line or a code span of Markdown."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _croissant(content: dict[str, Any], figures: CardFigures, version: str) -> str:
    stated = content.get("card", {})
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": content["name"],
        "description": f"{figures.last('documents')} documents, {figures.last('tokens')} tokens",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": version,
        **({"license": stated["license"]} if stated.get("license") else {}),
        **({"inLanguage": stated["languages"]} if stated.get("languages") else {}),
        "distribution": [_file_object(file) for file in content["files"]],
        FIGURES: figures.model_dump(mode="json", exclude={"near_duplicates"} if not figures.near_duplicates else None),
    }
    return json.dumps(described, indent=1, ensure_ascii=False) + "\n"


def _file_object(file: dict[str, Any]) -> dict[str, Any]:
    name = str(file["name"])
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{file['size_bytes']} B",
        "encodingFormat": ENCODINGS.get(name[name.rfind(".") :].lower(), "application/octet-stream"),
        "sha256": file["sha256"],
    }


HOLD_TOKENS = (".bin", ".ds", ".npy", ".tar", ".parquet")
LOADERS = {".parquet": "parquet", ".arrow": "arrow"}
"""Names of `datasets`' loaders by ending; that of all others is json."""
COUNTED = (("records", "records"), ("slots", "token slots, with special tokens and padding"))
COUNTED_OF_TEXT = (("records", "records"), ("slots", "bytes of text"))


def how_to_load(content: dict[str, Any]) -> Iterator[str]:
    """A Markdown section for the documents and for each format of tokens."""
    names = [str(file["name"]) for file in content["files"]]
    documents = [name for name in names if name.startswith("documents/")]
    if documents:
        kind = LOADERS.get(documents[0][documents[0].rfind(".") :].lower(), "json")
        yield _section("documents", f'datasets.load_dataset("{kind}", data_files="documents/**")', len(documents), {})
    for kind, held in content["formats"].items():
        first = next(name for name in names if name.startswith(f"{kind}/") and name.endswith(HOLD_TOKENS))
        yield _section(kind, _code(kind, first, content), held["outputs"], held)


def _code(kind: str, first: str, content: dict[str, Any]) -> str:
    width = np.dtype(content["vocabulary"]["dtype"]).itemsize
    begin = ", 1024" if content["formats"][kind].get("layout") else ""  # behind a header
    return {
        "megatron": f'megatron.core.datasets.indexed_dataset.IndexedDataset("{first.removesuffix(".bin")}")',
        "nanoset": f'datatrove.utils.dataset.DatatroveFolderDataset("nanoset", seq_len=2048, token_size={width})',
        **{
            name: f'datasets.load_dataset("parquet", data_files="{name}/*.parquet")'
            for name in ("parquet_documents", "parquet_contexts", "parquet_text")
        },
        "olmo": 'olmo_core.data.NumpyFSLDatasetConfig.glob("olmo/*.npy", sequence_length=2048, tokenizer=..., '
        f'dtype="uint{8 * width}")',
        "numpy": f'numpy.load("{first}", mmap_mode="r")'
        if first.endswith(".npy")
        else f'numpy.memmap("{first}", "{content["vocabulary"]["dtype"]}", "r"{begin})',
        "webdataset": f'webdataset.WebDataset("{first}").decode()',
    }[kind]


def _section(kind: str, code: str, outputs: int, held: dict[str, Any]) -> str:
    counted = COUNTED_OF_TEXT if kind == "parquet_text" else COUNTED
    counts = [f"{outputs:,} outputs", *(f"{held[key]:,} {words}" for key, words in counted if key in held)]
    return f"**{kind}**: {', '.join(counts)}\n\n```python\n{code}\n```\n"
