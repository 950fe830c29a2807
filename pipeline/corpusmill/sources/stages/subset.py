"""What stages have in common that leave out or rewrite documents of a text shard (documents/text_shard_subset.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.engine.ledger import Check, Receipt
from corpusmill.engine.stage import Recount
from corpusmill.kernels.content import ContentSum
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.stages.index import text_total

with lazily:
    import numpy as np

    from corpusmill.documents import text_shard, text_shard_subset
    from corpusmill.kernels import content_kernels
    from corpusmill.report import histograms


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build


def account_of_subset(
    text: TextShard, unit: str, folder: Path, gone: NDArray[np.int64], parts: Mapping[str, NDArray[np.int64]]
) -> tuple[dict[str, int], dict[str, object]]:
    """Counts and details of the text shard in `folder`, which was made of `text`. Its texts are read again.

    `gone`: the ordinals of the documents that it lacks; `parts`: those of all that it lacks or that have another text,
    by name. `{name}_content` sums them as they were, `kept_content` the others, each weighted by its place in `text`.
    """
    kept = text_shard.open_text_shard(folder)
    bounds, shard = kept.bounds(0, kept.documents), int(unit)
    stays = np.delete(np.arange(text.documents), gone)
    same = np.flatnonzero(np.isin(stays, np.concatenate([*parts.values()]), invert=True))
    contents = {
        "content": content_kernels.texts_sum(kept.text, bounds, 1, shard, 0),
        "kept_content": text_shard_subset.content_at(kept, same, stays[same], shard),
        **{f"{name}_content": text_shard_subset.content_at(text, own, own, shard) for name, own in parts.items()},
    }
    sizes = histograms.power_histogram(np.diff(bounds).astype(np.int64) - 1)
    details: dict[str, object] = {name: str(content) for name, content in contents.items()}
    counts = {"documents_out": kept.documents, "text_bytes_out": kept.text_bytes}
    return counts, {**details, "document_bytes": sizes.model_dump()}


def checks_of_subset(name: str, was: str, before: Receipt, receipt: Receipt, gone: str, counted: str) -> list[Check]:
    """The content, documents and bytes of the stage before, called `was`, equal those kept and those of part `gone`,
    whose counts end in `counted`.
    """
    contents, label = receipt.details, gone.replace("_", " ")
    parts = ((what, ContentSum.parse(contents[f"{of}_content"])) for what, of in (("kept", "kept"), (label, gone)))
    texts = Check(name, ((was, ContentSum.parse(before.details["content"])),), tuple(parts))
    rows = [(of, f"{of}_out", receipt.counts[f"{of}_{counted}"]) for of in ("documents", "text_bytes")]
    return [
        texts,
        *(
            Check(
                of.replace("_", " "), ((was, before.counts[out]),), (("kept", receipt.counts[out]), (label, left_out))
            )
            for of, out, left_out in rows
        ),
    ]


def recount_subset(unit: str, folder: Path, counts: dict[str, int]) -> Recount:
    """`counts`, and what the text shard of a step that left out documents holds."""
    text = text_shard.open_text_shard(folder)
    content = content_kernels.texts_sum(text.text, text.bounds(0, text.documents), 1, int(unit), 0)
    counts = {"documents_out": text.documents, "text_bytes_out": text.text_bytes, **counts}
    return Recount(counts, {"content": str(content)})


def flows_of_subset(build: Build, stage: str, before: Callable[[Build, str], str], reason: str) -> dict[str, Flow]:
    """The flows of a stage that leaves out documents of the text of the stage `before`, for one reason."""
    flows = {}
    for name in ("documents", "text_bytes"):
        into, out = text_total(build, f"{name}_out", before), build.total(stage, f"{name}_out")
        flows[name] = Flow(into=into, out=out, lost={reason: into - out} if into > out else {})
    return flows
