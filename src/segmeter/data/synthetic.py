"""Draws `data=cells`: synthetic fluorescence microscopy whose labels are exact by construction.

Three kinds of cells lie on a dim, unevenly lit field and touch each other. Some are round with a bright nucleus, others
are long spindles with fibres. The rare mitotic ones are small, and dark around a plate of condensed chromosomes. The
image is light per pixel, blurred by the optics and counted by a noisy camera. The set is drawn once and then read like
any other folder.
"""

import errno
import io
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from segmeter.checks import expected
from segmeter.data.config import SPLITS, CellsConfig, DataConfig, FolderConfig
from segmeter.data.dataset import Dataset
from segmeter.data.files.sniff import show
from segmeter.data.folder import build_folder
from segmeter.errors import DataError
from segmeter.files import Lines, fresh_folder, make_folder, sha256_json, write_bytes, write_json
from segmeter.parallel import map_in_threads
from segmeter.progress import track

DRAWING = 1  # raise it whenever a drawn pixel changes, so that older folders are not reused
ROUND, SPINDLE, MITOTIC = 1, 2, 3
_TRIES = 40  # positions tried for one cell
_CLUMPING = 0.35  # share of the cells that are placed beside another one so that they touch
_OVERLAP = 0.08  # share of a cell that may cover earlier ones: cells overlap, but none is buried


def build_cells(config: CellsConfig, *, split: str) -> Dataset:
    """Open one split of the synthetic cells, which are drawn first if necessary.

    Raises
    ------
    DataError
        The root can't be written to.
    """
    return replace(build_folder(folder_config(config, str(draw_cells(config))), split=split), dealt={})


def folder_config(config: DataConfig, root: str) -> FolderConfig:
    """Return the same settings for a folder of files with lists beside it."""
    shared = {name: getattr(config, name) for name in DataConfig.model_fields if name not in ("name", "root")}
    return FolderConfig(**shared, root=root, lists=".")


def draw_cells(config: CellsConfig) -> Path:
    """Draw the whole set into a folder named after the settings that decide its pixels, unless it exists.

    The folder appears complete or not at all. If several processes draw at once, the first one's folder stays.

    Returns
    -------
    The folder, with images/, masks/, train.txt, val.txt and test.txt.
    """
    folder = cells_folder(config)
    if folder.is_dir():
        return folder
    try:
        with fresh_folder(folder) as fresh:
            _fill(config, fresh)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not folder.is_dir():
            tried = f"{error.strerror} at {show(folder.absolute())}"
            raise DataError(expected("data", "root", "to take the drawn cells", tried, "Set data.root.")) from error
    return folder


def cells_folder(config: CellsConfig) -> Path:
    """Return the folder of this configuration: cells-<hash of the settings that decide its pixels>."""
    return Path(config.root).expanduser() / f"cells-{sha256_json(_settings(config))[:10]}"


