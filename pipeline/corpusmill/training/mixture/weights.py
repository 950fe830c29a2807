"""Weights of the sources: as given, or from their sizes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError


def normalised(weights: Sequence[float], sources: Sequence[object] = ()) -> NDArray[np.float64]:
    """Weights that sum to 1; ConfigError unless all are finite and positive, as both trainers require, and close enough
    together for float64. `sources`: their names, for the error.
    """
    for number, weight in enumerate(weights):
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(
                "mixture.weight_not_positive: a weight must be a positive number",
                where=sources[number] if sources else f"source {number}",
                expected="more than 0",
                got=weight,
                next_step="leave out sources that should not be drawn",
            )
    largest = max(weights, default=1.0)
    if largest * len(weights) > sys.float_info.max or min(weights, default=1.0) < largest * sys.float_info.epsilon**2:
        raise ConfigError(
            "mixture.weights_not_comparable: the weights are too large, or too far apart, to compare",
            expected="numbers such as 0.7 and 0.3",
            got=f"{min(weights)} to {largest}",
        )
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights], np.float64)


def by_size(tokens: Sequence[int], alpha: float) -> NDArray[np.float64]:
    """Weights proportional to p^alpha, p being a source's share of all tokens: 1 keeps sizes, 0 makes all equal.

    Source: multilingual sampling as in Conneau and Lample 2019 (XLM), BigScience data/sampling_probs. ConfigError for
    an alpha outside 0 to 1 or a source without tokens.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError("mixture.alpha: alpha must be from 0 to 1", expected="0 (uniform) to 1 (by size)", got=alpha)
    total = sum(tokens)
    return normalised([(count / total) ** alpha if count else 0.0 for count in tokens])
