"""Draw docs/surfaces.svg: the border pixels of one mask, and its surface by marching squares."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from skimage.measure import find_contours

from segmeter.metrics.distances import element_sizes, find_surface

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

MASK = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)
INSIDE, EDGE, POINT = "#dddddd", "#9ecae1", "#d55e00"


def draw(path: Path) -> None:
    """Write the figure; the same bytes every time."""
    mpl.rcParams["svg.hashsalt"] = "segmeter"
    mpl.rcParams["svg.fonttype"] = "none"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
    surface = find_surface(MASK) & MASK
    _grid(left, MASK.astype(int) + surface)
    rows, columns = np.nonzero(surface)
    left.plot(columns, rows, "o", color=POINT, markersize=5)
    left.set_title(f"border pixels: {len(rows)} pixels, each counts once")
    _grid(right, MASK.astype(int))
    for line in find_contours(MASK.astype(float), 0.5, fully_connected="low"):
        right.plot(line[:, 1], line[:, 0], color=POINT, linewidth=2)
    rows, columns, lengths = _elements(MASK)
    right.scatter(columns, rows, s=30 * lengths**2, color=POINT, zorder=3)
    right.set_title(f"marching squares: {len(rows)} elements, {lengths.sum():.1f} px long together")
    figure.savefig(path, metadata={"Date": None})


def _grid(axes: Axes, values: NDArray[np.int64]) -> None:
    colours = mpl.colors.ListedColormap(["white", INSIDE, EDGE])
    axes.pcolormesh(
        np.arange(values.shape[1] + 1) - 0.5,
        np.arange(values.shape[0] + 1) - 0.5,
        values,
        cmap=colours,
        vmin=0,
        vmax=2,
        edgecolors="#bbbbbb",
        linewidth=0.5,
    )
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)


def _elements(mask: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows, columns and lengths of the surface elements; a position lies between four pixels."""
    corners = [mask[:-1, :-1], mask[:-1, 1:], mask[1:, :-1], mask[1:, 1:]]
    lengths = element_sizes((1, 1))[sum(corner.astype(int) << bit for bit, corner in enumerate(corners))]
    rows, columns = np.nonzero(lengths)
    return rows + 0.5, columns + 0.5, lengths[rows, columns]


if __name__ == "__main__":
    draw(Path(__file__).with_name("surfaces.svg"))
