"""Measures the values of images per channel (range, percentiles, mean, deviation), and derives the normalisation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.config import DataConfig, channel_label
from segmeter.data.sample import count_values
from segmeter.errors import DataError

FULL_SCALE = {"uint8": 255.0, "uint16": 65535.0, "float32": 1.0}  # the stored value that becomes 1 for a model
LEVELS = (0, 0.5, 1, 2, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 100)  # percentiles kept of each image
SHOWN = (1, 50, 99)  # percentiles of a data set

_EVERY = 16  # of the lines of large float images is used for the levels
_LEAST_USE = 1 / 8  # of the full scale, below which it is hardly the images' own
_TOGETHER = 8  # images that are judged together, because a single one may be dark
_FAR_MEAN, _FAR_SPREAD = 4.0, 8.0  # of normalised inputs; networks expect about 0 and 1

Values = NDArray[np.float64]
Limits = tuple[tuple[float, float], ...]  # lowest and highest value, per channel


@dataclass(frozen=True, kw_only=True, eq=False)
class Intensity:
    """The stored values of all images of one dtype, per channel.

    Parameters
    ----------
    dtype
        "uint8", "uint16" or "float32".
    pixels
        Of all its images together.
    low, high, mean, std : (C,)
        Exact, over every pixel, in stored units.
    levels : (L, C)
        Percentiles at `LEVELS`, merged from those of each image, so approximate between two of them.
    """

    dtype: str
    pixels: int
    low: Values
    high: Values
    mean: Values
    std: Values
    levels: Values

    @property
    def percentiles(self) -> Values:
        """Percentiles at `SHOWN`, (P, C)."""
        return self.levels[[LEVELS.index(level) for level in SHOWN]]

    @property
    def full_scale(self) -> float:
        """The stored value that a model takes as 1."""
        return FULL_SCALE[self.dtype]


def measure_image(image: NDArray[Any]) -> tuple[Values, Values, Values]:
    """Return mean (C,), variance (C,) and values at `LEVELS` (L, C) of an image (H, W, C), in stored units."""
    measured = []
    for plane in (image[:, :, channel] for channel in range(image.shape[2])):
        if plane.dtype.kind == "f":
            wide = plane.ravel().astype(np.float64)
            mean = float(wide.mean())
            levels = np.quantile(wide, np.array(LEVELS) / 100, method="inverted_cdf")
            measured.append((mean, float(((wide - mean) ** 2).mean()), levels))
        else:
            measured.append(_measure_counts(count_values(plane)))
    means, variances, levels = (np.array(values) for values in zip(*measured, strict=True))
    return means, variances, levels.T


def measure_rows(blocks: Iterable[NDArray[Any]], dtype: np.dtype[Any]) -> tuple[Values, Values, Values]:
    """Measure an image that comes in bands (h, W, C), as `measure_image` does.

    Integers are measured exactly. The levels of floats are those of every 16th line.
    """
    if dtype.kind == "f":
        parts, kept, top = [], [], 0
        for block in blocks:
            wide = block.astype(np.float64)
            parts.append((wide[..., 0].size, wide.mean((0, 1)), wide.var((0, 1))))
            kept.append(block[-top % _EVERY :: _EVERY].copy())  # a view would keep the whole block
            top += len(block)
        sizes, means, variances = (np.array(values, np.float64) for values in zip(*parts, strict=True))
        return *_merge_moments(sizes, means, variances), measure_image(np.concatenate(kept))[2]
    least = np.iinfo(dtype).max + 1
    counts = (np.stack([count_values(block[..., c], least=least) for c in range(block.shape[2])]) for block in blocks)
    measured = [_measure_counts(each) for each in np.asarray(sum(counts))]
    mean, variance, levels = (np.array(values) for values in zip(*measured, strict=True))
    return mean, variance, levels.T


def _measure_counts(counts: NDArray[np.int64]) -> tuple[float, float, Values]:
    values, n = np.arange(len(counts), dtype=np.float64), counts.sum()
    mean = float((values * counts).sum() / n)
    variance = float(((values - mean) ** 2 * counts).sum() / n)
    ranks = np.clip(np.ceil(np.array(LEVELS) / 100 * n), 1, n)
    return mean, variance, np.searchsorted(counts.cumsum(), ranks).astype(np.float64)


def _merge_moments(pixels: NDArray[Any], means: Values, variances: Values) -> tuple[Values, Values]:
    """Return mean and variance (C,) of N parts together, from their pixels (N,) and their own moments (N, C)."""
    weight = (pixels / pixels.sum())[:, None]
    mean = (weight * means).sum(0)
    return mean, (weight * (variances + (means - mean) ** 2)).sum(0)


def merge_images(dtype: str, pixels: NDArray[Any], mean: Values, variance: Values, levels: Values) -> Intensity:
    """Merge what `measure_image` found in N images: pixels (N,), mean and variance (N, C), levels (N, L, C)."""
    middle, spread = _merge_moments(pixels, mean, variance)
    shares = np.diff(np.array(LEVELS, np.float64), prepend=0.0, append=100.0)
    # a value stands for the pixels up to half-way to its neighbours
    mass = np.outer(pixels, (shares[:-1] + shares[1:]) / 2).ravel()
    merged = []
    for values in (levels[:, :, channel].ravel() for channel in range(levels.shape[2])):
        order = np.argsort(values, kind="stable")
        grown = mass[order].cumsum()
        places = np.searchsorted(grown, np.array(LEVELS) / 100 * grown[-1])
        merged.append(values[order][np.minimum(places, len(order) - 1)])
    return Intensity(
        dtype=dtype,
        pixels=int(pixels.sum()),
        low=levels[:, 0].min(0),
        high=levels[:, -1].max(0),
        mean=middle,
        std=np.sqrt(spread),
        levels=np.stack(merged, axis=1),
    )


def unit_moments(intensities: Sequence[Intensity], clip: Limits = ()) -> tuple[Values, Values]:
    """Return mean and standard deviation (C,) of all pixels, on the scale on which a model takes each dtype.

    With limits per channel, `clip`, they are those of clipped values. These are approximate, because values are assumed
    to be evenly spread between two of `LEVELS`.
    """
    means, variances = [], []
    for each in intensities:
        mean, variance = each.mean, each.std**2
        if clip:  # of a quantile function that is linear between the levels
            low, high = np.array(clip).T * each.full_scale
            values = np.clip(each.levels, low, high)
            share = np.diff(np.array(LEVELS, np.float64))[:, None] / 100
            left, right = values[:-1], values[1:]
            mean = (share * (left + right) / 2).sum(0)
            square = (share * (left**2 + left * right + right**2) / 3).sum(0)
            variance = np.maximum(square - mean**2, 0.0)
        means.append(mean / each.full_scale)
        variances.append(variance / each.full_scale**2)
    pixels = np.array([each.pixels for each in intensities], np.float64)
    mean, variance = _merge_moments(pixels, np.stack(means), np.stack(variances))
    return mean, np.sqrt(variance)


def clip_limits(config: DataConfig, intensities: Sequence[Intensity]) -> Limits:
    """Return the lowest and highest value of each channel that a model is shown; empty without clipping.

    They are on the scale on which a model takes the images' dtype, so that a checkpoint can keep them.

    Raises
    ------
    DataError
        The images have several dtypes, or both percentiles of a channel have the same value.
    """
    if config.clip is None:
        return ()
    _refuse_mixed(config, intensities, "clip")
    low, high = (intensities[0].levels[LEVELS.index(level)] for level in config.clip)
    if (low >= high).any():
        channel = int(np.argmax(low >= high))
        rule = f"to leave a range in channel {channel_label(config, channel)}"
        given = f"{low[channel]:g} at both percentiles {list(config.clip)}"
        raise DataError(expected("data", "clip", rule, given, "Set data.clip=null, or percentiles further apart."))
    scale = intensities[0].full_scale
    return tuple(zip((low / scale).tolist(), (high / scale).tolist(), strict=True))


def normalisation(
    config: DataConfig, intensities: Sequence[Intensity], default: tuple[tuple[float, ...], tuple[float, ...]]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation that a model subtracts and divides by; its checkpoint keeps them.

    Parameters
    ----------
    config
        Its `mean`, `std` and `full_scale` are used.
    intensities
        The training split.
    default
        Used where the configuration says nothing, for images in 0 to 1.

    Returns
    -------
    Per channel, for images divided by their dtype's maximum (uint8 by 255, uint16 by 65535, floats by 1).

    Raises
    ------
    DataError
        Inputs would be far from mean 0 and spread 1, a channel is constant, or one full scale is given for two dtypes.
    """
    measured = unit_moments(intensities, clip_limits(config, intensities))
    factor, chosen = 1.0, []  # the configured full scale on the scale of the dtype
    if config.full_scale is not None:
        _refuse_mixed(config, intensities, "full_scale")
        if intensities[0].high.max() > config.full_scale:
            over = f"{config.full_scale:g}, where values reach {intensities[0].high.max():g}"
            raise DataError(expected("data", "full_scale", "to be at least the largest value", over))
        factor = config.full_scale / intensities[0].full_scale
    for given, found, usual in zip((config.mean, config.std), measured, default, strict=True):
        wanted = tuple(usual if given is None or isinstance(given, str) else given)
        chosen.append(found if given == "auto" else np.array(wanted) * factor)
    mean, std = chosen
    if config.std == "auto" and not std.all():
        rule, remedy = "to vary in every channel", "Leave this channel out of the images, or give data.std."
        raise DataError(
            expected("data", "images", rule, f"one value in channel {channel_label(config, int(std.argmin()))}", remedy)
        )
    far = _far((measured[0] - mean) / std, measured[1] / std, intensities)
    if far:
        remedy = f"Set data.mean=auto data.std=auto{_scale_remedy(intensities)}."
        raise DataError(expected("data", "mean and std", "to bring inputs near mean 0 and spread 1", far, remedy))
    return tuple(map(float, mean)), tuple(map(float, std))


