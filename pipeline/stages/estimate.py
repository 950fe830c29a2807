"""Estimate: build a sample of the dataset, and scale what it came to. Nothing of the real build is touched.

The sample is unbiased: source files are drawn with probability proportional to size (with replacement) until the drawn
files hold a multiple of the sample's size, or all files are taken once if they are no more than that; of every drawn
file each line is kept with one probability, by a counter-based generator. (Reading the beginning of a file is not: it
was how BigScience's gigabyte came to be biased.) Every draw estimates the total by itself, so the spread between draws
holds both the difference between files and that between lines; the interval is 1.96 standard errors wide each way.

Not unbiased, and said so: duplicates. Text repeats within a sample less often than in the whole, so the share found is
a lower bound, and tokens after deduplication are estimated from above.

Price: one pass over the drawn files (decompression) and a build of the sample in a scratch folder, on one core.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pipeline.config import DatasetConfig, absolute
from pipeline.errors import SourceError
from pipeline.fingerprint import canonical_json, fingerprint

if TYPE_CHECKING:
    from pipeline.stages.build import Build
    from pipeline.stages.plan import SourceFile
    from pipeline.storage import StoredFile

READ_FACTOR = 4  # the drawn files hold this many times the sample
DRAWS = 16  # at least: a spread needs several
FILE = "estimate.json"
SUBJECT = "of"


@dataclass(frozen=True)
class Estimate:
    """What a build will come to. `tokens_low` to `tokens_high` is a 95 % interval; sizes are bytes.

    `duplicate_share` is that within the sample: a lower bound. `hours` is on `cores` cores like this one's.
    """

    sampled_text_bytes: int
    scale: float
    text_bytes: int
    tokens: int
    tokens_low: int
    tokens_high: int
    duplicate_share: float
    cores: int
    hours: float
    peak_rss_bytes: int
    scratch_bytes: int
    output_bytes: dict[str, int]


def estimate_dataset(config: DatasetConfig) -> Estimate:
    """Sample, build the sample, scale; the result is also written to `<work_folder>/<name>/estimate.json`."""
    from pipeline.local import build_dataset
    from pipeline.stages.build import open_build
    from pipeline.stages.plan import list_dataset
    from pipeline.stages.tokenize import locked

    config = locked(config)
    files = list_dataset(config).files
    work = Path(absolute(config.work_folder)) / config.name
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".estimate-", dir=work) as scratch:
        root = Path(scratch)
        weights = _write_sample(config, files, root / "sample")
        changes = {
            "source": config.source.model_copy(update={"paths": [str(root / "sample")], "endpoint_url": None}),
            "destinations": [config.destinations[0].model_copy(update={"path": str(root / "out")})],
            "work_folder": str(root / "work"),
        }
        build = open_build(build_dataset(config.model_copy(update=changes), workers=1))
        found = _scaled(build, weights)
    saved = {SUBJECT: _subject(config, files), **asdict(found)}
    (work / FILE).write_text(json.dumps(saved, indent=1) + "\n")
    return found


def last_estimate(build: Build) -> Estimate | None:
    """The last estimate of a dataset; None if there is none, or its sources or settings were not this build's."""
    path = build.work / FILE
    if not path.exists():
        return None
    saved = json.loads(path.read_bytes())
    if saved.pop(SUBJECT, None) != _subject(build.config, itertools.chain.from_iterable(build.plan.shards)):
        return None
    return Estimate(**saved)


def _subject(config: DatasetConfig, files: Iterable[StoredFile | SourceFile]) -> str:
    """What an estimate is of: equal for equal settings and source files, wherever they are built."""
    settings = config.model_dump(mode="json", exclude={"dag", "destinations", "estimate", "work_folder"})
    return fingerprint({"settings": settings, "files": sorted({(one.location, one.identity) for one in files})})


def compare_with_actual(build: Build) -> str:
    """The last estimate of a dataset against its finished build, for people; "" if it was of something else."""
    found = last_estimate(build)
    if found is None:
        return ""
    tokens = build.total("tokenize", "tokens")
    inside = "within" if found.tokens_low <= tokens <= found.tokens_high else "OUTSIDE"
    rows = [
        f"estimated  {found.tokens:,} tokens; got {tokens:,}, {inside} {found.tokens_low:,} to {found.tokens_high:,}"
    ]
    text_bytes = build.total("index", "text_bytes_out")
    rows.append(f"           {found.text_bytes:,} bytes of text; got {text_bytes:,}")
    for name, size in found.output_bytes.items():
        rows.append(f"           {size:,} bytes of {name}; got {_exported_bytes(build, name):,}")
    return "\n".join(rows)


def _draws(files: list[StoredFile], sample_bytes: int) -> list[tuple[StoredFile, float]]:
    """(file, how many times its size all files together have, shared over the draws) of every draw."""
    import numpy as np

    total = sum(file.size_bytes for file in files)
    if total <= READ_FACTOR * sample_bytes or len(files) == 1:
        return [(file, 1.0) for file in files]
    key = np.frombuffer(sha256(canonical_json({"estimate": total})).digest()[:16], "<u8").astype(np.uint64)
    words = np.random.Philox(key=key)
    ends = np.cumsum([file.size_bytes for file in files])
    drawn: list[StoredFile] = []
    while len(drawn) < DRAWS or sum(file.size_bytes for file in drawn) < READ_FACTOR * sample_bytes:
        place = int(words.random_raw()) * total >> 64
        drawn.append(files[int(np.searchsorted(ends, place, side="right"))])
    return [(file, total / file.size_bytes / len(drawn)) for file in drawn]


