"""From a configuration to data sets that refuse what is wrong, and what is reported of them."""

import json
import time

import numpy as np
import pytest

from segmeter.data.config import CamvidConfig
from segmeter.data.folder import open_images
from segmeter.data.sample import count_classes, count_decided
from segmeter.data.verification.splits import build_dataset, check_dataset, check_splits, describe_report, open_splits
from segmeter.errors import ConfigError, DataError
from tests.data.crafted import BINARY, folder, listed, make_folder, noise, put
from tests.data.formats_written import coco_content
from tests.data.volumes import save_nifti, save_volume
from tests.models.parts import make_spec


def test_report_adds_up_over_cases(tmp_path):
    make_folder(tmp_path)
    put(tmp_path / "images" / "c.png", noise(5, 4))
    put(tmp_path / "masks" / "c.png", np.full((5, 4), 9, np.uint8))
    put(tmp_path / "masks" / "b.png", np.zeros((12, 10), np.uint8))
    dataset = build_dataset(folder(tmp_path, ignore_index=9))
    report = check_dataset(dataset)
    masks = np.concatenate([dataset[i].target.ravel() for i in range(3)])
    assert (report.split, report.n_cases) == ("all", 3)
    np.testing.assert_array_equal(report.class_pixels, [(masks == 0).sum(), (masks == 1).sum()])
    np.testing.assert_array_equal(report.class_cases, [2, 1])
    assert report.ignored_pixels == 20
    assert report.total_pixels == 260 == report.class_pixels.sum() + report.ignored_pixels
    assert report.sizes == {(5, 4): 1, (12, 10): 2}
    assert report.dtypes == {"uint8": 3}
    ignored, plain = report.warnings
    assert "every pixel is ignored; their scores are undefined (1: c)" in ignored
    assert "cases of background only (1: b)" in plain


def test_equal_images_absent_classes_and_lone_ignore_are_warned_of(tmp_path):
    make_folder(tmp_path)
    put(tmp_path / "images" / "b.png", (tmp_path / "images" / "a.png").read_bytes())
    for name in "abc":
        put(tmp_path / "masks" / f"{name}.png", np.uint8(noise(channels=None) % 2) * 255)
    report = check_dataset(build_dataset(folder(tmp_path, ignore_index=255)))
    text = "\n".join(report.warnings)
    assert "equal to the last byte (1: a.png = b.png)" in text
    assert "no pixel of cell; their scores are undefined" in text
    assert "nothing but background and ignored pixels; if 255 is the object, set data.label_map" in text


def test_good_data_warns_of_nothing_and_images_without_masks_are_checked_too(tmp_path):
    assert check_dataset(build_dataset(folder(make_folder(tmp_path)))).warnings == ()
    report = check_dataset(open_images(tmp_path / "images", spec=BINARY, in_channels=3))
    assert (report.n_cases, report.class_pixels.tolist(), report.warnings) == (3, [0, 0], ())


@pytest.mark.slow
def test_camvid_is_checked_in_seconds_and_gives_the_published_shares(shared_data):
    config = CamvidConfig(root=str(shared_data / "camvid"))
    start = time.process_time()
    reports = check_splits([build_dataset(config, split=split) for split in ("train", "val", "test")])
    assert time.process_time() - start < 30  # 6 s of processor time where this was written
    assert [(report.n_cases, report.sizes) for report in reports] == [(n, {(360, 480): n}) for n in (367, 101, 233)]
    ignored = [report.ignored_pixels / report.total_pixels for report in reports]
    assert [round(share, 3) for share in ignored] == [0.039, 0.017, 0.038]
    counted = reports[2].class_pixels / reports[2].total_pixels
    published = [0.171, 0.246, 0.012, 0.258, 0.093, 0.113, 0.010, 0.012, 0.040, 0.006, 0.002]
    np.testing.assert_allclose(counted, published, atol=6e-4)  # published to three digits


def test_the_configured_split_is_opened_unless_another_is_asked_for(tmp_path):
    make_folder(tmp_path)
    config = folder(tmp_path)
    assert build_dataset(config).split == config.split
    assert build_dataset(config, split="all").case_ids == ("a", "b", "c")
    with pytest.raises(ConfigError, match="to be one of train, val, test, all, got 'valid'"):
        build_dataset(config, split="valid")


def test_open_splits_reads_every_pixel_where_build_reads_headers_alone(tmp_path):
    path = make_folder(tmp_path) / "masks" / "b.png"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(build_dataset(folder(tmp_path), split="all")) == 3
    with pytest.raises(DataError, match=r"masks/b.png: .*truncated or damaged"):
        open_splits(folder(tmp_path), ["all"])


def test_cases_of_a_split_that_is_not_read_are_in_no_other(tmp_path):
    config = listed(tmp_path, train="a b", val="c", test="b")
    put(tmp_path / "masks" / "c.png", b"no mask")  # what else is wrong is still said
    with pytest.raises(DataError) as refusal:
        open_splits(config, ["train", "val"], names_of=["test"])
    assert "`train and test` to share no case, got 1: b. Keep each in one split." in str(refusal.value)
    assert "masks/c.png" in str(refusal.value)


@pytest.mark.parametrize("absent", ["test.txt", "masks/c.png"])
def test_a_split_that_is_not_read_may_be_missing(tmp_path, absent):
    config = listed(tmp_path, train="a", val="b", test="c")
    (tmp_path / absent).unlink()
    put(tmp_path / "images" / "c.png", b"no image")
    assert [len(each) for each in open_splits(config, ["train", "val"], names_of=["test"])[0]] == [1, 1]


