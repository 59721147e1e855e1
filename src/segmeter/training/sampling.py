"""Cases -> batches of samples: in what order, from which window, at which resolution (NumPy, and one resize)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn import functional

from segmeter.bridge.to_numpy import to_numpy
from segmeter.bridge.to_torch import to_torch
from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.training.augment_config import AugmentConfig
from segmeter.training.cache import Cases
from segmeter.vocabulary import ClassSpec

SIZE_STEP = 32  # samples at a lower resolution keep to the networks' usual stride, so that none of them is padded
KEPT_PIXELS = 64  # per class and case, to lay windows around; windows are shifted besides, so few suffice

_ORDER, _WINDOW, _PIXELS, AUGMENT = range(4)  # independent streams of draws

Image = NDArray[Any]
Size = tuple[int, int]


def draw(stream: int, *, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """The generator of one stream for one case in one epoch."""
    return np.random.default_rng([stream, seed, epoch, index])


def epoch_order(count: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """In which order an epoch takes the cases: a permutation that seed and epoch decide.

    Examples
    --------
    >>> sorted(epoch_order(4, seed=0, epoch=1).tolist())
    [0, 1, 2, 3]
    """
    return draw(_ORDER, seed=seed, epoch=epoch).permutation(count).astype(np.int64)


@dataclass(frozen=True)
class Window:
    """A rectangle of an image; it may reach beyond the image."""

    top: int
    left: int
    height: int
    width: int


class SampleSource:
    """Gives the batches of a training run by their place alone, so that threads and resumes change nothing.

    An epoch takes every case once, in full batches: what does not fill the last batch is left to other epochs.
    A data set smaller than a batch fills it by repeating its cases.

    Parameters
    ----------
    cases
        Cases with targets, best cached.
    config
        How samples are drawn.
    batch_size
        Samples per batch, >= 1.
    seed
        Of every draw.
    """

    def __init__(self, cases: Cases, config: AugmentConfig, *, batch_size: int, seed: int) -> None:
        self.cases = cases
        self.config = config
        self.batch_size = batch_size
        self.seed = seed
        self._pixels: dict[int, list[NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        """Batches per epoch."""
        return max(len(self.cases) // self.batch_size, min(len(self.cases), 1))

    def batch(self, epoch: int, index: int, progress: float = 1.0) -> tuple[Image, NDArray[Any], NDArray[np.int64]]:
        """Samples of one batch.

        Parameters
        ----------
        epoch, index
            Which epoch, and which batch of it.
        progress
            The part of the run that is over, 0 to 1; decides the resolution alone.

        Returns
        -------
        Image (B, H, W, C) and target (B, H, W), or (B, K, H, W) for multilabel, in the cases' dtypes, and the index of
        each case, int64 (B,).

        Raises
        ------
        DataError
            A case without a target, or whole images of several sizes.
        """
        order = epoch_order(len(self.cases), seed=self.seed, epoch=epoch)
        indices = np.resize(order[index * self.batch_size : (index + 1) * self.batch_size], self.batch_size)
        samples = [self.sample(epoch, int(case), progress) for case in indices]
        if len({image.shape for image, _ in samples}) > 1:
            sizes = sorted({image.shape[:2] for image, _ in samples})
            remedy = "Set augment.crop=[height,width], or training.batch_size=1."
            raise DataError(expected("augment", "crop", "to be given for images of several sizes", sizes, remedy))
        images, targets = zip(*samples, strict=True)
        return np.stack(images), np.stack(targets), indices

    def sample(self, epoch: int, index: int, progress: float = 1.0) -> tuple[Image, NDArray[Any]]:
        """Image (H, W, C) and target of one case, cut and resized as the epoch has it."""
        case = self.cases[index]
        if case.target is None:
            raise DataError(expected(case.case_id, "target", "to be there for training", "none"))
        rng = draw(_WINDOW, seed=self.seed, epoch=epoch, index=index)
        low, high = np.log(self.config.zoom)
        zoom = math.exp(rng.uniform(low, high))
        full: Size = (case.image.shape[0], case.image.shape[1])
        size, scale = sample_size(self.config, full, progress)
        height, width = (max(1, round(side / (scale * zoom))) for side in size)
        window = self._place(rng, index, case.target, (height, width))
        image, target = cut(case.image, case.target, window, self.cases.spec)
        return resize_image(image, size), resize_target(target, size)

    def _place(self, rng: np.random.Generator, index: int, target: NDArray[Any], window: Size) -> Window:
        """Anywhere in the image, or around a pixel of a class."""
        image = target.shape[-2:]
        shift = rng.random(2)  # drawn in any case, so that `balance` does not change the other samples
        chosen, which = rng.random(2)
        corner = [_slide(side, length, part) for side, length, part in zip(image, window, shift, strict=True)]
        pixels = self._class_pixels(index, target) if chosen < self.config.balance else []
        if pixels:
            of_class = pixels[int(which * len(pixels))]
            pixel = divmod(int(rng.choice(of_class)), image[1])
            for axis in (0, 1):
                low, high = sorted((0, image[axis] - window[axis]))
                corner[axis] = min(max(pixel[axis] - int(shift[axis] * window[axis]), low), high)
        return Window(corner[0], corner[1], *window)

    def _class_pixels(self, index: int, target: NDArray[Any]) -> list[NDArray[np.int64]]:
        if index not in self._pixels:
            rng = draw(_PIXELS, seed=self.seed, index=index)  # the same in every epoch, so that it can be kept
            self._pixels[index] = class_pixels(target, self.cases.spec, rng)
        return self._pixels[index]


def sample_size(config: AugmentConfig, image: Size, progress: float) -> tuple[Size, float]:
    """How large a sample is at this point of the run, and the share of the full resolution that it has.

    Examples
    --------
    >>> sample_size(AugmentConfig(crop=(256, 320), resolution=0.5, resolution_until=0.8), (360, 480), 0.4)
    ((192, 256), 0.75)
    """
    full: Size = image if config.crop is None else (config.crop[0], config.crop[1])
    start, end = config.resolution_from, config.resolution_until
    grown = min(max((progress - start) / (end - start), 0.0), 1.0)
    scale = config.resolution + (1 - config.resolution) * grown
    if scale == 1.0:
        return full, scale
    height, width = (max(SIZE_STEP, SIZE_STEP * round(side * scale / SIZE_STEP)) for side in full)
    return (height, width), scale


def class_pixels(target: NDArray[Any], spec: ClassSpec, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Where the classes of one target are: for each class in it, some of its pixels, drawn at random.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
    spec
        What its values mean.
    rng
        Draws the pixels.

    Returns
    -------
    One array per class that is there, of `KEPT_PIXELS` positions in the flattened (H, W); some may repeat.
    """
    planes = target == 1 if spec.task == "multilabel" else (target == label for label in range(spec.num_classes))
    found = [np.flatnonzero(plane) for plane in planes]
    return [each[rng.integers(len(each), size=KEPT_PIXELS)] for each in found if len(each)]


