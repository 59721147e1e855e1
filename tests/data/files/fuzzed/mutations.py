"""Damages files at random: bytes of any file, and what the parts of its format mean."""

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from tests.data.crafted import chunk

Rng = np.random.Generator
Change = Callable[[bytes, Rng], bytes]
# what makes a size overflow, a loop endless, or a place lie outside
NUMBERS = (-1, -2, 0, 1, 2, 3, 127, 255, 256, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**60)
NUMBERS += (2**63 - 1, 2**63, 2**64 - 1, 99999999999, 10**30)
WORDS = (
    *["nan", "inf", "-inf", "1e308", "-0.5", "1e-320", "x", "None", "True", "(", ")", "LIST"],
    "",
    "\x1b[31m",
    "\u00e9",
)


def of(rng: Rng, things: Any) -> Any:
    return things[int(rng.integers(len(things)))]


def flip(content: bytes, rng: Rng) -> bytes:
    array = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        array[_place(array, rng)] ^= 1 << int(rng.integers(8))
    return bytes(array)


def overwrite(content: bytes, rng: Rng) -> bytes:
    """One number, of any width and order of bytes, becomes an extreme one."""
    width, array, at = of(rng, (1, 2, 4, 8)), bytearray(content), _place(content, rng)
    array[at : at + width] = (of(rng, NUMBERS) % 256**width).to_bytes(width, of(rng, ("little", "big")))
    return bytes(array)


def truncate(content: bytes, rng: Rng) -> bytes:
    return content[: 1 + _place(content, rng)]


def extend(content: bytes, rng: Rng) -> bytes:
    return content + of(rng, (bytes(1), bytes(5000), rng.bytes(1 + int(rng.integers(300))), content))


def double(content: bytes, rng: Rng) -> bytes:
    start, stop = sorted((_place(content, rng), _place(content, rng)))
    return content[:stop] + content[start:]


def cut(content: bytes, rng: Rng) -> bytes:
    start = _place(content, rng)
    return content[:start] + content[start + int(rng.integers(1, 40)) :] or b"x"


def swap(content: bytes, rng: Rng) -> bytes:
    a, b, c = sorted(_place(content, rng) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def _place(content: bytes | bytearray, rng: Rng) -> int:
    """Anywhere, but half of the time near the start, where headers are."""
    return int(rng.integers(min(len(content), of(rng, (400, len(content))))))


BYTES: tuple[Change, ...] = (flip, flip, overwrite, overwrite, truncate, extend, double, cut, swap)


def in_bytes(content: bytes, rng: Rng) -> bytes:
    return of(rng, BYTES)(content, rng)


def in_text(content: bytes, rng: Rng) -> bytes:
    """Lines and words of a header: extreme numbers, fields that are missing, doubled, renamed or of another field."""
    lines = content.split(b"\n")
    at, kind = int(rng.integers(len(lines))), int(rng.integers(7))
    if kind < 3:
        words = lines[at].split(b" ")
        words[-1 if kind else int(rng.integers(len(words)))] = str(of(rng, NUMBERS + WORDS)).encode()
        lines[at] = b" ".join(words)
    elif kind == 3:
        lines.insert(int(rng.integers(len(lines))), lines[at])
    elif kind == 4:
        del lines[at]
    elif kind == 5:
        other = int(rng.integers(len(lines)))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = in_bytes(lines[at] or b" ", rng)
    return b"\n".join(lines)


def in_header(end: bytes, fields: tuple[bytes, ...]) -> Change:
    """A text in front of pixels, whose last line is `end`; `fields` are some that it may have and often has not."""

    def change(content: bytes, rng: Rng) -> bytes:
        head, found, pixels = content.partition(end)
        if int(rng.integers(4)) == 0:
            lines = head.split(b"\n")
            lines.insert(int(rng.integers(1, len(lines))), of(rng, fields) + str(of(rng, NUMBERS)).encode())
            head = b"\n".join(lines)
        else:
            head = in_text(head, rng)
        return head + found + (in_bytes(pixels or b"x", rng) if int(rng.integers(4)) == 0 else pixels)

    return change


def in_json(content: bytes, rng: Rng) -> bytes:
    """One value of a JSON file: extreme, of another kind, missing, doubled, or nested."""
    root = json.loads(content)
    holder, key = _pick(root, rng)
    value, kind = holder[key], int(rng.integers(6))
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, value)
    elif kind == 2:
        holder[key] = [[value]]
    else:
        others = (None, True, [], {}, [value] * 3, str(value), 0.5, float("nan"), float("inf"), *NUMBERS, *WORDS)
        holder[key] = of(rng, others)
    return json.dumps(root).encode()


def _pick(node: Any, rng: Rng) -> tuple[Any, Any]:
    """A list or object somewhere below, and a key of it."""
    while True:
        key = of(rng, list(node) if isinstance(node, dict) else range(len(node)))
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner or int(rng.integers(5)) == 0:
            return node, key
        node = inner


