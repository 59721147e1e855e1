"""The order in which images should be labelled."""

import numpy as np
import pytest

from segmeter.errors import DataError
from segmeter.evaluation.decisions.suspects import LabelNext, cover, rank_images


def make_run(folder, chances):
    """A run of predict whose images have one probability everywhere."""
    place = folder / "predictions" / "probs"
    place.mkdir(parents=True)
    for name, chance in chances.items():
        np.save(place / f"{name}.npy", np.full((1, 8, 8), chance, np.float32))
    return folder


def test_members_that_disagree_count_and_noise_on_which_they_agree_does_not(tmp_path):
    one = make_run(tmp_path / "one", {"noise": 0.5, "apart": 0.9, "sure": 0.01})
    other = make_run(tmp_path / "other", {"noise": 0.5, "apart": 0.1, "sure": 0.01})
    found = rank_images([one, other])
    assert found["images"][0]["case_id"] == "apart"
    gains = {each["case_id"]: each["gain"] for each in found["images"]}
    entropy = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    assert gains["apart"] == pytest.approx(np.log(2) - entropy, rel=1e-5)
    assert gains["noise"] == pytest.approx(0, abs=1e-6)
    alone = rank_images([one])
    assert (alone["by"], alone["images"][0]["case_id"]) == ("entropy", "noise")
    assert LabelNext.model_validate(found).by == "disagreement"


def test_classes_that_overlap_count_each_by_itself(tmp_path):
    """Sigmoids do not sum to 1: certainty that a pixel lacks a class counts as much as that it has it."""
    entropy = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    for name, chances, times in (("overlapping", (0.9, 0.9), 2), ("exclusive", (0.9, 0.1), 1)):
        run = make_run(tmp_path / name, {"a": 0.9})
        np.save(run / "predictions" / "probs" / "a.npy", np.full((8, 8, 2), chances, np.float32).transpose(2, 0, 1))
        assert rank_images([run])["images"][0]["gain"] == pytest.approx(times * entropy, rel=1e-5)


def test_the_first_images_cover_the_others():
    places = np.array([[0.0, 0], [0, 0.01], [1, 1], [1, 0.99]])
    order, distances = cover(np.array([1.0, 0.99, 0.6, 0.5]), places)
    assert order[:2] == [0, 2]
    assert distances[0] == np.inf
    assert distances[1] == pytest.approx(np.sqrt(2))


def test_runs_of_other_images_and_without_probabilities_are_refused(tmp_path):
    one, other = make_run(tmp_path / "one", {"a": 0.5}), make_run(tmp_path / "other", {"b": 0.5})
    with pytest.raises(DataError, match="to predict the same images"):
        rank_images([one, other])
    with pytest.raises(DataError, match="which has none"):
        rank_images([tmp_path])
    runs = [make_run(tmp_path / name, dict.fromkeys(name, 0.5)) for name in ("xy", "yz", "xyz")]
    with pytest.raises(DataError, match=r"to predict the same images.*x, z"):
        rank_images(runs)
