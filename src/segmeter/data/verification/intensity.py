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
LEVELS = (0, 0.5, 1, 2, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 100)  # the percentiles that are kept of each image
SHOWN = (1, 50, 99)  # the percentiles that are shown of a data set

_EVERY = 16  # The levels of large float images come from every 16th line.
_LEAST_USE = 1 / 8  # Images that use less than this fraction of their full scale probably have another one.
_TOGETHER = 8  # Judge this many images together, because a single one may be dark.
# Normalised inputs are far off beyond this mean and this spread. Networks expect about 0 and 1.
_FAR_MEAN = 4.0
_FAR_SPREAD = 8.0

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
        The number of pixels of all images together.
    low, high, mean, std : (C,)
        Exact values over all pixels, in stored units.
    levels : (L, C)
        Percentiles at `LEVELS`, merged from those of each image. A merged one is approximate between two levels.
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
        moments = []
        sampled_lines = []
        top = 0
        for block in blocks:
            wide = block.astype(np.float64)
            moments.append((wide[..., 0].size, wide.mean((0, 1)), wide.var((0, 1))))
            sampled_lines.append(block[-top % _EVERY :: _EVERY].copy())  # a view would keep the whole block
            top += len(block)
        pixels, means, variances = (np.array(values, np.float64) for values in zip(*moments, strict=True))
        return *_merge_moments(pixels, means, variances), measure_image(np.concatenate(sampled_lines))[2]
    least = np.iinfo(dtype).max + 1
    counts = (np.stack([count_values(block[..., c], least=least) for c in range(block.shape[2])]) for block in blocks)
    measured = [_measure_counts(channel_counts) for channel_counts in np.asarray(sum(counts))]
    mean, variance, levels = (np.array(values) for values in zip(*measured, strict=True))
    return mean, variance, levels.T


def _measure_counts(counts: NDArray[np.int64]) -> tuple[float, float, Values]:
    values = np.arange(len(counts), dtype=np.float64)
    n = counts.sum()
    mean = float((values * counts).sum() / n)
    variance = float(((values - mean) ** 2 * counts).sum() / n)
    ranks = np.clip(np.ceil(np.array(LEVELS) / 100 * n), 1, n)
    return mean, variance, np.searchsorted(counts.cumsum(), ranks).astype(np.float64)


def _merge_moments(pixels: NDArray[Any], means: Values, variances: Values) -> tuple[Values, Values]:
    """Return the mean and variance (C,) of N parts together, from each part's pixels (N,) and moments (N, C)."""
    weight = (pixels / pixels.sum())[:, None]
    mean = (weight * means).sum(0)
    return mean, (weight * (variances + (means - mean) ** 2)).sum(0)


def merge_images(dtype: str, pixels: NDArray[Any], mean: Values, variance: Values, levels: Values) -> Intensity:
    """Merge what `measure_image` found in N images: pixels (N,), mean and variance (N, C), levels (N, L, C)."""
    merged_mean, merged_variance = _merge_moments(pixels, mean, variance)
    shares = np.diff(np.array(LEVELS, np.float64), prepend=0.0, append=100.0)
    # each value stands for the pixels up to half-way to the neighbouring levels
    weights = np.outer(pixels, (shares[:-1] + shares[1:]) / 2).ravel()
    merged_levels = []
    for values in (levels[:, :, channel].ravel() for channel in range(levels.shape[2])):
        order = np.argsort(values, kind="stable")
        cumulated = weights[order].cumsum()
        indices = np.searchsorted(cumulated, np.array(LEVELS) / 100 * cumulated[-1])
        merged_levels.append(values[order][np.minimum(indices, len(order) - 1)])
    return Intensity(
        dtype=dtype,
        pixels=int(pixels.sum()),
        low=levels[:, 0].min(0),
        high=levels[:, -1].max(0),
        mean=merged_mean,
        std=np.sqrt(merged_variance),
        levels=np.stack(merged_levels, axis=1),
    )


