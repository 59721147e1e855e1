"""Reads a file with our reader and by code that shares nothing with it, in a reader process, which may crash.

Where the other way is not cheap, its reader gives None.
"""

import gzip
import io
import json
import re
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.files import reader_process
from segmeter.data.images import read_image
from segmeter.data.masks.reading import read_map, read_values
from segmeter.data.sample import Reading
from segmeter.errors import SegmeterError
from tests.data.formats_written import NAMES

MOST_PIXELS = 1 << 20
INSIDE = ("coco", "label-studio", "cvat")  # files of several images, of which x is read
NAMED = (*INSIDE, "geojson", "yolo")  # whose objects have classes; of all others the stored numbers are read
_SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * 3, ignore_index=255)
_READING = Reading(spec=_SPEC, label_map={}, max_pixels=MOST_PIXELS, overlap="smaller_on_top")
_NUMBERS = Reading(spec=_SPEC, label_map={}, max_pixels=MOST_PIXELS, instances=True)


def ours(form: str, path: Path) -> np.ndarray:
    if form == "images":
        return read_image(path, max_pixels=MOST_PIXELS)
    if form in NAMED:
        return read_map(path, _READING, shape=(24, 30)).values
    if form in ("zarr", "ome-zarr", "nifti", "mha", "nrrd", "dicom"):
        return read_values(path, max_pixels=MOST_PIXELS, key="labels/cells" if form == "ome-zarr" else None).values
    return read_map(path, _NUMBERS).values


