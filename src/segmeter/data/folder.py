"""Builds a data set from folders of images and masks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.config import FolderConfig, PlaneAxis
from segmeter.data.dataset import Dataset
from segmeter.data.files.array import MAX_PIXELS
from segmeter.data.files.refusals import show
from segmeter.data.folds import deal_folds, describe_dealing, read_list, split_names
from segmeter.data.images import Orientation
from segmeter.data.masks.annotations import annotations_of, open_annotations
from segmeter.data.pairing import (
    Listing,
    class_folders,
    layout,
    list_images,
    pair_cases,
    scan_folder,
    twice_problems,
)
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, Reading
from segmeter.data.verification.verify import header_problems, verify
from segmeter.errors import DataError
from segmeter.files import safe_id
from segmeter.remote import fetch, unzipped, url_of


def build_folder(config: FolderConfig, *, split: str) -> Dataset:
    """Open one split of a folder of images and masks.

    Returns
    -------
    Dataset
        The complete cases. Its `problems` say what is wrong with the names of the others.

    Raises
    ------
    DataError
        There are no images or masks, or the split is unknown.
    """
    if config.sources:
        return join_sources(config, split=split)
    root = unzipped(Path(config.root).expanduser())
    if not root.is_dir() and not url_of(root):
        tried = f"no folder {show(root.absolute())} (working folder {show(Path.cwd())})"
        raise DataError(expected("data", "root", "to be a folder", tried, "Set data.root=/path/to/the/data."))
    images = scan_folder(root / config.images, role="images", remedy=layout(config)).by_channel(config.channel_files)
    classes = config.classes if config.task == "multilabel" else ()
    masks = []
    for folder, role in class_folders("data", root / config.masks, "masks", classes):
        annotations = annotations_of(folder / "_")  # `folder` may lead into a file; "_" stands for any image name there
        if annotations is None:
            masks.append(scan_folder(folder, role=role, remedy=layout(config)))
        else:
            masks.append(Listing(folder, {name: [name] for name in open_annotations(annotations).images}))
    problems = [line for listing in (images, *masks) for line in listing.problems]
    if not all(listing.names for listing in (images, *masks)):
        raise DataError(problems)
    if config.images == config.masks:
        of_images = {stem: names for stem, names in images.names.items() if not stem.endswith(config.mask_suffix)}
        of_masks = {stem: names for stem, names in images.names.items() if stem not in of_images}
        masks = [replace(images, names=of_masks)]
        images = replace(images, names=of_images)
    try:
        stems = _stems(config, root, split, images, masks)
    except DataError as error:
        raise DataError([*problems, *error.problems]) from error
    pairs = pair_cases(config, root, stems, images, masks, problems)
    origin = Path(config.images) if split == "all" else _list_name(config, split)
    source = f"seed {config.split_seed}" if origin is None else show((root / origin).absolute())
    return replace(_dataset(config, split, pairs), source=source, problems=tuple(problems))


def _dataset(config: FolderConfig, split: str, pairs: tuple[Pair, ...]) -> Dataset:
    kind = Dataset if config.planes is None else partial(VolumeSet, planes=config.planes, context=config.context)
    return kind(
        reading=Reading.of(config, config.spec(), flat=True, located=False),
        in_channels=config.in_channels,
        split=split,
        pairs=pairs,
        orientation=config.orientation,
        dealt=describe_dealing(config),
        timeout_s=config.timeout_s,
    )


def join_sources(config: FolderConfig, *, split: str) -> Dataset:
    """Open one split of every source as one data set, whose case ids begin with the source's folder.

    Raises
    ------
    DataError
        Two sources have the same name, two cases have the same id, or a source can't be opened.
    """
    names = {root: safe_id(Path(root).name) for root in config.sources}
    problems = [
        expected("data", "sources", "to have folders of different names", some(roots), "Rename one of them.")
        for name in sorted(set(names.values()))
        if len(roots := [root for root, its_name in names.items() if its_name == name]) > 1
    ]
    parts = []
    for root, name in names.items():
        try:
            source_root = root if url_of(root) else str(Path(config.root, root))
            part = build_folder(config.replace(root=source_root, sources={}), split=split)
            pairs = [replace(pair, case_id=safe_id(f"{name}-{pair.case_id}"), source=name) for pair in part.pairs]
            parts.append(replace(part, pairs=tuple(pairs)))
        except DataError as error:
            problems += error.problems
    images: dict[str, list[str]] = defaultdict(list)
    for pair in (pair for part in parts for pair in part.pairs):
        images[pair.case_id].append(show(pair.image))
    # Case b-c of source a and case c of source a-b have the same id. Sources of one name are reported already.
    problems = problems or [
        expected("data", "sources", f"to have one case {case_id!r}", some(paths), "Rename a source or a case.")
        for case_id, paths in images.items()
        if len(paths) > 1
    ]
    if problems:
        raise DataError(problems)
    return replace(
        parts[0],
        pairs=tuple(sorted((pair for part in parts for pair in part.pairs), key=attrgetter("case_id"))),
        problems=tuple(line for part in parts for line in part.problems),
        source=", ".join(part.source for part in parts),
        weights={name: config.sources[root] for root, name in names.items()},
    )


def open_images(
    path: Path,
    *,
    spec: ClassSpec,
    in_channels: int,
    max_pixels: int = MAX_PIXELS,
    orientation: Orientation = "refuse",
    level: int = 0,
    timeout_s: float | None = None,
    planes: PlaneAxis | None = None,
    context: int = 0,
    channel_files: Sequence[str] = (),
) -> Dataset:
    """Open a folder of images, or one image, without references.

    Parameters
    ----------
    path
        A folder, a file or a Zarr folder.
    spec, in_channels
        The classes and channels of the model that will see the images.
    max_pixels, orientation
        As in `segmeter.data.images.read_image`; larger TIFF files and Zarr folders are read line by line.
    level
        The level of pyramids.
    timeout_s
        As in `Dataset`.
    planes, context
        As in `VolumeSet`, if the images are volumes.
    channel_files
        The text that follows a case's name in the file name of each channel.

    Raises
    ------
    DataError
        There is nothing at the path, or a header does not fit.
    """
    if not path.exists() and not url_of(path):
        tried = f"nothing at {show(path.absolute())} (working folder {show(Path.cwd())})"
        raise DataError(expected("config", "input", "to be a folder or an image", tried))
    images = list_images(path).by_channel(channel_files)
    problems = [*images.problems, *twice_problems(images.names, "images")]
    if problems:
        raise DataError(problems)
    # `files` drops "./", which records should not have before files of the working folder
    pairs = [replace(pair, paths=tuple(map(str, pair.files))) for pair in map(images.pair, images.names)]
    kind = Dataset if planes is None else partial(VolumeSet, planes=planes, context=context)
    dataset = kind(
        reading=Reading(spec=spec, max_pixels=max_pixels, flat=True, level=level, located=False),
        in_channels=in_channels,
        split="all",
        pairs=tuple(sorted(pairs, key=attrgetter("case_id"))),
        orientation=orientation,
        streams=True,
        timeout_s=timeout_s,
    )
    problems = header_problems(dataset)
    if problems:
        raise DataError(problems)
    return dataset


def _stems(config: FolderConfig, root: Path, split: str, images: Listing, masks: list[Listing]) -> list[str]:
    """Return the names of one split: by folds, by its list or by fractions.

    Folds deal the cases of train and val together again, so one of the two may have been empty.
    """
    by_fold = config.fold is not None and split in ("train", "val")
    stems: list[str] = []
    for part in ("train", "val") if by_fold else (split,):
        list_name = _list_name(config, part)
        if part == "all":
            stems = sorted(images.names)
        elif list_name is not None:
            remedy = "Relative paths of data.lists and data.list_files start at data.root."
            stems += read_list(fetch(root / list_name), remedy=remedy)
        else:
            split_of = split_names(
                images.names,
                val_fraction=config.val_fraction,
                test_fraction=config.test_fraction,
                **_grouping(config),
            )
            stems += [stem for stem in sorted(images.names) if split_of[stem] == part]
    if config.fold is not None and by_fold:
        number, count = map(int, config.fold.split("/"))
        stems = sorted(set(stems))
        strata = _classes_of(config, root, stems, images, masks) if config.strata else None
        fold_of = deal_folds(stems, count, strata=strata, **_grouping(config))
        return [stem for stem in stems if (fold_of[stem] == number) == (split == "val")]
    if not stems:
        remedy = f"Raise data.{split}_fraction, give lists, or set data.split=all."
        if split == "train":
            remedy = "Lower data.val_fraction and data.test_fraction, or give lists."
        rule = f"{split!r} to hold a case"
        raise DataError(expected("data", "split", rule, f"none of {len(images.names)} images", remedy))
    return stems


def _classes_of(
    config: FolderConfig, root: Path, stems: list[str], images: Listing, masks: list[Listing]
) -> dict[str, tuple[str, ...]]:
    """Return the classes in each case. Masks are read, unless an earlier start has read them unchanged."""
    problems: list[str] = []
    pairs = pair_cases(config, root, stems, images, masks, problems)
    dataset = replace(_dataset(config, "train, val", pairs), streams=not config.instances)
    verified = verify(dataset, use_cache=config.verify == "cached")
    problems += verified.problems
    if problems:
        raise DataError(problems)
    stem_of_case = {safe_id(stem): stem for stem in stems}
    classes = np.array(config.classes)
    return {
        stem_of_case[pair.case_id]: tuple(classes[pixels > 0].tolist())
        for pair, pixels in zip(pairs, verified.rows["classes"], strict=True)
    }


def _grouping(config: FolderConfig) -> dict[str, Any]:
    """Return the settings that decide, together with a case's name, into which split or fold it falls."""
    return {"seed": config.split_seed, "group_until": config.group_until, "group_by": config.group_by}


def _list_name(config: FolderConfig, split: str) -> Path | None:
    """Return the configured list of a split; None if cases are divided by fractions."""
    if split in config.list_files:
        return Path(config.list_files[split])
    return None if config.lists is None else Path(config.lists) / f"{split}.txt"