def unit_moments(intensities: Sequence[Intensity], clip: Limits = ()) -> tuple[Values, Values]:
    """Return mean and standard deviation (C,) of all pixels, on the scale on which a model takes each dtype.

    With limits per channel, `clip`, values are clipped first. The results are then approximate, because values are
    assumed to be evenly spread between two of `LEVELS`.
    """
    means, variances = [], []
    for intensity in intensities:
        mean, variance = intensity.mean, intensity.std**2
        if clip:  # the moments of a quantile function that is linear between the levels
            low, high = np.array(clip).T * intensity.full_scale
            values = np.clip(intensity.levels, low, high)
            share = np.diff(np.array(LEVELS, np.float64))[:, None] / 100
            left, right = values[:-1], values[1:]
            mean = (share * (left + right) / 2).sum(0)
            square = (share * (left**2 + left * right + right**2) / 3).sum(0)
            variance = np.maximum(square - mean**2, 0.0)
        means.append(mean / intensity.full_scale)
        variances.append(variance / intensity.full_scale**2)
    pixels = np.array([intensity.pixels for intensity in intensities], np.float64)
    mean, variance = _merge_moments(pixels, np.stack(means), np.stack(variances))
    return mean, np.sqrt(variance)


def clip_limits(config: DataConfig, intensities: Sequence[Intensity]) -> Limits:
    """Return the lowest and highest value of each channel that reaches a model; empty without clipping.

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
        value = f"{low[channel]:g} at both percentiles {list(config.clip)}"
        raise DataError(expected("data", "clip", rule, value, "Set data.clip=null, or percentiles further apart."))
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
        The values of the training split.
    default
        Mean and standard deviation for images in 0 to 1, used where the configuration says nothing.

    Returns
    -------
    One value per channel, for images divided by their dtype's maximum (uint8 by 255, uint16 by 65535, floats by 1).

    Raises
    ------
    DataError
        Inputs would be far from mean 0 and spread 1, a channel is constant, or one full scale is given for two dtypes.
    """
    measured = unit_moments(intensities, clip_limits(config, intensities))
    factor = 1.0  # the configured full scale in units of the dtype's
    if config.full_scale is not None:
        _refuse_mixed(config, intensities, "full_scale")
        if intensities[0].high.max() > config.full_scale:
            over = f"{config.full_scale:g}, where values reach {intensities[0].high.max():g}"
            raise DataError(expected("data", "full_scale", "to be at least the largest value", over))
        factor = config.full_scale / intensities[0].full_scale
    chosen = []
    for configured, measured_value, default_value in zip((config.mean, config.std), measured, default, strict=True):
        value = tuple(default_value if configured is None or isinstance(configured, str) else configured)
        chosen.append(measured_value if configured == "auto" else np.array(value) * factor)
    mean, std = chosen
    if config.std == "auto" and not std.all():
        constant = f"one value in channel {channel_label(config, int(std.argmin()))}"
        remedy = "Leave this channel out of the images, or give data.std."
        raise DataError(expected("data", "images", "to vary in every channel", constant, remedy))
    far = _far((measured[0] - mean) / std, measured[1] / std, intensities)
    if far:
        remedy = f"Set data.mean=auto data.std=auto{_scale_remedy(intensities)}."
        raise DataError(expected("data", "mean and std", "to bring inputs near mean 0 and spread 1", far, remedy))
    return tuple(map(float, mean)), tuple(map(float, std))


def _refuse_mixed(config: DataConfig, intensities: Sequence[Intensity], key: str) -> None:
    if len(intensities) > 1:
        names = ", ".join(intensity.dtype for intensity in intensities)
        raise DataError(expected("data", key, "to be null for images of several dtypes", names))


def _far(mean: Values, spread: Values, intensities: Sequence[Intensity]) -> str:
    """Describe normalised inputs (C,) that are far from mean 0 and spread 1; "" if they are not.

    Some of several channels may be dark or nearly constant, but not all of them. None may be far beyond the scale.
    """
    widest = spread.max()
    if np.abs(mean).max() <= _FAR_MEAN and 1 / _FAR_SPREAD <= widest <= _FAR_SPREAD:
        return ""
    values = "; ".join(f"{one.dtype} from {one.low.min():g} to {one.high.max():g}" for one in intensities)
    return f"mean {mean[np.abs(mean).argmax()]:.2f} and spread {widest:.2g} (stored values: {values})"


