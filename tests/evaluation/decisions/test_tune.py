"""Tuning on predictions that are known: the network runs once, and every setting gets the score that it has alone."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from segmeter.data.files.geometry import Geometry
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, InputError
from segmeter.evaluation.decisions.held_out import find_probs
from segmeter.evaluation.decisions.settings import parse_over
from segmeter.evaluation.decisions.tune import (
    CARD,
    has_room,
    keep_probs,
    note_tuned,
    refuse_test,
    settings_table,
    tune,
    tuning_warnings,
    write_tuned,
)
from segmeter.files import write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.results import Prediction
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.tune import Tuned
from segmeter.report.decisions import show_tuned
from tests.data.crafted import BINARY

SETTINGS = parse_over(["threshold=0.2:0.8:0.1", "postprocess.min_size=0|9"], BINARY)
IDS = tuple(f"case{i:02}" for i in range(12))


class Known:
    """Probabilities that are 0.35 above the reference's own side, so that the best threshold is near 0.3."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.targets = [(rng.random((24, 24)) < 0.3).astype(np.uint8) for _ in IDS]
        self.probs = [
            np.clip(0.15 + 0.3 * target + rng.normal(0, 0.07, target.shape), 0.01, 0.99).astype(np.float32)[None]
            for target in self.targets
        ]

    def predict(self):
        for case_id, target, found in zip(IDS, self.targets, self.probs, strict=True):
            sample = Sample(case_id=case_id, image=np.zeros((24, 24, 3), np.uint8), target=target)
            yield Prediction(sample=sample, labels=(found[0] > 0.5).astype(np.uint8), probs=found)


class Cases(SimpleNamespace):
    """A data set that is only asked for its facts."""

    def __len__(self):
        return len(IDS)


DATASET: Any = Cases(spec=BINARY, split="val", case_ids=IDS)


def tuned(predictor, **metrics):
    config = MetricsConfig(**{"bootstrap": 1000, "headline": "iou/cell", **metrics})
    return tune(predictor.predict(), DATASET, config, SETTINGS)


def test_every_setting_gets_the_score_it_has_alone_from_one_pass():
    known = Known()
    result = tuned(known)
    for one, setting in zip(result["settings"], SETTINGS.every, strict=True):
        if not setting.steps:
            labels = [probs[0] > setting.threshold for probs in known.probs]
            both = sum(int((a & (b == 1)).sum()) for a, b in zip(labels, known.targets, strict=True))
            either = sum(int((a | (b == 1)).sum()) for a, b in zip(labels, known.targets, strict=True))
            assert one["score"] == pytest.approx(both / either, rel=1e-12)
    chosen = result["settings"][result["chosen"]]["values"]
    assert chosen == {"threshold": "0.3", "postprocess.min_size": "0"}
    assert result["gain_ci95"][0] > 0
    assert Tuned.model_validate(result).model_dump(by_alias=True) == result


def test_a_score_of_objects_is_measured_in_full():
    result = tuned(Known(), measures=(InstancesConfig(),), headline="pq/cell")
    assert result["by"] == "pq/cell"
    assert result["settings"][result["chosen"]]["score"] == max(one["score"] for one in result["settings"])


def test_an_infinite_score_of_a_setting_is_kept_as_a_number(tmp_path):
    settings = parse_over(["threshold=0.3|1.0"], BINARY)  # nothing is above 1, so that every distance is infinite
    measured: dict[str, Any] = {"measures": (SurfaceConfig(),), "headline": "hd95/cell"}
    config = MetricsConfig(bootstrap=1000, **measured)
    result = tune(Known().predict(), DATASET, config, settings)
    write_json(tmp_path / "tune.json", result)
    assert (result["chosen"], result["settings"][1]["score"], result["settings"][1]["gain"]) == (0, "inf", "-inf")
    assert settings_table(result)["score"].to_pylist()[1] == math.inf
    shown = show_tuned(result)
    assert shown.tables[0].rows[0][1] == "chosen"
    assert shown.charts[0][1].svg()


def test_distances_are_in_the_unit_of_the_files_as_in_eval():
    measured: dict[str, Any] = {"measures": (SurfaceConfig(),), "headline": "hd95/cell", "bootstrap": 1000}
    config = MetricsConfig(**measured)
    known, place = list(Known().predict()), Geometry(spacing=(2.0, 2.0), unit="mm")
    placed = [replace(one, sample=replace(one.sample, geometry=place)) for one in known]
    pixels, millimetres = (tune(each, DATASET, config, SETTINGS)["settings"][0]["score"] for each in (known, placed))
    assert millimetres == pytest.approx(2 * pixels)


def test_probabilities_are_kept_unless_they_need_more_than_was_allowed(tmp_path, caplog):
    known, pixels = Known(), 24 * 24 * len(IDS)
    passed = [*keep_probs(known.predict(), tmp_path, DATASET, needed=True)]
    assert [one.probs is kept for one, kept in zip(passed, known.probs, strict=True)] == [True] * len(IDS)
    assert all(one.probs is None for one in keep_probs(known.predict(), tmp_path, DATASET, needed=False))
    found = find_probs("tune", tmp_path, IDS)
    assert np.abs(np.load(found[IDS[3]]).astype(np.float32) - known.probs[3]).max() < 0.00025
    assert has_room(pixels, BINARY, keep_gb=2 * pixels / 2**30)
    assert not has_room(pixels, BINARY, keep_gb=0)
    assert not caplog.text  # nobody wanted any
    assert not has_room(pixels, BINARY, keep_gb=(2 * pixels - 1) / 2**30)
    assert "none are kept" in caplog.text


def test_a_score_that_no_case_has_is_refused():
    with pytest.raises(InputError, match="Did you mean"):
        tuned(Known(), headline="iou/cel")


@pytest.mark.parametrize("split", ["test", "all"])
def test_the_test_split_is_never_tuned_on(split):
    with pytest.raises(ConfigError, match="honest score"):
        refuse_test(split)


def test_the_files_name_the_setting_and_an_evaluation_of_its_cases_is_warned_of(tmp_path):
    result = tuned(Known())
    inference = InferenceConfig(threshold=0.9, flips=True)
    write_tuned(tmp_path / "tuned.yaml", SETTINGS.every[result["chosen"]], inference, "a note")
    assert yaml.safe_load((tmp_path / "tuned.yaml").read_text())["inference"] == {"threshold": 0.3, "flips": True}
    assert sum(settings_table(result)["chosen"].to_pylist()) == 1
    note_tuned([tmp_path], tmp_path / "tuned.yaml", result, DATASET)
    assert (tmp_path / CARD).is_file()
    (line,) = tuning_warnings([tmp_path, tmp_path / "other"], ["case03", "new"])
    assert "1 of 2 cases were used to choose" in line
    assert not list(tuning_warnings([tmp_path], ["new"]))
