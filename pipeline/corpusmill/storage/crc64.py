"""CRC-64/NVME, the whole-object checksum that S3 computes for new objects.

Polynomial 0xAD93D23594C93659, reflected, all ones in and out (NVM Express, NVM command set 1.0; the check value of
"123456789" is 0xAE8B14860A799888). Eight tables take 8 bytes a step: about 2 GB/s. 16 KiB of tables.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel

REFLECTED_POLYNOMIAL = np.uint64(0x9A6C9329AC4BC9B5)
ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def _tables(polynomial: np.uint64) -> NDArray[np.uint64]:
    """uint64 (8, 256): row k is the effect of a byte that k more bytes follow."""
    tables = np.empty((8, 256), np.uint64)
    one, eight, low = np.uint64(1), np.uint64(8), np.uint64(255)
    for byte in range(256):
        value = np.uint64(byte)
        for _ in range(8):
            value = (value >> one) ^ (polynomial if value & one else np.uint64(0))
        tables[0, byte] = value
    for row in range(1, 8):
        for byte in range(256):
            value = tables[row - 1, byte]
            tables[row, byte] = tables[0, np.int64(value & low)] ^ (value >> eight)
    return tables


@kernel
def _extend(crc: np.uint64, data: NDArray[np.uint8], tables: NDArray[np.uint64]) -> np.uint64:
    """`crc` (inverted) with uint8 (n,) `data` added."""
    low, eight = np.uint64(255), np.uint64(8)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = crc
        for place in range(8):
            word ^= np.uint64(data[at + place]) << np.uint64(8 * place)
        crc = np.uint64(0)
        for place in range(8):
            crc ^= tables[7 - place, np.int64((word >> np.uint64(8 * place)) & low)]
    for at in range(whole, len(data)):
        crc = tables[0, np.int64((crc ^ np.uint64(data[at])) & low)] ^ (crc >> eight)
    return crc


@cache
def _crc64nvme_tables() -> NDArray[np.uint64]:
    tables: NDArray[np.uint64] = _tables(REFLECTED_POLYNOMIAL)
    return tables


class Crc64Nvme:
    """The interface of hashlib's objects."""

    def __init__(self) -> None:
        self._crc = ONES

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        self._crc = np.uint64(_extend(self._crc, np.frombuffer(data, np.uint8), _crc64nvme_tables()))

    def digest(self) -> bytes:
        """8 bytes, the most significant first."""
        return int(self._crc ^ ONES).to_bytes(8, "big")
