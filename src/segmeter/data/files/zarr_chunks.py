"""Chunk files of a Zarr array, bounded by what its metadata declares before zarr unpacks one of them."""

import bz2
import itertools
import lzma
import math
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from segmeter.checks import expected
from segmeter.data.files.sniff import show
from segmeter.errors import DataError

_FEW_CHUNKS = 4096  # are read whatever their size
_MEAN_CHUNK = (
    4096  # pixels of a chunk in the largest array: zarr takes 0.2 ms and 2 KB for each chunk, even an absent one
)
_SPARE = 1024  # bytes of headers and of padding that a packer adds
_PIECE = 1 << 20  # bytes unpacked at a time, to be counted
_SLICE = 1 << 16  # bytes given to zlib at a time: what it has not taken yet is copied
_LZMA = 1 << 26  # bytes that its dictionary may take
_CHECKSUMS = {"crc32c": slice(None, -4), "crc32": slice(4, None)}  # what they leave of the bytes that they protect
_PLAIN = {"bytes", "transpose", "shuffle", "delta", "packbits", "fixedscaleoffset"}  # do not unpack
_WIDEN = {"delta", "fixedscaleoffset"}  # may store another dtype than the array's


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """How an array is cut: `chunk` is packed at once by `packers`; `shard` is what shares a file, or None."""

    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    packers: tuple[str, ...]
    bytes_per_pixel: int
    index: tuple[str, int]  # "start" or "end", and the bytes of its checksum

    @property
    def unpacked(self) -> int:
        """The most bytes of a chunk."""
        return math.prod(self.chunk) * self.bytes_per_pixel + _SPARE

    @property
    def packed(self) -> int:
        """The most bytes of a chunk in its file: packing what can't be packed adds a little."""
        return self.unpacked * 5 // 4 + _SPARE


