"""Regions whose reference a model contradicts, planted errors, and the chances that are learned from them."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.objects.planted import find_chances, match_planted, plant_errors
from segmeter.metrics.objects.suspects import KINDS, Suspect, confidence_sums, find_suspects, number_regions
from tests.data.crafted import BINARY

CELLS = ClassSpec(
    task="multiclass", names=("none", "round", "long"), colours=((0, 0, 0), (9, 0, 0), (0, 9, 0)), ignore_index=255
)
ROADS = CELLS.replace(names=("road", "tree", "car"), colours=((9, 9, 9), (0, 9, 0), (9, 0, 0)))


def sure(labels: np.ndarray, p: float = 0.9) -> np.ndarray:
    """Probabilities of a model that is sure of these labels."""
    probs = np.full((3, *labels.shape), (1 - p) / 2, np.float32)
    np.put_along_axis(probs, labels[None].astype(int), p, axis=0)
    return probs


def boxes(*placed: tuple[int, int, int, int, int]) -> np.ndarray:
    labels = np.zeros((40, 60), np.uint8)
    for top, left, height, width, label in placed:
        labels[top : top + height, left : left + width] = label
    return labels


def found(target: np.ndarray, seen: np.ndarray, spec: ClassSpec = CELLS) -> list[Suspect]:
    return sorted(find_suspects(target, sure(seen), spec), key=lambda one: -one.score)


def test_each_kind_of_error_is_told_with_its_place_and_classes() -> None:
    seen = boxes((2, 2, 9, 9, 1), (2, 20, 9, 9, 2), (20, 2, 12, 12, 1))
    target = boxes((2, 20, 9, 9, 1), (20, 2, 12, 18, 1), (25, 40, 9, 9, 2))
    kinds = {one.kind: one for one in found(target, seen)}
    assert (kinds["missing"].given, kinds["missing"].suggested) == (0, 1)
    assert (kinds["missing"].top, kinds["missing"].left, kinds["missing"].size) == (2, 2, 81)
    assert (kinds["class"].given, kinds["class"].suggested) == (1, 2)
    assert (kinds["extra"].given, kinds["extra"].suggested) == (2, 0)
    border = kinds["border"]
    assert (border.given, int(border.mask.sum()), border.left) == (1, 72, 0)
    assert border.score == pytest.approx(72 * 0.85 / (2 * 12 + 2 * 18 - 4), rel=1e-6)  # doubt per border pixel
    assert kinds["extra"].score == pytest.approx(0.85 * 81 / (81 + 30), rel=1e-6)


def test_a_border_lies_outwards_or_inwards_so_doubts_on_both_sides_cancel() -> None:
    """Mutation seen to fail: doubts of both sides are added."""
    assert found(boxes((10, 20, 12, 12, 1)), boxes((10, 22, 12, 12, 1))) == []
    (larger,) = found(boxes((10, 20, 12, 12, 1)), boxes((10, 20, 12, 14, 1)))
    assert larger.score == pytest.approx(24 * 0.85 / 44, rel=1e-6)
    assert int(larger.mask.sum()) == 24


def test_without_a_background_every_object_error_is_of_a_class_and_counts_once() -> None:
    target, seen = boxes((5, 5, 10, 10, 2)), boxes((6, 6, 10, 10, 1))  # moved, but with an IoU of 81 / 119
    (one,) = (one for one in found(target, seen, ROADS) if one.kind != "border")
    assert (one.kind, one.given, one.suggested) == ("class", 2, 1)


def test_a_reference_that_the_model_confirms_has_no_suspect_and_ignored_pixels_none() -> None:
    labels = boxes((5, 5, 10, 10, 2))
    assert found(labels, labels) == []
    target = labels.copy()
    target[5:15, 5:15] = 255
    assert found(target, labels) == []


def test_a_class_of_which_the_model_is_seldom_sure_is_suspected_less() -> None:
    target, probs = boxes((5, 5, 10, 10, 2)), sure(boxes())
    usual = np.array([0.9, 0.9, 0.1])
    (plain,), (lenient,) = (find_suspects(target, probs, CELLS, confidence=each) for each in (None, usual))
    assert plain.score > lenient.score > 0
    sums = confidence_sums(target, probs, CELLS)
    assert sums[1].tolist() == [2300, 0, 100]
    assert sums[0] == pytest.approx([0.9 * 2300, 0, 0.05 * 100])


def test_probabilities_of_one_and_of_two_channels_are_read_alike() -> None:
    target = np.zeros((20, 20), np.uint8)
    probs = np.zeros((1, 20, 20), np.float32)
    probs[0, 5:15, 5:15] = 0.8
    one, two = (find_suspects(target, each, BINARY)[0] for each in (probs, np.concatenate([1 - probs, probs])))
    assert (one.kind, one.size) == ("missing", 100)
    assert two.score == one.score


def test_large_numbers_of_objects_stay_apart() -> None:
    instances = np.array([[0, 2**53, 2**53 + 1, 2**53 + 1]], np.uint64)
    regions = number_regions(np.sign(instances), instances < 2**53 + 2, CELLS, instances)
    assert regions.tolist() == [[0, 1, 2, 2]]


def test_objects_that_touch_stay_apart_by_their_numbers() -> None:
    target, numbers = np.zeros((2, 20, 20), np.uint8)
    target[5:15, 2:18] = 1
    numbers[5:15, 2:10], numbers[5:15, 10:18] = 4, 9
    probs = np.where(numbers == 4, 0.9, 0.1)[None].astype(np.float32)
    (one,) = (each for each in find_suspects(target, probs, BINARY, instances=numbers) if each.kind == "extra")
    assert (one.left, one.size) == (10, 80)


def grid(seed: int = 0) -> np.ndarray:
    """Objects of two classes on a background."""
    labels = np.zeros((160, 160), np.uint8)
    rng = np.random.default_rng(seed)
    for top, left in np.ndindex(8, 8):
        if rng.random() < 0.7:  # the others leave room for more
            labels[top * 20 + 2 : top * 20 + 17, left * 20 + 2 : left * 20 + 17] = rng.integers(1, 3)
    return labels


@pytest.mark.parametrize("spec", [CELLS, ROADS], ids=["with background", "without"])
def test_planted_errors_are_where_the_reference_changed_and_of_every_kind(spec) -> None:
    target = grid()
    before = target.copy()
    changed, _, planted = plant_errors(target, spec, np.random.default_rng(3), share=0.3)
    touched = np.zeros_like(target, bool)
    for one in planted:
        touched[one.box] |= one.mask
        assert (changed[one.box][one.mask] == one.given).any() or one.kind == "border"
    assert ((changed != target) <= touched).all()
    assert (target == before).all()
    assert {one.kind for one in planted} == set(KINDS)


def test_a_perfect_model_finds_every_planted_error_and_its_scores_tell_them_apart() -> None:
    target = grid()
    changed, _, planted = plant_errors(target, CELLS, np.random.default_rng(1), share=0.2)
    found = find_suspects(changed, sure(target), CELLS)
    hits, recovered = match_planted(found, planted, target.shape)
    assert recovered.mean() > 0.9
    assert hits.all()


def test_a_chance_is_errors_to_expect_over_suspects_and_never_falls() -> None:
    rng = np.random.default_rng(0)
    sound, wrong = rng.normal(0, 1, 2000), rng.normal(2, 1, 100)
    planted = rng.normal(2, 1, 300)  # three rounds
    scores = np.sort(np.concatenate([sound, wrong]))
    chances = find_chances(scores, planted, 3)
    assert (np.diff(chances) >= 0).all()
    for at in (0.0, 1.0, 2.0):
        density = [np.exp(-((at - middle) ** 2) / 2) for middle in (0, 2)]
        truth = 100 * density[1] / (100 * density[1] + 2000 * density[0])
        assert np.interp(at, scores, chances) == pytest.approx(truth, abs=0.1)
    assert len(find_chances(np.empty(0), planted, 3)) == 0


def test_a_suspect_finds_an_error_by_their_iou_and_borders_are_found_by_borders() -> None:
    place = {"given": 0, "suggested": 1, "score": 1.0, "size": 4}
    square = np.ones((2, 2), bool)
    errors = [Suspect(kind="class", top=0, left=0, mask=square, **place)]
    for kind, top, found in (("extra", 0, True), ("extra", 1, True), ("extra", 2, False), ("border", 0, False)):
        one = Suspect(kind=kind, top=top, left=0, mask=square, **place)  # a line apart: IoU 2 / 6
        assert [each.tolist() for each in match_planted([one], errors, (6, 6))] == [[found], [found]]


def test_objects_that_touch_are_changed_one_by_one_with_their_numbers() -> None:
    target, instances = np.zeros((40, 40), np.uint8), np.zeros((40, 40), np.int32)
    for number in range(8):  # eight strips, side by side
        target[5:35, 4 * number : 4 * number + 4] = 1
        instances[5:35, 4 * number : 4 * number + 4] = 10 + number
    kinds = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        changed, numbers, planted = plant_errors(target, BINARY, rng, share=0.3, instances=instances)
        assert numbers is not None
        assert ((numbers > 0) == (changed == 1)).all()
        kinds |= {one.kind for one in planted}
        assert all(one.size == 120 for one in planted)
    assert kinds >= {"missing", "border"}
    assert instances.max() == 17
