"""The metrics.json of grand-challenge.org: results per case, aggregates by path."""

import json

import numpy as np

import segmeter
from tests.api.adapters.drawn import SPEC, evaluation


def test_results_and_aggregates_are_ours(tmp_path):
    found = evaluation(measures=["surface"])
    found.write_grand_challenge(tmp_path / "metrics.json")
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["aggregates"]["dataset"]["mean_iou"] == found.summary["dataset"]["mean_iou"]
    assert content["aggregates"]["per_class"]["car"]["iou_low"] == found.summary["per_class"]["car"]["ci95"]["iou"][0]
    assert [one["case_id"] for one in content["results"]] == [f"case{i}" for i in range(7)]
    assert content["results"][2]["iou_car"] == found.cases["iou_car"][2].as_py()
    assert "confusion" not in content["results"][0]


def test_it_is_strict_json(tmp_path):
    """A miss is infinite, which JSON has no number for; undefined is null."""
    target = np.zeros((6, 6), np.uint8)
    target[1:3, 1:3] = 2
    found = segmeter.evaluate([("a", target, np.zeros_like(target))], classes=SPEC, measures=["surface"])
    found.write_grand_challenge(tmp_path / "metrics.json")

    def refuse(name):
        raise AssertionError(name)

    content = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=refuse)
    assert content["results"][0]["extra_hd95/car"] == "inf"
    assert content["results"][0]["iou_road"] is None
    assert content["aggregates"]["measures"]["hd95"]["car"]["mean"] == "inf"
