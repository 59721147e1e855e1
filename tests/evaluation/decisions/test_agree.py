"""Finding, reading and comparing the masks of several readers."""

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.files import array
from segmeter.data.labels_config import LabelsConfig
from segmeter.data.sample import Reading
from segmeter.errors import DataError, InputError, LateError
from segmeter.evaluation import drive
from segmeter.evaluation.decisions.agree import AgreeJob, agree, find_cases, masks_of_run, name_readers
from segmeter.evaluation.decisions.config import AgreeKeys
from segmeter.evaluation.pair_maps import PairLoader
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.crafted import BINARY, THREE
from tests.evaluation.masks import put_masks

MAPS = {"a": [[0, 0, 1], [2, 2, 255]], "b": [[1, 1, 1], [0, 0, 2]]}
OTHER = {"a": [[0, 1, 1], [2, 0, 0]], "b": [[1, 1, 1], [0, 0, 2]]}


def agree_keys(**given):
    return AgreeKeys(metrics=MetricsConfig(bootstrap=0), data=LabelsConfig(classes=("a", "b", "c")), **given)


def job(root, spec=THREE, label_map=None, **places):
    found = {name: put_masks(root / name, masks) for name, masks in places.items()}
    cases, left_out = find_cases(found, spec, missing="error")
    reading = Reading(spec=spec, label_map=label_map or {}, max_pixels=1000)
    compared: dict[str, Any] = {"readers": found, "models": {}, "cases": cases, "left_out": left_out}
    return AgreeJob(**compared, reading=reading, metrics=MetricsConfig(bootstrap=0), keys=agree_keys())


def test_three_readers_are_compared_and_their_majority_is_written(tmp_path):
    done, rows = agree(job(tmp_path, x=MAPS, y=MAPS, z=OTHER), tmp_path)
    assert done["scores"]["mean_iou"]["matrix"]["x"]["y"]["mean"] == 1
    case_a = np.array([1 / 3, 1 / 2, 1 / 2])  # IoU of each class, over the 5 pixels that nobody ignores
    assert done["scores"]["mean_iou"]["matrix"]["x"]["z"]["mean"] == pytest.approx((case_a.mean() + 1) / 2)
    written = np.asarray(Image.open(tmp_path / "consensus" / "majority" / "labels" / "a.png"))
    assert written.tolist() == MAPS["a"]
    assert done["tied"]["majority"] == 0
    assert done["tied"]["rest"] == pytest.approx(2 / 3 * 2 / 5 / 2)  # x and z, or y and z, differ in 2 of 5 pixels
    table = rows.to_pydict()
    assert len(table["case_id"]) == 2 * (6 + 3 + 3)
    row = list(zip(table["case_id"], table["reference"], table["reader"], strict=True)).index(("b", "rest", "z"))
    assert table["mean_iou"][row] == 1


def test_a_case_that_one_reader_lacks_is_refused_or_left_out(tmp_path):
    places = {name: put_masks(tmp_path / name, masks) for name, masks in (("x", MAPS), ("y", {"a": MAPS["a"]}))}
    with pytest.raises(DataError, match=r"reader 'y'.*none of .*b.*missing=leave_out"):
        find_cases(places, THREE, missing="error")
    cases, left_out = find_cases(places, THREE, missing="leave_out")
    assert (list(cases), left_out) == (["a"], ["b"])
    put_masks(tmp_path / "z", {"c": MAPS["a"]})
    with pytest.raises(DataError, match="to share a case"):
        find_cases({"x": tmp_path / "x", "z": tmp_path / "z"}, THREE, missing="leave_out")


def test_files_that_do_not_fit_are_named_all_at_once(tmp_path):
    wrong = {"a": [[7, 0, 1], [2, 2, 255]], "b": [[1, 1], [0, 0]]}
    with pytest.raises(DataError) as caught:
        agree(job(tmp_path, x=MAPS, y=wrong), tmp_path)
    assert len(caught.value.problems) == 2
    assert "7" in caught.value.problems[0]


