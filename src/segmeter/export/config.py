"""What is written for each case, and how much memory the waiting arrays may take."""

from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Unit

LabelsFormat = Literal["png", "tiff"]
ProbsFormat = Literal["npy", "npz", "tiff", "zarr"]
LabelsDtype = Literal["auto", "uint8", "uint16"]

MAX_WORKERS = 64


class ExportConfig(Config, title="export"):
    """Which files an evaluation leaves per case, under predictions/."""

    labels: bool = True
    """Write predictions/labels/<case>: the label map."""
    labels_format: LabelsFormat = "png"
    """File format of label maps: "png" (palette for 8 bits, greyscale for 16) or "tiff" (tiled, deflate)."""
    dtype: LabelsDtype = "auto"
    """Type of label maps; "auto" takes uint8 unless a class or the ignored value needs more. A value that does not fit
    is an error."""
    probs: bool = False
    """Write predictions/probs/<case>: float32 probabilities (C, H, W), 4 bytes per pixel and class."""
    probs_format: ProbsFormat = "npy"
    """File format of probabilities: "npy", "npz" (compressed), "tiff" (one page per class) or "zarr" (a folder)."""
    instances: bool = False
    """Write predictions/instances/<case>, where post-processing makes instances."""
    workers: Annotated[int, Unit("threads")] = Field(2, ge=1, le=MAX_WORKERS)
    """Threads that write files."""
    queue_mb: Annotated[int, Unit("MiB")] = Field(256, ge=1)
    """Largest amount of arrays that wait to be written; a single larger array waits alone."""
