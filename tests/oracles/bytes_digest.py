"""The digest of byte strings, said plainly."""

from __future__ import annotations

LOW, HIGH, ALL = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, (1 << 64) - 1


def digest(strings: list[bytes]) -> tuple[int, int]:
    low_sum = high_sum = 0
    for string in strings:
        low, high = LOW ^ len(string), HIGH
        for at in range(0, len(string), 8):
            word = int.from_bytes(string[at : at + 8], "little")
            low = (low ^ word) * LOW & ALL
            low ^= low >> 29
            high = (high + word) * HIGH & ALL
            high ^= high >> 32
        low_sum, high_sum = low_sum + low & ALL, high_sum + high & ALL
    return low_sum, high_sum
