"""Planted errors, and the chances that are learned from them."""

import numpy as np
import pytest

from segmeter.metrics.objects.planted import find_chances, match_planted, plant_errors
from segmeter.metrics.objects.suspects import KINDS, Suspect, find_suspects
from tests.data.crafted import BINARY
from tests.metrics.objects.test_suspects import CELLS, ROADS, sure


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
