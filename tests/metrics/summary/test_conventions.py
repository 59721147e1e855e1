"""Conventions differ in headline figures only: what empty sides cost, what is left out, what the summary says."""

import math

import numpy as np
import pytest
from scipy import ndimage

from segmeter.errors import InputError
from segmeter.metrics.config.conventions import CONVENTIONS, OURS
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.conventions import figures_under, score_maps_under
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.summarise import summarise
from tests.differential.peers import load, quiet
from tests.metrics.build import case_row, class_spec, maps_of, score_under

NAN, INF, FAR = math.nan, math.inf, 373.12866  # what BraTS gives a miss
SPEC = class_spec(3)


def label_maps(shape, spacing, *, seed, cases=5, spec=SPEC):
    """Cases in which target and prediction hold every class of three."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(cases):
        field = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
        target = np.digitize(field, np.quantile(field, [0.5, 0.8])).astype(np.uint8)
        moved = np.roll(field, 1 + i % 2, axis=0) + 0.02 * rng.standard_normal(shape)
        labels = np.digitize(moved, np.quantile(moved, [0.55, 0.85])).astype(np.uint8)
        made.append(maps_of(target, labels, spec, case_id=f"{i}", spacing=spacing))
    return made


def rows_of(cases, config):
    return [make_row(maps, build_measures(config, maps.spec)) for maps in cases]


@pytest.mark.parametrize(
    ("shape", "spacing"), [((26, 33), (0.7, 1.9)), ((9, 14, 12), (2.5, 1, 0.8))], ids=["2-D", "3-D"]
)
def test_ours_is_what_the_summary_says(shape, spacing):
    config = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(tolerances=(1.5,)),))
    rows = rows_of(label_maps(shape, spacing, seed=6), config)
    summary = summarise(rows, SPEC, config)
    wanted = {name: summary["dataset"][name] for name in ("mean_iou", "mean_dice")}
    wanted |= {name: summary["measures"][name]["mean"]["mean"] for name in ("hd95", "assd", "nsd@1.5")}
    assert score_under("segmeter", rows, SPEC, config) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(
    ("name", "shape", "spacing", "figures"),
    [
        ("2-D", (26, 33), (1.0, 1.0),
         (0.44699593482829164, 0.6112142404695116, 2.6481838862379705, 0.817353688661332, 0.8794070351486691)),
        ("2-D spaced", (26, 33), (0.7, 1.9),
         (0.4070250867335254, 0.5705805550887444, 3.693440207251167, 0.901612819504497, 0.8849437451840554)),
        ("3-D", (9, 14, 12), (2.5, 1.0, 0.8),
         (0.36266021127088, 0.5264292556957807, 3.0913753620171294, 0.8202691769373308, 0.8112499193319597)),
    ],
    ids=["2-D", "2-D spaced", "3-D"],
)  # fmt: skip
def test_metrics_reloaded(name, shape, spacing, figures):
    """Measured with its commit ca3d352, which is not on the package index, on the same cases."""
    cases = label_maps(shape, spacing, seed=len(name))
    wanted = dict(zip(("mean_iou", "mean_dice", "hd95", "assd", "nsd@1.5"), figures, strict=True))
    assert score_maps_under("metrics-reloaded", cases, tolerances=(1.5,)) == pytest.approx(wanted, rel=1e-6)


def dot(*places):
    """An image of 9 x 9 with single pixels of class 1."""
    found = np.zeros((9, 9), np.uint8)
    for place in places:
        found[place] = 1
    return found


def pixel_cases(*pairs):
    spec = class_spec(2, "binary", ignore_index=None)
    return [maps_of(*pair, spec, case_id=f"{i}") for i, pair in enumerate(pairs)]


FOUND = dot((4, 2), (4, 3)), dot((4, 3), (4, 4))  # one of three pixels in common; each surface is 0 and 1 away
SCENES = {"both_empty": (dot(), dot()), "prediction_empty": (dot((2, 2)), dot()), "target_empty": (dot(), dot((2, 2)))}
EMPTY = {  # convention: IoU, Dice, HD95 of the class in each scene, over cases of which the other is FOUND
    "nnunet": {"both_empty": (NAN, NAN), "prediction_empty": (0, 0), "target_empty": (0, 0)},
    "medpy": {"both_empty": (1, NAN, NAN), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "metrics-reloaded": {"both_empty": (NAN, 1, 0), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "panoptica": {"both_empty": (NAN, NAN, NAN), "prediction_empty": (0, 0, INF), "target_empty": (0, 0, INF)},
    "deepmind": {"both_empty": (None, NAN, NAN), "prediction_empty": (None, 0, INF), "target_empty": (None, 0, INF)},
    "brats": {"both_empty": (None, 1, 0), "prediction_empty": (None, 0, FAR), "target_empty": (None, 0, FAR)},
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
    assert score_maps_under("monai", pixel_cases(*scenes)) == pytest.approx(expected, rel=1e-6)
    assert math.isnan(score_maps_under("monai", pixel_cases(SCENES["prediction_empty"]))["hd95"])


@pytest.mark.parametrize("missed", [0, 5, 9, 10])
def test_misses_are_counted_where_a_convention_leaves_them_out(missed):
    off = dot((4, 1)), dot((4, 5))
    cases = pixel_cases(*[(off[0], dot()) if i < missed else off for i in range(10)])
    config = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(surface="both"),))
    board = build_scoreboard(rows_of(cases, config), cases[0].spec, config)
    monai, monai_left_out = figures_under(CONVENTIONS["monai"], board)
    ours, left_out = figures_under(OURS, board)
    assert monai_left_out["hd95"] == missed
    assert left_out["hd95"] == 0
    assert monai["hd95"] == 4 if missed < 10 else math.isnan(monai["hd95"])
    assert ours["hd95"] == (4 if not missed else math.inf)


def test_one_absent_class_does_not_undo_the_mean_of_nnunet():
    maps = label_maps((20, 20), (1.0, 1.0), seed=1, spec=class_spec(4))  # the fourth class is nowhere
    three = label_maps((20, 20), (1.0, 1.0), seed=1)
    assert score_maps_under("nnunet", maps) == score_maps_under("nnunet", three)


def test_a_named_convention_adds_its_headline_and_changes_nothing_else():
    maps = label_maps((20, 24), (1.0, 1.0), seed=2)
    plain, named = (
        MetricsConfig(bootstrap=0, convention=name, measures=(SurfaceConfig(),)) for name in ("segmeter", "deepmind")
    )
    ours, theirs = (summarise(rows_of(maps, config), SPEC, config) for config in (plain, named))
    assert "headline" not in ours
    assert (ours["convention"], ours["convention_hash"]) == ("segmeter", OURS.hash)
    assert (theirs["convention"], theirs["convention_hash"]) == ("deepmind", CONVENTIONS["deepmind"].hash)
    assert theirs["headline"] == pytest.approx(score_maps_under("deepmind", maps), rel=1e-12)
    assert [entry["name"] for entry in theirs["conventions"]] == ["segmeter", "deepmind"]
    assert all(ours[name] == theirs[name] for name in ("dataset", "per_class", "per_case"))


def test_all_conventions_stand_beside_ours():
    missed = pixel_cases(FOUND, SCENES["prediction_empty"])
    config = MetricsConfig(bootstrap=0, convention="all", measures=(SurfaceConfig(),))
    summary = summarise(rows_of(missed, config), missed[0].spec, config)
    assert summary["convention"] == "segmeter"
    entries = {entry["name"]: entry for entry in summary["conventions"]}
    assert list(entries) == list(CONVENTIONS)
    assert summary["headline"] == entries["segmeter"]["figures"]
    assert entries["segmeter"]["figures"]["hd95"] == "inf"
    found = entries["monai"]["figures"]["hd95"], entries["monai"]["left_out"]
    assert found == (0.95, {"hd95": 1})  # of distances 0 and 1
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
    wanted = {"mean_iou": tp / (target + predicted - tp), "mean_dice": 2 * tp / (target + predicted)}
    assert found == pytest.approx(wanted)


def test_both_surfaces_leave_columns_of_their_own():
    maps = pixel_cases((dot((4, 2), (4, 3), (4, 4)), dot((4, 4))))  # within 0.5: one of three pixels, and the only one
    own, other, both = (
        rows_of(maps, MetricsConfig(measures=(SurfaceConfig(surface=surface, tolerances=(0.5,)),)))[0].scores
        for surface in ("border_pixels", "marching_cubes", "both")
    )
    metrics, suffix = ("hd", "hd95", "hd95_pooled", "assd", "masd"), "_marching_cubes"
    assert set(own) == {"nsd@0.5/road", *(f"{name}/road" for name in metrics)}
    assert set(other) == {f"nsd{suffix}@0.5/road", *(f"{name}{suffix}/road" for name in metrics)}
    assert both == own | other | {"nsd_mean@0.5/road": (1 / 3 + 1) / 2}
    under_another = MetricsConfig(convention="monai", measures=(SurfaceConfig(tolerances=(0.5,)),))
    assert rows_of(maps, under_another)[0].scores == both


def test_planes_of_multilabel_have_surfaces_too():
    spec = class_spec(2, "multilabel", ignore_index=None)
    case = maps_of(np.stack([FOUND[0], dot((2, 2))]), np.stack([FOUND[1], dot((2, 4))]), spec)
    found = score_maps_under("brats", [case])
    assert score_maps_under("nnunet", [case])["mean_iou"] == pytest.approx((1 / 3 + 0) / 2)  # no plane is background
    assert found == pytest.approx({"mean_dice": (0.5 + 0) / 2, "hd95": (1.0 + 2.0) / 2})
    assert score_maps_under("deepmind", [case])["hd95"] == pytest.approx((1 + 2) / 2)


def test_an_unknown_convention_is_refused():
    with pytest.raises(InputError, match=r"`convention` to be one of segmeter, mmseg, .*, got 'mona'.* 'monai'"):
        score_maps_under("mona", [])
    with pytest.raises(InputError, match="`cases` to be one or more with the same classes, got 0 cases"):
        score_maps_under("monai", [])
