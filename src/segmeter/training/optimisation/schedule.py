"""Progress of a run in 0 .. 1 -> factor on the learning rate. Pure functions, so that a resumed run needs no state."""

import math
from collections.abc import Callable

from segmeter.training.config import ConstantConfig, CosineConfig, OneCycleConfig, PolyConfig

Schedule = Callable[[float], float]

WARMUP_START = 0.01  # of the learning rate: the first step should not be lost


def build_cosine(config: CosineConfig) -> Schedule:
    return _warmed(lambda part: _cosine(1.0, config.final, part), config.warmup)


def build_poly(config: PolyConfig) -> Schedule:
    return _warmed(lambda part: (1.0 - part) ** config.power, config.warmup)


def build_constant(config: ConstantConfig) -> Schedule:
    return _warmed(lambda part: 1.0, config.warmup)


def build_one_cycle(config: OneCycleConfig) -> Schedule:
    def factor(progress: float) -> float:
        if progress < config.rise:
            return _cosine(config.start, 1.0, progress / config.rise)
        return _cosine(1.0, config.final, (min(progress, 1.0) - config.rise) / (1.0 - config.rise))

    return factor


def _warmed(after: Schedule, warmup: float) -> Schedule:
    """Rise linearly over the fraction `warmup` of the run, then follow `after` over the rest of it."""

    def factor(progress: float) -> float:
        if progress < warmup:
            return WARMUP_START + (1.0 - WARMUP_START) * progress / warmup
        return after((min(progress, 1.0) - warmup) / (1.0 - warmup))

    return factor


def _cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * part))
