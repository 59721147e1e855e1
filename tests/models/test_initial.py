import logging

import pytest
import safetensors.torch
import torch

from segmeter.errors import CheckpointError
from segmeter.models.build import build_segmenter
from segmeter.models.initial import start_from
from segmeter.models.networks import build_network
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
    fit = start_from(network, str(path))
    assert equal_encoders(network, source)
    assert len(fit.reshaped) == 2  # weight and bias of the head, for five classes instead of three
    assert not fit.missing
    assert "2 other shape: segmentation_head.0.weight" in caplog.text
    assert (f"dropped the prefix {prefix!r}" in caplog.text) == bool(prefix)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_state_dict_inside_a_training_programs_file_is_found(network, source, tmp_path, key):
    torch.save({"epoch": 3, key: source}, tmp_path / "last.pt")
    start_from(network, str(tmp_path / "last.pt"))
    assert equal_encoders(network, source)


def test_an_encoder_alone_is_recognised(network, source, tmp_path, caplog):
    encoder = {name.removeprefix("encoder."): each for name, each in source.items() if name.startswith("encoder.")}
    torch.save(encoder, tmp_path / "encoder.pt")
    fit = start_from(network, str(tmp_path / "encoder.pt"))
    assert equal_encoders(network, source)
    assert len(fit.missing) > 2
    assert "an encoder alone" in caplog.text


def test_a_checkpoint_is_a_start_too(network, written, tiny, caplog):
    start_from(network, str(written))
    assert equal_encoders(network, tiny.network.state_dict())


def test_the_head_keeps_its_own_values(network, source, tmp_path):
    before = network.segmentation_head[0].weight.detach().clone()
    torch.save(source, tmp_path / "a.pt")
    start_from(network, str(tmp_path / "a.pt"))
    assert torch.equal(network.segmentation_head[0].weight, before)


def test_a_full_match_is_no_warning(source, tmp_path, caplog):
    torch.save(source, tmp_path / "a.pt")
    network = build_network(TINY, spec=make_spec(3), in_channels=3)
    with caplog.at_level(logging.WARNING):
        assert start_from(network, str(tmp_path / "a.pt")).exact
    assert caplog.text == ""


def test_weights_of_another_network_are_refused(network, tmp_path):
    torch.save({f"layer{index}.weight": torch.ones(2) for index in range(12)}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"does not fit model.encoder - .*missing.*12 extra: .* and 2 more"):
        start_from(network, str(tmp_path / "other.pt"))


def test_weights_that_are_not_finite_are_refused(network, source, tmp_path):
    torch.save(
        source | {"encoder.model.conv1.0.weight": source["encoder.model.conv1.0.weight"] * float("nan")},
        tmp_path / "a.pt",
    )
    with pytest.raises(CheckpointError, match=r"1 tensors hold NaN or infinity: encoder.model.conv1.0.weight"):
        start_from(network, str(tmp_path / "a.pt"))


def test_the_configuration_starts_from_its_weights_and_a_checkpoint_does_not_need_them(source, tmp_path):
    torch.save(source, tmp_path / "a.pt")
    card = make_card(model=TINY.replace(weights=str(tmp_path / "a.pt")))
    assert equal_encoders(build_segmenter(card).network, source)
    (tmp_path / "a.pt").unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        build_segmenter(card)
    assert build_segmenter(card, initialise=False) is not None
