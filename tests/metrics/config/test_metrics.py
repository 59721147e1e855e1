"""The schema refuses what no summary could use."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"convention": "segmetr"}, r"`convention` to be one of segmeter, mmseg, .*\. Did you mean 'segmeter'"),
        ({"bootstrap": -1}, "`bootstrap` >= 0"),
        ({"bootstrap": 2_000_000}, "<= 1e[+]06"),
        ({"seed": -1}, "`seed` >= 0"),
        ({"interval": "basic"}, "`interval` to be one of expanded, bca, percentile"),
        ({"cluster": "p["}, "`cluster` to be prefix:SEPARATOR, TABLE.csv:COLUMN, or a regular expression with a group"),
        ({"cluster": "p"}, "`cluster` to be prefix:SEPARATOR, TABLE.csv:COLUMN, or a regular expression with a group"),
        ({"groups": {"x": ()}}, r"`groups\.x` to name one or more distinct classes"),
        ({"groups": {"x": ("a", "a")}}, r"`groups\.x` to name one or more distinct classes"),
        ({"measures": (SurfaceConfig(), SurfaceConfig(tolerances=(2,)))}, "to name each measure once"),
        ({"spacing": (1.0, 0.0)}, "`spacing` to be null or 2 or 3 numbers > 0"),
    ],
    ids=range(11),
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        MetricsConfig(**values)


def test_all_problems_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        MetricsConfig(seed=-1, bootstrap=-1)
    assert len(caught.value.problems) == 2


def test_the_packaged_default_is_the_schema_s_default():
    path = Path(__file__).parents[3] / "configs" / "metrics" / "default.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert values.pop("defaults") == ["schema_default", "_self_"]
    assert values.pop("seed") == "${seed}"  # of the command: one seed rules all
    values["seed"] = MetricsConfig().seed
    assert MetricsConfig(**values | {"measures": tuple(values["measures"])}) == MetricsConfig()
    assert set(values) == {field.name for field in fields(MetricsConfig)}
