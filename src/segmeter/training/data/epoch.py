"""Seed and number of an epoch -> which cases it takes, how often each, and around which class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ANYWHERE = -1  # the label of a sample that is not laid around a class
LEAST_BATCHES = 10  # of an epoch where samples differ each time they are drawn

_ORDER, WINDOW, PIXELS, AUGMENT, _BALANCE = range(5)  # independent streams of draws

Numbers = NDArray[np.int64]


def draw(stream: int, *, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """The generator of one stream for one sample in one epoch."""
    return np.random.default_rng([stream, seed, epoch, index])


def epoch_order(count: int, *, seed: int, epoch: int, turn: int = 0) -> Numbers:
    """In which order an epoch takes the cases in its first or a later turn: a permutation.

    Examples
    --------
    >>> sorted(epoch_order(4, seed=0, epoch=1).tolist())
    [0, 1, 2, 3]
    """
    return draw(_ORDER, seed=seed, epoch=epoch, index=turn).permutation(count).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Plan:
    """The samples of one epoch, in order.

    Parameters
    ----------
    numbers : (S,)
        Case + repeat x number of cases, where repeat says how often the epoch had this case before: every number is
        there once, and decides all draws of its sample.
    labels : (S,)
        The class that a sample is laid around, or `ANYWHERE`.
    """

    numbers: Numbers
    labels: Numbers


def plan_epoch(
    count: int, samples: int, *, seed: int, epoch: int, balance: float = 0.0, presence: NDArray[np.bool_] | None = None
) -> Plan:
    """Plan an epoch.

    Every case is taken once before any is taken twice. Of a part of the samples the class comes first, each class as
    often, then a case that has it, each as often.

    Parameters
    ----------
    count, samples
        Cases of the data set, and samples of the epoch, >= 1.
    seed, epoch
        Decide the plan.
    balance
        Part of the samples whose class comes first, 0 to 1.
    presence : (count, K)
        Which classes each case has; needed for `balance`.
    """
    turns = range(-(-samples // count))
    cases = np.concatenate([epoch_order(count, seed=seed, epoch=epoch, turn=turn) for turn in turns])[:samples]
    labels = np.full(samples, ANYWHERE, np.int64)
    if balance > 0 and presence is not None and presence.any():
        rng = draw(_BALANCE, seed=seed, epoch=epoch)
        chosen = np.sort(rng.permutation(samples)[: round(balance * samples)])
        labels[chosen] = _spread(np.flatnonzero(presence.any(0)), len(chosen), rng)
        for label in np.unique(labels[chosen]):
            places = np.flatnonzero(labels == label)
            cases[places] = _spread(np.flatnonzero(presence[:, label]), len(places), rng)
    return Plan(cases + count * count_before(cases), labels)


def count_before(values: Numbers) -> Numbers:
    """How often each value stands earlier in the array.

    Examples
    --------
    >>> count_before(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    starts = np.searchsorted(values[order], values[order])
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - starts
    return ranks


def _spread(values: Numbers, length: int, rng: np.random.Generator) -> Numbers:
    """Values in random order, each as often as the others, or once more."""
    turns = [rng.permutation(values) for _ in range(-(-length // len(values)))]
    return np.concatenate([np.zeros(0, np.int64), *turns])[:length]
