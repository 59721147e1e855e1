"""Cuts image and target to a window, from arrays or from files. Of a file, only the part in the window is decoded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, content_changed
from segmeter.data.files.array import Header
from segmeter.data.files.formats import FORMATS
from segmeter.data.files.opened import open_array
from segmeter.data.masks.label_mapping import to_labels
from segmeter.data.masks.reading import has_pixels, hash_map
from segmeter.models.segmenter import FULL_SCALE
from segmeter.training.data.augment_config import Size

Image = NDArray[Any]
LEAST_PIXELS = 1 << 22  # images with fewer pixels decode about as fast as the tiles under a window
_FORMATS = ("tiff", "npy", "zarr")  # of which a part can be read
_SUFFIXES = tuple(suffix for form in _FORMATS for suffix in FORMATS[form].suffixes)
_READABLE = ("uint8", "uint16", "int16", "uint32", "int32", "float32")  # dtypes that are read as they are stored


def cut(
    image: "Image | StoredArray",
    target: "NDArray[Any] | StoredArray",
    corner: Sequence[int],
    size: Sequence[int],
    spec: ClassSpec,
) -> tuple[Image, NDArray[Any]]:
    """Cut image and target to a window, from its top left corner on.

    Outside, the image is mirrored, and the target ignored if the data allows.
    """
    inside, border = [], []
    for start, length, full in zip(corner, size, image.shape[:2], strict=True):
        inside.append(slice(max(start, 0), min(start + length, full)))
        border.append((inside[-1].start - start, start + length - inside[-1].stop))
    rows, columns = inside
    inner, inner_target = image[rows, columns], target[..., rows, columns]
    if not any(map(any, border)):
        return inner, inner_target
    return np.pad(inner, (*border, (0, 0)), mode="symmetric"), spec.pad(inner_target, border)


@dataclass(frozen=True)
class Resizing:
    """The resizing that is left to the device: each sample's window, at the top left, and the size of the batch."""

    windows: tuple[Size, ...]
    size: Size


def resize_image(image: Image, size: Size) -> Image:
    """Resize bilinearly and antialiased, so that every pixel of a larger image counts; the dtype stays.

    Parameters
    ----------
    image : (H, W, C), uint8, uint16 or float32
    size
        Height and width.
    """
    if image.shape[:2] == size:
        return image
    resized = resize_planes(to_torch(image).permute(2, 0, 1)[None], size)
    return to_numpy(resized[0].permute(1, 2, 0))


def resize_planes(image: Tensor, size: Size) -> Tensor:
    """Resize (B, C, H, W) on any device, like `resize_image`; on a GPU uint8 may differ by 1 from the CPU."""
    largest = FULL_SCALE.get(image.dtype)
    on_cpu = image.device.type == "cpu"
    is_direct = largest is None or (image.dtype == torch.uint8 and on_cpu)  # a GPU resizes floats only
    wide = image if is_direct else image.float()
    resized = functional.interpolate(wide, size, mode="bilinear", antialias=True, align_corners=False)
    if largest is None or is_direct:
        return resized
    return resized.round_().clamp_(0, largest).to(image.dtype)  # the weights of a pixel add up to 1, up to rounding


