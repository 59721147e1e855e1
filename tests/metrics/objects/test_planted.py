"""Planted errors, and the chances that are learned from them."""

import numpy as np
import pytest

from segmeter.metrics.objects.planted import calibrate, chance_of, match_planted, plant_errors
from segmeter.metrics.objects.suspects import KINDS, find_suspects
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
    changed, planted = plant_errors(target, spec, np.random.default_rng(3), share=0.3)
    touched = np.zeros_like(target, bool)
    for one in planted:
        touched[one.box] |= one.mask
        assert (changed[one.box][one.mask] == one.given).any() or one.kind == "border"
    assert ((changed != target) <= touched).all()
    assert (target == before).all()
    assert {one.kind for one in planted} == set(KINDS)


def test_a_perfect_model_finds_every_planted_error_and_its_scores_tell_them_apart() -> None:
    target = grid()
    changed, planted = plant_errors(target, CELLS, np.random.default_rng(1), share=0.2)
    found = find_suspects(changed, sure(target), CELLS)
    assert match_planted(planted, found).mean() > 0.9
    assert match_planted(found, planted).all()


def test_a_chance_is_errors_to_expect_over_suspects_and_never_falls() -> None:
    rng = np.random.default_rng(0)
    sound, wrong = rng.normal(0, 1, 2000), rng.normal(2, 1, 100)
    planted = rng.normal(2, 1, 300)  # three rounds
    steps, chances = calibrate(np.concatenate([sound, wrong]), planted, 3)
    assert (np.diff(chances) >= 0).all()
    for at in (0.0, 1.0, 2.0):
        density = [np.exp(-((at - middle) ** 2) / 2) for middle in (0, 2)]
        truth = 100 * density[1] / (100 * density[1] + 2000 * density[0])
        assert chance_of(np.array([at]), steps, chances)[0] == pytest.approx(truth, abs=0.1)
    assert chance_of(np.array([0.5]), *calibrate(np.empty(0), planted, 3)) == 0
