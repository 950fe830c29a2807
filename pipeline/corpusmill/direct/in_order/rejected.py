"""Sets malformed lines aside in a file, and fails a command that finds too many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import ConfigError, CorruptDataError, RejectedDocumentsError
from corpusmill.export.files import whole_file
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.builds import overlap
    from corpusmill.config import dataset
    from corpusmill.documents import quarantine as documents_quarantine


if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch

REJECTED = "rejected.jsonl"


def rejected_beside(output: Path) -> Path:
    """The file of the lines that an output lacks: {output}.rejected.jsonl."""
    return output.with_name(f"{output.name}.{REJECTED}")


@dataclass
class RejectedLines:
    """The malformed lines among those read so far: `path` gets them, `max_share` of all lines may be malformed."""

    path: Path
    max_share: float = 0.001
    reasons: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def require_own(self, inputs: Iterable[str], option: str) -> None:
        """ConfigError if `path`, which follows from an option, would be read as one of the inputs, or is another file's
        name: a run replaces the rejected lines of an earlier run, and nothing else.
        """
        overlap.require_no_overlap(
            [dataset.absolute_here(path) for path in inputs], [(option, str(self.path.absolute()))], files=True
        )
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as stream:
                next(documents_quarantine.read_quarantine(stream, name=self.path.name), None)
        except (CorruptDataError, OSError) as error:
            raise ConfigError(
                "in_order.rejected_file_of_others: the file for rejected lines exists and holds something else",
                where=self.path,
                expected="no file, or the rejected lines of an earlier run",
                got="another file",
                next_step=f"move it, or choose another {option}",
            ) from error

    @contextmanager
    def collect(self) -> Iterator[Callable[[DocumentBatch, int], None]]:
        """A function that takes the rejections of each batch, and its number of documents.

        RejectedDocumentsError at the end if too many lines were rejected.
        """
        self.reasons, self.lines = Counter(), 0
        with whole_file(self.path) as quarantine:

            def add(batch: DocumentBatch, documents: int) -> None:
                self.reasons.update(rejection.reason.value for rejection in batch.rejections)
                self.lines += documents + documents_quarantine.append_rejections(quarantine, batch)

            yield add
        lost = self.reasons.total()
        if lost > self.max_share * self.lines:
            raise RejectedDocumentsError(
                f"documents.too_many_malformed: {lost:,} of {self.lines:,} lines are malformed",
                where=self.path,
                expected=f"at most {self.max_share:.4%}",
                got=self.render(),
                next_step="fix the source, or allow more with --max-rejected-share if you accept losing these lines",
            )

    def render(self) -> str:
        """Counts by reason, for people."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.reasons.items()))
