"""nnU-Net in and out: its dataset.json, and a summary.json equal to the one that it writes itself."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import segmeter
from segmeter.api.adapters.nnunet import read_labels, write_summary
from segmeter.errors import DataError, InputError
from tests.api.adapters.drawn import CONFIG, SPEC, draw, evaluation
from tests.differential.peers import load

REGIONS = {"background": 0, "whole tumour": [1, 2, 3], "core": [2, 3], "enhancing": [3], "ignore": 4}


def put(path, labels):
    path.write_text(json.dumps({"labels": labels, "file_ending": ".nii.gz", "channel_names": {"0": "CT"}}))
    return path


def test_labels_are_classes(tmp_path):
    found = read_labels(put(tmp_path / "dataset.json", {"background": 0, "liver": 1, "tumour": 2, "ignore": 3}))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "liver", "tumour"), 3)
    assert (found.groups, found.regions) == ({}, (1, 2))


def test_regions_are_groups(tmp_path):
    found = read_labels(put(tmp_path / "dataset.json", REGIONS))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "label 1", "label 2", "label 3"), 4)
    assert found.groups["core"] == ("label 2", "label 3")
    assert found.regions == ((1, 2, 3), (2, 3), (3,))


def test_labels_are_those_of_nnunets_own_manager(tmp_path):
    manager = load("nnunetv2.utilities.label_handling.label_handling", "nnunetv2").LabelManager
    theirs = manager(REGIONS, regions_class_order=[1, 2, 3])
    found = read_labels(put(tmp_path / "dataset.json", REGIONS))
    assert [tuple(region) for region in theirs.foreground_regions] == list(found.regions)
    assert theirs.ignore_label == found.spec.ignore_index


@pytest.mark.parametrize(
    "labels",
    [None, {"background": 1}, {"background": 0, "a": 2}, {"background": 0, "a": 1, "ignore": 7}, {"a": 0, "b": 1}, [0]],
    ids=str,
)
def test_other_labels_are_refused(labels, tmp_path):
    with pytest.raises(DataError, match=r"dataset.json: expected `labels`"):
        read_labels(put(tmp_path / "dataset.json", labels))
    with pytest.raises(DataError, match=r"dataset.json: expected `labels`"):
        read_labels(tmp_path / "nothing.json")


@pytest.mark.parametrize("regions", [(1, 2), ((1, 2), (2,))], ids=["labels", "regions"])
def test_the_summary_is_the_one_that_nnunet_writes(regions, tmp_path):
    """Byte for byte but for the names of files, by its own functions on the same arrays."""
    peer = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2")
    target, labels = draw()
    maps = {f"{side}/case{i}.nii.gz": one[i] for side, one in (("ref", target), ("pred", labels)) for i in range(7)}
    reader = SimpleNamespace(read_seg=lambda name: (maps[name], {}))
    pool = nullcontext(SimpleNamespace(starmap=lambda call, given: [call(*each) for each in given]))
    names = [f"case{i}.nii.gz" for i in range(7)]
    kept = {}

    def save_json(content, path, sort_keys):
        kept["text"] = json.dumps(content, indent=4, sort_keys=sort_keys)

    fix = SimpleNamespace(item=None)
    with (
        mock.patch.object(peer, "subfiles", side_effect=[names, names]),
        mock.patch.object(peer, "join", side_effect=lambda folder, name: f"{folder}/{name}"),
        mock.patch.object(peer.multiprocessing, "get_context", return_value=SimpleNamespace(Pool=lambda _: pool)),
        mock.patch.object(peer, "save_json", side_effect=save_json),
    ):
        assert fix.item is None
        peer.compute_metrics_on_folder("ref", "pred", "x.json", reader, ".nii.gz", list(regions), 255)
    options = {"references": "ref", "predictions": "pred", "file_ending": ".nii.gz"}
    evaluation().write_nnunet(tmp_path / "summary.json", regions=regions, **options)
    assert json.loads((tmp_path / "summary.json").read_text(), parse_constant=str) == json.loads(
        kept["text"], parse_constant=str
    )
    with mock.patch.object(peer, "load_json", side_effect=lambda path: json.loads(path.read_text())):
        read = peer.load_summary_json(tmp_path / "summary.json")
    assert list(read["mean"]) == list(regions)
    assert read["metric_per_case"][0]["metrics"][regions[0]]["TP"] > 0


def test_regions_of_other_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="`regions` to hold labels 0 to 2"):
        evaluation().write_nnunet(tmp_path / "summary.json", regions=[(1, 9)])
    with pytest.raises(InputError, match="one or more of maps with one class per pixel"):
        write_summary(tmp_path / "summary.json", [], SPEC)
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_is_nowhere_has_no_mean(tmp_path):
    nothing = np.zeros((4, 5), np.uint8)
    found = segmeter.evaluate([("a", nothing, nothing)], classes=SPEC, metrics=CONFIG)
    found.write_nnunet(tmp_path / "summary.json")
    content = json.loads((tmp_path / "summary.json").read_text())
    assert np.isnan(content["mean"]["1"]["Dice"])
    assert content["mean"]["1"]["TN"] == 20.0
