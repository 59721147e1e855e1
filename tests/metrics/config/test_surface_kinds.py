"""The kinds of surface are the same in functions, configurations and conventions."""

from typing import get_args, get_type_hints

from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.scores import SUFFIXES
from segmeter.metrics.distances import SurfaceKind


def test_one_list_of_surfaces():
    kinds = get_args(SurfaceKind)
    assert tuple(SUFFIXES) == kinds
    assert len(set(SUFFIXES.values())) == len(kinds)
    assert get_args(get_type_hints(SurfaceConfig)["surface"]) == (*kinds, "both")
    assert {convention.surface for convention in CONVENTIONS.values()} == set(kinds)
