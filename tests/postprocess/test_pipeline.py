"""Steps in order: their settings, what each changed, names, instances, refusals."""

import subprocess
import sys

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.postprocess import config as schema
from segmeter.postprocess.pipeline import run_steps

from .conftest import make_spec

EVERY = [schema.STEPS.schema(name)() for name in schema.STEPS.names() if name != "cores"]  # which needs probabilities


def test_changed_pixels_of_each_step_by_hand():
    labels = np.zeros((5, 7), np.uint8)
    labels[1:4, 1:4] = labels[1, 6] = 1
    labels[2, 2] = 0  # a hole, and a single pixel
    fill, small = schema.FillHolesConfig(), schema.RemoveSmallObjectsConfig(min_pixels=2)
    cleaned = run_steps(labels, (fill, small, fill, schema.WatershedConfig()), make_spec(2, "binary"))
    assert cleaned.changed == {"fill_holes": 1, "remove_small_objects": 1, "fill_holes_2": 0, "watershed": 0}
    labels[2, 2], labels[1, 6] = 1, 0
    np.testing.assert_array_equal(cleaned.labels, labels)
    np.testing.assert_array_equal(cleaned.instances, labels)


@pytest.mark.parametrize("step", EVERY, ids=lambda step: step.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_step_keeps_dtype_shape_and_values_and_leaves_its_input(blobs, spec, step, dtype):
    labels = blobs.astype(dtype)
    before = labels.copy()
    labels.setflags(write=False)
    cleaned = run_steps(labels, [step], spec)
    assert (cleaned.labels.dtype, cleaned.labels.shape) == (dtype, labels.shape)
    assert cleaned.labels.max() < 4
    assert cleaned.changed[step.name] == np.count_nonzero(cleaned.labels != before)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("step", EVERY, ids=lambda step: step.name)
def test_every_step_takes_planes(blobs, step):
    planes = np.stack([blobs == k for k in range(3)]).astype(np.uint8)
    planes.setflags(write=False)
    cleaned = run_steps(planes, [step], make_spec(3, "multilabel"))
    assert cleaned.labels.shape == planes.shape
    assert set(np.unique(cleaned.labels)) <= {0, 1}
    for k in range(3):  # a plane alone gives what it gives among others
        alone = run_steps(planes[k], [step], make_spec(2, "binary"))
        np.testing.assert_array_equal(cleaned.labels[k], alone.labels)


@pytest.mark.parametrize("step", EVERY, ids=lambda step: step.name)
@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 5)])
def test_every_step_takes_uniform_and_tiny_images(step, value, shape):
    labels = np.full(shape, value, np.uint8)  # nothing else is there to take its place
    cleaned = run_steps(labels, [step], make_spec(2, "binary"))
    np.testing.assert_array_equal(cleaned.labels, labels)
    assert cleaned.instances is None or (cleaned.instances == labels).all()


@pytest.mark.parametrize("step", ["remove_small_objects", "largest_component", "clear_border", "opening"])
def test_steps_work_on_the_named_classes_only_and_removed_pixels_get_the_class_fill(blobs, spec, step):
    cleaned = run_steps(blobs, [schema.STEPS.schema(step)(classes=("c",), fill="b")], spec)
    changed = cleaned.labels != blobs
    assert changed.any()
    assert (blobs[changed] == 2).all()
    assert (cleaned.labels[changed] == 1).all()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.zeros((2, 2), np.int64), r"\(H, W\) uint8 or uint16, got int64"),
        (np.zeros((1, 2, 2), np.uint8), r"\(1, 2, 2\)"),
        (np.zeros((0, 2), np.uint8), r"\(0, 2\)"),
        (np.full((2, 2), 4, np.uint8), r"0 \.\. 3, got 4"),
        (np.full((2, 2), 255, np.uint8), "got 255"),
    ],
)
def test_labels_that_are_none_are_refused(spec, labels, said):
    with pytest.raises(InputError, match=said):
        run_steps(labels, (), spec)
    with pytest.raises(InputError, match=r"\(2, H, W\) uint8 or uint16, got uint8 \(3, 2, 2\)"):
        run_steps(np.zeros((3, 2, 2), np.uint8), (), make_spec(2, "multilabel"))


def test_unknown_step_class_and_fill_are_refused(spec):
    for step, said in (
        (schema.StepConfig(name="openning"), "Did you mean 'opening'"),
        (schema.ClosingConfig(classes=("z",)), "postprocess.closing: expected `classes` .*'z'"),
        (schema.OpeningConfig(fill="z"), "postprocess.opening: expected `fill` .*'z'"),
    ):
        with pytest.raises(ConfigError, match=said):
            run_steps(np.zeros((2, 2), np.uint8), [step], spec)


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
        schema.STEPS.schema(step)(**settings)


def test_nothing_follows_a_watershed():
    with pytest.raises(ConfigError, match="to have watershed only as the last step"):
        schema.PostprocessConfig(steps=(schema.WatershedConfig(), schema.OpeningConfig()))
    assert schema.PostprocessConfig(steps=(schema.OpeningConfig(), schema.WatershedConfig())).steps


def test_reading_the_schemas_imports_no_heavy_library():
    heavy = {"numpy", "scipy", "skimage", "torch"}
    code = f"import sys, segmeter.postprocess.config; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
