"""The part of the configuration that says what the values in masks mean, for data sets and for `segmeter score`."""

import colorsys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from segmeter.classes import BACKGROUNDS, ClassSpec, Colour, Colours, Task, check_classes
from segmeter.schema import REQUIRED, Config, Given, RuleError, Unit, rule

Instances = Literal[False, True, "references", "predictions"]
TimeoutSeconds = Annotated[float | None, Unit("seconds"), Field(gt=0, le=1e6)]
StoredLabel = Annotated[int | None, Field(ge=0, le=65535)]
Preset = Literal["cityscapes", "cityscapes-colours", "ade20k", "voc", "voc-colours"]

_VOID = 255

CAMVID_CLASSES = (
    "Sky", "Building", "Pole", "Road", "Pavement", "Tree", "SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist",
)  # fmt: skip
CAMVID_COLOURS: tuple[Colour, ...] = (
    (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0),
    (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
)  # fmt: skip
CELL_CLASSES = ("background", "round", "spindle", "mitotic")
CELL_COLOURS: tuple[Colour, ...] = ((0, 0, 0), (86, 180, 233), (0, 158, 115), (230, 97, 1))


def filled(values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Add known values for keys that are not given; known colours go with known classes only."""
    missing = {key for key in known if values.get(key) in (None, REQUIRED, (), [], {})}
    missing -= set() if "classes" in missing else {"colours"}
    return {**values, **{key: known[key] for key in missing}}


class ClassesConfig(Config, title="data"):
    """The meaning of the values in masks."""

    naming: ClassVar[str] = "Set data.classes=[background,cell]."
    preset: Preset | None = None
    """Takes classes, colours, label map and ignored value from a known data set, unless you set them. Known are
    "cityscapes" (label ids, or instance ids with `instances`), "cityscapes-colours", "ade20k" (0 is ignored, 1 is the
    first class), "voc" (palette indices, 255 is ignored) and "voc-colours"."""
    task: Task = "multiclass"
    """Whether a pixel has one class of two (binary), one of several (multiclass), or any number (multilabel)."""
    classes: tuple[str, ...] = ()
    """Names in the order of the labels, background included: [background, cell]."""
    colours: Colours | None = None
    """One [red, green, blue] per class, 0 to 255 each; null gives a default palette. There the first class is black if
    it is called background, other, void, ... or if the task is binary."""
    ignore_index: StoredLabel = None
    """The label of pixels that are excluded from loss and metrics. It is not a class. null: there is none."""
    label_map: dict[str, int] = Field(default_factory=dict)
    """The label of each stored value or colour: {0: 0, 255: 1} or {"128,64,0": 1}. {} takes stored values as labels."""
    max_pixels: Annotated[int, Unit("pixels")] = Field(200_000_000, ge=1)
    """Largest number of pixels or voxels of a file, checked before decoding. Of files read line by line, it limits one
    tile.
    """
    timeout_s: TimeoutSeconds = None
    """Time limit for reading a case, or one part of a large case. When it is exceeded, the run stops, and `resume` can
    continue it. null sets no limit.
    """

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        """Fill in what the preset says and the user doesn't."""
        preset = values.get("preset", "") if isinstance(values, Mapping) else ""
        if preset not in get_args(Preset):
            return values
        known = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
        table, labels = known[preset.removesuffix("-colours")], dict[str, int]()
        if preset.endswith("-colours"):
            labels = {",".join(map(str, colour)): label for label, colour in enumerate(table["colours"])}
            labels |= {",".join(map(str, colour)): _VOID for colour in table["void_colours"]}
        elif "values" in table:
            stored = {value: label for label, value in enumerate(table["values"])} | dict.fromkeys(table["void"], _VOID)
            labels = {str(value): stored[value] for value in sorted(stored)}
        kept = ["classes", "colours"]
        if preset == "cityscapes" and values.get("instances"):  # its files of instance ids
            kept.append("instance_divisor")
        found = {"ignore_index": _VOID, **{key: table[key] for key in kept if key in table}}
        return filled(values, found | ({"label_map": labels} if labels else {}))

    @rule("classes", "colours", "ignore_index")
    def _check_classes(cls, value: Any, given: Given) -> None:
        key, remedy = "names" if given.own_key == "classes" else given.own_key, ""
        if key == "names" and given.preset is None:
            remedy = cls.naming
        check_classes(key, value, value if key == "names" else given.classes, given.task, remedy)

    @rule("label_map")
    def _check_label_map(cls, label_map: dict[str, int], given: Given) -> None:
        for key in label_map:
            parts = key.replace(" ", "").split(",")
            is_colour = len(parts) == 3 and all(part.isdigit() and int(part) <= 255 for part in parts)
            if not is_colour and not (len(parts) == 1 and parts[0].lstrip("-").isdigit()):
                raise RuleError(f"from a value or 'red,green,blue', not from {key!r}")
        top = (2 if given.task == "multilabel" else len(given.classes)) - 1
        for label in label_map.values():
            if not 0 <= label <= top and label != given.ignore_index:
                raise RuleError(f"to a label from 0 to {top} or ignore_index, not to {label}")

    def spec(self) -> ClassSpec:
        """Return the meaning of the labels."""
        colours = self.colours
        if colours is None:  # without a background no class is black, which an overlay does not show
            named = bool(self.classes) and self.classes[0].casefold() in BACKGROUNDS
            first = int(self.task == "multilabel" or (self.task == "multiclass" and not named))
            colours = default_colours(first + len(self.classes))[first:]
        return ClassSpec(task=self.task, names=self.classes, colours=colours, ignore_index=self.ignore_index)


def check_objects(cls: type[Config], instances: Instances, given: Given) -> None:
    """Raise RuleError unless masks of object numbers can be read: of one class, or of several with a divisor.

    It is the rule of every key `instances`.
    """
    label_map = given.label_map  # read first: the rule is skipped if the map itself is wrong
    mapped = instances is True and label_map  # if one side holds objects, the map is for the other
    if given.instance_divisor:
        if not instances or given.task == "multilabel":
            raise RuleError("to say which side holds objects where data.instance_divisor is given, not multilabel")
        if any("," in key for key in label_map):
            raise RuleError("to hold values of classes, not colours, with data.instance_divisor", key="label_map")
    elif instances and (given.task != "binary" or mapped):
        remedy = "Set data.task=binary, or data.instance_divisor where each value has its class."
        raise RuleError("to be false but for a binary task without label map", remedy)


def default_colours(count: int) -> tuple[Colour, ...]:
    """Return black for the first class, then hues that are easy to tell apart, a golden angle from one to the next.

    Examples
    --------
    >>> default_colours(2)
    ((0, 0, 0), (230, 57, 57))
    """
    colours: list[Colour] = [(0, 0, 0)]
    for index in range(count - 1):
        saturation, value = ((0.75, 0.9), (0.9, 0.6), (0.45, 1.0))[index // 8 % 3]
        red, green, blue = colorsys.hsv_to_rgb(index * 0.61803398875 % 1, saturation, value)
        colours.append((round(red * 255), round(green * 255), round(blue * 255)))
    return tuple(colours[:count])
