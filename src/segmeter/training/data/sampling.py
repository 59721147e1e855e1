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
from segmeter.training.data.batches import Windows
from segmeter.training.data.cases import CachedDataset, Cases
from segmeter.training.data.epoch import ANYWHERE, LEAST_BATCHES, PIXELS, WINDOW, Sources, draw, plan_epoch
from segmeter.training.data.windows import Image, Resizing, cut, resize_image, resize_target, stack_windows

SIZE_STEP = 32  # samples at a lower resolution keep to the networks' usual stride, so that none is padded
BAND_PIXELS = 1 << 24  # of a target read at a time, as it may be larger than memory
KEPT_PIXELS = 64  # per class and case, to cut windows around; few suffice, as windows are shifted too

_LOG = logging.getLogger(__name__)


class SampleSource:
    """Makes the batches of a training run from their position alone, so that threads and resumes change nothing.

    An epoch takes every case once, in full batches; samples that don't fill the last one are left to other epochs. If
    samples differ each time they are drawn, an epoch has at least `LEAST_BATCHES` batches. Cases of a small data set
    then come several times, each time drawn anew. If they don't differ, neither an epoch nor a batch is larger than
    the data.

    Parameters
    ----------
    cases
        Cases with targets, best cached.
    config
        How samples are drawn.
    batch_size
        Samples per batch, >= 1.
    seed
        Seed of every draw.
    samples
        Per epoch; None chooses as above.
    presence : (N, K)
        Whether a case has a class; None reads all targets if ``config.balance`` needs it.
    sources
        Each source's share of the samples; None takes all cases alike.
    defer
        Leave resizing to the device. On a GPU this pays, as few host cores have to feed it.
    downsample
        How many times smaller the network sees the images; samples have the network's size.
    part
        (r, k): of each batch this source gives samples r, r + k, r + 2 k, ..., so that k processes share it.

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
        if config.crop == "auto":
            config = choose_crop(config, Counter(cases[index].image.shape[:2] for index in range(len(cases))))
        self.cases, self.config, self.seed = cases, config, seed
        self._downsample, self._part, self._defer = downsample, part, defer
        repeated = {
            ("augment", "balance"): config.balance,
            ("data", "sources"): sources is not None,
            ("data", "samples_per_epoch"): samples if samples is not None and samples > len(cases) > 0 else None,
        }
        for (group, key), given in repeated.items():
            if given and not config.can_repeat:
                rule = f"not to need a sample twice, as the augmentation changes none of the {len(cases)} cases"
                remedy = "Set augment.brightness, augment.crop or another change."
                raise ConfigError(expected(group, key, rule, given, remedy))
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
            targets = (cases[index].target for index in range(len(cases)))
            none = [False] * cases.spec.num_classes
            presence = np.array([none if each is None else count_classes(each, cases.spec) > 0 for each in targets])
        options: dict[str, Any] = {"balance": balance, "presence": presence, "sources": sources}
        # the batches of the next epoch are prepared during the last steps of one
        self._plan = lru_cache(maxsize=3)(partial(plan_epoch, len(cases), self.samples, seed=seed, **options))
        self._pixels: dict[int, dict[int, NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        """Return the batches per epoch."""
        return self.samples // self.batch_size

    def batch(self, epoch: int, index: int, progress: float = 1.0) -> tuple[Any, ...]:
        """Cut the samples of one batch.

        Parameters
        ----------
        epoch, index
            The epoch, and the batch in it.
        progress
            The part of the run that is over, 0 to 1; decides only the resolution.

        Returns
        -------
        Image (B, H, W, C) and target (B, H, W), or (B, K, H, W) for multilabel, in the cases' dtypes. The number of
        each sample, int64 (B,): its case + the number of cases x how often the epoch had the case before. And the
        resizing that is left to the device, if any.

        Raises
        ------
        DataError
            A case without a target, or whole images of several sizes.
        """
        plan = self._plan(epoch=epoch)
        rank, processes = self._part
        place = slice(index * self.batch_size + rank, (index + 1) * self.batch_size, processes)
        numbers = plan.numbers[place]
        samples = zip(numbers.tolist(), plan.labels[place].tolist(), strict=True)
        cuts = [self.cut(epoch, number, progress, label) for number, label in samples]
        sizes = {size for _, _, size in cuts}
        if len(sizes) > 1:
            remedy = "Set augment.crop=auto or [height,width], or training.batch_size=1."
            given = sorted(sizes)
            raise DataError(expected("augment", "crop", "to be given for images of several sizes", given, remedy))
        images, targets, _ = zip(*cuts, strict=True)
        (size,) = sizes
        windows = tuple((image.shape[0], image.shape[1]) for image in images)
        if self._defer and any(window != size for window in windows):
            stacked = stack_windows([*images], axis=0), stack_windows([*targets], axis=targets[0].ndim - 2)
            return Windows(*stacked, numbers, Resizing(windows, size))
        images, targets = [resize_image(each, size) for each in images], [resize_target(each, size) for each in targets]
        return np.stack(images), np.stack(targets), numbers

    def cut(
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
            The class that its window is cut around.
        """
        index = number % len(self.cases)
        case = self.cases.opened(index) if isinstance(self.cases, CachedDataset) else self.cases[index]
        if case.target is None:
            raise DataError(expected(case.case_id, "target", "to be there for training", "none"))
        rng = draw(WINDOW, seed=self.seed, epoch=epoch, index=number)
        zoom = math.exp(rng.uniform(*np.log(self.config.zoom)))
        full: Size = (case.image.shape[0], case.image.shape[1])
        size, scale = sample_size(self.config, full, progress, self._downsample)
        window = [max(1, round(side / (scale * zoom))) for side in size]
        shift, which = rng.random(2), rng.random()
        if label != ANYWHERE and index not in self._pixels:
            drawn = draw(PIXELS, seed=self.seed, index=index)  # the same in every epoch, so that they can be kept
            self._pixels[index] = class_pixels(case.target, self.cases.spec, drawn)
        pixels = self._pixels[index].get(label) if label != ANYWHERE else None
        pixel = None if pixels is None else divmod(int(pixels[int(which * len(pixels))]), full[1])
        corner = []
        for axis in (0, 1):  # a smaller image lies anywhere in the window
            low, high = sorted((0, full[axis] - window[axis]))
            if pixel is None:
                corner.append(low + int(shift[axis] * (high - low + 1)))
            else:
                corner.append(min(max(pixel[axis] - int(shift[axis] * window[axis]), low), high))
        return *cut(case.image, case.target, corner, window, self.cases.spec), size


