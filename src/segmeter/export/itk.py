"""Encodes label maps as MHA or NRRD files, which ITK and 3D Slicer read. ITK itself is not needed."""

import gzip
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.geometry import MILLIMETRES
from segmeter.data.files.medical import FLIPS
from segmeter.data.location import Location
from segmeter.data.planes import VolumeLocation

_LEVEL = 1  # of zlib; higher levels pack the long runs of label maps no better
_MET = {"uint8": "MET_UCHAR", "uint16": "MET_USHORT"}


def encode_mha(labels: NDArray[Any], location: Location) -> bytes:
    """Encode a label map (H, W) or (D, H, W), uint8 or uint16, with its spacing in mm if its unit is known.

    A volume also states its directions and origin.

    References
    ----------
    MetaImage's tags, itk.org/Wiki/MetaIO/Documentation
    """
    packed = zlib.compress(_little(labels), _LEVEL)
    edges, place, axes = _millimetres(location), _place(location), labels.ndim
    origin, steps = (place[:3, 3], place[:3, :3]) if place is not None else (np.zeros(axes), np.eye(axes))
    lines = [
        "ObjectType = Image",
        f"NDims = {axes}",
        "BinaryData = True",
        "BinaryDataByteOrderMSB = False",
        "CompressedData = True",
        f"CompressedDataSize = {len(packed)}",
        f"TransformMatrix = {_numbers(_directions(steps).T)}",
        f"Offset = {_numbers(origin)}",
        *([f"ElementSpacing = {edges}"] if edges else []),
        f"DimSize = {_numbers(np.array(labels.shape[::-1]))}",
        f"ElementType = {_MET[labels.dtype.name]}",
        "ElementDataFile = LOCAL",
    ]
    return "".join(f"{line}\n" for line in lines).encode("ascii") + packed


def encode_nrrd(labels: NDArray[Any], location: Location) -> bytes:
    """The same as NRRD.

    References
    ----------
    Definition of NRRD file format, teem.sourceforge.net/nrrd/format.html, sections 4 to 6
    """
    edges, place, axes = _millimetres(location), _place(location), labels.ndim
    space = [f"spacings: {edges}", " ".join(["units:", *['"mm"'] * axes])] if edges else []
    if place is not None:
        vectors = " ".join(f"({_numbers(step, ',')})" for step in place[:3, :3].T)
        space = ["space: left-posterior-superior", f"space directions: {vectors}"]
        space += ['space units: "mm" "mm" "mm"', f"space origin: ({_numbers(place[:3, 3], ',')})"]
    lines = [
        "NRRD0004",
        f"type: {labels.dtype.name}",
        f"dimension: {axes}",
        f"sizes: {_numbers(np.array(labels.shape[::-1]))}",
        *space,
        "encoding: gzip",
        "endian: little",
    ]
    packed = gzip.compress(_little(labels), _LEVEL, mtime=0)
    return "".join(f"{line}\n" for line in lines).encode("ascii") + b"\n" + packed


def _little(labels: NDArray[Any]) -> bytes:
    return labels.astype(labels.dtype.newbyteorder("<"), copy=False).tobytes()


def _place(location: Location) -> NDArray[np.float64] | None:
    """The affine of a volume in ITK's world (left, posterior, superior), from (i, j, k) to mm; None if unknown."""
    affine = location.geometry.affine if isinstance(location, VolumeLocation) else None
    return None if affine is None else FLIPS @ affine


def _directions(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(steps / np.linalg.norm(steps, axis=0))


def _numbers(values: NDArray[np.float64], gap: str = " ") -> str:
    return gap.join(f"{value:.17g}" for value in values.ravel())


def _millimetres(location: Location) -> str:
    """Width, height and depth of a pixel in mm, which both formats mean; "" if they or their unit are unknown."""
    if location.spacing is None or location.unit is None:
        return ""
    return " ".join(repr(float(edge * MILLIMETRES[location.unit])) for edge in reversed(location.spacing))


ENCODERS = {"mha": encode_mha, "nrrd": encode_nrrd}
