"""What augmentation does to image and target, what its draws depend on, and the crop that suits the images."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from segmeter.training.data.augment import Augment, add_noise, apply_gamma, blur, turned_grid
from segmeter.training.data.augment_config import AugmentConfig, choose_crop
from tests.models.parts import make_spec

EVERYTHING = {"flip_horizontal": True, "flip_vertical": True, "rotate": 30.0, "shear": 10.0}
EVERYTHING |= {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "colour": 0.2}
EVERYTHING |= {"gamma": 0.5, "noise": 0.1, "blur": 1.0}


def augment_of(spec=None, **config) -> Augment:
    nothing = {"flip_horizontal": False, "brightness": 0.0, "contrast": 0.0}
    return Augment(AugmentConfig(**{**nothing, **config}), spec or make_spec())


def random_batch(count=4, *, channels=3, size=(12, 16), seed=0):
    rng = np.random.default_rng(seed)
    image = torch.from_numpy(rng.integers(0, 256, (count, channels, *size), dtype=np.uint8))
    target = torch.from_numpy(rng.integers(0, 3, (count, *size), dtype=np.uint8))
    return image, target


def apply(augment, image, target, *, epoch=0, indices=None, seed=0):
    indices = np.arange(len(image)) if indices is None else np.asarray(indices)
    draws = augment.draw(seed=seed, epoch=epoch, indices=indices, channels=image.shape[1])
    return augment(image, target, draws)


def test_draws_depend_on_seed_epoch_and_case_alone():
    augment = augment_of(**EVERYTHING)
    image, target = random_batch(6)
    together, labels = apply(augment, image, target, epoch=3)
    for rows in ([4], [5, 1], [2, 0, 3]):
        some, some_labels = apply(augment, image[rows], target[rows], epoch=3, indices=rows)
        torch.testing.assert_close(some, together[rows], rtol=0, atol=1e-6)
        assert torch.equal(some_labels, labels[rows])
    for other in (apply(augment, image, target, epoch=4), apply(augment, image, target, epoch=3, seed=1)):
        assert not torch.equal(other[0], together)


@pytest.mark.parametrize("name", ["noise", "gamma", "blur", "brightness"])
def test_one_setting_does_not_change_what_another_one_draws(name):
    image, target = random_batch(8)
    _, alone = apply(augment_of(rotate=30.0, flip_vertical=True), image, target)
    _, beside = apply(augment_of(rotate=30.0, flip_vertical=True, **{name: 0.5}), image, target)
    assert torch.equal(alone, beside)


@pytest.mark.parametrize(("name", "axis"), [("flip_horizontal", -1), ("flip_vertical", -2)])
def test_flips_mirror_half_of_the_samples_with_their_targets(name, axis):
    image, target = random_batch(200)
    flipped, labels = apply(augment_of(**{name: True}), image, target)
    mirrored = [torch.equal(new, old.flip(axis)) for new, old in zip(flipped, image, strict=True)]
    assert 0.4 < np.mean(mirrored) < 0.6
    for row, is_mirrored in enumerate(mirrored):
        assert torch.equal(flipped[row], image[row].flip(axis) if is_mirrored else image[row])
        assert torch.equal(labels[row], target[row].flip(axis) if is_mirrored else target[row])
    assert flipped.dtype == torch.uint8


@pytest.mark.parametrize(("angle", "right", "down"), [(0.3, 0.0, 0.0), (0.0, 0.5, 0.0), (0.3, 0.5, 0.2)])
def test_neighbours_after_a_turn_and_a_shear_of_an_image_that_is_not_square(angle, right, down):
    """Lengths and right angles survive a turn; a shear moves rows along themselves by `right`, columns by `down`."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    expected = turn @ np.array([[1, right], [down, 1]])
    given = {"angle": angle, "shear_x": right, "shear_y": down}
    grid = turned_grid(torch.Size([20, 60]), **{name: torch.tensor([value]) for name, value in given.items()})[0]
    pixels = grid * torch.tensor([30.0, 10.0])  # from half images to pixels
    steps = torch.stack([pixels[5, 8] - pixels[5, 7], pixels[6, 7] - pixels[5, 7]])
    torch.testing.assert_close(steps.T.double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ignore_index", [255, None], ids=["ignored", "mirrored"])
def test_what_is_turned_in_from_outside_is_ignored_where_it_can_be(ignore_index):
    image = torch.full((8, 3, 30, 30), 128, dtype=torch.uint8)
    target = torch.ones(8, 30, 30, dtype=torch.uint8)
    turned, labels = apply(augment_of(make_spec().replace(ignore_index=ignore_index), rotate=45.0), image, target)
    assert set(labels.unique().tolist()) == ({1} if ignore_index is None else {1, 255})
    torch.testing.assert_close(turned, torch.full_like(turned, 128 / 255))  # mirrored, so without a border
    assert bool((labels[:, 15, 15] == 1).all())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_targets_keep_their_dtype_and_hold_only_their_values(dtype):
    image, _ = random_batch(4)
    values = [0, 2] if dtype == torch.uint8 else [0, 1000]
    target = torch.tensor(values, dtype=dtype)[torch.randint(2, (4, 12, 16), generator=torch.Generator())]
    spec = make_spec().replace(ignore_index=255 if dtype == torch.uint8 else 60001)
    _, labels = apply(augment_of(spec, rotate=20.0, shear=20.0), image, target)
    assert labels.dtype == dtype
    assert set(labels.unique().tolist()) == {*values, spec.ignore_index}


def test_multilabel_targets_turn_as_planes_of_their_own():
    spec = make_spec(2, "multilabel")
    image, plane = random_batch(4)
    planes = torch.stack([plane % 2, (plane + 1) % 2], dim=1)
    _, labels = apply(augment_of(spec, **EVERYTHING), image, planes)
    _, one = apply(augment_of(spec, **EVERYTHING), image, planes[:, 1])
    assert labels.shape == planes.shape
    assert torch.equal(labels[:, 1], one)


def test_brightness_contrast_saturation_and_colour_by_hand():
    """A grey level and a colour, changed with the extreme draws that leave no room for chance."""
    image = torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1, 1).repeat(1, 1, 2, 2)
    image[..., 0, 0] = 0.0
    draws = {name: torch.tensor([1.0]) for name in ("brightness", "contrast", "saturation")}
    gains = torch.tensor([[0.0, 0.5, 1.0]])

    def recolour(**config):
        return augment_of(**config)._recolour(image, draws, gains)[0, :, 1, 1].tolist()

    assert recolour(brightness=0.5) == pytest.approx([0.3, 0.6, 0.9])
    assert recolour(colour=0.5) == pytest.approx([0.1, 0.4, 0.9])
    # the mean over all is 0.3: three pixels of mean 0.4, one of 0
    assert recolour(contrast=0.5) == pytest.approx([0.15, 0.45, 0.75])
    assert recolour(saturation=0.5) == pytest.approx([0.1, 0.4, 0.7])


