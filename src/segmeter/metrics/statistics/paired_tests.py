"""Tests the paired values of two models, adjusts p-values for several tests, and ranks several models."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, shown
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, minus, validated_numbers
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import count_pools, draw_pools, to_grid, validated_draws

_WORDS = 1 << 17  # Draw this many words of 64 signs at a time: 1 MiB, which stays in the caches.
_PERMUTED = 1 << 17  # Exchange this many values at a time.
_MANY_BYTES = 1 << 22  # With fewer bytes of signs, NumPy is done before the compiled loop is loaded.
_ROUNDING = 1e-12  # Sums that differ by less than this share of the summed sizes are equal: 0.3 - 0.2 and 0.2 - 0.1.


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """A two-sided test of paired differences.

    Parameters
    ----------
    p_value
        1 if no difference is left to test.
    n_used, n_undefined
        Pairs with both values, and pairs left out because one is NaN.
    exact
        Whether the p-value covers all arrangements, instead of a sample or an approximation.
    """

    p_value: float
    n_used: int
    n_undefined: int
    exact: bool


def wilcoxon(first: Sequence[float] | FloatArray, second: Sequence[float] | FloatArray) -> PairedTest:
    """Do Wilcoxon's signed-rank test of paired values (N,); equal pairs are dropped (Wilcoxon 1945).

    It is exact for up to 50 pairs without ties among the absolute differences. Otherwise it takes the normal
    approximation with correction for ties. Infinite differences, where one model failed, are tied and larger than all
    others.
    """
    differences, n_undefined = _differences("wilcoxon", first, second)
    nonzero = differences[differences != 0]
    infinite = np.isinf(nonzero)
    largest = np.abs(nonzero[~infinite]).max(initial=0.0)
    nonzero[infinite] = np.sign(nonzero[infinite]) * (2 * largest + 1)  # any larger number: only ranks count
    exact = nonzero.size <= 50 and len(np.unique(np.abs(nonzero))) == nonzero.size
    if nonzero.size == 0:
        return PairedTest(p_value=1.0, n_used=differences.size, n_undefined=n_undefined, exact=True)
    from scipy import stats  # takes half a second to load, and is seldom needed

    result = stats.wilcoxon(nonzero, method="exact" if exact else "approx")
    return PairedTest(p_value=float(result.pvalue), n_used=differences.size, n_undefined=n_undefined, exact=bool(exact))


def sign_flip(
    first: Sequence[float] | FloatArray, second: Sequence[float] | FloatArray, *, resamples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Test the mean paired difference by permutations: under the null, each difference may as well have the other sign.

    If there are at most `resamples` sign vectors, all 2**N are tried. Otherwise `resamples` random vectors are tried,
    and the p-value is (hits + 1) / (resamples + 1), never 0.

    Parameters
    ----------
    first, second : (N,)
        Values of two models, case by case; pairs with a NaN are left out.
    resamples
        Random sign vectors, 1 to 10**8.
    seed
        The same seed gives the same p-value.

    References
    ----------
    Phipson and Smyth 2010, arXiv:1603.05766 (why the p-value is never 0).
    """
    resamples, seed = validated_draws("sign_flip", resamples, seed)
    differences, n_undefined = _differences("sign_flip", first, second)
    if np.isinf(differences).any():
        rule = "to be finite where the other value is"
        raise InputError(
            expected("sign_flip", "second", rule, f"{int(np.isinf(differences).sum())} infinite differences")
        )
    values = to_grid(differences)  # every sum on the grid is exact, so that equal sums count as equal
    observed = np.abs(values.sum()) - _ROUNDING * np.abs(values).sum()
    n = count_pools(len(values))
    if n < len(values):  # the values of a random pool get their sign together
        values = sum_by(draw_pools(len(values), n, seed), n, values)
    if n < resamples.bit_length():  # 2**n <= resamples, without computing 2**n, which may be huge
        signs = np.array(list(product((-1.0, 1.0), repeat=n))).reshape(2**n, n)
        p_value = float((np.abs(signs @ values) >= observed).mean())
        return PairedTest(p_value=p_value, n_used=differences.size, n_undefined=n_undefined, exact=True)
    # A random bit is a sign. The table has the sum of eight values for each byte of signs.
    eights = np.pad(values, (0, -n % 64)).reshape(-1, 8)
    table = eights @ (2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1).T
    words = (n + 63) // 64
    source = np.random.PCG64(seed)
    hits = 0
    rows = max(1, _WORDS // words)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = source.random_raw(count * words).reshape(count, words)
        if resamples * len(table) >= _MANY_BYTES:
            from segmeter.metrics._kernels import add_named  # numba takes a moment to load

            sums = np.zeros(count)
            add_named(drawn, table, sums)
        else:
            sign_bytes = drawn.astype("<u8", copy=False).view(np.uint8)
            sums = table[np.arange(len(table)), sign_bytes].sum(axis=1)
        hits += int((np.abs(sums) >= observed).sum())
    p_value = (hits + 1) / (resamples + 1)
    return PairedTest(p_value=p_value, n_used=differences.size, n_undefined=n_undefined, exact=False)


def exchanged(values: FloatArray, *, resamples: int = 10_000, seed: int = 0) -> FloatArray:
    """Test each reader's mean by permutations: under the null, the values of a unit may as well be any reader's.

    The test is one-sided: the p-value is small if a reader's mean is low. It is exact for interchangeable readers,
    however skewed the values are. Permutations are random, and the p-value is (hits + 1) / (resamples + 1).

    Parameters
    ----------
    values : (N, R)
        Of N independent units and R readers; units with a NaN are left out. If any value is infinite, all values are
        replaced by their ranks within each unit.
    resamples, seed
        As for `sign_flip`.

    Returns
    -------
    p-values (R,); 1 where no unit is left.

    Examples
    --------
    >>> exchanged(np.array([[-0.2, 0.1, 0.1], [-0.3, 0.1, 0.2], [-0.1, 0.0, 0.1], [-0.2, 0.0, 0.2]])) < 0.05
    array([ True, False, False])
    """
    resamples, seed = validated_draws("exchanged", resamples, seed)
    complete = values[~np.isnan(values).any(axis=1)]
    units, readers = complete.shape
    if not units:
        return np.ones(readers)
    if np.isinf(complete).any():
        from scipy import stats  # takes half a second to load, and is seldom needed

        complete = stats.rankdata(complete, axis=1)
    gridded = to_grid(complete.ravel()).reshape(complete.shape)
    observed = gridded.sum(axis=0) + _ROUNDING * np.abs(gridded).sum()
    source = np.random.PCG64(seed)
    hits = np.zeros(readers, np.int64)
    rows = max(1, _PERMUTED // units)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        reader = (source.random_raw(count * units) % np.uint64(readers)).astype(np.intp).reshape(count, units)
        hits += (gridded[np.arange(units), reader].sum(axis=1)[:, None] <= observed).sum(axis=0)
    return np.asarray((hits + 1) / (resamples + 1))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Adjust the p-values of several tests, so that a false alarm in any of them stays as rare as in a single test.

    References
    ----------
    Holm 1979, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 65-70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = _numbers("holm", "p_values", p_values)
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise InputError(expected("holm", "p_values", "between 0 and 1", values.tolist()))
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(values.size, 0, -1)), 1)
    return adjusted


