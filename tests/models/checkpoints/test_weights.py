"""Named tensors from files, and how they lie on a network."""

import pytest
import safetensors.torch
import torch

from segmeter.errors import CheckpointError
from segmeter.models.checkpoints.weights import check_finite, compare, load_tensors, shorten

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


def test_a_long_list_of_names_is_cut_after_ten():
    names = tuple("abcdefghijkl")
    assert shorten(names) == "a, b, c, d, e, f, g, h, i, j and 2 more"
    assert shorten(names[:10]) == "a, b, c, d, e, f, g, h, i, j"


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
