"""Draws the pictures of a finished run, because the worst cases are known only after the last case.

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
from segmeter.data.masks.reading import check_labels, open_map, read_map
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

_THREADS = 2  # each holds a whole case, and about ten bytes per pixel beside it
_SUFFIXES = (".png", ".tif", ".zarr", ".mha", ".nrrd", ".nii.gz")  # of label maps and instances, as they are exported
_SCROLLED, _SCROLLED_EDGE = 17, 384  # planes of a volume that a page scrolls through, an odd number, and their pixels


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
        Which cases to draw and to crop, and how large.

    Raises
    ------
    DataError
        One line for each file that can't be read.
    """
    drawn, worst = choose_cases(ranking, config), set(ranking.worst[: config.worst])
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
            place: dict[str, Any] = {"wrong_pixels": case.wrong_pixels, "slice_number": notes.get("slice", [None])[0]}
            write_crops(folder, case_id, spec, image=image, target=target, labels=labels, corner=corner, **place)
        if case_id not in drawn:
            return ()
        if case.size:
            layers, tiles = draw_layers(*maps, spec, errors=case.errors, notes=notes | {"size": case.size}), case.tiles
        else:
            whole = draw_layers(*maps, spec, objects=case.objects, notes=notes)
            tiles = whole.cut(None if case.target is None else classify_errors(case.target, case.labels, spec))
            layers = whole.reduce(LONGEST)
        words: dict[str, Any] = {"headline": ranking.headline, "score": ranking.scores.get(case_id)}
        write_overlay(folder / OVERLAYS, case_id, draw_picture(layers, title=title, panel=config.panel, **words))
        write_layers(folder, case_id, layers, tiles=tiles, planes=planes)
        return ()

    found = track(map_in_threads(draw, chosen, threads=_THREADS), "drawing", len(chosen))
    if problems := [line for lines in found for line in lines]:
        raise DataError(problems)


def _scrolled(case_id: str, case: DrawnCase, spec: ClassSpec, notes: Mapping[str, Any]) -> list[Layers]:
    """Draw planes along the axis of a volume, the middle one among them, beside the one that `notes` tell of."""
    (chosen, depth), found = notes["slice"], []
    for place in np.linspace(0, depth - 1, min(depth, _SCROLLED)).round().astype(int).tolist():
        if place != chosen - 1:
            flat, _, said = _flat(case_id, case, spec, place)
            found.append(draw_layers(flat.image, flat.target, flat.labels, spec, edge=_SCROLLED_EDGE, notes=said))
    return found


def _flat(
    case_id: str, case: DrawnCase, spec: ClassSpec, place: int | None = None
) -> tuple[DrawnCase, str, dict[str, Any]]:
    """Reduce a volume to one slice, or to that which is worth a picture; also return its title and its notes."""
    files = {
        role: [clean(f"{path.parent.name}/{path.name}" if len(paths) > 1 else path.name) for path in paths]
        for role, paths in case.files.items()  # several come with their folders, which name classes
        if paths
    }
    if case.image.ndim != 4:
        return case, case_id, {"files": files}
    target, labels, depth = case.target, case.labels, len(case.image)
    if place is None:
        place = choose_slice(labels if target is None else target, labels, spec)
    flat = replace(case, image=case.image[place], labels=labels[..., place, :, :], objects=NO_OBJECTS)
    if target is not None:
        flat = replace(flat, target=target[..., place, :, :])
    return flat, f"{case_id}, slice {place + 1} of {depth}", {"files": files, "slice": [place + 1, depth]}


def choose_slice(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> int:
    """Pick the slice with the most wrong pixels, or without errors the one with the most object pixels.

    The slice nearest to the middle wins a tie.

    Parameters
    ----------
    target, labels : (D, H, W), for multilabel (K, D, H, W), integer
        The maps to draw.
    spec
        The classes; ignored pixels are not wrong, and class 0 is no object but for multilabel.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("a", "b"), colours=((0, 0, 0), (9, 9, 9)))
    >>> target = np.zeros((5, 2, 2), np.uint8)
    >>> labels = target.copy()
    >>> labels[3, 0, 0] = 1
    >>> choose_slice(target, labels, spec), choose_slice(target, target, spec)
    (3, 2)
    """
    others = (0, 2, 3) if spec.is_multilabel else (1, 2)
    counted = spec.valid(target)
    wrong = np.sum((target != labels) & counted, axis=others)
    seen = wrong if wrong.any() else np.sum((target != 0) & counted, axis=others)
    best = np.flatnonzero(seen == seen.max())
    return int(best[np.argmin(np.abs(best - (len(seen) - 1) / 2))])


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
        """Read a case; of one larger than memory, an overview and the tiles with the most errors.

        Raises
        ------
        DataError
            A file is missing, damaged, of another size, or not the one that was evaluated.
        """
        dataset, spec, name = self.dataset, self.dataset.spec, safe_id(case_id)
        index, root = dataset.numbers[case_id], self.predictions / "labels"
        folders = [root / class_folder(each) for each in spec.names] if spec.is_multilabel else [root]
        paths = [_with_suffix(folder / name) for folder in folders]
        files = {"image": dataset.pairs[index].images, "target": dataset.pairs[index].masks}
        if dataset.is_streamed(dataset.header_of(index)):
            reading = Reading(spec=spec, max_pixels=dataset.reading.max_pixels, located=False)
            with dataset.open_rows(index) as (image, target), ExitStack() as stack:
                maps = [stack.enter_context(open_map(path, reading)) for path in paths]
                return read_large(image, target, stack_planes(maps) if spec.is_multilabel else maps[0], spec, files)
        if isinstance(dataset, VolumeSet):
            volume = dataset.open_volume(index)
            labels, reference, first = self._labels(paths, volume.shape), volume.target(), volume.axis - 3
            planes: Any = VolumeImage(volume)
            moved = None if reference is None else np.moveaxis(reference, first, -3)  # the planes come first
            return DrawnCase(image=planes, target=moved, labels=np.moveaxis(labels, first, -3), files=files)
        sample, numbers = read_case(dataset, index), _with_suffix(self.predictions / "instances" / name)
        labels = self._labels(paths, sample.image.shape[:2])
        own = self._read(numbers, instances=True) if numbers.exists() and not spec.is_multilabel else None
        objects = measured_objects(self.metrics, sample.instances, own)
        return DrawnCase(image=sample.image, target=sample.target, labels=labels, objects=objects, files=files)

    def _labels(self, paths: Sequence[Path], shape: tuple[int, ...]) -> NDArray[Any]:
        """Read the label map of a case of some shape, for multilabel the planes of its classes."""
        planes = [self._read(path, flat=len(shape) == 2) for path in paths]
        for path, plane in zip(paths, planes, strict=True):
            if plane.shape != shape:
                raise DataError(expected(str(path), "label map", f"to be {shape}", plane.shape))
        return np.stack(planes) if self.dataset.spec.is_multilabel else planes[0]

    def _read(self, path: Path, *, instances: bool = False, flat: bool = False) -> NDArray[Any]:
        spec, most = self.dataset.spec, self.dataset.reading.max_pixels
        reading = Reading(spec=spec, label_map={}, max_pixels=most, instances=instances, flat=flat)
        values = read_map(path, reading).values
        return values if instances else check_labels(path, values, reading)


def _with_suffix(stem: Path) -> Path:
    """Find the file of a stem, whatever its format."""
    paths = [stem.with_name(stem.name + suffix) for suffix in _SUFFIXES]
    return next((path for path in paths if path.exists()), paths[0])