def _settings(config: CellsConfig) -> dict[str, int]:
    names = ("size", "train_cases", "val_cases", "test_cases", "seed")
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
    """Draw one case; it depends only on the seed, its split and its index."""
    name, seed = job
    scene = draw_scene(np.random.default_rng(seed), config.size)
    for kind, pixels in (("images", scene.image), ("masks", scene.labels)):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        path = folder / kind / f"{name}.png"
        with closing(Lines(path)) as file:  # the folder is published as a whole
            file.write(buffer.getvalue())


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One case: `image` (H, W) uint8, `labels` (H, W) uint8, `instances` (H, W) uint16 with 0 as background."""

    image: np.ndarray
    labels: np.ndarray
    instances: np.ndarray


@dataclass(frozen=True)
class _Field:
    """Noise of three grain sizes over the whole image, unit variance each; cells take their texture from it."""

    fine: np.ndarray
    middle: np.ndarray
    coarse: np.ndarray


_Patch = tuple[tuple[slice, slice], np.ndarray, np.ndarray]  # a window, the pixels that a cell covers, its light there
_Draw = Callable[
    [np.random.Generator, np.ndarray, np.ndarray, _Field, tuple[slice, slice]], tuple[np.ndarray, np.ndarray]
]


def draw_scene(rng: np.random.Generator, size: int) -> Scene:
    """Draw one picture of `size` x `size` pixels; the same generator state gives the same bytes."""
    field = _Field(*(_noise(rng, size, sigma) for sigma in (0.7, 1.8, 7.0)))
    light = _backdrop(rng, size, field)
    instances = np.zeros((size, size), np.uint16)
    labels = np.zeros((size, size), np.uint8)
    for number, kind in enumerate(_census(rng, size), 1):
        patch = _place(rng, kind, instances, field)
        if patch is not None:
            window, mask, glow = patch
            light[window][mask] += glow[mask] - 0.6 * light[window][mask]
            instances[window][mask] = number
            labels[window][mask] = kind
    return Scene(image=_camera(rng, light), labels=labels, instances=instances)


def _noise(rng: np.random.Generator, size: int, sigma: float) -> np.ndarray:
    field = gaussian_filter(rng.standard_normal((size, size)), sigma, mode="wrap")
    return np.asarray(field / field.std())


def _census(rng: np.random.Generator, size: int) -> list[int]:
    """Return the kinds of the cells to place, long ones first; their numbers grow with the area."""
    area = (size / 192) ** 2
    spindles, rounds = rng.poisson((5.5 * area, 12 * area)) + 1
    mitotic = rng.binomial(3, 0.55, max(1, round(area))).sum()
    return [SPINDLE] * int(spindles) + [ROUND] * int(rounds) + [MITOTIC] * int(mitotic)


def _backdrop(rng: np.random.Generator, size: int, field: _Field) -> np.ndarray:
    """Draw haze, cells that are out of focus, and specks of dust."""
    blobs = np.zeros((size, size))
    count = rng.poisson(5 * (size / 192) ** 2)
    blobs[tuple(rng.integers(0, size, (2, count)))] = rng.uniform(60, 220, count)
    haze = gaussian_filter(blobs, rng.uniform(9, 14), mode="constant")
    specks = np.zeros((size, size))
    dust = rng.poisson(6 * (size / 192) ** 2)
    specks[tuple(rng.integers(0, size, (2, dust)))] = rng.uniform(0.3, 2.5, dust)
    specks = gaussian_filter(specks, 0.9, mode="constant")
    return np.asarray(0.085 + 0.010 * field.coarse + 0.006 * field.middle + 0.9 * haze + specks)


def _place(rng: np.random.Generator, kind: int, instances: np.ndarray, field: _Field) -> _Patch | None:
    """Place a cell where it is visible and buries no other; None if the field is full."""
    size = len(instances)
    draw, reach = _KINDS[kind]
    clumps = rng.random() < _CLUMPING and instances.any()
    for _ in range(_TRIES):
        centre = _beside(rng, instances, reach) if clumps else rng.uniform(-2, size + 2, 2)
        window = tuple(slice(max(0, int(c) - reach), min(size, int(c) + reach + 1)) for c in centre)
        rows, columns = np.mgrid[window]
        angle = rng.uniform(0, 2 * np.pi)
        dy, dx = rows - centre[0], columns - centre[1]
        along, across = dy * np.sin(angle) + dx * np.cos(angle), dy * np.cos(angle) - dx * np.sin(angle)
        mask, light = draw(rng, along, across, field, (window[0], window[1]))
        if mask.sum() >= 30 and (instances[window][mask] > 0).mean() <= _OVERLAP:
            return (window[0], window[1]), mask, light
    return None


def _beside(rng: np.random.Generator, instances: np.ndarray, reach: int) -> np.ndarray:
    """Return a centre close to an existing cell."""
    pixels = np.argwhere(instances)
    start = pixels[rng.integers(len(pixels))]
    turn, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 1.6) * min(reach, 22)
    return np.asarray(np.clip(start + distance * np.array([np.sin(turn), np.cos(turn)]), 0, len(instances) - 1))


def _outline(rng: np.random.Generator, along: np.ndarray, across: np.ndarray, wobble: float) -> np.ndarray:
    """Return the radius of a wobbly circle, around 1, in each pixel's direction."""
    turn = np.arctan2(across, along)
    shape = np.ones_like(turn)
    for order in (2, 3, 4, 5):
        shape += wobble * (2 / order) ** 1.7 * rng.standard_normal() * np.cos(order * turn + rng.uniform(0, 2 * np.pi))
    return np.asarray(shape)


