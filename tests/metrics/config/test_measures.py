"""Settings of measures: ranges, builders by their names, and one list of the kinds of surface."""

import math
from typing import get_args, get_type_hints

import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.measures import (
    MEASURES,
    AveragePrecisionConfig,
    BoundaryConfig,
    InstancesConfig,
    LesionsConfig,
    SizesConfig,
    SurfaceConfig,
)
from segmeter.metrics.config.scores import SUFFIXES
from segmeter.metrics.distances import SurfaceKind
from segmeter.metrics.measures.protocol import Measure, Region
from tests.metrics.build import class_spec


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        (SurfaceConfig, {"tolerances": ()}, "`tolerances` to be a list, each a number >= 0, of length >= 1"),
        (SurfaceConfig, {"tolerances": (1, -1)}, r"`tolerances\[1\]` to be a number >= 0, got -1"),
        (SurfaceConfig, {"penalty": -1}, "`penalty` to be one of inf, diagonal, nan or a number >= 0, got -1"),
        (SurfaceConfig, {"penalty": "max"}, "`penalty` to be one of inf"),
        (SurfaceConfig, {"surface": "C"}, "`surface` to be one of"),
        (BoundaryConfig, {"width": 0}, "`width` to be an integer >= 1"),
        (BoundaryConfig, {"ratio": 0}, "`ratio` to be a number > 0"),
        (InstancesConfig, {"threshold": 1.0}, "`threshold` to be a number >= 0 and < 1"),
        (InstancesConfig, {"connectivity": 6}, "`connectivity` to be one of 8, 4, got 6"),
        (InstancesConfig, {"objects": "files"}, "`objects` to be one of"),
        (AveragePrecisionConfig, {"thresholds": (0.3, 0.5)}, r"`thresholds\[0\]` to be a number >= 0.5"),
        (AveragePrecisionConfig, {"thresholds": ()}, "`thresholds` to be a list, .* of length >= 1"),
        (SizesConfig, {"limits": (1, 2, 3)}, "`limits` to be a list of 1, each an integer >= 1 or a list of 2"),
        (LesionsConfig, {"conventions": ("picia",)}, "Did you mean 'picai'"),
    ],
)
def test_bad_options_are_refused(schema, values, message):
    with pytest.raises(ConfigError, match=message):
        schema(**values)


def test_infinite_and_undefined_penalties_are_words():
    assert [SurfaceConfig(penalty=number).penalty for number in (math.nan, math.inf, 3.5)] == ["nan", "inf", 3.5]


@pytest.mark.parametrize("name", MEASURES.names())
def test_every_measure_builds_under_its_own_name(name):
    config = MEASURES.schema(name)()
    assert config.name == name
    built = MEASURES.build(config, spec=class_spec(2, "binary"), regions=(Region(name="road", members=(1,)),))
    assert isinstance(built, Measure)


def test_one_list_of_surfaces():
    kinds = get_args(SurfaceKind)
    assert tuple(SUFFIXES) == kinds
    assert len(set(SUFFIXES.values())) == len(kinds)
    assert get_args(get_type_hints(SurfaceConfig)["surface"]) == (*kinds, "both")
    assert {convention.surface for convention in CONVENTIONS.values()} == set(kinds)
