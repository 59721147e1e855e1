"""Order, places, classes, zoom and resolution of training samples."""

import numpy as np
import pytest
import torch

from segmeter.bridge.arrays import to_torch
from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, DataError
from segmeter.training.data import sampling
from segmeter.training.data.augment import Augment
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.batches import Batches, augmented
from segmeter.training.data.epoch import LEAST_BATCHES, Sources
from segmeter.training.data.sampling import KEPT_PIXELS, SampleSource, class_pixels
from segmeter.training.data.windows import resize_image, resize_target
from tests.models.parts import make_spec
from tests.training.tiny import ArrayCases


def array_cases(pairs, spec=None):
    samples = [Sample(case_id=f"case{i}", image=image, target=target) for i, (image, target) in enumerate(pairs)]
    return ArrayCases(spec or make_spec(), samples)


def numbered_cases(count: int, size=(40, 50), spec: ClassSpec | None = None) -> ArrayCases:
    """Each pixel holds its row, its column and the number of its case, and its target follows from them."""
    rows, columns = np.indices(size, dtype=np.uint8)
    spec, pairs = spec or make_spec(), []
    for case in range(count):
        image, target = np.stack([rows, columns, np.full(size, case, np.uint8)], -1), (rows + columns + case) % 3
        planes = np.stack([target == k for k in range(3)]).astype(np.uint8)
        pairs.append((image, planes if spec.is_multilabel else target))
    return array_cases(pairs, spec)


def source_of(cases: ArrayCases, *, batch_size=4, seed=0, **config) -> SampleSource:
    return SampleSource(cases, AugmentConfig(**config), batch_size=batch_size, seed=seed)


def sample(source: SampleSource, *place, **options) -> tuple[np.ndarray, np.ndarray]:
    image, target, size = source.cut_sample(*place, **options)
    return resize_image(image, size), resize_target(target, size)


NOTHING = {"flip_horizontal": False, "brightness": 0.0, "contrast": 0.0, "crop": None}


@pytest.mark.parametrize(("count", "batches", "full"), [(10, 2, 4), (8, 2, 4), (3, 1, 3), (1, 1, 1), (0, 0, 1)])
def test_what_is_not_changed_is_never_taken_twice_in_an_epoch(caplog, count, batches, full):
    source = source_of(numbered_cases(count), **NOTHING)
    assert (len(source), source.batch_size) == (batches, full)
    assert (f"batches of {count} samples instead of 4" in caplog.text) == (0 < count < 4)
    taken = [source.batch(0, index)[2] for index in range(len(source))]
    assert all(len(numbers) == full for numbers in taken)
    numbers = np.concatenate([np.zeros(0, int), *taken]).tolist()
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(range(count))


@pytest.mark.parametrize(
    ("count", "options", "batches"),
    [(3, {}, LEAST_BATCHES), (100, {}, 12), (0, {}, 0), (10, {"samples": 8}, 1), (10, {"samples": 500}, 62)],
)
def test_an_epoch_has_a_sensible_number_of_steps_or_the_samples_that_are_asked_for(count, options, batches):
    source = SampleSource(numbered_cases(count), AugmentConfig(), batch_size=8, seed=0, **options)
    assert len(source) == batches
    if options:
        seen = {int(n) % 10 for epoch in range(20) for n in source.batch(epoch, 0)[2]}
        assert seen == set(range(10))  # another part of the data in each epoch


SOURCES = Sources(of=np.zeros(10, np.int64), weights=(1.0,))


@pytest.mark.parametrize(
    ("options", "config", "key"),
    [
        ({"samples": 11}, {}, "samples_per_epoch"),
        ({}, {"balance": 0.5}, "balance"),
        ({"sources": SOURCES}, {}, "sources"),
    ],
)
def test_what_would_take_the_same_sample_twice_is_refused(options, config, key):
    message = rf"`{key}` not to need a sample twice, .* of the 10 cases"
    with pytest.raises(ConfigError, match=message):
        SampleSource(numbered_cases(10), AugmentConfig(**NOTHING, **config), batch_size=2, seed=0, **options)
    SampleSource(numbered_cases(10), AugmentConfig(**NOTHING), batch_size=2, seed=0, samples=10)
    changing = SampleSource(numbered_cases(10), AugmentConfig(**config), batch_size=2, seed=0, **options)
    assert changing.batch(0, 0)[0].shape[0] == 2


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"crop": (16, 16), "balance": 1.0},
        {"crop": (16, 16), "zoom": (0.8, 1.25), "rotate": 180.0, "noise": 0.1, "flip_vertical": True},
    ],
    ids=["whole", "balanced", "strong"],
)
def test_no_two_samples_of_an_epoch_have_the_same_bits(config):
    """Of 3 cases 24 samples each: image and target, after the augmentation on the device."""
    cases = numbered_cases(3, size=(24, 24))
    augment = AugmentConfig(**config)
    source = SampleSource(cases, augment, batch_size=8, seed=0, samples=72)
    change = Augment(augment, cases.spec)
    seen = set()
    for index in range(len(source)):
        image, target, numbers, _ = source.batch(4, index)
        batch = to_torch(image).permute(0, 3, 1, 2), to_torch(target)
        images, targets = change(*batch, change.draw(seed=0, epoch=4, indices=numbers, channels=image.shape[-1]))
        seen |= {(one.numpy().tobytes(), other.numpy().tobytes()) for one, other in zip(images, targets, strict=True)}
    assert len(seen) == 72


