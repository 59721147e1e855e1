"""What images hold per channel, and the normalisation that follows; against NumPy over all pixels together."""

import re
import tracemalloc
import weakref

import numpy as np
import pytest

from segmeter.data.verification import intensity
from segmeter.data.verification.splits import build_dataset, check_dataset, open_splits
from segmeter.errors import DataError
from tests.data.crafted import folder, noise, put


def values_of(dtype, scale, count=7, channels=2):
    rng = np.random.default_rng(3)
    shapes = [(int(rng.integers(5, 30)), int(rng.integers(5, 30)), channels) for _ in range(count)]
    return [(rng.beta(2, 5, shape) * scale * rng.uniform(0.5, 1)).astype(dtype) for shape in shapes]


def data_of(root, images, **fields):
    for number, image in enumerate(images):
        put(root / "images" / f"c{number}.npy", image)
        put(root / "masks" / f"c{number}.png", noise(*image.shape[:2], None, seed=number) % 2)
    return folder(root, in_channels=images[0].shape[2], **fields)


@pytest.mark.parametrize(("dtype", "scale"), [("uint8", 255), ("uint16", 4095), ("float32", 3.5)])
def test_moments_and_range_are_those_of_all_pixels(tmp_path, dtype, scale):
    images = values_of(dtype, scale)
    (found,) = seen_in(data_of(tmp_path, images))
    pixels = np.concatenate([image.reshape(-1, 2) for image in images]).astype(np.float64)
    assert (found.dtype, found.pixels) == (dtype, len(pixels))
    np.testing.assert_allclose(found.mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.std, pixels.std(0), rtol=1e-12)
    np.testing.assert_array_equal(found.low, pixels.min(0))
    np.testing.assert_array_equal(found.high, pixels.max(0))
    exact = np.percentile(pixels, intensity.SHOWN, axis=0)
    assert (np.abs(found.percentiles - exact) < 0.06 * scale).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_percentiles_of_one_image_are_exact(dtype):
    image = values_of(dtype, 200, count=1)[0]
    _, _, levels = intensity.measure_image(image)
    exact = np.quantile(image.reshape(-1, 2), np.array(intensity.LEVELS) / 100, axis=0, method="inverted_cdf")
    np.testing.assert_array_equal(levels.astype(dtype), exact)


def test_images_of_two_dtypes_are_put_on_one_scale(tmp_path):
    eight, sixteen = values_of("uint8", 255, 3), values_of("uint16", 65535, 4)
    pixels = [image.reshape(-1, 2) / full for group, full in ((eight, 255), (sixteen, 65535)) for image in group]
    mean, std = intensity.unit_moments(seen_in(data_of(tmp_path, [*eight, *sixteen])))
    np.testing.assert_allclose(mean, np.concatenate(pixels).mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, np.concatenate(pixels).std(0), rtol=1e-12)


DEFAULT = ((0.5,), (0.25,))


def seen_in(config):
    return check_dataset(build_dataset(config)).intensities


def cells(root, full, dtype, **fields):
    """Three pictures with a dark ground and bright discs, up to this value."""
    rows, columns = np.indices((48, 48))
    images = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        light = 0.15 + 0.05 * rng.standard_normal((48, 48))
        for row, column in rng.integers(8, 40, (5, 2)):
            light[np.hypot(rows - row, columns - column) < 6] += 0.5
        images.append(np.rint(np.clip(light, 0, 1) * full).astype(dtype)[..., None])
    return data_of(root / dtype, images, **fields)


def test_twelve_bits_in_uint16_are_noticed_and_both_remedies_work(tmp_path):
    plain = cells(tmp_path, 4095, "uint16")
    intensities = seen_in(plain)
    (warning,) = intensity.scale_warnings(plain, {"train": intensities})
    assert "of 65535, which is less than an eighth of the scale; set data.mean=auto data.std=auto" in warning
    assert "or data.full_scale=4095 if these are 12-bit images" in warning
    with pytest.raises(DataError, match=r"near mean 0 and spread 1, got mean -1.\d+ and spread 0.0\d+ .*mean=auto"):
        intensity.normalisation(plain, intensities, DEFAULT)
    full = plain.replace(full_scale=4095.0)
    mean, std = intensity.normalisation(full, intensities, DEFAULT)
    np.testing.assert_allclose((mean[0] * 65535, std[0] * 65535), (0.5 * 4095, 0.25 * 4095))
    assert intensity.scale_warnings(full, {"train": intensities}) == []


