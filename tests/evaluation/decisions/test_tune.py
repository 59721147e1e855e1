"""Tuning on known predictions: the settings that are tried, and the score that each of them has alone."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import ndimage

from segmeter.data.files.geometry import Geometry
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, DataError, InputError
from segmeter.evaluation.decisions import tune as tuning
from segmeter.evaluation.decisions.held_out import find_probs
from segmeter.evaluation.decisions.settings import count_settings, parse_over
from segmeter.evaluation.decisions.tune import (
    has_room,
    keep_probs,
    settings_table,
    stored_predictions,
    tune,
    tuning_warnings,
)
from segmeter.files import write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.results import Prediction
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.tune import Tuned
from segmeter.postprocess.config import CoresConfig, RemoveSmallObjectsConfig
from segmeter.postprocess.pipeline import run_steps
from segmeter.report.decisions import show_tuned
from tests.data.crafted import BINARY, THREE, put

SETTINGS = parse_over(["threshold=0.2:0.8:0.1", "postprocess.min_size=0|9"], BINARY)
IDS = tuple(f"case{i:02}" for i in range(12))


def known():
    """Probabilities that are 0.35 above the reference's own side, so that the best threshold is near 0.3."""
    rng = np.random.default_rng(0)
    for case_id in IDS:
        target = (rng.random((24, 24)) < 0.3).astype(np.uint8)
        probs = np.clip(0.15 + 0.3 * target + rng.normal(0, 0.07, target.shape), 0.01, 0.99).astype(np.float32)[None]
        sample = Sample(case_id=case_id, image=np.zeros((24, 24, 3), np.uint8), target=target)
        yield Prediction(sample=sample, labels=(probs[0] > 0.5).astype(np.uint8), probs=probs)


KNOWN = list(known())


class Cases(SimpleNamespace):
    """A data set that is only asked for its facts."""

    def __len__(self):
        return len(IDS)


DATASET: Any = Cases(spec=BINARY, split="val", case_ids=IDS)


def tuned(settings=SETTINGS, predictions=KNOWN, **metrics):
    config = MetricsConfig(**{"bootstrap": 1000, "headline": "iou/cell", **metrics})
    return tune(predictions, DATASET, config, settings)


def test_every_setting_gets_the_score_it_has_alone_from_one_pass():
    result = tuned()
    for one, setting in zip(result["settings"], SETTINGS.every, strict=True):
        if not setting.steps:
            pairs = [(one.probs[0] > setting.threshold, one.sample.target == 1) for one in KNOWN]
            both, either = (sum(int(f(a, b).sum()) for a, b in pairs) for f in (np.logical_and, np.logical_or))
            assert one["score"] == pytest.approx(both / either, rel=1e-12)
    chosen = result["settings"][result["chosen"]]["values"]
    assert chosen == {"threshold": "0.3", "postprocess.min_size": "0"}
    assert result["gain_ci95"][0] > 0
    assert Tuned.model_validate(result).model_dump(by_alias=True) == result


def test_a_score_of_objects_is_measured_in_full():
    result = tuned(measures=(InstancesConfig(),), headline="pq/cell")
    assert result["by"] == "pq/cell"
    assert result["settings"][result["chosen"]]["score"] == max(one["score"] for one in result["settings"])


def test_an_infinite_score_of_a_setting_is_kept_as_a_number(tmp_path):
    settings = parse_over(["threshold=0.3|1.0"], BINARY)  # nothing is above 1, so that every distance is infinite
    result = tuned(settings, measures=(SurfaceConfig(),), headline="hd95/cell")
    write_json(tmp_path / "tune.json", result)
    assert (result["chosen"], result["settings"][1]["score"], result["settings"][1]["gain"]) == (0, "inf", "-inf")
    assert settings_table(result)["score"].to_pylist()[1] == math.inf
    shown = show_tuned(result)
    assert shown.tables[0].rows[0][1] == "chosen"
    assert shown.charts[0][1].svg()


def test_distances_are_in_the_unit_of_the_files_as_in_eval():
    place, by_distance = (
        Geometry(spacing=(2.0, 2.0), unit="mm"),
        {"measures": (SurfaceConfig(),), "headline": "hd95/cell"},
    )
    placed = [replace(one, sample=replace(one.sample, geometry=place)) for one in KNOWN]
    pixels, millimetres = (tuned(predictions=one, **by_distance)["settings"][0]["score"] for one in (KNOWN, placed))
    assert millimetres == pytest.approx(2 * pixels)


