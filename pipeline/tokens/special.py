"""Which ids stand between, before and behind documents: said in the configuration, or the tokenizer's own.

Defaults, when nothing is said: the one token below that the tokenizer has as a special token. A tokenizer with none of
them, or with two, must be told. Padding is the tokenizer's padding token, else its EOT.

    NeoX  <|endoftext|> 0, <|padding|> 1      Llama-3  <|end_of_text|> 128001      cl100k  <|endoftext|> 100257

`special_ids: tokshuf` gives what DCLM's tokshuf writes whatever the tokenizer: EOT 0 (in Llama-3 that is "!"), padding
two above the number of ids of model and special tokens (NeoX 50256, which is also 22 spaces; Llama-3 128258, which an
embedding of 128,256 rows does not have).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpusmill.errors import TokenizerError
from corpusmill.tokens.references import Reference

EOT_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
BOS_TOKENS = ("<|begin_of_text|>", "<s>", "<bos>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>")
PAD_TOKENS = ("<|padding|>", "<pad>", "<|pad|>", "<|finetune_right_pad_id|>")


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
    tokshuf: bool = False,
) -> SpecialIds:
    """The special ids of a tokenizer; the three token strings override its own.

    Raises TokenizerError for a token that the tokenizer does not have, and when no EOT or several are there.
    """
    if tokshuf:
        bos_id = _named(reference, name, "bos", bos, BOS_TOKENS)
        return SpecialIds(eot_id=0, bos_id=bos_id, pad_id=reference.ordinary_ids() + 2)
    eot_id = _named(reference, name, "eot", eot, EOT_TOKENS)
    if eot_id is None:
        raise TokenizerError(
            "this tokenizer has no token that ends a text, or several that could",
            where=f"tokenizer.name: {name}",
            expected=f"exactly one special token of {', '.join(EOT_TOKENS)}",
            got=_some(reference),
            next_step="name the token as tokenizer.eot",
        )
    bos_id = _named(reference, name, "bos", bos, BOS_TOKENS)
    pad_id = _named(reference, name, "pad", pad, PAD_TOKENS)
    return SpecialIds(eot_id, bos_id, eot_id if pad_id is None else pad_id)


def _named(reference: Reference, name: str, key: str, said: str | None, own: Sequence[str]) -> int | None:
    if said is not None:
        number = reference.id_of(said)
        if number is None:
            raise TokenizerError(
                f"the tokenizer has no token {said!r}",
                where=f"tokenizer.{key}, tokenizer.name: {name}",
                expected=f"one of its tokens, such as {_some(reference)}",
            )
        return number
    found = [reference.special_tokens[token] for token in own if token in reference.special_tokens]
    return found[0] if len(found) == 1 else None


def _some(reference: Reference) -> str:
    names = sorted(reference.special_tokens, key=lambda token: reference.special_tokens[token])
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") if names else "no special tokens"
