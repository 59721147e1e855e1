"""Conventions differ in headline figures only: what empty sides cost, what is left out, what the summary says."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.config.conventions import CONVENTIONS, OURS, Convention, differences
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.conventions import figures_under, score_maps_under
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.summarise import summarise
from tests.differential.peers import load, quiet
from tests.metrics.build import case_row, class_spec, score_under
from tests.metrics.config.test_conventions import assert_figures, label_maps

NAN, INF = math.nan, math.inf


def measured(maps, config):
    counts = confusion_matrix(
        maps.target, maps.labels, num_classes=maps.spec.num_classes, ignore_index=maps.spec.ignore_index
    )
    return case_row(maps.case_id, counts, measured=measure_case(maps, build_measures(config, maps.spec)))


@pytest.mark.parametrize(
    ("shape", "spacing"), [((26, 33), (0.7, 1.9)), ((9, 14, 12), (2.5, 1, 0.8))], ids=["2-D", "3-D"]
)
def test_ours_is_what_the_summary_says(shape, spacing):
    cases = label_maps(shape, spacing, seed=6)
    config = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(tolerances=(1.5,)),))
    rows = [measured(maps, config) for maps in cases]
    summary, found = summarise(rows, cases[0].spec, config), score_under("segmeter", rows, cases[0].spec, config)
    assert found["mean_iou"] == pytest.approx(summary["dataset"]["mean_iou"], rel=1e-14)
    assert found["mean_dice"] == pytest.approx(summary["dataset"]["mean_dice"], rel=1e-14)
    for figure in ("hd95", "assd", "nsd@1.5"):
        assert found[figure] == pytest.approx(summary["measures"][figure]["mean"]["mean"], rel=1e-14)


def dot(*places):
    """An image of 9 x 9 with single pixels of class 1."""
    found = np.zeros((9, 9), np.uint8)
    for place in places:
        found[place] = 1
    return found


def pixel_cases(*pairs):
    spec = ClassSpec(task="binary", names=("background", "car"), colours=((0, 0, 0), (1, 1, 1)), ignore_index=None)
    return [
        CaseMaps(case_id=f"{i}", target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
        for i, (target, labels) in enumerate(pairs)
    ]


FOUND = dot((4, 2), (4, 3)), dot((4, 3), (4, 4))  # one of three pixels in common; each surface is 0 and 1 away
SCENES = {"both_empty": (dot(), dot()), "prediction_empty": (dot((2, 2)), dot()), "target_empty": (dot(), dot((2, 2)))}
EMPTY = {  # convention: IoU, Dice, HD95 of the class in each scene, over cases of which the other is FOUND
    "nnunet": {"both_empty": (NAN, NAN), "prediction_empty": (0, 0), "target_empty": (0, 0)},
    "medpy": {"both_empty": (1, NAN, NAN), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "metrics-reloaded": {"both_empty": (NAN, 1, 0), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "panoptica": {"both_empty": (NAN, NAN, NAN), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "deepmind": {"both_empty": (None, NAN, NAN), "prediction_empty": (None, 0, INF), "target_empty": (None, 0, INF)},
    "brats": {
        "both_empty": (None, 1, 0),
        "prediction_empty": (None, 0, 373.12866),
        "target_empty": (None, 0, 373.12866),
    },
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", EMPTY)
def test_what_an_empty_side_costs(name, scene):
    found = score_maps_under(name, pixel_cases(FOUND, SCENES[scene]))
    alone = score_maps_under(name, pixel_cases(FOUND))
    for figure, cost in zip(("mean_iou", "mean_dice", "hd95"), EMPTY[name][scene], strict=False):
        if cost is not None:
            mean = alone[figure] if math.isnan(cost) else (alone[figure] + cost) / 2
            assert found[figure] == pytest.approx(mean, rel=1e-12), figure


def test_monai_on_misses_is_monai_s_figure_until_all_are_missed():
    torch, metrics = pytest.importorskip("torch"), load("monai.metrics")
    scenes = [FOUND, *SCENES.values()]
    pairs = [[torch.from_numpy(np.stack([m == 0, m == 1])[None].astype(np.float32)) for m in scene] for scene in scenes]
    figures = {
        "mean_iou": metrics.MeanIoU(),
        "mean_dice": metrics.DiceMetric(),
        "hd95": metrics.HausdorffDistanceMetric(percentile=95),
        "assd": metrics.SurfaceDistanceMetric(symmetric=True),
        "nsd@1": metrics.SurfaceDiceMetric([1.0]),
    }
    with quiet():
        for metric in figures.values():
            for target, labels in pairs:
                metric(labels, target)
        expected = {name: float(metric.aggregate()) for name, metric in figures.items()}
        missed = metrics.HausdorffDistanceMetric(percentile=95)
        missed(pairs[2][1], pairs[2][0])
        assert float(missed.aggregate()) == 0.0  # the bug that the preset refuses to copy
    assert_figures(score_maps_under("monai", pixel_cases(*scenes)), expected)
    assert math.isnan(score_maps_under("monai", pixel_cases(SCENES["prediction_empty"]))["hd95"])


@pytest.mark.parametrize("missed", [0, 5, 9, 10])
def test_misses_are_counted_where_a_convention_leaves_them_out(missed):
    off = dot((4, 1)), dot((4, 5))
    cases = pixel_cases(*[(off[0], dot()) if i < missed else off for i in range(10)])
    config = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(surface="both"),))
    board = build_scoreboard([measured(maps, config) for maps in cases], cases[0].spec, config)
    monai, monai_left_out = figures_under(CONVENTIONS["monai"], board)
    ours, left_out = figures_under(OURS, board)
    assert monai_left_out["hd95"] == missed
    assert left_out["hd95"] == 0
    assert monai["hd95"] == 4 if missed < 10 else math.isnan(monai["hd95"])
    assert ours["hd95"] == (4 if not missed else math.inf)


@pytest.mark.parametrize("scene", SCENES)
def test_the_live_tools_agree_on_what_an_empty_side_costs(scene):
    binary = load("medpy.metric.binary", "medpy")
    target, labels = (side.astype(bool) for side in SCENES[scene])
    with quiet(), np.errstate(invalid="ignore"):
        live = binary.jc(labels, target), binary.dc(labels, target)
    np.testing.assert_array_equal(EMPTY["medpy"][scene][:2], live)


def test_one_absent_class_does_not_undo_the_mean_of_nnunet():
    maps = label_maps((20, 20), (1.0, 1.0), seed=1, spec=class_spec(4))  # the fourth class is nowhere
    three = label_maps((20, 20), (1.0, 1.0), seed=1)
    assert score_maps_under("nnunet", maps) == score_maps_under("nnunet", three)


def test_a_named_convention_adds_its_headline_and_changes_nothing_else():
    maps = label_maps((20, 24), (1.0, 1.0), seed=2)
    plain, named = (
        MetricsConfig(bootstrap=0, convention=name, measures=(SurfaceConfig(),)) for name in ("segmeter", "deepmind")
    )
    ours, theirs = (summarise([measured(m, config) for m in maps], class_spec(3), config) for config in (plain, named))
    assert "headline" not in ours
    assert (ours["convention"], ours["convention_hash"]) == ("segmeter", OURS.hash)
    assert (theirs["convention"], theirs["convention_hash"]) == ("deepmind", CONVENTIONS["deepmind"].hash)
    assert theirs["headline"] == pytest.approx(score_maps_under("deepmind", maps), rel=1e-12)
    assert [entry["name"] for entry in theirs["conventions"]] == ["segmeter", "deepmind"]
    assert {name: ours[name] for name in ("dataset", "per_class", "per_case")} == {
        name: theirs[name] for name in ("dataset", "per_class", "per_case")
    }


def test_all_conventions_stand_beside_ours():
    missed = [*pixel_cases(FOUND, SCENES["prediction_empty"])]
    config = MetricsConfig(bootstrap=0, convention="all", measures=(SurfaceConfig(),))
    summary = summarise([measured(m, config) for m in missed], missed[0].spec, config)
    assert summary["convention"] == "segmeter"
    entries = {entry["name"]: entry for entry in summary["conventions"]}
    assert list(entries) == list(CONVENTIONS)
    assert summary["headline"] == entries["segmeter"]["figures"]
    assert entries["segmeter"]["figures"]["hd95"] == "inf"
    assert (entries["monai"]["figures"]["hd95"], entries["monai"]["left_out"]) == (
        0.95,
        {"hd95": 1},
    )  # of distances 0 and 1
    assert "HD95 without misses" in entries["monai"]["differs"]
    assert "0.0 for the mean distance when every object was missed" in entries["monai"]["refused"]
    assert set(entries["cityscapes"]["figures"]) == {"mean_iou"}


def test_without_surfaces_only_overlap_is_compared():
    rows = [case_row("a", [[3, 1, 0], [0, 4, 1], [1, 0, 2]]), case_row("b", [[0, 0, 0], [2, 5, 0], [0, 1, 0]])]
    config = MetricsConfig(bootstrap=0, convention="all")
    summary = summarise(rows, class_spec(3), config)
    assert {name for entry in summary["conventions"] for name in entry["figures"]} == {"mean_iou", "mean_dice"}
    assert not any("HD95" in phrase for entry in summary["conventions"] for phrase in entry["differs"])


def test_the_order_of_the_means_matters_where_a_class_is_not_in_every_case():
    rows = [case_row("a", [[5, 0, 0], [1, 3, 0], [0, 2, 2]]), case_row("b", [[5, 0, 0], [0, 6, 0], [0, 0, 0]])]
    first, second, only = 3 / 6, 6 / 6, 2 / 4  # IoU of road in a and b, of car in a
    found = {name: score_under(name, rows, class_spec(3))["mean_iou"] for name in ("nnunet", "panoptica")}
    assert found["nnunet"] == pytest.approx(((first + second) / 2 + only) / 2)
    assert found["panoptica"] == pytest.approx(((first + only) / 2 + second) / 2)


def test_groups_are_scored_as_one_region():
    counts = np.array([[9, 1, 2], [3, 8, 4], [5, 6, 7]])
    config = MetricsConfig(bootstrap=0, groups={"things": ("road", "car")})
    found = score_under("nnunet", [case_row("a", counts)], class_spec(3), config)
    tp, target, predicted = 8 + 4 + 6 + 7, 3 + 8 + 4 + 5 + 6 + 7, 1 + 2 + 8 + 4 + 6 + 7
    assert found == pytest.approx(
        {"mean_iou": tp / (target + predicted - tp), "mean_dice": 2 * tp / (target + predicted)}
    )


def test_both_surfaces_leave_columns_of_their_own():
    maps = pixel_cases(FOUND)[0]
    own, other, both = (
        measured(maps, MetricsConfig(measures=(SurfaceConfig(surface=surface),))).scores
        for surface in ("border_pixels", "marching_cubes", "both")
    )
    assert set(own) == {f"{name}/car" for name in ("hd", "hd95", "hd95_pooled", "assd", "masd", "nsd@1")}
    assert set(other) == {
        name.replace("@", "_marching_cubes@") if "@" in name else name.replace("/", "_marching_cubes/") for name in own
    }
    assert both == own | other | {"nsd_mean@1/car": 1.0}
    under_another = MetricsConfig(convention="monai", measures=(SurfaceConfig(),))
    assert measured(maps, under_another).scores == both


def test_planes_of_multilabel_have_surfaces_too():
    spec = class_spec(2, "multilabel", ignore_index=None)
    target, labels = (np.stack(pair) for pair in ((FOUND[0], SCENES["prediction_empty"][0]), (FOUND[1], dot((2, 4)))))
    case = CaseMaps(case_id="a", target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
    found = score_maps_under("brats", [case])
    assert found == pytest.approx({"mean_dice": (0.5 + 0) / 2, "hd95": (1.0 + 2.0) / 2})
    assert score_maps_under("deepmind", [case])["hd95"] == pytest.approx((1 + 2) / 2)


def test_multilabel_has_no_background():
    counts = np.array([[[9, 1], [2, 8]], [[3, 4], [5, 8]]])
    found = score_under("nnunet", [case_row("a", counts)], class_spec(2, "multilabel"))
    assert found["mean_iou"] == pytest.approx((8 / 11 + 8 / 17) / 2)


def test_an_unknown_convention_is_refused():
    with pytest.raises(InputError, match=r"`convention` to be one of segmeter, mmseg, .*, got 'mona'.* 'monai'"):
        score_maps_under("mona", [])


def test_every_choice_is_in_the_hash():
    assert len({convention.hash for convention in CONVENTIONS.values()}) == len(CONVENTIONS)
    for field in fields(Convention):
        changed = replace(OURS, **{field.name: "other"})
        assert changed.hash != OURS.hash, field.name
    assert replace(OURS).hash == OURS.hash


def test_what_differs_is_said_of_every_other_convention():
    assert differences(OURS, background=False) == []
    assert differences(CONVENTIONS["mmseg"], background=False) == ["with background"]
    assert differences(CONVENTIONS["brats"], surfaces=False, groups=False) == [
        "mean per class, then over classes",
        "without background",
        "both sides empty: Dice 1",
    ]
    for name in CONVENTIONS.keys() - {"segmeter", "mmseg", "cityscapes", "torchmetrics-jaccard", "hf-evaluate"}:
        assert differences(CONVENTIONS[name]), name
