"""What a user may say about data: one schema per kind of data set."""

import colorsys
from dataclasses import dataclass, field
from typing import Literal

from segmeter.checks import Problems, collecting
from segmeter.classes import ClassSpec, Colour, Task
from segmeter.errors import ConfigError
from segmeter.registry import Registry

DATA = Registry("data")
SPLITS = ("train", "val", "test", "all")
Instances = Literal[False, True, "references", "predictions"]

CAMVID_CLASSES = (
    "Sky", "Building", "Pole", "Road", "Pavement", "Tree", "SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist",
)  # fmt: skip
CAMVID_COLOURS: tuple[Colour, ...] = (
    (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0),
    (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
)  # fmt: skip
_FRACTIONS = ("val_fraction", "test_fraction", "split_seed", "group_until")  # what decides the split without lists
CELL_CLASSES = ("background", "round", "spindle", "mitotic")
CELL_COLOURS: tuple[Colour, ...] = ((0, 0, 0), (86, 180, 233), (0, 158, 115), (230, 97, 1))


# What people call a first class that is no object; drawn in black, so left out of pictures
_BACKGROUNDS = ("background", "bg", "void", "other", "others", "rest", "none", "unlabeled", "unlabelled", "class_0")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The fields that every data set has; `name` chooses the kind."""

    name: str
    root: str
    """The data set's folder."""
    split: str = "test"
    """Which cases evaluation takes: train, val, test or all."""
    task: Task = "multiclass"
    classes: tuple[str, ...] = ()
    """Names in the order of the labels, background included."""
    colours: tuple[tuple[int, ...], ...] | None = None
    """One (red, green, blue) per class; None gives a default palette, with black for a first class that is called
    background, other, void, ... and for the first of a binary task."""
    ignore_index: int | None = None
    """The label of pixels that count nowhere."""
    label_map: dict[str, int] = field(default_factory=dict)
    """From a stored value ("255") or colour ("128,64,0") to a label; empty takes stored values as labels."""
    in_channels: int = 3
    """Channels of an image."""
    full_scale: float | None = None
    """The stored value that counts as 1, for example 4095 for 12-bit images; None takes the dtype's largest, and 1 for
    floats."""
    mean: tuple[float, ...] | Literal["auto"] | None = None
    """Per channel, of pixels scaled to 0..1; "auto" is that of all training pixels, None ImageNet's for 3 channels and
    0.5 otherwise."""
    std: tuple[float, ...] | Literal["auto"] | None = None
    """Likewise; None takes ImageNet's for 3 channels and 0.25 otherwise."""
    samples_per_epoch: int | None = None
    """Samples that count as one epoch; None takes every case once, of small data sets more (see `SampleSource`)."""
    instances: bool = False
    """Whether masks hold numbers of objects, 0 being none: a binary task, whose class is what any object covers."""
    verify: Literal["cached", "always"] = "cached"
    """Whether the check at the start takes over what it found in files that are unchanged since an earlier start."""
    max_pixels: int = 200_000_000
    """The largest height x width of a file, checked before it is decoded."""
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"
    """What to do with images whose EXIF tag says that they lie on their side."""
    allow_links: bool = False
    """Whether files may be links to places outside the root."""

    def __post_init__(self) -> None:
        with collecting("data") as problems:
            self._check(problems)
            try:
                self.spec()
            except ConfigError as error:
                problems.lines.extend(error.problems)

    def spec(self) -> ClassSpec:
        """What the labels mean."""
        colours = self.colours
        if colours is None:  # without a background no class is black, which an overlay would not show
            named = bool(self.classes) and self.classes[0].casefold() in _BACKGROUNDS
            first = int(self.task == "multilabel" or (self.task == "multiclass" and not named))
            colours = default_colours(first + len(self.classes))[first:]
        return ClassSpec(
            task=self.task,
            names=tuple(self.classes),
            colours=tuple((int(c[0]), int(c[1]), int(c[2])) for c in colours if len(c) == 3),
            ignore_index=self.ignore_index,
        )

    def labels_of(self) -> dict[str, int]:
        """The label map with its keys written in one way."""
        return {_key(key): label for key, label in self.label_map.items()}

    def _check(self, problems: Problems) -> None:
        remedy = "Set data.root=/path/to/the/data."
        problems.expect(bool(str(self.root).strip()) and self.root != "???", "root", "to be given", self.root, remedy)
        problems.one_of("split", self.split, SPLITS)
        problems.in_range("in_channels", self.in_channels, 1, 1024)
        problems.in_range("max_pixels", self.max_pixels, 1)
        problems.one_of("orientation", self.orientation, ("refuse", "ignore", "apply"))
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and values != "auto":
                problems.expect(len(values) == self.in_channels, name, f"to be {self.in_channels} values", values)
        for value in self.std if isinstance(self.std, tuple) else ():
            problems.in_range("std", value, 0, above=True)
        problems.in_range("full_scale", self.full_scale, 0, above=True)
        problems.in_range("samples_per_epoch", self.samples_per_epoch, 1, 10**9)
        problems.one_of("verify", self.verify, ("cached", "always"))
        alone = not self.instances or (self.task == "binary" and not self.label_map)
        rule, remedy = "to be false but for a binary task without label map", "Set data.task=binary."
        problems.expect(alone, "instances", rule, self.instances, remedy)
        for colour in self.colours or ():
            problems.expect(len(colour) == 3, "colours", "to be [red, green, blue], 0 to 255 each", list(colour))
        self._check_label_map(problems)

    def _check_label_map(self, problems: Problems) -> None:
        top = (2 if self.task == "multilabel" else len(self.classes)) - 1
        rule = "from a value or 'red,green,blue'"
        for key, label in self.label_map.items():
            problems.expect(_is_key(_key(key)), "label_map", rule, key)
            ok = 0 <= label <= top or label == self.ignore_index
            problems.expect(ok, "label_map", f"to a label from 0 to {top} or ignore_index", {key: label})


def _key(key: object) -> str:
    return str(key).replace(" ", "")


def _is_key(key: str) -> bool:
    parts = key.split(",")
    if len(parts) == 1:
        return key.lstrip("-").isdigit()
    return len(parts) == 3 and all(part.isdigit() and int(part) <= 255 for part in parts)


def default_colours(count: int) -> tuple[Colour, ...]:
    """Black for the first class, then hues that stay apart: each golden-angle step is far from all before it.

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


@DATA.register("folder", builder="segmeter.data.folders.folder:build_folder")
@dataclass(frozen=True, kw_only=True)
class FolderConfig(DataConfig):
    """A folder of images and one of masks, paired by file name without its suffix."""

    name: str = "folder"
    images: str = "images"
    """Folder of the images, under the root."""
    masks: str = "masks"
    """Folder of the masks, under the root; for multilabel it holds one folder per class name.

    With `mask_suffix` it may be that of the images."""
    mask_suffix: str = ""
    """What a mask's name has after its image's, for example "_mask"."""
    lists: str | None = None
    """Folder, under the root, with train.txt, val.txt and test.txt; None splits by fractions."""
    list_files: dict[str, str] = field(default_factory=dict)
    """A list file per split, under the root, instead of those names."""
    val_fraction: float = 0.15
    test_fraction: float = 0.15
    split_seed: int = 0
    """Decides, with its name alone, which split a case falls into; other cases don't matter."""
    group_until: str = ""
    """Cases whose names agree up to this text stay in one split, for example "_" after a patient's number."""

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        for name in ("val_fraction", "test_fraction"):
            problems.in_range(name, getattr(self, name), 0, 1)
        total = self.val_fraction + self.test_fraction
        problems.expect(total < 1, "val_fraction + test_fraction", "< 1, as the rest is for training", total)
        remedy = "Two names or a suffix tell a mask from its image."
        together = self.images == self.masks and not self.mask_suffix
        problems.expect(not together, "masks", "to be another folder, or to have data.mask_suffix", self.masks, remedy)
        for split in self.list_files:
            problems.one_of("list_files", split, SPLITS[:3])
        if self.lists is not None or len(self.list_files) == len(SPLITS[:3]):
            remedy = "Lists decide the split alone: leave it out, or set data.lists=null."
            for name in _FRACTIONS:
                given, usual = getattr(self, name), FolderConfig.__dataclass_fields__[name].default
                problems.expect(given == usual, name, "to be left alone beside lists", given, remedy)


@DATA.register("camvid", builder="segmeter.data.folders.folder:build_folder")
@dataclass(frozen=True, kw_only=True)
class CamvidConfig(FolderConfig):
    """CamVid's road scenes, 11 classes; the value 11 is void and counts nowhere."""

    name: str = "camvid"
    classes: tuple[str, ...] = CAMVID_CLASSES
    colours: tuple[tuple[int, ...], ...] | None = CAMVID_COLOURS
    ignore_index: int | None = 11
    lists: str | None = "."


@DATA.register("cells", builder="segmeter.data.synthetic.cells:build_cells")
@dataclass(frozen=True, kw_only=True)
class CellsConfig(DataConfig):
    """The built-in synthetic microscopy, drawn once under the root into a folder named after these settings."""

    name: str = "cells"
    root: str = "data"
    classes: tuple[str, ...] = CELL_CLASSES
    colours: tuple[tuple[int, ...], ...] | None = CELL_COLOURS
    ignore_index: int | None = 255
    in_channels: int = 1
    size: int = 192
    """Height and width of an image, in pixels."""
    train_cases: int = 96
    val_cases: int = 24
    test_cases: int = 32
    seed: int = 0
    """Decides every pixel."""
    ignore_rim: int = 0
    """Width in pixels of the ignored rim between touching cells; 0 is none."""

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        problems.in_range("size", self.size, 64, 2048)
        for name in ("train_cases", "val_cases", "test_cases"):
            problems.in_range(name, getattr(self, name), 1, 100_000)
        problems.in_range("seed", self.seed, 0)
        problems.in_range("ignore_rim", self.ignore_rim, 0, 9)


def folder_config(config: DataConfig) -> FolderConfig:
    """The same settings for a folder of files with lists beside it."""
    shared = {name: getattr(config, name) for name in DataConfig.__dataclass_fields__ if name != "name"}
    return FolderConfig(**shared, lists=".")
