"""Draws the pictures at the end of a run, because only then are the worst cases known.

Every command that has images calls `draw_run` at its end, with a function that reads the maps of one case. Drawing a
run again replaces all its pictures.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, read_case
from segmeter.data.files.array import stack_planes
from segmeter.data.masks.reading import labels_of, open_map, read_map
from segmeter.data.planes import Volume, VolumeSet
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.export.formats import class_folder
from segmeter.files import remove, safe_id
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.report.config import ReportConfig
from segmeter.report.figures import clean
from segmeter.report.pictures.chosen import Ranking, choose_cases
from segmeter.report.pictures.flatten import OVERLAYS, draw_picture, write_overlay
from segmeter.report.pictures.layers import FOLDER as LAYERS
from segmeter.report.pictures.layers import LONGEST, DrawnCase, Layers, draw_layers, read_large, write_layers
from segmeter.report.pictures.maps import classify_errors
from segmeter.report.pictures.objects import NO_OBJECTS, measured_objects
from segmeter.report.pictures.worst import FOLDER as CROPS
from segmeter.report.pictures.worst import write_crops

_THREADS = 2  # Each holds a whole case, and about ten bytes per pixel beside it.
_SUFFIXES = (".png", ".tif", ".zarr", ".mha", ".nrrd", ".nii.gz")  # Label maps and instances are exported with these.
_SCROLLED = 17  # A page scrolls through this many planes of a volume. The number is odd, so one is in the middle.
_SCROLLED_EDGE = 384  # Their longest side has this many pixels.


def draw_run(
    folder: Path, ranking: Ranking, read: Callable[[str], DrawnCase], config: ReportConfig, spec: ClassSpec
) -> None:
    """Draw the chosen cases of a finished run, and crop the worst.

    Parameters
    ----------
    folder
        The run's folder.
    ranking
        The cases by their headline.
    read
        Reads a case by its id; called in threads.
    config
        Decides which cases to draw and to crop, and how large.

    Raises
    ------
    DataError
        One line for each file that can't be read.
    """
    drawn = choose_cases(ranking, config)
    worst = set(ranking.worst[: config.worst])
    for name in (OVERLAYS, LAYERS, CROPS):
        if (folder / name).is_dir() and not (folder / name).is_symlink():  # writing through a link is refused below
            remove(folder / name)
    chosen = [name for name in ranking.case_ids if name in drawn | worst]

    def draw(case_id: str) -> tuple[str, ...]:
        try:
            volume = read(case_id)
            case, title, notes = _flat(case_id, volume, spec)
            planes = _scrolled(case_id, volume, spec, notes) if case_id in drawn and "slice" in notes else []
        except DataError as error:
            return error.problems
        maps = case.image, case.target, case.labels
        corner, (image, target, labels) = case.worst or ((0, 0), maps)
        if case_id in worst and target is not None:
            write_crops(
                folder,
                case_id,
                spec,
                image=image,
                target=target,
                labels=labels,
                corner=corner,
                wrong_pixels=case.wrong_pixels,
                plane_number=notes.get("slice", [None])[0],
            )
        if case_id not in drawn:
            return ()
        if case.size:
            layers = draw_layers(*maps, spec, errors=case.errors, notes=notes | {"size": case.size})
            tiles = case.tiles
        else:
            unreduced = draw_layers(*maps, spec, objects=case.objects, notes=notes)
            tiles = unreduced.cut(None if case.target is None else classify_errors(case.target, case.labels, spec))
            layers = unreduced.reduce(LONGEST)
        score = ranking.scores.get(case_id)
        picture = draw_picture(layers, title=title, panel=config.panel, headline=ranking.headline, score=score)
        write_overlay(folder / OVERLAYS, case_id, picture)
        write_layers(folder, case_id, layers, tiles=tiles, planes=planes)
        return ()

    problems_by_case = track(map_in_threads(draw, chosen, threads=_THREADS), "drawing", len(chosen))
    if problems := [line for lines in problems_by_case for line in lines]:
        raise DataError(problems)


def _scrolled(case_id: str, case: DrawnCase, spec: ClassSpec, notes: Mapping[str, Any]) -> list[Layers]:
    """Draw evenly spaced planes of a volume, except the chosen slice, which `notes` name."""
    chosen, depth = notes["slice"]
    planes = []
    for index in np.linspace(0, depth - 1, min(depth, _SCROLLED)).round().astype(int).tolist():
        if index != chosen - 1:
            flat, _, own_notes = _flat(case_id, case, spec, index)
            planes.append(draw_layers(flat.image, flat.target, flat.labels, spec, edge=_SCROLLED_EDGE, notes=own_notes))
    return planes


def _flat(
    case_id: str, case: DrawnCase, spec: ClassSpec, index: int | None = None
) -> tuple[DrawnCase, str, dict[str, Any]]:
    """Reduce a volume to one slice, by default the one that is worth a picture; also return its title and its notes."""
    files = {
        role: [clean(f"{path.parent.name}/{path.name}" if len(paths) > 1 else path.name) for path in paths]
        for role, paths in case.files.items()  # the folders of several files name their classes
        if paths
    }
    if case.image.ndim != 4:
        return case, case_id, {"files": files}
    target, labels, depth = case.target, case.labels, len(case.image)
    if index is None:
        index = choose_slice(labels if target is None else target, labels, spec)
    flat = replace(case, image=case.image[index], labels=labels[..., index, :, :], objects=NO_OBJECTS)
    if target is not None:
        flat = replace(flat, target=target[..., index, :, :])
    return flat, f"{case_id}, slice {index + 1} of {depth}", {"files": files, "slice": [index + 1, depth]}


def choose_slice(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> int:
    """Pick the slice with the most wrong pixels; without errors, the one with the most object pixels.

    The slice nearest to the middle wins a tie.

    Parameters
    ----------
    target, labels : (D, H, W), for multilabel (K, D, H, W), integer
        The maps to draw.
    spec
        The classes. Ignored pixels are not wrong. Class 0 is no object, except in multilabel maps.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("a", "b"), colours=((0, 0, 0), (9, 9, 9)))
    >>> target = np.zeros((5, 2, 2), np.uint8)
    >>> labels = target.copy()
    >>> labels[3, 0, 0] = 1
    >>> choose_slice(target, labels, spec), choose_slice(target, target, spec)
    (3, 2)
    """
    other_axes = (0, 2, 3) if spec.is_multilabel else (1, 2)
    valid = spec.valid(target)
    wrong = np.sum((target != labels) & valid, axis=other_axes)
    pixels = wrong if wrong.any() else np.sum((target != 0) & valid, axis=other_axes)
    best = np.flatnonzero(pixels == pixels.max())
    return int(best[np.argmin(np.abs(best - (len(pixels) - 1) / 2))])


class VolumeImage:
    """The planes of a volume as an image (D, H, W, C), each read when it is asked for."""

    ndim = 4

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def __len__(self) -> int:
        return len(self._volume)

    def __getitem__(self, number: int) -> NDArray[Any]:
        return self._volume[number].image[..., self._volume.own_channels]


@dataclass(frozen=True, kw_only=True)
class EvaluatedCases:
    """Reads the cases of a finished `eval` or `predict` back, from the data set and the label maps of the run.

    Parameters
    ----------
    predictions
        The run's folder of predictions, with label maps, and with instances if post-processing made some.
    dataset
        The data set that was predicted.
    metrics
        The measures of the run; None for `predict`.
    """

    predictions: Path
    dataset: Dataset
    metrics: MetricsConfig | None = None

    def __call__(self, case_id: str) -> DrawnCase:
        """Read a case. If it is larger than memory, read an overview and the tiles with the most errors.

        Raises
        ------
        DataError
            A file is missing, damaged, of another size, or not the one that was evaluated.
        """
        dataset, spec = self.dataset, self.dataset.spec
        name = safe_id(case_id)
        index = dataset.numbers[case_id]
        root = self.predictions / "labels"
        folders = [root / class_folder(class_name) for class_name in spec.names] if spec.is_multilabel else [root]
        paths = [_with_suffix(folder / name) for folder in folders]
        files = {"image": dataset.pairs[index].images, "target": dataset.pairs[index].masks}
        if dataset.is_streamed(dataset.header_of(index)):
            reading = Reading(spec=spec, max_pixels=dataset.reading.max_pixels, located=False)
            with dataset.open_rows(index) as (image, target), ExitStack() as stack:
                maps = [stack.enter_context(open_map(path, reading)) for path in paths]
                return read_large(image, target, stack_planes(maps) if spec.is_multilabel else maps[0], spec, files)
        if isinstance(dataset, VolumeSet):
            volume = dataset.open_volume(index)
            axis = volume.axis - 3
            labels = np.moveaxis(self._labels(paths, volume.shape), axis, -3)  # the axis of the planes comes first
            reference = volume.target()
            planes: Any = VolumeImage(volume)
            moved = None if reference is None else np.moveaxis(reference, axis, -3)
            return DrawnCase(image=planes, target=moved, labels=labels, files=files)
        sample = read_case(dataset, index)
        labels = self._labels(paths, sample.image.shape[:2])
        path = _with_suffix(self.predictions / "instances" / name)
        instances = self._read(path, instances=True) if path.exists() and not spec.is_multilabel else None
        objects = measured_objects(self.metrics, sample.instances, instances)
        return DrawnCase(image=sample.image, target=sample.target, labels=labels, objects=objects, files=files)

    def _labels(self, paths: Sequence[Path], shape: tuple[int, ...]) -> NDArray[Any]:
        """Read the label map of a case, for multilabel the planes of its classes, and check the shape."""
        planes = [self._read(path, flat=len(shape) == 2) for path in paths]
        for path, plane in zip(paths, planes, strict=True):
            if plane.shape != shape:
                raise DataError(expected(str(path), "label map", f"to be {shape}", plane.shape))
        return np.stack(planes) if self.dataset.spec.is_multilabel else planes[0]

    def _read(self, path: Path, *, instances: bool = False, flat: bool = False) -> NDArray[Any]:
        spec, most = self.dataset.spec, self.dataset.reading.max_pixels
        reading = Reading(spec=spec, label_map={}, max_pixels=most, instances=instances, flat=flat)
        values = read_map(path, reading).values
        return values if instances else labels_of(path, values, reading)


def _with_suffix(stem: Path) -> Path:
    """Find the file with this stem, whatever its format."""
    paths = [stem.with_name(stem.name + suffix) for suffix in _SUFFIXES]
    return next((path for path in paths if path.exists()), paths[0])
