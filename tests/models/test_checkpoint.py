"""What a checkpoint keeps, how it is found, and which ones are refused."""

import json
import os
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from segmeter import files
from segmeter.errors import CheckpointError, InputError, RunError
from segmeter.models import checkpoint as module
from segmeter.models.checkpoint import plain_state, read_checkpoint, write_checkpoint
from segmeter.records import seal
from tests.models.parts import TINY, make_card


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


def load_other(folder, *, card=None, state):
    """Load a checkpoint of another card or other weights, with a manifest that is sound."""
    write(folder, state, card=card or make_card())
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder).load_segmenter()
    return str(caught.value)


def test_48_another_architecture_lists_at_most_ten_of_each_difference_and_the_shapes(tmp_path, tiny):
    other = make_card(model=TINY.replace(depth=4, decoder_channels=(8, 8, 8, 4)))
    text = load_other(tmp_path / "a", card=other, state=tiny.state_dict())
    assert "does not fit the network 'unet'" in text
    assert "missing: network.encoder.model.layer3" in text
    assert "and " in text
    assert text.count("network.") <= 30
    text = load_other(tmp_path / "b", state=tiny.state_dict() | {"network.segmentation_head.0.bias": torch.zeros(7)})
    assert "segmentation_head.0.bias (7,) in the file, (3,) in the network" in text


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
