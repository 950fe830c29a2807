"""What a step sees, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Document:
    """One document. `id` is "" if it has none; `file` is its source file, `line` its line there, from 1. `fields`: the
    fields that the step asks for, None where the document lacks one.
    """

    text: str
    id: str = ""
    file: str = ""
    line: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop:
    """Leave the document out. `reason`: at most 64 letters, digits, blanks, `_`, `.` and `-`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the document, optionally with another `text`, or without the `cut` spans of its text: [start, end) in
    characters, which must not overlap. `attributes` are JSON and go into `steps/attributes.jsonl` of the dataset.
    """

    text: str | None = None
    cut: Sequence[tuple[int, int]] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


Answer = bool | str | Drop | Keep | None
"""None and True keep a document as it is; False drops it, with the step's name as the reason; a str is its new text."""

Where = tuple[str, str, int]
"""(id, source file, line from 1) of a document."""

Fields = Callable[[int], Mapping[str, Any]]
"""The fields of a document, by its ordinal, without those that it lacks."""


def _no_fields(_ordinal: int) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Documents for a step that takes many at once. Document i is `text[starts[i] : ends[i]]`, UTF-8.

    `text`          uint8, read-only; there may be other bytes between the documents
    `starts`, `ends`  int64 (documents,)
    `asked`         the names of the fields that the step asks for, which `field` gives
    """

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    where: Callable[[int], Where]
    ordinals: NDArray[np.int64]
    fields_of: Fields = _no_fields
    asked: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> Document:
        """One document. Raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(f"document {number} of a batch of {len(self)}")
        identity, file, line = self.where(int(self.ordinals[number]))
        found = self.fields_of(int(self.ordinals[number])) if self.asked else {}
        return Document(
            self.text_of(number).decode(), identity, file, line, {name: found.get(name) for name in self.asked}
        )

    def field(self, name: str) -> list[Any]:
        """A field of each document, None where one lacks it. KeyError for one that the step does not ask for."""
        if name not in self.asked:
            raise KeyError(name)
        return [self.fields_of(ordinal).get(name) for ordinal in self.ordinals.tolist()]

    def asking(self, names: Sequence[str]) -> Batch:
        """The same documents for a step that asks for these fields."""
        return self if tuple(names) == self.asked else replace(self, asked=tuple(names))

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def text_of(self, number: int) -> bytes:
        """The text of one document, UTF-8."""
        return self.text[self.starts[number] : self.ends[number]].tobytes()

    def taken(self, numbers: NDArray[np.int64]) -> Batch:
        """Some of the documents, in this order."""
        starts, ends = self.starts[numbers], self.ends[numbers]
        return replace(self, starts=starts, ends=ends, ordinals=self.ordinals[numbers])

    def with_texts(self, texts: Mapping[int, bytes]) -> Batch:
        """The batch with other texts for some documents."""
        if not texts:
            return self
        numbers = np.fromiter(texts, np.int64, len(texts))
        lengths = np.fromiter(map(len, texts.values()), np.int64, len(texts))
        ends = len(self.text) + np.cumsum(lengths)
        starts, new_ends = self.starts.copy(), self.ends.copy()
        starts[numbers], new_ends[numbers] = ends - lengths, ends
        text = np.concatenate([self.text, np.frombuffer(b"".join(texts.values()), np.uint8)])
        return replace(self, text=text, starts=starts, ends=new_ends)


@dataclass(frozen=True, slots=True, eq=False)
class Reasons:
    """The answer of a step that decides with arrays: `codes`, integers (documents,), are 0 for a document that is kept
    and n for one dropped for `reasons[n - 1]`."""

    reasons: tuple[str, ...]
    codes: NDArray[Any]


def batch_of_texts(
    texts: Sequence[str | bytes],
    where: Callable[[int], Where] | None = None,
    fields: Sequence[Mapping[str, Any]] | None = None,
) -> Batch:
    """A batch of separate texts, for tests of steps and for files without a build. `fields`: of each document, all of
    which a step may see.
    """
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    whole = np.frombuffer(b"".join(encoded), np.uint8)
    place_of = where or (lambda ordinal: ("", "", ordinal + 1))
    batch = Batch(whole, ends - lengths, ends, place_of, np.arange(len(encoded), dtype=np.int64))
    if fields is None:
        return batch
    asked = tuple(sorted({name for found in fields for name in found}))
    return replace(batch, fields_of=fields.__getitem__, asked=asked)
