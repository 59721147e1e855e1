"""Reads PNG, JPEG and BMP files with Pillow, and large plain label PNGs with the compiled reader of `png`."""

import hashlib
import io
import os
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin

from segmeter.data.files.array import FileArray, Header, Kind, Opening, check_pixel_count
from segmeter.data.files.png import decode_samples, read_layout, split_chunks
from segmeter.data.files.sniff import HEAD_BYTES, check_size, damage_named, file_error

# Loading the compiled reader takes longer than Pillow needs for so many pixels. Opening a mask takes as long as LEAST.
PLAIN_PIXELS, LEAST = 20_000_000, 1 << 14
_by_pillow = 0  # pixels so far; threads may lose some of each other's
# The plug-ins themselves, so that only these formats are parsed and our limit replaces Pillow's global one.
_PLUGINS: dict[str, Any] = {
    "png": PngImagePlugin.PngImageFile,
    "jpeg": JpegImagePlugin.JpegImageFile,
    "bmp": BmpImagePlugin.BmpImageFile,
}
_MODES: dict[str, tuple[Kind, int]] = {
    "1": ("gray", 1),
    "L": ("gray", 1),
    "I;16": ("gray", 1),
    "LA": ("gray+alpha", 2),
    "P": ("palette", 1),
    "RGB": ("rgb", 3),
    "RGBA": ("rgba", 4),
    "CMYK": ("cmyk", 4),
}
_ORIENTATION = 0x0112


class PictureArray(FileArray):
    """A PNG, JPEG or BMP file. Its bytes are read once, so hash, checks and pixels belong together."""

    _file: BufferedReader

    def __init__(self, path: Path, file: BufferedReader, form: str, opening: Opening) -> None:
        super().__init__(path, file)
        self._form, self._opening = form, opening
        self._head = file.peek()
        if len(self._head) < HEAD_BYTES:  # it ends there
            self.content = self._head
        layout = read_layout(self._head)
        if layout is None:
            header = self.header
            self._size, self._bytes = (header.height, header.width), header.channels * max(1, header.bits // 8)
        else:  # a PNG of one channel, like most masks
            self._size, self._bytes = (layout.height, layout.width), max(1, layout.bits // 8)
            check_pixel_count(path, self._size, opening)
        self._layout = layout

    @property
    def is_palette(self) -> bool:
        return self.header.kind == "palette" if self._layout is None else self._layout.is_palette

    @cached_property
    def header(self) -> Header:  # type: ignore[override]
        """The size and kind of the pixels, by Pillow."""
        with damage_named(self.path), self._open() as picture:
            if getattr(picture, "is_animated", False):
                found, remedy = f"{picture.n_frames} frames", "Save one frame per file."
                raise file_error(self.path, "file", "to hold one picture", found, remedy)
            if picture.mode not in _MODES:
                rule = f"to be one of {', '.join(_MODES)}"
                raise file_error(self.path, "mode", rule, picture.mode, "Save it as PNG.")
            kind, channels = _MODES[picture.mode]
            bits = self._head[24] if self._form == "png" else 8
            header = Header(
                format=self._form,
                height=picture.height,
                width=picture.width,
                channels=channels,
                kind=kind,
                bits=bits,
                dtype=np.dtype(np.uint16 if bits == 16 else np.uint8),
                lossy=self._form == "jpeg",
                orientation=_orientation(picture),
            )
        check_pixel_count(self.path, (header.height, header.width), self._opening)
        return header

    @cached_property
    def content(self) -> bytes:
        """The whole file; refused if it is far larger than its pixels."""
        height, width = self._size
        size = os.fstat(self._file.fileno()).st_size
        remedy = f"Its {height} x {width} pixels need less: save it again."
        check_size(self.path, size, 2 * height * width * self._bytes, remedy)
        self._file.seek(0)
        return self._file.read()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def samples(self) -> NDArray[Any] | None:
        """Return the stored samples of a plain label PNG, several times faster than `read`; None if it is another file.

        It is also None for the first ones, see `PLAIN_PIXELS`.
        """
        global _by_pillow
        pixels = max(LEAST, self._size[0] * self._size[1])
        if self._form != "png" or _by_pillow + pixels <= PLAIN_PIXELS:
            _by_pillow += pixels
            return None
        return decode_samples(self.content, max_pixels=self._opening.max_pixels)

    def _decode(self) -> NDArray[Any]:
        """Return the stored samples; Pillow stretches 2 and 4-bit gray to 0..255, which is undone exactly."""
        header, pixels = self.header, np.asarray(self._loaded())
        if header.kind == "gray" and header.format == "png" and header.bits in (2, 4):
            pixels = pixels // np.uint8(85 if header.bits == 2 else 17)
        return pixels

    def read_colours(self, channels: int | None) -> NDArray[Any]:
        """Drop an alpha channel that is opaque everywhere, and replace palette indices by their colours."""
        with damage_named(self.path):
            picture, header = self._loaded(), self.header
            has_alpha = header.kind in ("rgba", "gray+alpha")
            if channels == header.channels and has_alpha:
                return np.asarray(picture)
            plain = "L" if header.kind in ("gray", "gray+alpha") else "RGB"
            if has_alpha or "transparency" in picture.info:
                picture = picture.convert("LA" if plain == "L" else "RGBA")
                if picture.getchannel("A").getextrema() != (255, 255):
                    remedy = "Flatten it onto the background you mean, or save it without alpha."
                    raise file_error(self.path, "image", "to be opaque", "transparent pixels", remedy)
                return np.asarray(picture.convert(plain))
            return np.asarray(picture.convert(plain) if header.kind == "palette" else picture)

    def _loaded(self) -> Any:
        """Return the decoded picture after a check of every byte."""
        if self._form == "png":
            for _ in split_chunks(self.content):  # Pillow skips the checksums of the pixels
                pass
        with self._open() as picture:
            picture.load()
            if _orientation(picture) != self.header.orientation:
                found, remedy = (
                    f"{_orientation(picture)}, after the pixels",
                    "Turn the pixels themselves and clear the tag.",
                )
                raise file_error(self.path, "EXIF orientation", "to stand before the pixels", found, remedy)
            return picture

    def _open(self) -> Any:
        """Open it with the plug-in of its format, from memory if its bytes have been read."""
        held = self.__dict__.get("content")
        self._file.seek(0)
        return _PLUGINS[self._form](self._file if held is None else io.BytesIO(held))


def _orientation(picture: Any) -> int:
    """Return the EXIF orientation as far as `picture` was read; a PNG's own getexif would decode all of it."""
    return int(Image.Image.getexif(picture).get(_ORIENTATION, 1))
