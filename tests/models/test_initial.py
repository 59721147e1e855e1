"""Weights that a training starts from: through any wrapper, of other libraries, for other classes and channels."""

import logging

import pytest
import safetensors.torch
import segmentation_models_pytorch as smp
import timm
import torch
import torchvision

from segmeter.errors import CheckpointError
from segmeter.models.config import UnetConfig
from segmeter.models.networks import build_network, start_from
from segmeter.models.segmenter import build_segmenter
from tests.models.parts import TINY, make_card, make_spec, make_tiny


@pytest.fixture
def network():
    """Other weights than `tiny`, and five classes instead of three."""
    torch.manual_seed(1)
    return build_network(TINY, spec=make_spec(5), in_channels=3)


@pytest.fixture(scope="module")
def source():
    return make_tiny(seed=7).network.state_dict()


def equal_encoders(network, source):
    state = network.state_dict()
    return all(torch.equal(state[name], value) for name, value in source.items() if name.startswith("encoder."))


@pytest.mark.parametrize(
    ("suffix", "prefix"),
    [("pt", ""), ("pt", "module."), ("pt", "network."), ("safetensors", "_orig_mod.network."), ("pt", "module.model.")],
)
def test_weights_are_taken_through_any_wrapper(network, source, tmp_path, caplog, suffix, prefix):
    path = tmp_path / f"weights.{suffix}"
    tensors = {prefix + name: value.contiguous() for name, value in source.items()}
    safetensors.torch.save_file(tensors, path) if suffix == "safetensors" else torch.save(tensors, path)
    start_from(network, str(path))
    assert equal_encoders(network, source)
    assert "2 other shape: segmentation_head.0.weight" in caplog.text  # for five classes instead of three
    assert "missing" not in caplog.text
    assert (f"dropped the prefix {prefix!r}" in caplog.text) == bool(prefix)


def test_an_encoder_alone_is_recognised(network, source, tmp_path, caplog):
    encoder = {name.removeprefix("encoder."): each for name, each in source.items() if name.startswith("encoder.")}
    torch.save(encoder, tmp_path / "encoder.pt")
    start_from(network, str(tmp_path / "encoder.pt"))
    assert equal_encoders(network, source)
    assert "an encoder alone" in caplog.text


def test_a_checkpoint_is_a_start_too(network, written, tiny, caplog):
    start_from(network, str(written))
    assert equal_encoders(network, tiny.network.state_dict())


def test_a_full_match_is_no_warning(source, tmp_path, caplog):
    torch.save(source, tmp_path / "a.pt")
    network = build_network(TINY, spec=make_spec(3), in_channels=3)
    with caplog.at_level(logging.WARNING):
        start_from(network, str(tmp_path / "a.pt"))
    assert caplog.text == ""


def test_weights_of_another_network_are_refused(network, tmp_path):
    torch.save({f"layer{index}.weight": torch.ones(2) for index in range(12)}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"does not fit model.encoder - .*missing.*12 extra: .* and 2 more"):
        start_from(network, str(tmp_path / "other.pt"))


def test_weights_that_are_not_finite_are_refused(network, source, tmp_path):
    first, last = "encoder.model.conv1.0.weight", "segmentation_head.0.bias"
    torch.save(source | {first: source[first] * torch.nan, last: source[last] + torch.inf}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=rf"2 tensors hold NaN or infinity: {first}, {last}.*earlier"):
        start_from(network, str(tmp_path / "a.pt"))


def test_the_configuration_starts_from_its_weights_and_a_checkpoint_does_not_need_them(source, tmp_path):
    torch.save(source, tmp_path / "a.pt")
    card = make_card(model=TINY.replace(weights=str(tmp_path / "a.pt")))
    assert equal_encoders(build_segmenter(card).network, source)
    (tmp_path / "a.pt").unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        build_segmenter(card)
    assert build_segmenter(card, initialise=False) is not None


@pytest.mark.parametrize("maker", ["torchvision", "timm", "smp"])
def test_an_encoder_of_another_library_gives_the_same_features(maker, tmp_path, caplog):
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(6)
    if maker == "timm":
        theirs, encoder = timm.create_model("convnext_atto", num_classes=7).eval(), "tu-convnext_atto"
        tensors, wanted = theirs.state_dict(), theirs.forward_intermediates(image, intermediates_only=True)[-1]
    elif maker == "smp":
        theirs, encoder = smp.encoders.get_encoder("resnet18", weights=None).eval(), "resnet18"
        tensors, wanted = theirs.state_dict(), theirs(image)[-1]
    else:
        theirs, encoder = torchvision.models.resnet18(weights=None).eval(), "resnet18"
        tensors, wanted = theirs.state_dict(), torch.nn.Sequential(*list(theirs.children())[:-2])(image)
    torch.save(tensors, tmp_path / "weights.pt")
    network = build_network(UnetConfig(encoder=encoder), spec=make_spec(), in_channels=3).eval()
    start_from(network, str(tmp_path / "weights.pt"))
    torch.testing.assert_close(network.encoder(image)[-1], wanted, rtol=1e-5, atol=1e-5)
    assert "0 of 60 tensors of decoder" in caplog.text
    count = sum(name.startswith("encoder.") for name in network.state_dict())
    assert f"{count} of {count} tensors of encoder" in caplog.text


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_the_first_convolution_of_rgb_weights_is_spread_over_other_channels(source, channels, tmp_path, caplog):
    """Channels come in turn, with a share of 3 / channels; a gray image keeps its features in a single one."""
    torch.save(source, tmp_path / "weights.pt")
    network = build_network(TINY, spec=make_spec(), in_channels=channels).eval()
    start_from(network, str(tmp_path / "weights.pt"))
    first, wanted = network.encoder.model.conv1[0].weight, source["encoder.model.conv1.0.weight"]
    gray = wanted.sum(1, keepdim=True)
    spread = gray if channels == 1 else wanted[:, [i % 3 for i in range(channels)]] * 3 / channels
    torch.testing.assert_close(first, spread)
    assert f"encoder.model.conv1.0.weight spread from 3 to {channels} channels" in caplog.text
