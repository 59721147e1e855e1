"""Settings of measures: what is out of range is refused, and each builder is found by its name."""

import math

import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import MEASURES, BoundaryConfig, InstancesConfig, SizesConfig, SurfaceConfig
from segmeter.metrics.measures.protocol import Measure, Region
from tests.metrics.build import class_spec


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SurfaceConfig(tolerances=()), "`tolerances` to be distinct numbers >= 0"),
        (lambda: SurfaceConfig(tolerances=(1, -1)), r"`tolerances\[1\]` to be a number >= 0, got -1"),
        (lambda: SurfaceConfig(tolerances=(1, 1.0)), "`tolerances` to be distinct"),
        (lambda: SurfaceConfig(penalty=-1), "`penalty` to be one of inf, diagonal, nan or a number >= 0, got -1"),
        (lambda: SurfaceConfig(penalty="max"), "`penalty` to be one of inf"),
        (lambda: SurfaceConfig(surface="C"), "`surface` to be one of"),
        (lambda: SurfaceConfig(classes=("a", "a")), "`classes` to be null or distinct names"),
        (lambda: BoundaryConfig(width=0), "`width` to be an integer >= 1"),
        (lambda: BoundaryConfig(ratio=0), "`ratio` to be a number > 0"),
    ],
)
def test_bad_options_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: InstancesConfig(threshold=1.0), "`threshold` to be a number >= 0 and < 1"),
        (lambda: InstancesConfig(connectivity=6), "`connectivity` to be one of 8, 4, got 6"),
        (lambda: SizesConfig(limits=(9, 9)), "`limits` to be 1 or 2 rising numbers"),
        (lambda: SizesConfig(limits=(1, 2, 3)), "`limits` to be 1 or 2 rising numbers"),
    ],
)
def test_bad_options_of_objects_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_infinite_and_undefined_penalties_are_words():
    assert [SurfaceConfig(penalty=number).penalty for number in (math.nan, math.inf, 3.5)] == ["nan", "inf", 3.5]


@pytest.mark.parametrize("name", MEASURES.names())
def test_every_measure_builds_under_its_own_name(name):
    config = MEASURES.schema(name)()
    assert config.name == name
    built = MEASURES.build(config, spec=class_spec(2, "binary"), regions=(Region(name="road", members=(1,)),))
    assert isinstance(built, Measure)
