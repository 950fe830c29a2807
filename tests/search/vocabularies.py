"""Tiny vocabularies: every byte, and a few merges; loaded in a millisecond."""

from __future__ import annotations

import base64
from pathlib import Path

BYTES = [bytes([byte]) for byte in range(256)]
MERGES = {  # each is made of two tokens before it, as a BPE's are
    "plain": [
        b"th",
        b"the",
        b" the",
        b"er",
        b"wa",
        b" wa",
        b"ter",
        b" water",
        b"aa",
        b"aaaa",
        b"\xe4\xb8",
        b"\xe4\xb8\xad",
    ],
    "other": [b"aa", b"st", b"sto", b"an", b" an", b" and", b"01", b"23", b"0123", b"\xc3\xbc", b"\n\n", b"  "],
}


def ranks_of(name: str) -> dict[bytes, int]:
    """Token to id."""
    return {token: number for number, token in enumerate([*BYTES, *MERGES[name]])}


def write_vocabulary(path: Path, name: str) -> None:
    """A .tiktoken file."""
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % number for token, number in ranks_of(name).items()))


def special_tokens() -> dict[str, int]:
    """Three special tokens behind the ids of both."""
    first = max(len(ranks_of(name)) for name in MERGES)
    return {"<|endoftext|>": first, "<|bos|>": first + 1, "<|pad|>": first + 3}
