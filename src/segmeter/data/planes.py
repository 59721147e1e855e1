"""Offers the planes of volumes to 2-D networks: any of them for training, and all in order for a prediction.

A volume is unpacked once, block by block, into a temporary file that is mapped into memory. Any plane across any axis
can then be read without the rest, so only planes are held in memory.
"""

import shutil
import tempfile
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.config import PlaneAxis
from segmeter.data.dataset import Dataset, content_changed
from segmeter.data.files.array import Header
from segmeter.data.files.geometry import NOWHERE, Geometry, describe, differing_place, same_spacing, share_world
from segmeter.data.files.opened import open_array
from segmeter.data.files.refusals import file_error, show
from segmeter.data.images import plane_of_volume
from segmeter.data.masks.reading import check_mask_header, has_pixels, labels_of
from segmeter.data.sample import Sample
from segmeter.errors import DataError
from segmeter.remote import fetched

AXES = "kji"  # names of the axes of (D, H, W), as a NIfTI file counts them
_COARSER = 1.01  # A spacing is the coarsest if it is more than this many times the next one.
_NO_PLANES = "data.planes is for volumes: NIfTI, MHA, NRRD, NPY, Zarr and TIFF stacks. Leave it out for pictures."
_ONE_GRID = "Nothing is resampled: bring both onto one grid."


