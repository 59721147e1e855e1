"""Batches: read ahead, grouped by shape, halved where memory runs out, and averaged over views."""

import logging
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from segmeter.data.sample import Sample
from segmeter.errors import RunError
from segmeter.inference.batches import Passes, same_shape_groups
from segmeter.inference.config import InferenceConfig
from segmeter.progress import Stages
from tests.models.parts import make_card, make_spec, make_tiny

CPU = torch.device("cpu")


def passes_of(segmenter, *, batch_size=4, tile_batch=4, stages=None):
    config = InferenceConfig(precision="float32", batch_size=batch_size, tile_batch=tile_batch)
    return Passes(segmenter, config, CPU, stages=stages or Stages())


def batch(count=5, side=32):
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_tiles_have_a_batch_size_of_their_own_and_the_time_of_passes_is_added_up():
    stages, (segmenter, sizes) = Stages(), failing_above(4)
    passes = passes_of(segmenter, batch_size=4, tile_batch=2, stages=stages)
    passes.run(batch())
    first = stages.seconds["forward"]
    passes.run(batch(), tile=32)
    assert sizes == [4, 1, 2, 2, 1]
    assert stages.seconds["forward"] > first > 0


def test_modules_return_to_the_modes_they_had():
    segmenter = make_tiny().train()
    frozen = next(module for module in segmenter.modules() if isinstance(module, torch.nn.BatchNorm2d))
    frozen.eval()
    modes = [module.training for module in segmenter.modules()]
    with passes_of(segmenter).evaluating():
        assert not any(module.training for module in segmenter.modules())
    assert [module.training for module in segmenter.modules()] == modes
    assert not frozen.training


def failing_above(most, error=None):
    """A segmenter that has no memory for more than `most` images or tiles at a time."""
    segmenter, sizes = make_tiny(), []

    def hook(module, inputs):
        sizes.append(len(inputs[0]))
        if len(inputs[0]) > most:
            raise error or MemoryError("full")

    segmenter.register_forward_pre_hook(hook)
    return segmenter, sizes


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=lambda error: type(error).__name__,
)
def test_18_a_batch_that_does_not_fit_is_halved_from_the_images_there_are_and_gives_the_same(caplog, error):
    segmenter, sizes = failing_above(1, error)
    passes = passes_of(segmenter, batch_size=64)
    with caplog.at_level(logging.WARNING):
        found = passes.run(batch(6))
    assert torch.equal(found, passes_of(make_tiny(), batch_size=1).run(batch(6)))
    assert (passes.batch_size, passes.tile_batch) == (1, 4)
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory: 3 images at a time from here on (the same results)",
        "out of memory: 1 images at a time from here on (the same results)",
    ]
    passes.run(batch(2))
    assert sizes == [6, 3, *[1] * 6, 1, 1]  # what was learnt is kept
    passes.run(batch(2), tile=32)
    assert (passes.batch_size, passes.tile_batch) == (1, 1), "tiles keep their size"


@pytest.mark.parametrize(
    ("side", "tile", "message"),
    [
        (300, None, r"image of 300 x 300. Set inference.tile=128 and inference.tile_batch=1, or run on device=cpu"),
        (256, 256, r"tile of 256 x 256. Set inference.tile below 256 and inference.tile_batch=1"),
        (160, None, r"image of 160 x 160. Set inference.tile=64 and"),
    ],
)
def test_18_what_never_fits_ends_with_advice_and_other_errors_pass_through(side, tile, message):
    with pytest.raises(RunError, match=f"for one {message}"):
        passes_of(failing_above(0)[0]).run(batch(1, side=side), tile=tile)
    with pytest.raises(RuntimeError, match="another kind"):
        passes_of(failing_above(0, RuntimeError("a fault of another kind"))[0]).run(batch(1), tile=tile)


# Each way to see an image and to undo it, written with NumPy alone
FLIPS = [(partial(np.flip, axis=axes),) * 2 for axes in ((), (-1,), (-2,), (-2, -1))]
TURNS = [tuple(partial(np.rot90, k=k, axes=(2, 3)) for k in (turn, -turn)) for turn in range(4)]
MIRRORED = [(lambda x, see=see: see(x)[..., ::-1], lambda x, undo=undo: undo(x[..., ::-1])) for see, undo in TURNS]
KINDS = {"flips": FLIPS, "rotations": TURNS, "all": TURNS + MIRRORED}


def averaged(image, network, kind, task, channels):
    """The logits of an image over all views of a kind."""
    segmenter = Mock(side_effect=network, card=make_card(make_spec(max(channels, 2), task)))
    asked = {"flips": kind != "rotations", "rotations": kind != "flips"}
    config = InferenceConfig(precision="float32", **asked)
    return Passes(segmenter, config, CPU, stages=Stages()).run(image)


def uneven(image):
    """A network that depends on where a pixel lies, so that each flip says something else."""
    rows = torch.arange(image.shape[2]).float()[:, None]
    columns = torch.arange(image.shape[3]).float()
    return image * (1 + 0.3 * rows) - 0.2 * columns


@pytest.mark.parametrize("kind", KINDS)
def test_the_views_are_all_mirrors_and_turns_once_and_are_undone(kind):
    image, seen = np.linspace(-1, 1, 2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5), []
    found = averaged(
        torch.from_numpy(image), lambda view: seen.append(view.numpy().tobytes()) or view, kind, "multilabel", 3
    )
    assert sorted(seen) == sorted(see(image).tobytes() for see, _ in KINDS[kind])
    np.testing.assert_allclose(found.numpy(), image, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("task", "channels"), [("multiclass", 3), ("binary", 1), ("multilabel", 2)])
def test_views_average_probabilities(task, channels, kind):
    image = torch.randn(2, channels, 3, 4, generator=torch.Generator().manual_seed(0))
    to_probs = torch.sigmoid if task != "multiclass" else lambda logits: torch.softmax(logits, 1)
    runs = [undo(uneven(torch.from_numpy(see(image.numpy()).copy())).numpy()) for see, undo in KINDS[kind]]
    mean = sum(to_probs(torch.from_numpy(logits.copy()).double()) for logits in runs) / len(runs)
    found = averaged(image, uneven, kind, task, channels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(to_probs(found.double()), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("task", "channels"), [("multiclass", 2), ("binary", 1)])
def test_one_bad_flip_is_not_averaged_away(task, channels, value):
    def sometimes(image):
        return torch.where(image == 7.0, value, image)

    image = torch.zeros(1, channels, 2, 2)
    image[0, 0, 0, 1] = 7.0
    found = averaged(image, sometimes, "flips", task, channels)
    assert found[0, 0, 0, 1].isnan()
    assert found[0, :, 1].isfinite().all()


@pytest.mark.parametrize(
    ("count", "size", "groups"), [(6, 2, ["ab", "c", "d", "e", "f"]), (3, 8, ["abc"]), (0, 2, [])], ids=str
)
def test_groups_hold_consecutive_samples_of_one_shape_and_dtype(count, size, groups):
    arrays = [np.zeros((4, 6 if name == "d" else 5, 3), np.uint16 if name == "f" else np.uint8) for name in "abcdef"]
    samples = [Sample(case_id=name, image=each, target=None) for name, each in zip("abcdef", arrays, strict=True)]
    found = same_shape_groups(samples[:count], size)
    assert ["".join(each.case_id for each in group) for group in found] == groups
