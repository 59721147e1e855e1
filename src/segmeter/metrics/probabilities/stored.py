"""Sums for the calibration -> calibration.npz and back: what the parts of a run are merged from."""

import io
import zipfile
from pathlib import Path

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.files import write_bytes
from segmeter.metrics.probabilities.calibration import Calibration

NAME = "calibration.npz"
_COUNTS = ("tops", "classes", "impossible")


def empty_sums(spec: ClassSpec) -> Calibration:
    """Sums over no image yet."""
    return Calibration(num_classes=spec.num_classes, task=spec.task, ignore_index=spec.ignore_index)


def write_sums(folder: Path, sums: Calibration) -> None:
    """Write `NAME`: the counts, those of the curves without their zeros, and the exact sums in hexadecimal."""
    counts, content = sums.counts, io.BytesIO()
    places = np.flatnonzero(counts.sweeps)
    np.savez_compressed(
        content,
        sums=np.array([f"{value:x}" for value in sums.sums]),
        sweep_places=places,
        sweep_counts=counts.sweeps.reshape(-1)[places],
        **{name: getattr(counts, name) for name in _COUNTS},
    )
    write_bytes(folder / NAME, content.getvalue())


def read_sums(folder: Path, spec: ClassSpec) -> Calibration:
    """Read what `write_sums` wrote for the same classes.

    Raises
    ------
    DataError
        The file is missing, damaged, or of other classes.
    """
    found, path = empty_sums(spec), folder / NAME
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            for name in _COUNTS:
                getattr(found.counts, name)[...] = stored[name]
            found.counts.sweeps.reshape(-1)[stored["sweep_places"]] = stored["sweep_counts"]
            values = [int(text, 16) for text in stored["sums"].tolist()]
            if len(values) != len(found.sums):
                raise ValueError("other classes")
    except (OSError, EOFError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "damaged"
        raise DataError(expected("merge", "runs", f"to hold {NAME}", f"{path} ({reason})")) from error
    found.sums = values
    return found
