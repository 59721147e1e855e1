import json

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt, label, maximum_filter

from segmeter import files
from segmeter.data import synthetic as cells
from segmeter.data.classes_config import CELL_CLASSES
from segmeter.data.config import CellsConfig
from segmeter.data.verification.splits import build_dataset, check_splits
from segmeter.errors import DataError


def _config(root, **fields):
    return CellsConfig(root=str(root), **({"size": 64, "train_cases": 3, "val_cases": 2, "test_cases": 1} | fields))


def _contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_cells_are_drawn_bit_for_bit_from_the_seed(tmp_path):
    first = _contents(cells.draw_cells(_config(tmp_path / "one")))
    assert first == _contents(cells.draw_cells(_config(tmp_path / "two")))
    other = _contents(cells.draw_cells(_config(tmp_path / "one", seed=1)))
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first if name.endswith(".png"))


def test_cases_do_not_depend_on_how_many_there_are(tmp_path):
    few, many = cells.draw_cells(_config(tmp_path)), cells.draw_cells(_config(tmp_path, train_cases=5, val_cases=3))
    assert few != many
    for name, content in _contents(few).items():
        if name.endswith(".png"):
            assert (many / name).read_bytes() == content


def test_cells_are_a_dataset_without_overlap(tmp_path):
    config = _config(tmp_path)
    splits = [build_dataset(config, split=split) for split in ("train", "val", "test")]
    assert [len(dataset) for dataset in splits] == [3, 2, 1]
    assert splits[0].spec.names == CELL_CLASSES
    assert splits[0][0].image.shape == (64, 64, 1)
    assert splits[0].case_ids == ("train-0000", "train-0001", "train-0002")
    assert len(check_splits(splits)) == 3


def test_drawn_folder_is_used_again_and_says_what_it_was_drawn_from(tmp_path, monkeypatch):
    folder = cells.draw_cells(_config(tmp_path))
    assert json.loads((folder / "settings.json").read_text())["train_cases"] == 3
    monkeypatch.setattr(cells, "draw_scene", None)
    assert cells.draw_cells(_config(tmp_path)) == folder
    assert len(cells.build_cells(_config(tmp_path), split="all")) == 6


def test_every_drawn_file_is_on_the_disk_before_the_folder_appears(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(files, "watch", lambda operation, path: done.append((operation, path.name)))
    folder = cells.draw_cells(_config(tmp_path))
    written = {name for operation, name in done[: done.index(("rename", folder.name))] if operation == "fsync"}
    assert {path.name for path in folder.rglob("*")} <= written


@pytest.mark.parametrize("field", ["size", "train_cases", "val_cases", "test_cases", "seed"])
def test_every_setting_that_decides_pixels_has_its_own_folder(tmp_path, field, monkeypatch):
    monkeypatch.setattr(cells, "_draw_case", lambda *_: None)
    config = _config(tmp_path)
    changed = _config(tmp_path, **{field: getattr(config, field) + 1})
    assert cells.draw_cells(config) != cells.draw_cells(changed)


def test_what_does_not_decide_pixels_shares_the_folder(tmp_path):
    fields = {"classes": ("rest", "mitotic"), "colours": None, "label_map": {"0": 0, "1": 0, "2": 0, "3": 1}}
    binary = _config(tmp_path, task="binary", **fields)
    assert cells.draw_cells(binary) == cells.draw_cells(_config(tmp_path))
    assert build_dataset(binary, split="train").spec.num_classes == 2


def test_process_that_loses_the_race_takes_the_winners_folder(tmp_path, monkeypatch):
    config = _config(tmp_path)
    draw = cells.draw_scene

    def slow(*args):
        monkeypatch.setattr(cells, "draw_scene", draw)
        cells.draw_cells(config)
        return draw(*args)

    monkeypatch.setattr(cells, "draw_scene", slow)
    folder = cells.draw_cells(config)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_root_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"`root` to take the drawn cells, got .* at .*file/cells-"):
        cells.draw_cells(_config(tmp_path / "file"))


@pytest.fixture(scope="module")
def scenes():
    return [cells.draw_scene(np.random.default_rng([7, index]), 192) for index in range(12)]


def test_classes_have_the_shares_that_the_set_promises(scenes):
    labels = np.stack([scene.labels for scene in scenes])
    shares = np.bincount(labels.ravel(), minlength=4) / labels.size
    assert len(shares) == 4
    assert 0.6 < shares[0] < 0.9
    assert 0.05 < shares[cells.ROUND] < 0.25
    assert 0.04 < shares[cells.SPINDLE] < 0.20
    assert 0.002 < shares[cells.MITOTIC] < 0.02


def cells_of(scene):
    return [scene.instances == number for number in np.unique(scene.instances) if number]


def test_each_instance_is_of_one_class_and_background_of_none(scenes):
    for scene in scenes:
        assert ((scene.instances > 0) == (scene.labels > 0)).all()
        assert all(len(np.unique(scene.labels[mask])) == 1 for mask in cells_of(scene))


def test_spindles_are_long_and_round_cells_are_not(scenes):
    """Of an inner spindle, no disc covers half; of an inner round cell, the inscribed disc covers most."""
    fill = {cells.ROUND: [], cells.SPINDLE: []}
    for scene in scenes:
        for mask in cells_of(scene):
            kind = int(scene.labels[mask][0])
            edges = mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any()
            if kind in fill and not edges and label(mask)[1] == 1:
                fill[kind].append(np.pi * distance_transform_edt(mask).max() ** 2 / mask.sum())
    assert len(fill[cells.ROUND]) > 30
    assert len(fill[cells.SPINDLE]) > 15
    assert np.median(fill[cells.ROUND]) > 0.75
    assert np.median(fill[cells.SPINDLE]) < 0.55


def test_labels_lie_where_the_light_is(scenes):
    """Cells are brighter than the ring of background around them, by their median, in nearly every case."""
    brighter = []
    for scene in scenes[:4]:
        far = distance_transform_edt(scene.labels == 0)
        for mask in cells_of(scene):
            near = (distance_transform_edt(~mask) < 8) & (far >= 2)
            if near.sum() > 50:
                brighter.append(np.median(scene.image[mask]) > np.median(scene.image[near]))
    assert np.mean(brighter) > 0.97


def test_light_beyond_the_range_of_the_camera_is_white(scenes):
    """If it overflowed, it would be black amid the brightest pixels."""
    images = np.stack([scene.image for scene in scenes]).astype(int)
    brightest = maximum_filter(images, (0, 5, 5))
    assert (images == 255).sum() > 100
    assert images[brightest == 255].min() > 5