def _draw_round(
    rng: np.random.Generator, along: np.ndarray, across: np.ndarray, field: _Field, window: tuple[slice, slice]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a dome of cytoplasm with a bright, mottled nucleus and dark nucleoli."""
    radius = rng.uniform(9.5, 14.5)
    depth = np.hypot(along, across) / (radius * _outline(rng, along, across, 0.075))
    dome = np.sqrt(np.clip(1 - depth**2, 0, 1))
    body = rng.uniform(0.20, 0.34) * (0.55 + 0.45 * dome) * (1 + 0.10 * field.middle[window])
    shift = rng.uniform(-0.22, 0.22, 2) * radius
    nucleus = np.hypot((along - shift[0]) / rng.uniform(0.50, 0.60), (across - shift[1]) / rng.uniform(0.42, 0.52))
    inside = _soft(1 - nucleus / radius, 0.10)
    chromatin = rng.uniform(0.26, 0.42) * (1 + 0.22 * field.middle[window]) - 0.16 * (field.middle[window] < -1.3)
    return depth < 1, body + inside * chromatin


def _draw_spindle(
    rng: np.random.Generator, along: np.ndarray, across: np.ndarray, field: _Field, window: tuple[slice, slice]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a bent, tapering body with fibres along it, granules, and a faint oval nucleus."""
    half, width = rng.uniform(24, 38), rng.uniform(5.0, 7.5)
    place = along / half
    lean = 1 + rng.uniform(-0.45, 0.45) * place
    across = across - rng.uniform(-7, 7) * place**2 - 0.8 * field.coarse[window]
    taper = np.clip(1 - place**2, 0, 1) ** rng.uniform(0.8, 1.4) * lean + 0.14
    depth = np.abs(across) / np.maximum(width * taper, 1e-6)
    fibres = np.sin(across * rng.uniform(1.5, 2.1) + 1.2 * field.coarse[window] + rng.uniform(0, 6))
    body = rng.uniform(0.17, 0.30) * (0.65 + 0.35 * np.sqrt(np.clip(1 - depth**2, 0, 1)))
    body = body * (1 + 0.16 * fibres + 0.16 * field.fine[window]) + 0.10 * (field.middle[window] > 1.6)
    nucleus = np.hypot(along / (0.26 * half), across / (0.62 * width))
    return (depth < 1) & (np.abs(place) < 1), body + 0.09 * _soft(1 - nucleus, 0.15)


def _draw_mitotic(
    rng: np.random.Generator, along: np.ndarray, across: np.ndarray, field: _Field, window: tuple[slice, slice]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a rounded cell without stain except for one bright plate, or two that separate."""
    radius = rng.uniform(7.0, 9.0)
    depth = np.hypot(along, across) / (radius * _outline(rng, along, across, 0.03))
    apart, bend = rng.choice((0.0, 0.34)), rng.uniform(-0.35, 0.35)
    v, u = along / radius, across / radius - bend * (along / radius) ** 2
    bars = [(v / 0.62) ** 4 + ((u - side * apart) / 0.17) ** 2 for side in (-1, 1)]
    plate = _soft(1.3 - np.minimum(*bars) + 0.25 * field.middle[window], 0.8)
    body = (
        rng.uniform(0.17, 0.24) * (0.7 + 0.3 * np.sqrt(np.clip(1 - depth**2, 0, 1))) * (1 + 0.08 * field.fine[window])
    )
    return depth < 1, body + rng.uniform(0.45, 0.75) * plate


def _soft(inside: np.ndarray, width: float) -> np.ndarray:
    """Return 0 outside, 1 inside, and a smooth step of `width` in between."""
    step = np.clip(inside / width, 0, 1)
    return np.asarray(step * step * (3 - 2 * step))


_KINDS: dict[int, tuple[_Draw, int]] = {
    ROUND: (_draw_round, 22),
    SPINDLE: (_draw_spindle, 42),
    MITOTIC: (_draw_mitotic, 12),
}


def _camera(rng: np.random.Generator, light: np.ndarray) -> np.ndarray:
    """Apply optics, an uneven lamp, shot noise and read noise, and quantise to 8 bits."""
    size = len(light)
    seen = gaussian_filter(light, rng.uniform(0.85, 1.25), mode="reflect")
    rows, columns = np.mgrid[:size, :size] / size - rng.uniform(0.3, 0.7, 2)[:, None, None]
    slope = rng.uniform(-0.25, 0.25, 2)
    lamp = (1 - rng.uniform(0.25, 0.6) * (rows**2 + columns**2)) * (1 + slope[0] * rows + slope[1] * columns)
    photons = rng.poisson(np.clip(seen * lamp, 0.01, None) * rng.uniform(160, 320))
    grey = photons * (rng.uniform(200, 250) / np.percentile(photons, 99.7)) + rng.normal(0, 2.5, light.shape) + 6
    return np.asarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