def _refuse_mixed(config: DataConfig, intensities: Sequence[Intensity], key: str) -> None:
    if len(intensities) > 1:
        names = ", ".join(each.dtype for each in intensities)
        raise DataError(expected("data", key, "to be null for images of several dtypes", names))


def _far(mean: Values, spread: Values, intensities: Sequence[Intensity]) -> str:
    """Describe normalised inputs (C,) that are far from mean 0 and spread 1; otherwise "".

    Some of several channels may be dark or nearly constant, but not all of them, and none may be far beyond the scale.
    """
    widest = spread.max()
    if np.abs(mean).max() <= _FAR_MEAN and 1 / _FAR_SPREAD <= widest <= _FAR_SPREAD:
        return ""
    values = "; ".join(f"{each.dtype} from {each.low.min():g} to {each.high.max():g}" for each in intensities)
    return f"mean {mean[np.abs(mean).argmax()]:.2f} and spread {widest:.2g} (stored values: {values})"


def mismatch_warnings(
    intensities: Sequence[Intensity], mean: tuple[float, ...], std: tuple[float, ...], clip: Limits = ()
) -> list[str]:
    """Warn of images whose scale differs from a trained model's, such as 8-bit copies of 12-bit images."""
    own = slice(len(intensities[0].mean))  # a checkpoint repeats its values for neighbouring planes
    measured, spread = unit_moments(intensities, clip[own])
    found = _far((measured - np.array(mean)[own]) / np.array(std)[own], spread / np.array(std)[own], intensities)
    advice = "The model was trained on another scale or dtype: its results on these images mean little."
    return [f"data: inputs normalised as in training have {found}. {advice}"] if found else []


