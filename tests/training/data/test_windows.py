"""Windows of samples: what they hold, resizing, and windows of large images, which are cut from their files."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch.nn import functional

from segmeter.data.dataset import Dataset
from segmeter.data.folder import build_folder
from segmeter.data.verification.splits import build_dataset, open_splits
from segmeter.errors import DataError
from segmeter.training.data import windows
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.data.sampling import SampleSource, sample_size
from segmeter.training.data.windows import PartReader, StoredArray, cut, resize_image, resize_planes, resize_target
from tests.data.crafted import folder, make_folder, noise, put, write_zarr
from tests.models.parts import make_spec


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


@pytest.mark.parametrize("ignore_index", [255, None])
def test_cut_mirrors_the_image_beyond_its_edge_and_ignores_the_target_where_it_can(ignore_index):
    image = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    target = np.array([[0, 1, 0], [1, 1, 0]], np.uint8)
    spec = make_spec().replace(ignore_index=ignore_index)
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


def test_cut_keeps_the_planes_of_a_multilabel_target():
    planes = np.zeros((2, 4, 4), np.uint8)
    planes[1, 3, 3] = 1
    _, found = cut(np.zeros((4, 4, 1), np.uint8), planes, (2, 2), (3, 2), make_spec())
    assert found.shape == (2, 3, 2)
    assert found[1].tolist() == [[0, 0], [0, 1], [255, 255]]


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


TASKS = {"binary": ("background", "cell"), "multiclass": ("a", "b", "c"), "multilabel": ("vessel", "disc")}


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch, tmp_path):
    monkeypatch.setattr(windows, "LEAST_PIXELS", 60 * 50)
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))


SAVE = {
    "tif": lambda path, array: tifffile.imwrite(path, array, tile=(32, 32)),
    "npy": np.save,
    "zarr": lambda path, array: write_zarr(path, array, "yxc"[: array.ndim], chunks=(32, 32, 3)[: array.ndim]),
}


def open_set(config):
    """All cases, with files that are not verified."""
    return replace(build_folder(config, split="all"), streams=True)


def write_set(root, task, *, suffix="tif"):
    save = SAVE[suffix]
    folders = [root / "masks" / name for name in TASKS[task]] if task == "multilabel" else [root / "masks"]
    for each in (root / "images", *folders):
        each.mkdir(parents=True, exist_ok=True)
    for seed in range(3):
        height, width = 80 + 7 * seed, 96 + 5 * seed
        save(root / "images" / f"c{seed}.{suffix}", noise(height, width, 3, seed=seed))
        for place, each in enumerate(folders):
            most = 3 if task == "multiclass" else 2
            mask = noise(height, width, None, seed=10 + seed + 5 * place) % most
            mask[0, :9] = 255
            save(each / f"c{seed}.{suffix}", mask)
    return folder(root, task=task, classes=TASKS[task], ignore_index=255)


def source_of(dataset, *, whole):
    cases = CachedDataset(dataset, Budget(0), parts=(lambda index: None) if whole else PartReader(dataset))
    config = AugmentConfig(crop=(32, 48), zoom=(0.3, 1.5), balance=0.5)
    return SampleSource(
        cases, config, batch_size=3, seed=4, samples=12, presence=np.ones((3, len(dataset.spec.names)), bool)
    )


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("task", TASKS)
def test_batches_are_those_of_decoded_images_and_no_file_is_read_whole(tmp_path, task, suffix, monkeypatch):
    dataset = open_set(write_set(tmp_path, task, suffix=suffix))
    whole = [source_of(dataset, whole=True).batch(2, index) for index in range(4)]
    monkeypatch.setattr(Dataset, "__getitem__", None)
    source = source_of(dataset, whole=False)
    for index in range(4):
        for found, wanted in zip(source.batch(2, index)[:3], whole[index][:3], strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_what_the_cache_has_room_for_is_decoded_once_and_kept(tmp_path):
    dataset = build_dataset(write_set(tmp_path, "binary"))
    cases = CachedDataset(dataset, Budget(80 * 96 * 4), parts=PartReader(dataset))
    assert isinstance(cases.opened(0).image, np.ndarray)
    assert cases.opened(0) is cases.opened(0)
    assert not isinstance(cases.opened(1).image, np.ndarray)


def test_small_images_pictures_and_other_formats_are_read_whole(tmp_path, monkeypatch):
    make_folder(tmp_path / "png", height=90, width=90)
    pictures = build_dataset(folder(tmp_path / "png"))
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "header_of", None)  # a suffix says enough
        assert PartReader(pictures)(0) is None
    mixed = write_set(tmp_path / "mixed", "binary")
    (tmp_path / "mixed" / "masks" / "c0.tif").unlink()
    put(tmp_path / "mixed" / "masks" / "c0.png", noise(80, 96, None) % 2)
    reader = PartReader(build_dataset(mixed))
    assert reader(0) is None
    assert reader(1) is not None
    monkeypatch.setattr(windows, "LEAST_PIXELS", 1 << 22)
    assert PartReader(build_dataset(mixed))(1) is None


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (noise(80, 96, None), {"photometric": "minisblack"}),
        (noise(80, 96, 3).astype(np.int16), {"photometric": "rgb"}),
        (noise(80, 96, None), {"photometric": "palette", "colormap": np.zeros((3, 256), np.uint16)}),
    ],
    ids=["gray", "int16", "palette"],
)
def test_images_that_would_have_to_be_converted_are_read_whole(tmp_path, image, options):
    config = write_set(tmp_path, "binary")
    tifffile.imwrite(tmp_path / "images" / "c0.tif", image, tile=(32, 32), **options)
    reader = PartReader(open_set(config))
    assert (reader(0), reader(1) is None) == (None, False)


def test_a_file_without_the_verified_content_is_named_where_it_is_met(tmp_path):
    (dataset,), _ = open_splits(write_set(tmp_path, "binary"), ["all"])
    tifffile.imwrite(tmp_path / "images" / "c1.tif", noise(87, 101, 3, seed=77), tile=(32, 32))
    image = PartReader(dataset)(1).image
    with pytest.raises(DataError, match=r"c1.tif: expected `file` to have the content that was checked at the start"):
        image[0:5, 0:5]


@pytest.mark.parametrize(("value", "tags"), [(7, []), (1, [(42113, "s", 2, "1", True)])], ids=["label", "nodata"])
def test_a_value_that_is_no_label_or_marks_missing_data_is_refused_where_it_is_met(tmp_path, value, tags):
    config = write_set(tmp_path, "binary")
    mask = np.full((80, 96), value, np.uint8)
    tifffile.imwrite(tmp_path / "masks" / "c0.tif", mask, tile=(32, 32), extratags=tags)
    target = PartReader(build_dataset(config))(0).target
    with pytest.raises(DataError, match=rf"c0\.tif: .*{'nodata' if tags else 'got 7'}"):
        target[..., 0:3, 0:3]


def test_the_size_in_memory_is_that_of_the_whole_array():
    assert StoredArray((4, 5, 3), np.dtype(np.uint16), None, axis=0).nbytes == 120
