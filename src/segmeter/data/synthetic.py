"""Draws `data=cells`: synthetic fluorescence microscopy whose labels are exact by construction.

Three kinds of cells lie on a dim, unevenly lit field and touch each other. Some are round with a bright nucleus, others
are long spindles with fibres. The rare mitotic ones are small, and dark around a plate of condensed chromosomes. The
image is light per pixel, blurred by the optics and counted by a noisy camera. The set is drawn once and then read like
any other folder.
"""

import errno
import io
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from segmeter.checks import expected
from segmeter.data.config import SPLITS, CellsConfig, DataConfig, FolderConfig
from segmeter.data.dataset import Dataset
from segmeter.data.files.refusals import show
from segmeter.data.folder import build_folder
from segmeter.errors import DataError
from segmeter.files import fresh_folder, make_folder, sha256_json, write_bytes, write_json
from segmeter.parallel import map_in_threads
from segmeter.progress import track

Array = np.ndarray
Rng = np.random.Generator

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
    shared = {name: getattr(config, name) for name in DataConfig.model_fields if name not in ("name", "root")}
    folder = FolderConfig(**shared, root=str(draw_cells(config)), lists=".")
    return replace(build_folder(folder, split=split), dealt={})


def draw_cells(config: CellsConfig) -> Path:
    """Draw the whole set into a folder named after the settings that decide its pixels, unless it exists.

    The folder appears complete or not at all. If several processes draw at once, the first one's folder stays.

    Returns
    -------
    The folder, with images/, masks/, train.txt, val.txt and test.txt.
    """
    names = ("size", "train_cases", "val_cases", "test_cases", "seed")
    settings = {"drawing": DRAWING, **{name: getattr(config, name) for name in names}}
    folder = Path(config.root).expanduser() / f"cells-{sha256_json(settings)[:10]}"
    if folder.is_dir():
        return folder
    try:
        with fresh_folder(folder) as fresh:
            for kind in ("images", "masks"):
                make_folder(fresh / kind)
            jobs = []
            for number, split in enumerate(SPLITS[:3]):
                cases = [(f"{split}-{k:04d}", (config.seed, number, k)) for k in range(settings[f"{split}_cases"])]
                write_bytes(fresh / f"{split}.txt", "".join(f"{name}\n" for name, _ in cases).encode())
                jobs += cases
            for _ in track(map_in_threads(partial(_draw_case, fresh, config.size), jobs), "drawing cells", len(jobs)):
                pass
            write_json(fresh / "settings.json", settings)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not folder.is_dir():
            tried = f"{error.strerror} at {show(folder.absolute())}"
            raise DataError(expected("data", "root", "to take the drawn cells", tried, "Set data.root.")) from error
    return folder


def _draw_case(folder: Path, size: int, job: tuple[str, tuple[int, int, int]]) -> None:
    """Draw one case; it depends only on the seed, its split and its index."""
    name, seed = job
    scene = draw_scene(np.random.default_rng(seed), size)
    for kind, pixels in (("images", scene.image), ("masks", scene.labels)):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        write_bytes(folder / kind / f"{name}.png", buffer.getvalue())


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One case: `image` (H, W) uint8, `labels` (H, W) uint8, `instances` (H, W) uint16 with 0 as background."""

    image: Array
    labels: Array
    instances: Array


def draw_scene(rng: Rng, size: int) -> Scene:
    """Draw one picture of `size` x `size` pixels; the same generator state gives the same bytes."""
    area = (size / 192) ** 2
    grains = [gaussian_filter(rng.standard_normal((size, size)), sigma, mode="wrap") for sigma in (0.7, 1.8, 7.0)]
    texture = np.stack([grain / grain.std() for grain in grains])  # fine, middle and coarse noise of unit variance
    blobs, specks = np.zeros((2, size, size))  # cells that are out of focus, and dust
    count = rng.poisson(5 * area)
    blobs[tuple(rng.integers(0, size, (2, count)))] = rng.uniform(60, 220, count)
    haze = gaussian_filter(blobs, rng.uniform(9, 14), mode="constant")
    count = rng.poisson(6 * area)
    specks[tuple(rng.integers(0, size, (2, count)))] = rng.uniform(0.3, 2.5, count)
    specks = gaussian_filter(specks, 0.9, mode="constant")
    light = 0.085 + 0.010 * texture[2] + 0.006 * texture[1] + 0.9 * haze + specks
    instances, labels = np.zeros((size, size), np.uint16), np.zeros((size, size), np.uint8)
    spindles, rounds = rng.poisson((5.5 * area, 12 * area)) + 1
    mitotic = rng.binomial(3, 0.55, max(1, round(area))).sum()
    kinds = [SPINDLE] * int(spindles) + [ROUND] * int(rounds) + [MITOTIC] * int(mitotic)  # long ones first
    for number, kind in enumerate(kinds, 1):
        patch = _place(rng, kind, instances, texture)
        if patch is not None:
            window, mask, glow = patch
            light[window][mask] += glow[mask] - 0.6 * light[window][mask]
            instances[window][mask] = number
            labels[window][mask] = kind
    # the camera: optics, an uneven lamp, shot noise, read noise and 8 bits
    seen = gaussian_filter(light, rng.uniform(0.85, 1.25), mode="reflect")
    rows, columns = np.mgrid[:size, :size] / size - rng.uniform(0.3, 0.7, 2)[:, None, None]
    slope = rng.uniform(-0.25, 0.25, 2)
    lamp = (1 - rng.uniform(0.25, 0.6) * (rows**2 + columns**2)) * (1 + slope[0] * rows + slope[1] * columns)
    photons = rng.poisson(np.clip(seen * lamp, 0.01, None) * rng.uniform(160, 320))
    grey = photons * (rng.uniform(200, 250) / np.percentile(photons, 99.7)) + rng.normal(0, 2.5, light.shape) + 6
    image = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
    return Scene(image=image, labels=labels, instances=instances)


def _place(rng: Rng, kind: int, instances: Array, texture: Array) -> tuple[tuple[slice, ...], Array, Array] | None:
    """Place a cell where it is visible and buries no other: its window, the pixels that it covers, and its light there.

    None if the field is full.
    """
    size = len(instances)
    draw, reach = {ROUND: (_draw_round, 22), SPINDLE: (_draw_spindle, 42), MITOTIC: (_draw_mitotic, 12)}[kind]
    others = np.argwhere(instances) if rng.random() < _CLUMPING else np.zeros((0, 2), np.int64)
    for _ in range(_TRIES):
        if len(others):
            start = others[rng.integers(len(others))]
            turn, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 1.6) * min(reach, 22)
            centre = np.clip(start + distance * np.array([np.sin(turn), np.cos(turn)]), 0, size - 1)
        else:
            centre = rng.uniform(-2, size + 2, 2)
        window = tuple(slice(max(0, int(c) - reach), min(size, int(c) + reach + 1)) for c in centre)
        rows, columns = np.mgrid[window]
        angle = rng.uniform(0, 2 * np.pi)
        dy, dx = rows - centre[0], columns - centre[1]
        along, across = dy * np.sin(angle) + dx * np.cos(angle), dy * np.cos(angle) - dx * np.sin(angle)
        mask, light = draw(rng, along, across, texture[:, *window])
        if mask.sum() >= 30 and (instances[window][mask] > 0).mean() <= _OVERLAP:
            return window, mask, light
    return None


def _outline(rng: Rng, along: Array, across: Array, wobble: float) -> Array:
    """Return the radius of a wobbly circle, around 1, in each pixel's direction."""
    turn = np.arctan2(across, along)
    shape = np.ones_like(turn)
    for order in (2, 3, 4, 5):
        shape += wobble * (2 / order) ** 1.7 * rng.standard_normal() * np.cos(order * turn + rng.uniform(0, 2 * np.pi))
    return np.asarray(shape)


