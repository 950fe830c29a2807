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
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, PackagePath, distributions
from itertools import chain
from pathlib import Path

import orjson
import zstandard

from corpusmill.errors import ConfigError, full_device_explained
from corpusmill.storage.output_folder import OutputFolder

LARGEST_FILE_BYTES = 1_000_000
MODULES_PER_DOCSTRINGS = 4
OWN_NAME = "corpusmill"
LICENCE_NAME = re.compile(r"^(licen[cs]e|copying|notice|copyright)([._-].*)?$", re.IGNORECASE)
LICENCE_ENDINGS = ("", ".txt", ".md", ".rst", ".apache", ".bsd", ".mit", ".apache2")


@dataclass(frozen=True)
class SampleCounts:
    """What `write_sample_corpus` wrote."""

    files: tuple[str, ...]
    distributions: int
    documents: dict[str, int]
    text_bytes: dict[str, int]


@dataclass(frozen=True)
class SampleDocument:
    """One line of the corpus."""

    id: str
    source: str
    text: str
    text_bytes: int


# One document that may be taken: reading it yields the document, or None when it is skipped (and counted).
Candidate = Callable[[], SampleDocument | None]


def write_sample_corpus(folder: Path, *, target_bytes: int = 40_000_000, files: int = 8) -> SampleCounts:
    """Write `files` files sample_000.jsonl.zst, ... into `folder` and return what they hold.

    Lines are {"id", "source", "text"}. Each file is one zstandard frame, level 3, with a checksum, and appears under
    its name only when complete. Files of an earlier call with more `files` are removed (output_folder.py). The text
    exceeds `target_bytes` by less than one document, or falls short when the environment has no more.

    Raises ConfigError when `target_bytes` or `files` is not positive, or `files` does not fit three digits, or when
    `folder` holds other files; StorageFullError when the device is full.
    """
    if target_bytes < 1 or not 1 <= files <= 1000:
        raise ConfigError(
            "the sample corpus cannot be cut that way",
            expected="target_bytes of at least 1, and 1 to 1000 files",
            got=f"target_bytes {target_bytes}, files {files}",
        )
    output = OutputFolder(str(folder.absolute()), "sample-corpus")
    documents, _, collected = collect_documents(distributions(), target_bytes)
    names = tuple(f"sample_{number:03d}.jsonl.zst" for number in range(files))
    output.replace(["installed distributions"], names)

    lines: list[list[bytes]] = [[] for _ in range(files)]
    total_bytes = sum(document.text_bytes for document in documents)
    start_byte = 0
    for document in documents:
        line = orjson.dumps({"id": document.id, "source": document.source, "text": document.text})
        lines[start_byte * files // total_bytes].append(line + b"\n")
        start_byte += document.text_bytes
    next_step = "free space on that device, then run the command again"
    with full_device_explained("no space left for the sample corpus", where=folder, next_step=next_step):
        for name, file_lines in zip(names, lines, strict=True):
            frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(b"".join(file_lines))
            output.store.receive_bytes(frame, name)

    text_bytes: Counter[str] = Counter()
    for document in documents:
        text_bytes[document.source] += document.text_bytes
    counts = Counter(document.source for document in documents)
    return SampleCounts(names, collected, _sorted(counts), _sorted(text_bytes))


def collect_documents(
    installed: Iterable[Distribution], target_bytes: int
) -> tuple[list[SampleDocument], Counter[str], int]:
    """Choose documents of the `installed` distributions by the rule above.

    Returns the documents in order of id, the number of skipped files by reason, and the number of distributions found.
    Of two distributions with one name the first counts, as for imports. The project itself and editable installs are
    left out, because their files belong to this machine, not to the environment.
    """
    skipped: Counter[str] = Counter()
    by_name: dict[str, Distribution] = {}
    for distribution in installed:
        name = _normalised_name(distribution, skipped)
        if name is not None and not _is_own_or_editable(name, distribution):
            by_name.setdefault(name, distribution)
    candidates = [_candidates(name, by_name[name], skipped) for name in sorted(by_name)]
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
    documents.sort(key=lambda document: document.id)
    return documents, skipped, len(by_name)


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


def _candidates(
    name: str, distribution: Distribution, skipped: Counter[str]
) -> tuple[deque[Candidate], deque[Candidate]]:
    """The licence files of one distribution by path; then its readme and its modules by the sha256 of their path."""
    prefix = f"{name}/{distribution.version}"
    files = [f for f in distribution.files or () if not f.is_absolute() and ".." not in f.parts]
    licences: deque[Candidate] = deque()
    for file in sorted(files, key=str):
        if LICENCE_NAME.match(file.name) and file.suffix.lower() in LICENCE_ENDINGS:
            licences.append(partial(_read, f"{prefix}/{file}", "licence", file, _verbatim, skipped))
    others: deque[Candidate] = deque([partial(_read_readme, f"{prefix}/readme", distribution)])
    modules = (file for file in files if file.suffix == ".py")
    for number, file in enumerate(sorted(modules, key=lambda f: hashlib.sha256(str(f).encode()).digest())):
        if number % MODULES_PER_DOCSTRINGS == MODULES_PER_DOCSTRINGS - 1:
            docstrings_id = f"{prefix}/docstrings/{file}"
            others.append(partial(_read, docstrings_id, "docstrings", file, module_docstrings, skipped))
        else:
            others.append(partial(_read, f"{prefix}/{file}", "source", file, _verbatim, skipped))
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


def _read(
    identity: str, source: str, file: PackagePath, extract: Callable[[bytes], str], skipped: Counter[str]
) -> SampleDocument | None:
    path = Path(str(file.locate()))
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            skipped["larger than 1 MB"] += 1
            return None
        text = extract(path.read_bytes())
        text_bytes = len(text.encode("utf-8"))  # a docstring may spell a lone surrogate
    except FileNotFoundError:
        skipped["listed but missing"] += 1
    except UnicodeError:
        skipped["not UTF-8"] += 1
    except (SyntaxError, ValueError, RecursionError):
        skipped["not Python of this version"] += 1
    else:
        if text_bytes:
            return SampleDocument(identity, source, text, text_bytes)
        skipped["no text"] += 1
    return None


def _read_readme(identity: str, distribution: Distribution) -> SampleDocument | None:
    # importlib.metadata presents the body of METADATA as the header Description, as old versions of the format had it.
    text = next(iter(distribution.metadata.get_all("Description") or ()), "")
    if not text:
        return None
    return SampleDocument(identity, "readme", text, len(text.encode("utf-8")))


def _normalised_name(distribution: Distribution, skipped: Counter[str]) -> str | None:
    try:
        name = distribution.metadata["Name"]
    except UnicodeDecodeError:
        skipped["not UTF-8"] += 1
        return None
    if not name:  # the rest of an interrupted uninstall
        return None
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_own_or_editable(name: str, distribution: Distribution) -> bool:
    origin = distribution.read_text("direct_url.json")
    return name == OWN_NAME or bool(origin and json.loads(origin).get("dir_info", {}).get("editable"))


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
