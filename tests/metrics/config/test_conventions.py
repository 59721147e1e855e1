"""Conventions over several cases: mmseg's formula, MONAI, BraTS and recorded values of MetricsReloaded.

`tests/differential/test_presets.py` runs every other tool live.
"""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.summary.conventions import score_maps_under
from tests.differential.peers import load
from tests.metrics.build import class_spec

PLANES = ("2-D", (26, 33), (1.0, 1.0)), ("2-D spaced", (26, 33), (0.7, 1.9)), ("3-D", (9, 14, 12), (2.5, 1.0, 0.8))
TOLERANCE = 1.5
REGULAR = 1e-6  # relative, what is promised of a regular case


def label_maps(shape, spacing, *, seed, cases=5, spec=None):
    """Cases in which target and prediction hold every class of three."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(cases):
        field = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
        target = np.digitize(field, np.quantile(field, [0.5, 0.8])).astype(np.uint8)
        moved = np.roll(field, 1 + i % 2, axis=0) + 0.02 * rng.standard_normal(shape)
        labels = np.digitize(moved, np.quantile(moved, [0.55, 0.85])).astype(np.uint8)
        made.append(CaseMaps(case_id=f"{i}", target=target, labels=labels, spacing=spacing, spec=spec or class_spec(3)))
    return made


@pytest.fixture(params=PLANES, ids=[name for name, *_ in PLANES])
def cases(request):
    return label_maps(*request.param[1:], seed=len(request.param[0]))


def scored(name, cases, **options):
    return score_maps_under(name, cases, tolerances=(TOLERANCE,), **options)


def intersections(cases, k):
    """Intersection, target and prediction of one class, in pixels of all cases."""
    inside = [(maps.target == k, maps.labels == k) for maps in cases]
    return (
        sum(int((target & mask).sum()) for target, mask in inside),
        sum(int(target.sum()) for target, _ in inside),
        sum(int(mask.sum()) for _, mask in inside),
    )


def assert_figures(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=REGULAR), name


def test_mmseg(cases):
    areas = [intersections(cases, k) for k in range(3)]
    iou = np.nanmean([common / (target + mask - common) for common, target, mask in areas])
    dice = np.nanmean([2 * common / (target + mask) for common, target, mask in areas])
    assert_figures(scored("mmseg", cases), {"mean_iou": iou, "mean_dice": dice})


def test_brats(cases):
    binary, regions = load("medpy.metric.binary", "medpy"), {"whole": ("road", "car"), "core": ("car",)}
    members = {"whole": [1, 2], "core": [2]}

    def of(measure):
        scores = [
            [measure(np.isin(m.labels, held), np.isin(m.target, held), m.spacing) for m in cases]
            for held in members.values()
        ]
        return np.mean([np.mean(one) for one in scores])

    expected = {"mean_dice": of(lambda mask, target, _: binary.dc(mask, target)), "hd95": of(binary.hd95)}
    assert_figures(scored("brats", cases, groups=regions), expected)


# measured with MetricsReloaded at commit ca3d352 on the cases of the fixture, which is not on the package index
METRICS_RELOADED = {
    "2-D": (0.44699593482829164, 0.6112142404695116, 2.6481838862379705, 0.817353688661332, 0.8794070351486691),
    "2-D spaced": (0.4070250867335254, 0.5705805550887444, 3.693440207251167, 0.901612819504497, 0.8849437451840554),
    "3-D": (0.36266021127088, 0.5264292556957807, 3.0913753620171294, 0.8202691769373308, 0.8112499193319597),
}


@pytest.mark.parametrize(("name", "shape", "spacing"), PLANES, ids=METRICS_RELOADED)
def test_metrics_reloaded(name, shape, spacing):
    names = ("mean_iou", "mean_dice", "hd95", "assd", f"nsd@{TOLERANCE:g}")
    expected = dict(zip(names, METRICS_RELOADED[name], strict=True))
    assert_figures(scored("metrics-reloaded", label_maps(shape, spacing, seed=len(name))), expected)
