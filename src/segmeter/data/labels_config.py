"""Says what the values in masks mean, for `segmeter score`: by its keys, and by the dataset.json of nnU-Net.

nnU-Net itself is not needed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from segmeter.checks import expected, require_path
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import ClassesConfig, Instances, check_objects, filled
from segmeter.data.files.refusals import file_error
from segmeter.errors import ConfigError, DataError
from segmeter.schema import Given, RuleError, Unit, rule

NAME = "dataset.json"
MAX_CLASSES = 65534
Region = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class NnunetLabels:
    """The labels of a dataset.json.

    Parameters
    ----------
    spec
        The classes, called "label 1" and so on if there are regions, and the ignored value.
    groups
        Names of regions to names of their classes, for ``metrics.groups``; empty without regions.
    regions
        What nnU-Net evaluates, in its order: labels, or tuples of labels; without background.
    file_ending
        The ending of its label maps' names, such as ".nii.gz"; "" if the file does not say.
    channels
        Names of the channels in their order.
    """

    spec: ClassSpec
    groups: Mapping[str, tuple[str, ...]]
    regions: tuple[Region, ...]
    file_ending: str = ""
    channels: tuple[str, ...] = ()

    @property
    def known(self) -> dict[str, Any]:
        """The keys of ``data`` that the labels decide."""
        return {"classes": self.spec.names, "ignore_index": self.spec.ignore_index}


def read_labels(path: str | Path) -> NnunetLabels:
    """Read the labels of a dataset.json (nnU-Net 2), or of the one in a folder: names, regions and ignore label.

    Raises
    ------
    DataError
        It can't be read, or its labels are not numbered from 0 without gaps, the ignore label last.
    """
    given = require_path("read_labels", "path", path)
    file = given / NAME if given.is_dir() else given
    try:
        content = json.loads(file.read_bytes())
        labels, ending = content["labels"], str(content.get("file_ending") or "")
        known = {str(name): as_region(value) for name, value in labels.items() if name != "ignore"}
        channels = content.get("channel_names") or {}
        names = tuple(str(channels[key]) for key in sorted(channels, key=int))
        ignored = None if labels.get("ignore") is None else _as_label(labels["ignore"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise file_error(file, "labels", "to map names to labels", found) from error
    numbers = sorted({label for region in known.values() for label in members_of(region)})
    last = len(numbers)
    once = len({tuple(sorted(members_of(region))) for region in known.values()}) == len(known)
    if numbers != list(range(last)) or known.get("background") != 0 or ignored not in (None, last) or not once:
        rule = 'to be 0 ("background"), 1, 2, ... and last "ignore", and to name each label or region once'
        raise file_error(file, "labels", rule, labels)
    regions = {name: region for name, region in known.items() if region != 0}
    grouped = any(isinstance(region, tuple) and len(region) > 1 for region in regions.values())
    classes = ["background", *(f"label {label}" for label in numbers[1:])]
    if not grouped:
        for name, region in regions.items():
            classes[members_of(region)[0]] = name
    spec = ClassesConfig(classes=tuple(classes), ignore_index=ignored).spec()
    groups = {name: tuple(classes[label] for label in members_of(region)) for name, region in regions.items()}
    return NnunetLabels(
        spec=spec,
        groups=groups if grouped else {},
        regions=tuple(regions.values()),
        file_ending=ending,
        channels=names,
    )


def configured_labels(values: Any) -> NnunetLabels | None:
    """Read the labels of the data set that the key `nnunet` names, if there is one; ConfigError if they can't be."""
    if not isinstance(values, Mapping) or not isinstance(values.get("nnunet"), str | Path):
        return None
    try:
        return read_labels(values["nnunet"])
    except DataError as error:
        raise ConfigError(error.problems) from error


def nnunet_folder(values: Any) -> Any:
    """Complete the configuration of a folder with what its nnU-Net data set says; values that the user set stay.

    Raises
    ------
    ConfigError
        The dataset.json can't be used.
    """
    found = configured_labels(values)
    if found is None:
        return values
    place, count = Path(values["nnunet"]), len(found.channels) or 1
    known = {
        "root": str(place if place.is_dir() else place.parent),
        **found.known,
        "channel_files": tuple(f"_{number:04d}" for number in range(count)),
    }
    usual = {"images": ("images", "imagesTr"), "masks": ("masks", "labelsTr"), "in_channels": (3, count)}
    changed = {key: new for key, (old, new) in usual.items() if values.get(key, old) == old}
    return filled({**values, **changed}, known)


