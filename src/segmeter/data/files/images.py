"""file -> array: every pixel as it was stored, or a refusal that names the file."""

import hashlib
import io
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tifffile

from segmeter.checks import expected
from segmeter.data.files.header import (
    MAX_PIXELS,
    Header,
    check_size,
    exif_orientation,
    open_picture,
    open_tiff,
    parse_header,
    pick_page,
)
from segmeter.data.files.npy import read_npy, read_npy_header
from segmeter.data.files.png import PngLayout, decode_samples, read_layout
from segmeter.data.files.sniff import damaged, name_format, open_again, open_handle, show
from segmeter.errors import DataError

Orientation = Literal["refuse", "ignore", "apply"]
# Pixels of a mask; loading the compiled reader takes as long as Pillow needs for 1000 smaller ones
LEAST_COMPILED = 1 << 16
IMAGE_DTYPES = ("uint8", "uint16", "float32")
_UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {  # EXIF 2.3, tag 0x0112: where row 0 and column 0 lie
    2: np.fliplr,
    3: lambda pixels: pixels[::-1, ::-1],
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, 3),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: np.rot90,
}
_HEAD_BYTES = 1 << 16  # read at once: all of most masks
_MASK_FORMATS = "Save it as 8 or 16-bit PNG, TIFF or NPY."


