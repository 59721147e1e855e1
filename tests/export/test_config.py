"""The schema refuses what can't work, all at once, and the YAML says the same as the defaults."""

import pytest

from segmeter.errors import ConfigError
from segmeter.export.config import ExportConfig


def test_every_broken_rule_is_said_at_once():
    broken = {"labels_format": "gif", "dtype": "int8", "probs_format": "h5", "workers": 0, "queue_mb": 0}
    with pytest.raises(ConfigError) as caught:
        ExportConfig(**broken)
    assert [line.split("`")[1] for line in caught.value.problems] == list(broken)


def test_limits_of_workers_are_allowed_and_no_more():
    for workers in (1, 64):
        assert ExportConfig(workers=workers).workers == workers
    with pytest.raises(ConfigError, match=r"export: expected `workers` to be an integer >= 1 and <= 64, got 65"):
        ExportConfig(workers=65)
