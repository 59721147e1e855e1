"""Training samples of large images are cut from their files, and are those of the decoded ones."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile

from segmeter.data.dataset import Dataset
from segmeter.data.folder import build_folder
from segmeter.data.verification.report import build_dataset, open_splits
from segmeter.errors import DataError
from segmeter.training.data import windows as parts
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.data.sampling import SampleSource
from segmeter.training.data.windows import PartReader, StoredArray
from tests.data.crafted import folder, make_folder, noise, put, write_zarr

TASKS = {"binary": ("background", "cell"), "multiclass": ("a", "b", "c"), "multilabel": ("vessel", "disc")}


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "LEAST_PIXELS", 60 * 50)
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
        for found, wanted in zip(source.batch(2, index), whole[index], strict=True):
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
    assert PartReader(build_dataset(folder(tmp_path / "png")))(0) is None
    mixed = write_set(tmp_path / "mixed", "binary")
    (tmp_path / "mixed" / "masks" / "c0.tif").unlink()
    put(tmp_path / "mixed" / "masks" / "c0.png", noise(80, 96, None) % 2)
    reader = PartReader(build_dataset(mixed))
    assert reader(0) is None
    assert reader(1) is not None
    monkeypatch.setattr(parts, "LEAST_PIXELS", 1 << 22)
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
