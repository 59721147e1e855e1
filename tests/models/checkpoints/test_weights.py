"""Named tensors from files; each file that is damaged or no checkpoint is refused in one line with the next step."""

import os
import pickle
import zipfile

import pytest
import safetensors.torch
import torch
from torch import nn

from segmeter.errors import CheckpointError
from segmeter.models.checkpoint import read_checkpoint
from segmeter.models.weights import check_finite, compare, load_tensors

HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234\n"


class Touch:
    """What opening this pickle would do."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def cut(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def flip(path, share):
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 1
    path.write_bytes(content)


def one_line(caught, path):
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


IN_PLACE = [
    pytest.param(lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)", id="39-empty"),
    pytest.param(lambda path: path.write_bytes(b"hello"), r"is truncated: 5 of \d+ bytes", id="40-text"),
    pytest.param(lambda path: path.write_bytes(HTML), r"looks like HTML, perhaps a login page", id="41-html"),
    pytest.param(lambda path: path.write_bytes(LFS), r"git-lfs pointer.*Run `git lfs pull`", id="42-git-lfs"),
    pytest.param(lambda path: cut(path, 0.1), r"is truncated: \d+ of \d+ bytes", id="43-cut-at-10"),
    pytest.param(lambda path: cut(path, 0.5), r"is truncated: \d+ of \d+ bytes", id="43-cut-at-50"),
    pytest.param(lambda path: cut(path, 0.99), r"is truncated: \d+ of \d+ bytes", id="43-cut-at-99"),
    pytest.param(lambda path: flip(path, 0.0), r"sha256 differs", id="44-flip-first"),
    pytest.param(lambda path: flip(path, 0.7), r"sha256 differs", id="44-flip-inside"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"more"), r"sha256 differs", id="longer"),
    pytest.param(lambda path: path.unlink(), r"is missing, though the manifest lists it", id="gone"),
]


@pytest.mark.parametrize(("spoil", "message"), IN_PLACE)
def test_spoilt_weights_in_a_checkpoint_are_refused(checkpoint, spoil, message):
    path = checkpoint / "model.safetensors"
    spoil(path)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(checkpoint)
    one_line(caught, path)


@pytest.mark.parametrize(("spoil", "message"), [case for case in IN_PLACE if case.id != "44-flip-first"])
def test_a_spoilt_state_is_refused_when_it_is_asked_for(checkpoint, spoil, message):
    found = read_checkpoint(checkpoint)
    spoil(checkpoint / "state.pt")
    with pytest.raises(CheckpointError, match=message) as caught:
        found.load_state()
    one_line(caught, checkpoint / "state.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", r"is empty", id="39-empty"),
        pytest.param(HTML, r"looks like HTML", id="41-html"),
        pytest.param(LFS, r"git-lfs pointer", id="42-git-lfs"),
        pytest.param(b'{"format": 1', r"was not written by segmeter", id="43-truncated"),
        pytest.param(b'{"a": 1}', r"is not a segmeter manifest", id="foreign-json"),
        pytest.param(b"[" * 100_000, r"manifest.json", id="deep-json"),
    ],
)
def test_a_spoilt_manifest_is_refused(checkpoint, content, message):
    (checkpoint / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(checkpoint)
    one_line(caught, checkpoint / "manifest.json")


def huge_header(path):
    path.write_bytes((2**40).to_bytes(8, "little") + b'{"a":' + b" " * 64)


FOREIGN = [
    pytest.param(lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)", id="39-empty"),
    pytest.param(lambda path: path.write_bytes(b"hello"), r"is no checkpoint, .*header too small", id="40-text"),
    pytest.param(lambda path: path.write_bytes(HTML), r"looks like HTML", id="41-html"),
    pytest.param(lambda path: path.write_bytes(b"\n  <html>"), r"looks like HTML", id="41-html-after-blanks"),
    pytest.param(lambda path: path.write_bytes(LFS), r"git-lfs pointer", id="42-git-lfs"),
    pytest.param(lambda path: path.write_bytes(b"\x00\xff" * 50), r"is no checkpoint", id="binary"),
    pytest.param(huge_header, r"is damaged or truncated .*header too large", id="52-huge-header"),
]


@pytest.mark.parametrize(("make", "message"), FOREIGN)
@pytest.mark.parametrize("read", [read_checkpoint, load_tensors], ids=["checkpoint", "weights"])
def test_a_file_that_holds_no_weights_is_refused(tmp_path, read, make, message):
    path = tmp_path / "file.safetensors"
    make(path)
    with pytest.raises(CheckpointError, match=message) as caught:
        read(path)
    one_line(caught, path)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_43_truncated_foreign_weights_are_refused(tmp_path, suffix, share):
    path = tmp_path / f"weights.{suffix}"
    tensors = {"a": torch.ones(3000)}
    safetensors.torch.save_file(tensors, path) if suffix == "safetensors" else torch.save(tensors, path)
    cut(path, share)
    with pytest.raises(CheckpointError, match=r"truncated|is not a checkpoint") as caught:
        load_tensors(path)
    one_line(caught, path)


def save_zip_pickle(content, path):
    torch.save(content, path)


def save_bare_pickle(content, path):
    path.write_bytes(pickle.dumps(content))


def save_old_torch(content, path):
    torch.save(content, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("save", [save_zip_pickle, save_bare_pickle, save_old_torch])
@pytest.mark.parametrize("read", [read_checkpoint, load_tensors], ids=["checkpoint", "weights"])
def test_45_a_pickle_that_runs_a_command_is_refused_and_runs_nothing(tmp_path, save, read):
    path, marker = tmp_path / "model.pt", tmp_path / "marker"
    save({"model": Touch(marker)}, path)
    with pytest.raises(
        CheckpointError, match=r"could run code; nothing ran|did not write it; nothing in it ran"
    ) as caught:
        read(path)
    assert not marker.exists()
    assert "weights_only" not in one_line(caught, path)


@pytest.mark.parametrize("read", [read_checkpoint, load_tensors], ids=["checkpoint", "weights"])
def test_46_a_pickled_module_is_refused_with_the_way_to_convert_it(tmp_path, read):
    path = tmp_path / "model.pt"
    torch.save(nn.Sequential(nn.Conv2d(1, 1, 1)), path)
    with pytest.raises(CheckpointError, match=r"safetensors.torch.save_file\(model.state_dict\(\)") as caught:
        read(path)
    one_line(caught, path)


@pytest.mark.parametrize("save", [torch.save, safetensors.torch.save_file])
def test_47_bare_weights_are_sent_to_model_weights(tmp_path, save):
    path = tmp_path / "weights"
    save({"module.conv.weight": torch.ones(2), "module.conv.bias": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match=r"holds 2 bare tensors.*model.weights=") as caught:
        read_checkpoint(path)
    one_line(caught, path)


def test_a_zip_that_is_no_torch_file_is_refused(tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no weights")
    with pytest.raises(CheckpointError, match="is damaged or truncated") as caught:
        load_tensors(path)
    one_line(caught, path)


def test_a_torch_file_without_a_state_dict_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="holds no state dict"):
        load_tensors(path)


def test_51_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"is a folder without a checkpoint") as caught:
        read_checkpoint(tmp_path)
    one_line(caught, tmp_path)
    with pytest.raises(CheckpointError, match=r"is a folder, not a file"):
        load_tensors(tmp_path)


def test_54_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for read in (read_checkpoint, load_tensors):
        with pytest.raises(CheckpointError, match=r"symbolic links.*Point the link at a checkpoint") as caught:
            read(tmp_path / "a")
        one_line(caught, tmp_path / "a")


def test_a_path_that_is_not_there_is_refused_with_the_working_folder(tmp_path):
    with pytest.raises(CheckpointError, match=r"No such file.*Check the path \(from /") as caught:
        read_checkpoint(tmp_path / "none")
    one_line(caught, tmp_path / "none")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_checkpoint, load_tensors):
        with pytest.raises(CheckpointError, match=r"is not a regular file|without a checkpoint"):
            read(tmp_path / "pipe")


NETWORK = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "c": torch.zeros(1)}


def test_names_match_are_missing_extra_or_of_another_shape():
    fit = compare(NETWORK, {"a": torch.ones(2, 3), "b": torch.ones(5), "d": torch.ones(1)})
    assert (fit.matched, fit.missing, fit.extra) == (("a",), ("c",), ("d",))
    assert fit.reshaped == ("b (5,) in the file, (4,) in the network",)
    assert not fit.exact
    assert fit.describe() == "1 missing: c; 1 extra: d; 1 other shape: b (5,) in the file, (4,) in the network"
    whole = compare(NETWORK, NETWORK)
    assert whole.exact
    assert whole.describe() == ""


def test_tensors_that_are_not_finite_are_named(tmp_path):
    sound = {"a": torch.ones(2), "count": torch.tensor(3)}
    check_finite(sound, tmp_path)
    with pytest.raises(CheckpointError, match="2 tensors hold NaN or infinity: nan, inf"):
        check_finite({**sound, "nan": torch.tensor([1, torch.nan]), "inf": torch.tensor(torch.inf)}, tmp_path)


@pytest.mark.parametrize("nest", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_is_found_where_training_programs_put_it(tmp_path, nest):
    path = tmp_path / "weights.pt"
    torch.save(NETWORK if nest is None else {nest: NETWORK, "epoch": 3}, path)
    found = load_tensors(path)
    assert found.keys() == NETWORK.keys()
    assert all(torch.equal(found[name], each) for name, each in NETWORK.items())


def test_safetensors_keep_their_dtypes(tmp_path):
    tensors = {"half": torch.ones(2, dtype=torch.bfloat16), "bytes": torch.arange(3, dtype=torch.uint8)}
    safetensors.torch.save_file(tensors, tmp_path / "weights.safetensors")
    found = load_tensors(tmp_path / "weights.safetensors")
    assert all(torch.equal(found[name], each) and found[name].dtype == each.dtype for name, each in tensors.items())
