"""The choices of the surface metrics, apart from what computes them: configurations need no SciPy."""

from typing import Literal

SurfaceKind = Literal["border_pixels", "marching_cubes"]
Penalty = Literal["inf", "diagonal", "nan"] | float

SUFFIXES: dict[SurfaceKind, str] = {"border_pixels": "", "marching_cubes": "_marching_cubes"}  # of a metric's name
