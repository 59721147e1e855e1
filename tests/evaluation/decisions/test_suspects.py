"""Suspects of finished evaluations, and the order in which images should be labelled."""

import json
from functools import partial

import numpy as np
import pytest

from segmeter.errors import ConfigError, DataError, InputError
from segmeter.evaluation.decisions import suspects
from segmeter.evaluation.decisions.held_out import find_probs, open_held_out
from segmeter.evaluation.decisions.suspects import LabelNext, Suspects, _annotation, cover, find_in_runs, rank_images
from segmeter.export.objects import encode_geojson
from segmeter.metrics.objects.suspects import DRAWN
from tests.data.crafted import folder, put

NAMES = ("a", "b", "c", "d")


def make_data(root, names=NAMES, *, seed=0):
    """Images with discs, and references of which the one of the first case lacks a disc."""
    rng, seen = np.random.default_rng(seed), {}
    lines, columns = np.ogrid[:60, :80]
    for name in names:
        labels = np.zeros((60, 80), np.uint8)
        for top, left in ((15, 15), (15, 55), (42, 30), (42, 62)):
            labels |= ((lines - top) ** 2 + (columns - left) ** 2 < rng.integers(6, 10) ** 2).astype(np.uint8)
        seen[name] = labels
        target = labels.copy()
        if name == names[0]:
            target[:30, :30] = 0
        put(root / "images" / f"{name}.png", np.repeat(labels[..., None] * 200, 3, axis=2))
        put(root / "masks" / f"{name}.png", target)
    return seen


def make_run(root, seen):
    """A run of eval with the probabilities of a model that sees every disc, in bytes."""
    for name, labels in seen.items():
        put(root / f"predictions/probs/{name}.uint8.npy", np.where(labels, 242, 13).astype(np.uint8)[None])
    put(root / "run.json", {"command": "eval"})
    return root


data = partial(folder, split="test")


@pytest.fixture
def listed(tmp_path):
    """A data set with lists, whose test split has the four cases."""
    make_data(tmp_path / "data")
    make_data(tmp_path / "data", ("t1", "t2"), seed=1)
    for split, names in (("train", ("t1", "t2")), ("test", NAMES)):
        (tmp_path / "data" / f"{split}.txt").write_text("\n".join(names))
    return tmp_path


def test_the_missing_object_comes_first_and_lies_in_the_files_of_annotation_tools(listed):
    run = make_run(listed / "run", make_data(listed / "data"))
    held = open_held_out(run, data(listed / "data", lists="."))
    found, rows = find_in_runs([held], 0, listed)
    first = found["suspects"][0]
    assert (first["kind"], first["case_id"], first["suggested"]) == ("missing", "a", "cell")
    assert set(Suspects.model_validate(found).kinds) == {"extra", "missing", "class", "border"}
    assert rows["rank"].to_pylist() == list(range(1, len(found["suspects"]) + 1))
    drawn = json.loads((listed / suspects.OUTLINES / "a.geojson").read_text())
    assert drawn["features"][0]["properties"]["classification"]["name"] == "missing"
    coco = json.loads((listed / suspects.COCO).read_text())
    assert [image["file_name"] for image in coco["images"]] == ["a.png"]
    (one,) = coco["annotations"]
    assert one["bbox"] == [first["left"], first["top"], first["width"], first["height"]]
    mask = pytest.importorskip("pycocotools.mask")
    (runs,) = mask.frPyObjects(one["segmentation"], coco["images"][0]["height"], coco["images"][0]["width"])
    assert mask.area(runs) == first["size"] == one["area"]
    again, _ = find_in_runs([held], 0, listed)
    assert again == found


def test_a_coco_polygon_keeps_the_holes_of_a_region():
    """Polygons, as Label Studio's importer reads no run lengths; a hole that is filled would cover the whole object."""
    mask = pytest.importorskip("pycocotools.mask")
    ring = np.zeros((30, 40), np.uint8)
    ring[2:28, 3:30], ring[5:9, 6:12], ring[15:25, 10:20], ring[20, 33:38] = 3, 0, 0, 3
    numbers = (ring > 0).astype(np.int32)
    (feature,) = json.loads(encode_geojson("a", ring, numbers, DRAWN))["features"]
    entry = _annotation(feature)
    drawn = mask.merge(mask.frPyObjects(entry["segmentation"], *ring.shape))
    assert mask.iou([drawn], [mask.encode(np.asfortranarray(ring > 0).astype(np.uint8))], [0]) == 1
    assert (entry["category_id"], entry["area"], entry["bbox"]) == (3, int(numbers.sum()), [3, 2, 35, 26])


