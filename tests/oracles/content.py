"""Content sums as corpusmill/kernels/content_kernels.py defines them: plain Python, a token and a byte at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corpusmill.kernels.content import ContentSum

MASK = (1 << 64) - 1


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def odd(lane: int, number: int) -> int:
    return mixed((number + 1) * 0x9E3779B97F4A7C15 + (lane << 32) & MASK) | 1


def place(lane: int, unit: int, ordinal: int) -> int:
    key = mixed(unit * 0x9E3779B97F4A7C15 + 0x5851F42D4C957F2D & MASK) + ordinal & MASK
    return odd(lane + 2, key)


def tokens_of(tokens: Sequence[int], first: int = 0) -> list[int]:
    """Of both lanes, the sum of a piece whose first token is number `first` of its document."""
    return [
        sum((token + 1) * odd(lane, j % 1024) * odd(lane + 4, j // 1024) for j, token in enumerate(tokens, first))
        & MASK
        for lane in (0, 1)
    ]


def records(rows: Iterable[tuple[int, int, Sequence[int]]]) -> ContentSum:
    """(unit, ordinal, tokens) of every record."""
    total = [0, 0]
    for unit, ordinal, tokens in rows:
        for lane, part in enumerate(tokens_of(tokens)):
            total[lane] = (total[lane] + part * place(lane, unit, ordinal)) & MASK
    return ContentSum(*total)


def _stir(lane: int, word: int) -> int:
    lane = lane + word * 0xC2B2AE3D27D4EB4F & MASK
    return (lane << 31 | lane >> 33) * 0x9E3779B185EBCA87 & MASK


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return word ^ word >> 33


def text_hash(text: bytes) -> list[int]:
    lanes = [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, len(text) * 0x165667B19E3779F9 & MASK]
    words = [int.from_bytes(text[i : i + 8], "little") for i in range(0, len(text) - len(text) % 8, 8)]
    whole = len(words) - len(words) % 4
    for i, word in enumerate(words[:whole]):
        lanes[i % 4] = _stir(lanes[i % 4], word)
    for word in words[whole:]:
        lanes[0] = _stir(lanes[0], word)
    lanes[1] = _stir(lanes[1], int.from_bytes(text[8 * len(words) :], "big"))
    low, high = lanes[0], lanes[3]
    for lane in (1, 2, 3):
        low = _stir(low, lanes[lane])
    for lane in (2, 1, 0):
        high = _stir(high, lanes[lane])
    return [_finished(low), _finished(high)]


def texts(shard: int, documents: Iterable[bytes], first: int = 0) -> ContentSum:
    """Of consecutive documents of a shard."""
    total = [0, 0]
    for ordinal, text in enumerate(documents, first):
        for lane, part in enumerate(text_hash(text)):
            total[lane] = (total[lane] + part * place(lane, shard, ordinal)) & MASK
    return ContentSum(*total)
