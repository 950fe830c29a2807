"""A corpus that every machine with this Python environment already has: the text of its installed distributions.

No network and no licence question: the text is the licences, long descriptions, sources and docstrings of the
distributions that importlib.metadata finds, so the same environment gives the same bytes. It is a fair test of
deduplication, because licences and file headers really do repeat from one distribution to the next.

What is taken (only from a distribution's own RECORD list, only inside its site folder):

    source      id                                       text
    licence     <name>/<version>/<path>                  every licence, copying, notice or copyright file
    readme      <name>/<version>/readme                  the long description in METADATA
    source      <name>/<version>/<path>.py               a module, verbatim
    docstrings  <name>/<version>/docstrings/<path>.py    docstrings of a module, its classes and functions, dedented

Licences come first, then the rest, each round-robin over the distributions in order of their normalised names: one
document per distribution and round, until `target_bytes` are reached. Modules are taken in order of the sha256 of
their path, so that a cut-off favours neither early letters nor large files. Every fourth module gives its docstrings
instead of its source: parsing costs about 1 s per 4 MB of source, and giving both would only repeat the source.
Chosen documents are ordered by id and cut into files of about equal text.

Price: `target_bytes` of memory (texts are held to be ordered; 140 MB in all for 40 MB), about 5 s for 40 MB.

    python deploy/sample_corpus.py FOLDER
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, PackagePath, distributions
from itertools import chain
from pathlib import Path

import orjson
import zstandard

LARGEST_FILE_BYTES = 1_000_000
MODULES_PER_DOCSTRINGS = 4
OWN_NAME = "corpusmill"
LICENCE_NAME = re.compile(r"^(licen[cs]e|copying|notice|copyright)([._-].*)?$", re.IGNORECASE)
LICENCE_ENDINGS = ("", ".txt", ".md", ".rst", ".apache", ".bsd", ".mit", ".apache2")


@dataclass(frozen=True)
class SampleDocument:
    """One line of the corpus."""

    id: str
    source: str
    text: str
    text_bytes: int


# One document that may be taken: reading it yields the document, or None when it is skipped.
Candidate = Callable[[], SampleDocument | None]


def write_sample_corpus(folder: Path, *, target_bytes: int = 40_000_000, files: int = 8) -> None:
    """Write `files` files sample_000.jsonl.zst, ... into `folder`, which is made if missing.

    Lines are {"id", "source", "text"}. Each file is one zstandard frame, level 3, with a checksum. The text exceeds
    `target_bytes` by less than one document, or falls short when the environment has no more.
    """
    documents = collect_documents(distributions(), target_bytes)
    lines: list[list[bytes]] = [[] for _ in range(files)]
    total_bytes = sum(document.text_bytes for document in documents)
    start_byte = 0
    for document in documents:
        line = orjson.dumps({"id": document.id, "source": document.source, "text": document.text})
        lines[start_byte * files // total_bytes].append(line + b"\n")
        start_byte += document.text_bytes
    folder.mkdir(parents=True, exist_ok=True)
    for number, file_lines in enumerate(lines):
        frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(b"".join(file_lines))
        (folder / f"sample_{number:03d}.jsonl.zst").write_bytes(frame)


def collect_documents(installed: Iterable[Distribution], target_bytes: int) -> list[SampleDocument]:
    """Choose documents of the `installed` distributions by the rule above, in order of id.

    Of two distributions with one name the first counts, as for imports. The project itself and editable installs are
    left out, because their files belong to this machine, not to the environment.
    """
    by_name: dict[str, Distribution] = {}
    for distribution in installed:
        name = _normalised_name(distribution)
        if name is not None and not _is_own_or_editable(name, distribution):
            by_name.setdefault(name, distribution)
    candidates = [_candidates(name, by_name[name]) for name in sorted(by_name)]
    licences = [licence_files for licence_files, _ in candidates]
    others = [readme_and_modules for _, readme_and_modules in candidates]

    documents: list[SampleDocument] = []
    text_bytes = 0
    for candidate in chain(_round_robin(licences), _round_robin(others)):
        if text_bytes >= target_bytes:
            break
        document = candidate()
        if document is not None:
            documents.append(document)
            text_bytes += document.text_bytes
    return sorted(documents, key=lambda document: document.id)


def module_docstrings(source: bytes) -> str:
    """Docstrings of a module, its classes and functions in order of appearance, dedented, a blank line between them.

    Raises SyntaxError or ValueError as ast.parse does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's sources
        tree = ast.parse(source)
    docstrings = (ast.get_docstring(node) for node in _documented_nodes(tree))
    return "\n\n".join(docstring for docstring in docstrings if docstring)


