"""Defines how the masks of a run are read: the meaning of their values, and what is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from segmeter.checks import some
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import ClassesConfig, Instances
from segmeter.data.files.array import MAX_PIXELS
from segmeter.data.files.sniff import file_error
from segmeter.data.files.zarr import label_names

Overlap = Literal["error", "smaller_on_top"]
Corners = Literal["edges", "centres"]
_SETTINGS = ("max_pixels", "key", "instances", "flat", "overlap", "corners", "resample", "level", "timeout_s")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How label maps are read.

    Parameters
    ----------
    spec
        The meaning of the labels.
    label_map
        From a stored value or colour to a label; empty takes stored values as labels.
    max_pixels
        The most pixels or voxels of a file, checked before it is decoded.
    key
        The array of an NPZ archive or Zarr group; None takes the only one.
    instances
        Whether the stored values are object numbers, 0 being none, instead of labels; "references" and "predictions"
        say so of one side of a pair.
    divisor
        If the values are class * divisor + number, as in Cityscapes; None for numbers alone.
    keeps_invalid
        Whether values that are not labels are kept, to be counted.
    flat
        Whether a volume of depth 1 is read as an image.
    overlap
        What happens to pixels that two drawn objects cover.
    corners
        Where the corners of YOLO polygons lie: on the edges of pixels, or in their centres.
    resample
        Whether a prediction on another grid is brought onto its reference's grid, by "nearest" neighbour.
    level
        The level of a pyramid.
    located
        Whether the geometry is read.
    timeout_s
        The most seconds to wait for the files of a case; None for no limit.
    """

    spec: ClassSpec
    label_map: Mapping[str, int] = field(default_factory=dict)
    max_pixels: int = MAX_PIXELS
    key: str | None = None
    instances: Instances = False
    divisor: int | None = None
    keeps_invalid: bool = False
    flat: bool = False
    overlap: Overlap = "error"
    corners: Corners = "edges"
    resample: Literal["refuse", "nearest"] = "refuse"
    level: int = 0
    located: bool = True
    timeout_s: float | None = None

    @classmethod
    def of(cls, config: ClassesConfig, spec: ClassSpec, **others: Any) -> "Reading":
        """Read maps as the configuration says, with these classes; `others` override it."""
        given = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
        given |= {"label_map": config.labels_of(), "divisor": getattr(config, "instance_divisor", None)}
        return cls(spec=spec, **given | others)

    @property
    def has_colours(self) -> bool:
        """Whether the label map names colours."""
        return not self.instances and any("," in name for name in self.label_map)

    def options(self, path: Path, *, is_folder: bool | None = None) -> dict[str, Any]:
        """Return the options with which `open_array` opens a map; the label map of an OME-Zarr image must be named."""
        is_folder = path.is_dir() if is_folder is None else is_folder
        names = label_names(path) if self.key is None and is_folder else []
        if names:
            rule, remedy = "to be a label map", f"Name one: data.key={names[0]}."
            raise file_error(path, "OME-Zarr", rule, f"a picture with {some(names)}", remedy)
        return {"key": self.key, "level": self.level, "max_pixels": self.max_pixels, "axes": "map"}
