"""Windows of images: their places, what they hold, and resizing."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.classes import ClassSpec
from segmeter.training.data.windows import (
    Resizing,
    Window,
    cut,
    resize_batch,
    resize_image,
    resize_planes,
    resize_target,
    slide,
    stack_windows,
)


@pytest.mark.parametrize("size", [(9, 13), (40, 30), (20, 61)])
def test_resize_matches_pillow_for_uint8(size):
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    reference = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
    assert np.abs(resize_image(image, size).astype(int) - reference.astype(int)).max() <= 1  # both round twice


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_resize_keeps_the_dtype_and_the_range(dtype):
    image = np.full((8, 8, 2), 65535, dtype)
    resized = resize_image(image, (5, 3))
    assert resized.dtype == dtype
    np.testing.assert_allclose(resized, np.full((5, 3, 2), 65535, dtype), rtol=1e-6 if dtype is np.float32 else 0)


def test_resize_of_a_target_takes_the_value_at_the_centre():
    target = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.uint16)
    assert resize_target(target, (2, 2)).tolist() == [[1, 3], [5, 7]]
    assert resize_target(target, (1, 8)).tolist() == [[4, 4, 5, 5, 6, 6, 7, 7]]
    assert resize_target(target, (2, 4)).dtype == np.uint16


SPEC = ClassSpec(task="multiclass", names=("a", "b"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)


def test_a_window_starts_anywhere_inside_or_around_the_image():
    assert [slide(10, 7, part) for part in (0.0, 0.24, 0.25, 0.5, 0.99)] == [0, 0, 1, 2, 3]
    assert [slide(7, 10, part) for part in (0.0, 0.5, 0.99)] == [-3, -1, 0]


@pytest.mark.parametrize("ignore_index", [255, None])
def test_cut_mirrors_the_image_beyond_its_edge_and_ignores_the_target_where_it_can(ignore_index):
    image = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    target = np.array([[0, 1, 0], [1, 1, 0]], np.uint8)
    spec = SPEC.replace(ignore_index=ignore_index)
    inside, inside_target = cut(image, target, Window(0, 1, 2, 2), spec)
    assert (inside[..., 0].tolist(), inside_target.tolist()) == ([[1, 2], [4, 5]], [[1, 0], [1, 0]])
    beyond, beyond_target = cut(image, target, Window(-1, 1, 3, 3), spec)
    assert beyond[..., 0].tolist() == [[1, 2, 2], [1, 2, 2], [4, 5, 5]]
    outside = [[255, 255, 255], [1, 0, 255], [1, 0, 255]] if ignore_index else [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert beyond_target.tolist() == outside


def test_cut_keeps_the_planes_of_a_multilabel_target():
    planes = np.zeros((2, 4, 4), np.uint8)
    planes[1, 3, 3] = 1
    _, found = cut(np.zeros((4, 4, 1), np.uint8), planes, Window(2, 2, 3, 2), SPEC)
    assert found.shape == (2, 3, 2)
    assert found[1].tolist() == [[0, 0], [0, 1], [255, 255]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("planes", [(), (2,)], ids=["labels", "planes"])
def test_the_device_resizes_as_the_host_does(dtype, planes):
    rng = np.random.default_rng(0)
    sizes, size = ((20, 31), (44, 18), (24, 16)), (24, 16)
    images = [(rng.random((*each, 3)) * 200).astype(dtype) for each in sizes]
    targets = [rng.integers(0, 9, (*planes, *each)).astype(np.uint8) for each in sizes]
    image = to_torch(stack_windows(images, axis=0)).permute(0, 3, 1, 2)
    target = to_torch(stack_windows(targets, axis=len(planes)))
    found, labels = resize_batch(image, target, Resizing(sizes, size))
    assert (found.shape, found.dtype) == ((3, 3, *size), image.dtype)
    for index in range(3):
        np.testing.assert_array_equal(to_numpy(found[index].permute(1, 2, 0)), resize_image(images[index], size))
        np.testing.assert_array_equal(to_numpy(labels[index]), resize_target(targets[index], size))


def test_where_only_floats_can_be_resized_bytes_are_within_one():
    """On a GPU uint8 goes through float32, and is rounded once."""
    image = torch.randint(0, 256, (2, 3, 30, 41), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    exact = functional.interpolate(image.double(), (17, 60), mode="bilinear", antialias=True, align_corners=False)
    ours = resize_planes(image, (17, 60)).double()
    wide = resize_planes(image.to(torch.uint16), (17, 60)).double()  # takes that way on a CPU too
    assert (wide - exact).abs().max() <= 0.501
    assert (ours - exact).abs().max() <= 1.01
