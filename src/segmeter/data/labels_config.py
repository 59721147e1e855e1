"""The part of the configuration of `segmeter score` that says what the values in masks mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import ClassesConfig, Instances, check_objects, filled
from segmeter.data.nnunet import configured_labels
from segmeter.errors import ConfigError
from segmeter.schema import Given, RuleError, Unit, rule

MAX_CLASSES = 65534


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
    def _from_nnunet(cls, values: Any) -> Any:
        """Fill in what an nnU-Net data set says and the user doesn't."""
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

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, values: Any) -> Any:
        """Name the classes where only their number is given."""
        count = values.get("num_classes") if isinstance(values, Mapping) else None
        if type(count) is int and 1 <= count <= MAX_CLASSES and not values.get("classes"):
            return {**values, "classes": tuple(f"class_{k}" for k in range(count))}
        return values

    @rule("num_classes")
    def _as_many_as_named(cls, num_classes: int | None, given: Given) -> None:
        if num_classes not in (None, len(given.classes)):
            raise RuleError(f"to be {len(given.classes)}, as many as data.classes")

    @rule("instances")
    def _of_one_class(cls, instances: Instances, given: Given) -> None:
        mapped = instances is True and bool(given.label_map)  # if one side holds objects, the map is for the other
        check_objects(instances, given, mapped=mapped)

    @rule("invalid")
    def _of_stored_values(cls, invalid: str, given: Given) -> None:
        if invalid == "count" and (given.task == "multilabel" or given.label_map or given.instances):
            raise RuleError("to be error for multilabel, with a label map, or for numbers of objects")

    def spec(self) -> ClassSpec:
        return super().spec().replace(count_invalid=self.invalid == "count")
