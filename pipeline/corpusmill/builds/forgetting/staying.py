"""What documents that stay have of forgotten texts: in their text, their id or another field. It proves nothing.

Texts, ids and the fields that steps ask for are in the text shards of each stage. The first, index, has the forgotten
documents, too: those are left out. All other fields are only in the documents that writeback made. A line there whose
own text contains a stretch may be a forgotten document that was left in: none of its fields counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from msgspec import DecodeError

from corpusmill.builds.forgetting.files import strings_in
from corpusmill.builds.forgetting.finding import Finder, Stretch
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.documents.json_members import find_value
from corpusmill.documents.lines import read_line_blocks
from corpusmill.documents.reading import open_lines
from corpusmill.documents.text_shard import TextShard, open_text_shard
from corpusmill.engine.ledger import DamagedStepError
from corpusmill.sources.stages.index import compared_stage, filtered_stage, final_stage, text_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.engine.build import Build


def own_stretches(build: Build, stretches: Sequence[Stretch], gone: Mapping[str, list[int]]) -> tuple[Stretch, ...]:
    """The stretches that no remaining document has in any form, whether it is kept or dropped for other reasons.

    Samples and reports contain excerpts of dropped documents. `gone`: by shard the ordinals in index of forgotten
    documents, ascending. Texts that were reclaimed cannot be checked.
    """
    own = _without(stretches, _in_text_shards(build, gone, _finder(stretches)))
    return _without(own, _in_documents(build, _finder(own))) if own else own


def _finder(stretches: Iterable[Stretch]) -> Finder:
    return Finder(string for stretch in stretches for string in (stretch.text, *stretch.forms))


def _without(stretches: Iterable[Stretch], strings: set[bytes]) -> tuple[Stretch, ...]:
    return tuple(stretch for stretch in stretches if strings.isdisjoint((stretch.text, *stretch.forms)))


def _in_text_shards(build: Build, gone: Mapping[str, list[int]], finder: Finder) -> set[bytes]:
    strings = set[bytes]()
    for shard in build.units("index"):
        stages = {stage(build, shard) for stage in (filtered_stage, compared_stage, text_stage, final_stage)}
        for stage in stages:
            strings |= _in_text_shard(open_text_shard(build.folder(stage, shard)), [], finder)
        if "index" not in stages:
            with suppress(DamagedStepError):
                indexed = open_text_shard(build.folder("index", shard))
                strings |= _in_text_shard(indexed, gone.get(shard, []), finder)
    return strings


def _in_text_shard(text: TextShard, gone: list[int], finder: Finder) -> set[bytes]:
    """The strings in texts, ids and fields of all documents but those in `gone`."""
    columns = [(text.text, text.bounds(0, text.documents))]
    columns += [
        (strings.data, np.append(np.uint64(0), strings.ends))
        for strings in (text.document_ids(), text.document_fields())
        if strings is not None
    ]
    return {
        string
        for data, bounds in columns
        for before, ordinal in pairwise([-1, *gone, text.documents])
        for string in finder.find(data[int(bounds[before + 1]) : int(bounds[ordinal])])
    }


def _in_documents(build: Build, finder: Finder) -> set[bytes]:
    strings = set[bytes]()
    for shard in build.units("writeback"):
        # What is damaged proves nothing, and is another finding.
        with suppress(DamagedStepError), build.opened("writeback", shard) as folder:
            for path in sorted(path for path in (folder / FOLDER).rglob("*") if path.is_file()):
                with path.open("rb") as file:
                    if not strings_in(file, finder, where=path):
                        continue
                    file.seek(0)
                    strings |= strings_of_other_fields(
                        open_lines(file, str(path)), build.config.source.text_field, finder
                    )
    return strings


def strings_of_other_fields(lines: BinaryIO, text_field: str, finder: Finder) -> set[bytes]:
    """The strings of a finder in lines whose text contains none."""
    return {string for line in _lines_with(lines, finder) for string in _of_other_fields(line, text_field, finder)}


def _lines_with(lines: BinaryIO, finder: Finder) -> Iterator[bytes]:
    """The lines of those blocks that contain a string."""
    for block in read_line_blocks(lines):
        if finder.find(np.frombuffer(block.data, np.uint8)):
            yield from block.data.split(b"\n")


def _of_other_fields(line: bytes, text_field: str, finder: Finder) -> set[bytes]:
    data: NDArray[np.uint8] = np.frombuffer(line, np.uint8)
    if not (strings := finder.find(data)):
        return strings
    try:
        place = find_value(line, text_field)
    except DecodeError:
        place = None
    if place is None or finder.find(data[slice(*place)]):
        return set()
    return strings
