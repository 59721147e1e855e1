"""Encodes label maps as MHA or NRRD files, which ITK and 3D Slicer read. ITK itself is not needed."""

import gzip
import zlib
from typing import Any

from numpy.typing import NDArray

from segmeter.data.files.geometry import MILLIMETRES
from segmeter.data.location import Location

_LEVEL = 1  # of zlib; higher levels pack the long runs of label maps no better
_MET = {"uint8": "MET_UCHAR", "uint16": "MET_USHORT"}


def encode_mha(labels: NDArray[Any], location: Location) -> bytes:
    """Encode a label map (H, W), uint8 or uint16, with its spacing in mm if its unit is known.

    References
    ----------
    MetaImage's tags, itk.org/Wiki/MetaIO/Documentation
    """
    packed = zlib.compress(_little(labels), _LEVEL)
    edges = _millimetres(location)
    lines = [
        "ObjectType = Image",
        "NDims = 2",
        "BinaryData = True",
        "BinaryDataByteOrderMSB = False",
        "CompressedData = True",
        f"CompressedDataSize = {len(packed)}",
        "TransformMatrix = 1 0 0 1",
        "Offset = 0 0",
        *([f"ElementSpacing = {edges}"] if edges else []),
        f"DimSize = {labels.shape[1]} {labels.shape[0]}",
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
    edges = _millimetres(location)
    lines = [
        "NRRD0004",
        f"type: {labels.dtype.name}",
        "dimension: 2",
        f"sizes: {labels.shape[1]} {labels.shape[0]}",
        *([f"spacings: {edges}", 'units: "mm" "mm"'] if edges else []),
        "encoding: gzip",
        "endian: little",
    ]
    packed = gzip.compress(_little(labels), _LEVEL, mtime=0)
    return "".join(f"{line}\n" for line in lines).encode("ascii") + b"\n" + packed


def _little(labels: NDArray[Any]) -> bytes:
    return labels.astype(labels.dtype.newbyteorder("<"), copy=False).tobytes()


def _millimetres(location: Location) -> str:
    """Width and height of a pixel in mm, which both formats mean; "" if they or their unit are unknown."""
    if location.spacing is None or location.unit is None:
        return ""
    return " ".join(repr(float(edge * MILLIMETRES[location.unit])) for edge in reversed(location.spacing))


ENCODERS = {"mha": encode_mha, "nrrd": encode_nrrd}