def resize_batch(image: Tensor, target: Tensor, resizing: Resizing) -> tuple[Tensor, Tensor]:
    """Resize the windows of a batch on its device, as `resize_image` and `resize_target` do, without waiting.

    Parameters
    ----------
    image : (B, C, H, W), uint8, uint16 or float32
        Each window begins at the top left.
    target : (B, H, W) or (B, K, H, W)
    """
    images, targets = [], []
    for index, (height, width) in enumerate(resizing.windows):
        part = image[index : index + 1, :, :height, :width]
        images.append(part if (height, width) == resizing.size else resize_planes(part, resizing.size))
        sides = zip((height, width), resizing.size, strict=True)
        rows, columns = (((2 * torch.arange(new, device=target.device) + 1) * old) // (2 * new) for old, new in sides)
        targets.append(target[index][..., rows[:, None], columns])
    return torch.cat(images), torch.stack(targets)


def stack_windows(windows: list[NDArray[Any]], *, axis: int) -> NDArray[Any]:
    """Stack arrays that differ in `axis` and the next one, with zeros below and to the right.

    Examples
    --------
    >>> stack_windows([np.ones((1, 2)), np.ones((2, 1))], axis=0).sum((1, 2)).tolist()
    [2.0, 2.0]
    """
    largest = [max(window.shape[axis + k] for window in windows) for k in (0, 1)]
    first = windows[0]
    stacked = np.zeros((len(windows), *first.shape[:axis], *largest, *first.shape[axis + 2 :]), first.dtype)
    for padded, window in zip(stacked, windows, strict=True):
        height, width = window.shape[axis : axis + 2]
        padded[(slice(None),) * axis + (slice(height), slice(width))] = window
    return stacked


def resize_target(target: NDArray[Any], size: Size) -> NDArray[Any]:
    """Resize by taking the value at the centre of each new pixel; nothing is blended.

    Parameters
    ----------
    target : (..., H, W), any dtype
    size
        Height and width.
    """
    if target.shape[-2:] == size:
        return target
    rows, columns = (
        ((2 * np.arange(new) + 1) * old) // (2 * new) for old, new in zip(target.shape[-2:], size, strict=True)
    )
    return np.ascontiguousarray(target[..., rows[:, None], columns])


def has_windows(header: Header) -> bool:
    """Tell whether windows of a file can be read: upright TIFF, NPY and Zarr with values that need no conversion."""
    plain = header.orientation == 1 and header.kind != "cmyk" and not header.lead
    return header.format in _FORMATS and header.dtype.name in _READABLE and plain


class StoredArray:
    """An array in a file; ``image[rows, columns]`` and ``target[..., rows, columns]`` read that part."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], read: Callable[[slice, slice], NDArray[Any]], *, axis: int
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = int(np.prod(shape)) * dtype.itemsize  # if it were read whole
        self._read = read
        self._size = shape[axis : axis + 2]

    def __getitem__(self, key: tuple[Any, ...]) -> NDArray[Any]:
        (top, bottom, _), (left, right, _) = (
            span.indices(side) for span, side in zip(key[-2:], self._size, strict=True)
        )
        return self._read(slice(top, bottom), slice(left, right))


@dataclass(frozen=True, kw_only=True)
class StoredSample:
    """A large case whose arrays stay in its files, to cut windows from."""

    case_id: str
    image: StoredArray
    target: StoredArray | None


class PartReader:
    """Opens large cases without decoding them; threads may share it.

    When a file is first read, its content is compared with the verified one.

    Parameters
    ----------
    dataset
        Its cases are read in parts if all of their files are TIFF, NPY or Zarr.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._verified: set[Path] = set()

    def __call__(self, index: int) -> StoredSample | None:
        """Return a case whose arrays stay in the files; None if it is small or can't be read in parts."""
        data = self._dataset
        pair = data.pairs[index]
        may_have_windows = all(path.suffix.lower() in _SUFFIXES and has_pixels(path) for path in pair.files)
        if data.reading.instances or not may_have_windows:
            return None
        header, *masks = headers = [data.header_of(index, number) for number in range(len(pair.paths))]
        size = (header.height, header.width)
        exact = header.channels == data.in_channels and header.dtype.name in ("uint8", "uint16", "float32")
        plain = all(mask.channels == 1 and mask.dtype.kind in "iu" for mask in masks) and header.kind != "palette"
        if not (math.prod(size) >= LEAST_PIXELS and exact and plain and all(map(has_windows, headers))):
            return None
        lead = (len(masks),) if data.spec.is_multilabel else ()
        image = StoredArray((*size, header.channels), header.dtype, partial(self._image, index), axis=0)
        target = StoredArray((*lead, *size), data.spec.label_dtype, partial(self._target, index), axis=len(lead))
        return StoredSample(case_id=pair.case_id, image=image, target=target if masks else None)

    def _image(self, index: int, rows: slice, columns: slice) -> NDArray[Any]:
        pixels, _ = self._dataset.limit(index)(partial(self._read, index, 0, rows, columns))
        return pixels[..., None] if pixels.ndim == 2 else pixels

    def _target(self, index: int, rows: slice, columns: slice) -> NDArray[Any]:
        data = self._dataset
        labels = []
        for number, path in enumerate(data.pairs[index].masks, 1):
            plane, nodata = data.limit(index)(partial(self._read, index, number, rows, columns))
            labels.append(to_labels(path, plane, spec=data.spec, label_map=data.reading.label_map, nodata=nodata))
        return data.stack(labels)

    def _read(self, index: int, number: int, rows: slice, columns: slice) -> tuple[NDArray[Any], Any]:
        """Read a window of a file's pixels, and the value that marks missing data."""
        pair = self._dataset.pairs[index]
        path = Path(pair.paths[number])
        if path not in self._verified:
            if pair.sha256 and hash_map(path) != pair.sha256[number]:
                raise content_changed(path)
            self._verified.add(path)
        reading = self._dataset.reading
        options = reading.options(path) if number else reading.limits
        with open_array(path, **options, streams=self._dataset.streams) as array:
            return np.ascontiguousarray(array.read(rows.start, rows.stop, columns)), array.nodata