def reaching(highest, dtype="uint16"):
    """Values of a split of one channel, up to the highest."""
    image = np.linspace(0, highest, 64).astype(dtype).reshape(8, 8, 1)
    return [intensity.merge_images(dtype, np.array([64]), *(each[None] for each in intensity.measure_image(image)))]


@pytest.mark.parametrize(
    ("splits", "named"),
    [
        ({"train": 4095, "val": 30000}, ["of train is 4095"]),
        ({"train": 30000, "val": 4095}, ["of val is 4095"]),
        ({"train": 4000, "val": 4095}, ["of train, val is 4095"]),
        ({"train": 1000, "val": 4095}, ["of train is 1000", "of val is 4095"]),
        ({"train": 30000, "val": 60000}, []),
    ],
)
def test_each_split_is_judged_by_its_own_values(tmp_path, splits, named):
    plain = folder(tmp_path, in_channels=1)
    found = intensity.scale_warnings(plain, {split: reaching(highest) for split, highest in splits.items()})
    assert [re.search("of (train|val).* is [0-9]+", line)[0] for line in found] == named


def test_auto_is_computed_from_the_training_split_alone(tmp_path):
    images = values_of("uint8", 255, 12)
    config = data_of(tmp_path, images, val_fraction=0.4, test_fraction=0, mean="auto", std="auto")
    (train, _), (seen, _) = open_splits(config, ["train", "val"])
    mean, std = intensity.normalisation(config, seen.intensities, ((0.5,) * 2, (0.25,) * 2))
    pixels = np.concatenate([train[i].image.reshape(-1, 2) for i in range(len(train))]) / 255
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(0), rtol=1e-12)


def test_inputs_far_from_the_scale_are_refused_with_the_remedy(tmp_path):
    floats = cells(tmp_path, 255, "float32")
    seen = seen_in(floats)
    with pytest.raises(DataError, match=r"got mean \d\d\d.* Set data.mean=auto data.std=auto\.$"):
        intensity.normalisation(floats, seen, DEFAULT)
    intensity.normalisation(floats.replace(full_scale=255.0), seen, DEFAULT)
    in_bytes = cells(tmp_path, 255, "uint8", mean=(123.7,), std=(58.4,))  # of values in 0..255: a common slip
    with pytest.raises(DataError, match="near mean 0 and spread 1"):
        intensity.normalisation(in_bytes, seen_in(in_bytes), DEFAULT)


def test_what_can_not_be_normalised_is_refused(tmp_path):
    flat = [np.full((5, 6, 2), 7, np.uint8) for _ in range(2)]
    flat[0][..., 0] = np.arange(30).reshape(5, 6)
    mixed = [*values_of("uint8", 255, 2), *values_of("uint16", 4095, 2)]
    for config, rule in (
        (data_of(tmp_path / "flat", flat, mean="auto", std="auto"), "in every channel, got one value in channel 1"),
        (data_of(tmp_path / "mixed", mixed, full_scale=4095.0), "`full_scale` to be null .*, got uint8, uint16"),
        (cells(tmp_path, 4095, "uint16", full_scale=1000.0), "`full_scale` to be at least .*, got 1000, where values"),
    ):
        with pytest.raises(DataError, match=rule):
            intensity.normalisation(config, seen_in(config), DEFAULT)


def test_one_dark_channel_among_others_is_no_fault(tmp_path):
    images = values_of("uint8", 255, 4)
    for image in images:
        image[..., 1] = 0
    config = data_of(tmp_path, images)
    default = ((0.5,) * 2, (0.25,) * 2)
    assert intensity.normalisation(config, seen_in(config), default) == default


def test_images_on_another_scale_than_the_models_are_warned_of(tmp_path):
    """A model of 12-bit images in uint16 sees 8-bit copies sixteen times as bright as it should."""
    twelve = cells(tmp_path, 4095, "uint16", mean="auto", std="auto")
    own, eight = seen_in(twelve), seen_in(cells(tmp_path, 255, "uint8"))
    mean, std = intensity.normalisation(twelve, own, DEFAULT)
    assert intensity.mismatch_warnings(own, mean, std) == []
    (line,) = intensity.mismatch_warnings(eight, mean, std)
    assert re.search("uint8 from .* mean little", line)


