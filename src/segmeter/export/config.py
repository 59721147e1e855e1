"""What is written for each case, and how much memory the waiting arrays may take."""

from dataclasses import dataclass
from typing import Literal, get_args

from segmeter.checks import collecting

LabelsFormat = Literal["png", "tiff"]
ProbsFormat = Literal["npy", "npz", "tiff", "zarr"]
LabelsDtype = Literal["auto", "uint8", "uint16"]

MAX_WORKERS = 64


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Which files an evaluation leaves per case.

    Parameters
    ----------
    labels
        Write predictions/labels/<case>: the label map.
    labels_format
        "png" (palette for 8 bits, greyscale for 16) or "tiff" (tiled, deflate).
    dtype
        The dtype of label maps; "auto" is uint8 if every class and the ignored value fit, else uint16.
    probs
        Write predictions/probs/<case>: float32 (C, H, W).
    probs_format
        "npy", "npz" (compressed), "tiff" (one page per class) or "zarr" (a folder).
    instances
        Write predictions/instances/<case>, where post-processing makes instances.
    workers
        Writer threads, 1 to 64.
    queue_mb
        Arrays that wait to be written, in MiB, > 0; a single larger array waits alone.

    Raises
    ------
    ConfigError
        With every rule that is broken.
    """

    labels: bool = True
    labels_format: LabelsFormat = "png"
    dtype: LabelsDtype = "auto"
    probs: bool = False
    probs_format: ProbsFormat = "npy"
    instances: bool = False
    workers: int = 2
    queue_mb: int = 256

    def __post_init__(self) -> None:
        with collecting("export") as problems:
            problems.one_of("labels_format", self.labels_format, get_args(LabelsFormat))
            problems.one_of("dtype", self.dtype, get_args(LabelsDtype))
            problems.one_of("probs_format", self.probs_format, get_args(ProbsFormat))
            problems.in_range("workers", self.workers, 1, MAX_WORKERS)
            problems.in_range("queue_mb", self.queue_mb, 1)
