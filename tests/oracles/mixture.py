"""Greedy drawing as its definition says, in exact order of comparison."""

from __future__ import annotations

from collections.abc import Sequence


def greedy_order(weights: Sequence[float], samples: int) -> list[tuple[int, int]]:
    """(source, how often drawn before) of every step."""
    drawn = [0] * len(weights)
    order = []
    for step in range(samples):
        behind = [weight * max(step, 1) - count for weight, count in zip(weights, drawn, strict=True)]
        source = behind.index(max(behind))
        order.append((source, drawn[source]))
        drawn[source] += 1
    return order
