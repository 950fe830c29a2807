"""What documents that stay have of forgotten texts: in their text, their id or another field. It proves nothing.

Texts, ids and the fields that steps ask for are in the text shards of each stage. The first, index, has the forgotten
documents, too, and a fault may leave them in later ones: nothing of them counts, wherever their lines are. All other
fields are only in the documents that writeback made. A line there whose own text contains a stretch may be a forgotten
document that was left in: none of its fields counts; nor does a shard where a text shard has one, as its text may have
changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import orjson
from msgspec import DecodeError

from corpusmill.builds.forgetting.files import strings_in
from corpusmill.builds.forgetting.finding import Finder, Stretch
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.documents.json_members import find_value
from corpusmill.documents.lines import read_line_blocks
from corpusmill.documents.reading import open_lines
from corpusmill.documents.text_shard import LINE_NUMBER_FILE, SOURCES_FILE, TextShard, open_text_shard
from corpusmill.engine.ledger import DamagedStepError
from corpusmill.kernels.mapping import mapped
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
    return _without(own, _in_documents(build, gone, _finder(own))) if own else own


def texts_after_index(build: Build, shard: str, gone: list[int]) -> Iterator[tuple[TextShard, list[int]]]:
    """(text shard, ordinals in it of the documents `gone`, ascending) of each stage that holds a shard's text after
    forgetting; there must be none. `gone`: ordinals in index, whose texts may be reclaimed.
    """
    lines = _lines_of(build.folder("index", shard, SOURCES_FILE, LINE_NUMBER_FILE), gone)
    for stage in _stages_after_index(build, shard):
        text = open_text_shard(build.folder(stage, shard))
        ordinals: list[int] = []
        for source in text.sources:
            own = text.line_numbers[source.first_document : source.first_document + source.documents]
            ordinals += (np.flatnonzero(np.isin(own, lines[source.path])) + source.first_document).tolist()
        yield text, ordinals


def _lines_of(folder: Path, ordinals: list[int]) -> dict[str, NDArray[np.uint64]]:
    """By source file the 0-based lines of these documents of a text shard."""
    wanted, numbers = np.array(ordinals, np.int64), mapped(folder / LINE_NUMBER_FILE, "<u8")
    lines: dict[str, NDArray[np.uint64]] = {}
    for source in orjson.loads((folder / SOURCES_FILE).read_bytes()):
        low, high = np.searchsorted(wanted, [source["first_document"], source["first_document"] + source["documents"]])
        lines[source["path"]] = numbers[wanted[low:high]]
    return lines


def _stages_after_index(build: Build, shard: str) -> list[str]:
    stages = (filtered_stage, compared_stage, text_stage, final_stage)
    return list(dict.fromkeys(stage(build, shard) for stage in stages))


def _finder(stretches: Iterable[Stretch]) -> Finder:
    return Finder(string for stretch in stretches for string in (stretch.text, *stretch.forms))


def _without(stretches: Iterable[Stretch], strings: set[bytes]) -> tuple[Stretch, ...]:
    return tuple(stretch for stretch in stretches if strings.isdisjoint((stretch.text, *stretch.forms)))


def _in_text_shards(build: Build, gone: Mapping[str, list[int]], finder: Finder) -> set[bytes]:
    strings = set[bytes]()
    for shard in build.units("index"):
        own = gone.get(shard, [])
        for text, ordinals in texts_after_index(build, shard, own):
            strings |= _in_text_shard(text, ordinals, finder)
        if "index" not in _stages_after_index(build, shard):
            with suppress(DamagedStepError):
                strings |= _in_text_shard(open_text_shard(build.folder("index", shard)), own, finder)
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


def _in_documents(build: Build, gone: Mapping[str, list[int]], finder: Finder) -> set[bytes]:
    strings = set[bytes]()
    for shard in build.units("writeback"):
        if shard in gone and any(ordinals for _, ordinals in texts_after_index(build, shard, gone[shard])):
            continue
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
    for number, block in enumerate(read_line_blocks(lines)):
        if finder.find(np.frombuffer(block.data, np.uint8)):
            for start, end in block.spans(first=not number):
                yield block.data[start:end]


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
