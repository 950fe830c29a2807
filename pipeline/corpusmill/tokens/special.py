"""Chooses the special ids between, before and after documents: those of the configuration, or the tokenizer's own.

The token that ends a text, if the configuration names none, is the first of

    1  the one special token of EOT_TOKENS that the tokenizer has
    2  with none of those: the one special token of OTHER_EOT_TOKENS
    3  the eos_token of the files beside a tokenizer.json, among several of 1 or of 2 if there are some

Chat models state the token that ends a turn there (Qwen <|im_end|>, Llama-3 <|eot_id|>), so the tables come first. BOS
and padding are the one token of their table that the tokenizer has as a special token, else none, and EOT.

    NeoX  <|endoftext|> 0, <|padding|> 1      Llama-3  <|end_of_text|> 128001      cl100k  <|endoftext|> 100257

The files beside a tokenizer.json, which also state the number of ids with embeddings:

    tokenizer_config.json     "eos_token": "</s>", or {"content": "</s>", ...}
    generation_config.json    "eos_token_id": 2, or [2, 32000]
    config.json               "vocab_size": 32000, or "text_config": {"vocab_size": 32000}

A pinned sha256 covers only the tokenizer.json, so a build keeps the values from these files in its lock.

`special_ids: tokshuf` gives what DCLM's tokshuf writes whatever the tokenizer: EOT 0 (in Llama-3 that is "!"), padding
two above the number of ids of model and special tokens (NeoX 50256, which is also 22 spaces; Llama-3 128258, which an
embedding of 128,256 rows does not have).
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpusmill.errors import TokenizerError
from corpusmill.tokens.vocabulary import VocabularyFile, path_beside

if TYPE_CHECKING:
    from corpusmill.tokens.references import Reference

EOT_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
OTHER_EOT_TOKENS = ("<EOS_TOKEN>", "<EOT>", "[EOS]", "<|eos|>", "[SEP]")  # Command R, Claude, Kimi, Hunyuan, BERT
BOS_TOKENS = ("<|begin_of_text|>", "<s>", "<bos>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>")
PAD_TOKENS = ("<|padding|>", "<pad>", "<|pad|>", "<|finetune_right_pad_id|>")
SHOWN_TOKENS = 8


@dataclass(frozen=True)
class SpecialIds:
    """EOT separates documents, BOS (None: there is none) opens them, padding fills the last context."""

    eot_id: int
    bos_id: int | None
    pad_id: int


def choose_special_ids(
    reference: Reference,
    name: str,
    *,
    eot: str | None = None,
    bos: str | None = None,
    pad: str | None = None,
    stated_eot: str = "",
    tokshuf: bool = False,
) -> SpecialIds:
    """The special ids of a tokenizer; the three token strings override its own. `stated_eot`: what ending_token used.

    Raises TokenizerError for a token that the tokenizer does not have, and if it has no EOT, or several.
    """
    if tokshuf:
        bos_id = _named(reference, name, "bos", bos, BOS_TOKENS)
        return SpecialIds(eot_id=0, bos_id=bos_id, pad_id=reference.ordinary_ids() + 2)
    eot = eot or ending_token(reference.special_tokens, stated_eot)
    if eot is None:
        raise _no_ending(reference, name, stated_eot)
    eot_id = _named(reference, name, "eot", eot, ())
    assert eot_id is not None  # noqa: S101 (a named token has an id, or raises)
    bos_id = _named(reference, name, "bos", bos, BOS_TOKENS)
    pad_id = _named(reference, name, "pad", pad, PAD_TOKENS)
    return SpecialIds(eot_id, bos_id, eot_id if pad_id is None else pad_id)


def ending_candidates(special_tokens: Container[str]) -> list[str]:
    """The special tokens that end a text in some known tokenizer, of the first table that has one."""
    tables = ([token for token in table if token in special_tokens] for table in (EOT_TOKENS, OTHER_EOT_TOKENS))
    return next(filter(None, tables), [])


def ending_token(special_tokens: Container[str], stated_eot: str) -> str | None:
    """The token that ends a text, of a tokenizer with these special tokens; None if it is ambiguous or unknown.

    `stated_eot` is the eos_token of the files beside the tokenizer, "" if they state none.
    """
    candidates = ending_candidates(special_tokens)
    if len(candidates) == 1:
        return candidates[0]
    return stated_eot if stated_eot and (not candidates or stated_eot in candidates) else None


def _no_ending(reference: Reference, name: str, stated_eot: str) -> TokenizerError:
    candidates = ending_candidates(reference.special_tokens)
    tokens = candidates or [token for token in sorted(reference.special_tokens) if "e" in token.lower()][:SHOWN_TOKENS]
    return TokenizerError(
        f"tokenizer.several_eot: {len(candidates)} tokens of this tokenizer could end a text"
        if candidates
        else "tokenizer.no_eot: no token is known to end a text",
        where=f"tokenizer.name: {name}",
        expected="one special token of a known name, or an eos_token in the tokenizer_config.json beside the file",
        got=f"special tokens {_some(reference)}",
        next_step=f"set tokenizer.eot: {' or '.join(tokens) or 'the token that separates documents'}",
        details=(("stated", f"eos_token {stated_eot}"),) if stated_eot else (),
    )


def _named(reference: Reference, name: str, key: str, stated: str | None, own: Sequence[str]) -> int | None:
    if stated is not None:
        number = reference.id_of(stated)
        if number is None:
            raise TokenizerError(
                f"tokenizer.no_such_token: the tokenizer has no token {stated!r}",
                where=f"tokenizer.{key}, tokenizer.name: {name}",
                expected=f"one of its tokens, such as {_some(reference)}",
            )
        return number
    ids = [reference.special_tokens[token] for token in own if token in reference.special_tokens]
    return ids[0] if len(ids) == 1 else None


def _some(reference: Reference) -> str:
    names = sorted(reference.special_tokens, key=lambda token: reference.special_tokens[token])
    return ", ".join(names[:SHOWN_TOKENS]) + (" ..." if len(names) > SHOWN_TOKENS else "") if names else "(none)"


def stated_eot(file: VocabularyFile, name: str) -> str:
    """The token that ends a text by the files beside a tokenizer.json; "" if its own special tokens determine it, or
    none does.

    `name` is the tokenizer's: a hub id, if the file is from there. Raises TokenizerError for a neighbour that is not
    JSON, HubUnavailableError.
    """
    if file.kind != "tokenizer.json":
        return ""
    try:
        special, ids = _tokens(json.loads(file.content))
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""  # not a tokenizer.json: the reference library raises when it reads it
    candidates = ending_candidates(special)
    if len(candidates) == 1:
        return ""
    stated = _read(file, name, "tokenizer_config.json").get("eos_token")
    named = [stated.get("content") if isinstance(stated, dict) else stated]
    eos = _read(file, name, "generation_config.json").get("eos_token_id")
    named += [ids.get(number) for number in (eos if isinstance(eos, list) else [eos]) if isinstance(number, int)]
    known = {token for token in ids.values() if not candidates or token in candidates}
    return next((token for token in named if isinstance(token, str) and token in known), "")


def embedding_rows(file: VocabularyFile, name: str) -> int | None:
    """The number of ids for which the model beside the tokenizer has embeddings; None if no file states it."""
    config = _read(file, name, "config.json")
    inner = config.get("text_config")
    rows = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    return rows if isinstance(rows, int) else None


def _tokens(description: dict[str, Any]) -> tuple[list[str], dict[int, str]]:
    """(special tokens, {id: token}) of a parsed tokenizer.json."""
    added = description.get("added_tokens") or []
    vocabulary = description["model"]["vocab"]
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((row[0], i) for i, row in enumerate(vocabulary))
    ids = {number: token for token, number in pairs} | {token["id"]: token["content"] for token in added}
    return [token["content"] for token in added if token["special"]], ids


def _read(file: VocabularyFile, name: str, neighbour: str) -> dict[str, Any]:
    path = path_beside(file, name, neighbour)
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            "tokenizer.neighbour_malformed: a file next to the tokenizer is malformed",
            where=path,
            expected="JSON",
            got=type(error).__name__,
            next_step="correct it, or name the token that ends a text as tokenizer.eot",
        ) from None
    return content if isinstance(content, dict) else {}