def check_chunks(
    path: Path, array: Any, note: dict[str, Any], *, folder: Path, max_pixels: int, large: bool = False
) -> None:
    """Refuse chunks that are too many, too large, or that unpack to more than their pixels.

    Parameters
    ----------
    path
        Named in messages.
    array
        The opened zarr array.
    note
        Its metadata as stored, of Zarr 2 or 3, its codecs known to be ours.
    folder
        Where its chunks lie.
    max_pixels
        The most pixels of a map; it bounds a chunk, and with it how many there are.
    large
        Whether the map is read by rows, so that only its chunks are bounded.

    Raises
    ------
    DataError
        With the first chunk that breaks a bound.
    """
    layout, shape = _layout(path, note, array.dtype.itemsize), tuple(note["shape"])
    file_shape = layout.shard or layout.chunk
    largest = max(math.prod(file_shape), math.prod(layout.chunk))
    if largest > max_pixels:
        raise DataError(expected(show(path), "chunks", f"at most {max_pixels} pixels", _size(file_shape)))
    files = [range(math.ceil(length / step)) for length, step in zip(shape, file_shape, strict=True)]
    inside = math.prod(math.ceil(a / b) for a, b in zip(file_shape, layout.chunk, strict=True))
    pixels = max(max_pixels, math.prod(shape)) if large else max_pixels
    count, most = math.prod(map(len, files)) * inside, max(_FEW_CHUNKS, pixels // _MEAN_CHUNK)
    if count > most:
        found, remedy = f"{count} of {_size(layout.chunk)} pixels", "Save it again in larger chunks."
        raise DataError(expected(show(path), "chunks", f"to be at most {most}", found, remedy))
    for place in itertools.product(*files):
        _check_file(path, folder / array.metadata.encode_chunk_key(place), layout, inside)


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _layout(path: Path, note: dict[str, Any], itemsize: int) -> _Layout:
    if "chunks" in note:
        codecs = [codec for codec in (*(note.get("filters") or ()), note.get("compressor")) if codec]
        return _packing(path, codecs, tuple(note["chunks"]), None, itemsize, ("end", 0))
    grid, codecs = note["chunk_grid"], note["codecs"]
    if grid["name"] != "regular":
        raise DataError(expected(show(path), "chunks", "to be a regular grid", grid["name"]))
    chunk, shards = tuple(grid["configuration"]["chunk_shape"]), [c for c in codecs if c["name"] == "sharding_indexed"]
    if not shards:
        return _packing(path, codecs, chunk, None, itemsize, ("end", 0))
    inner, index = shards[0]["configuration"], shards[0]["configuration"].get("index_codecs", [])
    names = [codec["name"] for codec in index]
    nested = any(codec["name"] == "sharding_indexed" for codec in inner["codecs"])
    if codecs != shards or nested or names not in (["bytes"], ["bytes", "crc32c"]):
        rule = "to hold plain chunks and an index that is not packed"
        raise DataError(expected(show(path), "shards", rule, "shards in shards, or packed ones", "Save it without."))
    ends = (inner.get("index_location", "end"), 4 * (len(names) - 1))
    return _packing(path, inner["codecs"], tuple(inner["chunk_shape"]), chunk, itemsize, ends)


def _packing(
    path: Path,
    codecs: Sequence[dict[str, Any]],
    chunk: tuple[int, ...],
    shard: tuple[int, ...] | None,
    itemsize: int,
    index: tuple[str, int],
) -> _Layout:
    names = [codec_name(codec) for codec in codecs]
    packers = tuple(name for name in names if name not in _PLAIN)
    if sum(name not in _CHECKSUMS for name in packers) > 1:
        raise DataError(expected(show(path), "codecs", "to pack once", " and ".join(packers), "Save it with one."))
    if any(codec.get("format", 1) != 1 for codec in codecs if codec_name(codec) == "lzma"):
        raise DataError(
            expected(show(path), "codecs", "to pack by lzma in its .xz form", "another", "Save it as such.")
        )
    width = 8 if _WIDEN & set(names) else itemsize
    return _Layout(chunk=chunk, shard=shard, packers=packers, bytes_per_pixel=width, index=index)


def codec_name(codec: dict[str, Any]) -> str:
    """The name of a codec of Zarr 2 or 3."""
    return str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")


def _check_file(path: Path, file: Path, layout: _Layout, inside: int) -> None:
    try:
        state = file.stat()
    except FileNotFoundError:
        return  # an absent chunk is all fill value, which zarr does not write
    if not stat.S_ISREG(state.st_mode):
        raise DataError(expected(show(file), "chunk", "to be a regular file", "a folder, FIFO, socket or device"))
    index = 16 * inside + layout.index[1] if layout.shard else 0
    most = layout.packed * inside + index
    if state.st_size > most:
        found, remedy = f"{state.st_size}", f"Its {_size(layout.shard or layout.chunk)} pixels need less."
        raise DataError(expected(show(file), "chunk", f"of at most {most} bytes", found, remedy))
    with file.open("rb") as opened:
        spans = _spans(opened, layout, inside, state.st_size) if layout.shard else [(0, state.st_size)]
        for start, length in spans:
            opened.seek(start)
            if length > layout.packed or _unpacks_to(opened.read(length), layout) > layout.unpacked:
                rule = f"to unpack to at most {layout.unpacked} bytes, for {_size(layout.chunk)} pixels"
                raise DataError(expected(show(file), "chunk", rule, "more", "Save it again."))


def _spans(file: IO[bytes], layout: _Layout, inside: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the chunks of a shard lie, by its index."""
    place, checksum = layout.index
    file.seek(0 if place == "start" else max(0, size - 16 * inside - checksum))
    table = np.frombuffer(file.read(16 * inside), "<u8").reshape(inside, 2)
    present = table[table[:, 1] != np.iinfo(np.uint64).max]
    yield from ((int(start), int(length)) for start, length in present)


def _unpacks_to(content: bytes, layout: _Layout) -> int:
    """Bytes that a chunk unpacks to, counted no further than the limit."""
    for name in reversed(layout.packers):
        if name not in _CHECKSUMS:
            return _unpacked_bytes(name, content, layout.unpacked)
        content = content[_CHECKSUMS[name]]
    return len(content)


def _unpacked_bytes(name: str, content: bytes, limit: int) -> int:
    if name == "blosc":  # this and lz4 hold the number in a header, which their decoders trust
        if int.from_bytes(content[12:16], "little") != len(content):
            raise ValueError("a Blosc chunk of another length than its header says")  # of which it reads what is beyond
        return int.from_bytes(content[4:8], "little")
    if name == "lz4":
        return int.from_bytes(content[:4], "little")
    if name == "zstd":
        return _zstd_bytes(content, limit)
    if name in ("gzip", "zlib"):
        return _count_deflated(content, limit)
    return _count(
        bz2.BZ2Decompressor() if name == "bz2" else lzma.LZMADecompressor(memlimit=limit + _LZMA), content, limit
    )


def _count_deflated(content: bytes, limit: int) -> int:
    total, reader = 0, zlib.decompressobj(wbits=47)
    for start in range(0, len(content), _SLICE):
        piece = content[start : start + _SLICE]
        while piece and total <= limit:
            total += len(reader.decompress(piece, _PIECE))
            piece = reader.unconsumed_tail
            _check_end(reader.unused_data)
    return total


def _count(reader: bz2.BZ2Decompressor | lzma.LZMADecompressor, content: bytes, limit: int) -> int:
    total = len(reader.decompress(content, _PIECE))
    while not reader.eof and not reader.needs_input and total <= limit:
        total += len(reader.decompress(b"", _PIECE))
    _check_end(reader.unused_data if reader.eof else b"")
    return total


def _check_end(rest: bytes) -> None:
    """Refuse a second stream behind the first: decoders unpack it too, and no tool writes chunks like this."""
    if rest:
        raise ValueError("bytes after the end of a packed chunk")


def _zstd_bytes(content: bytes, limit: int) -> int:
    """By the frame's header (RFC 8878, 3.1.1.1), or by unpacking where it leaves the number out."""
    single, flag = content[4] >> 5 & 1, content[4] >> 6
    if not single and not flag:
        import imagecodecs

        try:
            return len(imagecodecs.zstd_decode(content, out=limit))
        except imagecodecs.ZstdError:
            return limit + 1
    start = 6 - single + (0, 1, 2, 4)[content[4] & 3]
    return int.from_bytes(content[start : start + (1 << flag)], "little") + (256 if flag == 1 else 0)
