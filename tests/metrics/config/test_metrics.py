"""The schema refuses what no summary could use."""

import re

import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.clusters import CLUSTER_RULE


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"convention": "segmetr"}, r"`convention` to be one of segmeter, mmseg, .*\. Did you mean 'segmeter'"),
        ({"bootstrap": -1}, "`bootstrap` to be an integer >= 0"),
        ({"bootstrap": 2_000_000}, "<= 1000000"),
        ({"seed": -1}, "`seed` to be an integer >= 0"),
        ({"interval": "basic"}, "`interval` to be one of expanded, bca, percentile"),
        ({"cluster": "p["}, f"`cluster` {re.escape(CLUSTER_RULE)}"),
        ({"cluster": "p"}, f"`cluster` {re.escape(CLUSTER_RULE)}"),
        ({"groups": {"x": ()}}, r"`groups\.x` to be a list, each text, of length >= 1"),
        ({"groups": {"x": ("a", "a")}}, r"`groups\.x` to name distinct classes, got \['a', 'a'\]"),
        ({"measures": (SurfaceConfig(), SurfaceConfig(tolerances=(2,)))}, "to name each measure once"),
        ({"spacing": (1.0, 0.0)}, r"`spacing\[1\]` to be a number > 0"),
        ({"slices": "cases.txt", "slice_by": ("a",)}, r"\.csv, \.tsv, \.parquet"),
        ({"slices": "cases.csv"}, "to name columns of metrics.slices"),
        ({"slice_by": ("a", "a")}, "each once"),
    ],
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        MetricsConfig(**values)
