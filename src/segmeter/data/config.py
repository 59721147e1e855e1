"""The configuration of data: one schema per kind of data set."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from segmeter.checks import nearest
from segmeter.classes import CORE, Colours
from segmeter.data.classes_config import (
    CAMVID_CLASSES,
    CAMVID_COLOURS,
    CELL_CLASSES,
    CELL_COLOURS,
    ClassesConfig,
    StoredLabel,
    check_objects,
)
from segmeter.data.labels_config import nnunet_folder
from segmeter.schema import REQUIRED, Config, Given, Registry, RuleError, Unit, rule

DATA = Registry("data")
Split = Literal["train", "val", "test", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
CaseShare = Annotated[float, Unit("share of the cases"), Field(ge=0, le=1)]
Percentile = Annotated[float, Unit("percentile"), Field(ge=0, le=100)]
CLIP_LEVELS = ((0, 0.5, 1, 2, 5), (95, 98, 99, 99.5, 100))  # percentiles that are kept of each image
CaseCount = Annotated[int, Unit("cases"), Field(ge=1, le=100_000)]
PlaneAxis = Literal["auto", "axial", "i", "j", "k"]

_FOLD = re.compile(r"(\d{1,4})/(\d{1,4})", re.ASCII)
_FRACTIONS = ("val_fraction", "test_fraction", "split_seed", "group_by", "group_until")  # decide splits without lists


# A class of its own, so that these keys come before those of `ClassesConfig`
class PlaceConfig(Config, title="data"):
    """The data set, and where it is."""

    name: str
    """The registered name of the kind of data set."""
    root: str
    """The data set's folder."""
    split: Split = "test"
    """The cases to evaluate."""

    @rule("root")
    def _check_root(cls, root: str, given: Given) -> None:
        if root.strip() in ("", REQUIRED):
            raise RuleError("to be given", "Set data.root=/path/to/the/data.")


class DataConfig(ClassesConfig, PlaceConfig):
    """The fields that every data set has; `name` chooses the kind."""

    in_channels: Annotated[int, Unit("channels")] = Field(3, ge=1, le=1024)
    """Channels of an image."""
    channels: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names of the channels in their order: [DAPI, GFP]; [] leaves them unnamed. A checkpoint keeps them and refuses
    images with other channel names."""
    full_scale: Annotated[float | None, Unit("stored value")] = Field(None, gt=0)
    """The stored value that becomes 1: 4095 for 12 bits in uint16; null takes the dtype's largest, and 1 for floats."""
    mean: tuple[float, ...] | Literal["auto"] | None = None
    """Mean per channel of pixels scaled to 0..1; "auto" computes it from all training pixels; null takes ImageNet's for
    3 channels and 0.5 otherwise."""
    std: tuple[Annotated[float, Field(gt=0)], ...] | Literal["auto"] | None = None
    """Standard deviation per channel of pixels scaled to 0..1; "auto" computes it from all training pixels; null takes
    ImageNet's for 3 channels and 0.25 otherwise."""
    clip: tuple[Percentile, Percentile] | None = None
    """Clip values to these two percentiles of a channel's training pixels, against outliers such as hot pixels and
    metal; null does not clip. The lower one is 0, 0.5, 1, 2 or 5, and the upper one is 95, 98, 99, 99.5 or 100."""
    samples_per_epoch: Annotated[int | None, Unit("samples")] = Field(None, ge=1, le=10**9)
    """Samples per epoch; null takes every case once, and more often in small data sets."""
    instance_divisor: Annotated[int | None, Field(ge=2)] = None
    """For masks that hold class * divisor + object number, and the class alone where there is no object: 1000, as in
    Cityscapes' instanceIds. null: masks of objects hold the object numbers of one class."""
    instances: bool = False
    """Whether masks hold object numbers, 0 being none. The task is then binary: all objects are of one class. With
    `instance_divisor`, masks hold class and object number.
    """
    verify: Literal["cached", "always"] = "cached"
    """Whether the check at the start trusts what an earlier start found in files that are unchanged since."""
    level: Annotated[int, Unit("level")] = Field(0, ge=0, le=99)
    """The level of TIFF pyramids and OME-Zarr to read, 0 being the finest."""
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"
    """How to treat images whose EXIF tag says that they are rotated or mirrored."""
    allow_links: bool = False
    """Whether files may be links to places outside the root."""

    @rule("channels", "mean", "std", "clip")
    def _suits_the_channels(cls, value: Any, given: Given) -> None:
        match given.own_key:
            case "channels" if value and (len(value) != given.in_channels or len(set(value)) < len(value)):
                raise RuleError(f"to be {given.in_channels} different names", "data.in_channels is their number.")
            case "mean" | "std" if isinstance(value, tuple) and len(value) != given.in_channels:
                raise RuleError(f"to be {given.in_channels} values, one per channel")
            case "clip" if value and not all(one in kept for one, kept in zip(value, CLIP_LEVELS, strict=True)):
                low, high = (", ".join(f"{level:g}" for level in levels) for levels in CLIP_LEVELS)
                raise RuleError(f"to be one of {low}, and one of {high}")

    _readable_objects = rule("instances")(check_objects)


