"""Reads a file with our reader and with another one, both in a reader process, which either may crash as it likes."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.files import reader_process
from segmeter.data.images import read_image
from segmeter.data.masks.reading import read_map, read_values
from segmeter.data.sample import Reading
from segmeter.errors import SegmeterError
from tests.data.files.fuzzed.theirs import READERS
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