def watched(*parts, **options):
    """How many lines a watch gives for each image of each part, and for all of them when it ends."""
    watch = intensity.ScaleWatch((0.5,), (0.25,), **options)
    return [[len(watch.add(image)) for image in part] for part in parts], len(watch.close())


TWELVE = [(np.random.default_rng(i).random((20, 20, 1)) * 4095).astype(np.uint16) for i in range(12)]
FULL, DARK = [image * 16 for image in TWELVE], np.zeros((20, 20, 1), np.uint16)


def test_images_that_nobody_verified_are_watched_and_the_warning_is_given_once():
    assert watched(TWELVE) == ([[0] * 7 + [1] + [0] * 4], 0)
    assert watched(TWELVE[:2]) == ([[0, 0]], 1)
    assert watched([*FULL, DARK]) == ([[0] * 13], 0)  # one dark image among others is no other scale
    assert watched([*FULL[:8], DARK]) == ([[0] * 9], 0)
    (before, after), _ = watched(FULL * 2, TWELVE)
    assert (sum(before), sum(after)) == (0, 1)  # three times eight
    assert watched([]) == ([[]], 0)
    watch = intensity.ScaleWatch((0.5,), (0.25,))
    assert "uint16 from" in next(line for image in TWELVE for line in watch.add(image))


def test_a_watch_without_an_end_looks_after_every_image():
    off = np.full((20, 20, 1), 200.0, np.float32)
    assert sum(watched([*FULL[:8], DARK, *FULL, DARK], at_once=True)[0][0]) == 0
    assert watched([off, off, FULL[0]], at_once=True)[0] == [[1, 0, 0]]


@pytest.mark.parametrize(("dtype", "scale"), [("uint8", 200), ("uint16", 60_000), ("float32", 0.9)])
def test_clipped_moments_and_limits_are_those_of_the_pixels_cut_off(tmp_path, dtype, scale):
    """One image, whose percentiles are exact; the moments between them are near those of NumPy."""
    image = values_of(dtype, scale, count=1)[0]
    image[0, 0] = np.array(255 if dtype == "uint8" else 65535 if dtype == "uint16" else 40).astype(dtype)
    config = data_of(tmp_path, [image], clip=(2, 98), mean="auto", std="auto")
    (found,) = seen_in(config)
    pixels = image.reshape(-1, 2).astype(np.float64)
    exact = np.quantile(pixels, [0.02, 0.98], axis=0, method="inverted_cdf")
    limits = np.array(intensity.clip_limits(config, [found])).T * found.full_scale
    np.testing.assert_allclose(limits, exact, rtol=1e-6)
    cut = np.clip(pixels, *exact) / found.full_scale
    mean, std = intensity.normalisation(config, [found], ((0.5,) * 2, (0.25,) * 2))
    np.testing.assert_allclose(mean, cut.mean(0), rtol=0.05)
    np.testing.assert_allclose(std, cut.std(0), rtol=0.1)


def test_clipping_that_leaves_no_range_is_refused_with_the_name_of_the_channel(tmp_path):
    images = values_of("uint8", 255)
    for image in images:
        image[1:, :, 1] = 7  # more than 98 % of it
        image[:, 1:, 1] = 7
    config = data_of(tmp_path, images, clip=(2, 98), channels=("light", "dark"))
    with pytest.raises(DataError, match=r"`clip` to leave a range in channel dark, got 7 at both percentiles"):
        intensity.clip_limits(config, seen_in(config))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_counting_some_rows_at_a_time_changes_no_bit(monkeypatch, dtype):
    image = np.sort(np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (37, 23, 3)).astype(dtype), axis=0)
    whole = intensity.measure_image(image)
    monkeypatch.setattr("segmeter.data.sample._AT_ONCE", 100)
    for one, other in zip(whole, intensity.measure_image(image), strict=True):
        np.testing.assert_array_equal(one, other)


def test_measuring_an_image_takes_little_more_memory_than_the_image():
    image = np.zeros((4096, 4096, 3), np.uint8)
    tracemalloc.start()
    intensity.measure_image(image)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < image.nbytes / 3


def test_bands_of_floats_are_dropped_once_they_are_measured():
    alive, most = [], []

    def bands():
        for number in range(40):
            band = np.full((32, 8, 1), number, np.float32)
            alive.append(weakref.ref(band))
            yield band
            del band
            most.append(sum(each() is not None for each in alive))

    intensity.measure_rows(bands(), np.dtype(np.float32))
    assert max(most) <= 2