@pytest.mark.parametrize("crop", [None, (16, 24)])
def test_a_sample_is_the_image_or_a_window_of_it_and_its_target_alike(crop):
    cases = numbered_cases(8)
    image, target, indices, _ = source_of(cases, crop=crop).batch(2, 1)
    height, width = crop or (40, 50)
    assert image.shape == (4, height, width, 3)
    assert (image.dtype, target.dtype, indices.dtype) == (np.uint8, np.uint8, np.int64)
    for row, index in enumerate(indices):
        top, left = image[row, 0, 0, :2]
        assert np.array_equal(image[row], cases[index].image[top : top + height, left : left + width])
        assert np.array_equal(target[row], cases[index].target[top : top + height, left : left + width])


def test_a_sample_depends_on_seed_epoch_and_case_alone():
    config = {"crop": (20, 20), "zoom": (0.5, 2.0)}
    cases = numbered_cases(12)
    alone = source_of(cases, batch_size=1, **config)
    for batch_size in (3, 4):
        image, target, indices, _ = source_of(cases, batch_size=batch_size, **config).batch(5, 1)
        for row, index in enumerate(indices):
            expected_image, expected_target = sample(alone, 5, int(index))
            assert np.array_equal(image[row], expected_image)
            assert np.array_equal(target[row], expected_target)
    other_epoch, other_seed = sample(alone, 6, 0)[0], sample(source_of(cases, seed=1, **config), 5, 0)[0]
    assert not np.array_equal(sample(alone, 5, 0)[0], other_epoch)
    assert not np.array_equal(sample(alone, 5, 0)[0], other_seed)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_share_the_samples_of_a_batch(processes):
    """Whatever their number, together they take what one takes. Mutation seen to fail: the slice without `rank`."""
    config = AugmentConfig(crop=(16, 24), zoom=(0.5, 1.5), balance=0.5)
    whole = SampleSource(numbered_cases(12), config, batch_size=5, seed=3)
    shares = [
        SampleSource(numbered_cases(12), config, batch_size=5, seed=3, part=(rank, processes))
        for rank in range(processes)
    ]
    for epoch, index in ((0, 0), (0, 1), (3, 1)):
        for expected, *given in zip(
            whole.batch(epoch, index)[:3], *(share.batch(epoch, index)[:3] for share in shares), strict=True
        ):
            together = np.empty_like(expected)
            for rank, part in enumerate(given):
                together[rank::processes] = part
            assert np.array_equal(together, expected)


def test_images_of_several_sizes_need_a_crop():
    sizes = ((20, 30), (30, 20))
    pairs = [(np.zeros((*size, 1), np.uint8), np.zeros(size, np.uint8)) for size in sizes]
    cases = array_cases(pairs)
    with pytest.raises(DataError, match=r"expected `crop` to be given .* Set augment.crop"):
        source_of(cases, batch_size=2, crop=None).batch(0, 0)
    assert source_of(cases, batch_size=2, crop=(16, 16)).batch(0, 0)[0].shape == (2, 16, 16, 1)


def test_a_case_without_a_target_is_refused_by_name():
    cases = array_cases([(np.zeros((20, 20, 1), np.uint8), None)])
    with pytest.raises(DataError, match="case0: expected `target` to be there"):
        source_of(cases, batch_size=1).batch(0, 0)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("config", [{"zoom": (0.6, 1.5), "balance": 0.5}, {"resolution": 0.5}, {}], ids=str)
def test_batches_that_the_device_resizes_are_those_of_the_host(task, config):
    cases = numbered_cases(5, size=(90, 110), spec=make_spec(task=task))
    options = {"batch_size": 4, "seed": 3, "samples": 40}
    config = AugmentConfig(crop=(64, 64), **config)
    host, device = (SampleSource(cases, config, defer=defer, **options) for defer in (False, True))
    cpu = torch.device("cpu")
    for first, progress in ((0, 0.0), (2 * len(host), 0.4)):
        at = {"first": first, "progress": lambda number, part=progress: part, "workers": 0, "device": cpu}
        with Batches(host, **at) as one, Batches(device, **at) as two:
            for _ in range(3):
                here, there = one.next_batch(), two.next_batch()
                assert here.resizing is None
                for ours, theirs in zip(augmented(here, None), augmented(there, None), strict=True):
                    assert torch.equal(ours, theirs)
                assert here.indices.tolist() == there.indices.tolist()
    assert (there.resizing is None) == (config.zoom == (1.0, 1.0) and config.resolution == 1.0)


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
    assert [source_of(cases, crop=(40, 40), zoom=(zoom, zoom)).cut_sample(0, 0)[1].shape for zoom in (0.5, 2.0)] == [
        *((80, 80), (20, 20))
    ]


def test_samples_are_made_as_small_as_the_network_sees_them():
    cases = numbered_cases(1, size=(64, 96))
    source = SampleSource(cases, AugmentConfig(crop=(64, 96)), batch_size=1, seed=0, downsample=2)
    image, target, *_ = source.batch(0, 0)
    assert (image.shape, target.shape) == ((1, 32, 32, 3), (1, 32, 32))  # 48 columns are 32, as that is the stride
    rows = image[0, :, 0, 0].astype(float)
    assert rows[-1] - rows[0] == pytest.approx(62, abs=1.5)  # from the first rows of the image to the last


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