def _documented_nodes(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    yield node
    for child in node.body:  # bodies of if and try are not entered: walking every node would double the time
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented_nodes(child)


def _candidates(name: str, distribution: Distribution) -> tuple[deque[Candidate], deque[Candidate]]:
    """The licence files of one distribution by path; then its readme and its modules by the sha256 of their path."""
    prefix = f"{name}/{distribution.version}"
    files = [f for f in distribution.files or () if not f.is_absolute() and ".." not in f.parts]
    licences: deque[Candidate] = deque()
    for file in sorted(files, key=str):
        if LICENCE_NAME.match(file.name) and file.suffix.lower() in LICENCE_ENDINGS:
            licences.append(partial(_read, f"{prefix}/{file}", "licence", file, _verbatim))
    others: deque[Candidate] = deque([partial(_read_readme, f"{prefix}/readme", distribution)])
    modules = (file for file in files if file.suffix == ".py")
    for number, file in enumerate(sorted(modules, key=lambda f: hashlib.sha256(str(f).encode()).digest())):
        if number % MODULES_PER_DOCSTRINGS == MODULES_PER_DOCSTRINGS - 1:
            docstrings_id = f"{prefix}/docstrings/{file}"
            others.append(partial(_read, docstrings_id, "docstrings", file, module_docstrings))
        else:
            others.append(partial(_read, f"{prefix}/{file}", "source", file, _verbatim))
    return licences, others


def _round_robin(queues: list[deque[Candidate]]) -> Iterator[Candidate]:
    waiting = deque(queue for queue in queues if queue)
    while waiting:
        queue = waiting.popleft()
        yield queue.popleft()
        if queue:
            waiting.append(queue)


def _verbatim(content: bytes) -> str:
    return content.decode("utf-8")


def _read(identity: str, source: str, file: PackagePath, extract: Callable[[bytes], str]) -> SampleDocument | None:
    """None for a file without text, and for one that is too large, missing, not UTF-8, or no Python of this version."""
    path = Path(str(file.locate()))
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            return None
        text = extract(path.read_bytes())
        text_bytes = len(text.encode("utf-8"))  # a docstring may spell a lone surrogate
    except (FileNotFoundError, SyntaxError, ValueError, RecursionError):
        return None
    return SampleDocument(identity, source, text, text_bytes) if text_bytes else None


def _read_readme(identity: str, distribution: Distribution) -> SampleDocument | None:
    # importlib.metadata presents the body of METADATA as the header Description, as old versions of the format had it.
    text = next(iter(distribution.metadata.get_all("Description") or ()), "")
    if not text:
        return None
    return SampleDocument(identity, "readme", text, len(text.encode("utf-8")))


def _normalised_name(distribution: Distribution) -> str | None:
    try:
        name = distribution.metadata["Name"]
    except UnicodeDecodeError:
        return None
    if not name:  # the rest of an interrupted uninstall
        return None
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_own_or_editable(name: str, distribution: Distribution) -> bool:
    origin = distribution.read_text("direct_url.json")
    return name == OWN_NAME or bool(origin and json.loads(origin).get("dir_info", {}).get("editable"))


if __name__ == "__main__":
    write_sample_corpus(Path(sys.argv[1]))
