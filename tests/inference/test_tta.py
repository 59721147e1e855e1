import numpy as np
import pytest
import torch

from segmeter.inference.passes import averaged_logits, choose_views, see, undo

FLIPS = choose_views(flips=True, rotations=False)
KINDS = {
    "flips": {"flips": True, "rotations": False},
    "rotations": {"flips": False, "rotations": True},
    "all": {"flips": True, "rotations": True},
}


def seen(image):
    """Every image that can be made by mirrors and quarter turns, written with NumPy alone."""
    turned = [np.rot90(image, turn, (2, 3)) for turn in range(4)]
    return {"flips": [image, image[..., ::-1], image[..., ::-1, :], image[..., ::-1, ::-1]], "rotations": turned,
            "all": [*turned, *(each[..., ::-1] for each in turned)]}  # fmt: skip


def uneven(image):
    """A network that depends on where a pixel lies, so that each flip says something else."""
    rows = torch.arange(image.shape[2]).float()[:, None]
    columns = torch.arange(image.shape[3]).float()
    return image * (1 + 0.3 * rows) - 0.2 * columns


@pytest.mark.parametrize("kind", KINDS)
def test_the_views_are_all_mirrors_and_turns_once_and_are_undone(kind):
    image = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    views = choose_views(**KINDS[kind])
    found = [see(torch.from_numpy(image.copy()), view).numpy() for view in views]
    assert {each.tobytes() for each in map(np.ascontiguousarray, found)} == {
        np.ascontiguousarray(each).tobytes() for each in seen(image)[kind]
    }
    for view, each in zip(views, found, strict=True):
        np.testing.assert_array_equal(undo(torch.from_numpy(each.copy()), view).numpy(), image)
    assert see(torch.zeros(1, 2), views[0]).shape == (1, 2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32])
def test_every_kind_of_image_can_be_turned(dtype):
    image = torch.arange(6).view(1, 1, 2, 3).to(dtype)
    for view in choose_views(flips=True, rotations=True):
        assert torch.equal(undo(see(image, view), view).to(torch.float32), image.to(torch.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("task", "channels"), [("multiclass", 3), ("binary", 1), ("multilabel", 2)])
def test_views_average_probabilities(task, channels, kind):
    image = torch.randn(2, channels, 3, 4, generator=torch.Generator().manual_seed(0))
    to_probs = torch.sigmoid if task != "multiclass" else lambda logits: torch.softmax(logits, 1)
    views = choose_views(**KINDS[kind])
    mean = sum(to_probs(undo(uneven(see(image, view)), view).double()) for view in views) / len(views)
    found = averaged_logits(image, uneven, views=views, task=task)
    assert found.dtype == torch.float32
    torch.testing.assert_close(to_probs(found.double()), mean, rtol=1e-5, atol=1e-6)


def test_two_sure_opposite_answers_are_a_half():
    # the answer hangs on the place: after mirroring back, two flips of four say 1 and two say 0
    found = averaged_logits(
        torch.zeros(1, 1, 1, 2), lambda x: torch.tensor([[[[50.0, -50.0]]]]), views=FLIPS, task="binary"
    )
    assert torch.sigmoid(found).flatten().tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("task", "channels"), [("multiclass", 3), ("binary", 1), ("multilabel", 2)])
def test_a_network_that_flips_along_keeps_its_probabilities(task, channels):
    image = torch.randn(2, channels, 3, 4, generator=torch.Generator().manual_seed(0)) * 20
    found = averaged_logits(image, lambda x: x, views=FLIPS, task=task)
    expected = image.log_softmax(1) if task == "multiclass" else image
    found = found.log_softmax(1) if task == "multiclass" else found
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # logits up to 60 through logarithms


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("task", "channels"), [("multiclass", 2), ("binary", 1)])
def test_one_bad_flip_is_not_averaged_away(task, channels, value):
    def sometimes(image):
        return torch.where(image == 7.0, value, image)

    image = torch.zeros(1, channels, 2, 2)
    image[0, 0, 0, 1] = 7.0
    found = averaged_logits(image, sometimes, views=FLIPS, task=task)
    assert found[0, 0, 0, 1].isnan()
    assert found[0, :, 1].isfinite().all()
