"""What `segmeter score` is told of the values in masks."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from segmeter.classes import ClassSpec
from segmeter.data.config import ClassesConfig, Instances
from segmeter.data.known_classes import CITYSCAPES_IDS
from segmeter.invalid import RuleError
from segmeter.schema import REQUIRED, Given, Unit, rule

MAX_CLASSES = 65534

_VOID = 255
_ID_LABELS = {str(number): _VOID for number in (*range(-1, 34), _VOID)}
_ID_LABELS |= {str(number): label for label, number in enumerate(CITYSCAPES_IDS.values())}
_NOT_GIVEN: tuple[Any, ...] = (None, REQUIRED, (), [], {})


class LabelsConfig(ClassesConfig):
    """What the values in masks mean, where there are no images and no model that say so."""

    naming: ClassVar[str] = "Set data.classes=[background,cell], or data.num_classes=2."

    max_pixels: Annotated[int, Unit("pixels")] = Field(500_000_000, ge=1)
    """The most pixels or voxels of a file, checked before it is decoded; of a TIFF or Zarr that is read by rows, of one
    of its tiles."""
    preset: Literal["cityscapes"] | None = None
    """Classes, label map and ignored value of a data set, where they are not given: "cityscapes", the 19 classes of its
    benchmark in files of label ids."""
    num_classes: Annotated[int | None, Unit("classes")] = Field(None, ge=1, le=MAX_CLASSES)
    """Instead of `classes`, which are then called class_0, class_1, ..."""
    key: str | None = None
    """Which array of NPZ archives and Zarr groups; null takes the only one."""
    instances: Instances = False
    """Whether the files hold numbers of objects, 0 being none, instead of labels; for a binary task. true: both sides;
    "references", "predictions": one side only, and connected parts of the other one are its objects."""
    invalid: Literal["error", "count"] = "error"
    """What predicted values are that are no class: an error, or counted as missed, in a column of their own."""
    flat: bool = False
    """Whether volumes of depth 1, such as slices in NIfTI, are read as images, so that they are measured in 2-D."""
    overlap: Literal["error", "smaller_on_top"] = "error"
    """What pixels are that two objects of a COCO or GeoJSON file cover: an error, or the smaller one's."""
    resample: Literal["refuse", "nearest"] = "refuse"
    """What is done with a prediction on another grid than its reference's: it is refused, or brought onto that grid by
    nearest neighbour, which is noted in its row."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        """Put what a preset says in place of what is not given."""
        if not isinstance(values, Mapping) or values.get("preset") != "cityscapes":
            return values
        known: dict[str, Any] = {"classes": tuple(CITYSCAPES_IDS), "ignore_index": _VOID, "label_map": _ID_LABELS}
        return {**values, **{key: value for key, value in known.items() if values.get(key) in _NOT_GIVEN}}

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, values: Any) -> Any:
        """Name the classes that only a number tells."""
        count = values.get("num_classes") if isinstance(values, Mapping) else None
        if type(count) is int and 1 <= count <= MAX_CLASSES and not values.get("classes"):
            return {**values, "classes": tuple(f"class_{k}" for k in range(count))}
        return values

    @rule("num_classes")
    @classmethod
    def _as_many_as_named(cls, num_classes: int | None, given: Given) -> None:
        if num_classes not in (None, len(given.classes)):
            raise RuleError(f"to be {len(given.classes)}, as many as data.classes")

    @rule("instances")
    @classmethod
    def _of_one_class(cls, instances: Instances, given: Given) -> None:
        mapped = instances is True and given.label_map  # of one side, the map is for the other one
        if instances and (given.task != "binary" or mapped):
            raise RuleError("to be false but for a binary task without label map", "Set data.task=binary.")

    @rule("invalid")
    @classmethod
    def _of_stored_values(cls, invalid: str, given: Given) -> None:
        if invalid == "count" and (given.task == "multilabel" or given.label_map or given.instances):
            raise RuleError("to be error for multilabel, with a label map, or for numbers of objects")

    def spec(self) -> ClassSpec:
        return super().spec().replace(count_invalid=self.invalid == "count")