def _draw_round(rng: Rng, along: Array, across: Array, texture: Array) -> tuple[Array, Array]:
    """Draw a dome of cytoplasm with a bright, mottled nucleus and dark nucleoli."""
    _, middle, _ = texture
    radius = rng.uniform(9.5, 14.5)
    depth = np.hypot(along, across) / (radius * _outline(rng, along, across, 0.075))
    dome = np.sqrt(np.clip(1 - depth**2, 0, 1))
    body = rng.uniform(0.20, 0.34) * (0.55 + 0.45 * dome) * (1 + 0.10 * middle)
    shift = rng.uniform(-0.22, 0.22, 2) * radius
    nucleus = np.hypot((along - shift[0]) / rng.uniform(0.50, 0.60), (across - shift[1]) / rng.uniform(0.42, 0.52))
    inside = _soft(1 - nucleus / radius, 0.10)
    chromatin = rng.uniform(0.26, 0.42) * (1 + 0.22 * middle) - 0.16 * (middle < -1.3)
    return depth < 1, body + inside * chromatin


def _draw_spindle(rng: Rng, along: Array, across: Array, texture: Array) -> tuple[Array, Array]:
    """Draw a bent, tapering body with fibres along it, granules, and a faint oval nucleus."""
    fine, middle, coarse = texture
    half, width = rng.uniform(24, 38), rng.uniform(5.0, 7.5)
    place = along / half
    lean = 1 + rng.uniform(-0.45, 0.45) * place
    across = across - rng.uniform(-7, 7) * place**2 - 0.8 * coarse
    taper = np.clip(1 - place**2, 0, 1) ** rng.uniform(0.8, 1.4) * lean + 0.14
    depth = np.abs(across) / np.maximum(width * taper, 1e-6)
    fibres = np.sin(across * rng.uniform(1.5, 2.1) + 1.2 * coarse + rng.uniform(0, 6))
    body = rng.uniform(0.17, 0.30) * (0.65 + 0.35 * np.sqrt(np.clip(1 - depth**2, 0, 1)))
    body = body * (1 + 0.16 * fibres + 0.16 * fine) + 0.10 * (middle > 1.6)
    nucleus = np.hypot(along / (0.26 * half), across / (0.62 * width))
    return (depth < 1) & (np.abs(place) < 1), body + 0.09 * _soft(1 - nucleus, 0.15)


def _draw_mitotic(rng: Rng, along: Array, across: Array, texture: Array) -> tuple[Array, Array]:
    """Draw a rounded cell without stain except for one bright plate, or two that separate."""
    fine, middle, _ = texture
    radius = rng.uniform(7.0, 9.0)
    depth = np.hypot(along, across) / (radius * _outline(rng, along, across, 0.03))
    apart, bend = rng.choice((0.0, 0.34)), rng.uniform(-0.35, 0.35)
    v, u = along / radius, across / radius - bend * (along / radius) ** 2
    bars = [(v / 0.62) ** 4 + ((u - side * apart) / 0.17) ** 2 for side in (-1, 1)]
    plate = _soft(1.3 - np.minimum(*bars) + 0.25 * middle, 0.8)
    body = rng.uniform(0.17, 0.24) * (0.7 + 0.3 * np.sqrt(np.clip(1 - depth**2, 0, 1))) * (1 + 0.08 * fine)
    return depth < 1, body + rng.uniform(0.45, 0.75) * plate


def _soft(inside: Array, width: float) -> Array:
    """Return 0 outside, 1 inside, and a smooth step of `width` in between."""
    step = np.clip(inside / width, 0, 1)
    return np.asarray(step * step * (3 - 2 * step))
