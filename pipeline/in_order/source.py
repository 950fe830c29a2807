"""What is read, line by line, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpusmill.errors import ConfigError, RejectedDocumentsError, SourceError
from corpusmill.export.files import whole_file

REJECTED = "rejected.jsonl"


@dataclass(frozen=True)
class Written:
    """One output: its path without ending, and its writer's counts."""

    path: Path
    counts: dict[str, int]


@dataclass
class Source:
    """The files that are read (here, in a bucket, on a hub), what is wanted of their lines, and what was not taken."""

    inputs: list[str]
    keys: tuple[str, ...]
    quarantine: Path
    max_rejected_share: float = 0.001
    ranges_key: str | None = None
    endpoint_url: str | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def read(self, key: str) -> Iterator[Any]:
        """The sequences of a key, file by file in natural order of name; RejectedDocumentsError at the end."""
        from corpusmill.documents.quarantine import append_rejections
        from corpusmill.documents.sequences import read_sequences
        from corpusmill.sources.copies import each_file

        self.rejected, self.lines = Counter(), 0
        with whole_file(self.quarantine) as quarantine:
            for name, lines in each_file(self.inputs, self.endpoint_url):
                with lines as stream:
                    for batch in read_sequences(
                        stream, source=name, key=key, keys=self.keys, ranges_key=self.ranges_key
                    ):
                        self.rejected.update(one.reason.value for one in batch.rejected.rejections)
                        self.lines += len(batch.sequences) + append_rejections(quarantine, batch.rejected)
                        yield batch
        lost = sum(self.rejected.values())
        if lost > self.max_rejected_share * self.lines:
            raise RejectedDocumentsError(
                f"{lost:,} of {self.lines:,} lines are not documents",
                where=self.quarantine,
                expected=f"at most {self.max_rejected_share:.4%}",
                got=", ".join(f"{count:,} {reason}" for reason, count in sorted(self.rejected.items())),
                next_step="mend the source, or allow more with --max-rejected-share if losing these lines is right",
            )


def refuse_there(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            "the output is there already; a trainer's index cache would not notice new content under an old name",
            where=path,
            expected="a new name",
            got=f"{path.stat().st_size:,} bytes",
        )


def require_tokens(source: Source, key: str, counts: dict[str, int]) -> None:
    if not counts["tokens"]:
        raise SourceError(
            "no document has any text",
            where=f"key {key}",
            expected="at least one token",
            got=f"{source.lines:,} lines",
            next_step="check the inputs and the key",
        )
