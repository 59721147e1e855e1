import pytest
import torch

from segmeter.inference.tta import flipped_logits

FLIPS = [(), (-1,), (-2,), (-2, -1)]


def uneven(image):
    """A network that depends on where a pixel lies, so that each flip says something else."""
    rows = torch.arange(image.shape[2]).float()[:, None]
    columns = torch.arange(image.shape[3]).float()
    return image * (1 + 0.3 * rows) - 0.2 * columns


@pytest.mark.parametrize(("task", "channels"), [("multiclass", 3), ("binary", 1), ("multilabel", 2)])
def test_flips_average_probabilities(task, channels):
    image = torch.randn(2, channels, 3, 4, generator=torch.Generator().manual_seed(0))
    to_probs = torch.sigmoid if task != "multiclass" else lambda logits: torch.softmax(logits, 1)
    mean = sum(to_probs(uneven(image.flip(axes)).flip(axes).double()) for axes in FLIPS) / 4
    found = flipped_logits(image, uneven, task=task)
    assert found.dtype == torch.float32
    torch.testing.assert_close(to_probs(found.double()), mean, rtol=1e-5, atol=1e-6)


def test_two_sure_opposite_answers_are_a_half():
    # the answer hangs on the place: after mirroring back, two flips of four say 1 and two say 0
    found = flipped_logits(torch.zeros(1, 1, 1, 2), lambda x: torch.tensor([[[[50.0, -50.0]]]]), task="binary")
    assert torch.sigmoid(found).flatten().tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("task", "channels"), [("multiclass", 3), ("binary", 1), ("multilabel", 2)])
def test_a_network_that_flips_along_keeps_its_probabilities(task, channels):
    image = torch.randn(2, channels, 3, 4, generator=torch.Generator().manual_seed(0)) * 20
    found = flipped_logits(image, lambda x: x, task=task)
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
    found = flipped_logits(image, sometimes, task=task)
    assert found[0, 0, 0, 1].isnan()
    assert found[0, :, 1].isfinite().all()
