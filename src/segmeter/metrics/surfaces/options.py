"""Options of the surface metrics, without SciPy, so that configurations import quickly."""

from typing import Literal

SurfaceKind = Literal["border_pixels", "marching_cubes"]
Penalty = Literal["inf", "diagonal", "nan"] | float

SUFFIXES: dict[SurfaceKind, str] = {"border_pixels": "", "marching_cubes": "_marching_cubes"}  # of a metric's name
