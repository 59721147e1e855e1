"""Plans an epoch from the seed and its number: which cases it takes, how often, and around which class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

ANYWHERE = -1  # the label of a sample that is not cut around a class
LEAST_BATCHES = 10  # an epoch has at least this many batches, if samples differ each time they are drawn

_ORDER, WINDOW, PIXELS, AUGMENT, _BALANCE, _SOURCES = range(6)  # independent random streams

Indices = NDArray[np.int64]


def make_rng(stream: int, *, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
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

    of: Indices
    weights: tuple[float, ...]

    @classmethod
    def named(cls, names: Iterable[str], weights: Mapping[str, float]) -> "Sources | None":
        """Build sources from the name of each case's source and the weight of each name. None without weights."""
        if not weights:
            return None
        numbers = {name: number for number, name in enumerate(weights)}
        return cls(np.array([numbers[name] for name in names], np.int64), tuple(weights.values()))


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The samples of one epoch, in order.

    Parameters
    ----------
    numbers : (S,)
        Case + repeat x number of cases, where repeat counts how often the epoch had the case before. Every number
        occurs once, and decides everything random in its sample.
    labels : (S,)
        The class that a sample is cut around, or `ANYWHERE`.
    """

    numbers: Indices
    labels: Indices


def plan_epoch(
    count: int,
    samples: int,
    *,
    seed: int,
    epoch: int,
    balance: float = 0.0,
    presence: NDArray[np.bool_] | None = None,
    sources: Sources | None = None,
) -> EpochPlan:
    """Plan an epoch.

    Every case is taken once before any is taken twice, within each source. A balanced sample first picks a class, all
    equally often, then a case that contains it, all equally often. The case comes from the sample's own source if one
    there has the class.

    Parameters
    ----------
    count, samples
        Number of cases in the data set, and of samples in the epoch, >= 1.
    seed, epoch
        Decide the plan.
    balance
        Share of balanced samples, 0 to 1.
    presence : (count, K)
        Whether a case has a class; needed for `balance`.
    sources
        Shares of the samples; None draws from all cases alike.
    """
    if sources is None:
        turns = range(-(-samples // count))
        orders = [make_rng(_ORDER, seed=seed, epoch=epoch, index=turn).permutation(count) for turn in turns]
        cases = np.concatenate(orders)[:samples].astype(np.int64)
    else:
        rng = make_rng(_SOURCES, seed=seed, epoch=epoch)
        # samples per source, as near to the ratio of the weights as whole numbers can be
        edges = np.rint(samples * np.cumsum((0.0, *sources.weights)) / sum(sources.weights)).astype(int)
        shares = np.diff(edges).tolist()
        by_source = [_spread(np.flatnonzero(sources.of == source), share, rng) for source, share in enumerate(shares)]
        cases = rng.permutation(np.concatenate(by_source))
    labels = np.full(samples, ANYWHERE, np.int64)
    if balance > 0 and presence is not None and presence.any():
        rng = make_rng(_BALANCE, seed=seed, epoch=epoch)
        balanced = np.sort(rng.permutation(samples)[: round(balance * samples)])
        labels[balanced] = _spread(np.flatnonzero(presence.any(0)), len(balanced), rng)
        source_of_case = np.zeros(count, int) if sources is None else sources.of
        source_of_sample = source_of_case[cases]
        for label, source in product(np.unique(labels[balanced]), np.unique(source_of_case)):
            chosen = np.flatnonzero((labels == label) & (source_of_sample == source))
            candidates = np.flatnonzero(presence[:, label] & (source_of_case == source))
            candidates = candidates if len(candidates) else np.flatnonzero(presence[:, label])
            cases[chosen] = _spread(candidates, len(chosen), rng)
    order = np.argsort(cases, kind="stable")
    repeats = np.empty(samples, np.int64)  # how often the epoch had the case before
    repeats[order] = np.arange(samples) - np.searchsorted(cases[order], cases[order])
    return EpochPlan(cases + count * repeats, labels)


def _spread(values: Indices, length: int, rng: np.random.Generator) -> Indices:
    """Return values in random order, with counts that differ by one at most."""
    turns = [rng.permutation(values) for _ in range(-(-length // len(values)))]
    return np.concatenate([np.zeros(0, np.int64), *turns])[:length]
