"""Which cases an epoch takes."""

import numpy as np

from segmeter.training.data.epoch import ANYWHERE, AUGMENT, WINDOW, Sources, make_rng, plan_epoch


def test_an_order_takes_every_case_once_and_depends_on_seed_and_epoch():
    orders = [plan_epoch(100, 100, seed=seed, epoch=epoch).numbers for seed, epoch in ((3, 7), (3, 7), (3, 8), (4, 7))]
    assert orders[0].dtype == np.int64
    assert all(sorted(order.tolist()) == list(range(100)) for order in orders)
    assert [np.array_equal(orders[0], order) for order in orders] == [True, True, False, False]
    plan = plan_epoch(100, 250, seed=3, epoch=7)
    assert sorted(plan.numbers[:200].tolist()) == list(range(200)), "repeats count from zero for each case"
    first, second = (plan.numbers[:200] % 100).reshape(2, 100)
    assert not np.array_equal(first, second), "the second turn has an order of its own"
    assert set((plan.numbers[200:] // 100).tolist()) == {2}
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
    other = plan_epoch(100, 400, seed=0, epoch=4, balance=0.5, presence=presence)
    assert (half.labels == ANYWHERE).tolist() != (other.labels == ANYWHERE).tolist()


def test_streams_seeds_epochs_and_samples_draw_independently():
    settings = [{"seed": 1}, {"seed": 2}, {"seed": 1, "epoch": 1}, {"seed": 1, "index": 1}]
    draws = [make_rng(stream, **each).integers(2**60) for stream in (WINDOW, AUGMENT) for each in settings]
    assert len(set(draws)) == len(draws)
    assert make_rng(WINDOW, seed=1).integers(2**60) == draws[0]


FEW_AND_MANY = Sources(of=np.array([0] * 5 + [1] * 95), weights=(3.0, 1.0))


def test_sources_are_numbered_in_the_order_of_their_weights():
    found = Sources.named(["b", "a", "b"], {"a": 1.0, "b": 3.0})
    assert (found.of.tolist(), found.weights) == ([1, 0, 1], (1.0, 3.0))
    assert Sources.named(["b", "a"], {}) is None


def test_sources_have_the_shares_of_their_weights_however_many_cases_they_have():
    plan = plan_epoch(100, 80, seed=1, epoch=4, sources=FEW_AND_MANY)
    cases = plan.numbers % 100
    assert np.bincount(FEW_AND_MANY.of[cases]).tolist() == [60, 20]
    counts = np.bincount(cases, minlength=100)
    assert counts[:5].tolist() == [12] * 5  # each case as often within its source
    assert sorted(counts[5:].tolist()) == [0] * 75 + [1] * 20
    assert len(set(plan.numbers.tolist())) == 80
    half = FEW_AND_MANY.of[cases[:40]].mean()
    assert 0.1 < half < 0.4  # mixed, not one after the other
    other = plan_epoch(100, 80, seed=1, epoch=5, sources=FEW_AND_MANY)
    assert other.numbers.tolist() != plan.numbers.tolist()
    assert plan_epoch(100, 80, seed=1, epoch=4, sources=FEW_AND_MANY).numbers.tolist() == plan.numbers.tolist()


def test_a_sample_around_a_class_stays_in_its_source_where_that_has_the_class():
    """Class 1 is in one case of each source; class 2 only in the second one."""
    presence = np.zeros((100, 3), bool)
    presence[:, 0], presence[[2, 50], 1], presence[70, 2] = True, True, True
    plan = plan_epoch(100, 400, seed=1, epoch=0, balance=1.0, presence=presence, sources=FEW_AND_MANY)
    cases = plan.numbers % 100
    assert set(cases[plan.labels == 1].tolist()) == {2, 50}
    assert set(cases[plan.labels == 2].tolist()) == {70}
    share = (cases[plan.labels == 1] == 2).mean()
    assert abs(share - 0.75) < 0.1


def test_whole_numbers_of_samples_add_up():
    rng = np.random.default_rng(0)
    for _ in range(200):
        samples, weights = int(rng.integers(1, 500)), tuple(rng.uniform(0.01, 9, int(rng.integers(1, 9))).tolist())
        sources = Sources(of=np.arange(len(weights)), weights=weights)
        cases = plan_epoch(len(weights), samples, seed=0, epoch=0, sources=sources).numbers % len(weights)
        shares = np.bincount(cases, minlength=len(weights))
        assert sum(shares) == samples
        assert all(
            abs(share - samples * weight / sum(weights)) < 1 for share, weight in zip(shares, weights, strict=True)
        )