@dataclass(frozen=True, eq=False)
class StoredFile:
    """The bytes of a file, read once, so that what is hashed, checked and decoded is the same."""

    path: Path
    content: bytes
    max_pixels: int
    early: Header | PngLayout
    level: int = 0

    @cached_property
    def header(self) -> Header:
        """What the file says about its pixels; parsed here for a PNG of one channel, as most masks need no more."""
        if isinstance(self.early, Header):
            return self.early
        return parse_header(self.path, io.BytesIO(self.content), form="png", max_pixels=self.max_pixels)

    @cached_property
    def sha256(self) -> str:
        """Sha256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def read_file(path: Path, *, max_pixels: int = MAX_PIXELS, level: int = 0) -> StoredFile:
    """Read a file, its header checked before the rest of it is read.

    Parameters
    ----------
    path, max_pixels, level
        As for `read_header`.

    Raises
    ------
    DataError
        It can't be read, is not an image, is damaged, or is larger than `max_pixels`.
    """
    with open_handle(path) as (handle, size):
        head = os.read(handle, _HEAD_BYTES)
        early = _read_early(path, handle, head, max_pixels, level)
        pixels = early.height * early.width * early.channels
        remedy = f"Its {early.height} x {early.width} pixels need less: save it again."
        if not isinstance(early, Header) or early.levels == 1:  # the other levels of a pyramid are not counted
            check_size(path, size, 2 * pixels * max(1, early.bits // 8), remedy)
        parts = [head]
        while len(parts[-1]) and sum(map(len, parts)) < size:
            parts.append(os.read(handle, size))
    return StoredFile(path, head if len(parts) == 1 else b"".join(parts), max_pixels, early, level)


def _read_early(path: Path, handle: int, head: bytes, max_pixels: int, level: int) -> Header | PngLayout:
    """What the file says about its pixels, checked against the limit; the handle stays behind the head."""
    form, layout = name_format(path, head), read_layout(head)
    if layout is not None and layout.height * layout.width <= max_pixels:
        return layout
    with open_again(path, handle) as file:
        header = parse_header(path, file, form=form, max_pixels=max_pixels, level=level)
    os.lseek(handle, len(head), os.SEEK_SET)
    return header


def read_image(
    path: Path,
    *,
    channels: int | None = None,
    max_pixels: int = MAX_PIXELS,
    orientation: Orientation = "refuse",
) -> np.ndarray:
    """Read an image exactly.

    A 1-bit picture becomes 0 and 255, a palette becomes its RGB colours, float16 becomes float32, and an alpha
    channel that is opaque everywhere is dropped; each of these loses nothing. All other conversions are refused.

    Parameters
    ----------
    path
        PNG, JPEG, BMP, TIFF or NPY.
    channels
        How many the image must have; None takes any number.
    max_pixels
        The largest height x width, checked before decoding.
    orientation
        What to do with an EXIF orientation: "refuse" it, "ignore" it, or "apply" it to the pixels.

    Returns
    -------
    (H, W, C) array, uint8, uint16 or finite float32, C-contiguous.

    Raises
    ------
    DataError
        The file is damaged or is not such an image.
    """
    return decode_image(read_file(path, max_pixels=max_pixels), channels=channels, orientation=orientation)


def decode_image(file: StoredFile, *, channels: int | None, orientation: Orientation) -> np.ndarray:
    """Decode the bytes of an image as `read_image` does."""
    path = file.path
    check_image_header(path, file.header, channels=channels, orientation=orientation, level=file.level)
    pixels = _decode_image(file, channels, orientation)
    if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
        bad = int(pixels.size - np.isfinite(pixels).sum())
        raise DataError(
            expected(show(path), "image", "to be finite", f"{bad} NaN or infinite values", "Replace them before.")
        )
    return np.ascontiguousarray(pixels)


def decode_mask(file: StoredFile, *, label_map: Mapping[str, int]) -> np.ndarray:
    """Decode the bytes of a mask.

    A palette picture gives its indices, never its colours; 1-bit gives 0 and 1; 2 and 4-bit give their stored values.

    Parameters
    ----------
    file
        PNG, BMP, TIFF or NPY with integers.
    label_map
        From a stored value ("255") or colour ("128,64,0") to a label; RGB files are read only where it names colours.

    Returns
    -------
    (H, W) stored integers, or (H, W, 3) uint8 colours; `to_labels` makes them labels.

    Raises
    ------
    DataError
        The file is damaged, lossy, not integer, or has other channels.
    """
    is_large = file.early.height * file.early.width >= LEAST_COMPILED
    samples = decode_samples(file.content, max_pixels=file.max_pixels) if is_large else None
    if samples is not None:  # such a file has one channel, is not lossy, and says nothing about an orientation
        return samples
    check_mask_header(file.path, file.header, label_map=label_map)
    return _decode_mask(file)


def check_image_header(
    path: Path, header: Header, *, channels: int | None, orientation: Orientation, level: int = 0
) -> None:
    """Refuse, from its header, a file that can't be such an image."""
    name = show(path)
    if level and header.levels == 1:
        remedy = "Set data.level=0, or give files with a pyramid."
        raise DataError(expected(name, "image", f"to have a level {level}", "a picture without a pyramid", remedy))
    if header.kind == "cmyk":
        found = "CMYK (4 inks)"
        raise DataError(
            expected(name, "image", "to be gray or RGB", found, "Convert it to RGB with its colour profile.")
        )
    if header.format == "png" and header.bits == 16 and header.channels > 1:
        remedy = "Save it as TIFF: PNG decoding would cut it to 8 bits."
        raise DataError(expected(name, "image", "to have 8 bits per colour channel", "16-bit colour PNG", remedy))
    if header.format == "tiff" and header.kind == "palette":
        raise DataError(expected(name, "image", "to be gray or RGB", "a palette TIFF", "Save it as RGB."))
    if header.dtype.name not in (*IMAGE_DTYPES, "float16", "bool"):
        remedy = "Save it as one of these; the scale is yours to choose."
        raise DataError(expected(name, "image", f"of dtype {', '.join(IMAGE_DTYPES)}", header.dtype.name, remedy))
    if header.orientation != 1 and orientation == "refuse":
        remedy = (
            "The mask isn't turned by this tag: turn the pixels themselves and clear the tag, "
            "or set data.orientation=apply (masks fit the turned image) or =ignore (they fit the stored one)."
        )
        raise DataError(expected(name, "EXIF orientation", "to be 1 (upright)", header.orientation, remedy))
    if channels is not None and channels not in _possible_channels(header):
        remedy = f"Convert the image, or train with data.in_channels={min(_possible_channels(header))}."
        raise DataError(expected(name, "image", f"to have {channels} channels", _kind(header), remedy))


def check_mask_header(path: Path, header: Header, *, label_map: Mapping[str, int]) -> None:
    """Refuse, from its header, a file that can't be a mask."""
    name = show(path)
    if header.lossy:
        found = f"a lossy {header.format.upper()} file"
        raise DataError(
            expected(name, "mask", "to be stored exactly", found, f"Its values are blurred. {_MASK_FORMATS}")
        )
    if header.dtype.kind not in "uib":
        found = f"dtype {header.dtype.name}"
        raise DataError(expected(name, "mask", "to hold integers", found, f"Decide on labels first. {_MASK_FORMATS}"))
    if header.orientation != 1:
        remedy = "Turn the pixels themselves and clear the tag."
        raise DataError(expected(name, "EXIF orientation", "to be 1 (upright)", header.orientation, remedy))
    has_colours = any("," in key for key in label_map)
    if header.channels == 1 or (header.kind == "rgb" and header.bits == 8 and has_colours):
        return
    remedy = "Save the labels as one channel."
    if header.kind == "rgb":
        remedy = 'Name the colours: data.label_map={"0,0,0": 0, "255,0,0": 1}, or save the labels as one channel.'
    raise DataError(expected(name, "mask", "to have one channel", _kind(header), remedy))