def sample_size(config: AugmentConfig, image: Size, progress: float, downsample: int = 1) -> tuple[Size, float]:
    """Return a sample's size at this point of the run, and its share of the full resolution.

    Examples
    --------
    >>> sample_size(AugmentConfig(crop=(256, 320), resolution=0.5, resolution_until=0.8), (360, 480), 0.4)
    ((192, 224), 0.75)
    >>> sample_size(AugmentConfig(crop=(256, 320)), (360, 480), 0.4, downsample=2)
    ((128, 160), 0.5)
    """
    full: Size = image if config.crop is None else (int(config.crop[0]), int(config.crop[1]))
    start, end = config.resolution_from, config.resolution_until
    grown = min(max((progress - start) / (end - start), 0.0), 1.0)
    scale = (config.resolution + (1 - config.resolution) * grown) / downsample
    if scale == 1.0:
        return full, scale
    height, width = (max(1, round(side * scale)) for side in full)
    if config.crop is not None:  # a window exceeds the crop by half a pixel at most
        height, width = (side if side < SIZE_STEP else side // SIZE_STEP * SIZE_STEP for side in (height, width))
    return (height, width), scale


def class_pixels(target: NDArray[Any], spec: ClassSpec, rng: np.random.Generator) -> dict[int, NDArray[np.int64]]:
    """Draw some pixels of each class of a target at random.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
        Read some rows at a time, twice.
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
    picks = {
        label: rng.integers(total, size=KEPT_PIXELS) for label, total in enumerate(counts.sum(0).tolist()) if total
    }
    found = {label: np.empty(KEPT_PIXELS, np.int64) for label in picks}
    before = np.cumsum(counts, axis=0) - counts
    for number, top in enumerate(tops):
        planes = _planes(target, top, tops.step, spec) if counts[number].any() else ()
        for label, plane in enumerate(planes):
            if counts[number, label]:
                here = picks[label] - before[number, label]
                inside = (here >= 0) & (here < counts[number, label])
                found[label][inside] = np.flatnonzero(plane)[here[inside]] + top * width
    return found


def _planes(target: NDArray[Any], top: int, height: int, spec: ClassSpec) -> Iterator[NDArray[np.bool_]]:
    """Return a mask of each class in some rows of a target."""
    rows = target[..., top : top + height, :]
    if spec.is_multilabel:
        return iter(rows == 1)
    return (rows == label for label in range(spec.num_classes))
