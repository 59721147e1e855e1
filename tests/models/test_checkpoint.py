"""What a checkpoint keeps, how it is found, and which ones are refused; and weights that a training starts from."""

import json
import logging
import os
from unittest.mock import Mock

import pytest
import safetensors.torch
import segmentation_models_pytorch as smp
import timm
import torch
import torchvision
from torch import nn

from segmeter import files
from segmeter.errors import CheckpointError, InputError, RunError
from segmeter.models import checkpoint as module
from segmeter.models.checkpoint import plain_state, read_checkpoint, write_checkpoint
from segmeter.models.config import UnetConfig
from segmeter.models.networks import build_network, start_from
from segmeter.models.segmenter import build_segmenter
from segmeter.records import seal
from tests.models.parts import TINY, make_card, make_spec, make_tiny


def write(folder, weights, **values):
    write_checkpoint(folder, segmenter_state=weights, **{"card": make_card(), "state": None, "progress": {}, **values})


def test_a_checkpoint_gives_back_what_was_written(written, tiny):
    assert sorted(path.name for path in written.iterdir()) == ["manifest.json", "model.safetensors", "state.pt"]
    assert {path.stat().st_mode & 0o777 for path in written.iterdir()} == {written.stat().st_mode & 0o666}
    found = read_checkpoint(written)
    assert found.card == make_card()
    assert found.progress == {"epoch": 1, "step": 10, "metric": 0.5}
    state = found.load_state()
    assert torch.equal(state["moments"][0], torch.arange(3.0))
    assert state["moments"][1] == (1, None, "adamw")
    segmenter = found.load_segmenter()
    assert not segmenter.training
    assert all(torch.equal(segmenter.state_dict()[name], value) for name, value in tiny.state_dict().items())


def test_equal_checkpoints_are_equal_bytes(written, tiny, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, tiny.state_dict(), progress={"step": 1})
    for name in ("manifest.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_channels_last_tied_and_sliced_weights_are_written_as_they_are(tmp_path):
    whole = torch.arange(24.0)
    state = {
        "last": whole.view(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "whole": whole,
        "tied": whole,
        "slice": whole[3:7],
        "empty": torch.zeros(0),
        "count": torch.tensor(3),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    write(tmp_path / "a", state)
    tensors = module.load_tensors(tmp_path / "a" / "model.safetensors")
    assert tensors.keys() == state.keys()
    assert all(torch.equal(tensors[name], each) and tensors[name].dtype == each.dtype for name, each in state.items())


@pytest.fixture
def run_folder(checkpoint):
    run = checkpoint.parent / "run"
    (run / "checkpoints").mkdir(parents=True)
    checkpoint.rename(run / "checkpoints" / checkpoint.name)
    for name in ("best", "last"):
        (run / "checkpoints" / name).symlink_to(checkpoint.name)
    return run


@pytest.mark.parametrize(
    "inside",
    ["", "checkpoints/best", "checkpoints/last", "checkpoints/best/model.safetensors", "checkpoints/last/state.pt"],
)
def test_a_checkpoint_is_found_from_its_run_its_folder_or_a_file_in_it(run_folder, inside):
    assert module.find_checkpoint(run_folder / inside) == run_folder / "checkpoints" / "step-00000010"


def test_a_run_without_a_best_checkpoint_says_what_it_has(run_folder):
    (run_folder / "checkpoints" / "best").unlink()
    with pytest.raises(
        CheckpointError, match=r"checkpoints: has no best checkpoint; it has last, step-00000010: name one"
    ):
        read_checkpoint(run_folder)


def test_a_checkpoint_that_is_there_already_is_not_overwritten(written, tiny):
    before = (written / "manifest.json").read_bytes()
    with pytest.raises(RunError, match=r"can't be written .*Earlier checkpoints are untouched"):
        write(written, {})
    assert (written / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_no_half_checkpoint(monkeypatch, tmp_path, tiny, step):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(files._Raw if step == "write" else os, step, full)
        with pytest.raises(RunError, match="No space left on device"):
            write(tmp_path / "new", tiny.state_dict())
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_stored_is_refused_by_its_place():
    with pytest.raises(InputError, match=r"expected `state\['optimizer'\]\[1\]` to be plain, got Conv2d"):
        plain_state({"optimizer": [1, nn.Conv2d(1, 1, 1)]})


def test_a_checkpoint_without_a_state_can_be_evaluated_but_not_resumed(tmp_path, tiny):
    write(tmp_path / "a", tiny.state_dict())
    found = read_checkpoint(tmp_path / "a")
    assert found.load_segmenter() is not None
    with pytest.raises(CheckpointError, match=r"has no state.pt, so no training can resume from it"):
        found.load_state()


NETWORK = "does not fit the network 'unet'.*missing: network.encoder.model.layer3.*and "
HEAD = r"segmentation_head.0.bias \(7,\) in the file, \(3,\) in the network"


@pytest.mark.parametrize(
    ("card", "changes", "message"),
    [
        (make_card(model=TINY.replace(depth=4, decoder_channels=(8, 8, 8, 4))), {}, NETWORK),
        (make_card(), {"network.segmentation_head.0.bias": torch.zeros(7)}, HEAD),
    ],
    ids=["another architecture", "48-classes"],
)
def test_weights_that_do_not_fit_are_refused_with_at_most_ten_of_each_difference(
    card, changes, message, tmp_path, tiny
):
    write(tmp_path / "a", tiny.state_dict() | changes, card=card)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(tmp_path / "a").load_segmenter()
    assert str(caught.value).count("network.") <= 30


def edit(folder, **changes):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(seal(manifest | changes)))


def test_50_a_newer_format_asks_for_an_upgrade(checkpoint):
    edit(checkpoint, format=2, segmeter="9.0")
    with pytest.raises(
        CheckpointError, match=r"has format 2, from segmeter '9.0'; this segmeter .* reads up to 1. Upgrade"
    ):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "change", [{"card": None}, {"card": {}}, {"files": {"model.safetensors": {}}}, {"files": {}}, {"progress": None}]
)
def test_a_manifest_without_a_key_is_refused(checkpoint, change):
    edit(checkpoint, **change)
    with pytest.raises(CheckpointError, match=r"manifest.json: lacks what a checkpoint must say") as caught:
        read_checkpoint(checkpoint)
    assert "\n" not in str(caught.value)


def test_a_card_never_names_code(checkpoint):
    card = json.loads((checkpoint / "manifest.json").read_text())["card"]
    edit(checkpoint, card=card | {"model": {"name": "os.system", "encoder": "true"}})
    with pytest.raises(CheckpointError, match=r"registered name, got 'os.system'.*plugins=") as caught:
        read_checkpoint(checkpoint).load_segmenter()
    assert "\n" not in str(caught.value)


def test_an_edited_manifest_is_found(checkpoint):
    path = checkpoint / "manifest.json"
    path.write_text(path.read_text().replace('"epoch": 1', '"epoch": 2'))
    with pytest.raises(CheckpointError, match=r"manifest.json: was changed or damaged .*sha256 differs"):
        read_checkpoint(checkpoint)


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
