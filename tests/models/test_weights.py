"""Named tensors from files; each file that is damaged or no checkpoint is refused in one line with the next step."""

import os
import pickle
import zipfile
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from segmeter.errors import CheckpointError
from segmeter.models.checkpoint import read_checkpoint
from segmeter.models.weights import compare, load_tensors
from tests.faults.world import MARK, Touch, cut, flip

HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234\n"


def refused(read, path, message):
    """The one line in which it is refused."""
    with pytest.raises(CheckpointError, match=message) as caught:
        read(path)
    text = str(caught.value)
    assert (caught.value.exit_code, "\n" in text, str(path) in text) == (2, False, True)
    return text


def write(content):
    return lambda path: path.write_bytes(content)


ANYWHERE = {
    "39-empty": (write(b""), r"is empty \(0 bytes\)"),
    "41-html": (write(HTML), r"looks like HTML, perhaps a login page"),
    "42-git-lfs": (write(LFS), r"git-lfs pointer.*Run `git lfs pull`"),
}
LISTED = ANYWHERE | {
    "40-text": (write(b"hello"), r"is truncated: 5 of \d+ bytes"),
    "43-cut-at-10": (lambda path: cut(path, 0.1), r"is truncated: \d+ of \d+ bytes"),
    "44-flip-inside": (lambda path: flip(path, 0.7), r"sha256 differs"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"more"), r"sha256 differs"),
    "gone": (lambda path: path.unlink(), r"is missing, though the manifest lists it"),
}
SPOILT = {
    "model.safetensors": LISTED,
    "state.pt": LISTED,
    "manifest.json": ANYWHERE
    | {
        "43-truncated": (write(b'{"format": 1'), r"was not written by segmeter"),
        "foreign-json": (write(b'{"a": 1}'), r"is not a segmeter manifest"),
        "deep-json": (write(b"[" * 100_000), r"manifest.json"),
    },
    "alone.safetensors": ANYWHERE
    | {
        "40-text": (write(b"hello"), r"is no checkpoint, .*header too small"),
        "41-html-after-blanks": (write(b"\n  <html>"), r"looks like HTML"),
        "52-huge-header": (
            write((2**40).to_bytes(8, "little") + b'{"a":' + b" " * 64),
            r"is damaged or truncated .*header too large",
        ),
    },
}


@pytest.mark.parametrize(("place", "how"), [(place, how) for place, table in SPOILT.items() for how in table])
def test_a_spoilt_file_is_refused_in_one_line_and_a_state_when_it_is_asked_for(tmp_path, checkpoint, place, how):
    (spoil, message), found = SPOILT[place][how], read_checkpoint(checkpoint)
    path = (tmp_path if place.startswith("alone") else checkpoint) / place
    spoil(path)
    reads = {"alone.safetensors": [read_checkpoint, load_tensors], "state.pt": [lambda _: found.load_state()]}
    for read in reads.get(place, [lambda _: read_checkpoint(checkpoint)]):
        refused(read, path, message)


EITHER = pytest.mark.parametrize("read", [read_checkpoint, load_tensors], ids=["checkpoint", "weights"])


PROGRAMS = {
    "zip": torch.save,
    "bare": lambda content, path: path.write_bytes(pickle.dumps(content)),
    "old": partial(torch.save, _use_new_zipfile_serialization=False),
    "module": lambda content, path: torch.save(nn.Sequential(nn.Conv2d(1, 1, 1)), path),
    "torchscript": lambda content, path: torch.jit.save(torch.jit.script(nn.Identity()), path),
    "pt2": lambda content, path: torch.export.save(torch.export.export(nn.Identity(), (torch.zeros(1),)), path),
}


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
@pytest.mark.parametrize("save", PROGRAMS.values(), ids=PROGRAMS)
@EITHER
def test_45_and_46_what_may_run_code_is_refused_with_ways_to_convert_it(tmp_path, save, read, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt2"
    save({"model": Touch()}, path)
    ways = r"could run code; nothing ran.*`safetensors.torch.save_file\(model.state_dict\(\), \.\.\.\)`.*to ONNX"
    said = refused(read, path, ways)
    assert not Path(MARK).exists()
    assert "weights_only" not in said


@pytest.mark.parametrize("save", [torch.save, safetensors.torch.save_file])
def test_47_bare_weights_are_sent_to_model_weights(tmp_path, save):
    path = tmp_path / "weights"
    save({"module.conv.weight": torch.ones(2), "module.conv.bias": torch.zeros(2)}, path)
    refused(read_checkpoint, path, r"holds 2 bare tensors.*model.weights=")


def save_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no weights")


def save_and_cut(save, share):
    return lambda path: (save({"a": torch.ones(3000)}, path), cut(path, share))


SHARES = (0.001, 0.5, 0.99)
NO_STATE = {
    "a zip": (save_zip, "is damaged or truncated"),
    "a list": (lambda path: torch.save([1, 2], path), "holds no state dict"),
    **{f"43-pt-{share}": (save_and_cut(torch.save, share), "truncated|is no") for share in SHARES},
    **{f"43-tensors-{share}": (save_and_cut(safetensors.torch.save_file, share), "truncated") for share in SHARES},
}


@pytest.mark.parametrize(("save", "message"), NO_STATE.values(), ids=NO_STATE)
def test_a_file_without_a_whole_state_dict_is_refused(tmp_path, save, message):
    save(tmp_path / "weights")
    refused(load_tensors, tmp_path / "weights", message)


def link_in_a_circle(path):
    path.symlink_to("b")
    path.with_name("b").symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, r"is a folder without a checkpoint|is a folder, not a file"),
        (link_in_a_circle, r"symbolic links.*Point the link at a checkpoint"),
        (lambda path: None, r"No such file.*Check the path \(from /"),
        (os.mkfifo, r"is not a regular file|without a checkpoint"),
    ],
    ids=["51-folder", "54-circle", "nothing", "pipe"],
)
@EITHER
def test_what_is_no_file_is_refused_and_a_pipe_not_waited_for(tmp_path, read, make, message):
    make(tmp_path / "a")
    refused(read, tmp_path / "a", message)


NETWORK = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "c": torch.zeros(1)}


def test_names_match_are_missing_extra_or_of_another_shape():
    matched, differences = compare(NETWORK, {"a": torch.ones(2, 3), "b": torch.ones(5), "d": torch.ones(1)})
    assert matched == ["a"]
    assert differences == "1 missing: c; 1 extra: d; 1 other shape: b (5,) in the file, (4,) in the network"
    assert compare(NETWORK, NETWORK) == (["a", "b", "c"], "")


@pytest.mark.parametrize("nest", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_is_found_where_training_programs_put_it(tmp_path, nest):
    path = tmp_path / "weights.pt"
    torch.save(NETWORK if nest is None else {nest: NETWORK, "epoch": 3}, path)
    found = load_tensors(path)
    assert found.keys() == NETWORK.keys()
    assert all(torch.equal(found[name], each) for name, each in NETWORK.items())
