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

_WORDS = 1 << 17  # of 64 signs, drawn at a time: 1 MiB, which stays in the caches
_PERMUTED = 1 << 17  # values that are exchanged at a time
_MANY_BYTES = 1 << 22  # loading the compiled loop takes as long as NumPy needs for fewer
_ROUNDING = 1e-12  # of the sum of sizes: 0.3 - 0.2 and 0.2 - 0.1 differ in their last bit, and count as equal


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
    approximation with correction for ties. Infinite differences, where one model failed, tie and are larger than all
    others.
    """
    differences, n_undefined = _differences("wilcoxon", first, second)
    moved = differences[differences != 0]
    endless = np.isinf(moved)
    largest = np.abs(moved[~endless]).max(initial=0.0)
    moved[endless] = np.sign(moved[endless]) * (2 * largest + 1)  # only ranks count
    sizes = np.abs(moved)
    exact = moved.size <= 50 and len(np.unique(sizes)) == moved.size
    if moved.size == 0:
        return PairedTest(p_value=1.0, n_used=differences.size, n_undefined=n_undefined, exact=True)
    from scipy import stats  # takes half a second to load, and is seldom needed

    result = stats.wilcoxon(moved, method="exact" if exact else "approx")
    return PairedTest(p_value=float(result.pvalue), n_used=differences.size, n_undefined=n_undefined, exact=bool(exact))


def sign_flip(
    first: Sequence[float] | FloatArray, second: Sequence[float] | FloatArray, *, resamples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Test the mean paired difference by permutations: under the null, each difference may as well have the other sign.

    All 2**N sign vectors are tried if there are at most `resamples`. Otherwise that many random ones are, and the
    p-value is (hits + 1) / (resamples + 1), never 0.

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
    known: dict[str, Any] = {"n_used": differences.size, "n_undefined": n_undefined}
    # on a grid on which every sum is exact, so that equal sums count as equal
    values = to_grid(differences)
    observed, n = np.abs(values.sum()) - _ROUNDING * np.abs(values).sum(), count_pools(len(values))
    if n < len(values):  # those of a random pool get their sign together: the sum of a pool may as well have the other
        values = sum_by(draw_pools(len(values), n, seed), n, values)
    if n < resamples.bit_length():  # 2**n <= resamples, without the huge number
        signs = np.array(list(product((-1.0, 1.0), repeat=n))).reshape(2**n, n)
        return PairedTest(p_value=float((np.abs(signs @ values) >= observed).mean()), exact=True, **known)
    eights = np.pad(values, (0, -n % 64)).reshape(-1, 8)  # random bits are signs, and a byte has those of eight cases
    table = eights @ (2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1).T
    hits, words, source = 0, (n + 63) // 64, np.random.PCG64(seed)
    rows = max(1, _WORDS // words)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = source.random_raw(count * words).reshape(count, words)
        if resamples * len(table) >= _MANY_BYTES:
            from segmeter.metrics._kernels import add_named  # numba takes a moment to load

            sums = np.zeros(count)
            add_named(drawn, table, sums)
        else:
            named = drawn.astype("<u8", copy=False).view(np.uint8)
            sums = table[np.arange(len(table)), named].sum(axis=1)
        hits += int((np.abs(sums) >= observed).sum())
    return PairedTest(p_value=(hits + 1) / (resamples + 1), exact=False, **known)


def exchanged(values: FloatArray, *, resamples: int = 10_000, seed: int = 0) -> FloatArray:
    """Test each reader's mean by permutations: under the null, the values of a unit may as well be any reader's.

    The test is one-sided: the p-value is small if a reader's mean is low. It is exact for readers who are alike,
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
    kept = values[~np.isnan(values).any(axis=1)]
    units, readers = kept.shape
    if not units:
        return np.ones(readers)
    if np.isinf(kept).any():
        from scipy import stats  # takes half a second to load, and is seldom needed

        kept = stats.rankdata(kept, axis=1)
    gridded = to_grid(kept.ravel()).reshape(kept.shape)
    bounds, source = gridded.sum(axis=0) + _ROUNDING * np.abs(gridded).sum(), np.random.PCG64(seed)
    hits, rows = np.zeros(readers, np.int64), max(1, _PERMUTED // units)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = (source.random_raw(count * units) % np.uint64(readers)).astype(np.intp).reshape(count, units)
        hits += (gridded[np.arange(units), drawn].sum(axis=1)[:, None] <= bounds).sum(axis=0)
    return np.asarray((hits + 1) / (resamples + 1))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Adjust p-values of several tests, so that one false alarm among all of them stays as rare as for one test.

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
    """Add to entries with a p-value called `name` the one adjusted over all of them, as ``<name>_holm``."""
    tested = [entry for entry in entries if entry.get(name) is not None]
    adjusted = iter(holm([entry[name] for entry in tested]).tolist())
    for entry in entries:
        if name in entry:
            entry[f"{name}_holm"] = None if entry[name] is None else next(adjusted)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Models ordered by a statistic where more is better, and the stability of that order.

    Parameters
    ----------
    order : (M,)
        Indices of the models, best first.
    ranks : (M,)
        1 is best; equals share the mean of their ranks.
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
    """Rank M models by K values each (M, K), where more is better, and by those of B resamples (B, M, K).

    The first values decide, and the next where these are equal. Undefined ones rank last.
    """
    ranks, drawn = _ranks(values[None])[0], _ranks(replicates)
    ties = (drawn[:, :, None] == drawn[:, None, :]).sum(axis=2)
    places = np.arange(1, len(ranks) + 1)
    covers = np.abs(places - drawn[:, :, None]) <= (ties[:, :, None] - 1) / 2  # t equals cover t places, 1 / t of each
    pairs = np.array(list(combinations(range(len(ranks)), 2)))
    fixed = np.sign(ranks[pairs[:, 0]] - ranks[pairs[:, 1]])
    moved = np.sign(drawn[:, pairs[:, 0]] - drawn[:, pairs[:, 1]])
    scale = np.sqrt((fixed != 0).sum() * (moved != 0).sum(axis=1))
    known = scale > 0  # elsewhere Kendall's tau-b is not defined
    return Ranking(
        order=np.argsort(ranks, kind="stable"),
        ranks=ranks,
        rank_shares=(covers / ties[:, :, None]).mean(axis=0),
        stability=float((moved @ fixed)[known].dot(1 / scale[known]) / known.sum()) if known.any() else np.nan,
    )


def _ranks(values: FloatArray) -> FloatArray:
    """Rank (R, M) values (R, M, K). Rank 1 is the largest, equals share their mean rank, and NaN ranks last."""
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
    """Return the defined paired differences, and the number of others; equal infinities differ by 0."""
    first, second = _numbers(where, "first", first), _numbers(where, "second", second)
    if first.shape != second.shape:
        raise InputError(expected(where, "second", f"to have the shape {first.shape}", second.shape))
    undefined = np.isnan(first) | np.isnan(second)
    return minus(first[~undefined], second[~undefined]), int(undefined.sum())
