"""Several Megatron parts as one, several Nanoset files as one: the tokens concatenated, the indexes rebuilt.

In:  parts in their final order (nothing is sorted here: by name, p10 would come before p2).
Out: one part or file, byte for byte what writing all documents at once would have given; the inputs stay.

Source: Megatron-LM tools/merge_datasets.py; datatrove pipeline/tokens/merger.py with shuffle=False.

Price: the tokens are copied once, by the kernel: mapped window by window, and written where space was reserved before.
On ext4 that takes 0.7 of the CPU time of copy_file_range, which cp uses and which moves pages through a pipe (its block
sharing would need parts that are whole blocks long). A merge of 4 GB runs at 0.9 of cp's speed, the start of Python
included (benchmarks/merge.py). Memory is a window and a block of the index, however many documents there are
(Megatron's tool holds 136 bytes a document at its peak).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from corpusmill.errors import ConfigError, MissingConfigError, MissingSourceError, SourceError
from corpusmill.export import megatron, nanoset
from corpusmill.export.checks import blocks
from corpusmill.export.files import file_bytes, whole_file
from corpusmill.inspect.datasets.complete import require_complete, require_one_version, require_one_vocabulary
from corpusmill.storage.locations import natural_order

WINDOW_BYTES = 4 << 20  # mapped at once
WRITE_BYTES = 256 << 10  # with 1 MiB and more, ext4 was measured up to four times slower
SUFFIXES = (".bin", ".ds")
HALVES = (".bin", ".idx", ".ds.index", ".ds.metadata", ".ds.loss")  # files of a part that a glob names beside it


def merge_exports(inputs: Sequence[Path], output: Path) -> dict[str, int]:
    """Merge Megatron prefixes (or their .bin or .idx), `.ds` files, or folders of either.

    A folder's parts are taken in natural order (p2 before p10), others as given. Several files of one part, as a glob
    names them, count once. SourceError for a part that is named twice, ConfigError for parts of two copies or versions
    of one dataset, VerificationError for a folder of a finished dataset that lacks a file. See merge_parts and
    merge_files.
    """
    for path in inputs:
        named = path.is_dir() or (path.exists() and path.name.endswith((".ds", *HALVES)))
        if not named and not any(path.with_name(path.name + half).exists() for half in HALVES):
            raise MissingSourceError(
                "merge.no_part: there is no such part, or it is a file of another format",
                where=path,
                expected="a folder, a prefix with its .bin and .idx, or a .ds file",
                next_step="corpusmill merge outputs/web/latest/megatron --output all_text_document",
            )
    paths = _parts([path for folder in inputs for path in (_parts_of(folder) if folder.is_dir() else [folder])])
    require_complete([*(folder for folder in inputs if folder.is_dir()), *paths])
    require_one_version(paths)
    if output.suffix == ".ds" or (paths and all(path.suffix == ".ds" for path in paths)):
        return merge_files(paths, output.with_name(output.name.removesuffix(".ds") + ".ds"))
    return merge_parts(paths, _prefix(output))


def _parts(paths: Sequence[Path]) -> list[Path]:
    """Prefixes and `.ds` files in order, each once."""
    named: dict[Path, list[Path]] = {}
    for path in paths:
        part = _prefix(path)
        ending = part.suffix if part.suffix == ".ds" else ".bin"
        named.setdefault(part.with_name(part.name.removesuffix(ending) + ending).resolve(), []).append(path)
    for same in named.values():
        # A prefix names all files of its part.
        if len({path.name for path in same}) < len(same) or (len(same) > 1 and any(_is_prefix(path) for path in same)):
            raise SourceError(
                "merge.part_twice: a part is named twice, so its documents would appear twice",
                where=", ".join(map(str, same)),
                got=same[0],
                next_step="name every part once, directly or by a folder",
            )
    return [_prefix(same[0]) for same in named.values()]


def _prefix(path: Path) -> Path:
    """The prefix of a Megatron part, or the `.ds` file, that a file belongs to."""
    return path.with_suffix("") if path.name.endswith(HALVES) else path


def _is_prefix(path: Path) -> bool:
    return _prefix(path) == path and path.suffix != ".ds"


def _parts_of(folder: Path) -> list[Path]:
    paths_by_suffix = {
        suffix: sorted(folder.glob(f"*{suffix}"), key=lambda path: natural_order(path.name)) for suffix in SUFFIXES
    }
    if sum(map(bool, paths_by_suffix.values())) != 1:
        raise MissingConfigError(
            "merge.several_formats: the folder must hold parts of one format",
            where=folder,
            expected=".bin and .idx files, or .ds files",
            got=" and ".join(f"{len(paths)} {suffix}" for suffix, paths in paths_by_suffix.items()) + " files",
        )
    return paths_by_suffix[".bin"] or paths_by_suffix[".ds"]


def merge_parts(prefixes: Sequence[Path], output: Path) -> dict[str, int]:
    """Merge Megatron parts (paths without extension) into `<output>.bin` and `<output>.idx`.

    Parts may hold several sequences a document and empty documents; boundaries keep them. Returns parts, sequences,
    documents and tokens. ConfigError for no part, for an output that is there, for parts of different widths or of
    datasets with different vocabularies; VerificationError for a part whose index is damaged or that of another file.
    """
    _require_new(prefixes, output, (".bin", ".idx"))
    parts = [megatron.open_part(prefix) for prefix in prefixes]
    dtype = parts[0].tokens.dtype
    require_one_vocabulary([part.index_path for part in parts])
    for part in parts:
        if part.tokens.dtype != dtype:
            raise _differ(
                "merge.widths_differ: parts have different widths",
                parts[0].index_path,
                dtype,
                part.index_path,
                part.tokens.dtype,
            )
    sequences = sum(len(part) for part in parts)
    boundaries = 1 + sum(part.boundaries.size - 1 for part in parts)
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output.with_name(output.name + ".idx")) as index:
        index.write(
            megatron.HEADER.pack(megatron.MAGIC, megatron.VERSION, megatron.CODES[dtype], sequences, boundaries)
        )
        for part in parts:
            for lengths in blocks(part.lengths):
                index.write(lengths.data)
        position_bytes = 0
        for part in parts:
            for lengths in blocks(part.lengths):
                sizes = lengths.astype("<i8") * dtype.itemsize
                ends = np.cumsum(sizes) + position_bytes
                index.write((ends - sizes).data)
                position_bytes = int(ends[-1])
        index.write(np.zeros(1, "<i8").data)
        first_sequence = 0
        for part in parts:
            for ends in blocks(part.boundaries[1:]):
                index.write((ends + first_sequence).astype("<i8").data)
            first_sequence += len(part)
        with whole_file(output.with_name(output.name + ".bin")) as data:
            _concatenate([part.data_path for part in parts], data)
    return {
        "parts": len(parts),
        "sequences": sequences,
        "documents": boundaries - 1,
        "tokens": position_bytes // dtype.itemsize,
    }


def merge_files(paths: Sequence[Path], output: Path) -> dict[str, int]:
    """Merge `.ds` files, with their indexes, metadata and loss masks, into `output` (a path that ends in `.ds`).

    Returns parts, documents and tokens. ConfigError for no file, for an output that is there, for files of different
    tokenizers or widths, for loss masks beside some files only or of another length than the tokens; VerificationError
    for a file whose index or metadata is damaged or that of another file.
    """
    _require_new(paths, output, ("", ".index", ".metadata", ".loss"))
    files = [nanoset.open_file(path) for path in paths]
    first = files[0]
    require_one_vocabulary(paths)
    for file in files:
        actual, expected = (f"{part.tokenizer_name}|{part.tokens.dtype.itemsize}" for part in (file, first))
        if actual != expected:
            raise _differ(
                "merge.tokenizers_differ: tokenizers or widths of files differ", first.path, expected, file.path, actual
            )
    masks = _loss_masks(files)
    tokens = sum(file.total_tokens for file in files)
    output.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as written:
        metadata = written.enter_context(whole_file(nanoset.metadata_path(output)))
        index = written.enter_context(whole_file(nanoset.index_path(output)))
        if masks:
            _concatenate(masks, written.enter_context(whole_file(nanoset.loss_path(output))))
        position = 0
        for file in files:
            for ends in blocks(file.ends):
                index.write((ends + np.uint64(position)).astype("<u8").data)
            position += file.total_tokens
        metadata.write(nanoset.metadata_text(first.tokenizer_name, first.tokens.dtype.itemsize, tokens))
        with whole_file(output) as data:
            _concatenate([file.path for file in files], data)
    return {"parts": len(files), "documents": sum(len(file) for file in files), "tokens": tokens}


def _loss_masks(files: Sequence[nanoset.NanosetFile]) -> list[Path]:
    """The loss masks beside the files, one byte a token; empty if no file has one."""
    masks = [path for file in files if (path := nanoset.loss_path(file.path)).exists()]
    if masks and len(masks) < len(files):
        bare = next(file.path for file in files if not nanoset.loss_path(file.path).exists())
        raise ConfigError(
            "merge.loss_mask_missing: some files have a loss mask and some do not: masked tokens would be trained on",
            where=bare,
            expected=f"{nanoset.loss_path(bare).name}, as {masks[0].name}",
            got="no mask",
            next_step="write the missing masks (1 for every token to train on), or remove all of them",
        )
    for path, file in zip(masks, files, strict=False):
        if path.stat().st_size != file.tokens.size:
            raise ConfigError(
                "merge.loss_mask_differs: a loss mask does not match its tokens",
                where=path,
                expected=f"{file.tokens.size:,} bytes, one per token",
                got=f"{path.stat().st_size:,} bytes",
                next_step="write it again; nothing was merged",
            )
    return masks


def _concatenate(paths: Sequence[Path], data: BinaryIO) -> None:
    """Write whole files one after another into an empty one; memory is a window of one."""
    sizes = [file_bytes(path) for path in paths]
    if sum(sizes) and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(data.fileno(), 0, sum(sizes))  # a full disk fails here, not hours later
    for path, size_bytes in zip(paths, sizes, strict=True):
        with path.open("rb", buffering=0) as source:
            for first in range(0, size_bytes, WINDOW_BYTES):
                _write_window(source, first, min(WINDOW_BYTES, size_bytes - first), data)
    data.seek(0, os.SEEK_END)


def _write_window(source: BinaryIO, first: int, size_bytes: int, data: BinaryIO) -> None:
    """Append bytes [first, first + size_bytes) of a file; ValueError if the file has become shorter."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    with (
        mmap.mmap(source.fileno(), size_bytes, flags=flags, prot=mmap.PROT_READ, offset=first) as mapped,
        memoryview(mapped) as window,
    ):
        written = 0
        while written < size_bytes:
            with window[written : written + WRITE_BYTES] as piece:
                written += os.write(data.fileno(), piece)


def _differ(what: str, first: Path, expected: object, other: Path, got: object) -> ConfigError:
    return ConfigError(
        what,
        where=other,
        expected=f"{expected}, as {first}",
        got=got,
        next_step="merge only parts of one tokenizer and vocabulary",
    )


def _require_new(inputs: Sequence[Path], output: Path, suffixes: tuple[str, ...]) -> None:
    """ConfigError if there is nothing to merge, or a file of the output exists."""
    if not inputs:
        raise ConfigError(
            "merge.nothing: there is nothing to merge", where=output, expected="at least one part", got="none"
        )
    existing = [path for suffix in suffixes if (path := output.with_name(output.name + suffix)).exists()]
    if existing:
        raise ConfigError(
            "output.exists: the output already exists; a trainer's index cache would not notice new content under an"
            " old name",
            where=existing[0],
            expected="a new name",
            got=f"{existing[0].stat().st_size:,} bytes",
        )
