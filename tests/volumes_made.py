"""Volumes that tests make: two labels, thick planes, an affine that turns, and a patient with two scans."""

from pathlib import Path

import numpy as np
import pytest

SHAPE = (24, 28, 8)  # i, j, k
EDGES = (1.25, 1.0, 4.0)  # mm along i, j, k
CLASSES = ("background", "organ", "lesion")


def affine_of(number: int) -> np.ndarray:
    """Turn by 10 degrees around the body's long axis, and move."""
    turn, affine = np.deg2rad(10), np.eye(4)
    affine[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    affine[:3, :3] *= EDGES
    affine[:3, 3] = (-20, 5 * number, 7)
    return affine


def volume(number: int, shape: tuple[int, ...] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Image int16 and mask uint8 of a bright ball with a brighter core, in file order (i, j, k)."""
    rng = np.random.default_rng(number)
    centre = np.array(shape) * rng.uniform(0.4, 0.6, 3)
    size = np.array([7, 7, 2.4]) * np.array(shape) / SHAPE
    steps = (np.indices(shape) - centre[:, None, None, None]) / size[:, None, None, None]
    far = (steps**2).sum(0)
    mask = (far < 1).astype(np.uint8) + (far < 0.2)
    image = np.array([-100, 300, 700])[mask] + rng.normal(0, 60, shape)
    return image.astype(np.int16), mask


def write_nifti(path: Path, pixels: np.ndarray, affine: np.ndarray) -> None:
    nibabel = pytest.importorskip("nibabel")
    file = nibabel.Nifti1Image(pixels, affine)
    file.set_qform(affine, 1)
    file.set_sform(affine, 1)
    file.header.set_xyzt_units("mm")
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(file, path)


def write_cases(root: Path, count: int, *, images: str = "images", masks: str = "masks") -> list[str]:
    """Write `count` volumes of patients p0, p0, p1, p2, ... and return their names."""
    names = [f"p{max(0, number - 1)}_{number}" for number in range(count)]
    for number, name in enumerate(names):
        image, mask = volume(number)
        write_nifti(root / images / f"{name}.nii.gz", image, affine_of(number))
        write_nifti(root / masks / f"{name}.nii.gz", mask, affine_of(number))
    return names
