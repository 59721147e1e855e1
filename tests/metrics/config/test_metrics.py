"""The schema refuses what no summary could use."""

import re

import pytest

from segmeter.errors import ConfigError
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
        ({"spacing": (1.0, 0.0)}, "`spacing` to be a list of 2, each a number > 0 or a list of 3"),
    ],
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        MetricsConfig(**values)
