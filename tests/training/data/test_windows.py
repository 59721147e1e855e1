"""Windows of samples: where they lie, around which classes, what they hold, and resizing."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from segmeter.classes import ClassSpec
from segmeter.training.data import sampling
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.sampling import KEPT_PIXELS, SampleSource, class_pixels, sample_size
from segmeter.training.data.windows import cut, resize_image, resize_planes, resize_target
from tests.models.parts import make_spec
from tests.training.data.test_sampling import array_cases, numbered_cases, sample, source_of


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


@pytest.mark.parametrize("ignore_index", [255, None])
def test_cut_mirrors_the_image_beyond_its_edge_and_ignores_the_target_where_it_can(ignore_index):
    image = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    target = np.array([[0, 1, 0], [1, 1, 0]], np.uint8)
    spec = SPEC.replace(ignore_index=ignore_index)
    inside, inside_target = cut(image, target, (0, 1), (2, 2), spec)
    assert (inside[..., 0].tolist(), inside_target.tolist()) == ([[1, 2], [4, 5]], [[1, 0], [1, 0]])
    beyond, beyond_target = cut(image, target, (-1, 1), (3, 3), spec)
    assert beyond[..., 0].tolist() == [[1, 2, 2], [1, 2, 2], [4, 5, 5]]
    outside = [[255, 255, 255], [1, 0, 255], [1, 0, 255]] if ignore_index else [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert beyond_target.tolist() == outside


def test_where_only_floats_can_be_resized_bytes_are_within_one():
    """On a GPU uint8 goes through float32, and is rounded once."""
    image = torch.randint(0, 256, (2, 3, 30, 41), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    exact = functional.interpolate(image.double(), (17, 60), mode="bilinear", antialias=True, align_corners=False)
    ours = resize_planes(image, (17, 60)).double()
    wide = resize_planes(image.to(torch.uint16), (17, 60)).double()  # takes that way on a CPU too
    assert (wide - exact).abs().max() <= 0.501
    assert (ours - exact).abs().max() <= 1.01


def test_a_window_starts_anywhere_inside_a_larger_image():
    source = source_of(numbered_cases(1, size=(22, 19)), crop=(16, 16))
    samples = [sample(source, epoch, 0)[0] for epoch in range(90)]
    assert {int(image[0, 0, 0]) for image in samples} == set(range(7))
    assert {int(image[0, 0, 1]) for image in samples} == set(range(4))


def test_an_image_smaller_than_the_crop_lies_anywhere_in_the_sample():
    source = source_of(numbered_cases(1, size=(10, 12)), crop=(16, 16))
    samples = [sample(source, epoch, 0) for epoch in range(60)]
    assert {image.shape for image, _ in samples} == {(16, 16, 3)}
    assert {int((target != 255).sum()) for _, target in samples} == {120}
    assert {int(np.argmax((target != 255).any(1))) for _, target in samples} == set(range(7))


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_class_pixels_of_a_mask_that_is_read_in_parts_are_those_of_the_whole(task, monkeypatch):
    """Against all positions at once. Mutation seen to fail: positions not moved down by the parts above."""
    rng = np.random.default_rng(2)
    target = rng.integers(0, 3 if task == "multiclass" else 2, ((3, 40, 30), (40, 30))[task == "multiclass"])
    target = target.astype(np.uint8)
    target[..., 10:25, :] = 0
    target[..., :5] = 255
    target[target == 2 if task == "multiclass" else 2] = 0  # a class that is not there
    spec, drawn = make_spec(task=task), np.random.default_rng(7)
    planes = [target == label for label in range(3)] if task == "multiclass" else target == 1
    wanted = {
        label: np.flatnonzero(plane)[drawn.integers(plane.sum(), size=KEPT_PIXELS)]
        for label, plane in enumerate(planes)
        if plane.any()
    }
    for pixels in (30, 210, 1199, 1 << 24):
        monkeypatch.setattr(sampling, "BAND_PIXELS", pixels)
        found = class_pixels(target, spec, np.random.default_rng(7))
        assert list(found) == list(wanted)
        for label, each in found.items():
            np.testing.assert_array_equal(each, wanted[label])


def test_balance_lays_windows_around_classes_evenly():
    target = np.zeros((64, 64), np.uint8)
    target[50, 7] = 1
    target[3:5, 60:62] = 2
    cases = array_cases([(np.zeros((64, 64, 1), np.uint8), target)])
    balanced = SampleSource(cases, AugmentConfig(crop=(16, 16), balance=1.0), batch_size=1, seed=0, samples=1)
    seen = [np.unique(balanced.batch(epoch, 0)[1]) for epoch in range(300)]
    shares = [np.mean([label in labels for labels in seen]) for label in (1, 2)]
    assert all(0.27 < share < 0.45 for share in shares), shares  # a third each, and what others find by chance
    plain = source_of(cases, crop=(16, 16))
    assert np.mean([1 in sample(plain, epoch, 0)[1] for epoch in range(300)]) < 0.15


def test_the_chosen_pixel_lies_anywhere_in_its_window():
    target = np.full((64, 64), 255, np.uint8)
    target[30, 40] = 1
    cases = array_cases([(np.zeros((64, 64, 1), np.uint8), target)])
    source = source_of(cases, crop=(16, 16), balance=1.0)
    places = np.array([np.argwhere(sample(source, epoch, 0, label=1)[1] == 1)[0] for epoch in range(200)])
    assert [set(axis.tolist()) for axis in places.T] == [set(range(16))] * 2


@pytest.mark.parametrize("place", [0, 63])
def test_a_window_around_a_pixel_at_the_edge_lies_inside_the_image(place):
    target = np.zeros((64, 64), np.uint8)
    target[place, place] = 1
    source = source_of(array_cases([(np.zeros((64, 64, 1), np.uint8), target)]), crop=(16, 16), balance=1.0)
    found = [sample(source, epoch, 0, label=1)[1] for epoch in range(20)]
    assert {(int(each.sum()), int(each[place % 48, place % 48])) for each in found} == {(1, 1)}


def test_zoom_magnifies_evenly_on_a_log_scale():
    cases = array_cases([(np.zeros((40, 40, 1), np.uint8), np.zeros((40, 40), np.uint8))])
    source = source_of(cases, crop=(40, 40), zoom=(0.5, 2.0))
    shares = np.array([(sample(source, epoch, 0)[1] != 255).mean() for epoch in range(300)])
    assert 0.42 < np.mean(shares == 1.0) < 0.58  # half of the zooms are >= 1
    assert shares.min() < 0.3
    assert [source_of(cases, crop=(40, 40), zoom=(zoom, zoom)).cut(0, 0)[1].shape for zoom in (0.5, 2.0)] == [
        *((80, 80), (20, 20))
    ]


@pytest.mark.parametrize(("crop", "downsample"), [((64, 64), 8), ((96, 96), 2), (None, 8), ((33, 500), 4)])
def test_the_window_of_a_smaller_sample_is_never_larger_than_the_crop(crop, downsample):
    image = (64, 64)
    (height, width), scale = sample_size(AugmentConfig(crop=crop), image, 1.0, downsample)
    full = crop or image
    assert height / scale <= full[0]
    assert width / scale <= full[1]
    assert crop is not None or (height / scale, width / scale) == full


def test_resolution_stays_until_it_may_grow():
    config = AugmentConfig(crop=(256, 320), resolution=0.5, resolution_from=0.4, resolution_until=0.8)
    shares = [sample_size(config, (360, 480), progress)[1] for progress in (0.0, 0.4, 0.6, 0.8, 1.0)]
    assert shares == pytest.approx([0.5, 0.5, 0.75, 1.0, 1.0])


def test_samples_are_made_as_small_as_the_network_sees_them():
    cases = numbered_cases(1, size=(64, 96))
    source = SampleSource(cases, AugmentConfig(crop=(64, 96)), batch_size=1, seed=0, downsample=2)
    image, target, _ = source.batch(0, 0)
    assert (image.shape, target.shape) == ((1, 32, 32, 3), (1, 32, 32))  # 48 columns are 32, as that is the stride
    rows = image[0, :, 0, 0].astype(float)
    assert rows[-1] - rows[0] == pytest.approx(62, abs=1.5)  # from the first rows of the image to the last


def test_a_lower_resolution_shows_the_same_window_smaller():
    rows, columns = np.indices((128, 128))
    image = np.stack([rows, columns], axis=-1).astype(np.uint8)
    cases = array_cases([(image, np.zeros((128, 128), np.uint8))])
    source = source_of(cases, crop=(64, 64), resolution=0.5)
    early, late = sample(source, 0, 0, 0.0)[0], sample(source, 0, 0, 1.0)[0]
    assert (early.shape, late.shape) == ((32, 32, 2), (64, 64, 2))
    means = late.reshape(32, 2, 32, 2, 2).mean((1, 3))
    assert np.abs(early[1:-1, 1:-1] - means[1:-1, 1:-1]).max() <= 1  # both round


def test_cut_keeps_the_planes_of_a_multilabel_target():
    planes = np.zeros((2, 4, 4), np.uint8)
    planes[1, 3, 3] = 1
    _, found = cut(np.zeros((4, 4, 1), np.uint8), planes, (2, 2), (3, 2), SPEC)
    assert found.shape == (2, 3, 2)
    assert found[1].tolist() == [[0, 0], [0, 1], [255, 255]]