def cut(image: Image, target: NDArray[Any], window: Window, spec: ClassSpec) -> tuple[Image, NDArray[Any]]:
    """Image and target inside a window; beyond the image it is mirrored, and ignored where the data can say so."""
    full = image.shape[:2]
    rows, above, below = _span(window.top, window.height, full[0])
    columns, before, after = _span(window.left, window.width, full[1])
    inner, inner_target = image[rows, columns], target[..., rows, columns]
    border = ((above, below), (before, after))
    if not any(map(any, border)):
        return inner, inner_target
    lead = ((0, 0),) * (target.ndim - 2)
    padded = np.pad(inner, (*border, (0, 0)), mode="symmetric")
    if spec.ignore_index is None:
        return padded, np.pad(inner_target, (*lead, *border), mode="symmetric")
    return padded, np.pad(inner_target, (*lead, *border), constant_values=spec.ignore_index)


def resize_image(image: Image, size: Size) -> Image:
    """Bilinear, with every pixel of a larger image taken into account (antialiased); the dtype stays.

    Parameters
    ----------
    image : (H, W, C), uint8, uint16 or float32
    size
        Height and width wanted.
    """
    if image.shape[:2] == size:
        return image
    wide = None if image.dtype == np.uint8 else "float32"
    tensor = to_torch(image, dtype=wide).permute(2, 0, 1)[None]
    resized = functional.interpolate(tensor, size, mode="bilinear", antialias=True, align_corners=False)
    if image.dtype == np.uint16:
        resized = resized.round_().clamp_(0, 65535)  # the weights of a pixel add up to 1 but for rounding
    return to_numpy(resized[0].permute(1, 2, 0), dtype=image.dtype)


def resize_target(target: NDArray[Any], size: Size) -> NDArray[Any]:
    """The value at the centre of each new pixel; nothing is blended.

    Parameters
    ----------
    target : (..., H, W), any dtype
    size
        Height and width wanted.
    """
    rows, columns = (_centres(old, new) for old, new in zip(target.shape[-2:], size, strict=True))
    return np.ascontiguousarray(target[..., rows[:, None], columns])


def _centres(old: int, new: int) -> NDArray[np.int64]:
    return ((2 * np.arange(new) + 1) * old) // (2 * new)


def _slide(image: int, window: int, part: float) -> int:
    """Start of a window inside an image, or of one around it where it is larger; each start is as likely."""
    low, high = sorted((0, image - window))
    return low + int(part * (high - low + 1))


def _span(start: int, length: int, full: int) -> tuple[slice, int, int]:
    """The part of a span that is inside, and how much lies before and after it."""
    inside = slice(max(start, 0), min(start + length, full))
    return inside, inside.start - start, start + length - inside.stop