def test_the_largest_masks_hold_memory_too(tmp_path, monkeypatch):
    """They are read whole, although `score` would read them in bands."""
    for name in "xy":
        (tmp_path / name).mkdir()
        tifffile.imwrite(tmp_path / name / "a.tif", np.zeros((20, 30), np.uint8))
    monkeypatch.setattr(array, "STREAMED_PIXELS", 100)
    monkeypatch.setattr(drive, "SMALL", 20 * 30)
    monkeypatch.setattr(drive, "free_bytes", lambda: 0)
    with pytest.raises(DataError, match=r"^case 'a': expected `memory` of about .* Free memory, or cut"):
        agree(job(tmp_path, x={}, y={}), tmp_path)


def test_memory_that_runs_out_and_files_that_come_too_late_are_named_by_their_case(tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(PairLoader, "load_annotations_of", fail)
    compared = job(tmp_path, x=MAPS, y=OTHER)
    with pytest.raises(DataError, match=r"^case 'a': out of memory\. Free memory, or cut the masks"):
        agree(compared, tmp_path)
    monkeypatch.setattr(PairLoader, "load_annotations_of", lambda *_: time.sleep(0.5))
    with pytest.raises(LateError, match=r"^data: case 'a' was not read within 0\.1 seconds: .*x/a\.png"):
        agree(replace(compared, reading=replace(compared.reading, timeout_s=0.1)), tmp_path)


def test_runs_beside_folders_are_models_and_alone_they_are_readers(tmp_path):
    paths = {name: tmp_path / name for name in "abc"}
    readers, models = name_readers(agree_keys(folders=(paths["a"], paths["b"]), runs=(paths["c"],)))
    assert (list(readers), list(models)) == (["a", "b"], ["c"])
    readers, models = name_readers(agree_keys(runs=tuple(paths.values())))
    assert (list(readers), list(models)) == (["a", "b", "c"], [])
    with pytest.raises(InputError, match=r"to be among a, b.*'?d"):
        name_readers(agree_keys(folders=(paths["a"], paths["b"]), models=("d",)))
    with pytest.raises(InputError, match="two readers or more"):
        name_readers(agree_keys(folders=(paths["a"],)))


def test_a_run_without_label_maps_and_one_that_is_not_finished_are_refused(tmp_path):
    with pytest.raises(DataError, match="to hold predictions/labels"):
        masks_of_run(tmp_path)
    (tmp_path / "predictions" / "labels").mkdir(parents=True)
    with pytest.raises(DataError, match=r"^agree: expected `runs` to be finished, got .* \(without run\.json\)"):
        masks_of_run(tmp_path)
    for state, refusal in (("running", "resume="), ("done", None)):
        (tmp_path / "run.json").write_text(json.dumps({"command": "eval", "state": state}))
        with pytest.raises(DataError, match=refusal) if refusal else nullcontext():
            assert masks_of_run(tmp_path) == tmp_path / "predictions" / "labels"


def test_classes_that_name_no_folder_are_refused_by_the_command(tmp_path):
    spec = ClassSpec(task="multilabel", names=("a/b",), colours=((0, 0, 0),))
    with pytest.raises(DataError, match=r"^agree: expected `classes` to be usable as folder names"):
        find_cases({"x": tmp_path}, spec, missing="error")


def test_undecided_pixels_get_a_value_that_is_no_class():
    assert BINARY.with_ignored().ignore_index == 255
    assert THREE.with_ignored() is THREE


def test_the_value_of_undecided_pixels_is_refused_in_masks_that_ignore_nothing(tmp_path):
    masks = {"a": [[0, 255], [255, 0]]}  # object as 255, and no data.label_map: else all of it would be left out
    with pytest.raises(DataError, match=r"to hold only 0 to 1, got 255 .*data\.label_map=\{0: 0, 255: 1\}"):
        agree(job(tmp_path, BINARY, **dict.fromkeys("xyz", masks)), tmp_path)
    done, _ = agree(job(tmp_path, BINARY, {"0": 0, "255": 1}, **dict.fromkeys("xyz", masks)), tmp_path)
    assert done["scores"]["iou/cell"]["rest"]["x"]["mean"] == 1
    assert done["tied"] == {"majority": 0, "rest": 0}
