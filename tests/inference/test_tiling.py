import math
from itertools import pairwise

import pytest
import torch

from segmeter.inference.tiling import build_grid, tile_starts, tiled_bands
from segmeter.models.segmenter import pad_to_multiple


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("extent", [1, 31, 32, 33, 47, 64, 65, 100, 257])
def test_starts_cover_the_extent_evenly_with_at_least_the_overlap(extent, overlap):
    tile = min(32, extent)
    starts = tile_starts(extent, tile=tile, overlap=overlap)
    gaps = [second - first for first, second in pairwise(starts)]
    assert starts[0] == 0
    assert starts[-1] + tile == extent
    assert all(gap <= math.floor(tile * (1 - overlap)) for gap in gaps)
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_where_one_tile_lies_alone_its_weight_is_one_exactly():
    axis = build_grid(56, 32, tile=32, overlap=0.25, blend="gaussian").rows
    assert axis.starts == (0, 24)
    assert (axis.weights[0, :24] == 1).all()
    assert (axis.weights[1, 8:] == 1).all()


def tiled(images, forward, *, grid, tile_batch, on_tiles=lambda done: None):
    """The whole maps (B, K, H, W), put together from their bands; the images fit the stride."""
    maps = []
    for image in images:
        strips = (image[:, start:stop] for start, stop in grid.rows.spans())
        bands = tiled_bands(strips, forward, grid=grid, tile_batch=tile_batch, on_tiles=on_tiles)
        maps.append(torch.cat([band.clone() for band in bands], 1))
    return torch.stack(maps)


def brute_force(image, forward, *, tile, overlap, blend):
    """Weighted mean by sums over whole maps, tile after tile, in float64."""
    grid = build_grid(*image.shape[-2:], tile=tile, overlap=overlap, blend=blend)
    totals, weights = 0.0, 0.0
    for top in grid.rows.starts:
        for left in grid.columns.starts:
            bottom, right = top + grid.rows.edge, left + grid.columns.edge
            part = forward(image[..., top:bottom, left:right]).double()
            bump = torch.ones(())
            if blend == "gaussian":
                lines = [torch.arange(edge) - (edge - 1) / 2 for edge in part.shape[-2:]]
                bells = [torch.exp(-0.5 * (line.double() / (len(line) / 8)) ** 2) for line in lines]
                bump = bells[0][:, None] * bells[1]
            canvas = torch.zeros(*part.shape[:2], *image.shape[-2:], dtype=torch.float64)
            canvas[..., top:bottom, left:right] = part * bump
            totals = totals + canvas
            cover = torch.zeros(image.shape[-2:], dtype=torch.float64)
            cover[top:bottom, left:right] = bump
            weights = weights + cover
    return totals / weights


def position(tiles):
    """A network that is anything but pointwise: it says where in the tile a pixel lies."""
    rows = torch.arange(tiles.shape[2]).float()[:, None]
    columns = torch.arange(tiles.shape[3]).float()
    return torch.cat([tiles[:, :1] * rows + columns, tiles[:, 1:2] - columns], 1)


@pytest.mark.parametrize("blend", ["gaussian", "uniform"])
@pytest.mark.parametrize("shape", [(40, 90), (32, 64), (20, 70), (33, 33)], ids=str)
def test_blending_agrees_with_sums_over_whole_maps(blend, shape):
    image = torch.rand(2, 2, *shape, generator=torch.Generator().manual_seed(0))
    grid = build_grid(*shape, tile=32, overlap=0.25, blend=blend)
    found = tiled(image, position, grid=grid, tile_batch=3)
    assert found.dtype == torch.float32
    expected = brute_force(image, position, tile=32, overlap=0.25, blend=blend)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)  # logits up to 60 in float32


def test_the_tile_batch_changes_no_bit():
    image = torch.rand(2, 2, 50, 90, generator=torch.Generator().manual_seed(0))
    grid = build_grid(50, 90, tile=32, overlap=0.5, blend="gaussian")
    found = [tiled(image, position, grid=grid, tile_batch=size) for size in (1, 2, 5, 1000)]
    assert all(torch.equal(each, found[0]) for each in found[1:])


def test_tiles_are_batched_and_channels_last():
    seen = []

    def forward(tiles):
        seen.append((len(tiles), tiles.is_contiguous(memory_format=torch.channels_last)))
        return tiles.float()

    image = torch.zeros(2, 3, 64, 96, dtype=torch.uint8)
    grid, done = build_grid(64, 96, tile=32, overlap=0.0, blend="uniform"), []
    tiled(image, forward, grid=grid, tile_batch=2, on_tiles=done.append)
    assert seen == 4 * [(2, True), (1, True)]  # 2 images of 2 rows of 3 tiles
    assert done == pytest.approx(2 * [2 / 6, 3 / 6, 5 / 6, 1.0])


@pytest.mark.parametrize("stride", [4, 8, 32])
@pytest.mark.parametrize(("height", "width"), [(50, 70), (33, 100), (20, 97), (3, 200), (64, 64)])
def test_tiles_lie_on_the_stride_and_reach_to_its_next_multiple(height, width, stride):
    grid = build_grid(height, width, tile=32, overlap=0.25, blend="gaussian", stride=stride)
    for axis, extent in ((grid.rows, height), (grid.columns, width)):
        ends = [start + axis.edge for start in axis.starts]
        assert all(start % stride == 0 for start in axis.starts)
        assert axis.edge % stride == 0
        assert extent <= ends[-1] < extent + stride
        assert stride == 32 or all(end - start >= 8 for end, start in zip(ends, axis.starts[1:], strict=False))
        assert [span[1] for span in axis.spans()] == ends


@pytest.mark.parametrize("size", [(5, 7), (31, 33), (17, 64), (1, 40), (2, 3), (64, 96)], ids=str)
def test_the_image_is_extended_as_the_network_would_extend_it(size):
    image = torch.arange(size[0] * size[1]).view(1, 1, *size).float()
    grid = build_grid(*size, tile=32, overlap=0.25, blend="uniform", stride=16)
    rows = grid.rows.indices(0, grid.rows.starts[-1] + grid.rows.edge, mirrored=grid.mirrored)
    columns = grid.columns.indices(0, grid.columns.starts[-1] + grid.columns.edge, mirrored=grid.mirrored)
    found = image[0, 0].numpy()[rows][:, columns]
    assert found.tolist() == pad_to_multiple(image, multiple=16)[0, 0].tolist()


def test_bands_come_from_top_to_bottom_and_hold_no_more_than_a_tile():
    image = torch.rand(2, 300, 40)
    grid = build_grid(300, 40, tile=32, overlap=0.5, blend="gaussian")
    strips, taken = (image[:, start:stop] for start, stop in grid.rows.spans()), []
    for band in tiled_bands(strips, position, grid=grid, tile_batch=4):
        taken.append(band.shape[1])
        assert band.untyped_storage().nbytes() == 2 * 32 * 40 * 4, "channels, rows and columns of float32"
    assert sum(taken) == 300
    assert max(taken) <= 32