def as_region(value: Any) -> Region:
    """Return a label, or a tuple of different labels, from a whole number or a list of them.

    Raises
    ------
    ValueError
        It is neither; nothing is rounded.
    """
    if not isinstance(value, list | tuple):
        return _as_label(value)
    labels = tuple(_as_label(label) for label in value)
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{list(value)}, where a region has one or more labels, each once")
    return labels


def _as_label(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer) or value % 1 != 0:
        raise ValueError(f"{value!r}, which is no whole number")
    return int(value)


def members_of(region: Region) -> tuple[int, ...]:
    """Return the labels of a region."""
    return region if isinstance(region, tuple) else (region,)


class LabelsConfig(ClassesConfig):
    """The meaning of the values in masks, where neither images nor a model define it."""

    naming: ClassVar[str] = "Set data.classes=[background,cell], or data.num_classes=2."

    max_pixels: Annotated[int, Unit("pixels")] = Field(500_000_000, ge=1)
    """Largest number of pixels or voxels of a file, checked before decoding. Of a TIFF or Zarr that is read line by
    line, it limits one tile.
    """
    nnunet: Path | None = None
    """A dataset.json of nnU-Net, or its folder. It defines classes, ignored value and regions (`metrics.groups`),
    unless you set them, and the ending of the files; others are skipped. Your classes may rename the labels, but not
    change their number or order."""
    num_classes: Annotated[int | None, Unit("classes")] = Field(None, ge=1, le=MAX_CLASSES)
    """Instead of `classes`, which are then called class_0, class_1, ..."""
    key: str | None = None
    """The array of NPZ archives and Zarr groups to read; null takes the only one."""
    instance_divisor: Annotated[int | None, Field(ge=2)] = None
    """For files that hold class * divisor + object number, and the class alone where there is no object: 1000, as in
    Cityscapes' instanceIds. null: files of objects hold the object numbers of one class."""
    instances: Instances = False
    """Whether the files hold object numbers, 0 being none, instead of labels. This needs a binary task or
    `instance_divisor`. With true, both sides hold them. With "references" or "predictions", only that side does, and
    connected parts of the other side are its objects."""
    invalid: Literal["error", "count"] = "error"
    """How to treat predicted values that are not a class: as an error, or as missed, counted in a column of their
    own."""
    flat: bool = False
    """Whether volumes of depth 1, such as slices in NIfTI, are read as images, so that they are measured in 2-D."""
    overlap: Literal["error", "smaller_on_top"] = "error"
    """How to treat pixels that two drawn objects (COCO, GeoJSON, YOLO, ...) cover: as an error, or as pixels of the
    smaller one."""
    corners: Literal["edges", "centres"] = "edges"
    """Where the corners of YOLO polygons lie: on the edges of pixels, as people draw them, or in the centres of pixels,
    as Ultralytics and OpenCV trace masks."""
    resample: Literal["refuse", "nearest"] = "refuse"
    """How to treat a prediction on another grid than its reference's: refuse it, or resample it by nearest neighbour
    and say so in its row."""

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, values: Any) -> Any:
        """Name the classes where only their number is given, and fill in what an nnU-Net data set says."""
        count = values.get("num_classes") if isinstance(values, Mapping) else None
        if type(count) is int and 1 <= count <= MAX_CLASSES and not values.get("classes"):
            values = {**values, "classes": tuple(f"class_{k}" for k in range(count))}
        found = configured_labels(values)
        if found is None:
            return values
        spec, given = found.spec, values.get("classes")
        listed = given if isinstance(given, list | tuple) else ()
        swapped = any(one != other and one in spec.names for one, other in zip(listed, spec.names, strict=False))
        if listed and (len(listed) != len(spec.names) or swapped):
            rule = f"to name the labels of {values['nnunet']}, {list(spec.names)}, in their order"
            raise ConfigError(expected("config", "data.classes", rule, list(listed), "Leave out one of the two."))
        return filled(values, found.known)

    _readable_objects = rule("instances")(check_objects)

    @rule("num_classes", "invalid")
    def _go_together(cls, value: Any, given: Given) -> None:
        match given.own_key:
            case "num_classes" if value not in (None, len(given.classes)):
                raise RuleError(f"to be {len(given.classes)}, as many as data.classes")
            case "invalid" if value == "count" and (given.task == "multilabel" or given.label_map or given.instances):
                raise RuleError("to be error for multilabel, with a label map, or for numbers of objects")

    def spec(self) -> ClassSpec:
        return super().spec().replace(count_invalid=self.invalid == "count")
