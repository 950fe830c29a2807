"""Names for the parts of a cut file: no source and no folder of sources has them.

    big.jsonl    big.part00000.jsonl  big.part00001.jsonl ...
                 big.part_00000.jsonl ...   if the sources hold a big.part<number>.jsonl, whatever its number
                 big.part__00000.jsonl ...  if they hold a big.part_<number>.jsonl, too

The number is ignored so that a file that grows keeps the names of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate

from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS, ending_of

ENDINGS = (*SOURCE_ENDINGS, *NAMED_ENDINGS, "")
PART = re.compile(rf"(.*)\.(part_*)[0-9]{{5,}}((?i:{'|'.join(map(re.escape, ENDINGS))}))", re.DOTALL)

Taken = set[tuple[str, str]]
"""(name of a file, word that its parts cannot have before their number)."""


def taken_names(sources: Iterable[str]) -> Taken:
    """The names that parts cannot have, because source files or folders have them."""
    paths = {path for name in sources for path in accumulate(name.split("/"), "{}/{}".format)}
    matches = (PART.fullmatch(path) for path in paths)
    return {(match[1] + match[3], match[2]) for match in matches if match}


def part_name(name: str, number: int, taken: Taken) -> str:
    """The name of a part: its number precedes the ending, which still states how to read it."""
    ending = name[len(name) - len(ending_of(name)) :]
    word = "part"
    while (name, word) in taken:
        word += "_"
    return f"{name.removesuffix(ending)}.{word}{number:05d}{ending}"