def add_adjusted(entries: Sequence[dict[str, Any]], name: str) -> None:
    """Adjust the p-values called `name` of all entries together, and add each to its entry as ``<name>_holm``."""
    tested = [entry for entry in entries if entry.get(name) is not None]
    adjusted = iter(holm([entry[name] for entry in tested]).tolist())
    for entry in entries:
        if name in entry:
            entry[f"{name}_holm"] = None if entry[name] is None else next(adjusted)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Models ordered by a statistic of which more is better, and how stable that order is.

    Parameters
    ----------
    order : (M,)
        Indices of the models, best first.
    ranks : (M,)
        1 is best; equal models share the mean of their ranks.
    rank_shares : (M, M)
        ``[m, r]`` is the share of the resamples in which model m came r-th (0 is best); ties are shared out.
    stability
        Mean Kendall tau-b between the ranking and those of the resamples; 1 if the order never changes, NaN if
        undefined.
    """

    order: NDArray[np.int64]
    ranks: FloatArray
    rank_shares: FloatArray
    stability: float


def rank_values(values: FloatArray, replicates: FloatArray) -> Ranking:
    """Rank M models by K values each (M, K), and by the values in B resamples (B, M, K). More is better.

    The first values decide, and the next ones where these are equal. Undefined values rank last.
    """
    ranks, replicate_ranks = _ranks(values[None])[0], _ranks(replicates)
    ties = (replicate_ranks[:, :, None] == replicate_ranks[:, None, :]).sum(axis=2)
    places = np.arange(1, len(ranks) + 1)
    # t equal models cover t places, and each of them has 1 / t of each place.
    covers = np.abs(places - replicate_ranks[:, :, None]) <= (ties[:, :, None] - 1) / 2
    pairs = np.array(list(combinations(range(len(ranks)), 2)))
    order = np.sign(ranks[pairs[:, 0]] - ranks[pairs[:, 1]])
    replicate_order = np.sign(replicate_ranks[:, pairs[:, 0]] - replicate_ranks[:, pairs[:, 1]])
    scale = np.sqrt((order != 0).sum() * (replicate_order != 0).sum(axis=1))
    defined = scale > 0  # elsewhere Kendall's tau-b is undefined
    stability = np.nan
    if defined.any():
        stability = float((replicate_order @ order)[defined].dot(1 / scale[defined]) / defined.sum())
    return Ranking(
        order=np.argsort(ranks, kind="stable"),
        ranks=ranks,
        rank_shares=(covers / ties[:, :, None]).mean(axis=0),
        stability=stability,
    )


def _ranks(values: FloatArray) -> FloatArray:
    """Rank values (R, M, K) as (R, M). The largest has rank 1, equal values share their mean rank, NaN ranks last."""
    from scipy import stats  # takes half a second to load, and is seldom needed

    keys = -np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    ranks: FloatArray = stats.rankdata(keys[..., 0], axis=1)
    for k in range(1, keys.shape[2]):
        ranks = stats.rankdata(2 * values.shape[1] * ranks + stats.rankdata(keys[..., k], axis=1), axis=1)
    return ranks


def _numbers(where: str, name: str, given: Any) -> FloatArray:
    """Return a sequence of numbers as float64."""
    rule = "to be a flat sequence of numbers"
    values = validated_numbers(where, name, given, rule)
    if values.ndim != 1:
        raise InputError(expected(where, name, rule, shown(given)))
    return values.astype(np.float64)


def _differences(where: str, first: Any, second: Any) -> tuple[FloatArray, int]:
    """Return the defined paired differences, and the number of undefined ones; equal infinities differ by 0."""
    first, second = _numbers(where, "first", first), _numbers(where, "second", second)
    if first.shape != second.shape:
        raise InputError(expected(where, "second", f"to have the shape {first.shape}", second.shape))
    undefined = np.isnan(first) | np.isnan(second)
    return minus(first[~undefined], second[~undefined]), int(undefined.sum())
