"""The measure of clDice: columns of a case, and the score of the data set from their sums."""

import numpy as np
import pytest

from segmeter.metrics.config.measures import ClDiceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.shapes import centreline_dice
from tests.metrics.build import class_spec, named
from tests.metrics.surfaces.test_shape import tubes

PARTS = ("inside_target", "points_mask", "inside_mask", "points_target")


def test_the_measure_sums_over_cases():
    spec = class_spec(2, "binary")
    (measure,) = build_measures(MetricsConfig(measures=(ClDiceConfig(),)), spec)
    cases = [tubes(seed) for seed in (0, 1)] + [[np.zeros((9, 9), bool)] * 2]
    columns = []
    for target, labels in cases:
        maps = [one.astype(np.uint8) for one in (target, labels)]
        case = CaseMaps(case_id="c", target=maps[0], labels=maps[1], spacing=(1.0, 1.0), spec=spec)
        columns.append(named(measure_case(case, [measure])))
        found = centreline_dice(target, labels)
        np.testing.assert_equal(columns[-1]["cldice/road"], found.cldice)
        assert [columns[-1][f"sum:cldice_{part}/road"] for part in PARTS] == [getattr(found, part) for part in PARTS]
    assert np.isnan(columns[2]["cldice/road"])
    sums = {part: sum(one[f"sum:cldice_{part}/road"] for one in columns) for part in PARTS}
    score = measure.summarise({(f"cldice_{part}", "road"): np.array([total]) for part, total in sums.items()})
    precision = sums["inside_target"] / sums["points_mask"]
    sensitivity = sums["inside_mask"] / sums["points_target"]
    assert score["cldice", "road"][0] == pytest.approx(2 / (1 / precision + 1 / sensitivity), rel=1e-12)
