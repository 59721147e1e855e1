"""A large image -> overlapping tiles -> one map of logits, each tile weighed towards its middle.

Axes: B images, C channels, H and W of the image, h and w of a tile.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

import torch
from torch import Tensor

from segmeter.inference.config import Blend

_SIGMA = 0.125  # of a tile's edge, as nnU-Net and MONAI weigh tiles


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The tiles along one axis.

    `starts` has the first pixel of each; `weights` is (tiles, edge) float32, and at every pixel of the image the
    weights of all tiles there sum to 1: a blend needs no division, and where one tile lies alone its weight is 1.
    """

    starts: tuple[int, ...]
    edge: int
    weights: Tensor


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The tiles of an image: every row of tiles with every column of tiles."""

    rows: Axis
    columns: Axis


def tile_starts(extent: int, *, tile: int, overlap: float) -> tuple[int, ...]:
    """First pixels of the fewest tiles that cover `extent` with at least `overlap`, spread out evenly.

    Examples
    --------
    >>> tile_starts(1000, tile=400, overlap=0.25)
    (0, 300, 600)
    >>> tile_starts(300, tile=400, overlap=0.25)
    (0,)
    """
    room = extent - tile
    if room <= 0:
        return (0,)
    step = max(1, int(tile * (1 - overlap)))
    gaps = -(-room // step)
    return tuple((index * room + gaps // 2) // gaps for index in range(gaps + 1))


def build_grid(height: int, width: int, *, tile: int, overlap: float, blend: Blend) -> Grid:
    """Lay tiles over an image of `height` by `width` pixels; a shorter side is one tile of its own length."""
    return Grid(
        rows=_build_axis(height, tile=tile, overlap=overlap, blend=blend),
        columns=_build_axis(width, tile=tile, overlap=overlap, blend=blend),
    )


def tiled_logits(
    image: Tensor,
    forward: Callable[[Tensor], Tensor],
    *,
    grid: Grid,
    tile_batch: int,
    on_tiles: Callable[[float], None] = lambda images: None,
) -> Tensor:
    """Run tiles of all images through `forward`, `tile_batch` at a time, and blend their logits.

    Parameters
    ----------
    image : (B, C, H, W)
        On the device.
    forward
        From (n, C, h, w) to (n, num_channels, h, w) float32.
    grid
        The tiles; made for H by W.
    tile_batch
        Tiles per pass.
    on_tiles
        Called after each pass with the number of images that are done, such as 0.25.

    Returns
    -------
    (B, num_channels, H, W), float32. Its order of summation does not depend on `tile_batch`.
    """
    rows, columns = grid.rows, grid.columns
    row_weights, column_weights = rows.weights.to(image.device), columns.weights.to(image.device)
    total: Tensor | None = None
    places = product(range(len(image)), range(len(rows.starts)), range(len(columns.starts)))
    per_image, done = len(rows.starts) * len(columns.starts), 0
    for group in _batched(places, tile_batch):
        windows = [_window(grid, row, column) for _, row, column in group]
        tiles = torch.stack([image[case, :, *window] for (case, _, _), window in zip(group, windows, strict=True)])
        logits = forward(tiles.contiguous(memory_format=torch.channels_last))
        if total is None:
            total = logits.new_zeros(len(image), logits.shape[1], *image.shape[-2:])
        for (case, row, column), window, part in zip(group, windows, logits, strict=True):
            weight = row_weights[row, :, None] * column_weights[column]
            total[case, :, *window].addcmul_(part, weight)
        done += len(group)
        on_tiles(done / per_image)
    if total is None:
        raise RuntimeError("tiled_logits: no image")
    return total


def _build_axis(extent: int, *, tile: int, overlap: float, blend: Blend) -> Axis:
    edge = min(tile, extent)
    starts = tile_starts(extent, tile=edge, overlap=overlap)
    bump = _bump(edge, blend)
    total = torch.zeros(extent, dtype=torch.float64)
    for start in starts:
        total[start : start + edge] += bump
    weights = torch.stack([bump / total[start : start + edge] for start in starts])
    return Axis(starts=starts, edge=edge, weights=weights.float())


def _bump(edge: int, blend: Blend) -> Tensor:
    """Weights along one edge of a tile, float64, all > 0."""
    if blend == "uniform":
        return torch.ones(edge, dtype=torch.float64)
    distance = torch.arange(edge, dtype=torch.float64) - (edge - 1) / 2
    return torch.exp(-0.5 * (distance / (_SIGMA * edge)) ** 2)


def _window(grid: Grid, row: int, column: int) -> tuple[slice, slice]:
    top, left = grid.rows.starts[row], grid.columns.starts[column]
    return slice(top, top + grid.rows.edge), slice(left, left + grid.columns.edge)


def _batched(places: Iterator[tuple[int, int, int]], size: int) -> Iterator[Sequence[tuple[int, int, int]]]:
    while group := list(islice(places, size)):
        yield group
