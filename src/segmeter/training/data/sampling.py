"""Cuts training samples: chooses the window of each case and the resolution, and stacks samples into batches."""

import logging
import math
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.sample import count_classes
from segmeter.errors import ConfigError, DataError
from segmeter.training.data.augment_config import AugmentConfig, Size, choose_crop
from segmeter.training.data.batches import Samples
from segmeter.training.data.cases import CachedDataset, Cases
from segmeter.training.data.epoch import ANYWHERE, LEAST_BATCHES, PIXELS, WINDOW, Sources, make_rng, plan_epoch
from segmeter.training.data.windows import Image, Resizing, StoredArray, cut, resize_image, resize_target, stack_windows

SIZE_STEP = 32  # sides of samples at a lower resolution are multiples of this usual stride, so that none is padded
BAND_PIXELS = 1 << 24  # this much of a target is read at a time, as it may be larger than memory
KEPT_PIXELS = 64  # windows are cut around this many pixels per class and case; few suffice, as windows are shifted too

_LOG = logging.getLogger(__name__)


class SampleSource:
    """Makes the batches of a training run from their position alone, so that threads and resumes change nothing.

    An epoch takes every case once, in full batches; samples that don't fill the last one are left to other epochs. If
    samples differ each time they are drawn, an epoch has at least `LEAST_BATCHES` batches. The cases of a small data
    set then come several times, drawn again each time. If samples don't differ, neither an epoch nor a batch is larger
    than the data.

    Parameters
    ----------
    cases
        Cases with targets, best cached.
    config
        How samples are drawn.
    batch_size
        Samples per batch, >= 1.
    seed
        Seed of everything random.
    samples
        Samples per epoch; None chooses as above.
    presence : (N, K)
        Whether a case has a class; None reads all targets if ``config.balance`` needs it.
    sources
        Each source's share of the samples; None takes all cases alike.
    defer
        Leave resizing to the device. On a GPU this pays, as few host cores have to feed it.
    downsample
        How many times smaller the network sees the images; samples have the network's size.
    part
        (r, k): this source yields samples r, r + k, r + 2 k, ... of each batch, so that k processes share it.

    Raises
    ------
    ConfigError
        The epoch would have to repeat samples bit for bit, or a batch has fewer samples than `part` has processes.
    """

    def __init__(
        self,
        cases: Cases,
        config: AugmentConfig,
        *,
        batch_size: int,
        seed: int,
        samples: int | None = None,
        presence: NDArray[np.bool_] | None = None,
        downsample: int = 1,
        part: tuple[int, int] = (0, 1),
        sources: Sources | None = None,
        defer: bool = False,
    ) -> None:
        if config.crop == "auto":  # for callers from Python; `segmeter train` has chosen a crop in `plan_training`
            config = choose_crop(config, Counter(cases[index].image.shape[:2] for index in range(len(cases))))
        self.cases = cases
        self.config = config
        self.seed = seed
        self._downsample = downsample
        self._part = part
        self._defer = defer
        repeating = {
            ("augment", "balance"): config.balance,
            ("data", "sources"): sources is not None,
            ("data", "samples_per_epoch"): samples if samples is not None and samples > len(cases) > 0 else None,
        }
        for (group, key), value in repeating.items():
            if value and not config.can_repeat:
                rule = f"not to need a sample twice, as the augmentation changes none of the {len(cases)} cases"
                remedy = "Set augment.brightness, augment.crop or another change."
                raise ConfigError(expected(group, key, rule, value, remedy))
        least = LEAST_BATCHES * batch_size if config.changes_values and len(cases) else 0
        self.samples = samples if samples is not None and len(cases) else max(len(cases), least)
        self.batch_size = max(1, min(batch_size, self.samples))
        if self.batch_size < part[1]:
            rule = f"to be at least {part[1]}, a sample for each process"
            raise ConfigError(expected("training", "batch_size", rule, self.batch_size))
        if 0 < self.samples < batch_size:
            _LOG.warning(
                "training: batches of %d samples instead of %d, as an epoch has no more", self.samples, batch_size
            )
        balance = config.balance or 0.0
        if balance > 0 and len(cases) > 0 and presence is None:
            presence = _read_presence(cases)
        plan = partial(
            plan_epoch, len(cases), self.samples, seed=seed, balance=balance, presence=presence, sources=sources
        )
        # more than one, as the batches of the next epoch are prepared during the last steps of an epoch
        self._plan = lru_cache(maxsize=3)(plan)
        self._pixels: dict[int, dict[int, NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        """Return the batches per epoch."""
        return self.samples // self.batch_size

    def batch(self, epoch: int, index: int, progress: float = 1.0) -> Samples:
        """Cut the samples of one batch.

        Parameters
        ----------
        epoch, index
            The epoch, and the batch in it.
        progress
            The part of the run that is over, 0 to 1; decides only the resolution.

        Returns
        -------
        The samples, with image and target in the cases' dtypes.

        Raises
        ------
        DataError
            A case without a target, or whole images of several sizes.
        """
        plan = self._plan(epoch=epoch)
        rank, processes = self._part
        own_part = slice(index * self.batch_size + rank, (index + 1) * self.batch_size, processes)
        numbers = plan.numbers[own_part]
        numbers_and_labels = zip(numbers.tolist(), plan.labels[own_part].tolist(), strict=True)
        samples = [self.cut_sample(epoch, number, progress, label) for number, label in numbers_and_labels]
        sizes = {size for _, _, size in samples}
        if len(sizes) > 1:
            remedy = "Set augment.crop=auto or [height,width], or training.batch_size=1."
            rule = "to be given for images of several sizes"
            raise DataError(expected("augment", "crop", rule, sorted(sizes), remedy))
        images, targets, _ = zip(*samples, strict=True)
        (size,) = sizes
        windows = tuple((image.shape[0], image.shape[1]) for image in images)
        if self._defer and any(window != size for window in windows):
            stacked_images = stack_windows([*images], axis=0)
            stacked_targets = stack_windows([*targets], axis=targets[0].ndim - 2)
            return Samples(stacked_images, stacked_targets, numbers, Resizing(windows, size))
        resized_images = np.stack([resize_image(image, size) for image in images])
        resized_targets = np.stack([resize_target(target, size) for target in targets])
        return Samples(resized_images, resized_targets, numbers)

    def cut_sample(
        self, epoch: int, number: int, progress: float = 1.0, label: int = ANYWHERE
    ) -> tuple[Image, NDArray[Any], Size]:
        """Cut image (H, W, C) and target of one sample as stored, and return the size that they will be resized to.

        Parameters
        ----------
        epoch, progress
            As for `batch`.
        number
            The case, or for its r-th repeat in the epoch the case + r x number of cases.
        label
            The class that the window is cut around.
        """
        index = number % len(self.cases)
        case = self.cases.opened(index) if isinstance(self.cases, CachedDataset) else self.cases[index]
        if case.target is None:
            raise DataError(expected(case.case_id, "target", "to be there for training", "none"))
        rng = make_rng(WINDOW, seed=self.seed, epoch=epoch, index=number)
        zoom = math.exp(rng.uniform(*np.log(self.config.zoom)))
        full_size: Size = (case.image.shape[0], case.image.shape[1])
        size, scale = sample_size(self.config, full_size, progress, self._downsample)
        window = [max(1, round(side / (scale * zoom))) for side in size]
        shift = rng.random(2)
        choice = rng.random()
        if label != ANYWHERE and index not in self._pixels:
            pixel_rng = make_rng(PIXELS, seed=self.seed, index=index)  # the same in every epoch: pixels can be kept
            self._pixels[index] = class_pixels(case.target, self.cases.spec, pixel_rng)
        pixels = self._pixels[index].get(label) if label != ANYWHERE else None
        pixel = None if pixels is None else divmod(int(pixels[int(choice * len(pixels))]), full_size[1])
        corner = []
        for axis in (0, 1):  # an image smaller than the window lies anywhere in it
            low, high = sorted((0, full_size[axis] - window[axis]))
            if pixel is None:
                corner.append(low + int(shift[axis] * (high - low + 1)))
            else:
                corner.append(min(max(pixel[axis] - int(shift[axis] * window[axis]), low), high))
        return *cut(case.image, case.target, corner, window, self.cases.spec), size


def _read_presence(cases: Cases) -> NDArray[np.bool_]:
    """Read all targets, and tell which cases have which classes, (cases, K)."""
    targets = (cases[index].target for index in range(len(cases)))
    absent = [False] * cases.spec.num_classes
    return np.array([absent if target is None else count_classes(target, cases.spec) > 0 for target in targets])


def sample_size(config: AugmentConfig, image: Size, progress: float, downsample: int = 1) -> tuple[Size, float]:
    """Return a sample's size at this point of the run, and its share of the full resolution.

    Examples
    --------
    >>> sample_size(AugmentConfig(crop=(256, 320), resolution=0.5, resolution_until=0.8), (360, 480), 0.4)
    ((192, 224), 0.75)
    >>> sample_size(AugmentConfig(crop=(256, 320)), (360, 480), 0.4, downsample=2)
    ((128, 160), 0.5)
    """
    full_size: Size = image if config.crop is None else (int(config.crop[0]), int(config.crop[1]))
    start, end = config.resolution_from, config.resolution_until
    growth = min(max((progress - start) / (end - start), 0.0), 1.0)
    scale = (config.resolution + (1 - config.resolution) * growth) / downsample
    if scale == 1.0:
        return full_size, scale
    height, width = (max(1, round(side * scale)) for side in full_size)
    if config.crop is not None:  # a window exceeds the crop by half a pixel at most
        height, width = (side if side < SIZE_STEP else side // SIZE_STEP * SIZE_STEP for side in (height, width))
    return (height, width), scale


def class_pixels(
    target: NDArray[Any] | StoredArray, spec: ClassSpec, rng: np.random.Generator
) -> dict[int, NDArray[np.int64]]:
    """Draw some pixels of each class of a target at random.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
        Read twice, some lines at a time.
    spec
        The meaning of its values.
    rng
        Draws the pixels.

    Returns
    -------
    For each class that occurs, `KEPT_PIXELS` positions in the flattened (H, W); some may repeat.
    """
    width = target.shape[-1]
    tops = range(0, target.shape[-2], max(1, BAND_PIXELS // max(1, width)))
    counts = np.array([[np.count_nonzero(plane) for plane in _planes(target, top, tops.step, spec)] for top in tops])
    ranks = {  # the drawn pixels, as numbers within all pixels of the class
        label: rng.integers(total, size=KEPT_PIXELS) for label, total in enumerate(counts.sum(0).tolist()) if total
    }
    positions = {label: np.empty(KEPT_PIXELS, np.int64) for label in ranks}
    counts_above = np.cumsum(counts, axis=0) - counts
    for band, top in enumerate(tops):
        planes = _planes(target, top, tops.step, spec) if counts[band].any() else ()
        for label, plane in enumerate(planes):
            if counts[band, label]:
                ranks_in_band = ranks[label] - counts_above[band, label]
                inside = (ranks_in_band >= 0) & (ranks_in_band < counts[band, label])
                positions[label][inside] = np.flatnonzero(plane)[ranks_in_band[inside]] + top * width
    return positions


def _planes(target: NDArray[Any] | StoredArray, top: int, height: int, spec: ClassSpec) -> Iterator[NDArray[np.bool_]]:
    """Return a mask of each class in some lines of a target."""
    lines = target[..., top : top + height, :]
    if spec.is_multilabel:
        return iter(lines == 1)
    return (lines == label for label in range(spec.num_classes))