def in_png(content: bytes, rng: Rng) -> bytes:
    """Chunks with sums that fit: a field of the head, the rows before they are packed, or the order of chunks."""
    chunks, at = [], 8
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    where, kind = int(rng.integers(len(chunks))), int(rng.integers(5))
    name, _ = chunks[where]
    if kind == 0:
        chunks.insert(int(rng.integers(len(chunks) + 1)), chunks[where])
    elif kind == 1:
        del chunks[where]
    elif name == b"IDAT" and kind < 4:
        rows = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
        chunks = [each for each in chunks if each[0] != b"IDAT"]
        chunks.insert(-1, (b"IDAT", zlib.compress(in_bytes(rows, rng))))
    else:
        where = 0 if kind < 4 else where
        chunks[where] = (chunks[where][0], in_bytes(chunks[where][1] or b"x", rng))
    return content[:8] + b"".join(chunk(*each) for each in chunks)


def in_tiff(content: bytes, rng: Rng) -> bytes:
    """A field of an entry in the first directory: its tag, type, count or value."""
    order = "<" if content[:2] == b"II" else ">"
    wide = struct.unpack_from(order + "H", content, 2)[0] == 43
    form, start = ("Q", struct.unpack_from(order + "Q", content, 8)[0]) if wide else ("I", 0)
    start = start or struct.unpack_from(order + "I", content, 4)[0]
    (count,) = struct.unpack_from(order + ("Q" if wide else "H"), content, start)
    at = start + (8 + 20 * int(rng.integers(count)) if wide else 2 + 12 * int(rng.integers(count)))
    offset, kind = of(rng, ((0, "H"), (2, "H"), (4, form), (12 if wide else 8, form), (12 if wide else 8, "H")))
    array, most = bytearray(content), 256 ** struct.calcsize(order + kind)
    old = struct.unpack_from(order + kind, content, at + offset)[0]
    value = of(rng, (*NUMBERS, old + 1, old - 1, 2 * old, len(content)))
    struct.pack_into(order + kind, array, at + offset, value % most)
    return bytes(array)


def in_npy(content: bytes, rng: Rng) -> bytes:
    """The text of the head, with its length put right, or the values."""
    (length,) = struct.unpack_from("<H", content, 8)
    head, values = content[10 : 10 + length], content[10 + length :]
    if int(rng.integers(3)):
        old = of(rng, (b"(", b",", b")", b"'", b"|u1", b"<f4", b"False", b"descr", b"shape"))
        new = str(of(rng, (*NUMBERS, *WORDS, "(1,)", "<f8", "|O", "<M8[ns]", "('a', 'u1')"))).encode()
        head = of(rng, (head.replace(old, new, 1), in_text(head, rng)))
    else:
        values = in_bytes(values or b"x", rng)
    return content[:8] + struct.pack("<H", len(head) % 65536) + head + values


def in_npz(content: bytes, rng: Rng) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = archive.namelist()
        inner = of(rng, (in_npy, in_bytes))(archive.read(name), rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", of(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        archive.writestr(of(rng, (name, name, "other.npy", "x", name.upper())), inner)
    return buffer.getvalue()


def in_gzip(content: bytes, rng: Rng) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return in_nifti(content, rng)
    return gzip.compress(in_nifti(gzip.decompress(content), rng), compresslevel=1)


_NIFTI = ((0, "i"), (40, "8h"), (70, "h"), (72, "h"), (76, "8f"), (108, "f"), (112, "2f"), (123, "b"), (252, "2h"))
_NIFTI += ((256, "6f"), (280, "12f"))


def in_nifti(content: bytes, rng: Rng) -> bytes:
    """A number of NIfTI-1's header."""
    array = bytearray(content)
    offset, kind = of(rng, _NIFTI)
    values = list(struct.unpack_from("<" + kind, content, offset))
    with suppress(struct.error, OverflowError):
        values[int(rng.integers(len(values)))] = of(rng, (*NUMBERS, -7, 8, 4096))
        values = [float(each) if "f" in kind else each for each in values]
        struct.pack_into("<" + kind, array, offset, *values)
    return bytes(array)


def in_dicom(content: bytes, rng: Rng) -> bytes:
    """An element, anywhere in the data set: gone, empty, doubled or extreme."""
    import pydicom

    dataset = pydicom.dcmread(io.BytesIO(content))
    for _ in range(20):
        holder = dataset
        while True:
            element = of(rng, list(holder))
            if element.VR != "SQ" or not element.value or int(rng.integers(4)) == 0:
                break
            holder = of(rng, list(element.value))
        try:
            _change_element(holder, element, rng)
            buffer = io.BytesIO()
            dataset.save_as(buffer)
            return buffer.getvalue()
        except Exception:
            dataset = pydicom.dcmread(io.BytesIO(content))
    return in_bytes(content, rng)


def _change_element(holder: Any, element: Any, rng: Rng) -> None:
    kind = int(rng.integers(4))
    if kind == 0:
        del holder[element.tag]
    elif element.VR == "SQ":
        element.value = list(element.value)[: int(rng.integers(2))] * int(rng.integers(3))
    elif element.VR in ("US", "UL", "SS", "SL", "IS", "DS", "FD", "FL"):
        value = of(rng, NUMBERS)
        element.value = [value] * int(rng.integers(1, 4)) if kind == 1 else value
    elif isinstance(element.value, bytes):
        element.value = in_bytes(element.value or b"x", rng)
    else:
        element.value = of(rng, ("", "x", "1.2.840.10008.5.1.4.1.1.66.4", "FRACTIONAL", "MONOCHROME2"))