def mismatch_warnings(
    intensities: Sequence[Intensity], mean: tuple[float, ...], std: tuple[float, ...], clip: Limits = ()
) -> list[str]:
    """Warn of images whose scale differs from a trained model's, such as 8-bit copies of 12-bit images."""
    channels = slice(len(intensities[0].mean))  # a checkpoint repeats its values for neighbouring planes
    model_mean, model_std = np.array(mean)[channels], np.array(std)[channels]
    measured, spread = unit_moments(intensities, clip[channels])
    far = _far((measured - model_mean) / model_std, spread / model_std, intensities)
    advice = "The model was trained on another scale or dtype: its results on these images mean little."
    return [f"data: inputs normalised as in training have {far}. {advice}"] if far else []


class ScaleWatch:
    """Watches unverified images as they are used, and warns once if the scale of the newest is not the model's.

    Parameters
    ----------
    mean, std, clip
        The model's normalisation.
    at_once
        Whether each image is judged alone, although it may be dark. Otherwise several are judged together, or all at
        the end if there are few.
    """

    def __init__(
        self, mean: tuple[float, ...], std: tuple[float, ...], clip: Limits = (), *, at_once: bool = False
    ) -> None:
        self._model = (mean, std, clip)
        self._least = 1 if at_once else _TOGETHER
        self._newest: list[tuple[str, int, Values, Values, Values]] = []
        self._has_warned = False

    def add(self, image: NDArray[Any]) -> list[str]:
        """Add an image (H, W, C), and return the warning if it is due."""
        if self._has_warned:
            return []
        measured = image.dtype.name, image.shape[0] * image.shape[1], *measure_image(image)
        newest = [*self._newest[1 - _TOGETHER :], measured]
        lines = self._look(newest) if len(newest) >= self._least else []
        self._newest = newest  # last, so that an image that fails is forgotten
        return lines

    def close(self) -> list[str]:
        """Return the warning that is due if `add` has seen too few images to judge them."""
        return self._look(self._newest) if 0 < len(self._newest) < self._least else []

    def _look(self, measured: list[tuple[str, int, Values, Values, Values]]) -> list[str]:
        """Warn of images whose scale differs from the model's, such as 8-bit copies of 12-bit images."""
        by_dtype = {row[0]: [other[1:] for other in measured if other[0] == row[0]] for row in measured}
        intensities = [merge_images(dtype, *map(np.array, zip(*rows, strict=True))) for dtype, rows in by_dtype.items()]
        lines = mismatch_warnings(intensities, *self._model)
        self._has_warned = bool(lines)
        return lines


def scale_warnings(config: DataConfig, splits: Mapping[str, Sequence[Intensity]]) -> list[str]:
    """Warn of splits that use less than an eighth of their dtype's range; splits with one remedy share a line."""
    if config.full_scale is not None or "auto" in (config.mean, config.std):
        return []
    largest: dict[tuple[str, str], dict[str, float]] = {}  # the largest value of each split, by dtype and remedy
    for split, intensities in splits.items():
        for intensity in intensities:
            high = float(intensity.high.max())
            if intensity.dtype != "float32" and high < _LEAST_USE * intensity.full_scale:
                largest.setdefault((intensity.dtype, _scale_remedy([intensity])), {})[split] = high
    return [
        f"data: the largest value of the {dtype} images of {', '.join(values)} is {max(values.values()):g} of "
        f"{FULL_SCALE[dtype]:g}, which is less than an eighth of the scale; set data.mean=auto data.std=auto{remedy}."
        for (dtype, remedy), values in largest.items()
    ]


def _scale_remedy(intensities: Sequence[Intensity]) -> str:
    """Suggest the full scale of the camera that may have made the images, which is a power of two minus 1."""
    if len(intensities) > 1 or intensities[0].dtype != "uint16":
        return ""
    bits = int(intensities[0].high.max()).bit_length()
    return f", or data.full_scale={2**bits - 1} if these are {bits}-bit images" if bits < 16 else ""
