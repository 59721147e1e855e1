"""The steps' settings: ranges, and what can't follow what."""

import subprocess
import sys

import pytest

from segmeter.errors import ConfigError
from segmeter.postprocess.config import STEPS, OpeningConfig, PostprocessConfig, WatershedConfig


@pytest.mark.parametrize(
    ("step", "settings", "said"),
    [
        ("remove_small_objects", {"min_pixels": 0}, "remove_small_objects: expected `min_pixels` .* >= 1, got 0"),
        ("remove_small_objects", {"connectivity": 6}, r"`connectivity` to be one of 4, 8, got 6"),
        ("largest_component", {"connectivity": 1}, r"largest_component: .* got 1"),
        ("clear_border", {"margin": -1}, r"clear_border: expected `margin` to be an integer >= 0"),
        ("fill_holes", {"max_pixels": 0}, r"fill_holes: expected `max_pixels` to be an integer >= 1"),
        ("opening", {"radius": 0}, r"opening: expected `radius` to be an integer >= 1 and <= 50, got 0"),
        ("closing", {"radius": 51}, r"closing: expected `radius` .* got 51"),
        ("watershed", {"min_distance": 0}, r"watershed: expected `min_distance` to be an integer >= 1"),
        ("opening", {"classes": ()}, r"`classes` to be a list, each text, of length >= 1 or null, got \[\]"),
    ],
)
def test_settings_out_of_range_are_refused(step, settings, said):
    with pytest.raises(ConfigError, match=said):
        STEPS.schema(step)(**settings)


def test_nothing_follows_a_watershed():
    with pytest.raises(ConfigError, match="to have watershed only as the last step"):
        PostprocessConfig(steps=(WatershedConfig(), OpeningConfig()))
    assert PostprocessConfig(steps=(OpeningConfig(), WatershedConfig())).steps


def test_reading_the_schemas_imports_no_heavy_library():
    heavy = {"numpy", "scipy", "skimage", "torch"}
    code = f"import sys, segmeter.postprocess.config; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
