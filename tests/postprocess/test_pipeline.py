"""Steps in order: what each changed, names, instances, refusals."""

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
    np.testing.assert_array_equal(run_steps(labels, [step], make_spec(2, "binary")).labels, labels)


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