def _write_sample(config: DatasetConfig, files: list[StoredFile], folder: Path) -> dict[str, float]:
    """Write the kept lines of every draw to a file of its own; {its name: what one of its lines counts for}."""
    from pipeline.documents.compression import open_decompressed
    from pipeline.storage import open_location

    folder.mkdir(parents=True)
    draws = _draws(files, config.estimate.sample_bytes)
    share = min(1.0, config.estimate.sample_bytes / max(1, sum(file.size_bytes for file, _ in draws)))
    weights = {}
    for number, (file, weight) in enumerate(draws):
        name = f"{number:05d}.jsonl"
        store, key = open_location(file.location, endpoint_url=config.source.endpoint_url)
        with (
            store.open(key) as raw,
            open_decompressed(raw, file.name) as lines,
            (folder / name).open("wb") as kept,
        ):
            _keep_lines(lines, kept, share, number)
        weights[name] = weight / share
    if not any((folder / name).stat().st_size for name in weights):
        raise SourceError("the sample holds no line", next_step="raise estimate.sample_bytes")
    return weights


def _keep_lines(lines: BinaryIO, kept: BinaryIO, share: float, draw: int) -> None:
    import numpy as np

    from pipeline.documents.lines import read_line_blocks

    key = np.frombuffer(sha256(canonical_json({"estimate draw": draw})).digest()[:16], "<u8").astype(np.uint64)
    words = np.random.Philox(key=key)
    limit = np.uint64(min((1 << 64) - 1, round(share * (1 << 64))))
    for block in read_line_blocks(lines):
        split = block.data.removesuffix(b"\n").split(b"\n")
        chosen = np.flatnonzero(words.random_raw(len(split)) <= limit).tolist()
        kept.write(b"".join(split[one] + b"\n" for one in chosen))


def _scaled(build: Build, weights: dict[str, float]) -> Estimate:
    from pipeline.stages.stage import WAVES

    by_file = [one for receipt in build.receipts("tokenize") for one in receipt.details["by_source_file"]]
    tokens = [one["tokens"] * weights[one["path"]] for one in by_file]
    estimated = sum(tokens)
    census = len({weights[one["path"]] for one in by_file}) == 1
    text_bytes = build.total("index", "text_bytes_out")
    scale = estimated / max(1, build.total("tokenize", "tokens"))
    error = _line_error(build, scale) if census else _draw_error(tokens)
    receipts = [one for wave in WAVES for stage in wave for one in build.receipts(stage)]
    cores = os.cpu_count() or 1
    outputs = {name: round(scale * _exported_bytes(build, name)) for name in build.config.exports.formats()}
    scratch = sum(path.lstat().st_size for path in build.work.rglob("*") if path.is_file())
    removed = build.total("union", "removed_bytes") if build.config.dedup.mode != "none" else 0
    return Estimate(
        sampled_text_bytes=text_bytes,
        scale=scale,
        text_bytes=round(scale * text_bytes),
        tokens=round(estimated),
        tokens_low=max(0, round(estimated - 1.96 * error)),
        tokens_high=round(estimated + 1.96 * error),
        duplicate_share=removed / text_bytes if text_bytes else 0.0,
        cores=cores,
        hours=scale * sum(receipt.seconds for receipt in receipts) / cores / 3600,
        peak_rss_bytes=max(receipt.peak_rss_bytes for receipt in receipts),
        scratch_bytes=round(scale * scratch),
        output_bytes=outputs,
    )


def _exported_bytes(build: Build, format_name: str) -> int:
    """Of the format's files. By their names: a unit may write the files of two formats that hold the same tokens."""
    outputs = [one for receipt in build.receipts("export") for one in receipt.outputs]
    return sum(one.size_bytes for one in outputs if one.name.startswith(f"{format_name}/"))


def _draw_error(tokens: list[float]) -> float:
    """Standard error of a sum of equal, independent draws."""
    draws = len(tokens)
    mean = sum(tokens) / draws
    return math.sqrt(sum((one - mean) ** 2 for one in tokens) * draws / max(1, draws - 1))


def _line_error(build: Build, scale: float) -> float:
    """Standard error when every line was kept with probability 1 / scale (Poisson sampling)."""
    import numpy as np

    from pipeline.tokens.token_shard import open_token_shard

    squares = 0.0
    for shard in build.units("tokenize"):
        ends = np.asarray(open_token_shard(build.folder("tokenize", shard)).ends)
        squares += float((np.diff(ends, prepend=np.uint64(0)).astype(np.float64) ** 2).sum())
    return math.sqrt(squares * scale * max(0.0, scale - 1))


def render_estimate(found: Estimate) -> str:
    """For people."""
    rows = [
        ("sampled", f"{found.sampled_text_bytes:,} bytes of text, 1 in {found.scale:,.1f}"),
        ("text", f"{found.text_bytes:,} bytes"),
        ("tokens", f"{found.tokens:,} ({found.tokens_low:,} to {found.tokens_high:,})"),
        (
            "duplicates",
            f"at least {found.duplicate_share:.1%} of the text (the whole repeats itself more than a sample)",
        ),
        ("time", f"{found.hours:.2f} hours on {found.cores} cores like these"),
        ("memory", f"{found.peak_rss_bytes:,} bytes a worker"),
        ("scratch", f"{found.scratch_bytes:,} bytes in the work folder"),
        *((f"{name}", f"{size:,} bytes") for name, size in found.output_bytes.items()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {said}" for name, said in rows)