def test_probabilities_are_kept_unless_they_need_more_than_was_allowed(tmp_path, caplog):
    pixels = 24 * 24 * len(IDS)
    assert [*keep_probs(KNOWN, tmp_path, DATASET, needed=True)] == KNOWN
    assert all(one.probs is None for one in keep_probs(KNOWN, tmp_path, DATASET, needed=False))
    found = find_probs("tune", tmp_path, IDS)
    assert np.abs(np.load(found[IDS[3]]).astype(np.float32) - KNOWN[3].probs).max() < 0.00025
    assert has_room(pixels, BINARY, keep_gb=2 * pixels / 2**30)
    assert not has_room(pixels, BINARY, keep_gb=0)
    assert not caplog.text  # nobody wanted any
    assert not has_room(pixels, BINARY, keep_gb=(2 * pixels - 1) / 2**30)
    assert "none are kept" in caplog.text


@pytest.mark.parametrize("config", [None, "runs: []", "inference: {renamed: 1}"], ids=["no run", "a merge", "older"])
def test_stored_probabilities_of_a_run_that_can_not_be_read_are_refused(tmp_path, config):
    if config:
        write_json(tmp_path / "run.json", {"command": "eval", "checkpoint_sha256": "a", "data": "b"})
        (tmp_path / "config.yaml").write_text(config)
        put(tmp_path / "predictions/probs/case00.npy", KNOWN[0].probs)
    with pytest.raises(DataError, match=r"`probs` to be a run of eval or tune .*; a merge has none"):
        stored_predictions(tmp_path, Cases(case_ids=IDS[:1]), {"checkpoint_sha256": "a", "data": "b"})


def test_a_score_that_no_case_has_is_refused():
    with pytest.raises(InputError, match="Did you mean"):
        tuned(headline="iou/cel")


@pytest.mark.parametrize("split", ["test", "all"])
def test_the_test_split_is_never_tuned_on(split):
    with pytest.raises(ConfigError, match="honest score"):
        tuning.refuse_test(split)


def test_the_files_name_the_setting_and_an_evaluation_of_its_cases_is_warned_of(tmp_path):
    result = tuned()
    inference = InferenceConfig(threshold=0.9, flips=True)
    tuning.write_tuned(tmp_path / "tuned.yaml", SETTINGS.every[result["chosen"]], inference, "a note")
    assert yaml.safe_load((tmp_path / "tuned.yaml").read_text())["inference"] == {"threshold": 0.3, "flips": True}
    assert sum(settings_table(result)["chosen"].to_pylist()) == 1
    tuning.note_tuned([tmp_path], tmp_path / "tuned.yaml", result, DATASET)
    assert (tmp_path / tuning.CARD).is_file()
    (line,) = tuning_warnings([tmp_path, tmp_path / "other"], ["case03", "new"])
    assert "1 of 2 cases were used to choose" in line
    assert not list(tuning_warnings([tmp_path], ["new"]))


OVER = ["threshold=0.3:0.7:0.1", "postprocess.min_size=0|4|16", "postprocess.fill_holes.max_pixels=0|9"]
MULTILABEL = BINARY.model_copy(update={"task": "multilabel", "names": ("a", "b"), "ignore_index": 255})


def field(seed, *shape):
    return ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=shape), [0] * (len(shape) - 2) + [1.5, 1.5])


def plain_counts(labels, target, classes):
    return [[int(((target == t) & (labels == p)).sum()) for p in range(classes)] for t in range(classes)]


def probs_of(seed, *shape, steep=30):
    return (1 / (1 + np.exp(-steep * field(seed, *shape)))).astype(np.float32)


ALWAYS = [(), *((RemoveSmallObjectsConfig(min_pixels=64, connectivity=each),) for each in (8, 4))]
TRIED = [OVER[:1], OVER[1:2], OVER[:2], OVER[::2], [OVER[2], *OVER[:2]], ["postprocess.opening.radius=0|1", OVER[1]]]


@pytest.mark.parametrize("always", ALWAYS, ids=["nothing", "8", "4"])
@pytest.mark.parametrize("over", TRIED, ids=" ".join)
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_a_loop_over_the_settings_whatever_always_applies_before(over, always, seed):
    settings = parse_over(over, BINARY, steps=always)
    probs = np.full((1, 30, 40), 0.9, np.float32) if seed == 3 else probs_of(seed, 1, 30, 40)
    target = (field(seed, 30, 40) + 0.02 * np.random.default_rng(seed).normal(size=(30, 40)) > 0).astype(np.uint8)
    found = count_settings(target, settings, BINARY, probs=probs)
    for one, counts in zip(settings.every, found, strict=True):
        labels = run_steps((probs[0] > one.threshold).astype(np.uint8), one.steps, BINARY).labels
        assert counts.tolist() == plain_counts(labels, target, 2), one