def test_two_runs_may_not_share_a_case_and_sizes_must_fit(listed):
    seen = make_data(listed / "data")
    held = open_held_out(make_run(listed / "run", seen), data(listed / "data", lists="."))
    with pytest.raises(InputError, match="to share no case"):
        find_in_runs([held, held], 0, listed)
    np.save(held.probs["c"], np.zeros((1, 3, 3), np.uint8))
    np.save(held.probs["b"], np.zeros((1, 4, 3), np.uint8))
    with pytest.raises(DataError) as caught:
        find_in_runs([held], 0, listed)
    assert len(caught.value.problems) == 2


def test_a_model_never_judges_its_own_training_cases(listed):
    run = make_run(listed / "run", make_data(listed / "data"))
    with pytest.raises(ConfigError, match=r"their model never saw.*data.split=train"):
        open_held_out(run, data(listed / "data", lists=".", split="train"))
    (listed / "data" / "train.txt").write_text("t1\nb\n")
    with pytest.raises(ConfigError, match=r"no case of the training split.*b"):
        open_held_out(run, data(listed / "data", lists="."))


def test_all_cases_of_a_data_set_are_taken_if_the_user_knows_that_none_was_seen(listed):
    run = make_run(listed / "run", make_data(listed / "data") | make_data(listed / "data", ("t1", "t2"), seed=1))
    with pytest.raises(ConfigError, match=r"data\.split=all.*unseen=true"):
        open_held_out(run, data(listed / "data", split="all"))
    assert len(open_held_out(run, data(listed / "data", split="all"), unseen=True).dataset) == 6


def test_probabilities_of_every_case_must_be_there(listed):
    make_run(listed / "run", make_data(listed / "data"))
    with pytest.raises(DataError, match=r"predictions/probs.*which has none.*export.probs=true"):
        find_probs("suspects", listed / "nowhere", ["a"])
    (listed / "run" / "predictions" / "probs" / "b.uint8.npy").unlink()
    with pytest.raises(DataError, match=r"without those of .*b"):
        find_probs("suspects", listed / "run", NAMES)


def make_predicted(root, chances):
    """A run of predict whose images have one probability everywhere."""
    for name, chance in chances.items():
        put(root / f"predictions/probs/{name}.npy", np.full((1, 8, 8), chance, np.float32))
    return root


def test_members_that_disagree_count_and_noise_on_which_they_agree_does_not(tmp_path):
    one = make_predicted(tmp_path / "one", {"noise": 0.5, "apart": 0.9, "sure": 0.01})
    other = make_predicted(tmp_path / "other", {"noise": 0.5, "apart": 0.1, "sure": 0.01})
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
        run = make_predicted(tmp_path / name, {"a": 0.9})
        np.save(run / "predictions" / "probs" / "a.npy", np.full((8, 8, 2), chances, np.float32).transpose(2, 0, 1))
        assert rank_images([run])["images"][0]["gain"] == pytest.approx(times * entropy, rel=1e-5)


def test_the_first_images_cover_the_others():
    places = np.array([[0.0, 0], [0, 0.01], [1, 1], [1, 0.99]])
    order, distances = cover(np.array([1.0, 0.99, 0.6, 0.5]), places)
    assert order[:2] == [0, 2]
    assert distances[0] == np.inf
    assert distances[1] == pytest.approx(np.sqrt(2))


def test_runs_of_other_images_and_without_probabilities_are_refused(tmp_path):
    one, other = make_predicted(tmp_path / "one", {"a": 0.5}), make_predicted(tmp_path / "other", {"b": 0.5})
    with pytest.raises(DataError, match="to predict the same images"):
        rank_images([one, other])
    runs = [make_predicted(tmp_path / name, dict.fromkeys(name, 0.5)) for name in ("xy", "yz", "xyz")]
    with pytest.raises(DataError, match=r"to predict the same images.*x, z"):
        rank_images(runs)
