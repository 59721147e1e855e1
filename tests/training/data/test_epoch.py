"""Which cases an epoch takes."""

import numpy as np

from segmeter.training.data.epoch import ANYWHERE, AUGMENT, WINDOW, count_before, draw, epoch_order, plan_epoch


def test_repeats_count_from_zero_for_each_case():
    assert count_before(np.array([3, 1, 3, 3, 1])).tolist() == [0, 0, 1, 2, 1]
    plan = plan_epoch(4, 10, seed=1, epoch=2)
    assert sorted(plan.numbers.tolist()) == sorted(set(plan.numbers.tolist()))
    cases = plan.numbers % 4
    assert sorted(cases[:4].tolist()) == sorted(cases[4:8].tolist()) == [0, 1, 2, 3]
    assert cases[:4].tolist() == epoch_order(4, seed=1, epoch=2).tolist()
    assert set(plan.labels.tolist()) == {ANYWHERE}


def test_a_rare_class_fills_its_share_although_few_cases_have_it():
    """Class 2 is in 2 of 100 cases; with balance 1 a third of 400 samples are laid around it, evenly over these two."""
    presence = np.ones((100, 3), bool)
    presence[:, 2] = False
    presence[[17, 60], 2] = True
    plan = plan_epoch(100, 400, seed=0, epoch=3, balance=1.0, presence=presence)
    shares = np.bincount(plan.labels, minlength=3)
    assert shares.max() - shares.min() <= 1
    cases = (plan.numbers % 100)[plan.labels == 2]
    counts = np.bincount(cases, minlength=100)
    assert set(np.flatnonzero(counts).tolist()) == {17, 60}
    assert abs(counts[17] - counts[60]) <= 1
    half = plan_epoch(100, 400, seed=0, epoch=3, balance=0.5, presence=presence)
    assert (half.labels == ANYWHERE).sum() == 200
    assert len(set(half.numbers.tolist())) == 400


def test_streams_seeds_epochs_and_samples_draw_independently():
    settings = [{"seed": 1}, {"seed": 2}, {"seed": 1, "epoch": 1}, {"seed": 1, "index": 1}]
    draws = [draw(stream, **each).integers(2**60) for stream in (WINDOW, AUGMENT) for each in settings]
    assert len(set(draws)) == len(draws)
    assert draw(WINDOW, seed=1).integers(2**60) == draws[0]


def test_each_turn_through_the_cases_has_its_own_order():
    first, second = (epoch_order(20, seed=3, epoch=0, turn=turn).tolist() for turn in (0, 1))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second


def test_balance_without_any_class_leaves_the_plan_alone():
    plain, none = (plan_epoch(5, 8, seed=0, epoch=0, balance=b, presence=np.zeros((5, 3), bool)) for b in (0.0, 1.0))
    assert plain.numbers.tolist() == none.numbers.tolist()
    assert set(none.labels.tolist()) == {ANYWHERE}
