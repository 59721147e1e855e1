"""A segmenter is a network and its card; several are one, whose probabilities are the mean of theirs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from segmeter.errors import ConfigError, InputError
from segmeter.models.checkpoint import Checkpoint
from segmeter.models.ensemble import Ensemble
from segmeter.models.segmenter import AtNetworkSize, Segmenter, build_segmenter, pad_to_multiple
from segmeter.models.trained import Checkpoints, read_checkpoints
from tests.models.parts import TINY, Pointwise, Stub, make_card, make_pointwise, make_spec, make_tiny


def seen_by(image, wrapper=lambda segmenter: segmenter, **attributes):
    """What the network is given for an image."""
    seen = []
    network = Stub(lambda padded: seen.append(padded) or padded)
    vars(network).update(attributes)
    logits = wrapper(Segmenter(network, make_card(in_channels=image.shape[1])))(image)
    return seen[0], logits


CLIPPED = ((0.2, 0.6), (0.1, 0.9), (0.0, 1.0))
FULL = {torch.uint8: 255, torch.uint16: 65535, torch.float32: 1, torch.float16: 1}


@pytest.mark.parametrize("clip", [(), CLIPPED], ids=["as it is", "clipped"])
@pytest.mark.parametrize(("dtype", "full"), FULL.items())
def test_an_image_is_scaled_by_its_dtype_clipped_by_the_card_and_normalised_per_channel(dtype, full, clip):
    card = replace(make_card(), clip=clip)
    segmenter = Segmenter(Stub(lambda image: image), card)
    image = (torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0)) * full).to(dtype)
    share = image.to(torch.float64) / full
    low, high, mean, std = (
        torch.tensor(each, dtype=torch.float64).view(1, 3, 1, 1)
        for each in (*zip(*(clip or ((0, 1),) * 3), strict=True), card.mean, card.std)
    )
    found, wanted = segmenter(image), (share.clamp(low, high) - mean) / std
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert not [name for name in segmenter.state_dict() if "limits" in name]


def test_padding_mirrors_the_bottom_right_and_keeps_the_top_left():
    image = torch.arange(6.0).view(1, 1, 2, 3)
    padded = pad_to_multiple(image, multiple=4)
    # rows 0 1 | mirror needs 2 more rows, but only 1 is there: the last row and column are repeated instead
    assert padded[0, 0].tolist() == [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [3, 4, 5, 5]]
    mirrored = pad_to_multiple(image, multiple=3)
    assert mirrored[0, 0].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]


@pytest.mark.parametrize(("least", "size"), [(1, 8), (8, 8), (9, 16), (64, 64)])
def test_padding_reaches_the_least_size(least, size):
    assert pad_to_multiple(torch.zeros(1, 1, 5, 7), multiple=8, least=least).shape == (1, 1, size, size)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({"size_multiple": 16}, (16, 80)),
        ({"size_least": 20}, (20, 70)),
        ({"size_multiple": 16, "downsample": 4}, (16, 32)),  # 64 x 128 in blocks of 4 x 4
    ],
    ids=str,
)
def test_the_network_says_which_sizes_it_takes_in_channels_last(attributes, size):
    image = torch.zeros(2, 3, 9, 70, dtype=torch.uint8).to(memory_format=torch.channels_last)
    padded, logits = seen_by(image, **attributes)
    assert padded.shape == (2, 3, *size)
    assert padded.is_contiguous(memory_format=torch.channels_last)
    assert logits.shape == (2, 3, 9, 70)


def test_a_network_may_see_the_image_smaller_than_its_logits_are():
    image = torch.arange(12.0).view(1, 1, 2, 6).expand(1, 3, 2, 6)
    card = make_card(in_channels=3)
    expected = Segmenter(Stub(lambda padded: padded), card).normalise(image)
    seen, logits = seen_by(image, size_multiple=1, downsample=2)
    blocks = expected.view(1, 3, 1, 2, 3, 2).mean((3, 5))  # (B, C, H / 2, 2, W / 2, 2)
    torch.testing.assert_close(seen, blocks)
    low, middle, high = blocks[0, 0, 0].tolist()
    quarters = [4 * low, 3 * low + middle, low + 3 * middle, 3 * middle + high, middle + 3 * high, 4 * high]
    torch.testing.assert_close(logits[0, 0], torch.tensor([quarters, quarters]) / 4)


def test_images_at_the_size_of_the_network_are_padded_to_its_stride_alone():
    image = torch.rand(2, 3, 9, 70)
    padded, logits = seen_by(image, AtNetworkSize, size_multiple=16, downsample=2)
    assert padded.shape == (2, 3, 16, 80)
    torch.testing.assert_close(logits, make_pointwise().normalise(image))


def test_gradients_reach_the_weights_and_the_image():
    segmenter = make_pointwise()
    image = torch.rand(1, 3, 5, 5, requires_grad=True)
    segmenter(image).sum().backward()
    weight = segmenter.network.weight
    # d sum / d image = sum over classes of the weight, times 1 / std
    torch.testing.assert_close(
        image.grad[0, :, 2, 3], weight.detach().sum(0).flatten() / torch.tensor([0.2, 0.25, 0.3])
    )
    assert weight.grad.abs().min() > 0


def test_torch_compile_traces_the_whole_segmenter():
    segmenter = make_pointwise()
    image = torch.randint(0, 256, (1, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(segmenter, backend="eager", fullgraph=True)
    assert torch.equal(compiled(image), segmenter(image))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(3, 4, 4), r"to be \(B, 3, H, W\).*got torch.float32 \(3, 4, 4\)"),
        (torch.zeros(1, 4, 4, 4), r"got torch.float32 \(1, 4, 4, 4\)"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.int64), "uint8, uint16 or floating, got torch.int64"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.bool), "got torch.bool"),
    ],
)
def test_another_image_is_refused(image, message):
    with pytest.raises(InputError, match=message):
        make_pointwise()(image)


def test_the_segmenter_has_the_cards_classes_channels_and_normalisation():
    card = make_card(make_spec(5), in_channels=2, model=TINY)
    segmenter = build_segmenter(card)
    assert segmenter.training
    assert segmenter.card is card
    state = segmenter.state_dict()
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert state["network.segmentation_head.0.weight"].shape[0] == 5
    assert state["network.encoder.model.conv1.0.weight"].shape[1] == 2


@pytest.mark.parametrize(("task", "classes"), [("multiclass", 3), ("binary", 2), ("multilabel", 3)])
def test_probabilities_are_the_mean_of_those_of_the_members(task, classes):
    spec = make_spec(classes, task)
    members = [Segmenter(Pointwise(num_channels=spec.num_channels, seed=seed), make_card(spec)) for seed in range(3)]
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    to_probs = torch.sigmoid if task != "multiclass" else lambda logits: torch.softmax(logits, 1)
    mean = sum(to_probs(member(image).double()) for member in members) / 3
    torch.testing.assert_close(to_probs(Ensemble(members)(image).double()), mean, rtol=1e-5, atol=1e-6)


def test_one_model_alone_keeps_its_logits_to_the_last_bit():
    member, image = make_pointwise(), torch.randn(1, 3, 4, 4)
    assert torch.equal(Ensemble([member])(image), member(image))


def test_sizes_suit_every_member():
    members = [make_pointwise(), make_tiny()]
    members[0].size_multiple, members[0].size_least = 12, 40
    members[1].size_multiple = 8
    ensemble = Ensemble(members)
    assert (ensemble.size_multiple, ensemble.size_least) == (24, 40)


@pytest.mark.parametrize(
    ("card", "what"),
    [
        (make_card(make_spec(4)), "classes"),
        (make_card(make_spec(3, "multilabel")), "task"),
        (make_card(make_spec(3).replace(ignore_index=None)), "ignore_index"),
        (make_card(in_channels=1), "in_channels"),
    ],
    ids=["classes", "task", "ignored", "channels"],
)
def test_models_of_other_data_are_refused(card, what):
    other = make_pointwise()
    other.card = card
    with pytest.raises(ConfigError, match=f"`checkpoint` to name models of the same {what}"):
        Ensemble([make_pointwise(), other])


@pytest.mark.parametrize(
    ("counts", "known"),
    [([(1, 2, 3)] * 2, True), ([(1, 2, 3), (1, 2, 4)], False), ([(1, 2, 3), ()], False), ([()], False)],
)
def test_pixels_per_class_are_those_of_all_members_or_not_known(counts, known):
    cards = [replace(make_card(), class_pixels=pixels) for pixels in counts]
    members = [Checkpoint(folder=Path(), card=card, progress={}, sha256="", files={}) for card in cards]
    found = Checkpoints(tuple(members)).class_pixels
    assert (found is not None) == known
    assert found is None or tuple(found) == counts[0]


def test_models_of_others_are_not_averaged():
    with pytest.raises(ConfigError, match="single model"):
        read_checkpoints([Path("model.onnx"), Path("hf:x/y")])
