"""launch=: its kinds, and a value out of range."""

import pytest

from segmeter.distributed.config import LAUNCHES
from segmeter.errors import ConfigError


def test_each_kind_is_registered_by_its_name_and_checks_its_keys() -> None:
    assert {name: LAUNCHES.schema(name)().name for name in LAUNCHES.names()} == {
        name: name for name in LAUNCHES.names()
    }
    with pytest.raises(ConfigError, match=r"launch: .*'slrum'.* Did you mean 'slurm'\?"):
        LAUNCHES.schema("slrum")
    with pytest.raises(ConfigError, match=r"launch: expected `devices` .*got 1025"):
        LAUNCHES.schema("processes")(devices=1025)
