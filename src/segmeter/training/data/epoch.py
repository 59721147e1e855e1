"""Plans an epoch from the seed and its number: which cases it takes, how often, and around which class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

ANYWHERE = -1  # the label of a sample that is not cut around a class
LEAST_BATCHES = 10  # of an epoch, if samples differ each time they are drawn

_ORDER, WINDOW, PIXELS, AUGMENT, _BALANCE, _SOURCES = range(6)  # independent streams of draws

Numbers = NDArray[np.int64]


def draw(stream: int, *, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Make the random generator of one stream for one sample in one epoch."""
    return np.random.default_rng([stream, seed, epoch, index])


@dataclass(frozen=True, eq=False)
class Sources:
    """The sources of the cases, and each source's share of the samples.

    Parameters
    ----------
    of : (N,)
        The source of each case, from 0.
    weights : (S,)
        Weight of each source, > 0; only their ratios matter.
    """

    of: Numbers
    weights: tuple[float, ...]

    @classmethod
    def named(cls, names: Iterable[str], weights: Mapping[str, float]) -> "Sources | None":
        """Build sources from the name of each case's source and the weight of each name. None without weights."""
        if not weights:
            return None
        numbers = {name: number for number, name in enumerate(weights)}
        return cls(np.array([numbers[name] for name in names], np.int64), tuple(weights.values()))


@dataclass(frozen=True, eq=False)
class Plan:
    """The samples of one epoch, in order.

    Parameters
    ----------
    numbers : (S,)
        Case + repeat x number of cases, where repeat counts how often the epoch had the case before. Every number
        occurs once, and decides all draws of its sample.
    labels : (S,)
        The class that a sample is cut around, or `ANYWHERE`.
    """

    numbers: Numbers
    labels: Numbers


def plan_epoch(
    count: int,
    samples: int,
    *,
    seed: int,
    epoch: int,
    balance: float = 0.0,
    presence: NDArray[np.bool_] | None = None,
    sources: Sources | None = None,
) -> Plan:
    """Plan an epoch.

    Every case is taken once before any is taken twice, within each source. For the balanced part of the samples a class
    is chosen first, each equally often, and then a case that has it, each equally often. Such a sample stays in its
    source if that has the class.

    Parameters
    ----------
    count, samples
        Cases of the data set, and samples of the epoch, >= 1.
    seed, epoch
        Decide the plan.
    balance
        Part of the samples whose class is chosen first, 0 to 1.
    presence : (count, K)
        Whether a case has a class; needed for `balance`.
    sources
        Shares of the samples; None draws from all cases alike.
    """
    if sources is None:
        turns = range(-(-samples // count))
        orders = [draw(_ORDER, seed=seed, epoch=epoch, index=turn).permutation(count) for turn in turns]
        cases = np.concatenate(orders)[:samples].astype(np.int64)
    else:
        rng = draw(_SOURCES, seed=seed, epoch=epoch)
        # samples per source, as near to the ratio of the weights as whole numbers can be
        edges = np.rint(samples * np.cumsum((0.0, *sources.weights)) / sum(sources.weights)).astype(int)
        shares = np.diff(edges).tolist()
        drawn = [_spread(np.flatnonzero(sources.of == source), share, rng) for source, share in enumerate(shares)]
        cases = rng.permutation(np.concatenate(drawn))
    labels = np.full(samples, ANYWHERE, np.int64)
    if balance > 0 and presence is not None and presence.any():
        rng = draw(_BALANCE, seed=seed, epoch=epoch)
        chosen = np.sort(rng.permutation(samples)[: round(balance * samples)])
        labels[chosen] = _spread(np.flatnonzero(presence.any(0)), len(chosen), rng)
        source = np.zeros(count, int) if sources is None else sources.of
        home = source[cases]
        for label, own in product(np.unique(labels[chosen]), np.unique(source)):
            places = np.flatnonzero((labels == label) & (home == own))
            having = np.flatnonzero(presence[:, label] & (source == own))
            having = having if len(having) else np.flatnonzero(presence[:, label])
            cases[places] = _spread(having, len(places), rng)
    order = np.argsort(cases, kind="stable")
    repeats = np.empty(samples, np.int64)  # how often the epoch had the case before
    repeats[order] = np.arange(samples) - np.searchsorted(cases[order], cases[order])
    return Plan(cases + count * repeats, labels)


def _spread(values: Numbers, length: int, rng: np.random.Generator) -> Numbers:
    """Return values in random order, with counts that differ by one at most."""
    turns = [rng.permutation(values) for _ in range(-(-length // len(values)))]
    return np.concatenate([np.zeros(0, np.int64), *turns])[:length]