def channel_label(config: DataConfig, channel: int) -> str:
    """Return the name of a channel, or its number from 0."""
    return config.channels[channel] if config.channels else str(channel)


@DATA.register("folder", builder="segmeter.data.folder:build_folder")
class FolderConfig(DataConfig):
    """Your own data: a folder of images and one of masks, paired by file name without its suffix."""

    name: str = "folder"
    classes: tuple[str, ...] = Field((), validate_default=True)
    """Names in the order of the labels, background included: [background, cell]; a preset has its own."""
    images: str = "images"
    """Folder of the images, under the root."""
    mask_suffix: str = ""
    """The text that follows the image's name in a mask's name, for example "_mask"."""
    masks: str = "masks"
    """Folder of the masks, or a COCO, Label Studio or CVAT file, under the root; for multilabel the folder holds one
    folder per class name. With `mask_suffix` it may be that of the images."""
    key: str | None = None
    """The array of NPZ archives and Zarr groups that is the mask; null takes the only one."""
    overlap: Literal["error", "smaller_on_top"] = "error"
    """How to treat pixels that two drawn objects (COCO, GeoJSON, YOLO, ...) cover: as an error, or as pixels of the
    smaller one."""
    corners: Literal["edges", "centres"] = "edges"
    """Where the corners of YOLO polygons lie: on the edges of pixels, as people draw them, or in the centres of pixels,
    as Ultralytics and OpenCV trace masks."""
    lists: str | None = None
    """Folder, under the root, with train.txt, val.txt and test.txt; null splits by fractions."""
    list_files: dict[str, str] = Field(default_factory=dict)
    """A list file per split, under the root, instead of those names: {train: mine.txt}."""
    val_fraction: CaseShare = 0.15
    """Share of the cases for validation, which is at least one case. A case's split depends only on its name and
    `split_seed`.
    """
    test_fraction: CaseShare = 0.15
    """Share of the cases for testing; the rest is for training."""
    nnunet: Path | None = None
    """A dataset.json of nnU-Net, or its folder. It defines root, images (imagesTr), masks (labelsTr), classes, ignored
    value and channels, unless you set them."""
    planes: PlaneAxis | None = None
    """Images are volumes, whose planes the network sees. The values "i", "j" and "k" name axes to cut across;
    "i" changes fastest. The value "axial" follows the affine. The value "auto" takes the axis of the coarsest spacing,
    or axial planes if there is none. null: images are pictures."""
    channel_files: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Volumes with a file per channel: the text that follows a case's name in each, such as [_0000, _0001]."""
    context: Annotated[int, Unit("planes")] = Field(0, ge=0, le=8)
    """Neighbouring planes on each side that the network sees as further channels. At the ends the last plane repeats.
    """
    empty_planes: Annotated[float | None, Unit("planes without an object per plane with one")] = Field(0.5, ge=0)
    """Largest number of planes without an object that training takes per plane with one; null takes them all."""
    sources: dict[str, Annotated[float, Field(gt=0, le=1e6)]] = Field(default_factory=dict)
    """Several data sets of this layout as one: folders under the root, each with its weight, {day: 1, night: 3}.
    Weights decide the shares of the training samples; {} takes the root itself."""
    split_seed: int = 0
    """Decides, together with a case's name, which split it belongs to; other cases do not matter."""
    fold: str | None = None
    """Cross-validation: "2/5" divides the cases of training and validation into 5 folds, and validates on the
    second."""
    strata: Literal["classes"] | None = None
    """"classes": each fold gets its share of the cases that have each class. null deals by size alone."""
    group_by: str | None = None
    """The part of a case's name that tells the patient; cases of one patient stay in one split and one fold. With
    "prefix:8" it is the first 8 characters, with "prefix:_" the text before the last "_". With "pair" it is the name
    without its side (Image_01L, Image_01R)."""
    core_depth: Annotated[float | None, Unit("pixels")] = Field(None, gt=0, le=100)
    """As in `data=instances`, where it is 2; null trains on plain masks."""
    group_until: str = ""
    """Cases whose names agree up to this text stay in one split and one fold: "_" keeps p07_1 and p07_2 together."""

    _from_nnunet = model_validator(mode="before")(nnunet_folder)

    @rule(
        *("masks", "planes", "channel_files", "context", "core_depth"),
        *("list_files", "test_fraction", "fold", "strata", "group_by", "group_until"),
    )
    def _go_together(cls, value: Any, given: Given) -> None:
        match given.own_key:
            case "masks" if value == given.images and not given.mask_suffix:
                remedy = "Two names or a suffix tell a mask from its image."
                raise RuleError("to be another folder, or to have data.mask_suffix", remedy)
            case "planes" if value is not None and (given.instances or given.instance_divisor):
                raise RuleError("to be null for masks of object numbers", "Save class labels for volumes.")
            case "channel_files" if value and given.planes is None:
                raise RuleError("to be [] for pictures", "Set data.planes=auto for volumes.")
            case "context" if value and given.planes is None:
                raise RuleError("to be 0 without data.planes", "Set data.planes=auto for volumes.")
            case "core_depth" if value is not None and (
                not given.instances or given.instance_divisor or given.ignore_index == CORE
            ):
                remedy = f"Set it to null, or data.instances=true and another data.ignore_index than {CORE}."
                raise RuleError("to be null but for masks of object numbers of one class", remedy)
            case "list_files" if other := [split for split in value if split not in SPLITS[:3]]:
                wanted = f"to be for {', '.join(SPLITS[:3])}, not for {other[0]!r}"
                raise RuleError(wanted, nearest(other[0], SPLITS[:3]))
            case "test_fraction" if given.val_fraction + value >= 1:
                raise RuleError(f"to leave a part for training beside val_fraction={given.val_fraction:g}")
            case "fold" if not (at := _FOLD.fullmatch(value or "1/2")) or not 1 <= int(at[1]) <= int(at[2]) >= 2:
                raise RuleError("to be i/k, fold i of k, with k at least 2", "Write data.fold=1/5.")
            case "strata" if value is not None and given.fold is None:
                raise RuleError("to be null without folds", "Set data.fold=1/5.")
            case "group_by" if value is not None and not re.fullmatch(r"pair|prefix:(?!0+$).+", value):
                raise RuleError("to be prefix:NUMBER, prefix:SEPARATOR or pair", "Write data.group_by=prefix:8.")
            case "group_until" if value and given.group_by is not None:
                raise RuleError("to be left alone beside data.group_by", "Set only one of the two.")

    @rule("group_until")
    def _lists_decide_alone(cls, value: str, given: Given) -> None:
        if given.lists is None and len(given.list_files) < len(SPLITS[:3]):
            return
        for name in _FRACTIONS[:2] if given.fold else _FRACTIONS:
            set_to = value if name == "group_until" else getattr(given, name)
            if set_to != FolderConfig.model_fields[name].default:
                remedy = "Lists decide the split alone: leave it out, or set data.lists=null."
                raise RuleError("to be left alone beside lists", remedy, key=name)


