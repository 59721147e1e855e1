"""The keys of the commands that help to decide."""

import pytest

from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.config import AgreeKeys


def test_each_kind_of_consensus_is_named_once() -> None:
    assert AgreeKeys().consensus == ("majority",)
    with pytest.raises(ConfigError, match="to name each kind once"):
        AgreeKeys(consensus=("staple", "staple"))
