"""A summary.json equal to the one that nnU-Net writes itself, and what is read of one."""

import json
from unittest import mock

import numpy as np
import pytest

import segmeter
from segmeter.errors import DataError, InputError
from segmeter.metrics.cases.nnunet import read_summary, write_summary
from segmeter.metrics.summary.summarise import summarise
from tests.api.adapters.drawn import CONFIG, SPEC, draw, evaluation
from tests.differential.peers import load, nnunet_on_arrays


@pytest.mark.parametrize(
    "regions", [(1, 2), ((1, 2), (2,)), (0, 1, 2)], ids=["labels", "regions", "labels with background"]
)
def test_the_summary_is_the_one_that_nnunet_writes(regions, tmp_path):
    """Byte for byte but for the names of files, by its own functions on the same arrays."""
    sides, names = zip(("ref", "pred"), draw(), strict=True), [f"case{i}.nii.gz" for i in range(7)]
    maps = {f"{side}/{name}": one for side, every in sides for name, one in zip(names, every, strict=True)}
    _, wanted = nnunet_on_arrays(maps, names, regions, 255)
    options = {"references": "ref", "predictions": "pred", "file_ending": ".nii.gz"}
    evaluation().write_nnunet(tmp_path / "summary.json", regions=regions, **options)
    written = (tmp_path / "summary.json").read_text()
    assert json.loads(written, parse_constant=str) == json.loads(wanted, parse_constant=str)
    peer = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2")
    with mock.patch.object(peer, "load_json", side_effect=lambda path: json.loads(path.read_text())):
        read = peer.load_summary_json(tmp_path / "summary.json")
    assert list(read["mean"]) == list(regions)
    assert read["metric_per_case"][0]["metrics"][regions[-1]]["TP"] > 0


def test_regions_of_other_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="`regions` to hold labels 0 to 2"):
        evaluation().write_nnunet(tmp_path / "summary.json", regions=[(1, 9)])
    for regions in (["a"], [(1, "b")], [1.5]):
        with pytest.raises(ValueError, match="which is no whole number"):
            evaluation().write_nnunet(tmp_path / "summary.json", regions=regions)
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


def test_what_was_written_is_read(tmp_path):
    """As a task in which each region is a class: its Dice per case and over all are those of the evaluation."""
    whole = evaluation()
    path = tmp_path / "summary.json"
    whole.write_nnunet(path, regions=[1, 2, (1, 2)], references="ref", file_ending=".nii.gz")
    spec, rows = read_summary(path)
    assert (spec.task, spec.names) == ("multilabel", ("(1, 2)", "1", "2"))
    assert [row.case_id for row in rows] == [row.case_id for row in whole.rows]
    found = summarise(rows, spec, CONFIG)["per_class"]
    for label, name in ((1, "1"), (2, "2")):
        assert found[name]["dice"] == whole.summary["per_class"][SPEC.names[label]]["dice"]
    union = sum(row.counts[1:, 1:].sum() for row in whole.rows)
    both = sum(row.counts[1:].sum() + row.counts[:, 1:].sum() for row in whole.rows)
    assert found["(1, 2)"]["dice"] == 2 * union / both


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda case: case["metrics"]["1"].update(TP=case["metrics"]["1"]["TP"] + 1), "do not go together"),
        (lambda case: case["metrics"]["1"].update(TN=-1), "-1 pixels"),
        (lambda case: case["metrics"]["1"].update(TN=1234567.5), "1234567.5 pixels"),
        (lambda case: case["metrics"].update({"1": dict.fromkeys(case["metrics"]["1"], "0")}), "not str"),
        (lambda case: case["metrics"]["1"].update(TN=float("nan")), "nan pixels"),
        (lambda case: case["metrics"].pop("2"), "labels 1 in one case and 1, 2 in the first one"),
        (lambda case: case.pop("metrics"), "KeyError"),
    ],
)
def test_a_summary_that_does_not_add_up_is_refused(change, found, tmp_path):
    path = tmp_path / "summary.json"
    evaluation().write_nnunet(path)
    content = json.loads(path.read_text())
    change(content["metric_per_case"][1])
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"`path` to be nnU-Net's summary.json, got .*{found}"):
        read_summary(path)


@pytest.mark.parametrize("content", [None, "{}"], ids=["none", "another"])
def test_another_file_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(DataError, match=r"`path` to be nnU-Net's summary\.json"):
        read_summary(tmp_path / "metrics.json")