@DATA.register("instances", builder="segmeter.data.folder:build_folder")
class InstancesConfig(FolderConfig):
    """Your own data with masks of object numbers: the model learns what any object covers, and objects are measured
    too.
    """

    name: str = "instances"
    task: Literal["binary"] = "binary"
    """Binary: a pixel is in an object or in none."""
    classes: tuple[str, ...] = ("background", "object")
    """Names of the pixels outside and inside of objects."""
    instances: bool = True
    """Whether masks hold object numbers, 0 being none."""
    core_depth: Annotated[float | None, Unit("pixels")] = Field(2.0, gt=0, le=100)
    """Where the core of an object begins, counted from its outermost pixels. The model learns to be sure only in cores,
    by which post-processing separates touching objects. null trains on plain masks.
    """


@DATA.register("camvid", builder="segmeter.data.folder:build_folder")
class CamvidConfig(FolderConfig):
    """CamVid's road scenes: images/<id>.jpg, masks/<id>.png, train.txt, val.txt, test.txt; 11 classes, 11 is void."""

    name: str = "camvid"
    classes: tuple[str, ...] = CAMVID_CLASSES
    """Names in the order of the labels."""
    colours: Colours | None = CAMVID_COLOURS
    """One [red, green, blue] per class, 0 to 255 each; null gives a default palette."""
    ignore_index: StoredLabel = 11
    """The label of pixels that are excluded from loss and metrics; not a class. null: there is none."""
    lists: str | None = "."
    """Folder, under the root, with train.txt, val.txt and test.txt; null splits by fractions."""


@DATA.register("cells", builder="segmeter.data.synthetic:build_cells")
class CellsConfig(DataConfig):
    """Built-in synthetic fluorescence cells: background, round, spindle, mitotic (rare).

    They are drawn once under the root, into a folder named after these settings.
    """

    name: str = "cells"
    root: str = "data"
    """Folder that takes cells-<hash>/."""
    classes: tuple[str, ...] = CELL_CLASSES
    """Names in the order of the labels, background included."""
    colours: Colours | None = CELL_COLOURS
    """One [red, green, blue] per class, 0 to 255 each; null gives a default palette."""
    ignore_index: StoredLabel = 255
    """The label of pixels that are excluded from loss and metrics; not a class. null: there is none."""
    in_channels: Annotated[int, Unit("channels")] = Field(1, ge=1, le=1024)
    """Channels of an image."""
    size: Annotated[int, Unit("pixels")] = Field(192, ge=64, le=2048)
    """Height and width of an image."""
    train_cases: CaseCount = 96
    """Images for training."""
    val_cases: CaseCount = 24
    """Images for validation."""
    test_cases: CaseCount = 32
    """Images for testing."""
    seed: int = Field(0, ge=0)
    """Seed that decides every pixel."""
