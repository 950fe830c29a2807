"""Lines of a shell that make JSON lines of files that hold something else."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

CSV_ENDINGS = {".csv": ",", ".tsv": "\\t"}
STANDARD_INPUT = "/dev/stdin"
PACKED = {".gz", ".zst", ".zstd", ".xz", ".bz2", ".lz4"}
FROM_CSV = (
    "python3 -c 'import csv, json, sys; csv.field_size_limit(2**31 - 1); [print(json.dumps(row)) for row in"
    ' csv.DictReader(open(sys.argv[1], newline="", encoding="utf-8-sig"), delimiter="{delimiter}")]\''
    " {name} > {stem}.jsonl"
)
FROM_ARRAY = (
    "python3 -c 'import json, sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1],"
    ' encoding="utf-8-sig"))]\' {name} > {stem}.jsonl'
)
FROM_OBJECT = FROM_ARRAY.replace("row in json", "row in [json").replace('-sig"))]', '-sig"))]]')
FROM_TEXT = (
    'python3 -c \'import json, sys; print(json.dumps({{"text": open(sys.argv[1], encoding="utf-8-sig").read()}}))\''
    " {name} > {stem}.jsonl"
)


def conversion_of(name: str, head: bytes = b"") -> tuple[str, str] | None:
    """(what a file without lines of JSON objects is, the shell's line that converts it), by name and first bytes.

    None if neither shows it.
    """
    path = PurePath(name)
    if path.suffix.lower() in PACKED:
        inner = conversion_of(str(path.with_suffix("")), head)
        return inner and (inner[0], f"decompress it; then {inner[1]}")
    ending = path.suffix.lower()
    mark = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if ending in CSV_ENDINGS:
        what, line = "CSV", FROM_CSV
    elif mark.startswith(b"["):
        what, line = "a JSON array", FROM_ARRAY
    elif re.match(rb"\{[ \t\r]*\n", mark):
        what, line = "a JSON object over several lines", FROM_OBJECT
    elif ending in {".txt", ".text"} or (mark and not mark.startswith(b"{")):
        what, line = "text", FROM_TEXT
    else:
        return None
    stem = "stdin" if name == STANDARD_INPUT else shlex.quote(str(path.with_suffix("")) if ending else name)
    return what, line.format(name=shlex.quote(name), stem=stem, delimiter=CSV_ENDINGS.get(ending, ","))
