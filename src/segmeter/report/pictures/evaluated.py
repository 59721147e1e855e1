"""Reads the cases of a finished eval or predict back, from its data set and its label maps, to draw them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.dataset import Dataset, read_case
from segmeter.data.files.array import LazyArray, stack_planes
from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import check_labels, open_map, read_map
from segmeter.data.thumbnail import Thumbnail, thumbnail_step
from segmeter.errors import DataError
from segmeter.export.writer import class_folder
from segmeter.files import safe_id
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.pictures.finished import DrawnCase
from segmeter.report.pictures.objects import measured_objects

_SUFFIXES = (".png", ".tif", ".zarr", ".mha", ".nrrd")  # of label maps and instances, as they are exported
_BAND = 256  # rows that are read at once of a case that is larger than memory


@dataclass(frozen=True, kw_only=True)
class EvaluatedCases:
    """The cases of a finished run of `eval` or `predict`; call it to read one.

    Parameters
    ----------
    predictions
        The run's folder of predictions, with label maps, and instances where post-processing made some.
    dataset
        What was predicted.
    metrics
        What was measured; None for `predict`.
    """

    predictions: Path
    dataset: Dataset
    metrics: MetricsConfig | None = None

    def __call__(self, case_id: str) -> DrawnCase:
        """Read a case; one that was read by rows is reduced to every n-th row and column.

        Raises
        ------
        DataError
            A file is missing, damaged, of another size, or not the one that was evaluated.
        """
        index = self.dataset.number_of(case_id)
        image, *masks = self.dataset.files_of(case_id)
        files = {"image": [image], "target": masks}
        if self.dataset.is_streamed(self.dataset.header_of(index)):
            return self._reduced(index, files)
        sample = read_case(self.dataset, index)
        paths = self._label_files(case_id)
        planes = [self._read(path, instances=False) for path in paths]
        for path, plane in zip(paths, planes, strict=True):
            if plane.shape != sample.image.shape[:2]:
                raise DataError(expected(str(path), "label map", f"to be {sample.image.shape[:2]}", plane.shape))
        labels = np.stack(planes) if self.dataset.spec.is_multilabel else planes[0]
        objects = measured_objects(self.metrics, sample.instances, self._instances(case_id))
        return DrawnCase(image=sample.image, target=sample.target, labels=labels, objects=objects, files=files)

    def _label_files(self, case_id: str) -> list[Path]:
        """The label map of a case, for multilabel of each class."""
        spec, root = self.dataset.spec, self.predictions / "labels"
        folders = [root / class_folder(name) for name in spec.names] if spec.is_multilabel else [root]
        return [_with_suffix(folder / safe_id(case_id)) for folder in folders]

    def _read(self, path: Path, *, instances: bool) -> NDArray[Any]:
        spec = self.dataset.spec
        reading = Reading(
            spec=spec, label_map={}, max_pixels=self.dataset.max_pixels, instances=instances, flat=not instances
        )
        values = read_map(path, reading).values
        return values if instances else check_labels(path, values, reading)

    def _instances(self, case_id: str) -> NDArray[Any] | None:
        if self.dataset.spec.is_multilabel:
            return None
        path = _with_suffix(self.predictions / "instances" / safe_id(case_id))
        return self._read(path, instances=True) if path.exists() else None

    def _reduced(self, index: int, files: Mapping[str, Sequence[Path]]) -> DrawnCase:
        spec, case_id = self.dataset.spec, self.dataset.case_ids[index]
        reading = Reading(spec=spec, label_map={}, max_pixels=self.dataset.max_pixels, located=False)
        with self.dataset.open_rows(index) as (image, target), ExitStack() as stack:
            planes = [stack.enter_context(open_map(path, reading)) for path in self._label_files(case_id)]
            labels = stack_planes(planes) if spec.is_multilabel else planes[0]
            return DrawnCase(
                image=_reduce(image, -3),
                target=None if target is None else _reduce(target, -2),
                labels=_reduce(labels, -2),
                files=files,
                step=thumbnail_step(*image.shape[:2]),
            )


def _reduce(rows: LazyArray, axis: int) -> NDArray[Any]:
    """Every n-th row and column of an image or map; `axis` is that of its rows."""
    height, width = rows.shape[axis], rows.shape[axis + 1]
    picture = Thumbnail(thumbnail_step(height, width), axis)
    for top in range(0, height, _BAND):
        picture.add(top, rows.read(top, min(height, top + _BAND)))
    return picture.pixels()


def _with_suffix(stem: Path) -> Path:
    """The file of a stem in whichever format it was written."""
    found = [path for path in (stem.with_name(stem.name + suffix) for suffix in _SUFFIXES) if path.exists()]
    return found[0] if found else stem.with_name(stem.name + _SUFFIXES[0])