@dataclass(frozen=True, kw_only=True)
class VolumeSet(Dataset):
    """A data set whose cases are volumes: a network sees their planes, but metrics see whole volumes.

    Parameters
    ----------
    planes
        The axis across which volumes are cut, see `find_axis`.
    context
        Neighbouring planes on each side that become channels.
    """

    planes: PlaneAxis
    context: int = 0

    def streamed_cases(self) -> frozenset[int]:
        return frozenset()

    def is_streamed(self, header: Header) -> bool:
        return False

    def _kind(self, index: int) -> tuple[int, int, str]:
        header = self.header_of(index)  # a volume's planes are batches of their own
        return header.height, header.width, f"{header.dtype} volume {self.pairs[index].case_id}"

    def header_of(self, index: int, number: int = 0) -> Header:
        return self.limit(index)(lambda: self._look(index, number)[0])

    def locate(self, case_id: str) -> Geometry:
        index = self.numbers[case_id]
        return self.limit(index)(lambda: self._look(index, 0)[1]).having(file=self.pairs[index].image)

    def _look(self, index: int, number: int) -> tuple[Header, Geometry]:
        """Read the header and the geometry of file `number` of a case."""
        path = Path(self.pairs[index].paths[number])
        with open_array(path, **self.reading.options(path)) as array:
            return array.header, array.geometry

    def read_image(self, index: int, *, hashed: bool = False) -> tuple[NDArray[Any], str]:
        """Read the middle plane of a case, as the network sees it."""
        volume = self.open_volume(index)
        return volume[len(volume) // 2].image, ""

    def header_problems(self, index: int) -> list[str]:
        """Return the problems that the headers of a case's files show: no planes, other sizes, or another grid."""
        pair = self.pairs[index]
        problems: list[str] = []
        first: tuple[Header, Geometry] | None = None
        for number, path in enumerate(pair.files):
            try:
                if not has_pixels(path):
                    raise file_error(path, "mask", "of a volume to hold voxels", "drawn objects")
                header, geometry = self.limit(index)(partial(self._look, index, number))
                if path in pair.masks:
                    check_mask_header(path, header, label_map=self.reading.label_map)
                if len(header.lead) != 1 or header.channels != 1:
                    shape = f"{' x '.join(map(str, header.shape))} ({header.format.upper()})"
                    raise file_error(path, "file", "to hold planes (depth, height, width)", shape, _NO_PLANES)
                if first is None:
                    first = header, geometry
                    find_axis(self.planes, geometry, path)
                    if len(pair.images) != self.in_channels:
                        rule = f"to be {len(pair.images)}, one per file of a case"
                        remedy = "data.channel_files names the files' ends."
                        raise DataError(expected("data", "in_channels", rule, self.in_channels, remedy))
                elif path not in pair.masks and header.dtype != first[0].dtype:
                    rule = f"to be that of {show(pair.image)}, {first[0].dtype}"
                    raise file_error(path, "dtype", rule, header.dtype, "Save all channels with one dtype.")
                problems += filter(None, [geometry.place_problem, geometry.spacing_problem])
                problems += _grid_problem(path, geometry, header, pair.image, *first)
            except DataError as error:
                problems += error.problems
        return problems

    def open_volume(self, index: int) -> "Volume":
        """Unpack the files of a case; raises as reading the case does."""
        pair = self.pairs[index]
        with fetched(pair.files):
            return self.limit(index)(lambda: self._unpacked(index))

    def _unpacked(self, index: int) -> "Volume":
        pair = self.pairs[index]
        folder = Path(tempfile.mkdtemp(prefix="segmeter-volume-"))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            paths, geometries = zip(
                *(self._unpack(index, number, folder) for number in range(len(pair.files))), strict=True
            )
            geometry = next((geometry for geometry in geometries if geometry.known), NOWHERE)
            axis = find_axis(self.planes, geometry, pair.image)
            stack.pop_all()
        stop = 1 + len(pair.masks)  # the files of further channels follow the masks
        volume = Volume(
            case_id=pair.case_id,
            spec=self.spec,
            images=(paths[0], *paths[stop:]),
            sources=pair.images,
            masks=paths[1:stop],
            axis=axis,
            context=self.context,
            geometry=geometry,
        )
        weakref.finalize(volume, shutil.rmtree, folder, ignore_errors=True)
        return volume

    def _unpack(self, index: int, number: int, folder: Path) -> tuple[Path, Geometry]:
        """Copy a volume into a file that can be mapped; a mask is copied as labels."""
        pair = self.pairs[index]
        path = Path(pair.paths[number])
        target = folder / f"{number}.npy"
        with open_array(path, refuse_changes=True, **self.reading.options(path)) as array:
            if pair.sha256 and array.sha256 != pair.sha256[number]:
                raise content_changed(path)
            is_mask = path in pair.masks
            dtype = self.spec.label_dtype if is_mask else array.dtype
            unpacked = open_memmap(target, "w+", dtype, array.shape)
            top = 0
            for block in array.blocks():
                unpacked[top : top + len(block)] = labels_of(path, block, self.reading) if is_mask else block
                top += len(block)
            return target, array.geometry


@dataclass(frozen=True, kw_only=True, eq=False)
class Volume:
    """An unpacked volume: a sequence of planes, each a `Sample`. Its files are removed with this object.

    Parameters
    ----------
    case_id
        The case.
    spec
        The classes.
    images, masks
        Unpacked files, (D, H, W) each: an image per channel, and for multilabel a mask per class.
    sources
        The images' own files, for messages.
    axis
        The axis of (D, H, W) that counts the planes.
    context
        Neighbouring planes on each side that become channels.
    geometry
        Where the voxels lie.
    """

    case_id: str
    spec: ClassSpec
    images: tuple[Path, ...]
    masks: tuple[Path, ...]
    sources: tuple[Path, ...]
    axis: int
    context: int
    geometry: Geometry

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape (D, H, W)."""
        return _mapped(self.images[0]).shape

    def __len__(self) -> int:
        return self.shape[self.axis]

    def __getitem__(self, number: int) -> Sample:
        """Read a plane with its neighbours as channels, the lowest first."""
        volumes = [_mapped(image) for image in self.images]
        last = len(self) - 1
        neighbours = [min(max(number + step, 0), last) for step in range(-self.context, self.context + 1)]
        channels = [
            plane_of_volume(source, np.take(voxels, plane, self.axis))
            for plane in neighbours
            for source, voxels in zip(self.sources, volumes, strict=True)
        ]
        image = np.concatenate(channels, axis=2)
        return Sample(case_id=self.plane_id(number), image=image, target=self.target(number))

    @property
    def own_channels(self) -> slice:
        """The channels of the plane itself, which lie between those of its neighbours."""
        return slice(self.context * len(self.images), (self.context + 1) * len(self.images))

    def plane_id(self, number: int) -> str:
        """Return the name of a plane."""
        return f"{self.case_id}-{AXES[self.axis]}{number:04d}"

    def target(self, number: int | None = None) -> NDArray[Any] | None:
        """Return the labels, (D, H, W), or one plane of them, (H, W); for multilabel (K, ...). None without masks."""
        masks: list[NDArray[Any]] = [_mapped(mask) for mask in self.masks]
        if number is not None:
            masks = [np.take(mask, number, self.axis) for mask in masks]
        if self.spec.is_multilabel and masks:
            return np.stack(masks)
        return np.ascontiguousarray(masks[0]) if masks else None


def _mapped(path: Path) -> NDArray[Any]:
    """Map an unpacked file. It is mapped again for each use, because a mapping keeps a file handle open."""
    mapped: NDArray[Any] = np.load(path, mmap_mode="r")
    return mapped


def find_axis(planes: PlaneAxis, geometry: Geometry, path: Path) -> int:
    """Return the axis of (D, H, W) that counts the planes.

    Parameters
    ----------
    planes
        "k", "j" and "i" are axes 0, 1 and 2. "axial" is the axis nearest to the body's long axis, by the affine. "auto"
        is the axis of the coarsest spacing. If no spacing is coarser than the others it is the axial axis, and without
        an affine axis 0.
    geometry
        The volume's geometry.
    path
        The volume's file, for messages.

    Raises
    ------
    DataError
        Axial planes are asked for, but the file does not say how it lies.
    """
    if planes in AXES:
        return AXES.index(planes)
    if planes == "auto" and geometry.spacing is not None:
        *_, second, widest = sorted(geometry.spacing)
        if widest > _COARSER * second:
            return int(np.argmax(geometry.spacing))
    if geometry.affine is not None:
        steps = geometry.affine[:3, :3] / np.linalg.norm(geometry.affine[:3, :3], axis=0)
        return 2 - int(np.argmax(np.abs(steps[2])))
    if planes == "auto":
        return 0
    rule, what = "to be an axis of the file for axial planes", "a file that does not say how it lies"
    raise file_error(path, "data.planes", rule, what, "Set data.planes=k, j or i.")


def _grid_problem(
    path: Path, geometry: Geometry, header: Header, image: Path, wanted: Header, place: Geometry
) -> list[str]:
    """Report a size, spacing or position that differs from that of the case's image, in one line."""
    shape = header.shape
    is_same = shape == wanted.shape
    if is_same and geometry.spacing is not None and place.spacing is not None:
        is_same = same_spacing(geometry, place)
    if is_same and geometry.affine is not None and place.affine is not None and share_world(geometry, place):
        is_same = differing_place(geometry.affine, place.affine, shape) is None
    rule = f"to be that of {show(image)}, {describe(place, wanted.shape)}"
    return [] if is_same else [expected(show(path), "grid", rule, describe(geometry, shape), _ONE_GRID)]
