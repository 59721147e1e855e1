"""Files that are wrong in one way each, and the small folders to put them in."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.config import FolderConfig
from segmeter.data.masks.reading import read_target
from segmeter.data.sample import Reading

BINARY = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (255, 0, 0)))
THREE = ClassSpec(
    task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)), ignore_index=255
)


def png_bytes(rows: bytes, *, height: int, width: int, bits: int = 8, colour: int = 0, extra: bytes = b"") -> bytes:
    """A PNG from its raw rows (each with its filter byte), for depths that Pillow doesn't write."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def noise(height: int = 12, width: int = 10, channels: int | None = 3, *, seed: int = 0) -> np.ndarray:
    shape = (height, width) if channels is None else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(pixels: np.ndarray | Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer, picture = io.BytesIO(), pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def orientation(tag: int) -> bytes:
    """EXIF data that say how a picture is turned."""
    exif = Image.Exif()
    exif[0x0112] = tag
    return exif.tobytes()


def put(path: Path, content: bytes | str | np.ndarray | dict | list) -> Path:
    """Write bytes, text, JSON, or an array in the format of the suffix, with the folders above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray) and path.suffix == ".npy":
        np.save(path, content)
    elif isinstance(content, np.ndarray):
        path.write_bytes(encoded(content, {".jpg": "JPEG", ".bmp": "BMP", ".tif": "TIFF"}.get(path.suffix, "PNG")))
    else:
        text = json.dumps(content) if isinstance(content, dict | list) else content
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def make_folder(root: Path, names: tuple[str, ...] = ("a", "b", "c"), *, height: int = 12, width: int = 10) -> Path:
    """A good data set: RGB images, and masks with the labels 0 and 1."""
    for seed, name in enumerate(names):
        put(root / "images" / f"{name}.png", noise(height, width, seed=seed))
        put(root / "masks" / f"{name}.png", noise(height, width, None, seed=seed + 100) % 2)
    return root


def folder(root: Path, **fields: object) -> FolderConfig:
    options: dict[str, object] = {"task": "binary", "classes": ("background", "cell"), "split": "all"}
    return FolderConfig(root=str(root), **(options | fields))  # type: ignore[arg-type]


def listed(root: Path, **lists: str) -> FolderConfig:
    """A good data set with a list of names, separated by blanks, for each split."""
    make_folder(root)
    for split, names in lists.items():
        put(root / f"{split}.txt", names.replace(" ", "\n"))
    return folder(root, lists=".")


def read_mask(path: Path, *, spec: ClassSpec, label_map: dict[str, int] | None = None) -> np.ndarray:
    """Read one mask as training and evaluation do."""
    return read_target(path, Reading(spec=spec, label_map=label_map or {}, flat=True, located=False)).labels


def write_zarr(path: Path, array: np.ndarray, axes: str = "", *, zarr_format: int = 3, **options: object) -> Path:
    """A Zarr array, whose axes may have names of one letter."""
    import zarr

    named = {"dimension_names": list(axes)} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": list(axes)}}
    zarr.create_array(str(path), data=array, zarr_format=zarr_format, **(named if axes else {}), **options)
    return path


def write_multiscales(
    group, *levels: np.ndarray, axes="zyx", units: object = "micrometer", steps=(), of_all=(), version="0.5"
) -> None:
    """Store the levels of a picture as OME-NGFF has them; `steps` are the transformations of each level alone."""
    named = units if isinstance(units, list) else [units] * len(axes)
    spaces = [
        {"name": name, "type": "space"} | ({"unit": unit} if unit else {})
        for name, unit in zip(axes, named, strict=True)
    ]
    for number, level in enumerate(levels):
        group.create_array(str(number), data=level)
    datasets = [{"path": str(number)} | {"coordinateTransformations": own} for number, own in enumerate(steps)]
    entry = {
        "axes": [{"name": "c", "type": "channel"} if each["name"] == "c" else each for each in spaces],
        "datasets": datasets or [{"path": "0"}],
    } | ({"coordinateTransformations": of_all} if of_all else {})
    old = {"multiscales": [{"version": "0.4", **entry}]}
    group.attrs.update(old if version == "0.4" else {"ome": {"version": version, "multiscales": [entry]}})


def write_pyramid(path: Path, *levels: np.ndarray, tile: tuple[int, int] = (16, 16), **options: object) -> Path:
    """A TIFF whose coarser levels are sub-pictures of the first, as OME-TIFF has them; options are of the first."""
    with tifffile.TiffWriter(path) as writer:
        first, *others = levels
        writer.write(first, tile=tile, photometric="rgb", subifds=len(others), **({"metadata": None} | options))
        for level in others:
            writer.write(level, tile=tile, photometric="rgb", subfiletype=1, metadata=None)
    return path


def patch(path: Path, at: int, content: bytes) -> Path:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
    return path