def test_gamma_is_a_power_on_the_image_s_own_range():
    image = torch.tensor([[10.0, 12.0, 14.0, 18.0]]).view(1, 1, 2, 2)
    changed = apply_gamma(image, torch.tensor([2.0])).flatten()
    torch.testing.assert_close(changed, torch.tensor([10.0, 10.5, 12.0, 18.0]))  # 10 + 8 (0, 1/4, 1/2, 1) squared
    constant = torch.full((1, 1, 2, 2), 0.3)
    torch.testing.assert_close(apply_gamma(constant, torch.tensor([0.5])), constant)


def test_blur_is_scipy_s_gaussian_filter():
    image = torch.from_numpy(np.random.default_rng(0).random((3, 2, 15, 18), dtype=np.float32))
    sigma = [0.0, 0.8, 1.5]
    blurred = blur(image, torch.tensor(sigma), most=1.5)
    for row, each in enumerate(sigma):
        for channel in range(2):
            plane = image[row, channel].numpy()
            reference = ndimage.gaussian_filter(plane, each, mode="nearest", radius=5) if each else plane
            np.testing.assert_allclose(blurred[row, channel].numpy(), reference, rtol=1e-5, atol=1e-6)


def test_noise_is_a_share_of_the_image_s_own_deviation():
    image = torch.from_numpy(np.random.default_rng(0).normal(50, 8, (2, 1, 100, 100)).astype(np.float32))
    noisy = add_noise(image, torch.tensor([0.0, 0.25]), (1, 2))
    assert torch.equal(noisy[0], image[0])
    added = noisy[1] - image[1]
    assert float(added.std()) == pytest.approx(2.0, rel=0.05)
    assert abs(float(added.mean())) < 0.1


@pytest.mark.parametrize(("dtype", "full"), [(torch.uint8, 255), (torch.uint16, 65535)])
def test_integers_become_shares_of_their_full_scale_and_stay_within_it(dtype, full):
    values = torch.tensor([0, full // 5, full]).to(dtype).view(1, 1, 1, 3).expand(1, 1, 4, 3)
    same, _ = apply(augment_of(brightness=1e-9), values, torch.zeros(1, 4, 3))
    torch.testing.assert_close(same[0, 0, 0], torch.tensor([0.0, 0.2, 1.0]))
    image, _ = apply(augment_of(brightness=0.9, noise=1.0), values.expand(8, 1, 4, 3), torch.zeros(8, 4, 3))
    assert image.dtype == torch.float32
    assert (float(image.min()), float(image.max())) == (0.0, 1.0)


def test_floats_keep_their_scale():
    image = torch.full((4, 1, 6, 6), 1000.0)
    image[..., :3] = -500.0
    changed, _ = apply(augment_of(brightness=0.5), image, torch.zeros(4, 6, 6, dtype=torch.uint8))
    ratio = changed / image
    assert bool(((ratio > 0.5) & (ratio < 1.5)).all())
    torch.testing.assert_close(ratio, ratio[:, :, :1, :1].expand_as(ratio))


@pytest.mark.parametrize(
    ("sizes", "crop"),
    [
        ({(192, 192): 96}, None),
        ({(512, 512): 5}, None),
        ({(512, 544): 5}, (512, 512)),
        ({(40, 9000): 5}, (32, 512)),
        ({(100, 90): 3, (130, 131): 1}, (96, 64)),
        ({(8, 8): 1, (9, 9): 1}, (32, 32)),
        ({(70, 300): 2, (200, 300): 1, (300, 300): 1}, (64, 288)),  # the lower median of 70, 70, 200 and 300
    ],
)
def test_the_crop_that_suits_the_images(sizes, crop):
    assert choose_crop(AugmentConfig(), sizes).crop == crop
    assert choose_crop(AugmentConfig(crop=(64, 64)), sizes).crop == (64, 64)
    assert choose_crop(AugmentConfig(crop=None), sizes).crop is None
