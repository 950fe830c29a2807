"""Obviously right versions of the checksums that stores keep."""

from __future__ import annotations

import hashlib
from functools import partial

md5 = partial(hashlib.md5, usedforsecurity=False)


def crc64nvme(data: bytes) -> int:
    """Bit by bit: reflected polynomial, all ones in and out."""
    crc = 2**64 - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x9A6C9329AC4BC9B5 if crc & 1 else 0)
    return crc ^ 2**64 - 1


def multipart_etag(data: bytes, part_bytes: int) -> str:
    """md5 of the parts' md5s, and how many parts there are."""
    parts = [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)]
    return f"{md5(b''.join(md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"
