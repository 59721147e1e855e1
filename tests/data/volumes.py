"""Small volumes in every format that holds them."""

from pathlib import Path

import nibabel
import numpy as np
import tifffile

from tests.data.crafted import write_zarr
from tests.data.formats_written import write_itk

VOLUME = np.arange(24, dtype=np.uint8).reshape(2, 3, 4) % 3  # (depth, height, width)
EDGES = (3.0, 0.5, 0.25)  # mm, in the same order


def save_nifti(
    path: Path,
    volume: np.ndarray = VOLUME,
    *,
    edges: tuple[float, ...] = EDGES,
    origin: tuple[float, ...] = (0, 0, 0),
    unit: str | None = "mm",
) -> Path:
    """Axes are turned to the file's (x, y, z)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([*edges[::-1], *[1.0] * (4 - len(edges))])
    affine[:3, 3] = origin
    image = nibabel.Nifti1Image(volume.T, affine)
    if unit:
        image.header.set_xyzt_units(unit)
    nibabel.save(image, path)
    return path


def save_volume(path: Path, volume: np.ndarray = VOLUME) -> Path:
    """In the format of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".nii", ".gz"):
        return save_nifti(path, volume)
    if path.suffix == ".npy":
        np.save(path, volume)
    elif path.suffix == ".npz":
        np.savez_compressed(path, labels=volume)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, volume, photometric="minisblack")
    elif path.suffix in (".mha", ".nrrd"):
        write_itk(path, volume)
    else:
        chunks = tuple(min(side, 3) for side in volume.shape)
        write_zarr(path, volume, zarr_format=2 if path.suffix == ".zarr2" else 3, chunks=chunks)
    return path
