"""Declares the settings of the files that are written for each case, and the memory limit of waiting arrays."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Unit

LabelsFormat = Literal["auto", "png", "tiff", "zarr", "mha", "nrrd", "nifti"]
ProbsFormat = Literal["npy", "npz", "tiff", "zarr"]
ObjectsFormat = Literal["geojson", "coco", "table"]
Compression = Literal["deflate", "zstd"]
ProbsDtype = Literal["float32", "float16", "uint8"]
LabelsDtype = Literal["auto", "uint8", "uint16"]

MAX_WORKERS = 64


class ExportConfig(Config, title="export"):
    """The files that an evaluation leaves for each case, under predictions/."""

    labels: bool = True
    """Write predictions/labels/<case>: the label map."""
    labels_format: LabelsFormat = "auto"
    """File format of label maps. "auto" takes PNG for pictures, and for volumes their own format. A "png" has a palette
    for 8 bits and is greyscale for 16; it holds no volumes. A "tiff" is tiled, and for 8 bits has the classes' colours
    as palette. A "zarr" is a Zarr 3 folder. Take "mha" or "nrrd" for ITK and 3D Slicer; these are in mm. "nifti"
    (.nii.gz) is for volumes."""
    dtype: LabelsDtype = "auto"
    """Type of label maps; "auto" takes uint8 unless a class or the ignored value needs more. A value that does not fit
    is an error."""
    probs: bool = False
    """Write predictions/probs/<case>: probabilities (C, H, W) of every class."""
    probs_dtype: ProbsDtype = "float32"
    """Type of probabilities: "float32" (4 bytes per pixel and class), "float16" (off by up to 0.00025) or "uint8" (255
    is 1; off by up to 0.002). The rounded ones say so in their names: <case>.float16.npy."""
    confidence: bool = False
    """Write predictions/confidence/<case>.tif: the probability of the predicted class, float32. For multilabel, there
    is a page per class with the probability of the decision, present or absent."""
    probs_format: ProbsFormat = "npy"
    """File format of probabilities: "npy", "npz" (compressed), "tiff" (one page per class) or "zarr" (a folder)."""
    compression: Compression = "deflate"
    """How TIFF files are compressed, without loss: "deflate", which every reader has, or "zstd", which is faster."""
    objects: tuple[ObjectsFormat, ...] = ()
    """Write predictions/objects/<case>, one file per format: "geojson" (outlines), "coco" (run lengths), "table" (CSV
    of place, size and shape). Objects are the instances of post-processing, else the parts of each class that touch."""
    dicom_series: Path | None = None
    """Folder with the DICOM file of each image, under the image's name: writes predictions/dicom/<series>.dcm, a
    segmentation per series, from the label maps (PNG or TIFF). null: none."""
    instances: bool = True
    """Write predictions/instances/<case>, where post-processing makes instances: PNG where `labels_format` is "png" and
    there are at most 65535, else TIFF."""
    workers: Annotated[int, Unit("threads")] = Field(2, ge=1, le=MAX_WORKERS)
    """Number of threads that write files."""
    queue_mb: Annotated[int, Unit("MiB")] = Field(256, ge=1)
    """Largest memory of arrays that wait to be written; a single larger array waits alone."""