def test_multiclass_labels_are_counted_under_every_step():
    settings = parse_over(OVER[1:2], THREE)
    labels, target = (np.random.default_rng(s).integers(0, 3, (20, 30)).astype(np.uint8) for s in range(2))
    for one, counts in zip(settings.every, count_settings(target, settings, THREE, labels=labels), strict=True):
        assert counts.tolist() == plain_counts(run_steps(labels, one.steps, THREE).labels, target, 3)


def test_multilabel_planes_have_thresholds():
    settings = parse_over(OVER[:1], MULTILABEL)
    probs = probs_of(0, 2, 20, 20, steep=9)
    target = (field(1, 2, 20, 20) > 0).astype(np.uint8)
    found = count_settings(target, settings, MULTILABEL, probs=probs)
    for one, counts in zip(settings.every, found, strict=True):
        assert counts[1, 1, 1] == ((probs[1] > one.threshold) & (target[1] == 1)).sum()


def test_a_probability_is_compared_with_the_threshold_as_written_and_must_exceed_it():
    probs = np.float32([[[0.5, np.nextafter(np.float32(0.5), 1), 0.3]]])  # the last one is above 0.3 in float64
    found = count_settings(np.ones((1, 3), np.uint8), parse_over(["threshold=0.3|0.5"], BINARY), BINARY, probs=probs)
    assert found[:, 1, 1].tolist() == [3, 1]


def test_ranges_are_inclusive_and_the_usual_setting_is_among_them():
    settings = parse_over(["threshold=0.3:0.7:0.05"], BINARY)
    assert [one.threshold for one in settings.every] == [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7]
    assert settings.every[settings.usual].threshold == 0.5
    added = parse_over(["threshold=0.3|0.4"], BINARY)
    assert (added.usual, added.every[2].threshold) == (2, 0.5)
    alone = parse_over(["postprocess.largest_component=no|yes"], BINARY)
    assert [len(one.steps) for one in alone.every] == [0, 1]


@pytest.mark.parametrize(("spec", "over", "needed"), [(BINARY, OVER[:1], True), (THREE, OVER[1:], False)])
def test_thresholds_need_probabilities_and_steps_that_clean_labels_do_not(spec, over, needed):
    assert parse_over(over, spec).need_probs is needed


def test_fewer_steps_and_thresholds_near_a_half_are_simpler():
    settings = parse_over(["threshold=0.4|0.5|0.6", "postprocess.min_size=0|8|64"], BINARY)
    order = sorted(settings.every, key=lambda one: one.simplicity)
    assert [tuple(one.values.values()) for one in order[:4]] == [("0.5", "0"), ("0.4", "0"), ("0.6", "0"), ("0.5", "8")]


@pytest.mark.parametrize(
    ("spec", "line", "said"),
    [
        (BINARY, "threshold=0.3:1.7:0.1", "numbers from 0 to 1"),
        (THREE, "threshold=0.3|0.5", "no threshold"),
        (BINARY, "postprocess.min_siz=0|8", "Did you mean"),
        (BINARY, "postprocess.opening.radius=0|900", "radius"),
        (BINARY, "postprocess.opening=1|2", "yes and no"),
        (BINARY, "postprocess.min_size=", "no values"),
        (BINARY, "postprocess.min_size=[|16", "expected the node content"),
        (BINARY, "threshold=0:inf:0.1", "infinity"),
        (BINARY, "threshold=0:1:1e-320", "infinity"),
        (BINARY, "loss.gamma=1|2", "no such key"),
        (THREE, "postprocess.cores.above=0.9|0.97", "cores.*to be used with a binary task"),
        (BINARY, f"postprocess.watershed.min_distance=5|9 {OVER[1]}", "watershed only as the last step"),
    ],
)
def test_what_cannot_be_tried_is_refused(spec, line, said):
    with pytest.raises(ConfigError, match=said):
        parse_over(line.split(), spec)


def test_steps_that_make_instances_stay_last_and_get_probabilities():
    cores = CoresConfig()
    settings = parse_over(OVER[1:2], BINARY, steps=(RemoveSmallObjectsConfig(min_pixels=2), cores))
    assert all(one.steps[-1] == cores for one in settings.every)
    assert [len(one.steps) for one in settings.every] == [2, 3, 3]
    probs, target = np.full((1, 6, 8), 0.9, np.float32), np.ones((6, 8), np.uint8)
    found = count_settings(target, settings, BINARY, probs=probs)
    assert (found[:, 1, 1] == 48).all()