def test_a_description_has_classes_with_shares_and_channels_by_name(tmp_path):
    put(tmp_path / "images" / "a.png", np.full((4, 6, 3), (10, 20, 30), np.uint8))
    put(tmp_path / "masks" / "a.png", np.repeat(np.uint8([[0], [1], [1], [255]]), 6, axis=1))
    classes = ("background", "cell", "border")
    config = folder(tmp_path, task="multiclass", classes=classes, channels=("r", "g", "b"), ignore_index=255)
    _, (report,) = open_splits(config, ["all"])
    described = describe_report(report, config)
    assert described["classes"] == {
        "background": {"pixels": 6, "share": pytest.approx(1 / 3), "cases": 1},
        "cell": {"pixels": 12, "share": pytest.approx(2 / 3), "cases": 1},
        "border": {"pixels": 0, "share": 0.0, "cases": 0},
    }
    assert described["ignored_share"] == 0.25
    assert described["sizes"] == [{"height": 4, "width": 6, "cases": 1}]
    assert json.loads(json.dumps(described)) == described
    (values,) = described["intensities"]
    assert values["dtype"] == "uint8"
    assert {name: channel["mean"] for name, channel in values["channels"].items()} == {"r": 10, "g": 20, "b": 30}
    assert values["channels"]["g"]["std"] == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_classes_are_counted_and_ignored_pixels_are_in_none(dtype):
    rng = np.random.default_rng(0)
    target = rng.choice([0, 1, 2, 255], (17, 23)).astype(dtype)
    spec = make_spec(4)  # whose last class has no pixel
    assert count_classes(target, spec).tolist() == [(target == k).sum() for k in range(4)]
    assert count_decided(target, spec).tolist() == [(target != 255).sum()] * 4


def test_each_plane_of_multilabel_has_its_own_ignored_pixels():
    target = np.array([[[1, 0, 255]], [[255, 255, 1]]], np.uint8)
    spec = make_spec(2, "multilabel")
    assert count_classes(target, spec).tolist() == [1, 1]
    assert count_decided(target, spec).tolist() == [2, 1]


def test_images_of_several_channel_counts_get_one_advice_that_ends(tmp_path):
    """Following the advice for one file would only move the refusal to the others."""
    make_folder(tmp_path)
    put(tmp_path / "images" / "b.png", noise(channels=None))
    for channels, odd in ((3, 1), (1, 2)):
        with pytest.raises(DataError, match=rf"got another one in {odd} of 3. Convert all images to one number"):
            open_splits(folder(tmp_path, in_channels=channels), ["all"])
    for name in "ac":
        put(tmp_path / "images" / f"{name}.png", noise(channels=None, seed=ord(name)))
    with pytest.raises(DataError, match=r"or train with data.in_channels=1") as refusal:
        open_splits(folder(tmp_path), ["all"])
    assert "one number of channels" not in str(refusal.value)
    open_splits(folder(tmp_path, in_channels=1), ["all"])


def labels(number):
    return noise(channels=None, seed=number) % 2


@pytest.mark.parametrize("form", [".nii.gz", ".npz", ".zarr", ".mha", ".nrrd"])
def test_images_and_masks_of_one_plane_are_read_from_the_formats_of_score(form, tmp_path):
    pixels = [np.float32(noise(channels=None, seed=number)) / 7 for number in range(3)]
    for number, name in enumerate("abc"):
        mask = labels(number).astype(np.float32 if form == ".nii.gz" else np.uint8)
        for kind, plane in (("images", pixels[number]), ("masks", mask)):
            flat = form in (".npz", ".mha", ".nrrd")
            save_volume(tmp_path / kind / f"{name}{form}", plane if flat else plane[None])
    (dataset,), (report,) = open_splits(folder(tmp_path, in_channels=1), ["all"])
    for number in range(3):
        np.testing.assert_array_equal(dataset[number].image[..., 0], pixels[number])
        np.testing.assert_array_equal(dataset[number].target, labels(number), strict=True)
    assert sum(report.class_pixels) == 3 * 12 * 10


def coco(root):
    """Run lengths in a COCO file of three images, one object on each."""
    for number, name in enumerate("abc"):
        put(root / "images" / f"{name}.png", noise(seed=number))
    put(root / "annotations.json", coco_content({name: labels(number) for number, name in enumerate("abc")}))
    return folder(root, masks="annotations.json")


def test_a_coco_file_holds_the_masks_of_all_images_whole_and_by_lines(tmp_path):
    (dataset,), _ = open_splits(coco(tmp_path), ["all"])
    for number in range(3):
        np.testing.assert_array_equal(dataset[number].target, labels(number))
        with dataset.open_rows(number) as (_, target):
            np.testing.assert_array_equal(target.read(0, 12), labels(number))


def test_a_coco_file_that_changed_is_verified_again(tmp_path):
    config, path = coco(tmp_path), tmp_path / "annotations.json"
    (dataset,), _ = open_splits(config, ["all"])
    path.write_text(path.read_text().replace('"image_id": 1', '"image_id": 2'))
    with pytest.raises(DataError, match="to have the content that was checked"):
        dataset[0]
    (again,), _ = open_splits(config, ["all"])
    assert not again[0].target.any()


def test_a_volume_is_refused_before_it_is_read(tmp_path):
    put(tmp_path / "images" / "a.png", noise())
    save_nifti(tmp_path / "masks" / "a.nii.gz", np.zeros((3, 12, 10), np.uint8))
    with pytest.raises(DataError, match=r"a\.nii\.gz: .*`mask` to hold one plane, got 3 x 12 x 10\. For volumes, set"):
        build_dataset(folder(tmp_path))