class ScaleWatch:
    """Watches unverified images as they are used, and warns once if the scale of the newest is not the model's.

    Parameters
    ----------
    mean, std, clip
        The model's normalisation.
    at_once
        Whether a single image is judged, which may be dark; otherwise several together, or all of them at the end.
    """

    def __init__(
        self, mean: tuple[float, ...], std: tuple[float, ...], clip: Limits = (), *, at_once: bool = False
    ) -> None:
        self._model, self._least = (mean, std, clip), 1 if at_once else _TOGETHER
        self._newest: list[tuple[str, int, Values, Values, Values]] = []
        self._told = False

    def add(self, image: NDArray[Any]) -> list[str]:
        """Add an image (H, W, C), and return the warning if it is due."""
        if self._told:
            return []
        measured = image.dtype.name, image.shape[0] * image.shape[1], *measure_image(image)
        newest = [*self._newest[1 - _TOGETHER :], measured]
        lines = self._look(newest) if len(newest) >= self._least else []
        self._newest = newest  # last, so that an image that fails is forgotten
        return lines

    def close(self) -> list[str]:
        """Return the warning about images that are too few for `add`."""
        return self._look(self._newest) if 0 < len(self._newest) < self._least else []

    def _look(self, measured: list[tuple[str, int, Values, Values, Values]]) -> list[str]:
        """Warn of images whose scale differs from the model's, such as 8-bit copies of 12-bit images."""
        rows = {row[0]: [other[1:] for other in measured if other[0] == row[0]] for row in measured}
        found = [merge_images(dtype, *map(np.array, zip(*own, strict=True))) for dtype, own in rows.items()]
        lines = mismatch_warnings(found, *self._model)
        self._told = bool(lines)
        return lines


def scale_warnings(config: DataConfig, splits: Mapping[str, Sequence[Intensity]]) -> list[str]:
    """Warn of splits that use less than an eighth of their dtype's range; splits with one remedy share a line."""
    if config.full_scale is not None or "auto" in (config.mean, config.std):
        return []
    alike = dict[tuple[str, str], dict[str, float]]()
    for split, intensities in splits.items():
        for each in intensities:
            if each.dtype != "float32" and each.high.max() < _LEAST_USE * each.full_scale:
                alike.setdefault((each.dtype, _scale_remedy([each])), {})[split] = float(each.high.max())
    return [
        f"data: the largest value of the {dtype} images of {', '.join(found)} is {max(found.values()):g} of "
        f"{FULL_SCALE[dtype]:g}, which is less than an eighth of the scale; set data.mean=auto data.std=auto{remedy}."
        for (dtype, remedy), found in alike.items()
    ]


def _scale_remedy(intensities: Sequence[Intensity]) -> str:
    """Return the full scale of a camera whose largest value this may be: a power of two less 1."""
    if len(intensities) > 1 or intensities[0].dtype != "uint16":
        return ""
    bits = int(intensities[0].high.max()).bit_length()
    return f", or data.full_scale={2**bits - 1} if these are {bits}-bit images" if bits < 16 else ""
