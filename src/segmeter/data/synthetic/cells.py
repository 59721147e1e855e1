"""configuration -> the built-in synthetic cells, drawn once and then read as any other folder."""

import errno
import hashlib
import io
import json
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from segmeter.checks import expected
from segmeter.data.config import SPLITS, CellsConfig, DataConfig, FolderConfig
from segmeter.data.dataset import Dataset
from segmeter.data.files.sniff import show
from segmeter.data.folders.folder import build_folder
from segmeter.data.synthetic.drawing import draw_scene, touching
from segmeter.errors import DataError
from segmeter.files import (
    TEMPORARY,
    Lines,
    fresh_folder,
    make_folder,
    remove,
    write_bytes,
    write_json,
)
from segmeter.parallel import map_in_threads
from segmeter.progress import track

DRAWING = 1  # raised with every change of a drawn pixel, so that older folders are not taken for the new ones
RIM = 255
_LEFT_BEHIND = 3600.0  # seconds without a new file, after which nobody draws into an unfinished folder


def build_cells(config: CellsConfig, *, split: str) -> Dataset:
    """Open one split of the synthetic cells, drawing them first where they are not there yet.

    Raises
    ------
    DataError
        The root can't be written to.
    """
    return replace(build_folder(folder_config(config, str(draw_cells(config))), split=split), dealt={})


def folder_config(config: DataConfig, root: str) -> FolderConfig:
    """The same settings for a folder of files with lists beside it."""
    shared = {name: getattr(config, name) for name in DataConfig.model_fields if name not in ("name", "root")}
    return FolderConfig(**shared, root=root, lists=".")


def draw_cells(config: CellsConfig) -> Path:
    """Draw the whole set into a folder named after what decides its pixels, unless it is there.

    The folder appears complete or not at all; of several processes that draw at once, the first one's stays.

    Returns
    -------
    The folder, with images/, masks/, train.txt, val.txt and test.txt.
    """
    folder = cells_folder(config)
    if folder.is_dir():
        return folder
    try:
        _clear_killed(folder.parent)
        with fresh_folder(folder) as fresh:
            _fill(config, fresh)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not folder.is_dir():
            tried = f"{error.strerror} at {show(folder.absolute())}"
            raise DataError(expected("data", "root", "to take the drawn cells", tried, "Set data.root.")) from error
    return folder


def _clear_killed(root: Path) -> None:
    """Remove what killed processes left half drawn an hour ago or earlier."""
    for left in root.glob(f"{TEMPORARY}*"):
        last = max((path.lstat().st_mtime for path in (left, *left.glob("*"))), default=0.0)
        if time.time() - last > _LEFT_BEHIND:
            remove(left)


def cells_folder(config: CellsConfig) -> Path:
    """Where the set of this configuration lies: cells-<hash of what decides its pixels>."""
    digest = hashlib.sha256(json.dumps(_settings(config), sort_keys=True).encode()).hexdigest()
    return Path(config.root).expanduser() / f"cells-{digest[:10]}"


def _settings(config: CellsConfig) -> dict[str, int]:
    names = ("size", "train_cases", "val_cases", "test_cases", "seed", "ignore_rim")
    return {"drawing": DRAWING, **{name: getattr(config, name) for name in names}}


def _fill(config: CellsConfig, folder: Path) -> None:
    for name in ("images", "masks"):
        make_folder(folder / name)
    jobs = []
    for number, split in enumerate(SPLITS[:3]):
        cases = range(getattr(config, f"{split}_cases"))
        names = [f"{split}-{index:04d}" for index in cases]
        write_bytes(folder / f"{split}.txt", "".join(f"{name}\n" for name in names).encode())
        jobs += [(name, (config.seed, number, index)) for name, index in zip(names, cases, strict=True)]
    for _ in track(map_in_threads(partial(_draw_case, config, folder), jobs), "drawing cells", len(jobs)):
        pass
    write_json(folder / "settings.json", _settings(config))


def _draw_case(config: CellsConfig, folder: Path, job: tuple[str, tuple[int, int, int]]) -> None:
    """A case depends on the seed, its split and its index alone, so other cases and threads can't change it."""
    name, seed = job
    scene = draw_scene(np.random.default_rng(seed), config.size)
    labels = scene.labels
    if config.ignore_rim:
        labels = np.where(touching(scene.instances, config.ignore_rim), np.uint8(RIM), labels)
    for kind, pixels in (("images", scene.image), ("masks", labels)):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        path = folder / kind / f"{name}.png"
        with closing(Lines(path)) as file:  # the folder is published as a whole
            file.write(buffer.getvalue())