def measured(form: str, path: Path) -> tuple[dict[str, Any], np.ndarray | None]:
    """How reading a file ended, with its processor time and the memory that it took at its peak, in MB."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
    before, start = _field("VmHWM"), time.process_time()
    values, said, kind = None, "", "read"
    try:
        values = ours(form, path)
    except SegmeterError as error:
        said, kind = str(error), "refused"
    except BaseException as error:
        said, kind = f"{type(error).__name__}: {error}", "fault"
    seconds, peak = time.process_time() - start, _field("VmHWM") - before
    apart = max((_field("VmHWM", each.process.pid) for each in reader_process._idle), default=0.0)
    return {"kind": kind, "said": said, "seconds": seconds, "peak": peak, "apart": apart}, values


def _field(name: str, process: int | str = "self") -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


def compared(form: str, path: Path, values: np.ndarray | None) -> str:
    """Whether the other reader finds the same values; whole floats are read as integers."""
    if values is None or form not in READERS:
        return "not asked"
    try:
        found = READERS[form](path)
    except Exception as error:
        return f"refused {type(error).__name__}"
    if found is None:
        return "not asked"
    if form == "nifti" and values.dtype.kind == "f":  # for which ITK's reader puts 0
        values = np.where(np.isfinite(values), values, 0)
    candidates = found if isinstance(found, list) else [found]
    if any(_same(each, values) for each in candidates):
        return "same"
    return f"differs: {candidates[0].dtype} {candidates[0].shape}, ours {values.dtype} {values.shape}"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = (each.reshape([side for side in each.shape if side != 1]) for each in (one, other))
    if one.shape == other.shape and one.dtype.kind == "f":
        return np.allclose(one, other, rtol=1e-6, atol=1e-30, equal_nan=True)  # ITK has single precision
    return one.shape == other.shape and np.array_equal(one, other)


Values = np.ndarray | None


def picture(path: Path) -> Values:
    """By libspng, bit depths below 8 left out."""
    import imagecodecs

    content = path.read_bytes()
    full = path.suffix == ".png" and content[24] >= 8 and content[25] != 3
    return imagecodecs.png_decode(content) if full else None


def image(path: Path) -> Values:
    import imagecodecs

    if path.suffix == ".bmp":
        return None
    decode = imagecodecs.png_decode if path.suffix == ".png" else imagecodecs.jpeg8_decode
    found = decode(path.read_bytes())
    return found[..., None] if found.ndim == 2 else found[..., :3]


def tiff(path: Path) -> list[np.ndarray] | None:
    """By GDAL and by Pillow, files of one page: GDAL gives zeros where a strip holds more than its pixels."""
    import rasterio
    from PIL import Image

    with rasterio.open(path) as file:
        if file.count != 1 or file.subdatasets or any(each in path.name for each in ("ome", "imagej")):
            return None
        if "ccitt" in str(file.compression).lower():  # each decoder mends damaged rows in its own way
            return None
        found = [file.read(1)]
    with suppress(Exception), Image.open(path) as file:
        found.append(np.asarray(file))
    return found


def npy(path: Path) -> Values:
    found = np.load(path, allow_pickle=False)
    return found[:, :, 0] if found.ndim == 3 and found.shape[2] == 1 else found


def npz(path: Path) -> Values:
    with np.load(path, allow_pickle=False) as archive:
        (name,) = archive.files
        return archive[name]


def zarr(path: Path) -> Values:
    """Of version 2, by numcodecs chunk by chunk."""
    import numcodecs

    if not (path / ".zarray").is_file():
        return None
    note = json.loads((path / ".zarray").read_text())
    shape, chunks, dtype = note["shape"], note["chunks"], np.dtype(note["dtype"])
    codec = note["compressor"] and numcodecs.get_codec(note["compressor"])
    if note.get("filters") or len(shape) != 2 or max(shape) > 1000 or min(chunks) < 1:
        return None
    found = np.full(shape, note["fill_value"] or 0, dtype)
    for row in range(-(-shape[0] // chunks[0])):
        for column in range(-(-shape[1] // chunks[1])):
            file = path / note.get("dimension_separator", ".").join((str(row), str(column)))
            if file.is_file():
                packed = file.read_bytes()
                values = np.frombuffer(codec.decode(packed) if codec else packed, dtype)
                part = found[row * chunks[0] :, column * chunks[1] :][: chunks[0], : chunks[1]]
                part[:] = values.reshape(chunks, order=note["order"])[: part.shape[0], : part.shape[1]]
    return found


def nifti(path: Path) -> Values:
    """By ITK, which counts in single precision and takes a tiny factor for none."""
    import SimpleITK as sitk

    content = path.read_bytes()
    scaling = struct.unpack_from("<2f", gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content, 112)
    if any(0 < abs(each) < 1e-6 for each in scaling):
        return None
    reader = sitk.ImageFileReader()
    reader.SetImageIO("NiftiImageIO")
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return sitk.GetArrayFromImage(reader.Execute()) if np.prod(reader.GetSize()) < 10**6 else None


_TYPES = {"MET_UCHAR": "u1", "MET_SHORT": "i2", "unsigned char": "u1", "uint8": "u1", "short": "i2"}
_TYPES |= {"MET_CHAR": "i1", "MET_USHORT": "u2", "int8": "i1", "uint16": "u2"}


def mha(path: Path) -> Values:
    head, _, body = path.read_bytes().partition(b"ElementDataFile = LOCAL\n")
    fields = dict(re.findall(r"^(\w+) *= *(.*?) *$", head.decode("latin-1"), re.MULTILINE))
    msb = fields.get("ElementByteOrderMSB", fields.get("BinaryDataByteOrderMSB", "False"))
    dtype = np.dtype(_TYPES[fields["ElementType"]]).newbyteorder(">" if msb[:1] in "Tt1" else "<")
    if fields.get("CompressedData", "False")[:1] in "Tt1":
        body = zlib.decompressobj().decompress(body)
    return _shaped(body, dtype, fields["DimSize"])


def nrrd(path: Path) -> Values:
    head, _, body = path.read_bytes().partition(b"\n\n")
    fields = dict(re.findall(r"^([\w ]+): *(.*?) *$", head.decode("latin-1"), re.MULTILINE))
    dtype = np.dtype(_TYPES[fields["type"]]).newbyteorder(">" if fields.get("endian") == "big" else "<")
    packing = fields["encoding"].lower()
    if packing in ("gzip", "gz"):
        body = zlib.decompressobj(wbits=31).decompress(body)
    elif packing == "hex":
        body = bytes.fromhex(body.decode())
    elif packing != "raw":
        body = np.array(body.split(), np.int64).astype(dtype).tobytes()
    return _shaped(body, dtype, fields["sizes"])


def _shaped(body: bytes, dtype: np.dtype, sizes: str) -> np.ndarray:
    shape = tuple(int(each) for each in reversed(sizes.split()))
    return np.frombuffer(body, dtype, int(np.prod(shape))).reshape(shape)


def coco(path: Path) -> Values:
    """By pycocotools, labels of the categories 10 and 20, the smaller object on top."""
    from pycocotools.coco import COCO

    if path.parent.name == "panoptic.json":
        return None
    with redirect_stdout(io.StringIO()):
        file = COCO(str(path.parent))
    ((number, entry),) = ((key, each) for key, each in file.imgs.items() if Path(each["file_name"]).stem == path.name)
    chosen = file.imgToAnns[number]
    if entry["height"] * entry["width"] > 10**6:
        return None
    masks = [(file.annToMask(each).astype(bool), each["category_id"] // 10) for each in chosen]
    found = np.zeros((entry["height"], entry["width"]), np.uint16)
    for mask, label in sorted(masks, key=lambda each: -int(each[0].sum())):
        found[mask] = label
    return found


READERS: dict[str, Callable[[Path], Any]] = {
    "png, bmp": picture,
    "images": image,
    "tiff": tiff,
    "geotiff": tiff,
    "npy": npy,
    "npz": npz,
    "zarr": zarr,
    "nifti": nifti,
    "mha": mha,
    "nrrd": nrrd,
    "coco": coco,
}
