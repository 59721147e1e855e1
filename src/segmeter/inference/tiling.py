"""Runs a large image in overlapping tiles and blends their logits into bands of finished lines, from top to bottom.

A tile begins at a multiple of the network's stride and is itself a multiple of it, so that the network pads no tile.
The image is extended once, at its bottom and right, as the network would extend it. Only one row of tiles of logits is
held at a time, whatever the height of the image.

Axes: C channels of the image, H and W of the image, h and w of a tile.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.host_copier import upload
from segmeter.data.files.array import LazyArray
from segmeter.inference.config import Blend

_SIGMA = 0.125  # share of a tile's edge, as in nnU-Net and MONAI


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The tiles along one axis.

    `starts` has the first pixel of each tile. `weights` is (tiles, edge) float32. At every pixel, the weights of all
    tiles there sum to 1, so blending needs no division, and a pixel that one tile covers has weight 1. `extent` is the
    number of pixels of the image; the tiles cover them up to the next multiple of the stride.
    """

    starts: tuple[int, ...]
    edge: int
    weights: Tensor
    extent: int

    def indices(self, start: int, stop: int, *, mirrored: bool) -> NDArray[np.int64]:
        """Return indices of pixels `start` to `stop`. Beyond the image, they are mirrored or stay at the last pixel."""
        indices = np.arange(start, stop)
        beyond = indices >= self.extent
        indices[beyond] = 2 * (self.extent - 1) - indices[beyond] if mirrored else self.extent - 1
        return indices

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the pixels that each tile adds to the tiles before it."""
        done = 0
        for start in self.starts:
            yield done, start + self.edge
            done = start + self.edge


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The tiles of an image: every row of tiles with every column of tiles."""

    rows: Axis
    columns: Axis

    @property
    def mirrored(self) -> bool:
        """Whether the image is extended by its mirror image; a small one is extended by its last row and column."""
        axes = (self.rows, self.columns)
        return all(axis.starts[-1] + axis.edge - axis.extent < axis.extent for axis in axes)

    def read(self, image: LazyArray, start: int, stop: int) -> NDArray[Any]:
        """Read lines of the image after its extension to a multiple of the stride."""
        rows = self.rows.indices(start, stop, mirrored=self.mirrored)
        columns = self.columns.indices(0, self.columns.starts[-1] + self.columns.edge, mirrored=self.mirrored)
        first = int(rows.min())
        block = image.read(first, int(rows.max()) + 1)
        if len(rows) != len(block) or rows[-1] != first + len(block) - 1:
            block = block[rows - first]
        return block if len(columns) == block.shape[1] else block[:, columns]


def tile_starts(extent: int, *, tile: int, overlap: float) -> tuple[int, ...]:
    """Return the first pixels of the fewest tiles that cover `extent` with at least `overlap`, evenly spread.

    Examples
    --------
    >>> tile_starts(1000, tile=400, overlap=0.25)
    (0, 300, 600)
    >>> tile_starts(300, tile=400, overlap=0.25)
    (0,)
    """
    last_start = extent - tile
    if last_start <= 0:
        return (0,)
    step = max(1, int(tile * (1 - overlap) + 1e-9))
    gaps = -(-last_start // step)
    return tuple((index * last_start + gaps // 2) // gaps for index in range(gaps + 1))


def build_grid(height: int, width: int, *, tile: int, overlap: float, blend: Blend, stride: int = 1) -> Grid:
    """Lay tiles over an image of `height` by `width` pixels; a shorter side is one tile of its own length.

    Parameters
    ----------
    tile
        Edge of a tile, a multiple of `stride`.
    stride
        Heights and widths must be multiples of it for the network.
    """
    axes = []
    for extent in (height, width):
        strides = -(-extent // stride)
        edge = min(tile // stride, strides)
        starts = tuple(start * stride for start in tile_starts(strides, tile=edge, overlap=overlap))
        edge *= stride
        distance = torch.arange(edge, dtype=torch.float64) - (edge - 1) / 2
        bump = torch.exp(-0.5 * (distance / (_SIGMA * edge)) ** 2) if blend == "gaussian" else torch.ones_like(distance)
        total = torch.zeros(strides * stride, dtype=torch.float64)
        for start in starts:
            total[start : start + edge] += bump
        weights = torch.stack([bump / total[start : start + edge] for start in starts])
        axes.append(Axis(starts=starts, edge=edge, weights=weights.float(), extent=extent))
    return Grid(rows=axes[0], columns=axes[1])


def tiled_bands(
    strips: Iterable[Tensor],
    forward: Callable[[Tensor], Tensor],
    *,
    grid: Grid,
    tile_batch: int,
    on_tiles: Callable[[float], None] = lambda done: None,
) -> Iterator[Tensor]:
    """Run tiles through `forward`, one row of tiles after the other, blend their logits, and yield finished lines.

    Parameters
    ----------
    strips
        The extended image, from top to bottom in the pieces of ``grid.rows.spans()``: each (C, h, W),
        on the device. The next one is taken when it is needed.
    forward
        From (n, C, h, w) to (n, num_channels, h, w) float32.
    grid
        The tiles.
    tile_batch
        Tiles per pass, all of one row of tiles.
    on_tiles
        Called after each pass with the share of the tiles that are done.

    Yields
    ------
    (num_channels, h, W), float32, of the image without its extension, from top to bottom. It may be overwritten when
    the next one is requested. The order of summation does not depend on `tile_batch`.
    """
    rows, columns = grid.rows, grid.columns
    strip: Tensor | None = None
    total: Tensor | None = None
    row_weights, column_weights = rows.weights, columns.weights
    for index, (top, fresh) in enumerate(zip(rows.starts, strips, strict=True)):
        strip = fresh if strip is None else torch.cat([strip[:, top - rows.starts[index - 1] :], fresh], 1)
        if index == 0:
            row_weights = upload(row_weights, fresh.device)
            column_weights = upload(column_weights, fresh.device)
        tiles = enumerate(columns.starts)
        done = 0
        while group := list(islice(tiles, tile_batch)):
            batch = torch.stack([strip[:, :, start : start + columns.edge] for _, start in group])
            batch = batch.contiguous(memory_format=torch.channels_last)  # the same name, to free the first copy
            logits = forward(batch)
            if total is None:
                total = logits.new_zeros(logits.shape[1], rows.edge, columns.starts[-1] + columns.edge)
            for (column, start), tile in zip(group, logits, strict=True):
                weight = row_weights[index, :, None] * column_weights[column]
                total[:, :, start : start + columns.edge].addcmul_(tile, weight)
            del batch, logits, tile  # before the next ones are computed
            done += len(group)
            on_tiles((index + done / len(columns.starts)) / len(rows.starts))
        if total is not None:
            yield from _finished(total, grid, index)


def _finished(total: Tensor, grid: Grid, index: int) -> Iterator[Tensor]:
    """Yield the lines that no later tile covers, then move the others up."""
    rows = grid.rows
    top = rows.starts[index]
    is_last = index + 1 == len(rows.starts)
    finished = rows.edge if is_last else rows.starts[index + 1] - top
    yield total[:, : min(finished, rows.extent - top), : grid.columns.extent]
    if not is_last:
        unfinished = rows.edge - finished
        rest = total[:, finished:]
        total[:, :unfinished] = rest if unfinished <= finished else rest.clone()  # overlapping lines need a copy
        total[:, unfinished:] = 0
