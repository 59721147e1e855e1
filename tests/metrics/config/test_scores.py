"""Whether more is better is known of every metric that ours give, and of no other."""

import numpy as np
import pytest

from segmeter.metrics.config.measures import MEASURES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.measures.protocol import build_measures, measure_case
from tests.metrics.build import BINARY, maps_of

FURTHER = {"surface": {"surface": "both"}, "instances": {"distances": True}}
EVERY = tuple(MEASURES.schema(name)(**FURTHER.get(name, {})) for name in MEASURES.names() if name != "content")
LOWER = {"hd", "hd95", "hd95_pooled", "assd", "masd", "object_masd", "fp", "fn", "object_fp", "object_fn"}
LOWER |= {f"objects_{name}" for name in ("missed", "spurious", "split", "part", "merged", "merging")}
LOWER |= {f"{kind}_{what}" for kind in ("boundary", "extent", "segment") for what in ("errors", "gain")}
LOWER |= {"voi", "voi_split", "voi_merge", "are", "betti0_error", "betti1_error", "euler_error"}
LOWER |= {"brats_hd95", "brats_fp", "brats_fn", "picai_fp", "picai_fn", "autopet_fp_volume", "autopet_fn_volume"}


def test_every_metric_of_our_measures_has_a_direction():
    measures, target = build_measures(MetricsConfig(measures=EVERY), BINARY), np.eye(9, dtype=np.uint8)
    columns = measure_case(maps_of(target, target), measures)
    sums = {(one.metric, one.region): np.array([one.value]) for one in columns if one.summed}
    metrics = {one.metric for one in columns if not one.summed}
    metrics |= {metric for measure in measures for metric, _ in measure.summarise(sums)}
    assert len(metrics) > 20
    for metric in metrics:
        wanted = "lower" if metric.partition("@")[0].removesuffix("_marching_cubes") in LOWER else "higher"
        assert find_direction(f"{metric}/road") == wanted, metric


@pytest.mark.parametrize("metric", ["area/cell", "object_tp/cell", "hd95x/cell", "hd95_b/cell", ""])
def test_nothing_is_guessed_of_another(metric):
    assert find_direction(metric) is None