def _kind(header: Header) -> str:
    return f"{header.kind} with {header.channels} channel{'s' if header.channels > 1 else ''}"


def _possible_channels(header: Header) -> set[int]:
    """The channel counts that the file can give without loss (alpha only if it turns out to be opaque)."""
    exact = {"palette": {3}, "gray+alpha": {1, 2}, "rgba": {3, 4}}
    return exact.get(header.kind, {header.channels})


def _decode_image(file: StoredFile, channels: int | None, orientation: Orientation) -> np.ndarray:
    pixels = _decode(file, channels)
    if orientation == "apply":
        pixels = _UPRIGHT.get(file.header.orientation, np.asarray)(pixels)
    return as_image(pixels)


def as_image(pixels: np.ndarray) -> np.ndarray:
    """Decoded pixels (H, W) or (H, W, C) as (H, W, C) of a dtype that images have; nothing is lost."""
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype == np.float16:
        pixels = pixels.astype(np.float32)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _decode_mask(file: StoredFile) -> np.ndarray:
    """The stored samples; Pillow stretches 2 and 4-bit gray to 0..255, which is undone exactly."""
    pixels, header = _decode(file, channels=None, raw=True), file.header
    if header.kind == "gray" and header.format == "png" and header.bits in (2, 4):
        pixels = pixels // np.uint8(85 if header.bits == 2 else 17)
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8)
    return pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels


def _decode(file: StoredFile, channels: int | None, *, raw: bool = False) -> np.ndarray:
    path, content, header = file.path, file.content, file.header
    try:
        if header.format == "npy":
            stream = io.BytesIO(content)
            return read_npy(stream, *read_npy_header(path, stream))
        if header.format == "tiff":
            return _decode_tiff(file)
        return _decode_picture(path, content, header, channels, raw=raw)
    except DataError:
        raise
    except Exception as error:  # third-party decoders raise many types on hostile bytes
        raise damaged(path, error) from error


def _decode_tiff(file: StoredFile) -> np.ndarray:
    header = file.header
    with open_tiff(io.BytesIO(file.content)) as tiff:
        page, _ = pick_page(file.path, tiff, file.level)
        pixels = np.asarray(page.asarray())
        by_plane = header.channels > 1 and page.planarconfig == tifffile.PLANARCONFIG.SEPARATE
    if by_plane:
        pixels = np.moveaxis(pixels, 0, -1)
    return pixels.astype(header.dtype, copy=False).reshape(_shape(header))


def _shape(header: Header) -> tuple[int, ...]:
    plane = (header.height, header.width)
    return plane if header.channels == 1 else (*plane, header.channels)


def _decode_picture(path: Path, content: bytes, header: Header, channels: int | None, *, raw: bool) -> np.ndarray:
    if header.format == "png":
        _check_chunks(content)
    with open_picture(header.format, io.BytesIO(content)) as picture:
        picture.load()
        if exif_orientation(picture) != header.orientation:
            found = f"{exif_orientation(picture)}, after the pixels"
            remedy = "Turn the pixels themselves and clear the tag."
            raise DataError(expected(show(path), "EXIF orientation", "to stand before the pixels", found, remedy))
        if not raw:
            picture = _without_alpha(path, picture, header, channels)
        return np.asarray(picture)


def _without_alpha(path: Path, picture: Any, header: Header, channels: int | None) -> Any:
    """Drop an alpha channel that is opaque everywhere, and turn palette indices into their colours."""
    if channels == header.channels and header.kind in ("rgba", "gray+alpha"):
        return picture
    plain = "L" if header.kind in ("gray", "gray+alpha") else "RGB"
    if header.kind in ("rgba", "gray+alpha") or "transparency" in picture.info:
        picture = picture.convert("LA" if plain == "L" else "RGBA")
        if picture.getchannel("A").getextrema() != (255, 255):
            remedy = "Flatten it onto the background you mean, or save it without alpha."
            raise DataError(expected(show(path), "image", "to be opaque", "transparent pixels", remedy))
        return picture.convert(plain)
    return picture.convert(plain) if header.kind == "palette" else picture


def _check_chunks(content: bytes) -> None:
    """Check every PNG chunk's CRC, which Pillow skips over where pixels are concerned."""
    at = 8
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 8 + length
        if end + 4 > len(content):
            break
        if zlib.crc32(memoryview(content)[at + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
            raise ValueError(f"checksum of the chunk at byte {at} does not fit")
        if content[at + 4 : at + 8] == b"IEND":
            return
        at = end + 4
    raise ValueError("the file ends before its IEND chunk")
